/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch.c - batches: their ids, their life, their status.
 *
 * A caller may see every task terminal and free the batch while the thread that ended the last one
 * is still on its way through finish_tasks() of complete.c. Therefore memory is counted: one reference
 * belongs to the id, one to the stretch of time in which `left` is not 0. Whoever brings `left` to 0
 * drops the second. te_batch_free() tells "terminal but not yet counted" from "busy" by looking at the
 * tasks, and waits out that short moment.
 */
#include "core/batch.h"
#include "core/core.h"
#include "core/rules.h"
#include "core/slow.h"
#include "core/trace.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tei_batch_put(struct batch *b)
{
    if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (struct note *n = atomic_load_explicit(&b->notes, memory_order_relaxed), *next; n;
         n = next) {
        next = n->next;
        free(n);
    }
    pthread_mutex_destroy(&b->submit_lock);
    pthread_mutex_destroy(&b->wait_lock);
    pthread_cond_destroy(&b->wait_cond);
    tei_slow_free(b);
    tei_beside_free(b);
    tei_batch_memory_put(&b->engine->batches.memory, b);
}

static void init_batch(struct batch *b, te_engine *e, size_t capacity)
{
    b->engine = e;
    b->capacity = capacity;
    atomic_init(&b->refs, 1);
    pthread_mutex_init(&b->submit_lock, NULL);
    pthread_mutex_init(&b->wait_lock, NULL);
    tei_cond_init(&b->wait_cond);
}

int te_batch_alloc(te_engine *e, size_t capacity, te_batch *out)
{
    struct batch *b;
    int rc = tei_engine_check(e);

    if (rc)
        return rc;
    if (!out || capacity == 0 || capacity > TEI_BATCH_MAX)
        return TEI_FAIL(TE_ERR_INVALID, "batch capacity %zu is not in 1..%zu", capacity,
                        TEI_BATCH_MAX);
    b = tei_batch_memory_get(&e->batches.memory, capacity);
    if (!b)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a batch of %zu requests", capacity);
    init_batch(b, e, capacity);
    rc = tei_slow_stories(b, e->conf.slow_ms);
    if (!rc)
        rc = tei_handles_add(&e->batches.ids, b, &b->id);
    if (rc) {
        tei_batch_put(b);
        return rc == TE_ERR_MEMORY
                   ? TEI_FAIL(rc, "no memory for a batch of %zu requests", capacity)
                   : TEI_FAIL(rc, "too many batches are allocated; free some with te_batch_free()");
    }
    *out = b->id;
    return 0;
}

struct batch *tei_batch_pin(struct batches *s, te_batch id)
{
    return tei_handles_pin(&s->ids, id);
}

void tei_batch_unpin(struct batches *s, te_batch id)
{
    tei_handles_unpin(&s->ids, id);
}

struct batch *tei_batch_pin_checked(te_engine *e, te_batch id, int *rc)
{
    struct batch *b = NULL;

    *rc = tei_engine_check(e);
    if (!*rc) {
        b = tei_batch_pin(&e->batches, id);
        if (!b)
            *rc = TEI_FAIL(TE_ERR_NOT_FOUND, "batch %llu does not exist", (unsigned long long)id);
    }
    return b;
}

bool tei_batch_all_terminal(const struct batch *b)
{
    size_t n = atomic_load_explicit(&b->claimed, memory_order_acquire);

    /* The last one ends last, mostly, and who asks again and again asks it alone. */
    for (size_t i = n; i-- > 0;)
        if (!tei_task_is_terminal(atomic_load_explicit(&b->tasks[i].state, memory_order_acquire)))
            return false;
    return true;
}

bool tei_batch_has_ended(const struct batch *b)
{
    while (atomic_load_explicit(&b->left, memory_order_acquire)) {
        if (!tei_batch_all_terminal(b))
            return false;
        sched_yield();
    }
    return true;
}

/*
 * True once nothing is unfinished and no one waits; the batch is pinned by the caller alone or by
 * passers-by.
 */
static bool is_idle(struct batch *b)
{
    return !atomic_load(&b->waiters) && tei_batch_has_ended(b);
}

/* Makes the id dead, unless the batch is in use. */
static int kill_id(te_engine *e, struct batch *b)
{
    /* Two at a time would each wait for the other's pin to go. */
    if (atomic_exchange_explicit(&b->freeing, true, memory_order_acquire))
        return TE_ERR_NOT_FOUND;
    while (is_idle(b)) {
        /* Other pins are calls that are about to return. */
        if (tei_handles_del(&e->batches.ids, b->id, 1))
            return 0;
        sched_yield();
    }
    atomic_store_explicit(&b->freeing, false, memory_order_release);
    return TE_ERR_BUSY;
}

int te_batch_free(te_engine *e, te_batch id)
{
    int rc;
    struct batch *b = tei_batch_pin_checked(e, id, &rc);

    if (!b)
        return rc;
    rc = kill_id(e, b);
    if (rc == 0) {
        tei_events_forget(&e->events, b);
        tei_batch_put(b);
        return 0;
    }
    tei_batch_unpin(&e->batches, id);
    if (rc == TE_ERR_NOT_FOUND)
        return TEI_FAIL(rc, "another thread is freeing batch %llu", (unsigned long long)id);
    return TEI_FAIL(rc,
                    "batch %llu has unfinished requests or a waiting thread; te_wait() or "
                    "te_cancel() first",
                    (unsigned long long)id);
}

