/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem_cuda.c - CUDA, by its driver API: the one library that every host with NVIDIA's driver has,
 * whichever version of the CUDA runtime the process uses. Other makers have it under their own names.
 *
 * Everything is done in the primary context of the device, which the CUDA runtime uses, too. It is
 * retained when a device is first entered and kept; it is pushed around calls, and so the caller's
 * own is never changed. Likewise the thread's mode of captures: a program that captures a stream must
 * not notice that other threads, or a call into this library, query and allocate meanwhile, which
 * the driver would refuse, and spoil the capture for. The default stream is not touched, since it waits for the program's kernels.
 */
#include "plat/cuda_table.h"

static const struct tei_symbol symbols[] = {TEI_CUDA_SYMBOLS(TEI_GPU_SYMBOL)
                                                TEI_CUDA_NEW_SYMBOLS(TEI_GPU_SYMBOL)};

#define CALL(name, ...)  CALL_(name, __VA_ARGS__)
#define CALL_(name, ...) CU->cu##name(__VA_ARGS__)
#define HAS(name)        (CU->cu##name != NULL)

#define ALLOC        MemAlloc_v2
#define FREE         MemFree_v2
#define RANGE        MemGetAddressRange_v2
#define HOST_PIN     MemHostRegister_v2
#define HOST_UNPIN   MemHostUnregister
#define MEMSET       MemsetD8Async
#define STREAM_OPEN  StreamCreate
#define STREAM_CLOSE StreamDestroy_v2
#define EVENT_OPEN   EventCreate
#define EVENT_CLOSE  EventDestroy_v2
#define IPC_OPEN     IpcOpenMemHandle_v2
#define DEVICE_COUNT DeviceGetCount

typedef CUdeviceptr gpu_address;
typedef CUstream gpu_stream;
typedef CUevent gpu_event;
typedef CUmemGenericAllocationHandle gpu_piece;
typedef CUipcMemHandle gpu_ipc_handle;
typedef CUmemAllocationProp gpu_properties;
typedef CUmemAccessDesc gpu_access;
typedef CUstreamCaptureMode gpu_capture_mode;

enum {
    NON_BLOCKING = TEI_CU_STREAM_NON_BLOCKING,
    UNTIMED = TEI_CU_EVENT_DISABLE_TIMING,
    PORTABLE = TEI_CU_MEMHOSTREGISTER_PORTABLE,
    DEVICE_LOCATION = TEI_CU_MEM_LOCATION_TYPE_DEVICE,
    READ_WRITE = TEI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    GRANULARITY = TEI_CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
    DMABUF = TEI_CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
};

static bool has_maps(const struct tei_driver *d)
{
    (void)d;
    return true;
}

static unsigned ipc_flags(const struct tei_driver *d)
{
    (void)d;
    return TEI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
}

static int has_attribute(const struct tei_driver *d, CUdevice_attribute attribute, int device)
{
    CUdevice number;
    int has = 0;

    if (CU->cuDeviceGet(&number, device) != 0 ||
        CU->cuDeviceGetAttribute(&has, attribute, number) != 0)
        return 0;
    return has != 0;
}

static CUmemAllocationProp properties_of(const struct tei_driver *d, int device)
{
    int rdma =
        has_attribute(d, TEI_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device);

    return (CUmemAllocationProp){.type = TEI_CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = TEI_CU_MEM_HANDLE_TYPE_FABRIC,
                                 .location = {TEI_CU_MEM_LOCATION_TYPE_DEVICE, device},
                                 .allocFlags = {.gpuDirectRDMACapable = (unsigned char)rdma}};
}

/* Bytes that a NIC has written to the device are seen after it, too, where the device can see to that. */
static unsigned wait_flags(const struct tei_driver *d, int device)
{
    return has_attribute(d, TEI_CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, device)
               ? TEI_CU_STREAM_WAIT_VALUE_GEQ | TEI_CU_STREAM_WAIT_VALUE_FLUSH
               : TEI_CU_STREAM_WAIT_VALUE_GEQ;
}
#define HAS_WAIT                  \
    (HAS(StreamWaitValue32_v2) && \
     has_attribute(d, TEI_CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, device))
