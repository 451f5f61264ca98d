/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=180 */
/*
 * Requests of pages over each transport: the bytes that a plain loop moves, whatever the layout; what is
 * refused, and how they end when something goes wrong in their middle.
 */
#include "child_engine.h"
#include "draw.h"
#include "pages_rig.h"
#include "pair.h"
#include "patience.h"
#if TE_USE_RDMA
#include "rdma_pair.h"
#endif

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

/* --------------------------------------------------------------------------------------- helpers */

static void completes(te_engine *e, const te_pages *pages)
{
    size_t parts = pages->parts ? pages->parts : 1, layers = pages->layers ? pages->layers : 1;
    char msg[1024];
    struct te_status st = pages_end(e, pages_submit(e, pages), msg, sizeof(msg));

    if (st.state != TE_COMPLETED)
        fail_msg("state %d: %s", st.state, msg);
    assert_int_equal(st.bytes, pages->n * parts * layers * pages->length);
}

static void refused(te_engine *e, const te_pages *pages, int error, const char *says)
{
    struct te_status st;
    te_batch b;
    int rc;

    assert_int_equal(te_batch_alloc(e, 1, &b), 0);
    rc = te_submit_pages(e, b, pages, NULL);
    if (rc != error || !strstr(te_errmsg(), says))
        fail_msg("%s, '%s' instead of %s, '%s'", te_errname(rc), te_errmsg(), te_errname(error),
                 says);
    assert_int_equal(te_status(e, b, 0, &st), TE_ERR_INVALID); /* nothing was submitted */
    assert_int_equal(te_batch_free(e, b), 0);
}

/* ------------------------------------------------------------------------------------- any layout */

/* The steps of one side, in some order from the inner to the outer; how much it spans. */
static uint64_t draw_steps(const te_pages *g, te_page_side *s)
{
    uint64_t *steps[] = {&s->part_stride, &s->stride, &s->layer_stride}, extent = g->length;
    uint64_t counts[] = {g->parts, s->pages, g->layers};
    size_t first = draw(3), up = 1 + draw(2);

    for (size_t i = 0; i < 3; i++) {
        size_t k = (first + i * up) % 3;

        *steps[k] = extent + (draw(2) ? draw(40) : 0);
        extent += *steps[k] * (counts[k] - 1);
    }
    return extent;
}

/* Distinct page numbers, some of them in rows. */
static void draw_numbers(uint64_t *numbers, size_t n, uint64_t pages)
{
    uint64_t at = draw(pages), step = draw(2) ? 1 : 0;

    for (size_t i = 0; i < n; i++)
        numbers[i] = (at + i) % pages;
    for (size_t i = 0; i < n && (step == 0 || i < n / 3); i++) {
        size_t k = draw(n);
        uint64_t t = numbers[i];

        numbers[i] = numbers[k];
        numbers[k] = t;
    }
}

static void give_index(te_pages *g, te_page_side *s, const uint64_t *wide, uint32_t *narrow)
{
    for (size_t i = 0; i < g->n; i++)
        narrow[i] = (uint32_t)wide[i];
    s->index = g->index_bits == 64 ? (const void *)wide : narrow;
}

/* Everything of a layout but where it begins; false if it does not fit. */
static bool try_layout(struct pages_drawn *d, uint64_t span[2])
{
    te_pages *g = &d->pages;

    *g = (te_pages){.size = sizeof(*g),
                    .opcode = (int)draw(2),
                    .length = 1 + draw(draw(3) ? 200 : 5000),
                    .n = 1 + draw(300),
                    .parts = 1 + draw(3),
                    .layers = 1 + draw(3),
                    .index_bits = draw(2) ? 32 : 64};
    g->local.pages = g->n + draw(50);
    g->remote.pages = g->n + draw(50);
    span[0] = draw_steps(g, &g->local);
    span[1] = draw_steps(g, &g->remote);
    return span[0] < AREA && span[1] < AREA;
}

