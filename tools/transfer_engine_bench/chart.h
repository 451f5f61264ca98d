/* SPDX-License-Identifier: Apache-2.0 */
/* A chart in SVG: one figure of a sweep against block size, one curve a thread count. */
#ifndef TOOLS_TRANSFER_ENGINE_BENCH_CHART_H
#define TOOLS_TRANSFER_ENGINE_BENCH_CHART_H

#include <stdio.h>

#include "transfer_engine_bench/sweep.h"

#define CHART_COLOURS 8 /* classes c0, c1, ... of the page's style */

struct chart {
    const struct sweep *sweep;
    size_t batch;         /* place in the list of batches */
    enum limit_kind kind; /* the figure, and the limits that go with it */
};

/* "Throughput", "Batch latency, p50", ... */
const char *chart_title(enum limit_kind kind);

/* "GB/s", "us" with the Greek letter; text for HTML. */
const char *chart_unit(enum limit_kind kind);

/* A limit so far above all that was measured that drawing it would flatten the curves. */
bool chart_off_scale(const struct sweep *s, const struct limit *limit);

void chart_print(FILE *out, const struct chart *c);

#endif
