/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_work.c - from work to slices and back.
 *
 * Work is in its peer's ledger; a slice is a part. A round cuts slices for as long as pick()
 * (rail/rail.h) finds a rail with room, and so never more than the rails' windows: what remains of a
 * long request waits as a number, not as a list. Slices that came back for another try wait in
 * `again`, which goes first; to the ledger they are under way.
 *
 * Slices of a work with an error are not sent anew; those that the device has are waited for, since
 * until then its memory is not quiet. The one exception to waiting is tei_rdma_peer_tick(): a little
 * later it fails the endpoints that still have some, and they come back flushed, among them innocent
 * ones, which are sent anew.
 *
 * All of it happens under the peer's lock but for posting and giving back, which come after.
 */
#include "transport/rdma/rdma.h"
#include "transport/rdma/rdma_memory.h"
#include "base/probe.h"

#include <stdio.h>
#include <string.h>

#define SPARE_MANY  64                    /* slices taken from the pool at a time */
#define GRACE_NS    (30 * TEI_NS_PER_MS)  /* for slices of a work with an error to come back */
#define PATIENCE_NS (100 * TEI_NS_PER_MS) /* for an endpoint to be connected, if others are */
#define SCAN_MAX    64                    /* works looked at for one that is not blocked */
#define FLUSHED_MAX 1000
#define PEER_AWAY   4 /* attempts that a peer which cannot be talked to at all costs */

/* ---------------------------------------------------------------------------------------- slices */

static struct rdma_slice *get_slice(struct rdma_peer *p)
{
    struct tei_link *link = tei_list_pop(&p->spare);

    for (int i = 0; !link && i < SPARE_MANY; i++) {
        struct rdma_slice *s = tei_pool_get(&p->t->slices);

        if (!s)
            break;
        memset(s, 0, sizeof *s);
        tei_list_push_front(&p->spare, &s->link);
    }
    if (!link)
        link = tei_list_pop(&p->spare);
    return link ? tei_rdma_slice_of(link) : NULL;
}

static void put_slice(struct rdma_peer *p, struct rdma_slice *s)
{
    tei_list_push_front(&p->spare, &s->link);
}

/* Bytes that the next slice of a work may have: by its size, and the chunk of memory it is in. */
static uint64_t next_len(const struct rdma_work *w, const struct rdma_memory *m)
{
    const struct tei_conf *c = tei_rdma_peer_of(&w->entry)->t->conf;
    const struct tei_work *base = &w->entry.base;
    uint64_t left = base->length - w->entry.next;
    uint64_t at = (uintptr_t)base->local + w->entry.next - base->region->addr;
    uint64_t in_chunk = m->chunk - at % m->chunk;
    uint64_t len = tei_slice_len(left, c->slice_size, c->fragment_ratio);

    return tei_min(tei_min(len, in_chunk), UINT32_C(1) << 30);
}

static const struct rdma_memory *memory_of(const struct rdma_work *w)
{
    return w->entry.base.region->keys[w->entry.base.transport->index];
}

/* NICs of ours that do not have its memory. */
static uint32_t lost_of(const struct rdma_work *w)
{
    return atomic_load_explicit(&memory_of(w)->lost, memory_order_relaxed);
}

/* Whether it has to go by certain NICs, while others of its route may go by any. */
static bool is_choosy(const struct rdma_work *w)
{
    return w->keyless || lost_of(w);
}

static void aim(struct rdma_slice *s, const struct tei_path_choice *c)
{
    const struct rdma_work *w = tei_rdma_work_of(s->part.entry);

    s->rail = c->rail;
    s->nic = c->local;
    s->device = c->peer;
    s->lkey = atomic_load_explicit(
        &tei_rdma_keys_at(memory_of(w), c->local, (uintptr_t)s->part.local)->lkey,
        memory_order_relaxed);
    s->rkey = w->rkeys[c->peer];
}

