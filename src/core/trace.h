/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - the trace contexts of tasks. */
#ifndef TEI_TRACE_H
#define TEI_TRACE_H

#include "core/beside.h"

/* That of a task, for as long as the batch lives; NULL: it has none. */
static inline const struct tei_traceparent *tei_trace_of(const struct task *t)
{
    const struct tei_traceparent *trace = tei_beside_of(t, BESIDE_TRACE, sizeof(*trace));

    return trace && tei_traceparent_is_good(trace) ? trace : NULL;
}

#endif
