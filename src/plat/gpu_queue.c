/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_queue.c - queues of copies.
 *
 * A queue is a stream of the driver and a ring of events; the event of ticket t is in the ring at t
 * modulo TEI_GPU_MARKS. Three numbers say where it stands: ended <= tickets that are over, and known
 * to be, <= last. What comes after `ended` may be under way, so its events are not recorded again.
 *
 * A copy that the driver refuses is the caller's problem only: what was submitted with it has ended
 * before the call returns, and the queue goes on. An error that comes later (the driver's word on an
 * event, or on the stream) breaks the queue: CUDA and HIP do not say which of the copies in the
 * stream it was, and after most such errors the device does nothing for this process any more.
 */
#include "plat/gpu.h"

#include "base/err.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct tei_gpu_queue {
    const struct tei_driver *row;
    enum tei_mem_kind kind;
    int device;
    void *stream;
    void *events[TEI_GPU_MARKS];
    uint64_t ended, last;
    bool broken;
    char why[256]; /* it is broken */
};

/* ------------------------------------------------------------------------------- opening and closing */

static void close_all(struct tei_gpu_queue *q)
{
    for (size_t i = 0; i < TEI_GPU_MARKS; i++)
        if (q->events[i])
            (void)q->row->api->event_close(q->row, q->events[i]);
    if (q->stream)
        (void)q->row->api->stream_close(q->row, q->stream);
}

static int open_all(struct tei_gpu_queue *q)
{
    int status = q->row->api->stream_open(q->row, &q->stream);

    for (size_t i = 0; !status && i < TEI_GPU_MARKS; i++)
        status = q->row->api->event_open(q->row, &q->events[i]);
    if (!status)
        return 0;
    close_all(q);
    return TEI_FAIL(TE_ERR_CONTEXT, "a stream of %s:%d: %s", q->row->name, q->device,
                    tei_gpu_why(q->row, status));
}

int tei_gpu_queue_open(enum tei_mem_kind kind, int device, struct tei_gpu_queue **out)
{
    int was, rc = tei_gpu_enter(kind, device, &was);
    struct tei_gpu_queue *q;

    if (rc)
        return rc;
    q = calloc(1, sizeof(*q));
    if (q) {
        q->row = tei_driver_open(kind);
        q->kind = kind;
        q->device = device;
    }
    rc = q ? open_all(q) : TEI_FAIL(TE_ERR_MEMORY, "no memory for a queue of copies");
    tei_driver_open(kind)->api->leave(tei_driver_open(kind), was);
    if (rc)
        free(q);
    else
        *out = q;
    return rc;
}

void tei_gpu_queue_close(struct tei_gpu_queue *q)
{
    int was;

    if (!q)
        return;
    if (tei_gpu_enter(q->kind, q->device, &was) == 0) {
        (void)q->row->api->stream_wait(q->row, q->stream);
        close_all(q);
        q->row->api->leave(q->row, was);
    }
    free(q);
}

/* ------------------------------------------------------------------------------------------ errors */

static int fail_broken(const struct tei_gpu_queue *q)
{
    return tei_err_keep(TE_ERR_CONTEXT, q->why);
}

/* Waits until nothing is under way, which a driver in error says at once. */
static int break_queue(struct tei_gpu_queue *q, int status)
{
    (void)q->row->api->stream_wait(q->row, q->stream);
    q->broken = true;
    snprintf(q->why, sizeof(q->why), "copying on %s:%d: %s", q->row->name, q->device,
             tei_gpu_why(q->row, status));
    return TEI_FAIL(TE_ERR_CONTEXT, "%s", q->why);
}

/* Some copy was refused: those before it end here. */
static int refuse(struct tei_gpu_queue *q, int refused)
{
    int status = q->row->api->stream_wait(q->row, q->stream);

    if (status)
        return break_queue(q, status);
    return TEI_FAIL(TE_ERR_CONTEXT, "%s:%d refuses a copy: %s", q->row->name, q->device,
                    tei_gpu_why(q->row, refused));
}

/* ------------------------------------------------------------------------------------------ copying */

/*
 * The driver's status. Copies that follow each other on both sides are not made one: they may be of
 * allocations that happen to adjoin, and no copy may leave its allocation.
 */
