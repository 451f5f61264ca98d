/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool is compared, step by step, with a model that keeps numbers in an array, oldest first,
 * and does what the paper says in the plainest way.
 */
#include "transport/rdma/rdma_pool.h"
#include "test.h"

#include <pthread.h>
#include <string.h>

#define KEYS 256

/* ---- the model */

struct model {
    int key[KEYS]; /* oldest first */
    int n, hand;   /* place of the next to be looked at */
    bool fifo, visited[KEYS];
};

static int place_of(const struct model *m, int key)
{
    int i = 0;

    while (i < m->n && m->key[i] != key)
        i++;
    return i;
}

static void model_remove(struct model *m, int key)
{
    int i = place_of(m, key);

    memmove(&m->key[i], &m->key[i + 1], (size_t)(m->n - i - 1) * sizeof(int));
    m->n--;
    if (i < m->hand)
        m->hand--;
    if (m->hand == m->n)
        m->hand = 0; /* behind the newest, the hand begins again */
}

static void model_insert(struct model *m, int key)
{
    m->key[m->n++] = key;
    m->visited[key] = true;
}

static int model_fifo(struct model *m, const bool *pinned)
{
    for (int i = 0; i < m->n; i++)
        if (!pinned[m->key[i]])
            return m->key[i];
    return -1;
}

/* Ends by itself if anything may go; and if nothing may, the hand comes back with no mark left. */
static int model_sieve(struct model *m, const bool *pinned)
{
    if (model_fifo(m, pinned) < 0) {
        for (int i = 0; i < m->n; i++)
            m->visited[m->key[i]] = false;
        return -1;
    }
    for (;;) {
        int key = m->key[m->hand];

        if (!m->visited[key] && !pinned[key])
            return key;
        m->visited[key] = false;
        m->hand = (m->hand + 1) % m->n;
    }
}

static int model_victim(struct model *m, const bool *pinned)
{
    int key = m->fifo ? model_fifo(m, pinned) : model_sieve(m, pinned);

    if (key >= 0)
        model_remove(m, key);
    return key;
}

/* ---- both */

struct item {
    int key;
    unsigned asked;
    struct tei_sieve_node node;
};

struct both {
    struct tei_sieve pool;
    struct model model;
    struct item item[KEYS];
    bool pinned[KEYS];
    uint64_t random;
};

static uint64_t draw(struct both *b)
{
    b->random ^= b->random << 13;
    b->random ^= b->random >> 7;
    b->random ^= b->random << 17;
    return b->random * 0x2545f4914f6cdd1dULL >> 16;
}

static void both_init(struct both *b, bool fifo, uint64_t seed)
{
    memset(b, 0, sizeof(*b));
    tei_sieve_init(&b->pool, fifo);
    b->model.fifo = fifo;
    b->random = seed * 0x9e3779b97f4a7c15ULL | 1;
    for (int i = 0; i < KEYS; i++)
        b->item[i].key = i;
}

static struct item *item_of(const struct tei_sieve_node *n)
{
    return tei_container_of((struct tei_sieve_node *)n, struct item, node);
}

static bool is_free(const struct tei_sieve_node *n, void *arg)
{
    struct both *b = arg;

    item_of(n)->asked++;
    return !b->pinned[item_of(n)->key];
}

static void check_same(const struct both *b)
{
    const struct tei_link *l = b->pool.list.head.prev;

    assert_int_equal(b->pool.n, b->model.n);
    for (int i = 0; i < b->model.n; i++, l = l->prev) {
        const struct tei_sieve_node *n =
            tei_container_of((struct tei_link *)l, struct tei_sieve_node, link);

        assert_int_equal(item_of(n)->key, b->model.key[i]);
        assert_true(tei_sieve_is_in(n));
        if (!b->pool.fifo)
            assert_int_equal(n->visited, b->model.visited[b->model.key[i]]);
    }
    assert_ptr_equal(l, &b->pool.list.head);
}

static void evict(struct both *b)
{
    int expected = model_victim(&b->model, b->pinned);
    struct tei_sieve_node *n;

    for (int i = 0; i < KEYS; i++)
        b->item[i].asked = 0;
    n = tei_sieve_victim(&b->pool, is_free, b);
    assert_int_equal(n ? item_of(n)->key : -1, expected);
    assert_true(!n || !tei_sieve_is_in(n));
    for (int i = 0; i < KEYS; i++)
        assert_true(b->item[i].asked <= 2);
}

