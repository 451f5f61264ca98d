/* SPDX-License-Identifier: Apache-2.0 */
/* os.h - clock, threads, dynamic libraries, limits. */
#ifndef TEI_OS_H
#define TEI_OS_H

#include "base/base.h"

#include <pthread.h>
#include <signal.h>
#include <sys/types.h>

#define TEI_NS_PER_MS 1000000LL
#define TEI_NS_PER_S  1000000000LL
#define TEI_NEVER     INT64_MAX /* a deadline that never comes */

/* CLOCK_MONOTONIC. */
int64_t tei_now_ns(void);

/* now + ms; TEI_NEVER for a negative ms or on overflow. */
int64_t tei_deadline_ns(int64_t ms);

/* Milliseconds left for poll(2) and friends, rounded up, 0 when past, -1 for TEI_NEVER. */
int tei_left_ms(int64_t deadline_ns);

/*
 * Sleeps between two looks at what has no other way to tell that it is over: an eighth of the time that it has
 * taken since `begin_ns`, some milliseconds at most, and not beyond the deadline.
 */
void tei_nap(int64_t begin_ns, int64_t deadline_ns);

/*
 * Starts a joinable thread named `name` (cut to 15 characters), with all signals blocked but those
 * that a fault of the thread itself raises (SIGSEGV and its like), so that crash handlers still
 * work. 0 or TE_ERR_SYSTEM.
 */
int tei_thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg);

/*
 * Around calls into libraries that write to sockets without MSG_NOSIGNAL: blocks SIGPIPE in this
 * thread, and takes away one that was raised meanwhile.
 */
struct tei_sigpipe {
    sigset_t old;
    bool was_pending;
};
void tei_sigpipe_block(struct tei_sigpipe *s);
void tei_sigpipe_restore(const struct tei_sigpipe *s);

/* pthread_cond_t on CLOCK_MONOTONIC. */
void tei_cond_init(pthread_cond_t *c);
/* False once `deadline_ns` has passed. */
bool tei_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, int64_t deadline_ns);

/* Raises the soft limit of open files to the hard one. */
void tei_raise_nofile(void);

/* Fills `buf` with random bytes; falls back to clock and pid where the kernel has none. */
void tei_random(void *buf, size_t n);
uint64_t tei_random_u64(void);

/* The first word of a file, "" if it cannot be read. */
void tei_file_word(const char *path, char *out, size_t n);
/* Of a process, as /proc tells it. */
struct tei_process {
    char state; /* 'R', 'S', 'Z' ... */
    long threads;
    unsigned long long began; /* clock ticks after the system's start */
};
/* False: it could not be read, which says nothing about the process. */
bool tei_process_look(pid_t pid, struct tei_process *out);
/* What madvise(MADV_HUGEPAGE) makes of memory, in bytes; SIZE_MAX where the kernel has none. */
size_t tei_huge_page(void);
/* Its inode number, by which namespaces are told apart; 0 if it is not known. */
uint64_t tei_file_inode(const char *path);

/* "YYYY-MM-DD HH:MM:SS.uuuuuu", local time. */
void tei_timestamp(char *buf, size_t n);
/* Milliseconds since 1970 in UTC, by the clock that the administrator sets. */
int64_t tei_wall_ms(void);

/*
 * The number of forks between process start and this process as seen by the library: an object made
 * under another number belongs to the parent. Costs one load.
 */
unsigned tei_fork_epoch(void);

/*
 * Makes a descriptor (or -1) one of the library's own, and returns it: a forked child closes it at
 * once, or a socket would go on listening, and a connection stay open, after the engine has died.
 * Such a descriptor must be closed with tei_fd_close().
 */
int tei_fd_own(int fd);
void tei_fd_disown(int fd); /* before somebody else closes it */
void tei_fd_close(int fd);

#endif
