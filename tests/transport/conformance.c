/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance.h"

#include "base/err.h"
#include "base/os.h"
#include "proc.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define FLIGHT 32

/* Says both errors in words. */
#define EXPECT_ERROR(want, got)                                                                    \
    do {                                                                                           \
        int got_ = (got), want_ = (want);                                                          \
        if (got_ != want_)                                                                         \
            fail_msg("%s: expected \"%s\" (%d), got \"%s\" (%d)", #got, te_strerror(want_), want_, \
                     te_strerror(got_), got_);                                                     \
    } while (0)

/* --------------------------------------------------------------------------------- moving bytes */

static char *scratch(size_t n)
{
    char *p = malloc(n);

    assert_non_null(p);
    return p;
}

/* Fails the test unless each of them has ended in one of these ways. */
static void expect_ends(const struct fake_task *tasks, size_t n, const int *ways, size_t n_ways)
{
    for (size_t i = 0; i < n; i++) {
        size_t way = 0;

        if (!tasks[i].done)
            fail_msg("work %zu of %zu has not ended", i, n);
        while (way < n_ways && tasks[i].error != ways[way])
            way++;
        if (way == n_ways)
            fail_msg("work %zu of %zu: expected \"%s\"%s, got \"%s\" (%d)", i, n,
                     te_strerror(ways[0]), n_ways > 1 ? " or another that is allowed" : "",
                     te_strerror(tasks[i].error), tasks[i].error);
    }
}

/* The ways in which they may have ended. */
#define EXPECT_ENDS(tasks, n, ...) \
    expect_ends(tasks, n, (const int[]){__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int))

/* Waits until all of them have ended. */
static void expect_end(struct fake_host *h, struct tei_transport *poll, struct fake_task *tasks,
                       size_t n)
{
    size_t over = 0;

    if (fake_wait(h, poll, tasks, n, PATIENCE_MS))
        return;
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < n; i++)
        over += tasks[i].done;
    pthread_mutex_unlock(&h->lock);
    fail_msg("%zu of %zu works have ended, and no more do within %d s", over, n,
             PATIENCE_MS / 1000);
}

/* work_done() was called for so many works in all. */
static void expect_done(const struct fake_host *h, size_t posted)
{
    if (h->n_done != posted)
        fail_msg("%zu works have been handed back, %zu were to be", h->n_done, posted);
}

/* Moves n bytes one way and checks both sides, and that nothing beside them has changed. */
static void check_one(struct pair *p, int opcode, size_t at_a, size_t at_b, size_t n, uint32_t seed)
{
    enum pair_side to = opcode == TE_READ ? INITIATOR : TARGET;
    enum pair_side from = opcode == TE_READ ? TARGET : INITIATOR;
    size_t at_to = opcode == TE_READ ? at_a : at_b, at_from = opcode == TE_READ ? at_b : at_a;
    char *bytes = scratch(n + 2);

    bytes[0] = bytes[n + 1] = 0x55;
    fill_pattern(bytes + 1, n, seed);
    pair_put(p, from, at_from, bytes + 1, n);
    pair_set(p, to, at_to - 1, 0x55, n + 2);
    EXPECT_ERROR(0, fake_transfer(p->a, p->attach, opcode, p->am + at_a, p->bm + at_b, n));
    pair_expect(p, to, at_to - 1, bytes, n + 2);
    pair_expect(p, from, at_from, bytes + 1, n);
    free(bytes);
}

static void check_sizes(struct pair *p)
{
    static const size_t sizes[] = {1,
                                   2,
                                   7,
                                   8,
                                   23,
                                   24,
                                   25,
                                   4095,
                                   4096,
                                   4097,
                                   PIECE - 1,
                                   PIECE,
                                   PIECE + 1,
                                   PIECE + PIECE / 4,
                                   PIECE + PIECE / 4 + 1,
                                   2 * PIECE,
                                   3 * PIECE - 1,
                                   17 * PIECE + 5,
                                   ((size_t)8 << 20) + 3};

    for (size_t i = 0; i < TEI_ARRAY_LEN(sizes); i++) {
        check_one(p, TE_READ, 1, 3, sizes[i], (uint32_t)i);
        check_one(p, TE_WRITE, 5, 2, sizes[i], (uint32_t)i + 100);
        check_one(p, TE_READ, 64, 128, sizes[i], (uint32_t)i + 200);
        check_one(p, TE_WRITE, PAIR_BYTES - sizes[i] - 1, PAIR_BYTES - sizes[i] - 1, sizes[i],
                  (uint32_t)i + 300);
    }
}

