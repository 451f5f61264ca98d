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
#include "base/os.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPIN_NS     100000 /* of a wait, */
#define NAP_NS      50000  /* and then it naps, */
#define LONG_NS     5000000
#define LONG_NAP_NS 500000 /* after LONG_NS longer */

struct tei_gpu_queue {
    const struct tei_driver *row;
    enum tei_mem_kind kind;
    int device;
    void *stream;
    void *events[TEI_GPU_MARKS];
    uint64_t ended, last;
    bool kernels; /* small copies by these */
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

void tei_gpu_queue_use_kernels(struct tei_gpu_queue *q)
{
    int was;

    if (!q->row->api->scatter || tei_gpu_enter(q->kind, q->device, &was) != 0)
        return;
    q->kernels = q->row->api->scatter(q->row, q->device, NULL, 0, q->stream) == 0;
    q->row->api->leave(q->row, was);
}

bool tei_gpu_queue_is_broken(const struct tei_gpu_queue *q)
{
    return q->broken;
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

/* -------------------------------------------------------------------------------- memory that has gone */

/* An allocation of the device; size 0: none. */
struct range {
    uintptr_t base;
    size_t size;
};

/* Sets *out to the allocation, or the mapping, that the address is in, size 0: not said. Whether there is one. */
static bool ask(const struct tei_gpu_queue *q, uintptr_t addr, struct range *out)
{
    const struct tei_api *api = q->row->api;
    struct tei_gpu_seen seen;
    int status = api->look(q->row, (void *)addr, &seen);

    *out = (struct range){0, 0};
    if (status == TEI_GPU_INVALID_VALUE || (!status && !seen.on_device && !seen.managed))
        return false;
    if (!status && api->range(q->row, (void *)addr, &out->base, &out->size) != 0)
        out->size = 0;
    return true;
}

/*
 * Whether the driver still knows all of it: memory that was mapped in pieces may have lost one. *last: what was
 * asked about last. A driver that has failed says so when it is given the copy.
 */
static bool is_there(const struct tei_gpu_queue *q, const void *p, size_t n, struct range *last)
{
    uintptr_t at = (uintptr_t)p, end = at + n;

    while (at < end) {
        if (at - last->base >= last->size && !ask(q, at, last))
            return false;
        if (last->size == 0 || at - last->base >= last->size)
            return true;
        at = last->base + last->size;
    }
    return true;
}

static int find_gone(const struct tei_gpu_queue *q, const struct tei_copy *v, size_t n)
{
    struct range to = {0, 0}, from = {0, 0};
    const void *gone = NULL;

    for (size_t i = 0; i < n && !gone; i++) {
        if (v[i].to_device && !is_there(q, v[i].to, v[i].n, &to))
            gone = v[i].to;
        else if (v[i].from_device && !is_there(q, v[i].from, v[i].n, &from))
            gone = v[i].from;
    }
    if (!gone)
        return 0;
    return TEI_FAIL(TE_ERR_CONTEXT,
                    "%p is no memory of %s:%d any more: unregister memory before it is freed", gone,
                    q->row->name, q->device);
}

/* ------------------------------------------------------------------------------------------ copying */

static int copy_batch(struct tei_gpu_queue *q, const struct tei_copy *v, size_t n)
{
    const struct tei_api *api = q->row->api;
    int status = TEI_GPU_NOT_SUPPORTED;

    if (n > 1 && q->kernels)
        status = api->scatter(q->row, q->device, v, n, q->stream);
    return status == TEI_GPU_NOT_SUPPORTED ? api->copy(q->row, v, n, q->stream) : status;
}

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
            status = copy_batch(q, batch, m);
            m = 0;
        }
        batch[m++] = v[i];
    }
    return status || m == 0 ? status : copy_batch(q, batch, m);
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
    rc = find_gone(q, v, n);
    status = rc ? 0 : submit(q, v, n);
    if (rc) {
        /* nothing was submitted */
    } else if (status) {
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

int tei_gpu_queue_poll(struct tei_gpu_queue *q, uint64_t ticket)
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
    status = q->row->api->event_query(q->row, q->events[ticket % TEI_GPU_MARKS]);
    if (status == 0)
        q->ended = ticket;
    else if (status == TEI_GPU_NOT_READY)
        rc = TE_ERR_BUSY;
    else
        rc = break_queue(q, status);
    q->row->api->leave(q->row, was);
    return rc;
}

/*
 * A driver can put the thread to sleep, and wakes it up 50 us after the copy has ended, by an interrupt and a
 * thread of its own; a short copy takes 10 us.
 */
int tei_gpu_queue_wait(struct tei_gpu_queue *q, uint64_t ticket)
{
    static const struct timespec nap = {.tv_nsec = NAP_NS}, long_nap = {.tv_nsec = LONG_NAP_NS};
    int64_t now, start = tei_now_ns();
    int rc;

    while ((rc = tei_gpu_queue_poll(q, ticket)) == TE_ERR_BUSY) {
        now = tei_now_ns();
        if (now - start < SPIN_NS)
            sched_yield();
        else
            nanosleep(now - start < LONG_NS ? &nap : &long_nap, NULL);
    }
    return rc;
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
