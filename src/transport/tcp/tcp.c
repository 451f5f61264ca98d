/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.c - the TCP transport: its ops, from the first to the last moment of an instance.
 *
 * Read tcp.h first: what there is and which lock guards what. Then tcp_schedule.c (how work finds a
 * connection), tcp_piece.c (how it is cut and counted), tcp_lane.c, tcp_classic.c, tcp_native.c and
 * tcp_server.c (what happens on a connection), tcp_worker.c (threads).
 *
 * Who ends a work, and how it stays exactly once: post() counts it in `live`. It is then in its
 * peer's queue, or cut in pieces that lanes carry, or both, and tcp_piece.c finds the one moment
 * when it is over and puts it on a worker's `done` list, or in a peer's `ended` list for the peer's
 * first bundle to fetch. Whoever empties a worker's list gives it back and takes it off `live`.
 * cancel() and close() only mark work and call bundles; they neither block on the network nor call
 * back.
 *
 * Stopping: close() refuses new work and marks all there is. The workers' threads are joined; then
 * their loops are turned a last time by the stopping thread, which runs the calls still queued,
 * closes every connection and gives back what ended.
 */
#include "transport/tcp/tcp_nics.h"
#include "transport/tcp/tcp_device.h"
#include "transport/tcp/tcp_lease.h"
#include "transport/tcp/tcp_stream.h"
#include "transport/tcp/tcp_warm.h"

#include "base/err.h"
#include "base/log.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * On loopback there is nothing to share the link with. Measured there bbr, which paces, moves a
 * third to a half of what reno moves, and every kernel has reno for everybody.
 */
#define CONGESTION_NEAR "reno"

/* -------------------------------------------------------------------------------------- sockets */

static void set_option(int fd, int level, int name, int value)
{
    /* A socket without one of these works, if less well. */
    (void)setsockopt(fd, level, name, &value, sizeof value);
}

static void set_congestion(int fd, const char *cc)
{
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc));
}

/* Whether both ends of a connection are on this host. */
static bool is_near(int fd, const struct tei_addr *peer)
{
    struct tei_addr ours = {.len = sizeof ours.ss};
    const struct sockaddr_in6 *six[] = {(const void *)&ours.ss, (const void *)&peer->ss};
    const struct sockaddr_in *four[] = {(const void *)&ours.ss, (const void *)&peer->ss};

    if (getsockname(fd, (struct sockaddr *)&ours.ss, &ours.len) < 0 ||
        ours.ss.ss_family != peer->ss.ss_family)
        return false;
    if (ours.ss.ss_family == AF_INET6)
        return memcmp(&six[0]->sin6_addr, &six[1]->sin6_addr, sizeof six[0]->sin6_addr) == 0;
    return four[0]->sin_addr.s_addr == four[1]->sin_addr.s_addr;
}

void tei_tcp_tune(const struct tcp *t, int fd)
{
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    if (t->set_congestion)
        set_congestion(fd, t->conf->tcp_congestion);
}

bool tei_tcp_tune_connected(const struct tcp *t, int fd, const struct tei_addr *peer)
{
    bool near = is_near(fd, peer);

    if (near && !t->set_congestion && t->set_congestion_near)
        set_congestion(fd, CONGESTION_NEAR);
    return near;
}

/* Whether this host lets us choose that congestion control. */
static bool can_set_congestion(const char *cc)
{
    int fd = tei_fd_own(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    int rc = fd < 0 ? -1 : setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc));
    int err = errno;

    if (fd >= 0)
        tei_fd_close(fd);
    errno = err;
    return rc == 0;
}

/* The one that is asked for, if it can be had. */
static void choose_congestion(struct tcp *t)
{
    const char *cc = t->conf->tcp_congestion;

    if (!*cc) {
        t->set_congestion_near = can_set_congestion(CONGESTION_NEAR);
        return;
    }
    t->set_congestion = can_set_congestion(cc);
    if (!t->set_congestion)
        TEI_WARN(
            "tcp: congestion control '%s' (TE_TCP_CONGESTION) is refused: %s; the system's is used",
            cc, tei_errno_text(errno));
}

