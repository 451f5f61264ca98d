/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem_ascend.c - Ascend NPUs, by AscendCL.
 *
 * A thread has a current context, of a device. The device's default one is made current around calls, and
 * the one before is put back; so is the mode of captures, for which mem_cuda.c has the reason. What releases
 * of CANN lack, and what comes of it:
 *   address ranges, IPC keys   memory is told page by page, and is not shared by keys
 *   pinning                    copies from and to host memory are the runtime's own way
 *   ACL_MEMCPY_DEFAULT         it is asked where either side is
 *
 * An IPC key is a name of whole pages, good until it is closed: the runtime refuses memory that shares a page
 * with other memory, so what is allocated here fills its pages. A key's list of processes that may use it is
 * switched off: who that will be is not known when it is made.
 */
#include "plat/gpu.h"

#include "plat/acl.h"

#include <string.h>

#define PAGE         ((size_t)2 << 20) /* of memory that is allocated here: the smaller one of huge pages */
#define STREAM_FLAGS (TEI_ACL_STREAM_FAST_LAUNCH | TEI_ACL_STREAM_FAST_SYNC)

#define ALL_SYMBOLS(X) TEI_ACL_SYMBOLS(X) TEI_ACL_NEW_SYMBOLS(X)

struct table {
#define MEMBER(name, args, required) aclError(*name) args;
    ALL_SYMBOLS(MEMBER)
#undef MEMBER
};
#define ACL ((struct table *)d->table)

static const struct tei_symbol symbols[] = {ALL_SYMBOLS(TEI_GPU_SYMBOL)};

static const struct tei_gpu_error errors[] = {
#define ERROR(name, value, status, text) {value, status, #name, text},
    TEI_ACL_ERRORS(ERROR)
#undef ERROR
};

static int status_of(aclError code)
{
    return tei_gpu_status(&tei_api_ascend, code);
}

/* The calls that are one of the runtime's. */
#define FORWARD(name, call, ...)                             \
    static int name(const struct tei_driver *d, __VA_ARGS__) \
    {                                                        \
        return status_of(ACL->call);                         \
    }
FORWARD(release_memory, aclrtFree(addr), void *addr)
FORWARD(unpin, aclrtHostUnregister(addr), void *addr)
FORWARD(open_stream, aclrtCreateStreamWithConfig(out, 0, STREAM_FLAGS), void **out)
FORWARD(wait_stream, aclrtSynchronizeStream(stream), void *stream)
FORWARD(close_stream, aclrtDestroyStream(stream), void *stream)
FORWARD(open_event, aclrtCreateEventExWithFlag(out, TEI_ACL_EVENT_SYNC), void **out)
FORWARD(record_event, aclrtRecordEvent(event, stream), void *event, void *stream)
FORWARD(close_event, aclrtDestroyEvent(event), void *event)
FORWARD(zero, aclrtMemsetAsync(addr, length, 0, length, stream), void *addr, size_t length,
        void *stream)

/* --------------------------------------------------------------------------------------- devices */

/* The program may have initialised it. */
static int start(const struct tei_driver *d, int *devices)
{
    aclError code = ACL->aclInit(NULL);
    uint32_t n = 0;

    if (code && code != TEI_ACL_ERROR_REPEAT_INITIALIZE)
        return status_of(code);
    code = ACL->aclrtGetDeviceCount(&n);
    *devices = n < TEI_GPU_DEVICES ? (int)n : TEI_GPU_DEVICES;
    return status_of(code);
}

static int tell_uuid(const struct tei_driver *d, int device, uint8_t out[16])
{
    aclrtUuid uuid = {0};
    int status = TEI_GPU_NOT_SUPPORTED;

    if (ACL->aclrtDeviceGetUuid)
        status = status_of(ACL->aclrtDeviceGetUuid(device, &uuid));
    memcpy(out, uuid.bytes, sizeof(uuid.bytes));
    return status;
}

