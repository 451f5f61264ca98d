/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_endpoint.c - endpoints: the pool they are kept in, what they post, how they end.
 *
 * The table of a NIC (by_path) has the endpoints that take slices. Each counts to the NIC's cap from
 * when it may have queue pairs until they are destroyed, also while it drains. One for which there
 * is no room waits, and makes the pool's choice of a victim drain; when that is gone, the one that
 * waited longest goes on. So there are never more queue pairs than the device has, and no slice is
 * lost on either. Only those that are READY have to go, for the others have carried nothing yet: where
 * there is none, the monitor looks again.
 *
 * An endpoint ends in two steps. begin_end() takes it out of the table and makes it DYING: nothing
 * is posted any more. Then its slices come back, by completions that tell success (it is drained)
 * or a flush (it failed). reap(), called after each such batch, sees the last one gone and has the queue
 * pairs destroyed on te/aux. A device that does not even flush is not waited for: bury() destroys
 * the queue pairs with slices still out, after which the device cannot touch their memory, and
 * sends these back. It passes through the lock of each completion queue first, under which workers
 * take slices off an endpoint, so no slice can come back twice.
 */
#include "transport/rdma/rdma.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOORBELL_MIN 16 /* work requests that are worth a doorbell while the device is busy, */
#define BUSY_BYTES   (UINT64_C(2) << 20) /* as with these, 40 us for a NIC of 400 Gb/s */

/* ------------------------------------------------------------------------------------ references */

void tei_rdma_ep_hold(struct rdma_endpoint *ep)
{
    atomic_fetch_add_explicit(&ep->refs, 1, memory_order_relaxed);
}

void tei_rdma_ep_put(struct rdma_endpoint *ep)
{
    if (atomic_fetch_sub_explicit(&ep->refs, 1, memory_order_acq_rel) > 1)
        return;
    free(ep->qps);
    free(ep->peer_qps);
    pthread_mutex_destroy(&ep->lock);
    free(ep);
}

/* With one reference, the table's. It is live until bury() is done with it. */
static struct rdma_endpoint *make(struct rdma_nic *n, const char *peer_path)
{
    struct rdma_endpoint *ep = calloc(1, sizeof *ep);

    if (!ep)
        return NULL;
    ep->nic = n;
    snprintf(ep->peer_path, sizeof ep->peer_path, "%s", peer_path);
    atomic_init(&ep->refs, 1);
    pthread_mutex_init(&ep->lock, NULL);
    tei_list_init(&ep->queue);
    tei_list_init(&ep->posted);
    tei_list_init(&ep->asking);
    tei_random(ep->ticket, sizeof ep->ticket);
    pthread_mutex_lock(&n->port_lock);
    ep->gid = n->gid;
    pthread_mutex_unlock(&n->port_lock);
    tei_rdma_live(n->t, 1);
    return ep;
}

/* ------------------------------------------------------------------------------------------ table */

/* Takes it out of everything it is in but `dying`. The pool's lock is held. */
static void unlink_ep(struct rdma_endpoint *ep)
{
    struct rdma_nic *n = ep->nic;

    HASH_DEL(n->by_path, ep);
    if (tei_sieve_is_in(&ep->node))
        tei_sieve_remove(&n->pool, &ep->node);
    if (tei_link_is_in(&ep->link))
        tei_list_del(&ep->link);
    ep->number = ++n->numbers;
    tei_list_push_back(&n->dying, &ep->link);
}

/*
 * Out of the table and DYING. Slices that were not posted are moved to
 * `unsent`. The pool's lock is held.
 */
static void begin_end(struct rdma_endpoint *ep, bool drain, int error, const char *why,
                      struct tei_list *unsent)
{
    bool first = !atomic_exchange(&ep->closed, true);

    if (first)
        unlink_ep(ep);
    pthread_mutex_lock(&ep->lock);
    if (first || (ep->draining && !drain)) {
        ep->state = RDMA_EP_DYING;
        ep->draining = drain;
        ep->error = error;
        ep->why = why;
        ep->ended_ns = tei_now_ns();
        if (!drain && !ep->buried)
            tei_rdma_qps_flush(ep);
    }
    tei_list_splice(unsent, &ep->queue);
    ep->n_queued = 0;
    pthread_mutex_unlock(&ep->lock);
}

