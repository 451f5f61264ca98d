/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch.c - handles, task accounting, completion, waiting.
 *
 * A task counts its pieces of work in `left`; tei_work_done() takes finished pieces back, folds the
 * first error into the task and, when `left` reaches 0, ends it: publishes its state with release
 * (partner: the acquire in te_status) and counts it off its batch. The batch's own `left` reaching
 * 0 is the one place that wakes waiters and tells the event fd.
 *
 * A caller may see every task terminal and free the batch while the thread that ended the last one
 * is still on its way through finish_batch(). Therefore memory is counted: one reference belongs to
 * the id, one to the stretch of time in which `left` is not 0. Whoever brings `left` to 0 drops the
 * second. te_batch_free() tells "terminal but not yet counted" from "busy" by looking at the tasks,
 * and waits out that short moment.
 *
 * A waiter announces itself in `waiters` before it looks at `left`, the finisher brings `left` to 0
 * before it looks at `waiters`; both sequentially consistent, so at least one of them sees the
 * other and no wake-up is lost.
 */
#include "core/core.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------- lifetime */

static void put_batch(struct batch *b)
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
    tei_batch_memory_put(b->engine, b);
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
    b = tei_batch_memory_get(e, capacity);
    if (!b)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a batch of %zu requests", capacity);
    init_batch(b, e, capacity);
    rc = tei_handles_add(&e->batches, b, &b->id);
    if (rc) {
        put_batch(b);
        return rc == TE_ERR_MEMORY
                   ? TEI_FAIL(rc, "no memory for a batch of %zu requests", capacity)
                   : TEI_FAIL(rc, "too many batches are allocated; free some with te_batch_free()");
    }
    *out = b->id;
    return 0;
}

struct batch *tei_batch_pin(te_engine *e, te_batch id)
{
    return tei_handles_pin(&e->batches, id);
}

void tei_batch_unpin(te_engine *e, te_batch id)
{
    tei_handles_unpin(&e->batches, id);
}

static struct batch *pin_checked(te_engine *e, te_batch id, int *rc)
{
    struct batch *b = NULL;

    *rc = tei_engine_check(e);
    if (!*rc) {
        b = tei_batch_pin(e, id);
        if (!b)
            *rc = TEI_FAIL(TE_ERR_NOT_FOUND, "batch %llu does not exist", (unsigned long long)id);
    }
    return b;
}

static bool is_terminal(int state)
{
    return state != TE_WAITING && state != TE_PENDING;
}

static bool all_terminal(const struct batch *b)
{
    size_t n = atomic_load_explicit(&b->claimed, memory_order_acquire);

    for (size_t i = 0; i < n; i++)
        if (!is_terminal(atomic_load_explicit(&b->tasks[i].state, memory_order_acquire)))
            return false;
    return true;
}

/* With nothing left to take, the descriptor is not readable. done_lock is held. */
static void quiet_event_fd(te_engine *e)
{
    uint64_t count;

    if (e->event_fd >= 0 && tei_list_empty(&e->done))
        (void)!read(e->event_fd, &count, sizeof(count));
}

/* Out of the list that te_done() reads, and never in again. */
static void forget_done(struct batch *b)
{
    te_engine *e = b->engine;

    pthread_mutex_lock(&e->done_lock);
    b->freed = true;
    if (tei_link_is_in(&b->done_link))
        tei_list_del(&b->done_link);
    quiet_event_fd(e);
    pthread_mutex_unlock(&e->done_lock);
}

/*
 * True once nothing is unfinished and no one waits; the batch is pinned by the caller alone or by
 * passers-by.
 */
static bool is_idle(struct batch *b)
{
    if (atomic_load(&b->waiters))
        return false;
    while (atomic_load_explicit(&b->left, memory_order_acquire)) {
        if (!all_terminal(b))
            return false;
        sched_yield();
    }
    return true;
}

/* Makes the id dead, unless the batch is in use. */
static int kill_id(te_engine *e, struct batch *b)
{
    /* Two at a time would each wait for the other's pin to go. */
    if (atomic_exchange_explicit(&b->freeing, true, memory_order_acquire))
        return TE_ERR_NOT_FOUND;
    while (is_idle(b)) {
        /* Other pins are calls that are about to return. */
        if (tei_handles_del(&e->batches, b->id, 1))
            return 0;
        sched_yield();
    }
    atomic_store_explicit(&b->freeing, false, memory_order_release);
    return TE_ERR_BUSY;
}

