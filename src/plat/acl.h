/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acl.h - what is used of AscendCL, libascendcl.so: names, numbers and layouts of its ABI, so that no
 * package of Huawei is needed to build. The types have the vendor's names, and the symbols the vendor's
 * prototypes: tests/lint/test_vendor_headers.py compiles all of this against the vendor's header, where
 * there is one. Private to src/plat.
 */
#ifndef TEI_PLAT_ACL_H
#define TEI_PLAT_ACL_H

#include <stddef.h>
#include <stdint.h>

/* Name, value, the status of gpu.h that it is, in words. TEI_ stands before the name here. */
#define TEI_ACL_ERRORS(X)                                                                         \
    X(ACL_ERROR_RT_PARAM_INVALID, 107000, TEI_GPU_INVALID_VALUE, "a wrong parameter")             \
    X(ACL_ERROR_RT_INVALID_DEVICEID, 107001, TEI_GPU_INVALID_DEVICE, "there is no such device")   \
    X(ACL_ERROR_RT_CONTEXT_NULL, 107002, TEI_GPU_INVALID_CONTEXT, "the thread has no device")     \
    X(ACL_ERROR_RT_ADDR_UNALIGNED, 107008, 107008, "the address is not aligned")                  \
    X(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, 207000, TEI_GPU_NOT_SUPPORTED, "not supported")           \
    X(ACL_ERROR_RT_MEMORY_ALLOCATION, 207001, TEI_GPU_OUT_OF_MEMORY, "out of memory")             \
    X(ACL_ERROR_RT_NO_DEVICE, 207004, TEI_GPU_NO_DEVICE, "there is no device")                    \
    X(ACL_ERROR_INVALID_PARAM, 100000, TEI_GPU_INVALID_VALUE, "a wrong parameter")                \
    X(ACL_ERROR_UNINITIALIZE, 100001, TEI_GPU_NOT_INITIALIZED, "not initialised")                 \
    X(ACL_ERROR_REPEAT_INITIALIZE, 100002, 100002, "initialised before")                          \
    X(ACL_ERROR_BAD_ALLOC, 200000, TEI_GPU_OUT_OF_MEMORY, "out of memory")                        \
    X(ACL_ERROR_API_NOT_SUPPORT, 200001, TEI_GPU_NOT_SUPPORTED, "not supported")                  \
    X(ACL_ERROR_INVALID_DEVICE, 200002, TEI_GPU_INVALID_DEVICE, "there is no such device")        \
    X(ACL_ERROR_MEMORY_ADDRESS_UNALIGNED, 200003, 200003, "the address is not aligned to a page") \
    X(ACL_ERROR_FEATURE_UNSUPPORTED, 200006, TEI_GPU_NOT_SUPPORTED, "not supported")              \
    X(ACL_ERROR_DRV_FAILURE, 500004, 500004, "the driver has failed")                             \
    X(ACL_ERROR_STORAGE_OVER_LIMIT, 300000, TEI_GPU_OUT_OF_MEMORY, "out of memory")

#define TEI_ACL_NUMBERS(X)             \
    X(ACL_MEM_MALLOC_HUGE_FIRST, 0)    \
    X(ACL_MEM_LOCATION_TYPE_DEVICE, 1) \
    X(ACL_MEMCPY_HOST_TO_DEVICE, 1)    \
    X(ACL_MEMCPY_DEVICE_TO_HOST, 2)    \
    X(ACL_MEMCPY_DEVICE_TO_DEVICE, 3)  \
    X(ACL_MEMCPY_DEFAULT, 4)           \
    X(ACL_STREAM_FAST_LAUNCH, 1)       \
    X(ACL_STREAM_FAST_SYNC, 2)         \
    X(ACL_EVENT_SYNC, 1)               \
    X(ACL_EVENT_RECORDED_STATUS_COMPLETE, 1)

/* The same, of which older headers do not know all. */
#define TEI_ACL_NEW_NUMBERS(X)                              \
    X(ACL_HOST_REG_PINNED, 0x10000000)                      \
    X(ACL_MODEL_RI_CAPTURE_MODE_RELAXED, 2)                 \
    X(ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION, 1) \
    X(ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS, 1)

