/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rail.c - the NICs of this host, the rails to a peer, and which of them carries a slice.
 *
 * Choice among those: the least predicted time to completion, which is the bytes under way and this
 * slice over the rate of the rail as measured, or all that is under way from its local NIC, to all
 * peers, over that of the port, whichever is longer. A rail that has had nothing for TEI_PATH_PROBE_NS
 * is given the next slice, so that it stays known. With `roundrobin` the rails take turns instead. A
 * slice that failed on a rail waits for one that shares no NIC with it, where the route has such.
 */
#include "rail/rail.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

#define PROBE_LOOK_NS 1000000 /* rails without traffic are looked for so often */
#define FALLBACK_BPS  16000000

/* ---- The NICs of this host ------------------------------------------------------------------------ */

static void set_port_bps(struct tei_path_nic *nic, uint64_t bps)
{
    if (bps < FALLBACK_BPS)
        bps = FALLBACK_BPS;
    atomic_store_explicit(&nic->bps, bps, memory_order_relaxed);
    atomic_store_explicit(&nic->cost, tei_rail_cost_of((double)bps), memory_order_relaxed);
}

void tei_path_nics_init(struct tei_path_nics *nics, const struct tei_path_port *ports, size_t n)
{
    memset(nics, 0, sizeof *nics);
    nics->n = (unsigned)tei_min(n, TEI_PATH_NICS);
    for (unsigned i = 0; i < nics->n; i++) {
        struct tei_path_nic *nic = &nics->nic[i];

        strncpy(nic->name, ports[i].name, TEI_PATH_NAME - 1);
        set_port_bps(nic, ports[i].bps);
        atomic_store_explicit(&nic->active, ports[i].active, memory_order_relaxed);
    }
}

void tei_path_nic_up(struct tei_path_nics *nics, size_t nic, uint64_t bps)
{
    struct tei_path_nic *n = &nics->nic[nic < nics->n ? nic : 0];
    uint64_t old = atomic_load_explicit(&n->bps, memory_order_relaxed);

    if (nic >= nics->n)
        return;
    if (atomic_load_explicit(&n->active, memory_order_relaxed) && (bps == 0 || bps == old))
        return;
    if (bps > 0)
        set_port_bps(n, bps);
    atomic_store_explicit(&n->faults, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&n->ups, 1, memory_order_relaxed);
    atomic_store_explicit(&n->active, true, memory_order_relaxed);
    atomic_fetch_add_explicit(&nics->epoch, 1, memory_order_release);
}

void tei_path_nic_down(struct tei_path_nics *nics, size_t nic)
{
    if (nic < nics->n &&
        atomic_exchange_explicit(&nics->nic[nic].active, false, memory_order_relaxed))
        atomic_fetch_add_explicit(&nics->epoch, 1, memory_order_release);
}

uint64_t tei_path_nic_bytes(const struct tei_path_nics *nics, size_t nic)
{
    return atomic_load_explicit(&nics->nic[nic].outstanding, memory_order_relaxed);
}

/* ---- The rails to one peer ------------------------------------------------------------------------ */

static void set_rail_bps(const struct tei_paths *p, struct tei_rail *r)
{
    uint64_t bps = atomic_load_explicit(&r->nic->bps, memory_order_relaxed);
    uint64_t peer = p->peers[r->peer].bps;

    tei_rail_set_nominal(r, peer > 0 && peer < bps ? peer : bps, p->conf.min_window);
}

static void init_rails(struct tei_paths *p)
{
    for (unsigned i = 0; i < p->n_local; i++) {
        p->ups[i] = atomic_load_explicit(&p->nics->nic[i].ups, memory_order_relaxed);
        for (unsigned j = 0; j < p->n_peer; j++) {
            struct tei_rail *r = &p->rails[tei_path_rail(p, i, j)];

            r->nic = &p->nics->nic[i];
            r->local = (uint8_t)i;
            r->peer = (uint8_t)j;
            r->failed_ns = INT64_MIN;
            r->ok_ns = INT64_MIN;
            set_rail_bps(p, r);
        }
    }
}

static void take_conf(struct tei_paths *p, const struct tei_path_conf *conf)
{
    p->conf = *conf;
    p->conf.affinity = NULL; /* read by now, and the caller's */
    if (conf->min_window == 0)
        p->conf.min_window = TEI_PATH_MIN_WINDOW;
    if (conf->max_slices == 0)
        p->conf.max_slices = UINT32_MAX;
}

