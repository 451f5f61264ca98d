/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softcuda.c - libcuda.so.1: the driver API as of CUDA 12.9, as far as this project uses it.
 */
#include "fabric/softgpu/softcuda.h"
#include "fabric/softgpu/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ATTR_PCI_BUS = 33,
    ATTR_PCI_DEVICE = 34,
    ATTR_UNIFIED_ADDRESSING = 41,
    ATTR_PCI_DOMAIN = 50,
    ATTR_MAJOR = 75,
    ATTR_MINOR = 76,
    ATTR_MANAGED = 83,
    ATTR_HOST_POINTER = 91,
    ATTR_FLUSH = 98,
    ATTR_HOST_REGISTER = 99,
    ATTR_VMM = 102,
    ATTR_FD = 103,
    ATTR_GDR_VMM = 110,
    ATTR_GDR = 116,
    ATTR_DMABUF = 124,
    ATTR_FABRIC = 128,
    ATTR_LAST = 144,
};

enum {
    PTR_CONTEXT = 1,
    PTR_MEMORY_TYPE,
    PTR_DEVICE_POINTER,
    PTR_HOST_POINTER,
    PTR_P2P_TOKENS,
    PTR_SYNC_MEMOPS,
    PTR_BUFFER_ID,
    PTR_IS_MANAGED,
    PTR_DEVICE_ORDINAL,
    PTR_IPC_CAPABLE,
    PTR_RANGE_START,
    PTR_RANGE_SIZE,
    PTR_MAPPED,
    PTR_HANDLE_TYPES,
    PTR_GDR_CAPABLE,
    PTR_ACCESS_FLAGS,
    PTR_MEMPOOL,
    PTR_MAPPING_SIZE,
    PTR_MAPPING_BASE,
    PTR_BLOCK_ID,
};

enum { MEMORYTYPE_HOST = 1, MEMORYTYPE_DEVICE = 2 };
enum { PINNED = 1, LOCATION_DEVICE = 1 };
#define WAIT_FLUSH (1U << 30)
enum { ORDER_STREAM = 1, ORDER_DURING_CALL = 2, ORDER_ANY = 3 };

#ifndef SOFT_FACE /* which is this one, or that of another maker, built with that maker's names */
#define SOFT_FACE SOFTGPU_CUDA
#endif
static const enum softgpu_kind CUDA = SOFT_FACE;

__attribute__((constructor)) static void load(void)
{
    sg_plays(CUDA);
}

/* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are played by the one that all are in order with. */
static CUstream stream_of(CUstream s)
{
    return (uintptr_t)s <= 2 ? NULL : s;
}

/* ------------------------------------------------------------------------------------- devices */

CUresult cuInit(unsigned flags)
{
    return flags ? SG_INVALID_VALUE : sg_init(CUDA);
}

CUresult cuDriverGetVersion(int *version)
{
    const char *text = getenv("SOFTGPU_CUDA_VERSION"); /* asked before cuInit, too */

    if (!version)
        return SG_INVALID_VALUE;
    *version = text ? atoi(text) : 12090;
    return SG_OK;
}

CUresult cuGetErrorName(CUresult error, const char **out)
{
    *out = sg_name(CUDA, error);
    return *out ? SG_OK : SG_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **out)
{
    *out = sg_text(error);
    return *out ? SG_OK : SG_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *count)
{
    int rc = sg_enter(CUDA), n = 0;

    if (rc)
        return rc;
    while (sg_device(CUDA, n))
        n++;
    *count = n;
    return sg_leave(SG_OK);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    int rc = sg_enter(CUDA);

    if (rc)
        return rc;
    if (!sg_device(CUDA, ordinal))
        return sg_leave(SG_INVALID_DEVICE);
    *device = ordinal;
    return sg_leave(SG_OK);
}

