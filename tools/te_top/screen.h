/* SPDX-License-Identifier: Apache-2.0 */
/* screen.h - the document of rates.h as text. */
#ifndef TE_TOP_SCREEN_H
#define TE_TOP_SCREEN_H

#include <jansson.h>
#include <stdio.h>

#define SPARKS 30 /* looks that the line of an engine shows */

/* What went through an engine, in bytes a second, the last look last. */
struct sparks {
    size_t n;
    double v[SPARKS];
};
void sparks_add(struct sparks *s, double value);

/* One engine, and of its peers at most so many, those with the most bytes. */
void screen_engine(FILE *f, const json_t *engine, const struct sparks *s, size_t peers);

#endif
