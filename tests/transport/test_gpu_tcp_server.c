/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te-test: timeout=240
 *
 * The tcp transport as a server of memory of devices: requests over plain sockets, with blocks in
 * several sorts of memory; those that end early, or fail.
 */
#include "conformance.h"

#include "base/os.h"
#include "fabric/softgpu/softgpu.h"
#include "native_mix.h"
#include "plat/plat.h"
#include "transport/tcp/tcp_device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#define CLIENT 0x1122334455667789u
#define MIX    ((size_t)3 << 20)
#define HALF   ((size_t)256 << 10) /* of a buffer of the server, see tcp_device.c */

static struct conformance fixture = {.transport = "tcp"};

/* softgpu's; NULL: the driver is a real one. */
static int (*control)(const char *commands);
static long (*live)(enum softgpu_kind kind, const char *what);

/* Buffers that are pinned, where that can be told. */
static void expect_pins(long n)
{
    enum softgpu_kind kind = fixture.kind[TARGET] == TEI_MEM_CUDA ? SOFTGPU_CUDA : SOFTGPU_HIP;

    if (live)
        assert_int_equal(live(kind, "pins"), n);
}

static struct tcp_range at(const char *p, size_t n)
{
    return (struct tcp_range){(uintptr_t)p, (uint32_t)n};
}

static char *pattern(size_t n, uint32_t seed)
{
    char *p = malloc(n);

    assert_non_null(p);
    fill_pattern(p, n, seed);
    return p;
}

/* The server lives, and serves its device. */
static void is_well(struct pair *p)
{
    struct native c = native_greet(p->b, CLIENT, 999, true);
    struct tcp_range r = at(p->bm + PAIR_BYTES - 3 * HALF - 1, 3 * HALF + 1);
    char *block = pattern(r.length, (uint32_t)rand()), *got = malloc(r.length + TCP_TRAILER_LEN);

    assert_non_null(got);
    native_send(&c, TCP_FRAME_WRITE, 1, &r, 1, block);
    native_expect(&c, TCP_FRAME_ACK, 1, TCP_OK, 0, 0);
    pair_expect(p, TARGET, PAIR_BYTES - r.length, block, r.length);
    native_send(&c, TCP_FRAME_READ, 2, &r, 1, NULL);
    native_expect(&c, TCP_FRAME_DATA, 2, TCP_OK, 0, r.length);
    native_get(c.fd, got, r.length + TCP_TRAILER_LEN);
    assert_memory_equal(got, block, r.length);
    close(c.fd);
    free(block);
    free(got);
}

/* ---------------------------------------------------------------------------- sorts of memory */

#define SORTS 9

/* An area in each sort of memory that there is. */
struct areas {
    unsigned n;
    struct native_area v[SORTS];
    struct conformance like[SORTS];
    struct tei_region *regions[SORTS];
};

static void add_area(struct areas *a, struct pair *p, enum tei_mem_kind kind, int device)
{
    struct conformance *like = &a->like[a->n];
    char *mem;

    *like = (struct conformance){.kind = {[TARGET] = kind}, .device = {[TARGET] = device}};
    mem = pair_map(like, TARGET, MIX);
    a->v[a->n] = (struct native_area){mem, pattern(MIX, a->n)};
    pair_copy(p->with, mem, a->v[a->n].model, MIX);
    a->regions[a->n++] = fake_region_add(&p->hb, p->b, mem, MIX, TE_REMOTE_RW);
}

static void open_areas(struct areas *a, struct pair *p)
{
    static const enum tei_mem_kind kinds[] = {TEI_MEM_CUDA, TEI_MEM_HIP, TEI_MEM_ASCEND,
                                              TEI_MEM_MUSA};

    *a = (struct areas){0};
    add_area(a, p, TEI_MEM_HOST, -1);
    for (size_t i = 0; i < TEI_ARRAY_LEN(kinds); i++) {
        int last = tei_gpu_open(kinds[i]) ? -1 : tei_gpu_count(kinds[i]) - 1;

        if (last >= 0)
            add_area(a, p, kinds[i], 0);
        if (last > 0)
            add_area(a, p, kinds[i], last);
    }
}

static void check_areas(const struct areas *a, struct pair *p)
{
    char *seen = malloc(MIX);

    assert_non_null(seen);
    for (unsigned i = 0; i < a->n; i++) {
        pair_copy(p->with, seen, a->v[i].mem, MIX);
        assert_memory_equal(seen, a->v[i].model, MIX);
    }
    free(seen);
}

