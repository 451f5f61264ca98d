/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/rdma/rdma_pool.h"

static struct tei_sieve_node *node_of(struct tei_link *l)
{
    return tei_container_of(l, struct tei_sieve_node, link);
}

/* The next newer one; NULL behind the newest. */
static struct tei_link *newer(const struct tei_sieve *s, const struct tei_link *l)
{
    return l->prev == &s->list.head ? NULL : l->prev;
}

/* The oldest one of a pool that is not empty. */
static struct tei_link *oldest(const struct tei_sieve *s)
{
    return s->list.head.prev;
}

void tei_sieve_init(struct tei_sieve *s, bool fifo)
{
    tei_list_init(&s->list);
    s->hand = NULL;
    s->n = 0;
    s->fifo = fifo;
}

void tei_sieve_insert(struct tei_sieve *s, struct tei_sieve_node *n)
{
    atomic_store_explicit(&n->visited, true, memory_order_relaxed);
    tei_list_push_front(&s->list, &n->link);
    s->n++;
}

void tei_sieve_remove(struct tei_sieve *s, struct tei_sieve_node *n)
{
    assert(s->n > 0);
    if (s->hand == &n->link)
        s->hand = newer(s, &n->link);
    tei_list_del(&n->link);
    s->n--;
}

/* Whether the hand passes by; the mark is taken away then. */
static bool is_spared(struct tei_sieve_node *n)
{
    return atomic_load_explicit(&n->visited, memory_order_relaxed) &&
           atomic_exchange_explicit(&n->visited, false, memory_order_relaxed);
}

struct tei_sieve_node *tei_sieve_victim(struct tei_sieve *s,
                                        bool (*may)(const struct tei_sieve_node *n, void *arg),
                                        void *arg)
{
    struct tei_link *l = s->fifo ? NULL : s->hand;

    for (size_t i = 0; i < 2 * s->n; i++) {
        struct tei_sieve_node *n;

        l = l ? l : oldest(s);
        n = node_of(l);
        /*
         * Nothing is spared twice: the second round finds a mark only where a hit came since the
         * first, and going on for it would have no end.
         */
        if (!(i < s->n && !s->fifo && is_spared(n)) && (!may || may(n, arg))) {
            s->hand = l;
            tei_sieve_remove(s, n);
            return n;
        }
        l = newer(s, l);
    }
    return NULL; /* two whole rounds have led the hand back to where it was */
}
