/* SPDX-License-Identifier: Apache-2.0 */
/* source.h - the engines of this host, and what they tell. */
#ifndef TE_TOP_SOURCE_H
#define TE_TOP_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

#define ENGINES_MAX 64
#define SOCKET_NAME 64

struct engine {
    char socket[SOCKET_NAME]; /* its abstract name, without the zero */
    int pid;
};

/* Engines of this network namespace that listen for te_top; of process `pid` alone unless it is 0. */
size_t source_find(int pid, struct engine *out, size_t max);
/*
 * The metrics of an engine as text, malloc'ed. NULL: it has gone, does not answer, or is another user's, and
 * *why says so.
 */
char *source_ask(const struct engine *e, const char **why);
/* Name of the program of a process; "?" if it cannot be read. */
void source_program(int pid, char *buf, size_t n);

#endif
