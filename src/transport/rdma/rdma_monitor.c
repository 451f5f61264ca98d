/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_monitor.c - one thread that hears what devices tell and looks after what no completion comes
 * for.
 *
 * Devices tell when a port goes down or comes up and when something of theirs broke. A NIC that is
 * down loses its endpoints at once, which brings their slices back for other rails, and peers get a
 * descriptor without it. One that does not answer when it is asked for its port is asked again, for no
 * event tells that it does.
 *
 * While work is under way, or an endpoint on its way up or down, it ticks: endpoints without a
 * completion for too long are failed (a port may be dead without telling, here or there), deadlines
 * are kept, and rails whose pause is over are tried. Otherwise it sleeps.
 */
#include "transport/rdma/rdma.h"

#include <errno.h>
#include <sys/epoll.h>

#define REPAIR_NS (500 * TEI_NS_PER_MS)

/* ----------------------------------------------------------------------------------------- events */

static void fail_one(struct rdma_endpoint *ep, void *why)
{
    tei_rdma_ep_fail(ep, TE_ERR_CONTEXT, why);
}

/* No completion is to be hoped for. */
static void lose_endpoints(struct rdma_nic *n, const char *why)
{
    tei_rdma_eps_each(n, fail_one, (void *)(uintptr_t)why);
    tei_rdma_monitor_wake(n->t);
}

static void on_repair(struct tei_timer *timer);

static void repair_later(struct rdma *t)
{
    tei_timer_set(&t->monitor, &t->repair, tei_now_ns() + REPAIR_NS, on_repair);
}

/* Its device, or a queue of it, works no more: it is opened anew once nothing uses it. */
static void lose_nic(struct rdma_nic *n, const char *why)
{
    atomic_store(&n->broken, true);
    tei_rdma_nic_set_active(n, false, why);
    lose_endpoints(n, why);
    n->t->base.host->changed(n->t->base.host);
    repair_later(n->t);
}

static void look_again(struct rdma_nic *n)
{
    bool changed;

    if (atomic_load(&n->broken)) /* its port may be up all the same */
        return;
    changed = tei_rdma_nic_look(n);
    if (n->silent) /* no event tells that it answers again */
        repair_later(n->t);
    if (!changed)
        return;
    if (!atomic_load(&n->active))
        lose_endpoints(n, "its NIC cannot be used now");
    n->t->base.host->changed(n->t->base.host);
    tei_rdma_monitor_wake(n->t);
}

/* If it is the endpoint that the event is about; it may be gone by now. */
static void fail_that(struct rdma_endpoint *ep, void *owner)
{
    if (ep == owner)
        tei_rdma_ep_fail(ep, TE_ERR_LINK, "a queue pair has failed");
}

static bool is_of_qp(enum ibv_event_type type)
{
    return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
           type == IBV_EVENT_QP_ACCESS_ERR;
}

static void on_event(struct rdma_nic *n, enum ibv_event_type type, void *owner)
{
    TEI_INFO("rdma: NIC %s tells: %s", n->name, n->t->verbs.event_type_str(type));
    switch (type) {
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
        look_again(n);
        break;
    case IBV_EVENT_GID_CHANGE:
        if (tei_rdma_nic_reread(n)) {
            lose_endpoints(n, "its GID has changed");
            n->t->base.host->changed(n->t->base.host);
        }
        look_again(n);
        break;
    case IBV_EVENT_DEVICE_FATAL:
        lose_nic(n, "the device has failed");
        break;
    case IBV_EVENT_CQ_ERR:
        lose_nic(n, "a completion queue has failed");
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        tei_rdma_eps_each(n, fail_that, owner);
        break;
    default:
        break;
    }
}

