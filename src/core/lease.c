/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.c - te_lease.h, at the target.
 *
 * A lease is found by its id, and a request that is inside has it pinned: who revokes marks it, so that no further one
 * comes in, and has the transports end those that are inside until the last pin is gone. A request that pinned it before
 * it was marked, and looks at the mark too early, is seen by its pin, and ended like the others.
 *
 * The key is the id and, in 16 bytes, what SipHash makes of it and of the number of leases before it, with a secret
 * of the engine: so no grant asks the kernel for random bytes, and a key is good for one lease, also once its id is
 * used again.
 */
#include "core/lease.h"
#include "auth/auth.h"
#include "base/err.h"
#include "base/os.h"
#include "base/secret.h"
#include "base/siphash.h"
#include "core/core.h"

#include <endian.h>
#include <sched.h>
#include <string.h>

struct lease {
    struct tei_lease base; /* first */
    te_lease id;
    uint64_t number;         /* of leases before it */
    uint64_t region;         /* its serial: another one may have its address by now */
    int64_t until_ns;        /* TEI_NEVER */
    struct tei_allow *allow; /* whose it is; NULL: of whoever has the key */
    _Atomic bool revoked;
};

struct key_parts {
    uint8_t id[8]; /* little-endian */
    uint8_t proof[TEI_SIPHASH_LEN];
};
static_assert(sizeof(struct key_parts) == sizeof(te_lease_key), "a key is an id and its proof");

void tei_leases_init(struct leases *s)
{
    tei_handles_init(&s->ids);
    tei_pool_init(&s->pool, sizeof(struct lease));
    pthread_mutex_init(&s->lock, NULL);
}

static void free_lease(struct tei_pool *pool, struct lease *l)
{
    tei_allow_put(l->allow);
    tei_pool_put(pool, l);
}

static void free_one(void *lease, void *arg)
{
    free_lease(arg, lease);
}

void tei_leases_fini(struct leases *s)
{
    tei_handles_each(&s->ids, free_one, &s->pool);
    tei_handles_fini(&s->ids);
    tei_pool_fini(&s->pool);
    pthread_mutex_destroy(&s->lock);
    tei_secret_free(atomic_load_explicit(&s->secret, memory_order_relaxed), TEI_SIPHASH_LEN);
}

void tei_lease_rules(struct rules *x)
{
    const struct tei_transport_ops *ops;

    for (size_t i = 0; (ops = tei_transport_at(i)); i++)
        if (!(ops->caps & TEI_CAP_LEASES))
            x->forbidden |= (uint16_t)(1u << i);
}

/* ------------------------------------------------------------------------------------------ keys */

static const uint8_t *make_secret(struct leases *s)
{
    uint8_t *made;

    pthread_mutex_lock(&s->lock);
    made = atomic_load_explicit(&s->secret, memory_order_relaxed);
    if (!made && (made = tei_secret_alloc(TEI_SIPHASH_LEN))) {
        tei_random(made, TEI_SIPHASH_LEN);
        /* Release: partner of the acquire in secret_of(). */
        atomic_store_explicit(&s->secret, made, memory_order_release);
    }
    pthread_mutex_unlock(&s->lock);
    return made;
}

/* NULL: none was granted so far. */
static const uint8_t *secret_of(struct leases *s)
{
    return atomic_load_explicit(&s->secret, memory_order_acquire);
}

static void make_key(const uint8_t *secret, te_lease id, uint64_t number, te_lease_key *out)
{
    const uint64_t of[] = {htole64(id), htole64(number)};
    struct key_parts parts;

    memcpy(parts.id, &of[0], sizeof(parts.id));
    tei_siphash(secret, of, sizeof(of), parts.proof);
    memcpy(out->bytes, &parts, sizeof(parts));
}

static te_lease id_of(const te_lease_key *key)
{
    uint64_t le;

    memcpy(&le, key->bytes + offsetof(struct key_parts, id), sizeof(le));
    return le64toh(le);
}