void conformance_sizes(const struct conformance *with)
{
    struct pair *p = pair_open(with);

    check_sizes(p);
    pair_close(p);
}

void conformance_other_process(const struct conformance *with)
{
    struct pair *p = pair_fork(with);

    check_sizes(p);
    pair_close(p);
}

struct shot {
    int opcode;
    size_t at, n;
};

/* Ranges side by side with a gap of one byte, so that no two of a volley touch each other. */
static size_t draw_volley(struct shot *shots, size_t max, uint32_t *x)
{
    size_t at = 1, n = 0;

    while (n < max) {
        struct shot *s = &shots[n];

        *x = *x * 1664525u + 1013904223u;
        s->opcode = *x >> 31 ? TE_READ : TE_WRITE;
        s->n = 1 + (*x >> 8) % (1u << (*x >> 3) % 20);
        s->at = at;
        if (at + s->n + 1 > PAIR_BYTES)
            break;
        at += s->n + 1;
        n++;
    }
    return n;
}

void conformance_random_volleys(const struct conformance *with)
{
    struct pair *p = pair_open(with);
    char *model_a = scratch(PAIR_BYTES), *model_b = scratch(PAIR_BYTES);
    struct shot shots[300];
    struct fake_task tasks[300];
    uint32_t x = 7;

    fill_pattern(model_a, PAIR_BYTES, 1);
    fill_pattern(model_b, PAIR_BYTES, 2);
    pair_put(p, INITIATOR, 0, model_a, PAIR_BYTES);
    pair_put(p, TARGET, 0, model_b, PAIR_BYTES);
    for (int round = 0; round < 8; round++) {
        size_t n = draw_volley(shots, TEI_ARRAY_LEN(shots), &x);
        struct tei_list list;

        tei_list_init(&list);
        for (size_t i = 0; i < n; i++) {
            struct shot *s = &shots[i];

            fake_work(&list, p->a, p->attach, &tasks[i], s->opcode, p->am + s->at, p->bm + s->at,
                      s->n);
            if (s->opcode == TE_READ)
                memcpy(model_a + s->at, model_b + s->at, s->n);
            else
                memcpy(model_b + s->at, model_a + s->at, s->n);
        }
        p->a->ops.post(p->a, &list);
        assert_true(tei_list_empty(&list));
        expect_end(&p->ha, round % 2 ? p->a : NULL, tasks, n);
        EXPECT_ENDS(tasks, n, TE_ERR_OK);
        pair_expect(p, INITIATOR, 0, model_a, PAIR_BYTES);
        pair_expect(p, TARGET, 0, model_b, PAIR_BYTES);
    }
    free(model_a);
    free(model_b);
    pair_close(p);
}

void conformance_two_peers(const struct conformance *with)
{
    struct pair *p = pair_open(with), *q = pair_open(with);
    struct tei_attach *other = fake_attach(p->a, q->b);
    struct fake_task tasks[64];
    struct tei_list list;

    tei_list_init(&list);
    pair_fill(p, TARGET, 0, PAIR_BYTES, 3);
    pair_fill(q, TARGET, 0, PAIR_BYTES, 4);
    for (size_t i = 0; i < 64; i++) {
        size_t at = i * 5 * PIECE / 2;
        struct pair *from = i % 2 ? q : p;

        fake_work(&list, p->a, i % 2 ? other : p->attach, &tasks[i], TE_READ, p->am + at,
                  from->bm + at, i % 3 ? 1000 : 5 * PIECE / 2);
    }
    p->a->ops.post(p->a, &list);
    expect_end(&p->ha, NULL, tasks, 64);
    EXPECT_ENDS(tasks, 64, TE_ERR_OK);
    for (size_t i = 0; i < 64; i++) {
        size_t at = i * 5 * PIECE / 2;

        assert_true(pair_same(p, at, i % 2 ? q : p, at, i % 3 ? 1000 : 5 * PIECE / 2));
    }
    fake_detach(p->a, other);
    pair_close(q);
    pair_close(p);
}

struct crowd {
    struct pair *p;
    size_t from, bytes; /* this thread's part of both memories */
    int bad;
};

