/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=120 */
/*
 * te_wait() moves short requests in its own thread. Whatever happens meanwhile (cancel, deadline,
 * a frozen or killed target, other waiters, other styles of waiting) must get through to it.
 */
#include "child_engine.h"
#include "pair.h"
#include "patience.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <dirent.h>
#include <cmocka.h>

#define BYTES ((size_t)1 << 20)
#define HOT   200 /* round trips after which a lane is left to its driver */

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ------------------------------------------------------------------------- a target to be frozen */

struct target {
    struct child_engine c;
    te_engine *e;
    unsigned char *local;
    te_segment seg;
};

static void target_open(struct target *t)
{
    te_options o;

    child_start(&t->c, BYTES, TE_REMOTE_RW);
    loopback_options(&o);
    assert_int_equal(te_option_set(&o, "TE_HOST_PATH", "0"), 0);
    /* What ends has not waited for it. */
    assert_int_equal(te_option_set(&o, "TE_TRANSFER_TIMEOUT_MS", "86400000"), 0);
    assert_int_equal(te_option_set(&o, "MC_TCP_STATUS_TIMEOUT_SEC", "86400"), 0);
    assert_int_equal(te_engine_create(&o, &t->e), 0);
    te_options_fini(&o);
    t->local = map_pages(BYTES);
    assert_int_equal(te_register(t->e, t->local, BYTES, "*", TE_LOCAL_ONLY), 0);
    assert_int_equal(te_open(t->e, t->c.name, &t->seg), 0);
    for (int i = 0; i < HOT; i++)
        assert_int_equal(transfer(t->e, TE_READ, t->local, t->seg, t->c.mem, 4096).state,
                         TE_COMPLETED);
}

static void target_close(struct target *t)
{
    te_engine_destroy(t->e);
    munmap(t->local, BYTES);
    child_stop(&t->c);
}

static te_batch submit(te_engine *e, int opcode, void *local, te_segment seg, const void *remote,
                       size_t n, int64_t deadline_ms)
{
    te_submit_opts opts = {.size = sizeof(opts), .deadline_ms = deadline_ms};
    te_request r = {.opcode = opcode,
                    .source = local,
                    .target = seg,
                    .target_offset = (uintptr_t)remote,
                    .length = n};
    te_batch b;

    assert_int_equal(te_batch_alloc(e, 4, &b), 0);
    assert_int_equal(te_submit(e, b, &r, 1, &opts), 0);
    return b;
}

static int state_of(te_engine *e, te_batch b)
{
    struct te_status st;

    assert_int_equal(te_batch_status(e, b, &st), 0);
    return st.state;
}

struct waiter {
    te_engine *e;
    te_batch b;
    pthread_t thread;
    int rc;
};

static void *wait_for_ever(void *arg)
{
    struct waiter *w = arg;

    w->rc = te_wait(w->e, w->b, -1);
    return NULL;
}

static void waiter_start(struct waiter *w, te_engine *e, te_batch b)
{
    *w = (struct waiter){.e = e, .b = b};
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_ever, w), 0);
    usleep(50000);
}

static void waiter_end(struct waiter *w)
{
    pthread_join(w->thread, NULL);
    assert_int_equal(w->rc, 0);
}

/* ------------------------------------------------------------------------------- what goes wrong */

static void cancel_reaches_a_driver(void **state)
{
    struct target t;
    struct waiter w, second;
    te_batch b;

    (void)state;
    target_open(&t);
    child_freeze(&t.c);
    b = submit(t.e, TE_READ, t.local, t.seg, t.c.mem, 4096, 0);
    waiter_start(&w, t.e, b);
    waiter_start(&second, t.e, b);
    assert_int_equal(te_batch_free(t.e, b), TE_ERR_BUSY);
    assert_int_equal(te_transport_uninstall(t.e, "tcp"), TE_ERR_BUSY);
    assert_int_equal(te_cancel(t.e, b), 0);
    waiter_end(&w);
    waiter_end(&second);
    assert_int_equal(state_of(t.e, b), TE_CANCELED);
    assert_int_equal(te_batch_free(t.e, b), 0);
    target_close(&t);
}