/* For the story of its work: the rail that it takes now. */
static void tell_way(const struct rdma_peer *p, const struct rdma_slice *s)
{
    struct tei_story *story = s->part.entry->base.story;
    char text[TEI_STORY_PATH];

    if (!story)
        return;
    snprintf(text, sizeof(text), "%.60s to %.60s", p->t->nics[s->nic].name,
             p->devices[s->device].name);
    tei_story_via(story, text, s->avoid != TEI_PATH_NO_RAIL && s->avoid != s->rail);
}

static void cut(struct rdma_peer *p, struct rdma_work *w, struct rdma_slice *s, uint64_t len,
                int64_t now)
{
    tei_ledger_take_of(&p->ledger, &w->entry, len, now, &s->part);
    s->attempts = 0;
    s->flushed = 0;
    s->avoid = TEI_PATH_NO_RAIL;
}

/* ----------------------------------------------------------------------------------------- rounds */

/* Slices chosen in one round, by rail. */
struct batch {
    struct {
        int rail;
        struct tei_list list;
    } group[RDMA_GROUPS];
    size_t n;
    bool full; /* there were more rails than groups */
};

static struct tei_list *group_of(struct batch *b, int rail)
{
    for (size_t i = b->n; i-- > 0;)
        if (b->group[i].rail == rail)
            return &b->group[i].list;
    if (b->n == RDMA_GROUPS)
        return NULL;
    b->group[b->n].rail = rail;
    tei_list_init(&b->group[b->n].list);
    return &b->group[b->n++].list;
}

/* A rail for so many bytes of a work, noted as on their way; false if there is none now. */
static bool pick(struct rdma_peer *p, struct batch *b, const struct rdma_work *w, uint64_t len,
                 int avoid, int64_t now, struct tei_path_choice *c, struct tei_list **to)
{
    const struct tei_path_want want = {.len = len,
                                       .now = now,
                                       .avoid = avoid,
                                       .local_without = lost_of(w),
                                       .peer_without = w->keyless};

    if (!w->route || tei_paths_pick(&p->paths, w->route, &want, c) != TEI_PATH_RAIL)
        return false;
    *to = group_of(b, c->rail);
    b->full |= !*to;
    if (!*to)
        return false;
    tei_paths_posted(&p->paths, c->rail, len, now);
    return true;
}

/* The route that has no room for the first that stays, NULL if it has. */
static const struct tei_path_route *choose_again(struct rdma_peer *p, struct batch *b, int64_t now)
{
    struct tei_link *link, *next;
    struct tei_path_choice c;
    struct tei_list *to;

    TEI_LIST_EACH(&p->again, link, next) {
        struct rdma_slice *s = tei_rdma_slice_of(link);
        const struct rdma_work *w = tei_rdma_work_of(s->part.entry);

        if (pick(p, b, w, s->part.length, s->avoid, now, &c, &to)) {
            tei_list_del(link);
            if (c.rail != s->avoid) {
                tei_work_changed(&s->part.entry->base);
                TEI_PROBE2(path_change, p->t->base.ops.name, s->avoid);
            }
            aim(s, &c);
            tell_way(p, s);
            tei_list_push_back(to, link);
        } else if (!is_choosy(w)) {
            return w->route;
        }
    }
    return NULL;
}

/* Cuts what there is room for; true when all of it is in slices. */
static bool choose_of(struct rdma_peer *p, struct batch *b, struct rdma_work *w, int64_t now)
{
    const struct rdma_memory *m = memory_of(w);
    struct tei_path_choice c;
    struct tei_list *to;

    while (w->entry.next < w->entry.base.length) {
        uint64_t len = next_len(w, m);
        struct rdma_slice *s = get_slice(p);

        if (!s || !pick(p, b, w, len, TEI_PATH_NO_RAIL, now, &c, &to)) {
            if (s)
                put_slice(p, s);
            return false;
        }
        cut(p, w, s, len, now);
        aim(s, &c);
        tell_way(p, s);
        tei_list_push_back(to, &s->link);
    }
    return true;
}

