/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth.h - who a peer is: TE_AUTH, pre-shared keys, certificates, and the proofs made with them.
 *
 * A NULL tei_auth is TE_AUTH=off: nothing is loaded, and no byte on the wire is another one. Otherwise the
 * handshake port speaks TLS 1.3 (struct tei_secure), and other connections begin with a mutual proof (struct
 * tei_proof): by a key of the file, or, with certificates, by a ticket that the peer has given on the handshake port.
 * See docs/protocol.md, and SECURITY.md for what it is worth.
 *
 * A key is in pages that no core dump has, which are overwritten before they are given back. What libssl copies
 * lives as long as one connection of the handshake port.
 *
 * All functions but tei_auth_look() may be called from any thread, and wait for nothing; a struct tei_secure or tei_proof
 * is one thread's at a time.
 */
#ifndef TEI_AUTH_H
#define TEI_AUTH_H

#include "auth/auth_causes.h"
#include "auth/auth_who.h"
#include "base/secret.h"
#include "base/sock.h"
#include "conf/conf.h"

#include <sys/types.h>

#define TEI_AUTH_ID_MAX 64
#define TEI_AUTH_NONCE  32
#define TEI_AUTH_PROOF  32
#define TEI_AUTH_NS     1000000000LL /* a peer that has connected has so long to prove itself */

enum tei_auth_cause {
#define AUTH_CAUSE(name, label, what, remedy) TEI_AUTH_##name,
    TEI_AUTH_CAUSES(AUTH_CAUSE)
#undef AUTH_CAUSE
        TEI_AUTH_N_CAUSES
};

/* The label of a cause, and what it means, in words. */
const char *tei_auth_label(enum tei_auth_cause cause);
const char *tei_auth_meaning(enum tei_auth_cause cause);

struct tei_auth;

/*
 * By TE_AUTH; *out is NULL for "off". `instance` tells this engine from all others. TE_ERR_INVALID for what
 * cannot be, as a file that is malformed; TE_ERR_UNSUPPORTED: no libssl 3, or no random bytes.
 */
int tei_auth_open(const struct tei_conf *conf, uint64_t instance, struct tei_auth **out);
/* NULL is accepted; nothing that was made with it may be left. */
void tei_auth_close(struct tei_auth *a);

/*
 * Reads the files anew if one has changed; what cannot be taken is logged. May block; one thread at a time.
 */
void tei_auth_look(struct tei_auth *a);

/* Whether proofs are made with tickets (mtls). */
bool tei_auth_needs_ticket(const struct tei_auth *a);
/* Whether one is missing: there is none, or it is from before our files were read anew. */
bool tei_auth_lacks_ticket(struct tei_auth *a, const struct tei_ticket *ticket);
/* Whether TE_AUTH_CLASSIC names anything. */
bool tei_auth_has_classic(const struct tei_auth *a);
/*
 * A text that lives as long as `a`, for tei_hostport.expected; each is kept once. NULL: memory is out. With a NULL `a`
 * or without certificates, where nobody asks for names, it is "".
 */
const char *tei_auth_name(struct tei_auth *a, const char *name);
/* Whether that address is in TE_AUTH_CLASSIC: what it says is taken, and it is spoken to, without a proof. */
bool tei_auth_is_classic(const struct tei_auth *a, const struct tei_addr *peer);
/* The same of the other end of a socket. */
bool tei_auth_is_classic_fd(const struct tei_auth *a, int fd);
/* Counts a refusal. Not 0: a line in the log is due, at WARN, one for each cause in 10 s: there have been so many. */
unsigned long long tei_auth_refusal(struct tei_auth *a, enum tei_auth_cause cause);
/* That line, returned. `where` is what was connected to, `who` the peer. */
#define TEI_AUTH_LINE 640
const char *tei_auth_line(enum tei_auth_cause cause, unsigned long long count, const char *where,
                          const char *who, char line[TEI_AUTH_LINE]);
/* Counts it, and logs the line. */
void tei_auth_refused(struct tei_auth *a, enum tei_auth_cause cause, const char *where,
                      const char *who);
void tei_auth_counts(struct tei_auth *a, uint64_t out[TEI_AUTH_N_CAUSES]);

/* ------------------------------------------------------------------- connections of the handshake port */

struct tei_secure;

/*
 * On a connected socket that does not block, which stays the caller's. A client says whose certificate it expects
 * (mtls): a text that outlives it. NULL: out of memory.
 */
struct tei_secure *tei_secure_open(struct tei_auth *a, int fd, bool is_server,
                                   const char *expected);
/* NULL is accepted. */
void tei_secure_free(struct tei_secure *s);

enum tei_secure_state { TEI_SECURE_WAIT, TEI_SECURE_DONE, TEI_SECURE_REFUSED, TEI_SECURE_LOST };

