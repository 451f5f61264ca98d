/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.c - registered memory.
 *
 * The map is libc's balanced tree (tsearch) whose order makes any two overlapping ranges equal: so
 * one search finds the region at an address, and inserting finds an overlap. Beside it they stand in
 * a list by address, for those who want all of them: no portable walk of the tree takes an argument.
 * Readers (submit, peers' requests) take the lock shared and leave with a count on the region; who
 * unregisters takes it exclusively, so a region that is out of the map gains no users.
 *
 * Unregistering fences peers before it returns: the region leaves the map, then each transport ends
 * the served requests that are still inside (region_del), and only then is the struct freed. A
 * transport that cannot, since a peer's process is stopped while it writes, says so: then all is put
 * back. That must need no memory, so the region keeps its place in the tree until then, and is only not
 * found there.
 */
#include "core/core.h"
#include "plat/plat.h"

#include <assert.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct alloc {
    void *addr;
    size_t length;
    enum tei_mem_kind kind;
    UT_hash_handle hh;
};

/* Ranges that touch are equal. */
static int compare(const void *a, const void *b)
{
    const struct tei_region *x = a, *y = b;

    if (x->addr + (x->length - 1) < y->addr)
        return -1;
    return x->addr > y->addr + (y->length - 1);
}

/* Any region that has a byte of the range, also one that is leaving; the lock is held. */
static struct tei_region *find(te_engine *e, uint64_t addr, uint64_t length)
{
    struct tei_region key = {.addr = (uintptr_t)addr, .length = (size_t)length};
    void *node = tfind(&key, &e->regions, compare);

    return node ? *(struct tei_region **)node : NULL;
}

/* The region at an address. The lock is held. */
static struct tei_region *find_at(te_engine *e, uint64_t addr)
{
    struct tei_region *r = find(e, addr, 1);

    return r && !r->leaving ? r : NULL;
}

/* ---------------------------------------------------------------------------------------- users */

struct tei_region *tei_region_at(te_engine *e, uint64_t addr, uint64_t length)
{
    struct tei_region *r = find_at(e, addr);

    return r && tei_region_contains(r, addr, length) ? r : NULL;
}

struct tei_region *tei_region_hold_local(te_engine *e, uint64_t addr, uint64_t length)
{
    struct tei_region *r;

    pthread_rwlock_rdlock(&e->regions_lock);
    r = tei_region_at(e, addr, length);
    if (r)
        atomic_fetch_add_explicit(&r->local_users, 1, memory_order_relaxed);
    pthread_rwlock_unlock(&e->regions_lock);
    return r;
}

struct tei_region *tei_region_hold_part(te_engine *e, uint64_t addr, uint64_t length,
                                        uint64_t *part)
{
    struct tei_region *r;

    pthread_rwlock_rdlock(&e->regions_lock);
    r = find_at(e, addr);
    if (r) {
        *part = tei_min(length, r->length - (addr - r->addr));
        atomic_fetch_add_explicit(&r->local_users, 1, memory_order_relaxed);
    }
    pthread_rwlock_unlock(&e->regions_lock);
    return r;
}

const char *tei_region_why_not(te_engine *e, uint64_t addr, uint64_t length, char *buf, size_t n)
{
    const struct tei_region *r;

    pthread_rwlock_rdlock(&e->regions_lock);
    r = find_at(e, addr);
    if (r)
        snprintf(buf, n,
                 "is not inside one registered region: region 0x%zx + %zu ends %llu bytes before "
                 "the end of the range",
                 (size_t)r->addr, r->length,
                 (unsigned long long)(length - (r->length - (addr - r->addr))));
    else
        snprintf(buf, n, "is not inside one registered region; te_register() it first");
    pthread_rwlock_unlock(&e->regions_lock);
    return buf;
}

void tei_region_release_local(struct tei_region *r, uint32_t n)
{
    /* Release: partner of the acquire in te_unregister, which may free the region. */
    atomic_fetch_sub_explicit(&r->local_users, n, memory_order_release);
}

