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

#define ENTRIES      512 /* more than NVMEOF_IOS and the waker's together */
#define MEMORY_SLOTS 1024
#define SLOT_BYTES   ((size_t)1 << 30) /* the kernel's limit for one */

struct ring {
    struct io_uring uring;
    bool waker_armed;
    bool has_files, has_memory; /* it has a table of them */
    bool told;                  /* that memory is not pinned */
    bool file_used[NVMEOF_FILE_SLOTS];
    bool memory_used[MEMORY_SLOTS];
};

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

static int ring_open(struct nvmeof *n)
{
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
    r->has_files = io_uring_register_files_sparse(&r->uring, NVMEOF_FILE_SLOTS) == 0;
    r->has_memory = io_uring_register_buffers_sparse(&r->uring, MEMORY_SLOTS) == 0;
    n->state = r;
    return 0;
}

static void ring_close(struct nvmeof *n)
{
    struct ring *r = ring_of(n);

    tei_fd_disown(r->uring.ring_fd);
    io_uring_queue_exit(&r->uring);
    free(r);
    n->state = NULL;
}

/* ------------------------------------------------------------------------------------- the tables */

static int take_file_slot(struct ring *r, int fd)
{
    int slot = 0;

    while (slot < NVMEOF_FILE_SLOTS && r->file_used[slot])
        slot++;
    if (!r->has_files || fd < 0 || slot == NVMEOF_FILE_SLOTS)
        return -1;
    if (io_uring_register_files_update(&r->uring, (unsigned)slot, &fd, 1) != 1)
        return -1;
    r->file_used[slot] = true;
    return slot;
}

static void ring_file_add(struct nvmeof *n, struct nvmeof_file *f)
{
    f->direct_slot = take_file_slot(ring_of(n), f->direct);
    f->cached_slot = take_file_slot(ring_of(n), f->cached);
}

static void drop_file_slot(struct nvmeof *n, int *slot)
{
    struct ring *r = ring_of(n);
    int none = -1;

    if (*slot < 0)
        return;
    io_uring_register_files_update(&r->uring, (unsigned)*slot, &none, 1);
    pthread_mutex_lock(&n->lock);
    r->file_used[*slot] = false;
    pthread_mutex_unlock(&n->lock);
    *slot = -1;
}

static void ring_file_del(struct nvmeof *n, struct nvmeof_file *f)
{
    drop_file_slot(n, &f->direct_slot);
    drop_file_slot(n, &f->cached_slot);
}

/* The first of `count` free slots in a row, marked; MEMORY_SLOTS if there are none. Lock held. */
static unsigned take_slots(struct ring *r, unsigned count)
{
    unsigned first = 0, got = 0;

    for (unsigned i = 0; i < MEMORY_SLOTS && got < count; i++) {
        first = got ? first : i;
        got = r->memory_used[i] ? 0 : got + 1;
    }
    if (got < count)
        return MEMORY_SLOTS;
    memset(&r->memory_used[first], true, count);
    return first;
}

static void give_slots(struct nvmeof *n, unsigned first, unsigned count)
{
    pthread_mutex_lock(&n->lock);
    memset(&ring_of(n)->memory_used[first], false, count);
    pthread_mutex_unlock(&n->lock);
}

/* Of the region's slots those before `count`. */
static int register_slots(struct ring *r, const struct nvmeof_region *region, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        size_t at = i * SLOT_BYTES;
        struct iovec v = {.iov_base = region->addr + at,
                          .iov_len = tei_min(region->length - at, SLOT_BYTES)};
        __u64 tag = 0;
        int rc = io_uring_register_buffers_update_tag(&r->uring, region->slot + i, &v, &tag, 1);

        if (rc != 1)
            return rc < 0 ? rc : -EINVAL;
    }
    return 0;
}

static void clear_slots(struct ring *r, unsigned first, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct iovec none = {0};
        __u64 tag = 0;

        io_uring_register_buffers_update_tag(&r->uring, first + i, &none, &tag, 1);
    }
}

static void tell_unpinned(struct nvmeof *n, const struct nvmeof_region *region, int error)
{
    bool told;

    pthread_mutex_lock(&n->lock);
    told = ring_of(n)->told;
    ring_of(n)->told = true;
    pthread_mutex_unlock(&n->lock);
    if (!told)
        TEI_INFO("files: memory at %p + %zu is not registered with io_uring (%s), so each request "
                 "pins its own; 'ulimit -l' may allow more",
                 (void *)region->addr, region->length, tei_errno_text(error));
}

