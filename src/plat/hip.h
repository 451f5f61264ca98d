/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hip.h - what is used of AMD's runtime, libamdhip64.so: names, numbers and layouts of its ABI, told
 * as in cuda.h. They are those of ROCm 6 and later; where ROCm 5 differs, mem_hip.c knows. Private to
 * src/plat.
 */
#ifndef TEI_PLAT_HIP_H
#define TEI_PLAT_HIP_H

#include <stddef.h>

/* Name, value. TEI_ stands before the name here. */
#define TEI_HIP_NUMBERS(X)                      \
    X(hipErrorInvalidValue, 1)                  \
    X(hipErrorOutOfMemory, 2)                   \
    X(hipErrorNotInitialized, 3)                \
    X(hipErrorDeinitialized, 4)                 \
    X(hipErrorInsufficientDriver, 35)           \
    X(hipErrorNoDevice, 100)                    \
    X(hipErrorInvalidDevice, 101)               \
    X(hipErrorInvalidContext, 201)              \
    X(hipErrorNotReady, 600)                    \
    X(hipErrorHostMemoryAlreadyRegistered, 712) \
    X(hipErrorNotSupported, 801)                \
    X(hipMemcpyDefault, 4)                      \
    X(hipStreamNonBlocking, 1)                  \
    X(hipStreamWaitValueGte, 0)                 \
    X(hipStreamCaptureModeRelaxed, 2)           \
    X(hipEventDisableTiming, 2)                 \
    X(hipHostRegisterPortable, 1)               \
    X(hipMemAllocationTypePinned, 1)            \
    X(hipMemLocationTypeDevice, 1)              \
    X(hipMemHandleTypePosixFileDescriptor, 1)   \
    X(hipMemAccessFlagsProtReadWrite, 3)        \
    X(hipMemAllocationGranularityRecommended, 1)

/* The same, of which older headers know nothing, or something else. */
#define TEI_HIP_NEW_NUMBERS(X)          \
    X(hipIpcMemLazyEnablePeerAccess, 1) \
    X(hipMemoryTypeDevice, 2)           \
    X(hipMemHandleTypeFabric, 8)        \
    X(hipMemRangeHandleTypeDmaBufFd, 1)

enum {
#define TEI_HIP_NUMBER(name, value) TEI_##name = (value),
    TEI_HIP_NUMBERS(TEI_HIP_NUMBER) TEI_HIP_NEW_NUMBERS(TEI_HIP_NUMBER)
#undef TEI_HIP_NUMBER
};

#ifndef TEI_VENDOR_TYPES
typedef int hipError_t;
typedef int hipDevice_t;
typedef void *hipDeviceptr_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct ihipMemGenericAllocationHandle *hipMemGenericAllocationHandle_t;
/* Enums, which are as wide as an int. */
typedef int hipMemcpyKind;
typedef int hipStreamCaptureMode;
typedef int hipMemAllocationGranularity_flags;
typedef int hipMemAllocationHandleType;
typedef int hipMemRangeHandleType;

typedef struct {
    char bytes[16];
} hipUUID;

typedef struct {
    char reserved[64];
} hipIpcMemHandle_t;

typedef struct {
    int type; /* ROCm 5 calls it memoryType, and numbers it otherwise */
    int device;
    void *devicePointer, *hostPointer;
    int isManaged;
    unsigned allocationFlags;
} hipPointerAttribute_t;

typedef struct {
    int type, id;
} hipMemLocation;