static void close_areas(struct areas *a, struct pair *p)
{
    for (unsigned i = 0; i < a->n; i++) {
        fake_region_del(&p->hb, p->b, a->regions[i]);
        pair_unmap(&a->like[i], TARGET, (char *)(uintptr_t)a->v[i].mem, MIX);
        free(a->v[i].model);
    }
}

static void blocks_in_all_sorts_of_memory(void **state)
{
    static const unsigned most[] = {0, 200000, 5000, 0, 70000};
    struct pair *p = pair_open(&fixture);
    struct areas a;

    (void)state;
    srand(11);
    open_areas(&a, p);
    for (unsigned i = 0; i < 2 * TEI_ARRAY_LEN(most); i++) {
        struct native c = native_greet(p->b, CLIENT, i + 1, i % 2);

        native_mix(&c, &(struct native_mix){a.v, a.n, MIX, MIX, 16, most[i / 2]});
        check_areas(&a, p);
        close(c.fd);
    }
    close_areas(&a, p);
    is_well(p);
    pair_close(p);
}

/* ------------------------------------------------------------------- more sessions than buffers */

static void one_worker(struct tei_conf *c)
{
    c->tcp_threads = 1;
}

static struct conformance one_worker_fixture(void)
{
    struct conformance with = fixture;

    with.configure = one_worker;
    return with;
}

#define CROWD 45
#define EACH  (2 * HALF + 12345)

static struct tcp_range share(const struct pair *p, size_t i)
{
    return at(p->bm + i * EACH, EACH);
}

/* All are in the middle of a frame at the same time; those without a buffer of their own, too. */
static void more_sessions_than_buffers(void **state)
{
    struct conformance with = one_worker_fixture();
    struct native c[CROWD];
    char *block = pattern(CROWD * EACH, 3), *got = malloc(EACH + TCP_TRAILER_LEN);
    uint8_t *bytes = malloc(EACH + 256);
    struct pair *p;

    (void)state;
    assert_true(got && bytes);
    p = pair_open(&with);
    for (size_t i = 0; i < CROWD; i++)
        c[i] = native_greet(p->b, CLIENT, i + 1, i % 2);
    for (size_t part = 0; part < 4; part++) {
        for (size_t i = 0; i < CROWD; i++) {
            struct tcp_range r = share(p, i);
            size_t n = native_request(bytes, c[i].crc, TCP_FRAME_WRITE, 1, &r, 1, block + i * EACH);

            native_put(c[i].fd, bytes + part * n / 4, (part + 1) * n / 4 - part * n / 4);
        }
        usleep(10000);
    }
    for (size_t i = 0; i < CROWD; i++)
        native_expect(&c[i], TCP_FRAME_ACK, 1, TCP_OK, 0, 0);
    expect_pins(32);
    pair_expect(p, TARGET, 0, block, CROWD * EACH);
    for (uint64_t id = 2; id < 14; id++) /* more than the sockets hold */
        for (size_t i = 0; i < CROWD; i++)
            native_send(&c[i], TCP_FRAME_READ, id, (struct tcp_range[]){share(p, i)}, 1, NULL);
    usleep(50000);
    for (uint64_t id = 2; id < 14; id++) {
        for (size_t i = 0; i < CROWD; i++) {
            native_expect(&c[i], TCP_FRAME_DATA, id, TCP_OK, 0, EACH);
            native_get(c[i].fd, got, EACH + (c[i].crc ? TCP_TRAILER_LEN : 0));
            assert_memory_equal(got, block + i * EACH, EACH);
        }
    }
    for (size_t i = 0; i < CROWD; i++)
        close(c[i].fd);
    free(block);
    free(got);
    free(bytes);
    is_well(p);
    pair_close(p);
}

/* Those that were not used for long, by the worker's watchdog. */
static void buffers_are_freed(void **state)
{
    struct pair *p = pair_open(&fixture);
    struct tcp *tcp = tei_tcp_of(p->b);
    int64_t now;

    (void)state;
    is_well(p);
    expect_pins(1);
    now = tei_now_ns();
    for (unsigned i = 0; i < tcp->n_workers; i++) {
        struct tcp_worker *w = &tcp->workers[i];

        tei_tcp_worker_enter(w);
        assert_true(tei_tcp_staging_tick(w, now + TEI_NS_PER_S) > now);
        assert_true(tei_tcp_staging_tick(w, now + 100 * TEI_NS_PER_S) == TEI_NEVER);
        tei_tcp_worker_leave(w);
    }
    expect_pins(0);
    is_well(p);
    pair_close(p);
    expect_pins(0);
}

