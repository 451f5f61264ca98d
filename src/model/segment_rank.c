/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment_rank.c - what an engine of another make says of the NPU that it moves data by: the protocol and
 * "rank_info" of its descriptor. Nothing here can use it; it is told to who asks why not.
 */
#include "model/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Numbers are numbers there, or text. */
static const char *word_of(const json_t *rank, const char *key, char out[64])
{
    const json_t *v = json_object_get(rank, key);

    if (json_is_integer(v))
        snprintf(out, 64, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (!tei_json_word(v, out, 64))
        snprintf(out, 64, "?");
    return out;
}

bool tei_segment_rank(const struct tei_segment *s, char *out, size_t n)
{
    const json_t *rank = json_object_get(s->root, "rank_info");
    char id[64], host[64], port[64], device[64], physical[64], ip[64], device_port[64];
    bool direct = tei_segment_speaks(s, "ascend_direct");
    const char *by = direct ? "ascend_direct (HCCS)" : "HCCL";

    if (!json_is_object(rank)) {
        snprintf(out, n, "%s: no rank is told", by);
        return direct || tei_segment_speaks(s, "ascend");
    }
    snprintf(out, n, "%s: rank %s on %s:%s, device %s (physical %s) at %s:%s, %zu endpoints", by,
             word_of(rank, "rankId", id), word_of(rank, "hostIp", host),
             word_of(rank, "hostPort", port), word_of(rank, "deviceLogicId", device),
             word_of(rank, "devicePhyId", physical), word_of(rank, "deviceIp", ip),
             word_of(rank, "devicePort", device_port),
             json_array_size(json_object_get(rank, "endpoints")));
    return true;
}