/* What was current in this thread before enter(), which is not called again before leave(). */
static _Thread_local aclrtContext context_before;
static _Thread_local aclmdlRICaptureMode mode_before;

static void exchange_capture_mode(const struct tei_driver *d, aclmdlRICaptureMode *mode)
{
    if (ACL->aclmdlRICaptureThreadExchangeMode)
        (void)ACL->aclmdlRICaptureThreadExchangeMode(mode);
}

/* The default one, which each such call would count once more. */
static int retain_context(const struct tei_driver *d, int device, void **out)
{
    aclError code = ACL->aclrtSetDevice(device);

    return status_of(code ? code : ACL->aclrtGetCurrentContext(out));
}

/* A thread that had no context keeps ours: there is no way back to none. */
static void leave(const struct tei_driver *d, int was)
{
    (void)was;
    if (context_before)
        (void)ACL->aclrtSetCurrentContext(context_before);
    exchange_capture_mode(d, &mode_before);
}

static int enter(const struct tei_driver *d, int device, int *was)
{
    void *c;
    int status;

    *was = 0;
    if (ACL->aclrtGetCurrentContext(&context_before))
        context_before = NULL;
    mode_before = TEI_ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
    exchange_capture_mode(d, &mode_before);
    status = tei_gpu_context(d, device, retain_context, &c);
    if (!status)
        status = status_of(ACL->aclrtSetCurrentContext(c));
    if (status)
        leave(d, *was);
    return status;
}

/* ---------------------------------------------------------------------------------------- memory */

/* A device that this process uses; -1: none, or the runtime does not say. */
static int find_active(const struct tei_driver *d)
{
    uint32_t n = 0, flags;
    int32_t active = 0;

    if (!ACL->aclrtGetPrimaryCtxState || ACL->aclrtGetDeviceCount(&n))
        return -1;
    for (uint32_t i = 0; i < n && i < TEI_GPU_DEVICES; i++)
        if (ACL->aclrtGetPrimaryCtxState((int32_t)i, &flags, &active) == 0 && active)
            return (int)i;
    return -1;
}

/* A thread without a context may not ask, so one is lent to it. */
static int attributes(const struct tei_driver *d, const void *addr, aclrtPtrAttributes *out)
{
    int status = status_of(ACL->aclrtPointerGetAttributes(addr, out)), device, was;

    if (status != TEI_GPU_INVALID_CONTEXT)
        return status;
    device = find_active(d);
    if (device < 0 || enter(d, device, &was) != 0)
        return status;
    status = status_of(ACL->aclrtPointerGetAttributes(addr, out));
    leave(d, was);
    return status;
}

static bool has_ipc(const struct tei_driver *d)
{
    return ACL->aclrtMemGetAddressRange && ACL->aclrtIpcMemGetExportKey &&
           ACL->aclrtIpcMemImportByKey && ACL->aclrtIpcMemClose;
}

static int look(const struct tei_driver *d, const void *addr, struct tei_gpu_seen *out)
{
    aclrtPtrAttributes a = {0};
    int status = attributes(d, addr, &a);

    *out = (struct tei_gpu_seen){.device = (int)a.location.id, .ipc = has_ipc(d)};
    out->on_device = !status && a.location.type == TEI_ACL_MEM_LOCATION_TYPE_DEVICE;
    return status;
}

static int find_range(const struct tei_driver *d, const void *addr, uintptr_t *base, size_t *length)
{
    aclrtPtrAttributes a = {0};
    void *p = (void *)(uintptr_t)addr;
    int status;

    if (ACL->aclrtMemGetAddressRange) {
        status = status_of(ACL->aclrtMemGetAddressRange(p, &p, length));
    } else {
        status = attributes(d, addr, &a);
        *length = a.pageSize ? a.pageSize : 1;
        p = (char *)p - (uintptr_t)addr % *length;
    }
    *base = (uintptr_t)p;
    return status;
}

