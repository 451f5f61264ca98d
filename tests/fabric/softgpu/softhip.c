/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softhip.c - libamdhip64.so.5: the runtime of ROCm 5.2, or of another release as far as they differ
 * (SOFTGPU_HIP_VERSION). As with the real one any call initialises, and a context begins when a device
 * is used first.
 */
#include "fabric/softgpu/softhip.h"
#include "fabric/softgpu/core.h"

#include <stdio.h>
#include <string.h>

enum { ROCM_6 = 60000000, ROCM_7 = 70000000, ROCM_7_1 = 70100000, AFTER_5_2 = 50300000 };
enum { COPY_HOST_HOST, COPY_TO_DEVICE, COPY_TO_HOST, COPY_WITHIN, COPY_DEFAULT };
enum { ATTR_MANAGED = 24, ATTR_PCI_BUS = 67, ATTR_PCI_DEVICE, ATTR_PCI_DOMAIN, ATTR_UVA = 85 };
enum { ATTR_VMM = 89 }; /* since ROCm 5.3 */
enum { PINNED = 1, LOCATION_DEVICE = 1 };
enum {
    PTR_MEMORY_TYPE = 2,
    PTR_DEVICE_POINTER,
    PTR_HOST_POINTER,
    PTR_BUFFER_ID = 7,
    PTR_IS_MANAGED,
    PTR_DEVICE_ORDINAL,
    PTR_RANGE_START = 11,
    PTR_RANGE_SIZE,
    PTR_MAPPED,
};
enum sort { SORT_UNKNOWN, SORT_HOST, SORT_DEVICE, SORT_MANAGED };

#ifndef SOFT_FACE /* which is this one, or that of another maker, built with that maker's names */
#define SOFT_FACE SOFTGPU_HIP
#endif
static const enum softgpu_kind HIP = SOFT_FACE;

__attribute__((constructor)) static void load(void)
{
    sg_plays(HIP);
}

static int version(void)
{
    return HIP == SOFTGPU_HIP ? sg_look()->hip_version : ROCM_6; /* whose numbers others have */
}

/* The last error of the thread stays until it is fetched, as since ROCm 7. */
static _Thread_local hipError_t last;

static int note(int rc)
{
    if (rc)
        last = rc;
    return rc;
}

static int enter(void)
{
    int rc = sg_init(HIP);

    return note(rc ? rc : sg_enter(HIP));
}

static int enter_context(struct sg_context **out)
{
    int rc = sg_init(HIP);

    return note(rc ? rc : sg_enter_context(HIP, out));
}

static int leave(int rc)
{
    return note(sg_leave(rc));
}

/* hipStreamLegacy and hipStreamPerThread are played by the one that all are in order with. */
static hipStream_t stream_of(hipStream_t s)
{
    return (uintptr_t)s <= 2 ? NULL : s;
}

/* ------------------------------------------------------------------------------------- devices */

hipError_t hipInit(unsigned flags)
{
    return note(flags ? SG_INVALID_VALUE : sg_init(HIP));
}

hipError_t hipRuntimeGetVersion(int *out)
{
    if (!out)
        return note(SG_INVALID_VALUE);
    sg_init(HIP);
    *out = version();
    return SG_OK;
}

const char *hipGetErrorName(hipError_t error)
{
    const char *name = sg_name(HIP, error);

    return name ? name : "hipErrorUnknown";
}

const char *hipGetErrorString(hipError_t error)
{
    const char *text = sg_text(error);

    return text ? text : "unknown error";
}

hipError_t hipGetLastError(void)
{
    hipError_t rc = last;

    last = SG_OK;
    return rc;
}

hipError_t hipGetDeviceCount(int *count)
{
    int rc, n = 0;

    if (!count)
        return note(SG_INVALID_VALUE);
    *count = 0;
    rc = enter();
    if (rc)
        return rc;
    while (sg_device(HIP, n))
        n++;
    *count = n;
    return leave(SG_OK);
}

hipError_t hipGetDevice(int *device)
{
    int rc = enter();

    if (rc)
        return rc;
    if (!device)
        return leave(SG_INVALID_VALUE);
    *device = sg_get_device(HIP);
    return leave(SG_OK);
}

hipError_t hipSetDevice(int device)
{
    int rc = enter();

    return rc ? rc : leave(sg_set_device(HIP, device));
}

