/* SPDX-License-Identifier: Apache-2.0 */
/* drive.h - waiting threads that move their batch. */
#ifndef TEI_DRIVE_H
#define TEI_DRIVE_H

#include "base/waker.h"

#include <pthread.h>
#include <stdint.h>

struct batch;

/* A thread in te_wait() that may move its batch by itself. */
struct driver {
    struct driver *next; /* in drivers.idle */
    pthread_t thread;
    struct tei_waker waker;
};

struct drivers {
    pthread_mutex_t lock;
    struct driver *idle;
};

void tei_drivers_init(struct drivers *s);
void tei_drivers_fini(struct drivers *s);
/*
 * Moves the batch in the calling thread until it is done, `deadline_ns` has passed or no transport
 * lets it. The caller is counted among the batch's waiters.
 */
void tei_drive(struct batch *b, int64_t deadline_ns);

#endif
