/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc.h - what the test's own process has: ports that no other test is given, descriptors, threads.
 */
#ifndef TEST_PROC_H
#define TEST_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A port of 127.0.0.1 that nobody listens on, 20000 to 29999: below those that the kernel gives to
 * clients. Until this process ends no other test is given it, nor this one again. 0 if there is
 * none. Main thread only.
 */
uint16_t test_free_port(void);

/* A port of 127.0.0.1 at which nobody answers, nor can, until *fd is closed. */
uint16_t test_dead_port(int *fd);

/* Waits until a TCP connection under way is open; whether the first packet that was to open it got lost. */
bool test_was_ignored(int fd);

/* It has descriptors, memory and system calls of its own. */
bool test_under_valgrind(void);

/* Open descriptors, but for those that keep the ports above. */
size_t test_count_fds(void);
size_t test_count_threads(void);

/* Threads, once none of them is going: one that was joined is seen for a moment more. */
size_t test_settled_threads(void);
/* Waits until there are no more than so many; false if there always are. */
bool test_nothing_left(size_t fds, size_t threads);

#endif
