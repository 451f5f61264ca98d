/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance.h"

#include "base/os.h"
#include "transport/tcp/tcp.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct conformance fixture = {.transport = "tcp"};
CONFORMANCE_REMOTE(fixture)

static uint64_t wakeups(struct tei_transport *t)
{
    const struct tcp *tcp = tei_tcp_of(t);
    uint64_t n = 0;

    for (unsigned i = 0; i < tcp->n_workers; i++)
        n += atomic_load(&tcp->workers[i].loop.wakeups);
    return n;
}

static void nothing_to_do_is_no_wake_up(void **state)
{
    struct pair *p = pair_open(&fixture);
    bool slept = false;

    (void)state;
    for (int i = 0; i < 20; i++)
        assert_int_equal(fake_transfer(p->a, p->attach, i % 2, p->am, p->bm, 5 * PIECE), 0);
    for (int i = 0; i < 20 && !slept; i++) { /* what was begun may take a while to be over */
        uint64_t before = wakeups(p->a) + wakeups(p->b);
        int64_t start = tei_now_ns();

        usleep(1000000);
        slept = wakeups(p->a) + wakeups(p->b) - before <=
                (uint64_t)(tei_now_ns() - start) / TEI_NS_PER_S;
    }
    assert_true(slept);
    pair_close(p);
}

static struct te_stats stats_of(struct tei_transport *t)
{
    struct te_stats s = {.size = sizeof s};

    t->ops.stats(t, &s);
    return s;
}

static void counts(void **state)
{
    struct pair *p = pair_open(&fixture);
    struct te_stats s;

    (void)state;
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 1000), 0);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, p->am, p->bm, 10 * PIECE), 0);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm + PAIR_BYTES, 1),
                     TE_ERR_STALE);
    s = stats_of(p->b);
    assert_int_equal(s.served_requests, 11);
    assert_int_equal(s.served_bytes_out, 1000);
    assert_int_equal(s.served_bytes_in, 10 * PIECE);
    assert_int_equal(s.served_rejected, 1);
    assert_true(s.connections >= 1 && s.connections <= 4);
    assert_true(stats_of(p->a).connections <= 4);
    assert_int_equal(stats_of(p->a).retries, 0);
    pair_close(p);
}

/* Idle connections to a peer that has changed are not used again. */
static void peer_gone_drops_connections(void **state)
{
    struct pair *p = pair_open(&fixture);

    (void)state;
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 20 * PIECE), 0);
    assert_true(stats_of(p->a).connections > 0);
    p->a->ops.peer_gone(p->a, p->attach);
    WAIT_FOR(stats_of(p->a).connections == 0);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 20 * PIECE), 0);
    pair_close(p);
}

struct driver {
    struct tei_transport *t;
    struct tei_drive d;
    struct tei_waker waker;
    _Atomic size_t left;
    bool driven;
    pthread_t thread;
};

static void *drive(void *arg)
{
    struct driver *d = arg;

    d->driven = d->t->ops.drive(d->t, &d->d);
    return NULL;
}

static void driver_start(struct driver *d, struct tei_transport *t, const void *owner)
{
    *d = (struct driver){.t = t, .left = 1};
    assert_int_equal(tei_waker_init(&d->waker), 0);
    d->d = (struct tei_drive){
        .owner = owner, .left = &d->left, .until_ns = TEI_NEVER, .waker = &d->waker};
    assert_int_equal(pthread_create(&d->thread, NULL, drive, d), 0);
}

static bool driver_end(struct driver *d)
{
    pthread_join(d->thread, NULL);
    tei_waker_fini(&d->waker);
    return d->driven;
}

static void post_one(struct pair *p, struct fake_task *task, const void *owner, size_t n)
{
    struct tei_list list;

    tei_list_init(&list);
    fake_work(&list, p->a, p->attach, task, TE_READ, p->am, p->bm, n)->owner = owner;
    p->a->ops.post(p->a, &list);
}