static void on_async(struct tei_watch *w, uint32_t events)
{
    struct rdma_nic *n = tei_container_of(w, struct rdma_nic, async_watch);
    const struct tei_verbs *v = &n->t->verbs;
    struct ibv_async_event e;

    (void)events;
    while (v->get_async_event(n->context, &e) == 0) {
        void *owner = is_of_qp(e.event_type) ? e.element.qp->qp_context : NULL;

        /* Before it is handled: a queue pair is not destroyed while an event of it is out. */
        v->ack_async_event(&e);
        on_event(n, e.event_type, owner);
    }
}

static int watch(struct rdma_nic *n)
{
    return tei_watch_add(&n->t->monitor, &n->async_watch, n->context->async_fd, EPOLLIN, on_async);
}

/* Opens it anew; false if it is to be tried again. */
static bool repair(struct rdma_nic *n)
{
    bool whole;

    tei_watch_del(&n->async_watch);
    whole = tei_rdma_nic_repair(n);
    if (n->context && watch(n) != 0 && whole) {
        lose_nic(n, "what it tells cannot be heard");
        whole = false;
    }
    if (whole)
        n->t->base.host->changed(n->t->base.host);
    return whole && !n->silent;
}

static void on_repair(struct tei_timer *timer)
{
    struct rdma *t = tei_container_of(timer, struct rdma, repair);
    bool again = false;

    for (size_t i = 0; i < t->n_nics; i++) {
        struct rdma_nic *n = &t->nics[i];

        if (atomic_load(&n->broken))
            again |= !repair(n);
        else if (n->silent)
            look_again(n);
    }
    if (again)
        repair_later(t);
}

/* ------------------------------------------------------------------------------------------ ticks */

struct look {
    int64_t now;
    bool restless; /* there is an endpoint on its way up or down */
    bool closing;  /* what was made while close() ended the others is ended here */
};

/*
 * How long an endpoint may be without a completion: a fixed time, and that for what is ahead of its
 * next one, should the NIC be a quarter as fast as it is said to be. The endpoint's lock is held.
 */
static int64_t watchdog_ns(const struct rdma_endpoint *ep)
{
    const struct rdma_nic *n = ep->nic;
    uint64_t ahead = tei_path_nic_bytes(&n->t->path_nics, n->index);
    const struct rdma_slice *first = tei_rdma_slice_of(tei_list_first(&ep->posted));

    ahead = 4 * ahead + 64 * (uint64_t)first->part.length;
    return RDMA_WATCHDOG_NS + (int64_t)((double)ahead / (double)n->nominal_bps * TEI_NS_PER_S);
}

static const char *what_is_wrong(const struct rdma_endpoint *ep, int64_t now)
{
    bool works = ep->state == RDMA_EP_READY || (ep->state == RDMA_EP_DYING && ep->draining);

    if (works && ep->probe != RDMA_PROBE_NONE && now - ep->probe_ns > RDMA_PROBE_NS &&
        now - ep->progress_ns > RDMA_PROBE_NS)
        return "the peer's queue pairs do not answer";
    if (works && ep->n_posted > 0 && now - ep->progress_ns > watchdog_ns(ep))
        return "no completion for too long";
    if (ep->state == RDMA_EP_WAIT_ACK && now > ep->wait_until_ns)
        return "the peer did not say that it is ready";
    return NULL;
}

/* Takes what it holds by now, though more may come meanwhile. */
static void poll_dry(struct rdma_cq *c)
{
    for (uint32_t i = 0; i <= c->depth / RDMA_CHAIN_MAX; i++)
        if (tei_rdma_cq_poll(c, false) == 0)
            return;
}

static const char *examine(struct rdma_endpoint *ep, struct look *l)
{
    const char *wrong;

    pthread_mutex_lock(&ep->lock);
    wrong = what_is_wrong(ep, l->now);
    l->restless |=
        (ep->state != RDMA_EP_READY && ep->state != RDMA_EP_NEW) || ep->probe != RDMA_PROBE_NONE;
    pthread_mutex_unlock(&ep->lock);
    return wrong;
}