static void draw_layout(const struct pages_world *w, struct pages_drawn *d)
{
    te_pages *g = &d->pages;
    uint64_t span[2];

    while (!try_layout(d, span))
        continue;
    g->target = w->seg;
    g->local.base = (uintptr_t)w->local + draw(AREA - span[0]);
    g->remote.base = w->remote_base + draw(AREA - span[1]);
    draw_numbers(d->local, g->n, g->local.pages);
    draw_numbers(d->remote, g->n, g->remote.pages);
    if (draw(4)) /* what is read may be read twice */
        (g->opcode == TE_READ ? d->remote : d->local)[draw(g->n)] = 0;
    if (draw(5))
        give_index(g, &g->local, d->local, d->local32);
    if (draw(5))
        give_index(g, &g->remote, d->remote, d->remote32);
}

static uint64_t number(const te_pages *g, const te_page_side *s, size_t i)
{
    if (!s->index)
        return i;
    return g->index_bits == 64 ? ((const uint64_t *)s->index)[i] : ((const uint32_t *)s->index)[i];
}

static uint64_t place(const te_pages *g, const te_page_side *s, size_t layer, size_t i, size_t part)
{
    return s->base + number(g, s, i) * s->stride + part * s->part_stride + layer * s->layer_stride;
}

/* What the pages do to copies of both memories. */
static void model(const struct pages_world *w, const te_pages *g, unsigned char *local,
                  unsigned char *remote)
{
    for (size_t layer = 0; layer < g->layers; layer++)
        for (size_t i = 0; i < g->n; i++)
            for (size_t part = 0; part < g->parts; part++) {
                unsigned char *a =
                    local + (place(g, &g->local, layer, i, part) - (uintptr_t)w->local);
                unsigned char *b = remote + (place(g, &g->remote, layer, i, part) - w->remote_base);

                if (g->opcode == TE_READ)
                    memcpy(a, b, g->length);
                else
                    memcpy(b, a, g->length);
            }
}

static void same_as_model(const struct pages_world *w, const te_pages *g, uint64_t seed)
{
    unsigned char *a = map_pages(AREA), *b = map_pages(AREA);

    fill(w->local, AREA, 2 * seed);
    fill(w->remote, AREA, 2 * seed + 1);
    memcpy(a, w->local, AREA);
    memcpy(b, w->remote, AREA);
    model(w, g, a, b);
    completes(w->e, g);
    assert_memory_equal(w->local, a, AREA);
    assert_memory_equal(w->remote, b, AREA);
    munmap(a, AREA);
    munmap(b, AREA);
}

static void moves_as_a_loop_does(const struct pages_world *w)
{
    struct pages_drawn *d = calloc(1, sizeof(*d));

    assert_non_null(d);
    for (uint64_t round = 0; round < 12; round++) {
        draw_layout(w, d);
        same_as_model(w, &d->pages, round);
    }
    for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++) {
        pages_draw_many(w, d, opcode);
        same_as_model(w, &d->pages, (uint64_t)opcode);
    }
    free(d);
}

static struct pages_world world_of(const struct pair *p)
{
    return (struct pages_world){p->a, p->seg, p->am, p->bm, (uintptr_t)p->bm};
}

static void over_host(void **arg)
{
    struct pages_world w = world_of(*arg);

    moves_as_a_loop_does(&w);
}

static void over_tcp(void **arg)
{
    over_host(arg);
}

static void within_an_engine(void **arg)
{
    const struct pair *p = *arg;
    struct pages_world w = {p->a, TE_LOCAL_SEGMENT, p->am, p->am + AREA, (uintptr_t)p->am + AREA};

    moves_as_a_loop_does(&w);
}

/* To memory that its owner has registered in parts. */
static void in_several_buffers(void **arg)
{
    struct pair *p = *arg;
    struct pages_world w = world_of(p);

    assert_int_equal(te_unregister(p->b, p->bm), 0);
    for (size_t i = 0, n = 300007; i * n < AREA; i++)
        assert_int_equal(te_register(p->b, p->bm + i * n, n, "*", TE_REMOTE_RW), 0);
    moves_as_a_loop_does(&w);
}

