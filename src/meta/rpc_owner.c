/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_owner.c - whether the engine of a descriptor still answers.
 *
 * An engine of this make is asked for its descriptor without buffers, which says whose it is: after an
 * engine was killed another one may have got its port. Engines of other makes know no pages, so they
 * get a probe, which every engine answers.
 */
#include "meta/meta.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define PAGE_BYTES (1 << 20)

static int check_name(const struct tei_segment *s, const struct tei_bytes *reply)
{
    struct tei_segment *there;
    int rc = tei_segment_decode(reply->data, reply->len, &tei_segment_unlimited, &there);

    if (rc == TE_ERR_METADATA)
        return 0; /* it has no descriptor at this moment */
    if (rc)
        return rc;
    if (strcmp(there->name, s->name) != 0)
        rc = TEI_FAIL(TE_ERR_PEER, "another engine answers there, %.200s", there->name);
    tei_segment_put(there);
    return rc;
}

/* A page that begins behind the last buffer has none. */
static int ask_ours(struct tei_auth *auth, const struct tei_hostport *where,
                    const struct tei_segment *s, int64_t deadline_ns)
{
    char *body = tei_page_request_encode(INT32_MAX, PAGE_BYTES);
    struct tei_bytes reply;
    int rc = body ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory to ask it");

    if (!rc)
        rc = tei_rpc_request(auth, where, TEI_RPC_METADATA, body, strlen(body), 2 * PAGE_BYTES,
                             deadline_ns, &reply);
    free(body);
    if (rc)
        return rc;
    rc = check_name(s, &reply);
    tei_bytes_fini(&reply);
    return rc;
}

int tei_rpc_ask_owner(struct tei_auth *auth, const struct tei_hostport *where,
                      const struct tei_segment *s, int64_t deadline_ns)
{
    return s && s->incarnation ? ask_ours(auth, where, s, deadline_ns)
                               : tei_rpc_probe(auth, where, deadline_ns);
}