#define WAIT_VALUE(stream, word, value) \
    CALL(StreamWaitValue32_v2, stream, ADDRESS(word), value, wait_flags(d, device))

#include "plat/gpu_row.h"

/* ---------------------------------------------------------------------------------------- devices */

static const char *error_name(const struct tei_driver *d, int status)
{
    const char *name = NULL;

    return CU->cuGetErrorName(status, &name) == 0 && name ? name : "unknown CUDA error";
}

static const char *error_text(const struct tei_driver *d, int status)
{
    const char *text = NULL;

    return CU->cuGetErrorString(status, &text) == 0 && text ? text : "no description";
}

static int tell_pci(const struct tei_driver *d, int device, char *out, int size)
{
    CUdevice number;
    int status = CU->cuDeviceGet(&number, device);

    return status ? status : CU->cuDeviceGetPCIBusId(out, size, number);
}

static int tell_uuid(const struct tei_driver *d, int device, uint8_t out[16])
{
    CUuuid uuid;
    CUdevice number;
    int status = CU->cuDeviceGet(&number, device);

    if (!status)
        status = CU->cuDeviceGetUuid_v2(&uuid, number);
    if (!status)
        memcpy(out, uuid.bytes, sizeof(uuid.bytes));
    return status;
}

/* One call tells all. An address that CUDA does not know leaves everything zero. */
static int look(const struct tei_driver *d, const void *addr, struct tei_gpu_seen *out)
{
    int type = 0, managed = 0, device = -1, ipc = 0;
    uint64_t sorts = 0;
    CUpointer_attribute what[] = {TEI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  TEI_CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  TEI_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                  TEI_CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                  TEI_CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};
    void *where[] = {&type, &managed, &device, &ipc, &sorts};
    int status = CU->cuPointerGetAttributes(TEI_ARRAY_LEN(what), what, where, ADDRESS(addr));

    *out =
        (struct tei_gpu_seen){.on_device = !status && type == TEI_CU_MEMORYTYPE_DEVICE && !managed,
                              .managed = managed != 0,
                              .device = device,
                              .ipc = ipc != 0,
                              .fabric = (sorts & TEI_CU_MEM_HANDLE_TYPE_FABRIC) != 0};
    return status;
}

static int retain_context(const struct tei_driver *d, int device, void **out)
{
    CUcontext c = NULL;
    CUdevice number;
    int status = CU->cuDeviceGet(&number, device);

    if (!status)
        status = CU->cuDevicePrimaryCtxRetain(&c, number);
    *out = c;
    return status;
}

static int enter(const struct tei_driver *d, int device, int *was)
{
    void *c;
    int status;

    *was = TEI_CU_STREAM_CAPTURE_MODE_RELAXED;
    exchange_capture_mode(d, was);
    status = tei_gpu_context(d, device, retain_context, &c);
    if (!status)
        status = CU->cuCtxPushCurrent_v2(c);
    if (status)
        exchange_capture_mode(d, was);
    return status;
}

static void leave(const struct tei_driver *d, int was)
{
    CUcontext c;

    (void)CU->cuCtxPopCurrent_v2(&c);
    exchange_capture_mode(d, &was);
}

/* ----------------------------------------------------------------------------------------- copies */

static int copy_batch(const struct tei_driver *d, const struct tei_copy *v, size_t n,
                      CUstream stream)
{
    CUdeviceptr to[TEI_GPU_BATCH], from[TEI_GPU_BATCH];
    size_t sizes[TEI_GPU_BATCH], first = 0, failed;
    CUmemcpyAttributes how = {.srcAccessOrder = TEI_CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
                              .flags = TEI_CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE};

    for (size_t i = 0; i < n; i++) {
        to[i] = ADDRESS(v[i].to);
        from[i] = ADDRESS(v[i].from);
        sizes[i] = v[i].n;
    }
    return CU->cuMemcpyBatchAsync(to, from, sizes, n, &how, &first, 1, &failed, stream);
}

