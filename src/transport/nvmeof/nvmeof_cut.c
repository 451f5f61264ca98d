/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvmeof_cut.c - a piece of work as I/O requests, and what came of each.
 *
 * Direct I/O wants file offset, length and memory aligned. What is not goes another way:
 *
 *   a read     of whole blocks around it into a bounce buffer, from which the part is copied
 *   a write    with memory that is not aligned: copied to a bounce buffer first
 *   a write    of a part of a page (an edge): through the page cache, which reads the rest of the page
 *              and keeps two writers of one page apart, also those of other processes; then written
 *              back. Before that the cache is told to forget the page: what it has may be of a time
 *              before another host, or direct I/O, wrote to the device (the kernel forgets nothing
 *              after direct I/O to a block device by io_uring)
 *
 * A page is written either as a whole and directly, or in part and through the cache: mixing both
 * within a page is what the kernel does not keep in order. Hence writes align to pages even where the
 * device takes less.
 *
 * What an edge has left in the cache is written back also where its work has ended, by another error or
 * by half of it: the kernel would do so later, over what another host has written to the page by then.
 *
 * That a page could not be written back is told once to each descriptor, so perhaps to the wrong one
 * of several edges. All that were under way then fail; for that none counts as written before those are
 * back that the kernel had when it came back: one of them may have been told (nvmeof_io.c).
 *
 * Memory of a GPU counts as memory that is not aligned, where the file is not cuFile's; else cuFile
 * moves all but edges, aligned or not.
 *
 * Bounced data is copied by a system call: memory that is not there any more must be an error of the
 * request here as it is with direct I/O. To and from a GPU it is copied by a step of its own.
 */
#include "transport/nvmeof/nvmeof.h"

#include "base/err.h"
#include "base/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define TRIES_MAX 1000 /* of one I/O that is told to come again, or of pages that were lost */
#define PART_MAX  8    /* of a read that ends within the same block each time: the file's end */

/* ---------------------------------------------------------------------------------------- cutting */

static bool is_aligned(const void *memory, uint64_t to)
{
    return (uintptr_t)memory % to == 0;
}

/* Whether direct I/O can move to and from there. */
static bool is_usable(const struct nvmeof_io *io, const char *memory)
{
    return !io->gpu && is_aligned(memory, io->file->memory_align);
}

static bool get_bounce(struct nvmeof_io *io)
{
    void *p;

    if (!io->bounce && posix_memalign(&p, NVMEOF_ALIGN_MAX, NVMEOF_BOUNCE) == 0)
        io->bounce = p;
    io->bounced = io->bounce != NULL;
    return io->bounced;
}

/* 0 or an errno. Where the system call is forbidden, the copy is made all the same. */
static int copy(char *bounce, char *memory, size_t n, bool to_memory)
{
    struct iovec here = {.iov_base = bounce, .iov_len = n},
                 there = {.iov_base = memory, .iov_len = n};
    ssize_t moved = to_memory ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
                              : process_vm_readv(getpid(), &here, 1, &there, 1, 0);

    if (moved == (ssize_t)n)
        return 0;
    if (moved >= 0 || errno == EFAULT)
        return EFAULT;
    memcpy(to_memory ? memory : bounce, to_memory ? bounce : memory, n);
    return 0;
}

/* As much as one request carries, in whole blocks. */
static void take_whole(struct nvmeof_io *io, uint64_t left, uint64_t align)
{
    io->length = io->want = tei_slice_len(left - left % align, NVMEOF_IO_MAX, 4);
}

/* All of it goes through the bounce buffer. */
static bool take_bounced(struct nvmeof_io *io)
{
    if (!get_bounce(io))
        return false;
    io->length = io->want = tei_min(io->length, NVMEOF_BOUNCE);
    return true;
}

/* By cuFile, all but the first begin at multiples of what one request may carry. */
static bool take_cufile(struct nvmeof_io *io, uint64_t left)
{
    io->direct = false; /* no matter of ours */
    io->length = io->want = tei_min(left, NVMEOF_CUFILE_MAX - io->at % NVMEOF_CUFILE_MAX);
    return true;
}

static bool cut_write(struct nvmeof_io *io, uint64_t left)
{
    uint64_t align = io->file->write_align, into = io->at % align;

    io->edge = into || left < align;
    io->direct = !io->edge;
    if (io->edge) {
        io->step = NVMEOF_DROP;
        io->length = io->want = tei_min(left, align - into);
        return !io->gpu || take_bounced(io);
    }
    if (io->gpu && io->file->cufile)
        return take_cufile(io, left - left % align);
    take_whole(io, left, align);
    return is_usable(io, io->memory) || take_bounced(io);
}

