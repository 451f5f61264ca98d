/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth_tls.c - connections of the handshake port: TLS 1.3 by pre-shared keys (auth_psk.c) or certificates (auth_certs.c).
 *
 * There are no session tickets, no early data, and the protocol's name (ALPN), which is another one with certificates,
 * must be the same on both sides.
 *
 * A server looks at the first TEI_SECURE_FIRST bytes before libssl does: a frame of the handshake port cannot begin
 * with them, since they would be a length above 2^40. Before the peer is known, at most GREETING_MAX bytes are read.
 *
 * libssl reads and writes through a BIO of our own, since its own one raises SIGPIPE.
 */
#include "auth/auth_secure.h"

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
#define PROTOCOL_MAX 16

static const char protocols[2][16] = {"te-handshake/1", "te-mtls/1"}; /* psk, mtls */

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

/* -------------------------------------------------------------------------------- the protocol */

/* What ALPN has for it: its length, and its name. */
static unsigned protocol_of(const struct tei_auth *a, unsigned char out[PROTOCOL_MAX])
{
    const char *name = protocols[a->is_mtls];

    out[0] = (unsigned char)strlen(name);
    memcpy(out + 1, name, out[0]);
    return 1U + out[0];
}

static int on_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                       const unsigned char *in, unsigned in_len, void *arg)
{
    struct tei_secure *s = auth_secure_of(ssl);
    unsigned char ours[PROTOCOL_MAX];

    (void)arg;
    if (in_len != protocol_of(s->a, ours) || memcmp(in, ours, in_len) != 0) {
        s->cause = TEI_AUTH_KIND;
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    }
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
    o->SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_CLEANSE_PLAINTEXT);
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

int tei_auth_tls_contexts(struct tei_auth *a, SSL_CTX **server, SSL_CTX **client)
{
    const struct auth_library *o = a->o;
    unsigned char protocol[PROTOCOL_MAX];
    unsigned n = protocol_of(a, protocol);

    *server = make_context(a, o->TLS_server_method());
    *client = make_context(a, o->TLS_client_method());
    if (!*server || !*client || o->SSL_CTX_set_alpn_protos(*client, protocol, n) != 0)
        return TEI_FAIL(TE_ERR_UNSUPPORTED,
                        "TE_AUTH needs TLS 1.3 with TLS_AES_128_GCM_SHA256, which the libssl of "
                        "this host refuses");
    o->SSL_CTX_set_alpn_select_cb(*server, on_protocol, NULL);
    return 0;
}

int tei_auth_tls_open(struct tei_auth *a)
{
    int rc;

    if (!make_bio_method(a))
        return TEI_FAIL(TE_ERR_MEMORY, "TE_AUTH: out of memory");
    if (a->is_mtls)
        return 0;
    rc = tei_auth_tls_contexts(a, &a->server, &a->client);
    if (rc)
        return rc;
    tei_auth_psk_use(a, a->server, a->client);
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

/* A connection by the contexts of this moment. */
static SSL *new_ssl(struct tei_secure *s)
{
    struct tei_auth *a = s->a;
    SSL_CTX *context;
    SSL *ssl;

    pthread_mutex_lock(&a->lock);
    if (a->is_mtls) {
        context = s->is_server ? a->certs->server : a->certs->client;
        s->epoch = a->certs->epoch;
    } else {
        context = s->is_server ? a->server : a->client;
    }
    ssl = a->o->SSL_new(context);
    pthread_mutex_unlock(&a->lock);
    return ssl;
}

struct tei_secure *tei_secure_open(struct tei_auth *a, int fd, bool is_server, const char *expected)
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
                             .expected = expected,
                             .cause = TEI_AUTH_MALFORMED,
                             .events = is_server ? EPOLLIN : EPOLLOUT};
    o->BIO_set_data(bio, s);
    o->BIO_set_init(bio, 1);
    s->ssl = new_ssl(s);
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
    tei_ticket_put(s->ticket);
    explicit_bzero(s->welcome, sizeof(s->welcome));
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

/* With certificates: libssl has taken theirs. A server is to be the one that is expected, too. */
static bool is_certified(struct tei_secure *s)
{
    if (s->a->o->SSL_get_verify_result(s->ssl) != X509_V_OK)
        return false;
    s->is_another = !s->is_server && !tei_auth_certs_is_of(s->a, s->ssl, s->expected);
    return !s->is_another;
}

