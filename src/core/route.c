/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route.c - which transport carries a request: of those that te_paths allows the one that is preferred there, else the
 * one that scores highest; ties go to the one installed first. One that cannot reach the sort of memory that the target
 * is in is not asked. A WRITE to where an earlier one may still be applied is carried by the transport that had that
 * one, or not at all.
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

/* Preferred ones above all others, but for a last resort. */
static uint64_t worth_of(const struct rules *segment, const struct rules *own, size_t place,
                         unsigned score)
{
    const struct rules *by = own && own->prefers ? own : segment;
    uint64_t rank = by && score > TEI_SCORE_LAST ? by->rank[place] : 0;

    return rank << 32 | score;
}

static bool is_allowed(const struct view *v, const struct rules *own, size_t place)
{
    return tei_rules_allow(v->peer->rules, place) && tei_rules_allow(own, place);
}

struct route tei_route(struct view *v, const te_request *r, const struct rules *own)
{
    enum tei_mem_kind kind = tei_route_kind(v, r);
    struct via *holder = tei_route_holder(v, r);
    struct route best = {.lasts = !holder, .held = holder != NULL};
    uint64_t high = 0;

    if (holder && is_allowed(v, own, holder->transport->place))
        best.via = holder;
    for (size_t i = 0; !holder && i < v->n_via; i++) {
        size_t place = v->via[i].transport->place;
        unsigned score = 0;

        if (is_allowed(v, own, place))
            score = tei_route_score(&v->via[i], r, kind);
        if (score == TEI_SCORE_LATER) {
            best.lasts = false;
        } else if (score && worth_of(v->peer->rules, own, place, score) > high) {
            high = worth_of(v->peer->rules, own, place, score);
            best.via = &v->via[i];
        }
    }
    return best;
}
