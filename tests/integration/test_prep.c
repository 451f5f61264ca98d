/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prepared lists: the same bytes as plain requests move, whatever has changed since they were made.
 */
#include "child_engine.h"
#include "draw.h"
#include "pair.h"
#include "patience.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#define ITEMS 300
#define SLOT  8192
#define AREA  ((size_t)ITEMS * SLOT)

/* --------------------------------------------------------------------------------------- helpers */

struct list {
    void *local[ITEMS];
    uint64_t remote[ITEMS];
    size_t length[ITEMS];
    size_t n;
};

static void shuffle(uint32_t *order, size_t n)
{
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    for (size_t i = n; i > 1; i--) {
        size_t j = draw(i);
        uint32_t t = order[i - 1];

        order[i - 1] = order[j];
        order[j] = t;
    }
}

/* Item i lies in local slot i and in some other remote slot, at odd places of both. */
static void draw_list(struct list *l, unsigned char *local, const unsigned char *remote)
{
    uint32_t slots[ITEMS];

    shuffle(slots, ITEMS);
    l->n = ITEMS;
    for (size_t i = 0; i < ITEMS; i++) {
        l->length[i] = i % 50 == 7 ? 0 : 1 + draw(i % 3 ? 200 : SLOT - 128);
        l->local[i] = local + i * SLOT + draw(64);
        l->remote[i] = (uintptr_t)remote + slots[i] * SLOT + draw(64);
    }
}

/* `n` pieces of `length` at the same place of both. */
static void plain_list(struct list *l, unsigned char *local, const unsigned char *remote, size_t n,
                       size_t length)
{
    l->n = n;
    for (size_t i = 0; i < n; i++) {
        l->length[i] = length;
        l->local[i] = local + i * SLOT;
        l->remote[i] = (uintptr_t)remote + i * SLOT;
    }
}

static te_prep make(te_engine *e, te_segment seg, const struct list *l)
{
    te_prep p = TE_INVALID_PREP;

    assert_int_equal(te_prep_create(e, seg, l->local, l->remote, l->length, l->n, &p), 0);
    assert_true(p != 0 && p >> 63 == 0);
    return p;
}

static _Thread_local char said[1024]; /* of the last submit that failed */

/* Submits and waits; the state of the batch, or the error of the submit. */
static int run(te_engine *e, te_prep p, int opcode, const uint32_t *index, size_t n)
{
    struct te_status st;
    te_batch b;
    int rc;

    assert_int_equal(te_batch_alloc(e, n + 1, &b), 0);
    rc = te_prep_submit(e, b, p, opcode, index, n, NULL);
    if (rc)
        snprintf(said, sizeof(said), "%s", te_errmsg());
    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_status(e, b, &st), 0);
    if (rc)
        assert_int_equal(te_status(e, b, 0, &st), TE_ERR_INVALID); /* nothing was submitted */
    assert_int_equal(te_batch_free(e, b), 0);
    return rc ? rc : st.state;
}

static int all(te_engine *e, te_prep p, int opcode, const struct list *l)
{
    return run(e, p, opcode, NULL, l->n);
}

/* What the items named do to copies of both memories. */
static void model(const struct list *l, int opcode, const uint32_t *index, size_t n,
                  unsigned char *local, unsigned char *remote, uintptr_t local_at,
                  uintptr_t remote_at)
{
    for (size_t i = 0; i < n; i++) {
        size_t k = index ? index[i] : i;
        unsigned char *a = local + ((uintptr_t)l->local[k] - local_at);
        unsigned char *b = remote + (l->remote[k] - remote_at);

        if (opcode == TE_READ)
            memcpy(a, b, l->length[k]);
        else
            memcpy(b, a, l->length[k]);
    }
}

/* ----------------------------------------------------------------------------- bytes, as drawn */

