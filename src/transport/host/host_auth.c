/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_auth.c - the proof of TE_AUTH on the unix socket, before the hello.
 *
 *     initiator                                owner
 *     GREET {id, nonce} ------------------->
 *             <------------ GREETED {nonce, proof of the owner}, or a status
 *     SURE {proof of the initiator} ------->   and the hello behind it
 *
 * The proofs are over the nonce of the owner's descriptor, which no other instance has, and over what was said
 * so far. With TE_AUTH an owner reads nothing else before it.
 */
#include "transport/host/host.h"

#include "auth/auth.h"
#include "base/err.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum auth_type { AUTH_GREET = 16, AUTH_GREETED, AUTH_SURE };

/* One packet. What its type does not use is 0. */
struct auth_msg {
    uint32_t magic;
    uint16_t version, type;
    uint32_t status; /* GREETED: 0, or 1 and the cause */
    uint32_t zero;
    char id[TEI_AUTH_ID_MAX];
    uint8_t nonce[TEI_AUTH_NONCE], proof[TEI_AUTH_PROOF];
};
_Static_assert(sizeof(struct auth_msg) == 144, "a message has 144 bytes");
_Static_assert(sizeof(struct auth_msg) != sizeof(struct host_msg), "they are told apart");

static struct auth_msg begin(enum auth_type type)
{
    return (struct auth_msg){.magic = HOST_MAGIC, .version = HOST_VERSION, .type = (uint16_t)type};
}

static bool send_msg(int fd, const struct auth_msg *m)
{
    return send(fd, m, sizeof(*m), MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(*m);
}

/* 1; 0: none is there; -1: the other side is gone, or has sent another one; *n: its length. */
static int receive(int fd, enum auth_type type, struct auth_msg *m, size_t *n)
{
    char packet[sizeof(*m) + 1]; /* so that one that is too long is seen */
    ssize_t got = recv(fd, packet, sizeof(packet), MSG_DONTWAIT);

    *n = 0;
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0)
        return -1;
    *n = (size_t)got;
    if (*n != sizeof(*m))
        return -1;
    memcpy(m, packet, sizeof(*m));
    return m->magic == HOST_MAGIC && m->version == HOST_VERSION && m->type == type ? 1 : -1;
}

/* ------------------------------------------------------------------------------------- owner */

static void refuse(struct host_session *s, enum tei_auth_cause cause)
{
    char who[48];

    snprintf(who, sizeof(who), "process %d of this host", (int)s->pid);
    tei_auth_refused(s->h->conf->identity, cause, "same host", who);
}

/* The status of a refusal. One that knows nothing of this is told by the answer to its hello. */
static bool turn_away(struct host_session *s, enum tei_auth_cause cause, bool says_hello)
{
    struct host_msg welcome = {.magic = HOST_MAGIC,
                               .version = HOST_VERSION,
                               .type = HOST_WELCOME,
                               .status = HOST_UNPROVED};
    struct auth_msg m = begin(AUTH_GREETED);

    refuse(s, cause);
    m.status = 1 + (uint32_t)cause;
    if (says_hello)
        (void)tei_host_send(s->watch.fd, &welcome, NULL, 0);
    else
        (void)send_msg(s->watch.fd, &m);
    return false;
}

static bool greeted(struct host_session *s, const struct auth_msg *greet)
{
    enum tei_auth_cause cause;
    struct auth_msg m = begin(AUTH_GREETED);

    s->proving = tei_proof_server(s->h->conf->identity, TEI_PROOF_HOST, greet->id,
                                  strnlen(greet->id, sizeof(greet->id)), &cause);
    if (!s->proving)
        return cause == TEI_AUTH_N_CAUSES ? false : turn_away(s, cause, false);
    if (!tei_auth_nonce(m.nonce))
        return false;
    tei_proof_add(s->proving, s->h->keys.nonce, HOST_NONCE);
    tei_proof_add(s->proving, greet, sizeof(*greet));
    tei_proof_add(s->proving, &m, sizeof(m));
    if (!tei_proof_make(s->proving, TEI_PROOF_SERVER, m.proof))
        return false;
    tei_proof_add(s->proving, m.proof, sizeof(m.proof));
    return send_msg(s->watch.fd, &m);
}

bool tei_host_auth_needed(const struct host_session *s)
{
    return s->h->conf->identity && !s->is_known;
}

