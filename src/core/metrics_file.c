/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics_file.c - TE_METRICS=file:/PATH: the metrics in a file for node_exporter.
 *
 * It is written by a job of te/aux, since a disk may block, under another name first, so that a reader
 * finds a whole one. The other name has the incarnation of the engine in it: two processes that were given
 * one path do not write into one another's file. What a process that is killed in the middle of writing
 * leaves under it (*.tmp, which node_exporter does not read) stays. The engine removes the file when it ends,
 * and te_shutdown_on_signal() does. Engines of one process would take turns in one file, so the second one
 * is told to have another.
 */
#include "core/metrics_serve.h"
#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FILE_NS    (10 * TEI_NS_PER_S)
#define PATIENCE_S 1 /* for a disk that blocks, when the process is told to end */

struct metrics_file {
    te_engine *engine;
    struct metrics_file *next; /* of this process */
    char path[TEI_CONF_LONG + 48], other[TEI_CONF_LONG + 80];
    struct tei_timer timer;
    struct tei_job job;
    pthread_mutex_t lock; /* the rest; held while it is written */
    bool written;         /* the file is this engine's */
    bool fails;           /* that was told */
};

static struct metrics_file *files;
static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;

/* A forked child has no engine, and nobody there holds the lock. */
static void forget_in_child(void)
{
    pthread_mutex_init(&files_lock, NULL);
    files = NULL;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_in_child);
}

static bool is_closing(const struct metrics_file *s)
{
    return atomic_load_explicit(&s->engine->closing, memory_order_relaxed);
}

/* ------------------------------------------------------------------------------------- writing */

static bool write_all(int fd, const char *text, size_t n)
{
    while (n) {
        ssize_t got = write(fd, text, n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        text += got;
        n -= (size_t)got;
    }
    return true;
}

static bool replace_file(const struct metrics_file *s, const char *text)
{
    bool ok;
    int fd, error;

    unlink(s->other); /* no other engine has the name, so it was planted, or could not be removed */
    fd = open(s->other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    ok = fd >= 0 && write_all(fd, text, strlen(text));
    error = errno;

    if (fd >= 0 && close(fd) && ok) {
        ok = false;
        error = errno;
    }
    if (ok && rename(s->other, s->path) == 0)
        return true;
    error = ok ? errno : error;
    if (fd >= 0)
        unlink(s->other);
    errno = error;
    return false;
}

/* Not once the file was removed. */
static void write_file(struct metrics_file *s)
{
    char *text = tei_metrics_text(s->engine);

    if (!text)
        return;
    pthread_mutex_lock(&s->lock);
    if (!is_closing(s)) {
        bool ok = replace_file(s, text);

        if (ok && s->fails)
            TEI_WARN("TE_METRICS: %s is written again", s->path);
        else if (!ok && !s->fails)
            TEI_WARN("TE_METRICS: %s cannot be written: %s", s->path, tei_errno_text(errno));
        s->written |= ok;
        s->fails = !ok;
    }
    pthread_mutex_unlock(&s->lock);
    free(text);
}

static void start_timer(struct metrics_file *s);

/* On te/aux; in the end on te/ctl, when there is nothing to be done any more. */
static void file_job(struct tei_job *j)
{
    struct metrics_file *s = tei_container_of(j, struct metrics_file, job);

    if (is_closing(s))
        return;
    write_file(s);
    pthread_mutex_lock(&s->engine->ctl.lock);
    start_timer(s);
    pthread_mutex_unlock(&s->engine->ctl.lock);
}

static void on_timer(struct tei_timer *t)
{
    struct metrics_file *s = tei_container_of(t, struct metrics_file, timer);

    tei_jobs_post(&s->engine->jobs, &s->job, file_job);
}

/* ctl.lock is held. */
static void start_timer(struct metrics_file *s)
{
    if (!is_closing(s))
        tei_timer_set(&s->engine->ctl.loop, &s->timer, tei_now_ns() + FILE_NS, on_timer);
}

/* ------------------------------------------------------------------------------------- its path */

/* "%p" stands for the number of the process, "%e" for the incarnation of the engine. */
static void take_path(struct metrics_file *s, const char *path)
{
    FILE *f = fmemopen(s->path, sizeof(s->path), "w");

    for (; f && *path; path++) {
        if (path[0] != '%' || (path[1] != 'p' && path[1] != 'e'))
            fputc(*path, f);
        else if (*++path == 'p')
            fprintf(f, "%d", (int)getpid());
        else
            fprintf(f, "%016llx", (unsigned long long)s->engine->incarnation);
    }
    if (f)
        fclose(f);
    snprintf(s->other, sizeof(s->other), "%s.%016llx.tmp", s->path,
             (unsigned long long)s->engine->incarnation);
}

/* False: another engine of this process has it. */
static bool claim(struct metrics_file *s)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const struct metrics_file *f;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&files_lock);
    for (f = files; f && strcmp(f->path, s->path) != 0; f = f->next)
        continue;
    if (!f) {
        s->next = files;
        files = s;
    }
    pthread_mutex_unlock(&files_lock);
    return !f;
}

static void give_up(const struct metrics_file *s)
{
    struct metrics_file **at = &files;

    pthread_mutex_lock(&files_lock);
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    pthread_mutex_unlock(&files_lock);
}

/* ------------------------------------------------------------------------------- start and stop */

int tei_metrics_file_start(te_engine *e, const char *path)
{
    struct metrics_file *s = calloc(1, sizeof(*s));

    if (!s)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for writing the metrics");
    s->engine = e;
    take_path(s, path);
    if (!claim(s)) {
        TEI_WARN(
            "TE_METRICS: another engine of this process writes %s: the metrics of this engine are not "
            "written; put %%e in the path, for a file for each engine",
            s->path);
        free(s);
        return 0;
    }
    pthread_mutex_init(&s->lock, NULL);
    e->metrics_file = s;
    write_file(s);
    pthread_mutex_lock(&e->ctl.lock);
    start_timer(s);
    pthread_mutex_unlock(&e->ctl.lock);
    return 0;
}

void tei_metrics_file_remove(te_engine *e)
{
    struct metrics_file *s = e->metrics_file;
    struct timespec until;

    if (!s)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    if (pthread_mutex_timedlock(&s->lock, &until) != 0)
        return;
    if (s->written)
        unlink(s->path);
    s->written = false;
    pthread_mutex_unlock(&s->lock);
}

void tei_metrics_file_stop(te_engine *e)
{
    if (e->metrics_file)
        tei_timer_stop(&e->ctl.loop, &e->metrics_file->timer);
}

void tei_metrics_file_fini(te_engine *e)
{
    struct metrics_file *s = e->metrics_file;

    if (!s)
        return;
    tei_metrics_file_remove(e);
    give_up(s);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
