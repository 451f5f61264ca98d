/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cq.c - completion queues, completion channels and asynchronous events.
 *
 * The fd of a channel and that of a context's events are eventfds that are readable as long as the
 * queue beside them is not empty. A program waits on them, or sets O_NONBLOCK, as with real ones;
 * it must not read them itself.
 */
#include "fabric/softverbs/fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void raise_fd(int fd)
{
    eventfd_write(fd, 1);
}

static void lower_fd(int fd)
{
    eventfd_t value;

    eventfd_read(fd, &value);
}

/* Waits until the fd is readable. -1 with errno set where it is not to wait, or was interrupted. */
static int wait_fd(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    if (fcntl(fd, F_GETFL) & O_NONBLOCK) {
        errno = EAGAIN;
        return -1;
    }
    return poll(&p, 1, -1) < 0 ? -1 : 0;
}

/* ------------------------------------------------------------------------------------- channels */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct sv_channel *ch;

    if (sv_dead(sv_context_of(context))) {
        errno = EIO;
        return NULL;
    }
    ch = calloc(1, sizeof(*ch));
    if (!ch)
        return NULL;
    ch->channel.context = context;
    ch->channel.fd = eventfd(0, EFD_CLOEXEC);
    if (ch->channel.fd < 0) {
        free(ch);
        return NULL;
    }
    pthread_mutex_init(&ch->lock, NULL);
    return &ch->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    struct sv_channel *ch = (struct sv_channel *)(void *)channel;

    if (channel->refcnt)
        return EBUSY;
    close(channel->fd);
    pthread_mutex_destroy(&ch->lock);
    free(ch->queue);
    free(ch);
    return 0;
}

static void channel_push(struct sv_channel *ch, struct sv_cq *cq)
{
    struct sv_cq **queue;

    pthread_mutex_lock(&ch->lock);
    if (ch->queued == ch->capacity) {
        queue = realloc(ch->queue, (ch->capacity * 2 + 16) * sizeof(struct sv_cq *));
        if (!queue)
            abort(); /* a lost event would be taken for a fault of what is tested */
        ch->queue = queue;
        ch->capacity = ch->capacity * 2 + 16;
    }
    ch->queue[ch->queued++] = cq;
    if (ch->queued == 1)
        raise_fd(ch->channel.fd);
    pthread_mutex_unlock(&ch->lock);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **out, void **cq_context)
{
    struct sv_channel *ch = (struct sv_channel *)(void *)channel;
    struct sv_cq *cq;

    pthread_mutex_lock(&ch->lock);
    while (ch->queued == 0) {
        pthread_mutex_unlock(&ch->lock);
        if (wait_fd(channel->fd))
            return -1;
        pthread_mutex_lock(&ch->lock);
    }
    cq = ch->queue[0];
    memmove(ch->queue, ch->queue + 1, --ch->queued * sizeof(struct sv_cq *));
    if (ch->queued == 0)
        lower_fd(channel->fd);
    cq->comp_events++;
    pthread_mutex_unlock(&ch->lock);
    *out = &cq->cq;
    *cq_context = cq->cq.cq_context;
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += n;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

/* Takes the CQ's events out of the queue; returns how many the program got and must acknowledge. */
static unsigned channel_forget(struct sv_channel *ch, const struct sv_cq *cq)
{
    unsigned kept = 0, got;

    pthread_mutex_lock(&ch->lock);
    for (unsigned i = 0; i < ch->queued; i++)
        if (ch->queue[i] != cq)
            ch->queue[kept++] = ch->queue[i];
    if (kept == 0 && ch->queued > 0)
        lower_fd(ch->channel.fd);
    ch->queued = kept;
    ch->channel.refcnt--;
    got = cq->comp_events;
    pthread_mutex_unlock(&ch->lock);
    return got;
}

/* ------------------------------------------------------------------------------------------ CQs */

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int comp_vector)
{
    struct sv_context *c = sv_context_of(context);
    struct sv_cq *cq;

    errno = sv_dead(c) ? EIO : EINVAL;
    if (sv_dead(c) || cqe < 1 || cqe > c->nic->limits.max_cqe || comp_vector < 0 ||
        comp_vector >= context->num_comp_vectors)
        return NULL;
    if (sv_denied(c->nic, SV_DENY_create_cq))
        return NULL;
    errno = ENOMEM;
    cq = c->n_cq < c->nic->limits.max_cq ? calloc(1, sizeof(*cq)) : NULL;
    if (!cq)
        return NULL;
    cq->ring = calloc((size_t)cqe, sizeof(*cq->ring));
    if (!cq->ring) {
        free(cq);
        return NULL;
    }
    cq->ctx = c;
    cq->size = (uint32_t)cqe;
    cq->cq.context = context;
    cq->cq.channel = channel;
    cq->cq.cq_context = cq_context;
    cq->cq.cqe = cqe;
    pthread_mutex_init(&cq->cq.mutex, NULL);
    pthread_cond_init(&cq->cq.cond, NULL);
    pthread_mutex_init(&cq->lock, NULL);
    pthread_mutex_lock(&c->f->objects);
    if (channel)
        channel->refcnt++;
    cq->next = c->f->cqs;
    c->f->cqs = cq;
    c->n_cq++;
    atomic_fetch_add(&c->counters->cqs, 1);
    pthread_mutex_unlock(&c->f->objects);
    return &cq->cq;
}