int te_batch_free(te_engine *e, te_batch id)
{
    int rc;
    struct batch *b = pin_checked(e, id, &rc);

    if (!b)
        return rc;
    rc = kill_id(e, b);
    if (rc == 0) {
        forget_done(b);
        put_batch(b);
        return 0;
    }
    tei_batch_unpin(e, id);
    if (rc == TE_ERR_NOT_FOUND)
        return TEI_FAIL(rc, "another thread is freeing batch %llu", (unsigned long long)id);
    return TEI_FAIL(rc,
                    "batch %llu has unfinished requests or a waiting thread; te_wait() or "
                    "te_cancel() first",
                    (unsigned long long)id);
}

static void free_one(void *object, void *arg)
{
    struct batch *b = object;

    (void)arg;
    put_batch(b);
}

void tei_batch_fini(te_engine *e)
{
    tei_handles_each(&e->batches, free_one, NULL);
    tei_handles_fini(&e->batches);
}

/* ----------------------------------------------------------------------------------- completion */

void tei_batch_begin(struct batch *b, size_t n)
{
    size_t first;

    if (atomic_fetch_add(&b->left, n) == 0)
        atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    /* Release: a thread that reads `claimed` sees the tasks filled in. */
    first = atomic_fetch_add_explicit(&b->claimed, n, memory_order_release);
    tei_metrics_begin(b->engine, &b->tasks[first], n);
}

static void tell_event_fd(struct batch *b)
{
    te_engine *e = b->engine;
    uint64_t one = 1;

    pthread_mutex_lock(&e->done_lock);
    if (!b->freed && !tei_link_is_in(&b->done_link)) {
        tei_list_push_back(&e->done, &b->done_link);
        /* Cannot fail: the counter is far from full. */
        (void)!write(e->event_fd, &one, sizeof(one));
    }
    pthread_mutex_unlock(&e->done_lock);
}

static void wake_waiters(struct batch *b)
{
    pthread_mutex_lock(&b->wait_lock);
    if (b->driver && !pthread_equal(b->driver->thread, pthread_self()))
        tei_waker_ring(&b->driver->waker);
    pthread_cond_broadcast(&b->wait_cond);
    pthread_mutex_unlock(&b->wait_lock);
}

/* The newest is in front; the oldest is sent first. */
static void send_chain(struct group *first, bool failed)
{
    struct group *oldest = NULL;

    for (struct group *g = first, *next; g; g = next) {
        next = g->next;
        g->next = oldest;
        oldest = g;
    }
    for (struct group *g = oldest, *next; g; g = next) {
        next = g->next;
        tei_group_done(g, 1, failed);
    }
}

static struct group *last_of(struct group *g)
{
    while (g->next)
        g = g->next;
    return g;
}

/* Puts a chain of messages, which ends with `last`, in front of those that wait. */
static void push_after(struct batch *b, struct group *first, struct group *last)
{
    last->next = atomic_load(&b->after);
    while (!atomic_compare_exchange_weak(&b->after, &last->next, first))
        continue;
}

/*
 * Sends the messages that wait, if nothing is unfinished. Who pushes one looks at `left` after, who
 * brings `left` to 0 looks at `after` then; both sequentially consistent, so one of them sees it. They
 * are taken before `left` is looked at: what was submitted before a message that was taken is counted
 * in it. Where that is not 0 they go back, and it is looked at again.
 */
static void send_after(struct batch *b)
{
    while (atomic_load(&b->after) && atomic_load(&b->left) == 0) {
        struct group *first = atomic_exchange(&b->after, NULL);

        if (!first)
            return;
        if (atomic_load(&b->left) == 0)
            send_chain(first, atomic_load(&b->first_bad) != 0);
        else
            push_after(b, first, last_of(first));
    }
}

void tei_batch_after(struct batch *b, struct group *g)
{
    push_after(b, g, g);
    send_after(b);
}

