/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn.h - how the turn goes from one thread to another.
 */
#ifndef TURN_H
#define TURN_H

#include <stdint.h>

/* Of a thread. All zero: one that is yet to be started. */
struct sim_turn {
    void *stack;   /* where its registers are kept while it is not its turn */
    uint64_t base; /* of its thread-local memory */
    uint32_t go;   /* futex: it can be gone on with */
    uint32_t back; /* futex: its kernel thread goes on with it itself */
};

/* The calling thread is the first whose turn it is. */
void sim_turn_first(struct sim_turn *t);
/* In a new thread: waits for its first turn. */
void sim_turn_await(struct sim_turn *t);
/* From the thread whose turn it is; returns when it is its turn again. */
void sim_turn_pass(struct sim_turn *from, struct sim_turn *to);
/* The same for a thread that ends: returns beside `to`, and does only what ends it. */
void sim_turn_leave(struct sim_turn *from, struct sim_turn *to);

#endif
