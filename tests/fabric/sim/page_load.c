/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page_load.c - requests of pages between a user's memory and its slots at a target, and what must be true of them:
 * pools of any strides, pages in any order, on the side that is read also twice, so few that they are one piece, and
 * so many that they are moved a window at a time.
 */
#include "world.h"

#include "load.h"
#include "sim.h"
#include "te.h"

#include <stdlib.h>
#include <string.h>

#define AREA     (SLOTS * sim_world.slot) /* of a user, here and there */
#define MANY     2100                     /* pieces, of which the caller hands over 2,048 */
#define UNUSED   0x5a
#define LIMIT_NS (3 * SIM_S)  /* TE_TRANSFER_TIMEOUT_MS */
#define BOUND_NS (60 * SIM_S) /* beyond it, as in user.c */

/* Where a part of a page is, from the begin of either area on. */
struct piece {
    size_t local, remote;
};

struct sim_paged {
    struct user *user;
    struct life *to;
    te_batch batch;
    te_pages pages;
    uint64_t *local_pages, *remote_pages; /* their numbers */
    struct piece *pieces;
    size_t n_pieces;
    struct sim_judged how;
};

/* ---------------------------------------------------------------------------------------- layout */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void choose_few(te_pages *g)
{
    g->length = 1 + sim_below((uint64_t)1 << sim_below(12));
    g->parts = 1 + (size_t)sim_below(4);
    g->layers = 1 + (size_t)sim_below(4);
    g->n = 1 + (size_t)sim_below(least(40, AREA / (g->length * g->parts * g->layers)));
}

static void choose_many(te_pages *g)
{
    g->length = 1 + sim_below(4);
    g->parts = 1 + (size_t)sim_below(8);
    g->layers = 1 + (size_t)sim_below(8);
    g->n = (MANY + (size_t)sim_below(2 * MANY)) / (g->parts * g->layers) + 1;
}

/* One stride of a side, of which there are so many. */
struct axis {
    uint64_t *stride;
    size_t count;
};

static void shuffle(struct axis a[3])
{
    for (size_t i = 2; i > 0; i--) {
        size_t k = (size_t)sim_below(i + 1);
        struct axis x = a[i];

        a[i] = a[k], a[k] = x;
    }
}

/* How often what lies within this axis is there. */
static size_t times(const struct axis a[3], size_t i)
{
    size_t n = 1;

    for (; i < 3; i++)
        n *= a[i].count;
    return n;
}

/* Each stride is what the smaller ones span, and now and then some more; returns what the pool spans. */
static size_t lay_apart(const te_pages *g, te_page_side *s)
{
    struct axis a[3] = {
        {&s->part_stride, g->parts}, {&s->stride, (size_t)s->pages}, {&s->layer_stride, g->layers}};
    size_t extent = g->length, room = AREA - g->length * times(a, 0);

    if (!sim_one_in(3))
        shuffle(a);
    for (size_t i = 0; i < 3; i++) {
        size_t more = sim_one_in(2) ? 0 : (size_t)sim_below(least(room / times(a, i), 5000) + 1);

        room -= more * times(a, i);
        *a[i].stride = extent + more;
        extent += *a[i].stride * (a[i].count - 1);
    }
    return extent;
}

/* What is read may overlap. */
static void lay_side(const te_pages *g, te_page_side *s, bool is_written)
{
    size_t extent = lay_apart(g, s);

    s->base = sim_below(AREA - extent + 1);
    if (!is_written && sim_one_in(4))
        s->stride = sim_below(s->stride + 1);
}

/* Different ones where they are written. */
static uint64_t *choose_pages(const te_pages *g, const te_page_side *s, bool is_written)
{
    size_t pool = (size_t)s->pages;
    uint64_t *all = sim_new((pool + g->n) * sizeof(*all));

    for (size_t i = 0; i < pool; i++)
        all[i] = i;
    for (size_t i = 0; i < g->n; i++) {
        size_t k = is_written ? i + (size_t)sim_below(pool - i) : (size_t)sim_below(pool);
        uint64_t x = all[k];

        if (is_written)
            all[k] = all[i], all[i] = x;
        else
            all[pool + i] = x;
    }
    if (!is_written)
        memmove(all, all + pool, g->n * sizeof(*all));
    return all;
}

/* In order: what adjoins is moved in one piece. */
static void count_up(uint64_t *pages, size_t n)
{
    for (size_t i = 0; i < n; i++)
        pages[i] = i;
}

