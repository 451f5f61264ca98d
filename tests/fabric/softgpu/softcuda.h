/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softcuda.h - the part of the CUDA driver API that libcuda.so.1 of this folder has, told from its
 * documentation, on purpose apart from what src/plat declares. Also for tests that are linked with it.
 */
#ifndef SOFTCUDA_H
#define SOFTCUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct sg_context *CUcontext;
typedef struct sg_stream *CUstream;
typedef struct sg_event *CUevent;
typedef struct soft_module *CUmodule;
typedef struct soft_function *CUfunction;

typedef struct {
    char bytes[16];
} CUuuid;

typedef struct {
    char reserved[64];
} CUipcMemHandle;

typedef struct {
    int type, id;
} CUmemLocation;

typedef struct {
    int type, requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;

typedef struct {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;

typedef struct {
    int srcAccessOrder;
    CUmemLocation srcLocHint, dstLocHint;
    unsigned flags;
} CUmemcpyAttributes;

_Static_assert(sizeof(CUmemAllocationProp) == 32 && sizeof(CUmemAccessDesc) == 12 &&
                   sizeof(CUmemcpyAttributes) == 24,
               "as in cuda.h");

#pragma GCC visibility push(default)
CUresult cuInit(unsigned flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuGetErrorName(CUresult error, const char **out);
CUresult cuGetErrorString(CUresult error, const char **out);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetAttribute(int *out, int name, CUdevice device);
CUresult cuDeviceGetPCIBusId(char *out, int size, CUdevice device);
CUresult cuDeviceGetUuid_v2(CUuuid *out, CUdevice device);
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CUresult cuCtxGetCurrent(CUcontext *out);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *out);
CUresult cuPointerGetAttribute(void *data, int name, CUdeviceptr ptr);
CUresult cuPointerGetAttributes(unsigned n, int *names, void **data, CUdeviceptr ptr);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr);
CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size);
CUresult cuMemFree_v2(CUdeviceptr ptr);
CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned flags);
CUresult cuMemHostRegister_v2(void *addr, size_t size, unsigned flags);
CUresult cuMemHostUnregister(void *addr);
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char byte, size_t n);
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t n, CUstream stream);
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n);
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream);
CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attrs, size_t *starts, size_t n, size_t *failed,
                            CUstream stream);
CUresult cuModuleLoadData(CUmodule *out, const void *image);
CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name);
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream stream, void **args,
                        void **extra);
CUresult cuStreamCreate(CUstream *out, unsigned flags);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuThreadExchangeStreamCaptureMode(int *mode);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr word, unsigned value, unsigned flags);
CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *arg), void *arg);
CUresult cuEventCreate(CUevent *out, unsigned flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventQuery(CUevent event);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr ptr);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags);
CUresult cuIpcCloseMemHandle(CUdeviceptr ptr);
CUresult cuMemGetHandleForAddressRange(void *out, CUdeviceptr ptr, size_t size, int type,
                                       unsigned long long flags);
CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *p, int which);
CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *p,
                     unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t align, CUdeviceptr at,
                             unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size);
CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr ptr, size_t size);
CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *v, size_t n);
CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
                                      unsigned long long flags);
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *from, int type);
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *addr);
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out,
                                                CUmemGenericAllocationHandle handle);
#pragma GCC visibility pop

#endif
