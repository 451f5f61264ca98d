/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever was measured: a window is within its limits, and so is the length of frames. */
/* proof: */
#include "transport/tcp/tcp_window.c"
#include "proof.h"

#define NS_MAX ((int64_t)1 << 61)

void proof(void)
{
    struct tcp_peer peer;
    struct tcp_bundle bundle = {.peer = &peer};
    struct tcp_stream s;
    struct tcp_lane lane = {.bundle = &bundle, .stream = &s};
    struct tcp_frame f;
    int64_t now;
    uint64_t frame = tei_tcp_window_frame(&lane);

    PROVE(frame >= TCP_FRAME_SPREAD && frame <= TCP_FRAME_BYTES);
    tei_tcp_window_init(&lane);
    ASSUME(now >= 0 && now <= NS_MAX && f.sent_ns >= 0 && f.sent_ns <= NS_MAX);
    ASSUME(s.busy_since_ns >= 0 && s.busy_since_ns <= now && s.busy_ns >= 0 && s.busy_ns <= NS_MAX);
    tei_tcp_window_learn(&lane, &f, now);
    PROVE(s.window >= 2 * TCP_FRAME_SPREAD && s.window <= TCP_WINDOW_MAX);
}
