/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - memory for objects that come and go on the data path, and checked ids for objects that
 * callers hold.
 *
 *   tei_pool     objects of one size, carved from chunks that stay until fini. get/put cost one
 *                short lock; bulk variants cost one for many. Objects are not zeroed. The free ones
 *                are kept as an array of pointers: a chain through the objects would have to be
 *                walked through memory that the thread which freed them has in its cache. Under the
 *                address sanitizer free ones are poisoned.
 *   tei_handles  id <-> pointer. An id carries index, generation and owner tag, so a stale one, a
 *                made-up one and one of another table are all told from a live one.
 */
#ifndef TEI_POOL_H
#define TEI_POOL_H

#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

struct tei_pool_free {
    struct tei_pool_free *next;
};

struct tei_pool {
    pthread_mutex_t lock;
    size_t object_size;          /* rounded up to 64, objects are aligned to 64 */
    struct tei_pool_free **free; /* free objects; has room for all there are */
    size_t n_free;
    void *chunks;      /* chain of chunks, freed by fini */
    size_t in_use;     /* for tests and leak checks */
    size_t next_chunk; /* objects in the next chunk; doubles up to a bound */
};

void tei_pool_init(struct tei_pool *p, size_t object_size);
/* Frees all chunks; no object may be in use by then. Zeroed memory is accepted. */
void tei_pool_fini(struct tei_pool *p);

/* NULL when memory is out. */
void *tei_pool_get(struct tei_pool *p);
void tei_pool_put(struct tei_pool *p, void *object);

/*
 * Takes `n` objects as a chain through their first word (struct tei_pool_free); NULL, and none
 * taken, when memory is out.
 */
struct tei_pool_free *tei_pool_get_many(struct tei_pool *p, size_t n);
/* Gives back a chain of `n` objects linked the same way. */
void tei_pool_put_many(struct tei_pool *p, struct tei_pool_free *first, size_t n);

/* ---- handles: see pool.c for the layout of an id */

struct tei_handle_slot {
    _Atomic uint64_t state; /* generation << 32 | pins; an odd generation is live */
    void *object;           /* written while dead, read while pinned */
    uint32_t next_free;     /* index + 1, 0 at the end */
};

#define TEI_HANDLE_CHUNK_BITS 10
#define TEI_HANDLE_CHUNKS     1024

struct tei_handles {
    pthread_mutex_t lock; /* add and del only */
    /* tells this table's ids from those of the 4,094 tables made before and after it */
    uint64_t tag;
    _Atomic(struct tei_handle_slot *) chunks[TEI_HANDLE_CHUNKS];
    uint32_t used;       /* slots ever handed out */
    uint32_t first_free; /* index + 1, 0 when none */
    uint32_t live;
};

void tei_handles_init(struct tei_handles *h);
void tei_handles_fini(struct tei_handles *h);

/*
 * Gives `object` an id: never 0, below 2^63. TE_ERR_MEMORY, or TE_ERR_TOO_MANY when slots (2^20) are
 * out; neither sets a text.
 */
int tei_handles_add(struct tei_handles *h, void *object, uint64_t *id);

/*
 * The object of a live id, pinned against tei_handles_del() until tei_handles_unpin(); NULL for any
 * other number: of an id that was deleted all that was done before that is seen then. Lock-free, O(1).
 */
void *tei_handles_pin(struct tei_handles *h, uint64_t id);
void tei_handles_unpin(struct tei_handles *h, uint64_t id);

/*
 * Makes the id dead if at most `own_pins` pins (the caller's) are on it; false if there are more or
 * it is not live. After true no new pin succeeds, and the caller's pins are void.
 */
bool tei_handles_del(struct tei_handles *h, uint64_t id, uint32_t own_pins);

/* Calls fn for each live object; no add or del may run meanwhile. Takes no lock. */
void tei_handles_each(struct tei_handles *h, void (*fn)(void *object, void *arg), void *arg);

#endif
