/* SPDX-License-Identifier: Apache-2.0 */
/* What a set covers only grows, no two spans of it touch, and it never has more than its room. */
/* proof: --unsigned-overflow-check --unwind 4 */
#include "base/span.h"

/* In place of 16. */
#undef TEI_SPANS_MAX
#define TEI_SPANS_MAX 2

#include "base/span.c"
#include "proof.h"

static void assume_set(const struct tei_span_set *s)
{
    ASSUME(s->n <= TEI_SPANS_MAX);
    for (size_t i = 0; i < s->n; i++) {
        ASSUME(s->v[i].begin < s->v[i].end);
        for (size_t k = 0; k < i; k++)
            ASSUME(gap(&s->v[i], &s->v[k]) > 0);
    }
}

void proof(void)
{
    struct tei_span_set s;
    struct tei_span added;
    uint64_t at;
    bool was_in;
    size_t i, k;

    assume_set(&s);
    ASSUME(added.begin < added.end && at < UINT64_MAX);
    struct tei_span one = {at, at + 1};
    was_in = tei_span_set_reaches(&s, one);
    tei_span_set_add(&s, added);
    PROVE(s.n >= 1 && s.n <= TEI_SPANS_MAX);
    PROVE(tei_span_set_reaches(&s, one) || !(was_in || (at >= added.begin && at < added.end)));
    ASSUME(i < k && k < s.n);
    PROVE(gap(&s.v[i], &s.v[k]) > 0);
}
