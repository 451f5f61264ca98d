/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.c - the map of registered memory.
 *
 * It is libc's balanced tree (tsearch) whose order makes any two overlapping ranges equal: so one
 * search finds the region at an address, and inserting finds an overlap. Beside it they stand in a list
 * by address, for those who want all of them: no portable walk of the tree takes an argument. Readers
 * (submit, peers' requests) take the lock shared and leave with a count on the region; who unregisters
 * takes it exclusively, so a region that is out of the map gains no users.
 *
 * A region that is hidden keeps its place in the tree until it is erased, and is only not found there:
 * to show it again needs no memory.
 */
#include "core/region.h"
#include "auth/auth.h"
#include "base/base.h"
#include "base/err.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * The engines of this process: memory that one has allocated may be registered with another, which goes
 * on serving it, and gives its memfd away, until it is unregistered there.
 */
static pthread_mutex_t here_lock = PTHREAD_MUTEX_INITIALIZER;
static struct regions *here;

/* Ranges that touch are equal. */
static int compare(const void *a, const void *b)
{
    const struct tei_region *x = a, *y = b;

    if (x->addr + (x->length - 1) < y->addr)
        return -1;
    return x->addr > y->addr + (y->length - 1);
}

/* Any region that has a byte of the range, also one that is leaving; the lock is held. */
static struct tei_region *find(struct regions *m, uint64_t addr, uint64_t length)
{
    struct tei_region key = {.addr = (uintptr_t)addr, .length = (size_t)length};
    void *node = tfind(&key, &m->tree, compare);

    return node ? *(struct tei_region **)node : NULL;
}

/* The region at an address. The lock is held. */
static struct tei_region *find_at(struct regions *m, uint64_t addr)
{
    struct tei_region *r = find(m, addr, 1);

    return r && !r->leaving ? r : NULL;
}

/* ---------------------------------------------------------------------------------------- users */

struct tei_region *tei_region_at(struct regions *m, uint64_t addr, uint64_t length)
{
    struct tei_region *r = find_at(m, addr);

    return r && tei_region_contains(r, addr, length) ? r : NULL;
}

struct tei_region *tei_region_hold_local(struct regions *m, uint64_t addr, uint64_t length)
{
    struct tei_region *r;

    pthread_rwlock_rdlock(&m->lock);
    r = tei_region_at(m, addr, length);
    if (r)
        atomic_fetch_add_explicit(&r->local_users, 1, memory_order_relaxed);
    pthread_rwlock_unlock(&m->lock);
    return r;
}

struct tei_region *tei_region_hold_part(struct regions *m, uint64_t addr, uint64_t length,
                                        uint64_t *part)
{
    struct tei_region *r;

    pthread_rwlock_rdlock(&m->lock);
    r = find_at(m, addr);
    if (r) {
        *part = tei_min(length, r->length - (addr - r->addr));
        atomic_fetch_add_explicit(&r->local_users, 1, memory_order_relaxed);
    }
    pthread_rwlock_unlock(&m->lock);
    return r;
}

const char *tei_region_why_not(struct regions *m, uint64_t addr, uint64_t length, char *buf,
                               size_t n)
{
    const struct tei_region *r;

    pthread_rwlock_rdlock(&m->lock);
    r = find_at(m, addr);
    if (r)
        snprintf(buf, n,
                 "is not inside one registered region: region 0x%zx + %zu ends %llu bytes before "
                 "the end of the range",
                 (size_t)r->addr, r->length,
                 (unsigned long long)(length - (r->length - (addr - r->addr))));
    else
        snprintf(buf, n, "is not inside one registered region; te_register() it first");
    pthread_rwlock_unlock(&m->lock);
    return buf;
}

void tei_region_release_local(struct tei_region *r, uint32_t n)
{
    /* Release: partner of the acquire in te_unregister, which may free the region. */
    atomic_fetch_sub_explicit(&r->local_users, n, memory_order_release);
}

static int check_access(const struct tei_region *r, unsigned access, struct tei_who *who)
{
    if ((r->access & access) == access)
        return 0;
    if (!r->allow || (r->allowed & access) != access)
        return TE_ERR_ACCESS;
    return tei_allow_has(r->allow, who) ? 0 : TE_ERR_REJECTED;
}

int tei_region_hold(struct regions *m, uint64_t addr, uint64_t length, unsigned access,
                    struct tei_who *who, struct tei_region **out)
{
    struct tei_region *r = NULL;
    int rc = TE_ERR_NOT_REGISTERED;

    if (length == 0)
        return rc;
    pthread_rwlock_rdlock(&m->lock);
    r = find_at(m, addr);
    if (r && tei_region_contains(r, addr, length)) {
        rc = check_access(r, access, who);
        if (!rc)
            atomic_fetch_add_explicit(&r->remote_users, 1, memory_order_relaxed);
    }
    pthread_rwlock_unlock(&m->lock);
    if (!rc)
        *out = r;
    return rc;
}

void tei_region_release(struct tei_region *r)
{
    /* Release: partner of the acquire by which a transport's region_del sees 0. */
    atomic_fetch_sub_explicit(&r->remote_users, 1, memory_order_release);
}

/* ---------------------------------------------------------------------------------------- lists */

static bool is_told(const struct tei_region *r, const struct reader *by)
{
    return r->access || (r->allow && (!by || tei_allow_has(r->allow, by->who)));
}

static size_t count_parts(const struct tei_region *r, const struct reader *by, uint64_t max)
{
    return is_told(r, by) ? (size_t)((r->length - 1) / max) + 1 : 0;
}

/* The region in parts of at most `max` bytes; returns how many there are. */
static size_t list_parts(const struct tei_region *r, const struct reader *by, uint64_t max,
                         struct tei_published *out)
{
    size_t n = count_parts(r, by, max);

    for (size_t i = 0; i < n; i++)
        out[i] = (struct tei_published){.addr = r->addr + i * max,
                                        .length = tei_min(max, r->length - i * max),
                                        .access = r->access | r->allowed,
                                        .location = r->location,
                                        .region = r};
    return n;
}

int tei_region_list(struct regions *m, const struct reader *by, uint64_t max,
                    struct tei_published **out, size_t *n, uint64_t *version)
{
    struct tei_published *list;
    struct tei_link *link, *tmp;
    size_t total = 0, count = 0;

    *version = atomic_load_explicit(m->version, memory_order_acquire);
    /* For one peer there may be fewer; that is looked at once. */
    TEI_LIST_EACH(&m->by_addr, link, tmp) {
        total += count_parts(tei_container_of(link, struct tei_region, link), NULL, max);
    }
    list = calloc(total + 1, sizeof(*list));
    if (!list)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to list the regions");
    TEI_LIST_EACH(&m->by_addr, link, tmp) {
        count += list_parts(tei_container_of(link, struct tei_region, link), by, max, list + count);
    }
    *out = list;
    *n = count;
    return 0;
}

size_t tei_region_buffers(struct regions *m, te_buffer *bufs, size_t n)
{
    struct tei_link *link, *tmp;
    size_t total = 0;

    pthread_rwlock_rdlock(&m->lock);
    TEI_LIST_EACH(&m->by_addr, link, tmp) {
        const struct tei_region *r = tei_container_of(link, struct tei_region, link);

        if (!is_told(r, NULL))
            continue;
        if (bufs && total < n)
            bufs[total] = (te_buffer){.addr = (void *)(uintptr_t)r->addr, .length = r->length};
        total++;
    }
    pthread_rwlock_unlock(&m->lock);
    return total;
}
bool tei_region_is_here(uint64_t addr, uint64_t length)
{
    bool yes = false;

    pthread_mutex_lock(&here_lock);
    for (struct regions *m = here; m && !yes; m = m->next_here) {
        pthread_rwlock_rdlock(&m->lock);
        yes = find(m, addr, length) != NULL;
        pthread_rwlock_unlock(&m->lock);
    }
    pthread_mutex_unlock(&here_lock);
    return yes;
}

/* -------------------------------------------------------------------------------------- changes */

/*
 * Where in the list a region at the address belongs: behind the last one that lies before it. A search
 * finds the topmost region of a range in the tree, and the next one, of what is left, one below that:
 * so there are at most as many searches as the tree is high.
 */
static struct tei_link *place_of(struct regions *m, uint64_t addr)
{
    struct tei_link *place = &m->by_addr.head;
    uint64_t from = 0;
    struct tei_region *r;

    while (from < addr && (r = find(m, from, addr - from))) {
        place = &r->link;
        from = r->addr + r->length;
    }
    return place;
}

/* The map has gained (1) or lost (-1) a region; the lock is held for writing. */
static void count_change(struct regions *m, const struct tei_region *r, int n)
{
    atomic_fetch_add_explicit(&m->n, (size_t)n, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->bytes, n > 0 ? r->length : -(uint64_t)r->length,
                              memory_order_relaxed);
    if (r->allow)
        atomic_fetch_add_explicit(&m->n_allowed, (size_t)n, memory_order_relaxed);
    atomic_fetch_add_explicit(m->version, 1, memory_order_acq_rel);
}

/*
 * Before a transport hears of the region, since some tell peers at once. The map changes under admin
 * alone, so what is free stays so.
 */
int tei_region_check_free(struct regions *m, const struct tei_region *r)
{
    const struct tei_region *other = find(m, r->addr, r->length);

    if (!other)
        return 0;
    return TEI_FAIL(TE_ERR_OVERLAP, "region 0x%zx + %zu overlaps the registered 0x%zx + %zu",
                    (size_t)r->addr, r->length, (size_t)other->addr, other->length);
}

int tei_region_insert(struct regions *m, struct tei_region *r)
{
    struct tei_link *place;
    void *node;

    pthread_rwlock_wrlock(&m->lock);
    place = place_of(m, r->addr);
    r->serial = ++m->inserted;
    node = tsearch(r, &m->tree, compare);
    if (node) {
        tei_link_insert(place, &r->link);
        count_change(m, r, 1);
        atomic_fetch_add_explicit(&m->bytes_added, r->length, memory_order_relaxed);
    }
    pthread_rwlock_unlock(&m->lock);
    return node ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory for a region");
}

/* Out of the map, but for its place in the tree; the lock is held for writing. */
static void hide(struct regions *m, struct tei_region *r)
{
    r->leaving = true;
    tei_list_del(&r->link);
    m->unregistered++;
    count_change(m, r, -1);
}

void tei_region_show_again(struct regions *m, struct tei_region *r)
{
    pthread_rwlock_wrlock(&m->lock);
    r->leaving = false;
    tei_link_insert(place_of(m, r->addr), &r->link);
    count_change(m, r, 1);
    pthread_rwlock_unlock(&m->lock);
}

void tei_region_erase(struct regions *m, struct tei_region *r)
{
    pthread_rwlock_wrlock(&m->lock);
    tdelete(r, &m->tree, compare);
    pthread_rwlock_unlock(&m->lock);
    atomic_fetch_add_explicit(&m->bytes_gone, r->length, memory_order_relaxed);
    tei_region_free(r);
}

int tei_region_hide(struct regions *m, const void *addr, struct tei_region **out)
{
    struct tei_region *r;
    int rc = 0;

    pthread_rwlock_wrlock(&m->lock);
    r = find(m, (uintptr_t)addr, 1);
    if (!r || r->addr != (uintptr_t)addr)
        rc = TE_ERR_NOT_REGISTERED;
    else if (atomic_load_explicit(&r->local_users, memory_order_acquire))
        rc = TE_ERR_BUSY;
    else
        hide(m, r);
    pthread_rwlock_unlock(&m->lock);
    if (rc == TE_ERR_NOT_REGISTERED)
        return TEI_FAIL(rc, "no region begins at %p", addr);
    if (rc)
        return TEI_FAIL(
            rc, "requests of this engine use the region at %p; wait for them or cancel them", addr);
    *out = r;
    return 0;
}

/* They are marked first, so that a walk of the list puts them into `out` in order of address. */
int tei_region_hide_all(struct regions *m, const te_buffer *bufs, size_t n, struct tei_list *out)
{
    struct tei_link *link, *tmp;
    bool busy = false;

    pthread_rwlock_wrlock(&m->lock);
    for (size_t i = 0; i < n && !busy; i++) {
        const struct tei_region *r = find(m, (uintptr_t)bufs[i].addr, 1);

        busy = r && atomic_load_explicit(&r->local_users, memory_order_acquire);
    }
    for (size_t i = 0; i < n && !busy; i++) {
        struct tei_region *r = find(m, (uintptr_t)bufs[i].addr, 1);

        if (r && r->addr == (uintptr_t)bufs[i].addr)
            r->leaving = true;
    }
    TEI_LIST_EACH(&m->by_addr, link, tmp) {
        struct tei_region *r = tei_container_of(link, struct tei_region, link);

        if (r->leaving) {
            hide(m, r);
            tei_list_push_back(out, link);
        }
    }
    pthread_rwlock_unlock(&m->lock);
    return busy ? TE_ERR_BUSY : 0;
}

/* --------------------------------------------------------------------------------------- lifetime */

void tei_region_free(struct tei_region *r)
{
    tei_allow_put(r->allow);
    free(r);
}

static void free_node(void *r)
{
    tei_region_free(r);
}

/* A forked child has no engine, and nobody there holds the lock. */
static void forget_in_child(void)
{
    pthread_mutex_init(&here_lock, NULL);
    here = NULL;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_in_child);
}

void tei_regions_init(struct regions *m, _Atomic uint64_t *version)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_rwlock_init(&m->lock, NULL);
    tei_list_init(&m->by_addr);
    m->version = version;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&here_lock);
    m->next_here = here;
    here = m;
    pthread_mutex_unlock(&here_lock);
}

void tei_regions_fini(struct regions *m)
{
    struct regions **at = &here;

    pthread_mutex_lock(&here_lock);
    while (*at != m)
        at = &(*at)->next_here;
    *at = m->next_here;
    pthread_mutex_unlock(&here_lock);
    tdestroy(m->tree, free_node);
    pthread_rwlock_destroy(&m->lock);
}