/* `n` tasks of the batch became terminal. */
static void finish_tasks(struct batch *b, size_t n)
{
    if (atomic_fetch_sub(&b->left, n) != n)
        return;
    send_after(b);
    if (atomic_load_explicit(&b->engine->event_armed, memory_order_acquire))
        tell_event_fd(b);
    if (atomic_load(&b->waiters))
        wake_waiters(b);
    put_batch(b);
}

static int state_of(const struct task *t, int error)
{
    switch (error) {
    case TE_ERR_OK:
        return TE_COMPLETED;
    case TE_ERR_STALE:
    case TE_ERR_ACCESS:
        return TE_INVALID;
    case TE_ERR_CANCELED:
        return TE_CANCELED;
    case TE_ERR_TIMEOUT:
        /* Lack of progress is a failure; only a deadline that the caller set is a TIMEOUT. */
        return t->deadline_ns == TEI_NEVER ? TE_FAILED : TE_TIMEOUT;
    default:
        return TE_FAILED;
    }
}

static void note_failure(struct task *t)
{
    struct batch *b = t->batch;
    int none = 0, mine = (int)(t - b->tasks) + 1;

    atomic_compare_exchange_strong_explicit(&b->first_bad, &none, mine, memory_order_release,
                                            memory_order_relaxed);
}

/*
 * Tasks of one batch that end together, a chain by task.link. The holds of a run of them go, and
 * their figures are added, in one step each; only then are their states published, since who sees a
 * terminal state may unregister the memory.
 */
struct ending {
    struct batch *batch;
    struct view *view; /* of the last n_view tasks, still held for them */
    size_t n_view;
    struct ended of_view;      /* what they add to the figures of its peer */
    struct tei_region *region; /* likewise */
    uint32_t n_region;
    struct tei_link *first;
    uint32_t n;
    uint64_t bytes;
};

/* Counted before the view goes, since the peer may then be closed. */
static void let_go_view(struct ending *g, struct view *next)
{
    if (g->n_view)
        tei_metrics_ended(g->batch->engine, g->view, &g->of_view);
    if (g->view && g->n_view)
        tei_view_put(g->view, g->n_view);
    g->view = next;
    g->n_view = 0;
}

static void let_go_region(struct ending *g, struct tei_region *next)
{
    if (g->region && g->n_region)
        tei_region_release_local(g->region, g->n_region);
    g->region = next;
    g->n_region = 0;
}

static void add_ending(struct ending *g, struct task *t)
{
    int error = atomic_load_explicit(&t->error, memory_order_acquire);

    if (!g->n)
        *g = (struct ending){.batch = t->batch};
    if (t->view != g->view)
        let_go_view(g, t->view);
    if (t->region != g->region)
        let_go_region(g, t->region);
    g->n_view++;
    g->n_region++;
    t->link.next = g->first;
    g->first = &t->link;
    g->n++;
    if (error) {
        g->of_view.failed[t->req.opcode]++;
        note_failure(t);
        tei_metrics_failed(t->batch->engine, t, error);
    } else {
        atomic_store_explicit(&t->moved, t->req.length, memory_order_relaxed);
        g->of_view.completed[t->req.opcode]++;
        g->of_view.bytes[t->req.opcode] += t->req.length;
    }
    g->bytes += atomic_load_explicit(&t->moved, memory_order_relaxed);
}

static void publish_end(struct task *t)
{
    int error = atomic_load_explicit(&t->error, memory_order_relaxed);

    t->link.next = NULL;
    t->region = NULL;
    t->view = NULL;
    if (t->group)
        tei_group_done(t->group, 1, error != 0);
    /* Release: partner of the acquire in te_status(). */
    atomic_store_explicit(&t->state, (uint8_t)state_of(t, error), memory_order_release);
}

/* Ends the tasks that were gathered. The batch may be gone after it. */
static void end_together(struct ending *g)
{
    if (!g->n)
        return;
    let_go_region(g, NULL);
    let_go_view(g, NULL);
    atomic_fetch_add_explicit(&g->batch->bytes, g->bytes, memory_order_relaxed);
    for (struct tei_link *l = g->first, *next; l; l = next) {
        next = l->next;
        publish_end(tei_container_of(l, struct task, link));
    }
    finish_tasks(g->batch, g->n);
    g->n = 0;
}

