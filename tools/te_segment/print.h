/* SPDX-License-Identifier: Apache-2.0 */
/* print.h - segments as text, on standard output. Bytes that a terminal would obey become '?'. */
#ifndef TE_SEGMENT_PRINT_H
#define TE_SEGMENT_PRINT_H

#include "te_segment/registry.h"

/* One line each, in columns under a header. */
void print_table(const struct entry *list, size_t n);
/* [{"name","kind","protocol","buffers","bytes","rpc"}, ...], or {"name","kind","error"}. */
void print_json(const struct entry *list, size_t n);

/* Everything about one segment, whose descriptor is not malformed. */
void print_segment(const struct entry *e);
/* The descriptor as it is stored. */
void print_stored(const struct entry *e);

#endif
