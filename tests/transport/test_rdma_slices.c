/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te-test: timeout=60
 *
 * Slices: how requests are cut, and that each comes home exactly once, whatever is small, late or
 * gone on its way. Every case leaves no descriptor and no thread behind.
 */
#include "conformance.h"
#include "rdma_fabric.h"

#include "base/err.h"
#include "base/os.h"
#include "meta/meta.h"
#include "proc.h"
#include "transport/rdma/rdma_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NICS   2
#define SLICE  4096
#define RATIO  4
#define CHUNK  1000003 /* no multiple of anything */
#define FLIGHT 32
#define PART   (PAIR_BYTES / FLIGHT)

static size_t fds, threads;

static struct pair *open_pair(void (*configure)(struct tei_conf *c))
{
    static struct conformance with;

    with =
        (struct conformance){.transport = "rdma",
                             .configure = configure,
                             .topology = {rdma_fabric_topology(false), rdma_fabric_topology(true)}};
    return pair_open(&with);
}

/* Work for a range, a piece for each of the target's buffers as the core makes them; how many. */
static size_t add_work(struct tei_list *list, struct pair *p, struct fake_task *tasks, int opcode,
                       size_t at_a, size_t at_b, size_t n)
{
    uint64_t max = p->b->ops.buffer_max(p->b);
    size_t count = 0;

    for (size_t done = 0, len; done < n; done += len) {
        len = tei_min(n - done, max - (at_b + done) % max);
        fake_work(list, p->a, p->attach, &tasks[count++], opcode, p->am + at_a + done,
                  p->bm + at_b + done, len);
    }
    return count;
}

static void check_done(struct pair *p, struct fake_task *tasks, size_t n)
{
    assert_true(fake_wait(&p->ha, NULL, tasks, n, PATIENCE_MS));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(tasks[i].error, 0);
}

static uint64_t requests(void)
{
    return rdma_fabric_count("left0", "wrs") + rdma_fabric_count("left1", "wrs");
}

/* --------------------------------------------------------------------------------------- cutting */

static void small_slices(struct tei_conf *c)
{
    rdma_fabric_configure(c);
    c->slice_size = SLICE;
    c->fragment_ratio = RATIO;
}

static size_t slices_of(size_t n)
{
    size_t count = 0;

    for (uint64_t left = n; left > 0; count++)
        left -= tei_slice_len(left, SLICE, RATIO);
    return count;
}

static void odd_sizes(void **state)
{
    static const int around[] = {-2, -1, 0, 1, 2};
    static const size_t sizes[] = {SLICE,     SLICE + SLICE / RATIO,     2 * SLICE,
                                   3 * SLICE, 7 * SLICE + SLICE / RATIO, 100 * SLICE};
    struct pair *p = open_pair(small_slices);

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(sizes) * TEI_ARRAY_LEN(around) * 2; i++) {
        size_t n = sizes[i / 10] + (size_t)around[i / 2 % 5];
        char *to = i % 2 ? p->bm + 3 : p->am + 1, *from = i % 2 ? p->am + 1 : p->bm + 3;
        uint64_t before = requests();

        fill_pattern(from, n, (uint32_t)i);
        memset(to - 1, 0x55, n + 2);
        assert_int_equal(
            fake_transfer(p->a, p->attach, i % 2 ? TE_WRITE : TE_READ, p->am + 1, p->bm + 3, n), 0);
        assert_memory_equal(to, from, n);
        assert_int_equal(to[-1], 0x55);
        assert_int_equal(to[n], 0x55);
        assert_int_equal(requests() - before, slices_of(n));
    }
    pair_close(p);
}

static void small_chunks(struct tei_conf *c)
{
    rdma_fabric_configure(c);
    c->max_mr_size = CHUNK;
}

