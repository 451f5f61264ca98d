/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_share.c - memory of devices, of two sorts, and handles of it for other processes.
 *
 * An allocation of the driver (cuMemAlloc, hipMalloc) has an IPC handle. Memory for the fabric is
 * physical memory, created for export and mapped at reserved addresses; who imports its handle maps
 * the same memory. What this process has made or imported stands in one list, which knows how each
 * is to be undone.
 */
#include "plat/gpu.h"

#include "base/err.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum how { ALLOCATED, MAPPED, OPENED };

struct held {
    struct held *next;
    void *addr;
    size_t size; /* MAPPED */
    enum tei_mem_kind kind;
    int device;
    enum how how;
    uint8_t handle[TEI_GPU_HANDLE]; /* OPENED */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct held *all;

static void hold(struct held *h)
{
    pthread_mutex_lock(&lock);
    h->next = all;
    all = h;
    pthread_mutex_unlock(&lock);
}

/* NULL if there is none at that address. */
static struct held *let_go(enum tei_mem_kind kind, const void *addr)
{
    struct held **at = &all, *h;

    pthread_mutex_lock(&lock);
    while (*at && ((*at)->addr != addr || (*at)->kind != kind))
        at = &(*at)->next;
    h = *at;
    if (h)
        *at = h->next;
    pthread_mutex_unlock(&lock);
    return h;
}

/* Gives back what is no longer in the list; the device has been entered. The driver's status. */
static int undo(const struct tei_driver *row, const struct held *h)
{
    switch (h->how) {
    case MAPPED:
        row->api->unmap(row, h->addr, h->size);
        return 0;
    case OPENED:
        return row->api->ipc_close(row, h->addr, h->handle);
    case ALLOCATED:
    default:
        return row->api->free(row, h->addr);
    }
}

static void end(struct held *h)
{
    int was, status;
    const struct tei_driver *row = tei_driver_open(h->kind);

    if (tei_gpu_enter(h->kind, h->device, &was) == 0) {
        status = undo(row, h);
        row->api->leave(row, was);
        if (status)
            TEI_WARN("giving back memory of %s:%d: %s", row->name, h->device,
                     tei_gpu_why(row, status));
    }
    free(h);
}

/* ---------------------------------------------------------------------------------------- mapping */

static bool round_up(size_t length, size_t unit, size_t *out)
{
    uint64_t sum;

    if (unit == 0 || !tei_add_ok(length, unit - 1, &sum))
        return false;
    *out = sum / unit * unit;
    return true;
}

/* Maps a piece, for its device at least. The driver's status. */
static int map_piece(struct held *h, uint64_t piece)
{
    const struct tei_driver *row = tei_driver_open(h->kind);
    int status = row->api->map(row, piece, h->size, &h->addr);

    if (status)
        return status;
    status = row->api->allow(row, h->addr, h->size, h->device);
    if (status) {
        row->api->unmap(row, h->addr, h->size);
        h->addr = NULL; /* nothing is left to be undone */
        return status;
    }
    for (int i = 0; i < tei_gpu_count(h->kind); i++)
        if (i != h->device)
            (void)row->api->allow(row, h->addr, h->size, i);
    return 0;
}

/* Maps a piece of this length, rounded up: a new one, or that which a peer's handle leads to. */
static int make_mapped(struct held *h, size_t length, const uint8_t *handle)
{
    const struct tei_driver *row = tei_driver_open(h->kind);
    uint64_t piece;
    size_t unit;
    int status = row->api->granularity(row, h->device, &unit);

    if (status)
        return status;
    if (!round_up(length, unit, &h->size))
        return handle ? TEI_GPU_NOT_SUPPORTED : TEI_GPU_OUT_OF_MEMORY;
    status = handle ? row->api->fabric_import(row, handle, h->size, &piece)
                    : row->api->create(row, h->device, h->size, &piece);
    if (status)
        return status;
    status = map_piece(h, piece);
    row->api->release(row, piece); /* what is mapped stays */
    return status;
}

/* ------------------------------------------------------------------------------------- allocating */

/* Makes memory of the queue's device, and zeroes it. */
static int make(struct held *h, struct tei_gpu_queue *q, size_t length)
{
    const struct tei_driver *row = tei_driver_open(h->kind);
    int was, status, rc = tei_gpu_enter(h->kind, h->device, &was);

    if (rc)
        return rc;
    status =
        h->how == MAPPED ? make_mapped(h, length, NULL) : row->api->alloc(row, length, &h->addr);
    row->api->leave(row, was);
    if (status == TEI_GPU_OUT_OF_MEMORY)
        return TEI_FAIL(TE_ERR_MEMORY, "%s:%d has no memory for %zu bytes", row->name, h->device,
                        length);
    if (status)
        return TEI_FAIL(TE_ERR_UNSUPPORTED, "%zu bytes of %s:%d%s: %s", length, row->name,
                        h->device, h->how == MAPPED ? " for the fabric" : "",
                        tei_gpu_why(row, status));
    return tei_gpu_queue_zero(q, h->addr, length);
}

int tei_gpu_alloc(enum tei_mem_kind kind, int device, size_t length, bool fabric, void **out)
{
    struct held *h;
    struct tei_gpu_queue *q;
    int rc;

    if (length == 0)
        return TEI_FAIL(TE_ERR_INVALID, "no memory is 0 bytes long");
    rc = tei_gpu_queue_borrow(kind, device, &q);
    if (rc)
        return rc;
    h = calloc(1, sizeof(*h));
    if (h) {
        *h = (struct held){.kind = kind, .device = device, .how = fabric ? MAPPED : ALLOCATED};
        rc = make(h, q, length);
    } else {
        rc = TEI_FAIL(TE_ERR_MEMORY, "no memory to keep count of memory");
    }
    tei_gpu_queue_return(q);
    if (!rc) {
        hold(h);
        *out = h->addr;
    } else if (h && h->addr) {
        end(h);
    } else {
        free(h);
    }
    return rc;
}

void tei_gpu_free(enum tei_mem_kind kind, void *addr)
{
    struct held *h = addr ? let_go(kind, addr) : NULL;

    if (h)
        end(h);
    else if (addr)
        TEI_WARN("memory at %p is not what tei_gpu_alloc() gave", addr);
}

/*
 * Only trying tells: a device that could may lack what its host has to set up. 1: it has; -1: it has
 * not; 0: this time there was no memory to try it with, or no context.
 */
static signed char try_fabric(enum tei_mem_kind kind, int device)
{
    const struct tei_driver *row = tei_driver_open(kind);
    uint64_t piece;
    size_t unit;
    int was, status;

    if (tei_gpu_enter(kind, device, &was) != 0)
        return 0;
    status = row->api->granularity(row, device, &unit);
    if (!status)
        status = row->api->create(row, device, unit, &piece);
    if (!status)
        row->api->release(row, piece);
    else
        TEI_DEBUG("%s:%d has no memory for the fabric: %s", row->name, device,
                  tei_gpu_why(row, status));
    row->api->leave(row, was);
    if (status == TEI_GPU_OUT_OF_MEMORY)
        return 0;
    return status ? -1 : 1;
}

bool tei_gpu_has_fabric(enum tei_mem_kind kind, int device)
{
    static _Atomic signed char known[TEI_MEM_KINDS][TEI_GPU_DEVICES]; /* as of try_fabric() */
    signed char has;

    if (device < 0 || device >= tei_gpu_count(kind) || !tei_drivers[kind].api->granularity)
        return false;
    has = atomic_load_explicit(&known[kind][device], memory_order_relaxed);
    if (has == 0) {
        has = try_fabric(kind, device);
        atomic_store_explicit(&known[kind][device], has, memory_order_relaxed);
    }
    return has > 0;
}

/* ---------------------------------------------------------------------------------------- handles */

static int export_fabric(const struct tei_driver *row, void *base, uint8_t out[TEI_GPU_HANDLE])
{
    uint64_t piece;
    int status = row->api->retain(row, base, &piece);

    if (status)
        return status;
    status = row->api->fabric_export(row, piece, out);
    row->api->release(row, piece);
    return status;
}

int tei_gpu_export(const struct tei_mem_info *m, enum tei_gpu_sort sort,
                   uint8_t out[TEI_GPU_HANDLE])
{
    const struct tei_driver *row = tei_driver_open(m->kind);
    int was, status, rc;

    if (!row)
        return TE_ERR_UNSUPPORTED;
    if (!(sort == TEI_GPU_IPC ? m->ipc : m->fabric))
        return tei_gpu_keep(TE_ERR_UNSUPPORTED, "memory at 0x%zx of %s:%d was not made for %s",
                            (size_t)m->base, row->name, m->device,
                            sort == TEI_GPU_IPC ? "IPC" : "the fabric");
    rc = tei_gpu_enter(m->kind, m->device, &was);
    if (rc)
        return rc;
    status = sort == TEI_GPU_IPC ? row->api->ipc_export(row, (void *)m->base, out)
                                 : export_fabric(row, (void *)m->base, out);
    row->api->leave(row, was);
    if (status)
        return tei_gpu_keep(TE_ERR_UNSUPPORTED, "a handle of the memory at 0x%zx of %s:%d: %s",
                            (size_t)m->base, row->name, m->device, tei_gpu_why(row, status));
    return 0;
}

void tei_gpu_unexport(enum tei_mem_kind kind, enum tei_gpu_sort sort,
                      const uint8_t handle[TEI_GPU_HANDLE])
{
    const struct tei_driver *row = tei_driver_open(kind);

    if (row && sort == TEI_GPU_FABRIC)
        row->api->fabric_unexport(row, handle);
    else if (row && row->api->ipc_unexport)
        (void)row->api->ipc_unexport(row, NULL, handle);
}

/* Opens an IPC handle, of memory that is at least that long. The driver's status. */
static int open_ipc(struct held *h, const uint8_t handle[TEI_GPU_HANDLE], size_t length)
{
    const struct tei_driver *row = tei_driver_open(h->kind);
    uintptr_t base;
    size_t size;
    int status = row->api->ipc_open(row, handle, &h->addr);

    if (status)
        return status;
    if (row->api->range(row, h->addr, &base, &size) != 0 ||
        size - ((uintptr_t)h->addr - base) >= length)
        return 0;
    (void)row->api->ipc_close(row, h->addr, handle);
    return TEI_GPU_NOT_SUPPORTED;
}

int tei_gpu_import(enum tei_mem_kind kind, int device, enum tei_gpu_sort sort,
                   const uint8_t handle[TEI_GPU_HANDLE], size_t length, void **base)
{
    const struct tei_driver *row;
    struct held *h;
    int was, status, rc = tei_gpu_enter(kind, device, &was);

    if (rc)
        return rc;
    row = tei_driver_open(kind);
    h = calloc(1, sizeof(*h));
    if (!h) {
        row->api->leave(row, was);
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to keep count of memory");
    }
    *h =
        (struct held){.kind = kind, .device = device, .how = sort == TEI_GPU_IPC ? OPENED : MAPPED};
    memcpy(h->handle, handle, sizeof(h->handle));
    status = h->how == OPENED ? open_ipc(h, handle, length) : make_mapped(h, length, handle);
    row->api->leave(row, was);
    if (status) {
        free(h);
        return tei_gpu_keep(TE_ERR_UNSUPPORTED, "mapping %zu bytes of a peer for %s:%d: %s", length,
                            row->name, device, tei_gpu_why(row, status));
    }
    hold(h);
    *base = h->addr;
    return 0;
}

void tei_gpu_unimport(enum tei_mem_kind kind, void *base)
{
    struct held *h = let_go(kind, base);

    if (h)
        end(h);
}

int tei_gpu_dmabuf(const struct tei_mem_info *m, uintptr_t addr, size_t length, int *fd,
                   uint64_t *offset)
{
    const struct tei_driver *row = tei_driver_open(m->kind);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = addr & ~(page - 1);
    size_t size;
    int was, status, rc;

    if (!row)
        return TE_ERR_UNSUPPORTED;
    if (length == 0 || !round_up(addr - first + length, page, &size))
        return TEI_FAIL(TE_ERR_INVALID, "a dma-buf of %zu bytes", length);
    rc = tei_gpu_enter(m->kind, m->device, &was);
    if (rc)
        return rc;
    status = row->api->dmabuf ? row->api->dmabuf(row, m->device, first, size, fd)
                              : TEI_GPU_NOT_SUPPORTED;
    row->api->leave(row, was);
    if (status)
        return tei_gpu_keep(TE_ERR_UNSUPPORTED, "a dma-buf of %zu bytes at 0x%zx of %s:%d: %s",
                            length, (size_t)addr, row->name, m->device, tei_gpu_why(row, status));
    *offset = addr - first;
    return 0;
}
