/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c - descriptors of the world: epoll, poll, eventfd, timerfd, and the calls that any kind has.
 *
 * Their numbers lie above those of the real kernel, and the lowest free one is given out, as a kernel
 * does: a descriptor that is used after its close meets another one of the same number. A host that
 * touches a descriptor of another host ends the run.
 */
#include "disk.h"
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define FIRST 100000
#define FILES (1 << 20)

struct event_file {
    struct sim_file base;
    uint64_t count;
};

struct timer_file {
    struct sim_file base;
    uint64_t armed; /* counts settings, by which an alarm knows its own */
    bool due;
};

struct interest {
    struct sim_file *file;
    int fd; /* by which it was added: one for each of a file's descriptors */
    struct epoll_event event;
};

struct epoll_file {
    struct sim_file base;
    struct interest *interests;
    size_t n, cap;
};

struct alarm {
    struct timer_file *timer;
    uint64_t armed;
};

static struct sim_file *files[FILES];
static int lowest;  /* none below it is free */
static int highest; /* no file at or above it */
static const char pollers[SIM_LIMIT];
unsigned sim_file_faults;

void *sim_new(size_t size)
{
    void *p = calloc(1, size);

    if (!p)
        sim_fail("out of memory");
    return p;
}

struct sim_file *sim_file_of(int fd)
{
    struct sim_file *f = fd >= FIRST && fd < FIRST + FILES ? files[fd - FIRST] : NULL;

    if (f && sim_is_on() && f->host != sim_host())
        sim_fail("descriptor %d of host %d is used by host %d", fd, f->host, sim_host());
    return f;
}

struct sim_file *sim_file_at(int host, int fd)
{
    struct sim_file *f = sim_file_is_ours(fd) ? files[fd - FIRST] : NULL;

    return f && f->host == host ? f : NULL;
}

bool sim_file_is_ours(int fd)
{
    return fd >= FIRST && fd < FIRST + FILES;
}

/* The lowest number that is free leads to it. */
static int place(struct sim_file *f)
{
    int i = lowest;

    while (i < FILES && files[i])
        i++;
    lowest = i;
    if (i == FILES)
        sim_fail("more than %d descriptors", FILES);
    if (i >= highest)
        highest = i + 1;
    files[i] = f;
    f->n_fds++;
    return FIRST + i;
}

int sim_file_open(struct sim_file *f, enum sim_kind kind, bool nonblocking)
{
    static const int none_left[] = {EMFILE, ENFILE, ENOMEM, ENOBUFS};

    if (sim_one_in(sim_file_faults)) {
        errno = none_left[sim_below(kind == SIM_SOCKET ? 4 : 3)];
        return -1;
    }
    f->kind = kind;
    f->fd = place(f);
    f->host = sim_host();
    f->nonblocking = nonblocking;
    return f->fd;
}

static int duplicate(struct sim_file *f)
{
    if (!f || sim_one_in(sim_file_faults)) {
        errno = f ? EMFILE : EBADF;
        return -1;
    }
    return place(f);
}

unsigned sim_files_of(int host)
{
    unsigned n = 0;

    for (int i = 0; i < highest; i++)
        n += files[i] && files[i]->host == host;
    return n;
}

uint32_t sim_file_ready(struct sim_file *f)
{
    switch (f->kind) {
    case SIM_SOCKET:
        return sim_socket_ready(f);
    case SIM_EVENT:
        return EPOLLOUT | (((struct event_file *)f)->count ? EPOLLIN : 0u);
    case SIM_TIMER:
        return ((struct timer_file *)f)->due ? EPOLLIN : 0;
    case SIM_UNIX:
        return sim_unix_ready(f);
    case SIM_PIDFD:
        return sim_pidfd_ready(f);
    default:
        return 0;
    }
}

void sim_file_notify(struct sim_file *f)
{
    for (int i = 0; i < f->n_watchers; i++)
        sim_wake(f->watchers[i], true);
    sim_wake(&pollers[f->host], true);
}

bool sim_file_wait(const char *what, int64_t until)
{
    return sim_block(&pollers[sim_host()], what, until);
}

void sim_file_wake(int host)
{
    sim_wake(&pollers[host], true);
}

