/* SPDX-License-Identifier: Apache-2.0 */
/* events.c - the descriptor that tells of finished batches, and which they are. */
#include "core/events.h"
#include "core/core.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* With nothing left to take, the descriptor is not readable. The lock is held. */
static void quiet(struct events *s)
{
    uint64_t count;

    if (s->fd >= 0 && tei_list_empty(&s->done))
        (void)!read(s->fd, &count, sizeof(count));
}

void tei_events_forget(struct events *s, struct batch *b)
{
    pthread_mutex_lock(&s->lock);
    b->freed = true;
    if (tei_link_is_in(&b->done_link))
        tei_list_del(&b->done_link);
    quiet(s);
    pthread_mutex_unlock(&s->lock);
}

void tei_events_tell(struct events *s, struct batch *b)
{
    uint64_t one = 1;

    pthread_mutex_lock(&s->lock);
    if (!b->freed && !tei_link_is_in(&b->done_link)) {
        tei_list_push_back(&s->done, &b->done_link);
        /* Cannot fail: the counter is far from full. */
        (void)!write(s->fd, &one, sizeof(one));
    }
    pthread_mutex_unlock(&s->lock);
}

int te_event_fd(te_engine *e)
{
    int fd, rc = tei_engine_check(e);

    if (rc)
        return rc;
    pthread_mutex_lock(&e->events.lock);
    if (e->events.fd < 0)
        e->events.fd = tei_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    fd = e->events.fd;
    atomic_store_explicit(&e->events.armed, fd >= 0, memory_order_release);
    pthread_mutex_unlock(&e->events.lock);
    if (fd < 0)
        return TEI_FAIL(TE_ERR_SYSTEM, "eventfd: %s", tei_errno_text(errno));
    return fd;
}

int te_done(te_engine *e, te_batch *ids, size_t n)
{
    struct tei_link *l;
    size_t got = 0;
    int rc = tei_engine_check(e);

    if (rc)
        return rc;
    if (!ids && n)
        return TEI_FAIL(TE_ERR_INVALID, "the array of ids is NULL");
    if (!atomic_load_explicit(&e->events.armed, memory_order_acquire))
        return TEI_FAIL(TE_ERR_INVALID, "te_event_fd() was not called yet");
    pthread_mutex_lock(&e->events.lock);
    while (got < n && (l = tei_list_pop(&e->events.done))) {
        const struct batch *b = tei_container_of(l, struct batch, done_link);

        /* One that has got new requests since is told when these are done. */
        if (atomic_load_explicit(&b->left, memory_order_acquire) == 0)
            ids[got++] = b->id;
    }
    quiet(&e->events);
    pthread_mutex_unlock(&e->events.lock);
    return (int)got;
}

void tei_events_init(struct events *s)
{
    pthread_mutex_init(&s->lock, NULL);
    tei_list_init(&s->done);
    s->fd = -1;
}

void tei_events_fini(struct events *s)
{
    if (s->fd >= 0)
        tei_fd_close(s->fd);
    pthread_mutex_destroy(&s->lock);
}
