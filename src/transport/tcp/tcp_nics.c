/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_nics.c - what went through each address of this host, for the metrics.
 *
 * The kernel counts for each connection; it is asked when somebody wants to know, and once more before a
 * connection is closed, so requests pay nothing.
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

void tei_tcp_nics_close(struct tcp_worker *w, int fd)
{
    struct tei_nic_figures f;

    if (!look_at(fd, &f))
        return;
    if (!w->closed)
        w->closed = calloc(1, sizeof *w->closed);
    if (w->closed)
        tei_nics_add(w->closed, &f);
}

static void add_open(int fd, struct tei_nic_table *out)
{
    struct tei_nic_figures f;

    if (!look_at(fd, &f))
        return;
    f.connections = f.up = 1;
    tei_nics_add(out, &f);
}

static void add_sessions(const struct tei_list *sessions, struct tei_nic_table *out)
{
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(sessions, n, tmp)
        add_open(tei_container_of(n, struct tcp_session, link)->watch.fd, out);
}

static void add_lanes(const struct tcp_bundle *b, struct tei_nic_table *out)
{
    for (unsigned i = 0; i < b->n_lanes; i++)
        if (b->lanes[i].watch.loop)
            add_open(b->lanes[i].watch.fd, out);
}

void tei_tcp_nics(struct tei_transport *base, struct tei_nic_table *out)
{
    struct tcp *t = tei_tcp_of(base);

    for (unsigned i = 0; i < t->n_workers; i++) {
        struct tcp_worker *w = &t->workers[i];
        struct tei_link *n, *tmp;

        tei_tcp_worker_enter(w);
        for (size_t k = 0; w->closed && k < w->closed->n; k++)
            tei_nics_add(out, &w->closed->v[k]);
        TEI_LIST_EACH(&w->bundles, n, tmp)
            add_lanes(tei_container_of(n, struct tcp_bundle, link), out);
        add_sessions(&w->idle, out);
        add_sessions(&w->serving, out);
        tei_tcp_worker_leave(w);
    }
}
