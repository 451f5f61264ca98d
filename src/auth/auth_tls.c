/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth_tls.c - connections of the handshake port: TLS 1.3 with an external PSK.
 *
 * The only way in is the PSK with an ephemeral Diffie-Hellman exchange (psk_dhe_ke): neither side has a certificate or
 * takes one, there are no tickets, no early data, and the protocol's name (ALPN) must be the same on both sides. The
 * identity that goes out is "te1 ID INSTANCE": the instance is this engine's alone, and bound by the handshake, so a
 * server that meets its own has been sent what it said itself, and refuses it (RFC 9257, 5.1). The key is not
 * that of the file, but one made of it for this use (auth.c).
 *
 * A server looks at the first TEI_SECURE_FIRST bytes before libssl does: a frame of the handshake port cannot begin
 * with them, since they would be a length above 2^40. Before the peer is known, at most GREETING_MAX bytes are read.
 *
 * libssl reads and writes through a BIO of our own, since its own one raises SIGPIPE.
 */
#include "auth/auth_state.h"

#include "base/err.h"
#include "base/os.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define GREETING_MAX ((size_t)64 << 10)
#define INSTANCE     16 /* digits */
#define IDENTITY_MAX (4 + TEI_AUTH_ID_MAX + 1 + INSTANCE)
#define PREFIX       "te1 "
#define SHOWN_MAX    2 /* one identity in a ClientHello, and again in one that is asked for */

/* RFC 8446: alerts that a server of ours answers a ClientHello with. */
#define ALERT_HANDSHAKE_FAILURE 40
#define ALERT_ILLEGAL_PARAMETER 47
#define ALERT_DECRYPT_ERROR     51
#define ALERT_INTERNAL_ERROR    80

static const unsigned char protocol[] = "\x0ete-handshake/1";
static const unsigned char cipher[2] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256: the PSK's hash */

struct tei_secure {
    struct tei_auth *a;
    SSL *ssl;
    int fd, error; /* errno of the last call on the socket, 0: it has ended */
    int reason;    /* libssl's, of a handshake that has failed */
    bool is_server, is_known;
    bool showed_key; /* a server: the peer's id was found */
    unsigned n_shown;
    enum tei_auth_cause cause;
    uint32_t events;
    uint8_t first[TEI_SECURE_FIRST];
    size_t n_first, first_taken, got;
    char id[TEI_AUTH_ID_MAX + 1], identity[IDENTITY_MAX + 1];
};

/* ------------------------------------------------------------------------------------ the socket */

/* Bytes that the server has looked at come first. */
static ssize_t take_first(struct tei_secure *s, char *buf, size_t n)
{
    size_t len = tei_min(n, s->n_first - s->first_taken);

    memcpy(buf, s->first + s->first_taken, len);
    s->first_taken += len;
    return (ssize_t)len;
}

