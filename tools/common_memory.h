/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers of a tool, and how it sees into those that the host may not touch. */
#ifndef TOOLS_COMMON_MEMORY_H
#define TOOLS_COMMON_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "common_setup.h"

/*
 * Makes the buffers: one for each NUMA node, or each GPU that --gpu_id names; registers and, which takes
 * long, fills them. Tell what went wrong and return false on failure; memory_close() is due in any case.
 */
bool memory_take(struct setup *s);
bool memory_offer(struct setup *s, unsigned access);
void memory_close(struct setup *s);

/*
 * The host's view of a part of a buffer: the part itself, or where that is memory of a GPU, a copy
 * in host memory. mirror_push() and mirror_pull() keep a copy in step, by transfers within this
 * engine. Zeroed, it is one that mirror_close() accepts.
 */
struct mirror {
    const struct setup *setup;
    uint8_t *part; /* in the buffer */
    uint8_t *seen; /* the same bytes, for the host */
    uint64_t length;
    char error[512]; /* why the last call on it failed */
};

bool mirror_open(struct mirror *m, const struct setup *s, void *part, uint64_t length);
void mirror_close(struct mirror *m);

/* What the host has written to [at, at + n) goes to the buffer. */
bool mirror_push(struct mirror *m, uint64_t at, uint64_t n);

/* What the buffer has in [at, at + n) is what the host sees. */
bool mirror_pull(struct mirror *m, uint64_t at, uint64_t n);

#endif
