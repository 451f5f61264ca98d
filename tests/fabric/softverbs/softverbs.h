/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softverbs.h - what softverbs offers beyond libibverbs, for tests linked with it. README.md tells
 * the format of the fabric's description and the commands.
 */
#ifndef SOFTVERBS_H
#define SOFTVERBS_H

#include <infiniband/verbs.h>

#include <stddef.h>

/*
 * Runs one command line of softverbs_ctl on the fabric described by `path`, or by the environment
 * variable SOFTVERBS if that is NULL. Returns 0, or a positive errno with a message in `reply`, a
 * string in any case; `reply` may be NULL. From any thread; every process of the fabric is told
 * before it returns, and acts within a moment.
 */
int softverbs_control(const char *path, const char *command, char *reply, size_t size);

#endif