static ssize_t receive(struct tei_secure *s, char *buf, size_t n)
{
    ssize_t got;

    if (s->is_server && s->first_taken < s->n_first)
        return take_first(s, buf, n);
    do {
        got = recv(s->fd, buf, n, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    return got;
}

static bool would_wait(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK;
}

/* What a call of the socket means to libssl. */
static int moved(BIO *b, struct tei_secure *s, ssize_t n, int waiting)
{
    const struct auth_library *o = s->a->o;

    s->error = n < 0 ? errno : 0;
    o->BIO_clear_flags(b, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if (n < 0 && would_wait(s->error))
        o->BIO_set_flags(b, waiting | BIO_FLAGS_SHOULD_RETRY);
    return (int)n;
}

static struct tei_secure *of_bio(BIO *b)
{
    return tei_auth_library.BIO_get_data(b);
}

static int on_read(BIO *b, char *buf, int n)
{
    struct tei_secure *s = of_bio(b);
    size_t room = (size_t)n;
    ssize_t got;

    if (!s->is_known && s->got + room > GREETING_MAX) {
        errno = EMSGSIZE;
        return moved(b, s, -1, 0);
    }
    got = receive(s, buf, room);
    s->got += got > 0 ? (size_t)got : 0;
    return moved(b, s, got, BIO_FLAGS_READ);
}

static int on_write(BIO *b, const char *buf, int n)
{
    struct tei_secure *s = of_bio(b);
    ssize_t sent;

    do {
        sent = send(s->fd, buf, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return moved(b, s, sent, BIO_FLAGS_WRITE);
}

static long on_ctrl(BIO *b, int cmd, long number, void *arg)
{
    (void)b;
    (void)number;
    (void)arg;
    return cmd == BIO_CTRL_FLUSH; /* nothing is kept back */
}

/* ---------------------------------------------------------------------------------- identities */

static struct tei_secure *of_ssl(const SSL *ssl)
{
    return tei_auth_library.SSL_get_ex_data(ssl, 0);
}

/* A session that has nothing but the key; NULL: out of memory. */
static SSL_SESSION *session_of(const struct tei_secure *s, const uint8_t key[TEI_AUTH_PROOF])
{
    const struct auth_library *o = s->a->o;
    SSL_SESSION *session = o->SSL_SESSION_new();

    if (session && o->SSL_SESSION_set1_master_key(session, key, TEI_AUTH_PROOF) &&
        o->SSL_SESSION_set_cipher(session, o->SSL_CIPHER_find(s->ssl, cipher)) &&
        o->SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
        return session;
    o->SSL_SESSION_free(session);
    return NULL;
}

/* The client shows our id. */
static int on_use(SSL *ssl, const EVP_MD *hash, const unsigned char **identity, size_t *len,
                  SSL_SESSION **session)
{
    struct tei_secure *s = of_ssl(ssl);
    uint8_t key[TEI_AUTH_PROOF];

    (void)hash; /* of the only cipher suites that are offered */
    *session = NULL;
    if (!tei_auth_own_key(s->a, AUTH_USE_TLS, s->id, key))
        return 0;
    *len = (size_t)snprintf(s->identity, sizeof(s->identity), PREFIX "%s %016llx", s->id,
                            (unsigned long long)s->a->instance);
    *identity = (const unsigned char *)s->identity;
    *session = session_of(s, key);
    explicit_bzero(key, sizeof(key));
    tei_secret_burn();
    return *session != NULL;
}

/* Takes an identity apart; false unless it has exactly that form. */
static bool read_identity(const char *text, size_t len, const char **id, size_t *id_len,
                          uint64_t *instance)
{
    const size_t before = strlen(PREFIX), behind = 1 + INSTANCE;

    if (len <= before + behind || len > IDENTITY_MAX || memcmp(text, PREFIX, before) != 0 ||
        text[len - behind] != ' ')
        return false;
    *id = text + before;
    *id_len = len - before - behind;
    *instance = 0;
    for (size_t i = len - INSTANCE; i < len; i++) {
        const char *digit = memchr("0123456789abcdef", text[i], 16);

        if (!digit)
            return false;
        *instance = *instance << 4 | (uint64_t)(digit - "0123456789abcdef");
    }
    return tei_auth_is_id(*id, *id_len);
}

enum found { FOUND, NOT_FOUND, IS_OUR_OWN };

static enum found find_key(struct tei_secure *s, const char *text, size_t len,
                           uint8_t key[TEI_AUTH_PROOF])
{
    const char *id;
    size_t id_len;
    uint64_t instance;

    s->cause = TEI_AUTH_MALFORMED;
    if (!read_identity(text, len, &id, &id_len, &instance))
        return NOT_FOUND;
    s->cause = TEI_AUTH_OWN;
    if (instance == s->a->instance)
        return IS_OUR_OWN;
    if (tei_auth_key(s->a, AUTH_USE_TLS, id, id_len, key, &s->cause))
        return FOUND;
    return s->cause == TEI_AUTH_OWN ? IS_OUR_OWN : NOT_FOUND;
}

/*
 * The server is shown an identity. Without a key for it the handshake goes on, and ends, since there is no
 * certificate either: the client is told handshake_failure; its own reflection, internal_error, and so is one
 * that shows many: each costs us a search.
 */
static int on_find(SSL *ssl, const unsigned char *identity, size_t len, SSL_SESSION **session)
{
    struct tei_secure *s = of_ssl(ssl);
    uint8_t key[TEI_AUTH_PROOF];
    enum found found;

    *session = NULL;
    if (s->n_shown++ == SHOWN_MAX) {
        s->cause = TEI_AUTH_MALFORMED;
        return 0;
    }
    found = find_key(s, (const char *)identity, len, key);
    if (found != FOUND)
        return found == NOT_FOUND;
    *session = session_of(s, key);
    explicit_bzero(key, sizeof(key));
    tei_secret_burn();
    s->showed_key = *session != NULL;
    return s->showed_key;
}

static int on_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                       const unsigned char *in, unsigned in_len, void *arg)
{
    const unsigned len = sizeof(protocol) - 1;

    (void)ssl;
    (void)arg;
    if (in_len != len || memcmp(in, protocol, len) != 0)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = in + 1;
    *out_len = in[0];
    return SSL_TLSEXT_ERR_OK;
}

/* ------------------------------------------------------------------------------- open and close */

static SSL_CTX *make_context(const struct tei_auth *a, const SSL_METHOD *method)
{
    const struct auth_library *o = a->o;
    SSL_CTX *c = o->SSL_CTX_new(method);

    if (!c)
        return NULL;
    o->SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
    o->SSL_CTX_ctrl(c, SSL_CTRL_MODE,
                    SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                        SSL_MODE_RELEASE_BUFFERS,
                    NULL);
    o->SSL_CTX_ctrl(c, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
    if (o->SSL_CTX_ctrl(c, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) &&
        o->SSL_CTX_ctrl(c, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, NULL) &&
        o->SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256") &&
        o->SSL_CTX_set_num_tickets(c, 0))
        return c;
    o->SSL_CTX_free(c);
    return NULL;
}

static bool make_bio_method(struct tei_auth *a)
{
    const struct auth_library *o = a->o;

    a->socket = o->BIO_meth_new(o->BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "te socket");
    return a->socket && o->BIO_meth_set_read(a->socket, on_read) &&
           o->BIO_meth_set_write(a->socket, on_write) && o->BIO_meth_set_ctrl(a->socket, on_ctrl);
}

int tei_auth_tls_open(struct tei_auth *a)
{
    const struct auth_library *o = a->o;

    a->server = make_context(a, o->TLS_server_method());
    a->client = make_context(a, o->TLS_client_method());
    if (!a->server || !a->client || !make_bio_method(a) ||
        o->SSL_CTX_set_alpn_protos(a->client, protocol, sizeof(protocol) - 1) != 0)
        return TEI_FAIL(
            TE_ERR_UNSUPPORTED,
            "TE_AUTH=psk needs TLS 1.3 with TLS_AES_128_GCM_SHA256, which the libssl of "
            "this host refuses");
    o->SSL_CTX_set_verify(a->client, SSL_VERIFY_PEER, NULL); /* it trusts no certificate */
    o->SSL_CTX_set_alpn_select_cb(a->server, on_protocol, NULL);
    o->SSL_CTX_set_psk_find_session_callback(a->server, on_find);
    o->SSL_CTX_set_psk_use_session_callback(a->client, on_use);
    return 0;
}

void tei_auth_tls_close(struct tei_auth *a)
{
    if (a->server)
        a->o->SSL_CTX_free(a->server);
    if (a->client)
        a->o->SSL_CTX_free(a->client);
    if (a->socket)
        a->o->BIO_meth_free(a->socket);
}

struct tei_secure *tei_secure_open(struct tei_auth *a, int fd, bool is_server)
{
    const struct auth_library *o = a->o;
    struct tei_secure *s = calloc(1, sizeof(*s));
    BIO *bio = s ? o->BIO_new(a->socket) : NULL;

    if (!bio) {
        free(s);
        return NULL;
    }
    *s = (struct tei_secure){.a = a,
                             .fd = fd,
                             .is_server = is_server,
                             .cause = TEI_AUTH_MALFORMED,
                             .events = is_server ? EPOLLIN : EPOLLOUT};
    o->BIO_set_data(bio, s);
    o->BIO_set_init(bio, 1);
    s->ssl = o->SSL_new(is_server ? a->server : a->client);
    if (!s->ssl || !o->SSL_set_ex_data(s->ssl, 0, s)) {
        tei_secure_free(s);
        o->BIO_free(bio);
        return NULL;
    }
    o->SSL_set_bio(s->ssl, bio, bio); /* which owns it from now on */
    (is_server ? o->SSL_set_accept_state : o->SSL_set_connect_state)(s->ssl);
    return s;
}

void tei_secure_free(struct tei_secure *s)
{
    if (!s)
        return;
    s->a->o->SSL_free(s->ssl);
    free(s);
}

/* --------------------------------------------------------------------------------- the handshake */

enum tei_auth_cause tei_secure_cause(const struct tei_secure *s)
{
    return s->cause;
}

uint32_t tei_secure_events(const struct tei_secure *s)
{
    return s->events;
}

const uint8_t *tei_secure_first(const struct tei_secure *s, size_t *n)
{
    *n = s->n_first;
    return s->first;
}

/* Whether these are the first bytes of a record with a ClientHello. */
static bool may_be_hello(const uint8_t *first, size_t n)
{
    return (n < 1 || first[0] == 0x16) && (n < 2 || first[1] == 0x03) && (n < 6 || first[5] == 1);
}

/* The bytes that tell TLS from a frame. */
static enum tei_secure_state read_first(struct tei_secure *s)
{
    ssize_t n;

    do {
        n = recv(s->fd, s->first + s->n_first, TEI_SECURE_FIRST - s->n_first, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && would_wait(errno)) {
        s->events = EPOLLIN;
        return TEI_SECURE_WAIT;
    }
    if (n <= 0) {
        s->error = n < 0 ? errno : 0;
        return TEI_SECURE_LOST;
    }
    s->n_first += (size_t)n;
    if (may_be_hello(s->first, s->n_first))
        return s->n_first == TEI_SECURE_FIRST ? TEI_SECURE_DONE : TEI_SECURE_WAIT;
    s->cause = TEI_AUTH_PLAIN;
    return TEI_SECURE_REFUSED;
}

/* All that makes a peer known: the key was used, and the protocol is ours. */
static bool is_proved(const struct tei_secure *s)
{
    const struct auth_library *o = s->a->o;
    const unsigned char *name;
    unsigned len;

    o->SSL_get0_alpn_selected(s->ssl, &name, &len);
    return o->SSL_session_reused(s->ssl) && (!s->is_server || s->showed_key) &&
           len == sizeof(protocol) - 2 && memcmp(name, protocol + 1, len) == 0;
}

/* Whether it is no failure. */
static bool waits(struct tei_secure *s, int error)
{
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
        return false;
    s->events = error == SSL_ERROR_WANT_READ ? EPOLLIN : EPOLLOUT;
    return true;
}

static enum tei_secure_state why_not(struct tei_secure *s, int error)
{
    if (waits(s, error))
        return TEI_SECURE_WAIT;
    s->reason = ERR_GET_REASON(s->a->o->ERR_peek_last_error());
    if (s->is_server && s->reason == SSL_R_BINDER_DOES_NOT_VERIFY)
        s->cause = TEI_AUTH_KEY;
    if (s->error == EMSGSIZE) /* on_read() */
        return TEI_SECURE_REFUSED;
    return error == SSL_ERROR_SSL && s->reason != SSL_R_UNEXPECTED_EOF_WHILE_READING
               ? TEI_SECURE_REFUSED
               : TEI_SECURE_LOST;
}

enum tei_secure_state tei_secure_greet(struct tei_secure *s)
{
    const struct auth_library *o = s->a->o;
    enum tei_secure_state state = TEI_SECURE_DONE;
    int rc;

    if (s->is_server && s->n_first < TEI_SECURE_FIRST)
        state = read_first(s);
    if (state != TEI_SECURE_DONE)
        return state;
    o->ERR_clear_error();
    rc = o->SSL_do_handshake(s->ssl);
    tei_secret_burn();
    if (rc != 1)
        return why_not(s, o->SSL_get_error(s->ssl, rc));
    s->is_known = is_proved(s);
    return s->is_known ? TEI_SECURE_DONE : TEI_SECURE_REFUSED;
}

/* ------------------------------------------------------------------------------------- the bytes */

/* What a call that moved nothing says: -1 with errno, or 0: the end. */
static ssize_t moved_none(struct tei_secure *s, int rc)
{
    int error = s->a->o->SSL_get_error(s->ssl, rc);

    if (error == SSL_ERROR_ZERO_RETURN)
        return 0;
    if (waits(s, error))
        errno = EAGAIN;
    else
        errno = s->error ? s->error : error == SSL_ERROR_SSL ? EPROTO : ECONNRESET;
    return -1;
}

ssize_t tei_secure_recv(struct tei_secure *s, void *buf, size_t n)
{
    int rc;

    assert(s->is_known);
    s->events = EPOLLIN; /* waits() may say otherwise */
    s->a->o->ERR_clear_error();
    rc = s->a->o->SSL_read(s->ssl, buf, (int)tei_min(n, INT32_MAX));
    return rc > 0 ? rc : moved_none(s, rc);
}

ssize_t tei_secure_send(struct tei_secure *s, const void *buf, size_t n)
{
    ssize_t sent;
    int rc;

    assert(s->is_known);
    s->events = EPOLLOUT;
    s->a->o->ERR_clear_error();
    rc = s->a->o->SSL_write(s->ssl, buf, (int)tei_min(n, TEI_SECURE_RECORD));
    if (rc > 0)
        return rc;
    sent = moved_none(s, rc);
    if (sent == 0)
        errno = EPIPE;
    return -1;
}

/* --------------------------------------------------------------------------------- with deadlines */

static int wait_for(const struct tei_secure *s, int64_t deadline_ns)
{
    struct pollfd p = {.fd = s->fd, .events = s->events == EPOLLIN ? POLLIN : POLLOUT};
    int n;

    do {
        n = poll(&p, 1, tei_left_ms(deadline_ns));
    } while (n < 0 && errno == EINTR);
    return n > 0 ? 0 : n == 0 ? TE_ERR_TIMEOUT : TE_ERR_LINK;
}

/* 0: go on; else the connection is lost. */
static int after(const struct tei_secure *s, ssize_t n, int64_t deadline_ns)
{
    if (n > 0)
        return 0;
    if (n < 0 && errno == EAGAIN)
        return wait_for(s, deadline_ns);
    errno = n == 0 ? 0 : errno;
    return TE_ERR_LINK;
}

int tei_secure_read_full(struct tei_secure *s, void *buf, size_t n, int64_t deadline_ns)
{
    for (size_t got = 0; got < n;) {
        ssize_t len = tei_secure_recv(s, (char *)buf + got, n - got);
        int rc = after(s, len, deadline_ns);

        if (rc)
            return rc;
        got += len > 0 ? (size_t)len : 0;
    }
    return 0;
}

int tei_secure_write_full(struct tei_secure *s, const void *buf, size_t n, int64_t deadline_ns)
{
    for (size_t sent = 0; sent < n;) {
        ssize_t len = tei_secure_send(s, (const char *)buf + sent, n - sent);
        int rc = after(s, len, deadline_ns);

        if (rc)
            return rc;
        sent += len > 0 ? (size_t)len : 0;
    }
    return 0;
}

/* What the server's refusal means, for whoever can mend it. */
static int fail_refused(const struct tei_secure *s, const char *peer)
{
    int reason = s->reason;

    if (reason == SSL_AD_REASON_OFFSET + ALERT_HANDSHAKE_FAILURE)
        return TEI_FAIL(TE_ERR_REJECTED,
                        "%s refuses our id '%s', which is not in its key file: add its line there "
                        "(TE_AUTH_KEYS)",
                        peer, s->id);
    if (reason == SSL_AD_REASON_OFFSET + ALERT_ILLEGAL_PARAMETER ||
        reason == SSL_AD_REASON_OFFSET + ALERT_DECRYPT_ERROR || reason == SSL_R_DIGEST_CHECK_FAILED)
        return TEI_FAIL(
            TE_ERR_REJECTED,
            "%s has another key for our id '%s': give the id the same key in both files "
            "of TE_AUTH_KEYS",
            peer, s->id);
    if (reason == SSL_AD_REASON_OFFSET + ALERT_INTERNAL_ERROR)
        return TEI_FAIL(
            TE_ERR_REJECTED,
            "%s refuses our id '%s', which is its own, or is this engine itself: give "
            "each side an id of its own, or repeat the first line of its key file for a "
            "group that shares one",
            peer, s->id);
    return TEI_FAIL(TE_ERR_REJECTED,
                    "%s does not prove that it has our key: TE_AUTH is off there, or it is another "
                    "program; set TE_AUTH=psk there, or have its address in TE_AUTH_CLASSIC here",
                    peer);
}

static int fail_lost(const struct tei_secure *s, const char *peer)
{
    if (s->error && s->error != ECONNRESET && s->error != EPIPE)
        return TEI_FAIL(TE_ERR_LINK, "%s: %s while proving who we are", peer,
                        tei_errno_text(s->error));
    return TEI_FAIL(
        TE_ERR_REJECTED,
        "%s closes the connection when it is asked for TLS: TE_AUTH is off there, or it "
        "is another program; set TE_AUTH=psk there, or have its address in "
        "TE_AUTH_CLASSIC here",
        peer);
}

int tei_secure_connect(struct tei_secure *s, const char *peer, int64_t deadline_ns)
{
    enum tei_secure_state state;
    int rc;

    while ((state = tei_secure_greet(s)) == TEI_SECURE_WAIT) {
        rc = wait_for(s, deadline_ns);
        if (rc == TE_ERR_TIMEOUT)
            return TEI_FAIL(
                rc,
                "%s: no progress in time while proving who we are; it may be overloaded "
                "or frozen, or TE_AUTH is off there",
                peer);
        if (rc)
            return fail_lost(s, peer);
    }
    if (state == TEI_SECURE_REFUSED)
        return fail_refused(s, peer);
    return state == TEI_SECURE_DONE ? 0 : fail_lost(s, peer);
}
