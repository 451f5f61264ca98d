/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"
#include "te.h"
#include "test.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

TEST(objects_are_apart_and_aligned)
{
    static const size_t sizes[] = {0, 1, 8, 63, 64, 65, 1000, 300000};
    void *o[200];

    for (size_t k = 0; k < TEI_ARRAY_LEN(sizes); k++) {
        struct tei_pool p;

        tei_pool_init(&p, sizes[k]);
        for (size_t i = 0; i < TEI_ARRAY_LEN(o); i++) {
            o[i] = tei_pool_get(&p);
            assert_non_null(o[i]);
            assert_int_equal((uintptr_t)o[i] % 64, 0);
            memset(o[i], (int)i, sizes[k]);
        }
        for (size_t i = 0; i < TEI_ARRAY_LEN(o); i++) {
            for (size_t b = 0; b < sizes[k]; b += 61)
                assert_int_equal(((unsigned char *)o[i])[b], i);
            tei_pool_put(&p, o[i]);
        }
        assert_int_equal(p.in_use, 0);
        tei_pool_fini(&p);
    }
}

TEST(objects_come_back)
{
    struct tei_pool p;
    void *a, *b;

    tei_pool_init(&p, 100);
    a = tei_pool_get(&p);
    assert_int_equal(p.in_use, 1);
    tei_pool_put(&p, a);
    tei_pool_put(&p, NULL);
    b = tei_pool_get(&p);
    assert_ptr_equal(a, b);
    tei_pool_put(&p, b);
    tei_pool_fini(&p);
    tei_pool_fini(&p); /* zeroed by the first */
}

TEST(many_come_as_a_chain)
{
    struct tei_pool p;
    struct tei_pool_free *chain, *f;
    size_t n = 0;

    tei_pool_init(&p, 64);
    assert_null(tei_pool_get_many(&p, 0));
    chain = tei_pool_get_many(&p, 1000);
    for (f = chain; f; f = f->next)
        n++;
    assert_int_equal(n, 1000);
    assert_int_equal(p.in_use, 1000);
    tei_pool_put_many(&p, chain, 1000);
    tei_pool_put_many(&p, NULL, 0);
    assert_int_equal(p.in_use, 0);
    tei_pool_fini(&p);
}

TEST(none_are_taken_when_memory_is_out)
{
    struct tei_pool p;
    struct tei_pool_free *one;

    tei_pool_init(&p, SIZE_MAX - 100);
    assert_null(tei_pool_get(&p));
    assert_int_equal(p.in_use, 0);
    tei_pool_fini(&p);

    /* One chunk is there; the next can never be. */
    tei_pool_init(&p, 64);
    one = tei_pool_get_many(&p, 1);
    p.next_chunk = SIZE_MAX / 32;
    assert_null(tei_pool_get_many(&p, 100));
    assert_int_equal(p.in_use, 1);
    for (int i = 1; i < 32; i++)
        assert_non_null(tei_pool_get(&p));
    assert_null(tei_pool_get(&p));
    p.in_use = 1;
    tei_pool_put_many(&p, one, 1);
    tei_pool_fini(&p);
}

static void *churn(void *arg)
{
    struct tei_pool *p = arg;

    for (int i = 0; i < 3000; i++) {
        struct tei_pool_free *chain = tei_pool_get_many(p, 7);
        uint64_t *o = tei_pool_get(p);

        assert(chain && o);
        o[3] = (uint64_t)(uintptr_t)o;
        tei_pool_put_many(p, chain, 7);
        assert(o[3] == (uint64_t)(uintptr_t)o);
        tei_pool_put(p, o);
    }
    return NULL;
}

TEST(threads_share_a_pool)
{
    struct tei_pool p;
    pthread_t t[4];

    tei_pool_init(&p, 128);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, churn, &p), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(p.in_use, 0);
    tei_pool_fini(&p);
}

/* The id of the object, which must be had. */
static uint64_t add(struct tei_handles *h, void *object)
{
    uint64_t id = 0;

    assert_int_equal(tei_handles_add(h, object, &id), 0);
    return id;
}