static bool cut_read(struct nvmeof_io *io, uint64_t left)
{
    uint64_t align = io->file->read_align, into = io->at % align, rest = align - into;
    bool head; /* after the first block all is aligned */

    if (io->gpu && io->file->cufile)
        return take_cufile(io, left);
    io->direct = true;
    if (!into && left >= align && is_usable(io, io->memory)) {
        take_whole(io, left, align);
        return true;
    }
    if (!get_bounce(io))
        return false;
    head = into && left >= rest + align && is_usable(io, io->memory + rest);
    io->at -= into;
    io->skip = into;
    io->length = head ? align : (into + left + align - 1) / align * align;
    io->length = tei_min(io->length, NVMEOF_BOUNCE);
    io->want = tei_min(left, io->length - into);
    return true;
}

/* Through the page cache alone. */
static bool cut_cached(struct nvmeof_io *io, uint64_t left)
{
    take_whole(io, left, 1);
    return !io->gpu || take_bounced(io);
}

bool tei_nvmeof_cut(struct nvmeof_work *w, struct nvmeof_io *io)
{
    uint64_t left = w->entry.base.length - w->entry.next;
    bool made;

    *io = (struct nvmeof_io){.link = io->link,
                             .work = w,
                             .file = w->file,
                             .step = NVMEOF_MOVE,
                             .write = w->entry.base.opcode == TE_WRITE,
                             .gpu = tei_nvmeof_is_gpu(w),
                             .at = w->at + w->entry.next,
                             .memory = w->entry.base.local + w->entry.next,
                             .lost_write_backs = w->file->lost_write_backs,
                             .bounce = io->bounce};
    if (w->file->direct < 0 || w->file->not_direct)
        made = cut_cached(io, left);
    else
        made = io->write ? cut_write(io, left) : cut_read(io, left);
    if (!made) {
        tei_nvmeof_fail(w, TE_ERR_MEMORY, 0, "memory to copy what is not aligned");
    } else if (io->write && io->bounced && io->gpu) {
        io->step = NVMEOF_FETCH;
    } else if (io->write && io->bounced && copy(io->bounce, io->memory, io->length, false)) {
        tei_nvmeof_fail_at(w, TE_ERR_INVALID, EFAULT, "writing to %s");
        made = false;
    }
    if (made)
        tei_ledger_take(&w->file->ledger, io->want, tei_now_ns(), &io->part);
    return made;
}

/* --------------------------------------------------------------------------------------- settling */

static int error_of_io(int error)
{
    return error == EFAULT ? TE_ERR_INVALID : TE_ERR_SYSTEM;
}

/* Errors that are the request's or the file system's, after which the descriptor is as good. */
static bool is_harmless(int error)
{
    return error == EFAULT || error == ENOSPC || error == EDQUOT || error == EFBIG ||
           error == EINVAL || error == ECANCELED;
}

bool tei_nvmeof_tells_of_pages(const struct nvmeof_io *io)
{
    return io->step == NVMEOF_WRITE_BACK ||
           (io->step == NVMEOF_MOVE && io->write && !io->direct && (!io->gpu || io->bounced) &&
            io->file->owner->conf->file_flush);
}

static void fail_io(struct nvmeof_io *io, int error)
{
    io->file->reopen |= !is_harmless(error);
    tei_nvmeof_fail_at(io->work, error_of_io(error), error,
                       io->write ? "writing to %s" : "reading from %s");
}

/* The GPU's driver or cuFile has failed; the file is opened anew, perhaps to go without it. */
static void fail_gpu(struct nvmeof_io *io)
{
    char what[160];

    io->file->reopen = true;
    io->file->cufile_refused |= io->refused;
    snprintf(what, sizeof what, "%s %%s for a GPU%s: %.100s",
             io->write ? "writing to" : "reading from", io->bounced ? "" : ", by cuFile",
             io->trouble);
    tei_nvmeof_fail_at(io->work, io->error, 0, what);
}

/*
 * Direct I/O that should be aligned is refused all the same: this part goes through the cache, and so
 * does all later, unless it may have been the memory.
 */
static void refuse_direct(struct nvmeof_io *io)
{
    struct nvmeof_file *f = io->file;

    if (!io->bounced && !is_aligned(io->memory, f->read_align)) {
        f->memory_align = f->read_align;
    } else if (!f->not_direct) {
        snprintf(
            f->owner->notice, sizeof f->owner->notice,
            "%.150s: refuses direct I/O although it is aligned to %llu: all goes through the page cache",
            f->path, (unsigned long long)f->read_align);
        f->not_direct = true;
    }
    io->direct = false;
    io->edge = io->write;
}

/* The kernel says so; it may be of pages that another has written. */
static void fail_told(struct nvmeof_io *io, int error)
{
    io->file->lost_write_backs +=
        tei_nvmeof_tells_of_pages(io) && error != EFAULT && error != ECANCELED;
    fail_io(io, error);
}

void tei_nvmeof_check_pages(struct nvmeof_io *io)
{
    if (io->lost_write_backs != io->file->lost_write_backs)
        fail_io(io, EIO);
}