static bool may_go(const struct tei_sieve_node *node, void *arg)
{
    (void)arg;
    return tei_rdma_ep_is_ready(tei_container_of(node, struct rdma_endpoint, node));
}

static void set_state(struct rdma_endpoint *ep, enum rdma_ep_state state)
{
    pthread_mutex_lock(&ep->lock);
    ep->state = state;
    pthread_mutex_unlock(&ep->lock);
}

/* From now on it counts, and may have queue pairs. The pool's lock is held. */
static void count_in(struct rdma_endpoint *ep, enum rdma_ep_state state)
{
    ep->nic->n_live++;
    ep->counted = true;
    set_state(ep, state);
    tei_sieve_insert(&ep->nic->pool, &ep->node);
}

/* Lets it have queue pairs, or wait for room; the pool's lock is held. */
static bool admit(struct rdma_endpoint *ep)
{
    struct rdma_nic *n = ep->nic;

    if (n->n_live < n->cap) {
        count_in(ep, RDMA_EP_CONNECTING);
        return true;
    }
    set_state(ep, RDMA_EP_WAITING);
    tei_list_push_back(&n->waiting, &ep->link);
    return false;
}

/* Whether more wait, and `more` besides, than will find room by itself; the pool's lock is held. */
static bool is_crowded(struct rdma_nic *n, size_t more)
{
    struct tei_link *link, *next;
    size_t waiting = more, leaving = 0;

    TEI_LIST_EACH(&n->waiting, link, next)
        waiting++;
    TEI_LIST_EACH(&n->dying, link, next)
        leaving += tei_container_of(link, struct rdma_endpoint, link)->counted;
    return waiting > leaving;
}

/* Has the pool's choice drained; it comes referenced. NULL if nobody waits or none may go. */
static struct rdma_endpoint *expel(struct rdma_nic *n, size_t more, struct tei_list *unsent)
{
    struct tei_sieve_node *node = NULL;
    struct rdma_endpoint *victim = NULL;

    pthread_mutex_lock(&n->pool_lock);
    if (n->n_live >= n->cap && is_crowded(n, more))
        node = tei_sieve_victim(&n->pool, may_go, NULL);
    if (node) {
        victim = tei_container_of(node, struct rdma_endpoint, node);
        tei_rdma_ep_hold(victim);
        begin_end(victim, true, 0, NULL, unsent);
    }
    pthread_mutex_unlock(&n->pool_lock);
    return victim;
}

void tei_rdma_ep_make_room(struct rdma_nic *n, size_t more)
{
    struct rdma_endpoint *victim;
    struct tei_list unsent;

    tei_list_init(&unsent);
    while ((victim = expel(n, more, &unsent))) {
        tei_rdma_ep_reap(victim);
        tei_rdma_ep_put(victim);
    }
    /* At the end: it may come back here. */
    tei_rdma_unsent(&unsent, 0, NULL);
}

static struct rdma_endpoint *find(struct rdma_nic *n, const char *path)
{
    struct rdma_endpoint *ep = NULL;

    HASH_FIND_STR(n->by_path, path, ep);
    if (!ep)
        return NULL;
    tei_sieve_hit(&ep->node);
    tei_rdma_ep_hold(ep);
    return ep;
}

static struct rdma_endpoint *add(struct rdma_nic *n, const char *path)
{
    struct rdma_endpoint *ep = make(n, path);

    if (!ep)
        return NULL;
    if (!TEI_HASH_ADD(n->by_path, ep->peer_path, strlen(ep->peer_path), ep)) {
        tei_rdma_gone(n->t, 1);
        tei_rdma_ep_put(ep);
        return NULL;
    }
    ep->number = ++n->numbers;
    tei_rdma_ep_hold(ep);
    return ep;
}

static bool is_held_off(struct rdma_peer *p)
{
    int64_t until = atomic_load(&p->pause_ns);

    return until > 0 && tei_now_ns() < until;
}

/*
 * What shows the peer that `ep` may replace `before`; an attempt that found no peer hands on its own. And
 * whether it asks at once.
 */