int tei_region_hold(struct tei_host *h, uint64_t addr, uint64_t length, unsigned access,
                    struct tei_region **out)
{
    te_engine *e = tei_host_engine(h);
    struct tei_region *r = NULL;
    int rc = TE_ERR_NOT_REGISTERED;

    if (length == 0)
        return rc;
    pthread_rwlock_rdlock(&e->regions_lock);
    r = find_at(e, addr);
    if (r && tei_region_contains(r, addr, length)) {
        rc = (r->access & access) == access ? 0 : TE_ERR_ACCESS;
        if (!rc)
            atomic_fetch_add_explicit(&r->remote_users, 1, memory_order_relaxed);
    }
    pthread_rwlock_unlock(&e->regions_lock);
    if (!rc)
        *out = r;
    return rc;
}

void tei_region_release(struct tei_host *h, struct tei_region *r)
{
    (void)h;
    /* Release: partner of the acquire by which a transport's region_del sees 0. */
    atomic_fetch_sub_explicit(&r->remote_users, 1, memory_order_release);
}

bool tei_region_overlaps(te_engine *e, uint64_t addr, uint64_t length)
{
    bool yes;

    pthread_rwlock_rdlock(&e->regions_lock);
    yes = find(e, addr, length) != NULL;
    pthread_rwlock_unlock(&e->regions_lock);
    return yes;
}

/* ----------------------------------------------------------------------- transports and regions */

/* Memory that it does not reach is none of its business: stage.c is in between. */
static int join_one(struct tei_transport *t, struct tei_region *r)
{
    int rc = t->ops.mem_kinds & TEI_MEM_BIT(r->kind) ? t->ops.region_add(t, r) : TE_ERR_UNSUPPORTED;

    if (!rc)
        atomic_fetch_or_explicit(&r->direct, 1u << t->index, memory_order_relaxed);
    else
        atomic_fetch_and_explicit(&r->direct, ~(1u << t->index), memory_order_relaxed);
    return rc == TE_ERR_UNSUPPORTED && r->kind != TEI_MEM_HOST ? 0 : rc;
}

/* Undoes region_add of the first `n` transports, last first; of none if one of them refuses. */
static int leave_transports(te_engine *e, struct tei_region *r, size_t n)
{
    size_t i = n;
    int rc = 0;

    while (!rc && i-- > 0)
        if (e->transports[i])
            rc = e->transports[i]->ops.region_del(e->transports[i], r);
    for (i++; rc && i < n; i++)
        if (e->transports[i] && join_one(e->transports[i], r))
            TEI_WARN("transport %s has lost a region that had to be put back",
                     e->transports[i]->ops.name);
    return rc;
}

static int join_transports(te_engine *e, struct tei_region *r)
{
    for (size_t i = 0; i < e->n_transports; i++) {
        int rc = e->transports[i] ? join_one(e->transports[i], r) : 0;

        if (rc) {
            leave_transports(e, r, i);
            return rc;
        }
    }
    return 0;
}

/* The list changes under admin alone, which the caller holds: the transport may take its time. */
int tei_region_join(te_engine *e, struct tei_transport *t)
{
    struct tei_link *link, *tmp;
    int rc = 0;

    TEI_LIST_EACH(&e->by_addr, link, tmp) {
        rc = join_one(t, tei_container_of(link, struct tei_region, link));
        if (rc)
            return rc;
    }
    return e->stage_region ? join_one(t, e->stage_region) : 0;
}

void tei_region_leave(te_engine *e, struct tei_transport *t)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&e->by_addr, link, tmp) {
        struct tei_region *r = tei_container_of(link, struct tei_region, link);

        t->ops.region_del(t, r);
        r->keys[t->index] = NULL; /* if that was refused: the next one at the index finds none */
    }
    if (e->stage_region)
        t->ops.region_del(t, e->stage_region);
}

static size_t count_parts(const struct tei_region *r, uint64_t max)
{
    return r->access ? (size_t)((r->length - 1) / max) + 1 : 0;
}

/* The region in parts of at most `max` bytes; returns how many there are. */
static size_t list_parts(const struct tei_region *r, uint64_t max, struct tei_published *out)
{
    size_t n = count_parts(r, max);

    for (size_t i = 0; i < n; i++)
        out[i] = (struct tei_published){.addr = r->addr + i * max,
                                        .length = tei_min(max, r->length - i * max),
                                        .access = r->access,
                                        .location = r->location,
                                        .region = r};
    return n;
}