/* A thread that sleeps on a frozen peer's connection is out before the transport has stopped. */
static void stop_waits_for_drivers(void **state)
{
    struct pair *p = pair_fork(&fixture);
    struct fake_task task;
    struct driver d, stranger;
    int mine = 0, other = 0; /* owners are addresses */

    (void)state;
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100), 0);
    kill(p->child, SIGSTOP);
    waitpid(p->child, NULL, WUNTRACED);
    post_one(p, &task, &mine, 4096);
    driver_start(&d, p->a, &mine);
    driver_start(&stranger, p->a, &other);
    assert_false(driver_end(&stranger)); /* nothing of this owner is there */
    usleep(50000);
    p->a->ops.close(p->a);
    (p->a->ops.stop)(p->a); /* cmocka 2 has a macro of the name */
    assert_true(driver_end(&d));
    assert_true(task.done);
    assert_int_equal(task.error, TE_ERR_CANCELED);
    pair_close(p);
}

/* A lane that is driven wakes no worker but by the timer that looks whether it still is. */
static void driving_wakes_no_worker(void **state)
{
    struct pair *p = pair_open(&fixture);
    uint64_t before = 0;
    int64_t start = 0;

    (void)state;
    for (int i = 0; i < 600; i++) {
        struct fake_task task;
        struct driver d = {0}; /* its address is the owner already */

        if (i == 100) {
            before = wakeups(p->a);
            start = tei_now_ns();
        }
        post_one(p, &task, &d, 64);
        d = (struct driver){.t = p->a, .left = 1};
        assert_int_equal(tei_waker_init(&d.waker), 0);
        d.d = (struct tei_drive){
            .owner = &d, .left = &d.left, .until_ns = TEI_NEVER, .waker = &d.waker};
        drive(&d);
        assert_true(fake_wait(&p->ha, NULL, &task, 1, PATIENCE_MS));
        assert_int_equal(task.error, 0);
        tei_waker_fini(&d.waker);
    }
    assert_true(wakeups(p->a) - before < 250 + (uint64_t)(tei_now_ns() - start) / TEI_NS_PER_MS);
    pair_close(p);
}

static void without_pool(struct tei_conf *c)
{
    c->tcp_pool = false;
}

static void a_connection_each_without_the_pool(void **state)
{
    static const struct conformance with = {.transport = "tcp", .configure = without_pool};
    struct pair *p = pair_open(&with);

    (void)state;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(fake_transfer(p->a, p->attach, i % 2, p->am, p->bm, 3 * PIECE), 0);
        WAIT_FOR(stats_of(p->a).connections == 0);
    }
    pair_close(p);
}

/* Attachments to the same port share their connections; the last one to go closes them. */
static void attachments_share_connections(void **state)
{
    struct pair *p = pair_open(&fixture);
    struct tei_attach *again = fake_attach(p->a, p->b);

    (void)state;
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100), 0);
    assert_int_equal(fake_transfer(p->a, again, TE_READ, p->am, p->bm, 100), 0);
    assert_int_equal(stats_of(p->b).served_requests, 2);
    assert_int_equal(stats_of(p->b).connections, 1);
    fake_detach(p->a, p->attach);
    assert_int_equal(fake_transfer(p->a, again, TE_READ, p->am, p->bm, 100), 0);
    fake_detach(p->a, again);
    p->attach = NULL;
    WAIT_FOR(stats_of(p->b).connections == 0);
    pair_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFORMANCE_REMOTE_TESTS,
        cmocka_unit_test(nothing_to_do_is_no_wake_up),
        cmocka_unit_test(counts),
        cmocka_unit_test(peer_gone_drops_connections),
        cmocka_unit_test(stop_waits_for_drivers),
        cmocka_unit_test(driving_wakes_no_worker),
        cmocka_unit_test(a_connection_each_without_the_pool),
        cmocka_unit_test(attachments_share_connections),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