static void inherit(struct rdma_endpoint *ep, struct rdma_endpoint *before)
{
    pthread_mutex_lock(&before->lock);
    ep->has_replaced = before->has_peer_ticket || before->has_replaced;
    memcpy(ep->replaced, before->has_peer_ticket ? before->peer_ticket : before->replaced,
           sizeof ep->replaced);
    if (before->yields)
        ep->yield_until_ns = tei_now_ns() + RDMA_YIELD_NS;
    pthread_mutex_unlock(&before->lock);
}

int tei_rdma_ep_get(struct rdma_nic *n, struct rdma_peer *p, size_t device, bool on_trial,
                    struct rdma_endpoint *before, struct rdma_endpoint **out)
{
    struct rdma_endpoint *ep;
    char path[TEI_RDMA_PATH];
    bool made = false, admitted = false;
    int rc = 0;

    snprintf(path, sizeof path, "%s@%s", p->server, p->devices[device].name);
    pthread_mutex_lock(&n->pool_lock);
    ep = find(n, path);
    if (!ep && is_held_off(p)) {
        rc = TE_ERR_PEER;
    } else if (!ep) {
        ep = add(n, path);
        made = ep != NULL;
        rc = made ? 0 : TE_ERR_MEMORY;
    }
    if (made) {
        ep->where = p->where;
        ep->on_trial = on_trial;
        ep->peer_lid = p->devices[device].lid;
        memcpy(ep->peer_gid, p->devices[device].gid, sizeof ep->peer_gid);
        if (before)
            inherit(ep, before);
        admitted = admit(ep);
    }
    pthread_mutex_unlock(&n->pool_lock);
    if (admitted)
        tei_rdma_connect(ep);
    else if (made)
        tei_rdma_ep_make_room(n, 0);
    *out = ep;
    return rc;
}

struct rdma_endpoint *tei_rdma_ep_find(struct rdma_nic *n, const char *peer_path, bool make_it)
{
    struct rdma_endpoint *ep;
    bool full;

    pthread_mutex_lock(&n->pool_lock);
    ep = find(n, peer_path);
    full = !ep && make_it && n->n_live >= n->cap;
    if (!ep && make_it && !full) {
        ep = add(n, peer_path);
        if (ep)
            count_in(ep, RDMA_EP_NEW);
    }
    pthread_mutex_unlock(&n->pool_lock);
    /* A peer does not wait for its answer as a slice does: it finds room when it asks again. */
    if (full)
        tei_rdma_ep_make_room(n, 1);
    return ep;
}

/*
 * The endpoint behind `before` (NULL: the first) in the table, held; *at is its number there. One that
 * has left the table meanwhile leads to those that were entered after it.
 */
static struct rdma_endpoint *next_in_table(struct rdma_nic *n, struct rdma_endpoint *before,
                                           uint64_t *at)
{
    struct rdma_endpoint *ep;

    pthread_mutex_lock(&n->pool_lock);
    if (before && !atomic_load_explicit(&before->closed, memory_order_relaxed))
        ep = before->hh.next;
    else
        for (ep = n->by_path; ep && ep->number <= *at; ep = ep->hh.next)
            continue;
    if (ep) {
        *at = ep->number;
        tei_rdma_ep_hold(ep);
    }
    pthread_mutex_unlock(&n->pool_lock);
    return ep;
}

/* The same of those that are dying; `before` is one of them, or was. */
static struct rdma_endpoint *next_dying(struct rdma_nic *n, struct rdma_endpoint *before,
                                        uint64_t *at)
{
    struct rdma_endpoint *ep = NULL;
    struct tei_link *link;

    pthread_mutex_lock(&n->pool_lock);
    link = before && tei_link_is_in(&before->link) ? tei_list_next(&n->dying, &before->link)
                                                   : tei_list_first(&n->dying);
    for (; link && !ep; link = tei_list_next(&n->dying, link)) {
        ep = tei_container_of(link, struct rdma_endpoint, link);
        ep = ep->number > *at ? ep : NULL;
    }
    if (ep) {
        *at = ep->number;
        tei_rdma_ep_hold(ep);
    }
    pthread_mutex_unlock(&n->pool_lock);
    return ep;
}

