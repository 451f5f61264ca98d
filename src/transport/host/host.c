/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c - the transport to engines of other processes of this host: its ops. Read host.h first.
 *
 * It is a companion of the transports that reach other hosts, not one of them: the descriptor's
 * protocol is theirs, its own keys stand under "te"."host". attach() finds out whether the peer is
 * on this host and may be touched, and says why not; then this transport does not see its requests.
 *
 * When the way breaks later, because the peer is gone or its pages cannot be reached after all,
 * work ends TE_ERR_PEER: no byte of it is on its way then, so the core may fetch the descriptor
 * again and give it to the next transport.
 */
#include "transport/host/host.h"

#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static bool host_probe(const struct tei_conf *conf, char *why, size_t n)
{
    int fd = tei_pages_make("te_host", sizeof(struct host_table));

    (void)conf;
    if (fd < 0) {
        snprintf(why, n, "memfd of %zu bytes: %s", sizeof(struct host_table),
                 tei_errno_text(errno));
        return false;
    }
    tei_fd_close(fd);
    return true;
}

/* Of no harm: greet() (host_peer.c) finds the same, and memory that can be mapped goes this way. */
static void tell_if_refused(void)
{
    char from = 1, to = 0;
    struct iovec a = {&to, 1}, b = {&from, 1};

    if (process_vm_readv(getpid(), &a, 1, &b, 1, 0) != 1)
        TEI_INFO("host: process_vm_readv: %s (a seccomp profile, or the kernel): only memory of "
                 "te_alloc() goes this way",
                 tei_errno_text(errno));
}

static void init(struct host *h)
{
    h->conf = h->base.host->conf;
    h->table_fd = -1;
    pthread_mutex_init(&h->table_lock, NULL);
    pthread_mutex_init(&h->loop_lock, NULL);
    tei_list_init(&h->sessions);
    tei_list_init(&h->peers);
    h->copier.transport = &h->base;
    h->copier.run = tei_host_copy;
    h->copier.guests_max = HOST_GUESTS_MAX;
    tei_copier_init(&h->copier, h->conf->transfer_timeout_ms);
    h->ready = true;
}

static int host_open(struct tei_transport *t)
{
    struct host *h = tei_host_of(t);
    struct tei_process own;
    int rc;

    init(h);
    tell_if_refused();
    tei_random(h->keys.nonce, sizeof(h->keys.nonce));
    tei_here(h->keys.nonce, &h->keys.here);
    if (tei_process_look(getpid(), &own))
        h->began = own.began;
    rc = tei_host_table_open(h);
    if (!rc)
        rc = tei_host_serve_open(h);
    if (rc)
        t->ops.stop(t);
    return rc;
}

static int host_describe(struct tei_transport *t, json_t *root)
{
    json_t *te = tei_json_member(root, "te");

    if (json_object_set_new(te, "host", tei_host_keys_json(&tei_host_of(t)->keys)) != 0)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the keys of host");
    return 0;
}

/* What the peer publishes of itself; else why that is of no use. */
static bool read_keys(const struct tei_segment *s, struct host_keys *k, char *why, size_t n)
{
    const json_t *j = json_object_get(json_object_get(s->root, "te"), "host");
    int64_t version;

    if (!j)
        snprintf(why, n,
                 "the peer does not offer it (TE_HOST_PATH=0 or MC_FORCE_TCP there, or an engine "
                 "of another make)");
    else if (tei_host_keys_read(j, k, &version))
        return true;
    else if (version != HOST_VERSION)
        snprintf(why, n, "the peer speaks version %lld of it, this engine %d", (long long)version,
                 HOST_VERSION);
    else
        snprintf(why, n, "the keys te.host of the peer's descriptor are malformed");
    return false;
}

static unsigned count_threads(const struct tei_conf *c)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (c->host_threads > 0)
        return (unsigned)tei_min((size_t)c->host_threads, TEI_COPY_THREADS);
    return (unsigned)tei_min((size_t)(cores > 0 ? cores : 1), 4);
}

/* TE_ERR_UNSUPPORTED with the reason in te_errmsg(). */
static int reach(struct host *h, const struct tei_segment *s, const char *expected,
                 struct host_peer **out)
{
    char why[256], text[300];
    struct host_keys k;

    if (!read_keys(s, &k, why, sizeof(why)) || !tei_host_who_fits(h->conf, &k, why, sizeof(why))) {
        snprintf(text, sizeof(text), "same host: %s", why);
        return tei_err_keep(TE_ERR_UNSUPPORTED, text);
    }
    if (tei_copier_start(&h->copier, "te/host", count_threads(h->conf)) != 0)
        return tei_err_keep(TE_ERR_UNSUPPORTED, "same host: no thread that copies can be started");
    return tei_host_peer_get(h, &k, expected, s->ticket, out);
}