/* ----------------------------------------------------------------------------------------- epoll */

int epoll_create1(int flags)
{
    struct epoll_file *e = sim_new(sizeof(*e));

    (void)flags;
    return sim_file_open(&e->base, SIM_EPOLL, false);
}

static struct epoll_file *epoll_of(int fd)
{
    struct sim_file *f = sim_file_of(fd);

    if (!f || f->kind != SIM_EPOLL)
        sim_fail("%d is no epoll", fd);
    return (struct epoll_file *)f;
}

/* By that descriptor, -1: by any. */
static struct interest *interest_of(struct epoll_file *e, const struct sim_file *f, int fd)
{
    for (size_t i = 0; i < e->n; i++)
        if (e->interests[i].file == f && (fd < 0 || e->interests[i].fd == fd))
            return &e->interests[i];
    return NULL;
}

static void watch(struct sim_file *f, struct epoll_file *e)
{
    if (interest_of(e, f, -1))
        return;
    if (f->n_watchers == SIM_WATCHERS)
        sim_fail("more than %d epolls of a descriptor", SIM_WATCHERS);
    f->watchers[f->n_watchers++] = e;
}

static void unwatch(struct sim_file *f, struct epoll_file *e)
{
    if (interest_of(e, f, -1))
        return;
    for (int i = 0; i < f->n_watchers; i++)
        if (f->watchers[i] == e) {
            f->watchers[i] = f->watchers[--f->n_watchers];
            return;
        }
}

static int add_interest(struct epoll_file *e, struct sim_file *f, int fd,
                        const struct epoll_event *event)
{
    if (e->n == e->cap) {
        e->cap = e->cap ? 2 * e->cap : 16;
        e->interests = realloc(e->interests, e->cap * sizeof(*e->interests));
        if (!e->interests)
            sim_fail("out of memory");
    }
    watch(f, e);
    e->interests[e->n++] = (struct interest){f, fd, *event};
    return 0;
}

static void drop_interest(struct epoll_file *e, struct interest *i)
{
    struct sim_file *f = i->file;

    *i = e->interests[--e->n];
    unwatch(f, e);
}

int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    struct epoll_file *e = epoll_of(epfd);
    struct sim_file *f = sim_file_of(fd);
    struct interest *i = f ? interest_of(e, f, fd) : NULL;

    sim_point();
    if (!f || (op == EPOLL_CTL_ADD) == !!i) {
        errno = !f ? EBADF : i ? EEXIST : ENOENT;
        return -1;
    }
    if (op == EPOLL_CTL_DEL) {
        drop_interest(e, i);
        return 0;
    }
    if (op == EPOLL_CTL_ADD)
        add_interest(e, f, fd, event);
    else
        i->event = *event;
    sim_wake(e, true);
    return 0;
}

/* Begins anywhere: the order in which events come is nobody's promise. */
static int collect(struct epoll_file *e, struct epoll_event *out, int max)
{
    size_t from = e->n ? (size_t)sim_below(e->n) : 0;
    int n = 0;

    for (size_t k = 0; k < e->n && n < max; k++) {
        const struct interest *i = &e->interests[(from + k) % e->n];
        uint32_t ready = sim_file_ready(i->file) & (i->event.events | EPOLLERR | EPOLLHUP);

        if (ready)
            out[n++] = (struct epoll_event){.events = ready, .data = i->event.data};
    }
    return n;
}

int epoll_wait(int epfd, struct epoll_event *out, int max, int timeout)
{
    struct epoll_file *e = epoll_of(epfd);
    int64_t until = timeout < 0 ? SIM_NEVER : sim_now() + timeout * SIM_MS;
    int n;

    sim_point();
    while ((n = collect(e, out, max)) == 0 && timeout != 0)
        if (!sim_block(e, "waits in epoll", until))
            return 0;
    return n;
}

/* ------------------------------------------------------------------------------------------- poll */

/* A thread may poll a number that another one closes meanwhile, as long as it takes no notice of what it
 * sees then: within a process nothing is wrong with that, whichever host has the number next. */
static struct sim_file *polled(int fd)
{
    struct sim_file *f = sim_file_is_ours(fd) ? files[fd - FIRST] : NULL;

