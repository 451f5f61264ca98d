/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softhip.h - the part of the HIP runtime that libamdhip64.so.5 of this folder has, told from its
 * documentation, on purpose apart from what src/plat declares. Also for tests that are linked with it.
 */
#ifndef SOFTHIP_H
#define SOFTHIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int hipError_t;
typedef struct sg_stream *hipStream_t;
typedef struct sg_event *hipEvent_t;
typedef void *hipMemGenericAllocationHandle_t;

typedef struct {
    char bytes[16];
} hipUUID;

typedef struct {
    char reserved[64];
} hipIpcMemHandle_t;

typedef struct {
    int type, device;
    void *devicePointer, *hostPointer;
    int isManaged;
    unsigned allocationFlags;
} hipPointerAttribute_t;

typedef struct {
    int type, id;
} hipMemLocation;

/* Up to ROCm 5.2. */
typedef struct {
    unsigned char compressionType;
    hipMemLocation location;
    int requestedHandleType, type;
    unsigned short usage;
    void *win32HandleMetaData;
} hipMemAllocationProp_5_2;

typedef struct {
    int type, requestedHandleType;
    hipMemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
    } allocFlags;
} hipMemAllocationProp;

typedef struct {
    hipMemLocation location;
    int flags;
} hipMemAccessDesc;

_Static_assert(sizeof(hipPointerAttribute_t) == 32 && sizeof(hipMemAllocationProp_5_2) == 32 &&
                   sizeof(hipMemAllocationProp) == 32 && sizeof(hipMemAccessDesc) == 12,
               "as in hip_runtime_api.h");

#pragma GCC visibility push(default)
hipError_t hipInit(unsigned flags);
hipError_t hipRuntimeGetVersion(int *out);
const char *hipGetErrorName(hipError_t error);
const char *hipGetErrorString(hipError_t error);
hipError_t hipGetLastError(void);
hipError_t hipGetDeviceCount(int *count);
hipError_t hipGetDevice(int *device);
hipError_t hipSetDevice(int device);
hipError_t hipDeviceGetPCIBusId(char *out, int size, int device);
hipError_t hipDeviceGetUuid(hipUUID *out, int device);
hipError_t hipDeviceGetAttribute(int *out, int name, int device);
hipError_t hipPointerGetAttributes(hipPointerAttribute_t *out, const void *ptr);
hipError_t hipPointerGetAttribute(void *data, int name, void *ptr);
hipError_t hipMemGetAddressRange(void **base, size_t *size, void *ptr);
hipError_t hipMalloc(void **out, size_t size);
hipError_t hipFree(void *ptr);
hipError_t hipMallocManaged(void **out, size_t size, unsigned flags);
hipError_t hipHostRegister(void *addr, size_t size, unsigned flags);
hipError_t hipHostUnregister(void *addr);
hipError_t hipMemset(void *to, int byte, size_t n);
hipError_t hipMemsetAsync(void *to, int byte, size_t n, hipStream_t stream);
hipError_t hipMemcpy(void *to, const void *from, size_t n, int kind);
hipError_t hipMemcpyAsync(void *to, const void *from, size_t n, int kind, hipStream_t stream);
hipError_t hipStreamCreateWithFlags(hipStream_t *out, unsigned flags);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipThreadExchangeStreamCaptureMode(int *mode);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamQuery(hipStream_t stream);
hipError_t hipStreamWaitValue32(hipStream_t stream, void *word, unsigned value, unsigned flags,
                                unsigned mask);
hipError_t hipEventCreateWithFlags(hipEvent_t *out, unsigned flags);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventQuery(hipEvent_t event);
hipError_t hipEventSynchronize(hipEvent_t event);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *out, void *ptr);
hipError_t hipIpcOpenMemHandle(void **out, hipIpcMemHandle_t handle, unsigned flags);
hipError_t hipIpcCloseMemHandle(void *ptr);
hipError_t hipMemGetHandleForAddressRange(void *out, void *ptr, size_t size, int type,
                                          unsigned long long flags);
hipError_t hipMemGetAllocationGranularity(size_t *out, const void *prop, int which);
hipError_t hipMemCreate(hipMemGenericAllocationHandle_t *out, size_t size, const void *prop,
                        unsigned long long flags);
hipError_t hipMemRelease(hipMemGenericAllocationHandle_t handle);
hipError_t hipMemAddressReserve(void **out, size_t size, size_t align, void *at,
                                unsigned long long flags);
hipError_t hipMemAddressFree(void *ptr, size_t size);
hipError_t hipMemMap(void *ptr, size_t size, size_t offset, hipMemGenericAllocationHandle_t handle,
                     unsigned long long flags);
hipError_t hipMemUnmap(void *ptr, size_t size);
hipError_t hipMemSetAccess(void *ptr, size_t size, const hipMemAccessDesc *v, size_t n);
hipError_t hipMemExportToShareableHandle(void *out, hipMemGenericAllocationHandle_t handle,
                                         int type, unsigned long long flags);
hipError_t hipMemImportFromShareableHandle(hipMemGenericAllocationHandle_t *out, void *from,
                                           int type);
hipError_t hipMemRetainAllocationHandle(hipMemGenericAllocationHandle_t *out, void *addr);
#pragma GCC visibility pop

#endif
