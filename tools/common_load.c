/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request i of worker t works at block * (i * threads + t) of a local and a remote buffer, both
 * chosen by t. In a verified load the bytes of a worker lie together, and each local buffer has two
 * halves: what is written comes from the first, what is read back goes to the second. The host sees
 * both by mirrors.
 */
#include "common_load.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common_colour.h"
#include "common_memory.h"
#include "common_random.h"

#define SKEW     64 /* a verified load begins at any of so many byte offsets */
#define GUARD    0xEE
#define POLL_MS  100 /* how often a waiting worker looks whether the user wants it to end */
#define TICK_MS  20  /* how often the main thread looks whether the workers have ended */
#define LINE_MS  500 /* how often the live line changes */
#define MSG_SIZE 512

struct shared {
    const struct load *load;
    pthread_mutex_t lock; /* guards open */
    pthread_cond_t opened;
    bool open;                /* the measured part begins */
    int64_t begin_ns, end_ns; /* written before that */
    atomic_size_t ready;
    atomic_bool stop;   /* no new batch; also set by the first failure */
    atomic_bool cancel; /* and give up those in flight */
    atomic_size_t running;
    atomic_size_t failures; /* of workers; the first one is told */
};

struct worker {
    struct shared *shared;
    pthread_t thread;
    size_t index;
    uint8_t *local;           /* of this worker's range */
    uint64_t remote;          /* likewise */
    struct mirror from, back; /* of a verified load */
    te_request *reqs;
    uint64_t *task_ns; /* --poll: when each task was seen to end */
    uint64_t seed;
    int64_t last_ns;            /* when its last batch ended */
    _Atomic uint64_t live_done; /* batches, for the live line */
    _Atomic uint64_t live_bytes;
    struct load_result result;
};

static int64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* One line, whose beginning up to a colon stands out. */
static void write_bad(const struct load *load, const char *text)
{
    int n = (int)strcspn(text, ":");

    fprintf(stderr, "%s%s: %s%.*s%s%s\n", colour_clear(), load->tool, colour_on(stderr, COLOUR_BAD),
            n, text, colour_off(stderr), text + n);
}

/* The first thing that went wrong is the worker's result. */
static void keep_error(struct worker *w, const char *text)
{
    if (!w->result.error[0])
        snprintf(w->result.error, sizeof(w->result.error), "%s", text);
}

