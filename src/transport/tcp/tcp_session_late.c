/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_session_late.c - when a session is late, and what becomes of it then.
 *
 * Only its client can be late. A thread that had no processor, a process that was stopped, and a source
 * whose share of the time is used up find more passed time than the client had, and timers run before
 * sockets are looked at: so a session is closed only where nothing is left for us to do on its socket.
 */
#include "transport/tcp/tcp_auth.h"

#include <poll.h>

static struct tcp_session *session_of(struct tei_link *n)
{
    return tei_container_of(n, struct tcp_session, link);
}

void tei_tcp_session_pause(struct tcp_session *s)
{
    s->paused_ns = tei_now_ns();
    tei_watch_set(&s->watch, 0);
}

void tei_tcp_session_resume(struct tcp_session *s, uint32_t events)
{
    int64_t paused = tei_now_ns() - s->paused_ns;

    s->since_ns += paused;
    if (s->prove_by_ns != TEI_NEVER)
        s->prove_by_ns += paused;
    tei_watch_set(&s->watch, events);
}

static int64_t stalled_at(const struct tcp_session *s)
{
    int64_t limit = s->worker->t->no_progress_ns;

    if (tei_tcp_session_is_paused(s))
        return TEI_NEVER;
    if (s->state == SESSION_NATIVE)
        return tei_tcp_channel_late_at(s);
    if (s->state == SESSION_HEAD)
        return s->head_got ? s->since_ns + TCP_HEAD_NS : TEI_NEVER;
    if (s->state == SESSION_DRAIN)
        return s->since_ns + TCP_DRAIN_NS;
    return limit == TEI_NEVER ? TEI_NEVER : s->since_ns + limit;
}

int64_t tei_tcp_session_late_at(const struct tcp_session *s)
{
    int64_t at = stalled_at(s);

    return s->prove_by_ns < at ? s->prove_by_ns : at;
}

/* One that is refused is not waited for, whatever it sends. */
static bool waits_for_us(const struct tcp_session *s)
{
    struct pollfd p = {.fd = s->watch.fd, .events = (short)s->watch.events};

    return s->state != SESSION_DRAIN && (tei_tcp_session_is_paused(s) || poll(&p, 1, 0) > 0);
}

/*
 * The earliest moment at which one on the list could be late; closes those that are. It lies in the
 * past where one waits for us: the watchdog's next round, TCP_TICK_NS later, looks again.
 */
static int64_t tick(struct tei_list *list, int64_t now)
{
    struct tei_link *n, *tmp;
    int64_t next = TEI_NEVER;

    TEI_LIST_EACH(list, n, tmp) {
        struct tcp_session *s = session_of(n);
        int64_t at = tei_tcp_session_late_at(s);

        if (at > now || waits_for_us(s)) {
            next = at < next ? at : next;
        } else {
            tei_tcp_auth_late(s);
            tei_tcp_session_close(s);
        }
    }
    return next;
}

int64_t tei_tcp_sessions_tick(struct tcp_worker *w, int64_t now)
{
    int64_t a = tick(&w->idle, now), b = tick(&w->serving, now);

    return a < b ? a : b;
}
