/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem_hip.c - HIP, by AMD's runtime library. Other makers have it under their own names.
 *
 * The runtime has no contexts to push: each thread has a current device, which is changed around
 * calls and then put back; so is its mode of captures, for which mem_cuda.c has the reason. ROCm 5, 6 and 7
 * differ in what hip.h cannot say:
 *   kinds of memory    ROCm 5 has another numbering
 *   flags of IPC       ROCm 5 has none
 *   mapped memory      its structs are what hip.h has from ROCm 6 on; before that it is not used
 *   imported files     ROCm 7.1 takes the descriptor for a pointer, before that a pointer to it
 *
 * Where a runtime does not know the fabric, mapped memory is exported as a file descriptor (gpu_file.c).
 */
#include "plat/gpu.h"
#include "plat/hip.h"

#include "base/err.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ROCM_6   60000000
#define ROCM_7_1 70100000

#define ALL_SYMBOLS(X) TEI_HIP_SYMBOLS(X) TEI_HIP_MAP_SYMBOLS(X) TEI_HIP_NEW_SYMBOLS(X)

/* Of each maker. */
struct table {
#define MEMBER(result, name, args, required) result(*name) args;
    ALL_SYMBOLS(MEMBER)
#undef MEMBER
    _Atomic int version;
};
#define HIP    ((struct table *)d->table)
#define IS_HIP (strcmp(d->prefix, tei_api_hip.prefix) == 0)

static const struct tei_symbol symbols[] = {
#define SYMBOL(result, name, args, required) {#name, offsetof(struct table, name), required},
    ALL_SYMBOLS(SYMBOL)
#undef SYMBOL
};

/*
 * Every call goes this way. The runtime keeps the last error of the thread, and the program, which
 * asks for it after its own calls, would take ours for its own.
 */
#define CALL(name, ...)  CALL_(name, __VA_ARGS__)
#define CALL_(name, ...) forget_error(d, HIP->hip##name(__VA_ARGS__))
#define HAS(name)        (HIP->hip##name != NULL)

#define ALLOC           Malloc
#define FREE            Free
#define RANGE           MemGetAddressRange
#define HOST_PIN        HostRegister
#define HOST_UNPIN      HostUnregister
#define MEMSET          MemsetAsync
#define STREAM_OPEN     StreamCreateWithFlags
#define STREAM_CLOSE    StreamDestroy
#define EVENT_OPEN      EventCreateWithFlags
#define EVENT_CLOSE     EventDestroy
#define IPC_OPEN        IpcOpenMemHandle
#define DEVICE_COUNT    GetDeviceCount
#define HAS_WAIT        HAS(StreamWaitValue32)
#define WAIT_VALUE(...) CALL(StreamWaitValue32, __VA_ARGS__, TEI_hipStreamWaitValueGte, ~0U)

typedef hipDeviceptr_t gpu_address;
typedef hipStream_t gpu_stream;
typedef hipEvent_t gpu_event;
typedef hipMemGenericAllocationHandle_t gpu_piece;
typedef hipIpcMemHandle_t gpu_ipc_handle;
typedef hipMemAllocationProp gpu_properties;
typedef hipMemAccessDesc gpu_access;
typedef hipStreamCaptureMode gpu_capture_mode;

enum {
    NON_BLOCKING = TEI_hipStreamNonBlocking,
    UNTIMED = TEI_hipEventDisableTiming,
    PORTABLE = TEI_hipHostRegisterPortable,
    DEVICE_LOCATION = TEI_hipMemLocationTypeDevice,
    READ_WRITE = TEI_hipMemAccessFlagsProtReadWrite,
    GRANULARITY = TEI_hipMemAllocationGranularityRecommended,
    DMABUF = TEI_hipMemRangeHandleTypeDmaBufFd
};

static int forget_error(const struct tei_driver *d, int status)
{
    if (status)
        (void)HIP->hipGetLastError();
    return status;
}

