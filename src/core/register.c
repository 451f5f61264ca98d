/* SPDX-License-Identifier: Apache-2.0 */
/*
 * register.c - registering memory, with the map and with the transports.
 *
 * Unregistering fences peers before it returns: the region leaves the map, then each transport ends
 * the served requests that are still inside (region_del), and only then is the struct freed. A
 * transport that cannot, since a peer's process is stopped while it writes, says so: then all is put
 * back.
 */
#include "core/register.h"
#include "auth/auth.h"
#include "core/core.h"
#include "core/install.h"
#include "core/stage.h"
#include "plat/plat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static int leave_transports(struct transports *set, struct tei_region *r, size_t n)
{
    size_t i = n;
    int rc = 0;

    while (!rc && i-- > 0)
        if (set->list[i])
            rc = set->list[i]->ops.region_del(set->list[i], r);
    for (i++; rc && i < n; i++)
        if (set->list[i] && join_one(set->list[i], r))
            TEI_WARN("transport %s has lost a region that had to be put back",
                     set->list[i]->ops.name);
    return rc;
}

static int join_transports(struct transports *s, struct tei_region *r)
{
    for (size_t i = 0; i < s->n; i++) {
        int rc = s->list[i] ? join_one(s->list[i], r) : 0;

        if (rc) {
            leave_transports(s, r, i);
            return rc;
        }
    }
    return 0;
}

/* The list changes under admin alone, which the caller holds: the transport may take its time. */
int tei_register_join(te_engine *e, struct tei_transport *t)
{
    struct tei_region *stage = tei_stage_region(e);
    struct tei_link *link, *tmp;
    int rc = 0;

    TEI_LIST_EACH(&e->regions.by_addr, link, tmp) {
        rc = join_one(t, tei_container_of(link, struct tei_region, link));
        if (rc)
            return rc;
    }
    return stage ? join_one(t, stage) : 0;
}

void tei_register_leave(te_engine *e, struct tei_transport *t)
{
    struct tei_region *stage = tei_stage_region(e);
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&e->regions.by_addr, link, tmp) {
        struct tei_region *r = tei_container_of(link, struct tei_region, link);

        t->ops.region_del(t, r);
        r->keys[t->index] = NULL; /* if that was refused: the next one at the index finds none */
    }
    if (stage)
        t->ops.region_del(t, stage);
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

/* Whether a NIC priority matrix that was given has a row for it: then it means something. */
static bool is_in_matrix(const struct matrix *s, const char *location)
{
    for (size_t i = 0; s->given && i < s->given->n_rows; i++)
        if (strcmp(s->given->rows[i].location, location) == 0)
            return true;
    return false;
}

/* A node that was given must be there. One that was found to be is not looked for again. */
static int check_node(te_engine *e, const char *location)
{
    int rc;

    if (!location || strcmp(location, e->regions.node_there) == 0 ||
        is_in_matrix(&e->matrix, location))
        return 0;
    rc = tei_numa_check(e->conf.sysfs_path, location);
    if (!rc)
        snprintf(e->regions.node_there, sizeof(e->regions.node_there), "%s", location);
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
        tei_transports_know(&e->transports, TEI_MEM_BIT(m.kind) | (m.fabric ? TEI_KIND_FABRIC : 0));
    return rc;
}

/* Whether a transport to other hosts gets at it. */
static bool reaches(const struct tei_transport *t, const struct tei_region *r)
{
    unsigned kind = TEI_MEM_BIT(r->kind);

    if (r->allow && !(t->ops.caps & TEI_CAP_LEASES)) /* it could not tell who asks */
        return false;
    return (t->ops.target_kinds & kind) &&
           (!(t->ops.mem_kinds & kind) || (r->direct & (1u << t->index)));
}

/* Whether peers on other hosts get at none of it: nothing can be told where there is no way to other hosts. */
static bool is_stranded(const struct transports *s, const struct tei_region *r)
{
    bool stranded = false;

    for (size_t i = 0; i < s->n; i++) {
        const struct tei_transport *t = s->list[i];

        if (!t || !(t->ops.caps & TEI_CAP_REMOTE) || (t->ops.caps & TEI_CAP_DEVICE))
            continue;
        if (reaches(t, r))
            return false;
        stranded = true;
    }
    return stranded;
}