/* Work of a route without room does not hold up that of others. */
static void choose(struct rdma_peer *p, struct batch *b, int64_t now)
{
    struct tei_link *link, *next;
    const struct tei_path_route *blocked = choose_again(p, b, now);
    int seen = 0;

    TEI_LIST_EACH(&p->ledger.queue, link, next) {
        struct rdma_work *w = tei_rdma_work_of(tei_entry_of(link));

        if (++seen > SCAN_MAX || b->full)
            break;
        if (w->route == blocked)
            continue;
        if (choose_of(p, b, w, now))
            seen = 0;
        else if (!is_choosy(w))
            blocked = w->route;
    }
}

/* To the endpoints of their rails. */
static void send_batch(struct rdma_peer *p, struct batch *b)
{
    for (size_t i = 0; i < b->n; i++) {
        struct rdma_endpoint *ep;
        int rc = tei_rdma_peer_ep(p, b->group[i].rail, &ep);

        if (rc) {
            tei_rdma_unsent(&b->group[i].list, rc,
                            rc == TE_ERR_PEER
                                ? "no connection lately; MC_CONN_PAUSE_TTL_MS holds off the next"
                                : "no memory for an endpoint");
            continue;
        }
        tei_rdma_ep_take(ep, &b->group[i].list);
        tei_rdma_ep_put(ep);
    }
}

/* Sends what can be sent now. No lock is held. */
static void hand_out(struct rdma_peer *p)
{
    struct batch b;

    do {
        b.n = 0;
        b.full = false;
        pthread_mutex_lock(&p->lock);
        if (!tei_list_empty(&p->ledger.queue) || !tei_list_empty(&p->again))
            choose(p, &b, tei_now_ns());
        pthread_mutex_unlock(&p->lock);
        send_batch(p, &b);
    } while (b.full);
}

/* ------------------------------------------------------------------------------------ work's end */

/*
 * Slices that wait in `again` of works that have failed are over. They are looked for only after a work
 * has failed, for those of one that has are not put there. The peer's lock is held.
 */
static void drop_again(struct rdma_peer *p, int64_t now)
{
    struct tei_link *link, *next;
    bool any = p->failing && !tei_list_empty(&p->ledger.failed);

    p->failing = false;
    if (!any)
        return;
    TEI_LIST_EACH(&p->again, link, next) {
        struct rdma_slice *s = tei_rdma_slice_of(link);

        if (!s->part.entry->base.error)
            continue;
        tei_list_del(link);
        tei_part_give_up(&s->part);
        tei_ledger_back(&p->ledger, &s->part, now);
        put_slice(p, s);
    }
}

/* Releases the peer's lock, and gives back what is over then; the caller holds the peer. */
static void leave(struct rdma_peer *p, int64_t now)
{
    struct rdma *t = p->t;
    struct tei_link *link, *next;
    struct tei_list over;
    size_t n = 0;

    drop_again(p, now);
    tei_list_init(&over);
    tei_ledger_reap(&p->ledger, &over);
    pthread_mutex_unlock(&p->lock);
    TEI_LIST_EACH(&over, link, next)
        n++;
    if (n == 0)
        return;
    t->base.host->work_done(t->base.host, &over);
    atomic_fetch_sub_explicit(&t->n_work, n, memory_order_relaxed);
    tei_rdma_gone(t, n);
}

/* ------------------------------------------------------------------------------------ coming back */

static enum tei_path_fault fault_of(int error)
{
    if (error == TE_ERR_REJECTED)
        return TEI_PATH_FAULT_REFUSED;
    return error == TE_ERR_CONTEXT ? TEI_PATH_FAULT_LOCAL : TEI_PATH_FAULT_RAIL;
}

