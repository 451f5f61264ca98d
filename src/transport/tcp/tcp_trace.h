/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_trace.h - the trace context of a frame: an option of the native framing. */
#ifndef TEI_TCP_TRACE_H
#define TEI_TCP_TRACE_H

#include "transport/tcp/tcp_session.h"
#include "base/traceparent.h"
#include "transport/tcp/tcp_wire.h"

/* Writes the option; returns its length. */
size_t tei_tcp_trace_put(uint8_t *to, const struct tei_traceparent *t);
/* The first one of a list of options; false: there is none, or it makes no sense. */
bool tei_tcp_trace_take(const uint8_t *list, size_t n, struct tei_traceparent *out);

/* A frame that a client's requests came in, and the log is told of. */
struct tcp_served {
    const struct tei_traceparent *trace;
    int opcode;
    uint64_t bytes;
    int64_t begun_ns;
};
/* It has ended well. */
void tei_tcp_trace_served(const struct tcp_session *s, const struct tcp_served *served);

#endif
