/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_peer.c - peers: the table of them, their addresses, and what ends their work from outside.
 *
 * A peer is freed by the last bundle, or name look-up, to leave it. How its queue is worked on:
 * tcp_schedule.c.
 */
#include "transport/tcp/tcp_stream.h"
#include "transport/tcp/tcp_warm.h"

#include "base/err.h"
#include "base/secret.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ the table */

static struct tei_list *bucket_of(struct tcp *t, const struct tei_hostport *where)
{
    uint32_t h = 2166136261u ^ where->port;

    for (const char *s = where->host; *s; s++)
        h = (h ^ (uint8_t)*s) * 16777619u;
    return &t->peers[h % TCP_PEER_BUCKETS];
}

static struct tcp_peer *find(struct tei_list *bucket, const struct tcp_target *target)
{
    for (struct tei_link *n = tei_list_first(bucket); n; n = tei_list_next(bucket, n)) {
        struct tcp_peer *p = tei_container_of(n, struct tcp_peer, link);

        if (p->where.port == target->where.port && p->version == target->version &&
            p->exchange == target->exchange && p->id == target->id &&
            p->where.expected == target->where.expected &&
            strcmp(p->where.host, target->where.host) == 0)
            return p;
    }
    return NULL;
}

/* Deals the lanes out to bundles, the bundles to workers. */
static void deal(struct tcp_peer *p, struct tcp_lane *lanes, unsigned n_lanes)
{
    struct tcp *t = p->t;
    unsigned first = atomic_fetch_add_explicit(&t->next_worker, p->n_bundles, memory_order_relaxed);

    for (unsigned i = 0; i < p->n_bundles; i++) {
        struct tcp_bundle *b = &p->bundles[i];
        unsigned n = n_lanes / p->n_bundles + (i < n_lanes % p->n_bundles);

        *b = (struct tcp_bundle){.peer = p, .worker = &t->workers[(first + i) % t->n_workers]};
        tei_list_init(&b->remnants);
        b->lanes = lanes;
        b->n_lanes = b->n_off = n;
        for (unsigned k = 0; k < n; k++)
            lanes[k].bundle = b;
        lanes += n;
    }
}

static struct tcp_peer *make(struct tcp *t, const struct tcp_target *target)
{
    unsigned n_lanes = (unsigned)tei_min(
        tei_max((size_t)t->conf->tcp_lanes, (size_t)target->n_more + 1), TCP_LANES_MAX);
    unsigned n_bundles = (unsigned)tei_min(n_lanes, t->n_workers);
    struct tcp_peer *p = calloc(1, sizeof *p + n_bundles * sizeof(struct tcp_bundle));
    struct tcp_lane *lanes = calloc(n_lanes, sizeof *lanes);

    if (!p || !lanes || target->exchange->make(lanes, n_lanes)) {
        free(p);
        free(lanes);
        return NULL;
    }
    p->t = t;
    p->where = target->where;
    p->version = target->version;
    p->exchange = target->exchange;
    p->framing = target->framing;
    p->id = target->id;
    p->n_more = target->n_more;
    memcpy(p->more, target->more, sizeof p->more);
    p->numeric = tei_resolve_numeric(p->where.host, p->where.port, &p->addrs[0]);
    p->n_addrs = p->numeric;
    p->bundles = (struct tcp_bundle *)(void *)(p + 1);
    p->n_bundles = p->parts = n_bundles;
    p->check_ns = TEI_NEVER;
    tei_ledger_init(&p->ledger, t->conf->transfer_timeout_ms);
    tei_ledger_init(&p->held, t->conf->transfer_timeout_ms);
    tei_list_init(&p->again);
    tei_list_init(&p->lost);
    tei_list_init(&p->unsettled);
    tei_list_init(&p->crowded);
    pthread_mutex_init(&p->lock, NULL);
    deal(p, lanes, n_lanes);
    return p;
}

