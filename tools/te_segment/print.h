/* SPDX-License-Identifier: Apache-2.0 */
/* print.h - segments as text, on standard output. Bytes that a terminal would obey become '?'. */
#ifndef TE_SEGMENT_PRINT_H
#define TE_SEGMENT_PRINT_H

#include "te_segment/registry.h"

#define TEXT_MAX 512

/* One line each, in columns under a header. */
void print_table(const struct entry *list, size_t n);
/*
 * [{"name","kind","protocol","buffers","bytes","age_s","rpc","answers"}, ...], with "hosts" for
 * files, "silent" for an engine that does not answer, or {"name","kind","error"} and the last ones.
 */
void print_json(const struct entry *list, size_t n);

/*
 * Everything about one segment, whose descriptor is not malformed. `host` is what an engine here is
 * called, "" if only by the name of the host.
 */
void print_segment(const struct entry *e, const char *host);
/* The descriptor as it is stored. */
void print_stored(const struct entry *e);

/* A copy fit for a terminal and for JSON, cut to TEXT_MAX. */
const char *print_clean(const char *text, char out[TEXT_MAX]);
void print_line(const char *key, const char *value);

/* The files of one segment: where each host has them, and whether this host can use them. */
void print_files(const struct entry *e, const char *host);

#endif
