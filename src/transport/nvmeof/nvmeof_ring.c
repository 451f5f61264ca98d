/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvmeof_ring.c - I/O by io_uring.
 *
 * The submission ring is touched by the worker alone, which has the lock when it fills it and lets go
 * of it to submit. Files and the memory of regions are registered with the kernel, so that it need not
 * look them up and pin them for each request; where that is refused (an older kernel, the limit of
 * locked memory) the same requests go without. Registering is done by other threads, which the
 * kernel allows at any time.
 *
 * One request stays in the ring for the waker's descriptor, so that waiting for I/O is waiting for
 * new work too.
 */
#include "transport/nvmeof/nvmeof.h"

#include "base/err.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ENTRIES      512   /* NVMEOF_IOS, the waker's, some cancels; counts as locked memory */
#define MEMORY_SLOTS 16384 /* the kernel's limit */
#define PAUSE_NS     1000000

struct ring {
    struct io_uring uring;
    bool waker_armed;
    bool has_files, has_memory; /* it has a table of them */
    pthread_mutex_t lock;       /* the rest; a leaf */
    bool told;                  /* that memory is not pinned */
    bool file_used[NVMEOF_FILE_SLOTS];
    bool memory_used[MEMORY_SLOTS];
};

/* What a completion belongs to, if not to an I/O. */
static char of_waker, of_cancel;

static struct ring *ring_of(const struct nvmeof *n)
{
    return n->state;
}

/* --------------------------------------------------------------------------------- open and close */

/*
 * Interrupts to take back what is done are of no use: the thread asks. Since Linux 5.19. Before 5.11
 * waiting with a limit puts a completion of its own among those of the files.
 */
static int set_up(struct io_uring *u)
{
    int rc = io_uring_queue_init(ENTRIES, u, IORING_SETUP_COOP_TASKRUN);

    rc = rc == -EINVAL ? io_uring_queue_init(ENTRIES, u, 0) : rc;
    if (rc || (u->features & IORING_FEAT_EXT_ARG))
        return rc;
    io_uring_queue_exit(u);
    return -ENOSYS;
}

/*
 * Linux 6.1 lets go of a file up to a second after it was taken out of the table, while its blocks and
 * its file system are kept. Who knows this operation, of Linux 6.7, does not wait.
 */
#define OP_OF_6_7 49 /* IORING_OP_READ_MULTISHOT */

static bool has_prompt_tables(struct io_uring *u)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(u);
    bool prompt = probe && probe->last_op >= OP_OF_6_7;

    io_uring_free_probe(probe);
    return prompt;
}

static int ring_open(struct nvmeof *n)
{
    /* I/O that would block is done by threads of the kernel: as many as there may be such I/O. */
    unsigned workers[2] = {NVMEOF_IOS, 0};
    struct ring *r = calloc(1, sizeof *r);
    int rc = r ? set_up(&r->uring) : -ENOMEM;

    if (rc) {
        TEI_INFO("files: io_uring is refused (%s); threads read and write instead",
                 tei_errno_text(-rc));
        free(r);
        return TE_ERR_UNSUPPORTED;
    }
    tei_fd_own(r->uring.ring_fd);
    io_uring_ring_dontfork(&r->uring);
    io_uring_register_iowq_max_workers(&r->uring, workers);
    pthread_mutex_init(&r->lock, NULL);
    r->has_files = has_prompt_tables(&r->uring) &&
                   io_uring_register_files_sparse(&r->uring, NVMEOF_FILE_SLOTS) == 0;
    r->has_memory = io_uring_register_buffers_sparse(&r->uring, MEMORY_SLOTS) == 0;
    n->state = r;
    return 0;
}

static void ring_close(struct nvmeof *n)
{
    struct ring *r = ring_of(n);

    tei_fd_disown(r->uring.ring_fd);
    io_uring_queue_exit(&r->uring);
    pthread_mutex_destroy(&r->lock);
    free(r);
    n->state = NULL;
}

/* ------------------------------------------------------------------------------------- the tables */

/* The first free one of `n`, taken; -1 if there is none. */
static int take_slot(struct ring *r, bool *used, int n)
{
    int slot = 0;

    pthread_mutex_lock(&r->lock);
    while (slot < n && used[slot])
        slot++;
    if (slot < n)
        used[slot] = true;
    pthread_mutex_unlock(&r->lock);
    return slot < n ? slot : -1;
}

static void give_slot(struct ring *r, bool *used, int slot)
{
    pthread_mutex_lock(&r->lock);
    used[slot] = false;
    pthread_mutex_unlock(&r->lock);
}