/* Whether a connection stands; the peer's lock is held. */
static bool is_connected(const struct rdma_peer *p)
{
    for (size_t i = 0; i < p->t->n_nics * p->n_devices; i++)
        if (p->eps[i] && tei_rdma_ep_is_ready(p->eps[i]))
            return true;
    return false;
}

/*
 * A slice that found the peer away too often speaks for all work, unless a connection may carry that: each
 * piece would else wait for tries of its own, and for the pauses between them. So does one that found
 * another life of the peer's engine. The peer's lock is held.
 */
static void give_up(struct rdma_peer *p, const struct rdma_back *b)
{
    bool for_all = b->is_late || (tei_rdma_is_away(b->error) && !is_connected(p));

    if (!for_all)
        return;
    tei_ledger_fail(&p->ledger, NULL, b->error, b->why);
    p->failing = true;
}

/* Whether another try, or another rail, may do better. */
static bool may_pass(int error)
{
    return tei_err_class(error) == TEI_CLASS_PATH || error == TE_ERR_CONTEXT ||
           error == TE_ERR_REJECTED;
}

/*
 * What a failure counts of MC_RETRY_CNT. A peer that has worked refuses a connection while its NIC
 * does not; that passes, and is waited for as it is for a NIC of ours, for as long as the work may be
 * without progress.
 */
static unsigned cost_of(const struct rdma_peer *p, const struct rdma_back *b)
{
    if (!b->fault || (b->error == TE_ERR_REJECTED && p->worked))
        return 0;
    return tei_rdma_is_away(b->error) ? PEER_AWAY : 1;
}

/* Whether the slice may be sent anew; else its part has the error. */
static bool may_retry(struct rdma_peer *p, const struct rdma_back *b)
{
    struct rdma_slice *s = b->slice;
    bool often;

    if (s->part.entry->base.error) {
        tei_part_give_up(&s->part);
        return false;
    }
    s->part.entry->base.why = b->why;
    s->attempts = (uint16_t)(s->attempts + cost_of(p, b));
    s->flushed = (uint16_t)(s->flushed + !b->fault);
    s->avoid = s->rail; /* of those flushed, too: what was wrong is so for them */
    often = s->attempts > p->t->conf->retry_cnt || s->flushed >= FLUSHED_MAX;
    if (may_pass(b->error) && !often)
        return true;
    s->part.error = b->error == TE_ERR_CONTEXT ? TE_ERR_LINK : b->error;
    s->part.why = b->why;
    give_up(p, b);
    return false;
}

static void count_well(struct rdma_peer *p, const struct rdma_slice *s)
{
    atomic_fetch_add_explicit(&p->t->nics[s->nic].n_bytes[s->part.entry->base.opcode],
                              s->part.length, memory_order_relaxed);
    p->worked = true;
}

/* One slice; the peer's lock is held. */
static void take_back(struct rdma_peer *p, const struct rdma_back *b, int64_t now)
{
    struct rdma_slice *s = b->slice;

    tei_paths_done(&p->paths, s->rail, s->part.length, now, b->error == 0);
    if (b->fault && may_pass(b->error))
        tei_paths_failed(&p->paths, s->rail, fault_of(b->error), now);
    if (b->error)
        atomic_fetch_add_explicit(&p->t->nics[s->nic].n_failed, 1, memory_order_relaxed);
    if (b->error && may_retry(p, b)) {
        atomic_fetch_add_explicit(&p->t->n_retries, 1, memory_order_relaxed);
        TEI_PROBE3(retry, p->t->base.ops.name, b->error, s->rail);
        if (s->part.entry->base.story)
            tei_story_again(s->part.entry->base.story);
        /* Those that failed first, so that one soon tells whether there is any way. */
        if (b->fault)
            tei_list_push_front(&p->again, &s->link);
        else
            tei_list_push_back(&p->again, &s->link);
        return;
    }
    s->part.entry->base.nic = p->t->nics[s->nic].number;
    if (b->error) {
        tei_ledger_back(&p->ledger, &s->part, now);
        p->failing = true;
    } else {
        count_well(p, s);
        tei_ledger_moved(&p->ledger, s->part.entry, s->part.length, false, now);
    }
    put_slice(p, s);
}

