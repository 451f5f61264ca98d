/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.h - how a file is reached by NVMe over fabrics, as a URL and as a record has it:
 *
 *   tcp://10.0.0.1:4420/nqn.2026-01.org.example:kv?nsid=1&fs_path=dir/file
 *   {"transport":"tcp","traddr":"10.0.0.1","trsvcid":"4420","subnqn":"nqn...","nsid":1,
 *    "fs_path":"dir/file"}
 *
 * What it says ends up in the arguments of nvme(1), and from there in the options of the kernel,
 * which stand between commas: a text with a comma, or that begins with '-', is none.
 */
#ifndef TE_SEGMENT_TARGET_H
#define TE_SEGMENT_TARGET_H

#include <stdint.h>

#include <jansson.h>

#include "te_segment/text.h"

#define TARGET_TEXT_MAX 8192 /* of one as a URL */

/* The texts are borrowed from the JSON. */
struct target {
    const char *transport, *traddr, *trsvcid, *subnqn;
    uint32_t nsid;
    const char *fs_path; /* NULL: the namespace itself is the file */
};

bool target_read(const json_t *j, struct target *out, char why[WHY_MAX]);

/* The object of a URL, `skip` added to its nsid; NULL with the reason in `why`. */
json_t *target_parse(const char *url, uint32_t skip, char why[WHY_MAX]);

const char *target_format(const struct target *t, char out[TARGET_TEXT_MAX]);

#endif