struct ibv_cq_ex *sv_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
    (void)context, (void)attr;
    errno = EOPNOTSUPP;
    return NULL;
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
    (void)cq, (void)cqe;
    return EOPNOTSUPP;
}

/* Off the lists, so that nothing is put into it any more; returns how many of the events that the
 * program got are to be acknowledged. */
static unsigned detach_cq(struct sv_cq *cq)
{
    struct sv_fabric *f = cq->ctx->f;
    unsigned comp = 0;
    struct sv_cq **at;

    pthread_mutex_lock(&f->objects);
    for (at = &f->cqs; *at && *at != cq; at = &(*at)->next)
        continue;
    if (*at)
        *at = cq->next;
    cq->ctx->n_cq--;
    if (!f->forked)
        atomic_fetch_sub(&cq->ctx->counters->cqs, 1);
    pthread_mutex_unlock(&f->objects);
    if (cq->cq.channel)
        comp = channel_forget((struct sv_channel *)(void *)cq->cq.channel, cq);
    sv_async_forget(cq->ctx, &cq->cq);
    return comp;
}

static void free_cq(struct sv_cq *cq)
{
    pthread_mutex_destroy(&cq->cq.mutex);
    pthread_cond_destroy(&cq->cq.cond);
    pthread_mutex_destroy(&cq->lock);
    free(cq->ring);
    free(cq);
}

int ibv_destroy_cq(struct ibv_cq *ibcq)
{
    struct sv_cq *cq = sv_cq_of(ibcq);
    unsigned comp;

    if (cq->users)
        return EBUSY;
    comp = detach_cq(cq);
    pthread_mutex_lock(&ibcq->mutex);
    while (ibcq->comp_events_completed != comp || ibcq->async_events_completed != cq->async_events)
        pthread_cond_wait(&ibcq->cond, &ibcq->mutex);
    pthread_mutex_unlock(&ibcq->mutex);
    free_cq(cq);
    return 0;
}

static struct sv_cq *first_cq(struct sv_context *c)
{
    struct sv_cq *cq;

    pthread_mutex_lock(&c->f->objects);
    for (cq = c->f->cqs; cq && cq->ctx != c; cq = cq->next)
        continue;
    pthread_mutex_unlock(&c->f->objects);
    return cq;
}

void sv_cqs_abandon(struct sv_context *c)
{
    struct sv_cq *cq;

    while ((cq = first_cq(c))) {
        detach_cq(cq);
        free_cq(cq);
    }
}

static void tell_broken(struct sv_cq *cq)
{
    struct ibv_async_event event = {.event_type = IBV_EVENT_CQ_ERR, .element.cq = &cq->cq};

    sv_async_push(cq->ctx, event);
    atomic_store(&cq->ctx->f->cq_overrun, true);
    sv_ring(cq->ctx->f->me);
}

/* False when the CQ is full or was broken before. The first time it is full, the program is told;
 * the engine then breaks the QPs that use it. */
bool sv_cq_push(struct sv_cq *cq, const struct sv_cqe *cqe, bool solicited)
{
    bool full, notify = false;
    uint32_t at;

    pthread_mutex_lock(&cq->lock);
    full = cq->count == cq->size && !cq->dead;
    if (full)
        cq->dead = true;
    if (cq->dead) {
        pthread_mutex_unlock(&cq->lock);
        if (full)
            tell_broken(cq);
        return false;
    }
    at = cq->head + cq->count++;
    cq->ring[at < cq->size ? at : at - cq->size] = *cqe;
    if (cq->armed && (!cq->solicited_only || solicited || cqe->wc.status != IBV_WC_SUCCESS)) {
        cq->armed = false;
        notify = cq->cq.channel != NULL;
    }
    if (notify) /* under the lock: the CQ may be destroyed as soon as its entry is polled */
        channel_push((struct sv_channel *)(void *)cq->cq.channel, cq);
    pthread_mutex_unlock(&cq->lock);
    return true;
}

