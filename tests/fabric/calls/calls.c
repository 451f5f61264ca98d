/* SPDX-License-Identifier: Apache-2.0 */
#undef _FORTIFY_SOURCE /* which has other functions under these names */
#include "fabric/calls/calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- what fails */

static const struct fault {
    const char *name, *call;
    int error;
    bool lasts;
} faults[] = {
#define LASTS(call, error)                   \
    {                                        \
#call ":" #error, #call, error, true \
    }
#define ONCE(call, error)                     \
    {                                         \
#call ":" #error, #call, error, false \
    }
    LASTS(accept4, EMFILE),
    ONCE(accept4, ECONNABORTED),
    LASTS(bind, EADDRINUSE),
    LASTS(connect, EADDRNOTAVAIL),
    LASTS(connect, ECONNREFUSED),
    LASTS(connect, ENETUNREACH),
    LASTS(epoll_create1, EMFILE),
    LASTS(epoll_ctl, ENOSPC),
    ONCE(epoll_wait, EINTR),
    LASTS(eventfd, EMFILE),
    LASTS(fcntl, EMFILE),
    LASTS(fopen, EMFILE),
    LASTS(fstat, EIO),
    LASTS(ftruncate, ENOSPC),
    LASTS(getaddrinfo, EMFILE),
    LASTS(getifaddrs, EMFILE),
    LASTS(getpeername, ENOTCONN),
    LASTS(getrandom, ENOSYS),
    LASTS(getsockname, ENOBUFS),
    LASTS(getsockopt, ENOBUFS),
    LASTS(ioctl, EINVAL),
    LASTS(listen, EADDRINUSE),
    LASTS(madvise, ENOMEM),
    LASTS(memfd_create, EMFILE),
    LASTS(mincore, EAGAIN),
    LASTS(mlock, ENOMEM),
    LASTS(mmap, ENOMEM),
    LASTS(move_pages, ENOMEM),
    LASTS(open, EMFILE),
    LASTS(openat, EMFILE),
    LASTS(opendir, EMFILE),
    LASTS(pidfd_getfd, EPERM),
    LASTS(pidfd_open, EMFILE),
    LASTS(pipe2, EMFILE),
    ONCE(poll, EINTR),
    LASTS(poll, ENOMEM),
    LASTS(process_vm, EPERM), /* both: what is refused is the process */
    LASTS(pthread_create, EAGAIN),
    LASTS(ppoll, ENOMEM),
    LASTS(read, EIO),
    LASTS(recv, ECONNRESET),
    ONCE(recv, EINTR),
    LASTS(recvmsg, ECONNRESET),
    LASTS(send, ECONNRESET),
    ONCE(send, EINTR),
    LASTS(sendmsg, ECONNRESET),
    LASTS(sendmsg, ENOBUFS),
    LASTS(setsockopt, ENOBUFS),
    LASTS(socket, EMFILE),
    LASTS(socketpair, EMFILE),
    LASTS(stat, EACCES),
    LASTS(timerfd_create, EMFILE),
};

static const struct fault *chosen;
static _Atomic bool armed;
static _Atomic uint64_t first, seen, failed, mapped;
static bool onwards_too;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the two */
static void *where[CALLS_FRAMES];
static int n_where;
static _Atomic bool by_library;
static const char *program;

static const struct fault *find(const char *name)
{
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        if (strcmp(faults[i].name, name) == 0)
            return &faults[i];
    return NULL;
}

bool calls_choose(const char *fault)
{
    return (chosen = find(fault)) != NULL;
}

const char *calls_name(size_t i)
{
    return i < sizeof(faults) / sizeof(faults[0]) ? faults[i].name : NULL;
}

bool calls_may_last(const char *fault)
{
    const struct fault *f = find(fault);

    return f && f->lasts;
}

void calls_arm(uint64_t n, bool onwards)
{
    first = n;
    onwards_too = onwards;
    seen = failed = 0;
    n_where = 0;
    by_library = false;
    armed = chosen != NULL;
}

void calls_disarm(void)
{
    armed = false;
}

uint64_t calls_seen(void)
{
    return seen;
}