int tei_region_list(te_engine *e, uint64_t max, struct tei_published **out, size_t *n,
                    uint64_t *version)
{
    struct tei_published *list;
    struct tei_link *link, *tmp;
    size_t total = 0, count = 0;

    *version = atomic_load_explicit(&e->version, memory_order_acquire);
    TEI_LIST_EACH(&e->by_addr, link, tmp) {
        total += count_parts(tei_container_of(link, struct tei_region, link), max);
    }
    list = calloc(total + 1, sizeof(*list));
    if (!list)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to list the regions");
    TEI_LIST_EACH(&e->by_addr, link, tmp) {
        count += list_parts(tei_container_of(link, struct tei_region, link), max, list + count);
    }
    *out = list;
    *n = count;
    return 0;
}

size_t tei_region_buffers(te_engine *e, te_buffer *bufs, size_t n)
{
    struct tei_link *link, *tmp;
    size_t total = 0;

    pthread_rwlock_rdlock(&e->regions_lock);
    TEI_LIST_EACH(&e->by_addr, link, tmp) {
        const struct tei_region *r = tei_container_of(link, struct tei_region, link);

        if (!r->access)
            continue;
        if (bufs && total < n)
            bufs[total] = (te_buffer){.addr = (void *)(uintptr_t)r->addr, .length = r->length};
        total++;
    }
    pthread_rwlock_unlock(&e->regions_lock);
    return total;
}

/* ------------------------------------------------------------------------------------- register */

static int check_range(const void *addr, size_t length, unsigned access)
{
    uint64_t end;

    if (!addr || length == 0 || !tei_add_ok((uintptr_t)addr, length, &end))
        return TEI_FAIL(TE_ERR_INVALID, "region %p + %zu is empty, NULL or wraps", addr, length);
    if (access & ~(unsigned)TE_REMOTE_RW)
        return TEI_FAIL(TE_ERR_INVALID,
                        "access 0x%x has bits besides TE_REMOTE_READ and TE_REMOTE_WRITE", access);
    if (access && end > INT64_MAX)
        return TEI_FAIL(TE_ERR_INVALID,
                        "region %p of %zu bytes cannot be published: JSON numbers of peers end at "
                        "2^63 - 1; register it as TE_LOCAL_ONLY",
                        addr, length);
    return 0;
}

/*
 * Where in the list a region at the address belongs: behind the last one that lies before it. A search
 * finds the topmost region of a range in the tree, and the next one, of what is left, one below that:
 * so there are at most as many searches as the tree is high.
 */
static struct tei_link *place_of(te_engine *e, uint64_t addr)
{
    struct tei_link *place = &e->by_addr.head;
    uint64_t from = 0;
    struct tei_region *r;

    while (from < addr && (r = find(e, from, addr - from))) {
        place = &r->link;
        from = r->addr + r->length;
    }
    return place;
}

/* The map has gained (1) or lost (-1) a region; the lock is held for writing. */
static void count_change(te_engine *e, const struct tei_region *r, int n)
{
    atomic_fetch_add_explicit(&e->n_regions, (size_t)n, memory_order_relaxed);
    atomic_fetch_add_explicit(&e->metrics.registered_bytes, (uint64_t)n * r->length,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&e->version, 1, memory_order_acq_rel);
}

/*
 * Before a transport hears of the region, since some tell peers at once. The map changes under admin
 * alone, so what is free stays so.
 */
static int check_free(te_engine *e, const struct tei_region *r)
{
    const struct tei_region *other = find(e, r->addr, r->length);

    if (!other)
        return 0;
    return TEI_FAIL(TE_ERR_OVERLAP, "region 0x%zx + %zu overlaps the registered 0x%zx + %zu",
                    (size_t)r->addr, r->length, (size_t)other->addr, other->length);
}