static int add_fd(struct ring *r, int fd)
{
    int slot = r->has_files && fd >= 0 ? take_slot(r, r->file_used, NVMEOF_FILE_SLOTS) : -1;

    if (slot < 0 || io_uring_register_files_update(&r->uring, (unsigned)slot, &fd, 1) == 1)
        return slot;
    give_slot(r, r->file_used, slot);
    return -1;
}

static void ring_file_add(struct nvmeof *n, struct nvmeof_file *f)
{
    f->direct_slot = add_fd(ring_of(n), f->direct);
    f->cached_slot = add_fd(ring_of(n), f->cached);
}

static void del_fd(struct ring *r, int *slot)
{
    int none = -1;

    if (*slot < 0)
        return;
    io_uring_register_files_update(&r->uring, (unsigned)*slot, &none, 1);
    give_slot(r, r->file_used, *slot);
    *slot = -1;
}

static void ring_file_del(struct nvmeof *n, struct nvmeof_file *f)
{
    del_fd(ring_of(n), &f->direct_slot);
    del_fd(ring_of(n), &f->cached_slot);
}

static int set_memory(struct ring *r, int slot, void *addr, size_t length)
{
    struct iovec v = {.iov_base = addr, .iov_len = length};
    __u64 tag = 0;
    int rc = io_uring_register_buffers_update_tag(&r->uring, (unsigned)slot, &v, &tag, 1);

    return rc == 1 ? 0 : rc < 0 ? rc : -EINVAL;
}

static void tell_unpinned(struct ring *r, const void *addr, size_t length, int error)
{
    bool told;

    pthread_mutex_lock(&r->lock);
    told = r->told;
    r->told = true;
    pthread_mutex_unlock(&r->lock);
    if (!told)
        TEI_INFO("files: memory at %p + %zu is not registered with io_uring (%s), so each request "
                 "pins its own; 'ulimit -l' may allow more",
                 addr, length, tei_errno_text(error));
}

static int ring_pin(struct nvmeof *n, void *addr, size_t length)
{
    struct ring *r = ring_of(n);
    int slot = r->has_memory ? take_slot(r, r->memory_used, MEMORY_SLOTS) : -1;
    int rc = slot < 0 ? -ENOSPC : set_memory(r, slot, addr, length);

    if (!rc)
        return slot;
    if (slot >= 0)
        give_slot(r, r->memory_used, slot);
    tell_unpinned(r, addr, length, -rc);
    return NVMEOF_UNPINNABLE;
}

static void ring_unpin(struct nvmeof *n, int slot)
{
    struct ring *r = ring_of(n);

    set_memory(r, slot, NULL, 0);
    give_slot(r, r->memory_used, slot);
}

/*
 * The slot that holds the memory of the I/O, -1 if none does. Registered memory that does not begin
 * at a block's boundary is refused by the block layer (Linux 6.1), where other memory is not.
 */
static int memory_slot(const struct nvmeof *n, const struct nvmeof_io *io, uint64_t length)
{
    const struct nvmeof_region *r = io->work->entry.base.region->keys[n->base.index];
    size_t begin, end;
    int slot;

    if (io->bounced || !r)
        return -1;
    if (io->direct && (uintptr_t)tei_nvmeof_io_buffer(io) % io->file->read_align)
        return -1;
    begin = (size_t)(tei_nvmeof_io_buffer(io) - r->addr);
    end = begin + length - 1;
    if (begin / NVMEOF_CHUNK != end / NVMEOF_CHUNK)
        return -1;
    slot = atomic_load_explicit(&r->chunk[begin / NVMEOF_CHUNK], memory_order_acquire);
    return slot >= 0 ? slot : -1;
}

/* --------------------------------------------------------------------------------------------- I/O */

static void prepare_move(const struct nvmeof *n, const struct nvmeof_io *io, struct io_uring_sqe *e,
                         int fd)
{
    unsigned length = (unsigned)(io->length - io->done);
    char *buffer = tei_nvmeof_io_buffer(io);
    int slot = memory_slot(n, io, length);
    uint64_t at = io->at + io->done;

    if (io->write && slot >= 0)
        io_uring_prep_write_fixed(e, fd, buffer, length, at, slot);
    else if (io->write)
        io_uring_prep_write(e, fd, buffer, length, at);
    else if (slot >= 0)
        io_uring_prep_read_fixed(e, fd, buffer, length, at, slot);
    else
        io_uring_prep_read(e, fd, buffer, length, at);
    if (io->write && n->conf->file_flush)
        e->rw_flags = RWF_DSYNC;
}

