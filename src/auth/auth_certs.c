/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth_certs.c - TE_AUTH=mtls: certificates, and the tickets that other ports are opened with.
 *
 * Certificates are looked at on the handshake port alone, by libssl. Once both sides are known there, the server gives
 * the client a ticket: a name, and a key of 32 bytes, with which it proves itself on the data port and within the host as
 * by a pre-shared key of two. No ticket is kept by the server: its key is made, each time, of a secret of ours and of
 * its name, HMAC-SHA256(master, label | name); so nobody can make one up. The name is
 *
 *     epoch (16 digits) . certificate (32 digits of its SHA-256) . end (seconds since 1970)
 *
 * where the end is that of the client's certificate. Secret and epoch are made anew whenever a file is read anew, so that
 * whoever is shut out by that cannot open another connection with the ticket of before; everybody else asks for a new one.
 * The epoch is that of the contexts which have looked at the certificate, whichever is the current one by then. A client
 * likewise uses no ticket that it got before it read a file anew: the server may be one that it would not take any more.
 *
 * A server is known by the name that the client knows its segment by, or that name's host; a client, by the authority.
 */
#include "auth/auth_certs.h"
#include "auth/auth_state.h"

#include "base/err.h"
#include "base/hex.h"
#include "base/os.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LABEL     "te mtls 1 ticket\1"
#define PRINT_AT  17 /* in a ticket's name */
#define PRINT_END (PRINT_AT + AUTH_PRINT)

static_assert(TEI_AUTH_NONCE == TEI_AUTH_PROOF, "a secret of ours is a nonce that is kept");

static const uint8_t welcome_head[4] = {'T', 'E', 'W', 1};

/* ------------------------------------------------------------------------------------ reading */

static const char *reason_of(const struct auth_library *o)
{
    const char *text = o->ERR_reason_error_string(o->ERR_peek_last_error());

    return text ? text : "it holds nothing of that kind";
}

/* A file whose passphrase would have to be asked for is refused: there is nobody to ask. */
static int no_passphrase(char *buf, int size, int writing, void *arg)
{
    (void)buf;
    (void)size;
    (void)writing;
    (void)arg;
    return -1;
}

static EVP_PKEY *decode_key(const struct auth_library *o, const struct auth_text *text)
{
    BIO *b = o->BIO_new_mem_buf(text->bytes, (int)text->n);
    EVP_PKEY *key = b ? o->PEM_read_bio_PrivateKey(b, NULL, no_passphrase, NULL) : NULL;

    o->BIO_free(b);
    return key;
}

/* Reads the private key, of the certificate that is in the contexts already. */
static int read_key(const struct tei_auth *a, struct auth_certs *c)
{
    const struct auth_library *o = a->o;
    const char *path = a->paths[AUTH_PRIVATE];
    struct auth_stamp stamp;
    struct auth_text text;
    EVP_PKEY *key;
    bool good;
    int rc = tei_auth_text_read(path, "TE_AUTH_KEY", &stamp, &text);

    if (rc)
        return rc;
    key = decode_key(o, &text);
    tei_auth_text_free(&text);
    tei_secret_burn();
    if (!key)
        return TEI_FAIL(TE_ERR_INVALID,
                        "key file %s holds no private key in PEM without a passphrase: %s "
                        "(TE_AUTH_KEY)",
                        path, reason_of(o));
    good = o->SSL_CTX_use_PrivateKey(c->server, key) && o->SSL_CTX_use_PrivateKey(c->client, key) &&
           o->SSL_CTX_check_private_key(c->server);
    o->EVP_PKEY_free(key);
    return good ? 0
                : TEI_FAIL(TE_ERR_INVALID,
                           "key file %s is not of the certificate %s: give TE_AUTH_KEY and "
                           "TE_AUTH_CERT one pair",
                           path, a->paths[AUTH_CERT]);
}

static int fail_file(const struct tei_auth *a, enum auth_file_index i, const char *what,
                     const char *option)
{
    return TEI_FAIL(TE_ERR_INVALID, "%s holds no %s in PEM that is of use: %s (%s)", a->paths[i],
                    what, reason_of(a->o), option);
}