#if TE_USE_RDMA
static void over_rdma(void **unused)
{
    struct rdma_pair p;
    struct pages_world w;

    (void)unused;
    rdma_pair_fabric(RDMA_PAIR_PLAIN, 2, NULL);
    rdma_pair_begin(&p);
    w = (struct pages_world){p.a, p.seg, p.am, p.bm, (uintptr_t)p.bm};
    moves_as_a_loop_does(&w);
    rdma_pair_end(&p);
}
#endif

static void to_a_process(void **unused)
{
    struct child_engine child;
    unsigned char *local = map_pages(AREA);
    struct pages_world w = {.local = local};
    te_options o;

    (void)unused;
    child_start(&child, AREA, TE_REMOTE_RW);
    loopback_options(&o);
    assert_int_equal(te_engine_create(&o, &w.e), 0);
    assert_int_equal(te_register(w.e, local, AREA, "*", TE_LOCAL_ONLY), 0);
    assert_int_equal(te_open(w.e, child.name, &w.seg), 0);
    w.remote = child.mem;
    w.remote_base = (uintptr_t)child.mem;
    moves_as_a_loop_does(&w);
    te_engine_destroy(w.e);
    child_stop(&child);
    munmap(local, AREA);
}

#if TE_USE_NVMEOF
static void to_a_file(void **unused)
{
    char path[] = "/tmp/te-pages-XXXXXX", uri[64];
    struct pages_world w = {.local = map_pages(AREA)};
    int fd = mkstemp(path);
    te_options o;

    (void)unused;
    assert_true(fd >= 0);
    assert_int_equal(posix_fallocate(fd, 0, AREA), 0);
    w.remote = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(w.remote, MAP_FAILED);
    snprintf(uri, sizeof(uri), "file://%s", path);
    loopback_options(&o);
    assert_int_equal(te_engine_create(&o, &w.e), 0);
    assert_int_equal(te_register(w.e, w.local, AREA, "*", TE_LOCAL_ONLY), 0);
    if (te_open(w.e, uri, &w.seg))
        fail_msg("%s", te_errmsg());
    moves_as_a_loop_does(&w);
    te_engine_destroy(w.e);
    munmap(w.remote, AREA);
    munmap(w.local, AREA);
    close(fd);
    unlink(path);
}
#endif

/* ------------------------------------------------------------------------------- what is promised */

/* So many pages in order, of `length` bytes each, at the begin of both memories. */
static te_pages in_order(const struct pair *p, int opcode, size_t n, uint64_t length)
{
    return (te_pages){.size = sizeof(te_pages),
                      .opcode = opcode,
                      .target = p->seg,
                      .length = length,
                      .n = n,
                      .local = {.base = (uintptr_t)p->am, .pages = n, .stride = length},
                      .remote = {.base = (uintptr_t)p->bm, .pages = n, .stride = length}};
}

/* Pieces of work that the engine's transports have given back so far. */
static uint64_t attempts(te_engine *e)
{
    static const char name[] = "\ntransfer_engine_transport_attempts_total{";
    static char text[1 << 20];
    uint64_t sum = 0;

    assert_int_equal(te_stats_text(e, text, sizeof(text)), 0);
    for (char *at = text; (at = strstr(at, name)); at++)
        sum += strtoull(strchr(at, ' '), NULL, 10);
    return sum;
}

static void pieces_are(struct pair *p, const te_pages *g, uint64_t n)
{
    uint64_t before = attempts(p->a);

    completes(p->a, g);
    WAIT_FOR(attempts(p->a) - before >= n); /* they are counted a moment later */
    assert_int_equal(attempts(p->a) - before, n);
}

static void what_adjoins_is_one_piece(void **arg)
{
    struct pair *p = *arg;
    uint32_t rows[] = {4, 5, 6, 9, 10, 0};
    te_pages g = in_order(p, TE_WRITE, 1000, 512);

    pieces_are(p, &g, 1);
    g.parts = 2; /* of which each page has two, one behind the other */
    g.length = 256;
    g.local.part_stride = g.remote.part_stride = 256;
    pieces_are(p, &g, 1);
    g.remote.stride = 513;
    pieces_are(p, &g, 1000);
    g = in_order(p, TE_READ, 6, 512);
    g.local.pages = 11;
    g.local.index = rows;
    g.index_bits = 32;
    pieces_are(p, &g, 3);
    g.layers = 2;
    g.local.layer_stride = g.remote.layer_stride = 100000;
    pieces_are(p, &g, 6);
}

