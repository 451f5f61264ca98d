/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_drop.c - ending a connection of a client at its wish, so that it may send again what that
 * connection carried.
 *
 * The connection may be another worker's, and no two workers' locks are ever held together: so a
 * te/aux thread goes through the workers one by one, and then wakes the session that asked, if that
 * one is still there. When it does, no byte of the dropped connection is applied any more.
 *
 * Of the sessions that one address has on a worker one at a time is served so, and the next one by a job
 * that queues up anew: who asks much takes no time on te/aux from who asks little.
 */
#include "transport/tcp/tcp_session.h"

#include <stdlib.h>

struct drop {
    struct tei_job job;
    struct tcp *t;
    struct tcp_worker *worker; /* of the session that asked */
    struct tcp_source *source; /* where it comes from */
    uint64_t serial;           /* that session */
    uint64_t client, connection;
};

static void on_te_aux(struct tei_job *j);

/*
 * Relaxed: looked at with a worker's lock held, which close() takes after this. A job that is posted to
 * te/aux once that has stopped runs at once, and would want the lock that its poster holds.
 */
static bool is_closed(const struct tcp *t)
{
    return atomic_load_explicit(&t->closed, memory_order_relaxed);
}

static void start(struct drop *d, const struct tcp_session *asks)
{
    d->serial = asks->serial;
    d->client = asks->drop_client;
    d->connection = asks->drop_connection;
    tei_tcp_job_begun(d->t);
    tei_jobs_post(d->t->base.host->jobs, &d->job, on_te_aux);
}

/* Goes on with the next one of that source, if it has one. Worker's lock held. */
static bool go_on(struct drop *d)
{
    struct tei_link *next = tei_list_first(&d->source->drops);

    if (next && !is_closed(d->t)) {
        tei_list_del(next);
        start(d, tei_container_of(next, struct tcp_session, drop_turn));
        return true;
    }
    d->source->dropping = false;
    tei_source_leave(&d->source->base);
    return false;
}

static void on_te_aux(struct tei_job *j)
{
    struct drop *d = tei_container_of(j, struct drop, job);
    struct tcp_worker *w = d->worker;
    struct tcp *t = d->t;
    struct tcp_session *s;
    bool more;

    for (unsigned i = 0; i < t->n_workers; i++) {
        tei_tcp_worker_enter(&t->workers[i]);
        tei_tcp_sessions_drop(&t->workers[i], d->client, d->connection);
        tei_tcp_worker_leave(&t->workers[i]);
    }
    tei_tcp_worker_enter(w);
    s = tei_tcp_session_find(w, d->serial);
    if (s)
        tei_tcp_channel_dropped(s);
    more = go_on(d); /* by another thread, which has `d` then */
    tei_tcp_worker_leave(w);
    if (!more)
        free(d);
    tei_tcp_job_ended(t);
}

bool tei_tcp_drop(struct tcp_session *asks, uint64_t client, uint64_t connection)
{
    struct tcp *t = asks->worker->t;
    struct drop *d;

    if (is_closed(t))
        return false;
    asks->drop_client = client;
    asks->drop_connection = connection;
    if (asks->source->dropping) {
        tei_list_push_back(&asks->source->drops, &asks->drop_turn);
        return true;
    }
    d = calloc(1, sizeof *d);
    if (!d)
        return false;
    *d = (struct drop){.t = t, .worker = asks->worker, .source = asks->source};
    asks->source->dropping = true;
    asks->source->base.users++;
    start(d, asks);
    return true;
}
