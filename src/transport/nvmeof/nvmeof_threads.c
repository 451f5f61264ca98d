/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvmeof_threads.c - threads that do the steps of I/O. They start as more I/O is under way than there
 * are, up to conf->file_threads, and stay. Where io_uring is refused, they read and write; others of
 * the kind work for GPUs (nvmeof_cufile.c).
 */
#include "transport/nvmeof/nvmeof.h"

#include "base/err.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct nvmeof_pool {
    struct nvmeof *owner;
    const char *name;
    int64_t (*step)(struct nvmeof_io *io); /* bytes or a negative errno */
    pthread_mutex_t lock;                  /* a leaf: of all below */
    pthread_cond_t wake;
    struct tei_list todo, done;
    bool quit;
    unsigned n, idle, waiting; /* waiting: in `todo` */
    pthread_t thread[];
};

static struct nvmeof_io *io_of(struct tei_link *l)
{
    return tei_container_of(l, struct nvmeof_io, link);
}

/* --------------------------------------------------------------------------------------- one thread */

static struct nvmeof_io *next(struct nvmeof_pool *p)
{
    struct nvmeof_io *io;

    p->idle++;
    while (tei_list_empty(&p->todo) && !p->quit)
        pthread_cond_wait(&p->wake, &p->lock);
    p->idle--;
    if (tei_list_empty(&p->todo))
        return NULL;
    p->waiting--;
    io = io_of(tei_list_pop(&p->todo));
    io->queued = false;
    return io;
}

static void *run(void *arg)
{
    struct nvmeof_pool *p = arg;
    struct nvmeof_io *io;

    pthread_mutex_lock(&p->lock);
    while ((io = next(p))) {
        pthread_mutex_unlock(&p->lock);
        io->result = p->step(io);
        pthread_mutex_lock(&p->lock);
        tei_list_push_back(&p->done, &io->link);
        tei_waker_ring(&p->owner->waker);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ----------------------------------------------------------------------------------------- the pool */

static int start_thread(struct nvmeof_pool *p)
{
    int rc = tei_thread_start(&p->thread[p->n], p->name, run, p);

    p->n += rc == 0;
    return rc;
}

void tei_nvmeof_pool_close(struct nvmeof_pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    while (p->n)
        pthread_join(p->thread[--p->n], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int tei_nvmeof_pool_open(struct nvmeof *n, const char *thread,
                         int64_t (*step)(struct nvmeof_io *io), struct nvmeof_pool **out)
{
    unsigned max = (unsigned)n->conf->file_threads;
    struct nvmeof_pool *p = calloc(1, sizeof *p + max * sizeof p->thread[0]);
    int rc;

    if (!p)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for threads that read and write");
    p->owner = n;
    p->name = thread;
    p->step = step;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    tei_list_init(&p->todo);
    tei_list_init(&p->done);
    rc = start_thread(p); /* with one there is always one that goes on */
    if (rc)
        tei_nvmeof_pool_close(p);
    else
        *out = p;
    return rc;
}

void tei_nvmeof_pool_start(struct nvmeof_pool *p, struct nvmeof_io *io)
{
    pthread_mutex_lock(&p->lock);
    tei_list_push_back(&p->todo, &io->link);
    io->queued = true;
    p->waiting++;
    pthread_cond_signal(&p->wake);
    /* One that is idle may be on its way to an earlier I/O. */
    if (p->waiting > p->idle && p->n < (unsigned)p->owner->conf->file_threads)
        (void)start_thread(p); /* those there are do it then */
    pthread_mutex_unlock(&p->lock);
}

void tei_nvmeof_pool_cancel(struct nvmeof_pool *p, struct nvmeof_io *io)
{
    pthread_mutex_lock(&p->lock);
    if (io->queued) {
        io->queued = false;
        io->result = -ECANCELED;
        p->waiting--;
        tei_list_del(&io->link);
        tei_list_push_back(&p->done, &io->link);
        tei_waker_ring(&p->owner->waker);
    }
    pthread_mutex_unlock(&p->lock);
}

unsigned tei_nvmeof_pool_share(const struct nvmeof *n)
{
    size_t half = (size_t)n->conf->file_threads / 2;

    return (unsigned)tei_max(1, tei_min((size_t)n->conf->file_depth, half));
}

void tei_nvmeof_pool_take(struct nvmeof_pool *p)
{
    struct tei_list done;
    struct tei_link *l;

    tei_list_init(&done);
    pthread_mutex_lock(&p->lock);
    tei_list_splice(&done, &p->done);
    pthread_mutex_unlock(&p->lock);
    while ((l = tei_list_pop(&done)))
        tei_nvmeof_io_done(p->owner, io_of(l), io_of(l)->result);
}

/* ------------------------------------------------------------------------- reading and writing by it */

/*
 * pwritev2() where there are flags: not every C library has it, nor every sandbox. The kernel takes the
 * offset in two words.
 */
static ssize_t write_at(int fd, const struct iovec *v, off_t at, int flags)
{
    return flags ? syscall(SYS_pwritev2, fd, v, 1L, (long)at, (long)((int64_t)at >> 32), flags)
                 : pwritev(fd, v, 1, at);
}

static ssize_t move(const struct nvmeof_io *io, int fd)
{
    struct iovec v = {.iov_base = tei_nvmeof_io_buffer(io),
                      .iov_len = (size_t)(io->length - io->done)};
    int flags = io->write && io->file->owner->conf->file_flush ? RWF_DSYNC : 0;
    off_t at = (off_t)(io->at + io->done);

    return io->write ? write_at(fd, &v, at, flags) : preadv(fd, &v, 1, at);
}

static int64_t do_step(struct nvmeof_io *io)
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
    case NVMEOF_FETCH: /* not for these threads */
    case NVMEOF_STORE:
        break;
    }
    return rc < 0 ? -errno : rc;
}

static int threads_open(struct nvmeof *n)
{
    struct nvmeof_pool *p;
    int rc = tei_nvmeof_pool_open(n, "te/fileio", do_step, &p);

    n->state = rc ? NULL : p;
    return rc;
}

static void threads_close(struct nvmeof *n)
{
    tei_nvmeof_pool_close(n->state);
    n->state = NULL;
}

static void threads_start(struct nvmeof *n, struct nvmeof_io *io)
{
    tei_nvmeof_pool_start(n->state, io);
}

static void threads_cancel(struct nvmeof *n, struct nvmeof_io *io)
{
    tei_nvmeof_pool_cancel(n->state, io);
}

static void threads_wait(struct nvmeof *n, int64_t timeout_ns)
{
    struct timespec ts = {.tv_sec = timeout_ns / TEI_NS_PER_S,
                          .tv_nsec = timeout_ns % TEI_NS_PER_S};
    struct pollfd p = {.fd = n->waker.fd, .events = POLLIN};

    if (ppoll(&p, 1, timeout_ns < 0 ? NULL : &ts, NULL) > 0)
        tei_waker_drain(&n->waker);
    pthread_mutex_lock(&n->lock);
    tei_nvmeof_pool_take(n->state);
    pthread_mutex_unlock(&n->lock);
}

const struct nvmeof_device_ops tei_nvmeof_threads = {
    .name = "threads",
    .open = threads_open,
    .start = threads_start,
    .cancel = threads_cancel,
    .share = tei_nvmeof_pool_share,
    .wait = threads_wait,
    .close = threads_close,
};
