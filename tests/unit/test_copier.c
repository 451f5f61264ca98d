/* SPDX-License-Identifier: Apache-2.0 */
/* A copier whose copies stand still until the test lets them go on. */
#include "base/err.h"
#include "base/os.h"
#include "fake_host.h"
#include "transport/copier.h"
#include "test.h"

#include <stdlib.h>

#define LENGTH    ((size_t)256 << 10) /* too long for the caller's thread */
#define SOON_MS   50
#define WORKS_MAX 4

struct gate {
    struct tei_transport transport;
    struct tei_copier copier;
    struct fake_host host;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned inside; /* copies that stand still, or have */
    bool open;
    struct fake_task tasks[WORKS_MAX];
    struct tei_attach attached[WORKS_MAX]; /* one each, so that no two are in one run */
};

static void stand_still(struct tei_transport *t, struct tei_copy_run *run)
{
    struct gate *g = tei_container_of(t, struct gate, transport);

    (void)run;
    pthread_mutex_lock(&g->lock);
    g->inside++;
    pthread_cond_broadcast(&g->changed);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static struct gate *gate_make(void)
{
    struct gate *g = calloc(1, sizeof(*g));

    assert_non_null(g);
    fake_host_init(&g->host);
    pthread_mutex_init(&g->lock, NULL);
    tei_cond_init(&g->changed);
    g->transport.host = &g->host.base;
    g->transport.ops.name = "gate";
    g->copier.transport = &g->transport;
    g->copier.run = stand_still;
    g->copier.guests_max = 4;
    tei_copier_init(&g->copier, 0);
    assert_int_equal(tei_copier_start(&g->copier, "te/gate", 1), 0);
    return g;
}

static void gate_post(struct gate *g, size_t i, int64_t deadline_ns)
{
    struct tei_entry *e = calloc(1, sizeof(*e)); /* freed by the host */
    struct tei_work *w;
    struct tei_list list;

    assert_non_null(e);
    w = &e->base;
    w->owner = &g->tasks[i];
    w->task = &g->tasks[i];
    w->transport = &g->transport;
    w->attach = &g->attached[i];
    w->moved = &g->tasks[i].moved;
    w->length = LENGTH;
    w->deadline_ns = deadline_ns;
    tei_list_init(&list);
    tei_list_push_back(&list, &w->link);
    tei_copier_post(&g->copier, &list);
}

static void wait_inside(struct gate *g, unsigned n)
{
    pthread_mutex_lock(&g->lock);
    while (g->inside < n)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void gate_open(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void gate_free(struct gate *g)
{
    tei_copier_stop(&g->copier);
    tei_copier_fini(&g->copier);
    fake_host_fini(&g->host);
    free(g);
}

static bool is_stalled(struct gate *g)
{
    bool yes;

    pthread_mutex_lock(&g->copier.lock);
    yes = g->copier.ledger.n_stalled > 0;
    pthread_mutex_unlock(&g->copier.lock);
    return yes;
}

TEST(no_progress_ends_what_waits_and_what_is_stuck_when_it_returns)
{
    struct gate *g = gate_make();

    gate_post(g, 0, TEI_NEVER);
    wait_inside(g, 1);
    pthread_mutex_lock(&g->copier.lock); /* no sooner: it could end before it is copied */
    g->copier.ledger.patience_ns = SOON_MS * TEI_NS_PER_MS;
    pthread_mutex_unlock(&g->copier.lock);
    gate_post(g, 1, TEI_NEVER); /* the only thread is stuck */
    assert_true(fake_wait(&g->host, NULL, &g->tasks[1], 1, PATIENCE_MS));
    assert_int_equal(g->tasks[1].error, TE_ERR_TIMEOUT);
    WAIT_FOR(is_stalled(g));
    assert_false(fake_wait(&g->host, NULL, &g->tasks[0], 1, 0));
    gate_open(g);
    assert_true(fake_wait(&g->host, NULL, &g->tasks[0], 1, PATIENCE_MS));
    assert_int_equal(g->tasks[0].error, TE_ERR_TIMEOUT);
    assert_string_equal(g->tasks[0].why, "waiting for a part under way");
    gate_free(g);
}

TEST(deadline_and_cancel_end_what_waits_behind_a_stuck_copy)
{
    struct gate *g = gate_make();

    gate_post(g, 0, TEI_NEVER);
    wait_inside(g, 1);
    gate_post(g, 1, tei_now_ns() + SOON_MS * TEI_NS_PER_MS);
    gate_post(g, 2, TEI_NEVER);
    assert_true(fake_wait(&g->host, NULL, &g->tasks[1], 1, PATIENCE_MS));
    assert_int_equal(g->tasks[1].error, TE_ERR_TIMEOUT);
    tei_copier_cancel(&g->copier, &g->tasks[2]);
    assert_true(fake_wait(&g->host, NULL, &g->tasks[2], 1, PATIENCE_MS));
    assert_int_equal(g->tasks[2].error, TE_ERR_CANCELED);
    gate_open(g);
    assert_true(fake_wait(&g->host, NULL, &g->tasks[0], 1, PATIENCE_MS));
    assert_int_equal(g->tasks[0].error, TE_ERR_OK);
    gate_free(g);
}

TEST(a_closed_copier_refuses)
{
    struct gate *g = gate_make();

    tei_copier_close(&g->copier);
    assert_false(tei_copier_enter(&g->copier));
    gate_post(g, 0, TEI_NEVER);
    assert_true(fake_wait(&g->host, NULL, &g->tasks[0], 1, PATIENCE_MS));
    assert_int_equal(g->tasks[0].error, TE_ERR_CANCELED);
    gate_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_progress_ends_what_waits_and_what_is_stuck_when_it_returns),
        cmocka_unit_test(deadline_and_cancel_end_what_waits_behind_a_stuck_copy),
        cmocka_unit_test(a_closed_copier_refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