/* -------------------------------------------------------------------------------------- opening */

static unsigned count_workers(const struct tei_conf *c)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (c->tcp_threads > 0)
        return (unsigned)tei_min((size_t)c->tcp_threads, TCP_WORKERS_MAX);
    return (unsigned)tei_min((size_t)(cores > 0 ? cores : 1), 4);
}

static void init(struct tcp *t)
{
    const struct tei_conf *c = t->base.host->conf;

    t->conf = c;
    t->listen_fd = -1;
    t->no_progress_ns =
        c->transfer_timeout_ms > 0 ? c->transfer_timeout_ms * TEI_NS_PER_MS : TEI_NEVER;
    choose_congestion(t);
    t->id = tei_random_u64() | 1; /* 0 stands for none */
    tei_pool_init(&t->sessions, sizeof(struct tcp_session));
    tei_tcp_channels_init(&t->channels);
    tei_pool_init(&t->frames, sizeof(struct tcp_frame));
    tei_tcp_stages_init(&t->stages);
    tei_pool_init(&t->remnants, sizeof(struct tcp_remnant));
    tei_list_init(&t->left);
    pthread_mutex_init(&t->peers_lock, NULL);
    pthread_mutex_init(&t->live_lock, NULL);
    tei_bans_init(&t->bans);
    tei_cond_init(&t->quiet);
    for (size_t i = 0; i < TCP_PEER_BUCKETS; i++)
        tei_list_init(&t->peers[i]);
    t->ready = true;
}

static bool speaks_native(const struct tei_conf *c)
{
    return c->tcp_native && c->tcp_pool && !c->tcp_force_v1;
}

static int tcp_open(struct tei_transport *base)
{
    struct tcp *t = tei_tcp_of(base);
    unsigned n = count_workers(base->host->conf);
    int rc = 0;

    init(t);
    t->workers = calloc(n, sizeof *t->workers);
    if (!t->workers)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for %u workers", n);
    t->n_workers = n;
    t->max_sessions = ((unsigned)tei_max(1, (size_t)t->conf->tcp_max_sessions) + n - 1) / n;
    for (unsigned i = 0; i < n && !rc; i++)
        rc = tei_tcp_worker_init(&t->workers[i], t, i);
    if (!rc)
        rc = tei_tcp_listen(t);
    if (!rc && speaks_native(t->conf))
        rc = tei_tcp_addresses_find(t);
    for (unsigned i = 0; i < n && !rc; i++)
        rc = tei_tcp_worker_start(&t->workers[i]);
    if (rc)
        base->ops.stop(base);
    return rc;
}

/* ---------------------------------------------------------------------------------- descriptors */

/* Ours: te.tcp. Engines of other makes do not read it. */
static int describe_native(const struct tcp *t, json_t *root)
{
    json_t *te = tei_json_member(root, "te"), *tcp;
    char id[17];

    snprintf(id, sizeof id, "%016llx", (unsigned long long)t->id);
    tcp = json_pack("{s:i,s:s}", "framing", TCP_NATIVE_VERSION, "id", id);
    if (!tcp || json_object_set_new(te, "tcp", tcp) < 0)
        return -1;
    /* A copy: other threads describe too, and jansson's counts of references are not for several. */
    return t->addresses ? json_object_set_new(tcp, "addresses", tei_json_clone(t->addresses)) : 0;
}

static int tcp_describe(struct tei_transport *base, json_t *root)
{
    struct tcp *t = tei_tcp_of(base);

    if (json_object_set_new(root, "tcp_data_port", json_integer(t->port)) < 0 ||
        json_object_set_new(root, "tcp_proto_version", json_integer(2)) < 0 ||
        (speaks_native(t->conf) && describe_native(t, root) < 0))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the keys of tcp");
    return 0;
}

/*
 * An integer of the descriptor, `fallback` if it has none; -1 if it is of another type or out of
 * range.
 */
static int64_t read_key(const struct tei_segment *s, const char *key, int64_t fallback, int64_t max)
{
    json_t *v = json_object_get(s->root, key);

    if (!v)
        return fallback;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > max) {
        (void)TEI_FAIL(TE_ERR_JSON, "descriptor of %s: \"%s\" is not an integer of 0..%lld",
                       s->name, key, (long long)max);
        return -1;
    }
    return json_integer_value(v);
}

