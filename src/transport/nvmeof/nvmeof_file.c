/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvmeof_file.c - open files.
 *
 * Opening and closing may take long (a network file system whose server is away), so both are jobs.
 * Who is not allowed to write gets a file that can be read. Each file has two descriptors: `direct`,
 * with O_DIRECT, which moves data between the device and the caller's memory, and `cached`, for what
 * direct I/O cannot do (nvmeof_cut.c).
 */
#include "transport/nvmeof/nvmeof.h"

#include "base/err.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static void identify(const struct stat *st, uint64_t id[3])
{
    if (S_ISBLK(st->st_mode)) {
        id[2] = st->st_rdev;
        return;
    }
    id[0] = st->st_dev;
    id[1] = st->st_ino;
}

struct nvmeof_file *tei_nvmeof_file_get(struct nvmeof *n, char *path, bool by_path)
{
    struct nvmeof_file *f;

    HASH_FIND_STR(n->files[by_path], path, f);
    if (f) {
        f->refs++;
        free(path);
        return f;
    }
    f = calloc(1, sizeof *f);
    if (!f || !TEI_HASH_ADD(n->files[by_path], path, strlen(path), f)) {
        free(f);
        free(path);
        return NULL;
    }
    f->owner = n;
    f->path = path;
    f->by_path = by_path;
    f->refs = 1;
    f->direct = f->cached = f->direct_slot = f->cached_slot = -1;
    tei_list_init(&f->asked);
    tei_list_init(&f->unsure);
    tei_ledger_init(&f->ledger, n->conf->transfer_timeout_ms);
    return f;
}

void tei_nvmeof_file_look(struct nvmeof_file *f)
{
    struct nvmeof *n = f->owner;
    uint64_t id[3] = {0};
    bool open, writable, gained;
    struct stat st;

    pthread_mutex_lock(&n->lock);
    open = f->state == NVMEOF_OPEN;
    writable = open && f->writable; /* which nobody writes then */
    pthread_mutex_unlock(&n->lock);
    if (!open)
        return;
    if (stat(f->path, &st) == 0)
        identify(&st, id);
    gained = !writable && access(f->path, W_OK) == 0;
    pthread_mutex_lock(&n->lock);
    f->reopen |= f->state == NVMEOF_OPEN && (gained || memcmp(f->id, id, sizeof id) != 0);
    pthread_mutex_unlock(&n->lock);
}

static void close_fds(struct nvmeof_file *f)
{
    const struct nvmeof_device_ops *device = f->owner->device;

    tei_nvmeof_gpu_file_del(f);
    if (device && device->file_del)
        device->file_del(f->owner, f);
    tei_fd_close(f->direct);
    tei_fd_close(f->cached);
    f->direct = f->cached = -1;
}

static void end_job(struct nvmeof *n)
{
    pthread_mutex_lock(&n->lock);
    if (--n->jobs == 0)
        pthread_cond_broadcast(&n->quiet);
    pthread_mutex_unlock(&n->lock);
}

static void close_job(struct tei_job *j)
{
    struct nvmeof_file *f = tei_container_of(j, struct nvmeof_file, job);
    struct nvmeof *n = f->owner;

    close_fds(f);
    free(f->path);
    free(f);
    end_job(n);
}

/* One reference less; whether it was the last one, and the file is to be closed. Lock held. */
static bool drop_ref(struct nvmeof_file *f)
{
    if (--f->refs)
        return false;
    HASH_DEL(f->owner->files[f->by_path], f);
    if (tei_link_is_in(&f->busy))
        tei_list_del(&f->busy);
    f->owner->jobs++;
    return true;
}

void tei_nvmeof_file_put(struct nvmeof_file *f)
{
    struct nvmeof *n = f->owner;
    bool last;

    pthread_mutex_lock(&n->lock);
    last = drop_ref(f);
    pthread_mutex_unlock(&n->lock);
    if (last)
        tei_jobs_post(n->base.host->waits, &f->job, close_job);
}

/* ---------------------------------------------------------------------------------------- opening */

/* What the job finds out, before it is put into the file. */
struct found {
    int direct, cached, error, sys_errno;
    bool writable;
    uint64_t id[3], length, read_align, write_align, memory_align;
    char why[NVMEOF_WHY];
};

/* The file that `fd` (O_PATH) is, or -1 and errno. */
static int reopen(int fd, int flags)
{
    char path[40];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return tei_fd_own(open(path, flags | O_CLOEXEC | O_NOCTTY));
}

static bool is_refusal(int error)
{
    return error == EACCES || error == EPERM || error == EROFS || error == ETXTBSY;
}

/* Which file it is and how long. */
static int look_at(struct found *o)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), block;
    struct stat st;

    if (fstat(o->cached, &st) != 0)
        return -1;
    block = (uint64_t)st.st_blksize;
    o->write_align = tei_max(page, block <= NVMEOF_ALIGN_MAX ? block : 0);
    identify(&st, o->id);
    if (S_ISBLK(st.st_mode))
        return ioctl(o->cached, BLKGETSIZE64, &o->length);
    o->length = (uint64_t)st.st_size;
    return 0;
}

/*
 * What direct I/O must be aligned to. Where the kernel does not tell, and it is no device, a page or
 * one of the file system's blocks, whichever is larger: none of them asks for more.
 */
