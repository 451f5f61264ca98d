/* SPDX-License-Identifier: Apache-2.0 */
#include "te_segment/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "te_segment/registry.h"

/* Before it is opened, which with other kinds of files may wait or do something. */
static bool check_kind(const struct stat *st, char why[WHY_MAX])
{
    if (S_ISDIR(st->st_mode))
        return because(why, "it is a folder, must be a file or a block device");
    if (!S_ISREG(st->st_mode) && !S_ISBLK(st->st_mode))
        return because(why, "it is neither a regular file nor a block device");
    return true;
}

static bool read_info(int fd, struct file_info *out, char why[WHY_MAX])
{
    struct stat st;
    uint64_t length;

    if (fstat(fd, &st))
        return because(why, "%s", strerror(errno));
    if (!check_kind(&st, why))
        return false;
    length = (uint64_t)st.st_size;
    if (S_ISBLK(st.st_mode) && ioctl(fd, BLKGETSIZE64, &length))
        return because(why, "its size cannot be read: %s", strerror(errno));
    if (!length)
        return because(why, "it is empty");
    *out = (struct file_info){.length = length, .is_device = S_ISBLK(st.st_mode)};
    out->dev = out->is_device ? st.st_rdev : st.st_dev;
    out->number = out->is_device ? 0 : st.st_ino;
    return true;
}

static bool cannot_open(int errnum, char why[WHY_MAX])
{
    if (errnum == EBUSY)
        return because(why, "the device is in use: it is mounted, or part of another device");
    return because(why, "it cannot be opened: %s", strerror(errnum));
}

/* O_EXCL tells of a device that is mounted; it does not mind programs that have it open. */
bool file_probe(const char *path, struct file_info *out, char why[WHY_MAX])
{
    bool ok, read_only = false;
    struct stat st;
    int fd, flags = O_CLOEXEC | O_NONBLOCK;

    if (stat(path, &st))
        return because(why, "%s", errno == ENOENT ? "there is no such file" : strerror(errno));
    if (!check_kind(&st, why))
        return false;
    flags |= S_ISBLK(st.st_mode) ? O_EXCL : 0;
    fd = open(path, O_RDWR | flags);
    if (fd < 0 && (errno == EACCES || errno == EPERM || errno == EROFS || errno == ETXTBSY)) {
        read_only = true;
        fd = open(path, O_RDONLY | flags);
    }
    if (fd < 0)
        return cannot_open(errno, why);
    ok = read_info(fd, out, why);
    if (ok)
        out->is_read_only = read_only;
    close(fd);
    return ok;
}

bool file_holds(const char *path, uint64_t length, struct file_info *out, char why[WHY_MAX])
{
    if (!file_probe(path, out, why))
        return false;
    if (out->length < length)
        return because(why, "it has %" PRIu64 " bytes, less than the %" PRIu64 " registered",
                       out->length, length);
    return true;
}

bool file_is(const char *path, uint64_t length, uint64_t whole, struct file_info *out,
             char why[WHY_MAX])
{
    if (!file_holds(path, length, out, why))
        return false;
    if (whole && out->length != whole)
        return because(why,
                       "it has %" PRIu64 " bytes, the one that was registered %" PRIu64
                       ": if it is the same file all the same, give --force",
                       out->length, whole);
    return true;
}

bool file_record_path(const char *given, bool is_device, char out[PATH_MAX], char why[WHY_MAX])
{
    if (is_device && text_is_path(given, true))
        strcpy(out, given);
    else if (!realpath(given, out))
        return because(why, "%s", strerror(errno));
    if (!text_is_path(out, true))
        return because(why, "its path is not UTF-8, or has a character that a record cannot have");
    return true;
}

bool file_create(const char *path, uint64_t size, char why[WHY_MAX])
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), rc;

    if (fd < 0)
        return because(why, "it cannot be made: %s", strerror(errno));
    rc = size > INT64_MAX ? EFBIG : posix_fallocate(fd, 0, (off_t)size);
    close(fd);
    if (!rc)
        return true;
    unlink(path);
    return because(why, "its %" PRIu64 " bytes cannot be allocated: %s", size, strerror(rc));
}

/* ---- hosts */

bool host_name(const char *given, char out[HOST_TEXT_MAX], char why[WHY_MAX])
{
    if (given[0] && strlen(given) < HOST_TEXT_MAX)
        strcpy(out, given);
    else if (given[0] || gethostname(out, HOST_TEXT_MAX))
        return because(why, "--server_name is too long");
    out[HOST_TEXT_MAX - 1] = '\0';
    if (!text_is_plain(out, HOST_TEXT_MAX))
        return because(why, given[0] ? "--server_name is no name of a host"
                                     : "this host has no name: give --server_name");
    return true;
}

/* "node-b" of "node-b:15000". */
static bool host_part(const char *name, char out[HOST_TEXT_MAX])
{
    struct tei_hostport at;

    if (tei_hostport_parse(name, 0, &at) || strcmp(at.host, name) == 0)
        return false;
    strcpy(out, at.host);
    return true;
}

size_t host_names(const char *given, char out[3][HOST_TEXT_MAX])
{
    char why[WHY_MAX];
    size_t n = 0;

    if (given[0] && host_name(given, out[0], why)) {
        n = 1;
        n += host_part(out[0], out[1]);
    }
    n += host_name("", out[n], why);
    return n;
}
