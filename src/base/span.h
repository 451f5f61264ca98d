/* SPDX-License-Identifier: Apache-2.0 */
/* span.h - ranges of addresses, and sets of a few of them. */
#ifndef TEI_SPAN_H
#define TEI_SPAN_H

#include "base/base.h"

#define TEI_SPANS_MAX 16

/* begin <= x < end */
struct tei_span {
    uint64_t begin, end;
};

/* No two of them touch. Zeroed memory is an empty one. */
struct tei_span_set {
    size_t n;
    struct tei_span v[TEI_SPANS_MAX];
};

static inline bool tei_spans_overlap(struct tei_span a, struct tei_span b)
{
    return a.begin < b.end && b.begin < a.end;
}

/* Joins it with those that it touches and, where there is no room, with the nearest: what a set covers only grows. */
void tei_span_set_add(struct tei_span_set *s, struct tei_span span);
bool tei_span_set_reaches(const struct tei_span_set *s, struct tei_span span);

#endif
