/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sized.h - public structs that begin with their size and may grow at their end.
 *
 * The size tells which release a program was compiled with. A struct of an older one ends earlier: what
 * it lacks has the defaults. One of a newer release ends later: that is taken as long as it asks for
 * nothing that this library does not know, which is when the bytes beyond are zero. A member that is
 * added begins where the struct ended, padding included, or the size would not tell of it.
 */
#ifndef TEI_SIZED_H
#define TEI_SIZED_H

#include <stddef.h>

/* More than this was never set: what is beyond is not looked at. */
#define TEI_SIZED_MAX 4096

/* The size that a struct has when `last` is its last member. */
#define TEI_SIZE_UP_TO(type, last)                                                                 \
    ((offsetof(type, last) + sizeof(((type *)NULL)->last) + _Alignof(type) - 1) / _Alignof(type) * \
     _Alignof(type))

/*
 * Copies `from`, which the program filled in, over the defaults in `to`, of which this library knows
 * `size` bytes and the first release `first`. `what` names it in errors.
 */
int tei_sized_take(void *to, size_t size, size_t first, const void *from, const char *what);

/* Copies `from`, `size` bytes, to `to`, which the program made; bytes of a newer release become 0. */
int tei_sized_give(void *to, size_t size, size_t first, const void *from, const char *what);

/* Copies a text into a buffer of the program; TE_ERR_TOO_LARGE says how much it needs. */
int tei_text_give(const char *text, char *buf, size_t n);

#endif
