/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c - one descriptor of a peer with the transports' attachments to it.
 *
 * A view is immutable and counted. Several threads may bring a peer a new one at the same time: a
 * refresh, te_refresh(), a change of the transports. What is put in place is decided under the
 * peer's lock: never an older version of the same engine's descriptor, never one that was made
 * before the transports changed last, and none at all once the peer is closed.
 */
#include "core/view.h"
#include "core/core.h"
#include "core/doubt.h"

#include <stdlib.h>
#include <string.h>

static void free_view(struct view *v)
{
    for (size_t i = 0; i < v->n_via; i++) {
        struct via *via = &v->via[i];

        if (via->attach) {
            via->transport->ops.detach(via->transport, via->attach);
            free(via->attach);
        }
        atomic_fetch_sub_explicit(&v->engine->transports.views[via->transport->index], 1,
                                  memory_order_acq_rel);
    }
    for (size_t i = 0; i < TEI_TRANSPORTS_MAX; i++)
        free(v->why_not[i]);
    tei_segment_put(v->seg);
    free(v);
}

static void end_view(struct view *v, bool loose)
{
    struct peer *p = v->peer;

    free_view(v);
    pthread_mutex_lock(&p->lock);
    p->views--;
    p->loose -= loose;
    pthread_mutex_unlock(&p->lock);
    tei_peer_put(p);
}

void tei_view_put(struct view *v, size_t n)
{
    if (atomic_fetch_sub_explicit(&v->refs, n, memory_order_acq_rel) == n)
        end_view(v, false);
}

/*
 * Ends the reference that has made the view count as loose; the caller holds the peer. In one step with
 * that it counts so no more where others are left: the last of these may end it next.
 */
static void put_loose(struct view *v)
{
    struct peer *p = v->peer;
    bool last;

    pthread_mutex_lock(&p->lock);
    last = atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) == 1;
    p->loose -= !last;
    pthread_mutex_unlock(&p->lock);
    if (last)
        end_view(v, true);
}

struct view *tei_view_current(struct peer *p)
{
    struct view *v;

    pthread_mutex_lock(&p->lock);
    v = p->view;
    if (v)
        tei_view_hold(v, 1);
    pthread_mutex_unlock(&p->lock);
    return v;
}

/* Keeps what attach() has said for te_explain(); without memory for that it says nothing. */
static int note_refusal(struct view *v, const struct tei_transport *t)
{
    v->why_not[t->index] = strdup(te_errmsg());
    return 0;
}

/* Why it may not be attached, whatever the target tells; NULL: it may. */
static const char *why_barred(const struct view *v, const struct tei_transport *t)
{
    if (v->over)
        return "the incarnation that the segment was opened for is over";
    if (v->peer->one_life && !(t->ops.caps & TEI_CAP_LIVES))
        return "cannot tell incarnations of a target apart, and the segment is of one";
    return NULL;
}

static int bar(struct view *v, const struct tei_transport *t, const char *why)
{
    v->why_not[t->index] = strdup(why); /* NULL: te_explain() says less */
    return 0;
}

/* Attaches one transport if it reaches this target; TE_ERR_UNSUPPORTED is no failure. */
static int add_via(struct view *v, struct tei_transport *t, const struct tei_hostport *where)
{
    const char *barred = why_barred(v, t);
    struct tei_attach *a = NULL;
    int rc;

    if (!v->seg != !!(t->ops.caps & TEI_CAP_LOCAL_ONLY))
        return 0;
    if (v->seg && v->seg->files != !!(t->ops.caps & TEI_CAP_FILE))
        return 0;
    if (barred)
        return bar(v, t, barred);
    if (v->seg) {
        a = calloc(1, t->ops.attach_size);
        if (!a)
            return TEI_FAIL(TE_ERR_MEMORY, "no memory to attach to a peer");
        a->transport = t;
        a->peer = v->peer;
        a->one_life = v->peer->one_life;
        tei_err_keep(TE_ERR_OK, "");
        rc = t->ops.attach(t, a, v->seg, where);
        if (rc) {
            free(a);
            return rc == TE_ERR_UNSUPPORTED ? note_refusal(v, t) : rc;
        }
    }
    atomic_fetch_add_explicit(&v->engine->transports.views[t->index], 1, memory_order_relaxed);
    v->via[v->n_via++] = (struct via){.transport = t, .attach = a};
    return 0;
}

/* In the order of preference, which decides between equal scores. */
static int add_all(struct view *v, const struct tei_hostport *where)
{
    te_engine *e = v->engine;
    const struct tei_transport_ops *ops;
    char *before = strdup(te_errmsg()); /* what attach() says is for te_explain() */
    int rc = 0;

    pthread_rwlock_rdlock(&e->transports.lock);
    v->generation = atomic_load_explicit(&e->transports.generation, memory_order_relaxed);
    for (size_t i = 0; !rc && (ops = tei_transport_at(i)); i++) {
        struct tei_transport *t = tei_transports_find(&e->transports, ops->name);

        if (t)
            rc = add_via(v, t, where);
    }
    pthread_rwlock_unlock(&e->transports.lock);
    if (!rc)
        tei_err_keep(TE_ERR_OK, before ? before : "");
    free(before);
    return rc;
}

/*
 * With one reference, which counts in p->views and p->loose; takes over `seg` (NULL: this engine
 * itself). The caller holds the peer. `over`: as that view is over, NULL: as none is.
 */
