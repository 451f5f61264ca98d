/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counter.c - the counters of a target: te_counter_create() and what follows.
 *
 * A counter is the sum of shares, one for each adder that has ever raised it. A share keeps the largest total that has
 * come from its adder. So a message that comes twice, or after a later one, changes nothing.
 *
 * The set's lock is held to find a counter, which is counted then, and to take it out; the counter's own for all that
 * changes. Messages come on te/ctl, which therefore waits for nothing here.
 */
#include "core/counter.h"
#include "base/hash.h"
#include "core/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define COUNTERS_MAX 65536
#define SHARES_MAX   4096
#define SHARES_ALL   (1 << 20) /* of all counters of an engine */

struct share {
    struct tei_count_from from;
    uint64_t total;
    UT_hash_handle hh;
};

struct counter {
    _Atomic unsigned refs; /* the set's, and those of calls */
    uint64_t id, secret;
    pthread_mutex_t lock; /* of all below but for the name */
    pthread_cond_t changed;
    uint64_t value;
    struct share *shares; /* a hash table */
    int fd;               /* -1 until asked for */
    uint64_t fd_from;     /* it is readable from that value on */
    bool gone;
    UT_hash_handle hh; /* in counter_set.by_name */
    char name[];
};

/* -------------------------------------------------------------------------------------- the set */

void tei_counters_init(struct counter_set *s)
{
    pthread_mutex_init(&s->lock, NULL);
    tei_handles_init(&s->ids);
}