/* Takes the same time wherever they differ. */
static bool is_equal(const te_lease_key *a, const te_lease_key *b)
{
    unsigned differ = 0;

    for (size_t i = 0; i < sizeof(a->bytes); i++)
        differ |= (unsigned)(a->bytes[i] ^ b->bytes[i]);
    return differ == 0;
}

/* ------------------------------------------------------------------------------ requests of peers */

static int check(const uint8_t *secret, const struct lease *l, const te_lease_key *key,
                 struct tei_who *who)
{
    te_lease_key good;

    make_key(secret, id_of(key), l->number, &good);
    /* Relaxed: one that is revoked at this moment is found by its pin. */
    if (!is_equal(key, &good) || atomic_load_explicit(&l->revoked, memory_order_relaxed))
        return TE_ERR_NOT_FOUND;
    if (l->allow && !tei_allow_has(l->allow, who))
        return TE_ERR_REJECTED;
    return l->until_ns != TEI_NEVER && tei_now_ns() > l->until_ns ? TE_ERR_TIMEOUT : 0;
}

static int hold_region(struct regions *m, const struct lease *l)
{
    struct tei_region *r;
    int rc = tei_region_hold(m, l->base.addr, l->base.length, 0, NULL, &r);

    if (rc)
        return TE_ERR_NOT_FOUND;
    if (r->serial == l->region)
        return 0;
    tei_region_release(r);
    return TE_ERR_NOT_FOUND;
}

int tei_lease_hold(struct tei_host *h, const te_lease_key *key, struct tei_who *who,
                   const struct tei_lease **out)
{
    te_engine *e = tei_host_engine(h);
    struct leases *s = &e->leases;
    const uint8_t *secret = secret_of(s);
    struct lease *l = secret ? tei_handles_pin(&s->ids, id_of(key)) : NULL;
    int rc;

    if (!l)
        return TE_ERR_NOT_FOUND;
    rc = check(secret, l, key, who);
    if (!rc)
        rc = hold_region(&e->regions, l);
    if (rc)
        tei_handles_unpin(&s->ids, id_of(key));
    else
        *out = &l->base;
    return rc;
}

void tei_lease_release(struct tei_host *h, const struct tei_lease *l)
{
    te_engine *e = tei_host_engine(h);
    const struct lease *mine = (const struct lease *)l;

    tei_handles_unpin(&e->leases.ids, mine->id);
}

/* --------------------------------------------------------------------------------- grant, revoke */

/* What is to be granted, and where its id and its key go. */
struct grant {
    const void *addr;
    size_t length;
    unsigned access;
    int64_t lifetime_ms;
    te_lease *id;
    te_lease_key *key;
};

static int check_grant(const struct grant *g)
{
    if (!g->id || !g->key)
        return TEI_FAIL(TE_ERR_INVALID, "the place for the lease or for its key is NULL");
    if (g->length == 0)
        return TEI_FAIL(TE_ERR_INVALID, "a lease of 0 bytes");
    if (g->access == 0 || (g->access & ~(unsigned)TE_REMOTE_RW))
        return TEI_FAIL(
            TE_ERR_INVALID,
            "access %u of a lease is not TE_REMOTE_READ, TE_REMOTE_WRITE or TE_REMOTE_RW",
            g->access);
    if (g->lifetime_ms < 0)
        return TEI_FAIL(TE_ERR_INVALID, "lifetime_ms %lld of a lease is negative",
                        (long long)g->lifetime_ms);
    return 0;
}

/* Fills in where it lies. */
static int find_region(te_engine *e, struct lease *l)
{
    struct regions *m = &e->regions;
    struct tei_region *r;
    char why[256];

    pthread_rwlock_rdlock(&m->lock);
    r = tei_region_at(m, l->base.addr, l->base.length);
    if (r) {
        l->base.region = r;
        l->region = r->serial;
    }
    pthread_rwlock_unlock(&m->lock);
    if (r)
        return 0;
    return TEI_FAIL(TE_ERR_NOT_REGISTERED, "the range of a lease, 0x%llx + %llu, %s",
                    (unsigned long long)l->base.addr, (unsigned long long)l->base.length,
                    tei_region_why_not(m, l->base.addr, l->base.length, why, sizeof(why)));
}

