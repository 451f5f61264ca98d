/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_warm.h - lanes that are opened ahead of work. */
#ifndef TEI_TCP_WARM_H
#define TEI_TCP_WARM_H

#include "transport/tcp/tcp_lane.h"

/* All with the peer's lock held, unless told otherwise. */

/* Whether a lane of the bundle is off, and wished for. */
bool tei_tcp_wishes(const struct tcp_bundle *b);
/* A connection is up and known to lead to the peer. Both locks. */
void tei_tcp_lane_ready(struct tcp_lane *l);
/* The wish for one lane, or all of the peer's, ends for reason f. */
void tei_tcp_wish_fail(struct tcp_lane *l, const struct tcp_fault *f);
void tei_tcp_wishes_fail(struct tcp_peer *p, const struct tcp_fault *f);
/* The lane, which is off, is not needed after all. */
void tei_tcp_wish_drop(struct tcp_lane *l);

/* op; no lock held */
void tei_tcp_warm(struct tei_transport *t, struct tei_attach *a, struct tei_warmth *w);

#endif