/* As the transport does: what is wanted is used, or made after something else has gone. */
static void want(struct both *b, int key, int capacity)
{
    struct item *i = &b->item[key];

    if (tei_sieve_is_in(&i->node)) {
        tei_sieve_hit(&i->node);
        b->model.visited[key] = true;
        return;
    }
    if (b->model.n >= capacity)
        evict(b);
    if (b->model.n >= capacity)
        return; /* everything is in use */
    tei_sieve_insert(&b->pool, &i->node);
    model_insert(&b->model, key);
}

static void remove_one(struct both *b, int key)
{
    if (!tei_sieve_is_in(&b->item[key].node))
        return;
    tei_sieve_remove(&b->pool, &b->item[key].node);
    model_remove(&b->model, key);
    assert_false(tei_sieve_is_in(&b->item[key].node));
}

/* Small keys far more often than large ones: the chance falls about as 1 / key. */
static int skewed(struct both *b)
{
    uint64_t r = draw(b);
    int bits = (int)(r & 7) + 1;

    return (int)(r >> 8 & ((UINT64_C(1) << bits) - 1));
}

enum trace { EVEN, SKEWED, SCAN, MIXED };

static int next_key(struct both *b, enum trace trace, int step)
{
    switch (trace) {
    case EVEN:
        return (int)(draw(b) % KEYS);
    case SKEWED:
        return skewed(b);
    case SCAN:
        return step % KEYS;
    default:
        return step / 500 % 2 ? step % KEYS : skewed(b);
    }
}

static void run_trace(bool fifo, enum trace trace, uint64_t seed, bool pins, int steps)
{
    static struct both b; /* too large for a stack */
    int capacity;

    both_init(&b, fifo, seed);
    capacity = 1 + (int)(draw(&b) % 64);
    for (int step = 0; step < steps; step++) {
        uint64_t r = draw(&b);

        want(&b, next_key(&b, trace, step), capacity);
        if (r % 16 == 0)
            remove_one(&b, (int)(r >> 8 & (KEYS - 1)));
        if (pins && r % 4 == 1)
            b.pinned[r >> 8 & (KEYS - 1)] = r >> 32 & 1;
        if (r % 1024 == 2)
            evict(&b);
        if (step % 64 == 0)
            check_same(&b);
    }
    while (b.model.n > 0) {
        memset(b.pinned, 0, sizeof(b.pinned));
        evict(&b);
    }
    check_same(&b);
    assert_null(tei_sieve_victim(&b.pool, NULL, NULL));
}

static void run_traces(bool fifo)
{
    for (int trace = EVEN; trace <= MIXED; trace++)
        for (uint64_t seed = 1; seed <= 6; seed++) {
            run_trace(fifo, (enum trace)trace, seed, false, 3000);
            run_trace(fifo, (enum trace)trace, seed + 100, true, 3000);
        }
}

TEST(sieve_does_as_the_model)
{
    run_traces(false);
}

TEST(fifo_does_as_the_model)
{
    run_traces(true);
}

TEST(every_capacity_does_as_the_model)
{
    static struct both b;

    for (int capacity = 1; capacity <= 64; capacity++) {
        both_init(&b, false, (uint64_t)capacity);
        for (int step = 0; step < 1000; step++)
            want(&b, skewed(&b), capacity);
        assert_int_equal(b.pool.n, capacity);
        check_same(&b);
    }
}

/* ---- by hand */

static int victim_of(struct tei_sieve *s)
{
    struct tei_sieve_node *n = tei_sieve_victim(s, NULL, NULL);

    return n ? item_of(n)->key : -1;
}

/* a b c d e, all marked on arrival; the hand clears them all and takes the oldest, then stays. */
TEST(the_hand_stays_where_it_was)
{
    struct item i[6];
    struct tei_sieve s;

    memset(i, 0, sizeof(i));
    tei_sieve_init(&s, false);
    for (int k = 0; k < 5; k++) {
        i[k].key = k;
        tei_sieve_insert(&s, &i[k].node);
    }
    assert_int_equal(victim_of(&s), 0);
    tei_sieve_hit(&i[1].node);
    assert_int_equal(victim_of(&s), 2);
    i[5].key = 5;
    tei_sieve_insert(&s, &i[5].node);
    assert_int_equal(victim_of(&s), 3);
    assert_int_equal(victim_of(&s), 4);
    assert_int_equal(victim_of(&s),
                     1); /* the hand has passed 5, which was marked, and begun again */
    assert_int_equal(victim_of(&s), 5);
    assert_int_equal(victim_of(&s), -1);
    assert_int_equal(s.n, 0);
}

