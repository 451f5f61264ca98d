/* SPDX-License-Identifier: Apache-2.0 */
/* lease.h - leases, te_lease.h: those that this engine has granted, and the key that its own requests show. */
#ifndef TEI_LEASE_H
#define TEI_LEASE_H

#include "base/pool.h"
#include "core/beside.h"
#include "core/rules.h"
#include "transport/transport.h"

struct leases {
    struct tei_handles ids; /* pinned: a peer's request is inside */
    struct tei_pool pool;
    _Atomic uint64_t numbers;          /* used so far, of leases that could not be made, too */
    _Atomic uint64_t granted, revoked; /* so far */
    pthread_mutex_t lock;              /* of the next, while it is made */
    /* That keys are made from; NULL: none was granted so far. Not changed after that. */
    _Atomic(uint8_t *) secret;
};

void tei_leases_init(struct leases *s);
/* Frees those that are left. */
void tei_leases_fini(struct leases *s);

/* struct tei_host ops. */
int tei_lease_hold(struct tei_host *h, const te_lease_key *key, struct tei_who *who,
                   const struct tei_lease **out);
void tei_lease_release(struct tei_host *h, const struct tei_lease *l);

/* Forbids the transports that show no keys. */
void tei_lease_rules(struct rules *x);
/* Whether it is no key of any lease: all zeros, which stands for none here. */
static inline bool tei_lease_is_none(const te_lease_key *key)
{
    static const te_lease_key none;

    return memcmp(key, &none, sizeof(none)) == 0;
}

/* The key that a task shows, for as long as its batch lives; NULL: none. */
static inline const te_lease_key *tei_lease_key_of(const struct task *t)
{
    const te_lease_key *key = tei_beside_of(t, BESIDE_LEASE, sizeof(*key));

    return key && !tei_lease_is_none(key) ? key : NULL;
}

#endif
