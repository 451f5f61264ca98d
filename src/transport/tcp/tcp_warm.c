/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_warm.c - connecting ahead: lanes that are opened though no work waits for them.
 *
 * warm() wishes for each lane that is not up. The scheduler opens these as it opens lanes for work: one goes ahead,
 * the others follow once it got through. A wish stays until its lane is ready or was given up, whether anybody waits
 * or not, and then it is over: a connection that the peer closes afterwards is not made again. It outlasts a lane
 * that is closed for another reason before that, as one whose work was cancelled. A lane counts the wishes that have
 * ended, by which each te_warm() tells that its own has, though another may have wished again since.
 */
#include "transport/tcp/tcp_warm.h"

#include <assert.h>
#include <stdio.h>

static_assert(TCP_LANES_MAX <= TEI_WARM_PATHS, "each lane has a place");

static void end_wish(struct tcp_lane *l, enum tcp_wish how)
{
    if (l->wish != WISH_OPEN)
        return;
    l->wish = how;
    l->n_wishes++;
    l->bundle->peer->n_wished--;
}

bool tei_tcp_wishes(const struct tcp_bundle *b)
{
    for (unsigned i = 0; b->peer->n_wished && i < b->n_lanes; i++)
        if (b->lanes[i].wish == WISH_OPEN && b->lanes[i].state == LANE_OFF)
            return true;
    return false;
}

void tei_tcp_lane_ready(struct tcp_lane *l)
{
    l->ready = true;
    end_wish(l, WISH_UP);
}

void tei_tcp_wish_fail(struct tcp_lane *l, const struct tcp_fault *f)
{
    if (l->wish != WISH_OPEN)
        return;
    l->bundle->peer->cold = *f;
    end_wish(l, WISH_FAILED);
}

/* The lanes of all bundles lie in one row. */
static unsigned count_lanes(const struct tcp_peer *p)
{
    const struct tcp_bundle *last = &p->bundles[p->n_bundles - 1];

    return (unsigned)(last->lanes - p->bundles[0].lanes) + last->n_lanes;
}

void tei_tcp_wishes_fail(struct tcp_peer *p, const struct tcp_fault *f)
{
    for (unsigned i = 0, n = p->n_wished ? count_lanes(p) : 0; i < n; i++)
        tei_tcp_wish_fail(&p->bundles[0].lanes[i], f);
}

void tei_tcp_wish_drop(struct tcp_lane *l)
{
    end_wish(l, WISH_NONE);
}

/* ----------------------------------------------------------------------------------- what is asked */

static bool is_ready(const struct tcp_lane *l)
{
    return l->ready && !l->drop;
}

static void wish(struct tcp_peer *p, struct tei_warmth *w)
{
    for (unsigned i = 0, n = count_lanes(p); i < n; i++) {
        struct tcp_lane *l = &p->bundles[0].lanes[i];

        w->path[i].seen = l->n_wishes;
        if (l->wish != WISH_OPEN && !is_ready(l)) {
            l->wish = WISH_OPEN;
            p->n_wished++;
        }
    }
    tei_tcp_wishes_trim(p);
    for (unsigned i = 0; p->n_wished && i < p->n_bundles; i++)
        tei_tcp_bundle_call(&p->bundles[i]);
}

static void tell_fault(const struct tcp_peer *p, const struct tcp_fault *f, struct tei_warmth *w)
{
    w->error = f->error;
    snprintf(w->why, sizeof w->why, "%s:%u: %s: %s", p->where.host, (unsigned)p->where.port, f->why,
             f->sys_errno ? tei_errno_text(f->sys_errno) : te_strerror(f->error));
}

/* Whether a lane is ready, on its way, or was given up since this call wished for it. */
static void count(const struct tcp_lane *l, const struct tei_warm_path *path, struct tei_warmth *w)
{
    static const struct tcp_fault closed = {TE_ERR_LINK, 0, "the peer has closed a connection"};
    const struct tcp_fault *cold = &l->bundle->peer->cold;

    if (is_ready(l))
        w->ready++;
    else if (l->wish == WISH_OPEN && l->n_wishes == path->seen)
        w->opening++;
    else if (l->n_wishes != path->seen && l->wish != WISH_NONE && w->failed++ == 0)
        tell_fault(l->bundle->peer, l->wish != WISH_UP && cold->error ? cold : &closed, w);
}

void tei_tcp_warm(struct tei_transport *t, struct tei_attach *a, struct tei_warmth *w)
{
    static const struct tcp_fault closed = {TE_ERR_CANCELED, 0, "the transport was closed"};
    struct tcp_peer *p = ((struct tcp_attach *)a)->peer;

    (void)t;
    w->ready = w->opening = w->failed = 0;
    w->error = 0;
    if (!tei_tcp_peer_keeps(p))
        return;
    pthread_mutex_lock(&p->lock);
    if (atomic_load_explicit(&p->t->closed, memory_order_relaxed)) {
        w->failed = count_lanes(p);
        tell_fault(p, &closed, w);
        pthread_mutex_unlock(&p->lock);
        return;
    }
    if (!w->begun)
        wish(p, w);
    for (unsigned i = 0, n = count_lanes(p); i < n; i++)
        count(&p->bundles[0].lanes[i], &w->path[i], w);
    pthread_mutex_unlock(&p->lock);
}