/* Those at the front that are for one peer; how many. */
static size_t back_to_one(const struct rdma_back *back, size_t n)
{
    struct rdma_peer *p = tei_rdma_peer_of(back[0].slice->part.entry);
    struct rdma *t = p->t;
    int64_t now = tei_now_ns();
    size_t i;

    /* Work that is over lets go of peer and transport, which are needed for longer. */
    tei_rdma_live(t, 1);
    tei_rdma_peer_hold(p);
    pthread_mutex_lock(&p->lock);
    /* Work that is over is given back below: until then each slice's peer may be asked for. */
    for (i = 0; i < n && tei_rdma_peer_of(back[i].slice->part.entry) == p; i++)
        take_back(p, &back[i], now);
    leave(p, now);
    hand_out(p);
    tei_rdma_peer_put(p);
    tei_rdma_gone(t, 1);
    return i;
}

void tei_rdma_back(const struct rdma_back *back, size_t n)
{
    for (size_t i = 0; i < n;)
        i += back_to_one(back + i, n - i);
}

/* All of them alike; `alike` has no slice. */
static void back_alike(struct tei_list *slices, const struct rdma_back *alike)
{
    struct rdma_back back[RDMA_CHAIN_MAX];

    while (!tei_list_empty(slices)) {
        size_t n = 0;

        for (; n < RDMA_CHAIN_MAX && !tei_list_empty(slices); n++) {
            back[n] = *alike;
            back[n].slice = tei_rdma_slice_of(tei_list_pop(slices));
        }
        tei_rdma_back(back, n);
    }
}

void tei_rdma_unsent(struct tei_list *slices, int error, const char *why)
{
    back_alike(slices, &(struct rdma_back){
                           .error = error ? error : TE_ERR_LINK, .fault = error != 0, .why = why});
}

void tei_rdma_late(struct tei_list *slices)
{
    back_alike(slices, &(struct rdma_back){.error = TE_ERR_STALE,
                                           .is_late = true,
                                           .why = "another process has the peer's name now"});
}

/* ------------------------------------------------------------------------------------------- post */

#define CUT_OFF "no NIC has the memory any more: they failed, or were opened anew without it"

/* Whether its memory is lost to all NICs. */
static bool is_cut_off(const struct rdma_work *w)
{
    return lost_of(w) == UINT32_MAX >> (32 - tei_rdma_peer_of(&w->entry)->t->n_nics);
}

/* A NIC that does not work is out of the question anyway. Where none has a key, the peer is to say so. */
static uint32_t keyless_of(const struct rdma_peer *p, const uint32_t *rkeys)
{
    uint32_t none = 0;
    bool any = false;

    for (size_t d = 0; d < p->n_devices; d++)
        none |= (uint32_t)!rkeys[d] << d;
    for (size_t d = 0; none && d < p->n_devices; d++) {
        if (!tei_paths_peer_works(&p->paths, d))
            none &= ~(UINT32_C(1) << d);
        else
            any |= rkeys[d] != 0;
    }
    return any ? none : 0;
}