static void move_some(te_engine *e, te_prep p, const struct list *l, unsigned char *local,
                      unsigned char *remote, int round)
{
    unsigned char *a = map_pages(AREA), *b = map_pages(AREA);
    int opcode = round % 2 ? TE_WRITE : TE_READ;
    bool whole = round % 5 == 0;
    uint32_t order[ITEMS];
    size_t n = whole ? ITEMS : 1 + draw(ITEMS);

    shuffle(order, ITEMS);
    fill(local, AREA, 2 * (uint64_t)round);
    fill(remote, AREA, 2 * (uint64_t)round + 1);
    memcpy(a, local, AREA);
    memcpy(b, remote, AREA);
    model(l, opcode, whole ? NULL : order, n, a, b, (uintptr_t)local, (uintptr_t)remote);
    assert_int_equal(run(e, p, opcode, whole ? NULL : order, n), TE_COMPLETED);
    assert_memory_equal(local, a, AREA);
    assert_memory_equal(remote, b, AREA);
    munmap(a, AREA);
    munmap(b, AREA);
}

static void random_lists(void **unused)
{
    struct child_engine child;
    te_engine *e = NULL;
    unsigned char *local = map_pages(AREA);
    te_segment seg;
    te_options o;

    (void)unused;
    child_start(&child, AREA, TE_REMOTE_RW);
    loopback_options(&o);
    assert_int_equal(te_engine_create(&o, &e), 0);
    /* Two regions, so that neighbours are of the same one or are not. */
    assert_int_equal(te_register(e, local, AREA / 2, "*", TE_LOCAL_ONLY), 0);
    assert_int_equal(te_register(e, local + AREA / 2, AREA / 2, "*", TE_LOCAL_ONLY), 0);
    assert_int_equal(te_open(e, child.name, &seg), 0);
    for (int k = 0; k < 3; k++) {
        struct list l;
        te_prep p;

        draw_list(&l, local, child.mem);
        p = make(e, seg, &l);
        for (int round = 0; round < 10; round++)
            move_some(e, p, &l, local, child.mem, round);
        assert_int_equal(te_prep_destroy(e, p), 0);
    }
    te_engine_destroy(e);
    child_stop(&child);
    munmap(local, AREA);
}