/* As many pages as are looked at for one window, and more. */
static void rows_without_an_end_are_split(void **arg)
{
    struct pair *p = *arg;
    te_pages g = in_order(p, TE_WRITE, 200000, 1);

    fill(p->am, g.n, 11);
    pieces_are(p, &g, 4);
    assert_memory_equal(p->bm, p->am, g.n);
}

/* One row of pages, over more buffers of the target than pieces may be under way. */
static void a_row_in_very_many_buffers(void **arg)
{
    struct pair *p = *arg;
    te_pages g = in_order(p, TE_WRITE, 60000, 5);

    assert_int_equal(te_unregister(p->b, p->bm), 0);
    for (size_t i = 0; i < 3000; i++)
        assert_int_equal(te_register(p->b, p->bm + i * 100, 100, "*", TE_REMOTE_RW), 0);
    fill(p->am, g.n * g.length, 12);
    completes(p->a, &g);
    assert_memory_equal(p->bm, p->am, g.n * g.length);
    fill(p->am, g.n * g.length, 13);
    pieces_are(p, &g, 3000);
    assert_memory_equal(p->bm, p->am, g.n * g.length);
}

static void arrays_may_be_used_again(void **arg)
{
    struct pair *p = *arg;
    struct pages_world w = world_of(p);
    struct pages_drawn *d = calloc(1, sizeof(*d));
    unsigned char *a = map_pages(AREA), *b = map_pages(AREA);
    char msg[256];
    te_batch batch;

    assert_non_null(d);
    pages_draw_many(&w, d, TE_WRITE);
    fill(p->am, AREA, 1);
    memcpy(a, p->am, AREA);
    memcpy(b, p->bm, AREA);
    model(&w, &d->pages, a, b);
    batch = pages_submit(p->a, &d->pages);
    memset(d, 0xff, sizeof(*d));
    assert_int_equal(pages_end(p->a, batch, msg, sizeof(msg)).state, TE_COMPLETED);
    assert_memory_equal(p->bm, b, AREA);
    munmap(a, AREA);
    munmap(b, AREA);
    free(d);
}

static void nothing_completes_at_once(void **arg)
{
    struct pair *p = *arg;
    te_pages g = in_order(p, TE_READ, 0, 100);

    completes(p->a, &g);
    g = in_order(p, TE_WRITE, 100, 0);
    completes(p->a, &g);
    g.parts = g.layers = SIZE_MAX; /* which nothing is multiplied with */
    completes(p->a, &g);
    g.target = 77;
    refused(p->a, &g, TE_ERR_NOT_FOUND, "segment 77");
}

/* ------------------------------------------------------------------------------------ what is wrong */

static void wrong_numbers(void **arg)
{
    struct pair *p = *arg;
    uint32_t narrow[] = {0, 1, 7, 10, 3, 12};
    uint64_t wide[] = {0, UINT64_MAX, 2, 3, 4, 5};
    te_pages g = in_order(p, TE_READ, 6, 100);

    g.index_bits = 32;
    g.local.index = narrow;
    refused(p->a, &g, TE_ERR_INVALID, "local.index[2] is page 7, and local.pages is 6");
    g.local.pages = 10;
    refused(p->a, &g, TE_ERR_INVALID, "local.index[3] is page 10, and local.pages is 10");
    g.local.index = NULL;
    g.remote.index = wide;
    g.index_bits = 64;
    refused(p->a, &g, TE_ERR_INVALID, "remote.index[1] is page 18446744073709551615");
    g.index_bits = 16;
    refused(p->a, &g, TE_ERR_INVALID, "index_bits is 16");
    g.remote.index = NULL;
    g.remote.pages = 5;
    refused(p->a, &g, TE_ERR_INVALID, "remote.index[5] is page 5, and remote.pages is 5");
    g.remote.pages = 0;
    refused(p->a, &g, TE_ERR_INVALID, "remote.index[0] is page 0, and remote.pages is 0");
    g = in_order(p, TE_READ, SIZE_MAX, 1);
    g.local.pages = g.remote.pages = (uint64_t)1 << 62;
    refused(p->a, &g, TE_ERR_INVALID,
            "local.index[4611686018427387904] is page 4611686018427387904");
}

