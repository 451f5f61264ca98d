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
 *              back, and dropped from the cache so that nobody meets it there when another host has
 *              written to the device meanwhile
 *
 * A page is written either as a whole and directly, or in part and through the cache: mixing both
 * within a page is what the kernel does not keep in order. Hence writes align to pages even where the
 * device takes less.
 */
#include "transport/nvmeof/nvmeof.h"

#include "base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- cutting */

static bool is_aligned(const void *memory, uint64_t to)
{
    return (uintptr_t)memory % to == 0;
}

static bool get_bounce(struct nvmeof_io *io)
{
    void *p;

    if (!io->bounce && posix_memalign(&p, NVMEOF_PAGE, NVMEOF_BOUNCE) == 0)
        io->bounce = p;
    io->bounced = io->bounce != NULL;
    return io->bounced;
}

/* As much as one request carries, in whole blocks. */
static void take_whole(struct nvmeof_io *io, uint64_t left, uint64_t align)
{
    io->length = io->want = tei_slice_len(left - left % align, NVMEOF_IO_MAX, 4);
}

static bool cut_write(struct nvmeof_io *io, uint64_t left)
{
    uint64_t align = tei_max(io->file->read_align, NVMEOF_PAGE), into = io->at % align;

    io->edge = into || left < align;
    io->direct = !io->edge;
    if (io->edge) {
        io->length = io->want = tei_min(left, align - into);
        return true;
    }
    take_whole(io, left, align);
    if (is_aligned(io->memory, io->file->memory_align))
        return true;
    if (!get_bounce(io))
        return false;
    io->length = io->want = tei_min(io->length, NVMEOF_BOUNCE);
    memcpy(io->bounce, io->memory, io->length);
    return true;
}

static bool cut_read(struct nvmeof_io *io, uint64_t left)
{
    const struct nvmeof_file *f = io->file;
    uint64_t align = f->read_align, into = io->at % align, rest = align - into;
    bool head; /* after the first block all is aligned */

    io->direct = true;
    if (!into && left >= align && is_aligned(io->memory, f->memory_align)) {
        take_whole(io, left, align);
        return true;
    }
    if (!get_bounce(io))
        return false;
    head = into && left >= rest + align && is_aligned(io->memory + rest, f->memory_align);
    io->at -= into;
    io->skip = into;
    io->length = head ? align : (into + left + align - 1) / align * align;
    io->length = tei_min(io->length, NVMEOF_BOUNCE);
    io->want = tei_min(left, io->length - into);
    return true;
}

bool tei_nvmeof_cut(struct nvmeof_work *w, struct nvmeof_io *io)
{
    uint64_t left = w->work.length - w->cut;
    bool made = true;

    *io = (struct nvmeof_io){.link = io->link,
                             .work = w,
                             .file = w->file,
                             .step = NVMEOF_MOVE,
                             .write = w->work.opcode == TE_WRITE,
                             .at = w->at + w->cut,
                             .memory = w->work.local + w->cut,
                             .bounce = io->bounce};
    if (w->file->direct < 0 || w->file->not_direct)
        take_whole(io, left, 1);
    else
        made = io->write ? cut_write(io, left) : cut_read(io, left);
    if (made)
        w->cut += io->want;
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
           error == EINVAL;
}

static void fail_io(struct nvmeof_io *io, int error)
{
    io->file->reopen |= !is_harmless(error);
    tei_nvmeof_fail_at(io->work, error_of_io(error), error,
                       io->write ? "writing to %s" : "reading from %s");
}

/*
 * Direct I/O that should be aligned is refused all the same: this part goes through the cache, and so
 * does all later, unless it may have been the memory.
 */
static void refuse_direct(struct nvmeof_io *io)
{
    struct nvmeof_file *f = io->file;

    if (f->memory_align < f->read_align && !is_aligned(io->memory, f->read_align)) {
        f->memory_align = f->read_align;
    } else if (!f->not_direct) {
        TEI_WARN("%s: refuses direct I/O although it is aligned to %llu: all goes through the page "
                 "cache",
                 f->path, (unsigned long long)f->read_align);
        f->not_direct = true;
    }
    io->direct = false;
    io->edge = io->write;
}

static bool finish_move(struct nvmeof_io *io)
{
    if (io->bounced && !io->write)
        memcpy(io->memory, io->bounce + io->skip, io->want);
    if (!io->edge)
        return true;
    io->step = io->file->owner->conf->file_flush ? NVMEOF_DROP : NVMEOF_WRITE_BACK;
    return false;
}

/* Bytes have moved, or none has. Whether the I/O is over. */
static bool settle_bytes(struct nvmeof_io *io, uint64_t bytes)
{
    uint64_t need = io->write ? io->length : io->skip + io->want;
    bool end;

    io->done += bytes;
    if (io->done >= need)
        return finish_move(io);
    /* Of direct I/O only the end of the file gives a part of a block. */
    end = bytes == 0 || (io->direct && !io->write && io->done % io->file->read_align);
    if (!end)
        return false;
    if (io->write)
        fail_io(io, EIO);
    else
        tei_nvmeof_fail_at(io->work, TE_ERR_STALE, 0, "the file %s has become shorter");
    return true;
}

static bool settle_move(struct nvmeof_io *io, int64_t result)
{
    if (result >= 0)
        return settle_bytes(io, (uint64_t)result);
    if (result == -EAGAIN || result == -EINTR)
        return false;
    if (result == -EINVAL && io->direct) {
        refuse_direct(io);
        return false;
    }
    fail_io(io, (int)-result);
    return true;
}

bool tei_nvmeof_settle(struct nvmeof_io *io, int64_t result)
{
    switch (io->step) {
    case NVMEOF_MOVE:
        if (!settle_move(io, result))
            return false;
        break;
    case NVMEOF_WRITE_BACK:
        if (result >= 0) {
            io->step = NVMEOF_DROP;
            return false;
        }
        fail_io(io, (int)-result);
        break;
    case NVMEOF_DROP: /* what the cache keeps is no error */
        break;
    }
    if (!io->work->work.error)
        atomic_fetch_add_explicit(io->work->work.moved, io->want, memory_order_relaxed);
    return true;
}