    return f && f->host == sim_host() ? f : NULL;
}

static int look(struct pollfd *p, nfds_t n)
{
    int hits = 0;

    for (nfds_t i = 0; i < n; i++) {
        struct sim_file *f = polled(p[i].fd);

        p[i].revents = 0;
        if (p[i].fd >= 0 && !f)
            p[i].revents = POLLNVAL;
        else if (f)
            p[i].revents =
                (short)(sim_file_ready(f) & ((unsigned short)p[i].events | EPOLLERR | EPOLLHUP));
        hits += p[i].revents != 0;
    }
    return hits;
}

static int poll_until(struct pollfd *p, nfds_t n, int64_t until)
{
    int hits;

    sim_point();
    while ((hits = look(p, n)) == 0 && until > sim_now())
        if (!sim_file_wait("waits in poll", until))
            return look(p, n);
    return hits;
}

/* One that is not could make a thread wait in the kernel, while all others wait for it. */
static bool all_ours(struct pollfd *p, nfds_t n)
{
    bool ours = false, others = false;

    for (nfds_t i = 0; i < n; i++) {
        if (sim_file_is_ours(p[i].fd))
            ours = true;
        else if (p[i].fd >= 0)
            others = true;
    }
    if (ours && others)
        sim_fail("poll() of a descriptor of the kernel's beside those of the simulation");
    return sim_is_on() && !others;
}

int poll(struct pollfd *p, nfds_t n, int timeout)
{
    if (!all_ours(p, n))
        return REAL(poll)(p, n, timeout);
    return poll_until(p, n, timeout < 0 ? SIM_NEVER : sim_now() + timeout * SIM_MS);
}

int ppoll(struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
    if (!all_ours(p, n))
        return REAL(ppoll)(p, n, t, mask);
    return poll_until(p, n, t ? sim_now() + t->tv_sec * SIM_S + t->tv_nsec : SIM_NEVER);
}

/* As a program calls it that is built with _FORTIFY_SOURCE. */
int __poll_chk(struct pollfd *p, nfds_t n, int timeout, size_t size);

int __poll_chk(struct pollfd *p, nfds_t n, int timeout, size_t size)
{
    (void)size;
    return poll(p, n, timeout);
}

/* ------------------------------------------------------------------------------- events and timers */

int eventfd(unsigned count, int flags)
{
    struct event_file *f;

    if (!sim_is_on())
        return REAL(eventfd)(count, flags);
    f = sim_new(sizeof(*f));
    f->count = count;
    return sim_file_open(&f->base, SIM_EVENT, flags & EFD_NONBLOCK);
}

int timerfd_create(clockid_t clock, int flags)
{
    struct timer_file *f = sim_new(sizeof(*f));

    (void)clock;
    return sim_file_open(&f->base, SIM_TIMER, flags & TFD_NONBLOCK);
}

static void on_alarm(void *arg)
{
    struct alarm *a = arg;

    if (a->timer->armed == a->armed && a->timer->base.fd) {
        a->timer->due = true;
        sim_file_notify(&a->timer->base);
    }
    free(a);
}

int timerfd_settime(int fd, int flags, const struct itimerspec *new, struct itimerspec *old)
{
    struct timer_file *f = (struct timer_file *)sim_file_of(fd);
    int64_t when = new->it_value.tv_sec >= SIM_NEVER / SIM_S
                       ? SIM_NEVER
                       : new->it_value.tv_sec *SIM_S + new->it_value.tv_nsec;
    struct alarm *a;

    (void)old;
    sim_point();
    f->armed++;
    f->due = false;
    if (when == 0 || when == SIM_NEVER)
        return 0;
    a = sim_new(sizeof(*a));
    *a = (struct alarm){f, f->armed};
    sim_at(flags & TFD_TIMER_ABSTIME ? when : sim_now() + when, on_alarm, a);
    return 0;
}

static ssize_t read_count(struct sim_file *f, uint64_t *out)
{
    struct event_file *e = (struct event_file *)f;
    struct timer_file *t = (struct timer_file *)f;

    *out = f->kind == SIM_EVENT ? e->count : t->due;
    if (*out == 0) {
        errno = EAGAIN;
        return -1;
    }
    if (f->kind == SIM_EVENT)
        e->count = 0;
    else
        t->due = false;
    return 8;
}