/* Into the ledger, where it may end at once. The peer's lock is held. */
static void begin(struct rdma_peer *p, struct rdma_work *w, int64_t now)
{
    struct tei_work *base = &w->entry.base;
    struct rdma_attach *a = tei_container_of(base->attach, struct rdma_attach, base);
    const struct tei_buffer *b = tei_segment_find(a->seg, base->remote, base->length);

    w->ended_ns = 0;
    tei_ledger_post(&p->ledger, &w->entry, now);
    if (atomic_load_explicit(&p->t->closing, memory_order_relaxed)) {
        tei_ledger_end(&p->ledger, &w->entry, TE_ERR_CANCELED, 0, NULL);
        return;
    }
    if (!b) {
        tei_ledger_end(&p->ledger, &w->entry, TE_ERR_STALE, 0,
                       "the range lies in more than one buffer of the target");
        return;
    }
    w->rkeys = a->rkeys + (size_t)(b - a->seg->buffers) * p->n_devices;
    w->keyless = keyless_of(p, w->rkeys);
    w->route = tei_rdma_route(a, memory_of(w)->row, (size_t)(b - a->seg->buffers));
    if (!w->route)
        tei_ledger_end(&p->ledger, &w->entry, TE_ERR_MEMORY, 0, "no memory for a route");
    else if (is_cut_off(w))
        tei_ledger_end(&p->ledger, &w->entry, TE_ERR_LINK, 0, CUT_OFF);
}

/* Those at the front that are for one peer. */
static void post_to_one(struct rdma *t, struct tei_list *work)
{
    struct rdma_peer *p = tei_rdma_peer_of(tei_entry_of(tei_list_first(work)));
    int64_t now = tei_now_ns();
    struct tei_link *link;
    size_t n = 0;

    tei_rdma_peer_hold(p);
    pthread_mutex_lock(&p->lock);
    for (; (link = tei_list_first(work)) && tei_rdma_peer_of(tei_entry_of(link)) == p; n++) {
        tei_list_del(link);
        begin(p, tei_rdma_work_of(tei_entry_of(link)), now);
    }
    /* Before any of it can be over. */
    tei_rdma_live(t, n);
    /*
     * Under this lock, which on_tick() takes of each peer before it looks at the number: it finds the work
     * counted, or who has counted it finds that `wanted` was withdrawn.
     */
    atomic_fetch_add_explicit(&t->n_work, n, memory_order_relaxed);
    leave(p, now);
    hand_out(p);
    tei_rdma_peer_put(p);
}

void tei_rdma_post(struct tei_transport *base, struct tei_list *work)
{
    struct rdma *t = tei_rdma_of(base);

    tei_rdma_live(t, 1); /* all of it may be over before this returns */
    while (!tei_list_empty(work))
        post_to_one(t, work);
    tei_rdma_monitor_wake(t);
    tei_rdma_gone(t, 1);
}

/* ---------------------------------------------------------------------------- cancel and deadlines */

static void cancel_one(struct rdma_peer *p, void *owner)
{
    pthread_mutex_lock(&p->lock);
    tei_ledger_fail(&p->ledger, owner, TE_ERR_CANCELED, NULL);
    p->failing = true;
    leave(p, tei_now_ns());
}

void tei_rdma_cancel(struct tei_transport *base, const void *owner)
{
    tei_rdma_peers_each(tei_rdma_of(base), cancel_one, (void *)(uintptr_t)owner);
}

/* Whether a work with an error should be over by now. */
static bool is_overdue(const struct tei_entry *e, int64_t now)
{
    const struct rdma_work *w = tei_rdma_work_of(e);

    return w->ended_ns && now - w->ended_ns > GRACE_NS;
}

/* Whether the endpoint has slices of such works of that peer: those of another are under its lock. */
static bool holds_up(struct rdma_endpoint *ep, const struct rdma_peer *p, int64_t now)
{
    const struct tei_list *lists[] = {&ep->posted, &ep->queue};
    struct tei_link *link, *next;
    bool yes = false;

    pthread_mutex_lock(&ep->lock);
    for (size_t i = 0; i < TEI_ARRAY_LEN(lists); i++) {
        TEI_LIST_EACH(lists[i], link, next) {
            const struct tei_entry *e = tei_rdma_slice_of(link)->part.entry;

            yes |= tei_rdma_peer_of(e) == p && is_overdue(e, now);
        }
    }
    pthread_mutex_unlock(&ep->lock);
    return yes;
}

