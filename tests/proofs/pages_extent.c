/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that were checked have each of their pieces within what they span, without a wrap. */
/* proof: --unsigned-overflow-check --unwind 4 */
#include "core/page_submit.c"
#include "core/page_list.c"
#include "error.h"
#include "proof.h"

enum { MAX = 3 };

void proof(void)
{
    te_pages g;
    struct page_list l = {0};
    uint64_t extent, number, place;
    bool overlap;

    g.local.index = NULL;
    ASSUME(g.parts >= 1 && g.parts <= MAX && g.layers >= 1 && g.layers <= MAX);
    ASSUME(g.local.pages >= 1 && g.local.pages <= MAX && g.length >= 1);
    if (measure(&g, &g.local, "", &extent, &overlap))
        return;
    l.local = make_side(&g.local, extent, NULL);
    ASSUME(l.page < g.local.pages && l.part < g.parts && l.layer < g.layers);
    place = place_of(&l, &l.local);
    PROVE(extent >= g.length && extent <= UINT64_MAX - g.local.base);
    PROVE(place >= g.local.base && place - g.local.base <= extent - g.length);
}