/*
 * Goes on with the handshake. WAIT: for tei_secure_events(). REFUSED: tei_secure_cause() says why. LOST: the other
 * side has closed it, or the socket failed.
 */
enum tei_secure_state tei_secure_greet(struct tei_secure *s);
enum tei_auth_cause tei_secure_cause(const struct tei_secure *s);
/* EPOLLIN or EPOLLOUT: what the last call waits for, or, if it moved bytes, what the next such call needs. */
uint32_t tei_secure_events(const struct tei_secure *s);
/* Refused as PLAIN: the bytes that have come, which are no handshake. At most TEI_SECURE_FIRST. */
#define TEI_SECURE_FIRST 6
const uint8_t *tei_secure_first(const struct tei_secure *s, size_t *n);

/*
 * As recv() and send() without waiting: -1 with errno, EAGAIN for tei_secure_events(). A call of recv() with
 * room for TEI_SECURE_RECORD bytes leaves none behind that the socket does not show.
 */
#define TEI_SECURE_RECORD ((size_t)16 << 10)
ssize_t tei_secure_recv(struct tei_secure *s, void *buf, size_t n);
ssize_t tei_secure_send(struct tei_secure *s, const void *buf, size_t n);

/*
 * Until `deadline_ns`: 0, TE_ERR_TIMEOUT, TE_ERR_LINK with errno, 0: the peer closed; not logged. A client may learn
 * only by reading that the server does not take its certificate: TE_ERR_REJECTED, which is told by tei_secure_refused().
 */
int tei_secure_read_full(struct tei_secure *s, void *buf, size_t n, int64_t deadline_ns);
int tei_secure_write_full(struct tei_secure *s, const void *buf, size_t n, int64_t deadline_ns);
/* The client's handshake. TE_ERR_REJECTED, TE_ERR_TIMEOUT, TE_ERR_LINK; logged, with the remedy. */
int tei_secure_connect(struct tei_secure *s, const char *peer, int64_t deadline_ns);
/* Logs, with the remedy, why the server does not take what we have shown. TE_ERR_REJECTED. */
int tei_secure_refused(const struct tei_secure *s, const char *peer);
/* A client that has read something with mtls: the ticket that the server has given it; the caller's. Else NULL. */
struct tei_ticket *tei_secure_ticket(const struct tei_secure *s);

/* A peer that is asked for TLS, or asks for it, and does not know it, sees these eight bytes as a length. */
static inline bool tei_secure_is_hello(uint64_t length)
{
    return (length & 0xffff) == 0x0316 && (length >> 40 & 0xff) == 1;
}
static inline bool tei_secure_is_alert(uint64_t length)
{
    return (length & 0xffff) == 0x0315 && length >> 32 != 0;
}
/* What a peer is told that speaks in clear: two alerts, so that they are no frame of the handshake port. */
#define TEI_SECURE_ALERTS "\x15\x03\x03\x00\x02\x02\x28\x15\x03\x03\x00\x02\x01\x00"

/* --------------------------------------------------------------------------- proofs on other connections */

/* Bytes that nobody can guess. False, logged: the kernel gives none, and no proof may be made. */
bool tei_auth_nonce(uint8_t out[TEI_AUTH_NONCE]);

/*
 * Both sides put the same bytes into their proofs, in the same order, the nonces among them; each then makes its own
 * proof and checks the other's. A proof of one side, for one use, is none of the other side, or for another use.
 */
struct tei_proof;

enum tei_proof_use { TEI_PROOF_DATA, TEI_PROOF_HOST };
enum tei_proof_side { TEI_PROOF_CLIENT, TEI_PROOF_SERVER };

/*
 * With our own key, or, where tickets are needed, that of the peer's ticket, and its id, written to `id`. NULL: out of
 * memory.
 */
struct tei_proof *tei_proof_client(struct tei_auth *a, enum tei_proof_use use,
                                   const struct tei_ticket *ticket, char id[TEI_AUTH_ID_MAX + 1]);
/* With the key of a peer's id. NULL, and *cause: there is none; TEI_AUTH_N_CAUSES: out of memory. */
struct tei_proof *tei_proof_server(struct tei_auth *a, enum tei_proof_use use, const char *id,
                                   size_t len, enum tei_auth_cause *cause);
/* NULL is accepted. */
void tei_proof_free(struct tei_proof *p);
/* At most TEI_PROOF_BYTES in all; more makes no proof good. */
#define TEI_PROOF_BYTES 3072
void tei_proof_add(struct tei_proof *p, const void *bytes, size_t n);
/* The proof of one side for what was added so far; false: it cannot be made. */
bool tei_proof_make(const struct tei_proof *p, enum tei_proof_side side,
                    uint8_t out[TEI_AUTH_PROOF]);
bool tei_proof_check(const struct tei_proof *p, enum tei_proof_side side,
                     const uint8_t proof[TEI_AUTH_PROOF]);

#endif