TEST(ids_lead_back_while_live)
{
    static struct tei_handles h;
    int a, b;
    uint64_t ia, ib;

    tei_handles_init(&h);
    ia = add(&h, &a);
    ib = add(&h, &b);
    assert_true(ia != 0 && ib != 0 && ia != ib && ia < 1ull << 63);
    assert_ptr_equal(tei_handles_pin(&h, ia), &a);
    assert_ptr_equal(tei_handles_pin(&h, ib), &b);
    tei_handles_unpin(&h, ia);
    assert_true(tei_handles_del(&h, ia, 0));
    assert_null(tei_handles_pin(&h, ia));
    assert_false(tei_handles_del(&h, ia, 0));
    tei_handles_unpin(&h, ib);
    assert_int_equal(h.live, 1);
    tei_handles_fini(&h);
    tei_handles_fini(&h); /* zeroed by the first */
}

TEST(a_reused_slot_has_another_id)
{
    static struct tei_handles h;
    uint64_t old = 0, id;
    int a;

    tei_handles_init(&h);
    for (int i = 0; i < 1000; i++) {
        id = add(&h, &a);
        assert_true(id != old);
        assert_null(tei_handles_pin(&h, old));
        assert_true(tei_handles_del(&h, id, 0));
        old = id;
    }
    assert_int_equal(h.used, 1);
    tei_handles_fini(&h);
}

TEST(made_up_ids_are_refused)
{
    static struct tei_handles h, other;
    uint64_t id;
    int a;

    tei_handles_init(&h);
    tei_handles_init(&other);
    id = add(&h, &a);
    for (int bit = 0; bit < 64; bit++)
        assert_null(tei_handles_pin(&h, id ^ 1ull << bit));
    assert_null(tei_handles_pin(&h, 0));
    assert_null(tei_handles_pin(&h, UINT64_MAX));
    assert_false(tei_handles_del(&h, UINT64_MAX, 1));
    assert_null(tei_handles_pin(&other, id));
    assert_false(tei_handles_del(&other, id, 0));
    assert_ptr_equal(tei_handles_pin(&h, id), &a);
    tei_handles_fini(&h);
    tei_handles_fini(&other);
}

TEST(pins_of_others_hold_an_id)
{
    static struct tei_handles h;
    uint64_t id;
    int a;

    tei_handles_init(&h);
    id = add(&h, &a);
    assert_non_null(tei_handles_pin(&h, id));
    assert_non_null(tei_handles_pin(&h, id));
    assert_false(tei_handles_del(&h, id, 0));
    assert_false(tei_handles_del(&h, id, 1));
    assert_non_null(tei_handles_pin(&h, id)); /* a del that failed left it live */
    tei_handles_unpin(&h, id);
    tei_handles_unpin(&h, id);
    assert_true(tei_handles_del(&h, id, 1));
    assert_null(tei_handles_pin(&h, id));
    tei_handles_fini(&h);
}

TEST(the_table_ends_where_it_says)
{
    const uint32_t slots = (uint32_t)TEI_HANDLE_CHUNKS << TEI_HANDLE_CHUNK_BITS;
    static struct tei_handles h;
    uint64_t last = 0;
    int a;

    tei_handles_init(&h);
    for (uint32_t i = 0; i < slots; i++) {
        last = add(&h, &a);
        if (!last)
            fail();
    }
    assert_int_equal(tei_handles_add(&h, &a, &last), TE_ERR_TOO_MANY);
    assert_true(tei_handles_del(&h, last, 0));
    assert_true(add(&h, &a) != 0);
    tei_handles_fini(&h);
}

static void count(void *object, void *arg)
{
    (void)object;
    ++*(int *)arg;
}

TEST(each_sees_the_live)
{
    static struct tei_handles h;
    uint64_t id[3000];
    int a, n = 0;

    tei_handles_init(&h);
    for (int i = 0; i < 3000; i++)
        id[i] = add(&h, &a);
    for (int i = 0; i < 3000; i += 3)
        assert_true(tei_handles_del(&h, id[i], 0));
    tei_handles_each(&h, count, &n);
    assert_int_equal(n, 2000);
    tei_handles_fini(&h);
}