static int host_attach(struct tei_transport *t, struct tei_attach *a, const struct tei_segment *s,
                       const struct tei_hostport *where)
{
    struct host_peer *p = NULL;
    int rc = reach(tei_host_of(t), s, where->expected, &p);

    if (rc)
        TEI_DEBUG("segment %s: %s", s->name, te_errmsg());
    else
        TEI_DEBUG("segment %s: process %d of this host%s", s->name, (int)p->pid,
                  p->memfd_only ? ", memory of te_alloc() only" : "");
    ((struct host_attach *)a)->peer = p;
    return rc;
}

static void host_detach(struct tei_transport *t, struct tei_attach *a)
{
    (void)t;
    tei_host_peer_put(((struct host_attach *)a)->peer);
}

static unsigned host_score(struct tei_transport *t, const struct tei_attach *a, const te_request *r)
{
    struct host_peer *p = a ? ((const struct host_attach *)a)->peer : NULL;

    (void)t;
    /* Relaxed: what is seen too late here is found out by the copy. */
    if (!p || atomic_load_explicit(&p->broken, memory_order_relaxed) ||
        atomic_load_explicit(&p->table->lost, memory_order_relaxed))
        return 0;
    return tei_host_peer_score(p, r);
}

static void host_why_not(struct tei_transport *t, const struct tei_attach *a, const te_request *r,
                         char *why, size_t n)
{
    struct host_peer *p = ((const struct host_attach *)a)->peer;

    (void)t;
    snprintf(why, n, "%s", tei_host_peer_why(p, r));
}

/* Its connection was made when it was attached. */
static void host_warm(struct tei_transport *t, struct tei_attach *a, struct tei_warmth *w)
{
    struct host_peer *p = ((struct host_attach *)a)->peer;
    bool gone = tei_host_peer_is_gone(p);
    int why = atomic_load_explicit(&p->broken, memory_order_relaxed);

    (void)t;
    w->ready = !gone;
    w->failed = gone;
    w->error = gone ? TE_ERR_PEER : 0;
    snprintf(w->why, sizeof(w->why), "process %d: %s", (int)p->pid, tei_host_broken_text(why));
}

static void host_stats(struct tei_transport *t, struct te_stats *s)
{
    struct host *h = tei_host_of(t);

    pthread_mutex_lock(&h->loop_lock);
    s->connections += h->n_sessions + h->n_peers;
    pthread_mutex_unlock(&h->loop_lock);
}

static void host_post(struct tei_transport *t, struct tei_list *work)
{
    tei_copier_post(&tei_host_of(t)->copier, work);
}

static bool host_poll(struct tei_transport *t)
{
    return tei_copier_poll(&tei_host_of(t)->copier);
}

static void host_cancel(struct tei_transport *t, const void *owner)
{
    tei_copier_cancel(&tei_host_of(t)->copier, owner);
}

static void host_close(struct tei_transport *t)
{
    tei_copier_close(&tei_host_of(t)->copier);
}

static void host_stop(struct tei_transport *t)
{
    struct host *h = tei_host_of(t);

    tei_copier_stop(&h->copier);
    tei_host_serve_close(h);
}

static void host_fini(struct tei_transport *t)
{
    struct host *h = tei_host_of(t);

    if (!h->ready)
        return;
    tei_loop_fini(&h->loop);
    tei_host_table_close(h);
    tei_copier_fini(&h->copier);
    pthread_mutex_destroy(&h->loop_lock);
    pthread_mutex_destroy(&h->table_lock);
}

static const char *host_why_off(const struct tei_conf *c)
{
    return !c->host_path ? "TE_HOST_PATH is off" : c->force_tcp ? "MC_FORCE_TCP is on" : NULL;
}

extern const struct tei_transport_ops tei_host_ops; /* named by transports.def */

const struct tei_transport_ops tei_host_ops = {
    .name = "host",
    .abi = TEI_TRANSPORT_ABI,
    .caps = TEI_CAP_SAME_HOST | TEI_CAP_SETTLED | TEI_CAP_LIVES,
    .mem_kinds = TEI_MEM_BIT(TEI_MEM_HOST),
    .target_kinds = TEI_MEM_BIT(TEI_MEM_HOST),
    .size = sizeof(struct host),
    .work_size = sizeof(struct tei_entry),
    .attach_size = sizeof(struct host_attach),
    .beside = TEI_MEM_BIT(TEI_MEM_HOST),
    .why_off = host_why_off,
    .probe = host_probe,
    .open = host_open,
    .describe = host_describe,
    .attach = host_attach,
    .detach = host_detach,
    .score = host_score,
    .why_not = host_why_not,
    .post = host_post,
    .poll = host_poll,
    .cancel = host_cancel,
    .region_add = tei_host_region_add,
    .region_del = tei_host_region_del,
    .warm = host_warm,
    .stats = host_stats,
    .close = host_close,
    .stop = host_stop,
    .fini = host_fini,
};
