/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_file.c - segments that need no directory: "file:///path" is one file or block device of
 * this host, as long as it is when it is looked up.
 */
#include "meta/meta.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCHEME "file://"

bool tei_file_is_name(const char *name)
{
    return strncmp(name, SCHEME, strlen(SCHEME)) == 0;
}

/* The path that the name tells. A host may stand before it if it is this one. */
static int path_of(const char *name, const char **out)
{
    static const char local[] = "localhost";
    const char *path = name + strlen(SCHEME);

    if (strncmp(path, local, strlen(local)) == 0)
        path += strlen(local);
    if (*path != '/')
        return TEI_FAIL(TE_ERR_INVALID,
                        "segment '%.200s': after file:// an absolute path must follow, as in "
                        "file:///mnt/nvme0/cache; files of other hosts are opened as nvmeof/NAME",
                        name);
    *out = path;
    return 0;
}

static int device_length(const char *path, uint64_t *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int rc = fd < 0 ? -1 : ioctl(fd, BLKGETSIZE64, out), error = errno;

    if (fd >= 0)
        close(fd);
    return rc == 0 ? 0
                   : TEI_FAIL(TE_ERR_ACCESS, "block device %.400s: cannot tell its size: %s", path,
                              tei_errno_text(error));
}

static int length_of(const char *path, uint64_t *out)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return TEI_FAIL(
            errno == EACCES ? TE_ERR_ACCESS : TE_ERR_NOT_FOUND,
            "file %.400s: %s; create it with the size that it is to have, or mount what "
            "it is on",
            path, tei_errno_text(errno));
    if (S_ISBLK(st.st_mode))
        return device_length(path, out);
    if (!S_ISREG(st.st_mode))
        return TEI_FAIL(TE_ERR_INVALID, "%.400s is neither a regular file nor a block device",
                        path);
    *out = (uint64_t)st.st_size;
    return 0;
}

int tei_file_lookup(const char *name, struct tei_segment **out)
{
    const char *path = NULL;
    uint64_t length;
    int rc = path_of(name, &path);

    if (!rc)
        rc = length_of(path, &length);
    if (!rc && length == 0)
        rc = TEI_FAIL(TE_ERR_INVALID,
                      "file %.400s is empty: a segment ends where its file does; give it the size "
                      "that it is to have, as 'fallocate -l 1G %.400s' does",
                      path, path);
    return rc ? rc : tei_segment_of_file(name, path, length, out);
}