int tei_paths_init(struct tei_paths *p, const struct tei_path_conf *conf,
                   struct tei_path_nics *nics, const struct tei_path_port *ports, size_t n)
{
    int rc;

    memset(p, 0, sizeof *p);
    if (nics->n == 0 || n == 0 || n > TEI_PATH_NICS)
        return TEI_FAIL(TE_ERR_INVALID, "%u NICs here and %zu at the peer: there must be 1 to %d",
                        nics->n, n, TEI_PATH_NICS);
    p->nics = nics;
    p->n_local = nics->n;
    p->n_peer = (unsigned)n;
    p->nics_epoch = atomic_load_explicit(&nics->epoch, memory_order_acquire);
    p->wake_ns = INT64_MAX;
    p->epoch = 1;
    take_conf(p, conf);
    p->rails = calloc((size_t)p->n_local * n, sizeof *p->rails);
    p->peers = calloc(n, sizeof *p->peers);
    if (!p->rails || !p->peers) {
        tei_paths_fini(p);
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for %zu rails", p->n_local * n);
    }
    for (unsigned j = 0; j < n; j++) {
        strncpy(p->peers[j].name, ports[j].name, TEI_PATH_NAME - 1);
        p->peers[j].bps = ports[j].bps;
        p->peers[j].active = ports[j].active;
    }
    init_rails(p);
    rc = tei_path_map(p, conf);
    if (rc)
        tei_paths_fini(p);
    return rc;
}

void tei_paths_fini(struct tei_paths *p)
{
    free(p->rails);
    free(p->peers);
    p->rails = NULL;
    p->peers = NULL;
}

/* ---- Routes --------------------------------------------------------------------------------------- */

static void add_nics(struct tei_path_list *to, const struct tei_path_list *from,
                     const struct tei_path_list *besides, unsigned n)
{
    for (unsigned k = 0; from && k < from->n && k < TEI_PATH_NICS; k++) {
        uint8_t nic = from->nic[k];

        if (nic < n && !tei_path_has(to, nic) && !(besides && tei_path_has(besides, nic)))
            to->nic[to->n++] = nic;
    }
}

static void take_lists(struct tei_path_list out[2], const struct tei_path_list *preferred,
                       const struct tei_path_list *available, unsigned n)
{
    memset(out, 0, 2 * sizeof *out);
    add_nics(&out[0], preferred, NULL, n);
    add_nics(&out[out[0].n > 0], available, &out[0], n);
    for (unsigned i = 0; out[0].n < n && out[0].n == i; i++)
        out[0].nic[out[0].n++] = (uint8_t)i;
}

void tei_paths_route(struct tei_paths *p, const struct tei_path_list *local_preferred,
                     const struct tei_path_list *local_available,
                     const struct tei_path_list *peer_preferred,
                     const struct tei_path_list *peer_available, struct tei_path_route *out)
{
    memset(out, 0, sizeof *out);
    take_lists(out->local, local_preferred, local_available, p->n_local);
    take_lists(out->peer, peer_preferred, peer_available, p->n_peer);
    tei_path_deal(p, out);
    tei_path_refresh(p, out);
}

/* ---- What time and NICs change -------------------------------------------------------------------- */

static void look_at_nics(struct tei_paths *p, uint32_t epoch)
{
    p->nics_epoch = epoch;
    p->epoch++;
    for (unsigned i = 0; i < p->n_local; i++) {
        uint32_t ups = atomic_load_explicit(&p->nics->nic[i].ups, memory_order_relaxed);

        if (ups == p->ups[i])
            continue;
        p->ups[i] = ups;
        for (unsigned j = 0; j < p->n_peer; j++) {
            tei_rail_forgive(&p->rails[tei_path_rail(p, i, j)]);
            set_rail_bps(p, &p->rails[tei_path_rail(p, i, j)]);
        }
    }
}

static void wake_rails(struct tei_paths *p, int64_t now)
{
    p->wake_ns = INT64_MAX;
    for (unsigned k = 0; k < p->n_local * p->n_peer; k++) {
        struct tei_rail *r = &p->rails[k];

        if (r->state != TEI_RAIL_PAUSED)
            continue;
        if (r->until_ns <= now) {
            tei_rail_resume(r);
            p->epoch++;
        } else if (r->until_ns < p->wake_ns) {
            p->wake_ns = r->until_ns;
        }
    }
}

static uint64_t live_bit(unsigned rail)
{
    return UINT64_C(1) << rail % 64;
}