#define SHARED 8

struct object {
    _Atomic bool
        alive; /* atomic only so that a wrong table shows as a failed check and not as a crash */
    uint64_t plain; /* touched while pinned: the sanitizer sees a missing order */
};

static struct tei_handles shared;
static _Atomic uint64_t published[SHARED]; /* relaxed: the table alone orders the objects */
static _Atomic bool finish;
static _Atomic int pins_got;

/* Makes objects, publishes their ids, and frees each as soon as nobody holds it. */
static void *make_and_free(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20000 || atomic_load_explicit(&pins_got, memory_order_relaxed) < 1000;
         i++) {
        struct object *o = malloc(sizeof *o);
        uint64_t id, old;

        assert(o);
        atomic_store_explicit(&o->alive, true, memory_order_relaxed);
        o->plain = 1;
        id = add(&shared, o);
        old = atomic_exchange_explicit(&published[i % SHARED], id, memory_order_relaxed);
        if (old) {
            struct object *gone = tei_handles_pin(&shared, old);

            assert(gone);
            while (!tei_handles_del(&shared, old, 1))
                sched_yield();
            gone->plain = 0;
            atomic_store_explicit(&gone->alive, false, memory_order_relaxed);
            free(gone);
        }
    }
    atomic_store_explicit(&finish, true, memory_order_relaxed);
    return NULL;
}

static void *pin_at_random(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;

    while (!atomic_load_explicit(&finish, memory_order_relaxed)) {
        uint64_t id = atomic_load_explicit(&published[(unsigned)rand_r(&seed) % SHARED],
                                           memory_order_relaxed);
        struct object *o = tei_handles_pin(&shared, id);

        if (o) {
            assert(atomic_load_explicit(&o->alive, memory_order_relaxed));
            assert(o->plain == 1);
            atomic_fetch_add_explicit(&pins_got, 1, memory_order_relaxed);
            tei_handles_unpin(&shared, id);
        }
    }
    return NULL;
}

TEST(no_pin_ever_meets_a_freed_object)
{
    pthread_t maker, t[3];

    tei_handles_init(&shared);
    for (uintptr_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&t[i], NULL, pin_at_random, (void *)i), 0);
    assert_int_equal(pthread_create(&maker, NULL, make_and_free, NULL), 0);
    pthread_join(maker, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < SHARED; i++)
        free(tei_handles_pin(&shared, published[i]));
    tei_handles_fini(&shared);
}

static uint64_t contested;
static _Atomic int winners;

static void *try_del(void *arg)
{
    (void)arg;
    if (tei_handles_del(&shared, contested, 0))
        winners++;
    return NULL;
}

TEST(one_del_wins)
{
    pthread_t t[4];

    tei_handles_init(&shared);
    for (int round = 0; round < 100; round++) {
        winners = 0;
        contested = add(&shared, &winners);
        for (int i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&t[i], NULL, try_del, NULL), 0);
        for (int i = 0; i < 4; i++)
            pthread_join(t[i], NULL);
        assert_int_equal(winners, 1);
    }
    assert_int_equal(shared.live, 0);
    tei_handles_fini(&shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_are_apart_and_aligned),
        cmocka_unit_test(objects_come_back),
        cmocka_unit_test(many_come_as_a_chain),
        cmocka_unit_test(none_are_taken_when_memory_is_out),
        cmocka_unit_test(threads_share_a_pool),
        cmocka_unit_test(ids_lead_back_while_live),
        cmocka_unit_test(a_reused_slot_has_another_id),
        cmocka_unit_test(made_up_ids_are_refused),
        cmocka_unit_test(pins_of_others_hold_an_id),
        cmocka_unit_test(the_table_ends_where_it_says),
        cmocka_unit_test(each_sees_the_live),
        cmocka_unit_test(no_pin_ever_meets_a_freed_object),
        cmocka_unit_test(one_del_wins),
    };

    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