static void look_at(struct rdma_endpoint *ep, void *arg)
{
    struct look *l = arg;
    const char *wrong;

    if (l->closing) {
        tei_rdma_ep_fail(ep, 0, "this engine is closing");
        return;
    }
    wrong = examine(ep, l);
    if (wrong) {
        /* It may be our worker that gets no processor, and not the device that is silent. */
        for (unsigned i = 0; i < ep->nic->n_cqs; i++)
            poll_dry(&ep->nic->cqs[i]);
        wrong = examine(ep, l);
    }
    if (wrong)
        tei_rdma_ep_fail(ep, TE_ERR_LINK, wrong);
    else
        tei_rdma_ep_kick(ep);
    tei_rdma_connect(ep); /* one whose time has come */
    tei_rdma_ep_reap(ep);
}

static void tick_peer(struct rdma_peer *p, void *arg)
{
    const struct look *l = arg;

    tei_rdma_peer_tick(p, l->now);
}

static void on_tick(struct tei_timer *timer)
{
    struct rdma *t = tei_container_of(timer, struct rdma, tick);
    struct look l = {.now = tei_now_ns()};

    atomic_store(&t->wanted, false); /* what was asked for before is looked at now */
    l.closing = l.restless = atomic_load(&t->closing);
    for (size_t i = 0; i < t->n_nics; i++) {
        tei_rdma_eps_each(&t->nics[i], look_at, &l);
        tei_rdma_ep_make_room(&t->nics[i], 0);
        tei_rdma_nic_measure(&t->nics[i], l.now);
    }
    tei_rdma_peers_each(t, tick_peer, &l); /* takes each peer's lock: see post_to_one() */
    if (!l.restless && atomic_load(&t->n_work) == 0) {
        /* Sequentially consistent, as in monitor_wake(): one of the two sees the other. */
        atomic_store(&t->ticking, false);
        if (!atomic_load(&t->wanted) || atomic_exchange(&t->ticking, true))
            return;
    }
    tei_timer_set(&t->monitor, timer, l.now + RDMA_TICK_NS, on_tick);
}

static void on_wake(struct tei_call *c)
{
    struct rdma *t = tei_container_of(c, struct rdma, wake);

    tei_timer_set(&t->monitor, &t->tick, tei_now_ns() + RDMA_TICK_NS, on_tick);
}

void tei_rdma_monitor_wake(struct rdma *t)
{
    if (!atomic_load(&t->wanted))
        atomic_store(&t->wanted, true);
    if (!atomic_load(&t->ticking) && !atomic_exchange(&t->ticking, true))
        tei_loop_call(&t->monitor, &t->wake, on_wake);
}

/* ----------------------------------------------------------------------------------------- thread */

int tei_rdma_monitor_start(struct rdma *t)
{
    int rc = tei_loop_init(&t->monitor, NULL);

    if (!rc)
        rc = tei_loop_set_aside(&t->monitor, 2); /* repair and tick */
    for (size_t i = 0; !rc && i < t->n_nics; i++)
        if (t->nics[i].context)
            rc = tei_watch_add(&t->monitor, &t->nics[i].async_watch, t->nics[i].context->async_fd,
                               EPOLLIN, on_async);
    for (size_t i = 0; !rc && i < t->n_nics; i++)
        if (t->nics[i].silent)
            repair_later(t);
    return rc ? rc : tei_loop_start(&t->monitor, "te/rdma-mon");
}

void tei_rdma_monitor_stop(struct rdma *t)
{
    tei_loop_join(&t->monitor);
    if (!t->monitor.open)
        return;
    for (size_t i = 0; i < t->n_nics; i++)
        tei_watch_del(&t->nics[i].async_watch);
    tei_timer_stop(&t->monitor, &t->tick);
    tei_timer_stop(&t->monitor, &t->repair);
    tei_loop_fini(&t->monitor);
}