static void put(struct counter_set *set, struct counter *c)
{
    struct share *s, *tmp;

    if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
        return;
    HASH_ITER(hh, c->shares, s, tmp) {
        HASH_DEL(c->shares, s);
        free(s);
        atomic_fetch_sub_explicit(&set->shares, 1, memory_order_relaxed);
    }
    if (c->fd >= 0)
        tei_fd_close(c->fd);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* Out of the set, whose lock is held: nobody else finds it. */
static void take_out(struct counter_set *s, struct counter *c)
{
    HASH_DEL(s->by_name, c);
    (void)tei_handles_del(&s->ids, c->id, 0);
    put(s, c);
}

void tei_counters_fini(struct counter_set *s)
{
    struct counter *c, *tmp;

    HASH_ITER(hh, s->by_name, c, tmp) {
        take_out(s, c);
    }
    tei_handles_fini(&s->ids);
    pthread_mutex_destroy(&s->lock);
}

/* Held; NULL if there is none. */
static struct counter *find(struct counter_set *s, uint64_t id)
{
    struct counter *c;

    pthread_mutex_lock(&s->lock);
    c = tei_handles_pin(&s->ids, id);
    if (c) {
        atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
        tei_handles_unpin(&s->ids, id);
    }
    pthread_mutex_unlock(&s->lock);
    return c;
}

/* The same for a call of the program. */
static int find_own(te_engine *e, te_counter id, struct counter **out)
{
    int rc = tei_engine_check(e);

    if (rc)
        return rc;
    *out = find(&e->counters, id);
    return *out ? 0
                : TEI_FAIL(TE_ERR_NOT_FOUND, "counter %llu does not exist", (unsigned long long)id);
}

/* --------------------------------------------------------------------------- making and ending one */

static struct counter *make(const char *name)
{
    size_t len = strlen(name) + 1;
    struct counter *c = calloc(1, sizeof(*c) + len);

    if (!c)
        return NULL;
    memcpy(c->name, name, len);
    atomic_init(&c->refs, 1);
    c->secret = tei_random_u64();
    c->fd = -1;
    pthread_mutex_init(&c->lock, NULL);
    tei_cond_init(&c->changed);
    return c;
}

/* The set's lock is held. */
static int add(struct counter_set *s, struct counter *c)
{
    struct counter *other;
    int rc;

    HASH_FIND_STR(s->by_name, c->name, other);
    if (other)
        return TEI_FAIL(TE_ERR_EXISTS, "there is a counter '%s'; te_counter_destroy() ends it",
                        c->name);
    if (HASH_COUNT(s->by_name) >= COUNTERS_MAX)
        return TEI_FAIL(TE_ERR_TOO_MANY, "there are %d counters; te_counter_destroy() ends one",
                        COUNTERS_MAX);
    rc = tei_handles_add(&s->ids, c, &c->id);
    if (!rc && !TEI_HASH_ADD(s->by_name, c->name, strlen(c->name), c)) {
        (void)tei_handles_del(&s->ids, c->id, 0);
        rc = TE_ERR_MEMORY;
    }
    return rc ? TEI_FAIL(rc, "no memory for a counter") : 0;
}

int te_counter_create(te_engine *e, const char *name, te_counter *out)
{
    struct counter *c;
    int rc = tei_engine_check(e);

    if (!rc && !out)
        rc = TEI_FAIL(TE_ERR_INVALID, "the place for the counter is NULL");
    if (!rc)
        rc = tei_count_name_check(name);
    if (rc)
        return rc;
    c = make(name);
    if (!c)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a counter");
    pthread_mutex_lock(&e->counters.lock);
    rc = add(&e->counters, c);
    if (!rc)
        *out = c->id;
    pthread_mutex_unlock(&e->counters.lock);
    if (rc)
        put(&e->counters, c);
    return rc;
}

int te_counter_destroy(te_engine *e, te_counter id)
{
    struct counter *c;
    int rc = find_own(e, id, &c);
    bool gone;

    if (rc)
        return rc;
    pthread_mutex_lock(&c->lock);
    gone = c->gone;
    c->gone = true;
    if (c->fd >= 0)
        tei_fd_close(c->fd);
    c->fd = -1;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (!gone) {
        pthread_mutex_lock(&e->counters.lock);
        take_out(&e->counters, c);
        pthread_mutex_unlock(&e->counters.lock);
    }
    put(&e->counters, c);
    return gone ? TEI_FAIL(TE_ERR_NOT_FOUND, "another thread is ending this counter") : 0;
}

/* -------------------------------------------------------------------------------- what it is worth */

int te_counter_value(te_engine *e, te_counter id, uint64_t *value)
{
    struct counter *c;
    int rc = find_own(e, id, &c);

    if (rc)
        return rc;
    if (value) {
        pthread_mutex_lock(&c->lock);
        *value = c->value;
        pthread_mutex_unlock(&c->lock);
    } else {
        rc = TEI_FAIL(TE_ERR_INVALID, "the place for the value is NULL");
    }
    put(&e->counters, c);
    return rc;
}

int te_counter_wait(te_engine *e, te_counter id, uint64_t at_least, int64_t timeout_ms)
{
    int64_t deadline_ns = tei_deadline_ns(timeout_ms);
    struct counter *c;
    bool in_time = true;
    int rc = find_own(e, id, &c);

    if (rc)
        return rc;
    pthread_mutex_lock(&c->lock);
    while (c->value < at_least && !c->gone && in_time)
        in_time = tei_cond_wait_until(&c->changed, &c->lock, deadline_ns);
    if (c->gone)
        rc = TEI_FAIL(TE_ERR_CANCELED, "counter '%s' was destroyed", c->name);
    else if (c->value < at_least)
        rc = TEI_FAIL(TE_ERR_TIMEOUT, "counter '%s' is %llu, not yet %llu", c->name,
                      (unsigned long long)c->value, (unsigned long long)at_least);
    pthread_mutex_unlock(&c->lock);
    put(&e->counters, c);
    return rc;
}

/* The lock is held. Writing cannot fail: the descriptor's own count is far from full. */
static void tell_fd(const struct counter *c)
{
    uint64_t one = 1;

    if (c->fd >= 0 && c->value >= c->fd_from)
        (void)!write(c->fd, &one, sizeof(one));
}

static int set_fd(struct counter *c, uint64_t at_least)
{
    uint64_t told;

    if (c->gone)
        return TEI_FAIL(TE_ERR_CANCELED, "counter '%s' was destroyed", c->name);
    if (c->fd < 0)
        c->fd = tei_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (c->fd < 0)
        return TEI_FAIL(TE_ERR_SYSTEM, "eventfd: %s", tei_errno_text(errno));
    c->fd_from = at_least;
    (void)!read(c->fd, &told, sizeof(told));
    tell_fd(c);
    return c->fd;
}

int te_counter_fd(te_engine *e, te_counter id, uint64_t at_least)
{
    struct counter *c;
    int rc = find_own(e, id, &c);

    if (rc)
        return rc;
    pthread_mutex_lock(&c->lock);
    rc = set_fd(c, at_least);
    pthread_mutex_unlock(&c->lock);
    put(&e->counters, c);
    return rc;
}

/* ------------------------------------------------------------------------------ what is added to it */

int tei_counter_key(struct counter_set *s, const char *name, struct tei_count_key *out)
{
    const struct counter *c;

    pthread_mutex_lock(&s->lock);
    HASH_FIND_STR(s->by_name, name, c);
    if (c)
        *out = (struct tei_count_key){c->id, c->secret};
    pthread_mutex_unlock(&s->lock);
    return c ? 0 : TE_ERR_NOT_FOUND;
}

/* The lock is held; NULL, and why in *rc. */
static struct share *share_of(struct counter_set *s, struct counter *c,
                              const struct tei_count_from *from, int *rc)
{
    struct share *share;

    HASH_FIND(hh, c->shares, from, sizeof(*from), share);
    *rc = !share && HASH_COUNT(c->shares) >= SHARES_MAX ? TE_ERR_REJECTED : 0;
    if (share || *rc)
        return share;
    *rc = TE_ERR_MEMORY;
    if (atomic_load_explicit(&s->shares, memory_order_relaxed) >= SHARES_ALL)
        return NULL;
    share = calloc(1, sizeof(*share));
    if (!share)
        return NULL;
    share->from = *from;
    if (TEI_HASH_ADD(c->shares, &share->from, sizeof(share->from), share)) {
        *rc = 0;
        atomic_fetch_add_explicit(&s->shares, 1, memory_order_relaxed);
        return share;
    }
    free(share);
    return NULL;
}

/* The lock is held. */
static int rise(struct counter_set *s, struct counter *c, const struct tei_count *m)
{
    struct share *share;
    uint64_t more;
    int rc;

    if (m->total == 0)
        return 0;
    share = share_of(s, c, &m->from, &rc);
    if (!share || m->total <= share->total)
        return rc;
    more = m->total - share->total;
    share->total = m->total;
    c->value = more > UINT64_MAX - c->value ? UINT64_MAX : c->value + more;
    pthread_cond_broadcast(&c->changed);
    tell_fd(c);
    return 0;
}

int tei_counter_take(struct counter_set *s, const struct tei_count *m)
{
    struct counter *c = find(s, m->key.id);
    int rc;

    if (!c)
        return TE_ERR_STALE;
    pthread_mutex_lock(&c->lock);
    rc = c->secret == m->key.secret && !c->gone ? rise(s, c, m) : TE_ERR_STALE;
    pthread_mutex_unlock(&c->lock);
    put(s, c);
    return rc;
}
