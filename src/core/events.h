/* SPDX-License-Identifier: Apache-2.0 */
/* events.h - te_event_fd() and te_done(): batches that have finished. */
#ifndef TEI_EVENTS_H
#define TEI_EVENTS_H

#include "base/queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct batch;

struct events {
    pthread_mutex_t lock;
    struct tei_list done;
    int fd; /* -1 until asked for */
    _Atomic bool armed;
};

void tei_events_init(struct events *s);
void tei_events_fini(struct events *s);
/* Nothing of the batch is unfinished. Once `armed`. */
void tei_events_tell(struct events *s, struct batch *b);
/* Out of what te_done() reads, and never in again. */
void tei_events_forget(struct events *s, struct batch *b);

#endif