static int add(struct leases *s, struct lease *l)
{
    int rc = tei_handles_add(&s->ids, l, &l->id);

    if (rc == TE_ERR_TOO_MANY)
        return TEI_FAIL(rc, "too many leases; revoke some with te_revoke()");
    return rc ? TEI_FAIL(rc, "no memory for a lease") : 0;
}

static int make(te_engine *e, const struct grant *g, struct tei_allow *allow)
{
    struct leases *s = &e->leases;
    const uint8_t *secret = secret_of(s);
    struct lease *l;
    int rc;

    if (!secret)
        secret = make_secret(s);
    l = secret ? tei_pool_get(&s->pool) : NULL;
    if (!l)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a lease");
    *l = (struct lease){
        .base = {.addr = (uintptr_t)g->addr, .length = g->length, .access = g->access},
        .number = atomic_fetch_add_explicit(&s->numbers, 1, memory_order_relaxed),
        .until_ns = g->lifetime_ms ? tei_deadline_ns(g->lifetime_ms) : TEI_NEVER,
        .allow = tei_allow_get(allow),
    };
    rc = find_region(e, l);
    if (!rc)
        rc = add(s, l);
    if (rc) {
        free_lease(&s->pool, l);
        return rc;
    }
    atomic_fetch_add_explicit(&s->granted, 1, memory_order_relaxed);
    *g->id = l->id;
    make_key(secret, l->id, l->number, g->key);
    return 0;
}

int te_lease_grant(te_engine *e, void *addr, size_t length, unsigned access, int64_t lifetime_ms,
                   te_lease *out, te_lease_key *key)
{
    const struct grant g = {addr, length, access, lifetime_ms, out, key};
    int rc = tei_engine_check(e);

    if (!rc)
        rc = check_grant(&g);
    return rc ? rc : make(e, &g, NULL);
}

int te_lease_grant_allow(te_engine *e, void *addr, size_t length, unsigned access,
                         int64_t lifetime_ms, const char *allow, te_lease *out, te_lease_key *key)
{
    const struct grant g = {addr, length, access, lifetime_ms, out, key};
    struct tei_allow *list = NULL;
    int rc = tei_engine_check(e);

    if (!rc)
        rc = check_grant(&g);
    if (!rc)
        rc = tei_allow_read(e->conf.identity, allow, &list);
    if (!rc)
        rc = make(e, &g, list);
    tei_allow_put(list);
    return rc;
}

/* Those that peers' requests have come by. */
static void end_served(struct transports *s, const struct lease *l)
{
    pthread_rwlock_rdlock(&s->lock);
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i] && (s->list[i]->ops.caps & TEI_CAP_LEASES))
            s->list[i]->ops.lease_del(s->list[i], &l->base);
    pthread_rwlock_unlock(&s->lock);
}

/* Pinned, for the one who is to end it; NULL: there is none any more, also if another thread has just ended it. */
static struct lease *claim(struct leases *s, te_lease id)
{
    struct lease *l;

    while ((l = tei_handles_pin(&s->ids, id)) &&
           atomic_exchange_explicit(&l->revoked, true, memory_order_relaxed)) {
        tei_handles_unpin(&s->ids, id); /* another thread ends it */
        sched_yield();
    }
    return l;
}

int te_revoke(te_engine *e, te_lease id)
{
    struct leases *s;
    struct lease *l;
    int rc = tei_engine_check(e);

    if (rc)
        return rc;
    s = &e->leases;
    l = claim(s, id);
    if (!l)
        return TEI_FAIL(TE_ERR_NOT_FOUND, "lease %llu does not exist, or was revoked",
                        (unsigned long long)id);
    while (!tei_handles_del(&s->ids, id, 1)) {
        end_served(&e->transports, l);
        sched_yield(); /* to one that has just come, and will see that it is revoked */
    }
    free_lease(&s->pool, l);
    /* Release: who counts it counts it as granted, too. */
    atomic_fetch_add_explicit(&s->revoked, 1, memory_order_release);
    return 0;
}
