/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shutdown.c - te_shutdown_on_signal(): the one place in the library that ends the process.
 *
 * A signal handler may do next to nothing, so it writes the signal's number to a pipe. A thread
 * that waits there withdraws the engines that asked and leaves with _Exit(). It frees nothing,
 * since other threads may be inside an engine, and it keeps the lock till the end, so an engine
 * that the program destroys at the same time is either forgotten before or not destroyed any more.
 *
 * A forked child inherits handler and pipe, and has neither the thread nor an engine; there the handler
 * ends the process by itself, with the same status.
 */
#include "core/shutdown.h"
#include "core/core.h"
#include "core/metrics_serve.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define ENGINES_MAX 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static te_engine *engines[ENGINES_MAX];
static int pipe_fds[2] = {-1, -1};
static pid_t owner;

static void on_signal(int signo)
{
    unsigned char byte = (unsigned char)signo;
    int keep = errno;

    if (getpid() != owner)
        _exit(128 + signo);
    (void)!write(pipe_fds[1], &byte, 1);
    errno = keep;
}

static void *watch(void *arg)
{
    unsigned char signo;

    (void)arg;
    while (read(pipe_fds[0], &signo, 1) != 1)
        continue;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < ENGINES_MAX; i++) {
        if (!engines[i])
            continue;
        tei_publish_withdraw(engines[i]);
        tei_metrics_file_remove(engines[i]);
    }
    _Exit(128 + signo);
}

/* A child that was forked off has no thread that waits and no engine that lives. */
static void forget_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    for (size_t i = 0; i < ENGINES_MAX; i++)
        engines[i] = NULL;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_in_child);
}

/* Once per process; the lock is held. */
static int start_watching(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    pthread_t thread;
    int rc;

    if (owner == getpid())
        return 0;
    pthread_once(&once, watch_forks);
    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return TE_ERR_SYSTEM;
    tei_fd_own(pipe_fds[0]);
    tei_fd_own(pipe_fds[1]);
    rc = tei_thread_start(&thread, "te/shutdown", watch, NULL);
    if (rc) {
        tei_fd_close(pipe_fds[0]);
        tei_fd_close(pipe_fds[1]);
        return rc;
    }
    owner = getpid();
    pthread_detach(thread);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGINT, &act, NULL);
    return 0;
}

/* Takes a place unless the engine has one; false if there is none. The lock is held. */
static bool remember(te_engine *e)
{
    te_engine **place = NULL;

    for (size_t i = 0; i < ENGINES_MAX; i++) {
        if (engines[i] == e)
            return true;
        if (!engines[i] && !place)
            place = &engines[i];
    }
    if (place)
        *place = e;
    return place != NULL;
}

int te_shutdown_on_signal(te_engine *e)
{
    bool remembered = false;
    int rc = tei_engine_check(e);

    if (rc)
        return rc;
    pthread_mutex_lock(&lock);
    rc = start_watching();
    if (!rc)
        remembered = remember(e);
    pthread_mutex_unlock(&lock);
    if (rc)
        return TEI_FAIL(rc, "cannot watch for signals: %s", tei_errno_text(errno));
    if (!remembered)
        return TEI_FAIL(TE_ERR_TOO_MANY, "%d engines watch for signals already", ENGINES_MAX);
    return 0;
}

void tei_shutdown_forget(const te_engine *e)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < ENGINES_MAX; i++)
        if (engines[i] == e)
            engines[i] = NULL;
    pthread_mutex_unlock(&lock);
}