static int attribute(const struct sg_device *d, int name)
{
    const struct sg_settings *s = sg_look();
    unsigned domain = 0, bus = 0, slot = 0;

    sscanf(d->pci, "%x:%x:%x", &domain, &bus, &slot);
    switch (name) {
    case ATTR_PCI_BUS:
        return (int)bus;
    case ATTR_PCI_DEVICE:
        return (int)slot;
    case ATTR_PCI_DOMAIN:
        return (int)domain;
    case ATTR_MAJOR:
        return 9;
    case ATTR_FABRIC:
        return s->fabric;
    case ATTR_DMABUF:
        return s->dmabuf;
    case ATTR_GDR:
    case ATTR_GDR_VMM:
        return s->peermem || s->dmabuf;
    case ATTR_UNIFIED_ADDRESSING:
    case ATTR_MANAGED:
    case ATTR_HOST_POINTER:
    case ATTR_FLUSH:
    case ATTR_HOST_REGISTER:
    case ATTR_VMM:
    case ATTR_FD:
        return 1;
    default:
        return 0;
    }
}

CUresult cuDeviceGetAttribute(int *out, int name, CUdevice device)
{
    const struct sg_device *d;
    int rc = sg_enter(CUDA);

    if (rc)
        return rc;
    d = sg_device(CUDA, device);
    if (!d)
        return sg_leave(SG_INVALID_DEVICE);
    if (!out || name < 1 || name > ATTR_LAST)
        return sg_leave(SG_INVALID_VALUE);
    *out = attribute(d, name);
    return sg_leave(SG_OK);
}

CUresult cuDeviceGetPCIBusId(char *out, int size, CUdevice device)
{
    const struct sg_device *d;
    int rc = sg_enter(CUDA);

    if (rc)
        return rc;
    d = sg_device(CUDA, device);
    if (!d)
        return sg_leave(SG_INVALID_DEVICE);
    if (!out || size < 13)
        return sg_leave(SG_INVALID_VALUE);
    snprintf(out, (size_t)size, "%s", d->pci);
    return sg_leave(SG_OK);
}

CUresult cuDeviceGetUuid_v2(CUuuid *out, CUdevice device)
{
    const struct sg_device *d;
    int rc = sg_enter(CUDA);

    if (rc)
        return rc;
    d = sg_device(CUDA, device);
    if (!d)
        return sg_leave(SG_INVALID_DEVICE);
    memcpy(out->bytes, d->uuid, sizeof(out->bytes));
    return sg_leave(SG_OK);
}

/* ------------------------------------------------------------------------------------ contexts */

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    int rc = sg_enter(CUDA);

    return rc ? rc : sg_leave(out ? sg_retain(CUDA, device, out) : SG_INVALID_VALUE);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    int rc = sg_enter(CUDA);

    return rc ? rc : sg_leave(sg_release(CUDA, device));
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    const struct sg_device *d;
    int rc = sg_enter(CUDA);

    if (rc)
        return rc;
    d = sg_device(CUDA, device);
    if (!d)
        return sg_leave(SG_INVALID_DEVICE);
    if (!flags || !active)
        return sg_leave(SG_INVALID_VALUE);
    *flags = 0;
    *active = d->context.active;
    return sg_leave(SG_OK);
}

CUresult cuCtxGetCurrent(CUcontext *out)
{
    int rc = sg_enter(CUDA);

    if (rc)
        return rc;
    if (!out)
        return sg_leave(SG_INVALID_VALUE);
    *out = sg_current(CUDA);
    return sg_leave(SG_OK);
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    int rc = sg_enter(CUDA);

    return rc ? rc : sg_leave(sg_push(CUDA, context));
}

CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
    int rc = sg_enter(CUDA);

    return rc ? rc : sg_leave(sg_pop(CUDA, out));
}

/* ------------------------------------------------------------------------------------ pointers */

static size_t attribute_size(int name)
{
    switch (name) {
    case PTR_IS_MANAGED:
    case PTR_IPC_CAPABLE:
    case PTR_MAPPED:
    case PTR_GDR_CAPABLE:
    case PTR_SYNC_MEMOPS:
        return sizeof(bool);
    case PTR_MEMORY_TYPE:
    case PTR_DEVICE_ORDINAL:
    case PTR_ACCESS_FLAGS:
        return sizeof(int);
    case PTR_CONTEXT:
    case PTR_DEVICE_POINTER:
    case PTR_HOST_POINTER:
    case PTR_BUFFER_ID:
    case PTR_RANGE_START:
    case PTR_RANGE_SIZE:
    case PTR_HANDLE_TYPES:
    case PTR_MEMPOOL:
    case PTR_MAPPING_SIZE:
    case PTR_MAPPING_BASE:
    case PTR_BLOCK_ID:
        return sizeof(uint64_t);
    default:
        return 0;
    }
}

