/* SPDX-License-Identifier: Apache-2.0 */
/* What is taken of a list of pages is each piece once, in order, and as long as the pieces in it are together. */
/* proof: --unsigned-overflow-check --unwind 3 */
#include "core/page_list.c"
#include "proof.h"

enum { MAX = 4, STEPS = 2 };

static struct page_side any_side(void)
{
    uint64_t base;

    ASSUME(base < UINT64_MAX / 2);
    return (struct page_side){.base = base, .part_stride = 1, .stride = 4, .layer_stride = 16};
}

static size_t number_of(const struct page_list *l)
{
    return (l->layer * l->n + l->page) * l->parts + l->part;
}

void proof(void)
{
    struct page_list l = {.n = any_size(MAX),
                          .parts = any_size(MAX),
                          .layers = any_size(MAX),
                          .page = any_size(MAX),
                          .part = any_size(MAX),
                          .layer = any_size(MAX),
                          .length = any_size(MAX),
                          .local = any_side(),
                          .remote = any_side()};
    size_t steps = any_size(STEPS), left = steps, before = number_of(&l);

    ASSUME(l.page < l.n && l.part < l.parts && l.layer < l.layers);
    ASSUME(l.length > 0 && steps > 0);
    struct page_run r = tei_page_list_take(&l, &left);
    PROVE(left < steps && r.length == (steps - left) * l.length);
    PROVE(number_of(&l) == before + (steps - left));
    PROVE(l.page < l.n && l.part < l.parts && l.layer <= l.layers);
}
