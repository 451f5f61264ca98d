/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - what can be known of a segment of memory before its engine is up. */
#ifndef TE_SEGMENT_MEMORY_H
#define TE_SEGMENT_MEMORY_H

#include "te_segment/command.h"

/* The descriptor without buffers, malloc'ed; the status to exit with, what was wrong told. */
int memory_descriptor(const struct job *j, char **text, size_t *len);

#endif