static void deadline_passes_while_driven(void **state)
{
    struct target t;
    struct waiter w;
    int64_t start;
    te_batch b;

    (void)state;
    target_open(&t);
    child_freeze(&t.c);
    start = now_ms();
    b = submit(t.e, TE_WRITE, t.local, t.seg, t.c.mem, 100, 300);
    waiter_start(&w, t.e, b);
    waiter_end(&w);
    assert_true(now_ms() - start >= 299);
    assert_int_equal(state_of(t.e, b), TE_TIMEOUT);
    assert_int_equal(te_batch_free(t.e, b), 0);
    target_close(&t);
}

/* A wait that ends in vain leaves the request to the transport, or to the next wait. */
static void waits_in_vain(void **state)
{
    struct target t;
    struct waiter w;
    int64_t start;
    te_batch b;

    (void)state;
    target_open(&t);
    fill(t.c.mem, 5000, 42);
    child_freeze(&t.c);
    b = submit(t.e, TE_READ, t.local + 3, t.seg, t.c.mem, 5000, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(te_wait(t.e, b, 0), TE_ERR_TIMEOUT);
    start = now_ms();
    for (int i = 0; i < 20; i++)
        assert_int_equal(te_wait(t.e, b, 1), TE_ERR_TIMEOUT);
    assert_true(now_ms() - start >= 20);
    waiter_start(&w, t.e, b);
    kill(t.c.pid, SIGCONT);
    waiter_end(&w);
    assert_int_equal(state_of(t.e, b), TE_COMPLETED);
    assert_int_equal(first_difference(t.local + 3, 5000, 42), 5000);
    assert_int_equal(te_batch_free(t.e, b), 0);
    target_close(&t);
}

static void target_dies_while_driven(void **state)
{
    for (int round = 0; round < 2; round++) {
        struct target t;
        struct waiter w;
        te_batch b;

        (void)state;
        target_open(&t);
        child_freeze(&t.c);
        b = submit(t.e, round ? TE_WRITE : TE_READ, t.local, t.seg, t.c.mem, 4096, 0);
        waiter_start(&w, t.e, b);
        kill(t.c.pid, SIGKILL);
        waiter_end(&w);
        assert_int_equal(state_of(t.e, b), TE_FAILED);
        assert_int_equal(te_batch_free(t.e, b), 0);
        target_close(&t);
    }
}

/* Requests that join the batch while it is driven are waited for too. */
static void submit_into_a_driven_batch(void **state)
{
    struct target t;
    struct waiter w;
    te_request more;
    te_batch b;

    (void)state;
    target_open(&t);
    fill(t.c.mem, 70000, 43);
    child_freeze(&t.c);
    b = submit(t.e, TE_READ, t.local, t.seg, t.c.mem, 4096, 0);
    waiter_start(&w, t.e, b);
    more = (te_request){.opcode = TE_READ,
                        .source = t.local + 4096,
                        .target = t.seg,
                        .target_offset = (uintptr_t)t.c.mem + 4096,
                        .length = 70000 - 4096};
    assert_int_equal(te_submit(t.e, b, &more, 1, NULL), 0);
    kill(t.c.pid, SIGCONT);
    waiter_end(&w);
    assert_int_equal(state_of(t.e, b), TE_COMPLETED);
    assert_int_equal(first_difference(t.local, 70000, 43), 70000);
    assert_int_equal(te_batch_free(t.e, b), 0);
    target_close(&t);
}

/* -------------------------------------------------------------------------- other ways of waiting */

static void expect_end(te_engine *e, te_batch b, bool by_wait)
{
    WAIT_FOR(by_wait ? te_wait(e, b, 0) == 0 : state_of(e, b) != TE_WAITING);
    assert_int_equal(state_of(e, b), TE_COMPLETED);
}

/* A thread that has driven lanes for long submits and then does something else. */
static void a_driver_that_stays_away(void **state)
{
    struct pair *p = *state;

    for (int round = 0; round < 12; round++) {
        te_batch b;

        for (int i = 0; i < HOT; i++)
            assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 64).state, TE_COMPLETED);
        fill(p->bm, 4096, (uint64_t)round);
        b = submit(p->a, TE_READ, p->am, p->seg, p->bm, 4096, 0);
        /* Asking for the state moves nothing: the transport does, unasked. */
        expect_end(p->a, b, round % 2 == 1);
        assert_int_equal(te_wait(p->a, b, -1), 0);
        assert_int_equal(first_difference(p->am, 4096, (uint64_t)round), 4096);
        assert_int_equal(te_batch_free(p->a, b), 0);
    }
}