void tei_task_end(struct task *t, int error, const char *why)
{
    struct ending one = {0};

    t->why = why;
    t->sys_errno = 0;
    atomic_store_explicit(&t->error, error, memory_order_relaxed);
    tei_metrics_unsample(t);
    add_ending(&one, t);
    end_together(&one);
}

bool tei_task_canceled(const struct task *t)
{
    const struct batch *b = t->batch;

    return (size_t)(t - b->tasks) < atomic_load(&b->cancel_mark) ||
           atomic_load_explicit(&b->engine->closing, memory_order_relaxed);
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

const char *tei_work_note(struct tei_host *h, const struct tei_work *w, const char *text)
{
    const struct task *t = w->task;

    (void)h;
    return w->sink ? w->sink->note(w->sink, w, text) : tei_batch_note(t->batch, text);
}

/*
 * The target refused the range, or could not be reached before a byte was sent: what we know of it
 * may be old. One refresh is due then, after which the whole request starts again; that is safe,
 * since all its attempts are over and moved the same bytes.
 */
static bool wants_refresh(const struct task *t, int error)
{
    return tei_err_is_mild(error) && !t->refreshed && t->view->seg && !tei_task_canceled(t);
}

/*
 * The first error stands, but for one that would let the request be tried again: of several pieces
 * each must be so, or bytes of a dead attempt might arrive after the second one has completed.
 */
static void fold_error(struct task *t, const struct tei_work *w)
{
    pthread_mutex_t *lock = &t->batch->wait_lock;
    int was;

    pthread_mutex_lock(lock);
    was = atomic_load_explicit(&t->error, memory_order_relaxed);
    if (was == TE_ERR_OK || (tei_err_is_mild(was) && !tei_err_is_mild(w->error))) {
        atomic_store_explicit(&t->error, w->error, memory_order_relaxed);
        t->sys_errno = w->sys_errno;
        t->why = w->why;
    }
    pthread_mutex_unlock(lock);
}

/* Folds one finished piece into its task; true if it was the last. */
static bool fold(struct tei_work *w)
{
    struct task *t = w->task;

    if (w->target_region)
        tei_region_release_local(w->target_region, 1);
    if (w->error)
        fold_error(t, w);
    /*
     * Acquire-release: the last one sees what all others folded in. Who holds the only piece left
     * need not count: nobody else can.
     */
    return atomic_load_explicit(&t->left, memory_order_acquire) == 1 ||
           atomic_fetch_sub_explicit(&t->left, 1, memory_order_acq_rel) == 1;
}

/* All pieces of the task are back: it ends, true; or is parked for another go, false. */
static bool ends_now(struct task *t)
{
    int error = atomic_load_explicit(&t->error, memory_order_relaxed);

    if (!wants_refresh(t, error)) {
        /* Too late for this one, but the next should know whether the peer is another by now. */
        if ((error == TE_ERR_LINK || error == TE_ERR_PROTOCOL) && t->view->seg)
            tei_peer_refresh(t->view->peer);
        return true;
    }
    atomic_store_explicit(&t->moved, 0, memory_order_relaxed);
    atomic_store_explicit(&t->state, TE_PENDING, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->batch->engine->metrics.restarts, 1, memory_order_relaxed);
    tei_peer_park(t->view->peer, t);
    return false;
}

/* Work of one transport is freed in bulk, tasks end in runs. */
struct sweep {
    te_engine *engine;
    size_t index;
    struct tei_pool_free *first;
    size_t n;
    struct returned returned; /* the n, in figures */
    struct ending ending;
};

static void flush_works(struct sweep *s)
{
    if (!s->n)
        return;
    tei_pool_put_many(&s->engine->transports.works[s->index], s->first, s->n);
    tei_metrics_carried(s->engine, &s->returned);
    s->first = NULL;
    s->n = 0;
}

static void sweep_one(struct sweep *s, struct tei_work *w)
{
    struct tei_pool_free *f = (struct tei_pool_free *)(void *)w;
    struct task *t = w->task;
    size_t index = w->transport->index;
    bool last = fold(w);

    if (index != s->index)
        flush_works(s);
    s->index = index;
    tei_metrics_return(s->engine, &s->returned, w);
    f->next = s->first;
    s->first = f;
    s->n++;
    if (!last || !ends_now(t))
        return;
    if (t->sample)
        tei_metrics_sampled(s->engine, t, s->returned.place);
    if (t->batch != s->ending.batch)
        end_together(&s->ending);
    add_ending(&s->ending, t);
}

void tei_work_done(struct tei_host *h, struct tei_list *done)
{
    struct sweep s = {.engine = tei_host_engine(h)};
    struct tei_link *l;

    while ((l = tei_list_pop(done))) {
        struct tei_work *w = tei_container_of(l, struct tei_work, link);

        if (w->sink)
            w->sink->done(w->sink, w);
        else
            sweep_one(&s, w);
    }
    flush_works(&s);
    end_together(&s.ending);
}

/* --------------------------------------------------------------------------------------- status */

static int read_task(const struct task *t, struct te_status *out)
{
    out->state = atomic_load_explicit(&t->state, memory_order_acquire);
    out->error =
        is_terminal(out->state) ? atomic_load_explicit(&t->error, memory_order_relaxed) : TE_ERR_OK;
    out->bytes = atomic_load_explicit(&t->moved, memory_order_relaxed);
    return 0;
}

static int check_task(const struct batch *b, size_t task, const void *out)
{
    size_t n = atomic_load_explicit(&b->claimed, memory_order_acquire);

    if (!out)
        return TEI_FAIL(TE_ERR_INVALID, "the place for the status is NULL");
    if (task >= n)
        return TEI_FAIL(TE_ERR_INVALID, "task %zu of a batch with %zu submitted requests", task, n);
    return 0;
}

int te_status(te_engine *e, te_batch id, size_t task, struct te_status *out)
{
    int rc;
    struct batch *b = pin_checked(e, id, &rc);

    if (!b)
        return rc;
    rc = check_task(b, task, out);
    if (!rc)
        rc = read_task(&b->tasks[task], out);
    tei_batch_unpin(e, id);
    return rc;
}

static int read_batch(struct batch *b, struct te_status *out)
{
    int bad;

    if (!out)
        return TEI_FAIL(TE_ERR_INVALID, "the place for the status is NULL");
    if (atomic_load_explicit(&b->left, memory_order_acquire)) {
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
    struct batch *b = pin_checked(e, id, &rc);

    if (!b)
        return rc;
    rc = read_batch(b, out);
    tei_batch_unpin(e, id);
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
    if (!is_terminal(state) || !error)
        return;
    tei_peer_name(t->batch->engine, t->req.target, name, sizeof(name));
    snprintf(buf, n, "%s of %llu bytes at 0x%llx of segment '%s': %s%s%s%s%s%s",
             t->req.opcode == TE_READ ? "read" : "write", (unsigned long long)t->req.length,
             (unsigned long long)t->req.target_offset, name, te_strerror(error), t->why ? ": " : "",
             t->why ? t->why : "", t->sys_errno ? ": " : "",
             t->sys_errno ? tei_errno_text(t->sys_errno) : "",
             remedy_of(error, t->why, tei_keys_is_files(name)));
}

int te_status_msg(te_engine *e, te_batch id, size_t task, char *buf, size_t n)
{
    int rc;
    struct batch *b = pin_checked(e, id, &rc);

    if (!b)
        return rc;
    rc = check_task(b, task, n ? buf : NULL);
    if (!rc)
        write_msg(&b->tasks[task], buf, n);
    tei_batch_unpin(e, id);
    return rc;
}

/* ------------------------------------------------------------------------------ wait and cancel */

static bool poll_transports(te_engine *e)
{
    struct tei_transport *t;
    bool moved = false;

    for (size_t i = 0; (t = tei_transports_get(&e->transports, &i, TEI_HAS_POLL)); i++) {
        moved |= t->ops.poll(t);
        tei_transports_put(&e->transports, i);
    }
    return moved;
}

/*
 * Polls transports for a bounded time: a short request then ends without a thread being
 * woken for it.
 */
static void spin(struct batch *b, int64_t deadline_ns)
{
    te_engine *e = b->engine;
    int64_t now = tei_now_ns(), end = now + (int64_t)e->conf.spin_us * 1000;

    while (atomic_load_explicit(&b->left, memory_order_acquire) && now < end && now < deadline_ns) {
        /* As long as bytes move, polling is not idle spinning. */
        if (poll_transports(e))
            end = tei_now_ns() + (int64_t)e->conf.spin_us * 1000;
        now = tei_now_ns();
    }
}

/* Whether nothing was left once: another thread may have submitted more by the time of the return. */
static bool sleep_left(struct batch *b, int64_t deadline_ns)
{
    bool in_time = true, done;

    pthread_mutex_lock(&b->wait_lock);
    while (!(done = !atomic_load(&b->left)) && in_time)
        in_time = tei_cond_wait_until(&b->wait_cond, &b->wait_lock, deadline_ns);
    pthread_mutex_unlock(&b->wait_lock);
    return done;
}

static int wait_left(struct batch *b, int64_t deadline_ns)
{
    bool done;

    if (!atomic_load_explicit(&b->left, memory_order_acquire))
        return 0;
    atomic_fetch_add(&b->waiters, 1);
    tei_drive(b, deadline_ns);
    if (atomic_load(&b->left))
        spin(b, deadline_ns);
    done = !atomic_load(&b->left) || sleep_left(b, deadline_ns);
    atomic_fetch_sub(&b->waiters, 1);
    return done ? 0 : TE_ERR_TIMEOUT;
}

int te_wait(te_engine *e, te_batch id, int64_t timeout_ms)
{
    int rc;
    struct batch *b = pin_checked(e, id, &rc);

    if (!b)
        return rc;
    rc = wait_left(b, tei_deadline_ns(timeout_ms));
    tei_batch_unpin(e, id);
    if (rc)
        tei_err_keep(rc, "requests are still unfinished; they go on");
    return rc;
}

static void cancel_posted(te_engine *e, const struct batch *b)
{
    /* What was on its way from a parking place to a transport is with the transport after this. */
    pthread_rwlock_wrlock(&e->repost_lock);
    pthread_rwlock_unlock(&e->repost_lock);
    tei_stage_cancel(e, b);
    pthread_rwlock_rdlock(&e->transports.lock);
    for (size_t i = 0; i < e->transports.n; i++)
        if (e->transports.list[i])
            e->transports.list[i]->ops.cancel(e->transports.list[i], b);
    pthread_rwlock_unlock(&e->transports.lock);
}

int te_cancel(te_engine *e, te_batch id)
{
    int rc;
    struct batch *b = pin_checked(e, id, &rc);

    if (!b)
        return rc;
    /* Under this lock, so what is below the mark has been posted or parked. */
    pthread_mutex_lock(&b->submit_lock);
    atomic_store(&b->cancel_mark, atomic_load_explicit(&b->claimed, memory_order_relaxed));
    pthread_mutex_unlock(&b->submit_lock);
    tei_peer_unpark(e, b);
    cancel_posted(e, b);
    tei_batch_unpin(e, id);
    return 0;
}

/* ------------------------------------------------------------------------------------- event fd */

int te_event_fd(te_engine *e)
{
    int fd, rc = tei_engine_check(e);

    if (rc)
        return rc;
    pthread_mutex_lock(&e->done_lock);
    if (e->event_fd < 0)
        e->event_fd = tei_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    fd = e->event_fd;
    atomic_store_explicit(&e->event_armed, fd >= 0, memory_order_release);
    pthread_mutex_unlock(&e->done_lock);
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
    if (!atomic_load_explicit(&e->event_armed, memory_order_acquire))
        return TEI_FAIL(TE_ERR_INVALID, "te_event_fd() was not called yet");
    pthread_mutex_lock(&e->done_lock);
    while (got < n && (l = tei_list_pop(&e->done))) {
        const struct batch *b = tei_container_of(l, struct batch, done_link);

        /* One that has got new requests since is told when these are done. */
        if (atomic_load_explicit(&b->left, memory_order_acquire) == 0)
            ids[got++] = b->id;
    }
    quiet_event_fd(e);
    pthread_mutex_unlock(&e->done_lock);
    return (int)got;
}
