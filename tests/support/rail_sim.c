/* SPDX-License-Identifier: Apache-2.0 */
#include "rail_sim.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE      (-1)
#define MAX_FLOWS SIM_PEERS

enum { AT_LOCAL, ON_RAIL, AT_PEER, AT_END };
enum { EV_SERVED, EV_DONE, EV_FAILED, EV_WAKE };

/* ---- Events --------------------------------------------------------------------------------------- */

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static void put(struct sim *s, int64_t at, int kind, int what)
{
    struct sim_event e = {at, s->order++, kind, what};
    size_t k = s->n_events++;

    if (s->n_events > s->room_events) {
        s->room_events = s->room_events ? 2 * s->room_events : 1024;
        s->heap = realloc(s->heap, s->room_events * sizeof *s->heap);
        assert(s->heap);
    }
    for (; k > 0 && is_before(&e, &s->heap[(k - 1) / 2]); k = (k - 1) / 2)
        s->heap[k] = s->heap[(k - 1) / 2];
    s->heap[k] = e;
}

static struct sim_event take(struct sim *s)
{
    struct sim_event first = s->heap[0], last = s->heap[--s->n_events];
    size_t k = 0;

    for (;;) {
        size_t child = 2 * k + 1;

        if (child >= s->n_events)
            break;
        if (child + 1 < s->n_events && is_before(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!is_before(&s->heap[child], &last))
            break;
        s->heap[k] = s->heap[child];
        k = child;
    }
    s->heap[k] = last;
    return first;
}

/* ---- Slices through queues ------------------------------------------------------------------------ */

static int new_slice(struct sim *s)
{
    int at = s->free_slice;

    if (at != NONE) {
        s->free_slice = s->slices[at].next;
        return at;
    }
    if (s->n_slices == s->room_slices) {
        s->room_slices = s->room_slices ? 2 * s->room_slices : 1024;
        s->slices = realloc(s->slices, (size_t)s->room_slices * sizeof *s->slices);
        assert(s->slices);
    }
    return s->n_slices++;
}

static struct sim_queue *queue_of(struct sim *s, const struct sim_slice *c)
{
    struct sim_flow *f = &s->flows[c->flow];
    unsigned rail = (unsigned)c->rail;

    if (c->stage == AT_LOCAL)
        return &s->nic[f->paths.rails[rail].local];
    return c->stage == ON_RAIL ? &f->rail[rail] : &f->nic[f->paths.rails[rail].peer];
}

static void serve_head(struct sim *s, const struct sim_queue *q)
{
    const struct sim_slice *c = &s->slices[q->head];

    put(s, s->now + (int64_t)((double)c->len * 1e9 / q->bps), EV_SERVED, q->head);
}

/* When whoever polls for completions sees one of that time. */
static int64_t seen(const struct sim *s, int64_t at)
{
    return s->poll_ns > 0 ? (at + s->poll_ns - 1) / s->poll_ns * s->poll_ns : at;
}

/* To the next queue that takes time, or to the end. */
static void enter(struct sim *s, int at)
{
    struct sim_slice *c = &s->slices[at];
    struct sim_queue *q;

    if (s->flows[c->flow].dead[c->rail]) {
        put(s, s->now + s->detect_ns, EV_FAILED, at);
        return;
    }
    for (; c->stage < AT_END; c->stage++) {
        q = queue_of(s, c);
        if (q->bps <= 0)
            continue;
        c->next = NONE;
        if (q->head == NONE) {
            q->head = q->tail = at;
            serve_head(s, q);
        } else {
            s->slices[q->tail].next = at;
            q->tail = at;
        }
        return;
    }
    put(s, seen(s, s->now + s->latency_ns), EV_DONE, at);
}

static void served(struct sim *s, int at)
{
    struct sim_queue *q = queue_of(s, &s->slices[at]);

    q->head = s->slices[at].next;
    if (q->head != NONE)
        serve_head(s, q);
    s->slices[at].stage++;
    enter(s, at);
}

/* ---- Flows ---------------------------------------------------------------------------------------- */

static enum tei_path_answer choose(struct sim *s, struct sim_flow *f, uint64_t len, int avoid,
                                   struct tei_path_choice *choice)
{
    struct tei_path_want want = {.len = len, .now = s->now, .avoid = avoid};

