/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_path.c - noticing that a path to a peer is dead while another is alive.
 *
 * Where a peer has several addresses, its lanes are dealt out over all. When a link goes down the
 * lanes on it would wait for bytes until the request is late. So a lane on which nothing has moved
 * for TCP_PATH_NS asks the kernel: if what it sent is not even confirmed by the other host, the path
 * is taken for dead, and the frames go out again on another lane. Whoever has sent all and only
 * waits for bytes has nothing unconfirmed; there keep-alive ends the connection. A host whose engine
 * is frozen still confirms, so it gets all the time that a single path has.
 */
#include "transport/tcp/tcp_stream.h"
#include "base/probe.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

static void set_option(int fd, int name, int value)
{
    (void)setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value); /* works without, if later */
}

void tei_tcp_path_tune(int fd)
{
    set_option(fd, TCP_KEEPIDLE, 1);
    set_option(fd, TCP_KEEPINTVL, 1);
    set_option(fd, TCP_KEEPCNT, 2);
}

int64_t tei_tcp_path_look_at(const struct tcp_lane *l)
{
    int64_t looked = l->stream->looked_ns;

    if (l->bundle->peer->n_more == 0)
        return TEI_NEVER;
    return TCP_PATH_NS + (looked > l->progress_ns ? looked : l->progress_ns);
}

/* Bytes, or probes where the way out is gone already or the window is closed, without an answer. */
static bool is_dead(const struct tcp_lane *l)
{
    struct tcp_info i;
    socklen_t n = sizeof i;

    memset(&i, 0, sizeof i);
    return getsockopt(l->watch.fd, IPPROTO_TCP, TCP_INFO, &i, &n) == 0 &&
           (i.tcpi_unacked > 0 || i.tcpi_probes > 0) &&
           i.tcpi_last_ack_recv >= TCP_PATH_NS / TEI_NS_PER_MS;
}

bool tei_tcp_path_leave(struct tcp_lane *l, int64_t now)
{
    static const struct tcp_fault dead = {TE_ERR_LINK, 0, "this path to the peer is dead"};

    if (tei_tcp_path_look_at(l) > now)
        return false;
    l->stream->looked_ns = now;
    if (!is_dead(l))
        return false;
    TEI_PROBE2(path_change, l->bundle->worker->t->base.ops.name, l->path);
    tei_tcp_stream_broken(l, &dead, true, now);
    return true;
}
