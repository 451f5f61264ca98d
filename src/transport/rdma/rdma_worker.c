/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_worker.c - completions: the threads that wait for them, and what each means.
 *
 * A worker polls its queues until there is nothing for a short while, asks the device to tell of the
 * next completion, looks once more, for what came in between, and sleeps. A thread in te_wait() may
 * poll as well; who comes second finds less to do.
 *
 * A slice leaves its endpoint's list under the lock of the completion queue, so that bury()
 * (rdma_endpoint.c) can tell what is left. All else comes after, without that lock.
 */
#include "transport/rdma/rdma.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>

#define ACK_MANY 64 /* events acknowledged at a time, since that takes a lock */
#define SPIN_NS  20000

/* ---------------------------------------------------------------------------------- what it means */

/* Our code of a completion's status, and whether it is the path that failed. */
static int error_of(enum ibv_wc_status status, bool *fault)
{
    *fault = true;
    switch (status) {
    case IBV_WC_SUCCESS:
        *fault = false;
        return 0;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR:
        return TE_ERR_STALE;
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_LOC_EEC_OP_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_MW_BIND_ERR:
        return TE_ERR_CONTEXT;
    default:
        return TE_ERR_LINK;
    }
}

/* A flushed slice answers for its endpoint's fault if it is the first. The endpoint's lock is held. */
static void flushed(struct rdma_endpoint *ep, struct rdma_back *b)
{
    b->error = TE_ERR_LINK;
    b->fault = ep->error != 0;
    b->why = "its connection was lost";
    ep->error = 0;
}

static void tell(const struct rdma_endpoint *ep, const struct ibv_wc *wc)
{
    const char *(*text)(enum ibv_wc_status) = ep->nic->t->verbs.wc_status_str;

    TEI_WARN("rdma: %s to %s: %s (status %d, vendor 0x%x)", ep->nic->name, ep->peer_path,
             text(wc->status), (int)wc->status, wc->vendor_err);
}

/* Takes the slice off its endpoint. */
static void take(const struct ibv_wc *wc, int64_t now, struct rdma_back *b, bool *failed)
{
    struct rdma_slice *s = (struct rdma_slice *)(uintptr_t)wc->wr_id;
    struct rdma_endpoint *ep = s->ep;

    *b = (struct rdma_back){.slice = s};
    pthread_mutex_lock(&ep->lock);
    tei_list_del(&s->link);
    s->qp->posted--;
    ep->n_posted--;
    ep->posted_bytes -= s->part.length;
    ep->progress_ns = now;
    *failed = wc->status != IBV_WC_SUCCESS && ep->state != RDMA_EP_DYING;
    if (wc->status == IBV_WC_WR_FLUSH_ERR)
        flushed(ep, b);
    else
        b->error = error_of(wc->status, &b->fault);
    b->fault &= !ep->draining; /* the peer may have dropped its side */
    pthread_mutex_unlock(&ep->lock);
    if (wc->status != IBV_WC_SUCCESS && wc->status != IBV_WC_WR_FLUSH_ERR) {
        b->why = ep->nic->t->verbs.wc_status_str(wc->status);
        tell(ep, wc);
    }
}

/* The probe of an endpoint has come back: its failure ends the endpoint as that of a slice does. */
static struct rdma_endpoint *take_probe(const struct ibv_wc *wc, int64_t now, bool *failed)
{
    struct rdma_endpoint *ep = (struct rdma_endpoint *)(uintptr_t)(wc->wr_id & ~RDMA_WR_PROBE);

    pthread_mutex_lock(&ep->lock);
    ep->probe = RDMA_PROBE_NONE;
    ep->probe_qp->posted--;
    ep->progress_ns = now;
    *failed = wc->status != IBV_WC_SUCCESS && ep->state != RDMA_EP_DYING;
    pthread_mutex_unlock(&ep->lock);
    return ep;
}

/* ---------------------------------------------------------------------------------------- polling */

/* Endpoints that one poll has touched, each held once. */
struct touched {
    struct rdma_endpoint *ep[RDMA_CHAIN_MAX];
    bool failed[RDMA_CHAIN_MAX];
    size_t n;
};