/* 0: not said. Other makers count in their own way, and number kinds of memory as ROCm 6 does. */
static int version(const struct tei_driver *d)
{
    int v = IS_HIP ? atomic_load_explicit(&HIP->version, memory_order_relaxed) : ROCM_6;

    if (v == 0 && CALL(RuntimeGetVersion, &v) == 0)
        atomic_store_explicit(&HIP->version, v, memory_order_relaxed);
    return v;
}

/* Of other makers the layouts are not known. */
static bool has_maps(const struct tei_driver *d)
{
#define IS_THERE(result, name, args, required) &&HIP->name
    return IS_HIP && version(d) >= ROCM_6 TEI_HIP_MAP_SYMBOLS(IS_THERE);
#undef IS_THERE
}

static hipMemAllocationProp memory_of(int device, int sort)
{
    return (hipMemAllocationProp){.type = TEI_hipMemAllocationTypePinned,
                                  .requestedHandleType = sort,
                                  .location = {TEI_hipMemLocationTypeDevice, device}};
}

static hipMemAllocationProp properties_of(const struct tei_driver *d, int device)
{
    (void)d;
    return memory_of(device, TEI_hipMemHandleTypePosixFileDescriptor);
}

static unsigned ipc_flags(const struct tei_driver *d)
{
    return version(d) < ROCM_6 ? 0 : TEI_hipIpcMemLazyEnablePeerAccess;
}

#include "plat/gpu_row.h"

/* ---------------------------------------------------------------------------------------- devices */

static const char *error_name(const struct tei_driver *d, int status)
{
    return HIP->hipGetErrorName(status);
}

static const char *error_text(const struct tei_driver *d, int status)
{
    return HIP->hipGetErrorString(status);
}

static int tell_pci(const struct tei_driver *d, int device, char *out, int size)
{
    return CALL(DeviceGetPCIBusId, out, size, device);
}

static int tell_uuid(const struct tei_driver *d, int device, uint8_t out[16])
{
    hipUUID uuid;
    int status = CALL(DeviceGetUuid, &uuid, device);

    if (!status)
        memcpy(out, uuid.bytes, sizeof(uuid.bytes));
    return status;
}

static int look(const struct tei_driver *d, const void *addr, struct tei_gpu_seen *out)
{
    hipPointerAttribute_t a = {.device = -1};
    int status = CALL(PointerGetAttributes, &a, addr);
    int on_device = version(d) < ROCM_6 ? TEI_hipMemoryTypeDevice - 1 : TEI_hipMemoryTypeDevice;
    uint64_t piece;

    *out = (struct tei_gpu_seen){.managed = !status && a.isManaged};
    if (status || a.type != on_device || a.isManaged)
        return status;
    out->on_device = true;
    out->device = a.device;
    out->fabric = retain(d, (void *)(uintptr_t)addr, &piece) == 0;
    out->ipc = !out->fabric;
    if (out->fabric)
        release(d, piece);
    return 0;
}

/* `was` has both: the mode, and MODES times the device. */
#define MODES 3

static int enter(const struct tei_driver *d, int device, int *was)
{
    hipStreamCaptureMode mode = TEI_hipStreamCaptureModeRelaxed;
    int before, status = CALL(GetDevice, &before);

    if (!status && before != device)
        status = CALL(SetDevice, device);
    if (status)
        return status;
    exchange_capture_mode(d, &mode);
    *was = before * MODES + mode;
    return 0;
}

static void leave(const struct tei_driver *d, int was)
{
    hipStreamCaptureMode mode = was % MODES;

    (void)CALL(SetDevice, was / MODES);
    exchange_capture_mode(d, &mode);
}

/* ----------------------------------------------------------------------------------------- copies */

static int copy(const struct tei_driver *d, const struct tei_copy *v, size_t n, void *stream)
{
    int status = 0;

    for (size_t i = 0; !status && i < n; i++)
        status = CALL(MemcpyAsync, v[i].to, v[i].from, v[i].n, TEI_hipMemcpyDefault, stream);
    return status;
}

/* ---------------------------------------------------------------------------------- mapped memory */