static int submit(struct tei_gpu_queue *q, const struct tei_copy *v, size_t n)
{
    struct tei_copy batch[TEI_GPU_BATCH];
    size_t m = 0;
    int status = 0;

    for (size_t i = 0; !status && i < n; i++) {
        if (v[i].n == 0)
            continue;
        if (m == TEI_GPU_BATCH) {
            status = q->row->api->copy(q->row, batch, m, q->stream);
            m = 0;
        }
        batch[m++] = v[i];
    }
    return status || m == 0 ? status : q->row->api->copy(q->row, batch, m, q->stream);
}

int tei_gpu_queue_copy(struct tei_gpu_queue *q, const struct tei_copy *v, size_t n,
                       uint64_t *ticket)
{
    int was, status, rc;

    if (q->broken)
        return fail_broken(q);
    if (q->last - q->ended == TEI_GPU_MARKS)
        return TE_ERR_BUSY;
    rc = tei_gpu_enter(q->kind, q->device, &was);
    if (rc)
        return rc;
    status = submit(q, v, n);
    if (status) {
        rc = refuse(q, status);
    } else {
        status =
            q->row->api->event_record(q->row, q->events[(q->last + 1) % TEI_GPU_MARKS], q->stream);
        rc = status ? break_queue(q, status) : 0;
    }
    q->row->api->leave(q->row, was);
    if (!rc)
        *ticket = ++q->last;
    return rc;
}

/* Asks about a ticket by `ask`, which is event_query or event_wait. */
static int ask_about(struct tei_gpu_queue *q, uint64_t ticket,
                     int (*ask)(const struct tei_driver *d, void *event))
{
    int was, status, rc;

    if (ticket <= q->ended)
        return 0;
    if (ticket > q->last)
        return TEI_FAIL(TE_ERR_INVALID, "ticket %llu has not been given out",
                        (unsigned long long)ticket);
    if (q->broken)
        return fail_broken(q);
    rc = tei_gpu_enter(q->kind, q->device, &was);
    if (rc)
        return rc;
    status = ask(q->row, q->events[ticket % TEI_GPU_MARKS]);
    if (status == 0)
        q->ended = ticket;
    else if (status == TEI_GPU_NOT_READY)
        rc = TE_ERR_BUSY;
    else
        rc = break_queue(q, status);
    q->row->api->leave(q->row, was);
    return rc;
}

int tei_gpu_queue_poll(struct tei_gpu_queue *q, uint64_t ticket)
{
    return ask_about(q, ticket, q->row->api->event_query);
}

int tei_gpu_queue_wait(struct tei_gpu_queue *q, uint64_t ticket)
{
    return ask_about(q, ticket, q->row->api->event_wait);
}

/* ---------------------------------------------------------------------------------- queues to borrow */

#define IDLE 4 /* of a device */

static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tei_gpu_queue *idle[TEI_MEM_KINDS][TEI_GPU_DEVICES][IDLE];

int tei_gpu_queue_borrow(enum tei_mem_kind kind, int device, struct tei_gpu_queue **out)
{
    struct tei_gpu_queue *q = NULL;

    if (device < 0 || device >= tei_gpu_count(kind))
        return tei_gpu_queue_open(kind, device, out);
    pthread_mutex_lock(&idle_lock);
    for (size_t i = 0; i < IDLE && !q; i++) {
        q = idle[kind][device][i];
        idle[kind][device][i] = NULL;
    }
    pthread_mutex_unlock(&idle_lock);
    if (!q)
        return tei_gpu_queue_open(kind, device, out);
    *out = q;
    return 0;
}

void tei_gpu_queue_return(struct tei_gpu_queue *q)
{
    struct tei_gpu_queue **place = NULL;

    pthread_mutex_lock(&idle_lock);
    for (size_t i = 0; !q->broken && i < IDLE && !place; i++)
        if (!idle[q->kind][q->device][i])
            place = &idle[q->kind][q->device][i];
    if (place)
        *place = q;
    pthread_mutex_unlock(&idle_lock);
    if (!place)
        tei_gpu_queue_close(q);
}

int tei_gpu_queue_zero(struct tei_gpu_queue *q, void *addr, size_t length)
{
    int was, status, rc = tei_gpu_enter(q->kind, q->device, &was);

    if (rc)
        return rc;
    status = q->row->api->zero(q->row, addr, length, q->stream);
    if (!status)
        status = q->row->api->stream_wait(q->row, q->stream);
    if (status)
        rc = break_queue(q, status);
    q->row->api->leave(q->row, was);
    return rc;
}