/* Items that lie in two of the target's buffers, and in this engine itself. */
static void pieces(void **arg)
{
    struct pair *p = *arg;
    struct list l;
    te_prep prep, own;

    assert_int_equal(te_unregister(p->b, p->bm), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(te_register(p->b, p->bm + i * 50001, 50001, "cpu:0", TE_REMOTE_RW), 0);
    plain_list(&l, p->am, p->bm, 24, SLOT - 3);
    prep = make(p->a, p->seg, &l);
    for (uint64_t round = 0; round < 3; round++) {
        fill(p->am, PAIR_SIZE, round);
        assert_int_equal(all(p->a, prep, TE_WRITE, &l), TE_COMPLETED);
        for (size_t i = 0; i < l.n; i++)
            assert_memory_equal(p->am + i * SLOT, p->bm + i * SLOT, SLOT - 3);
    }
    plain_list(&l, p->am, p->am + PAIR_SIZE / 2, 24, 4001);
    own = make(p->a, TE_LOCAL_SEGMENT, &l);
    assert_int_equal(all(p->a, own, TE_READ, &l), TE_COMPLETED);
    for (size_t i = 0; i < l.n; i++)
        assert_memory_equal(p->am + i * SLOT, p->am + PAIR_SIZE / 2 + i * SLOT, 4001);
}

/* ----------------------------------------------------------------------------- a changing world */

static bool same(const struct list *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (memcmp(l->local[i], (void *)(uintptr_t)l->remote[i], l->length[i]) != 0)
            return false;
    return true;
}

static void own_memory_changes(void **arg)
{
    struct pair *p = *arg;
    const uint32_t low[] = {0, 3, 1}, both[] = {0, 3, 1, 99};
    struct list l;
    te_prep prep;

    assert_int_equal(te_unregister(p->a, p->am), 0);
    assert_int_equal(te_register(p->a, p->am, 50 * SLOT, "*", TE_LOCAL_ONLY), 0);
    assert_int_equal(te_register(p->a, p->am + 50 * SLOT, 50 * SLOT, "*", TE_LOCAL_ONLY), 0);
    plain_list(&l, p->am, p->bm, 100, 777);
    prep = make(p->a, p->seg, &l);
    fill(p->am, PAIR_SIZE, 1);
    assert_int_equal(all(p->a, prep, TE_WRITE, &l), TE_COMPLETED);
    assert_true(same(&l));
    /* An idle list keeps nothing from being unregistered. */
    assert_int_equal(te_unregister(p->a, p->am + 50 * SLOT), 0);
    assert_int_equal(all(p->a, prep, TE_WRITE, &l), TE_ERR_NOT_REGISTERED);
    assert_non_null(strstr(said, "item 50, "));
    assert_int_equal(run(p->a, prep, TE_WRITE, both, 4), TE_ERR_NOT_REGISTERED);
    assert_non_null(strstr(said, "request 3: item 99, "));
    assert_int_equal(run(p->a, prep, TE_WRITE, low, 3), TE_COMPLETED);
    /* As one region now, and so in another place of the map. */
    assert_int_equal(te_unregister(p->a, p->am), 0);
    assert_int_equal(run(p->a, prep, TE_WRITE, low, 3), TE_ERR_NOT_REGISTERED);
    assert_int_equal(te_register(p->a, p->am, PAIR_SIZE, "*", TE_LOCAL_ONLY), 0);
    fill(p->am, PAIR_SIZE, 2);
    assert_int_equal(all(p->a, prep, TE_WRITE, &l), TE_COMPLETED);
    assert_true(same(&l));
    /* Nothing that went wrong has left a hold behind. */
    assert_int_equal(te_unregister(p->a, p->am), 0);
    assert_int_equal(te_close(p->a, p->seg), 0);
    assert_int_equal(run(p->a, prep, TE_WRITE, low, 3), TE_ERR_NOT_FOUND);
    assert_int_equal(te_prep_destroy(p->a, prep), 0);
}

static void peers_memory_changes(void **arg)
{
    struct pair *p = *arg;
    struct list l;
    te_prep prep;

    plain_list(&l, p->am, p->bm, 100, 777);
    prep = make(p->a, p->seg, &l);
    assert_int_equal(te_unregister(p->b, p->bm), 0);
    assert_int_equal(all(p->a, prep, TE_WRITE, &l), TE_INVALID);
    assert_int_equal(te_register(p->b, p->bm, PAIR_SIZE, "*", TE_REMOTE_READ), 0);
    fill(p->bm, PAIR_SIZE, 5);
    assert_int_equal(all(p->a, prep, TE_READ, &l), TE_COMPLETED);
    assert_true(same(&l));
    assert_int_equal(all(p->a, prep, TE_WRITE, &l), TE_INVALID);
    assert_int_equal(te_unregister(p->b, p->bm), 0);
    /* Made while the peer has none of it: refused at the submit, and only as long as that lasts. */
    assert_int_equal(te_refresh(p->a, p->bname), 0);
    assert_int_equal(te_prep_destroy(p->a, prep), 0);
    prep = make(p->a, p->seg, &l);
    assert_int_equal(all(p->a, prep, TE_READ, &l), TE_INVALID);
    assert_int_equal(te_register(p->b, p->bm, PAIR_SIZE, "*", TE_REMOTE_RW), 0);
    fill(p->am, PAIR_SIZE, 6);
    assert_int_equal(all(p->a, prep, TE_WRITE, &l), TE_COMPLETED);
    assert_true(same(&l));
}

static void peer_comes_again(void **arg)
{
    struct pair *p = *arg;
    te_options o;
    struct list l;
    te_prep prep;

    plain_list(&l, p->am, p->bm, 100, 777);
    prep = make(p->a, p->seg, &l);
    fill(p->am, PAIR_SIZE, 1);
    assert_int_equal(all(p->a, prep, TE_WRITE, &l), TE_COMPLETED);
    te_engine_destroy(p->b);
    loopback_options(&o);
    o.local_server_name = p->bname;
    assert_int_equal(te_engine_create(&o, &p->b), 0);
    assert_int_equal(te_register(p->b, p->bm, PAIR_SIZE, "*", TE_REMOTE_RW), 0);
    assert_int_equal(te_refresh(p->a, p->bname), 0);
    fill(p->am, PAIR_SIZE, 2);
    assert_int_equal(all(p->a, prep, TE_WRITE, &l), TE_COMPLETED);
    assert_true(same(&l));
    fill(p->bm, PAIR_SIZE, 3);
    assert_int_equal(all(p->a, prep, TE_READ, &l), TE_COMPLETED);
    assert_true(same(&l));
}

static void transports_change(void **arg)
{
    struct pair *p = *arg;
    struct list l;
    te_prep prep;

    plain_list(&l, p->am, p->bm, 100, 777);
    prep = make(p->a, p->seg, &l);
    assert_int_equal(all(p->a, prep, TE_WRITE, &l), TE_COMPLETED);
    assert_int_equal(te_transport_uninstall(p->a, "tcp"), 0);
    assert_int_equal(all(p->a, prep, TE_WRITE, &l), TE_ERR_UNSUPPORTED);
    assert_int_equal(te_transport_install(p->a, "tcp", NULL), 0);
    fill(p->am, PAIR_SIZE, 9);
    assert_int_equal(all(p->a, prep, TE_WRITE, &l), TE_COMPLETED);
    assert_true(same(&l));
}

/* --------------------------------------------------------------------------------- what is wrong */

static void wrong_lists(void **arg)
{
    struct pair *p = *arg;
    void *local[] = {p->am, p->am + 100, p->am + 200};
    uint64_t remote[] = {(uintptr_t)p->bm, (uintptr_t)p->bm, UINT64_MAX - 5};
    size_t length[] = {10, 10, 10};
    te_prep prep = 77;

    assert_int_equal(te_prep_create(p->a, p->seg, local, remote, length, 3, &prep), TE_ERR_INVALID);
    length[2] = 5;
    local[1] = p->bm;
    assert_int_equal(te_prep_create(p->a, p->seg, local, remote, length, 3, &prep),
                     TE_ERR_NOT_REGISTERED);
    assert_non_null(strstr(te_errmsg(), "item 1: "));
    local[1] = p->am + PAIR_SIZE - 9;
    assert_int_equal(te_prep_create(p->a, p->seg, local, remote, length, 3, &prep),
                     TE_ERR_NOT_REGISTERED);
    local[1] = p->am;
    assert_int_equal(te_prep_create(p->a, 5, local, remote, length, 3, &prep), TE_ERR_NOT_FOUND);
    assert_int_equal(te_prep_create(NULL, p->seg, local, remote, length, 3, &prep), TE_ERR_INVALID);
    assert_int_equal(te_prep_create(p->a, p->seg, NULL, remote, length, 3, &prep), TE_ERR_INVALID);
    assert_int_equal(te_prep_create(p->a, p->seg, local, NULL, length, 3, &prep), TE_ERR_INVALID);
    assert_int_equal(te_prep_create(p->a, p->seg, local, remote, NULL, 3, &prep), TE_ERR_INVALID);
    assert_int_equal(te_prep_create(p->a, p->seg, local, remote, length, 3, NULL), TE_ERR_INVALID);
    assert_int_equal(te_prep_create(p->a, p->seg, local, remote, length, SIZE_MAX, &prep),
                     TE_ERR_INVALID);
    assert_int_equal(prep, 77);
    assert_int_equal(te_unregister(p->a, p->am), 0);
}

static void wrong_submits(void **arg)
{
    struct pair *p = *arg;
    const uint32_t outside[] = {0, 1, 10}, inside[] = {9, 9, 9};
    te_submit_opts bad = {.size = sizeof(bad), .deadline_ms = -1};
    struct list l;
    te_prep prep, none;
    te_batch b;

    plain_list(&l, p->am, p->bm, 10, 100);
    prep = make(p->a, p->seg, &l);
    assert_int_equal(run(p->a, prep, TE_READ, outside, 3), TE_ERR_INVALID);
    assert_non_null(strstr(said, "no item 10"));
    assert_int_equal(run(p->a, prep, TE_READ, NULL, 11), TE_ERR_INVALID);
    assert_int_equal(run(p->a, prep, 2, NULL, 3), TE_ERR_INVALID);
    assert_int_equal(run(p->a, prep, -1, NULL, 3), TE_ERR_INVALID);
    assert_int_equal(run(p->a, prep, TE_READ, NULL, 0), TE_COMPLETED);
    assert_int_equal(run(p->a, prep, TE_WRITE, inside, 3), TE_COMPLETED);
    assert_int_equal(te_batch_alloc(p->a, 2, &b), 0);
    assert_int_equal(te_prep_submit(p->a, b, prep, TE_READ, NULL, 3, NULL), TE_ERR_TOO_MANY);
    assert_int_equal(te_prep_submit(p->a, b, prep, TE_READ, NULL, 2, &bad), TE_ERR_INVALID);
    assert_int_equal(te_prep_submit(p->a, b + 1, prep, TE_READ, NULL, 2, NULL), TE_ERR_NOT_FOUND);
    assert_int_equal(te_prep_submit(p->a, b, b, TE_READ, NULL, 2, NULL), TE_ERR_NOT_FOUND);
    assert_int_equal(te_prep_submit(p->b, b, prep, TE_READ, NULL, 2, NULL), TE_ERR_NOT_FOUND);
    assert_int_equal(te_prep_submit(NULL, b, prep, TE_READ, NULL, 2, NULL), TE_ERR_INVALID);
    assert_int_equal(te_prep_destroy(p->a, b), TE_ERR_NOT_FOUND);
    assert_int_equal(te_prep_destroy(p->a, TE_INVALID_PREP), TE_ERR_NOT_FOUND);
    assert_int_equal(te_prep_destroy(p->a, 0), TE_ERR_NOT_FOUND);
    assert_int_equal(te_prep_destroy(p->a, prep), 0);
    assert_int_equal(te_prep_destroy(p->a, prep), TE_ERR_NOT_FOUND);
    assert_int_equal(te_prep_submit(p->a, b, prep, TE_READ, NULL, 2, NULL), TE_ERR_NOT_FOUND);
    assert_int_equal(te_prep_create(p->a, p->seg, NULL, NULL, NULL, 0, &none), 0);
    assert_true(none != prep);
    assert_int_equal(run(p->a, none, TE_WRITE, NULL, 0), TE_COMPLETED);
    assert_int_equal(run(p->a, none, TE_WRITE, NULL, 1), TE_ERR_INVALID);
    assert_int_equal(te_unregister(p->a, p->am), 0);
}

static void destroyed_in_flight(void **arg)
{
    struct pair *p = *arg;
    struct list l;

    for (uint64_t round = 0; round < 10; round++) {
        struct te_status st;
        te_prep prep;
        te_batch b;

        plain_list(&l, p->am, p->bm, 200, SLOT);
        fill(p->am, PAIR_SIZE, round);
        prep = make(p->a, p->seg, &l);
        assert_int_equal(te_batch_alloc(p->a, l.n, &b), 0);
        assert_int_equal(te_prep_submit(p->a, b, prep, TE_WRITE, NULL, l.n, NULL), 0);
        assert_int_equal(te_prep_destroy(p->a, prep), 0);
        assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
        assert_int_equal(te_batch_status(p->a, b, &st), 0);
        assert_int_equal(st.state, TE_COMPLETED);
        assert_int_equal(st.bytes, l.n * SLOT);
        assert_true(same(&l));
        assert_int_equal(te_batch_free(p->a, b), 0);
    }
}

/* ---------------------------------------------------------------------------------- many threads */

struct sharer {
    struct pair *p;
    te_prep prep;
    uint32_t first;
    pthread_t thread;
};

enum { SHARERS = 4, SHARE = 60, TURNS = 60 };

static _Atomic bool over;

/* Moves its own share of the items to and fro. */
static void *share(void *arg)
{
    struct sharer *s = arg;
    uint32_t index[SHARE];

    for (uint32_t i = 0; i < SHARE; i++)
        index[i] = s->first + (i * 7) % SHARE;
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        for (uint32_t i = 0; i < SHARE; i++)
            fill(s->p->am + (s->first + i) * SLOT, 1001, turn * 1000 + i);
        assert_int_equal(run(s->p->a, s->prep, TE_WRITE, index, SHARE), TE_COMPLETED);
        for (uint32_t i = 0; i < SHARE; i++)
            fill(s->p->am + (s->first + i) * SLOT, 1001, 1);
        assert_int_equal(run(s->p->a, s->prep, TE_READ, index, SHARE), TE_COMPLETED);
        for (uint32_t i = 0; i < SHARE; i++)
            assert_int_equal(
                first_difference(s->p->am + (s->first + i) * SLOT, 1001, turn * 1000 + i), 1001);
    }
    return NULL;
}