static void choose_side(struct sim_paged *p, te_page_side *s, bool is_written, uint64_t **pages)
{
    const te_pages *g = &p->pages;
    size_t most = AREA / (g->length * g->parts * g->layers);
    size_t least_n = is_written ? g->n : 1;

    s->pages =
        sim_one_in(3) && g->n <= most ? g->n : least_n + sim_below(least(most - least_n, 100) + 1);
    lay_side(g, s, is_written);
    *pages = choose_pages(g, s, is_written);
    if (s->pages >= g->n && sim_one_in(3))
        count_up(*pages, g->n);
}

static struct piece piece_of(const struct sim_paged *p, size_t page, size_t part, size_t layer)
{
    const te_page_side *l = &p->pages.local, *r = &p->pages.remote;

    return (struct piece){l->base + p->local_pages[page] * l->stride + part * l->part_stride +
                              layer * l->layer_stride,
                          r->base + p->remote_pages[page] * r->stride + part * r->part_stride +
                              layer * r->layer_stride};
}

static void cut(struct sim_paged *p)
{
    const te_pages *g = &p->pages;

    p->pieces = sim_new(g->n * g->parts * g->layers * sizeof(*p->pieces));
    for (size_t layer = 0; layer < g->layers; layer++)
        for (size_t page = 0; page < g->n; page++)
            for (size_t part = 0; part < g->parts; part++)
                p->pieces[p->n_pieces++] = piece_of(p, page, part, layer);
}

/* Many take minutes where each waits for the answer to the one before, or takes a connection, as with version 1. */
static void choose(struct sim_paged *p, int opcode, te_segment seg)
{
    te_pages *g = &p->pages;

    *g = (te_pages){.size = sizeof(*g), .opcode = opcode, .target = seg};
    if (!sim_world.is_quiet && !p->user->host->life->is_v1 && sim_one_in(5))
        choose_many(g);
    else
        choose_few(g);
    choose_side(p, &g->local, opcode == TE_READ, &p->local_pages);
    choose_side(p, &g->remote, opcode == TE_WRITE, &p->remote_pages);
    cut(p);
}

/* ------------------------------------------------------------------------------- what is expected */

static struct slot *first_slot(const struct sim_paged *p)
{
    return &p->to->slots[sim_slot_number(p->user, 0)];
}

static void set_sure(const struct sim_paged *p, bool yes)
{
    for (size_t i = 0; i < p->n_pieces; i++)
        memset(first_slot(p)->sure + p->pieces[i].remote, yes, p->pages.length);
}

static void set_busy(const struct sim_paged *p, bool yes)
{
    for (size_t k = 0; k < SLOTS; k++)
        first_slot(p)[k].busy = yes;
}

static void expect_write(const struct sim_paged *p)
{
    char *local = sim_view(p->user->local);

    for (size_t i = 0; i < AREA; i += sizeof(uint64_t)) {
        uint64_t word = sim_random();

        memcpy(local + i, &word, sizeof(word));
    }
    set_sure(p, false);
    set_busy(p, true);
    for (size_t i = 0; i < p->n_pieces; i++)
        memcpy(first_slot(p)->want + p->pieces[i].remote, local + p->pieces[i].local,
               p->pages.length);
}

static void check_piece(const struct sim_paged *p, const struct piece *at)
{
    const unsigned char *got = sim_view(p->user->local + at->local);
    const struct slot *s = first_slot(p);

    for (size_t i = 0; i < p->pages.length; i++) {
        size_t there = at->remote + i;

        sim_world.counts.bytes += s->sure[there];
        if (s->sure[there] && got[i] != s->want[there])
            sim_fail("torn: a READ of pages brought %02x as byte %zu, which was written as %02x",
                     got[i], there, s->want[there]);
    }
}

/* Between the pages nothing is touched. */
static void check_gaps(const struct sim_paged *p)
{
    bool *is_used = sim_new(AREA);
    const char *is = sim_view(p->user->local);

    for (size_t i = 0; i < p->n_pieces; i++)
        memset(is_used + p->pieces[i].local, true, p->pages.length);
    for (size_t i = 0; i < AREA; i++)
        if (!is_used[i] && is[i] != UNUSED)
            sim_fail("torn: a READ of pages wrote to byte %zu, which is of none of them", i);
    free(is_used);
}

struct sim_claim sim_pages_claim(const struct sim_paged *p)
{
    struct sim_claim c = {.to = p->to, .slot = sim_slot_number(p->user, 0)};

