/* SPDX-License-Identifier: Apache-2.0 */
/* near.h - which name may have been meant by a misspelt one. */
#ifndef TEI_NEAR_H
#define TEI_NEAR_H

#include <stddef.h>

#define TEI_NEAR_MAX 64 /* bytes of a name that is compared */

/*
 * How many bytes have to be put in, taken out or replaced to make the one name of the other. `b` has
 * TEI_NEAR_MAX bytes at most.
 */
size_t tei_near_distance(const char *a, const char *b);

/* The most of it where the other name may be meant: a quarter of the name, and two bytes at most. */
size_t tei_near_limit(const char *name);

#endif