/* All that makes a peer known: the protocol is ours, and the key was used, or the certificate is good. */
static bool is_proved(struct tei_secure *s)
{
    const struct auth_library *o = s->a->o;
    unsigned char ours[PROTOCOL_MAX];
    const unsigned char *name;
    unsigned len, n = protocol_of(s->a, ours);

    o->SSL_get0_alpn_selected(s->ssl, &name, &len);
    if (len != n - 1 || memcmp(name, ours + 1, len) != 0)
        return false;
    return s->a->is_mtls ? is_certified(s)
                         : o->SSL_session_reused(s->ssl) && (!s->is_server || s->showed_key);
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
    s->a->o->ERR_clear_error(); /* the thread may be the program's, which may use libssl itself */
    if (s->is_server && s->reason == SSL_R_BINDER_DOES_NOT_VERIFY)
        s->cause = TEI_AUTH_KEY;
    else if (s->is_server && s->a->is_mtls && s->cause == TEI_AUTH_MALFORMED)
        s->cause = tei_auth_certs_cause(s->a, s->ssl, s->reason);
    if (s->error == EMSGSIZE) /* on_read() */
        return TEI_SECURE_REFUSED;
    return error == SSL_ERROR_SSL && s->reason != SSL_R_UNEXPECTED_EOF_WHILE_READING
               ? TEI_SECURE_REFUSED
               : TEI_SECURE_LOST;
}

/* A server with certificates gives its ticket before anything else. */
static enum tei_secure_state give_ticket(struct tei_secure *s)
{
    const struct auth_library *o = s->a->o;
    int rc = 1;

    if (!s->has_welcome && !tei_auth_welcome_make(s->a, s->ssl, s->epoch, s->welcome))
        return TEI_SECURE_LOST;
    s->has_welcome = true;
    while (rc > 0 && s->n_welcomed < AUTH_WELCOME) {
        rc = o->SSL_write(s->ssl, s->welcome + s->n_welcomed, (int)(AUTH_WELCOME - s->n_welcomed));
        s->n_welcomed += rc > 0 ? (size_t)rc : 0;
    }
    tei_secret_burn();
    if (rc <= 0)
        return why_not(s, o->SSL_get_error(s->ssl, rc));
    explicit_bzero(s->welcome, sizeof(s->welcome));
    return TEI_SECURE_DONE;
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
    if (!s->is_known)
        return TEI_SECURE_REFUSED;
    return s->a->is_mtls && s->is_server ? give_ticket(s) : TEI_SECURE_DONE;
}

/* ------------------------------------------------------------------------------------- the bytes */

/* What a call that moved nothing says: -1 with errno, or 0: the end. */
static ssize_t moved_none(struct tei_secure *s, int rc)
{
    int error = s->a->o->SSL_get_error(s->ssl, rc);

    if (error == SSL_ERROR_ZERO_RETURN)
        return 0;
    if (error == SSL_ERROR_SSL)
        s->reason = ERR_GET_REASON(s->a->o->ERR_peek_last_error());
    s->a->o->ERR_clear_error();
    if (waits(s, error))
        errno = EAGAIN;
    else
        errno = s->error ? s->error : error == SSL_ERROR_SSL ? EPROTO : ECONNRESET;
    return -1;
}

/* A client with certificates gets its ticket before anything else; false with *rc of the call that brought nothing. */
static bool get_ticket(struct tei_secure *s, int *rc)
{
    while (s->n_welcomed < AUTH_WELCOME) {
        *rc = s->a->o->SSL_read(s->ssl, s->welcome + s->n_welcomed,
                                (int)(AUTH_WELCOME - s->n_welcomed));
        if (*rc <= 0)
            return false;
        s->n_welcomed += (size_t)*rc;
    }
    if (!s->ticket)
        s->ticket = tei_auth_welcome_read(s->welcome, s->epoch);
    explicit_bzero(s->welcome, sizeof(s->welcome));
    tei_secret_burn();
    return true;
}

ssize_t tei_secure_recv(struct tei_secure *s, void *buf, size_t n)
{
    int rc;

    assert(s->is_known);
    s->events = EPOLLIN; /* waits() may say otherwise */
    s->a->o->ERR_clear_error();
    if (s->a->is_mtls && !s->is_server && !s->ticket && !get_ticket(s, &rc))
        return moved_none(s, rc);
    if (s->a->is_mtls && !s->is_server && !s->ticket) {
        errno = EPROTO;
        return -1;
    }
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