void tei_tcp_peer_free(struct tcp_peer *p)
{
    unsigned n = 0;

    for (unsigned i = 0; i < p->n_bundles; i++)
        n += p->bundles[i].n_lanes;
    tei_tcp_frames_settle(p);
    pthread_mutex_destroy(&p->lock);
    tei_ticket_put(p->ticket);
    p->exchange->unmake(p->bundles[0].lanes, n);
    free(p->bundles[0].lanes);
    free(p);
}

/*
 * A peer whose last attachment has gone is freed, unless a WRITE to it may still arrive: it is kept
 * for the time being, at most TCP_LEFT_MAX of that kind, so that the range is known when the peer is
 * opened again. What is lost for good is forgotten. peers_lock held.
 */
static bool is_to_stay(struct tcp_peer *p)
{
    bool yes;

    pthread_mutex_lock(&p->lock);
    tei_tcp_unsettled_add(p, -(int)p->spans.n);
    p->spans.n = 0;
    yes = tei_tcp_unsettled(p) > 0;
    pthread_mutex_unlock(&p->lock);
    return yes;
}

static void let_go(struct tcp_peer *p)
{
    tei_list_del(&p->link);
    pthread_mutex_lock(&p->lock);
    p->gone = true;
    for (unsigned i = 0; i < p->n_bundles; i++)
        tei_tcp_bundle_call(&p->bundles[i]);
    pthread_mutex_unlock(&p->lock);
}

/* Lets go of peers that need not stay any more, and of the oldest where there are too many. */
static void sort_out(struct tcp *t)
{
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&t->left, n, tmp) {
        struct tcp_peer *p = tei_container_of(n, struct tcp_peer, left);

        if (t->n_left <= TCP_LEFT_MAX && is_to_stay(p))
            continue;
        tei_list_del(&p->left);
        t->n_left--;
        let_go(p);
    }
}

/* For another attachment. A newer ticket is for connections that are opened from now on. */
static void join(struct tcp_peer *p, const struct tcp_target *target)
{
    struct tei_ticket *old = NULL;

    pthread_mutex_lock(&p->lock);
    p->moved = p->moved && p->incarnation == target->incarnation;
    p->incarnation = target->incarnation;
    if (target->ticket) {
        old = p->ticket;
        p->ticket = tei_ticket_get(target->ticket);
    }
    pthread_mutex_unlock(&p->lock);
    tei_ticket_put(old);
}

int tei_tcp_peer_get(struct tcp *t, const struct tcp_target *target, struct tcp_peer **out)
{
    struct tei_list *bucket = bucket_of(t, &target->where);
    struct tcp_peer *p;

    pthread_mutex_lock(&t->peers_lock);
    sort_out(t);
    p = find(bucket, target);
    if (!p) {
        p = make(t, target);
        if (p)
            tei_list_push_back(bucket, &p->link);
    }
    if (p)
        join(p, target);
    if (p && p->refs++ == 0 && tei_link_is_in(&p->left)) {
        tei_list_del(&p->left);
        t->n_left--;
    }
    pthread_mutex_unlock(&t->peers_lock);
    if (!p)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for connections to %s:%u", target->where.host,
                        target->where.port);
    *out = p;
    return 0;
}

static void end_wishes(struct tcp_peer *p)
{
    static const struct tcp_fault closed = {TE_ERR_CANCELED, 0, "the segment was closed"};

    pthread_mutex_lock(&p->lock);
    tei_tcp_wishes_fail(p, &closed);
    pthread_mutex_unlock(&p->lock);
}

void tei_tcp_peer_put(struct tcp_peer *p)
{
    struct tcp *t = p->t;

    pthread_mutex_lock(&t->peers_lock);
    if (--p->refs == 0) {
        end_wishes(p); /* also if it stays */
        tei_tcp_peer_drop_idle(p);
        tei_list_push_back(&t->left, &p->left);
        t->n_left++;
        sort_out(t);
    }
    pthread_mutex_unlock(&t->peers_lock);
}

