/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child_engine.h - a second engine in a process of its own, whose memory the test can see: a peer
 * to stop, freeze and kill.
 */
#ifndef TEST_CHILD_ENGINE_H
#define TEST_CHILD_ENGINE_H

#include "te.h"

#include <sys/types.h>

struct child_engine {
    pid_t pid;
    char name[300];     /* of its segment */
    unsigned char *mem; /* shared with the child, at the same address in both; registered there */
    size_t size;
    int done_fd; /* closing it ends the child */
};

/* For all engines that this process will make: limits that a machine which stalls does not run into. */
void engines_are_patient(void);

/* Options both sides use: P2P on 127.0.0.1; patient. */
void loopback_options(te_options *o);

/*
 * Forks a child that registers `size` bytes with `access` and serves. No engine may live in this
 * process at that time.
 */
void child_start(struct child_engine *c, size_t size, unsigned access);
/* Starts one that peers may read and write, and makes an engine of this process that has opened it. */
te_engine *child_open(struct child_engine *c, size_t size, te_segment *segment);
/* Stops it as SIGSTOP does, and returns when it has stopped. SIGCONT lets it go on. */
void child_freeze(const struct child_engine *c);
/* Ends it, kill -9 if it is not gone by itself, and unmaps the memory. */
void child_stop(struct child_engine *c);

/* Bytes that depend on seed and position, so that shifted or torn data shows. */
void fill(void *buf, size_t n, uint64_t seed);
/* Index of the first byte that fill() would not have written, n if none. */
size_t first_difference(const void *buf, size_t n, uint64_t seed);

/* A fresh anonymous mapping. */
void *map_pages(size_t n);

#endif