typedef struct {
    int type;
    int requestedHandleType;
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
#endif

/* Result, name, arguments, whether one can do without it. */
#define TEI_HIP_SYMBOLS(X)                                                                    \
    X(hipError_t, hipInit, (unsigned), true)                                                  \
    X(hipError_t, hipRuntimeGetVersion, (int *), true)                                        \
    X(const char *, hipGetErrorName, (hipError_t), true)                                      \
    X(const char *, hipGetErrorString, (hipError_t), true)                                    \
    X(hipError_t, hipGetLastError, (void), true)                                              \
    X(hipError_t, hipGetDeviceCount, (int *), true)                                           \
    X(hipError_t, hipGetDevice, (int *), true)                                                \
    X(hipError_t, hipSetDevice, (int), true)                                                  \
    X(hipError_t, hipDeviceGetPCIBusId, (char *, int, int), true)                             \
    X(hipError_t, hipDeviceGetUuid, (hipUUID *, hipDevice_t), true)                           \
    X(hipError_t, hipPointerGetAttributes, (hipPointerAttribute_t *, const void *), true)     \
    X(hipError_t, hipMemGetAddressRange, (hipDeviceptr_t *, size_t *, hipDeviceptr_t), true)  \
    X(hipError_t, hipMalloc, (void **, size_t), true)                                         \
    X(hipError_t, hipFree, (void *), true)                                                    \
    X(hipError_t, hipMemsetAsync, (void *, int, size_t, hipStream_t), true)                   \
    X(hipError_t, hipHostRegister, (void *, size_t, unsigned), true)                          \
    X(hipError_t, hipHostUnregister, (void *), true)                                          \
    X(hipError_t, hipMemcpyAsync, (void *, const void *, size_t, hipMemcpyKind, hipStream_t), \
      true)                                                                                   \
    X(hipError_t, hipThreadExchangeStreamCaptureMode, (hipStreamCaptureMode *), false)        \
    X(hipError_t, hipStreamCreateWithFlags, (hipStream_t *, unsigned), true)                  \
    X(hipError_t, hipStreamDestroy, (hipStream_t), true)                                      \
    X(hipError_t, hipStreamSynchronize, (hipStream_t), true)                                  \
    X(hipError_t, hipStreamWaitValue32, (hipStream_t, void *, uint32_t, unsigned, uint32_t),  \
      false)                                                                                  \
    X(hipError_t, hipEventCreateWithFlags, (hipEvent_t *, unsigned), true)                    \
    X(hipError_t, hipEventRecord, (hipEvent_t, hipStream_t), true)                            \
    X(hipError_t, hipEventQuery, (hipEvent_t), true)                                          \
    X(hipError_t, hipEventDestroy, (hipEvent_t), true)                                        \
    X(hipError_t, hipIpcGetMemHandle, (hipIpcMemHandle_t *, void *), true)                    \
    X(hipError_t, hipIpcOpenMemHandle, (void **, hipIpcMemHandle_t, unsigned), true)          \
    X(hipError_t, hipIpcCloseMemHandle, (void *), true)

/* Of mapped memory: all or none of these are used. */
#define TEI_HIP_MAP_SYMBOLS(X)                                                                   \
    X(hipError_t, hipMemCreate,                                                                  \
      (hipMemGenericAllocationHandle_t *, size_t, const hipMemAllocationProp *,                  \
       unsigned long long),                                                                      \
      false)                                                                                     \
    X(hipError_t, hipMemRelease, (hipMemGenericAllocationHandle_t), false)                       \
    X(hipError_t, hipMemGetAllocationGranularity,                                                \
      (size_t *, const hipMemAllocationProp *, hipMemAllocationGranularity_flags), false)        \
    X(hipError_t, hipMemAddressReserve, (void **, size_t, size_t, void *, unsigned long long),   \
      false)                                                                                     \
    X(hipError_t, hipMemAddressFree, (void *, size_t), false)                                    \
    X(hipError_t, hipMemMap,                                                                     \
      (void *, size_t, size_t, hipMemGenericAllocationHandle_t, unsigned long long), false)      \
    X(hipError_t, hipMemUnmap, (void *, size_t), false)                                          \
    X(hipError_t, hipMemSetAccess, (void *, size_t, const hipMemAccessDesc *, size_t), false)    \
    X(hipError_t, hipMemExportToShareableHandle,                                                 \
      (void *, hipMemGenericAllocationHandle_t, hipMemAllocationHandleType, unsigned long long), \
      false)                                                                                     \
    X(hipError_t, hipMemImportFromShareableHandle,                                               \
      (hipMemGenericAllocationHandle_t *, void *, hipMemAllocationHandleType), false)            \
    X(hipError_t, hipMemRetainAllocationHandle, (hipMemGenericAllocationHandle_t *, void *), false)

/* Since ROCm 7. */
#define TEI_HIP_NEW_SYMBOLS(X)                    \
    X(hipError_t, hipMemGetHandleForAddressRange, \
      (void *, hipDeviceptr_t, size_t, hipMemRangeHandleType, unsigned long long), false)

#endif