hipError_t hipDeviceGetPCIBusId(char *out, int size, int device)
{
    const struct sg_device *d;
    int rc = enter();

    if (rc)
        return rc;
    d = sg_device(HIP, device);
    if (!d)
        return leave(SG_INVALID_DEVICE);
    if (!out || size < 13)
        return leave(SG_INVALID_VALUE);
    snprintf(out, (size_t)size, "%s", d->pci);
    return leave(SG_OK);
}

hipError_t hipDeviceGetUuid(hipUUID *out, int device)
{
    const struct sg_device *d;
    int rc = enter();

    if (rc)
        return rc;
    d = sg_device(HIP, device);
    if (!d)
        return leave(SG_INVALID_DEVICE);
    if (!out)
        return leave(SG_INVALID_VALUE);
    memcpy(out->bytes, d->uuid, sizeof(out->bytes));
    return leave(SG_OK);
}

static int attribute(const struct sg_device *d, int name)
{
    unsigned domain = 0, bus = 0, slot = 0;

    sscanf(d->pci, "%x:%x:%x", &domain, &bus, &slot);
    switch (name) {
    case ATTR_PCI_BUS:
        return (int)bus;
    case ATTR_PCI_DEVICE:
        return (int)slot;
    case ATTR_PCI_DOMAIN:
        return (int)domain;
    case ATTR_VMM:
        return version() >= AFTER_5_2;
    case ATTR_MANAGED:
    case ATTR_UVA:
        return 1;
    default:
        return 0;
    }
}

hipError_t hipDeviceGetAttribute(int *out, int name, int device)
{
    const struct sg_device *d;
    int rc = enter();

    if (rc)
        return rc;
    d = sg_device(HIP, device);
    if (!d)
        return leave(SG_INVALID_DEVICE);
    if (!out || name < 0)
        return leave(SG_INVALID_VALUE);
    *out = attribute(d, name);
    return leave(SG_OK);
}

/* ------------------------------------------------------------------------------------ pointers */

static enum sort sort_of(const struct sg_range *r)
{
    if (!r)
        return SORT_UNKNOWN;
    return r->sort == SG_PINNED ? SORT_HOST : r->sort == SG_MANAGED ? SORT_MANAGED : SORT_DEVICE;
}

/* hipMemoryType, whose numbers changed with ROCm 6: before, managed memory was the host's. */
static int memory_type(enum sort s)
{
    static const int before[] = {0, 0, 1, 0}, since[] = {0, 1, 2, 3};

    return version() < ROCM_6 ? before[s] : since[s];
}

hipError_t hipPointerGetAttributes(hipPointerAttribute_t *out, const void *ptr)
{
    const struct sg_range *r;
    enum sort sort;
    int rc = enter();

    if (rc)
        return rc;
    r = sg_find(HIP, (uintptr_t)ptr);
    if (sg_dead(HIP, r))
        return leave(sg_dead(HIP, r));
    sort = sort_of(r);
    if (!out || !ptr || (!r && version() < ROCM_6))
        return leave(SG_INVALID_VALUE);
    *out = (hipPointerAttribute_t){.type = memory_type(sort),
                                   .device = r ? r->device : -2,
                                   .devicePointer = r ? (void *)(uintptr_t)ptr : NULL,
                                   .isManaged = sort == SORT_MANAGED,
                                   .allocationFlags = r ? r->flags : 0};
    if (sort == SORT_HOST || sort == SORT_MANAGED)
        out->hostPointer = (void *)(uintptr_t)ptr;
    return leave(SG_OK);
}

/* False: there is no such thing, or not of this memory. */
static bool about(const struct sg_range *r, void *ptr, int name, void *data)
{
    enum sort sort = sort_of(r);

    switch (name) {
    case PTR_MEMORY_TYPE:
        *(int *)data = memory_type(sort);
        return true;
    case PTR_HOST_POINTER:
        if (sort == SORT_DEVICE)
            return false;
        *(void **)data = ptr;
        return true;
    case PTR_DEVICE_POINTER:
        *(void **)data = ptr;
        return true;
    case PTR_BUFFER_ID:
        *(unsigned *)data = (unsigned)r->id;
        return true;
    case PTR_IS_MANAGED:
        *(bool *)data = sort == SORT_MANAGED;
        return true;
    case PTR_MAPPED:
        *(bool *)data = true;
        return true;
    case PTR_DEVICE_ORDINAL:
        *(int *)data = r->device;
        return true;
    case PTR_RANGE_START:
        *(uintptr_t *)data = r->addr;
        return true;
    case PTR_RANGE_SIZE:
        *(size_t *)data = r->size;
        return true;
    default:
        return false;
    }
}