static int make_view(struct peer *p, struct tei_segment *seg, const struct tei_hostport *where,
                     const struct view *over, struct view **out)
{
    struct view *v = calloc(1, sizeof(*v));
    int rc;

    if (!v) {
        tei_segment_put(seg);
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a segment's view");
    }
    atomic_init(&v->refs, 1);
    v->engine = p->engine;
    v->peer = p;
    v->seg = seg;
    v->over = over && over->over;
    v->instead = over ? over->instead : 0;
    v->serial =
        atomic_fetch_add_explicit(&p->engine->peers.views_made, 1, memory_order_relaxed) + 1;
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    pthread_mutex_lock(&p->lock);
    p->views++;
    p->loose++;
    pthread_mutex_unlock(&p->lock);
    rc = add_all(v, where);
    if (rc) {
        put_loose(v);
        return rc;
    }
    *out = v;
    return 0;
}

static bool is_older(const struct tei_segment *s, const struct tei_segment *than)
{
    return s && than && s->incarnation == than->incarnation && s->version < than->version;
}

/*
 * Under the peer's lock. Who changes the list makes all views anew after that, under the same lock:
 * either the change is seen here, or that comes later.
 */
bool tei_view_is_outdated(const struct view *v)
{
    return v->generation !=
           atomic_load_explicit(&v->engine->transports.generation, memory_order_acquire);
}

bool tei_view_is_replaced(const struct view *v)
{
    struct peer *p = v->peer;
    bool yes;

    pthread_mutex_lock(&p->lock);
    yes = p->view && p->view->seg && v->seg && p->view->seg->incarnation != v->seg->incarnation;
    pthread_mutex_unlock(&p->lock);
    return yes;
}

static void tell_gone(struct view *old)
{
    for (size_t i = 0; i < old->n_via; i++)
        old->via[i].transport->ops.peer_gone(old->via[i].transport, old->via[i].attach);
}

/*
 * Whether the view may replace what the peer has, under its lock: an older version of the same engine's descriptor may
 * not, nor, of what is over, one that is not.
 */
static bool may_replace(const struct peer *p, const struct view *v)
{
    if (p->closed)
        return false;
    return !p->view || (!is_older(v->seg, p->view->seg) && p->view->over <= v->over);
}

/*
 * Puts `v` in place, or drops it; false if it is of transports that are no more and must be made
 * again.
 */
static bool swap_view(struct peer *p, struct view *v, const struct tei_hostport *where)
{
    struct view *drop = v;
    bool changed, restarted = false;

    pthread_mutex_lock(&p->doubts.lock);
    pthread_mutex_lock(&p->lock);
    changed = tei_view_is_outdated(v);
    if (!changed && may_replace(p, v)) {
        drop = p->view;
        restarted = drop && drop->seg && v->seg &&
                    (drop->seg->incarnation != v->seg->incarnation || drop->over != v->over);
        p->view = v;
        p->where = *where;
        p->loose -= !drop; /* else what was there is loose instead */
    }
    pthread_mutex_unlock(&p->lock);
    if (drop && drop != v)
        tei_doubts_move(p, drop, v);
    pthread_mutex_unlock(&p->doubts.lock);
    if (restarted)
        tell_gone(drop);
    if (drop)
        put_loose(drop);
    return !changed;
}

int tei_view_install(struct peer *p, struct tei_segment *seg, const struct tei_hostport *where)
{
    struct view *v = NULL;
    int rc;

    do {
        rc = make_view(p, seg ? tei_segment_get(seg) : NULL, where, NULL, &v);
    } while (!rc && !swap_view(p, v, where));
    return rc;
}

int tei_view_end_life(struct peer *p, uint64_t instead)
{
    const struct view over = {.over = true, .instead = instead};
    struct tei_hostport where;
    struct tei_segment *seg = NULL;
    struct view *v = NULL;
    int rc;

    pthread_mutex_lock(&p->lock);
    if (p->view) /* not held, which te_close() would take for a transfer */
        seg = tei_segment_get(p->view->seg);
    where = p->where;
    pthread_mutex_unlock(&p->lock);
    if (!seg)
        return 0; /* closed meanwhile */
    do {
        rc = make_view(p, tei_segment_get(seg), &where, &over, &v);
    } while (!rc && !swap_view(p, v, &where));
    tei_segment_put(seg);
    return rc;
}

int tei_view_prepare(struct peer *p)
{
    struct tei_hostport where;
    struct tei_segment *seg;
    struct view like = {0};

    pthread_mutex_lock(&p->lock);
    seg = p->view->seg ? tei_segment_get(p->view->seg) : NULL;
    like.over = p->view->over;
    like.instead = p->view->instead;
    where = p->where;
    pthread_mutex_unlock(&p->lock);
    return make_view(p, seg, &where, &like, &p->prepared);
}

void tei_view_take(struct peer *p, bool use)
{
    struct view *drop = p->prepared, *made;

    if (!drop)
        return;
    pthread_mutex_lock(&p->doubts.lock);
    pthread_mutex_lock(&p->lock);
    if (use && !p->closed && p->view->seg == drop->seg && p->view->over == drop->over) {
        drop = p->view; /* which is loose in place of the other */
        p->view = p->prepared;
    }
    made = p->prepared;
    p->prepared = NULL;
    pthread_mutex_unlock(&p->lock);
    if (drop != made)
        tei_doubts_move(p, drop, made);
    pthread_mutex_unlock(&p->doubts.lock);
    put_loose(drop);
}

void tei_view_close(struct peer *p)
{
    struct view *v;

    pthread_mutex_lock(&p->doubts.lock);
    pthread_mutex_lock(&p->lock);
    v = p->view;
    p->view = NULL;
    p->closed = true;
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_unlock(&p->doubts.lock);
    if (v)
        tei_view_put(v, 1);
}