/* Takes no memory. One that begins to die meanwhile may be met twice. */
void tei_rdma_eps_each(struct rdma_nic *n, void (*fn)(struct rdma_endpoint *ep, void *arg),
                       void *arg)
{
    struct rdma_endpoint *(*const nexts[])(struct rdma_nic *, struct rdma_endpoint *,
                                           uint64_t *) = {next_in_table, next_dying};

    for (size_t i = 0; i < TEI_ARRAY_LEN(nexts); i++) {
        uint64_t at = 0;
        struct rdma_endpoint *ep = nexts[i](n, NULL, &at), *next;

        for (; ep; ep = next) {
            fn(ep, arg);
            next = nexts[i](n, ep, &at);
            tei_rdma_ep_put(ep);
        }
    }
}

/* ---------------------------------------------------------------------------------------- posting */

static uint32_t try_reserve(struct rdma_cq *c, uint32_t want)
{
    uint32_t had = atomic_fetch_add(&c->posted, want);
    uint32_t room = had < c->depth ? (uint32_t)tei_min(c->depth - had, want) : 0;

    if (room < want)
        atomic_fetch_sub(&c->posted, want - room);
    return room;
}

/*
 * Reserves room for completions; how much there was, of `want`. Who finds none tries again after
 * saying so: sequentially consistent, as in tei_rdma_cq_poll(), so either it sees the room that a
 * poll has made, or the poll sees it.
 */
static uint32_t reserve(struct rdma_cq *c, uint32_t want)
{
    uint32_t room = try_reserve(c, want);

    if (room > 0)
        return room;
    atomic_store(&c->starved, true);
    return try_reserve(c, want);
}

/* Short data of the CPU's own memory goes with the work request, which saves the NIC a read. */
static bool goes_inline(const struct rdma_endpoint *ep, const struct rdma_slice *s)
{
    return s->part.length <= ep->inline_max && s->part.entry->base.opcode == TE_WRITE &&
           s->part.entry->base.region->kind == TEI_MEM_HOST &&
           strncmp(s->part.entry->base.region->location, "cpu:", 4) == 0;
}

static void fill_wr(const struct rdma_endpoint *ep, struct ibv_send_wr *wr, struct ibv_sge *sge,
                    struct rdma_slice *s)
{
    *sge = (struct ibv_sge){
        .addr = (uintptr_t)s->part.local, .length = (uint32_t)s->part.length, .lkey = s->lkey};
    *wr = (struct ibv_send_wr){
        .wr_id = (uintptr_t)s,
        .sg_list = sge,
        .num_sge = 1,
        .opcode = s->part.entry->base.opcode == TE_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED | (goes_inline(ep, s) ? IBV_SEND_INLINE : 0U),
        .wr.rdma = {.remote_addr = s->part.remote, .rkey = s->rkey}};
}

/* Rings one doorbell for the first `n` slices of the queue; how many the device took. */
static uint32_t post_chain(struct rdma_endpoint *ep, struct rdma_qp *q, uint32_t n)
{
    struct ibv_send_wr wrs[RDMA_CHAIN_MAX], *bad = NULL;
    struct ibv_sge sges[RDMA_CHAIN_MAX];
    const struct tei_conf *c = ep->nic->t->conf;
    struct tei_link *link = tei_list_first(&ep->queue);
    uint32_t taken = n;

    for (uint32_t i = 0; i < n; i++, link = tei_list_next(&ep->queue, link)) {
        fill_wr(ep, &wrs[i], &sges[i], tei_rdma_slice_of(link));
        if (i > 0)
            wrs[i - 1].next = &wrs[i];
    }
    if (ibv_post_send(q->qp, wrs, &bad) != 0)
        taken = bad ? (uint32_t)(bad - wrs) : 0;
    for (uint32_t i = 0; i < taken; i++) {
        struct rdma_slice *s = tei_rdma_slice_of(tei_list_pop(&ep->queue));

        s->qp = q;
        ep->posted_bytes += s->part.length;
        tei_list_push_back(&ep->posted, &s->link);
        if (c->log_slice_affinity)
            tei_rdma_tell_slice(ep, s);
        if (c->track_posted_slices)
            s->posted_ns = tei_now_ns();
    }
    return taken;
}

