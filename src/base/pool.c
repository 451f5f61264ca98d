/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c - fixed-size objects, and checked ids.
 *
 * An id is 63 bits:
 *
 *     62        51 50                            20 19               0
 *    +------------+--------------------------------+------------------+
 *    |    tag     |        generation / 2          |      index       |
 *    +------------+--------------------------------+------------------+
 *
 * The tag is the table's and never 0, so no id is 0. The index names a slot. The slot's generation
 * is even while dead and odd while live and grows with each add and each del, so an id matches only
 * the one life of the slot that it was made for; a slot must be used 2^31 times before an old id
 * fits again.
 *
 * A slot's generation and its number of pins share one 64-bit word, because they must be judged
 * together: a pin counts only if the generation is still the id's, and a del succeeds only if
 * nobody else's pin is there. With two words a del could see no pin and kill the slot between a
 * pin's check and its count. With one, both are a single compare-and-swap:
 *
 *    add     writes the object, then state = (generation + 1, 0 pins)    release
 *    pin     state (g, p) -> (g, p + 1) if g is the id's                 acquire: sees the object
 *    unpin   state (g, p) -> (g, p - 1)                                  release: its uses are over
 *    del     state (g, p) -> (g + 1, 0) if g is the id's and p <= own    acquire and release
 *
 * The object's pointer itself is a plain word: it is written only while the slot is dead and read
 * only while it is pinned. Slots live in chunks that neither move nor go before fini, so a pin
 * never meets freed memory, whatever number it is given.
 */
#include "base/pool.h"

#include "te.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#if TEI_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size)   ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

/* -------------------------------------------------------------------------------------- objects */

#define ALIGN       64u
#define FIRST_CHUNK 32u /* objects */
#define CHUNK_BYTES_MAX \
    (256u << 10) /* a chunk stops growing here; larger objects come one at a time */

struct chunk {
    _Alignas(ALIGN) struct chunk *next;
};

_Static_assert(sizeof(struct chunk) == ALIGN, "objects behind the chunk's head must be aligned");