/* The entries of a QP that is reset or destroyed leave the queue. */
void sv_cq_clean(struct sv_cq *cq, const struct sv_qp *qp)
{
    uint32_t kept = 0;

    pthread_mutex_lock(&cq->lock);
    for (uint32_t i = 0; i < cq->count; i++) {
        struct sv_cqe *from = &cq->ring[(cq->head + i) % cq->size];

        if (from->qp != qp)
            cq->ring[(cq->head + kept++) % cq->size] = *from;
    }
    cq->count = kept;
    pthread_mutex_unlock(&cq->lock);
}

/* Breaks the CQ as an overrun does. */
void sv_cq_fail(struct sv_cq *cq)
{
    bool first;

    pthread_mutex_lock(&cq->lock);
    first = !cq->dead;
    cq->dead = true;
    pthread_mutex_unlock(&cq->lock);
    if (first)
        tell_broken(cq);
}

/* A work request's place in its queue is free again only when a completion at or behind it was
 * polled, as on real NICs: a queue of unsignaled requests alone fills up and stays full. */
static void free_place(const struct sv_cqe *cqe)
{
    _Atomic uint32_t *freed = cqe->recv ? &cqe->qp->rq_freed : &cqe->qp->sq_freed;

    atomic_store_explicit(freed, cqe->index + 1, memory_order_release);
}

int sv_poll_cq(struct ibv_cq *ibcq, int n, struct ibv_wc *wc)
{
    struct sv_cq *cq = sv_cq_of(ibcq);
    int got = 0;

    pthread_mutex_lock(&cq->lock);
    for (; got < n && cq->count > 0; got++) {
        wc[got] = cq->ring[cq->head].wc;
        free_place(&cq->ring[cq->head]);
        cq->count--;
        if (++cq->head == cq->size)
            cq->head = 0;
    }
    pthread_mutex_unlock(&cq->lock);
    return got;
}

int sv_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
    struct sv_cq *cq = sv_cq_of(ibcq);

    if (sv_dead(cq->ctx))
        return EIO;
    pthread_mutex_lock(&cq->lock);
    cq->solicited_only = solicited_only && (!cq->armed || cq->solicited_only);
    cq->armed = true;
    pthread_mutex_unlock(&cq->lock);
    return 0;
}

/* ----------------------------------------------------------------------------------- async events */

void sv_async_push(struct sv_context *c, struct ibv_async_event event)
{
    struct sv_async *e = calloc(1, sizeof(*e));

    if (!e)
        abort();
    e->event = event;
    pthread_mutex_lock(&c->lock);
    if (!c->events)
        raise_fd(c->v.context.async_fd);
    *c->events_end = e;
    c->events_end = &e->next;
    pthread_mutex_unlock(&c->lock);
}

/* The unacknowledged events that the program got are counted in the object they concern. */
static void count_event(const struct ibv_async_event *event)
{
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
        sv_cq_of(event->element.cq)->async_events++;
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
        sv_qp_of(event->element.qp)->async_events++;
        break;
    default:
        break;
    }
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    struct sv_context *c = sv_context_of(context);
    struct sv_async *e;

    pthread_mutex_lock(&c->lock);
    while (!c->events) {
        pthread_mutex_unlock(&c->lock);
        if (wait_fd(context->async_fd))
            return -1;
        pthread_mutex_lock(&c->lock);
    }
    e = c->events;
    c->events = e->next;
    if (!c->events) {
        c->events_end = &c->events;
        lower_fd(context->async_fd);
    }
    *event = e->event;
    count_event(event);
    pthread_mutex_unlock(&c->lock);
    free(e);
    return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    struct ibv_cq *cq = event->element.cq;
    struct ibv_qp *qp = event->element.qp;

    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
        pthread_mutex_lock(&cq->mutex);
        cq->async_events_completed++;
        pthread_cond_signal(&cq->cond);
        pthread_mutex_unlock(&cq->mutex);
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
        pthread_mutex_lock(&qp->mutex);
        qp->events_completed++;
        pthread_cond_signal(&qp->cond);
        pthread_mutex_unlock(&qp->mutex);
        break;
    default:
        break;
    }
}

/* Events about an object that is being destroyed leave the queue. Every element of the union that
 * points to an object is at the same place. */
void sv_async_forget(struct sv_context *c, const void *object)
{
    struct sv_async **at, *e;

    pthread_mutex_lock(&c->lock);
    for (at = &c->events; (e = *at);) {
        if (e->event.element.cq != object) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        free(e);
        if (!c->events)
            lower_fd(c->v.context.async_fd);
    }
    c->events_end = at;
    pthread_mutex_unlock(&c->lock);
}