/* ------------------------------------------------------------------------------ hostile clients */

/* What a client asks beyond its rights changes nothing, whatever else the frame asks. */
static void a_refused_block(void **state)
{
    struct pair *p = pair_open(&fixture);
    char *limited = pair_map(&fixture, TARGET, 4096), *foreign = pair_map(&fixture, TARGET, 4096);
    struct tei_region *read_only = fake_region_add(&p->hb, p->b, limited, 4096, TE_REMOTE_READ);
    const struct tcp_range bad[] = {
        at(p->bm, 0),           at(p->bm + PAIR_BYTES - HALF, HALF + 1),
        at(p->bm - 1, 9),       at(limited, 9),
        at(foreign, 100),       {0, 100},
        {UINT64_MAX - 10, 100},
    };
    char *block = pattern(3 * HALF, 2), *before = pattern(2 * HALF, 1);

    (void)state;
    pair_put(p, TARGET, 0, before, 2 * HALF);
    for (int crc = 0; crc < 2; crc++) {
        struct native c = native_greet(p->b, CLIENT, 1, crc);
        uint64_t id = 1;

        for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
            for (unsigned place = 0; place < 2; place++) {
                struct tcp_range r[2] = {at(p->bm + 5, HALF), at(p->bm + 5, HALF)};

                r[place] = bad[i];
                native_send(&c, TCP_FRAME_WRITE, id, r, 2, block);
                native_expect(&c, TCP_FRAME_ACK, id++, TCP_REFUSED, place, 0);
            }
        }
        close(c.fd);
    }
    pair_expect(p, TARGET, 0, before, 2 * HALF);
    fake_region_del(&p->hb, p->b, read_only);
    pair_unmap(&fixture, TARGET, limited, 4096);
    pair_unmap(&fixture, TARGET, foreign, 4096);
    free(block);
    free(before);
    is_well(p);
    pair_close(p);
}

static void wrong_checksums(void **state)
{
    struct pair *p = pair_open(&fixture);
    struct native c = native_greet(p->b, CLIENT, 1, true);
    struct tcp_range r[2] = {at(p->bm + 1, 2 * HALF + 77), at(p->bm + 4 * HALF, 100)};
    char *block = pattern(3 * HALF, 1);
    uint8_t *bytes = malloc(4 * HALF);
    size_t n;

    (void)state;
    assert_non_null(bytes);
    for (uint64_t id = 1; id < 6; id++) {
        n = native_request(bytes, true, TCP_FRAME_WRITE, id, r, 2, block);
        bytes[n - 1 - id * id * 1000] ^= 0x10;
        native_put(c.fd, bytes, n);
        native_expect(&c, TCP_FRAME_ACK, id, TCP_CORRUPT, 0, 0);
    }
    native_send(&c, TCP_FRAME_WRITE, 9, r, 2, block);
    native_expect(&c, TCP_FRAME_ACK, 9, TCP_OK, 0, 0);
    pair_expect(p, TARGET, 1, block, r[0].length);
    pair_expect(p, TARGET, 4 * HALF, block + r[0].length, 100);
    close(c.fd);
    free(block);
    free(bytes);
    pair_close(p);
}

/* ------------------------------------------------------------------------------ ending too early */

static void await_users(const struct tei_region *r, bool any)
{
    WAIT_FOR((atomic_load(&r->remote_users) > 0) == any);
}