/* Puts it in the map, where its range is free. */
static int insert(te_engine *e, struct tei_region *r)
{
    struct tei_link *place;
    void *node;

    pthread_rwlock_wrlock(&e->regions_lock);
    place = place_of(e, r->addr);
    node = tsearch(r, &e->regions, compare);
    if (node) {
        tei_link_insert(place, &r->link);
        count_change(e, r, 1);
    }
    pthread_rwlock_unlock(&e->regions_lock);
    return node ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory for a region");
}

/* Out of the map, but for its place in the tree; the lock is held for writing. */
static void hide(te_engine *e, struct tei_region *r)
{
    r->leaving = true;
    tei_list_del(&r->link);
    e->unregistered++;
    count_change(e, r, -1);
}

static void show_again(te_engine *e, struct tei_region *r)
{
    pthread_rwlock_wrlock(&e->regions_lock);
    r->leaving = false;
    tei_link_insert(place_of(e, r->addr), &r->link);
    count_change(e, r, 1);
    pthread_rwlock_unlock(&e->regions_lock);
}

static void erase(te_engine *e, struct tei_region *r)
{
    pthread_rwlock_wrlock(&e->regions_lock);
    tdelete(r, &e->regions, compare);
    pthread_rwlock_unlock(&e->regions_lock);
    free(r);
}

/* Whether a NIC priority matrix that was given has a row for it: then it means something. */
static bool is_in_matrix(const te_engine *e, const char *location)
{
    for (size_t i = 0; e->matrix && i < e->matrix->n_rows; i++)
        if (strcmp(e->matrix->rows[i].location, location) == 0)
            return true;
    return false;
}

/* A node that was given must be there. One that was found to be is not looked for again. */
static int check_node(te_engine *e, const char *location)
{
    int rc;

    if (!location || strcmp(location, e->node_there) == 0 || is_in_matrix(e, location))
        return 0;
    rc = tei_numa_check(e->conf.sysfs_path, location);
    if (!rc)
        snprintf(e->node_there, sizeof(e->node_there), "%s", location);
    return rc;
}

/* A location that nothing is known of may be a device whose memory this process does not map. */
static bool is_known_host(const struct tei_region *r)
{
    return r->kind == TEI_MEM_HOST &&
           (strcmp(r->location, "*") == 0 || strncmp(r->location, "cpu:", 4) == 0);
}

/* What the region is in. With memory of a device comes what carries it. */
static int find_memory(te_engine *e, struct tei_region *r, const char *location)
{
    struct tei_mem_info m;
    int rc = tei_mem_inspect((void *)r->addr, r->length, &m);

    if (!rc)
        rc = tei_mem_locate((void *)r->addr, location, r->location);
    if (!rc)
        rc = check_node(e, location);
    if (rc)
        return rc;
    r->kind = (uint8_t)m.kind;
    r->device = m.device;
    if (m.kind == TEI_MEM_HOST)
        return is_known_host(r) ? tei_mem_check_mapped(r->addr, r->length) : 0;
    rc = tei_stage_start(e, m.kind);
    if (!rc)
        e->kinds |= TEI_MEM_BIT(m.kind) | (m.fabric ? TEI_KIND_FABRIC : 0);
    return rc;
}

/* Whether peers on other hosts get at it: nothing can be told where there is no way to other hosts. */
static bool is_stranded(const te_engine *e, const struct tei_region *r)
{
    unsigned kind = TEI_MEM_BIT(r->kind);
    bool stranded = false;

    for (size_t i = 0; i < e->n_transports; i++) {
        const struct tei_transport *t = e->transports[i];

        if (!t || !(t->ops.caps & TEI_CAP_REMOTE) || (t->ops.caps & TEI_CAP_DEVICE))
            continue;
        if ((t->ops.target_kinds & kind) && (!(t->ops.mem_kinds & kind) || (r->direct & (1u << i))))
            return false;
        stranded = true;
    }
    return stranded;
}

