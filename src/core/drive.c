/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drive.c - te_wait() moves its batch itself, where a transport lets it.
 *
 * Else the reply to a short request would wake a thread of the transport, only for that one to wake
 * the waiter. The waiter sleeps in the transport then, on the connection and on a waker, which
 * whoever ends the batch's last task rings (finish_tasks() in complete.c), unless that is the waiter
 * itself. One thread drives a batch at a time; others that wait for it use the condition variable.
 *
 * Wakers are kept on a list of the engine, so a wait makes none, and a thread that ends leaves none
 * behind. The transport is kept from being uninstalled by a count like that of views, since no lock
 * may be held over a wait.
 */
#include "core/drive.h"
#include "core/core.h"

#include <stdlib.h>

static struct driver *get_driver(struct drivers *s)
{
    struct driver *d;

    pthread_mutex_lock(&s->lock);
    d = s->idle;
    if (d)
        s->idle = d->next;
    pthread_mutex_unlock(&s->lock);
    if (d)
        return d;
    d = calloc(1, sizeof(*d));
    if (d && tei_waker_init(&d->waker) == 0)
        return d;
    free(d);
    return NULL;
}

static void put_driver(struct drivers *s, struct driver *d)
{
    tei_waker_drain(&d->waker);
    pthread_mutex_lock(&s->lock);
    d->next = s->idle;
    s->idle = d;
    pthread_mutex_unlock(&s->lock);
}

void tei_drivers_init(struct drivers *s)
{
    pthread_mutex_init(&s->lock, NULL);
}

void tei_drivers_fini(struct drivers *s)
{
    struct driver *d;

    while ((d = s->idle)) {
        s->idle = d->next;
        tei_waker_fini(&d->waker);
        free(d);
    }
    pthread_mutex_destroy(&s->lock);
}

/* False if another thread drives the batch. */
static bool enter(struct batch *b, struct driver *d)
{
    bool first;

    d->thread = pthread_self();
    pthread_mutex_lock(&b->wait_lock);
    first = !b->driver;
    if (first)
        b->driver = d;
    pthread_mutex_unlock(&b->wait_lock);
    return first;
}

/* After this nobody rings. */
static void leave(struct batch *b)
{
    pthread_mutex_lock(&b->wait_lock);
    b->driver = NULL;
    pthread_mutex_unlock(&b->wait_lock);
}

/* One round over the transports; whether one of them had something to drive. */
static bool drive_any(struct transports *s, const struct tei_drive *d)
{
    struct tei_transport *t;
    bool driven = false;

    for (size_t i = 0; !driven && (t = tei_transports_get(s, &i, TEI_HAS_DRIVE)); i++) {
        driven = t->ops.drive(t, d);
        tei_transports_put(s, i);
    }
    return driven;
}

void tei_drive(struct batch *b, int64_t deadline_ns)
{
    te_engine *e = b->engine;
    struct driver *d = get_driver(&e->drivers);
    struct tei_drive drive = {.owner = b,
                              .left = &b->left,
                              .until_ns = deadline_ns,
                              .spin_ns = (int64_t)e->conf.spin_us * 1000};

    if (!d)
        return;
    if (enter(b, d)) {
        drive.waker = &d->waker;
        while (atomic_load(&b->left) && drive_any(&e->transports, &drive))
            if (deadline_ns != TEI_NEVER && tei_now_ns() >= deadline_ns)
                break;
        leave(b);
    }
    put_driver(&e->drivers, d);
}
