/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_auth.c - the proof of TE_AUTH in the greeting of the native framing.
 *
 *     client                                     server
 *     greeting, option {nonce, id} ------------>
 *               <------------ answer, option {nonce, proof of the server}
 *     PROVE, option {proof of the client} ----->  and whatever else, behind it
 *               <------------ PROVED
 *
 * Both proofs are over the whole greeting and the whole answer, and so over both nonces, both instances, the
 * number of the connection, and what was agreed on; the client's over the server's proof, too. Where the
 * peer's proof is wrong nothing is sent but that. READs, which go out behind the greeting at once otherwise,
 * wait for the answer: a round trip for each connection. Bytes behind the greeting cost nothing.
 */
#include "transport/tcp/tcp_auth.h"

#include "base/err.h"

#include <stdio.h>
#include <string.h>

#define NONCE_AND_ID_MAX (TEI_AUTH_NONCE + TEI_AUTH_ID_MAX)
#define WHOSE_MAX        320

static_assert(TCP_OPTION_LEN + NONCE_AND_ID_MAX <= TCP_OPTIONS_MAX, "the option fits");
static_assert(TCP_HELLO_LEN + 2 * TCP_OPTIONS_MAX + TCP_FRAME_LEN + TEI_AUTH_PROOF <=
                  TEI_PROOF_BYTES,
              "all that is said fits into a proof");

static struct tei_auth *auth_of(const struct tcp_lane *l)
{
    return l->bundle->worker->t->conf->identity;
}

/* --------------------------------------------------------------------------------------- client */

static bool needs_proof(const struct tcp_lane *l)
{
    return auth_of(l) && !tei_auth_is_classic_fd(auth_of(l), l->watch.fd);
}

static const struct tcp_fault mute = {
    TE_ERR_REJECTED, 0,
    "the peer cannot prove who it is, and TE_AUTH asks for it; have its address in "
    "TE_AUTH_CLASSIC"};
/* Worth a fresh descriptor, with which a ticket comes. */
static const struct tcp_fault no_ticket = {
    TE_ERR_PEER, 0, "the peer has given no ticket, or before our files were read anew"};

const struct tcp_fault *tei_tcp_auth_silence(const struct tcp_lane *l)
{
    struct tcp_peer *p = l->bundle->peer;
    bool lacks;

    if (!needs_proof(l))
        return NULL;
    if (p->exchange != &tei_tcp_native || p->framing < TCP_NATIVE_VERSION)
        return &mute;
    pthread_mutex_lock(&p->lock);
    lacks = tei_auth_lacks_ticket(auth_of(l), p->ticket);
    pthread_mutex_unlock(&p->lock);
    return lacks ? &no_ticket : NULL;
}

void tei_tcp_auth_mute(struct tcp_lane *l, const struct tcp_fault *f)
{
    struct tcp_peer *p = l->bundle->peer;

    pthread_mutex_lock(&p->lock);
    tei_tcp_queue_fail(p, l->bundle->worker, f);
    pthread_mutex_unlock(&p->lock);
    tei_tcp_lane_fail(l, f);
}

bool tei_tcp_auth_hello(struct tcp_lane *l, uint8_t *to, size_t *n)
{
    char id[TEI_AUTH_ID_MAX + 1];
    uint8_t value[NONCE_AND_ID_MAX];

    *n = 0;
    if (!needs_proof(l))
        return true;
    l->stream->proof = tei_proof_client(auth_of(l), TEI_PROOF_DATA, l->bundle->peer->ticket, id);
    if (!l->stream->proof || !tei_auth_nonce(value))
        return false;
    memcpy(value + TEI_AUTH_NONCE, id, strlen(id));
    *n = tei_tcp_option_put(to, TCP_OPTION_AUTH | TCP_OPTION_MUST, value,
                            TEI_AUTH_NONCE + strlen(id));
    return true;
}

void tei_tcp_auth_end(struct tcp_stream *s)
{
    tei_proof_free(s->proof);
    s->proof = NULL;
}

/*
 * Adds an answer to what a proof is over, as it is before that was made: without its checksum, and zeros in the
 * place of the proof.
 */