static int create(const struct tei_driver *d, int device, size_t size, uint64_t *piece)
{
    hipMemAllocationProp fabric = memory_of(device, TEI_hipMemHandleTypeFabric),
                         file = properties_of(d, device);
    gpu_piece h = NULL;
    int status = CALL(MemCreate, &h, size, &fabric, 0);

    if (status && status != TEI_GPU_OUT_OF_MEMORY)
        status = CALL(MemCreate, &h, size, &file, 0);
    *piece = (uintptr_t)h;
    return status;
}

static int export_fabric(const struct tei_driver *d, uint64_t piece, uint8_t out[TEI_GPU_HANDLE])
{
    gpu_piece h = PIECE(piece);
    int fd = -1, status = CALL(MemExportToShareableHandle, out, h, TEI_hipMemHandleTypeFabric, 0);

    if (!status)
        return 0;
    status = CALL(MemExportToShareableHandle, &fd, h, TEI_hipMemHandleTypePosixFileDescriptor, 0);
    return status ? status : tei_gpu_file_export(fd, out);
}

static void unexport_fabric(const struct tei_driver *d, const uint8_t handle[TEI_GPU_HANDLE])
{
    (void)d;
    tei_gpu_file_unexport(handle);
}

static int import_file(const struct tei_driver *d, const uint8_t handle[TEI_GPU_HANDLE],
                       size_t size, gpu_piece *out)
{
    int fd = tei_gpu_file_fetch(handle), status = TEI_GPU_NOT_SUPPORTED;
    void *by_value = (void *)(intptr_t)fd;
    off_t end = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;

    if (end >= 0 && (uint64_t)end >= size)
        status = CALL(MemImportFromShareableHandle, out, version(d) < ROCM_7_1 ? &fd : by_value,
                      TEI_hipMemHandleTypePosixFileDescriptor);
    else
        TEI_DEBUG("descriptor of another process: %s",
                  fd < 0 ? "it cannot be fetched" : "it is too short");
    if (fd >= 0)
        close(fd);
    return status;
}

static int import_fabric(const struct tei_driver *d, const uint8_t handle[TEI_GPU_HANDLE],
                         size_t size, uint64_t *piece)
{
    uint8_t copy_of_it[TEI_GPU_HANDLE];
    gpu_piece h = NULL;
    int status;

    memcpy(copy_of_it, handle, sizeof(copy_of_it));
    if (tei_gpu_file_is(handle))
        status = import_file(d, handle, size, &h);
    else
        status = CALL(MemImportFromShareableHandle, &h, copy_of_it, TEI_hipMemHandleTypeFabric);
    *piece = (uintptr_t)h;
    return status;
}

_Static_assert((int)TEI_GPU_INVALID_VALUE == (int)TEI_hipErrorInvalidValue &&
                   (int)TEI_GPU_NOT_INITIALIZED == (int)TEI_hipErrorNotInitialized &&
                   (int)TEI_GPU_DEINITIALIZED == (int)TEI_hipErrorDeinitialized &&
                   (int)TEI_GPU_INSUFFICIENT_DRIVER == (int)TEI_hipErrorInsufficientDriver &&
                   (int)TEI_GPU_INVALID_DEVICE == (int)TEI_hipErrorInvalidDevice &&
                   (int)TEI_GPU_INVALID_CONTEXT == (int)TEI_hipErrorInvalidContext &&
                   (int)TEI_GPU_OUT_OF_MEMORY == (int)TEI_hipErrorOutOfMemory &&
                   (int)TEI_GPU_NO_DEVICE == (int)TEI_hipErrorNoDevice &&
                   (int)TEI_GPU_NOT_READY == (int)TEI_hipErrorNotReady &&
                   (int)TEI_GPU_ALREADY_PINNED == (int)TEI_hipErrorHostMemoryAlreadyRegistered &&
                   (int)TEI_GPU_NOT_SUPPORTED == (int)TEI_hipErrorNotSupported,
               "statuses of HIP");

const struct tei_api tei_api_hip = {
    .prefix = "hip",
    TEI_API_TABLE,
    TEI_API_CALLS,
    TEI_API_MAP_CALLS,
};