/*
 * Where data goes: the host that answers the RPCs, unless the descriptor names another one. Newer
 * engines of Mooncake always do; it is theirs to tell, so ours publishes none.
 */
static int read_host(const struct tei_segment *s, struct tei_hostport *out)
{
    json_t *v = json_object_get(s->root, "tcp_data_host");
    const char *host = json_string_value(v);
    struct tei_hostport told;

    if (!v || (host && !*host))
        return 0;
    if (!host || tei_hostport_read(host, 1, &told) || tei_hostport_has_port(host))
        return TEI_FAIL(TE_ERR_JSON, "descriptor of %s: \"tcp_data_host\" is not a host", s->name);
    memcpy(out->host, told.host, sizeof out->host);
    return 0;
}

/*
 * A port without the protocol is not to be trusted: engines of this family publish it with any
 * protocol.
 */
static bool speaks_tcp(const struct tei_segment *s)
{
    return (s->incarnation != 0 && !s->several) || tei_segment_speaks(s, "tcp");
}

/* For te_explain(). */
static int refuse_peer(const struct tei_segment *s, bool has_port)
{
    char why[128];

    if (!has_port)
        return tei_err_keep(TE_ERR_UNSUPPORTED, "the descriptor has no tcp_data_port");
    snprintf(why, sizeof why, "the descriptor is of protocol '%.64s', not tcp",
             s->protocol ? s->protocol : "");
    return tei_err_keep(TE_ERR_UNSUPPORTED, why);
}

/*
 * A greeting of the native framing names the instance that is meant, and nothing is written before that has said that
 * it is the one. Versions 1 and 2 lead to whoever has the port.
 */
static int refuse_classic(const struct tcp *t)
{
    return tei_err_keep(TE_ERR_UNSUPPORTED,
                        speaks_native(t->conf)
                            ? "tcp: the target does not speak the native framing, without which "
                              "whoever has its port gets what is sent"
                            : "tcp: the native framing is off here (TE_TCP_NATIVE, MC_TCP_PROTO, "
                              "MC_TCP_ENABLE_CONNECTION_POOL), without which whoever has the "
                              "target's port gets what is sent");
}

static int tcp_attach(struct tei_transport *base, struct tei_attach *a, const struct tei_segment *s,
                      const struct tei_hostport *where)
{
    struct tcp *t = tei_tcp_of(base);
    int64_t port = read_key(s, "tcp_data_port", 0, UINT16_MAX);
    int64_t version = read_key(s, "tcp_proto_version", 1, INT32_MAX);
    struct tcp_attach *mine = (struct tcp_attach *)a;
    struct tcp_target target = {
        .where = *where, .ticket = s->ticket, .incarnation = s->incarnation};
    int rc;

    if (port < 0 || version < 0)
        return TE_ERR_JSON;
    if (port == 0 || !speaks_tcp(s))
        return refuse_peer(s, port != 0);
    if (read_host(s, &target.where))
        return TE_ERR_JSON;
    target.where.port = (uint16_t)port;
    target.version = version >= 2 && !t->conf->tcp_force_v1 ? 2 : 1;
    target.exchange = speaks_native(t->conf) && tei_tcp_addresses_read(s->root, &target)
                          ? &tei_tcp_native
                          : &tei_tcp_classic;
    if (a->one_life && target.exchange != &tei_tcp_native)
        return refuse_classic(t);
    rc = tei_tcp_peer_get(t, &target, &mine->peer);
    mine->incarnation = s->incarnation;
    mine->several = !rc && s->several ? tei_segment_get((struct tei_segment *)s) : NULL;
    return rc;
}

static void tcp_detach(struct tei_transport *base, struct tei_attach *a)
{
    struct tcp_attach *mine = (struct tcp_attach *)a;

    (void)base;
    tei_tcp_peer_put(mine->peer);
    tei_segment_put(mine->several);
}