hipError_t hipPointerGetAttribute(void *data, int name, void *ptr)
{
    const struct sg_range *r;
    int rc = enter();

    if (rc)
        return rc;
    r = sg_find(HIP, (uintptr_t)ptr);
    return leave(data && r && about(r, ptr, name, data) ? SG_OK : SG_INVALID_VALUE);
}

hipError_t hipMemGetAddressRange(void **base, size_t *size, void *ptr)
{
    const struct sg_range *r;
    int rc = enter();

    if (rc)
        return rc;
    r = sg_find(HIP, (uintptr_t)ptr);
    if (!r)
        return leave(SG_NOT_FOUND);
    if (!base || !size)
        return leave(SG_INVALID_VALUE);
    *base = (void *)r->addr;
    *size = r->size;
    return leave(SG_OK);
}

/* -------------------------------------------------------------------------------------- memory */

hipError_t hipMalloc(void **out, size_t size)
{
    struct sg_context *c;
    uintptr_t addr = 0;
    int rc = enter_context(&c);

    if (rc)
        return rc;
    if (!out)
        return leave(SG_INVALID_VALUE);
    rc = size ? sg_alloc(c, size, &addr) : SG_OK;
    if (rc == SG_OK)
        *out = (void *)addr;
    return leave(rc);
}

hipError_t hipFree(void *ptr)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    return rc ? rc : leave(ptr ? sg_free(c, (uintptr_t)ptr) : SG_OK);
}

hipError_t hipMallocManaged(void **out, size_t size, unsigned flags)
{
    struct sg_context *c;
    uintptr_t addr;
    int rc = enter_context(&c);

    if (rc)
        return rc;
    rc = out && (flags == 1 || flags == 2) ? sg_alloc_managed(c, size, &addr) : SG_INVALID_VALUE;
    if (rc == SG_OK)
        *out = (void *)addr;
    return leave(rc);
}

hipError_t hipHostRegister(void *addr, size_t size, unsigned flags)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    if (rc)
        return rc;
    return leave(flags > 0xf ? SG_INVALID_VALUE : sg_pin(c, (uintptr_t)addr, size, flags));
}

hipError_t hipHostUnregister(void *addr)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    return rc ? rc : leave(sg_unpin(c, (uintptr_t)addr));
}

static int fill(void *to, int byte, size_t n, hipStream_t stream)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    return rc ? rc : leave(sg_fill(c, stream, (uintptr_t)to, (uint8_t)byte, n));
}

hipError_t hipMemset(void *to, int byte, size_t n)
{
    return fill(to, byte, n, NULL);
}

hipError_t hipMemsetAsync(void *to, int byte, size_t n, hipStream_t stream)
{
    return fill(to, byte, n, stream_of(stream));
}

/* Who names the direction must name the right one. */
static bool fits(void *to, const void *from, int kind)
{
    bool to_device = sort_of(sg_find(HIP, (uintptr_t)to)) == SORT_DEVICE;
    bool from_device = sort_of(sg_find(HIP, (uintptr_t)from)) == SORT_DEVICE;

    switch (kind) {
    case COPY_HOST_HOST:
        return !to_device && !from_device;
    case COPY_TO_DEVICE:
        return to_device && !from_device;
    case COPY_TO_HOST:
        return !to_device && from_device;
    case COPY_WITHIN:
        return to_device && from_device;
    default:
        return kind == COPY_DEFAULT;
    }
}

static int copy(void *to, const void *from, size_t n, int kind, hipStream_t stream)
{
    struct sg_copy v = {.to = (uintptr_t)to, .from = (uintptr_t)from, .n = n};
    struct sg_context *c;
    int rc = enter_context(&c);

    if (rc)
        return rc;
    if (!fits(to, from, kind))
        return leave(SG_BAD_DIRECTION);
    return leave(sg_copy(c, stream, &v, 1, false, NULL));
}

hipError_t hipMemcpy(void *to, const void *from, size_t n, int kind)
{
    return copy(to, from, n, kind, NULL);
}

hipError_t hipMemcpyAsync(void *to, const void *from, size_t n, int kind, hipStream_t stream)
{
    return copy(to, from, n, kind, stream_of(stream));
}

/* --------------------------------------------------------------------------- streams and events */

hipError_t hipStreamCreateWithFlags(hipStream_t *out, unsigned flags)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    if (rc)
        return rc;
    return leave(flags > 1 || !out ? SG_INVALID_VALUE : sg_stream_create(c, !flags, out));
}

hipError_t hipStreamDestroy(hipStream_t stream)
{
    int rc = enter();

    return rc ? rc : leave(stream_of(stream) ? sg_stream_destroy(HIP, stream) : SG_INVALID_HANDLE);
}