/* The queue pair with most room. */
static struct rdma_qp *emptiest(const struct rdma_endpoint *ep)
{
    struct rdma_qp *best = &ep->qps[0];

    for (unsigned i = 1; i < ep->n_qps; i++)
        if (ep->qps[i].posted < best->posted)
            best = &ep->qps[i];
    return best;
}

/*
 * How many to post at once: as many as there is room for, but while the device is busy no fewer than
 * are worth a doorbell, for there will be more slices or more room soon: at the latest the completion
 * that leaves the device with too little posts them. Each queue pair gets its part.
 */
static uint32_t how_many(const struct rdma_endpoint *ep, const struct rdma_qp *q)
{
    size_t share = (ep->n_queued + ep->n_qps - 1) / ep->n_qps;
    size_t want = tei_min(ep->n_queued, tei_max(share, DOORBELL_MIN));
    size_t room = ep->nic->depth - q->posted;

    if (ep->n_queued < DOORBELL_MIN && ep->posted_bytes >= BUSY_BYTES)
        return 0;
    if (room < want && room < DOORBELL_MIN && q->posted > 0)
        return 0;
    return (uint32_t)tei_min(tei_min(want, room), RDMA_CHAIN_MAX);
}

/* One doorbell; false when there is nothing to post, or no room, or the queue pair refuses. */
static bool post_some(struct rdma_endpoint *ep)
{
    struct rdma_qp *q = emptiest(ep);
    uint32_t n = how_many(ep, q), granted, taken;

    granted = n ? reserve(q->cq, n) : 0;
    if (granted == 0)
        return false;
    taken = post_chain(ep, q, granted);
    if (taken < granted)
        atomic_fetch_sub_explicit(&q->cq->posted, granted - taken, memory_order_relaxed);
    if (ep->n_posted == 0)
        ep->progress_ns = tei_now_ns();
    q->posted += taken;
    ep->n_posted += taken;
    ep->n_queued -= taken;
    atomic_fetch_add_explicit(&ep->nic->n_doorbells, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&ep->nic->n_slices, taken, memory_order_relaxed);
    ep->refused = taken == 0;
    return taken > 0;
}

/*
 * Posts it if it is WANTED, the peer listens and there is room; where the device refuses, the next kick
 * tries again.
 */
