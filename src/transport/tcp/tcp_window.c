/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_window.c - how much a lane keeps under way, and how long its frames are.
 *
 * The window is twice the bandwidth-delay product, from the best rate and the shortest time of late,
 * as BBR has it (Cardwell and others, 2016), and at least TCP_WINDOW_MIN. Where a peer has several
 * addresses it goes by the rate in the long run, is at least two frames, and a frame at most what the
 * link carries in FRAME_MS, so that a slow link does not keep what a fast one could carry.
 */
#include "transport/tcp/tcp_stream.h"

#define PACE_NS  (50 * TEI_NS_PER_MS) /* of being busy, over which a pace is taken */
#define FRAME_MS 5                    /* of a link's time that a frame should take */
#define RENEW_NS (10 * TEI_NS_PER_S)  /* rate and time are learnt anew */

static uint64_t least(const struct tcp_lane *l)
{
    return l->bundle->peer->n_more ? 2 * tei_tcp_window_frame(l) : TCP_WINDOW_MIN;
}

/* What the lane carries in the long run: a burst that a link lets through does not count as its rate. */
static void learn_pace(struct tcp_stream *s, uint64_t bytes, int64_t now)
{
    s->busy_ns += now - s->busy_since_ns;
    s->busy_since_ns = now;
    s->busy_bytes += bytes;
    if (s->busy_ns < PACE_NS)
        return;
    s->pace = (uint64_t)((double)s->busy_bytes * 1e9 / (double)s->busy_ns);
    s->busy_ns /= 2;
    s->busy_bytes /= 2;
}

void tei_tcp_window_learn(struct tcp_lane *l, const struct tcp_frame *f, int64_t now)
{
    struct tcp_stream *s = l->stream;
    int64_t took = now - f->sent_ns;
    uint64_t rate, product;

    if (took <= 0)
        return;
    learn_pace(s, f->payload, now);
    rate = (uint64_t)((double)(s->delivered - f->delivered + f->payload) * 1e9 / (double)took);
    if (now >= s->renew_ns) {
        s->renew_ns = now + RENEW_NS;
        s->rate = 0;
        s->rtt_ns = took;
    }
    s->rate = rate > s->rate ? rate : s->rate;
    s->rtt_ns = took < s->rtt_ns ? took : s->rtt_ns;
    rate = l->bundle->peer->n_more ? s->pace : s->rate;
    product = (uint64_t)((double)rate * (double)s->rtt_ns / 1e9);
    s->window = tei_min(tei_max(2 * product, least(l)), TCP_WINDOW_MAX);
}

void tei_tcp_window_init(struct tcp_lane *l)
{
    l->stream->window = least(l);
}

uint64_t tei_tcp_window_frame(const struct tcp_lane *l)
{
    uint64_t bytes = l->stream->pace / (1000 / FRAME_MS);

    if (!l->bundle->peer->n_more)
        return TCP_FRAME_BYTES;
    return tei_min(tei_max(bytes, TCP_FRAME_SPREAD), TCP_FRAME_BYTES);
}
