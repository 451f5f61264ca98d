/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvmeof_threads.c - I/O by threads that read and write, where io_uring is refused. Threads start as
 * more I/O is under way than there are, up to conf->file_threads, and stay.
 */
#include "transport/nvmeof/nvmeof.h"

#include "base/err.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

struct threads {
    struct nvmeof *owner;
    pthread_mutex_t lock; /* a leaf: of all below */
    pthread_cond_t wake;
    struct tei_list todo, done;
    bool quit;
    unsigned n, idle, waiting; /* waiting: in `todo` */
    pthread_t thread[];
};

static struct threads *threads_of(const struct nvmeof *n)
{
    return n->state;
}

static struct nvmeof_io *io_of(struct tei_link *l)
{
    return tei_container_of(l, struct nvmeof_io, link);
}

/* --------------------------------------------------------------------------------------- one thread */

static ssize_t move(const struct nvmeof_io *io, int fd)
{
    struct iovec v = {.iov_base = tei_nvmeof_io_buffer(io),
                      .iov_len = (size_t)(io->length - io->done)};
    int flags = io->write && io->file->owner->conf->file_flush ? RWF_DSYNC : 0;
    off_t at = (off_t)(io->at + io->done);

    return io->write ? pwritev2(fd, &v, 1, at, flags) : preadv(fd, &v, 1, at);
}

static int64_t do_step(const struct nvmeof_io *io)
{
    int fd = io->direct ? io->file->direct : io->file->cached;
    uint64_t length, begin = tei_nvmeof_io_pages(io, &length);
    ssize_t rc = 0;

    switch (io->step) {
    case NVMEOF_DROP:
        posix_fadvise(fd, (off_t)begin, (off_t)length, POSIX_FADV_DONTNEED);
        break;
    case NVMEOF_MOVE:
        rc = move(io, fd);
        break;
    case NVMEOF_WRITE_BACK:
        rc = sync_file_range(fd, (off_t)begin, (off_t)length,
                             SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                 SYNC_FILE_RANGE_WAIT_AFTER);
        break;
    }
    return rc < 0 ? -errno : rc;
}

static struct nvmeof_io *next(struct threads *t)
{
    struct nvmeof_io *io;

    t->idle++;
    while (tei_list_empty(&t->todo) && !t->quit)
        pthread_cond_wait(&t->wake, &t->lock);
    t->idle--;
    if (tei_list_empty(&t->todo))
        return NULL;
    t->waiting--;
    io = io_of(tei_list_pop(&t->todo));
    io->queued = false;
    return io;
}

static void *run(void *arg)
{
    struct threads *t = arg;
    struct nvmeof_io *io;

    pthread_mutex_lock(&t->lock);
    while ((io = next(t))) {
        pthread_mutex_unlock(&t->lock);
        io->result = do_step(io);
        pthread_mutex_lock(&t->lock);
        tei_list_push_back(&t->done, &io->link);
        tei_waker_ring(&t->owner->waker);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* -------------------------------------------------------------------------------------------- ops */

static int start_thread(struct threads *t)
{
    int rc = tei_thread_start(&t->thread[t->n], "te/fileio", run, t);

    t->n += rc == 0;
    return rc;
}

static void threads_close(struct nvmeof *n)
{
    struct threads *t = threads_of(n);

    pthread_mutex_lock(&t->lock);
    t->quit = true;
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    while (t->n)
        pthread_join(t->thread[--t->n], NULL);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    free(t);
    n->state = NULL;
}

static int threads_open(struct nvmeof *n)
{
    unsigned max = (unsigned)n->conf->file_threads;
    struct threads *t = calloc(1, sizeof *t + max * sizeof t->thread[0]);
    int rc;

    if (!t)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for threads that read and write");
    t->owner = n;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    tei_list_init(&t->todo);
    tei_list_init(&t->done);
    n->state = t;
    rc = start_thread(t); /* with one there is always one that goes on */
    if (rc)
        threads_close(n);
    return rc;
}

static void threads_start(struct nvmeof *n, struct nvmeof_io *io)
{
    struct threads *t = threads_of(n);

    pthread_mutex_lock(&t->lock);
    tei_list_push_back(&t->todo, &io->link);
    io->queued = true;
    t->waiting++;
    pthread_cond_signal(&t->wake);
    /* One that is idle may be on its way to an earlier I/O. */
    if (t->waiting > t->idle && t->n < (unsigned)n->conf->file_threads)
        (void)start_thread(t); /* those there are do it then */
    pthread_mutex_unlock(&t->lock);
}

static void threads_cancel(struct nvmeof *n, struct nvmeof_io *io)
{
    struct threads *t = threads_of(n);

    pthread_mutex_lock(&t->lock);
    if (io->queued) {
        io->queued = false;
        io->result = -ECANCELED;
        t->waiting--;
        tei_list_del(&io->link);
        tei_list_push_back(&t->done, &io->link);
        tei_waker_ring(&n->waker);
    }
    pthread_mutex_unlock(&t->lock);
}

/* A file that does not answer leaves half of the threads to others. */
static unsigned threads_share(const struct nvmeof *n)
{
    size_t half = (size_t)n->conf->file_threads / 2;

    return (unsigned)tei_max(1, tei_min((size_t)n->conf->file_depth, half));
}

static void threads_wait(struct nvmeof *n, int64_t timeout_ns)
{
    struct timespec ts = {.tv_sec = timeout_ns / TEI_NS_PER_S,
                          .tv_nsec = timeout_ns % TEI_NS_PER_S};
    struct pollfd p = {.fd = n->waker.fd, .events = POLLIN};
    struct threads *t = threads_of(n);
    struct tei_list done;
    struct tei_link *l;

    tei_list_init(&done);
    if (ppoll(&p, 1, timeout_ns < 0 ? NULL : &ts, NULL) > 0)
        tei_waker_drain(&n->waker);
    pthread_mutex_lock(&t->lock);
    tei_list_splice(&done, &t->done);
    pthread_mutex_unlock(&t->lock);
    pthread_mutex_lock(&n->lock);
    while ((l = tei_list_pop(&done)))
        tei_nvmeof_io_done(n, io_of(l), io_of(l)->result);
    pthread_mutex_unlock(&n->lock);
}

const struct nvmeof_device_ops tei_nvmeof_threads = {
    .name = "threads",
    .open = threads_open,
    .start = threads_start,
    .cancel = threads_cancel,
    .share = threads_share,
    .wait = threads_wait,
    .close = threads_close,
};
