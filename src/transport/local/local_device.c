/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_device.c - copies within this engine of which one side at least is memory of a device.
 *
 * They go to a mover (plat.h), whose thread begins with the first region of such memory: an engine
 * without has none. A copy between two devices of one kind is put in a queue of the source's. There
 * is none between devices of two makers: such requests are staged before they come here. What overlaps
 * within a device has no defined result, not even for memmove's sake: the driver promises nothing.
 *
 * A region of host memory is pinned as a whole once a copy between it and a device is posted, which
 * may take a second for each few gigabytes. So a job of the host's does it, and copies that come
 * meanwhile go on without, slower. If the driver refuses, so do all. A region's pin stays until
 * region_del(). It is known by keys[] from the first post until then, and is
 *   ASKED     the job has not begun; a region that goes leaves it behind as DROPPED, to the job;
 *   RUNNING   the driver is at it; region_del() waits;
 *   PINNED, REFUSED.
 * After close the copies may still be under way when the regions go, so stop() undoes the pins, and
 * fini() frees them.
 *
 * `lock` guards all of struct local_devices, pins, and this transport's keys[] of regions.
 */
#include "base/err.h"
#include "base/os.h"
#include "transport/local/local.h"

#include <stdlib.h>

enum pin_state { ASKED, DROPPED, RUNNING, PINNED, REFUSED };

struct pin {
    struct tei_job job;
    struct tei_link link;
    struct local_devices *devices;
    enum pin_state state;
    enum tei_mem_kind kind;
    void *addr;
    size_t length;
};

/* ------------------------------------------------------------------------------------------ pins */

static struct pin *pin_of(struct tei_link *link)
{
    return tei_container_of(link, struct pin, link);
}

/* No copy uses it, and no job is at it. */
static void undo_pin(struct pin *p)
{
    if (p->state == PINNED)
        tei_gpu_unpin(p->kind, p->addr);
    p->state = REFUSED;
}

static void run_pin(struct tei_job *j)
{
    struct pin *p = tei_container_of(j, struct pin, job);
    struct local_devices *d = p->devices;
    int rc;

    pthread_mutex_lock(&d->lock);
    if (p->state == DROPPED) {
        tei_list_del(&p->link);
        free(p);
    } else {
        p->state = RUNNING;
        pthread_mutex_unlock(&d->lock);
        rc = tei_gpu_pin(p->kind, p->addr, p->length);
        pthread_mutex_lock(&d->lock);
        p->state = rc ? REFUSED : PINNED;
    }
    d->jobs--;
    pthread_cond_broadcast(&d->quiet);
    pthread_mutex_unlock(&d->lock);
}

/* The region's new pin; NULL if it has one, is to have none, or memory is out. Lock held. */
static struct pin *make_pin(struct local_devices *d, struct tei_region *r, enum tei_mem_kind kind)
{
    void **key = &r->keys[d->transport->index];
    struct pin *p = *key || d->closed ? NULL : calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->devices = d;
    p->kind = kind;
    p->addr = (void *)r->addr;
    p->length = r->length;
    tei_list_push_back(&d->pins, &p->link);
    d->jobs++;
    *key = p;
    return p;
}

static void pin(struct local_devices *d, struct tei_region *r, enum tei_mem_kind kind)
{
    struct tei_host *h = d->transport->host;
    struct pin *p;

    if (!h->conf->gpu_pin)
        return;
    pthread_mutex_lock(&d->lock);
    p = make_pin(d, r, kind);
    pthread_mutex_unlock(&d->lock);
    if (p)
        tei_jobs_post(h->jobs, &p->job, run_pin);
}

/* -------------------------------------------------------------------------------------- copies */

static void give_back(void *arg, struct tei_list *moves)
{
    struct local_devices *d = arg;

    if (!tei_list_empty(moves))
        d->transport->host->work_done(d->transport->host, moves);
}

