/* SPDX-License-Identifier: Apache-2.0 */
/* source.h - the engines of this host, and what they tell. */
#ifndef TE_TOP_SOURCE_H
#define TE_TOP_SOURCE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define ENGINES_MAX         64
#define ENGINES_OF_USER_MAX 16 /* of each user but its own, for root */
#define SOCKET_NAME         64

struct engine {
    char socket[SOCKET_NAME]; /* its abstract name, without the zero */
    int pid;      /* of the process that listens; as the name tells it, if that is not visible */
    bool visible; /* that process is in this PID namespace */
    uid_t uid;
};

struct found {
    struct engine v[ENGINES_MAX];
    size_t n;
    int stranger; /* a process of another user, whose engine may not be asked; 0: there is none */
    int silent;   /* by its name, a process that takes no connection; 0: there is none */
};

/*
 * Engines of this network namespace that listen for te_top and may be asked; of process `pid` alone unless it
 * is 0.
 */
void source_find(int pid, struct found *found);
/*
 * The metrics of an engine as text, malloc'ed. NULL: it has gone, or does not answer in time, or *ended is not
 * 0 any more.
 */
char *source_ask(const struct engine *e, const volatile sig_atomic_t *ended);
/* Name of the program of a process, as samples_blank() leaves it; "?" if it cannot be read. */
void source_program(const struct engine *e, char *buf, size_t n);

#endif
