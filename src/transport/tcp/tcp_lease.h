/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_lease.h - the keys of leases (te_lease.h): an option of requests of the native framing. */
#ifndef TEI_TCP_LEASE_H
#define TEI_TCP_LEASE_H

#include "transport/tcp/tcp_lane.h"
#include "transport/tcp/tcp_session.h"
#include "transport/tcp/tcp_wire.h"

/* ---- who shows one */
/* Writes the option; returns its length. */
size_t tei_tcp_lease_put(uint8_t *to, const te_lease_key *key);
/* NULL is the same as NULL only. */
bool tei_tcp_lease_same(const te_lease_key *a, const te_lease_key *b);
/* Whether the peer's engine looks at keys. */
bool tei_tcp_lease_is_heeded(const struct tcp_peer *p);
/* Ends the works on the list that show one, and takes them off; how many. */
size_t tei_tcp_lease_refuse(struct tcp *t, struct tei_list *work);
/* Whether the `index` of that verdict says of which block it is; else it is of the whole frame. */
static inline bool tei_tcp_verdict_is_of_block(uint32_t verdict)
{
    return verdict == TCP_REFUSED || verdict == TCP_OUT_OF_LEASE || verdict == TCP_NOT_YOURS;
}
/* What becomes of requests that were refused for their key, or for who we are; NULL: that is not why. */
const struct tcp_fault *tei_tcp_lease_fault(const struct tcp_frame_head *answer);

/* ---- who is shown one */
enum tcp_key { KEY_NONE, KEY_SHOWN, KEY_MALFORMED };
/* The first one of a list of options. */
enum tcp_key tei_tcp_lease_take(const uint8_t *list, size_t n, te_lease_key *out);
/* Its lease lets the client do that with all of the range. */
static inline bool tei_tcp_lease_allows(const struct tei_lease *l, const struct tcp_range *r,
                                        unsigned access)
{
    return r->addr >= l->addr && r->length <= l->length && r->length > 0 &&
           r->addr - l->addr <= l->length - r->length && (l->access & access) == access;
}
/* A request is refused by that verdict; the log is told, now and then. */
void tei_tcp_lease_tell(const struct tcp_session *s, enum tcp_verdict verdict);

#endif
