/* SPDX-License-Identifier: Apache-2.0 */
/* transports.c - the list of the transports that an engine has. */
#include "core/transports.h"
#include "base/err.h"

#include <string.h>

struct tei_transport *tei_transports_find(const struct transports *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i] && strcmp(s->list[i]->ops.name, name) == 0)
            return s->list[i];
    return NULL;
}

struct tei_transport *tei_transports_get(struct transports *s, size_t *i, unsigned has)
{
    struct tei_transport *t = NULL;

    pthread_rwlock_rdlock(&s->lock);
    for (; *i < s->n && !t; *i += !t)
        if (s->list[*i] && (s->list[*i]->has & has))
            t = s->list[*i];
    if (t)
        atomic_fetch_add_explicit(&s->views[*i], 1, memory_order_relaxed);
    pthread_rwlock_unlock(&s->lock);
    return t;
}

void tei_transports_put(struct transports *s, size_t i)
{
    /* Release: partner of the acquires in take_out(), drain() and is_free(). */
    atomic_fetch_sub_explicit(&s->views[i], 1, memory_order_release);
}

int tei_transports_admit(struct transports *s, const char *name, const struct tei_segment *seg)
{
    char why[1024];
    int rc = 0;

    pthread_rwlock_rdlock(&s->lock);
    for (size_t i = 0; i < s->n && !rc; i++) {
        struct tei_transport *t = s->list[i];

        if (t && (t->ops.caps & TEI_CAP_FILE))
            rc = t->ops.admit(t, seg, 0, UINT64_MAX, why, sizeof(why));
    }
    pthread_rwlock_unlock(&s->lock);
    return rc ? TEI_FAIL(rc, "segment '%s': %s", name, why) : 0;
}

/* --------------------------------------------------------------------------------------- changes */

/*
 * Whether an index that had a transport can have another: no view names the old one, and all its work
 * is back. That may take a moment longer, since a thread gives it back after its request has ended.
 */
static bool is_free(struct transports *s, size_t i)
{
    bool unused;

    if (s->list[i] || atomic_load_explicit(&s->views[i], memory_order_acquire) != 0)
        return false;
    pthread_mutex_lock(&s->works[i].lock);
    unused = s->works[i].in_use == 0;
    pthread_mutex_unlock(&s->works[i].lock);
    return unused;
}

size_t tei_transports_room(struct transports *s)
{
    size_t i = 0;

    while (i < s->n && !is_free(s, i))
        i++;
    return i;
}

void tei_transports_change(struct transports *s, const struct tei_transport *out,
                           struct tei_transport *in)
{
    pthread_rwlock_wrlock(&s->lock);
    if (in && in == s->leaving)
        s->leaving = NULL;
    if (out) {
        s->leaving = s->list[out->index];
        s->list[out->index] = NULL;
    }
    if (in)
        s->list[in->index] = in;
    if (in && in->index == s->n)
        s->n++;
    /* Release: partner of the acquire in tei_view_is_outdated(). */
    atomic_fetch_add_explicit(&s->generation, 1, memory_order_release);
    atomic_fetch_add_explicit(s->version, 1, memory_order_acq_rel);
    pthread_rwlock_unlock(&s->lock);
}

void tei_transports_keep(struct transports *s, struct tei_transport *t)
{
    struct transport_past now = s->past[t->place];
    struct te_stats all = s->past_stats;

    if (s->leaving != t)
        return;
    now.there = true;
    t->ops.stats(t, &now.stats);
    t->ops.stats(t, &all);
    t->ops.nics(t, &now.nics);
    now.stats.connections = all.connections = 0;
    for (size_t i = 0; i < now.nics.n; i++)
        now.nics.v[i].connections = now.nics.v[i].up = 0;
    pthread_rwlock_wrlock(&s->lock);
    s->past[t->place] = now;
    s->past_stats = all;
    s->leaving = NULL;
    pthread_rwlock_unlock(&s->lock);
}

/* --------------------------------------------------------------------------------------- lifetime */

void tei_transports_init(struct transports *s, _Atomic uint64_t *version)
{
    pthread_rwlock_init(&s->lock, NULL);
    s->version = version;
}

void tei_transports_fini(struct transports *s)
{
    for (size_t i = 0; i < s->n; i++)
        tei_transport_destroy(s->list[i]);
    for (size_t i = 0; i < TEI_CARRIERS; i++)
        tei_pool_fini(&s->works[i]);
    pthread_rwlock_destroy(&s->lock);
}
