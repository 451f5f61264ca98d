/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics_peers.c - which segments are told by name, so that there are few labels however many segments.
 *
 * Places are given as segments come. Where none is free, a segment that has had more than twice the traffic
 * of the least among those that have one takes its place: so a name comes and goes a few times at most. A
 * closed segment leaves its place. What was told under a label stays there (struct told), and closing a
 * segment adds to "other" only what was not told by its name.
 */
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

#define WORTH_OF_REQUEST 65536 /* bytes, so that small requests and failures count, too */

/* The difference of two of one segment, of which the second is not above the first. */
static struct totals less(const struct totals *a, const struct totals *b)
{
    struct totals d;

    for (int op = 0; op < 2; op++) {
        d.completed[op] = a->completed[op] - b->completed[op];
        d.failed[op] = a->failed[op] - b->failed[op];
        d.bytes[op] = a->bytes[op] - b->bytes[op];
    }
    return d;
}

static void add_to(struct totals *to, const struct totals *t)
{
    for (int op = 0; op < 2; op++) {
        to->completed[op] += t->completed[op];
        to->failed[op] += t->failed[op];
        to->bytes[op] += t->bytes[op];
    }
}

static uint64_t traffic_of(const struct peer *p)
{
    struct totals t = {0};

    tei_metrics_add(&t, &p->figures);
    return t.bytes[TE_READ] + t.bytes[TE_WRITE] +
           WORTH_OF_REQUEST * (t.completed[TE_READ] + t.completed[TE_WRITE] + t.failed[TE_READ] +
                               t.failed[TE_WRITE]);
}

/* What has been told in one way is now apart. */
static void turn(struct told *t)
{
    t->apart = less(&t->last, &t->apart);
    t->named = !t->named;
}

/* Who has a place, and what they have had. */
struct places {
    size_t n;
    struct peer *of[METRICS_PEERS];
    uint64_t traffic[METRICS_PEERS];
};

static void take_place(struct places *at, size_t i, struct peer *p, uint64_t traffic)
{
    at->of[i] = p;
    at->traffic[i] = traffic;
    if (!p->told.named)
        turn(&p->told);
}

/* What is called as the sum of all others is part of it, as no two may have the same label: so is a second life. */
static bool is_taken(const struct places *at, const char *name)
{
    for (size_t i = 0; i < at->n; i++)
        if (strcmp(at->of[i]->name, name) == 0)
            return true;
    return strcmp(name, "other") == 0;
}

static void want_place(struct places *at, struct peer *p)
{
    uint64_t traffic = traffic_of(p);
    size_t least = 0;

    if (traffic == 0 || is_taken(at, p->name))
        return;
    if (at->n < METRICS_PEERS) {
        take_place(at, at->n++, p, traffic);
        return;
    }
    for (size_t i = 1; i < METRICS_PEERS; i++)
        if (at->traffic[i] < at->traffic[least])
            least = i;
    if (traffic / 2 <= at->traffic[least])
        return;
    turn(&at->of[least]->told);
    take_place(at, least, p, traffic);
}

/* False: memory is out. */
static bool tell(struct peer *p, struct by_peer *named, size_t *n, struct totals *others)
{
    struct told *t = &p->told;
    struct totals now = {0}, own;

    tei_metrics_add(&now, &p->figures);
    t->last = now;
    own = less(&now, &t->apart);
    add_to(others, t->named ? &t->apart : &own);
    if (!t->named)
        return true;
    named[*n] = (struct by_peer){.name = strdup(p->name), .told = own};
    return named[(*n)++].name != NULL;
}

bool tei_metrics_peers(te_engine *e, struct by_peer *named, size_t *n, struct totals *others)
{
    struct places at = {0};
    bool ok = true;

    *n = 0;
    pthread_rwlock_rdlock(&e->peers.lock);
    pthread_mutex_lock(&e->metrics.told_lock);
    *others = e->metrics.other;
    for (struct peer *p = e->peers.by_name; p; p = p->hh.next)
        if (p->told.named)
            take_place(&at, at.n++, p, traffic_of(p));
    for (struct peer *p = e->peers.by_name; p; p = p->hh.next)
        if (!p->told.named)
            want_place(&at, p);
    for (struct peer *p = e->peers.by_name; p && ok; p = p->hh.next)
        ok = tell(p, named, n, others);
    pthread_mutex_unlock(&e->metrics.told_lock);
    pthread_rwlock_unlock(&e->peers.lock);
    return ok;
}

void tei_metrics_peer_left(te_engine *e, const struct told *told, const struct totals *last)
{
    struct totals rest = less(last, told->named ? &told->last : &told->apart);

    pthread_mutex_lock(&e->metrics.told_lock);
    add_to(&e->metrics.other, &rest);
    if (told->named)
        add_to(&e->metrics.other, &told->apart);
    pthread_mutex_unlock(&e->metrics.told_lock);
}
