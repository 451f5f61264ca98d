/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.h - libcalls.so: the calls of the system, one of which fails when it is told to, with an error that the kernel has
 * for it. A program links it. What libraries call by these names counts, too, in every thread; what the C library itself
 * calls does not, nor what is called by other names: open64(), __open_2() and their like.
 */
#ifndef TEST_CALLS_H
#define TEST_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CALLS_FRAMES 24

/* Which call fails, and how: "socket:EMFILE". False: there is none of this name. */
bool calls_choose(const char *fault);
/* The names, one after the other; NULL after the last. */
const char *calls_name(size_t i);
/* Whether such a thing may go on for long: a signal that interrupts every call does not. */
bool calls_may_last(const char *fault);

/* From now on the `n`-th of these calls fails, counted from 1, or, with `onwards`, all from it on. 0: none. */
void calls_arm(uint64_t n, bool onwards);
void calls_disarm(void);

/* Since it was armed: the calls, and those that failed. */
uint64_t calls_seen(void);
uint64_t calls_failed(void);

/* Where the last one failed that did, as return addresses; their number. */
int calls_where(void *frames[CALLS_FRAMES]);
/* Whether all that failed were called by the program itself, none by a library. */
bool calls_by_program(void);
/* The text of its error. */
const char *calls_text(void);

/* Bytes that mmap() has given and munmap() has not taken back. */
uint64_t calls_mapped(void);

#endif