/* False: there is no such thing of this memory. */
static bool about(const struct sg_range *r, uintptr_t addr, int name, uint64_t *out)
{
    bool host = r->sort == SG_PINNED;

    switch (name) {
    case PTR_CONTEXT:
        if (r->sort == SG_MAPPED)
            return false;
        *out = (uintptr_t)&sg_device(CUDA, r->device)->context;
        return true;
    case PTR_MEMORY_TYPE:
        *out = host ? MEMORYTYPE_HOST : MEMORYTYPE_DEVICE;
        return true;
    case PTR_DEVICE_POINTER:
        *out = addr;
        return true;
    case PTR_HOST_POINTER:
        *out = addr;
        return host || r->sort == SG_MANAGED;
    case PTR_SYNC_MEMOPS:
    case PTR_MEMPOOL:
        *out = 0;
        return true;
    case PTR_BUFFER_ID:
    case PTR_BLOCK_ID:
        *out = r->id;
        return true;
    case PTR_IS_MANAGED:
        *out = r->sort == SG_MANAGED;
        return true;
    case PTR_DEVICE_ORDINAL:
        *out = (uint64_t)r->device;
        return true;
    case PTR_IPC_CAPABLE:
        *out = r->sort == SG_ALLOC;
        return true;
    case PTR_RANGE_START:
    case PTR_MAPPING_BASE:
        *out = r->addr;
        return true;
    case PTR_RANGE_SIZE:
    case PTR_MAPPING_SIZE:
        *out = r->size;
        return true;
    case PTR_MAPPED:
        *out = 1;
        return true;
    case PTR_HANDLE_TYPES:
        *out = r->sort == SG_MAPPED ? r->block->label->types : 0;
        return true;
    case PTR_GDR_CAPABLE:
        *out = r->sort == SG_MAPPED ? r->block->label->direct : r->block != NULL;
        return true;
    case PTR_ACCESS_FLAGS:
        *out = r->sort == SG_MAPPED && !r->can_write ? r->can_read != 0 : 3;
        return true;
    default:
        return false;
    }
}

CUresult cuPointerGetAttribute(void *data, int name, CUdeviceptr ptr)
{
    const struct sg_range *r;
    uint64_t value = 0;
    int rc = sg_enter(CUDA);

    if (rc)
        return rc;
    r = sg_find(CUDA, (uintptr_t)ptr);
    if (!data || !r || !attribute_size(name) || !about(r, (uintptr_t)ptr, name, &value))
        return sg_leave(SG_INVALID_VALUE);
    memcpy(data, &value, attribute_size(name));
    return sg_leave(SG_OK);
}

CUresult cuPointerGetAttributes(unsigned n, int *names, void **data, CUdeviceptr ptr)
{
    const struct sg_range *r;
    int rc = sg_enter(CUDA);

    if (rc)
        return rc;
    r = sg_find(CUDA, (uintptr_t)ptr);
    if (sg_dead(CUDA, r))
        return sg_leave(sg_dead(CUDA, r));
    if (!n || !names || !data)
        return sg_leave(SG_INVALID_VALUE);
    for (unsigned i = 0; i < n; i++) {
        uint64_t value = 0;

        if (!attribute_size(names[i]))
            return sg_leave(SG_INVALID_VALUE);
        if (r && !about(r, (uintptr_t)ptr, names[i], &value))
            value = 0;
        memcpy(data[i], &value, attribute_size(names[i]));
    }
    return sg_leave(SG_OK);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr)
{
    const struct sg_range *r;
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    if (rc)
        return rc;
    r = sg_find(CUDA, (uintptr_t)ptr);
    if (!r)
        return sg_leave(SG_NOT_FOUND);
    if (base)
        *base = r->addr;
    if (size)
        *size = r->size;
    return sg_leave(SG_OK);
}

