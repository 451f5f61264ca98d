/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route.c - which transport carries a request: the one that scores highest; ties go to the one
 * installed first.
 */
#include "core/core.h"

struct via *tei_route(struct view *v, const te_request *r, bool *lasts)
{
    struct via *best = NULL;
    unsigned high = 0;

    *lasts = true;
    for (size_t i = 0; i < v->n_via; i++) {
        struct tei_transport *t = v->via[i].transport;
        unsigned score = t->ops.score(t, v->via[i].attach, r);

        if (score == TEI_SCORE_LATER) {
            *lasts = false;
        } else if (score > high) {
            high = score;
            best = &v->via[i];
        }
    }
    return best;
}