void tei_tcp_peer_leave(struct tcp_peer *p)
{
    bool last;

    pthread_mutex_lock(&p->lock);
    last = --p->parts == 0;
    pthread_mutex_unlock(&p->lock);
    if (last)
        tei_tcp_peer_free(p);
}

static bool ask(struct tcp_peer *p)
{
    static const struct tei_span everywhere = {0, UINT64_MAX};

    if (tei_tcp_unsettled(p) == 0)
        return false;
    pthread_mutex_lock(&p->lock);
    tei_tcp_frames_ask(p, &everywhere);
    pthread_mutex_unlock(&p->lock);
    return true;
}

bool tei_tcp_peers_hold(struct tcp *t)
{
    struct tei_link *n, *tmp;
    bool yes = false;

    pthread_mutex_lock(&t->peers_lock);
    for (size_t i = 0; i < TCP_PEER_BUCKETS; i++)
        TEI_LIST_EACH(&t->peers[i], n, tmp)
            yes = ask(tei_container_of(n, struct tcp_peer, link)) || yes;
    pthread_mutex_unlock(&t->peers_lock);
    return yes;
}

/* ------------------------------------------------------------------------------------ addresses */

static void on_te_aux(struct tei_job *j)
{
    static const struct tcp_fault unknown = {TE_ERR_DNS, 0, "looking up the peer's host name"};
    struct tcp_peer *p = tei_container_of(j, struct tcp_peer, job);
    struct tei_addr addrs[TCP_ADDRS_MAX];
    struct tcp *t = p->t;
    int n = tei_resolve(p->where.host, p->where.port, addrs, TCP_ADDRS_MAX);

    pthread_mutex_lock(&p->lock);
    p->resolving = false;
    p->n_addrs = n > 0 ? n : 0;
    memcpy(p->addrs, addrs, (size_t)p->n_addrs * sizeof addrs[0]);
    /* Bundles of a peer that is gone have been called for the last time; its queue is empty. */
    if (!p->gone) {
        if (p->n_addrs == 0)
            tei_tcp_queue_fail(p, NULL, &unknown);
        tei_tcp_bundle_call(&p->bundles[0]);
    }
    pthread_mutex_unlock(&p->lock);
    tei_tcp_peer_leave(p);
    tei_tcp_job_ended(t);
}

bool tei_tcp_peer_has_addrs(struct tcp_peer *p, bool *look_up)
{
    if (p->n_addrs > 0)
        return true;
    if (!p->resolving) {
        p->resolving = *look_up = true;
        p->parts++;
    }
    return false;
}

void tei_tcp_peer_look_up(struct tcp_peer *p)
{
    tei_tcp_job_begun(p->t);
    tei_jobs_post(p->t->base.host->jobs, &p->job, on_te_aux);
}

/* ------------------------------------------------------------------------------------ from outside */

void tei_tcp_peer_cancel(struct tcp_peer *p, const void *owner)
{
    pthread_mutex_lock(&p->lock);
    tei_tcp_owner_fail(p, owner);
    pthread_mutex_unlock(&p->lock);
}

void tei_tcp_peer_moved(struct tcp_peer *p, uint64_t incarnation)
{
    pthread_mutex_lock(&p->lock);
    p->moved = p->incarnation == incarnation;
    pthread_mutex_unlock(&p->lock);
    tei_tcp_peer_drop_idle(p);
}

void tei_tcp_peer_drop_idle(struct tcp_peer *p)
{
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < p->n_bundles; i++) {
        for (unsigned k = 0; k < p->bundles[i].n_lanes; k++) {
            struct tcp_lane *l = &p->bundles[i].lanes[k];

            l->drop = l->state == LANE_IDLE || l->state == LANE_BUSY;
        }
        tei_tcp_bundle_call(&p->bundles[i]);
    }
    pthread_mutex_unlock(&p->lock);
}