/* -------------------------------------------------------------------------------------- memory */

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
    struct sg_context *c;
    uintptr_t addr;
    int rc = sg_enter_context(CUDA, &c);

    if (rc)
        return rc;
    rc = sg_alloc(c, size, &addr);
    if (rc == SG_OK)
        *out = addr;
    return sg_leave(rc);
}

CUresult cuMemFree_v2(CUdeviceptr ptr)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    return rc ? rc : sg_leave(ptr ? sg_free(c, (uintptr_t)ptr) : SG_OK);
}

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned flags)
{
    struct sg_context *c;
    uintptr_t addr;
    int rc = sg_enter_context(CUDA, &c);

    if (rc)
        return rc;
    rc = flags == 1 || flags == 2 ? sg_alloc_managed(c, size, &addr) : SG_INVALID_VALUE;
    if (rc == SG_OK)
        *out = addr;
    return sg_leave(rc);
}

CUresult cuMemHostRegister_v2(void *addr, size_t size, unsigned flags)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    if (rc)
        return rc;
    return sg_leave(flags > 0xf ? SG_INVALID_VALUE : sg_pin(c, (uintptr_t)addr, size, flags));
}

CUresult cuMemHostUnregister(void *addr)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    return rc ? rc : sg_leave(sg_unpin(c, (uintptr_t)addr));
}

static int fill(CUdeviceptr to, unsigned char byte, size_t n, CUstream stream)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    return rc ? rc : sg_leave(sg_fill(c, stream, (uintptr_t)to, byte, n));
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char byte, size_t n)
{
    return fill(to, byte, n, NULL);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t n, CUstream stream)
{
    return fill(to, byte, n, stream_of(stream));
}

static int copy(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream)
{
    struct sg_copy v = {.to = (uintptr_t)to, .from = (uintptr_t)from, .n = n};
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    return rc ? rc : sg_leave(sg_copy(c, stream, &v, 1, false, NULL));
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n)
{
    return copy(to, from, n, NULL);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream)
{
    return copy(to, from, n, stream_of(stream));
}

/* attrs[i] is for the copies from starts[i] on, to the next start. */
static int check_batch(size_t count, const CUmemcpyAttributes *attrs, const size_t *starts,
                       size_t n)
{
    if (!count || !attrs || !starts || !n || n > count || starts[0] != 0)
        return SG_INVALID_VALUE;
    for (size_t i = 0; i < n; i++)
        if (attrs[i].srcAccessOrder < ORDER_STREAM || attrs[i].srcAccessOrder > ORDER_ANY ||
            attrs[i].flags > 1 || starts[i] >= count || (i && starts[i] <= starts[i - 1]))
            return SG_INVALID_VALUE;
    return SG_OK;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attrs, size_t *starts, size_t n, size_t *failed,
                            CUstream stream)
{
    struct sg_context *c;
    struct sg_copy *v;
    size_t at = 0;
    int rc = sg_enter_context(CUDA, &c);

    if (rc)
        return rc;
    if (failed)
        *failed = SIZE_MAX;
    rc = check_batch(count, attrs, starts, n);
    if (rc || !to || !from || !sizes || !stream_of(stream))
        return sg_leave(SG_INVALID_VALUE);
    v = calloc(count, sizeof(*v));
    if (!v)
        return sg_leave(SG_OUT_OF_MEMORY);
    for (size_t i = 0; i < count; i++) {
        if (at + 1 < n && starts[at + 1] == i)
            at++;
        v[i] = (struct sg_copy){.to = (uintptr_t)to[i],
                                .from = (uintptr_t)from[i],
                                .n = sizes[i],
                                .now = attrs[at].srcAccessOrder == ORDER_DURING_CALL};
    }
    rc = sg_copy(c, stream, v, count, true, failed);
    free(v);
    return sg_leave(rc);
}