/* Makes what was looked up out of date, again and again. */
static void *disturb(void *arg)
{
    struct pair *p = arg;
    unsigned char *m = map_pages(4096);

    while (!atomic_load(&over)) {
        assert_int_equal(te_register(p->a, m, 4096, "*", TE_LOCAL_ONLY), 0);
        assert_int_equal(te_unregister(p->a, m), 0);
        assert_int_equal(te_refresh(p->a, p->bname), 0);
    }
    munmap(m, 4096);
    return NULL;
}

static void shared(void **arg)
{
    struct pair *p = *arg;
    struct sharer s[SHARERS];
    pthread_t other;
    struct list l;
    te_prep prep;

    plain_list(&l, p->am, p->bm, SHARERS * SHARE, 1001);
    prep = make(p->a, p->seg, &l);
    atomic_store(&over, false);
    assert_int_equal(pthread_create(&other, NULL, disturb, p), 0);
    for (uint32_t i = 0; i < SHARERS; i++) {
        s[i] = (struct sharer){.p = p, .prep = prep, .first = i * SHARE};
        assert_int_equal(pthread_create(&s[i].thread, NULL, share, &s[i]), 0);
    }
    for (size_t i = 0; i < SHARERS; i++)
        pthread_join(s[i].thread, NULL);
    atomic_store(&over, true);
    pthread_join(other, NULL);
    assert_int_equal(te_prep_destroy(p->a, prep), 0);
    assert_int_equal(te_unregister(p->a, p->am), 0);
}

