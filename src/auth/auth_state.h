/* SPDX-License-Identifier: Apache-2.0 */
/* auth_state.h - what the files of src/auth share. Private to it. */
#ifndef TEI_AUTH_STATE_H
#define TEI_AUTH_STATE_H

#include "auth/auth_certs.h"
#include "auth/auth_keys.h"
#include "auth/auth_library.h"

#include <pthread.h>

#define AUTH_NETS_MAX 64
#define AUTH_LISTS    8

/* An address and how many of its bits count, as IPv6: IPv4 is mapped. */
struct auth_net {
    uint8_t address[16];
    unsigned bits;
};

/* The files that are read again when they have changed: with psk the first alone. */
enum auth_file_index { AUTH_KEYS = 0, AUTH_CA = 0, AUTH_CERT, AUTH_PRIVATE, AUTH_CRL, AUTH_FILES };

struct auth_stamps {
    struct auth_stamp of[AUTH_FILES]; /* zeros where there is no such file */
};

struct tei_auth {
    const struct auth_library *o;
    uint64_t instance;
    bool is_mtls;
    char paths[AUTH_FILES][TEI_CONF_LONG]; /* "": none */
    SSL_CTX *server, *client;              /* with psk; with mtls they are those of `certs` */
    BIO_METHOD *socket;
    struct auth_net nets[AUTH_NETS_MAX];
    size_t n_nets;

    /* Of tei_auth_look(). */
    struct auth_stamps stamps, kept_stamps; /* of what is in use; of what last could not be taken */
    int kept_for;                           /* why that could not */
    bool is_missing;                        /* a file could not be looked at, which was told */

    pthread_mutex_t lock;                /* the rest */
    struct auth_file *keys;              /* psk */
    struct auth_certs *certs;            /* mtls */
    struct auth_name *names;             /* of tei_auth_name() */
    struct tei_allow *lists[AUTH_LISTS]; /* that were read last: one text is mostly read often */
    unsigned next_list;
    uint64_t counts[TEI_AUTH_N_CAUSES];
    int64_t told_ns[TEI_AUTH_N_CAUSES];
};

/* ---- auth.c */
enum auth_use { AUTH_USE_TLS, AUTH_USE_DATA, AUTH_USE_HOST };
/*
 * The key of a peer's id, or of a ticket of ours, for one use, and, unless `who` is NULL, who that is. False, and *cause,
 * if there is none; TEI_AUTH_N_CAUSES: libcrypto has failed, or memory is out.
 */
bool tei_auth_key(struct tei_auth *a, enum auth_use use, const char *id, size_t len,
                  uint8_t key[TEI_AUTH_PROOF], struct tei_who **who, enum tei_auth_cause *cause);
/* The same of our own id, or of the peer's ticket, which is written to `id`. False: libcrypto has failed. */
bool tei_auth_own_key(struct tei_auth *a, enum auth_use use, const struct tei_ticket *ticket,
                      char id[TEI_AUTH_ID_MAX + 1], uint8_t key[TEI_AUTH_PROOF]);

/* ---- auth_bytes.c */
/* HMAC-SHA256. False: libcrypto has failed. */
bool tei_auth_hmac(const struct tei_auth *a, const uint8_t *key, size_t key_len, const void *bytes,
                   size_t n, uint8_t out[TEI_AUTH_PROOF]);

/* ---- auth_who.c */
/* Those that are kept. */
void tei_auth_lists_free(struct tei_auth *a);
/* A peer with that id, or that certificate, whose reference it takes one more of. NULL: no memory. */
struct tei_who *tei_auth_who_new(const struct tei_auth *a, const char *id, size_t len,
                                 X509 *certificate);

/* ---- auth_certificate.c */
/* The text of its subject. */
void tei_auth_subject(const struct auth_library *o, const X509 *certificate,
                      char out[AUTH_SUBJECT]);
/* Whether it is of a name: the whole of it, or the host in HOST:PORT. */
bool tei_auth_certificate_is_of(const struct auth_library *o, X509 *certificate, const char *name);
/* A certificate that a ticket is given for, by the AUTH_PRINT digits of it; lock held. False: no memory. */
bool tei_auth_seen_add(const struct tei_auth *a, struct auth_certs *c, const char *print,
                       X509 *certificate);
/* Borrowed, lock held; NULL: there is none, or others have taken its place. */
X509 *tei_auth_seen(const struct auth_certs *c, const char *print);
void tei_auth_seen_forget(const struct tei_auth *a, struct auth_certs *c);

/* ---- auth_nets.c */
/* TE_AUTH_CLASSIC: "10.0.0.0/8,fd00::/8". TE_ERR_INVALID, logged. */
int tei_auth_nets_parse(const char *text, struct auth_net *nets, size_t *n);
bool tei_auth_nets_have(const struct auth_net *nets, size_t n, const struct tei_addr *peer);

/* ---- auth_tls.c */
int tei_auth_tls_open(struct tei_auth *a);
/* Contexts of TLS 1.3 and our protocol by which nobody is known yet. TE_ERR_UNSUPPORTED; what was made is the caller's. */
int tei_auth_tls_contexts(struct tei_auth *a, SSL_CTX **server, SSL_CTX **client);
void tei_auth_tls_close(struct tei_auth *a);

#endif
