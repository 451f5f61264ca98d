/* SPDX-License-Identifier: Apache-2.0 */
#include "trace_lru.h"

#include <assert.h>
#include <stdlib.h>

#include <utlist.h>

size_t trace_lru_room(const te_buffer *buffers, size_t n, uint64_t slot_bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += (size_t)(buffers[i].length / slot_bytes);
    return count;
}

bool trace_lru_init(struct trace_lru *c, const te_buffer *buffers, size_t n, uint64_t slot_bytes,
                    size_t count)
{
    size_t at = 0;

    *c = (struct trace_lru){.count = count};
    c->slots = calloc(count, sizeof(*c->slots));
    c->by_id = calloc(count, sizeof(*c->by_id));
    if (!c->slots || !c->by_id) {
        trace_lru_fini(c);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t addr = (uint64_t)(uintptr_t)buffers[i].addr;
        for (uint64_t k = 0; at < count && k < buffers[i].length / slot_bytes; k++)
            c->slots[at++].addr = addr + k * slot_bytes;
    }
    assert(at == count);
    return true;
}

void trace_lru_fini(struct trace_lru *c)
{
    free(c->by_id);
    free(c->slots);
    *c = (struct trace_lru){0};
}

/* Where the chain begins that has a block of that id. */
static struct trace_block **place_of(const struct trace_lru *c, uint64_t id)
{
    return &c->by_id[id * 0x9E3779B97F4A7C15u % c->count];
}

static struct trace_block *find(const struct trace_lru *c, uint64_t id)
{
    struct trace_block *b = *place_of(c, id);

    while (b && b->id != id)
        b = b->chain;
    return b;
}

struct trace_block *trace_lru_get(struct trace_lru *c, uint64_t id)
{
    struct trace_block *b = find(c, id);

    if (!b)
        return NULL;
    DL_DELETE(c->oldest, b);
    DL_APPEND(c->oldest, b);
    b->pins++;
    return b;
}

/* The least recently used block that is not pinned, taken off the books. */
static struct trace_block *evict(struct trace_lru *c)
{
    struct trace_block *b;

    DL_FOREACH(c->oldest, b) {
        if (b->pins == 0)
            break;
    }
    if (!b)
        return NULL;
    LL_DELETE2(*place_of(c, b->id), b, chain);
    DL_DELETE(c->oldest, b);
    c->evicted++;
    return b;
}

struct trace_block *trace_lru_add(struct trace_lru *c, uint64_t id)
{
    struct trace_block *b = c->used < c->count ? &c->slots[c->used++] : evict(c);

    if (!b)
        return NULL;
    b->id = id;
    b->length = 0;
    b->pins = 1;
    LL_PREPEND2(*place_of(c, id), b, chain);
    DL_APPEND(c->oldest, b);
    return b;
}

void trace_lru_put(struct trace_block *b)
{
    assert(b->pins > 0);
    b->pins--;
}