static void touch(struct touched *t, struct rdma_endpoint *ep, bool failed)
{
    size_t i = t->n;

    while (i > 0 && t->ep[i - 1] != ep)
        i--;
    if (i == 0) {
        tei_rdma_ep_hold(ep);
        t->ep[t->n] = ep;
        t->failed[t->n++] = failed;
    } else {
        t->failed[i - 1] |= failed;
    }
}

/* How many completions there were; *n_back of them are slices. */
static size_t take_all(struct rdma_cq *c, struct rdma_back *back, size_t *n_back, struct touched *t)
{
    struct ibv_wc wcs[RDMA_CHAIN_MAX];
    int n = c->cq ? ibv_poll_cq(c->cq, RDMA_CHAIN_MAX, wcs) : 0;
    int64_t now = n > 0 ? tei_now_ns() : 0;

    *n_back = 0;
    for (int i = 0; i < n; i++) {
        struct rdma_endpoint *ep;
        bool failed;

        if (wcs[i].wr_id & RDMA_WR_PROBE) {
            ep = take_probe(&wcs[i], now, &failed);
        } else {
            take(&wcs[i], now, &back[*n_back], &failed);
            ep = back[(*n_back)++].slice->ep;
        }
        touch(t, ep, failed);
    }
    if (n > 0)
        atomic_fetch_sub(&c->posted, (uint32_t)n);
    return n > 0 ? (size_t)n : 0;
}

static void kick_one(struct rdma_endpoint *ep, void *arg)
{
    (void)arg;
    tei_rdma_ep_kick(ep);
}

size_t tei_rdma_cq_poll(struct rdma_cq *c, bool try)
{
    struct rdma_back back[RDMA_CHAIN_MAX];
    struct touched t = {.n = 0};
    size_t n, n_back;

    if (!try)
        pthread_mutex_lock(&c->lock);
    else if (pthread_mutex_trylock(&c->lock) != 0)
        return 0;
    n = take_all(c, back, &n_back, &t);
    pthread_mutex_unlock(&c->lock);
    for (size_t i = 0; i < t.n; i++)
        if (t.failed[i])
            tei_rdma_ep_fail(t.ep[i], 0, "a completion told an error");
    tei_rdma_back(back, n_back);
    for (size_t i = 0; i < t.n; i++) {
        tei_rdma_ep_kick(t.ep[i]);
        tei_rdma_ep_reap(t.ep[i]);
        tei_rdma_ep_put(t.ep[i]);
    }
    if (n > 0 && atomic_load(&c->starved) && atomic_exchange(&c->starved, false))
        tei_rdma_eps_each(c->nic, kick_one, NULL);
    return n;
}

bool tei_rdma_poll(struct tei_transport *base)
{
    struct rdma *t = tei_rdma_of(base);
    size_t n = 0;

    for (size_t i = 0; i < t->n_nics; i++)
        for (unsigned k = 0; k < t->nics[i].n_cqs; k++)
            if (atomic_load_explicit(&t->nics[i].cqs[k].posted, memory_order_relaxed))
                n += tei_rdma_cq_poll(&t->nics[i].cqs[k], true);
    return n > 0;
}

/* ---------------------------------------------------------------------------------------- threads */

static size_t poll_own(struct rdma_worker *w)
{
    size_t n = 0;

    for (unsigned i = w->index; i < w->nic->n_cqs; i += w->nic->n_workers)
        n += tei_rdma_cq_poll(&w->nic->cqs[i], false);
    return n;
}

static void arm(struct rdma_worker *w)
{
    for (unsigned i = w->index; i < w->nic->n_cqs; i += w->nic->n_workers)
        (void)ibv_req_notify_cq(w->nic->cqs[i].cq, 0);
}

static bool expects_some(const struct rdma_worker *w)
{
    for (unsigned i = w->index; i < w->nic->n_cqs; i += w->nic->n_workers)
        if (atomic_load_explicit(&w->nic->cqs[i].posted, memory_order_relaxed))
            return true;
    return false;
}

static void take_events(struct rdma_worker *w)
{
    const struct tei_verbs *v = &w->nic->t->verbs;
    struct ibv_cq *cq;
    void *context;

    while (v->get_cq_event(w->channel, &cq, &context) == 0) {
        struct rdma_cq *c = context;

        if (++c->unacked >= ACK_MANY) {
            v->ack_cq_events(cq, c->unacked);
            c->unacked = 0;
        }
    }
}