static void *one_of_many(void *arg)
{
    struct crowd *c = arg;
    struct pair *p = c->p;
    uint32_t x = (uint32_t)c->from | 1;

    for (int i = 0; i < 120; i++) {
        size_t n, at;
        char byte;

        x = x * 1664525u + 1013904223u;
        n = 1 + (x >> 8) % (i % 10 ? 5000 : 3 * PIECE);
        at = c->from + (x >> 4) % (c->bytes - n);
        pair_fill(p, TARGET, at, n, x);
        if (fake_transfer(p->a, p->attach, TE_READ, p->am + at, p->bm + at, n) ||
            !pair_same(p, at, p, at, n))
            c->bad++;
        pair_get(p, INITIATOR, at, &byte, 1);
        byte = (char)~byte;
        pair_put(p, INITIATOR, at, &byte, 1);
        if (fake_transfer(p->a, p->attach, TE_WRITE, p->am + at, p->bm + at, n) ||
            !pair_same(p, at, p, at, n))
            c->bad++;
    }
    return NULL;
}

void conformance_many_threads(const struct conformance *with)
{
    struct pair *p = pair_open(with);
    struct crowd crowd[8];
    pthread_t ids[8];

    for (size_t i = 0; i < 8; i++) {
        crowd[i] = (struct crowd){p, i * (PAIR_BYTES / 8), PAIR_BYTES / 8, 0};
        assert_int_equal(pthread_create(&ids[i], NULL, one_of_many, &crowd[i]), 0);
    }
    for (size_t i = 0; i < 8; i++) {
        pthread_join(ids[i], NULL);
        if (crowd[i].bad)
            fail_msg("thread %zu: %d transfers failed or brought other bytes", i, crowd[i].bad);
    }
    pair_close(p);
}

static size_t ended(struct fake_host *h)
{
    pthread_mutex_lock(&h->lock);
    size_t n = h->n_done;
    pthread_mutex_unlock(&h->lock);
    return n;
}

/* So many of them take long on a slow disk: the patience is with each that ends, not with all. */
static bool wait_while_some_end(struct fake_host *h, struct fake_task *tasks, size_t n)
{
    for (size_t before = ended(h); !fake_wait(h, NULL, tasks, n, PATIENCE_MS);) {
        size_t now = ended(h);
        if (now == before) {
            print_error("%zu of %zu have ended, and no more do\n", now, n);
            return false;
        }
        before = now;
    }
    return true;
}

void conformance_more_work_than_lanes(const struct conformance *with)
{
    enum { N = 4000 };
    struct pair *p = pair_open(with);
    struct fake_task *tasks = calloc(N, sizeof *tasks);
    struct tei_list list;

    tei_list_init(&list);
    pair_fill(p, TARGET, 0, PAIR_BYTES, 9);
    for (size_t i = 0; i < N; i++)
        fake_work(&list, p->a, p->attach, &tasks[i], TE_READ, p->am + i * 8000, p->bm + i * 8000,
                  1 + i % 8000);
    p->a->ops.post(p->a, &list);
    assert_true(wait_while_some_end(&p->ha, tasks, N));
    EXPECT_ENDS(tasks, N, TE_ERR_OK);
    for (size_t i = 0; i < N; i++)
        assert_true(pair_same(p, i * 8000, p, i * 8000, 1 + i % 8000));
    expect_done(&p->ha, N);
    free(tasks);
    pair_close(p);
}

/* --------------------------------------------------------------------------------------- ending */

void conformance_post_after_close(const struct conformance *with)
{
    struct pair *p = pair_open(with);

    EXPECT_ERROR(0, fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100));
    p->a->ops.close(p->a);
    EXPECT_ERROR(TE_ERR_CANCELED, fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100));
    EXPECT_ERROR(TE_ERR_CANCELED,
                 fake_transfer(p->a, p->attach, TE_WRITE, p->am, p->bm, 10 * PIECE));
    p->a->ops.close(p->a);
    pair_close(p);
}

/* Posts `FLIGHT` transfers, READ and WRITE in turn, each in its own part of the memories. */
static void take_off(struct pair *p, struct fake_task *tasks, const void *owner,
                     int64_t deadline_ns)
{
    size_t part = PAIR_BYTES / FLIGHT;
    struct tei_list list;

    tei_list_init(&list);
    for (size_t i = 0; i < FLIGHT; i++) {
        struct tei_work *w =
            fake_work(&list, p->a, p->attach, &tasks[i], i % 2 ? TE_WRITE : TE_READ,
                      p->am + i * part, p->bm + i * part, part);

        w->owner = owner;
        w->deadline_ns = deadline_ns;
    }
    p->a->ops.post(p->a, &list);
}

