/* SPDX-License-Identifier: Apache-2.0 */
/* auth_secure.h - a connection of the handshake port, as the files that make one up see it. Private to src/auth. */
#ifndef TEI_AUTH_SECURE_H
#define TEI_AUTH_SECURE_H

#include "auth/auth_state.h"

#define AUTH_INSTANCE     16 /* digits */
#define AUTH_IDENTITY_MAX (4 + TEI_AUTH_ID_MAX + 1 + AUTH_INSTANCE)

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
    char id[TEI_AUTH_ID_MAX + 1]; /* psk: the client's */
    char identity[AUTH_IDENTITY_MAX + 1];
    /* With certificates. */
    uint64_t epoch; /* of the contexts that it began with */
    const char *expected;
    bool is_another;   /* a client: the server is not the one that is expected */
    bool has_welcome;  /* `welcome` is made */
    size_t n_welcomed; /* sent, received */
    uint8_t welcome[AUTH_WELCOME];
    struct tei_ticket *ticket;
};

static inline struct tei_secure *auth_secure_of(const SSL *ssl)
{
    return tei_auth_library.SSL_get_ex_data(ssl, 0);
}

/* ---- auth_psk.c */
/* Contexts by which whoever has a key of the key file is known. */
void tei_auth_psk_use(const struct tei_auth *a, SSL_CTX *server, SSL_CTX *client);

#endif
