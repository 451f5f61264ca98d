/* SPDX-License-Identifier: Apache-2.0 */
/* then.c - what goes on when requests have ended. */
#include "core/then.h"
#include "base/base.h"
#include "base/err.h"
#include "base/os.h"
#include "core/stream_watch.h"
#include "plat/plat.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct then {
    struct group group;
    struct group *inner;       /* what else follows the requests, or NULL */
    struct tei_gpu_flag *flag; /* NULL: the descriptor is meant */
    int fd;
};

/*
 * One that has all that it can count would have the write wait, and is readable without. The descriptor is ours, but
 * whether a write waits is for the program to say, of the file.
 */
static void write_one(int fd)
{
    const uint64_t one = 1;
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    if (poll(&p, 1, 0) == 1 && p.revents & POLLOUT && write(fd, &one, sizeof(one)) < 0)
        TEI_WARN("the eventfd of te_submit_opts.then: %s", tei_errno_text(errno));
}

/* Of requests that were not submitted none has ended; a stream that waits for them already goes on all the same. */
static void end_then(struct group *g, bool good)
{
    struct then *t = tei_container_of(g, struct then, group);
    bool over = atomic_load_explicit(&g->left, memory_order_relaxed) == 0;

    if (t->inner)
        t->inner->end(t->inner, good);
    if (t->flag)
        tei_gpu_flag_set(t->flag);
    else if (over)
        write_one(t->fd);
    if (!t->flag)
        tei_fd_close(t->fd);
    free(t);
}

/*
 * A pipe or a socket could end the process by a signal, a file would grow, and a timer takes nothing. Without /proc what
 * has no type of file will do.
 */
static bool is_eventfd(int fd)
{
    char path[48], what[32] = "";
    struct stat st;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (readlink(path, what, sizeof(what) - 1) > 0)
        return strcmp(what, "anon_inode:[eventfd]") == 0;
    return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == 0;
}

static int hold_up(const te_stream *s, struct tei_gpu_flag **out)
{
    enum tei_mem_kind kind;
    int device, rc = tei_stream_device(s, &kind, &device);

    return rc ? rc : tei_gpu_flag_wait(kind, device, s->stream, out);
}

static int take_fd(int fd, int *out)
{
    if (!is_eventfd(fd))
        return TEI_FAIL(TE_ERR_INVALID, "te_stream: descriptor %d is no eventfd", fd);
    *out = tei_fd_own(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    return *out >= 0
               ? 0
               : TEI_FAIL(TE_ERR_SYSTEM, "te_stream: descriptor %d: %s", fd, tei_errno_text(errno));
}

int tei_then_make(const te_stream *then, size_t n, struct group **group)
{
    struct then *t;
    int rc;

    if (n == 0)
        return TEI_FAIL(TE_ERR_INVALID, "te_submit_opts.then needs at least one request to follow");
    t = calloc(1, sizeof(*t));
    if (!t)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for what follows requests");
    rc = then->location ? hold_up(then, &t->flag) : take_fd(then->fd, &t->fd);
    if (rc) {
        free(t);
        return rc;
    }
    t->group.end = end_then;
    atomic_init(&t->group.left, n);
    t->inner = *group;
    *group = &t->group;
    return 0;
}