static int add_region(te_engine *e, void *addr, size_t length, const char *location,
                      unsigned access)
{
    struct tei_region *r;
    int rc = check_range(addr, length, access);

    if (rc)
        return rc;
    r = calloc(1, sizeof(*r));
    if (!r)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a region");
    r->addr = (uintptr_t)addr;
    r->length = length;
    r->access = access;
    rc = check_free(e, r);
    if (!rc)
        rc = find_memory(e, r, location);
    if (rc)
        goto err_free;
    rc = join_transports(e, r);
    if (rc)
        goto err_free;
    rc = insert(e, r);
    if (rc)
        goto err_leave;
    if (r->kind != TEI_MEM_HOST && is_stranded(e, r))
        e->kinds |= TEI_KIND_STRANDED;
    return 0;

err_leave:
    leave_transports(e, r, e->n_transports);
err_free:
    free(r);
    return rc;
}

/* Takes the region that begins at `addr` out of the map, if no request of ours uses it. */
static int take_out(te_engine *e, const void *addr, struct tei_region **out)
{
    struct tei_region *r;
    int rc = 0;

    pthread_rwlock_wrlock(&e->regions_lock);
    r = find(e, (uintptr_t)addr, 1);
    if (!r || r->addr != (uintptr_t)addr)
        rc = TE_ERR_NOT_REGISTERED;
    else if (atomic_load_explicit(&r->local_users, memory_order_acquire))
        rc = TE_ERR_BUSY;
    else
        hide(e, r);
    pthread_rwlock_unlock(&e->regions_lock);
    if (rc == TE_ERR_NOT_REGISTERED)
        return TEI_FAIL(rc, "no region begins at %p", addr);
    if (rc)
        return TEI_FAIL(
            rc, "requests of this engine use the region at %p; wait for them or cancel them", addr);
    *out = r;
    return 0;
}

static int del_region(te_engine *e, const void *addr)
{
    struct tei_region *r = NULL;
    int rc = take_out(e, addr, &r);

    if (rc)
        return rc;
    rc = leave_transports(e, r, e->n_transports);
    if (rc)
        show_again(e, r);
    else
        erase(e, r);
    return rc;
}

static void del_all(te_engine *e, const te_buffer *bufs, size_t n)
{
    while (n-- > 0)
        del_region(e, bufs[n].addr);
}

int tei_region_make_own(te_engine *e, void *addr, size_t length, struct tei_region **out)
{
    struct tei_region *r = calloc(1, sizeof(*r));
    int rc;

    if (!r)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a region");
    r->addr = (uintptr_t)addr;
    r->length = length;
    r->device = -1;
    rc = tei_mem_locate(addr, NULL, r->location);
    if (!rc)
        rc = join_transports(e, r);
    if (rc)
        free(r);
    else
        *out = r;
    return rc;
}

void tei_region_find_stranded(te_engine *e)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&e->by_addr, link, tmp) {
        const struct tei_region *r = tei_container_of(link, struct tei_region, link);

        if (r->kind != TEI_MEM_HOST && is_stranded(e, r))
            e->kinds |= TEI_KIND_STRANDED;
    }
}

int te_register_batch(te_engine *e, const te_buffer *bufs, size_t n, const char *location,
                      unsigned access)
{
    char before[1024];
    bool more = false; /* transports than before */
    int rc = tei_engine_check(e);

    if (!rc && n && !bufs)
        rc = TEI_FAIL(TE_ERR_INVALID, "the array of buffers is NULL");
    if (rc || n == 0)
        return rc;
    snprintf(before, sizeof(before), "%s", te_errmsg());
    pthread_mutex_lock(&e->admin);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = add_region(e, bufs[i].addr, bufs[i].length, location, access);
        if (rc)
            del_all(e, bufs, i);
    }
    if (!rc)
        more = tei_install_for_devices(e);
    pthread_mutex_unlock(&e->admin);
    if (!rc) /* what drivers and transports have said of things that are not there is no error */
        tei_err_keep(TE_ERR_OK, before);
    if (!rc && access == TE_LOCAL_ONLY && more)
        tei_publish_later(e);
    if (rc || access == TE_LOCAL_ONLY)
        return rc;
    rc = tei_publish(e, n);
    if (rc) {
        pthread_mutex_lock(&e->admin);
        del_all(e, bufs, n);
        pthread_mutex_unlock(&e->admin);
        tei_publish_later(e);
    }
    return rc;
}

