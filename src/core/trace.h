/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - the trace contexts of tasks. A batch has room for them from the first te_submit() on that gives one. */
#ifndef TEI_TRACE_H
#define TEI_TRACE_H

#include "core/batch.h"

/*
 * The next `n` tasks of the batch have this one, NULL: none. The submit lock is held, and they were not cut yet.
 * TE_ERR_MEMORY.
 */
int tei_trace_set(struct batch *b, const struct tei_traceparent *trace, size_t n);
void tei_trace_free(struct batch *b);

/* That of a task, for as long as the batch lives; NULL: it has none. */
static inline const struct tei_traceparent *tei_trace_of(const struct task *t)
{
    /* Acquire: the threads that post a task again have not allocated this. */
    const struct tei_traceparent *traces =
        atomic_load_explicit(&t->batch->traces, memory_order_acquire);

    if (!traces || !tei_traceparent_is_good(&traces[t - t->batch->tasks]))
        return NULL;
    return &traces[t - t->batch->tasks];
}

#endif
