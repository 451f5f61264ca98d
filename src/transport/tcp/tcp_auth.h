/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_auth.h - the proof of TE_AUTH on data connections, see tcp_auth.c; the worker's lock is held. */
#ifndef TEI_TCP_AUTH_H
#define TEI_TCP_AUTH_H

#include "auth/auth.h"
#include "transport/tcp/tcp_session.h"
#include "transport/tcp/tcp_stream.h"

/* ---- a lane */
/* Why nothing can be said on this connection, which has to begin with a proof; NULL: it can. */
const struct tcp_fault *tei_tcp_auth_silence(const struct tcp_lane *l);
/* Ends what waits for the peer, for that reason. */
void tei_tcp_auth_mute(struct tcp_lane *l, const struct tcp_fault *f);
/*
 * Writes the options of the greeting, *n bytes, and makes stream.proof; 0 bytes: none is needed. The peer's lock is
 * held. False: out of memory.
 */
bool tei_tcp_auth_hello(struct tcp_lane *l, uint8_t *to, size_t *n);
/* The connection is closed. */
void tei_tcp_auth_end(struct tcp_stream *s);
/*
 * The answer to the greeting is in hello->head, with `n` bytes of options: whether the peer is who it is to be;
 * then the PROVE behind it has its bytes.
 */
enum tcp_reply tei_tcp_auth_answered(struct tcp_stream *s, const struct tcp_frame *hello, size_t n);
/* What a greeting that was refused with TCP_UNKNOWN or TCP_UNPROVED means. */
enum tcp_reply tei_tcp_auth_verdict(const struct tcp_frame_head *h);

/* ---- a session */
/* It begins: says until when its client must have proved who it is. */
void tei_tcp_auth_enter(struct tcp_session *s);
static inline bool tei_tcp_auth_is_stranger(const struct tcp_session *s)
{
    return s->prove_by_ns != TEI_NEVER;
}
void tei_tcp_auth_refuse(struct tcp_session *s, enum tei_auth_cause cause);
/* It is closed. */
void tei_tcp_auth_forget(struct tcp_session *s);
/* What it asks for others alone may have: counted, and told now and then. */
void tei_tcp_auth_denied(const struct tcp_session *s);
/* It is closed for being late; counted if that is for the want of a proof. */
void tei_tcp_auth_late(struct tcp_session *s);
/* The proof to be made for that greeting, options included; NULL: the client is refused, *why. */
struct tei_proof *tei_tcp_auth_greeted(struct tcp_session *s, const struct tcp_hello *h,
                                       const uint8_t *greeting, uint32_t *why);
/* Writes the TCP_ANSWER_OPTIONS bytes of options behind an encoded answer. False: no proof can be made. */
bool tei_tcp_auth_answer(struct tei_proof *p, uint8_t *answer);
/* Whether a frame, the first one, proves who the client is; it is no stranger then, and session.who is set. */
bool tei_tcp_auth_proved(struct tcp_session *s, struct tei_proof *p, const struct tcp_frame_head *h,
                         const uint8_t *frame);

#endif