/* Not what each transport to other hosts reaches. */
static bool is_special(const struct tei_region *r)
{
    return r->kind != TEI_MEM_HOST || r->allow;
}

/* How memory is registered. */
struct terms {
    const char *location;
    unsigned access;
    struct tei_allow *allow; /* who alone has it; NULL: all peers */
};

static int add_region(te_engine *e, void *addr, size_t length, const struct terms *by)
{
    struct tei_region *r;
    int rc = check_range(addr, length, by->access);

    if (rc)
        return rc;
    r = calloc(1, sizeof(*r));
    if (!r)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a region");
    r->addr = (uintptr_t)addr;
    r->length = length;
    r->access = by->allow ? 0 : by->access;
    r->allowed = by->allow ? by->access : 0;
    r->allow = tei_allow_get(by->allow);
    rc = tei_region_check_free(&e->regions, r);
    if (!rc)
        rc = find_memory(e, r, by->location);
    if (rc)
        goto err_free;
    rc = join_transports(&e->transports, r);
    if (rc)
        goto err_free;
    rc = tei_region_insert(&e->regions, r);
    if (rc)
        goto err_leave;
    if (is_special(r) && is_stranded(&e->transports, r))
        tei_transports_know(&e->transports, TEI_KIND_STRANDED);
    return 0;

err_leave:
    leave_transports(&e->transports, r, e->transports.n);
err_free:
    tei_region_free(r);
    return rc;
}

static int del_region(te_engine *e, const void *addr)
{
    struct tei_region *r = NULL;
    int rc = tei_region_hide(&e->regions, addr, &r);

    if (rc)
        return rc;
    rc = leave_transports(&e->transports, r, e->transports.n);
    if (rc)
        tei_region_show_again(&e->regions, r);
    else
        tei_region_erase(&e->regions, r);
    return rc;
}

/* Fails for a reason that was told, and says what the caller has left to do. */
static int fail_with_rest(int error, const char *why, size_t left)
{
    if (left == 0)
        return tei_err_keep(error, why);
    return TEI_FAIL(
        error, "%.800s; requests use %s already, so %zu region%s registered: te_unregister() %s",
        why, left == 1 ? "it" : "them", left, left == 1 ? " stays" : "s stay",
        left == 1 ? "it" : "them");
}

/* Another one of them is refused, for which the error is. What is in use already stays. */
static void give_up(te_engine *e, const te_buffer *bufs, size_t n, int error)
{
    size_t left = 0;
    char why[1024];

    snprintf(why, sizeof(why), "%s", te_errmsg());
    while (n-- > 0)
        left += del_region(e, bufs[n].addr) != 0;
    (void)fail_with_rest(error, why, left);
    if (left)
        tei_publish_later(e);
}

/* Puts all that were hidden back, the ones before `end`, which have left the transports, there, too. */
static void show_all_again(te_engine *e, struct tei_list *hidden, const struct tei_link *end)
{
    struct transports *set = &e->transports;
    struct tei_link *link, *tmp;
    bool left = true;

    TEI_LIST_EACH(hidden, link, tmp) {
        struct tei_region *r = tei_container_of(link, struct tei_region, link);

        left = left && link != end;
        for (size_t i = 0; left && i < set->n; i++)
            if (set->list[i] && join_one(set->list[i], r))
                TEI_WARN("transport %s has lost a region that had to be put back",
                         set->list[i]->ops.name);
        tei_list_del(link);
        tei_region_show_again(&e->regions, r);
    }
}

/* Takes out all of these that are there; or none, if one of them is in use. */
static int del_all(te_engine *e, const te_buffer *bufs, size_t n)
{
    struct tei_link *link, *tmp;
    struct tei_list hidden;
    int rc;

    tei_list_init(&hidden);
    rc = tei_region_hide_all(&e->regions, bufs, n, &hidden);
    if (rc)
        return rc;
    TEI_LIST_EACH(&hidden, link, tmp) {
        rc = leave_transports(&e->transports, tei_container_of(link, struct tei_region, link),
                              e->transports.n);
        if (rc) {
            show_all_again(e, &hidden, link);
            return rc;
        }
    }
    TEI_LIST_EACH(&hidden, link, tmp) {
        tei_region_erase(&e->regions, tei_container_of(link, struct tei_region, link));
    }
    return 0;
}

