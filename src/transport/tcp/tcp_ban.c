/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_ban.c - addresses whose sessions were of no use too often are not let in for a while (base/bans.h).
 *
 * Sessions end on any worker; the filter of the listener is changed on worker 0 alone, whose loop has
 * the listener and the timer that ends a ban.
 */
#include "transport/tcp/tcp_session.h"

#include "base/log.h"

static void enforce(struct tcp *t);

static void on_over(struct tei_timer *timer)
{
    enforce(tei_container_of(timer, struct tcp, ban_timer));
}

static void enforce(struct tcp *t)
{
    int64_t next_ns;

    if (!t->listener.loop)
        return;
    next_ns = tei_bans_enforce(&t->bans, t->listen_fd, tei_now_ns());
    if (next_ns != TEI_NEVER &&
        tei_timer_start(&t->workers[0].loop, &t->ban_timer, next_ns, on_over))
        (void)tei_bans_enforce(&t->bans, t->listen_fd, TEI_NEVER); /* nothing would end it */
}

static void on_ban(struct tei_call *c)
{
    struct tcp *t = tei_container_of(c, struct tcp, ban_call);

    atomic_store(&t->ban_called, false); /* before: what is banned from now on calls again */
    enforce(t);
}

static void tell(const struct tcp_session *s)
{
    struct tcp_worker *w = s->worker;
    char text[TEI_HOSTPORT_MAX];

    tei_tcp_worker_note(
        w, TE_LOG_WARN,
        "tcp: %s has had too many connections without a request; the kernel is asked to ignore "
        "what it opens for a while",
        tei_addr_format(&s->from, text, sizeof text));
    if (!atomic_exchange(&w->t->ban_called,
                         true)) /* the timer may have enforced what it is to tell */
        tei_loop_call(&w->t->workers[0].loop, &w->t->ban_call, on_ban);
}

void tei_tcp_ban_enter(const struct tcp_session *s)
{
    if (tei_bans_enter(&s->worker->t->bans, s->source->base.key, s->since_ns))
        tell(s);
}

void tei_tcp_ban_leave(const struct tcp_session *s)
{
    if (tei_bans_leave(&s->worker->t->bans, s->source->base.key, s->useful, tei_now_ns()))
        tell(s);
}

void tei_tcp_ban_stop(struct tcp *t)
{
    tei_timer_stop(&t->workers[0].loop, &t->ban_timer);
}