/* Nothing touches a region that is gone, and nothing of the stages is lost. */
static void a_region_is_removed_under_a_frame(void **state)
{
    struct pair *p = pair_open(&fixture);
    size_t length = 8 * HALF;
    char *memory = pair_map(&fixture, TARGET, length), *block = pattern(length, 1);
    char *seen = malloc(length), *ours = pattern(length, 2);
    uint8_t *bytes = malloc(length + 256);

    (void)state;
    assert_true(seen && bytes);
    srand(5);
    for (int i = 0; i < 60; i++) {
        struct tei_region *region = fake_region_add(&p->hb, p->b, memory, length, TE_REMOTE_RW);
        struct native c = native_greet(p->b, CLIENT, 1, false);
        struct tcp_range r[2] = {at(memory, 5000), at(memory + 9000, length - 9000)};
        size_t n = native_request(bytes, false, TCP_FRAME_WRITE, 1, r, 2, block);

        if (i % 2) {
            native_put(c.fd, bytes, n - 1 - native_draw((unsigned)length - 9000));
        } else { /* a READ that is not taken */
            for (uint64_t id = 1; id < 12; id++)
                native_send(&c, TCP_FRAME_READ, id, r, 2, NULL);
        }
        await_users(region, true);
        fake_region_del(&p->hb, p->b, region);
        pair_copy(&fixture, memory, ours, length);
        if (i % 2) {
            (void)!send(c.fd, bytes, 10, MSG_NOSIGNAL);
            native_expect_end(c.fd);
        } else {
            close(c.fd);
        }
        pair_copy(&fixture, seen, memory, length);
        assert_memory_equal(seen, ours, length);
    }
    pair_unmap(&fixture, TARGET, memory, length);
    free(block);
    free(seen);
    free(ours);
    free(bytes);
    is_well(p);
    pair_close(p);
}

/*
 * The client goes, at any point of a frame. One worker: the sanitizers take two clients that write to
 * the same place at once for a mistake of ours.
 */
static void clients_that_leave(void **state)
{
    struct conformance with = one_worker_fixture();
    struct pair *p = pair_open(&with);
    struct tcp_range r[2] = {at(p->bm, 3 * HALF), at(p->bm + 4 * HALF, HALF + 1)};
    char *block = pattern(5 * HALF, 1);
    uint8_t *bytes = malloc(5 * HALF);

    (void)state;
    assert_non_null(bytes);
    srand(9);
    for (int i = 0; i < 60; i++) {
        struct native c = native_greet(p->b, CLIENT, 1, i % 3 == 0);
        size_t n =
            native_request(bytes, c.crc, i % 2 ? TCP_FRAME_WRITE : TCP_FRAME_READ, 1, r, 2, block);

        native_put(c.fd, bytes, i % 2 ? native_draw((unsigned)n) : n);
        if (i % 4 == 0)
            native_get(c.fd, block, 1 + native_draw(HALF));
        close(c.fd);
    }
    await_users(p->br, false);
    free(block);
    free(bytes);
    is_well(p);
    pair_close(p);
}

/* ------------------------------------------------------------------------------ copies that fail */

static void command(const char *text)
{
    assert_int_equal(control(text), 0);
}

static void version_2(struct tei_conf *c)
{
    c->tcp_native = false;
}

static void version_1(struct tei_conf *c)
{
    c->tcp_force_v1 = true;
}

static void configure_nothing(struct tei_conf *c)
{
    (void)c;
}

/* Never a success, whichever copy it is: and what follows is served. */
static void failed_copies_fail_the_request(void **state)
{
    static void (*const framings[])(struct tei_conf *) = {configure_nothing, version_2, version_1};
    static const char *const faults[] = {"fail copy count=1000", "fail copy nth=2 count=1000",
                                         "fail copy nth=3 count=1000"};
    struct conformance with = fixture;

    (void)state;
    if (!control)
        skip();
    for (size_t i = 0; i < 3 * TEI_ARRAY_LEN(faults); i++) {
        size_t n = (i / 3 + 2) * HALF; /* so many copies at least are needed */
        struct pair *p;

        with.configure = framings[i % 3];
        p = pair_open(&with);
        p->ha.conf.tcp_piece_size = n;
        for (int opcode = 0; opcode < 2; opcode++) {
            pair_fill(p, TARGET, 0, n, 1);
            pair_fill(p, INITIATOR, 0, n, 2);
            command(faults[i / 3]);
            assert_int_not_equal(fake_transfer(p->a, p->attach, opcode, p->am, p->bm, n), 0);
            command("clear");
            assert_int_equal(fake_transfer(p->a, p->attach, opcode, p->am, p->bm, n), 0);
            assert_true(pair_same(p, 0, p, 0, n));
        }
        await_users(p->br, false);
        pair_close(p);
    }
}