/* Memory in many regions of the device at both ends, the edges of which do not meet. */
static void chunks(void **state)
{
    struct pair *p = open_pair(small_chunks);
    struct fake_task tasks[PAIR_BYTES / CHUNK + 2];
    uint32_t x = 5;

    (void)state;
    assert_int_equal(p->b->ops.buffer_max(p->b), CHUNK);
    assert_int_equal(rdma_fabric_count("left1", "mrs"), PAIR_BYTES / CHUNK + 1);
    fill_pattern(p->bm, PAIR_BYTES, 1);
    for (int i = 0; i < 60; i++) {
        size_t at_a, at_b, n, count;
        struct tei_list list;

        x = x * 1664525u + 1013904223u;
        n = 1 + (x >> 8) % (i % 3 ? 3 * CHUNK : 2000);
        at_a = (x >> 3) % (PAIR_BYTES - n);
        at_b = i % 3 ? (x >> 5) % (PAIR_BYTES - n) : (1 + x % 30) * CHUNK - n / 2;
        tei_list_init(&list);
        if (i % 2)
            fill_pattern(p->am + at_a, n, x);
        count = add_work(&list, p, tasks, i % 2 ? TE_WRITE : TE_READ, at_a, at_b, n);
        p->a->ops.post(p->a, &list);
        check_done(p, tasks, count);
        assert_memory_equal(p->am + at_a, p->bm + at_b, n);
    }
    pair_close(p);
    assert_int_equal(rdma_fabric_count("left1", "mrs"), 0);
}

static void small_queues(struct tei_conf *c)
{
    small_slices(c);
    c->max_wr = 8;
    c->max_cqe_per_ctx = 20;
}

/* 8192 slices for 2 NICs with 2 queue pairs of 8, whose completion queue holds 20. */
static void more_slices_than_queues_hold(void **state)
{
    struct pair *p = open_pair(small_queues);
    struct fake_task tasks[FLIGHT];

    (void)state;
    for (int round = 0; round < 4; round++) {
        struct tei_list list;
        size_t n = 0;

        fill_pattern(round % 2 ? p->am : p->bm, PAIR_BYTES, (uint32_t)round);
        tei_list_init(&list);
        for (size_t i = 0; i < FLIGHT; i++)
            n += add_work(&list, p, tasks + n, round % 2 ? TE_WRITE : TE_READ, i * PART, i * PART,
                          PART);
        p->a->ops.post(p->a, &list);
        check_done(p, tasks, n);
        assert_memory_equal(p->am, p->bm, PAIR_BYTES);
    }
    pair_close(p);
}

struct crowd {
    struct pair *p;
    size_t from;
    int bad;
};

static void *one_of_many(void *arg)
{
    struct crowd *c = arg;
    struct pair *p = c->p;

    for (int i = 0; i < 40; i++) {
        size_t at = c->from + (size_t)i * 7, n = 1 + (size_t)i * 9973 % (PART / 2);

        fill_pattern(p->bm + at, n, (uint32_t)i);
        if (fake_transfer(p->a, p->attach, TE_READ, p->am + at, p->bm + at, n) ||
            memcmp(p->am + at, p->bm + at, n) != 0)
            c->bad++;
    }
    return NULL;
}

/* Threads that compete for the room in the queues, and endpoints for that in the completion queue. */
static void many_threads_in_small_queues(void **state)
{
    struct pair *p = open_pair(small_queues);
    struct crowd crowd[6];
    pthread_t ids[6];

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(crowd); i++) {
        crowd[i] = (struct crowd){p, i * PART, 0};
        assert_int_equal(pthread_create(&ids[i], NULL, one_of_many, &crowd[i]), 0);
    }
    for (size_t i = 0; i < TEI_ARRAY_LEN(crowd); i++) {
        pthread_join(ids[i], NULL);
        assert_int_equal(crowd[i].bad, 0);
    }
    pair_close(p);
}

/* ------------------------------------------------------------------------------------- endpoints */

static void one_endpoint(struct tei_conf *c)
{
    rdma_fabric_configure(c);
    c->max_ep_per_ctx = 1;
}

/* Three peers take turns in the one endpoint that each NIC has. */
static void fewer_endpoints_than_peers(void **state)
{
    enum { PEERS = 3, N = 96 };
    struct pair *p[PEERS];
    struct tei_attach *to[PEERS];
    struct fake_task tasks[N];

    (void)state;
    for (size_t i = 0; i < PEERS; i++) {
        p[i] = open_pair(one_endpoint);
        fill_pattern(p[i]->bm, PAIR_BYTES, (uint32_t)i);
        to[i] = i ? fake_attach(p[0]->a, p[i]->b) : p[0]->attach;
    }
    for (int round = 0; round < 6; round++) {
        size_t n = round % 2 ? 3000 : PAIR_BYTES / N;
        struct tei_list list;

        memset(p[0]->am, 0, PAIR_BYTES);
        tei_list_init(&list);
        for (size_t i = 0; i < N; i++)
            fake_work(&list, p[0]->a, to[i % PEERS], &tasks[i], TE_READ,
                      p[0]->am + i * (PAIR_BYTES / N), p[i % PEERS]->bm + i * (PAIR_BYTES / N), n);
        p[0]->a->ops.post(p[0]->a, &list);
        check_done(p[0], tasks, N);
        for (size_t i = 0; i < N; i++)
            assert_memory_equal(p[0]->am + i * (PAIR_BYTES / N),
                                p[i % PEERS]->bm + i * (PAIR_BYTES / N), n);
        assert_true(rdma_fabric_count("left0", "qps") <= 2);
    }
    for (size_t i = PEERS; i-- > 0;) {
        if (i)
            fake_detach(p[0]->a, to[i]);
        pair_close(p[i]);
    }
}