static void find_alignment(struct found *o)
{
    uint64_t file = o->write_align, memory = o->write_align;
    int sector;
#ifdef STATX_DIOALIGN
    struct statx st;

    if (statx(o->direct, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 &&
        (st.stx_mask & STATX_DIOALIGN) && st.stx_dio_offset_align) {
        file = st.stx_dio_offset_align;
        memory = st.stx_dio_mem_align;
    } else
#endif
        if (ioctl(o->direct, BLKSSZGET, &sector) == 0 && sector > 0)
        file = memory = (uint64_t)sector;
    o->read_align = tei_max(file, 512);
    o->write_align = tei_max(o->write_align, o->read_align);
    o->memory_align = tei_max(memory, 4);
}

static void fail_opening(const struct nvmeof_file *f, struct found *o)
{
    o->sys_errno = errno;
    o->error = is_refusal(errno) ? TE_ERR_ACCESS : TE_ERR_SYSTEM;
    snprintf(o->why, sizeof o->why, "opening %.200s", f->path);
}

/* By an errno that a later attempt would meet, too: else COMPLETED would mean less for a while. */
static bool takes_no_direct(int error)
{
    return error == EINVAL || error == EOPNOTSUPP || error == ENOSYS;
}

static void open_both(struct nvmeof_file *f, int fd, struct found *o)
{
    int mode = O_RDWR;

    o->cached = reopen(fd, mode);
    o->writable = o->cached >= 0;
    if (o->cached < 0 && is_refusal(errno)) {
        mode = O_RDONLY;
        o->cached = reopen(fd, mode);
    }
    if (o->cached < 0 || look_at(o) != 0) {
        fail_opening(f, o);
        return;
    }
    if (!f->owner->conf->file_direct)
        return;
    o->direct = reopen(fd, mode | O_DIRECT);
    if (o->direct >= 0)
        find_alignment(o);
    else if (takes_no_direct(errno))
        TEI_INFO("%s: its file system takes no O_DIRECT (%s): all goes through the page cache",
                 f->path, tei_errno_text(errno));
    else
        fail_opening(f, o);
}

/* The file is between two lives: nobody else reads what is written here. */
static void take_over(struct nvmeof_file *f, const struct found *o)
{
    f->error = o->error;
    f->sys_errno = o->sys_errno;
    memcpy(f->why, o->why, sizeof f->why);
    f->direct = o->direct;
    f->cached = o->cached;
    f->writable = o->writable;
    f->length = o->length;
    f->read_align = o->read_align;
    f->write_align = o->write_align;
    f->memory_align = o->memory_align;
    f->not_direct = false;
    if (!o->error && memcmp(f->id, o->id, sizeof f->id) != 0)
        f->cufile_refused = false; /* that was another file */
    if (!o->error && f->owner->device->file_add)
        f->owner->device->file_add(f->owner, f);
    if (!o->error)
        tei_nvmeof_gpu_file_add(f);
}

/* Work that is half done must not go on in another file, nor in what it is not possible in. Lock held. */
static void end_half_done(struct nvmeof_file *f, const struct found *o)
{
    struct tei_link *l, *tmp;
    bool same = memcmp(f->id, o->id, sizeof f->id) == 0;

    memcpy(f->id, o->id, sizeof f->id);
    TEI_LIST_EACH(&f->ledger.queue, l, tmp) {
        struct nvmeof_work *w = tei_nvmeof_work_of(l);

        if (!w->entry.next)
            continue;
        if (!same)
            tei_nvmeof_fail_at(w, TE_ERR_STALE, 0, "%s leads to another file now");
        else if (w->at + w->entry.base.length > o->length)
            tei_nvmeof_fail_at(w, TE_ERR_STALE, 0, "the file %s has become shorter");
        else if (w->entry.base.opcode == TE_WRITE && !o->writable)
            tei_nvmeof_fail_at(w, TE_ERR_ACCESS, 0, "%s may only be read by this process now");
    }
}

/* What waits for the file now; a failure that nobody waits for is forgotten. Lock held. */
static void finish_opening(struct nvmeof_file *f, const struct found *o)
{
    f->ledger.progress_ns = tei_now_ns();
    if (!o->error)
        end_half_done(f, o);
    if (!o->error)
        f->state = NVMEOF_OPEN;
    else
        f->state = tei_ledger_first(&f->ledger) ? NVMEOF_FAILED : NVMEOF_CLOSED;
    f->owner->opening--;
}

static void find_and_open(struct nvmeof_file *f, struct found *o)
{
    int fd;

    o->error = tei_nvmeof_find(&f->owner->roots, f->path, f->by_path, &fd, &o->sys_errno, o->why,
                               sizeof o->why);
    if (!o->error) {
        open_both(f, fd, o);
        tei_fd_close(fd);
    }
    if (!o->error)
        return;
    tei_fd_close(o->direct);
    tei_fd_close(o->cached);
    o->direct = o->cached = -1;
    TEI_WARN("%s%s%s: %s", o->why, o->sys_errno ? ": " : "",
             o->sys_errno ? tei_errno_text(o->sys_errno) : "", te_strerror(o->error));
}

static void open_job(struct tei_job *j)
{
    struct nvmeof_file *f = tei_container_of(j, struct nvmeof_file, job);
    struct found o = {.direct = -1, .cached = -1};
    struct nvmeof *n = f->owner;
    bool last;

    close_fds(f);
    find_and_open(f, &o);
    take_over(f, &o);
    pthread_mutex_lock(&n->lock);
    finish_opening(f, &o);
    last = drop_ref(f); /* in the same step: who sees it open holds all references */
    pthread_mutex_unlock(&n->lock);
    tei_waker_ring(&n->waker);
    if (last)
        tei_jobs_post(n->base.host->waits, &f->job, close_job);
    end_job(n);
}

void tei_nvmeof_file_open(struct nvmeof_file *f)
{
    tei_jobs_post(f->owner->base.host->waits, &f->job, open_job);
}
