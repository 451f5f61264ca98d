/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_drop.c - ending a connection of a client at its wish, so that it may send again what that
 * connection carried.
 *
 * The connection may be another worker's, and no two workers' locks are ever held together: so a
 * te/aux thread goes through the workers one by one, and then wakes the session that asked, if that
 * one is still there. When it does, no byte of the dropped connection is applied any more.
 */
#include "transport/tcp/tcp.h"

#include <stdlib.h>

struct drop {
    struct tei_job job;
    struct tcp *t;
    struct tcp_worker *worker; /* of the session that asked */
    uint64_t serial;           /* that session */
    uint64_t client, connection;
};

static void on_te_aux(struct tei_job *j)
{
    struct drop *d = tei_container_of(j, struct drop, job);
    struct tcp *t = d->t;
    struct tcp_session *s;

    for (unsigned i = 0; i < t->n_workers; i++) {
        tei_tcp_worker_enter(&t->workers[i]);
        tei_tcp_sessions_drop(&t->workers[i], d->client, d->connection);
        tei_tcp_worker_leave(&t->workers[i]);
    }
    tei_tcp_worker_enter(d->worker);
    s = tei_tcp_session_find(d->worker, d->serial);
    if (s)
        tei_tcp_channel_dropped(s);
    tei_tcp_worker_leave(d->worker);
    free(d);
    tei_tcp_job_ended(t);
}

bool tei_tcp_drop(struct tcp_session *asks, uint64_t client, uint64_t connection)
{
    struct tcp *t = asks->worker->t;
    struct drop *d = calloc(1, sizeof *d);

    if (!d)
        return false;
    *d = (struct drop){.t = t,
                       .worker = asks->worker,
                       .serial = asks->serial,
                       .client = client,
                       .connection = connection};
    tei_tcp_job_begun(t);
    tei_jobs_post(t->base.host->jobs, &d->job, on_te_aux);
    return true;
}