static void two_endpoints(struct tei_conf *c)
{
    rdma_fabric_configure(c);
    c->max_ep_per_ctx = 2;
}

/* Nobody tells a target of initiators that went; those that come find room all the same. */
static void initiators_come_and_go(void **state)
{
    struct pair *p = open_pair(two_endpoints);
    char *text = fake_describe(p->b);

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct pair *q = open_pair(two_endpoints);
        struct tei_attach *a = fake_attach_text(q->a, text);

        fill_pattern(p->bm, PAIR_BYTES / 8, (uint32_t)i);
        assert_int_equal(fake_transfer(q->a, a, TE_READ, q->am, p->bm, PAIR_BYTES / 8), 0);
        assert_memory_equal(q->am, p->bm, PAIR_BYTES / 8);
        fake_detach(q->a, a);
        pair_close(q);
    }
    assert_true(rdma_fabric_count("right0", "qps") <= 4);
    free(text);
    pair_close(p);
}

static void two_queue_pairs_then_three(struct tei_conf *c)
{
    static int side;

    rdma_fabric_configure(c);
    c->num_qp_per_ep = side++ % 2 ? 3 : 2;
    c->retry_cnt = 2;
}

/* What a peer answers to a first message with so many queue pairs. */
static void say_hello(struct pair *p, size_t n_qp, struct tei_rdma_hello *answer)
{
    struct tei_rdma_hello h = {.n_qp = n_qp, .has_gid = true, .qp_num = {1000, 1001, 1002}};
    struct tei_bytes reply;
    char *text;
    size_t len;

    snprintf(h.local_nic_path, sizeof h.local_nic_path, "stranger@left0");
    snprintf(h.peer_nic_path, sizeof h.peer_nic_path, "%s@right0", p->hb.name);
    text = tei_rdma_hello_encode(&h, &len);
    assert_int_equal(tei_rpc_request(NULL, &p->hb.where, TEI_RPC_CONNECTION, text, len, 1 << 20,
                                     tei_deadline_ns(PATIENCE_MS), &reply),
                     0);
    assert_int_equal(tei_rdma_hello_decode(reply.data, reply.len, answer), 0);
    tei_bytes_fini(&reply);
    free(text);
}

static void other_number_of_queue_pairs(void **state)
{
    struct pair *p = open_pair(two_queue_pairs_then_three);
    struct tei_rdma_hello answer;

    (void)state;
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100), TE_ERR_REJECTED);
    say_hello(p, 2, &answer);
    assert_non_null(strstr(answer.reply_msg, "MC_NUM_QP_PER_EP"));
    assert_int_equal(answer.n_qp, 0);
    p->hb.conf.num_qp_per_ep = 2;
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100), 0);
    pair_close(p);
}

struct opener {
    struct tei_transport *t;
    struct tei_attach *a;
    char *local, *remote;
    pthread_barrier_t *start;
    int rc;
};

static void *open_at_once(void *arg)
{
    struct opener *o = arg;

    pthread_barrier_wait(o->start);
    o->rc = fake_transfer(o->t, o->a, TE_WRITE, o->local, o->remote, PAIR_BYTES / 4);
    return NULL;
}