const char *tei_batch_note(struct batch *b, const char *text)
{
    size_t len = strlen(text) + 1;
    struct note *n = malloc(sizeof(*n) + len);

    if (!n)
        return NULL;
    memcpy(n->text, text, len);
    n->next = atomic_load_explicit(&b->notes, memory_order_relaxed);
    /* Relaxed: the list is read when the batch is freed, after every task has ended. */
    while (!atomic_compare_exchange_weak_explicit(&b->notes, &n->next, n, memory_order_relaxed,
                                                  memory_order_relaxed))
        continue;
    return n->text;
}

static void free_one(void *object, void *arg)
{
    struct batch *b = object;

    (void)arg;
    tei_batch_put(b);
}

void tei_batches_init(struct batches *s)
{
    tei_handles_init(&s->ids);
    tei_batch_memory_init(&s->memory);
}

void tei_batches_fini(struct batches *s)
{
    tei_handles_each(&s->ids, free_one, NULL);
    tei_handles_fini(&s->ids);
    tei_batch_memory_fini(&s->memory);
}

/* --------------------------------------------------------------------------------------- status */

static int read_task(const struct task *t, struct te_status *out)
{
    out->state = atomic_load_explicit(&t->state, memory_order_acquire);
    out->error = tei_task_is_terminal(out->state)
                     ? atomic_load_explicit(&t->error, memory_order_relaxed)
                     : TE_ERR_OK;
    out->bytes = atomic_load_explicit(&t->moved, memory_order_relaxed);
    return 0;
}

int tei_task_check(const struct batch *b, size_t task, const void *out)
{
    size_t n = atomic_load_explicit(&b->claimed, memory_order_acquire);

    if (!out)
        return TEI_FAIL(TE_ERR_INVALID, "the place for the result is NULL");
    if (task >= n)
        return TEI_FAIL(TE_ERR_INVALID, "task %zu of a batch with %zu submitted requests", task, n);
    return 0;
}

int te_status(te_engine *e, te_batch id, size_t task, struct te_status *out)
{
    int rc;
    struct batch *b = tei_batch_pin_checked(e, id, &rc);

    if (!b)
        return rc;
    rc = tei_task_check(b, task, out);
    if (!rc)
        rc = read_task(&b->tasks[task], out);
    tei_batch_unpin(&e->batches, id);
    return rc;
}

static int read_batch(struct batch *b, struct te_status *out)
{
    int bad;

    if (!out)
        return TEI_FAIL(TE_ERR_INVALID, "the place for the status is NULL");
    if (!tei_batch_has_ended(b)) {
        *out = (struct te_status){.state = TE_WAITING,
                                  .bytes = atomic_load_explicit(&b->bytes, memory_order_relaxed)};
        return 0;
    }
    bad = atomic_load_explicit(&b->first_bad, memory_order_acquire);
    *out = (struct te_status){.state = TE_COMPLETED};
    if (bad)
        read_task(&b->tasks[bad - 1], out);
    out->bytes = atomic_load_explicit(&b->bytes, memory_order_relaxed);
    return 0;
}

int te_batch_status(te_engine *e, te_batch id, struct te_status *out)
{
    int rc;
    struct batch *b = tei_batch_pin_checked(e, id, &rc);

    if (!b)
        return rc;
    rc = read_batch(b, out);
    tei_batch_unpin(&e->batches, id);
    return rc;
}

/* What `why` ends in stands before that which goes with the error. */
static const char *remedy_of(int error, const char *why, bool files)
{
    if (why && strstr(why, "; "))
        return "";
    switch (error) {
    case TE_ERR_STALE:
        if (files)
            return "; te_segment_buffers() tells where they end, as their record has it";
        return "; te_register() it at the target, and check that the offset is an address there";
    case TE_ERR_ACCESS:
        return files ? "" : "; the target must register it with this right";
    case TE_ERR_TIMEOUT:
        return files
                   ? "; allow more time, or look whether the device answers"
                   : "; allow more time, or look whether the target is overloaded or frozen, or the link "
                     "to it down";
    case TE_ERR_PEER:
        return files ? ""
                     : "; is the target running? a firewall? two of its ports, of 15000-17000 by "
                       "default, are needed";
    case TE_ERR_LINK:
        return files ? "" : "; look at the target and the link to it, and submit the request again";
    default:
        return "";
    }
}

static void write_msg(const struct task *t, char *buf, size_t n)
{
    int state = atomic_load_explicit(&t->state, memory_order_acquire);
    int error = atomic_load_explicit(&t->error, memory_order_relaxed);
    char name[TEI_HOSTPORT_MAX];

    buf[0] = '\0';
    if (!tei_task_is_terminal(state) || !error)
        return;
    tei_peer_name(&t->batch->engine->peers, t->req.target, name, sizeof(name));
    snprintf(buf, n, "%s of %llu bytes %s 0x%llx of segment '%s': %s%s%s%s%s%s",
             t->req.opcode == TE_READ ? "read" : "write", (unsigned long long)t->req.length,
             t->paged ? "in pages from" : "at", (unsigned long long)t->req.target_offset, name,
             te_strerror(error), t->why ? ": " : "", t->why ? t->why : "", t->sys_errno ? ": " : "",
             t->sys_errno ? tei_errno_text(t->sys_errno) : "",
             remedy_of(error, t->why, tei_keys_is_files(name)));
}

int te_status_msg(te_engine *e, te_batch id, size_t task, char *buf, size_t n)
{
    int rc;
    struct batch *b = tei_batch_pin_checked(e, id, &rc);

    if (!b)
        return rc;
    rc = tei_task_check(b, task, n ? buf : NULL);
    if (!rc)
        write_msg(&b->tasks[task], buf, n);
    tei_batch_unpin(&e->batches, id);
    return rc;
}