/* A client of ours tries again, on another connection. */
static void a_copy_that_fails_once_is_done_again(void **state)
{
    struct pair *p;

    (void)state;
    if (!control)
        skip();
    p = pair_open(&fixture);
    for (int i = 0; i < 6; i++) {
        char fault[40];

        snprintf(fault, sizeof fault, "fail copy nth=%d", 1 + i / 2);
        pair_fill(p, TARGET, 0, 4 * HALF, 1);
        pair_fill(p, INITIATOR, 0, 4 * HALF, 2);
        command(fault);
        assert_int_equal(fake_transfer(p->a, p->attach, i % 2, p->am, p->bm, 4 * HALF), 0);
        command("clear");
        assert_true(pair_same(p, 0, p, 0, 4 * HALF));
    }
    pair_close(p);
}

static void *release_soon(void *arg)
{
    usleep(50000);
    command("release");
    return arg;
}

/* Copies that take their time are waited for: by the answer, and by whoever removes the region. */
static void slow_copies(void **state)
{
    struct pair *p;
    struct tcp_range r;
    char *block = pattern(HALF + 5, 1), *ours = pattern(HALF + 5, 2);
    pthread_t thread;

    (void)state;
    if (!control)
        skip();
    p = pair_open(&fixture);
    r = at(p->bm + 3, HALF + 5);
    for (int i = 0; i < 4; i++) {
        struct native c = native_greet(p->b, CLIENT, 1, false);

        command(i % 2 ? "stall" : "stall ms=50");
        native_send(&c, TCP_FRAME_WRITE, 1, &r, 1, block);
        if (i % 2) {
            await_users(p->br, true);
            assert_int_equal(pthread_create(&thread, NULL, release_soon, NULL), 0);
            fake_region_del(&p->hb, p->b, p->br);
            pthread_join(thread, NULL);
            pair_put(p, TARGET, 3, ours, HALF + 5);
            usleep(60000);
            pair_expect(p, TARGET, 3, ours, HALF + 5);
            p->br = fake_region_add(&p->hb, p->b, p->bm, PAIR_BYTES, TE_REMOTE_RW);
        } else {
            native_expect(&c, TCP_FRAME_ACK, 1, TCP_OK, 0, 0);
            pair_expect(p, TARGET, 3, block, HALF + 5);
        }
        close(c.fd);
        command("release");
    }
    free(block);
    free(ours);
    pair_close(p);
}

static pid_t test;

static void kill_device(struct tei_conf *c)
{
    (void)c;
    if (getpid() != test)
        command("fail copy async=1");
}

/* The driver finds out late, and does nothing for the target's process from then on. */
static void a_device_that_dies(void **state)
{
    struct conformance with = fixture;
    struct pair *p;

    (void)state;
    if (!control)
        skip();
    with.configure = kill_device;
    p = pair_fork(&with);
    for (int i = 0; i < 4; i++)
        assert_int_equal(fake_transfer(p->a, p->attach, i % 2 ? TE_READ : TE_WRITE, p->am, p->bm,
                                       3 * HALF),
                         TE_ERR_LINK);
    pair_close(p);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum tei_mem_kind kind;
    } kinds[] = {{"cuda", TEI_MEM_CUDA}, {"hip", TEI_MEM_HIP}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_in_all_sorts_of_memory),
        cmocka_unit_test(more_sessions_than_buffers),
        cmocka_unit_test(buffers_are_freed),
        cmocka_unit_test(a_refused_block),
        cmocka_unit_test(wrong_checksums),
        cmocka_unit_test(a_region_is_removed_under_a_frame),
        cmocka_unit_test(clients_that_leave),
        cmocka_unit_test(failed_copies_fail_the_request),
        cmocka_unit_test(a_copy_that_fails_once_is_done_again),
        cmocka_unit_test(slow_copies),
        cmocka_unit_test(a_device_that_dies),
    };
    int failed = 0, run = 0;

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    test = getpid();
    *(void **)&control = dlsym(RTLD_DEFAULT, "softgpu_control");
    *(void **)&live = dlsym(RTLD_DEFAULT, "softgpu_live");
    pair_prepare();
    for (size_t i = 0; i < TEI_ARRAY_LEN(kinds); i++) {
        if (tei_gpu_open(kinds[i].kind)) {
            printf("left out: %s: %s\n", kinds[i].name, te_errmsg());
            continue;
        }
        fixture.kind[TARGET] = kinds[i].kind;
        failed += cmocka_run_group_tests_name(kinds[i].name, tests, NULL, NULL);
        run++;
    }
    return run ? failed : 77;
}
