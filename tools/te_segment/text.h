/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - what may stand in a record of files, lists on the command line, and reasons. */
#ifndef TE_SEGMENT_TEXT_H
#define TE_SEGMENT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#define WHY_MAX 512

/* Writes a reason, cut to WHY_MAX; returns false. */
__attribute__((format(printf, 2, 3))) bool because(char why[WHY_MAX], const char *fmt, ...);

/* UTF-8 of at most `max` bytes, not empty, without a character that a terminal would obey. */
bool text_is_plain(const char *text, size_t max);

/* A plain path without empty components, "." and "..": "/a/b", or "a/b" if not `absolute`. */
bool text_is_path(const char *text, bool absolute);

/*
 * The items between commas, empty ones too, as a malloc'ed array of strings in one block, to be
 * given to free(); their number in *n. NULL when memory is out.
 */
char **text_split(const char *text, size_t *n);

#endif
