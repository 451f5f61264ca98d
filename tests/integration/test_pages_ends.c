/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=180 */
/* Requests of pages that end before their time: cancelled, late, or with their engine. */
#include "child_engine.h"
#include "pages_rig.h"
#include "pair.h"
#include "patience.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <cmocka.h>

/* An engine whose peer, in another process, is reached by TCP and is stopped. */
static te_engine *before_a_frozen_peer(struct child_engine *child, struct pages_world *w)
{
    te_options o;

    child_start(child, AREA, TE_REMOTE_RW);
    loopback_options(&o);
    assert_int_equal(te_option_set(&o, "TE_HOST_PATH", "0"), 0);
    assert_int_equal(te_engine_create(&o, &w->e), 0);
    te_options_fini(&o);
    w->local = map_pages(AREA);
    assert_int_equal(te_register(w->e, w->local, AREA, "*", TE_LOCAL_ONLY), 0);
    assert_int_equal(te_open(w->e, child->name, &w->seg), 0);
    w->remote = child->mem;
    w->remote_base = (uintptr_t)child->mem;
    child_freeze(child);
    return w->e;
}

static void after_a_frozen_peer(struct child_engine *child, const struct pages_world *w)
{
    te_engine_destroy(w->e);
    kill(child->pid, SIGCONT);
    child_stop(child);
    munmap(w->local, AREA);
}

static void canceled(void **unused)
{
    struct pages_drawn *d = calloc(1, sizeof(*d));
    struct child_engine child;
    struct pages_world w;
    char msg[256];
    te_batch b;

    (void)unused;
    assert_non_null(d);
    before_a_frozen_peer(&child, &w);
    pages_draw_many(&w, d, TE_READ);
    b = pages_submit(w.e, &d->pages);
    assert_int_equal(te_cancel(w.e, b), 0);
    assert_int_equal(pages_end(w.e, b, msg, sizeof(msg)).state, TE_CANCELED);
    assert_int_equal(te_unregister(w.e, w.local), 0);
    assert_int_equal(te_register(w.e, w.local, AREA, "*", TE_LOCAL_ONLY), 0);
    after_a_frozen_peer(&child, &w);
    free(d);
}

static void past_its_deadline(void **unused)
{
    struct pages_drawn *d = calloc(1, sizeof(*d));
    te_submit_opts o = {.size = sizeof(o), .deadline_ms = 50};
    struct child_engine child;
    struct pages_world w;
    char msg[256];
    te_batch b;

    (void)unused;
    assert_non_null(d);
    before_a_frozen_peer(&child, &w);
    pages_draw_many(&w, d, TE_READ);
    assert_int_equal(te_batch_alloc(w.e, 1, &b), 0);
    assert_int_equal(te_submit_pages(w.e, b, &d->pages, &o), 0);
    assert_int_equal(pages_end(w.e, b, msg, sizeof(msg)).state, TE_TIMEOUT);
    after_a_frozen_peer(&child, &w);
    free(d);
}

/* A part of both memories, which no other request touches. */
static struct pages_world part_of(const struct pair *p, size_t k)
{
    return (struct pages_world){.e = p->a,
                                .seg = p->seg,
                                .local = p->am + k * AREA,
                                .remote = p->bm + k * AREA,
                                .remote_base = (uintptr_t)p->bm + k * AREA};
}

/* The engine ends while they are under way; nothing is left, which the sanitizers look at. */
static void destroyed_under_way(void **arg)
{
    struct pair *p = *arg;
    struct pages_drawn *d = calloc(1, sizeof(*d));

    assert_non_null(d);
    for (size_t k = 0; k < 4; k++) {
        struct pages_world w = part_of(p, k);

        pages_draw_many(&w, d, k % 2 ? TE_READ : TE_WRITE);
        pages_submit(p->a, &d->pages);
    }
    te_engine_destroy(p->a);
    p->a = NULL;
    free(d);
}

struct comer {
    const struct pair *p;
    struct pages_drawn *d;
    pthread_t thread;
    int i;             /* its round */
    int rc;            /* of the last call */
    const char *where; /* what failed; NULL: nothing */
};

/* One request, which ends on its own or is cancelled; what failed, or NULL. Assertions are for the main thread. */
static const char *come_once(struct comer *c)
{
    te_engine *e = c->p->a;
    struct te_status st;
    te_batch b;

    if ((c->rc = te_batch_alloc(e, 1, &b)))
        return "te_batch_alloc";
    if ((c->rc = te_submit_pages(e, b, &c->d->pages, NULL)))
        return "te_submit_pages";
    if (c->i % 3)
        te_wait(e, b, c->i % 5);
    if (c->i % 2 && (c->rc = te_cancel(e, b)))
        return "te_cancel";
    if ((c->rc = te_wait(e, b, PATIENCE_MS)))
        return "te_wait";
    if ((c->rc = te_status(e, b, 0, &st)))
        return "te_status";
    c->rc = st.error;
    if (st.state != TE_COMPLETED && !(c->i % 2 && st.state == TE_CANCELED))
        return "the request";
    c->rc = te_batch_free(e, b);
    return c->rc ? "te_batch_free" : NULL;
}

/* Many at once, cancelled at any moment: each ends, and none is heard of again. */
static void *come_and_go(void *arg)
{
    struct comer *c = arg;

    for (int i = 0; !c->where && i < 30; i++) {
        c->i = i;
        c->where = come_once(c);
    }
    return NULL;
}

static void canceled_at_any_moment(void **arg)
{
    struct pair *p = *arg;
    struct comer comers[3];

    for (size_t i = 0; i < 3; i++) {
        struct pages_world w = part_of(p, i);

        comers[i] = (struct comer){.p = p, .d = calloc(1, sizeof(*comers[i].d))};
        assert_non_null(comers[i].d);
        pages_draw_many(&w, comers[i].d, TE_READ);
        assert_int_equal(pthread_create(&comers[i].thread, NULL, come_and_go, &comers[i]), 0);
    }
    for (size_t i = 0; i < 3; i++)
        pthread_join(comers[i].thread, NULL);
    for (size_t i = 0; i < 3; i++) {
        if (comers[i].where)
            fail_msg("round %d: %s: %s", comers[i].i, comers[i].where, te_strerror(comers[i].rc));
        free(comers[i].d);
    }
    assert_int_equal(te_unregister(p->a, p->am), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(canceled),
        cmocka_unit_test(past_its_deadline),
        cmocka_unit_test_setup_teardown(destroyed_under_way, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(destroyed_under_way, pair_setup_tcp, pair_teardown),
        cmocka_unit_test_setup_teardown(canceled_at_any_moment, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(canceled_at_any_moment, pair_setup_tcp, pair_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