int te_register(te_engine *e, void *addr, size_t length, const char *location, unsigned access)
{
    te_buffer one = {.addr = addr, .length = length};

    return te_register_batch(e, &one, 1, location, access);
}

int te_unregister_batch(te_engine *e, void *const *addrs, size_t n)
{
    int rc = tei_engine_check(e);
    size_t gone = 0;

    if (!rc && n && !addrs)
        rc = TEI_FAIL(TE_ERR_INVALID, "the array of addresses is NULL");
    if (rc)
        return rc;
    pthread_mutex_lock(&e->admin);
    for (size_t i = 0; i < n; i++) {
        int one = del_region(e, addrs[i]);

        gone += one == 0;
        rc = rc ? rc : one;
    }
    pthread_mutex_unlock(&e->admin);
    /*
     * The memory is safe whatever the directory says, so a server that is away does not fail the
     * call.
     */
    if (gone && (tei_keep_is_down(e) || tei_publish(e, gone) != 0))
        tei_publish_later(e);
    return rc;
}

int te_unregister(te_engine *e, void *addr)
{
    return te_unregister_batch(e, &addr, 1);
}

/* ----------------------------------------------------------------------------------- own memory */

/* "cuda:1"; the number in *device. */
static int read_device(const char *location, int *device)
{
    const char *number = strchr(location, ':') + 1;
    char *end;
    unsigned long n = strtoul(number, &end, 10);

    if (end == number || *end || number[0] == '-' || n > INT_MAX)
        return TEI_FAIL(TE_ERR_INVALID, "location '%.64s' is not like 'cpu:0' or 'cuda:0'",
                        location);
    *device = (int)n;
    return 0;
}

/* Whether it is to be of the sort that goes by another handle than the driver's plain one. */
static bool wants_fabric(te_engine *e, enum tei_mem_kind kind)
{
    bool is_told = false;

    if (kind == TEI_MEM_HIP)
        return !e->conf.use_hip_ipc;
    pthread_rwlock_rdlock(&e->transports_lock);
    for (size_t i = 0; i < e->n_transports; i++)
        is_told |= e->transports[i] && (e->transports[i]->ops.beside & TEI_KIND_FABRIC);
    pthread_rwlock_unlock(&e->transports_lock);
    return is_told && !e->conf.use_nvlink_ipc;
}

static int alloc_on_device(te_engine *e, struct alloc *a, const char *location)
{
    int device = 0, rc = read_device(location, &device);
    bool fabric;

    if (!rc && a->kind == TEI_MEM_OTHER)
        rc = TEI_FAIL(TE_ERR_UNSUPPORTED,
                      "location '%.64s': only cpu, cuda and hip have memory here", location);
    if (rc)
        return rc;
    if (tei_gpu_open(a->kind) != 0)
        return TEI_FAIL(TE_ERR_UNSUPPORTED, "memory at %s: %s", location, te_errmsg());
    fabric = wants_fabric(e, a->kind) && tei_gpu_has_fabric(a->kind, device);
    return tei_gpu_alloc(a->kind, device, a->length, fabric, &a->addr);
}

static void free_memory(const struct alloc *a)
{
    if (a->kind == TEI_MEM_HOST)
        tei_mem_free(a->addr, a->length);
    else
        tei_gpu_free(a->kind, a->addr);
}

enum { ALLOC_OPTS_FIRST_SIZE = TEI_SIZE_UP_TO(te_alloc_opts, flags) };
static_assert(ALLOC_OPTS_FIRST_SIZE <= sizeof(te_alloc_opts), "te_alloc_opts may only grow");

/* What the caller says, over the defaults. */
static int take_alloc_opts(te_alloc_opts *known, const te_alloc_opts *o)
{
    int rc = 0;

    memset(known, 0, sizeof(*known));
    if (o)
        rc = tei_sized_take(known, sizeof(*known), ALLOC_OPTS_FIRST_SIZE, o, "te_alloc_opts");
    if (!rc && known->flags & ~TE_ALLOC_PEERS_READ)
        rc = TEI_FAIL(TE_ERR_INVALID, "te_alloc_opts: flags 0x%x are unknown",
                      known->flags & ~TE_ALLOC_PEERS_READ);
    if (!rc && known->flags && known->location && tei_mem_kind_of(known->location) != TEI_MEM_HOST)
        rc = TEI_FAIL(TE_ERR_UNSUPPORTED, "TE_ALLOC_PEERS_READ is for host memory, not for '%s'",
                      known->location);
    return rc;
}

