/* SPDX-License-Identifier: Apache-2.0 */
/* stream_watch.h - whether what a program has submitted to its streams is done. */
#ifndef TEI_STREAM_WATCH_H
#define TEI_STREAM_WATCH_H

#include "base/queue.h"
#include "model/model.h"
#include "te.h"

#include <pthread.h>
#include <stdbool.h>

struct tei_gpu_event;

/* Of an engine; under ctl.lock. */
struct stream_watcher {
    struct tei_list watched;
    pthread_cond_t wake; /* with ctl.lock */
    pthread_t thread;    /* once there was something to watch */
    bool running, quit;
};

/* One place in a stream. */
struct stream_watch {
    struct tei_link link;
    struct tei_gpu_event *event;
    /* Once, under ctl.lock: it is done, or (error) has failed, and te_errmsg() says how. NULL: nobody wants to know. */
    void (*over)(struct stream_watch *w, int error);
    void *arg;
};

void tei_stream_watcher_init(struct stream_watcher *s);
/* Nobody may want to know anything any more. */
void tei_stream_watcher_stop(te_engine *e);
void tei_stream_watcher_fini(struct stream_watcher *s);

/* The device of a te_stream with a location; its driver is open then. */
int tei_stream_device(const te_stream *s, enum tei_mem_kind *kind, int *device);

/* Marks where the stream stands. *out is NULL if all is done. */
int tei_stream_watch_make(te_engine *e, const te_stream *s, struct stream_watch **out);
/* It has not begun. */
void tei_stream_watch_drop(struct stream_watch *w);
/* Takes it over, and tells `over`. Under ctl.lock. */
void tei_stream_watch_begin(te_engine *e, struct stream_watch *w,
                            void (*over)(struct stream_watch *w, int error), void *arg);
/* Nobody wants to know any more. Under ctl.lock. */
void tei_stream_watch_forget(struct stream_watch *w);

#endif