static void ring_region_pin(struct nvmeof *n, struct nvmeof_region *region)
{
    struct ring *r = ring_of(n);
    size_t count = (region->length - 1) / SLOT_BYTES + 1;
    int rc = -ENOSPC;

    pthread_mutex_lock(&n->lock);
    region->n_slots = (unsigned)tei_min(count, MEMORY_SLOTS + 1);
    region->slot = r->has_memory ? take_slots(r, region->n_slots) : MEMORY_SLOTS;
    pthread_mutex_unlock(&n->lock);
    if (region->slot < MEMORY_SLOTS) {
        rc = register_slots(r, region, region->n_slots);
        if (rc) {
            clear_slots(r, region->slot, region->n_slots);
            give_slots(n, region->slot, region->n_slots);
        }
    }
    if (rc)
        tell_unpinned(n, region, -rc);
    /* Release: partner of the acquire in memory_slot(). */
    atomic_store_explicit(&region->pin, rc ? NVMEOF_UNPINNABLE : NVMEOF_PINNED,
                          memory_order_release);
}

static void ring_region_unpin(struct nvmeof *n, struct nvmeof_region *region)
{
    clear_slots(ring_of(n), region->slot, region->n_slots);
    give_slots(n, region->slot, region->n_slots);
}

/*
 * The slot that holds the memory of the I/O, -1 if none does. Registered memory that does not begin
 * at a block's boundary is refused by the block layer (Linux 6.1), where other memory is not.
 */
static int memory_slot(const struct nvmeof *n, const struct nvmeof_io *io, uint64_t length)
{
    const struct nvmeof_region *r = io->work->work.region->keys[n->base.index];
    size_t begin, end;

    if (io->bounced || !r || atomic_load_explicit(&r->pin, memory_order_acquire) != NVMEOF_PINNED)
        return -1;
    if (io->direct && (uintptr_t)tei_nvmeof_io_buffer(io) % io->file->read_align)
        return -1;
    begin = (size_t)(tei_nvmeof_io_buffer(io) - r->addr);
    end = begin + length - 1;
    return begin / SLOT_BYTES == end / SLOT_BYTES ? (int)(r->slot + begin / SLOT_BYTES) : -1;
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
    case NVMEOF_MOVE:
        prepare_move(n, io, e, fd);
        break;
    case NVMEOF_WRITE_BACK:
        io_uring_prep_sync_file_range(e, fd, (unsigned)length, begin,
                                      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                          SYNC_FILE_RANGE_WAIT_AFTER);
        break;
    case NVMEOF_DROP:
        io_uring_prep_fadvise(e, fd, begin, (off_t)length, POSIX_FADV_DONTNEED);
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

static void arm_waker(struct nvmeof *n, struct ring *r)
{
    struct io_uring_sqe *e;

    if (r->waker_armed)
        return;
    e = io_uring_get_sqe(&r->uring);
    io_uring_prep_poll_add(e, n->waker.fd, POLLIN);
    io_uring_sqe_set_data(e, NULL);
    r->waker_armed = true;
}

/* Takes back what is there. Lock held. */
static void reap(struct nvmeof *n, struct ring *r)
{
    struct io_uring_cqe *cqe;
    unsigned head, seen = 0;

    io_uring_for_each_cqe(&r->uring, head, cqe)
    {
        struct nvmeof_io *io = io_uring_cqe_get_data(cqe);

        if (io) {
            tei_nvmeof_io_done(n, io, cqe->res);
        } else {
            tei_waker_drain(&n->waker);
            r->waker_armed = false;
        }
        seen++;
    }
    io_uring_cq_advance(&r->uring, seen);
}

static void ring_wait(struct nvmeof *n, int64_t timeout_ns)
{
    struct __kernel_timespec ts = {.tv_sec = timeout_ns / TEI_NS_PER_S,
                                   .tv_nsec = timeout_ns % TEI_NS_PER_S};
    struct ring *r = ring_of(n);
    struct io_uring_cqe *cqe;

    arm_waker(n, r);
    io_uring_submit_and_wait_timeout(&r->uring, &cqe, 1, timeout_ns < 0 ? NULL : &ts, NULL);
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
    .region_pin = ring_region_pin,
    .region_unpin = ring_region_unpin,
};