static void wrong_layouts(void **arg)
{
    struct pair *p = *arg;
    uint32_t rows[] = {0, 2};
    te_pages g = in_order(p, TE_READ, 6, 100);

    g.local.stride = 99;
    refused(p->a, &g, TE_ERR_INVALID, "pages at local.base, which are written to, overlap");
    g.opcode = TE_WRITE; /* what is read may overlap */
    completes(p->a, &g);
    g.remote.stride = 0;
    refused(p->a, &g, TE_ERR_INVALID, "pages at remote.base, which are written to, overlap");
    g = in_order(p, TE_WRITE, 6, 100);
    g.parts = 2;
    g.local.part_stride = g.remote.part_stride = 600;
    completes(p->a, &g);
    g.remote.part_stride = 599;
    refused(p->a, &g, TE_ERR_INVALID, "overlap");
    g.remote.part_stride = UINT64_MAX - 4096;
    refused(p->a, &g, TE_ERR_INVALID, "pool at remote.base wraps around");
    g.remote.part_stride = 600;
    g.local.stride = UINT64_MAX / 4;
    refused(p->a, &g, TE_ERR_INVALID, "pool at local.base wraps around");
    g.local.stride = 100;
    g.remote.base = UINT64_MAX - 500;
    refused(p->a, &g, TE_ERR_INVALID, "pool at remote.base wraps around");
    g = in_order(p, TE_WRITE, 2, 100);
    g.index_bits = 32;
    g.remote = (te_page_side){.pages = 4, .stride = (uint64_t)1 << 63, .index = rows};
    refused(p->a, &g, TE_ERR_INVALID, "pool at remote.base wraps around");
    g = in_order(p, TE_WRITE, 6, 100);
    g.layers = SIZE_MAX / 2;
    refused(p->a, &g, TE_ERR_INVALID, "more bytes than 64 bits count");
    g.layers = 0;
    g.length = UINT64_MAX / 3;
    refused(p->a, &g, TE_ERR_INVALID, "more bytes than 64 bits count");
    g.opcode = 2;
    refused(p->a, &g, TE_ERR_INVALID, "opcode 2");
}

static void wrong_calls(void **arg)
{
    struct pair *p = *arg;
    te_pages g = in_order(p, TE_READ, 6, 100);

    g.local.base = (uintptr_t)p->am + PAIR_SIZE - 599;
    refused(p->a, &g, TE_ERR_NOT_REGISTERED, "is not inside one registered region: region 0x");
    g = in_order(p, TE_READ, 6, 100);
    g.size = 8;
    refused(p->a, &g, TE_ERR_INVALID, "te_pages");
    g.size = sizeof(g);
    g.target = TE_LOCAL_SEGMENT; /* which has not got the other one's memory */
    refused(p->a, &g, TE_ERR_NOT_REGISTERED,
            "page 0 of the target or one that adjoins, entry 0 of its list");
}

static void wrong_batches(void **arg)
{
    struct pair *p = *arg;
    te_pages g = in_order(p, TE_READ, 6, 100);
    te_submit_opts bad = {.size = sizeof(bad), .deadline_ms = -1};
    te_batch b;

    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_submit_pages(p->a, b, NULL, NULL), TE_ERR_INVALID);
    assert_int_equal(te_submit_pages(NULL, b, &g, NULL), TE_ERR_INVALID);
    assert_int_equal(te_submit_pages(p->a, b, &g, &bad), TE_ERR_INVALID);
    assert_int_equal(te_submit_pages(p->a, b + 1, &g, NULL), TE_ERR_NOT_FOUND);
    assert_int_equal(te_submit_pages(p->a, b, &g, NULL), 0);
    assert_int_equal(te_submit_pages(p->a, b, &g, NULL), TE_ERR_TOO_MANY);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_free(p->a, b), 0);
    /* Nothing that went wrong has left a hold behind. */
    assert_int_equal(te_unregister(p->a, p->am), 0);
}

