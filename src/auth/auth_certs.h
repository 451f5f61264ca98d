/* SPDX-License-Identifier: Apache-2.0 */
/* auth_certs.h - TE_AUTH=mtls: certificates, and tickets for other ports; see auth_certs.c. Private to src/auth. */
#ifndef TEI_AUTH_CERTS_H
#define TEI_AUTH_CERTS_H

#include "auth/auth.h"
#include "auth/auth_library.h"

#define AUTH_SUBJECT 256
#define AUTH_PRINT   32 /* digits of a certificate's SHA-256 in a ticket's name */

struct auth_seen;

/* What was made of the files of TE_AUTH_CA, _CERT, _KEY and _CRL as they were; but for `seen` never changed. */
struct auth_certs {
    SSL_CTX *server, *client;
    uint64_t epoch;             /* of tickets, given and got: those of other ones are of no use */
    uint8_t *master;            /* TEI_AUTH_PROOF bytes, of which the keys of tickets are made */
    char subject[AUTH_SUBJECT]; /* of our certificate */
    struct auth_seen *seen;     /* whom tickets were given for; under the lock of tei_auth */
};

/* Reads the files. TE_ERR_INVALID; TE_ERR_MEMORY or TE_ERR_SYSTEM: another time they may be read. */
int tei_auth_certs_read(struct tei_auth *a, struct auth_certs **out);
/* NULL is accepted. */
void tei_auth_certs_free(const struct tei_auth *a, struct auth_certs *c);

/* The text of the subject of the other side's certificate; "nobody" if it has shown none. */
void tei_auth_certs_subject(const struct tei_auth *a, const SSL *ssl, char out[AUTH_SUBJECT]);
/* Whether that certificate is of a name, as tei_auth_certificate_is_of() has it. */
bool tei_auth_certs_is_of(const struct tei_auth *a, const SSL *ssl, const char *name);
/* Why libssl did not take it; `reason` is libssl's of the handshake. */
enum tei_auth_cause tei_auth_certs_cause(const struct tei_auth *a, const SSL *ssl, int reason);

/*
 * The first bytes that a server sends on such a connection: a ticket for the client, which it alone has. 8 bytes of head,
 * the id, the key.
 */
#define AUTH_WELCOME (8 + TEI_TICKET_ID_MAX + TEI_TICKET_KEY)
/* For a connection that began in this epoch. False: libcrypto has failed. */
bool tei_auth_welcome_make(struct tei_auth *a, const SSL *ssl, uint64_t epoch,
                           uint8_t out[AUTH_WELCOME]);
/* The same at the client. NULL: it is none, or memory is out. */
struct tei_ticket *tei_auth_welcome_read(const uint8_t in[AUTH_WELCOME], uint64_t epoch);

/*
 * The key of a ticket that we have given, and the certificate that it was given for, for as long as the lock is held.
 * False, and *cause; TEI_AUTH_N_CAUSES: libcrypto has failed. Lock held.
 */
bool tei_auth_ticket_key(const struct tei_auth *a, const char *id, size_t len,
                         uint8_t key[TEI_TICKET_KEY], X509 **certificate,
                         enum tei_auth_cause *cause);

#endif
