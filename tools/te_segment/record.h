/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - the descriptor of a segment of files (docs/protocol.md, "Files"). Whatever a server
 * has under the key is checked as a whole; what the other functions take has passed that.
 */
#ifndef TE_SEGMENT_RECORD_H
#define TE_SEGMENT_RECORD_H

#include "te_segment/registry.h"
#include "te_segment/target.h"

#define RECORD_KIND      "nvmeof/"
#define RECORD_FILES_MAX 65536

bool record_check(const json_t *root, char why[WHY_MAX]);

size_t record_count(const json_t *root);
const char *record_owner(const json_t *root); /* "server_name"; "" if there is none */
const char *record_path(const json_t *root, size_t i);
uint64_t record_length(const json_t *root, size_t i);
/* What the file itself had when its first bytes were registered; else as record_length(). 0: unknown. */
uint64_t record_whole(const json_t *root, size_t i);
json_t *record_map(const json_t *root, size_t i); /* host to path; NULL if there is none */
/* Where that host has file i; NULL if it does not say. */
const char *record_on(const json_t *root, size_t i, const char *host);
/* How file i is reached over fabrics; false if it does not say. */
bool record_target(const json_t *root, size_t i, struct target *out);
/* How many hosts have a path to a file or more. */
size_t record_hosts(const json_t *root);

/* Whether both have the same files, whoever has mounted them. */
bool record_same_files(const json_t *a, const json_t *b);

#endif
