/* SPDX-License-Identifier: Apache-2.0 */
/* view.h - one descriptor of a peer with the transports' attachments to it. */
#ifndef TEI_VIEW_H
#define TEI_VIEW_H

#include "base/sock.h"
#include "model/model.h"
#include "transport/transport.h"

#include <stdatomic.h>

struct peer;

struct via {
    struct tei_transport *transport;
    struct tei_attach *attach; /* NULL in the view of this engine itself */
};

/*
 * Immutable, and counted. Tasks hold the view they were routed by, so a refresh just swaps the peer's
 * pointer.
 */
struct view {
    _Atomic size_t refs;
    te_engine *engine;
    struct peer *peer;
    struct tei_segment *seg; /* NULL: this engine, whose region map is asked instead */
    unsigned generation;     /* transports.generation when it was made */
    uint64_t serial;         /* no two views of an engine have the same */
    bool
        over; /* the one life that the peer is of: nothing is carried any more, there are no vias */
    uint64_t instead; /* over: whose the name is now; 0: it tells no number */
    size_t n_via;
    struct via via[TEI_TRANSPORTS_MAX];
    char *why_not[TEI_TRANSPORTS_MAX]; /* by transport index: why attach() refused, else NULL */
};

/* The peer's view, referenced; NULL before the first one and after the last. */
struct view *tei_view_current(struct peer *p);
void tei_view_put(struct view *v, size_t n);
static inline void tei_view_hold(struct view *v, size_t n)
{
    atomic_fetch_add_explicit(&v->refs, n, memory_order_relaxed);
}
/*
 * Brings the peer a view of `seg` (NULL: this engine itself), unless what it has is newer; borrows
 * `seg`.
 */
int tei_view_install(struct peer *p, struct tei_segment *seg, const struct tei_hostport *where);
/* Of a peer of one life: that is over. What it has is replaced for good by a view that carries nothing. */
int tei_view_end_life(struct peer *p, uint64_t instead);
/*
 * Makes one of the same descriptor with the transports there are now; and puts it in place, or drops it,
 * which needs no memory. If another descriptor was fetched meanwhile, that one's view stays: it is of
 * these transports, too. The caller keeps the peer in the table, or has it alone.
 */
int tei_view_prepare(struct peer *p);
void tei_view_take(struct peer *p, bool use);
/* Whether the transports have changed since it was made. */
bool tei_view_is_outdated(const struct view *v);
/* Whether the peer has a view of another incarnation by now. */
bool tei_view_is_replaced(const struct view *v);
/* Takes the view away, for good. */
void tei_view_close(struct peer *p);

#endif