bool tei_host_auth_read(struct host_session *s)
{
    struct auth_msg m;
    size_t n;
    int got = receive(s->watch.fd, s->proving ? AUTH_SURE : AUTH_GREET, &m, &n);

    if (got == 0)
        return true;
    if (got < 0 && n == 0) /* it has left */
        return false;
    if (got < 0)
        return turn_away(s, n == sizeof(struct host_msg) ? TEI_AUTH_PLAIN : TEI_AUTH_MALFORMED,
                         n == sizeof(struct host_msg));
    if (!s->proving)
        return greeted(s, &m);
    s->is_known = tei_proof_check(s->proving, TEI_PROOF_CLIENT, m.proof);
    if (!s->is_known)
        refuse(s, TEI_AUTH_KEY);
    tei_host_auth_end(s);
    return s->is_known;
}

void tei_host_auth_late(struct host_session *s)
{
    if (tei_host_auth_needed(s))
        refuse(s, TEI_AUTH_LATE);
}

void tei_host_auth_end(struct host_session *s)
{
    tei_proof_free(s->proving);
    s->proving = NULL;
}

/* --------------------------------------------------------------------------------- initiator */

static bool wait_for(struct host_peer *p, struct auth_msg *m)
{
    int64_t deadline_ns = tei_deadline_ns(p->h->conf->host_timeout_ms);
    struct pollfd f = {.fd = p->fd, .events = POLLIN};
    size_t n;
    int got = 0;

    while (got == 0 && poll(&f, 1, tei_left_ms(deadline_ns)) != 0)
        got = receive(p->fd, AUTH_GREETED, m, &n);
    return got > 0;
}

/* Whether the owner's answer proves that it is the one of the descriptor; then `sure` is what it is sent. */
static bool check(struct host_peer *p, struct tei_proof *proof, const struct auth_msg *greet,
                  const struct auth_msg *answer, struct auth_msg *sure)
{
    struct auth_msg said = *answer;

    memset(said.proof, 0, sizeof(said.proof));
    tei_proof_add(proof, p->nonce, HOST_NONCE);
    tei_proof_add(proof, greet, sizeof(*greet));
    tei_proof_add(proof, &said, sizeof(said));
    if (!tei_proof_check(proof, TEI_PROOF_SERVER, answer->proof))
        return false;
    tei_proof_add(proof, answer->proof, sizeof(answer->proof));
    return tei_proof_make(proof, TEI_PROOF_CLIENT, sure->proof);
}

static bool talk(struct host_peer *p, struct tei_proof *proof, struct auth_msg *greet, char *why,
                 size_t n)
{
    struct auth_msg answer, sure = begin(AUTH_SURE);

    if (!tei_auth_nonce(greet->nonce)) {
        snprintf(why, n, "the kernel gives no random bytes for a proof");
        return false;
    }
    if (!send_msg(p->fd, greet) || !wait_for(p, &answer)) {
        snprintf(why, n,
                 "process %d does not prove who it is: TE_AUTH is off there; set it as it is here",
                 (int)p->pid);
        return false;
    }
    if (answer.status != 0) {
        snprintf(why, n, "process %d refuses our id '%.64s' (%s): see its log", (int)p->pid,
                 greet->id,
                 answer.status <= TEI_AUTH_N_CAUSES
                     ? tei_auth_label((enum tei_auth_cause)(answer.status - 1))
                     : "?");
        return false;
    }
    if (check(p, proof, greet, &answer, &sure))
        return send_msg(p->fd, &sure);
    snprintf(why, n, "process %d has another key for our id '%.64s', or is another engine",
             (int)p->pid, greet->id);
    return false;
}

bool tei_host_auth_prove(struct host_peer *p, const struct tei_ticket *ticket, char *why, size_t n)
{
    struct tei_auth *auth = p->h->conf->identity;
    struct auth_msg greet = begin(AUTH_GREET);
    char id[TEI_AUTH_ID_MAX + 1];
    struct tei_proof *proof;
    bool good;

    if (!auth)
        return true;
    if (tei_auth_lacks_ticket(auth, ticket)) {
        snprintf(why, n,
                 "its handshake port has given no ticket, or before our files were read anew");
        return false;
    }
    proof = tei_proof_client(auth, TEI_PROOF_HOST, ticket, id);
    if (!proof) {
        snprintf(why, n, "out of memory");
        return false;
    }
    memcpy(greet.id, id, sizeof(greet.id));
    good = talk(p, proof, &greet, why, n);
    tei_proof_free(proof);
    return good;
}