static unsigned rail_number(const struct tei_paths *p, const struct tei_rail *r)
{
    return (unsigned)(r - p->rails);
}

/* The first rail with something to measure, of those from number `rail` on. */
static struct tei_rail *live_from(const struct tei_paths *p, unsigned rail)
{
    for (unsigned w = rail / 64; w < TEI_ARRAY_LEN(p->live); w++) {
        uint64_t left = p->live[w];

        if (w == rail / 64)
            left &= UINT64_MAX << rail % 64;
        if (left)
            return &p->rails[w * 64 + (unsigned)__builtin_ctzll(left)];
    }
    return NULL;
}

static struct tei_rail *first_live(const struct tei_paths *p)
{
    return live_from(p, 0);
}

static struct tei_rail *next_live(const struct tei_paths *p, const struct tei_rail *r)
{
    return live_from(p, rail_number(p, r) + 1);
}

/* A port that turns out faster than it said is no bound to its rails. */
static void raise_port(struct tei_rail *r)
{
    if (r->cost < atomic_load_explicit(&r->nic->cost, memory_order_relaxed))
        atomic_store_explicit(&r->nic->cost, r->cost, memory_order_relaxed);
}

/*
 * Settles the speed of each rail just measured. Those that meet in a NIC are compared with the other
 * rails: in the same time per slice, or longer? The time is what was under way over the rate.
 */
static void compare_rails(struct tei_paths *p, int64_t now)
{
    unsigned local[TEI_PATH_NICS] = {0}, peer[TEI_PATH_NICS] = {0};
    double depth = 0, rate = 0;
    struct tei_rail *r;

    for (r = first_live(p); r; r = next_live(p, r)) {
        if (tei_rail_is_known(r, now)) {
            depth += r->depth;
            rate += r->sample;
            local[r->local]++;
            peer[r->peer]++;
        }
    }
    for (r = first_live(p); r; r = next_live(p, r)) {
        bool meets = local[r->local] > 1 || peer[r->peer] > 1;

        if (r->sampled_ns == now)
            tei_rail_settle(r, meets ? (depth - r->depth) / (rate - r->sample) : 0);
    }
}

static void measure_rails(struct tei_paths *p, int64_t now)
{
    p->tick_ns = now + TEI_RAIL_WINDOW_NS;
    for (struct tei_rail *r = first_live(p); r; r = next_live(p, r)) {
        if (!tei_rail_measure(r, p->conf.min_window, now))
            p->live[rail_number(p, r) / 64] &= ~live_bit(rail_number(p, r));
        raise_port(r);
    }
    compare_rails(p, now);
}

static void look(struct tei_paths *p, uint32_t nics_epoch, int64_t now)
{
    if (nics_epoch != p->nics_epoch)
        look_at_nics(p, nics_epoch);
    if (now >= p->wake_ns)
        wake_rails(p, now);
    if (now >= p->tick_ns)
        measure_rails(p, now);
    p->look_ns = p->wake_ns < p->tick_ns ? p->wake_ns : p->tick_ns;
}

static void catch_up(struct tei_paths *p, struct tei_path_route *route, int64_t now)
{
    uint32_t nics_epoch = atomic_load_explicit(&p->nics->epoch, memory_order_acquire);

    if (now >= p->look_ns || nics_epoch != p->nics_epoch)
        look(p, nics_epoch, now);
    if (route->epoch != p->epoch)
        tei_path_refresh(p, route);
}

bool tei_paths_peer_works(const struct tei_paths *p, size_t peer)
{
    return p->peers[peer].active;
}

bool tei_paths_is_on_trial(const struct tei_paths *p, int rail)
{
    return p->rails[rail].state != TEI_RAIL_ACTIVE;
}

void tei_paths_peer_changed(struct tei_paths *p, size_t peer, bool active)
{
    if (peer >= p->n_peer || p->peers[peer].active == active)
        return;
    p->peers[peer].active = active;
    p->epoch++;
    for (unsigned i = 0; active && i < p->n_local; i++)
        tei_rail_forgive(&p->rails[tei_path_rail(p, i, (unsigned)peer)]);
}

/* ---- The choice ----------------------------------------------------------------------------------- */

static bool is_full(const struct tei_paths *p, const struct tei_rail *r)
{
    return r->outstanding >= r->window || r->n_out >= p->conf.max_slices;
}

