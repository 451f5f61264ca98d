/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doubt.c - ranges of a peer's memory that WRITEs which have ended may still change.
 *
 * A WRITE that failed may have bytes on the way to its target. What is known of that differs by
 * transport. One that copies by this process's own threads, or has a device copy, leaves nothing: its work ends after
 * the copy. A device that is broken may say nothing of its copies.
 * One with the op settle() knows its own unsettled ranges, which are asked for (holds()), and not kept
 * here but for a fence of the whole segment. Of any other nothing is known, so the range is lost: whatever
 * the error, since a part may have been sent before another was refused, or the peer not reached again.
 *
 * What a transport knows, it knows of an attachment. When a peer gets another view, which may be of
 * another engine of that name, another port or another instance of the transport, a range that the old
 * attachment holds and the new one knows nothing of is lost, too. It is looked at in one step with the
 * change, so that no fence falls between.
 */
#include "core/doubt.h"

#include "core/peer.h"
#include "core/view.h"

static bool can_settle(const struct tei_transport *t)
{
    return t->has & TEI_HAS_SETTLE;
}

static bool is_settled(const struct tei_transport *t, const struct tei_work *w)
{
    return t->ops.caps & TEI_CAP_SETTLED && w->error != TE_ERR_CONTEXT;
}

static bool holds(const struct via *via, struct tei_span d)
{
    const te_request r = {.opcode = TE_WRITE, .target_offset = d.begin, .length = d.end - d.begin};

    return can_settle(via->transport) && via->transport->ops.holds(via->transport, via->attach, &r);
}

static const struct via *holder(const struct view *v, struct tei_span d)
{
    for (size_t i = 0; i < v->n_via; i++)
        if (holds(&v->via[i], d))
            return &v->via[i];
    return NULL;
}

/* Whether something that the old view knows of that range is beyond what the new one knows. */
static bool is_forgotten(const struct view *from, const struct view *to, struct tei_span d)
{
    const struct via *old = holder(from, d);

    for (size_t i = 0; old && i < to->n_via; i++)
        if (to->via[i].transport == old->transport)
            return !old->transport->ops.is_same(old->attach, to->via[i].attach);
    return old;
}

unsigned tei_doubts_look(const struct peer *p, struct tei_span d, bool *lost)
{
    unsigned holders = 0;

    *lost = tei_span_set_reaches(&p->doubts.lost, d);
    for (size_t i = 0; !*lost && i < p->view->n_via; i++)
        if (holds(&p->view->via[i], d))
            holders |= 1U << i;
    return holders;
}

void tei_doubts_prune(struct peer *p)
{
    struct tei_span_set *s = &p->doubts.open;
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++)
        if (holder(p->view, s->v[i]))
            s->v[n++] = s->v[i];
    s->n = n;
}

void tei_doubts_move(struct peer *p, const struct view *from, const struct view *to)
{
    struct tei_span_set *s = &p->doubts.open;

    for (size_t i = 0; i < s->n; i++)
        if (is_forgotten(from, to, s->v[i]))
            tei_span_set_add(&p->doubts.lost, s->v[i]);
}

/*
 * Room for another one. Each that is there is asked for, which is as much work as noting it: so, where that
 * brings nothing, not for each one that comes.
 */
static void make_room(struct peer *p)
{
    struct doubts *s = &p->doubts;

    if (s->open.n < TEI_SPANS_MAX) {
        s->hold_off = 0;
    } else if (s->hold_off) {
        s->hold_off--;
    } else {
        tei_doubts_prune(p);
        s->hold_off = TEI_SPANS_MAX;
    }
}

static void note_open(struct peer *p, const struct view *v, struct tei_span d)
{
    if (v != p->view && is_forgotten(v, p->view, d))
        tei_span_set_add(&p->doubts.lost, d);
    if (!holder(p->view, d))
        return;
    make_room(p);
    tei_span_set_add(&p->doubts.open, d);
}

void tei_doubts_note(struct view *v, const struct tei_work *w)
{
    const struct tei_transport *t = w->attach ? w->attach->transport : NULL;
    struct tei_span d = {w->remote, w->remote + w->length};
    struct peer *p = v->peer;

    if (w->opcode != TE_WRITE || !t || is_settled(t, w))
        return;
    pthread_mutex_lock(&p->doubts.lock);
    if (can_settle(t))
        note_open(p, v, d);
    else
        tei_span_set_add(&p->doubts.lost, d);
    pthread_mutex_unlock(&p->doubts.lock);
}