/* Says which bytes are wrong. */
__attribute__((format(printf, 2, 3))) static void tell_corrupt(struct worker *w, const char *fmt,
                                                               ...)
{
    char text[LOAD_ERROR_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    write_bad(w->shared->load, text);
    keep_error(w, text);
}

/* Says why the load fails: once, since what one worker meets most others do. */
__attribute__((format(printf, 2, 3))) static void tell_failed(struct worker *w, const char *fmt,
                                                              ...)
{
    char text[LOAD_ERROR_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (atomic_fetch_add(&w->shared->failures, 1) == 0)
        write_bad(w->shared->load, text);
    keep_error(w, text);
}

/* ---- One batch ------------------------------------------------------------------------------- */

static const char *state_name(int state)
{
    static const char *const names[] = {
        [TE_WAITING] = "WAITING",   [TE_PENDING] = "PENDING",     [TE_INVALID] = "INVALID",
        [TE_CANCELED] = "CANCELED", [TE_COMPLETED] = "COMPLETED", [TE_TIMEOUT] = "TIMEOUT",
        [TE_FAILED] = "FAILED",
    };
    return state >= 0 && state <= TE_FAILED ? names[state] : "unknown state";
}

static bool is_terminal(int state)
{
    return state != TE_WAITING && state != TE_PENDING;
}

/* Says what became of the first request that did not complete. */
static void tell_failure(struct worker *w, te_batch b, size_t n)
{
    te_engine *e = w->shared->load->setup->engine;
    char text[MSG_SIZE] = "";
    struct te_status st;

    for (size_t i = 0; i < n; i++) {
        if (te_status(e, b, i, &st) || st.state == TE_COMPLETED)
            continue;
        te_status_msg(e, b, i, text, sizeof(text));
        tell_failed(w, "FAILED: worker %zu: %s%s%s", w->index,
                    st.state == TE_FAILED ? "" : state_name(st.state),
                    st.state == TE_FAILED ? "" : ", ", text);
        return;
    }
}

static int wait_asleep(struct worker *w, te_batch b, struct te_status *st)
{
    te_engine *e = w->shared->load->setup->engine;
    bool asked = false;
    int rc;
    while ((rc = te_wait(e, b, POLL_MS)) == TE_ERR_TIMEOUT) {
        if (!asked && atomic_load(&w->shared->cancel)) {
            te_cancel(e, b);
            asked = true;
        }
    }
    return rc ? rc : te_batch_status(e, b, st);
}

/* Looks at a task until it has ended, and notes when it did. */
static int watch_task(struct worker *w, te_batch b, size_t i, struct te_status *st)
{
    te_engine *e = w->shared->load->setup->engine;
    int rc;
    while ((rc = te_status(e, b, i, st)) == 0 && !is_terminal(st->state)) {
        if (atomic_load_explicit(&w->shared->cancel, memory_order_relaxed))
            te_cancel(e, b);
        sched_yield();
    }
    w->task_ns[i] = (uint64_t)now_ns();
    return rc;
}

/* Looks at task after task, as programs written for the C names do. */
static int wait_polling(struct worker *w, te_batch b, size_t n, struct te_status *st)
{
    struct te_status one;
    *st = (struct te_status){.state = TE_COMPLETED};
    for (size_t i = 0; i < n; i++) {
        int rc = watch_task(w, b, i, &one);
        if (rc)
            return rc;
        st->bytes += one.bytes;
        if (one.state != TE_COMPLETED && st->state == TE_COMPLETED)
            st->state = one.state;
    }
    return 0;
}

static void note_times(struct worker *w, size_t n, int64_t begin, int64_t end)
{
    uint64_t ns = (uint64_t)(end - begin);
    hist_add(&w->result.batch, ns, 1);
    if (!w->shared->load->poll) {
        hist_add(&w->result.request, ns / n, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        hist_add(&w->result.request, w->task_ns[i] - (uint64_t)begin, 1);
}

/* Submits the first `n` requests of the worker and sees them through. Counts them if `measure`. */
static bool run_batch(struct worker *w, size_t n, bool measure)
{
    const struct load *load = w->shared->load;
    te_engine *e = load->setup->engine;
    te_submit_opts opts = {.size = sizeof(opts), .deadline_ms = (int64_t)load->deadline_ms};
    struct te_status st = {.state = TE_FAILED};
    te_batch b;

    int64_t begin = now_ns();
    int rc = te_batch_alloc(e, n, &b);
    if (rc) {
        tell_failed(w, "FAILED: no batch: %s", te_errmsg());
        return false;
    }
    rc = te_submit(e, b, w->reqs, n, &opts);
    if (rc) {
        tell_failed(w, "FAILED: submit: %s", te_errmsg());
        te_batch_free(e, b);
        return false;
    }
    rc = load->poll ? wait_polling(w, b, n, &st) : wait_asleep(w, b, &st);
    int64_t end = now_ns();
    bool ok = !rc && st.state == TE_COMPLETED;
    if (rc)
        tell_failed(w, "FAILED: wait: %s", te_errmsg());
    else if (!ok && !atomic_load(&w->shared->cancel))
        tell_failure(w, b, n);
    te_batch_free(e, b);
    if (ok && measure) {
        note_times(w, n, begin, end);
        w->result.batches++;
        w->result.requests += n;
        w->result.bytes += st.bytes;
        w->last_ns = end;
        atomic_store_explicit(&w->live_done, w->result.batches, memory_order_relaxed);
        atomic_store_explicit(&w->live_bytes, w->result.bytes, memory_order_relaxed);
    }
    return ok;
}

/* ---- A plain load ---------------------------------------------------------------------------- */

static void lay_out(struct worker *w)
{
    const struct load *load = w->shared->load;
    for (uint64_t i = 0; i < load->batch; i++) {
        w->reqs[i] = (te_request){.opcode = (int)load->opcode,
                                  .source = w->local + i * load->block * load->threads,
                                  .target = load->setup->target,
                                  .target_offset = w->remote + i * load->block * load->threads,
                                  .length = load->block};
    }
}

/* ---- A verified load ------------------------------------------------------------------------- */

/* Cuts a range into requests of one block; the first is as told, the last may be shorter. */
static size_t cut(struct worker *w, enum te_opcode opcode, uint8_t *local, uint64_t remote,
                  uint64_t length, uint64_t first)
{
    const struct load *load = w->shared->load;
    size_t n = 0;
    for (uint64_t at = 0; at < length; n++) {
        uint64_t step = n == 0 ? first : load->block;
        step = step < length - at ? step : length - at;
        w->reqs[n] = (te_request){.opcode = (int)opcode,
                                  .source = local + at,
                                  .target = load->setup->target,
                                  .target_offset = remote + at,
                                  .length = step};
        at += step;
    }
    return n;
}

static void tell_mismatch(struct worker *w, const uint8_t *want, const uint8_t *have,
                          uint64_t length, uint64_t remote)
{
    uint64_t first = length, count = 0;
    for (uint64_t i = 0; i < length; i++) {
        if (want[i] == have[i])
            continue;
        first = first < i ? first : i;
        count++;
    }
    tell_corrupt(w,
                 "Detect data integrity problem: worker %zu, round %" PRIu64
                 ": byte at offset %" PRIu64 " of %" PRIu64 " (target address 0x%" PRIx64
                 ") is 0x%02x, expected 0x%02x; %" PRIu64 " bytes differ",
                 w->index, w->result.batches / 2, first, length, remote + first, have[first],
                 want[first], count);
}

/* The first byte of a range that is not `value`, `length` if none. */
static uint64_t find_other(const uint8_t *data, uint8_t value, uint64_t length)
{
    uint64_t i = 0;
    while (i < length && data[i] == value)
        i++;
    return i;
}

/* Looks for bytes around the range read that are no longer what they were. */
static bool check_guards(struct worker *w, const uint8_t *back, uint64_t skew, uint64_t length,
                         uint64_t range)
{
    uint64_t before = find_other(back, GUARD, skew);
    uint64_t behind = find_other(back + skew + length, GUARD, range - skew - length);
    if (before == skew && behind == range - skew - length)
        return true;
    tell_corrupt(w,
                 "Detect data integrity problem: worker %zu: a read of %" PRIu64
                 " bytes changed memory outside of its range, at offset %lld",
                 w->index, length,
                 before < skew ? (long long)before - (long long)skew
                               : (long long)(length + behind));
    return false;
}

static bool mirrored(struct worker *w, const struct mirror *m, bool ok)
{
    if (!ok)
        tell_failed(w, "FAILED: worker %zu: %s", w->index, m->error);
    return ok;
}

/* Random bytes there and back. */
static bool verify_round(struct worker *w)
{
    const struct load *load = w->shared->load;
    uint64_t range = load->block * load->batch;
    uint64_t offsets = range < SKEW ? range : SKEW;
    uint64_t from = random_next(&w->seed) % offsets, to = random_next(&w->seed) % offsets;
    uint64_t skew = random_next(&w->seed) % offsets;
    uint64_t first = 1 + random_next(&w->seed) % load->block;
    uint64_t length = range - (offsets - 1);
    uint8_t *data = w->from.seen + from, *area = w->back.seen, *back = area + skew;

    random_fill(&w->seed, data, length);
    if (!mirrored(w, &w->from, mirror_push(&w->from, from, length)))
        return false;
    size_t n = cut(w, TE_WRITE, w->from.part + from, w->remote + to, length, load->block);
    if (!run_batch(w, n, true))
        return false;
    memset(area, GUARD, range);
    for (uint64_t i = 0; i < length; i++)
        back[i] = (uint8_t)~data[i];
    if (!mirrored(w, &w->back, mirror_push(&w->back, 0, range)))
        return false;
    n = cut(w, TE_READ, w->back.part + skew, w->remote + to, length, first);
    if (!run_batch(w, n, true) || !mirrored(w, &w->back, mirror_pull(&w->back, 0, range)))
        return false;
    if (memcmp(data, back, length) != 0) {
        tell_mismatch(w, data, back, length, w->remote + to);
        w->result.corrupt = true;
    } else {
        w->result.corrupt = !check_guards(w, area, skew, length, range);
    }
    w->result.verified += length;
    return !w->result.corrupt;
}

/* ---- Workers --------------------------------------------------------------------------------- */

static bool may_go_on(const struct worker *w, uint64_t rounds)
{
    const struct load *load = w->shared->load;
    if (atomic_load_explicit(&w->shared->stop, memory_order_relaxed))
        return false;
    if (load->batches && rounds >= load->batches)
        return false;
    return now_ns() < w->shared->end_ns;
}

static void wait_for_start(struct shared *shared)
{
    atomic_fetch_add(&shared->ready, 1);
    pthread_mutex_lock(&shared->lock);
    while (!shared->open)
        pthread_cond_wait(&shared->opened, &shared->lock);
    pthread_mutex_unlock(&shared->lock);
}

static void open_start(struct shared *shared)
{
    pthread_mutex_lock(&shared->lock);
    shared->begin_ns = now_ns();
    shared->end_ns = shared->begin_ns + (int64_t)(shared->load->seconds * 1e9);
    shared->open = true;
    pthread_cond_broadcast(&shared->opened);
    pthread_mutex_unlock(&shared->lock);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    const struct load *load = w->shared->load;
    uint64_t rounds = 0;

    setup_bind(load->setup->count > 1 ? load->setup->buffers[w->index % load->setup->count].node
                                      : -1);
    if (!load->verify)
        lay_out(w);
    /* The first batch finds the peer and connects; it is not measured. */
    bool ok = load->verify || run_batch(w, load->batch, false);
    wait_for_start(w->shared);
    w->last_ns = w->shared->begin_ns;
    while (ok && may_go_on(w, rounds)) {
        ok = load->verify ? verify_round(w) : run_batch(w, load->batch, true);
        rounds++;
    }
    if (!ok) {
        w->result.failed = !w->result.corrupt && !atomic_load(&w->shared->cancel);
        atomic_store(&w->shared->stop, true);
    }
    if (ok && load->tell_workers)
        fprintf(stderr, "%sWorker %zu stopped! %sData validation passed%s\n", colour_clear(),
                w->index, colour_on(stderr, COLOUR_GOOD), colour_off(stderr));
    atomic_fetch_sub(&w->shared->running, 1);
    return NULL;
}

static void place(struct worker *w)
{
    const struct load *load = w->shared->load;
    const struct setup *s = load->setup;
    const te_buffer *remote = &s->remotes[w->index % s->remote_count];
    uint64_t at = (load->verify ? load->block * load->batch : load->block) * w->index;

    w->local = (uint8_t *)s->buffers[w->index % s->count].addr + at;
    w->remote = (uint64_t)(uintptr_t)remote->addr + at;
    w->seed = (uint64_t)now_ns() ^ ((uint64_t)getpid() << 32) ^ (w->index * 0xD1342543DE82EF95ull);
}

static bool mirror_both(struct worker *w)
{
    const struct load *load = w->shared->load;
    uint64_t range = load->block * load->batch;

    return mirrored(w, &w->from, mirror_open(&w->from, load->setup, w->local, range)) &&
           mirrored(w, &w->back,
                    mirror_open(&w->back, load->setup, w->local + load->setup->length / 2, range));
}

static bool prepare(struct worker *w, struct shared *shared, size_t index)
{
    size_t room = shared->load->batch + 1;
    w->shared = shared;
    w->index = index;
    w->reqs = calloc(room, sizeof(*w->reqs));
    w->task_ns = calloc(room, sizeof(*w->task_ns));
    if (!w->reqs || !w->task_ns)
        return false;
    place(w);
    return !shared->load->verify || mirror_both(w);
}

static void draw_line(const struct shared *shared, const struct worker *workers,
                      uint64_t *last_bytes, int64_t *last_ns)
{
    const struct load *load = shared->load;
    uint64_t bytes = 0, batches = 0;
    int64_t now = now_ns();
    for (size_t i = 0; i < load->threads; i++) {
        bytes += atomic_load_explicit(&workers[i].live_bytes, memory_order_relaxed);
        batches += atomic_load_explicit(&workers[i].live_done, memory_order_relaxed);
    }
    double seconds = (double)(now - *last_ns) / 1e9;
    double left = (double)(shared->end_ns - now) / 1e9;
    double rows_left = (double)(load->rows - load->row) * load->seconds;
    fputc('\r', stderr);
    if (load->rows)
        fprintf(stderr, "row %zu of %zu: ", load->row, load->rows);
    fprintf(stderr, "%.*f %s/s, %" PRIu64 " batches, %.0f s left \033[K", (int)load->precision,
            (double)(bytes - *last_bytes) / seconds / load->report_bytes, load->report_unit,
            batches, (left > 0 ? left : 0) + rows_left);
    fflush(stderr);
    *last_bytes = bytes;
    *last_ns = now;
}

/* The first signal asks for no more batches, the second cancels those in flight. */
static bool heed_signals(struct shared *shared, bool interrupted)
{
    if (!setup_interrupted(TICK_MS))
        return interrupted;
    atomic_store(interrupted ? &shared->cancel : &shared->stop, true);
    return true;
}

static bool oversee(struct shared *shared, const struct worker *workers, size_t n)
{
    uint64_t last_bytes = 0;
    bool interrupted = false, line = false;

    while (atomic_load(&shared->ready) < n)
        interrupted = heed_signals(shared, interrupted);
    open_start(shared);
    int64_t last_ns = shared->begin_ns;
    while (atomic_load(&shared->running) > 0) {
        interrupted = heed_signals(shared, interrupted);
        if (shared->load->progress && now_ns() - last_ns >= LINE_MS * 1000000ll) {
            draw_line(shared, workers, &last_bytes, &last_ns);
            line = true;
        }
    }
    if (line)
        fputs("\r\033[K", stderr);
    return interrupted;
}

static void collect(const struct shared *shared, const struct worker *workers, size_t n,
                    struct load_result *result)
{
    int64_t last = shared->begin_ns;
    for (size_t i = 0; i < n; i++) {
        const struct load_result *r = &workers[i].result;
        last = workers[i].last_ns > last ? workers[i].last_ns : last;
        result->batches += r->batches;
        result->requests += r->requests;
        result->bytes += r->bytes;
        result->verified += r->verified;
        result->failed |= r->failed;
        result->corrupt |= r->corrupt;
        if (!result->error[0])
            memcpy(result->error, r->error, sizeof(r->error));
        hist_merge(&result->batch, &r->batch);
        hist_merge(&result->request, &r->request);
    }
    result->seconds = (double)(last - shared->begin_ns) / 1e9;
}

/* Starts the workers; how many of them were started. */
static size_t start(struct shared *shared, struct worker *workers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!prepare(&workers[i], shared, i) ||
            pthread_create(&workers[i].thread, NULL, work, &workers[i])) {
            atomic_store(&shared->stop, true);
            return i;
        }
        atomic_fetch_add(&shared->running, 1);
    }
    return n;
}

bool load_run(const struct load *load, struct load_result *result)
{
    struct shared shared = {
        .load = load, .lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};
    memset(result, 0, sizeof(*result));
    struct worker *workers = calloc(load->threads, sizeof(*workers));
    if (!workers) {
        snprintf(result->error, sizeof(result->error), "out of memory");
        fprintf(stderr, "%s: %s\n", load->tool, result->error);
        return false;
    }
    size_t n = start(&shared, workers, load->threads);
    if (n < load->threads) {
        snprintf(result->error, sizeof(result->error), "cannot start worker %zu", n);
        fprintf(stderr, "%s: %s\n", load->tool, result->error);
    }
    result->interrupted = oversee(&shared, workers, n);
    for (size_t i = 0; i < n; i++)
        pthread_join(workers[i].thread, NULL);
    collect(&shared, workers, n, result);
    if (shared.failures > 1)
        fprintf(stderr, "%s: %zu more worker%s failed\n", load->tool, shared.failures - 1,
                shared.failures > 2 ? "s" : "");
    for (size_t i = 0; i < load->threads; i++) {
        free(workers[i].reqs);
        free(workers[i].task_ns);
        mirror_close(&workers[i].from);
        mirror_close(&workers[i].back);
    }
    free(workers);
    return n == load->threads && !result->failed && !result->corrupt;
}

void load_report(FILE *out, const struct load *load, const struct load_result *result)
{
    double rate = result->seconds > 0 ? (double)result->bytes / result->seconds : 0;
    int digits = (int)load->precision;
    fprintf(out, "Test completed: duration %.*f, batch count %" PRIu64 ", throughput %.*f %s/s\n",
            digits, result->seconds, result->batches, digits, rate / load->report_bytes,
            load->report_unit);
}
