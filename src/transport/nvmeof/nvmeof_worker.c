/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvmeof_worker.c - the thread te/file.
 *
 * Each file has a ledger, whose parts are I/O requests. At most conf->file_depth of them are under way to one file, so a device that
 * does not answer holds up its own files alone.
 *
 *   CLOSED --work comes, a job opens it--> OPENING --> OPEN --reopen, nothing under way--> CLOSED
 *                                             `------> FAILED --what waited has ended--------> CLOSED
 *
 * So a path that did not lead anywhere is tried anew with the next request.
 *
 * Files take turns, and so do the requests of one, an I/O each. What waits for a device that does not
 * answer takes I/O requests, threads of the kernel (as many are allowed as there are I/O requests) and
 * the threads that open files; each file can have but a part of them.
 */
#include "transport/nvmeof/nvmeof.h"

#include "base/err.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPENING_MAX 4                /* files that are opened at a time */
#define IDLE_FEW    (NVMEOF_IOS / 4) /* so few I/O requests left are for files that have none */
#define FEW         2                /* or almost none */

/*
 * Whether the file can do it, asked before its first I/O. It is opened anew if it seems too short, or
 * cuFile is to be asked whether it takes it.
 */
static bool is_possible(struct nvmeof_work *w)
{
    struct nvmeof_file *f = w->file;
    bool fits = w->at + w->entry.base.length <= f->length;

    if (w->entry.base.opcode == TE_WRITE && !f->writable)
        tei_nvmeof_fail_at(w, TE_ERR_ACCESS, 0, "%s may only be read by this process");
    else if (!fits && w->looked)
        tei_nvmeof_fail_at(w, TE_ERR_STALE, 0, "the file %s is shorter than its record");
    else if (!fits)
        w->looked = f->reopen = true;
    else if (tei_nvmeof_is_gpu(w) && !f->cufile_asked)
        f->reopen = true;
    return fits && !f->reopen && !w->entry.base.error;
}

/* The work of which the next I/O is; NULL: none. */
static struct nvmeof_work *first_of(const struct nvmeof_file *f)
{
    const struct tei_entry *e = tei_ledger_first(&f->ledger);

    return e ? tei_container_of((struct tei_entry *)e, struct nvmeof_work, entry) : NULL;
}

/* Starts one I/O of the file's first work, which goes behind the others then. */
static void start_one(struct nvmeof *n, struct nvmeof_file *f)
{
    struct nvmeof_work *w = first_of(f);
    struct nvmeof_io *io = tei_container_of(tei_list_first(&n->idle), struct nvmeof_io, link);

    if ((!w->entry.next && !is_possible(w)) || !tei_nvmeof_cut(w, io))
        return;
    tei_list_del(&io->link);
    io->flying = true;
    f->ios++;
    n->flying++;
    tei_nvmeof_io_start(n, io);
}

/* Whether one more I/O of the file may be started. */
static bool may_start(const struct nvmeof *n, const struct nvmeof_file *f)
{
    size_t share = n->device->share(n);
    const struct nvmeof_work *first = first_of(f);

    if (first && tei_nvmeof_is_gpu(first))
        share = tei_min(share, tei_nvmeof_pool_share(n));
    if (NVMEOF_IOS - n->flying <= IDLE_FEW)
        share = tei_min(share, FEW);
    return f->state == NVMEOF_OPEN && !f->reopen && f->ios < share && first &&
           !tei_list_empty(&n->idle);
}

static void fail_queue(struct nvmeof_file *f)
{
    struct tei_host *host = f->owner->base.host;

    struct nvmeof_work *w;

    while ((w = first_of(f)))
        tei_nvmeof_fail(w, f->error, f->sys_errno, host->note(host, &w->entry.base, f->why));
}

/* Whether the file is to be opened, for which it has a reference then. */
static bool wants_open(struct nvmeof *n, struct nvmeof_file *f)
{
    if (f->state == NVMEOF_OPEN && f->reopen && f->ios == 0)
        f->state = NVMEOF_CLOSED;
    if (f->state == NVMEOF_FAILED) {
        fail_queue(f);
        f->state = NVMEOF_CLOSED;
    }
    if (f->state != NVMEOF_CLOSED || !first_of(f) || n->opening == OPENING_MAX)
        return false;
    f->state = NVMEOF_OPENING;
    f->reopen = false;
    f->refs++;
    n->opening++;
    n->jobs++;
    return true;
}

/* Lock held; let go of while a file's opening is posted, after which the list may be another one. */
static void open_files(struct nvmeof *n)
{
    struct tei_link *l = tei_list_first(&n->busy), *next;

    for (; l; l = next) {
        struct nvmeof_file *f = tei_container_of(l, struct nvmeof_file, busy);

        next = tei_list_next(&n->busy, l);
        if (wants_open(n, f)) {
            pthread_mutex_unlock(&n->lock);
            tei_nvmeof_file_open(f);
            pthread_mutex_lock(&n->lock);
            next = tei_list_first(&n->busy);
        } else if (!first_of(f) && !f->ios) {
            tei_list_del(l);
        }
    }
}

/* An I/O of each file in turn, until there is none that may be started. Lock held. */
static void start_ios(struct nvmeof *n)
{
    struct tei_link *l, *tmp;
    bool more = true;

    while (more) {
        more = false;
        TEI_LIST_EACH(&n->busy, l, tmp) {
            struct nvmeof_file *f = tei_container_of(l, struct nvmeof_file, busy);

            if (may_start(n, f)) {
                start_one(n, f);
                more = true;
            }
        }
        /* Who was first is last the next time, also where I/O requests run out. */
        l = tei_list_pop(&n->busy);
        if (l)
            tei_list_push_back(&n->busy, l);
    }
}

/* ------------------------------------------------------------------------------------------ lateness */

/* Lock held. */
static void check_late(struct nvmeof *n)
{
    int64_t now = tei_now_ns();
    struct tei_link *l;

    if (now < n->late_ns)
        return;
    n->late_ns = TEI_NEVER;
    n->cancels = true;
    for (l = tei_list_first(&n->busy); l; l = tei_list_next(&n->busy, l)) {
        struct nvmeof_file *f = tei_container_of(l, struct nvmeof_file, busy);
        uint64_t stalled = f->ledger.n_stalled;
        int64_t look = tei_ledger_tick(&f->ledger, now);

        n->late_ns = look < n->late_ns ? look : n->late_ns;
        tei_ledger_reap(&f->ledger, &n->ended);
        if (f->ledger.n_stalled != stalled)
            snprintf(n->notice, sizeof n->notice,
                     "%.150s: does not answer; its work ends when the kernel gives back the I/O",
                     f->path);
    }
}

/* -------------------------------------------------------------------------------------- the thread */

/* What was late has waited for a file. Lock held. */
static void note_file(struct nvmeof_work *w)
{
    struct tei_host *host = w->file->owner->base.host;
    char text[512];

    if (w->entry.base.error != TE_ERR_TIMEOUT)
        return;
    snprintf(text, sizeof text, "waiting for %.400s", w->file->path);
    w->entry.base.why = host->note(host, &w->entry.base, text);
}

/* Lock held, and let go of meanwhile. */
static void deliver(struct nvmeof *n)
{
    struct tei_host *host = n->base.host;
    struct tei_list done;
    struct tei_link *l;

    if (tei_list_empty(&n->ended))
        return;
    tei_list_init(&done);
    tei_list_splice(&done, &n->ended);
    for (l = tei_list_first(&done); l; l = tei_list_next(&done, l)) {
        note_file(tei_nvmeof_work_of(l));
        n->pending--;
    }
    pthread_mutex_unlock(&n->lock);
    host->work_done(host, &done);
    pthread_mutex_lock(&n->lock);
}

static int64_t left_ns(const struct nvmeof *n)
{
    int64_t now;

    if (n->late_ns == TEI_NEVER)
        return -1;
    now = tei_now_ns();
    return n->late_ns > now ? n->late_ns - now : 0;
}

/* Whether the device is to forget the I/O. What is written is written back. */
static bool is_in_vain(const struct nvmeof_io *io)
{
    return io->flying && !io->told && io->step != NVMEOF_WRITE_BACK &&
           (io->work->entry.base.error == TE_ERR_CANCELED ||
            io->work->entry.base.error == TE_ERR_TIMEOUT);
}

/* Has the device forget what it has not begun of work that was given up. Lock held. */
static void cancel_ios(struct nvmeof *n)
{
    if (!n->cancels)
        return;
    n->cancels = false;
    for (size_t i = 0; i < NVMEOF_IOS; i++) {
        struct nvmeof_io *io = &n->ios[i];

        if (!is_in_vain(io))
            continue;
        io->told = true;
        if (tei_nvmeof_gpu_has(io))
            tei_nvmeof_pool_cancel(tei_nvmeof_gpu_pool(n), io);
        else
            n->device->cancel(n, io);
    }
}

/* Lock held, and let go of meanwhile. */
static void log_notice(struct nvmeof *n)
{
    char text[sizeof n->notice];

    if (!n->notice[0])
        return;
    memcpy(text, n->notice, sizeof text);
    n->notice[0] = '\0';
    pthread_mutex_unlock(&n->lock);
    TEI_WARN("%s", text);
    pthread_mutex_lock(&n->lock);
}

/* Lock held. */
static void serve(struct nvmeof *n)
{
    while (!n->quit || n->pending) {
        struct nvmeof_pool *pool;
        int64_t left;
        bool sleeps;

        check_late(n);
        start_ios(n);
        open_files(n); /* after it, which may find that a file is to be opened anew */
        cancel_ios(n);
        deliver(n);
        log_notice(n);
        /* Not if something ended during the delivery, or all of it, or is still to be cancelled. */
        sleeps = tei_list_empty(&n->ended) && !n->cancels && !(n->quit && !n->pending);
        left = sleeps ? left_ns(n) : 0;
        pthread_mutex_unlock(&n->lock);
        n->device->wait(n, left);
        pthread_mutex_lock(&n->lock);
        pool = tei_nvmeof_gpu_pool(n);
        if (pool)
            tei_nvmeof_pool_take(pool);
    }
}

static int open_device(struct nvmeof *n)
{
    n->device = &tei_nvmeof_threads;
#if TE_USE_URING
    if (n->conf->file_uring && tei_nvmeof_ring.open(n) == 0) {
        n->device = &tei_nvmeof_ring;
        return 0;
    }
#endif
    return n->device->open(n);
}

/*
 * The device is opened here, since the kernel interrupts the system calls of a thread that has opened
 * a ring while it takes that apart.
 */
static void *run(void *arg)
{
    struct nvmeof *n = arg;
    int rc = open_device(n);

    pthread_mutex_lock(&n->lock);
    n->start_rc = rc;
    n->opened = true;
    pthread_cond_broadcast(&n->quiet);
    if (!n->start_rc)
        serve(n);
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

static int make_ios(struct nvmeof *n)
{
    n->ios = calloc(NVMEOF_IOS, sizeof *n->ios);
    for (size_t i = 0; n->ios && i < NVMEOF_IOS; i++)
        tei_list_push_back(&n->idle, &n->ios[i].link);
    return n->ios ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory for I/O requests to files");
}

static int start_thread(struct nvmeof *n)
{
    int rc;

    n->opened = false;
    rc = tei_thread_start(&n->thread, "te/file", run, n);
    if (rc)
        return rc;
    pthread_mutex_lock(&n->lock);
    while (!n->opened)
        pthread_cond_wait(&n->quiet, &n->lock);
    rc = n->start_rc;
    pthread_mutex_unlock(&n->lock);
    if (!rc)
        return 0;
    pthread_join(n->thread, NULL);
    return tei_err_keep(rc, "no memory or thread for I/O to files");
}

static int start(struct nvmeof *n)
{
    int rc = make_ios(n);

    if (rc)
        return rc;
    rc = tei_waker_init(&n->waker);
    if (rc)
        goto free_ios;
    rc = start_thread(n);
    if (rc)
        goto fini_waker;
    return 0;

fini_waker:
    tei_waker_fini(&n->waker);
free_ios:
    tei_list_init(&n->idle);
    free(n->ios);
    n->ios = NULL;
    n->device = NULL;
    return rc;
}

int tei_nvmeof_start(struct nvmeof *n)
{
    bool mine;
    int rc = 0;

    pthread_mutex_lock(&n->lock);
    while (n->starting)
        pthread_cond_wait(&n->quiet, &n->lock);
    mine = n->starting = !n->started;
    pthread_mutex_unlock(&n->lock);
    if (!mine)
        return 0;
    rc = start(n);
    pthread_mutex_lock(&n->lock);
    n->started = rc == 0;
    n->starting = false;
    pthread_cond_broadcast(&n->quiet);
    pthread_mutex_unlock(&n->lock);
    return rc;
}

static void wait_for_jobs(struct nvmeof *n)
{
    pthread_mutex_lock(&n->lock);
    while (n->jobs)
        pthread_cond_wait(&n->quiet, &n->lock);
    pthread_mutex_unlock(&n->lock);
}

void tei_nvmeof_stop(struct nvmeof *n)
{
    bool join;

    pthread_mutex_lock(&n->lock);
    join = n->started && !n->quit;
    n->quit = true;
    pthread_mutex_unlock(&n->lock);
    if (join) {
        tei_waker_ring(&n->waker);
        pthread_join(n->thread, NULL);
    }
    tei_nvmeof_gpu_stop(n);
    wait_for_jobs(n);
}

void tei_nvmeof_fini(struct nvmeof *n)
{
    if (n->started) {
        wait_for_jobs(n); /* files may have been let go of after stop */
        n->device->close(n);
        tei_waker_fini(&n->waker);
        for (size_t i = 0; i < NVMEOF_IOS; i++)
            free(n->ios[i].bounce);
        free(n->ios);
    }
    tei_nvmeof_gpu_fini(n);
}