    if (p->pages.opcode == TE_READ)
        return c;
    c.n = p->n_pieces;
    c.ranges = sim_new(c.n * sizeof(*c.ranges));
    for (size_t i = 0; i < c.n; i++)
        c.ranges[i] = (struct sim_range){p->pieces[i].remote, p->pages.length};
    return c;
}

/* --------------------------------------------------------------------------------------- a request */

/* As the call takes them, in 32 or 64 bits; NULL, now and then, where they are counted up. */
static void *numbers(const uint64_t *pages, size_t n, unsigned bits)
{
    uint32_t *narrow = sim_new(n * sizeof(uint64_t));
    size_t i = 0;

    while (i < n && pages[i] == i)
        i++;
    if (i == n && sim_one_in(2)) {
        free(narrow);
        return NULL;
    }
    if (bits == 64)
        return memcpy(narrow, pages, n * sizeof(*pages));
    for (i = 0; i < n; i++)
        narrow[i] = (uint32_t)pages[i];
    return narrow;
}

/* As te_submit_pages() is to have it; the arrays are copied, and are something else when it has returned. */
static void submit(struct sim_paged *p, const te_submit_opts *opts)
{
    te_pages g = p->pages;
    void *local, *remote;

    g.index_bits = sim_one_in(2) ? 32 : 64;
    g.local.base += (uintptr_t)p->user->local;
    g.remote.base +=
        (uintptr_t)p->to->memory + sim_slot_number(p->user, 0) * (uint64_t)sim_world.slot;
    g.local.index = local = numbers(p->local_pages, g.n, g.index_bits);
    g.remote.index = remote = numbers(p->remote_pages, g.n, g.index_bits);
    sim_trace("user %d: %s of %zu pages, %zu parts, %zu layers of %llu, host %d", p->user->index,
              g.opcode == TE_READ ? "READ" : "WRITE", g.n, g.parts, g.layers,
              (unsigned long long)g.length, p->to->host);
    sim_ok(sim_later.submit_pages(p->user->host->life->engine, p->batch, &g, opts),
           "te_submit_pages");
    for (size_t i = 0; i < g.n * g.index_bits / 8; i++) {
        if (local)
            ((unsigned char *)local)[i] = 0xff;
        if (remote)
            ((unsigned char *)remote)[i] = 0xff;
    }
    free(local);
    free(remote);
}

struct sim_paged *sim_pages_submit(struct user *u, struct life *to, te_segment seg, te_batch b,
                                   int opcode, const te_submit_opts *opts)
{
    struct life *own = u->host->life;
    struct sim_paged *p = sim_new(sizeof(*p));

    p->user = u;
    p->to = to;
    p->batch = b;
    p->how = (struct sim_judged){!opts->deadline_ms, own->writes[to->host] == 0, sim_now()};
    choose(p, opcode, seg);
    sim_world.hosts[u->host->number].n_paged[to->host] += p->n_pieces;
    for (int k = 0; k < SLOTS; k++)
        sim_check_slot(to, u, k);
    sim_allow(u->local, AREA, true);
    if (opcode == TE_WRITE)
        expect_write(p);
    else
        memset(sim_view(u->local), UNUSED, AREA);
    sim_count_write(own, to, opcode);
    submit(p, opts);
    return p;
}

static void discard(struct sim_paged *p)
{
    struct host *h = &sim_world.hosts[p->user->host->number];

    h->n_paged[p->to->host] -= p->n_pieces;
    h->paged_until[p->to->host] = sim_now();
    sim_allow(p->user->local, AREA, false);
    free(p->local_pages);
    free(p->remote_pages);
    free(p->pieces);
    free(p);
}

/* Each page is moved, and nothing else. */
static void check_moved(const struct sim_paged *p, const struct te_status *s)
{
    if (s->bytes != p->n_pieces * p->pages.length)
        sim_fail("a COMPLETED request of %zu bytes of pages has moved %llu",
                 p->n_pieces * (size_t)p->pages.length, (unsigned long long)s->bytes);
    if (p->pages.opcode == TE_WRITE && !p->to->over)
        set_sure(p, true);
    for (size_t i = 0; p->pages.opcode == TE_READ && i < p->n_pieces; i++)
        check_piece(p, &p->pieces[i]);
}