/* --------------------------------------------------------------------------- streams and events */

CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    if (rc)
        return rc;
    return sg_leave(flags > 1 || !out ? SG_INVALID_VALUE : sg_stream_create(c, !flags, out));
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    int rc = sg_enter(CUDA);

    return rc ? rc
              : sg_leave(stream_of(stream) ? sg_stream_destroy(CUDA, stream) : SG_INVALID_HANDLE);
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    int rc = sg_enter(CUDA);

    return rc ? rc : sg_leave(sg_exchange_capture_mode(CUDA, mode));
}

CUresult cuStreamSynchronize(CUstream stream)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    return rc ? rc : sg_leave(sg_stream_sync(c, stream_of(stream)));
}

CUresult cuStreamQuery(CUstream stream)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    return rc ? rc : sg_leave(sg_stream_query(c, stream_of(stream)));
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    if (rc)
        return rc;
    return sg_leave(flags > 1 ? SG_INVALID_VALUE : sg_stream_wait(c, stream_of(stream), event));
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr word, unsigned value, unsigned flags)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    if (rc)
        return rc;
    return sg_leave(flags & ~WAIT_FLUSH ? SG_NOT_SUPPORTED
                                        : sg_stream_value(c, stream_of(stream), word, value));
}

CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *arg), void *arg)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    if (rc)
        return rc;
    return sg_leave(function ? sg_stream_call(c, stream_of(stream), function, arg)
                             : SG_INVALID_VALUE);
}

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    if (rc)
        return rc;
    return sg_leave(flags > 7 || !out ? SG_INVALID_VALUE : sg_event_create(c, out));
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    return rc ? rc : sg_leave(sg_event_record(c, event, stream_of(stream)));
}

CUresult cuEventQuery(CUevent event)
{
    int rc = sg_enter(CUDA);

    return rc ? rc : sg_leave(sg_event_query(CUDA, event));
}

CUresult cuEventSynchronize(CUevent event)
{
    int rc = sg_enter(CUDA);

    return rc ? rc : sg_leave(sg_event_sync(CUDA, event));
}

CUresult cuEventDestroy_v2(CUevent event)
{
    int rc = sg_enter(CUDA);

    return rc ? rc : sg_leave(sg_event_destroy(CUDA, event));
}

/* ----------------------------------------------------------------------------------------- IPC */

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr ptr)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    return rc ? rc : sg_leave(out ? sg_ipc_get(c, (uintptr_t)ptr, out) : SG_INVALID_VALUE);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags)
{
    struct sg_context *c;
    uintptr_t addr;
    int rc = sg_enter_context(CUDA, &c);

    if (rc)
        return rc;
    rc = out && flags == 1 ? sg_ipc_open(c, &handle, &addr) : SG_INVALID_VALUE;
    if (rc == SG_OK)
        *out = addr;
    return sg_leave(rc);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    return rc ? rc : sg_leave(sg_ipc_close(c, (uintptr_t)ptr));
}

CUresult cuMemGetHandleForAddressRange(void *out, CUdeviceptr ptr, size_t size, int type,
                                       unsigned long long flags)
{
    int rc = sg_enter(CUDA), fd;

    if (rc)
        return rc;
    if (!out || type != 1 || flags > 1)
        return sg_leave(SG_INVALID_VALUE);
    rc = sg_dmabuf(CUDA, (uintptr_t)ptr, size, &fd);
    if (rc == SG_OK)
        memcpy(out, &fd, sizeof(fd));
    return sg_leave(rc);
}

/* ----------------------------------------------------------------------------------------- VMM */

static bool is_device_memory(const CUmemAllocationProp *p)
{
    return p && p->type == PINNED && p->location.type == LOCATION_DEVICE &&
           p->allocFlags.compressionType == 0;
}

CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *p, int which)
{
    int rc = sg_enter(CUDA);

    if (rc)
        return rc;
    if (!out || !is_device_memory(p) || which < 0 || which > 1)
        return sg_leave(SG_INVALID_VALUE);
    if (!sg_device(CUDA, p->location.id))
        return sg_leave(SG_INVALID_DEVICE);
    *out = SG_GRAIN;
    return sg_leave(SG_OK);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *p,
                     unsigned long long flags)
{
    uint64_t handle;
    int rc = sg_enter(CUDA);

    if (rc)
        return rc;
    if (!out || !is_device_memory(p) || flags)
        return sg_leave(SG_INVALID_VALUE);
    rc = sg_vmm_create(CUDA, p->location.id, size, (unsigned)p->requestedHandleTypes,
                       p->allocFlags.gpuDirectRDMACapable, &handle);
    if (rc == SG_OK)
        *out = handle;
    return sg_leave(rc);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    int rc = sg_enter(CUDA);

    return rc ? rc : sg_leave(sg_vmm_release(CUDA, handle));
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t align, CUdeviceptr at,
                             unsigned long long flags)
{
    uintptr_t addr;
    int rc = sg_enter(CUDA);

    (void)at; /* a wish */
    if (rc)
        return rc;
    rc = out && !flags ? sg_vmm_reserve(CUDA, size, align, &addr) : SG_INVALID_VALUE;
    if (rc == SG_OK)
        *out = addr;
    return sg_leave(rc);
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    int rc = sg_enter(CUDA);

    return rc ? rc : sg_leave(sg_vmm_unreserve(CUDA, (uintptr_t)ptr, size));
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    int rc = sg_enter(CUDA);

    if (rc)
        return rc;
    return sg_leave(offset || flags ? SG_INVALID_VALUE
                                    : sg_vmm_map(CUDA, (uintptr_t)ptr, size, handle));
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    int rc = sg_enter(CUDA);

    return rc ? rc : sg_leave(sg_vmm_unmap(CUDA, (uintptr_t)ptr, size));
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *v, size_t n)
{
    struct sg_grant grants[SG_MAX_DEVICES];
    int rc = sg_enter(CUDA);

    if (rc)
        return rc;
    if (!v || n > SG_MAX_DEVICES)
        return sg_leave(SG_INVALID_VALUE);
    for (size_t i = 0; i < n; i++) {
        if (v[i].location.type != LOCATION_DEVICE)
            return sg_leave(SG_INVALID_VALUE);
        grants[i] = (struct sg_grant){.device = v[i].location.id, .flags = (unsigned)v[i].flags};
    }
    return sg_leave(sg_vmm_access(CUDA, (uintptr_t)ptr, size, grants, n));
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
                                      unsigned long long flags)
{
    int rc = sg_enter(CUDA);

    if (rc)
        return rc;
    return sg_leave(!out || flags ? SG_INVALID_VALUE
                                  : sg_vmm_export(CUDA, handle, (unsigned)type, out));
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *from, int type)
{
    uint64_t handle;
    int rc = sg_enter(CUDA);

    if (rc)
        return rc;
    if (!out || (type == SG_TYPE_FABRIC && !from))
        return sg_leave(SG_INVALID_VALUE);
    rc = sg_vmm_import(CUDA, (unsigned)type, (int)(intptr_t)from, from, &handle);
    if (rc == SG_OK)
        *out = handle;
    return sg_leave(rc);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *addr)
{
    uint64_t handle;
    int rc = sg_enter(CUDA);

    if (rc)
        return rc;
    rc = out ? sg_vmm_retain(CUDA, (uintptr_t)addr, &handle) : SG_INVALID_VALUE;
    if (rc == SG_OK)
        *out = handle;
    return sg_leave(rc);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out,
                                                CUmemGenericAllocationHandle handle)
{
    const struct sg_block *b;
    int rc = sg_enter(CUDA);

    if (rc)
        return rc;
    b = sg_vmm_block(CUDA, handle);
    if (!out || !b)
        return sg_leave(SG_INVALID_VALUE);
    *out = (CUmemAllocationProp){.type = PINNED,
                                 .requestedHandleTypes = (int)b->label->types,
                                 .location = {LOCATION_DEVICE, b->device}};
    out->allocFlags.gpuDirectRDMACapable = b->label->direct != 0;
    return sg_leave(SG_OK);
}