void conformance_close_in_flight(const struct conformance *with)
{
    for (int round = 0; round < 5; round++) {
        struct pair *p = pair_open(with);
        struct fake_task tasks[FLIGHT];

        take_off(p, tasks, NULL, TEI_NEVER);
        usleep((useconds_t)(round * 500));
        p->a->ops.close(p->a);
        (p->a->ops.stop)(p->a); /* cmocka 2 has a macro of the name */
        expect_done(&p->ha, FLIGHT);
        EXPECT_ENDS(tasks, FLIGHT, TE_ERR_OK, TE_ERR_CANCELED);
        pair_close(p);
    }
}

void conformance_leaves_nothing(const struct conformance *with)
{
    size_t fds = 0, threads = 0;

    for (int round = 0; round < 3; round++) {
        struct pair *p = pair_open(with);

        EXPECT_ERROR(0, fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 20 * PIECE));
        pair_close(p);
        if (round == 0) {
            fds = test_count_fds();
            threads = test_settled_threads();
        }
    }
    assert_true(test_nothing_left(fds, threads));
}

static int64_t cpu_ns(void)
{
    struct rusage u;

    assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * TEI_NS_PER_S +
           (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * INT64_C(1000);
}

/*
 * All threads of both sides sleep, once what they moved is done. One window of time in which they hardly run is
 * enough: there is none while a thread of them looks again and again, and gets a CPU for that. A machine too busy to
 * give it one lets the case pass.
 */
void conformance_idle_sleeps(const struct conformance *with)
{
    enum { WINDOWS = 20, WINDOW_US = 500000, ALLOWED_PERCENT = 20 };
    struct pair *p = pair_open(with);
    int64_t percent = 100;

    EXPECT_ERROR(0, fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 20 * PIECE));
    EXPECT_ERROR(0, fake_transfer(p->a, p->attach, TE_WRITE, p->am, p->bm, 20 * PIECE));
    for (int i = 0; i < WINDOWS && percent > ALLOWED_PERCENT; i++) {
        int64_t start = tei_now_ns(), ran = cpu_ns();

        usleep(WINDOW_US);
        percent = 100 * (cpu_ns() - ran) / (tei_now_ns() - start);
    }
    if (percent > ALLOWED_PERCENT)
        fail_msg("with nothing to do it uses %lld %% of a CPU, in the last of %d windows",
                 (long long)percent, WINDOWS);
    pair_close(p);
}

/* ---------------------------------------------------------------- peers that fail (REMOTE only) */

void conformance_peer_dies(const struct conformance *with)
{
    for (int round = 0; round < 4; round++) {
        struct pair *p = pair_fork(with);
        struct fake_task tasks[FLIGHT];

        EXPECT_ERROR(0, fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100));
        take_off(p, tasks, NULL, TEI_NEVER);
        usleep((useconds_t)(round * 700));
        pair_end_child(p);
        p->child = -1;
        expect_end(&p->ha, NULL, tasks, FLIGHT);
        /* TE_ERR_STALE: an engine of another test has got its port, and refuses what comes. */
        for (size_t i = 0; i < FLIGHT; i++)
            if (tasks[i].error && tei_err_class(tasks[i].error) != TEI_CLASS_PATH &&
                tasks[i].error != TE_ERR_STALE)
                fail_msg("request %zu of round %d: %s", i, round, te_strerror(tasks[i].error));
        pair_close(p);
    }
}

/* What the transfer ends with that follows those which broke with the connections to a peer that ended. */
static int end_with_peer_gone(const struct conformance *with, int opcode)
{
    enum { CONNECTIONS = 64 }; /* more than any transport has to a peer */
    struct pair *p = pair_fork(with);
    int error, links = 0;

    EXPECT_ERROR(0, fake_transfer(p->a, p->attach, opcode, p->am, p->bm, 100));
    pair_end_child(p);
    p->child = -1;
    do {
        error = fake_transfer(p->a, p->attach, opcode, p->am, p->bm, 20 * PIECE);
    } while (error == TE_ERR_LINK && ++links < CONNECTIONS);
    pair_close(p);
    return error;
}