/* What is not told at all is asked for by the key of a lease: only tcp shows one. */
static bool is_by_tcp(const struct tei_segment *s, const te_request *r)
{
    uint64_t part;
    size_t at;

    return tei_segment_by(s, r->target_offset, r->length, TEI_BY_TCP) ||
           !tei_segment_cover(s, r->target_offset, r->length, &at, &part);
}

static unsigned tcp_score(struct tei_transport *base, const struct tei_attach *a,
                          const te_request *r)
{
    const struct tcp_attach *mine = (const struct tcp_attach *)a;

    (void)base;
    return mine && (!mine->several || is_by_tcp(mine->several, r)) ? 50 : 0;
}

static bool tcp_holds(struct tei_transport *base, const struct tei_attach *a, const te_request *r)
{
    const struct tcp_attach *mine = (const struct tcp_attach *)a;
    struct tei_span span;

    if (!r)
        return tei_tcp_peers_hold(tei_tcp_of(base));
    span = (struct tei_span){r->target_offset, r->target_offset + r->length};
    return mine && tei_tcp_fence_holds(mine->peer, span);
}

static void tcp_why_not(struct tei_transport *base, const struct tei_attach *a, const te_request *r,
                        char *why, size_t n)
{
    (void)base;
    (void)r;
    snprintf(why, n, "%s",
             a ? "the target has several protocols, and tells this memory for others than tcp"
               : "it does not reach this engine itself");
}

static void tcp_peer_gone(struct tei_transport *base, struct tei_attach *a)
{
    const struct tcp_attach *mine = (const struct tcp_attach *)a;

    (void)base;
    tei_tcp_peer_moved(mine->peer, mine->incarnation);
}

/* -------------------------------------------------------------------------------------- regions */

static int tcp_region_del(struct tei_transport *base, struct tei_region *r)
{
    struct tcp *t = tei_tcp_of(base);

    /*
     * Acquire: pairs with the release of region_release(), after which the bytes of that request
     * lie still.
     */
    if (atomic_load_explicit(&r->remote_users, memory_order_acquire) == 0)
        return 0;
    for (unsigned i = 0; i < t->n_workers; i++) {
        tei_tcp_worker_enter(&t->workers[i]);
        tei_tcp_sessions_close(&t->workers[i], r);
        tei_tcp_worker_leave(&t->workers[i]);
    }
    return 0;
}

static void tcp_lease_del(struct tei_transport *base, const struct tei_lease *l)
{
    struct tcp *t = tei_tcp_of(base);

    for (unsigned i = 0; i < t->n_workers; i++) {
        tei_tcp_worker_enter(&t->workers[i]);
        tei_tcp_sessions_revoke(&t->workers[i], l);
        tei_tcp_worker_leave(&t->workers[i]);
    }
}

/* ----------------------------------------------------------------------------------------- work */

static struct tcp_peer *peer_of(const struct tcp_work *w)
{
    return ((struct tcp_attach *)w->entry.base.attach)->peer;
}

/* Takes the works at the front of the list that are for one peer; how many. */
static size_t take_group(struct tei_list *from, struct tei_list *group)
{
    struct tei_link *link = tei_list_first(from);
    const struct tcp_peer *p = peer_of(tei_tcp_work_of(link));
    size_t n = 0;

    for (; link && peer_of(tei_tcp_work_of(link)) == p; link = tei_list_next(from, link), n++)
        tei_tcp_work_of(link)->entry.base.why = tei_tcp_queued;
    tei_list_splice_until(group, from, link);
    return n;
}

static void tcp_post(struct tei_transport *base, struct tei_list *work)
{
    struct tcp *t = tei_tcp_of(base);
    int64_t now = tei_now_ns();
    struct tei_list group;

    tei_list_init(&group);
    while (!tei_list_empty(work)) {
        struct tcp_peer *p = peer_of(tei_tcp_work_of(tei_list_first(work)));
        size_t n = take_group(work, &group);

        if (!tei_tcp_lease_is_heeded(p))
            n -= tei_tcp_lease_refuse(t, &group);
        if (n == 0)
            continue;
        pthread_mutex_lock(&t->live_lock);
        t->live += n;
        pthread_mutex_unlock(&t->live_lock);
        tei_tcp_peer_post(p, &group, n, now);
    }
}

