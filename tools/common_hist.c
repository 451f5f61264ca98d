/* SPDX-License-Identifier: Apache-2.0 */
#include "common_hist.h"

#include <stddef.h>
#include <string.h>

#define SUB (1u << HIST_SUB_BITS)

static size_t bucket_of(uint64_t ns)
{
    if (ns < SUB)
        return (size_t)ns;
    unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - HIST_SUB_BITS;
    size_t at = ((size_t)(shift + 1) << HIST_SUB_BITS) + (size_t)((ns >> shift) & (SUB - 1));
    return at < HIST_BUCKETS ? at : HIST_BUCKETS - 1;
}

/* The middle of a bucket. */
static uint64_t value_of(size_t bucket)
{
    if (bucket < SUB)
        return bucket;
    unsigned shift = (unsigned)(bucket >> HIST_SUB_BITS) - 1;
    uint64_t low = (SUB + (bucket & (SUB - 1))) << shift;
    return low + ((1ull << shift) >> 1);
}

void hist_reset(struct hist *h)
{
    memset(h, 0, sizeof(*h));
}

void hist_add(struct hist *h, uint64_t ns, uint64_t times)
{
    if (h->count == 0 || ns < h->min_ns)
        h->min_ns = ns;
    if (ns > h->max_ns)
        h->max_ns = ns;
    h->count += times;
    h->sum_ns += ns * times;
    h->buckets[bucket_of(ns)] += times;
}

void hist_merge(struct hist *into, const struct hist *from)
{
    if (from->count == 0)
        return;
    if (into->count == 0 || from->min_ns < into->min_ns)
        into->min_ns = from->min_ns;
    if (from->max_ns > into->max_ns)
        into->max_ns = from->max_ns;
    into->count += from->count;
    into->sum_ns += from->sum_ns;
    for (size_t i = 0; i < HIST_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
}

double hist_quantile_us(const struct hist *h, double share)
{
    double want = share * (double)h->count;
    uint64_t seen = 0;
    for (size_t i = 0; i < HIST_BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen == 0 || (double)seen < want)
            continue;
        uint64_t ns = value_of(i);
        ns = ns < h->min_ns ? h->min_ns : ns;
        ns = ns > h->max_ns ? h->max_ns : ns;
        return (double)ns / 1e3;
    }
    return 0;
}

double hist_mean_us(const struct hist *h)
{
    return h->count ? (double)h->sum_ns / (double)h->count / 1e3 : 0;
}