static int allocate(const struct tei_driver *d, size_t length, void **out)
{
    uint64_t end;

    if (!tei_add_ok(length, PAGE - 1, &end))
        return TEI_GPU_OUT_OF_MEMORY;
    return status_of(ACL->aclrtMalloc(out, end / PAGE * PAGE, TEI_ACL_MEM_MALLOC_HUGE_FIRST));
}

static int pin(const struct tei_driver *d, void *addr, size_t length)
{
    if (!ACL->aclrtHostRegisterV2 || !ACL->aclrtHostUnregister)
        return TEI_GPU_NOT_SUPPORTED;
    return status_of(ACL->aclrtHostRegisterV2(addr, length, TEI_ACL_HOST_REG_PINNED));
}

/* ---------------------------------------------------------------------------------------- copies */

static int query_event(const struct tei_driver *d, void *event)
{
    aclrtEventRecordedStatus s = TEI_ACL_EVENT_RECORDED_STATUS_COMPLETE;
    aclError code = ACL->aclrtQueryEventStatus(event, &s);

    if (!code && s != TEI_ACL_EVENT_RECORDED_STATUS_COMPLETE)
        return TEI_GPU_NOT_READY;
    return status_of(code);
}

/* Of a copy, which the runtime may not find out by itself. */
static int direction(const struct tei_driver *d, const struct tei_copy *c)
{
    struct tei_gpu_seen to, from;

    (void)look(d, c->to, &to);
    (void)look(d, c->from, &from);
    if (to.on_device && from.on_device)
        return TEI_ACL_MEMCPY_DEVICE_TO_DEVICE;
    return to.on_device ? TEI_ACL_MEMCPY_HOST_TO_DEVICE : TEI_ACL_MEMCPY_DEVICE_TO_HOST;
}

static int copy(const struct tei_driver *d, const struct tei_copy *v, size_t n, void *stream)
{
    int status = 0;

    for (const struct tei_copy *c = v; !status && c < v + n; c++) {
        int kind = TEI_ACL_MEMCPY_DEFAULT;

        status = status_of(ACL->aclrtMemcpyAsync(c->to, c->n, c->from, c->n, kind, stream));
        if (status != TEI_GPU_INVALID_VALUE && status != TEI_GPU_NOT_SUPPORTED)
            continue;
        kind = direction(d, c);
        status = status_of(ACL->aclrtMemcpyAsync(c->to, c->n, c->from, c->n, kind, stream));
    }
    return status;
}

/* ------------------------------------------------------------------------------------------- IPC */

static int export_ipc(const struct tei_driver *d, void *base, uint8_t out[TEI_GPU_HANDLE])
{
    char key[TEI_GPU_HANDLE + 1] = "";
    uintptr_t start_of_it;
    size_t length;
    int status = find_range(d, base, &start_of_it, &length);

    if (!status)
        status = status_of(ACL->aclrtIpcMemGetExportKey(
            base, length, key, sizeof(key), TEI_ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION));
    memcpy(out, key, TEI_GPU_HANDLE);
    return status;
}

static int open_ipc(const struct tei_driver *d, const uint8_t handle[TEI_GPU_HANDLE], void **base)
{
    char key[TEI_GPU_HANDLE + 1] = "";

    memcpy(key, handle, TEI_GPU_HANDLE);
    if (!has_ipc(d))
        return TEI_GPU_NOT_SUPPORTED;
    return status_of(
        ACL->aclrtIpcMemImportByKey(base, key, TEI_ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS));
}

/* Closes a key, and so what was opened by it. */
static int close_ipc(const struct tei_driver *d, void *base, const uint8_t handle[TEI_GPU_HANDLE])
{
    char key[TEI_GPU_HANDLE + 1] = "";

    (void)base;
    memcpy(key, handle, TEI_GPU_HANDLE);
    return status_of(ACL->aclrtIpcMemClose(key));
}

const struct tei_api tei_api_ascend = {
    .prefix = "acl",
    TEI_API_TABLE,
    .errors = errors,
    .n_errors = TEI_ARRAY_LEN(errors),
    TEI_API_CALLS,
    .ipc_unexport = close_ipc,
};