/* One thread submits, another waits. */
struct relay {
    struct pair *p;
    te_batch batches[64];
    _Atomic size_t posted;
};

static void *wait_in_turn(void *arg)
{
    struct relay *r = arg;

    for (size_t i = 0; i < 64; i++) {
        while (atomic_load(&r->posted) <= i)
            sched_yield();
        assert_int_equal(te_wait(r->p->a, r->batches[i], -1), 0);
        assert_int_equal(state_of(r->p->a, r->batches[i]), TE_COMPLETED);
        assert_int_equal(te_batch_free(r->p->a, r->batches[i]), 0);
    }
    return NULL;
}

static void one_submits_another_waits(void **state)
{
    struct relay r = {.p = *state};
    pthread_t t;

    for (int i = 0; i < HOT; i++)
        assert_int_equal(transfer(r.p->a, TE_READ, r.p->am, r.p->seg, r.p->bm, 64).state,
                         TE_COMPLETED);
    fill(r.p->bm, 64 * 4096, 9);
    assert_int_equal(pthread_create(&t, NULL, wait_in_turn, &r), 0);
    for (size_t i = 0; i < 64; i++) {
        r.batches[i] =
            submit(r.p->a, TE_READ, r.p->am + i * 4096, r.p->seg, r.p->bm + i * 4096, 4096, 0);
        atomic_store(&r.posted, i + 1);
    }
    pthread_join(t, NULL);
    assert_int_equal(first_difference(r.p->am, 64 * 4096, 9), 64 * 4096);
}

struct patient {
    te_engine *e;
    te_batch batch;
    atomic_bool stop;
    int bad;
};

static void *wait_again_and_again(void *arg)
{
    struct patient *w = arg;

    while (!atomic_load(&w->stop))
        w->bad += te_wait(w->e, w->batch, -1) != 0;
    return NULL;
}

/* A wait without a limit ends when nothing is left for once, and never says that its time has passed. */
static void waits_while_another_submits(void **state)
{
    enum { ROUNDS = 4000 };
    struct pair *p = *state;
    struct patient w = {.e = p->a};
    te_request r = {TE_READ, p->am, p->seg, (uintptr_t)p->bm, 64};
    pthread_t t;

    assert_int_equal(te_batch_alloc(p->a, ROUNDS, &w.batch), 0);
    assert_int_equal(pthread_create(&t, NULL, wait_again_and_again, &w), 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct te_status st = {.state = TE_WAITING};

        assert_int_equal(te_submit(p->a, w.batch, &r, 1, NULL), 0);
        while (st.state == TE_WAITING)
            assert_int_equal(te_status(p->a, w.batch, (size_t)i, &st), 0);
        assert_int_equal(st.state, TE_COMPLETED);
    }
    atomic_store(&w.stop, true);
    pthread_join(t, NULL);
    assert_int_equal(w.bad, 0);
    assert_int_equal(te_batch_free(p->a, w.batch), 0);
}

struct hammer {
    struct pair *p;
    size_t lane;
    int bad;
};

/* Reads and writes of all sizes, waited for in all ways. */
static void *hammer(void *arg)
{
    static const size_t sizes[] = {1, 64, 4096, 65536, 65537, 200000};
    struct hammer *h = arg;
    unsigned char *local = h->p->am + h->lane * 262144, *remote = h->p->bm + h->lane * 262144;

    for (uint64_t i = 0; i < 300; i++) {
        size_t n = sizes[i % (i % 4 ? 3 : 6)];
        te_batch b;

        fill(local, n, i + h->lane);
        h->bad += transfer(h->p->a, TE_WRITE, local, h->p->seg, remote, n).state != TE_COMPLETED;
        memset(local, 0, n);
        b = submit(h->p->a, TE_READ, local, h->p->seg, remote, n, 0);
        while (te_wait(h->p->a, b, i % 5 == 0 ? 0 : i % 5 == 1 ? 1 : -1) != 0)
            continue;
        h->bad += state_of(h->p->a, b) != TE_COMPLETED;
        h->bad += te_batch_free(h->p->a, b) != 0;
        h->bad += first_difference(local, n, i + h->lane) != n;
    }
    return NULL;
}