/* The search for a rail: for whom, and the best so far. */
struct search {
    const struct tei_path_want *want;
    bool apart; /* of the rails that share no NIC with the one to avoid */
    uint64_t cost;
    int rail;
};

/* Nothing in common with the rail on which the slice failed: either NIC may be what is broken. */
static bool is_apart(const struct tei_paths *p, const struct tei_rail *r, int avoid)
{
    return r->local != p->rails[avoid].local && r->peer != p->rails[avoid].peer;
}

static bool has_apart(const struct tei_paths *p, const struct tei_path_route *route, int avoid)
{
    for (unsigned k = 0; avoid != TEI_PATH_NO_RAIL && k < route->n_set; k++)
        if (is_apart(p, &p->rails[route->set[k]], avoid))
            return true;
    return false;
}

static bool may_take(const struct tei_paths *p, const struct search *s, int rail)
{
    const struct tei_rail *r = &p->rails[rail];

    return rail != s->want->avoid && !is_full(p, r) &&
           (!s->apart || is_apart(p, r, s->want->avoid));
}

/*
 * What a slice would have to wait for: what is before it on the rail, or on the local NIC if that is
 * more. An eighth of the former is added, so that of rails behind one busy NIC the emptier is taken.
 */
static uint64_t cost_of(const struct tei_rail *r, uint64_t len)
{
    uint64_t on_rail = (r->outstanding + len) * r->cost;
    uint64_t on_nic = (atomic_load_explicit(&r->nic->outstanding, memory_order_relaxed) + len) *
                      atomic_load_explicit(&r->nic->cost, memory_order_relaxed);

    return (on_rail > on_nic ? on_rail : on_nic) + on_rail / 8;
}

static void scan(const struct tei_paths *p, const struct tei_path_route *route, unsigned from,
                 unsigned to, struct search *s)
{
    for (unsigned k = from; k < to; k++) {
        int rail = route->set[k];
        uint64_t cost;

        if (!may_take(p, s, rail))
            continue;
        cost = cost_of(&p->rails[rail], s->want->len);
        if (cost < s->cost) {
            s->cost = cost;
            s->rail = rail;
        }
    }
}

/* Begins elsewhere each time, so that rails alike take turns. */
static int least_cost(const struct tei_paths *p, struct tei_path_route *route, struct search *s)
{
    unsigned turn = route->turn;

    scan(p, route, turn, route->n_set, s);
    scan(p, route, 0, turn, s);
    route->turn = (uint16_t)(turn + 1U >= route->n_set ? 0 : turn + 1U);
    return s->rail;
}

static int next_in_turn(const struct tei_paths *p, struct tei_path_route *route,
                        const struct search *s)
{
    for (unsigned k = 0; k < route->n_set; k++) {
        unsigned at = route->turn;
        int rail = route->set[at];

        route->turn = (uint16_t)(at + 1U >= route->n_set ? 0 : at + 1U);
        if (may_take(p, s, rail))
            return rail;
    }
    return TEI_PATH_NO_RAIL;
}

/* A rail of the set to which nothing was given for too long. */
static int due_for_probe(const struct tei_paths *p, struct tei_path_route *route, int64_t now)
{
    route->probe_ns = now + PROBE_LOOK_NS;
    for (unsigned k = 0; k < route->n_set; k++) {
        const struct tei_rail *r = &p->rails[route->set[k]];

        if (r->n_out == 0 && now - r->given_ns >= TEI_PATH_PROBE_NS)
            return route->set[k];
    }
    return TEI_PATH_NO_RAIL;
}

static int due_for_trial(const struct tei_paths *p, const struct tei_path_route *route)
{
    for (unsigned k = 0; k < route->n_trials; k++) {
        if (p->rails[route->trials[k]].n_out == 0)
            return route->trials[k];
    }
    return TEI_PATH_NO_RAIL;
}

/* A slice that failed once is no probe, unless there is no other way. */
static int choose(const struct tei_paths *p, struct tei_path_route *route,
                  const struct tei_path_want *want)
{
    bool is_first = want->avoid == TEI_PATH_NO_RAIL;
    struct search search = {want, has_apart(p, route, want->avoid), UINT64_MAX, TEI_PATH_NO_RAIL};
    int rail = TEI_PATH_NO_RAIL;

    if (route->n_trials > 0 && (is_first || route->n_set == 0))
        rail = due_for_trial(p, route);
    if (rail >= 0)
        return rail;
    if (is_first && want->now >= route->probe_ns && !p->conf.roundrobin)
        rail = due_for_probe(p, route, want->now);
    if (rail >= 0)
        return rail;
    if (route->n_set == 1 && route->set[0] == want->avoid && !is_full(p, &p->rails[want->avoid]))
        return want->avoid;
    if (p->conf.roundrobin)
        return next_in_turn(p, route, &search);
    rail = least_cost(p, route, &search);
    route->stick = rail;
    route->stick_left = want->len < TEI_PATH_STICKY ? TEI_PATH_STICKY - want->len : 0;
    return rail;
}

