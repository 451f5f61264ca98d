/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of which none was found to overlap another have no byte in common. */
/* proof: --unsigned-overflow-check --unwind 4 */
#include "core/page_submit.c"
#include "core/page_list.c"
#include "error.h"
#include "proof.h"

enum { MAX = 2, STRIDE_MAX = 63 };

static uint64_t any_place(const te_pages *g, uint64_t extent, struct page_list *l)
{
    *l = (struct page_list){.page = any_size(MAX), .part = any_size(MAX), .layer = any_size(MAX)};
    l->local = make_side(&g->local, extent, NULL);
    ASSUME(l->page < g->local.pages && l->part < g->parts && l->layer < g->layers);
    return place_of(l, &l->local);
}

void proof(void)
{
    te_pages g = {.parts = any_size(MAX),
                  .layers = any_size(MAX),
                  .length = any_size(STRIDE_MAX),
                  .local = {.stride = any_size(STRIDE_MAX),
                            .part_stride = any_size(STRIDE_MAX),
                            .layer_stride = any_size(STRIDE_MAX),
                            .pages = any_size(MAX)}};
    struct page_list a, b;
    uint64_t extent, first, second;
    bool overlap;

    if (measure(&g, &g.local, "", &extent, &overlap) || overlap || g.length == 0)
        return;
    first = any_place(&g, extent, &a);
    second = any_place(&g, extent, &b);
    ASSUME(a.page != b.page || a.part != b.part || a.layer != b.layer);
    PROVE(first >= second ? first - second >= g.length : second - first >= g.length);
}