static void post_probe(struct rdma_endpoint *ep)
{
    struct ibv_send_wr wr = {.wr_id = (uintptr_t)ep | RDMA_WR_PROBE,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    struct rdma_qp *q;

    if (ep->probe != RDMA_PROBE_WANTED || ep->state != RDMA_EP_READY)
        return;
    q = emptiest(ep);
    if (q->posted >= ep->nic->depth || reserve(q->cq, 1) == 0)
        return;
    if (ibv_post_send(q->qp, &wr, &bad) != 0) {
        atomic_fetch_sub_explicit(&q->cq->posted, 1, memory_order_relaxed);
        return;
    }
    q->posted++;
    ep->probe_qp = q;
    ep->probe = RDMA_PROBE_OUT;
}

void tei_rdma_ep_probe(struct rdma_endpoint *ep)
{
    if (ep->probe == RDMA_PROBE_NONE) {
        ep->probe = RDMA_PROBE_WANTED;
        ep->probe_ns = tei_now_ns();
    }
    post_probe(ep);
}

/* Whether the life at the other end is the one that a work is for. What tells no life is of another make. */
static bool is_for(const struct rdma_endpoint *ep, const struct tei_entry *e)
{
    uint64_t id = tei_rdma_peer_of(e)->id;

    return id == ep->peer_id || (!e->base.attach->one_life && (id == 0 || ep->peer_id == 0));
}

/*
 * Moves what is for another life than the one at the other end to `late`. Where the endpoint has not
 * asked since that life was known, it may itself be of an older one.
 */
static void sort(struct rdma_endpoint *ep, struct tei_list *late)
{
    struct tei_link *link, *next;

    ep->sorted = true;
    TEI_LIST_EACH(&ep->queue, link, next) {
        const struct tei_entry *e = tei_rdma_slice_of(link)->part.entry;

        if (is_for(ep, e))
            continue;
        if (ep->asked_ns <= tei_rdma_peer_of(e)->made_ns) {
            ep->outdated = true;
            continue;
        }
        tei_list_del(link);
        tei_list_push_back(late, link);
        ep->n_queued--;
    }
}

/* Posts what waits, as far as there is room. The endpoint's lock is held. */
static void pump(struct rdma_endpoint *ep, struct tei_list *late)
{
    if (ep->state != RDMA_EP_READY)
        return;
    if (!ep->sorted)
        sort(ep, late);
    if (ep->outdated)
        return;
    post_probe(ep);
    while (ep->n_queued > 0 && post_some(ep)) {}
}

/* Ends the endpoint where what pump() met wants it, the lock being released. */
static void pumped(struct rdma_endpoint *ep, bool refused, bool outdated, struct tei_list *late)
{
    if (refused)
        tei_rdma_ep_fail(ep, TE_ERR_ENDPOINT, "the device takes no work");
    else if (outdated)
        tei_rdma_ep_fail(ep, 0, "the peer was started anew, or may have been");
    tei_rdma_late(late);
}

void tei_rdma_ep_take(struct rdma_endpoint *ep, struct tei_list *slices)
{
    const struct rdma_slice *first = tei_rdma_slice_of(tei_list_first(slices));
    struct tei_link *link, *next;
    bool refused, outdated;
    struct tei_list late;
    const char *why;
    size_t n = 0;
    int error;

    tei_list_init(&late);
    TEI_LIST_EACH(slices, link, next) {
        tei_rdma_slice_of(link)->ep = ep;
        n++;
    }
    pthread_mutex_lock(&ep->lock);
    if (ep->state != RDMA_EP_DYING) {
        if (ep->n_queued == 0)
            ep->queued_ns = tei_now_ns();
        ep->sorted &= tei_rdma_peer_of(first->part.entry)->id == ep->peer_id;
        tei_list_splice(&ep->queue, slices);
        ep->n_queued += n;
        pump(ep, &late);
    }
    refused = ep->refused;
    outdated = ep->outdated;
    error = ep->error;
    why = ep->why;
    pthread_mutex_unlock(&ep->lock);
    pumped(ep, refused, outdated, &late);
    /* It has ended meanwhile: what comes too late for its queue ends as what was there. */
    if (!tei_list_empty(slices))
        tei_rdma_unsent(slices, error, why);
}

void tei_rdma_ep_kick(struct rdma_endpoint *ep)
{
    bool refused, outdated;
    struct tei_list late;

    tei_list_init(&late);
    pthread_mutex_lock(&ep->lock);
    pump(ep, &late);
    refused = ep->refused;
    outdated = ep->outdated;
    pthread_mutex_unlock(&ep->lock);
    pumped(ep, refused, outdated, &late);
}

bool tei_rdma_ep_is_ready(struct rdma_endpoint *ep)
{
    bool ready;

    pthread_mutex_lock(&ep->lock);
    ready = ep->state == RDMA_EP_READY;
    pthread_mutex_unlock(&ep->lock);
    return ready;
}

bool tei_rdma_ep_is_drained(struct rdma_endpoint *ep)
{
    bool yes;

    pthread_mutex_lock(&ep->lock);
    yes = ep->state == RDMA_EP_DYING && ep->draining;
    pthread_mutex_unlock(&ep->lock);
    return yes;
}

bool tei_rdma_ep_outlives(struct rdma_endpoint *ep, uint64_t id)
{
    bool yes;

    pthread_mutex_lock(&ep->lock);
    yes = ep->peer_id != 0 && ep->peer_id != id;
    pthread_mutex_unlock(&ep->lock);
    return yes;
}

void tei_rdma_ep_take_waiting(struct rdma_endpoint *ep, int64_t since_ns, struct tei_list *out)
{
    pthread_mutex_lock(&ep->lock);
    if (ep->state != RDMA_EP_READY && ep->n_queued > 0 && ep->queued_ns < since_ns) {
        tei_list_splice(out, &ep->queue);
        ep->n_queued = 0;
    }
    pthread_mutex_unlock(&ep->lock);
}

/* --------------------------------------------------------------------------------------- the end */

void tei_rdma_ep_fail(struct rdma_endpoint *ep, int error, const char *why)
{
    struct tei_list unsent;

    if (!atomic_load(&ep->closed)) {
        TEI_DEBUG("rdma: %s to %s: %s", ep->nic->name, ep->peer_path, why ? why : "ended");
        if (ep->nic->t->conf->track_posted_slices)
            tei_rdma_tell_posted(ep, why);
    }
    tei_list_init(&unsent);
    pthread_mutex_lock(&ep->nic->pool_lock);
    begin_end(ep, false, error, why, &unsent);
    pthread_mutex_unlock(&ep->nic->pool_lock);
    tei_rdma_monitor_wake(ep->nic->t); /* should the device give nothing back */
    tei_rdma_unsent(&unsent, error, why);
    tei_rdma_ep_reap(ep);
}

/* What the device will never give back, its queue pairs being destroyed. */
static void take_lost(struct rdma_endpoint *ep, struct tei_list *lost)
{
    struct rdma_nic *n = ep->nic;
    struct tei_link *link, *next;

    for (unsigned i = 0; i < n->n_cqs; i++) {
        pthread_mutex_lock(&n->cqs[i].lock);
        pthread_mutex_unlock(&n->cqs[i].lock);
    }
    pthread_mutex_lock(&ep->lock);
    TEI_LIST_EACH(&ep->posted, link, next)
        atomic_fetch_sub_explicit(&tei_rdma_slice_of(link)->qp->cq->posted, 1,
                                  memory_order_relaxed);
    if (ep->probe == RDMA_PROBE_OUT)
        atomic_fetch_sub_explicit(&ep->probe_qp->cq->posted, 1, memory_order_relaxed);
    ep->probe = RDMA_PROBE_NONE;
    tei_list_splice(lost, &ep->posted);
    ep->n_posted = 0;
    ep->posted_bytes = 0;
    pthread_mutex_unlock(&ep->lock);
}

/* The next that waits for room, if it still does; the pool's lock is held. */
static struct rdma_endpoint *next_waiting(struct rdma_nic *n)
{
    struct tei_link *link = n->n_live < n->cap ? tei_list_pop(&n->waiting) : NULL;
    struct rdma_endpoint *ep = link ? tei_container_of(link, struct rdma_endpoint, link) : NULL;

    if (!ep)
        return NULL;
    count_in(ep, RDMA_EP_CONNECTING);
    tei_rdma_ep_hold(ep);
    return ep;
}

/* On te/aux. Ends the reference of the dying list. */
static void bury(struct tei_job *j)
{
    struct rdma_endpoint *ep = tei_container_of(j, struct rdma_endpoint, job), *next;
    struct rdma_nic *n = ep->nic;
    struct tei_list lost;

    tei_list_init(&lost);
    tei_rdma_qps_destroy(ep);
    take_lost(ep, &lost);
    tei_rdma_unsent(&lost, TE_ERR_LINK, "the device lost it");
    pthread_mutex_lock(&n->pool_lock);
    tei_list_del(&ep->link);
    n->n_live -= ep->counted;
    next = next_waiting(n);
    pthread_mutex_unlock(&n->pool_lock);
    tei_rdma_ep_put(ep);
    if (next) {
        tei_rdma_connect(next);
        tei_rdma_ep_put(next);
    }
    tei_rdma_gone(n->t, 1);
}

/* Whether the device will not give back what it has. The endpoint's lock is held. */
static bool is_lost(const struct rdma_endpoint *ep)
{
    if (ep->draining)
        return false;
    return atomic_load(&ep->nic->broken) || tei_now_ns() - ep->ended_ns > RDMA_FLUSH_NS;
}

void tei_rdma_ep_reap(struct rdma_endpoint *ep)
{
    bool over;

    tei_rdma_answer_asking(ep);
    if (!atomic_load(&ep->closed))
        return;
    pthread_mutex_lock(&ep->lock);
    over = ep->state == RDMA_EP_DYING && !ep->connecting && !ep->buried &&
           ((ep->n_posted == 0 && ep->probe != RDMA_PROBE_OUT) || is_lost(ep));
    ep->buried |= over;
    pthread_mutex_unlock(&ep->lock);
    if (over)
        tei_jobs_post(ep->nic->t->base.host->jobs, &ep->job, bury);
}