/* Both ends begin to connect at the same moment, and share what comes of it. */
static void both_begin_at_once(void **state)
{
    (void)state;
    for (int round = 0; round < 15; round++) {
        struct pair *p = open_pair(rdma_fabric_configure);
        struct tei_attach *back = fake_attach(p->b, p->a);
        pthread_barrier_t start;
        struct opener there = {p->a, p->attach, p->am, p->bm, &start, -1};
        struct opener here = {p->b,   back, p->bm + PAIR_BYTES / 2, p->am + PAIR_BYTES / 2,
                              &start, -1};
        pthread_t thread;

        fill_pattern(p->am, PAIR_BYTES / 4, (uint32_t)round);
        fill_pattern(p->bm + PAIR_BYTES / 2, PAIR_BYTES / 4, (uint32_t)round + 100);
        pthread_barrier_init(&start, NULL, 2);
        assert_int_equal(pthread_create(&thread, NULL, open_at_once, &there), 0);
        open_at_once(&here);
        pthread_join(thread, NULL);
        pthread_barrier_destroy(&start);
        assert_int_equal(there.rc, 0);
        assert_int_equal(here.rc, 0);
        assert_memory_equal(p->am, p->bm, PAIR_BYTES / 4);
        assert_memory_equal(p->am + PAIR_BYTES / 2, p->bm + PAIR_BYTES / 2, PAIR_BYTES / 4);
        assert_true(rdma_fabric_count("left0", "qps") <=
                    4); /* a second rail if the first is slow */
        fake_detach(p->b, back);
        pair_close(p);
    }
}

/* ----------------------------------------------------------------------------------------- peers */

static void reopen_target(struct pair *p)
{
    fake_region_del(&p->hb, p->b, p->br);
    fake_close(p->b);
    p->hb.base.incarnation = ++p->hb.incarnation;
    p->b = fake_open(&p->hb, "rdma");
    p->br = fake_region_add(&p->hb, p->b, p->bm, PAIR_BYTES, TE_REMOTE_RW);
}

/* The same name, another life: what was connected with the first leads nowhere. */
static void restarted_peer(void **state)
{
    struct pair *p = open_pair(rdma_fabric_configure);

    (void)state;
    for (int round = 0; round < 4; round++) {
        int rc;

        assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
        reopen_target(p);
        if (round % 2) {
            rc = fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100);
            assert_true(rc == TE_ERR_STALE || tei_err_class(rc) == TEI_CLASS_PATH);
        }
        pair_attach_anew(p);
        fill_pattern(p->bm, PAIR_BYTES, (uint32_t)round);
        assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
        assert_memory_equal(p->am, p->bm, PAIR_BYTES);
    }
    pair_close(p);
}

/* ------------------------------------------------------------------------------- what is given up */

static void take_off(struct pair *p, struct fake_task *tasks, const void *owner,
                     int64_t deadline_ns)
{
    struct tei_list list;

    tei_list_init(&list);
    for (size_t i = 0; i < FLIGHT; i++) {
        struct tei_work *w =
            fake_work(&list, p->a, p->attach, &tasks[i], i % 2 ? TE_WRITE : TE_READ,
                      p->am + i * PART, p->bm + i * PART, PART);

        w->owner = owner;
        w->deadline_ns = deadline_ns;
    }
    p->a->ops.post(p->a, &list);
}

/* Connected, and with NICs that carry nothing from now on. */
static struct pair *open_stalled(void)
{
    struct pair *p = open_pair(rdma_fabric_configure);

    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    for (int i = 0; i < NICS; i++)
        rdma_fabric_tell("stall left%d 86400000", i);
    return p;
}

static void go_on(void)
{
    for (int i = 0; i < NICS; i++)
        rdma_fabric_tell("clear left%d", i);
}

/* Neither end's memory is touched for what was given up, also once the NICs go on. */
static void check_quiet(struct pair *p)
{
    char *a = malloc(PAIR_BYTES), *b = malloc(PAIR_BYTES);

    assert_true(a && b);
    fill_pattern(p->am, PAIR_BYTES, 77);
    memcpy(a, p->am, PAIR_BYTES);
    memcpy(b, p->bm, PAIR_BYTES);
    go_on();
    usleep(100000);
    assert_memory_equal(p->am, a, PAIR_BYTES);
    assert_memory_equal(p->bm, b, PAIR_BYTES);
    free(a);
    free(b);
}

static void cancel_with_slices_out(void **state)
{
    struct pair *p = open_stalled();
    struct fake_task tasks[FLIGHT];
    int me = 0; /* an owner is an address */

    (void)state;
    take_off(p, tasks, &me, TEI_NEVER);
    usleep(20000);
    p->a->ops.cancel(p->a, &me);
    assert_true(fake_wait(&p->ha, NULL, tasks, FLIGHT, PATIENCE_MS));
    for (size_t i = 0; i < FLIGHT; i++)
        assert_int_equal(tasks[i].error, TE_ERR_CANCELED);
    check_quiet(p);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    pair_close(p);
}