static bool tcp_is_same(const struct tei_attach *a, const struct tei_attach *b)
{
    return ((const struct tcp_attach *)a)->peer == ((const struct tcp_attach *)b)->peer;
}

static void tcp_settle(struct tei_transport *base, struct tei_work *w)
{
    struct tcp *t = tei_tcp_of(base);
    struct tcp_work *work = tei_tcp_work_of(&w->link);

    pthread_mutex_lock(&t->live_lock);
    t->live++;
    pthread_mutex_unlock(&t->live_lock);
    tei_tcp_fence_settle(peer_of(work), work);
}

void tei_tcp_give_back(struct tcp *t, struct tei_list *done)
{
    struct tei_link *link, *tmp;
    size_t n = 0;

    if (tei_list_empty(done))
        return;
    TEI_LIST_EACH(done, link, tmp)
        n++;
    t->base.host->work_done(t->base.host, done);
    pthread_mutex_lock(&t->live_lock);
    t->live -= n;
    if (t->live == 0)
        pthread_cond_broadcast(&t->quiet);
    pthread_mutex_unlock(&t->live_lock);
}

void tei_tcp_job_begun(struct tcp *t)
{
    pthread_mutex_lock(&t->live_lock);
    t->jobs++;
    pthread_mutex_unlock(&t->live_lock);
}

void tei_tcp_job_ended(struct tcp *t)
{
    pthread_mutex_lock(&t->live_lock);
    if (--t->jobs == 0)
        pthread_cond_broadcast(&t->quiet);
    pthread_mutex_unlock(&t->live_lock);
}

static bool tcp_poll(struct tei_transport *base)
{
    struct tcp *t = tei_tcp_of(base);
    bool moved = false;

    for (unsigned i = 0; i < t->n_workers; i++) {
        struct tcp_worker *w = &t->workers[i];

        /* Relaxed: a hint; the worker's own thread misses nothing. */
        if (atomic_load_explicit(&w->n_active, memory_order_relaxed) == 0 || !tei_tcp_worker_try(w))
            continue;
        moved = tei_loop_turn(&w->loop) || moved;
        tei_tcp_worker_leave(w);
    }
    return moved;
}

static void cancel_all(struct tcp *t, const void *owner)
{
    struct tei_link *n, *tmp;

    pthread_mutex_lock(&t->peers_lock);
    for (size_t i = 0; i < TCP_PEER_BUCKETS; i++)
        TEI_LIST_EACH(&t->peers[i], n, tmp)
            tei_tcp_peer_cancel(tei_container_of(n, struct tcp_peer, link), owner);
    pthread_mutex_unlock(&t->peers_lock);
}

static void tcp_cancel(struct tei_transport *base, const void *owner)
{
    cancel_all(tei_tcp_of(base), owner);
}

static void tcp_stats(struct tei_transport *base, struct te_stats *s)
{
    struct tcp *t = tei_tcp_of(base);

    for (unsigned i = 0; i < t->n_workers; i++) {
        struct tcp_worker *w = &t->workers[i];

        tei_tcp_worker_enter(w);
        s->served_requests += w->count.served_requests;
        s->served_bytes_in += w->count.served_bytes_in;
        s->served_bytes_out += w->count.served_bytes_out;
        s->served_rejected += w->count.served_rejected;
        s->retries += w->count.retries;
        s->reconnects += w->count.reconnects;
        s->connections += w->n_sessions + w->n_lanes;
        tei_tcp_worker_leave(w);
    }
}

/* --------------------------------------------------------------------------------------- ending */

static void tcp_close(struct tei_transport *base)
{
    struct tcp *t = tei_tcp_of(base);

    /* Relaxed: posts look at it with the peer's lock held, which cancel_all() takes after this. */
    atomic_store_explicit(&t->closed, true, memory_order_relaxed);
    cancel_all(t, NULL);
    /* Nor does a worker post a job from now on: te/aux may be stopped next. */
    for (unsigned i = 0; i < t->n_workers; i++) {
        tei_tcp_worker_enter(&t->workers[i]);
        tei_tcp_worker_leave(&t->workers[i]);
    }
}

