/* SPDX-License-Identifier: Apache-2.0 */
/* pages.c - pages that several processes map. */
#include "base/pages.h"

#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

int tei_pages_make(const char *name, size_t size)
{
    struct rlimit limit;
    int fd, kept;

    /* Beyond this limit a file is not merely refused, there is a signal. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size) {
        errno = EFBIG;
        return -1;
    }
    fd = tei_fd_own(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0 || (ftruncate(fd, (off_t)size) == 0 &&
                   fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0))
        return fd;
    kept = errno;
    tei_fd_close(fd);
    errno = kept;
    return -1;
}

void *tei_pages_map(int fd, size_t size, bool writable)
{
    void *p = mmap(NULL, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED)
        return NULL;
    madvise(p, size, MADV_DONTFORK);
    return p;
}

bool tei_pages_are_read_only(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE));
}

bool tei_pages_are_sealed(int fd, uint64_t size)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct statfs fs;
    struct stat st;

    if (seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &st) == 0 && st.st_size > 0 &&
        (uint64_t)st.st_size >= size && fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC)
        return true;
    errno = EINVAL;
    return false;
}