/* ------------------------------------------------------------------------------- a changing world */

/* Pages 0 and 1 of three are there; then all. */
static void pages_that_are_missing(void **arg)
{
    struct pair *p = *arg;
    te_pages g = in_order(p, TE_WRITE, 3, 1000);
    char msg[512];
    struct te_status st;

    g.local.stride = 1001;
    assert_int_equal(te_unregister(p->b, p->bm), 0);
    assert_int_equal(te_register(p->b, p->bm, 2000, "*", TE_REMOTE_RW), 0);
    st = pages_end(p->a, pages_submit(p->a, &g), msg, sizeof(msg));
    assert_int_equal(st.state, TE_INVALID);
    assert_int_equal(st.error, TE_ERR_STALE);
    assert_non_null(strstr(msg, "write of 3000 bytes in pages from"));
    assert_non_null(strstr(msg, "page 2 of the target or one that adjoins, entry 2 of its list"));
    /* What was fetched for that request is old now. */
    assert_int_equal(te_unregister(p->b, p->bm), 0);
    assert_int_equal(te_register(p->b, p->bm, 3000, "*", TE_REMOTE_RW), 0);
    fill(p->am, 4000, 5);
    completes(p->a, &g);
    for (size_t i = 0; i < 3; i++)
        assert_memory_equal(p->am + i * 1001, p->bm + i * 1000, 1000);
    g.opcode = TE_READ;
    assert_int_equal(te_unregister(p->b, p->bm), 0);
    assert_int_equal(te_register(p->b, p->bm, 3000, "*", TE_REMOTE_WRITE), 0);
    st = pages_end(p->a, pages_submit(p->a, &g), msg, sizeof(msg));
    assert_int_equal(st.state, TE_INVALID);
    assert_int_equal(st.error, TE_ERR_ACCESS);
}

/* The last page of many is not there: found out when most have been moved. */
static void the_last_page_is_missing(void **arg)
{
    struct pair *p = *arg;
    struct pages_world w = world_of(p);
    struct pages_drawn *d = calloc(1, sizeof(*d));
    char msg[512];
    struct te_status st;
    uint64_t last;

    assert_non_null(d);
    pages_draw_many(&w, d, TE_WRITE);
    d->pages.parts = 1;
    last = d->remote[MANY - 1];
    for (size_t i = 0; i < MANY; i++) /* the last number in order is the last one moved */
        if (d->remote[i] == MANY - 1)
            d->remote[i] = last;
    d->remote[MANY - 1] = MANY - 1;
    assert_int_equal(te_unregister(p->b, p->bm), 0);
    assert_int_equal(te_register(p->b, p->bm, 99 * (MANY - 1) + 90, "*", TE_REMOTE_RW), 0);
    st = pages_end(p->a, pages_submit(p->a, &d->pages), msg, sizeof(msg));
    assert_int_equal(st.state, TE_INVALID);
    assert_int_equal(st.error, TE_ERR_STALE);
    assert_true(st.bytes < 97 * MANY);
    assert_non_null(
        strstr(msg, "page 4999 of the target or one that adjoins, entry 4999 of its list"));
    assert_int_equal(te_unregister(p->b, p->bm), 0);
    assert_int_equal(te_register(p->b, p->bm, 99 * MANY, "*", TE_REMOTE_RW), 0);
    completes(p->a, &d->pages);
    free(d);
}

