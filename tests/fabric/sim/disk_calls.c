/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_calls.c - the calls on files, by the names that the C library has for them. What is not at or below
 * SIM_DISK, or not of this world, is the real system's.
 */
#include "disk.h"

#include "machine.h"
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int failed(int error)
{
    errno = error;
    return -1;
}

struct sim_disk_file *sim_disk_file_of(int fd)
{
    struct sim_file *f = sim_file_of(fd);

    return f && f->kind == SIM_DISK_FILE ? (struct sim_disk_file *)f : NULL;
}

/* --------------------------------------------------------------------------------------- opening */

/* The file that "/proc/self/fd/N" is. */
static const struct sim_disk_file *by_number(const char *path)
{
    int fd;

    return sscanf(path, "/proc/self/fd/%d", &fd) == 1 ? sim_disk_file_of(fd) : NULL;
}

static bool is_folder(const char *path)
{
    return strcmp(path, "/") == 0 || strcmp(path, SIM_DISK) == 0;
}

bool sim_disk_has(const char *path)
{
    if (!sim_is_on() || !sim_disk.align)
        return false;
    return is_folder(path) || strncmp(path, SIM_DISK "/", strlen(SIM_DISK) + 1) == 0 ||
           by_number(path);
}

static int make(const char *path, struct sim_node *n, int flags)
{
    struct sim_disk_file *f = sim_new(sizeof(*f));

    *f = (struct sim_disk_file){.node = n, .direct = flags & O_DIRECT};
    snprintf(f->path, sizeof(f->path), "%s", path);
    f->lost = n ? sim_disk_lost(n) : 0;
    return sim_file_open(&f->file, SIM_DISK_FILE, false);
}

int sim_disk_open(const char *path, int flags)
{
    const struct sim_disk_file *same = by_number(path);
    struct sim_node *n;

    sim_point();
    path = same ? same->path : path;
    n = sim_disk_find(path);
    if (!n && !is_folder(path))
        return failed(ENOENT);
    if (n && (flags & O_DIRECTORY))
        return failed(ENOTDIR);
    if ((flags & O_DIRECT) && !sim_disk.is_direct)
        return failed(EINVAL);
    return make(path, n, flags);
}

/* As a program calls it that is built with _FORTIFY_SOURCE. */
int __open_2(const char *path, int flags);

int __open_2(const char *path, int flags)
{
    return open(path, flags, 0);
}

int openat(int folder, const char *name, int flags, ...)
{
    const struct sim_disk_file *f = sim_disk_file_of(folder);
    char path[256];
    va_list args;
    mode_t mode;

    va_start(args, flags);
    mode = va_arg(args, mode_t);
    va_end(args);
    if (!f)
        return REAL(openat)(folder, name, flags, mode);
    snprintf(path, sizeof(path), "%s/%s", strcmp(f->path, "/") == 0 ? "" : f->path, name);
    return sim_disk_open(path, flags);
}

int __openat_2(int folder, const char *name, int flags);

int __openat_2(int folder, const char *name, int flags)
{
    return openat(folder, name, flags, 0);
}

char *realpath(const char *path, char *out)
{
    if (!sim_disk_has(path))
        return REAL(realpath)(path, out);
    return out ? strcpy(out, path) : strdup(path);
}

char *__realpath_chk(const char *path, char *out, size_t size);

char *__realpath_chk(const char *path, char *out, size_t size)
{
    (void)size;
    return realpath(path, out);
}

/* ------------------------------------------------------------------------------------ what they are */

static int describe(const struct sim_node *n, struct stat *out)
{
    sim_point();
    memset(out, 0, sizeof(*out));
    out->st_dev = 77;
    out->st_ino = n ? sim_disk_number(n) : 1000;
    out->st_mode = n ? S_IFREG | 0600 : S_IFDIR | 0700;
    out->st_blksize = 4096;
    out->st_size = n ? (off_t)sim_disk_length(n) : 0;
    return 0;
}

int sim_disk_fstat(const struct sim_disk_file *f, struct stat *out)
{
    return describe(f->node, out);
}

int sim_disk_stat(const char *path, struct stat *out)
{
    const struct sim_node *n = sim_disk_find(path);

    return n || is_folder(path) ? describe(n, out) : failed(ENOENT);
}

int access(const char *path, int how)
{
    if (!sim_disk_has(path))
        return REAL(access)(path, how);
    return sim_disk_find(path) ? 0 : failed(ENOENT);
}

int statx(int fd, const char *path, int flags, unsigned mask, struct statx *out)
{
    if (!sim_disk_file_of(fd))
        return REAL(statx)(fd, path, flags, mask, out);
    memset(out, 0, sizeof(*out));
#ifdef STATX_DIOALIGN
    if (sim_disk.tells_align) {
        out->stx_mask = STATX_DIOALIGN;
        out->stx_dio_mem_align = sim_disk.memory;
        out->stx_dio_offset_align = sim_disk.align;
    }
#endif
    return 0;
}

/* ---------------------------------------------------------------------------------------- moving */

/* In the calling thread. */
static int64_t run(enum sim_io_kind kind, struct sim_disk_file *f, const struct iovec *v, off_t at,
                   bool syncs)
{
    struct sim_io io;
    int64_t ns;

    sim_point();
    sim_io_begin(&io, kind, f, v->iov_base, v->iov_len, (uint64_t)at);
    io.syncs = syncs;
    while ((ns = sim_io_step(&io)) >= 0)
        sim_block(NULL, "waits for a disk", sim_now() + ns);
    return io.result;
}

static ssize_t run_or_fail(enum sim_io_kind kind, struct sim_disk_file *f, const struct iovec *v,
                           off_t at, bool syncs)
{
    int64_t result = run(kind, f, v, at, syncs);

    return result < 0 ? failed((int)-result) : (ssize_t)result;
}

ssize_t preadv(int fd, const struct iovec *v, int n, off_t at)
{
    struct sim_disk_file *f = sim_disk_file_of(fd);

    return f ? run_or_fail(SIM_IO_READ, f, v, at, false) : REAL(preadv)(fd, v, n, at);
}

ssize_t pwritev(int fd, const struct iovec *v, int n, off_t at)
{
    struct sim_disk_file *f = sim_disk_file_of(fd);

    return f ? run_or_fail(SIM_IO_WRITE, f, v, at, false) : REAL(pwritev)(fd, v, n, at);
}

/* With RWF_DSYNC. */
long sim_disk_pwritev2(const long *w)
{
    struct sim_disk_file *f = sim_disk_file_of((int)w[0]);

    if (!f)
        sim_fail("pwritev2 of what is no file");
    return run_or_fail(SIM_IO_WRITE, f, (const struct iovec *)w[1], w[3], true);
}

int posix_fadvise(int fd, off_t at, off_t length, int advice)
{
    struct sim_disk_file *f = sim_disk_file_of(fd);

    if (!f)
        return REAL(posix_fadvise)(fd, at, length, advice);
    return (int)-run(SIM_IO_DROP, f, &(struct iovec){NULL, (size_t)length}, at, false);
}

int sync_file_range(int fd, off64_t at, off64_t length, unsigned flags)
{
    struct sim_disk_file *f = sim_disk_file_of(fd);

    if (!f)
        return REAL(sync_file_range)(fd, at, length, flags);
    return (int)run_or_fail(SIM_IO_SYNC, f, &(struct iovec){NULL, (size_t)length}, at, true);
}