/*
 * The directory has not taken them. What is in use already cannot be taken back, so all stay then: that
 * is no failure where the server is only away, since it is told later.
 */
static int undo(te_engine *e, const te_buffer *bufs, size_t n, int error)
{
    char why[1024];

    snprintf(why, sizeof(why), "%s", te_errmsg());
    if (del_all(e, bufs, n) == 0)
        return fail_with_rest(error, why, 0);
    if (error != TE_ERR_METADATA && error != TE_ERR_TIMEOUT)
        return fail_with_rest(error, why, n);
    TEI_WARN("the region at %p, or one registered with it, is in use already and stays registered; "
             "peers find it by the metadata server later",
             bufs[0].addr);
    return 0;
}

int tei_register_own(te_engine *e, void *addr, size_t length, struct tei_region **out)
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
        rc = join_transports(&e->transports, r);
    if (rc)
        free(r);
    else
        *out = r;
    return rc;
}

void tei_register_find_stranded(te_engine *e)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&e->regions.by_addr, link, tmp) {
        const struct tei_region *r = tei_container_of(link, struct tei_region, link);

        if (is_special(r) && is_stranded(&e->transports, r))
            tei_transports_know(&e->transports, TEI_KIND_STRANDED);
    }
}

static int register_all(te_engine *e, const te_buffer *bufs, size_t n, const struct terms *by)
{
    char before[1024];
    bool more = false; /* transports than before */
    int rc = 0;

    snprintf(before, sizeof(before), "%s", te_errmsg());
    pthread_mutex_lock(&e->admin);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = add_region(e, bufs[i].addr, bufs[i].length, by);
        if (rc)
            give_up(e, bufs, i, rc);
    }
    if (!rc)
        more = tei_install_for_devices(e);
    pthread_mutex_unlock(&e->admin);
    if (!rc) /* what drivers and transports have said of things that are not there is no error */
        tei_err_keep(TE_ERR_OK, before);
    if (!rc && by->access == TE_LOCAL_ONLY && more)
        tei_publish_later(e);
    if (rc || by->access == TE_LOCAL_ONLY)
        return rc;
    rc = tei_publish(e, n);
    if (rc) {
        pthread_mutex_lock(&e->admin);
        rc = undo(e, bufs, n, rc);
        pthread_mutex_unlock(&e->admin);
        if (!rc)
            tei_err_keep(TE_ERR_OK, before);
        tei_publish_later(e);
    }
    return rc;
}

static int check_call(te_engine *e, const te_buffer *bufs, size_t n)
{
    int rc = tei_engine_check(e);

    return !rc && n && !bufs ? TEI_FAIL(TE_ERR_INVALID, "the array of buffers is NULL") : rc;
}

int te_register_batch(te_engine *e, const te_buffer *bufs, size_t n, const char *location,
                      unsigned access)
{
    int rc = check_call(e, bufs, n);

    return rc || n == 0
               ? rc
               : register_all(e, bufs, n, &(struct terms){.location = location, .access = access});
}

int te_register_allow(te_engine *e, const te_buffer *bufs, size_t n, const char *location,
                      unsigned access, const char *allow)
{
    struct terms by = {.location = location, .access = access};
    int rc = check_call(e, bufs, n);

    if (!rc && access == TE_LOCAL_ONLY)
        rc =
            TEI_FAIL(TE_ERR_INVALID,
                     "memory for some peers, who may do nothing: access is 0; give TE_REMOTE_READ, "
                     "TE_REMOTE_WRITE or both");
    if (!rc)
        rc = tei_allow_read(e->conf.identity, allow, &by.allow);
    if (!rc && n)
        rc = register_all(e, bufs, n, &by);
    tei_allow_put(by.allow);
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
    if (gone && (tei_keep_is_down(&e->keeper) || tei_publish(e, gone) != 0))
        tei_publish_later(e);
    return rc;
}

int te_unregister(te_engine *e, void *addr)
{
    return te_unregister_batch(e, &addr, 1);
}