static void prepare(const struct nvmeof *n, const struct nvmeof_io *io, struct io_uring_sqe *e)
{
    const struct nvmeof_file *f = io->file;
    int slot = io->direct ? f->direct_slot : f->cached_slot;
    int fd = slot >= 0 ? slot : io->direct ? f->direct : f->cached;
    uint64_t length, begin = tei_nvmeof_io_pages(io, &length);

    switch (io->step) {
    case NVMEOF_DROP:
        io_uring_prep_fadvise(e, fd, begin, (uint32_t)length, POSIX_FADV_DONTNEED);
        break;
    case NVMEOF_MOVE:
        prepare_move(n, io, e, fd);
        break;
    case NVMEOF_WRITE_BACK:
        io_uring_prep_sync_file_range(e, fd, (unsigned)length, begin,
                                      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                          SYNC_FILE_RANGE_WAIT_AFTER);
        break;
    case NVMEOF_FETCH: /* not for a ring */
    case NVMEOF_STORE:
        break;
    }
    if (slot >= 0)
        e->flags |= IOSQE_FIXED_FILE;
}

static void ring_start(struct nvmeof *n, struct nvmeof_io *io)
{
    /* There is room: ENTRIES is more than there can be under way, and wait() submits them all. */
    struct io_uring_sqe *e = io_uring_get_sqe(&ring_of(n)->uring);

    prepare(n, io, e);
    io_uring_sqe_set_data(e, io);
}

static void ring_cancel(struct nvmeof *n, struct nvmeof_io *io)
{
    struct io_uring *u = &ring_of(n)->uring;
    struct io_uring_sqe *e;

    /* What comes back may be started again before the ring is empty. */
    if (io_uring_sq_space_left(u) <= NVMEOF_IOS + 1) {
        io->told = false; /* so it is for the next time */
        n->cancels = true;
        return;
    }
    e = io_uring_get_sqe(u);
    io_uring_prep_cancel(e, io, 0);
    io_uring_sqe_set_data(e, &of_cancel);
}

static unsigned ring_share(const struct nvmeof *n)
{
    return (unsigned)n->conf->file_depth;
}

static void arm_waker(struct nvmeof *n, struct ring *r)
{
    struct io_uring_sqe *e;

    if (r->waker_armed)
        return;
    e = io_uring_get_sqe(&r->uring);
    io_uring_prep_poll_add(e, n->waker.fd, POLLIN);
    io_uring_sqe_set_data(e, &of_waker);
    r->waker_armed = true;
}

/* Takes back what is there. Lock held. */
static void reap(struct nvmeof *n, struct ring *r)
{
    struct io_uring_cqe *cqe;
    unsigned head, seen = 0;

    io_uring_for_each_cqe(&r->uring, head, cqe)
    {
        void *data = io_uring_cqe_get_data(cqe);

        if (data == &of_waker) {
            tei_waker_drain(&n->waker);
            r->waker_armed = false;
        } else if (data != &of_cancel) {
            tei_nvmeof_io_done(n, data, cqe->res);
        }
        seen++;
    }
    io_uring_cq_advance(&r->uring, seen);
}

/* An error that stays must not make the thread spin. */
static bool is_failure(int rc)
{
    return rc < 0 && rc != -ETIME && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY;
}

static void ring_wait(struct nvmeof *n, int64_t timeout_ns)
{
    struct __kernel_timespec ts = {.tv_sec = timeout_ns / TEI_NS_PER_S,
                                   .tv_nsec = timeout_ns % TEI_NS_PER_S};
    struct ring *r = ring_of(n);
    struct io_uring_cqe *cqe;
    int rc;

    arm_waker(n, r);
    rc = io_uring_submit_and_wait_timeout(&r->uring, &cqe, 1, timeout_ns < 0 ? NULL : &ts, NULL);
    if (is_failure(rc)) {
        TEI_ERROR("files: io_uring_enter: %s", tei_errno_text(-rc));
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    pthread_mutex_lock(&n->lock);
    reap(n, r);
    pthread_mutex_unlock(&n->lock);
}

const struct nvmeof_device_ops tei_nvmeof_ring = {
    .name = "io_uring",
    .open = ring_open,
    .start = ring_start,
    .wait = ring_wait,
    .close = ring_close,
    .file_add = ring_file_add,
    .file_del = ring_file_del,
    .share = ring_share,
    .cancel = ring_cancel,
    .pin = ring_pin,
    .unpin = ring_unpin,
};