static void add_answer(struct tei_proof *p, const uint8_t *answer, size_t n, const uint8_t *proof)
{
    uint8_t said[TCP_FRAME_LEN + TCP_OPTIONS_MAX];

    memcpy(said, answer, n);
    memset(said + offsetof(struct tcp_frame_wire, crc), 0, 4);
    memset(said + (proof - answer), 0, TEI_AUTH_PROOF);
    tei_proof_add(p, said, n);
}

/* The frame that goes out next, once the peer is known. */
static void write_prove(const struct tcp_stream *s, struct tcp_frame *f,
                        const uint8_t proof[TEI_AUTH_PROOF])
{
    const struct tcp_frame_head h = {.type = TCP_FRAME_PROVE, .options = TCP_PROVE_OPTIONS};

    tei_tcp_frame_encode(&h, f->head);
    tei_tcp_option_put(f->head + TCP_FRAME_LEN, TCP_OPTION_AUTH | TCP_OPTION_MUST, proof,
                       TEI_AUTH_PROOF);
    if (s->crc)
        tei_tcp_frame_seal(f->head, f->head_len);
}

enum tcp_reply tei_tcp_auth_answered(struct tcp_stream *s, const struct tcp_frame *hello, size_t n)
{
    size_t len = 0;
    const uint8_t *option =
        tei_tcp_option_find(hello->head + TCP_FRAME_LEN, n, TCP_OPTION_AUTH, &len);
    const uint8_t *theirs = option ? option + TEI_AUTH_NONCE : NULL;
    struct tei_link *next = tei_list_next(&s->flight, &hello->link);
    struct tcp_frame *prove = next ? tei_container_of(next, struct tcp_frame, link) : NULL;
    uint8_t ours[TEI_AUTH_PROOF];

    if (!theirs || len != TEI_AUTH_NONCE + TEI_AUTH_PROOF)
        return REPLY_OPEN;
    assert(prove && prove->type == TCP_FRAME_PROVE);
    add_answer(s->proof, hello->head, TCP_FRAME_LEN + n, theirs);
    if (!tei_proof_check(s->proof, TEI_PROOF_SERVER, theirs))
        return REPLY_OTHER_KEY;
    tei_proof_add(s->proof, theirs, TEI_AUTH_PROOF);
    if (!tei_proof_make(s->proof, TEI_PROOF_CLIENT, ours))
        return REPLY_OTHER_KEY;
    write_prove(s, prove, ours);
    tei_tcp_auth_end(s);
    return REPLY_NONE;
}

enum tcp_reply tei_tcp_auth_verdict(const struct tcp_frame_head *h)
{
    if (h->verdict == TCP_UNKNOWN)
        return h->index == TCP_OPTION_AUTH ? REPLY_OPEN : REPLY_UNKNOWN;
    switch (h->index) {
    case TEI_AUTH_ID:
        return REPLY_NO_ID;
    case TEI_AUTH_OWN:
        return REPLY_OWN;
    case TEI_AUTH_TICKET:
    case TEI_AUTH_EXPIRED:
        return REPLY_TICKET;
    default:
        return REPLY_SECURED;
    }
}

/* --------------------------------------------------------------------------------------- server */

void tei_tcp_auth_enter(struct tcp_session *s)
{
    struct tcp_worker *w = s->worker;
    struct tei_auth *auth = w->t->conf->identity;

    s->prove_by_ns = TEI_NEVER;
    if (!auth || tei_auth_is_classic(auth, &s->from))
        return;
    s->prove_by_ns = s->since_ns + TEI_AUTH_NS;
    tei_tcp_worker_arm(w, s->prove_by_ns);
}

/* `whose`: who it has proved to be, with a comma before it; "": nothing was proved. */
static void tell_refused(const struct tcp_session *s, enum tei_auth_cause cause,
                         unsigned long long count, const char *whose)
{
    char from[TEI_HOSTPORT_MAX], who[TEI_HOSTPORT_MAX + WHOSE_MAX], line[TEI_AUTH_LINE];

    snprintf(who, sizeof(who), "%s%s", tei_addr_format(&s->from, from, sizeof(from)), whose);
    tei_tcp_worker_note(s->worker, TE_LOG_WARN, "%s",
                        tei_auth_line(cause, count, "data port", who, line));
}

void tei_tcp_auth_refuse(struct tcp_session *s, enum tei_auth_cause cause)
{
    unsigned long long count = tei_auth_refusal(s->worker->t->conf->identity, cause);

    s->refused = true;
    if (count)
        tell_refused(s, cause, count, "");
}

