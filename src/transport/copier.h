/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copier.h - threads of this process that copy work, for transports whose bytes the processor moves.
 *
 * Short work, 64 KiB in all for one post(), is copied in the caller's thread. The rest goes into a
 * ledger, from which the copier's threads, and those in te_wait() by poll(), take runs: a chunk of a
 * long work, or several short ones of one attachment and opcode. run() copies them with no lock held.
 *
 * A copy cannot be recalled. One more thread copies nothing: it ends what is cancelled or late, also
 * while every other thread is stuck in a copy.
 */
#ifndef TEI_COPIER_H
#define TEI_COPIER_H

#include "transport/ledger.h"

#include <pthread.h>

#define TEI_COPY_CHUNK   ((uint64_t)1 << 20) /* of a long work in one run */
#define TEI_COPY_PARTS   128                 /* of one run */
#define TEI_COPY_THREADS 16

/* What one thread copies at a time: parts of one attachment and opcode. */
struct tei_copy_run {
    const struct tei_attach *attach;
    int opcode;
    size_t n;
    struct tei_part parts[TEI_COPY_PARTS];
};

struct tei_copier {
    /* Set by the owner before tei_copier_init(). */
    struct tei_transport *transport;
    void (*run)(struct tei_transport *t, struct tei_copy_run *run);
    unsigned guests_max; /* threads of the caller that copy at a time */

    /* The copier's, under `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t wake;  /* there is work for a thread */
    pthread_cond_t alarm; /* something has ended, or a limit is earlier than `watch_ns` */
    pthread_cond_t quiet; /* there are no guests */
    struct tei_ledger ledger;
    _Atomic bool waiting; /* there is a tei_ledger_first(), for a look without the lock */
    int64_t watch_ns;     /* when the watcher looks again */
    unsigned idle, guests;
    bool ready, closed, quit;
    const char *name;
    bool watched; /* `watcher` is to be joined */
    pthread_t watcher;
    unsigned n_threads;
    pthread_t threads[TEI_COPY_THREADS];
};

/* `no_progress_ms`: conf->transfer_timeout_ms. */
void tei_copier_init(struct tei_copier *c, int64_t no_progress_ms);
/*
 * Starts up to `n` threads that copy, called "<name>0" and so on; 0 if there is at least one. The
 * name is static.
 */
int tei_copier_start(struct tei_copier *c, const char *name, unsigned n);
/* Works embed a struct tei_entry. */
void tei_copier_post(struct tei_copier *c, struct tei_list *work);
bool tei_copier_poll(struct tei_copier *c);
void tei_copier_cancel(struct tei_copier *c, const void *owner);
/* Keeps stop() waiting until tei_copier_leave(); false once it is closed. */
bool tei_copier_enter(struct tei_copier *c);
void tei_copier_leave(struct tei_copier *c);
void tei_copier_close(struct tei_copier *c);
/* close(), then waits until everything has ended. */
void tei_copier_stop(struct tei_copier *c);
/* Accepts one that was not initialised, but zeroed. */
void tei_copier_fini(struct tei_copier *c);

#endif