hipError_t hipThreadExchangeStreamCaptureMode(int *mode)
{
    int rc = enter();

    return rc ? rc : leave(sg_exchange_capture_mode(HIP, mode));
}

hipError_t hipStreamSynchronize(hipStream_t stream)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    return rc ? rc : leave(sg_stream_sync(c, stream_of(stream)));
}

hipError_t hipStreamQuery(hipStream_t stream)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    return rc ? rc : leave(sg_stream_query(c, stream_of(stream)));
}

hipError_t hipStreamWaitValue32(hipStream_t stream, void *word, unsigned value, unsigned flags,
                                unsigned mask)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    if (rc)
        return rc;
    return leave(flags || mask != UINT32_MAX
                     ? SG_NOT_SUPPORTED
                     : sg_stream_value(c, stream_of(stream), (uintptr_t)word, value));
}

hipError_t hipEventCreateWithFlags(hipEvent_t *out, unsigned flags)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    if (rc)
        return rc;
    return leave(flags > 7 || !out ? SG_INVALID_VALUE : sg_event_create(c, out));
}

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    return rc ? rc : leave(sg_event_record(c, event, stream_of(stream)));
}

hipError_t hipEventQuery(hipEvent_t event)
{
    int rc = enter();

    return rc ? rc : leave(sg_event_query(HIP, event));
}

hipError_t hipEventSynchronize(hipEvent_t event)
{
    int rc = enter();

    return rc ? rc : leave(sg_event_sync(HIP, event));
}

hipError_t hipEventDestroy(hipEvent_t event)
{
    int rc = enter();

    return rc ? rc : leave(sg_event_destroy(HIP, event));
}

/* ----------------------------------------------------------------------------------------- IPC */

hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *out, void *ptr)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    return rc ? rc : leave(out ? sg_ipc_get(c, (uintptr_t)ptr, out) : SG_INVALID_VALUE);
}

/* hipIpcMemLazyEnablePeerAccess is 0 in older headers, 1 in newer ones. */
hipError_t hipIpcOpenMemHandle(void **out, hipIpcMemHandle_t handle, unsigned flags)
{
    struct sg_context *c;
    uintptr_t addr;
    int rc = enter_context(&c);

    if (rc)
        return rc;
    rc = out && flags <= (version() >= ROCM_6) ? sg_ipc_open(c, &handle, &addr) : SG_INVALID_VALUE;
    if (rc == SG_OK)
        *out = (void *)addr;
    return leave(rc);
}

hipError_t hipIpcCloseMemHandle(void *ptr)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    return rc ? rc : leave(sg_ipc_close(c, (uintptr_t)ptr));
}

hipError_t hipMemGetHandleForAddressRange(void *out, void *ptr, size_t size, int type,
                                          unsigned long long flags)
{
    int rc = enter(), fd;

    if (rc)
        return rc;
    if (!out || type != 1 || flags > 1)
        return leave(SG_INVALID_VALUE);
    rc = sg_dmabuf(HIP, (uintptr_t)ptr, size, &fd);
    if (rc == SG_OK)
        memcpy(out, &fd, sizeof(fd));
    return leave(rc);
}

/* ----------------------------------------------------------------------------------------- VMM */

struct wish {
    int device;
    unsigned types;
    bool direct;
};

/* What is asked for, in the layout of the release that is played. */
static bool read_prop(const void *prop, struct wish *out)
{
    hipMemAllocationProp_5_2 before;
    hipMemAllocationProp since;

    if (!prop)
        return false;
    memcpy(&before, prop, sizeof(before));
    memcpy(&since, prop, sizeof(since));
    if (version() < AFTER_5_2) {
        *out = (struct wish){before.location.id, (unsigned)before.requestedHandleType, false};
        return before.type == PINNED && before.location.type == LOCATION_DEVICE;
    }
    *out = (struct wish){since.location.id, (unsigned)since.requestedHandleType,
                         since.allocFlags.gpuDirectRDMACapable};
    return since.type == PINNED && since.location.type == LOCATION_DEVICE;
}

hipError_t hipMemGetAllocationGranularity(size_t *out, const void *prop, int which)
{
    struct wish w;
    int rc = enter();

    if (rc)
        return rc;
    if (!out || !read_prop(prop, &w) || which < 0 || which > 1)
        return leave(SG_INVALID_VALUE);
    if (!sg_device(HIP, w.device))
        return leave(SG_INVALID_DEVICE);
    *out = SG_GRAIN;
    return leave(SG_OK);
}