/* The later pages may not be written to, and then may: what was known of that is old. */
static void later_pages_change_their_access(void **arg)
{
    struct pair *p = *arg;
    struct pages_world w = world_of(p);
    struct pages_drawn *d = calloc(1, sizeof(*d));
    size_t half = (size_t)99 * 4000;
    char msg[512];
    struct te_status st;

    assert_non_null(d);
    pages_draw_many(&w, d, TE_WRITE);
    d->pages.parts = 1;
    for (size_t i = 0; i < MANY; i++) /* downwards in the first ones, so that none adjoin */
        d->remote[i] = i < 4000 ? 3999 - i : i;
    assert_int_equal(te_unregister(p->b, p->bm), 0);
    assert_int_equal(te_register(p->b, p->bm, half, "*", TE_REMOTE_RW), 0);
    assert_int_equal(te_register(p->b, p->bm + half, half, "*", TE_REMOTE_READ), 0);
    st = pages_end(p->a, pages_submit(p->a, &d->pages), msg, sizeof(msg));
    assert_int_equal(st.state, TE_INVALID);
    assert_int_equal(st.error, TE_ERR_ACCESS);
    assert_true(st.bytes < 97 * MANY);
    assert_non_null(
        strstr(msg, "page 4000 of the target or one that adjoins, entry 4000 of its list"));
    assert_int_equal(te_unregister(p->b, p->bm + half), 0);
    assert_int_equal(te_register(p->b, p->bm + half, half, "*", TE_REMOTE_RW), 0);
    completes(p->a, &d->pages);
    free(d);
}

/* A message that follows, and requests of both sorts in one batch. */
static void beside_others(void **arg)
{
    struct pair *p = *arg;
    te_submit_opts o = {.size = sizeof(o),
                        .deadline_ms = PATIENCE_MS,
                        .notify_name = "moved",
                        .notify_msg = "all",
                        .notify_target = p->seg};
    te_request r = {.opcode = TE_WRITE,
                    .source = p->am + 5000,
                    .target = p->seg,
                    .target_offset = (uintptr_t)p->bm + 5000,
                    .length = 77};
    te_pages g = in_order(p, TE_WRITE, 9, 500), h = g;
    te_notification *got = NULL;
    struct te_status st;
    size_t n = 0;
    te_batch b;

    h.local.base += 10000;
    h.remote.base += 10000;
    fill(p->am, 20000, 3);
    assert_int_equal(te_batch_alloc(p->a, 3, &b), 0);
    assert_int_equal(te_submit(p->a, b, &r, 1, NULL), 0);
    assert_int_equal(te_submit_pages(p->a, b, &g, &o), 0);
    assert_int_equal(te_submit_pages(p->a, b, &h, NULL), 0);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_status(p->a, b, &st), 0);
    assert_int_equal(st.state, TE_COMPLETED);
    assert_int_equal(st.bytes, 2 * 4500 + 77);
    assert_memory_equal(p->bm, p->am, 4500);
    assert_memory_equal(p->bm + 5000, p->am + 5000, 77);
    assert_memory_equal(p->bm + 10000, p->am + 10000, 4500);
    WAIT_FOR(te_notify_recv(p->b, &got, &n) || n);
    assert_int_equal(n, 1);
    assert_string_equal(got[0].name, "moved");
    te_notify_free(got, n);
    assert_int_equal(te_batch_free(p->a, b), 0);
}

#define BOTH(name)                                                    \
    cmocka_unit_test_setup_teardown(name, pair_setup, pair_teardown), \
        cmocka_unit_test_setup_teardown(name, pair_setup_tcp, pair_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(to_a_process),
#if TE_USE_RDMA
        cmocka_unit_test(over_rdma),
#endif
#if TE_USE_NVMEOF
        cmocka_unit_test(to_a_file),
#endif
        cmocka_unit_test_setup_teardown(over_host, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(over_tcp, pair_setup_tcp, pair_teardown),
        cmocka_unit_test_setup_teardown(within_an_engine, pair_setup, pair_teardown),
        BOTH(in_several_buffers),
        cmocka_unit_test_setup_teardown(what_adjoins_is_one_piece, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(rows_without_an_end_are_split, pair_setup, pair_teardown),
        BOTH(a_row_in_very_many_buffers),
        BOTH(arrays_may_be_used_again),
        cmocka_unit_test_setup_teardown(nothing_completes_at_once, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(wrong_numbers, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(wrong_layouts, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(wrong_calls, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(wrong_batches, pair_setup, pair_teardown),
        BOTH(pages_that_are_missing),
        BOTH(the_last_page_is_missing),
        BOTH(later_pages_change_their_access),
        BOTH(beside_others),
    };

    draw_state = 0x9e3779b97f4a7c15u;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
