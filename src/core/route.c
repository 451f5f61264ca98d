/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route.c - which transport carries a request: the one that scores highest; ties go to the one
 * installed first. One that cannot reach the sort of memory that the target is in is not asked. A WRITE to
 * where an earlier one may still be applied is carried by the transport that had that one.
 */
#include "core/route.h"
#include "core/peer.h"

enum tei_mem_kind tei_route_kind(const struct view *v, const te_request *r)
{
    const struct tei_segment *s = v->seg;
    size_t at;
    uint64_t part;

    /* For most segments there is nothing to look up; what is our own is for "local" to know. */
    if (!s || s->kinds == TEI_MEM_BIT(TEI_MEM_HOST))
        return TEI_MEM_HOST;
    if (!tei_segment_cover(s, r->target_offset, r->length, &at, &part))
        return TEI_MEM_HOST;
    return s->buffers[at].kind;
}

unsigned tei_route_score(const struct via *via, const te_request *r, enum tei_mem_kind kind)
{
    struct tei_transport *t = via->transport;

    return t->ops.target_kinds & TEI_MEM_BIT(kind) ? t->ops.score(t, via->attach, r) : 0;
}

struct via *tei_route_holder(struct view *v, const te_request *r)
{
    for (size_t i = 0; v->n_via > 1 && r->opcode == TE_WRITE && i < v->n_via; i++) {
        struct tei_transport *t = v->via[i].transport;

        if (t->ops.holds(t, v->via[i].attach, r))
            return &v->via[i];
    }
    return NULL;
}

struct via *tei_route(struct view *v, const te_request *r, bool *lasts)
{
    enum tei_mem_kind kind = tei_route_kind(v, r);
    struct via *best = tei_route_holder(v, r);
    unsigned high = 0;

    *lasts = !best;
    if (best)
        return best;
    for (size_t i = 0; i < v->n_via; i++) {
        unsigned score = tei_route_score(&v->via[i], r, kind);

        if (score == TEI_SCORE_LATER) {
            *lasts = false;
        } else if (score > high) {
            high = score;
            best = &v->via[i];
        }
    }
    return best;
}