uint64_t calls_failed(void)
{
    return failed;
}

int calls_where(void *frames[CALLS_FRAMES])
{
    int n;

    pthread_mutex_lock(&lock);
    memcpy(frames, where, sizeof(where));
    n = n_where;
    pthread_mutex_unlock(&lock);
    return n;
}

bool calls_by_program(void)
{
    return failed > 0 && !by_library;
}

const char *calls_text(void)
{
    return strerror(chosen->error);
}

uint64_t calls_mapped(void)
{
    return mapped;
}

static void keep_place(void)
{
    void *frames[CALLS_FRAMES];
    int n = backtrace(frames, CALLS_FRAMES);

    pthread_mutex_lock(&lock);
    memcpy(where, frames, sizeof(where));
    n_where = n;
    pthread_mutex_unlock(&lock);
}

/* Whether this call is to fail; errno is set then. */
static bool fails(const char *call, const void *caller)
{
    Dl_info info;
    uint64_t n;

    if (!armed || strcmp(call, chosen->call) != 0)
        return false;
    n = ++seen;
    if (first == 0 || n < first || (n > first && !onwards_too))
        return false;
    keep_place();
    if (!dladdr(caller, &info) || strcmp(info.dli_fname, program) != 0)
        by_library = true;
    failed++;
    errno = chosen->error;
    return true;
}

__attribute__((constructor)) static void prepare(void)
{
    void *frames[1];

    backtrace(frames, 1); /* loads what it needs */
    program = program_invocation_name;
}

/* ---- the calls */

#define NEXT(call) ((__typeof__(&(call)))dlsym(RTLD_NEXT, #call))