/* What shared the queue pairs with it is sent anew. */
static void cancel_spares_others(void **state)
{
    struct pair *p = open_stalled();
    struct fake_task mine[FLIGHT], others[FLIGHT];
    int me = 0, other = 0;

    (void)state;
    fill_pattern(p->bm, PAIR_BYTES, 8);
    take_off(p, mine, &me, TEI_NEVER);
    take_off(p, others, &other, TEI_NEVER);
    usleep(20000);
    p->a->ops.cancel(p->a, &me);
    assert_true(fake_wait(&p->ha, NULL, mine, FLIGHT, PATIENCE_MS));
    go_on();
    check_done(p, others, FLIGHT);
    for (size_t i = 0; i < FLIGHT; i++)
        assert_int_equal(mine[i].error, TE_ERR_CANCELED);
    assert_memory_equal(p->am, p->bm, PAIR_BYTES);
    pair_close(p);
}

static void deadline_with_slices_out(void **state)
{
    struct pair *p = open_stalled();
    struct fake_task tasks[FLIGHT];
    int64_t start = tei_now_ns();

    (void)state;
    take_off(p, tasks, NULL, start + 150 * TEI_NS_PER_MS);
    assert_true(fake_wait(&p->ha, NULL, tasks, FLIGHT, PATIENCE_MS));
    assert_true(tei_now_ns() - start >= 150 * TEI_NS_PER_MS);
    for (size_t i = 0; i < FLIGHT; i++)
        assert_int_equal(tasks[i].error, TE_ERR_TIMEOUT);
    check_quiet(p);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    pair_close(p);
}

/*
 * Ends a WRITE of the first half of the memory before a NIC has carried it; how many of its parts did
 * not complete.
 */
static size_t give_up_writing(struct pair *p, bool cancel)
{
    const size_t part = PART / 2;
    struct fake_task tasks[FLIGHT];
    struct tei_list list;
    size_t cut_short = 0;
    int me = 0;

    tei_list_init(&list);
    for (size_t i = 0; i < FLIGHT; i++) {
        struct tei_work *w = fake_work(&list, p->a, p->attach, &tasks[i], TE_WRITE,
                                       p->am + i * part, p->bm + i * part, part);

        w->owner = &me;
        w->deadline_ns = cancel ? TEI_NEVER : tei_now_ns() + 10 * TEI_NS_PER_MS;
    }
    p->a->ops.post(p->a, &list);
    if (cancel)
        p->a->ops.cancel(p->a, &me);
    assert_true(fake_wait(&p->ha, NULL, tasks, FLIGHT, PATIENCE_MS));
    for (size_t i = 0; i < FLIGHT; i++) {
        assert_true(tasks[i].error == 0 ||
                    tasks[i].error == (cancel ? TE_ERR_CANCELED : TE_ERR_TIMEOUT));
        cut_short += tasks[i].error != 0;
    }
    return cut_short;
}

/*
 * What a WRITE that was given up had handed to a NIC is never in the target's memory after a later
 * WRITE to the same place has completed, by whichever NIC that went, and whenever the first one goes on.
 */
static void no_bytes_of_writes_given_up(void **state)
{
    static const char *const nics[] = {"left0", "left1", "right0", "right1"};
    struct pair *p = open_pair(rdma_fabric_configure);
    const size_t half = PAIR_BYTES / 2;
    char *second = p->am + half;
    size_t cut_short = 0;

    (void)state;
    assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, p->am, p->bm, PAIR_BYTES), 0);
    for (uint32_t round = 0; round < 16; round++) {
        const char *nic = nics[round / 2 % TEI_ARRAY_LEN(nics)];
        struct fake_task later;
        struct tei_list list;

        fill_pattern(p->am, half, 2 * round);
        rdma_fabric_tell("stall %s 60000", nic);
        cut_short += give_up_writing(p, round % 2);
        fill_pattern(second, half, 2 * round + 1);
        tei_list_init(&list);
        fake_work(&list, p->a, p->attach, &later, TE_WRITE, second, p->bm, half);
        p->a->ops.post(p->a, &list);
        rdma_fabric_tell("clear %s", nic);
        check_done(p, &later, 1);
        assert_memory_equal(second, p->bm, half);
        /* Nor when the NICs have done more since. */
        assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, second, p->bm + half, half), 0);
        fill_pattern(second, half, 2 * round + 1);
        assert_memory_equal(second, p->bm, half);
    }
    assert_true(cut_short > 0);
    pair_close(p);
}