/* Says which copy the work is; why there is none, else NULL. */
static const char *fill_move(const struct local_devices *d, struct tei_move *v)
{
    const struct tei_work *w = &v->entry.base;
    bool reads = w->opcode == TE_READ;
    const struct tei_region *from = reads ? w->target_region : w->region;
    const struct tei_region *to = reads ? w->region : w->target_region;
    const struct tei_region *by = from->kind == TEI_MEM_HOST ? to : from;

    v->kind = by->kind;
    v->device = by->device;
    if (from->kind == TEI_MEM_HOST)
        v->flow = TEI_TO_DEVICE;
    else if (to->kind == TEI_MEM_HOST)
        v->flow = TEI_FROM_DEVICE;
    else if (from->kind == to->kind)
        v->flow = TEI_WITHIN;
    else
        return "no driver copies between devices of two makers";
    return d->mover ? NULL : "the driver of the device was not to be had";
}

void tei_local_devices_post(struct local_devices *d, struct tei_list *work, struct tei_list *done)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(work, link, tmp) {
        struct tei_move *v = tei_move_of(link);
        struct tei_work *w = &v->entry.base;

        w->why = fill_move(d, v);
        if (w->why) {
            w->error = TE_ERR_UNSUPPORTED;
            tei_list_del(link);
            tei_list_push_back(done, link);
        } else if (v->flow != TEI_WITHIN && !w->sink) { /* what the core stages in is pinned */
            pin(d, w->region->kind == TEI_MEM_HOST ? w->region : w->target_region, v->kind);
        }
    }
    if (!tei_list_empty(work))
        tei_mover_post(d->mover, work);
}

void tei_local_devices_cancel(struct local_devices *d, const void *owner)
{
    pthread_mutex_lock(&d->lock);
    if (d->mover)
        tei_mover_cancel(d->mover, owner);
    pthread_mutex_unlock(&d->lock);
}

/* ---------------------------------------------------------------------------- from first to last */

void tei_local_devices_init(struct local_devices *d, struct tei_transport *t)
{
    d->transport = t;
    pthread_mutex_init(&d->lock, NULL);
    tei_cond_init(&d->quiet);
    tei_list_init(&d->pins);
}

int tei_local_devices_add(struct local_devices *d, struct tei_region *r)
{
    int rc = 0;

    if (r->kind == TEI_MEM_HOST)
        return 0;
    rc = tei_gpu_open(r->kind);
    if (rc)
        return rc;
    pthread_mutex_lock(&d->lock);
    if (!d->mover && !d->closed)
        rc = tei_mover_start("te/local-gpu", d->transport->host->conf, give_back, d, &d->mover);
    pthread_mutex_unlock(&d->lock);
    return rc;
}

void tei_local_devices_del(struct local_devices *d, struct tei_region *r)
{
    void **key = &r->keys[d->transport->index];
    struct pin *p;

    pthread_mutex_lock(&d->lock);
    p = *key;
    *key = NULL;
    while (p && p->state == RUNNING)
        pthread_cond_wait(&d->quiet, &d->lock);
    if (p && p->state == ASKED)
        p->state = DROPPED;
    if (p && (p->state == DROPPED || d->closed))
        p = NULL; /* the job's, or the transport's until its end */
    if (p)
        tei_list_del(&p->link);
    pthread_mutex_unlock(&d->lock);
    if (p)
        undo_pin(p);
    free(p);
}

void tei_local_devices_close(struct local_devices *d)
{
    pthread_mutex_lock(&d->lock);
    d->closed = true;
    if (d->mover)
        tei_mover_close(d->mover);
    pthread_mutex_unlock(&d->lock);
}

void tei_local_devices_stop(struct local_devices *d)
{
    struct tei_mover *mover;
    struct tei_link *link, *tmp;

    pthread_mutex_lock(&d->lock);
    mover = d->mover;
    d->mover = NULL;
    pthread_mutex_unlock(&d->lock);
    tei_mover_destroy(mover);
    pthread_mutex_lock(&d->lock);
    while (d->jobs)
        pthread_cond_wait(&d->quiet, &d->lock);
    TEI_LIST_EACH(&d->pins, link, tmp) {
        undo_pin(pin_of(link));
    }
    pthread_mutex_unlock(&d->lock);
}

void tei_local_devices_fini(struct local_devices *d)
{
    struct tei_link *link;

    while ((link = tei_list_pop(&d->pins)))
        free(pin_of(link));
    pthread_cond_destroy(&d->quiet);
    pthread_mutex_destroy(&d->lock);
}
