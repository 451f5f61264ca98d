/* SPDX-License-Identifier: Apache-2.0 */
/* mem.c - kinds of memory: which one an address is in, and copies between any two. */
#include "plat/gpu.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

#define BOUNCE ((size_t)1 << 20)

static const enum tei_mem_kind device_kinds[] = {
#define KIND(name, word) TEI_MEM_##name,
    TEI_MEM_DEVICES(KIND)
#undef KIND
};

/* ---------------------------------------------------------------------------------------- looking */

static int fail_outside(uintptr_t addr, size_t length, uintptr_t base, size_t size)
{
    return TEI_FAIL(TE_ERR_INVALID,
                    "%zu bytes at 0x%zx leave the allocation they begin in: %zu bytes at 0x%zx",
                    length, (size_t)addr, size, (size_t)base);
}

/*
 * Whether what begins at `at` is one more mapping of a range of memory of the same device. Memory
 * that has an IPC handle is an allocation by itself, whatever lies next to it.
 */
static bool goes_on(const struct tei_driver *row, const struct tei_gpu_seen *first, uintptr_t at,
                    uintptr_t *end)
{
    struct tei_gpu_seen next;
    uintptr_t base;
    size_t size;

    if (first->ipc || row->api->look(row, (void *)at, &next) != 0 || !next.on_device || next.ipc ||
        next.device != first->device || row->api->range(row, (void *)at, &base, &size) != 0)
        return false;
    *end = base + size;
    return *end > at;
}

/* Finds the allocation, and whether it holds all of the range. */
static int measure(const struct tei_driver *row, const struct tei_gpu_seen *seen, uintptr_t addr,
                   size_t length, struct tei_mem_info *out)
{
    uint64_t last;
    uintptr_t end;
    int status = row->api->range(row, (void *)addr, &out->base, &out->length);

    if (status)
        return TEI_FAIL(TE_ERR_CONTEXT, "the allocation that holds 0x%zx: %s", (size_t)addr,
                        tei_gpu_why(row, status));
    end = out->base + out->length;
    if (!tei_add_ok(addr, length, &last))
        return fail_outside(addr, length, out->base, out->length);
    while (end < last)
        if (!goes_on(row, seen, end, &end))
            return fail_outside(addr, length, out->base, out->length);
    return 0;
}

/* `addr` is in memory of a device of this kind. */
static int inspect_device(enum tei_mem_kind kind, const struct tei_gpu_seen *seen, uintptr_t addr,
                          size_t length, struct tei_mem_info *out)
{
    struct tei_mem_info m = {
        .kind = kind, .device = seen->device, .ipc = seen->ipc, .fabric = seen->fabric};
    int was, rc = tei_gpu_open(kind);

    if (!rc)
        rc = tei_gpu_enter(kind, seen->device, &was);
    if (rc)
        return rc;
    rc = measure(tei_driver_open(kind), seen, addr, length, &m);
    tei_driver_open(kind)->api->leave(tei_driver_open(kind), was);
    if (!rc)
        *out = m;
    return rc;
}

/* The address is none of the driver's, or there is nothing of the driver's in this process. */
static bool is_foreign(int status)
{
    switch (status) {
    case TEI_GPU_INVALID_VALUE:
    case TEI_GPU_NOT_INITIALIZED:
    case TEI_GPU_DEINITIALIZED:
    case TEI_GPU_INSUFFICIENT_DRIVER:
    case TEI_GPU_NO_DEVICE:
    case TEI_GPU_INVALID_DEVICE:
    case TEI_GPU_INVALID_CONTEXT:
        return true;
    default:
        return false;
    }
}

/* `fresh`: looks for drivers that the process has loaded meanwhile. */
static int inspect(const void *addr, size_t length, bool fresh, struct tei_mem_info *out)
{
    bool managed = false;

    for (size_t i = 0; i < TEI_ARRAY_LEN(device_kinds); i++) {
        const struct tei_driver *row = tei_driver_loaded(device_kinds[i], fresh);
        struct tei_gpu_seen seen = {.device = -1};
        int status = row ? row->api->look(row, addr, &seen) : TEI_GPU_NO_DEVICE;

        if (is_foreign(status))
            continue;
        if (status)
            return TEI_FAIL(TE_ERR_CONTEXT, "what is at %p, asked of %s: %s", addr, row->title,
                            tei_gpu_why(row, status));
        if (seen.on_device)
            return inspect_device(device_kinds[i], &seen, (uintptr_t)addr, length, out);
        managed = managed || seen.managed;
    }
    *out = (struct tei_mem_info){.kind = TEI_MEM_HOST, .device = -1, .managed = managed};
    return 0;
}

int tei_mem_inspect(const void *addr, size_t length, struct tei_mem_info *out)
{
    return inspect(addr, length, true, out);
}

/* ---------------------------------------------------------------------------------------- copying */

static int copy_on(const struct tei_mem_info *m, struct tei_copy c)
{
    struct tei_gpu_queue *q;
    uint64_t ticket;
    int rc = tei_gpu_queue_borrow(m->kind, m->device, &q);

    if (rc)
        return rc;
    rc = tei_gpu_queue_copy(q, &c, 1, &ticket);
    if (!rc)
        rc = tei_gpu_queue_wait(q, ticket);
    tei_gpu_queue_return(q);
    return rc;
}

/* Between devices of two drivers, which know nothing of each other. */
static int copy_across(const struct tei_mem_info *to, const struct tei_mem_info *from,
                       struct tei_copy c)
{
    char *bounce = malloc(tei_min(c.n, BOUNCE));
    int rc = bounce ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory to copy between devices");

    for (size_t done = 0, n; !rc && done < c.n; done += n) {
        n = tei_min(c.n - done, BOUNCE);
        rc = copy_on(from,
                     (struct tei_copy){.to = bounce, .from = (const char *)c.from + done, .n = n});
        if (!rc)
            rc = copy_on(to, (struct tei_copy){.to = (char *)c.to + done, .from = bounce, .n = n});
    }
    free(bounce);
    return rc;
}

int tei_mem_copy(void *to, const void *from, size_t n)
{
    struct tei_mem_info a, b;
    int rc;

    if (n == 0)
        return 0;
    rc = inspect(to, n, false, &a);
    if (!rc)
        rc = inspect(from, n, false, &b);
    if (rc)
        return rc;
    if (a.kind == TEI_MEM_HOST && b.kind == TEI_MEM_HOST) {
        memmove(to, from, n);
        return 0;
    }
    if (a.kind != TEI_MEM_HOST && b.kind != TEI_MEM_HOST && a.kind != b.kind)
        return copy_across(&a, &b, (struct tei_copy){.to = to, .from = from, .n = n});
    return copy_on(a.kind != TEI_MEM_HOST ? &a : &b,
                   (struct tei_copy){.to = to, .from = from, .n = n});
}
