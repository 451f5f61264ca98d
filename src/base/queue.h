/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.h - intrusive containers. The link lives inside the object (tei_container_of leads back),
 * so handing an object over needs no memory and cannot fail. Two kinds:
 *
 *   tei_list   circular doubly-linked list; the owner's lock protects it.
 *   tei_mpsc   push from many threads, take everything in push order by one; lock-free.
 */
#ifndef TEI_QUEUE_H
#define TEI_QUEUE_H

#include "base/base.h"

#include <assert.h>
#include <stdatomic.h>

struct tei_link {
    struct tei_link *next, *prev;
};

struct tei_list {
    struct tei_link head;
};

static inline void tei_list_init(struct tei_list *l)
{
    l->head.next = l->head.prev = &l->head;
}

static inline bool tei_list_empty(const struct tei_list *l)
{
    return l->head.next == &l->head;
}

/* A link outside every list has next == NULL. */
static inline bool tei_link_is_in(const struct tei_link *n)
{
    return n->next != NULL;
}

static inline void tei_link_insert(struct tei_link *after, struct tei_link *n)
{
    assert(n->next == NULL);
    n->prev = after;
    n->next = after->next;
    after->next->prev = n;
    after->next = n;
}

static inline void tei_list_push_back(struct tei_list *l, struct tei_link *n)
{
    tei_link_insert(l->head.prev, n);
}

static inline void tei_list_push_front(struct tei_list *l, struct tei_link *n)
{
    tei_link_insert(&l->head, n);
}

static inline void tei_list_del(struct tei_link *n)
{
    assert(n->next != NULL);
    n->prev->next = n->next;
    n->next->prev = n->prev;
    n->next = n->prev = NULL;
}

/* Takes it out of the list that it is in, to the end of `to`. */
static inline void tei_list_move_back(struct tei_list *to, struct tei_link *n)
{
    assert(n->next != NULL);
    n->prev->next = n->next;
    n->next->prev = n->prev;
    n->prev = to->head.prev;
    n->next = &to->head;
    to->head.prev->next = n;
    to->head.prev = n;
}

/* NULL when empty. */
static inline struct tei_link *tei_list_first(const struct tei_list *l)
{
    return tei_list_empty(l) ? NULL : l->head.next;
}

/* The one after `n`, NULL at the end. */
static inline struct tei_link *tei_list_next(const struct tei_list *l, const struct tei_link *n)
{
    return n->next == &l->head ? NULL : n->next;
}

/* Takes the first one out; NULL when empty. */
static inline struct tei_link *tei_list_pop(struct tei_list *l)
{
    struct tei_link *n = tei_list_first(l);

    if (n)
        tei_list_del(n);
    return n;
}

/* Moves those before `end`, which is in `from` (NULL: all), behind what is in `to`. */
static inline void tei_list_splice_until(struct tei_list *to, struct tei_list *from,
                                         struct tei_link *end)
{
    struct tei_link *first = from->head.next, *last = (end ? end : &from->head)->prev;

    if (first == end || tei_list_empty(from))
        return;
    from->head.next = last->next;
    last->next->prev = &from->head;
    first->prev = to->head.prev;
    to->head.prev->next = first;
    last->next = &to->head;
    to->head.prev = last;
}

/* Moves all of `from` behind what is in `to`. */
static inline void tei_list_splice(struct tei_list *to, struct tei_list *from)
{
    tei_list_splice_until(to, from, NULL);
}

/* Walks a list whose current element may be removed. `n` and `tmp` are struct tei_link pointers. */
#define TEI_LIST_EACH(l, n, tmp) \
    for (n = (l)->head.next; (tmp) = (n)->next, (n) != &(l)->head; (n) = (tmp))

struct tei_mpsc_link {
    struct tei_mpsc_link *next;
};

struct tei_mpsc {
    _Atomic(struct tei_mpsc_link *) top;
};

/* True if it was empty before: then the taker must be woken. */
static inline bool tei_mpsc_push(struct tei_mpsc *q, struct tei_mpsc_link *n)
{
    struct tei_mpsc_link *top = atomic_load_explicit(&q->top, memory_order_relaxed);

    do {
        n->next = top;
        /*
         * Release: pairs with the acquire exchange in tei_mpsc_take, which must see the object
         * behind the link.
         */
    } while (!atomic_compare_exchange_weak_explicit(&q->top, &top, n, memory_order_release,
                                                    memory_order_relaxed));
    return top == NULL;
}

/* All that was pushed, oldest first, as a chain by `next`; NULL when empty. */
static inline struct tei_mpsc_link *tei_mpsc_take(struct tei_mpsc *q)
{
    struct tei_mpsc_link *n = atomic_exchange_explicit(&q->top, NULL, memory_order_acquire),
                         *out = NULL;

    while (n) {
        struct tei_mpsc_link *next = n->next;

        n->next = out;
        out = n;
        n = next;
    }
    return out;
}

#endif