/* One of the two contexts, but for the private key. */
static int read_public(const struct tei_auth *a, SSL_CTX *c)
{
    const struct auth_library *o = a->o;

    o->SSL_CTX_set_default_passwd_cb(c, no_passphrase);
    if (!o->SSL_CTX_load_verify_locations(c, a->paths[AUTH_CA], NULL))
        return fail_file(a, AUTH_CA, "certificate of an authority", "TE_AUTH_CA");
    if (!o->SSL_CTX_use_certificate_chain_file(c, a->paths[AUTH_CERT]))
        return fail_file(a, AUTH_CERT, "certificate", "TE_AUTH_CERT");
    if (!a->paths[AUTH_CRL][0])
        return 0;
    if (!o->SSL_CTX_load_verify_locations(c, a->paths[AUTH_CRL], NULL))
        return fail_file(a, AUTH_CRL, "list of revoked certificates", "TE_AUTH_CRL");
    o->X509_STORE_set_flags(o->SSL_CTX_get_cert_store(c),
                            X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
    return 0;
}

static int make_master(struct auth_certs *c)
{
    uint8_t nonce[TEI_AUTH_NONCE];

    c->master = tei_secret_alloc(TEI_AUTH_PROOF);
    if (!c->master)
        return TEI_FAIL(TE_ERR_MEMORY, "TE_AUTH: out of memory");
    if (!tei_auth_nonce(c->master) || !tei_auth_nonce(nonce))
        return TEI_FAIL(TE_ERR_SYSTEM, "TE_AUTH=mtls needs random bytes of the kernel");
    memcpy(&c->epoch, nonce, sizeof(c->epoch));
    return 0;
}

/* Whether the files are there; libssl says nothing of use of one that is not. */
static int find_files(const struct tei_auth *a)
{
    struct auth_stamp stamp;

    for (size_t i = 0; i < AUTH_FILES; i++)
        if (a->paths[i][0] && !tei_auth_stamp(a->paths[i], &stamp))
            return TEI_FAIL(errno == ENOENT || errno == EACCES || errno == ENOTDIR ? TE_ERR_INVALID
                                                                                   : TE_ERR_SYSTEM,
                            "%s cannot be looked at: %s (TE_AUTH=mtls)", a->paths[i],
                            tei_errno_text(errno));
    return 0;
}

static int fill(struct tei_auth *a, struct auth_certs *c)
{
    int rc = find_files(a);

    a->o->ERR_clear_error();
    if (!rc)
        rc = tei_auth_tls_contexts(a, &c->server, &c->client);
    if (!rc)
        rc = read_public(a, c->server);
    if (!rc)
        rc = read_public(a, c->client);
    if (!rc)
        rc = read_key(a, c);
    a->o->ERR_clear_error();
    if (rc)
        return rc;
    a->o->SSL_CTX_set_verify(c->server, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    a->o->SSL_CTX_set_verify(c->client, SSL_VERIFY_PEER, NULL);
    tei_auth_subject(a->o, a->o->SSL_CTX_get0_certificate(c->server), c->subject);
    return make_master(c);
}

int tei_auth_certs_read(struct tei_auth *a, struct auth_certs **out)
{
    struct auth_certs *c = calloc(1, sizeof(*c));
    int rc = c ? fill(a, c) : TEI_FAIL(TE_ERR_MEMORY, "TE_AUTH: out of memory");

    if (rc)
        tei_auth_certs_free(a, c);
    else
        *out = c;
    return rc;
}

void tei_auth_certs_free(const struct tei_auth *a, struct auth_certs *c)
{
    if (!c)
        return;
    if (c->server)
        a->o->SSL_CTX_free(c->server);
    if (c->client)
        a->o->SSL_CTX_free(c->client);
    tei_secret_free(c->master, TEI_AUTH_PROOF);
    tei_auth_seen_forget(a, c);
    free(c);
}

/* ------------------------------------------------------------------------------- the other side */

void tei_auth_certs_subject(const struct tei_auth *a, const SSL *ssl, char out[AUTH_SUBJECT])
{
    X509 *certificate = a->o->SSL_get1_peer_certificate(ssl);

    snprintf(out, AUTH_SUBJECT, "nobody");
    if (certificate)
        tei_auth_subject(a->o, certificate, out);
    a->o->X509_free(certificate);
}

bool tei_auth_certs_is_of(const struct tei_auth *a, const SSL *ssl, const char *name)
{
    X509 *certificate = a->o->SSL_get1_peer_certificate(ssl);
    bool is = certificate && tei_auth_certificate_is_of(a->o, certificate, name);

    a->o->X509_free(certificate);
    return is;
}

enum tei_auth_cause tei_auth_certs_cause(const struct tei_auth *a, const SSL *ssl, int reason)
{
    if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        return TEI_AUTH_UNTRUSTED;
    if (reason != SSL_R_CERTIFICATE_VERIFY_FAILED)
        return TEI_AUTH_MALFORMED;
    switch (a->o->SSL_get_verify_result(ssl)) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return TEI_AUTH_EXPIRED;
    case X509_V_ERR_CERT_REVOKED:
        return TEI_AUTH_REVOKED;
    case X509_V_ERR_UNABLE_TO_GET_CRL:
    case X509_V_ERR_CRL_HAS_EXPIRED:
    case X509_V_ERR_CRL_NOT_YET_VALID:
    case X509_V_ERR_CRL_SIGNATURE_FAILURE:
    case X509_V_ERR_UNABLE_TO_GET_CRL_ISSUER:
        return TEI_AUTH_NO_CRL;
    default:
        return TEI_AUTH_UNTRUSTED;
    }
}

/* -------------------------------------------------------------------------------------- tickets */

static bool make_key(const struct tei_auth *a, const char *id, size_t len,
                     uint8_t key[TEI_TICKET_KEY])
{
    char said[sizeof(LABEL) + TEI_TICKET_ID_MAX];
    size_t label = strlen(LABEL);

    memcpy(said, LABEL, label);
    memcpy(said + label, id, len);
    return tei_auth_hmac(a, a->certs->master, TEI_AUTH_PROOF, said, label + len, key);
}

/* Seconds since 1970; false: it cannot be told. */
static bool end_of(const struct auth_library *o, const X509 *certificate, long long *out)
{
    struct tm tm;
    time_t end;

    memset(&tm, 0, sizeof(tm));
    if (!o->ASN1_TIME_to_tm(o->X509_get0_notAfter(certificate), &tm))
        return false;
    end = timegm(&tm);
    *out = end;
    return end > 0;
}

static bool name_ticket(const struct tei_auth *a, const X509 *certificate, uint64_t epoch,
                        char id[TEI_TICKET_ID_MAX + 1])
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    char print[AUTH_PRINT + 1];
    unsigned n = 0;
    long long end;

    if (!a->o->X509_digest(certificate, a->o->EVP_sha256(), digest, &n) || n < AUTH_PRINT / 2 ||
        !end_of(a->o, certificate, &end))
        return false;
    tei_hex_write(digest, AUTH_PRINT / 2, print);
    return snprintf(id, TEI_TICKET_ID_MAX + 1, "%016llx.%s.%lld", (unsigned long long)epoch, print,
                    end) <= TEI_TICKET_ID_MAX;
}

