/* SPDX-License-Identifier: Apache-2.0 */
/* auth_proof.c - proofs on connections that are no TLS: HMAC-SHA256 over what both sides have said. */
#include "auth/auth_state.h"

#include <string.h>

struct tei_proof {
    const struct tei_auth *a;
    struct tei_who *who; /* a server: whom it is to be of */
    uint8_t key[TEI_AUTH_PROOF];
    bool too_long;
    size_t n;
    uint8_t said[1 + TEI_PROOF_BYTES]; /* the side, then the bytes */
};

static struct tei_proof *make(struct tei_auth *a)
{
    struct tei_proof *p = tei_secret_alloc(sizeof(*p));

    if (p)
        p->a = a;
    return p;
}

static enum auth_use use_of(enum tei_proof_use use)
{
    return use == TEI_PROOF_DATA ? AUTH_USE_DATA : AUTH_USE_HOST;
}

struct tei_proof *tei_proof_client(struct tei_auth *a, enum tei_proof_use use,
                                   const struct tei_ticket *ticket, char id[TEI_AUTH_ID_MAX + 1])
{
    struct tei_proof *p = make(a);

    if (p && tei_auth_own_key(a, use_of(use), ticket, id, p->key))
        return p;
    tei_proof_free(p);
    return NULL;
}

struct tei_proof *tei_proof_server(struct tei_auth *a, enum tei_proof_use use, const char *id,
                                   size_t len, enum tei_auth_cause *cause)
{
    struct tei_proof *p = make(a);

    *cause = TEI_AUTH_N_CAUSES;
    if (p && tei_auth_key(a, use_of(use), id, len, p->key, &p->who, cause))
        return p;
    tei_proof_free(p);
    return NULL;
}

struct tei_who *tei_proof_take_who(struct tei_proof *p)
{
    struct tei_who *who = p->who;

    p->who = NULL;
    return who;
}

void tei_proof_free(struct tei_proof *p)
{
    if (p)
        tei_who_free(p->who);
    tei_secret_free(p, sizeof(*p));
}

void tei_proof_add(struct tei_proof *p, const void *bytes, size_t n)
{
    if (n > TEI_PROOF_BYTES - p->n) {
        p->too_long = true;
        return;
    }
    memcpy(p->said + 1 + p->n, bytes, n);
    p->n += n;
}

bool tei_proof_make(const struct tei_proof *p, enum tei_proof_side side,
                    uint8_t out[TEI_AUTH_PROOF])
{
    uint8_t said[sizeof(p->said)];
    bool good;

    said[0] = side == TEI_PROOF_CLIENT ? 'c' : 's';
    memcpy(said + 1, p->said + 1, p->n);
    good = !p->too_long && tei_auth_hmac(p->a, p->key, sizeof(p->key), said, 1 + p->n, out);
    tei_secret_burn();
    return good;
}

bool tei_proof_check(const struct tei_proof *p, enum tei_proof_side side,
                     const uint8_t proof[TEI_AUTH_PROOF])
{
    uint8_t right[TEI_AUTH_PROOF];
    bool good =
        tei_proof_make(p, side, right) && p->a->o->CRYPTO_memcmp(right, proof, sizeof(right)) == 0;

    explicit_bzero(right, sizeof(right));
    return good;
}
