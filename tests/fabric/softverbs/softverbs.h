/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softverbs.h - what softverbs offers beyond libibverbs, for tests linked with it. README.md tells
 * the format of the fabric's description and the commands.
 */
#ifndef SOFTVERBS_H
#define SOFTVERBS_H

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Runs one command line of softverbs_ctl on the fabric described by `path`, or by the environment
 * variable SOFTVERBS if that is NULL. Returns 0, or a positive errno with a message in `reply`, a
 * string in any case; `reply` may be NULL. From any thread; every process of the fabric is told
 * before it returns, and acts within a moment.
 */
int softverbs_control(const char *path, const char *command, char *reply, size_t size);

/*
 * A program that plays several processes in one, each of which getpid() tells from the others, defines this. Each
 * has a fabric of its own then, all with the state mapped once, and the kernel is not asked what these are asked.
 */
struct softverbs_world {
    bool (*is_alive)(uint32_t pid);
    /* Whether what NICs of the one send comes to those of the other. */
    bool (*reaches)(uint32_t from, uint32_t to);
    /* From the memory of the one to that of the other: 0, or an errno (ESRCH: one is gone, or it comes no further). */
    int (*copy)(void *to, const void *from, size_t n, uint32_t from_pid, uint32_t to_pid);
};
extern const struct softverbs_world softverbs_world
    __attribute__((weak, visibility("default"))); /* not defined: none */

#endif
