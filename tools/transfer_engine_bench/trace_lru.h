/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which blocks of KV cache lie where in the target's buffers, and which one makes room: the books of
 * a cache of a fixed number of slots, least recently used first out. Moves no bytes.
 */
#ifndef TOOLS_TRANSFER_ENGINE_BENCH_TRACE_LRU_H
#define TOOLS_TRANSFER_ENGINE_BENCH_TRACE_LRU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "te.h"

/* A slot, and the block in it if it has one. */
struct trace_block {
    uint64_t id;
    uint64_t addr;   /* in the target */
    uint64_t length; /* bytes that were written to it, or are being written */
    unsigned pins;   /* by requests in flight: it stays where it is */
    unsigned writes; /* to it, unfinished */
    struct trace_block *prev, *next;
    struct trace_block *chain; /* those whose ids have the same place in by_id */
};

/* All zero before trace_lru_init(). */
struct trace_lru {
    struct trace_block *slots;
    size_t count, used;
    struct trace_block **by_id; /* `count` places: all memory is taken before the first request */
    struct trace_block *oldest; /* list of those with a block, in the order of their last use */
    uint64_t evicted;
};

/* How many slots of `slot_bytes` the buffers hold; no slot lies in two of them. */
size_t trace_lru_room(const te_buffer *buffers, size_t n, uint64_t slot_bytes);

/* The first `count` slots of the buffers, which have room for them. False when out of memory. */
bool trace_lru_init(struct trace_lru *c, const te_buffer *buffers, size_t n, uint64_t slot_bytes,
                    size_t count);
void trace_lru_fini(struct trace_lru *c);

/* The block of that id, used now and pinned; NULL if it is not there. */
struct trace_block *trace_lru_get(struct trace_lru *c, uint64_t id);

/*
 * A slot for a block that is not there, pinned: a free one, or that of the least recently used block
 * that is not pinned. NULL when all are pinned.
 */
struct trace_block *trace_lru_add(struct trace_lru *c, uint64_t id);

/* Takes one pin back. */
void trace_lru_put(struct trace_block *b);

#endif