/* ------------------------------------------------------------------------- what goes with a submit */

static void options(void **arg)
{
    struct pair *p = *arg;
    te_submit_opts o = {.size = sizeof(o),
                        .deadline_ms = 60000,
                        .notify_name = "moved",
                        .notify_msg = "all",
                        .notify_target = p->seg};
    te_notification *got = NULL;
    struct list l;
    te_prep prep;
    te_batch b;
    size_t n = 0;

    plain_list(&l, p->am, p->bm, 10, 100);
    prep = make(p->a, p->seg, &l);
    assert_int_equal(te_batch_alloc(p->a, 10, &b), 0);
    assert_int_equal(te_prep_submit(p->a, b, prep, TE_WRITE, NULL, 10, &o), 0);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    WAIT_FOR(te_notify_recv(p->b, &got, &n) || n);
    assert_int_equal(n, 1);
    assert_string_equal(got[0].name, "moved");
    te_notify_free(got, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lists),
        cmocka_unit_test_setup_teardown(pieces, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(own_memory_changes, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(peers_memory_changes, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(peer_comes_again, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(transports_change, pair_setup_tcp, pair_teardown),
        cmocka_unit_test_setup_teardown(wrong_lists, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(wrong_submits, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(destroyed_in_flight, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(shared, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(options, pair_setup, pair_teardown),
    };

    draw_state = 0x9e3779b97f4a7c15u;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