/* The endpoints that hold up works with an error; referenced. The peer's lock is held. */
static size_t find_overdue(struct rdma_peer *p, int64_t now, struct rdma_endpoint **out, size_t max)
{
    struct tei_link *link, *next;
    bool any = false;
    size_t n = 0;

    TEI_LIST_EACH(&p->ledger.failed, link, next) {
        struct rdma_work *w = tei_rdma_work_of(tei_entry_of(link));

        w->ended_ns = w->ended_ns ? w->ended_ns : now;
        any |= is_overdue(&w->entry, now);
    }
    for (size_t i = 0; any && i < p->t->n_nics * p->n_devices && n < max; i++) {
        if (!p->eps[i] || !holds_up(p->eps[i], p, now))
            continue;
        tei_rdma_ep_hold(p->eps[i]);
        out[n++] = p->eps[i];
    }
    return n;
}

#define SLOW "its connection takes too long"

/*
 * Slices that wait for an endpoint to be connected, though others are: those may carry them. The
 * peer's lock is held.
 */
static void relieve(struct rdma_peer *p, int64_t now, struct tei_list *out)
{
    size_t n = p->t->n_nics * p->n_devices;
    bool ready = false;

    for (size_t i = 0; i < n; i++)
        ready |= p->eps[i] && tei_rdma_ep_is_ready(p->eps[i]);
    for (size_t i = 0; ready && i < n; i++)
        if (p->eps[i])
            tei_rdma_ep_take_waiting(p->eps[i], now - PATIENCE_NS, out);
}

/* Those of an endpoint lie together. */
static void tell_relieved(const struct rdma_peer *p, const struct tei_list *waiting)
{
    int rail = -1;

    for (struct tei_link *n = tei_list_first(waiting); n; n = tei_list_next(waiting, n)) {
        const struct rdma_slice *s = tei_rdma_slice_of(n);

        if (s->rail != rail)
            TEI_DEBUG("rdma: %s to %s@%s: " SLOW "; others carry what waits for it",
                      p->t->nics[s->nic].name, p->server, p->devices[s->device].name);
        rail = s->rail;
    }
}

/* Ends works whose memory no NIC has any more. The peer's lock is held. */
static void end_cut_off(struct rdma_peer *p)
{
    struct tei_list *lists[] = {&p->ledger.queue, &p->ledger.whole};
    struct tei_link *link, *next;

    for (size_t i = 0; i < TEI_ARRAY_LEN(lists); i++)
        TEI_LIST_EACH(lists[i], link, next)
            if (is_cut_off(tei_rdma_work_of(tei_entry_of(link))))
                tei_ledger_end(&p->ledger, tei_entry_of(link), TE_ERR_LINK, 0, CUT_OFF);
}

void tei_rdma_peer_tick(struct rdma_peer *p, int64_t now)
{
    struct rdma_endpoint *overdue[RDMA_GROUPS];
    struct tei_list waiting;
    size_t n = 0;
    bool idle;

    tei_list_init(&waiting);
    pthread_mutex_lock(&p->lock);
    idle = tei_ledger_is_idle(&p->ledger);
    if (!idle) {
        tei_ledger_tick(&p->ledger, now);
        end_cut_off(p);
        p->failing = true; /* either may have ended works */
        n = find_overdue(p, now, overdue, RDMA_GROUPS);
        relieve(p, now, &waiting);
    }
    leave(p, now);
    if (idle)
        return;
    tell_relieved(p, &waiting);
    tei_rdma_unsent(&waiting, TE_ERR_ENDPOINT, SLOW);
    for (size_t i = 0; i < n; i++) {
        tei_rdma_ep_fail(overdue[i], 0, "work on it was given up");
        tei_rdma_ep_put(overdue[i]);
    }
    hand_out(p);
}
