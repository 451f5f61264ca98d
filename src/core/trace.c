/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - the trace contexts of tasks, which lie beside them: a task has no room, and few have one. */
#include "core/trace.h"
#include "base/err.h"

#include <stdlib.h>

int tei_trace_set(struct batch *b, const struct tei_traceparent *trace, size_t n)
{
    static const struct tei_traceparent none;
    struct tei_traceparent *traces = atomic_load_explicit(&b->traces, memory_order_relaxed);
    size_t first = atomic_load_explicit(&b->claimed, memory_order_relaxed);

    if (!traces && !trace)
        return 0;
    if (!traces) {
        traces = calloc(b->capacity, sizeof(*traces));
        if (!traces)
            return TEI_FAIL(TE_ERR_MEMORY, "no memory for trace contexts of %zu requests",
                            b->capacity);
        /* Release: see tei_trace_of(). */
        atomic_store_explicit(&b->traces, traces, memory_order_release);
    }
    for (size_t i = 0; i < n; i++)
        traces[first + i] = trace ? *trace : none;
    return 0;
}

void tei_trace_free(struct batch *b)
{
    free(atomic_load_explicit(&b->traces, memory_order_relaxed));
}