static bool finish_move(struct nvmeof_io *io)
{
    if (io->bounced && !io->write && io->gpu) {
        io->step = NVMEOF_STORE;
        return false;
    }
    if (io->bounced && !io->write && copy(io->bounce + io->skip, io->memory, io->want, true))
        fail_io(io, EFAULT);
    if (!io->edge || io->file->owner->conf->file_flush)
        return true;
    io->step = NVMEOF_WRITE_BACK;
    return false;
}

/*
 * cuFile has written so many bytes, fewer than it was to write. Within a page it would go on by reading
 * it, changing it and writing it back, so a page that is written in part is written once more, as a
 * whole. Whether the I/O is over.
 */
static bool go_on_cufile(struct nvmeof_io *io, uint64_t bytes)
{
    uint64_t done = io->done - bytes, pages = io->done - io->done % io->file->write_align;

    io->done = pages;
    if (bytes && (pages > done || ++io->tries < TRIES_MAX))
        return false;
    fail_io(io, EIO);
    return true;
}

/*
 * A direct read has ended within a block: at the file's end, which comes again, or, where the kernel does
 * not tell how small its blocks are, before one of them. False: it has come again.
 */
static bool read_block_anew(struct nvmeof_io *io, uint64_t bytes)
{
    uint64_t blocks = io->done - io->done % io->file->read_align;

    if (blocks <= io->done - bytes && ++io->tries > PART_MAX)
        return false;
    io->done = blocks;
    return true;
}

/* Bytes have moved, or none has. Whether the I/O is over. */
static bool settle_bytes(struct nvmeof_io *io, uint64_t bytes)
{
    uint64_t need = io->write ? io->length : io->skip + io->want;
    bool part;

    io->done += bytes;
    if (io->done >= need)
        return finish_move(io);
    if (io->write && io->gpu && !io->bounced)
        return go_on_cufile(io, bytes);
    part = io->direct && io->done % io->file->read_align;
    if (io->write && bytes) {
        if (part) { /* the rest is not aligned any more */
            io->direct = false;
            io->edge = true;
            io->step = NVMEOF_DROP;
        }
        return false;
    }
    if (io->write)
        fail_io(io, EIO);
    else if (bytes && (!part || read_block_anew(io, bytes)))
        return false;
    else
        tei_nvmeof_fail_at(io->work, TE_ERR_STALE, 0, "the file %s has become shorter");
    return true;
}

static bool is_passing(int64_t result)
{
    return result == -EAGAIN || result == -EINTR;
}

static bool settle_move(struct nvmeof_io *io, int64_t result)
{
    if (result >= 0)
        return settle_bytes(io, (uint64_t)result);
    if (result == -EINVAL && io->direct) {
        refuse_direct(io);
        return false;
    }
    fail_told(io, (int)-result);
    return true;
}

/*
 * The kernel tells of what was lost before, too, and then has written nothing: so it is asked until it has
 * nothing to tell. It tries to write a page once, so that comes soon, unless others lose pages without end.
 */
static bool settle_write_back(struct nvmeof_io *io, int64_t result)
{
    if (result >= 0)
        return true;
    fail_told(io, (int)-result);
    return ++io->tries >= TRIES_MAX;
}

static bool settle_step(struct nvmeof_io *io, int64_t result)
{
    if (io->trouble) {
        fail_gpu(io);
        return true;
    }
    switch (io->step) {
    case NVMEOF_FETCH:
        io->step = io->edge ? NVMEOF_DROP : NVMEOF_MOVE;
        return false;
    case NVMEOF_DROP: /* what the cache keeps is no error */
        io->step = NVMEOF_MOVE;
        return false;
    case NVMEOF_MOVE:
        return settle_move(io, result);
    case NVMEOF_WRITE_BACK:
        return settle_write_back(io, result);
    case NVMEOF_STORE:
        break;
    }
    return true;
}

/* Whether the cache may have some of it that is not on the device, of an I/O that goes no further. */
static bool leaves_pages(const struct nvmeof_io *io)
{
    return io->step == NVMEOF_MOVE && io->edge && io->done && !io->file->owner->conf->file_flush;
}

bool tei_nvmeof_settle(struct nvmeof_io *io, int64_t result)
{
    struct nvmeof_work *w = io->work;
    bool goes_on = !w->entry.base.error || io->step == NVMEOF_WRITE_BACK;

    if (is_passing(result) && goes_on && ++io->tries < TRIES_MAX)
        return false;
    /* What was cancelled, or failed elsewhere, goes on only to write back what is written. */
    if (!settle_step(io, result) && (!w->entry.base.error || io->step == NVMEOF_WRITE_BACK))
        return false;
    if (!leaves_pages(io))
        return true;
    io->step = NVMEOF_WRITE_BACK;
    return false;
}
