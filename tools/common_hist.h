/* SPDX-License-Identifier: Apache-2.0 */
/* A histogram of times: bounded relative error (1/64), fixed size, mergeable. Not thread-safe. */
#ifndef TOOLS_COMMON_HIST_H
#define TOOLS_COMMON_HIST_H

#include <stdint.h>

/*
 * Values below 64 have a bucket each; above, every power of two is cut into 64 buckets. 2^42 ns is
 * more than an hour; what is longer falls into the last bucket.
 */
#define HIST_SUB_BITS 6
#define HIST_TOP_BITS 42
#define HIST_BUCKETS  ((HIST_TOP_BITS - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

struct hist {
    uint64_t count, sum_ns, min_ns, max_ns;
    uint64_t buckets[HIST_BUCKETS];
};

void hist_reset(struct hist *h);
void hist_add(struct hist *h, uint64_t ns, uint64_t times);
void hist_merge(struct hist *into, const struct hist *from);

/* The smallest time that a `share` (0..1) of the samples do not exceed; 0 without samples. */
double hist_quantile_us(const struct hist *h, double share);
double hist_mean_us(const struct hist *h);

#endif