hipError_t hipMemCreate(hipMemGenericAllocationHandle_t *out, size_t size, const void *prop,
                        unsigned long long flags)
{
    struct wish w;
    uint64_t handle;
    int rc = enter();

    if (rc)
        return rc;
    if (!out || !read_prop(prop, &w) || flags)
        return leave(SG_INVALID_VALUE);
    if ((w.types & SG_TYPE_FABRIC) && version() < ROCM_7)
        return leave(SG_INVALID_VALUE);
    rc = sg_vmm_create(HIP, w.device, size, w.types, w.direct, &handle);
    if (rc == SG_OK)
        *out = (void *)(uintptr_t)handle;
    return leave(rc);
}

hipError_t hipMemRelease(hipMemGenericAllocationHandle_t handle)
{
    int rc = enter();

    return rc ? rc : leave(sg_vmm_release(HIP, (uintptr_t)handle));
}

hipError_t hipMemAddressReserve(void **out, size_t size, size_t align, void *at,
                                unsigned long long flags)
{
    uintptr_t addr;
    int rc = enter();

    (void)at; /* a wish */
    if (rc)
        return rc;
    rc = out && !flags ? sg_vmm_reserve(HIP, size, align, &addr) : SG_INVALID_VALUE;
    if (rc == SG_OK)
        *out = (void *)addr;
    return leave(rc);
}

hipError_t hipMemAddressFree(void *ptr, size_t size)
{
    int rc = enter();

    return rc ? rc : leave(sg_vmm_unreserve(HIP, (uintptr_t)ptr, size));
}

hipError_t hipMemMap(void *ptr, size_t size, size_t offset, hipMemGenericAllocationHandle_t handle,
                     unsigned long long flags)
{
    int rc = enter();

    if (rc)
        return rc;
    return leave(offset || flags ? SG_INVALID_VALUE
                                 : sg_vmm_map(HIP, (uintptr_t)ptr, size, (uintptr_t)handle));
}

hipError_t hipMemUnmap(void *ptr, size_t size)
{
    int rc = enter();

    return rc ? rc : leave(sg_vmm_unmap(HIP, (uintptr_t)ptr, size));
}

hipError_t hipMemSetAccess(void *ptr, size_t size, const hipMemAccessDesc *v, size_t n)
{
    struct sg_grant grants[SG_MAX_DEVICES];
    int rc = enter();

    if (rc)
        return rc;
    if (!v || n > SG_MAX_DEVICES)
        return leave(SG_INVALID_VALUE);
    for (size_t i = 0; i < n; i++) {
        if (v[i].location.type != LOCATION_DEVICE)
            return leave(SG_INVALID_VALUE);
        grants[i] = (struct sg_grant){.device = v[i].location.id, .flags = (unsigned)v[i].flags};
    }
    return leave(sg_vmm_access(HIP, (uintptr_t)ptr, size, grants, n));
}

hipError_t hipMemExportToShareableHandle(void *out, hipMemGenericAllocationHandle_t handle,
                                         int type, unsigned long long flags)
{
    int rc = enter();

    if (rc)
        return rc;
    return leave(!out || flags ? SG_INVALID_VALUE
                               : sg_vmm_export(HIP, (uintptr_t)handle, (unsigned)type, out));
}

/* Before ROCm 7.1 `from` points to the descriptor; since then it is the descriptor. */
hipError_t hipMemImportFromShareableHandle(hipMemGenericAllocationHandle_t *out, void *from,
                                           int type)
{
    bool by_value = version() >= ROCM_7_1;
    uint64_t handle;
    int rc = enter(), fd = -1;

    if (rc)
        return rc;
    if (!out || (!from && (!by_value || type != SG_TYPE_FD)))
        return leave(SG_INVALID_VALUE);
    if (type == SG_TYPE_FD)
        fd = by_value ? (int)(intptr_t)from : *(const int *)from;
    rc = sg_vmm_import(HIP, (unsigned)type, fd, from, &handle);
    if (rc == SG_OK)
        *out = (void *)(uintptr_t)handle;
    return leave(rc);
}

hipError_t hipMemRetainAllocationHandle(hipMemGenericAllocationHandle_t *out, void *addr)
{
    uint64_t handle;
    int rc = enter();

    if (rc)
        return rc;
    rc = out ? sg_vmm_retain(HIP, (uintptr_t)addr, &handle) : SG_INVALID_VALUE;
    if (rc == SG_OK)
        *out = (void *)(uintptr_t)handle;
    return leave(rc);
}