/* Ends what the worker still has; its thread is gone. */
static void wind_up(struct tcp_worker *w)
{
    struct tei_link *n, *tmp;

    tei_tcp_worker_enter(w);
    if (w->index == 0)
        tei_tcp_unlisten(w->t);
    tei_tcp_sessions_close(w, NULL);
    TEI_LIST_EACH(&w->bundles, n, tmp)
        tei_tcp_bundle_stop(tei_container_of(n, struct tcp_bundle, link));
    while (tei_loop_turn(&w->loop)) {
        /* Runs the calls still queued, and those that they make. */
    }
    tei_timer_stop(&w->loop, &w->watchdog);
    tei_timer_stop(&w->loop, &w->hush_timer);
    tei_tcp_worker_leave(w);
}

static void tcp_stop(struct tei_transport *base)
{
    struct tcp *t = tei_tcp_of(base);

    tcp_close(base);
    for (unsigned i = 0; i < t->n_workers; i++)
        tei_loop_join(&t->workers[i].loop);
    pthread_mutex_lock(&t->live_lock);
    while (t->jobs > 0)
        pthread_cond_wait(&t->quiet, &t->live_lock);
    pthread_mutex_unlock(&t->live_lock);
    for (unsigned i = 0; i < t->n_workers; i++)
        if (t->workers[i].loop.open)
            wind_up(&t->workers[i]);
    pthread_mutex_lock(&t->live_lock);
    while (t->live > 0 || t->drivers > 0)
        pthread_cond_wait(&t->quiet, &t->live_lock);
    pthread_mutex_unlock(&t->live_lock);
}

static void tcp_fini(struct tei_transport *base)
{
    struct tcp *t = tei_tcp_of(base);
    struct tei_link *n, *tmp;

    if (!t->ready)
        return;
    for (unsigned i = 0; i < t->n_workers; i++)
        tei_tcp_worker_fini(&t->workers[i]);
    for (size_t i = 0; i < TCP_PEER_BUCKETS; i++)
        TEI_LIST_EACH(&t->peers[i], n, tmp)
            tei_tcp_peer_free(tei_container_of(n, struct tcp_peer, link));
    free(t->workers);
    tei_pool_fini(&t->sessions);
    tei_pool_fini(&t->channels);
    tei_pool_fini(&t->frames);
    tei_pool_fini(&t->stages);
    tei_pool_fini(&t->remnants);
    json_decref(t->addresses);
    tei_bans_fini(&t->bans);
    pthread_cond_destroy(&t->quiet);
    pthread_mutex_destroy(&t->live_lock);
    pthread_mutex_destroy(&t->peers_lock);
}

extern const struct tei_transport_ops tei_tcp_ops; /* named by transports.def */

const struct tei_transport_ops tei_tcp_ops = {
    .name = "tcp",
    .abi = TEI_TRANSPORT_ABI,
    .caps = TEI_CAP_REMOTE | TEI_CAP_LIVES | TEI_CAP_LEASES,
    .mem_kinds = TEI_MEM_BIT(TEI_MEM_HOST),
    .target_kinds = TEI_MEM_ANY,
    .size = sizeof(struct tcp),
    .work_size = sizeof(struct tcp_work),
    .attach_size = sizeof(struct tcp_attach),
    .beside = TEI_KIND_STRANDED, /* what the NICs do not reach */
    .open = tcp_open,
    .describe = tcp_describe,
    .attach = tcp_attach,
    .detach = tcp_detach,
    .score = tcp_score,
    .holds = tcp_holds,
    .settle = tcp_settle,
    .is_same = tcp_is_same,
    .why_not = tcp_why_not,
    .post = tcp_post,
    .poll = tcp_poll,
    .drive = tei_tcp_drive,
    .cancel = tcp_cancel,
    .region_del = tcp_region_del,
    .lease_del = tcp_lease_del,
    .peer_gone = tcp_peer_gone,
    .warm = tei_tcp_warm,
    .stats = tcp_stats,
    .nics = tei_tcp_nics,
    .close = tcp_close,
    .stop = tcp_stop,
    .fini = tcp_fini,
};
