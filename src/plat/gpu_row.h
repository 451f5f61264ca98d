/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_row.h - the calls that CUDA and HIP have alike, written once: mem_cuda.c and mem_hip.c include it,
 * and nobody else, between what it needs and what is their own.
 *
 * It needs of them, `d` being the driver:
 *   CALL(Name, ...)  HAS(Name)     a function by its name without cu or hip: calls it; whether it is there
 *   ALLOC FREE RANGE HOST_PIN HOST_UNPIN MEMSET STREAM_OPEN STREAM_CLOSE EVENT_OPEN EVENT_CLOSE IPC_OPEN
 *   DEVICE_COUNT                   names that the drivers do not have in common
 *   gpu_address gpu_stream gpu_event gpu_piece gpu_ipc_handle gpu_properties gpu_access gpu_capture_mode
 *   NON_BLOCKING UNTIMED PORTABLE DEVICE_LOCATION READ_WRITE GRANULARITY DMABUF
 *   HAS_WAIT WAIT_VALUE(stream, word, value)   of a `device`
 *   has_maps(d) ipc_flags(d) properties_of()
 */
#include <string.h>

/* What a driver takes for an address, or a piece, is a number or a pointer. */
#define ADDRESS(p)   ((gpu_address)(uintptr_t)(p))
#define PIECE(piece) ((gpu_piece)(uintptr_t)(piece))
#define POINTER(p)   ((void *)(uintptr_t)(p))

static int start(const struct tei_driver *d, int *devices)
{
    int status = CALL(Init, 0);

    return status ? status : CALL(DEVICE_COUNT, devices);
}

/* *mode: the new one, and then the old one. Old drivers have no modes. */
static void exchange_capture_mode(const struct tei_driver *d, gpu_capture_mode *mode)
{
    if (HAS(ThreadExchangeStreamCaptureMode))
        (void)CALL(ThreadExchangeStreamCaptureMode, mode);
}

/* ----------------------------------------------------------------------------------------- memory */

static int find_range(const struct tei_driver *d, const void *addr, uintptr_t *base, size_t *length)
{
    gpu_address p = 0;
    int status = CALL(RANGE, &p, length, ADDRESS(addr));

    *base = (uintptr_t)p;
    return status;
}

static int allocate(const struct tei_driver *d, size_t length, void **out)
{
    gpu_address p = 0;
    int status = CALL(ALLOC, &p, length);

    *out = POINTER(p);
    return status;
}

static int release_memory(const struct tei_driver *d, void *addr)
{
    return CALL(FREE, ADDRESS(addr));
}

static int pin(const struct tei_driver *d, void *addr, size_t length)
{
    return CALL(HOST_PIN, addr, length, PORTABLE);
}

static int unpin(const struct tei_driver *d, void *addr)
{
    return CALL(HOST_UNPIN, addr);
}

/* ----------------------------------------------------------------------------------------- copies */

static int open_stream(const struct tei_driver *d, void **out)
{
    gpu_stream s = NULL;
    int status = CALL(STREAM_OPEN, &s, NON_BLOCKING);

    *out = s;
    return status;
}

static int wait_stream(const struct tei_driver *d, void *stream)
{
    return CALL(StreamSynchronize, stream);
}

static int wait_value(const struct tei_driver *d, int device, void *stream, void *word,
                      uint32_t value)
{
    (void)device;
    return HAS_WAIT ? WAIT_VALUE(stream, word, value) : TEI_GPU_NOT_SUPPORTED;
}

static int close_stream(const struct tei_driver *d, void *stream)
{
    return CALL(STREAM_CLOSE, stream);
}

static int open_event(const struct tei_driver *d, void **out)
{
    gpu_event e = NULL;
    int status = CALL(EVENT_OPEN, &e, UNTIMED);

    *out = e;
    return status;
}

static int record_event(const struct tei_driver *d, void *event, void *stream)
{
    return CALL(EventRecord, event, stream);
}

static int query_event(const struct tei_driver *d, void *event)
{
    return CALL(EventQuery, event);
}

static int close_event(const struct tei_driver *d, void *event)
{
    return CALL(EVENT_CLOSE, event);
}

static int zero(const struct tei_driver *d, void *addr, size_t length, void *stream)
{
    return CALL(MEMSET, ADDRESS(addr), 0, length, stream);
}

/* -------------------------------------------------------------------------------------------- IPC */

static int export_ipc(const struct tei_driver *d, void *base, uint8_t out[TEI_GPU_HANDLE])
{
    gpu_ipc_handle h;
    int status = CALL(IpcGetMemHandle, &h, ADDRESS(base));

    if (!status)
        memcpy(out, h.reserved, TEI_GPU_HANDLE);
    return status;
}

static int open_ipc(const struct tei_driver *d, const uint8_t handle[TEI_GPU_HANDLE], void **base)
{
    gpu_ipc_handle h;
    gpu_address p = 0;
    int status;

    memcpy(h.reserved, handle, TEI_GPU_HANDLE);
    status = CALL(IPC_OPEN, &p, h, ipc_flags(d));
    *base = POINTER(p);
    return status;
}

static int close_ipc(const struct tei_driver *d, void *base, const uint8_t handle[TEI_GPU_HANDLE])
{
    (void)handle;
    return CALL(IpcCloseMemHandle, ADDRESS(base));
}

/* ---------------------------------------------------------------------------------- mapped memory */

static int tell_granularity(const struct tei_driver *d, int device, size_t *out)
{
    gpu_properties what = properties_of(d, device);

    return has_maps(d) ? CALL(MemGetAllocationGranularity, out, &what, GRANULARITY)
                       : TEI_GPU_NOT_SUPPORTED;
}

static int retain(const struct tei_driver *d, void *addr, uint64_t *piece)
{
    gpu_piece h = 0;
    int status = has_maps(d) ? CALL(MemRetainAllocationHandle, &h, addr) : TEI_GPU_NOT_SUPPORTED;

    *piece = (uintptr_t)h;
    return status;
}

static void release(const struct tei_driver *d, uint64_t piece)
{
    (void)CALL(MemRelease, PIECE(piece));
}

static int map(const struct tei_driver *d, uint64_t piece, size_t size, void **addr)
{
    gpu_address p = 0;
    int status = CALL(MemAddressReserve, &p, size, 0, 0, 0);

    if (status)
        return status;
    status = CALL(MemMap, p, size, 0, PIECE(piece), 0);
    if (status)
        (void)CALL(MemAddressFree, p, size);
    else
        *addr = POINTER(p);
    return status;
}

static int allow(const struct tei_driver *d, void *addr, size_t size, int device)
{
    gpu_access access = {.location = {DEVICE_LOCATION, device}, .flags = READ_WRITE};

    return CALL(MemSetAccess, ADDRESS(addr), size, &access, 1);
}

static void unmap(const struct tei_driver *d, void *addr, size_t size)
{
    (void)CALL(MemUnmap, ADDRESS(addr), size);
    (void)CALL(MemAddressFree, ADDRESS(addr), size);
}

static int export_dmabuf(const struct tei_driver *d, int device, uintptr_t addr, size_t size,
                         int *fd)
{
    (void)device;
    return HAS(MemGetHandleForAddressRange)
               ? CALL(MemGetHandleForAddressRange, fd, ADDRESS(addr), size, DMABUF, 0)
               : TEI_GPU_NOT_SUPPORTED;
}
