/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_trace.c - trace contexts on the wire, and the lines of those who serve frames that have one. */
#include "transport/tcp/tcp_trace.h"
#include "base/log.h"

#include <inttypes.h>

size_t tei_tcp_trace_put(uint8_t *to, const struct tei_traceparent *t)
{
    return tei_tcp_option_put(to, TCP_OPTION_TRACE, t, sizeof *t);
}

bool tei_tcp_trace_take(const uint8_t *list, size_t n, struct tei_traceparent *out)
{
    size_t len = 0;
    const uint8_t *value = tei_tcp_option_find(list, n, TCP_OPTION_TRACE, &len);

    return value && tei_traceparent_take(value, len, out);
}

void tei_tcp_trace_served(const struct tcp_session *s, const struct tcp_served *served)
{
    int64_t took_ns = tei_now_ns() - served->begun_ns, slow_ms = s->worker->t->conf->slow_ms;
    bool slow = slow_ms > 0 && took_ns > slow_ms * TEI_NS_PER_MS;
    char trace[TEI_TRACEPARENT_TEXT], who[TEI_HOSTPORT_MAX];
    const char *what = served->opcode == TE_READ ? "read" : "write";
    double ms = (double)took_ns / TEI_NS_PER_MS;

    if (!slow && !tei_log_wants(TE_LOG_TRACE))
        return;
    tei_traceparent_write(served->trace, trace);
    tei_addr_format(&s->from, who, sizeof who);
    if (slow)
        TEI_WARN("served slowly: %s of %" PRIu64 " bytes for %s took %.3f ms, more than "
                 "TE_SLOW_MS=%" PRId64 "; trace %s",
                 what, served->bytes, who, ms, slow_ms, trace);
    else
        TEI_TRACE("served: %s of %" PRIu64 " bytes for %s took %.3f ms; trace %s", what,
                  served->bytes, who, ms, trace);
}
