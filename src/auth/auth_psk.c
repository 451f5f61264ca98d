/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth_psk.c - TE_AUTH=psk on the handshake port: identities and keys in TLS.
 *
 * The only way in is the PSK with an ephemeral Diffie-Hellman exchange (psk_dhe_ke): neither side has a certificate or
 * takes one. The identity that goes out is "te1 ID INSTANCE": the instance is this engine's alone, and bound by the
 * handshake, so a server that meets its own has been sent what it said itself, and refuses it (RFC 9257, 5.1). The key
 * is not that of the file, but one made of it for this use (auth.c).
 */
#include "auth/auth_secure.h"

#include <stdio.h>
#include <string.h>

#define PREFIX    "te1 "
#define SHOWN_MAX 2 /* one identity in a ClientHello, and again in one that is asked for */

static const unsigned char cipher[2] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256: the PSK's hash */

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
    struct tei_secure *s = auth_secure_of(ssl);
    uint8_t key[TEI_AUTH_PROOF];

    (void)hash; /* of the only cipher suites that are offered */
    *session = NULL;
    if (!tei_auth_own_key(s->a, AUTH_USE_TLS, NULL, s->id, key))
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
    const size_t before = strlen(PREFIX), behind = 1 + AUTH_INSTANCE;

    if (len <= before + behind || len > AUTH_IDENTITY_MAX || memcmp(text, PREFIX, before) != 0 ||
        text[len - behind] != ' ')
        return false;
    *id = text + before;
    *id_len = len - before - behind;
    *instance = 0;
    for (size_t i = len - AUTH_INSTANCE; i < len; i++) {
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
    if (tei_auth_key(s->a, AUTH_USE_TLS, id, id_len, key, NULL, &s->cause)) {
        memcpy(s->id, id, id_len);
        s->id[id_len] = '\0';
        return FOUND;
    }
    return s->cause == TEI_AUTH_OWN ? IS_OUR_OWN : NOT_FOUND;
}

/*
 * The server is shown an identity. Without a key for it the handshake goes on, and ends, since there is no
 * certificate either: the client is told handshake_failure; its own reflection, internal_error, and so is one
 * that shows many: each costs us a search.
 */
static int on_find(SSL *ssl, const unsigned char *identity, size_t len, SSL_SESSION **session)
{
    struct tei_secure *s = auth_secure_of(ssl);
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

void tei_auth_psk_use(const struct tei_auth *a, SSL_CTX *server, SSL_CTX *client)
{
    a->o->SSL_CTX_set_verify(client, SSL_VERIFY_PEER, NULL); /* it trusts no certificate */
    a->o->SSL_CTX_set_psk_find_session_callback(server, on_find);
    a->o->SSL_CTX_set_psk_use_session_callback(client, on_use);
}