/* --------------------------------------------------------------------------------- of any kind */

ssize_t read(int fd, void *buf, size_t n)
{
    struct sim_file *f = sim_file_of(fd);

    if (!sim_file_is_ours(fd))
        return REAL(read)(fd, buf, n);
    sim_point();
    if (!f) {
        errno = EBADF;
        return -1;
    }
    return f->kind == SIM_SOCKET ? sim_socket_read(f, buf, n) : read_count(f, buf);
}

ssize_t write(int fd, const void *buf, size_t n)
{
    struct sim_file *f = sim_file_of(fd);
    uint64_t more;

    if (!sim_file_is_ours(fd))
        return REAL(write)(fd, buf, n);
    sim_point();
    if (!f || f->kind != SIM_EVENT) {
        errno = EBADF;
        return -1;
    }
    memcpy(&more, buf, sizeof(more));
    ((struct event_file *)f)->count += more;
    sim_file_notify(f);
    return 8;
}

static void forget(struct sim_file *f)
{
    while (f->n_watchers) {
        struct epoll_file *e = (struct epoll_file *)(uintptr_t)f->watchers[0];

        drop_interest(e, interest_of(e, f, -1));
    }
    if (f->kind == SIM_EPOLL)
        for (struct epoll_file *e = (struct epoll_file *)f; e->n;)
            drop_interest(e, &e->interests[0]);
    if (f->kind == SIM_SOCKET)
        sim_socket_close(f);
    if (f->kind == SIM_UNIX)
        sim_unix_close(f);
    if (f->kind == SIM_MEMORY)
        sim_memory_close(f);
    f->fd = 0;
    sim_file_wake(f->host);
}

/* The last descriptor of a file takes it along; until then epolls know it, also by one that is closed. */
static void release(int fd)
{
    struct sim_file *f = files[fd - FIRST];

    if (--f->n_fds == 0)
        forget(f);
    files[fd - FIRST] = NULL;
    lowest = fd - FIRST < lowest ? fd - FIRST : lowest;
}

int close(int fd)
{
    struct sim_file *f = sim_file_of(fd);

    if (!sim_file_is_ours(fd))
        return REAL(close)(fd);
    sim_point();
    if (!f)
        sim_fail("descriptor %d is closed, which is not open", fd);
    release(fd);
    return 0;
}

void sim_files_close(int host)
{
    for (int i = 0; i < highest; i++)
        if (files[i] && files[i]->host == host)
            release(FIRST + i);
    sim_disk_end(host);
    sim_process_end(host);
}

int fcntl(int fd, int command, ...)
{
    struct sim_file *f = sim_file_of(fd);
    va_list args;
    long arg;

    va_start(args, command);
    arg = va_arg(args, long);
    va_end(args);
    if (!sim_file_is_ours(fd))
        return REAL(fcntl)(fd, command, arg);
    if (f && f->kind == SIM_MEMORY)
        return sim_memory_fcntl(f, command, arg);
    if (command == F_DUPFD_CLOEXEC)
        return duplicate(f);
    if (f && command == F_SETFL)
        f->nonblocking = arg & O_NONBLOCK;
    return !f ? -1 : command == F_GETFL && f->nonblocking ? O_NONBLOCK | O_RDWR : 0;
}

/* What /proc says of a descriptor. */
ssize_t readlink(const char *path, char *out, size_t n)
{
    static const char event[] = "anon_inode:[eventfd]";
    struct sim_file *f;
    size_t length;
    int fd;

    if (!sim_is_on() || sscanf(path, "/proc/self/fd/%d", &fd) != 1 || !sim_file_is_ours(fd))
        return REAL(readlink)(path, out, n);
    f = sim_file_of(fd);
    if (!f) {
        errno = ENOENT;
        return -1;
    }
    length = f->kind == SIM_EVENT ? sizeof(event) - 1 : 0;
    length = length < n ? length : n;
    memcpy(out, event, length);
    return (ssize_t)length;
}