static void sleep_until_told(struct rdma_worker *w)
{
    struct pollfd fds[2] = {{.fd = w->channel->fd, .events = POLLIN},
                            {.fd = w->waker.fd, .events = POLLIN}};

    if (poll(fds, 2, -1) < 0)
        return;
    if (fds[1].revents)
        tei_waker_drain(&w->waker);
    if (fds[0].revents)
        take_events(w);
}

/* Reads "0-3,8"; what is not a list of CPUs is as one without any. */
static void read_cpus(FILE *f, cpu_set_t *out)
{
    unsigned from, to;
    int comma = ',';

    CPU_ZERO(out);
    while (comma == ',' && fscanf(f, "%u", &from) == 1) {
        to = from;
        comma = getc(f);
        if (comma == '-' && fscanf(f, "%u", &to) == 1)
            comma = getc(f);
        for (unsigned i = from; i <= to && i < CPU_SETSIZE; i++)
            CPU_SET(i, out);
    }
}

static bool cpus_of_node(const struct rdma_nic *n, int node, cpu_set_t *out)
{
    char path[TEI_CONF_TEXT + 64];
    FILE *f;

    snprintf(path, sizeof path, "%s/devices/system/node/node%d/cpulist", n->t->conf->sysfs_path,
             node);
    f = fopen(path, "re");
    if (!f)
        return false;
    read_cpus(f, out);
    fclose(f);
    return true;
}

static int node_of(const struct rdma_nic *n)
{
    char path[IBV_SYSFS_PATH_MAX + 32];
    int node = -1;
    FILE *f;

    snprintf(path, sizeof path, "%s/device/numa_node", n->context->device->ibdev_path);
    f = fopen(path, "re");
    if (f && fscanf(f, "%d", &node) != 1)
        node = -1;
    if (f)
        fclose(f);
    return node;
}

/*
 * What a worker reads is written by the NIC into memory of its node: it runs there, as far as this
 * process may. Where nobody says what is near, it runs anywhere.
 */
static void go_near(const struct rdma_nic *n)
{
    cpu_set_t near, may, both;
    int node = node_of(n);

    if (node < 0 || !cpus_of_node(n, node, &near) ||
        pthread_getaffinity_np(pthread_self(), sizeof may, &may) != 0)
        return;
    CPU_AND(&both, &near, &may);
    if (CPU_COUNT(&both) > 0 && !CPU_EQUAL(&both, &may))
        (void)pthread_setaffinity_np(pthread_self(), sizeof both, &both);
}

static void *worker_thread(void *arg)
{
    struct rdma_worker *w = arg;
    int64_t since = 0;

    go_near(w->nic);
    while (!atomic_load_explicit(&w->nic->stopping, memory_order_acquire)) {
        if (poll_own(w) > 0) {
            since = 0;
            continue;
        }
        if (expects_some(w)) {
            int64_t now = tei_now_ns();

            since = since ? since : now;
            if (now - since < SPIN_NS) {
                sched_yield();
                continue;
            }
        }
        since = 0;
        arm(w);
        if (poll_own(w) == 0)
            sleep_until_told(w);
    }
    return NULL;
}

int tei_rdma_workers_start(struct rdma_nic *n)
{
    for (unsigned i = 0; i < n->n_workers; i++) {
        struct rdma_worker *w = &n->workers[i];
        int rc = tei_waker_init(&w->waker);

        if (!rc)
            rc = tei_thread_start(&w->thread, "te/rdma", worker_thread, w);
        if (rc)
            return rc;
        w->running = true;
    }
    return 0;
}

void tei_rdma_workers_stop(struct rdma_nic *n)
{
    /* Release: partner of the acquire in worker_thread(). */
    atomic_store_explicit(&n->stopping, true, memory_order_release);
    for (unsigned i = 0; n->workers && i < n->n_workers; i++) {
        struct rdma_worker *w = &n->workers[i];

        if (w->running) {
            tei_waker_ring(&w->waker);
            pthread_join(w->thread, NULL);
        }
        if (w->waker.fd >= 0)
            tei_waker_fini(&w->waker);
        w->running = false;
        w->waker.fd = -1;
    }
    atomic_store(&n->stopping, false);
}