static void many_drivers(void **state)
{
    struct hammer h[12];
    pthread_t t[12];

    for (size_t i = 0; i < 12; i++) {
        h[i] = (struct hammer){.p = *state, .lane = i};
        assert_int_equal(pthread_create(&t[i], NULL, hammer, &h[i]), 0);
    }
    for (size_t i = 0; i < 12; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(h[i].bad, 0);
    }
}

/* ----------------------------------------------------------------------------- what is left behind */

static void *drive_once(void *arg)
{
    struct pair *p = arg;

    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 64).state, TE_COMPLETED);
    return NULL;
}

/* What a driver is woken by; a lane may be opened at any time, so sockets are not counted. */
static size_t count_eventfds(void)
{
    size_t n = 0;

    for (int fd = 0; fd < 1024; fd++) {
        char path[32], what[64];
        ssize_t len;

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        len = readlink(path, what, sizeof what - 1);
        what[len > 0 ? len : 0] = '\0';
        n += strstr(what, "eventfd") != NULL;
    }
    return n;
}

static void threads_leave_nothing(void **state)
{
    struct pair *p = *state;
    size_t before = 0;

    for (int i = 0; i < 40; i++) {
        pthread_t t;

        assert_int_equal(pthread_create(&t, NULL, drive_once, p), 0);
        pthread_join(t, NULL);
        if (i == 10)
            before = count_eventfds();
    }
    /* One for all of them, if none was made before: they drive one after the other, or not at all
       where the worker is faster. */
    assert_true(before > 0);
    assert_in_range(count_eventfds(), before, before + 1);
}

/* Times that a thread of the library's has slept; 0 for any other. */
static unsigned long sleeps_of(const char *task)
{
    char path[300], line[128];
    unsigned long n = 0;
    bool ours = false;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
    f = task[0] == '.' ? NULL : fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        ours = ours || strncmp(line, "Name:\tte/", 9) == 0;
        if (sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1)
            break;
    }
    if (f)
        fclose(f);
    return ours ? n : 0;
}

static unsigned long sleeps(void)
{
    DIR *d = opendir("/proc/self/task");
    struct dirent *entry;
    unsigned long sum = 0;

    assert_non_null(d);
    while ((entry = readdir(d)))
        sum += sleeps_of(entry->d_name);
    closedir(d);
    return sum;
}

static void idle_after_driving(void **state)
{
    struct pair *p = *state;
    bool idle = false;

    for (int i = 0; i < HOT; i++)
        drive_once(p);
    for (int i = 0; i < 20 && !idle; i++) { /* what was begun may take a while to be over */
        unsigned long before = sleeps();
        int64_t start = now_ms();

        assert_true(before > 0);
        usleep(1000000);
        idle = sleeps() - before <= 5 * (unsigned long)(now_ms() - start) / 1000;
    }
    assert_true(idle);
}

#define PAIR_TEST(f) cmocka_unit_test_setup_teardown(f, pair_setup_tcp, pair_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancel_reaches_a_driver),
        cmocka_unit_test(deadline_passes_while_driven),
        cmocka_unit_test(waits_in_vain),
        cmocka_unit_test(target_dies_while_driven),
        cmocka_unit_test(submit_into_a_driven_batch),
        PAIR_TEST(a_driver_that_stays_away),
        PAIR_TEST(one_submits_another_waits),
        PAIR_TEST(waits_while_another_submits),
        PAIR_TEST(many_drivers),
        PAIR_TEST(threads_leave_nothing),
        PAIR_TEST(idle_after_driving),
    };

    return cmocka_run_group_tests_name("drive", tests, NULL, NULL);
}
