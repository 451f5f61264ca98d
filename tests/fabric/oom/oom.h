/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom.h - liboom.so: the memory functions of the C library, one of which fails when it is told to. A
 * program links it, or is started with it in LD_PRELOAD and asks dlsym() for these functions. What
 * libraries take while it is armed counts, too, in every thread.
 *
 * With OOM_TRACE in the environment it also keeps where each block was taken, for oom_tell_leaks().
 */
#ifndef TEST_OOM_H
#define TEST_OOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OOM_FRAMES 24

/* From now on the `n`-th allocation fails, counted from 1, or, with `onwards`, all from it on. 0: none. */
void oom_arm(uint64_t n, bool onwards);
void oom_disarm(void);

/* Since it was armed: the allocations, and those that failed. */
uint64_t oom_seen(void);
uint64_t oom_failed(void);
/*
 * What a library whose file name begins with `name` asks for, by itself or through others, never fails,
 * and does not count.
 */
void oom_spare(const char *name);
/* The same of one function that a library exports. */
void oom_spare_function(const char *name);

/* Whether one of them was the dynamic linker's, for a new thread: glibc says EAGAIN then. */
bool oom_linker_failed(void);

/* Where the last one failed that did, as return addresses; their number. */
int oom_where(void *frames[OOM_FRAMES]);

/*
 * Blocks that were taken after oom_mark() and not given back since: their number, and their places on
 * descriptor `fd`. What the dynamic linker keeps for threads, whose stacks are used again, does not count.
 */
void oom_mark(void);
size_t oom_leaks(void);
void oom_tell_leaks(int fd);

#endif