enum {
#define TEI_ACL_NUMBER(name, value)              TEI_##name = (value),
#define TEI_ACL_ERROR(name, value, status, text) TEI_##name = (value),
    TEI_ACL_ERRORS(TEI_ACL_ERROR) TEI_ACL_NUMBERS(TEI_ACL_NUMBER)
        TEI_ACL_NEW_NUMBERS(TEI_ACL_NUMBER)
#undef TEI_ACL_NUMBER
#undef TEI_ACL_ERROR
};

#ifndef TEI_VENDOR_TYPES
typedef int aclError;
typedef void *aclrtStream;
typedef void *aclrtEvent;
typedef void *aclrtContext;
/* Enums, which are as wide as an int. */
typedef int aclrtMemMallocPolicy;
typedef int aclrtMemcpyKind;
typedef int aclrtEventRecordedStatus;
typedef int aclmdlRICaptureMode;

typedef struct {
    uint32_t id;
    int type;
} aclrtMemLocation;

typedef struct {
    aclrtMemLocation location;
    uint32_t pageSize;
    uint32_t rsv[4];
} aclrtPtrAttributes;

typedef struct {
    char bytes[16];
} aclrtUuid;
#endif

/* Name, arguments, whether one can do without it. All return aclError. */
#define TEI_ACL_SYMBOLS(X)                                                                    \
    X(aclInit, (const char *), true)                                                          \
    X(aclrtGetDeviceCount, (uint32_t *), true)                                                \
    X(aclrtSetDevice, (int32_t), true)                                                        \
    X(aclrtGetCurrentContext, (aclrtContext *), true)                                         \
    X(aclrtSetCurrentContext, (aclrtContext), true)                                           \
    X(aclrtPointerGetAttributes, (const void *, aclrtPtrAttributes *), true)                  \
    X(aclrtMalloc, (void **, size_t, aclrtMemMallocPolicy), true)                             \
    X(aclrtFree, (void *), true)                                                              \
    X(aclrtMemsetAsync, (void *, size_t, int32_t, size_t, aclrtStream), true)                 \
    X(aclrtMemcpyAsync, (void *, size_t, const void *, size_t, aclrtMemcpyKind, aclrtStream), \
      true)                                                                                   \
    X(aclrtCreateStreamWithConfig, (aclrtStream *, uint32_t, uint32_t), true)                 \
    X(aclrtDestroyStream, (aclrtStream), true)                                                \
    X(aclrtSynchronizeStream, (aclrtStream), true)                                            \
    X(aclrtCreateEventExWithFlag, (aclrtEvent *, uint32_t), true)                             \
    X(aclrtRecordEvent, (aclrtEvent, aclrtStream), true)                                      \
    X(aclrtQueryEventStatus, (aclrtEvent, aclrtEventRecordedStatus *), true)                  \
    X(aclrtDestroyEvent, (aclrtEvent), true)                                                  \
    X(aclrtHostUnregister, (void *), false)

/* Of newer releases, each of which one can do without: mem_ascend.c says how. */
#define TEI_ACL_NEW_SYMBOLS(X)                                                    \
    X(aclrtDeviceGetUuid, (int32_t, aclrtUuid *), false)                          \
    X(aclrtGetPrimaryCtxState, (int32_t, uint32_t *, int32_t *), false)           \
    X(aclrtMemGetAddressRange, (void *, void **, size_t *), false)                \
    X(aclrtHostRegisterV2, (void *, uint64_t, uint32_t), false)                   \
    X(aclmdlRICaptureThreadExchangeMode, (aclmdlRICaptureMode *), false)          \
    X(aclrtIpcMemGetExportKey, (void *, size_t, char *, size_t, uint64_t), false) \
    X(aclrtIpcMemImportByKey, (void **, const char *, uint64_t), false)           \
    X(aclrtIpcMemClose, (const char *), false)

#endif