int sim_pages_end(struct sim_paged *p, bool canceled)
{
    const struct life *own = p->user->host->life;
    struct te_status s;

    if (!canceled)
        sim_check_end(own, p->batch, 0, p->to, p->how);
    sim_ok(te_status(own->engine, p->batch, 0, &s), "te_status");
    sim_world.counts.completed += s.state == TE_COMPLETED;
    sim_world.counts.ended += s.state != TE_COMPLETED;
    if (p->pages.opcode == TE_WRITE)
        set_busy(p, false);
    else
        check_gaps(p);
    if (s.state == TE_COMPLETED)
        check_moved(p, &s);
    for (int k = 0; k < SLOTS; k++)
        sim_check_slot(p->to, p->user, k);
    discard(p);
    return s.state;
}

void sim_pages_await(const struct sim_paged *p, int64_t deadline_ms)
{
    te_engine *e = p->user->host->life->engine;
    int64_t begin = sim_now(), queue_ns = 0;
    struct te_status s = {0};

    while (!deadline_ms && sim_wait(e, p->batch, 10000) == TE_ERR_TIMEOUT) {
        int64_t now_ns = sim_queue_ns(p->to);
        uint64_t before = s.bytes;

        sim_ok(te_status(e, p->batch, 0, &s), "te_status");
        queue_ns = now_ns > queue_ns ? now_ns : queue_ns;
        if (s.bytes != before || sim_stood(sim_host(), begin))
            begin = sim_now(), queue_ns = 0;
        else if (sim_now() > begin + LIMIT_NS + BOUND_NS + queue_ns)
            sim_fail("a request of pages has not ended, and nothing of it has moved for %lld s",
                     (long long)((sim_now() - begin) / SIM_S));
    }
    if (deadline_ms)
        sim_await_end(e, p->batch, deadline_ms);
}

/* Whether it is COMPLETED. */
static bool run(struct user *u, struct life *to, te_segment seg, int64_t deadline_ms)
{
    te_engine *e = u->host->life->engine;
    te_submit_opts opts = {.size = sizeof(opts), .deadline_ms = deadline_ms};
    te_batch b = sim_batch(u->host->life, 1, 1);
    struct sim_paged *p =
        sim_pages_submit(u, to, seg, b, sim_one_in(2) ? TE_READ : TE_WRITE, &opts);
    bool cancel = !sim_world.is_quiet && sim_one_in(6);
    int state;

    if (cancel || sim_one_in(3))
        sim_wait(e, b, (int64_t)(sim_below(8) * sim_below(200)));
    if (cancel) {
        sim_ok(te_cancel(e, b), "te_cancel");
        sim_await_canceled(u->host->life, b);
    }
    sim_pages_await(p, deadline_ms);
    state = sim_pages_end(p, cancel);
    sim_ok(te_batch_free(e, b), "te_batch_free");
    sim_world.counts.batches++;
    return state == TE_COMPLETED;
}

static void refuse(te_engine *e, const te_pages *g, const char *what)
{
    te_batch b;
    int rc;

    sim_ok(te_batch_alloc(e, 1, &b), "te_batch_alloc");
    rc = sim_later.submit_pages(e, b, g, NULL);
    if (rc != TE_ERR_INVALID)
        sim_fail("%s: %s instead of TE_ERR_INVALID", what, te_errname(rc));
    sim_ok(te_batch_free(e, b), "te_batch_free");
}

/* Nothing is read of what they name. */
static void refused_calls(const struct user *u, const struct life *to, te_segment seg)
{
    te_engine *e = u->host->life->engine;
    uint32_t index[2] = {0, 2};
    te_page_side side = {.base = (uintptr_t)u->local, .pages = 2, .stride = 8};
    te_pages g = {.size = sizeof(g), .opcode = TE_READ, .target = seg, .length = 8, .n = 2};

    g.local = g.remote = side;
    g.remote.base = (uintptr_t)to->memory;
    g.remote.index = index;
    g.index_bits = 32;
    refuse(e, &g, "a page that the pool has not");
    g.index_bits = 16;
    refuse(e, &g, "numbers of 16 bits");
    g.remote.index = NULL;
    g.local.stride = 7;
    refuse(e, &g, "pages that overlap where they are written");
}

void sim_pages_use(struct user *u, struct life *to, te_segment seg)
{
    if (sim_one_in(10))
        refused_calls(u, to, seg);
    for (uint64_t n = 1 + sim_below(3); n > 0; n--)
        run(u, to, seg, sim_one_in(2) ? 0 : 1 + (int64_t)(sim_below(70) * sim_below(70)));
}

bool sim_pages_reach(struct user *u, struct life *to, te_segment seg)
{
    return run(u, to, seg, 0);
}
