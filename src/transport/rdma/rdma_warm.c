/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_warm.c - connecting ahead: each rail that the first slices between memory registered here and buffers of the
 * peer may go by gets its endpoint, as by the first slice. An endpoint connects by itself, and waits for room by
 * itself, so here it is begun and looked at.
 *
 * With more rails than the NIC has room for endpoints, one gives way to the next: so a rail whose endpoint was READY
 * once is done. One whose endpoint ended through no fault of the rail is tried again, a few times.
 */
#include "transport/rdma/rdma.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES_MAX 4

static_assert(TEI_PATH_NICS * TEI_PATH_NICS <= TEI_WARM_PATHS, "each rail has a place");

enum rail_is { RAIL_UNWANTED, RAIL_OPENING, RAIL_READY, RAIL_FAILED };

/* ----------------------------------------------------------------------------------- what is wanted */

/* The peer's lock is held. */
static int want_route(struct rdma_attach *a, size_t row, size_t buffer, struct tei_warmth *w)
{
    struct tei_path_route *r = tei_rdma_route(a, row, buffer);
    uint16_t rails[2 * TEI_PATH_SET];
    size_t n = r ? tei_paths_first(&a->peer->paths, r, tei_now_ns(), rails) : 0;

    for (size_t i = 0; i < n; i++)
        w->path[rails[i]].state = RAIL_OPENING;
    return !r ? TE_ERR_MEMORY : n ? 0 : TE_ERR_PEER;
}

/* The first error; the other routes have their rails all the same. Buffers that no NIC reaches need none. */
static int want_row(struct rdma_attach *a, size_t row, struct tei_warmth *w)
{
    const struct tei_buffer *b = a->seg->buffers;
    size_t last = SIZE_MAX;
    int rc = 0, one;

    pthread_mutex_lock(&a->peer->lock);
    for (size_t i = 0; i < a->seg->n_buffers; i++) {
        if (a->rows[i] == last || !tei_rdma_has_keys(&a->base, b[i].addr, b[i].length))
            continue;
        last = a->rows[i];
        one = want_route(a, row, i, w);
        rc = rc ? rc : one;
    }
    pthread_mutex_unlock(&a->peer->lock);
    return rc;
}

/* ------------------------------------------------------------------------------------ how it stands */

static void fail_rail(const struct rdma_peer *p, int rail, int error, const char *why,
                      struct tei_warmth *w)
{
    w->path[rail].state = RAIL_FAILED;
    if (w->error)
        return;
    w->error = tei_rdma_is_away(error) ? TE_ERR_PEER : error;
    snprintf(w->why, sizeof w->why, "%s to %.60s@%s: %s",
             p->t->nics[(size_t)rail / p->n_devices].name, p->server,
             p->devices[(size_t)rail % p->n_devices].name, why ? why : te_strerror(error));
}

/* Has the rail an endpoint that is connected, or being connected. */
static void open_rail(struct rdma_peer *p, int rail, struct tei_warmth *w)
{
    struct rdma_endpoint *ep;
    struct rdma_past past;
    int rc;

    if (w->path[rail].tries++ == TRIES_MAX) {
        fail_rail(p, rail, TE_ERR_ENDPOINT, "its connections are given up again and again", w);
        return;
    }
    rc = tei_rdma_peer_ep(p, rail, &ep);
    if (rc) {
        fail_rail(p, rail, rc,
                  rc == TE_ERR_PEER ? "the peer could not be reached of late (MC_CONN_PAUSE_TTL_MS)"
                                    : NULL,
                  w);
        return;
    }
    tei_rdma_monitor_wake(p->t); /* one that yields is begun by its tick */
    tei_rdma_ep_put(ep);
    ep = tei_rdma_peer_ep_now(p, rail, &past);
    if (ep)
        tei_rdma_ep_put(ep);
    w->path[rail].seen = past.n;
}

/* What became of the endpoint that was opened. */
static void look_at(struct rdma_peer *p, struct rdma_endpoint *ep, int rail, struct tei_warmth *w)
{
    enum rdma_ep_state state;
    const char *why;
    bool draining;
    int error;

    pthread_mutex_lock(&ep->lock);
    state = ep->state;
    draining = ep->draining;
    error = ep->error;
    why = ep->why;
    pthread_mutex_unlock(&ep->lock);
    if (state == RDMA_EP_READY || (state == RDMA_EP_DYING && draining))
        w->path[rail].state = RAIL_READY;
    else if (state == RDMA_EP_DYING && error)
        fail_rail(p, rail, error, why, w);
    else if (state == RDMA_EP_DYING)
        open_rail(p, rail, w);
}

static void look(struct rdma_peer *p, int rail, struct tei_warmth *w)
{
    struct rdma_past past;
    struct rdma_endpoint *ep = tei_rdma_peer_ep_now(p, rail, &past);

    if (!ep)
        fail_rail(p, rail, TE_ERR_PEER, "the peer is gone or was started anew", w);
    else if (past.n == w->path[rail].seen)
        look_at(p, ep, rail, w);
    else if (past.drained)
        w->path[rail].state = RAIL_READY;
    else
        open_rail(p, rail, w);
    if (ep)
        tei_rdma_ep_put(ep);
}

static void begin(struct rdma *t, struct rdma_attach *a, struct tei_warmth *w)
{
    int rc = 0, one;

    for (size_t i = 0; i <= t->matrix.n_rows; i++) {
        /* Relaxed: memory that is registered meanwhile may be seen or not. */
        one = atomic_load_explicit(&t->row_users[i], memory_order_relaxed) ? want_row(a, i, w) : 0;
        rc = rc ? rc : one;
    }
    for (int rail = 0; rail < (int)(t->n_nics * a->peer->n_devices); rail++) {
        rc = w->path[rail].state == RAIL_OPENING ? 0 : rc;
        if (w->path[rail].state == RAIL_OPENING)
            open_rail(a->peer, rail, w);
    }
    if (rc)
        fail_rail(a->peer, 0, rc, rc == TE_ERR_PEER ? "no pair of NICs may be tried now" : NULL, w);
}

static void count(size_t n, struct tei_warmth *w)
{
    w->ready = w->opening = w->failed = 0;
    for (size_t i = 0; i < n; i++) {
        w->ready += w->path[i].state == RAIL_READY;
        w->opening += w->path[i].state == RAIL_OPENING;
        w->failed += w->path[i].state == RAIL_FAILED;
    }
}

void tei_rdma_warm(struct tei_transport *base, struct tei_attach *attach, struct tei_warmth *w)
{
    struct rdma_attach *a = tei_container_of(attach, struct rdma_attach, base);
    struct rdma *t = tei_rdma_of(base);
    size_t n = t->n_nics * a->peer->n_devices;
    bool closing = atomic_load(&t->closing);

    if (!w->begun && !closing)
        begin(t, a, w);
    for (size_t i = 0; i < n; i++) {
        if (closing && (w->path[i].state == RAIL_OPENING || !w->begun))
            fail_rail(a->peer, (int)i, TE_ERR_CANCELED, "the transport was closed", w);
        else if (w->path[i].state == RAIL_OPENING)
            look(a->peer, (int)i, w);
    }
    count(n, w);
}