int te_alloc(te_engine *e, size_t length, const char *location, void **out)
{
    te_alloc_opts opts = {.size = sizeof(opts), .location = location};

    return te_alloc_with(e, length, &opts, out);
}

int te_alloc_with(te_engine *e, size_t length, const te_alloc_opts *opts, void **out)
{
    te_alloc_opts known;
    struct alloc *a;
    bool kept;
    int rc = tei_engine_check(e);

    if (!rc && (!out || length == 0))
        rc = TEI_FAIL(TE_ERR_INVALID, "length is 0 or the place for the address is NULL");
    if (!rc)
        rc = take_alloc_opts(&known, opts);
    if (rc)
        return rc;
    a = calloc(1, sizeof(*a));
    if (!a)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory");
    a->length = length;
    a->kind = known.location ? tei_mem_kind_of(known.location) : TEI_MEM_HOST;
    rc = known.location ? tei_numa_check(e->conf.sysfs_path, known.location) : 0;
    if (!rc)
        rc = a->kind == TEI_MEM_HOST ? tei_mem_alloc(length, known.location,
                                                     known.flags & TE_ALLOC_PEERS_READ, &a->addr)
                                     : alloc_on_device(e, a, known.location);
    if (rc) {
        free(a);
        return rc;
    }
    pthread_mutex_lock(&e->allocs_lock);
    kept = TEI_HASH_ADD(e->allocs, &a->addr, sizeof(a->addr), a);
    pthread_mutex_unlock(&e->allocs_lock);
    if (!kept) {
        free_memory(a);
        free(a);
        return TEI_FAIL(TE_ERR_MEMORY, "no memory");
    }
    *out = a->addr;
    return 0;
}

/*
 * The engines of this process: memory that one has allocated may be registered with another, which goes
 * on serving it, and gives its memfd away, until it is unregistered there.
 */
static pthread_mutex_t here_lock = PTHREAD_MUTEX_INITIALIZER;
static te_engine *here;

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

void tei_region_init(te_engine *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&here_lock);
    e->next_here = here;
    here = e;
    pthread_mutex_unlock(&here_lock);
}

static void leave_here(const te_engine *e)
{
    te_engine **at = &here;

    pthread_mutex_lock(&here_lock);
    while (*at != e)
        at = &(*at)->next_here;
    *at = e->next_here;
    pthread_mutex_unlock(&here_lock);
}

static bool is_registered_here(const struct alloc *a)
{
    bool yes = false;

    pthread_mutex_lock(&here_lock);
    for (te_engine *e = here; e && !yes; e = e->next_here)
        yes = tei_region_overlaps(e, (uintptr_t)a->addr, a->length);
    pthread_mutex_unlock(&here_lock);
    return yes;
}

int te_free(te_engine *e, void *addr)
{
    struct alloc *a = NULL;
    bool busy = false;
    int rc = tei_engine_check(e);

    if (rc || !addr)
        return rc;
    pthread_mutex_lock(&e->allocs_lock);
    HASH_FIND_PTR(e->allocs, &addr, a);
    if (a)
        busy = is_registered_here(a);
    if (a && !busy)
        HASH_DEL(e->allocs, a);
    pthread_mutex_unlock(&e->allocs_lock);
    if (!a)
        return TEI_FAIL(TE_ERR_NOT_FOUND, "%p is not from te_alloc()", addr);
    if (busy)
        return TEI_FAIL(TE_ERR_BUSY, "%p is registered; te_unregister() it first", addr);
    free_memory(a);
    free(a);
    return 0;
}

void tei_region_fini(te_engine *e)
{
    struct alloc *a, *tmp;

    leave_here(e);
    tdestroy(e->regions, free);
    e->regions = NULL;
    HASH_ITER(hh, e->allocs, a, tmp) {
        HASH_DEL(e->allocs, a);
        free_memory(a);
        free(a);
    }
}
