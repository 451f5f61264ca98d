/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync.c - locks and condition variables of the world's threads, within the objects that pthread.h
 * declares, whose bytes are all zero at first.
 */
#include "disk.h"
#include "machine.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <dlfcn.h>
#include <time.h>

struct lock {
    int writer, readers, waiters;
};

struct cond {
    int clock_is_monotonic;
};

_Static_assert(sizeof(struct lock) <= sizeof(pthread_mutex_t), "within the object");
_Static_assert(sizeof(struct lock) <= sizeof(pthread_rwlock_t), "within the object");
_Static_assert(sizeof(struct cond) <= sizeof(pthread_cond_t), "within the object");

#define WRITER 1

static bool try_write(struct lock *l)
{
    if (l->writer || l->readers)
        return false;
    l->writer = WRITER;
    sim_lock_held(1);
    return true;
}

static bool try_read(struct lock *l)
{
    if (l->writer)
        return false;
    l->readers++;
    sim_lock_held(1);
    return true;
}

static void acquire(struct lock *l, bool (*try)(struct lock *), const char *what)
{
    if (!sim_is_on()) {
        l->writer = try == try_write;
        l->readers += try == try_read;
        return;
    }
    sim_point();
    while (!try(l)) {
        l->waiters++;
        sim_block(l, what, SIM_NEVER);
        l->waiters--;
    }
}

static void open_up(struct lock *l)
{
    if (l->readers)
        l->readers--;
    else
        l->writer = 0;
    if (sim_is_on() && l->waiters)
        sim_wake(l, true);
}

static void release(struct lock *l)
{
    open_up(l);
    if (sim_is_on())
        sim_lock_held(-1);
}

int pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a)
{
    (void)a;
    memset(m, 0, sizeof(*m));
    return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *m)
{
    const struct lock *l = (const void *)m;

    if (sim_is_on() && (l->writer || l->waiters))
        sim_fail("a mutex is destroyed that is in use");
    return 0;
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
    acquire((struct lock *)(void *)m, try_write, "waits for a mutex");
    return 0;
}

int pthread_mutex_trylock(pthread_mutex_t *m)
{
    if (sim_is_on())
        sim_point();
    else
        return acquire((struct lock *)(void *)m, try_write, ""), 0;
    return try_write((struct lock *)(void *)m) ? 0 : EBUSY;
}

int pthread_mutex_unlock(pthread_mutex_t *m)
{
    release((struct lock *)(void *)m);
    if (sim_is_on())
        sim_point();
    return 0;
}

int pthread_rwlock_init(pthread_rwlock_t *m, const pthread_rwlockattr_t *a)
{
    (void)a;
    memset(m, 0, sizeof(*m));
    return 0;
}

int pthread_rwlock_destroy(pthread_rwlock_t *m)
{
    (void)m;
    return 0;
}

int pthread_rwlock_rdlock(pthread_rwlock_t *m)
{
    acquire((struct lock *)(void *)m, try_read, "waits to read");
    return 0;
}

int pthread_rwlock_wrlock(pthread_rwlock_t *m)
{
    acquire((struct lock *)(void *)m, try_write, "waits to write");
    return 0;
}

int pthread_rwlock_unlock(pthread_rwlock_t *m)
{
    release((struct lock *)(void *)m);
    if (sim_is_on())
        sim_point();
    return 0;
}

/* ------------------------------------------------------------------------------ condition variables */

int pthread_condattr_setclock(pthread_condattr_t *a, clockid_t clock)
{
    memset(a, 0, sizeof(*a));
    *(unsigned char *)a = clock == CLOCK_MONOTONIC;
    return 0;
}

int pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *a)
{
    memset(c, 0, sizeof(*c));
    ((struct cond *)(void *)c)->clock_is_monotonic = a && *(const unsigned char *)a;
    return 0;
}

int pthread_cond_destroy(pthread_cond_t *c)
{
    (void)c;
    return 0;
}

static int wait_until(pthread_cond_t *c, pthread_mutex_t *m, int64_t until)
{
    bool in_time;

    if (sim_one_in(200)) { /* spurious */
        pthread_mutex_unlock(m);
        pthread_mutex_lock(m);
        return 0;
    }
    open_up((struct lock *)(void *)m);
    sim_lock_dropped();
    in_time = sim_block(c, "waits for a condition", until);
    acquire((struct lock *)(void *)m, try_write, "waits for a condition's mutex");
    return in_time ? 0 : ETIMEDOUT;
}

int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    return wait_until(c, m, SIM_NEVER);
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t)
{
    int64_t until;

    if (__builtin_mul_overflow((int64_t)t->tv_sec, SIM_S, &until) ||
        __builtin_add_overflow(until, (int64_t)t->tv_nsec, &until))
        return wait_until(c, m, SIM_NEVER);
    if (!((struct cond *)(void *)c)->clock_is_monotonic)
        until -= sim_real_offset();
    return wait_until(c, m, until);
}

int pthread_cond_signal(pthread_cond_t *c)
{
    if (sim_is_on()) {
        sim_wake(c, false);
        sim_point();
    }
    return 0;
}

int pthread_cond_broadcast(pthread_cond_t *c)
{
    if (sim_is_on()) {
        sim_wake(c, true);
        sim_point();
    }
    return 0;
}

/* ----------------------------------------------------------------------------------- once, futexes */

int pthread_once(pthread_once_t *o, void (*fn)(void))
{
    enum { NEW, RUNNING, RAN };

    while (*o == RUNNING)
        sim_block(o, "waits for what is done once", SIM_NEVER);
    if (*o == RAN)
        return 0;
    *o = RUNNING;
    fn();
    *o = RAN;
    if (sim_is_on())
        sim_wake(o, true);
    return 0;
}

static int64_t of(const struct timespec *t)
{
    return t->tv_sec * SIM_S + t->tv_nsec;
}

static long wait_on(const uint32_t *word, uint32_t value, int64_t until)
{
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) {
        errno = EAGAIN;
        return -1;
    }
    if (sim_block(sim_shared_key(word), "waits on a futex", until))
        return 0;
    errno = ETIMEDOUT;
    return -1;
}

long syscall(long number, ...)
{
    static long (*real)(long, ...);
    const struct timespec *t;
    long w[6];
    va_list args;

    va_start(args, number);
    for (int i = 0; i < 6; i++)
        w[i] = va_arg(args, long);
    va_end(args);
    if (!real)
        real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_pidfd_open && sim_is_on())
        return sim_pidfd_of((pid_t)w[0]);
    if (number == SYS_pwritev2 && sim_is_on())
        return sim_disk_pwritev2(w);
    if (number != SYS_futex || !sim_is_on())
        return real(number, w[0], w[1], w[2], w[3], w[4], w[5]);
    sim_point();
    t = (const struct timespec *)w[3];
    if ((w[1] & FUTEX_CMD_MASK) == FUTEX_WAIT)
        return wait_on((const uint32_t *)w[0], (uint32_t)w[2], t ? sim_now() + of(t) : SIM_NEVER);
    if ((w[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET)
        return wait_on((const uint32_t *)w[0], (uint32_t)w[2], t ? of(t) : SIM_NEVER);
    return (long)sim_wake(sim_shared_key((const void *)w[0]), true);
}
