/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int64_t tei_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * TEI_NS_PER_S + ts.tv_nsec;
}

void tei_nap(int64_t begin_ns, int64_t deadline_ns)
{
    enum { SHORTEST_NS = 20000, LONGEST_NS = 4000000 };
    int64_t now = tei_now_ns(), nap = (now - begin_ns) / 8;
    struct timespec ts = {0};

    nap = nap < SHORTEST_NS ? SHORTEST_NS : nap > LONGEST_NS ? LONGEST_NS : nap;
    nap = nap > deadline_ns - now ? deadline_ns - now : nap;
    ts.tv_nsec = nap;
    if (nap > 0)
        nanosleep(&ts, NULL);
}

int64_t tei_deadline_ns(int64_t ms)
{
    int64_t ns;

    if (ms < 0 || __builtin_mul_overflow(ms, (int64_t)TEI_NS_PER_MS, &ns) ||
        __builtin_add_overflow(ns, tei_now_ns(), &ns))
        return TEI_NEVER;
    return ns;
}

int tei_left_ms(int64_t deadline_ns)
{
    int64_t now, ms;

    if (deadline_ns == TEI_NEVER)
        return -1;
    now = tei_now_ns();
    if (deadline_ns <= now)
        return 0;
    /* Rounded up: a poll that ends a little early would be repeated in vain. */
    ms = (deadline_ns - now - 1) / TEI_NS_PER_MS + 1;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

/*
 * Signals are the application's; those that a fault raises must reach its crash handler in whatever
 * thread the fault is.
 */
static void block_signals(sigset_t *old)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t set;

    sigfillset(&set);
    for (size_t i = 0; i < TEI_ARRAY_LEN(faults); i++)
        sigdelset(&set, faults[i]);
    pthread_sigmask(SIG_SETMASK, &set, old);
}

int tei_thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg)
{
    char short_name[16];
    sigset_t old;
    pthread_t thread;
    int err;

    block_signals(&old);
    err = pthread_create(&thread, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err)
        return TEI_FAIL(TE_ERR_SYSTEM,
                        "thread %s cannot be started: %s; see the limits of processes and memory",
                        name, tei_errno_text(err));
    snprintf(short_name, sizeof short_name, "%.15s", name);
    pthread_setname_np(thread, short_name);
    *out = thread;
    return 0;
}

void tei_sigpipe_block(struct tei_sigpipe *s)
{
    sigset_t pipe_set, pending;

    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    sigpending(&pending);
    s->was_pending = sigismember(&pending, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_set, &s->old);
}

void tei_sigpipe_restore(const struct tei_sigpipe *s)
{
    const struct timespec now = {0};
    sigset_t pipe_set;

    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    if (!s->was_pending)
        sigtimedwait(&pipe_set, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &s->old, NULL);
}

void tei_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

bool tei_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, int64_t deadline_ns)
{
    struct timespec ts = {.tv_sec = deadline_ns / TEI_NS_PER_S,
                          .tv_nsec = deadline_ns % TEI_NS_PER_S};

    if (deadline_ns == TEI_NEVER)
        return pthread_cond_wait(c, m) == 0;
    if (deadline_ns <= 0)
        return false;
    return pthread_cond_timedwait(c, m, &ts) != ETIMEDOUT;
}

void tei_raise_nofile(void)
{
    struct rlimit lim;

    if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
        lim.rlim_cur = lim.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &lim) != 0)
            TEI_WARN("limit of open files cannot be raised to %llu: %s",
                     (unsigned long long)lim.rlim_max, tei_errno_text(errno));
    }
}

/*
 * Where the kernel gives no random bytes, numbers that at least differ between processes and calls
 * (splitmix64).
 */
static void fill_from_clock(unsigned char *buf, size_t n)
{
    static _Atomic uint64_t calls;
    uint64_t state = (uint64_t)tei_now_ns() ^ ((uint64_t)getpid() << 40) ^
                     (atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) << 20);

    for (size_t i = 0; i < n; i++) {
        uint64_t z = state += 0x9e3779b97f4a7c15u;

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        buf[i] = (unsigned char)(z >> 56);
    }
}