/*
 * TE_ERR_PEER: the core fetches its descriptor again, which names the one that has come in its place.
 * An engine of another test may have got its port; it answers TE_ERR_STALE, or closes each
 * connection where the framing has no status: then another peer is taken.
 */
void conformance_peer_gone(const struct conformance *with)
{
    enum { PEERS = 5 };

    for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++) {
        int error = TE_ERR_STALE;

        for (int i = 0; i < PEERS && (error == TE_ERR_STALE || error == TE_ERR_LINK); i++)
            error = end_with_peer_gone(with, opcode);
        EXPECT_ERROR(TE_ERR_PEER, error);
    }
}

/* Sees to it that transfers are in the middle of their way, and stay there. */
static struct pair *freeze(const struct conformance *with)
{
    struct pair *p = pair_fork(with);

    EXPECT_ERROR(0, fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 20 * PIECE));
    kill(p->child, SIGSTOP);
    waitpid(p->child, NULL, WUNTRACED);
    return p;
}

/* From now on the transport must leave the initiator's memory alone, whatever the peer does. */
static void check_quiet(struct pair *p)
{
    size_t part = PAIR_BYTES / FLIGHT;
    char *before = scratch(PAIR_BYTES), theirs[64];

    fill_pattern(before, PAIR_BYTES, 77);
    pair_put(p, INITIATOR, 0, before, PAIR_BYTES);
    if (p->child > 0)
        kill(p->child, SIGCONT);
    usleep(200000);
    pair_expect(p, INITIATOR, 0, before, PAIR_BYTES);
    /* Nor has any of the new bytes been written to the peer. */
    for (size_t i = 1; i < FLIGHT; i += 2) {
        pair_get(p, TARGET, (i + 1) * part - 64, theirs, 64);
        assert_memory_not_equal(theirs, before + (i + 1) * part - 64, 64);
    }
    free(before);
}

void conformance_cancel_frozen(const struct conformance *with)
{
    struct pair *p = freeze(with);
    struct fake_task tasks[FLIGHT], others[FLIGHT];
    int mine = 0, theirs = 0;

    take_off(p, tasks, &mine, TEI_NEVER);
    take_off(p, others, &theirs, TEI_NEVER);
    usleep(50000);
    p->a->ops.cancel(p->a, &mine);
    expect_end(&p->ha, NULL, tasks, FLIGHT);
    expect_done(&p->ha, FLIGHT + 1);
    EXPECT_ENDS(tasks, FLIGHT, TE_ERR_CANCELED);
    p->a->ops.cancel(p->a, &theirs);
    expect_end(&p->ha, NULL, others, FLIGHT);
    check_quiet(p);
    EXPECT_ERROR(0, fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 20 * PIECE));
    pair_close(p);
}

void conformance_deadline_frozen(const struct conformance *with)
{
    struct pair *p = freeze(with);
    struct fake_task tasks[FLIGHT];
    int64_t start = tei_now_ns();

    take_off(p, tasks, NULL, start + 150 * TEI_NS_PER_MS);
    expect_end(&p->ha, NULL, tasks, FLIGHT);
    assert_true(tei_now_ns() - start >= 150 * TEI_NS_PER_MS);
    EXPECT_ENDS(tasks, FLIGHT, TE_ERR_TIMEOUT);
    check_quiet(p);
    pair_close(p);
}

void conformance_close_frozen(const struct conformance *with)
{
    struct pair *p = freeze(with);
    struct fake_task tasks[FLIGHT];

    take_off(p, tasks, NULL, TEI_NEVER);
    usleep(20000);
    p->a->ops.close(p->a);
    (p->a->ops.stop)(p->a); /* cmocka 2 has a macro of the name */
    EXPECT_ENDS(tasks, FLIGHT, TE_ERR_CANCELED);
    check_quiet(p);
    pair_close(p);
}

/* ------------------------------------------------------------------------ regions (REMOTE only) */

