/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.c - clocks, sleeping, random bytes, and what a host of the world looks like.
 */
#include "sim.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define CPUS    2u
#define READ_NS 40 /* what reading a clock costs */

int64_t sim_real_offset(void)
{
    return INT64_C(1800000000) * SIM_S;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    int64_t ns;

    if (!sim_is_on() || clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID) {
        if (!real)
            real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
        return real(clock, t);
    }
    sim_charge(READ_NS);
    if (sim_one_in(16))
        sim_point();
    ns = sim_now() + (clock == CLOCK_REALTIME ? sim_real_offset() : 0);
    *t = (struct timespec){ns / SIM_S, ns % SIM_S};
    return 0;
}

int gettimeofday(struct timeval *t, void *zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *t = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

int nanosleep(const struct timespec *t, struct timespec *left)
{
    static int (*real)(const struct timespec *, struct timespec *);

    (void)left;
    if (!sim_is_on()) {
        if (!real)
            real =
                (int (*)(const struct timespec *, struct timespec *))dlsym(RTLD_NEXT, "nanosleep");
        return real(t, left);
    }
    sim_block(NULL, "sleeps", sim_now() + t->tv_sec * SIM_S + t->tv_nsec);
    return 0;
}

int usleep(useconds_t us)
{
    return nanosleep(&(struct timespec){us / 1000000, (long)(us % 1000000) * 1000}, NULL);
}

int sched_yield(void)
{
    if (sim_is_on())
        sim_block(NULL, "yields", sim_now() + SIM_US);
    return 0;
}

ssize_t getrandom(void *buf, size_t n, unsigned flags)
{
    unsigned char *p = buf;

    (void)flags;
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)sim_entropy();
    return (ssize_t)n;
}

int gethostname(char *buf, size_t n)
{
    snprintf(buf, n, "sim%d", sim_host());
    return 0;
}

int pthread_getaffinity_np(pthread_t thread, size_t n, cpu_set_t *set)
{
    (void)thread;
    memset(set, 0, n);
    for (unsigned i = 0; i < CPUS; i++)
        CPU_SET(i, set);
    return 0;
}

int pthread_setaffinity_np(pthread_t thread, size_t n, const cpu_set_t *set)
{
    (void)thread, (void)n, (void)set;
    return 0;
}

long sysconf(int name)
{
    static long (*real)(int);

    if (name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF)
        return (long)CPUS;
    if (!real)
        real = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    return real(name);
}