static bool is_able(const struct tei_paths *p, const struct tei_rail *r,
                    const struct tei_path_want *want)
{
    return !(want->local_without >> r->local & 1) && !(want->peer_without >> r->peer & 1) &&
           p->peers[r->peer].active && atomic_load_explicit(&r->nic->active, memory_order_relaxed);
}

/* Which rails are looked at for what not all NICs have. */
enum among { PREFERRED_PARTNERS, PARTNERS, ALL };

static bool is_among(const struct tei_paths *p, const struct tei_path_route *route,
                     const struct tei_rail *r, enum among among)
{
    if (among == ALL)
        return true;
    return tei_path_is_apt(p, r->local, r->peer) &&
           (among == PARTNERS || tei_path_has(&route->local[0], r->local));
}

/* The best of these, or one on probation while none works. False: there is neither. */
static bool choose_among(const struct tei_paths *p, const struct tei_path_route *route,
                         const struct tei_path_want *want, enum among among, int *rail)
{
    int best = TEI_PATH_NO_RAIL, trial = TEI_PATH_NO_RAIL;
    bool any = false, again = false;
    uint64_t least = UINT64_MAX;

    for (unsigned k = 0; k < p->n_local * p->n_peer; k++) {
        const struct tei_rail *r = &p->rails[k];

        if (!is_among(p, route, r, among) || !is_able(p, r, want))
            continue;
        if (r->state == TEI_RAIL_PROBATION && r->n_out == 0)
            trial = (int)k;
        if (r->state != TEI_RAIL_ACTIVE)
            continue;
        any |= (int)k != want->avoid;
        again |= (int)k == want->avoid && !is_full(p, r);
        if ((int)k != want->avoid && !is_full(p, r) && cost_of(r, want->len) < least) {
            least = cost_of(r, want->len);
            best = (int)k;
        }
    }
    *rail = any ? best : again ? want->avoid : trial;
    return any || *rail >= 0;
}

/* For what not all NICs have. */
static int choose_able(const struct tei_paths *p, const struct tei_path_route *route,
                       const struct tei_path_want *want)
{
    int rail = TEI_PATH_NO_RAIL;

    for (int among = p->has_partners ? PREFERRED_PARTNERS : ALL; among <= ALL; among++)
        if (choose_among(p, route, want, (enum among)among, &rail))
            break;
    return rail;
}

static bool sticks(const struct tei_paths *p, const struct tei_path_route *route,
                   const struct tei_path_want *want)
{
    return want->len <= route->stick_left && route->stick >= 0 && want->avoid == TEI_PATH_NO_RAIL &&
           !is_full(p, &p->rails[route->stick]);
}

enum tei_path_answer tei_paths_pick(struct tei_paths *p, struct tei_path_route *route,
                                    const struct tei_path_want *want, struct tei_path_choice *out)
{
    int rail;

    catch_up(p, route, want->now);
    if (want->local_without | want->peer_without) {
        rail = choose_able(p, route, want);
    } else if (sticks(p, route, want)) {
        rail = route->stick;
        route->stick_left -= want->len;
    } else {
        rail = choose(p, route, want);
    }
    out->rail = rail;
    if (rail < 0) {
        bool is_none = route->n_set == 0 && route->n_trials == 0;

        out->at_ns = is_none ? route->at_ns : p->wake_ns;
        return is_none ? TEI_PATH_NONE : TEI_PATH_WAIT;
    }
    out->local = p->rails[rail].local;
    out->peer = p->rails[rail].peer;
    return TEI_PATH_RAIL;
}

size_t tei_paths_first(struct tei_paths *p, struct tei_path_route *route, int64_t now,
                       uint16_t *rails)
{
    catch_up(p, route, now);
    memcpy(rails, route->set, route->n_set * sizeof *rails);
    memcpy(rails + route->n_set, route->trials, route->n_trials * sizeof *rails);
    return (size_t)route->n_set + route->n_trials;
}