bool tei_auth_welcome_make(struct tei_auth *a, const SSL *ssl, uint64_t epoch,
                           uint8_t out[AUTH_WELCOME])
{
    X509 *certificate = a->o->SSL_get1_peer_certificate(ssl);
    char id[TEI_TICKET_ID_MAX + 1] = "";
    bool good;

    memset(out, 0, AUTH_WELCOME);
    memcpy(out, welcome_head, sizeof(welcome_head));
    pthread_mutex_lock(&a->lock);
    good = certificate && name_ticket(a, certificate, epoch, id) &&
           make_key(a, id, strlen(id), out + 8 + TEI_TICKET_ID_MAX) &&
           tei_auth_seen_add(a, a->certs, id + PRINT_AT, certificate);
    pthread_mutex_unlock(&a->lock);
    a->o->X509_free(certificate);
    out[4] = (uint8_t)strlen(id);
    memcpy(out + 8, id, strlen(id));
    tei_secret_burn();
    return good;
}

struct tei_ticket *tei_auth_welcome_read(const uint8_t in[AUTH_WELCOME], uint64_t epoch)
{
    const char *id = (const char *)in + 8;
    size_t len = in[4];
    struct tei_ticket *t;

    if (memcmp(in, welcome_head, sizeof(welcome_head)) != 0 || len > TEI_TICKET_ID_MAX ||
        !tei_auth_is_id(id, len))
        return NULL;
    t = tei_ticket_new(id, len, in + 8 + TEI_TICKET_ID_MAX);
    if (t)
        t->epoch = epoch;
    return t;
}

/* Takes a name of ours apart, as far as it is of use. */
static bool read_name(const char *id, size_t len, uint64_t *epoch, long long *end)
{
    char text[TEI_TICKET_ID_MAX + 1];
    unsigned long long number;
    int at = 0;

    if (len > TEI_TICKET_ID_MAX)
        return false;
    memcpy(text, id, len);
    text[len] = '\0';
    if (sscanf(text, "%16llx.%*32[0-9a-f].%lld%n", &number, end, &at) != 2 || at < PRINT_END ||
        text[PRINT_AT - 1] != '.' || text[PRINT_END] != '.')
        return false;
    *epoch = number;
    return (size_t)at == len;
}

bool tei_auth_ticket_key(const struct tei_auth *a, const char *id, size_t len,
                         uint8_t key[TEI_TICKET_KEY], X509 **certificate,
                         enum tei_auth_cause *cause)
{
    uint64_t epoch;
    long long end;

    *cause = TEI_AUTH_MALFORMED;
    if (!read_name(id, len, &epoch, &end))
        return false;
    *cause = TEI_AUTH_TICKET;
    *certificate = tei_auth_seen(a->certs, id + PRINT_AT);
    if (epoch != a->certs->epoch || !*certificate)
        return false;
    *cause = TEI_AUTH_EXPIRED;
    if (end < tei_wall_ms() / 1000)
        return false;
    *cause = TEI_AUTH_N_CAUSES;
    return make_key(a, id, len, key);
}
