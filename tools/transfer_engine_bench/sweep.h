/* SPDX-License-Identifier: Apache-2.0 */
/* Many loads, one for each combination of three lists, and the page that shows them. */
#ifndef TOOLS_TRANSFER_ENGINE_BENCH_SWEEP_H
#define TOOLS_TRANSFER_ENGINE_BENCH_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common_load.h"
#include "common_setup.h"
#include "transfer_engine_bench/limits.h"

#define SWEEP_LIST_MAX 64 /* values of one dimension */

struct sweep_list {
    uint64_t at[SWEEP_LIST_MAX];
    size_t count;
};

/* What one load measured; latencies are those of batches, but for request_p50_us. */
struct sweep_point {
    uint64_t block, batch, threads;
    bool measured; /* at least one batch, and all went well */
    double gb_s, iops, avg_us, p50_us, p99_us, p999_us, request_p50_us;
};

struct sweep {
    struct sweep_list block, batch, threads;
    struct limits limits;
    struct sweep_point *points; /* by threads, then batch, then block: as they are measured */
    size_t count;               /* measured so far */
};

size_t sweep_total(const struct sweep *s);

/* The point at these places of the three lists; NULL when it was not measured. */
const struct sweep_point *sweep_at(const struct sweep *s, size_t block, size_t batch,
                                   size_t threads);

/*
 * Reads the file of limits, if one is named, and sees that the page can be written; measures memcpy
 * if the file has no such figure. Tells what is wrong, by setup_fail(), and returns false.
 */
bool sweep_prepare(struct sweep *s, struct setup *setup, const char *html, const char *limits);

/* The requests of `block` bytes a batch of which `threads` fit `room` bytes: `batch`, or fewer. */
uint64_t sweep_fit(uint64_t room, uint64_t block, uint64_t batch, uint64_t threads);

/* Lowers the batch of a load to what the buffers of both sides hold, and says so. */
void sweep_fit_load(struct load *load);

/* Keeps what a load measured, and says how many are left. False when there is no memory. */
bool sweep_add(struct sweep *s, const struct load *load, const struct load_result *r);

/* Writes the page. Tells what is wrong, by setup_fail(), and returns false. */
bool sweep_draw(const struct sweep *s, struct setup *setup, const char *html,
                const struct load *load);

void sweep_free(struct sweep *s);

#endif