/* ---- What became of it ---------------------------------------------------------------------------- */

void tei_paths_posted(struct tei_paths *p, int rail, uint64_t len, int64_t now)
{
    struct tei_rail *r = &p->rails[rail];

    tei_rail_posted(r, len, now);
    p->live[rail / 64] |= live_bit((unsigned)rail);
    atomic_fetch_add_explicit(&r->nic->outstanding, len, memory_order_relaxed);
}

void tei_paths_done(struct tei_paths *p, int rail, uint64_t len, int64_t now, bool ok)
{
    struct tei_rail *r = &p->rails[rail];

    atomic_fetch_sub_explicit(&r->nic->outstanding, len, memory_order_relaxed);
    if (ok && atomic_load_explicit(&r->nic->faults, memory_order_relaxed) > 0)
        atomic_store_explicit(&r->nic->faults, 0, memory_order_relaxed);
    if (tei_rail_done(r, len, now, ok))
        p->epoch++;
}

/* Rails that share a NIC with `r`, on the side that the fault names; all rails for no side. */
static bool shares(const struct tei_rail *r, const struct tei_rail *other,
                   enum tei_path_fault fault)
{
    return fault == TEI_PATH_FAULT_LOCAL ? other->local == r->local : other->peer == r->peer;
}

/* Is there another rail that works, and does not share the NIC? */
static bool has_other(const struct tei_paths *p, const struct tei_rail *r,
                      enum tei_path_fault fault)
{
    for (unsigned k = 0; k < p->n_local * p->n_peer; k++) {
        const struct tei_rail *o = &p->rails[k];

        if (o != r && o->state == TEI_RAIL_ACTIVE && p->peers[o->peer].active &&
            atomic_load_explicit(&o->nic->active, memory_order_relaxed) &&
            (fault == TEI_PATH_FAULT_RAIL || !shares(r, o, fault)))
            return true;
    }
    return false;
}

/* Another rail of this NIC failed too, and since then none has worked. */
static bool is_nic_fault(const struct tei_paths *p, const struct tei_rail *r,
                         enum tei_path_fault fault)
{
    int64_t failed = INT64_MIN, worked = INT64_MIN;

    for (unsigned k = 0; k < p->n_local * p->n_peer; k++) {
        const struct tei_rail *o = &p->rails[k];

        if (!shares(r, o, fault))
            continue;
        if (o != r && o->failed_ns > failed)
            failed = o->failed_ns;
        if (o->ok_ns > worked)
            worked = o->ok_ns;
    }
    return failed > worked;
}

static void pause_nic(struct tei_paths *p, const struct tei_rail *r, enum tei_path_fault fault,
                      int64_t now)
{
    if (!has_other(p, r, fault))
        return;
    for (unsigned k = 0; k < p->n_local * p->n_peer; k++) {
        if (&p->rails[k] != r && shares(r, &p->rails[k], fault))
            tei_rail_hold(&p->rails[k], r->pause_ns, now);
    }
}

void tei_paths_failed(struct tei_paths *p, int rail, enum tei_path_fault fault, int64_t now)
{
    struct tei_rail *r = &p->rails[rail];
    int64_t first = has_other(p, r, TEI_PATH_FAULT_RAIL) ? TEI_PATH_PAUSE_NS : TEI_PATH_LAST_NS;
    int64_t longest = p->conf.rail_pause_ns;

    if (fault == TEI_PATH_FAULT_REFUSED && longest > TEI_PATH_REFUSED_NS)
        longest = TEI_PATH_REFUSED_NS;
    if (fault == TEI_PATH_FAULT_LOCAL)
        atomic_fetch_add_explicit(&r->nic->faults, 1, memory_order_relaxed);
    if (!tei_rail_pause(r, first, longest, now))
        return;
    p->epoch++;
    if (fault == TEI_PATH_FAULT_LOCAL || is_nic_fault(p, r, TEI_PATH_FAULT_LOCAL))
        pause_nic(p, r, TEI_PATH_FAULT_LOCAL, now);
    if (fault == TEI_PATH_FAULT_PEER || is_nic_fault(p, r, TEI_PATH_FAULT_PEER))
        pause_nic(p, r, TEI_PATH_FAULT_PEER, now);
    if (r->until_ns < p->wake_ns)
        p->wake_ns = r->until_ns;
    if (p->wake_ns < p->look_ns)
        p->look_ns = p->wake_ns;
}