void tei_pool_init(struct tei_pool *p, size_t object_size)
{
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    p->object_size = (tei_max(object_size, 1) + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    p->next_chunk = tei_max(1, tei_min(FIRST_CHUNK, CHUNK_BYTES_MAX / p->object_size));
}

void tei_pool_fini(struct tei_pool *p)
{
    struct chunk *c = p->chunks;

    assert(p->in_use == 0);
    while (c) {
        struct chunk *next = c->next;

        free(c);
        c = next;
    }
    free(p->free);
    pthread_mutex_destroy(&p->lock);
    memset(p, 0, sizeof *p);
}

/* Makes room in the array of free objects for `n` more. */
static bool grow_free(struct tei_pool *p, size_t n)
{
    struct tei_pool_free **more =
        realloc(p->free, (p->n_free + p->in_use + n) * sizeof(struct tei_pool_free *));

    if (more)
        p->free = more;
    return more != NULL;
}

/* Adds a chunk's objects to the free ones, to be taken from the lowest address up. */
static bool grow(struct tei_pool *p)
{
    size_t n = p->next_chunk, bytes;
    struct chunk *c;

    if (!tei_mul_ok(n, p->object_size, &bytes) || bytes > SIZE_MAX - sizeof *c || !grow_free(p, n))
        return false;
    c = aligned_alloc(ALIGN, sizeof *c + bytes);
    if (!c)
        return false;
    c->next = p->chunks;
    p->chunks = c;
    ASAN_POISON_MEMORY_REGION(c + 1, bytes);
    while (n-- > 0)
        p->free[p->n_free++] =
            (struct tei_pool_free *)(void *)((char *)(c + 1) + n * p->object_size);
    p->next_chunk = tei_max(1, tei_min(p->next_chunk * 2, CHUNK_BYTES_MAX / p->object_size));
    return true;
}

struct tei_pool_free *tei_pool_get_many(struct tei_pool *p, size_t n)
{
    struct tei_pool_free *first = NULL;

    pthread_mutex_lock(&p->lock);
    while (p->n_free < n && grow(p))
        continue;
    if (p->n_free >= n) {
        size_t left = p->n_free -= n;

        for (size_t i = 0; i < n; i++) {
            ASAN_UNPOISON_MEMORY_REGION(p->free[left + i], p->object_size);
            p->free[left + i]->next = first;
            first = p->free[left + i];
        }
        p->in_use += n;
    }
    pthread_mutex_unlock(&p->lock);
    return first;
}

void tei_pool_put_many(struct tei_pool *p, struct tei_pool_free *first, size_t n)
{
    if (n == 0)
        return;
    pthread_mutex_lock(&p->lock);
    assert(p->in_use >= n);
    p->in_use -= n;
    for (; n > 0; n--) {
        struct tei_pool_free *next = first->next;

        ASAN_POISON_MEMORY_REGION(first, p->object_size);
        p->free[p->n_free++] = first;
        first = next;
    }
    pthread_mutex_unlock(&p->lock);
}

void *tei_pool_get(struct tei_pool *p)
{
    return tei_pool_get_many(p, 1);
}

void tei_pool_put(struct tei_pool *p, void *object)
{
    if (object)
        tei_pool_put_many(p, object, 1);
}

/* -------------------------------------------------------------------------------------- handles */

#define INDEX_BITS      20
#define GENERATION_BITS 31
#define TAGS            4095u
#define CHUNK_SLOTS     (1u << TEI_HANDLE_CHUNK_BITS)
#define SLOTS           ((uint32_t)TEI_HANDLE_CHUNKS << TEI_HANDLE_CHUNK_BITS)

_Static_assert(SLOTS == 1u << INDEX_BITS, "an id's index must reach every slot");

static uint64_t make_state(uint32_t generation, uint32_t pins)
{
    return (uint64_t)generation << 32 | pins;
}

static uint32_t generation_of(uint64_t state)
{
    return (uint32_t)(state >> 32);
}

static uint32_t pins_of(uint64_t state)
{
    return (uint32_t)state;
}

static uint64_t make_id(const struct tei_handles *h, uint32_t index, uint32_t generation)
{
    return h->tag << (INDEX_BITS + GENERATION_BITS) | (uint64_t)(generation >> 1) << INDEX_BITS |
           index;
}

/* The generation that a slot has while the id is live. */
static uint32_t live_generation(uint64_t id)
{
    return ((uint32_t)(id >> INDEX_BITS) << 1) | 1;
}

/*
 * The slot of an index, NULL where no chunk is yet. Acquire: pairs with the release in new_slot,
 * which zeroed the chunk.
 */
static struct tei_handle_slot *slot_at(struct tei_handles *h, uint32_t index)
{
    struct tei_handle_slot *chunk =
        atomic_load_explicit(&h->chunks[index >> TEI_HANDLE_CHUNK_BITS], memory_order_acquire);

    return chunk ? &chunk[index & (CHUNK_SLOTS - 1)] : NULL;
}

static struct tei_handle_slot *slot_of(struct tei_handles *h, uint64_t id)
{
    return id >> (INDEX_BITS + GENERATION_BITS) == h->tag ? slot_at(h, (uint32_t)id & (SLOTS - 1))
                                                          : NULL;
}

/*
 * Counting tags up keeps those of a process apart; a random tag would meet its like among a few
 * dozen tables.
 */
void tei_handles_init(struct tei_handles *h)
{
    static _Atomic uint32_t tables;

    memset(h, 0, sizeof *h);
    pthread_mutex_init(&h->lock, NULL);
    h->tag = 1 + atomic_fetch_add_explicit(&tables, 1, memory_order_relaxed) % TAGS;
}

void tei_handles_fini(struct tei_handles *h)
{
    for (size_t i = 0; i < TEI_HANDLE_CHUNKS; i++)
        free(atomic_load_explicit(&h->chunks[i], memory_order_relaxed));
    pthread_mutex_destroy(&h->lock);
    memset(h, 0, sizeof *h);
}

/* Takes a slot that was never used. */
static int new_slot(struct tei_handles *h, uint32_t *index)
{
    uint32_t n = h->used >> TEI_HANDLE_CHUNK_BITS;

    if (h->used == SLOTS)
        return TE_ERR_TOO_MANY;
    if ((h->used & (CHUNK_SLOTS - 1)) == 0 && !slot_at(h, h->used)) {
        struct tei_handle_slot *chunk = calloc(CHUNK_SLOTS, sizeof *chunk);

        if (!chunk)
            return TE_ERR_MEMORY;
        atomic_store_explicit(&h->chunks[n], chunk, memory_order_release);
    }
    *index = h->used++;
    return 0;
}

static int take_slot(struct tei_handles *h, uint32_t *index)
{
    if (h->first_free == 0)
        return new_slot(h, index);
    *index = h->first_free - 1;
    h->first_free = slot_at(h, *index)->next_free;
    return 0;
}

int tei_handles_add(struct tei_handles *h, void *object, uint64_t *id)
{
    uint32_t index, generation;
    int rc;

    pthread_mutex_lock(&h->lock);
    rc = take_slot(h, &index);
    if (!rc) {
        struct tei_handle_slot *s = slot_at(h, index);

        generation = generation_of(atomic_load_explicit(&s->state, memory_order_relaxed)) + 1;
        s->object = object;
        atomic_store_explicit(&s->state, make_state(generation, 0), memory_order_release);
        *id = make_id(h, index, generation);
        h->live++;
    }
    pthread_mutex_unlock(&h->lock);
    return rc;
}

void *tei_handles_pin(struct tei_handles *h, uint64_t id)
{
    struct tei_handle_slot *s = slot_of(h, id);
    uint64_t state;

    if (!s)
        return NULL;
    state = atomic_load_explicit(&s->state, memory_order_acquire);
    do {
        if (generation_of(state) != live_generation(id))
            return NULL;
        assert(pins_of(state) != UINT32_MAX);
    } while (!atomic_compare_exchange_weak_explicit(&s->state, &state, state + 1,
                                                    memory_order_acquire, memory_order_acquire));
    return s->object;
}

void tei_handles_unpin(struct tei_handles *h, uint64_t id)
{
    struct tei_handle_slot *s = slot_of(h, id);
    uint64_t before;

    assert(s);
    before = atomic_fetch_sub_explicit(&s->state, 1, memory_order_release);
    assert(generation_of(before) == live_generation(id) && pins_of(before) > 0);
    (void)before;
}

bool tei_handles_del(struct tei_handles *h, uint64_t id, uint32_t own_pins)
{
    struct tei_handle_slot *s = slot_of(h, id);
    uint64_t state;

    if (!s)
        return false;
    state = atomic_load_explicit(&s->state, memory_order_relaxed);
    do {
        if (generation_of(state) != live_generation(id) || pins_of(state) > own_pins)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&s->state, &state,
                                                    make_state(generation_of(state) + 1, 0),
                                                    memory_order_acq_rel, memory_order_relaxed));
    pthread_mutex_lock(&h->lock);
    s->next_free = h->first_free;
    h->first_free = ((uint32_t)id & (SLOTS - 1)) + 1;
    h->live--;
    pthread_mutex_unlock(&h->lock);
    return true;
}

void tei_handles_each(struct tei_handles *h, void (*fn)(void *object, void *arg), void *arg)
{
    for (uint32_t i = 0; i < h->used; i++) {
        struct tei_handle_slot *s = slot_at(h, i);

        if (generation_of(atomic_load_explicit(&s->state, memory_order_acquire)) & 1)
            fn(s->object, arg);
    }
}
