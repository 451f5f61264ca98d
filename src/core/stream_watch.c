/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_watch.c - whether what a program has submitted to its streams is done.
 *
 * Drivers tell nobody: they are asked. One thread for each engine does, which begins with the first stream and sleeps
 * while there is none to watch. After something has happened it asks every NAP_NS, later every LONG_NAP_NS. It
 * alone takes watches off the list, and frees them, so it may call the driver without the lock in between.
 */
#include "core/stream_watch.h"
#include "core/alloc.h"
#include "core/core.h"
#include "plat/plat.h"

#include <stdlib.h>

#define NAP_NS      50000
#define LONG_NS     5000000
#define LONG_NAP_NS 500000 /* after LONG_NS without news */

void tei_stream_watcher_init(struct stream_watcher *s)
{
    tei_list_init(&s->watched);
    tei_cond_init(&s->wake);
}

void tei_stream_watcher_fini(struct stream_watcher *s)
{
    pthread_cond_destroy(&s->wake);
}

/* Whether it was over, and has gone. Under ctl.lock, which is released meanwhile. */
static bool look_at(te_engine *e, struct stream_watch *w)
{
    int error = TE_ERR_CANCELED;

    if (w->over) {
        pthread_mutex_unlock(&e->ctl.lock);
        error = tei_gpu_event_poll(w->event);
        pthread_mutex_lock(&e->ctl.lock);
    }
    if (w->over && error == TE_ERR_BUSY)
        return false;
    if (w->over)
        w->over(w, error);
    tei_list_del(&w->link);
    pthread_mutex_unlock(&e->ctl.lock);
    tei_stream_watch_drop(w);
    pthread_mutex_lock(&e->ctl.lock);
    return true;
}

static bool look_at_all(te_engine *e)
{
    struct tei_list *list = &e->gates.streams.watched;
    struct tei_link *l = list->head.next;
    bool news = false;

    while (l != &list->head) {
        struct tei_link *before = l->prev;
        bool gone = look_at(e, tei_container_of(l, struct stream_watch, link));

        news |= gone;
        l = gone ? before->next : l->next;
    }
    return news;
}

static void *watch(void *arg)
{
    te_engine *e = arg;
    struct stream_watcher *s = &e->gates.streams;
    int64_t event_ns = 0, now;

    pthread_mutex_lock(&e->ctl.lock);
    while (!s->quit || !tei_list_empty(&s->watched)) {
        if (tei_list_empty(&s->watched)) {
            tei_cond_wait_until(&s->wake, &e->ctl.lock, TEI_NEVER);
            event_ns = tei_now_ns();
            continue;
        }
        if (look_at_all(e))
            event_ns = tei_now_ns();
        now = tei_now_ns();
        if (!tei_list_empty(&s->watched))
            tei_cond_wait_until(&s->wake, &e->ctl.lock,
                                now + (now - event_ns < LONG_NS ? NAP_NS : LONG_NAP_NS));
    }
    pthread_mutex_unlock(&e->ctl.lock);
    return NULL;
}

static int start(te_engine *e)
{
    struct stream_watcher *s = &e->gates.streams;
    int rc = 0;

    pthread_mutex_lock(&e->ctl.lock);
    if (!s->running)
        rc = tei_thread_start(&s->thread, "te/streams", watch, e);
    s->running |= rc == 0;
    pthread_mutex_unlock(&e->ctl.lock);
    return rc ? TEI_FAIL(rc, "no thread that watches streams can be started") : 0;
}

void tei_stream_watcher_stop(te_engine *e)
{
    struct stream_watcher *s = &e->gates.streams;

    pthread_mutex_lock(&e->ctl.lock);
    s->quit = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&e->ctl.lock);
    if (s->running)
        pthread_join(s->thread, NULL);
}

int tei_stream_device(const te_stream *s, enum tei_mem_kind *kind, int *device)
{
    int rc;

    *kind = tei_mem_kind_of(s->location);
    if (*kind == TEI_MEM_HOST || *kind == TEI_MEM_OTHER)
        return TEI_FAIL(TE_ERR_UNSUPPORTED,
                        "te_stream: '%.64s' is no device that has streams here; \"cuda:0\" is one",
                        s->location);
    rc = tei_location_device(s->location, device);
    return rc ? rc : tei_gpu_open(*kind);
}

int tei_stream_watch_make(te_engine *e, const te_stream *s, struct stream_watch **out)
{
    enum tei_mem_kind kind;
    struct stream_watch *w;
    int device, rc = tei_stream_device(s, &kind, &device);

    if (!rc)
        rc = start(e);
    if (rc)
        return rc;
    w = calloc(1, sizeof(*w));
    if (!w)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for requests that wait");
    rc = tei_gpu_event_record(kind, device, s->stream, &w->event);
    if (rc) {
        free(w);
        return rc;
    }
    rc = tei_gpu_event_poll(w->event);
    if (rc == TE_ERR_BUSY) {
        *out = w;
        return 0;
    }
    tei_stream_watch_drop(w);
    return rc;
}

void tei_stream_watch_drop(struct stream_watch *w)
{
    tei_gpu_event_close(w->event);
    free(w);
}

void tei_stream_watch_begin(te_engine *e, struct stream_watch *w,
                            void (*over)(struct stream_watch *w, int error), void *arg)
{
    w->over = over;
    w->arg = arg;
    tei_list_push_back(&e->gates.streams.watched, &w->link);
    pthread_cond_signal(&e->gates.streams.wake);
}

void tei_stream_watch_forget(struct stream_watch *w)
{
    w->over = NULL;
}
