/* SPDX-License-Identifier: Apache-2.0 */
/* auth_who.h - who a peer has proved to be, and lists of those who may do something; part of auth.h. */
#ifndef TEI_AUTH_WHO_H
#define TEI_AUTH_WHO_H

#include <stdbool.h>
#include <stddef.h>

struct tei_auth;
struct tei_proof;
struct tei_secure;

/* Whom a connection is of. One thread's at a time. */
struct tei_who;

/* Of the client that a good proof is of; the caller's. Once for each proof. */
struct tei_who *tei_proof_take_who(struct tei_proof *p);
/* Of the client of a handshake that is done; the caller's. NULL: memory is out. */
struct tei_who *tei_secure_who(const struct tei_secure *s);
/* Whether it may say that it is of that name; with pre-shared keys everybody may, and so may NULL, who needs no proof. */
bool tei_who_may_be(const struct tei_who *w, const char *name);
/* "id 'a'", for texts; of NULL, too. Returns buf. */
const char *tei_who_text(const struct tei_who *w, char *buf, size_t n);
/* NULL is accepted. */
void tei_who_free(struct tei_who *w);

/* A list of peers; not changed once it is made. Counted, by any thread. */
struct tei_allow;

/*
 * Reads "NAME,NAME": ids of the key file, with certificates their names. `a` is NULL with TE_AUTH=off. TE_ERR_INVALID,
 * TE_ERR_MEMORY; TE_ERR_UNSUPPORTED: nobody is known here.
 */
int tei_allow_read(struct tei_auth *a, const char *text, struct tei_allow **out);
/* NULL is accepted, and given back. */
struct tei_allow *tei_allow_get(struct tei_allow *x);
void tei_allow_put(struct tei_allow *x);
/* Whether it names that peer. A `who` of NULL is nobody. */
bool tei_allow_has(const struct tei_allow *x, struct tei_who *who);

#endif