void tei_tcp_auth_denied(const struct tcp_session *s)
{
    struct tei_auth *auth = s->worker->t->conf->identity;
    unsigned long long count = auth ? tei_auth_refusal(auth, TEI_AUTH_DENIED) : 0;
    char whose[WHOSE_MAX] = ", ";

    if (!count)
        return;
    tei_who_text(s->who, whose + 2, sizeof(whose) - 2);
    tell_refused(s, TEI_AUTH_DENIED, count, whose);
}

void tei_tcp_auth_late(struct tcp_session *s)
{
    if (tei_tcp_auth_is_stranger(s) && !s->refused && s->state != SESSION_DRAIN)
        tei_tcp_auth_refuse(s, TEI_AUTH_LATE);
}

void tei_tcp_auth_forget(struct tcp_session *s)
{
    tei_who_free(s->who);
    s->who = NULL;
}

/* The key of who greets; NULL, and why. */
static struct tei_proof *find_proof(struct tcp_session *s, const struct tcp_hello *h,
                                    const uint8_t *list, enum tei_auth_cause *cause)
{
    const struct tcp *t = s->worker->t;
    size_t len = 0;
    const uint8_t *option = tei_tcp_option_find(list, h->options, TCP_OPTION_AUTH, &len);

    *cause = TEI_AUTH_PLAIN;
    if (!option)
        return NULL;
    *cause = TEI_AUTH_MALFORMED;
    if (len <= TEI_AUTH_NONCE || len > NONCE_AND_ID_MAX)
        return NULL;
    *cause = TEI_AUTH_OWN;
    if (h->client == t->id) /* what we have said comes back to us */
        return NULL;
    return tei_proof_server(t->conf->identity, TEI_PROOF_DATA,
                            (const char *)option + TEI_AUTH_NONCE, len - TEI_AUTH_NONCE, cause);
}

struct tei_proof *tei_tcp_auth_greeted(struct tcp_session *s, const struct tcp_hello *h,
                                       const uint8_t *greeting, uint32_t *why)
{
    enum tei_auth_cause cause;
    struct tei_proof *p = find_proof(s, h, greeting + TCP_HELLO_LEN, &cause);

    if (p)
        tei_proof_add(p, greeting, TCP_HELLO_LEN + h->options);
    else if (cause != TEI_AUTH_N_CAUSES) /* else memory is out */
        tei_tcp_auth_refuse(s, cause);
    *why = (uint32_t)cause;
    return p;
}

bool tei_tcp_auth_answer(struct tei_proof *p, uint8_t *answer)
{
    uint8_t value[TEI_AUTH_NONCE + TEI_AUTH_PROOF] = {0};
    uint8_t *proof = answer + TCP_FRAME_LEN + TCP_OPTION_LEN + TEI_AUTH_NONCE;

    if (!tei_auth_nonce(value))
        return false;
    tei_tcp_option_put(answer + TCP_FRAME_LEN, TCP_OPTION_AUTH | TCP_OPTION_MUST, value,
                       sizeof(value));
    add_answer(p, answer, TCP_FRAME_LEN + TCP_ANSWER_OPTIONS, proof);
    if (!tei_proof_make(p, TEI_PROOF_SERVER, proof))
        return false;
    tei_proof_add(p, proof, TEI_AUTH_PROOF);
    return true;
}

bool tei_tcp_auth_proved(struct tcp_session *s, struct tei_proof *p, const struct tcp_frame_head *h,
                         const uint8_t *frame)
{
    size_t len = 0;
    const uint8_t *proof =
        tei_tcp_option_find(frame + TCP_FRAME_LEN, h->options, TCP_OPTION_AUTH, &len);
    bool is_prove = h->type == TCP_FRAME_PROVE && h->count == 0 && h->length == 0 && proof &&
                    len == TEI_AUTH_PROOF;

    if (is_prove && p && tei_proof_check(p, TEI_PROOF_CLIENT, proof)) {
        s->prove_by_ns = TEI_NEVER;
        s->who = tei_proof_take_who(p);
        return true;
    }
    tei_tcp_auth_refuse(s, is_prove && p ? TEI_AUTH_KEY : TEI_AUTH_MALFORMED);
    return false;
}