/* A batch is taken whole or not at all; a driver may know the call, and yet not this device. */
static int copy(const struct tei_driver *d, const struct tei_copy *v, size_t n, void *stream)
{
    int status = TEI_GPU_NOT_SUPPORTED;

    if (n > 1 && CU->cuMemcpyBatchAsync)
        status = copy_batch(d, v, n, stream);
    if (status != TEI_GPU_NOT_SUPPORTED)
        return status;
    status = 0;
    for (size_t i = 0; !status && i < n; i++)
        status = CU->cuMemcpyAsync(ADDRESS(v[i].to), ADDRESS(v[i].from), v[i].n, stream);
    return status;
}

/* ---------------------------------------------------------------------------------- mapped memory */

static int create(const struct tei_driver *d, int device, size_t size, uint64_t *piece)
{
    CUmemAllocationProp prop = properties_of(d, device);
    CUmemGenericAllocationHandle h = 0;
    int status = CU->cuMemCreate(&h, size, &prop, 0);

    *piece = h;
    return status;
}

static int export_fabric(const struct tei_driver *d, uint64_t piece, uint8_t out[TEI_GPU_HANDLE])
{
    return CU->cuMemExportToShareableHandle(out, piece, TEI_CU_MEM_HANDLE_TYPE_FABRIC, 0);
}

/* The handle is but a name: the driver keeps nothing for it. */
static void unexport_fabric(const struct tei_driver *d, const uint8_t handle[TEI_GPU_HANDLE])
{
    (void)d;
    (void)handle;
}

/* What is not that large cannot be mapped: the driver sees to it. */
static int import_fabric(const struct tei_driver *d, const uint8_t handle[TEI_GPU_HANDLE],
                         size_t size, uint64_t *piece)
{
    uint8_t copy_of_it[TEI_GPU_HANDLE];
    CUmemGenericAllocationHandle h = 0;
    int status;

    (void)size;
    memcpy(copy_of_it, handle, sizeof(copy_of_it));
    status = CU->cuMemImportFromShareableHandle(&h, copy_of_it, TEI_CU_MEM_HANDLE_TYPE_FABRIC);
    *piece = h;
    return status;
}

_Static_assert((int)TEI_GPU_INVALID_VALUE == (int)TEI_CUDA_ERROR_INVALID_VALUE &&
                   (int)TEI_GPU_NOT_INITIALIZED == (int)TEI_CUDA_ERROR_NOT_INITIALIZED &&
                   (int)TEI_GPU_DEINITIALIZED == (int)TEI_CUDA_ERROR_DEINITIALIZED &&
                   (int)TEI_GPU_INVALID_DEVICE == (int)TEI_CUDA_ERROR_INVALID_DEVICE &&
                   (int)TEI_GPU_INVALID_CONTEXT == (int)TEI_CUDA_ERROR_INVALID_CONTEXT &&
                   (int)TEI_GPU_OUT_OF_MEMORY == (int)TEI_CUDA_ERROR_OUT_OF_MEMORY &&
                   (int)TEI_GPU_NO_DEVICE == (int)TEI_CUDA_ERROR_NO_DEVICE &&
                   (int)TEI_GPU_NOT_READY == (int)TEI_CUDA_ERROR_NOT_READY &&
                   (int)TEI_GPU_ALREADY_PINNED ==
                       (int)TEI_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED &&
                   (int)TEI_GPU_NOT_SUPPORTED == (int)TEI_CUDA_ERROR_NOT_SUPPORTED,
               "statuses of CUDA");

const struct tei_api tei_api_cuda = {
    .prefix = "cu",
    TEI_API_TABLE,
    TEI_API_CALLS,
    TEI_API_MAP_CALLS,
    .scatter = tei_cuda_scatter,
};