#define CALL(result, failure, call, parameters, arguments)                                         \
    result call parameters                                                                         \
    {                                                                                              \
        return fails(#call, __builtin_return_address(0)) ? (result)failure : NEXT(call) arguments; \
    }

CALL(int, -1, accept4, (int fd, struct sockaddr *a, socklen_t *n, int flags), (fd, a, n, flags))
CALL(int, -1, bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
CALL(int, -1, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
CALL(int, -1, epoll_create1, (int flags), (flags))
CALL(int, -1, epoll_wait, (int e, struct epoll_event *v, int n, int ms), (e, v, n, ms))
CALL(int, -1, eventfd, (unsigned count, int flags), (count, flags))
CALL(FILE *, NULL, fopen, (const char *path, const char *mode), (path, mode))
CALL(int, -1, fstat, (int fd, struct stat *out), (fd, out))
CALL(int, -1, ftruncate, (int fd, off_t n), (fd, n))
CALL(int, EAI_SYSTEM, getaddrinfo,
     (const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out),
     (host, port, hints, out))
CALL(int, -1, getifaddrs, (struct ifaddrs * *out), (out))
CALL(int, -1, getpeername, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n))
CALL(ssize_t, -1, getrandom, (void *out, size_t n, unsigned flags), (out, n, flags))
CALL(int, -1, getsockname, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n))
CALL(int, -1, getsockopt, (int fd, int level, int name, void *out, socklen_t *n),
     (fd, level, name, out, n))
CALL(int, -1, listen, (int fd, int n), (fd, n))
CALL(int, -1, madvise, (void *at, size_t n, int advice), (at, n, advice))
CALL(int, -1, memfd_create, (const char *name, unsigned flags), (name, flags))
CALL(int, -1, mincore, (void *at, size_t n, unsigned char *out), (at, n, out))
CALL(int, -1, mlock, (const void *at, size_t n), (at, n))
CALL(DIR *, NULL, opendir, (const char *path), (path))
CALL(int, -1, pipe2, (int fds[2], int flags), (fds, flags))
CALL(int, -1, poll, (struct pollfd * p, nfds_t n, int ms), (p, n, ms))
CALL(int, chosen->error, pthread_create,
     (pthread_t * out, const pthread_attr_t *a, void *(*run)(void *), void *arg),
     (out, a, run, arg))
CALL(int, -1, ppoll, (struct pollfd * p, nfds_t n, const struct timespec *t, const sigset_t *mask),
     (p, n, t, mask))
CALL(ssize_t, -1, read, (int fd, void *out, size_t n), (fd, out, n))
CALL(ssize_t, -1, recv, (int fd, void *out, size_t n, int flags), (fd, out, n, flags))
CALL(ssize_t, -1, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
CALL(ssize_t, -1, send, (int fd, const void *at, size_t n, int flags), (fd, at, n, flags))
CALL(ssize_t, -1, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
CALL(int, -1, setsockopt, (int fd, int level, int name, const void *at, socklen_t n),
     (fd, level, name, at, n))
CALL(int, -1, socket, (int domain, int type, int protocol), (domain, type, protocol))
CALL(int, -1, socketpair, (int domain, int type, int protocol, int fds[2]),
     (domain, type, protocol, fds))
CALL(int, -1, stat, (const char *path, struct stat *out), (path, out))
CALL(int, -1, timerfd_create, (int clock, int flags), (clock, flags))

/* ---- those with more to it */

static unsigned mode_of(int flags, va_list rest)
{
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, unsigned) : 0;
}

int open(const char *path, int flags, ...)
{
    unsigned mode;
    va_list rest;

    va_start(rest, flags);
    mode = mode_of(flags, rest);
    va_end(rest);
    return fails("open", __builtin_return_address(0)) ? -1 : NEXT(open)(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    unsigned mode;
    va_list rest;

    va_start(rest, flags);
    mode = mode_of(flags, rest);
    va_end(rest);
    return fails("openat", __builtin_return_address(0)) ? -1
                                                        : NEXT(openat)(folder, path, flags, mode);
}

/* What is watched already needs nothing more of the kernel. */
int epoll_ctl(int e, int op, int fd, struct epoll_event *v)
{
    if (op == EPOLL_CTL_ADD && fails("epoll_ctl", __builtin_return_address(0)))
        return -1;
    return NEXT(epoll_ctl)(e, op, fd, v);
}

int fcntl(int fd, int what, ...)
{
    void *arg;
    va_list rest;

    va_start(rest, what);
    arg = va_arg(rest, void *);
    va_end(rest);
    if (what == F_DUPFD_CLOEXEC && fails("fcntl", __builtin_return_address(0)))
        return -1;
    return NEXT(fcntl)(fd, what, arg);
}

int ioctl(int fd, unsigned long what, ...)
{
    void *arg;
    va_list rest;

    va_start(rest, what);
    arg = va_arg(rest, void *);
    va_end(rest);
    return fails("ioctl", __builtin_return_address(0)) ? -1 : NEXT(ioctl)(fd, what, arg);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t from)
{
    void *got;

    if (fails("mmap", __builtin_return_address(0)))
        return MAP_FAILED;
    got = NEXT(mmap)(at, n, protection, flags, fd, from);
    if (got != MAP_FAILED && !(flags & MAP_FIXED))
        mapped += n;
    return got;
}

int munmap(void *at, size_t n)
{
    int rc = NEXT(munmap)(at, n);

    if (rc == 0)
        mapped -= n;
    return rc;
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *l, unsigned long nl, const struct iovec *r,
                         unsigned long nr, unsigned long flags)
{
    return fails("process_vm", __builtin_return_address(0))
               ? -1
               : NEXT(process_vm_readv)(pid, l, nl, r, nr, flags);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *l, unsigned long nl, const struct iovec *r,
                          unsigned long nr, unsigned long flags)
{
    return fails("process_vm", __builtin_return_address(0))
               ? -1
               : NEXT(process_vm_writev)(pid, l, nl, r, nr, flags);
}

static const char *name_of(long number)
{
    switch (number) {
    case SYS_pidfd_open:
        return "pidfd_open";
    case SYS_pidfd_getfd:
        return "pidfd_getfd";
    case SYS_move_pages:
        return "move_pages";
    default:
        return "";
    }
}

long syscall(long number, ...)
{
    long a[6];
    va_list rest;

    va_start(rest, number);
    for (size_t i = 0; i < 6; i++)
        a[i] = va_arg(rest, long);
    va_end(rest);
    if (fails(name_of(number), __builtin_return_address(0)))
        return -1;
    return NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
