/* SPDX-License-Identifier: Apache-2.0 */
/* alloc.c - te_alloc(): memory of the host and of devices. */
#include "core/alloc.h"
#include "core/core.h"
#include "plat/plat.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct alloc {
    void *addr;
    size_t length;
    enum tei_mem_kind kind;
    UT_hash_handle hh;
};

int tei_location_device(const char *location, int *device)
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

    if (kind != TEI_MEM_CUDA)
        return kind == TEI_MEM_HIP && !e->conf.use_hip_ipc;
    pthread_rwlock_rdlock(&e->transports.lock);
    for (size_t i = 0; i < e->transports.n; i++)
        is_told |= e->transports.list[i] && (e->transports.list[i]->ops.beside & TEI_KIND_FABRIC);
    pthread_rwlock_unlock(&e->transports.lock);
    return is_told && !e->conf.use_nvlink_ipc;
}

static int alloc_on_device(te_engine *e, struct alloc *a, const char *location)
{
    int device = 0, rc = tei_location_device(location, &device);
    bool fabric;

    if (!rc && a->kind == TEI_MEM_OTHER)
        rc = TEI_FAIL(
            TE_ERR_UNSUPPORTED,
            "location '%.64s': only cpu, cuda, hip, npu (ascend), musa, maca and supa have "
            "memory here",
            location);
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
    pthread_mutex_lock(&e->allocs.lock);
    kept = TEI_HASH_ADD(e->allocs.all, &a->addr, sizeof(a->addr), a);
    pthread_mutex_unlock(&e->allocs.lock);
    if (!kept) {
        free_memory(a);
        free(a);
        return TEI_FAIL(TE_ERR_MEMORY, "no memory");
    }
    *out = a->addr;
    return 0;
}

int te_free(te_engine *e, void *addr)
{
    struct alloc *a = NULL;
    bool busy = false;
    int rc = tei_engine_check(e);

    if (rc || !addr)
        return rc;
    pthread_mutex_lock(&e->allocs.lock);
    HASH_FIND_PTR(e->allocs.all, &addr, a);
    if (a)
        busy = tei_region_is_here((uintptr_t)a->addr, a->length);
    if (a && !busy)
        HASH_DEL(e->allocs.all, a);
    pthread_mutex_unlock(&e->allocs.lock);
    if (!a)
        return TEI_FAIL(TE_ERR_NOT_FOUND, "%p is not from te_alloc()", addr);
    if (busy)
        return TEI_FAIL(TE_ERR_BUSY, "%p is registered; te_unregister() it first", addr);
    free_memory(a);
    free(a);
    return 0;
}

void tei_allocs_init(struct allocs *s)
{
    pthread_mutex_init(&s->lock, NULL);
}

void tei_allocs_fini(struct allocs *s)
{
    struct alloc *a, *tmp;

    HASH_ITER(hh, s->all, a, tmp) {
        HASH_DEL(s->all, a);
        free_memory(a);
        free(a);
    }
    pthread_mutex_destroy(&s->lock);
}