    if (f->policy == SIM_PICK)
        return tei_paths_pick(&f->paths, &f->route, &want, choice);
    choice->rail = f->route.set[f->n_sent % f->route.n_set];
    return TEI_PATH_RAIL;
}

static bool has_more(struct sim_flow *f)
{
    if (f->stopped)
        return f->retry_head != NONE;
    if (f->retry_head != NONE)
        return true;
    if (f->request > 0 && f->left == 0 && f->under_way == 0)
        f->left = f->request;
    return (f->request == 0 || f->left > 0) && f->under_way + f->slice <= f->in_flight;
}

/* False when it has to wait. */
static bool send_one(struct sim *s, int flow)
{
    struct sim_flow *f = &s->flows[flow];
    int at = f->retry_head != NONE ? f->retry_head : new_slice(s);
    struct sim_slice *c = &s->slices[at];
    struct tei_path_choice choice;
    enum tei_path_answer answer;

    if (at != f->retry_head)
        *c = (struct sim_slice){flow, 0, TEI_PATH_NO_RAIL, NONE, 0, f->slice, s->now};
    answer = choose(s, f, c->len, c->avoid, &choice);
    if (answer != TEI_PATH_RAIL) {
        if (at != f->retry_head) {
            c->next = s->free_slice;
            s->free_slice = at;
        }
        f->n_none += answer == TEI_PATH_NONE;
        if (answer == TEI_PATH_NONE && !f->waking && choice.at_ns < INT64_MAX) {
            f->waking = true;
            put(s, choice.at_ns, EV_WAKE, flow);
        }
        return false;
    }
    if (at == f->retry_head) {
        f->retry_head = c->next;
    } else {
        f->under_way += c->len;
        f->left -= f->request > 0 ? c->len : 0;
    }
    f->n_sent++;
    c->rail = choice.rail;
    c->stage = AT_LOCAL;
    tei_paths_posted(&f->paths, c->rail, c->len, s->now);
    enter(s, at);
    return true;
}

static void pump(struct sim *s, int flow)
{
    while (has_more(&s->flows[flow]) && send_one(s, flow))
        continue;
}

static void finish(struct sim *s, int at, bool ok)
{
    struct sim_slice *c = &s->slices[at];
    struct sim_flow *f = &s->flows[c->flow];

    if (!ok) {
        tei_paths_failed(&f->paths, c->rail, TEI_PATH_FAULT_RAIL, s->now);
        f->n_failed++;
    }
    tei_paths_done(&f->paths, c->rail, c->len, s->now, ok);
    if (!ok) {
        c->avoid = c->rail;
        c->next = f->retry_head;
        f->retry_head = at;
        return;
    }
    if (s->now - c->born_ns > f->worst_ns)
        f->worst_ns = s->now - c->born_ns;
    f->under_way -= c->len;
    f->done += c->len;
    f->done_on[c->rail] += c->len;
    c->next = s->free_slice;
    s->free_slice = at;
}

/* ---- The simulation ------------------------------------------------------------------------------- */

static void name_ports(struct tei_path_port *ports, char names[][16], unsigned n, char side,
                       double bps)
{
    for (unsigned i = 0; i < n; i++) {
        snprintf(names[i], 16, "%c%u", side, i);
        ports[i] = (struct tei_path_port){names[i], (uint64_t)bps, true};
    }
}

static void init_queues(struct sim_queue *q, size_t n, unsigned with_rate, double bps)
{
    for (size_t i = 0; i < n; i++)
        q[i] = (struct sim_queue){i < with_rate ? bps : 0, NONE, NONE};
}

void sim_init(struct sim *s, unsigned n_local, double bps)
{
    struct tei_path_port ports[TEI_PATH_NICS];
    char names[TEI_PATH_NICS][16];

    memset(s, 0, sizeof *s);
    s->now = 1000 * SIM_MS;
    s->latency_ns = 10000;
    s->detect_ns = 5 * SIM_MS;
    s->free_slice = NONE;
    s->flows = calloc(MAX_FLOWS, sizeof *s->flows);
    assert(s->flows);
    name_ports(ports, names, n_local, 'l', bps);
    tei_path_nics_init(&s->nics, ports, n_local);
    init_queues(s->nic, TEI_PATH_NICS, n_local, bps);
}

struct sim_flow *sim_add(struct sim *s, unsigned n_peer, double bps,
                         const struct tei_path_conf *conf)
{
    struct tei_path_conf defaults = {.rail_pause_ns = 30000 * SIM_MS};
    struct sim_flow *f = &s->flows[s->n_flows++];
    struct tei_path_port ports[TEI_PATH_NICS];
    char names[TEI_PATH_NICS][16];
    int rc;

    assert(s->n_flows <= MAX_FLOWS);
    name_ports(ports, names, n_peer, 'p', bps);
    rc = tei_paths_init(&f->paths, conf ? conf : &defaults, &s->nics, ports, n_peer);
    assert(rc == 0);
    tei_paths_route(&f->paths, NULL, NULL, NULL, NULL, &f->route);
    init_queues(f->nic, TEI_PATH_NICS, n_peer, bps);
    init_queues(f->rail, TEI_ARRAY_LEN(f->rail), 0, 0);
    f->slice = 65536;
    f->in_flight = 8U << 20;
    f->retry_head = NONE;
    return f;
}

void sim_fini(struct sim *s)
{
    for (unsigned k = 0; k < s->n_flows; k++)
        tei_paths_fini(&s->flows[k].paths);
    free(s->flows);
    free(s->slices);
    free(s->heap);
}

static void happen(struct sim *s, struct sim_event e)
{
    int flow = e.what;

    if (e.kind == EV_SERVED) {
        served(s, e.what);
        return;
    }
    if (e.kind == EV_WAKE) {
        s->flows[flow].waking = false;
    } else {
        flow = s->slices[e.what].flow;
        finish(s, e.what, e.kind == EV_DONE);
    }
    pump(s, flow);
}

void sim_run(struct sim *s, int64_t until_ns)
{
    for (unsigned k = 0; k < s->n_flows; k++)
        pump(s, (int)k);
    while (s->n_events > 0 && s->heap[0].at <= until_ns) {
        struct sim_event e = take(s);

        s->now = e.at;
        happen(s, e);
    }
    s->now = until_ns;
}

void sim_reset(struct sim *s)
{
    s->reset_ns = s->now;
    for (unsigned k = 0; k < s->n_flows; k++) {
        s->flows[k].done = 0;
        s->flows[k].worst_ns = 0;
        memset(s->flows[k].done_on, 0, sizeof s->flows[k].done_on);
    }
}

double sim_rate(const struct sim *s, const struct sim_flow *f)
{
    return (double)f->done * 1e9 / (double)(s->now - s->reset_ns);
}

double sim_rail_rate(const struct sim *s, const struct sim_flow *f, unsigned local, unsigned peer)
{
    return (double)f->done_on[tei_path_rail(&f->paths, local, peer)] * 1e9 /
           (double)(s->now - s->reset_ns);
}

void sim_kill_local(struct sim *s, unsigned local, bool dead)
{
    for (unsigned k = 0; k < s->n_flows; k++) {
        for (unsigned j = 0; j < s->flows[k].paths.n_peer; j++)
            s->flows[k].dead[tei_path_rail(&s->flows[k].paths, local, j)] = dead;
    }
}