TEST(the_hand_moves_on_when_its_node_is_removed)
{
    struct item i[4];
    struct tei_sieve s;

    memset(i, 0, sizeof(i));
    tei_sieve_init(&s, false);
    for (int k = 0; k < 4; k++) {
        i[k].key = k;
        tei_sieve_insert(&s, &i[k].node);
    }
    assert_int_equal(victim_of(&s), 0);
    assert_ptr_equal(s.hand, &i[1].node.link);
    tei_sieve_remove(&s, &i[1].node);
    assert_ptr_equal(s.hand, &i[2].node.link);
    tei_sieve_remove(&s, &i[3].node);
    tei_sieve_remove(&s, &i[2].node);
    assert_null(s.hand);
    assert_int_equal(s.n, 0);
    tei_sieve_insert(&s, &i[1].node);
    assert_int_equal(victim_of(&s), 1);
}

static bool never(const struct tei_sieve_node *n, void *arg)
{
    (void)n;
    ++*(int *)arg;
    return false;
}

TEST(refusals_end_the_search)
{
    struct item i[8];
    struct tei_sieve s;
    int asked;

    memset(i, 0, sizeof(i));
    for (int fifo = 0; fifo < 2; fifo++) {
        tei_sieve_init(&s, fifo);
        for (int k = 0; k < 8; k++)
            tei_sieve_insert(&s, &i[k].node);
        asked = 0;
        assert_null(tei_sieve_victim(&s, never, &asked));
        assert_in_range(asked, 8, 16);
        assert_int_equal(s.n, 8);
        for (int k = 0; k < 8; k++)
            tei_sieve_remove(&s, &i[k].node);
    }
}

/* ---- hits from other threads */

#define HITTERS 3

struct storm {
    struct tei_sieve pool;
    struct item item[32];
    pthread_barrier_t start;
    _Atomic bool stop;
};

static void *hit_all(void *arg)
{
    struct storm *s = arg;

    pthread_barrier_wait(&s->start);
    while (!atomic_load_explicit(&s->stop, memory_order_relaxed))
        for (size_t i = 0; i < TEI_ARRAY_LEN(s->item); i++)
            tei_sieve_hit(&s->item[i].node);
    return NULL;
}

/* However fast the marks come back, each call finds a victim, and no node comes twice. */
TEST(hits_from_other_threads_stop_no_eviction)
{
    static struct storm s;
    pthread_t threads[HITTERS];

    tei_sieve_init(&s.pool, false);
    for (size_t i = 0; i < TEI_ARRAY_LEN(s.item); i++)
        tei_sieve_insert(&s.pool, &s.item[i].node);
    assert_int_equal(pthread_barrier_init(&s.start, NULL, HITTERS + 1), 0);
    for (int i = 0; i < HITTERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hit_all, &s), 0);
    pthread_barrier_wait(&s.start);
    for (int round = 0; round < 5000; round++) {
        struct tei_sieve_node *n = tei_sieve_victim(&s.pool, NULL, NULL);

        assert_non_null(n);
        assert_false(tei_sieve_is_in(n));
        assert_int_equal(s.pool.n, TEI_ARRAY_LEN(s.item) - 1);
        tei_sieve_insert(&s.pool, n);
    }
    atomic_store(&s.stop, true);
    for (int i = 0; i < HITTERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    pthread_barrier_destroy(&s.start);
    for (size_t i = 0; i < TEI_ARRAY_LEN(s.item); i++)
        assert_true(tei_sieve_is_in(&s.item[i].node));
}

/* ---- what it is for */

/* How many of `steps` requests, mostly for few of the keys, find what they want. */
static int hits_of(bool fifo, int capacity, int steps)
{
    static struct both b;
    int hits = 0;

    both_init(&b, fifo, 42);
    for (int step = 0; step < steps; step++) {
        int key = skewed(&b);

        hits += tei_sieve_is_in(&b.item[key].node);
        want(&b, key, capacity);
    }
    return hits;
}

TEST(sieve_keeps_what_is_used_often)
{
    for (int capacity = 8; capacity <= 64; capacity *= 2) {
        int sieve = hits_of(false, capacity, 20000), fifo = hits_of(true, capacity, 20000);

        if (sieve <= fifo + fifo / 50)
            fail_msg("capacity %d: %d hits with SIEVE, %d with FIFO", capacity, sieve, fifo);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hand_stays_where_it_was),
        cmocka_unit_test(the_hand_moves_on_when_its_node_is_removed),
        cmocka_unit_test(refusals_end_the_search),
        cmocka_unit_test(sieve_does_as_the_model),
        cmocka_unit_test(fifo_does_as_the_model),
        cmocka_unit_test(every_capacity_does_as_the_model),
        cmocka_unit_test(hits_from_other_threads_stop_no_eviction),
        cmocka_unit_test(sieve_keeps_what_is_used_often),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
