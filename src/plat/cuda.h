/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda.h - what is used of NVIDIA's driver, libcuda.so.1: names, numbers and layouts of its ABI, so
 * that no package of NVIDIA is needed to build. The types have the vendor's names, and the symbols
 * the vendor's prototypes: tests/lint/test_vendor_headers.py compiles all of this against the
 * vendor's header, where there is one. Private to src/plat.
 */
#ifndef TEI_PLAT_CUDA_H
#define TEI_PLAT_CUDA_H

#include <stddef.h>
#include <stdint.h>

/* Name, value. TEI_ stands before the name here. */
#define TEI_CUDA_NUMBERS(X)                                             \
    X(CUDA_ERROR_INVALID_VALUE, 1)                                      \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                      \
    X(CUDA_ERROR_NOT_INITIALIZED, 3)                                    \
    X(CUDA_ERROR_DEINITIALIZED, 4)                                      \
    X(CUDA_ERROR_NO_DEVICE, 100)                                        \
    X(CUDA_ERROR_INVALID_DEVICE, 101)                                   \
    X(CUDA_ERROR_INVALID_CONTEXT, 201)                                  \
    X(CUDA_ERROR_NOT_READY, 600)                                        \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701)                          \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                   \
    X(CUDA_ERROR_NOT_SUPPORTED, 801)                                    \
    X(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110) \
    X(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 91)  \
    X(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 98)                  \
    X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                              \
    X(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)                               \
    X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                           \
    X(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 10)              \
    X(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11)                        \
    X(CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12)                              \
    X(CU_POINTER_ATTRIBUTE_MAPPED, 13)                                  \
    X(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 14)                    \
    X(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, 16)                            \
    X(CU_MEMORYTYPE_DEVICE, 2)                                          \
    X(CU_STREAM_NON_BLOCKING, 1)                                        \
    X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)                                \
    X(CU_STREAM_WAIT_VALUE_GEQ, 0)                                      \
    X(CU_STREAM_WAIT_VALUE_FLUSH, 1 << 30)                              \
    X(CU_EVENT_DISABLE_TIMING, 2)                                       \
    X(CU_MEMHOSTREGISTER_PORTABLE, 1)                                   \
    X(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)                            \
    X(CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                 \
    X(CU_MEM_LOCATION_TYPE_DEVICE, 1)                                   \
    X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                            \
    X(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)                          \
    X(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 1)

/* The same, of which headers before CUDA 12.8 do not know all. */
#define TEI_CUDA_NEW_NUMBERS(X)             \
    X(CU_MEM_HANDLE_TYPE_FABRIC, 8)         \
    X(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, 1) \
    X(CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE, 1)

enum {
#define TEI_CUDA_NUMBER(name, value) TEI_##name = (value),
    TEI_CUDA_NUMBERS(TEI_CUDA_NUMBER) TEI_CUDA_NEW_NUMBERS(TEI_CUDA_NUMBER)
#undef TEI_CUDA_NUMBER
};

#ifndef TEI_VENDOR_TYPES
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
/* Enums, which are as wide as an int. */
typedef int CUdevice_attribute;
typedef int CUpointer_attribute;
typedef int CUstreamCaptureMode;
typedef int CUmemAllocationGranularity_flags;
typedef int CUmemAllocationHandleType;
typedef int CUmemRangeHandleType;

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
    int type;
    int requestedHandleTypes;
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
#endif

/* Name, arguments, whether one can do without it. All return CUresult. */
#define TEI_CUDA_SYMBOLS(X)                                                                        \
    X(cuInit, (unsigned), true)                                                                    \
    X(cuGetErrorName, (CUresult, const char **), true)                                             \
    X(cuGetErrorString, (CUresult, const char **), true)                                           \
    X(cuDeviceGetCount, (int *), true)                                                             \
    X(cuDeviceGet, (CUdevice *, int), true)                                                        \
    X(cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice), true)                           \
    X(cuDeviceGetPCIBusId, (char *, int, CUdevice), true)                                          \
    X(cuDeviceGetUuid_v2, (CUuuid *, CUdevice), true)                                              \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice), true)                                     \
    X(cuCtxPushCurrent_v2, (CUcontext), true)                                                      \
    X(cuCtxPopCurrent_v2, (CUcontext *), true)                                                     \
    X(cuPointerGetAttributes, (unsigned, CUpointer_attribute *, void **, CUdeviceptr), true)       \
    X(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr), true)                       \
    X(cuMemAlloc_v2, (CUdeviceptr *, size_t), true)                                                \
    X(cuMemFree_v2, (CUdeviceptr), true)                                                           \
    X(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream), true)                       \
    X(cuMemHostRegister_v2, (void *, size_t, unsigned), true)                                      \
    X(cuMemHostUnregister, (void *), true)                                                         \
    X(cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream), true)                           \
    X(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *), false)                           \
    X(cuStreamCreate, (CUstream *, unsigned), true)                                                \
    X(cuStreamDestroy_v2, (CUstream), true)                                                        \
    X(cuStreamSynchronize, (CUstream), true)                                                       \
    X(cuStreamWaitValue32_v2, (CUstream, CUdeviceptr, uint32_t, unsigned), false)                  \
    X(cuEventCreate, (CUevent *, unsigned), true)                                                  \
    X(cuEventRecord, (CUevent, CUstream), true)                                                    \
    X(cuEventQuery, (CUevent), true)                                                               \
    X(cuEventDestroy_v2, (CUevent), true)                                                          \
    X(cuIpcGetMemHandle, (CUipcMemHandle *, CUdeviceptr), true)                                    \
    X(cuIpcOpenMemHandle_v2, (CUdeviceptr *, CUipcMemHandle, unsigned), true)                      \
    X(cuIpcCloseMemHandle, (CUdeviceptr), true)                                                    \
    X(cuMemCreate,                                                                                 \
      (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long),   \
      true)                                                                                        \
    X(cuMemRelease, (CUmemGenericAllocationHandle), true)                                          \
    X(cuMemGetAllocationGranularity,                                                               \
      (size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags), true)             \
    X(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long), true) \
    X(cuMemAddressFree, (CUdeviceptr, size_t), true)                                               \
    X(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long),   \
      true)                                                                                        \
    X(cuMemUnmap, (CUdeviceptr, size_t), true)                                                     \
    X(cuMemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t), true)                \
    X(cuMemExportToShareableHandle,                                                                \
      (void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long), true) \
    X(cuMemImportFromShareableHandle,                                                              \
      (CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType), true)                   \
    X(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *, void *), true)                 \
    X(cuMemGetHandleForAddressRange,                                                               \
      (void *, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long), false)              \
    X(cuModuleLoadData, (CUmodule *, const void *), false)                                         \
    X(cuModuleGetFunction, (CUfunction *, CUmodule, const char *), false)                          \
    X(cuLaunchKernel,                                                                              \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
       void **, void **),                                                                          \
      false)

/* Since CUDA 12.8. Later headers have a newer one under this name; the library keeps this. */
#define TEI_CUDA_NEW_SYMBOLS(X)                                                                \
    X(cuMemcpyBatchAsync,                                                                      \
      (CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *, size_t, \
       size_t *, CUstream),                                                                    \
      false)

#endif
