/* SPDX-License-Identifier: Apache-2.0 */
#include "base/span.h"

static uint64_t gap(const struct tei_span *a, const struct tei_span *b)
{
    if (a->end < b->begin)
        return b->begin - a->end;
    return b->end < a->begin ? a->begin - b->end : 0;
}

static struct tei_span *nearest(struct tei_span_set *s, const struct tei_span *span)
{
    struct tei_span *near = NULL;

    for (size_t i = 0; i < s->n; i++)
        if (!near || gap(&s->v[i], span) < gap(near, span))
            near = &s->v[i];
    return near;
}

void tei_span_set_add(struct tei_span_set *s, struct tei_span span)
{
    struct tei_span *near;

    /* What it is joined with is taken out, since that may touch others by then. */
    while ((near = nearest(s, &span)) && (gap(near, &span) == 0 || s->n == TEI_SPANS_MAX)) {
        span.begin = tei_min(span.begin, near->begin);
        span.end = tei_max(span.end, near->end);
        *near = s->v[--s->n];
    }
    s->v[s->n++] = span;
}

bool tei_span_set_reaches(const struct tei_span_set *s, struct tei_span span)
{
    for (size_t i = 0; i < s->n; i++)
        if (tei_spans_overlap(s->v[i], span))
            return true;
    return false;
}
