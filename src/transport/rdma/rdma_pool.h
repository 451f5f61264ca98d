/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_pool.h - which endpoint makes room for another when a NIC can have no more queue pairs.
 *
 * SIEVE, as told by Y. Zhang, J. Yang, Y. Yue, Y. Vigfusson and K. V. Rashmi, "SIEVE is Simpler
 * than LRU", NSDI 2024: a queue in order of arrival, and a hand that walks from the oldest towards
 * the newest, takes the first that was not used since the hand last passed, and stays there. What
 * is used is not moved, so a use costs one store and no lock. It differs from the paper in one
 * point: what arrives counts as used, because an endpoint is made for a transfer that waits for it.
 *
 * FIFO instead takes the oldest.
 *
 * insert and remove take O(1), victim O(n), and O(1) per insertion over time as long as nothing is
 * refused: each step of the hand but the last clears a mark that a use or an insertion has set.
 *
 * Nodes live inside the endpoints (tei_container_of leads back); nothing here allocates or locks.
 * All calls need the caller's lock but tei_sieve_hit().
 */
#ifndef TEI_RDMA_POOL_H
#define TEI_RDMA_POOL_H

#include "base/queue.h"

/* Zeroed memory is a node that is in no pool. */
struct tei_sieve_node {
    struct tei_link link;
    _Atomic bool visited;
};

struct tei_sieve {
    struct tei_list list;  /* newest first */
    struct tei_link *hand; /* next to be looked at; NULL: the oldest */
    size_t n;
    bool fifo;
};

void tei_sieve_init(struct tei_sieve *s, bool fifo);

static inline bool tei_sieve_is_in(const struct tei_sieve_node *n)
{
    return tei_link_is_in(&n->link);
}

/* Adds a node that is in no pool, as the newest and just used. */
void tei_sieve_insert(struct tei_sieve *s, struct tei_sieve_node *n);

/* Takes out a node that is in this pool. */
void tei_sieve_remove(struct tei_sieve *s, struct tei_sieve_node *n);

/*
 * The node was used. From any thread without the lock, also while another one takes it out; only
 * its memory must stay.
 */
static inline void tei_sieve_hit(struct tei_sieve_node *n)
{
    /* Relaxed: a mark and no message; one that is seen too late costs at most a worse choice. */
    atomic_store_explicit(&n->visited, true, memory_order_relaxed);
}

/*
 * The node that must go, taken out of the pool; NULL if the pool is empty or `may` refuses them
 * all. `may` (NULL: all may go) is asked before a node is taken, at most twice for each, and must
 * not change the pool. Takes two rounds at most, however many hits come meanwhile.
 */
struct tei_sieve_node *tei_sieve_victim(struct tei_sieve *s,
                                        bool (*may)(const struct tei_sieve_node *n, void *arg),
                                        void *arg);

#endif
