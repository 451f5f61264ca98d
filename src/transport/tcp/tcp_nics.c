/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_nics.c - what went through each address of this host, for the metrics.
 *
 * The kernel counts for each connection; it is asked when somebody wants to know, and once more before a
 * connection is closed, so requests pay nothing. There may be thousands, each of which takes three system calls:
 * the worker's lock is taken to list them, let go while the kernel is asked, and taken again to add them up. Of one that
 * is closed meanwhile only what was found when it was closed counts, so each counts once. Its number may be that of
 * another descriptor when it is asked for; what that tells is dropped.
 */
#include "transport/tcp/tcp_nics.h"

#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* False: it is not connected, or was never. */
static bool look_at(int fd, struct tei_nic_figures *f)
{
    struct tei_addr own = {.len = sizeof own.ss};
    struct tcp_info i;
    socklen_t n = sizeof i;

    memset(&i, 0, sizeof i);
    memset(f, 0, sizeof *f);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &n) != 0 ||
        getsockname(fd, (struct sockaddr *)&own.ss, &own.len) != 0)
        return false;
    tei_addr_unmap(&own);
    if (getnameinfo((struct sockaddr *)&own.ss, own.len, f->name, sizeof f->name, NULL, 0,
                    NI_NUMERICHOST) != 0)
        return false;
    f->bytes[0] = i.tcpi_bytes_acked;
    f->bytes[1] = i.tcpi_bytes_received;
    f->resent = i.tcpi_total_retrans;
    return f->bytes[0] || f->bytes[1];
}

/* ------------------------------------------------------------------------ those that are closed */

struct connection {
    int fd;
    bool gone;                      /* under the worker's lock: it was closed since it was listed */
    struct tei_nic_figures figures; /* .connections 0: it has moved nothing yet */
};

/* All connections of a worker, while they are looked at. */
struct look {
    struct tei_link link; /* in worker.looks */
    struct connection *v;
    size_t n, cap;
};

static void forget(struct look *k, int fd)
{
    for (size_t i = 0; i < k->n; i++)
        k->v[i].gone |= k->v[i].fd == fd;
}

void tei_tcp_nics_close(struct tcp_worker *w, int fd)
{
    struct tei_nic_figures f;
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&w->looks, n, tmp)
        forget(tei_container_of(n, struct look, link), fd);
    if (!look_at(fd, &f))
        return;
    if (!w->closed)
        w->closed = calloc(1, sizeof *w->closed);
    if (w->closed)
        tei_nics_add(w->closed, &f);
}

/* -------------------------------------------------------------------------- those that are open */

/* Without memory it is left out, this time. */
static void list_one(struct look *k, int fd)
{
    if (k->n == k->cap) {
        size_t cap = k->cap ? 2 * k->cap : 64;
        void *v = realloc(k->v, cap * sizeof *k->v);

        if (!v)
            return;
        k->v = v;
        k->cap = cap;
    }
    k->v[k->n++] = (struct connection){.fd = fd};
}

static void list_sessions(const struct tei_list *sessions, struct look *k)
{
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(sessions, n, tmp)
        list_one(k, tei_container_of(n, struct tcp_session, link)->watch.fd);
}

static void list_lanes(const struct tcp_bundle *b, struct look *k)
{
    for (unsigned i = 0; i < b->n_lanes; i++)
        if (b->lanes[i].watch.loop)
            list_one(k, b->lanes[i].watch.fd);
}

static void list_all(struct tcp_worker *w, struct look *k)
{
    struct tei_link *n, *tmp;

    tei_tcp_worker_enter(w);
    TEI_LIST_EACH(&w->bundles, n, tmp)
        list_lanes(tei_container_of(n, struct tcp_bundle, link), k);
    list_sessions(&w->idle, k);
    list_sessions(&w->serving, k);
    tei_list_push_back(&w->looks, &k->link);
    tei_tcp_worker_leave(w);
}

static void add_all(struct tcp_worker *w, struct look *k, struct tei_nic_table *out)
{
    tei_tcp_worker_enter(w);
    tei_list_del(&k->link);
    for (size_t i = 0; w->closed && i < w->closed->n; i++)
        tei_nics_add(out, &w->closed->v[i]);
    for (size_t i = 0; i < k->n; i++)
        if (!k->v[i].gone && k->v[i].figures.connections)
            tei_nics_add(out, &k->v[i].figures);
    tei_tcp_worker_leave(w);
}

void tei_tcp_nics(struct tei_transport *base, struct tei_nic_table *out)
{
    struct tcp *t = tei_tcp_of(base);

    for (unsigned i = 0; i < t->n_workers; i++) {
        struct look k = {0};

        list_all(&t->workers[i], &k);
        for (size_t c = 0; c < k.n; c++) {
            struct tei_nic_figures *f = &k.v[c].figures;

            if (look_at(k.v[c].fd, f))
                f->connections = f->up = 1;
        }
        add_all(&t->workers[i], &k, out);
        free(k.v);
    }
}