void conformance_region_removed(const struct conformance *with)
{
    for (int round = 0; round < 6; round++) {
        struct pair *p = pair_open(with);
        struct fake_task tasks[FLIGHT];
        char *before = scratch(PAIR_BYTES);

        pair_fill(p, INITIATOR, 0, PAIR_BYTES, 5);
        EXPECT_ERROR(0, fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 20 * PIECE));
        take_off(p, tasks, NULL, TEI_NEVER);
        usleep((useconds_t)(round * 400));
        fake_region_del(&p->hb, p->b, p->br);
        pair_set(p, TARGET, 0, 0x33, PAIR_BYTES);
        memset(before, 0x33, PAIR_BYTES);
        expect_end(&p->ha, NULL, tasks, FLIGHT);
        pair_expect(p, TARGET, 0, before, PAIR_BYTES);
        EXPECT_ENDS(tasks, FLIGHT, TE_ERR_OK, TE_ERR_STALE, TE_ERR_LINK);
        EXPECT_ERROR(TE_ERR_STALE, fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100));
        p->br = fake_region_add(&p->hb, p->b, p->bm, PAIR_BYTES, TE_REMOTE_RW);
        pair_attach_anew(p);
        EXPECT_ERROR(0, fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100));
        free(before);
        pair_close(p);
    }
}

/* Memory for some peers only, of whom this is none: no way leads there, or it is refused. */
static void refused_to_others(struct pair *p, const struct conformance *with)
{
    char *mem = pair_map(with, TARGET, PIECE), before[100], after[100];
    struct tei_region *others = fake_region_for_others(&p->hb, p->b, mem, PIECE, TE_REMOTE_RW);

    pair_attach_anew(p);
    pair_copy(with, before, mem, sizeof before);
    pair_fill(p, INITIATOR, 0, PIECE, 9);
    for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++) {
        te_request r = {.opcode = opcode, .target_offset = (uintptr_t)mem, .length = PIECE};

        if (p->a->ops.score(p->a, p->attach, &r))
            assert_int_not_equal(fake_transfer(p->a, p->attach, opcode, p->am, mem, sizeof before),
                                 0);
    }
    pair_copy(with, after, mem, sizeof after);
    assert_memory_equal(before, after, sizeof before);
    EXPECT_ERROR(0, fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PIECE));
    fake_region_del(&p->hb, p->b, others);
    pair_unmap(with, TARGET, mem, PIECE);
}

/* Ranges that the target does not have, or not for this, or not for everybody. */
void conformance_stale(const struct conformance *with)
{
    struct pair *p = pair_open(with);
    char *outside = pair_map(with, TARGET, PAIR_BYTES);
    char *limited = pair_map(with, TARGET, 4 * PIECE);
    struct tei_region *read_only = fake_region_add(&p->hb, p->b, limited, PIECE, TE_REMOTE_READ);
    struct tei_region *write_only =
        fake_region_add(&p->hb, p->b, limited + 2 * PIECE, PIECE, TE_REMOTE_WRITE);
    static const size_t sizes[] = {1, 5000, 3 * PIECE};
    int refused = with->mute ? TE_ERR_LINK : TE_ERR_STALE;
    char first;

    pair_attach_anew(p);
    for (size_t i = 0; i < TEI_ARRAY_LEN(sizes); i++) {
        EXPECT_ERROR(TE_ERR_STALE,
                     fake_transfer(p->a, p->attach, TE_READ, p->am, outside, sizes[i]));
        EXPECT_ERROR(refused, fake_transfer(p->a, p->attach, TE_WRITE, p->am, outside, sizes[i]));
        EXPECT_ERROR(0, fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, sizes[i]));
    }
    EXPECT_ERROR(TE_ERR_STALE,
                 fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm + PAIR_BYTES - 9, 10));
    EXPECT_ERROR(0, fake_transfer(p->a, p->attach, TE_READ, p->am, limited, 100));
    EXPECT_ERROR(refused, fake_transfer(p->a, p->attach, TE_WRITE, p->am, limited, 100));
    EXPECT_ERROR(TE_ERR_STALE,
                 fake_transfer(p->a, p->attach, TE_READ, p->am, limited + 2 * PIECE, 100));
    EXPECT_ERROR(0, fake_transfer(p->a, p->attach, TE_WRITE, p->am, limited + 2 * PIECE, 100));
    pair_copy(with, &first, limited, 1);
    assert_int_equal(first, 0);
    refused_to_others(p, with);
    fake_region_del(&p->hb, p->b, read_only);
    fake_region_del(&p->hb, p->b, write_only);
    pair_unmap(with, TARGET, outside, PAIR_BYTES);
    pair_unmap(with, TARGET, limited, 4 * PIECE);
    pair_close(p);
}
