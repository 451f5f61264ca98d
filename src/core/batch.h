/* SPDX-License-Identifier: Apache-2.0 */
/* batch.h - batches: their ids and their memory; and tasks. */
#ifndef TEI_BATCH_H
#define TEI_BATCH_H

#include "base/pool.h"
#include "base/queue.h"
#include "base/traceparent.h"
#include "core/batch_memory.h"
#include "te.h"

#include <pthread.h>
#include <stdint.h>

struct rules;

struct batches {
    struct tei_handles ids;
    struct batch_memory memory; /* of those that were freed */
};

/* Two cache lines, which is why the small members stand together. */
struct task {
    /* enum te_state; terminal ones are stored with release, after all below */
    _Alignas(64) _Atomic uint8_t state;
    uint8_t restarts : 3;  /* how often it was parked; its one refresh is used up by the first */
    bool paged : 1;        /* of te_submit_pages(): req.source is its list, req.length the sum */
    uint8_t sample;        /* it is timed: its slot + 1, see metrics.h; else 0 */
    _Atomic uint32_t left; /* pieces of work */
    _Atomic uint32_t path; /* what has carried it, see path.h */
    _Atomic int16_t error; /* the first one */
    int16_t sys_errno;     /* of the one who set `error` */
    const char *why;       /* of the one who set `error` */
    _Atomic uint64_t moved;
    struct batch *batch;
    struct group *group;
    struct view *view;         /* held while posted */
    struct tei_region *region; /* held until terminal */
    int64_t deadline_ns;
    te_request req;
    /* In peer.parked, or among those that end together. Of one that was just cut, `prev` is its first piece of work. */
    struct tei_link link;
};

/* What tasks may have beside them: a trace context, rules, a key of a lease. */
enum beside_kind { BESIDE_TRACE, BESIDE_RULES, BESIDE_LEASE, BESIDE_KINDS };

#define TEI_BATCH_MAX ((size_t)1 << 24) /* requests */

/* A text that a failed task's `why` points to; lives as long as its batch. */
struct note {
    struct note *next;
    char text[];
};

struct batch {
    _Atomic(struct note *) notes;
    te_batch id;
    te_engine *engine;
    _Atomic uint32_t refs;
    pthread_mutex_t submit_lock; /* one te_submit at a time */
    size_t capacity;
    size_t room;               /* tasks that its memory has */
    struct batch *next;        /* in batches.memory */
    struct tei_story *stories; /* of the tasks, by their place; NULL without TE_SLOW_MS */
    _Atomic(char *) beside[BESIDE_KINDS]; /* likewise, see beside.h; NULL: none of them has one */
    _Atomic size_t claimed;               /* tasks in use */
    _Atomic size_t left;                  /* tasks not terminal */
    _Atomic size_t cancel_mark;           /* tasks below it were cancelled */
    _Atomic int first_bad;                /* index + 1 of the first task that failed, 0: none */
    _Atomic uint64_t bytes;               /* of terminal tasks */
    _Atomic(struct group *) after;        /* what is to be done when `left` is 0 */
    _Atomic uint32_t waiters;
    pthread_mutex_t wait_lock; /* waiting, and the errors of tasks while they run */
    pthread_cond_t wait_cond;
    struct driver *driver;     /* the thread that moves it in te_wait(); under wait_lock */
    struct tei_link done_link; /* in engine.events, under its lock */
    _Atomic bool freeing;
    bool freed; /* under the lock of events */
    struct task tasks[];
};

void tei_batches_init(struct batches *s);
/* Frees what is left. */
void tei_batches_fini(struct batches *s);

struct batch *tei_batch_pin(struct batches *s, te_batch id);
/* The same for a call that may come at any time; NULL, and why in *rc. */
struct batch *tei_batch_pin_checked(te_engine *e, te_batch id, int *rc);
void tei_batch_unpin(struct batches *s, te_batch id);
/* Lets go of a reference. */
void tei_batch_put(struct batch *b);
/* A copy of a text for tei_task_end() of one of the batch's tasks; NULL when memory is out. */
const char *tei_batch_note(struct batch *b, const char *text);

/* Whether no request of the batch is unfinished; `left` may say so a moment later. */
bool tei_batch_all_terminal(const struct batch *b);
/* The same, and `left` says so, for which it waits: who was told by what follows the requests may come before that. */
bool tei_batch_has_ended(const struct batch *b);
/* Whether the batch has such a task, and there is a place for what is told of it. */
int tei_task_check(const struct batch *b, size_t task, const void *out);

static inline bool tei_task_is_terminal(int state)
{
    return state != TE_WAITING && state != TE_PENDING;
}

#endif