static void close_with_slices_out(void **state)
{
    struct pair *p = open_stalled();
    struct fake_task tasks[FLIGHT];

    (void)state;
    take_off(p, tasks, NULL, TEI_NEVER);
    usleep(10000);
    p->a->ops.close(p->a);
    (p->a->ops.stop)(p->a); /* cmocka 2 has a macro of the name */
    for (size_t i = 0; i < FLIGHT; i++) {
        assert_true(tasks[i].done);
        assert_int_equal(tasks[i].error, TE_ERR_CANCELED);
    }
    check_quiet(p);
    pair_close(p);
}

/* Work requests that vanish: the device never tells of them, nor of any behind them. */
static void dropped_slices_are_sent_anew(void **state)
{
    struct pair *p = open_pair(rdma_fabric_configure);

    (void)state;
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    for (int round = 0; round < 2; round++) {
        fill_pattern(round ? p->am : p->bm, PAIR_BYTES, (uint32_t)round + 1);
        rdma_fabric_tell("drop left%d 3", round);
        assert_int_equal(fake_transfer(p->a, p->attach, round ? TE_WRITE : TE_READ, p->am, p->bm,
                                       PAIR_BYTES),
                         0);
        assert_memory_equal(p->am, p->bm, PAIR_BYTES);
    }
    pair_close(p);
}

struct reader {
    struct pair *p;
    struct tei_attach *attach;
    _Atomic bool quit;
    _Atomic int well, stale, bad;
};

static void *read_on(void *arg)
{
    struct reader *r = arg;

    while (!atomic_load(&r->quit)) {
        int rc = fake_transfer(r->p->a, r->attach, TE_READ, r->p->am, r->p->bm, 20 * PIECE);

        r->well += rc == 0;
        r->stale += rc == TE_ERR_STALE;
        r->bad += rc != 0 && rc != TE_ERR_STALE;
    }
    return NULL;
}

static void wait_for_some(const _Atomic int *n)
{
    int64_t until = tei_deadline_ns(PATIENCE_MS);

    while (atomic_load(n) < 3)
        assert_true(tei_now_ns() < until);
}

/* Memory may be unmapped once it is unregistered: whoever reads it then is told so. */
static void unregister_while_peers_read(void **state)
{
    struct pair *p = open_pair(rdma_fabric_configure);

    (void)state;
    for (int round = 0; round < 5; round++) {
        struct reader r = {.p = p, .attach = p->attach};
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, read_on, &r), 0);
        wait_for_some(&r.well);
        fake_region_del(&p->hb, p->b, p->br);
        assert_int_equal(mprotect(p->bm, PAIR_BYTES, PROT_NONE), 0);
        wait_for_some(&r.stale);
        assert_int_equal(mprotect(p->bm, PAIR_BYTES, PROT_READ | PROT_WRITE), 0);
        atomic_store(&r.quit, true);
        pthread_join(thread, NULL);
        assert_int_equal(r.bad, 0);
        p->br = fake_region_add(&p->hb, p->b, p->bm, PAIR_BYTES, TE_REMOTE_RW);
        pair_attach_anew(p);
    }
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100), 0);
    pair_close(p);
}

/* ------------------------------------------------------------------------------------------- main */

static int set_up(void **state)
{
    (void)state;
    rdma_fabric_up(NICS, NULL);
    fds = test_count_fds();
    threads = test_settled_threads();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rdma_fabric_down();
    return test_nothing_left(fds, threads) ? 0 : -1;
}

/* What stays for the life of a process is there before the first case counts. */
static int warm_up(void **state)
{
    (void)state;
    rdma_fabric_up(NICS, NULL);
    pair_close(open_pair(rdma_fabric_configure));
    rdma_fabric_down();
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* test_rdma_slices [PATTERN]: only the cases that match. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(odd_sizes),
        CASE(chunks),
        CASE(more_slices_than_queues_hold),
        CASE(many_threads_in_small_queues),
        CASE(fewer_endpoints_than_peers),
        CASE(initiators_come_and_go),
        CASE(other_number_of_queue_pairs),
        CASE(both_begin_at_once),
        CASE(restarted_peer),
        CASE(cancel_with_slices_out),
        CASE(cancel_spares_others),
        CASE(deadline_with_slices_out),
        CASE(no_bytes_of_writes_given_up),
        CASE(close_with_slices_out),
        CASE(dropped_slices_are_sent_anew),
        CASE(unregister_while_peers_read),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, warm_up, NULL);
}