void tei_random(void *buf, size_t n)
{
    unsigned char *p = buf;

    while (n > 0) {
        ssize_t got = getrandom(p, n, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            fill_from_clock(p, n);
            return;
        }
        p += got;
        n -= (size_t)got;
    }
}

uint64_t tei_random_u64(void)
{
    uint64_t v;

    tei_random(&v, sizeof v);
    return v;
}

void tei_file_word(const char *path, char *out, size_t n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, out, n - 1);

    if (fd >= 0)
        close(fd);
    out[got > 0 ? got : 0] = '\0';
    out[strcspn(out, " \n\t")] = '\0';
}

bool tei_process_look(pid_t pid, struct tei_process *out)
{
    char path[40], text[1024], *after;
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n < 0 ? 0 : n] = '\0';
    after = strrchr(text, ')'); /* the name of the program may hold anything */
    return after && sscanf(after + 1,
                           " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                           "%ld %*s %llu",
                           &out->state, &out->threads, &out->began) == 3;
}

static pthread_once_t huge_once = PTHREAD_ONCE_INIT;
static size_t huge_page = SIZE_MAX;

/* The size depends on that of a page: 2 MiB for one of 4 KiB, 512 MiB for one of 64 KiB. */
static void find_huge_page(void)
{
    char text[32];
    unsigned long long n;

    tei_file_word("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", text, sizeof(text));
    n = strtoull(text, NULL, 10);
    if (n && (n & (n - 1)) == 0 && n < SIZE_MAX)
        huge_page = (size_t)n;
}

size_t tei_huge_page(void)
{
    pthread_once(&huge_once, find_huge_page);
    return huge_page;
}

uint64_t tei_file_inode(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

void tei_timestamp(char *buf, size_t n)
{
    char date[40];
    struct timespec ts;
    struct tm tm;

    clock_gettime(CLOCK_REALTIME, &ts);
    localtime_r(&ts.tv_sec, &tm);
    strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &tm);
    snprintf(buf, n, "%s.%06ld", date, ts.tv_nsec / 1000);
}

int64_t tei_wall_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ---------------------------------------------------------------------------------------- fork */

static _Atomic unsigned forks;

/* One bit for each descriptor that is ours; those of higher numbers are not looked after. */
#define OWNED_WORDS 16384
static _Atomic uint64_t owned[OWNED_WORDS];
static _Atomic unsigned owned_end; /* words from here on were never used */

/* In the child, where this is the only thread. */
static void close_owned(void)
{
    unsigned end = atomic_load_explicit(&owned_end, memory_order_relaxed);

    for (unsigned i = 0; i < end; i++) {
        uint64_t bits = atomic_exchange_explicit(&owned[i], 0, memory_order_relaxed);

        for (; bits; bits &= bits - 1)
            close((int)(i * 64 + (unsigned)__builtin_ctzll(bits)));
    }
}

static void in_child(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
    close_owned();
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

unsigned tei_fork_epoch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

static void raise_end(unsigned to)
{
    unsigned end = atomic_load_explicit(&owned_end, memory_order_relaxed);

    while (end < to && !atomic_compare_exchange_weak_explicit(
                           &owned_end, &end, to, memory_order_relaxed, memory_order_relaxed))
        continue;
}

int tei_fd_own(int fd)
{
    unsigned word = (unsigned)fd / 64;

    if (fd < 0 || word >= OWNED_WORDS)
        return fd;
    (void)tei_fork_epoch();
    raise_end(word + 1);
    atomic_fetch_or_explicit(&owned[word], 1ULL << (fd % 64), memory_order_relaxed);
    return fd;
}

void tei_fd_disown(int fd)
{
    unsigned word = (unsigned)fd / 64;

    if (word < OWNED_WORDS)
        atomic_fetch_and_explicit(&owned[word], ~(1ULL << (fd % 64)), memory_order_relaxed);
}

void tei_fd_close(int fd)
{
    tei_fd_disown(fd);
    close(fd);
}
