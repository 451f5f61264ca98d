/* SPDX-License-Identifier: Apache-2.0 */
/* The same for src/plat/hip.h and AMD's hip_runtime_api.h; tests/lint/vendor/cuda.c says how. */
#include <hip/hip_runtime_api.h>

#include <stddef.h>

#ifndef LAYOUTS
#define TEI_VENDOR_TYPES
#include "plat/hip.h"

#define SAME_NUMBER(name, value) _Static_assert((int)(name) == (value), #name);
#define SAME_PROTOTYPE(result, name, args, required) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) args), #name);

TEI_HIP_NUMBERS(SAME_NUMBER)
TEI_HIP_SYMBOLS(SAME_PROTOTYPE)
TEI_HIP_MAP_SYMBOLS(SAME_PROTOTYPE)
#if HIP_VERSION_MAJOR >= 7
TEI_HIP_NEW_NUMBERS(SAME_NUMBER)
TEI_HIP_NEW_SYMBOLS(SAME_PROTOTYPE)
#endif

#else
#define hipError_t                        own_hipError_t
#define hipDevice_t                       own_hipDevice_t
#define hipDeviceptr_t                    own_hipDeviceptr_t
#define hipStream_t                       own_hipStream_t
#define hipEvent_t                        own_hipEvent_t
#define hipMemGenericAllocationHandle_t   own_hipMemGenericAllocationHandle_t
#define hipMemcpyKind                     own_hipMemcpyKind
#define hipStreamCaptureMode              own_hipStreamCaptureMode
#define hipMemAllocationGranularity_flags own_hipMemAllocationGranularity_flags
#define hipMemAllocationHandleType        own_hipMemAllocationHandleType
#define hipMemRangeHandleType             own_hipMemRangeHandleType
#define hipUUID                           own_hipUUID
#define hipIpcMemHandle_t                 own_hipIpcMemHandle_t
#define hipPointerAttribute_t             own_hipPointerAttribute_t
#define hipMemLocation                    own_hipMemLocation
#define hipMemAllocationProp              own_hipMemAllocationProp
#define hipMemAccessDesc                  own_hipMemAccessDesc
#include "plat/hip.h"
#undef hipError_t
#undef hipDevice_t
#undef hipDeviceptr_t
#undef hipStream_t
#undef hipEvent_t
#undef hipMemGenericAllocationHandle_t
#undef hipMemcpyKind
#undef hipStreamCaptureMode
#undef hipMemAllocationGranularity_flags
#undef hipMemAllocationHandleType
#undef hipMemRangeHandleType
#undef hipUUID
#undef hipIpcMemHandle_t
#undef hipPointerAttribute_t
#undef hipMemLocation
#undef hipMemAllocationProp
#undef hipMemAccessDesc

#define SAME_SIZE(type)                                        \
    _Static_assert(sizeof(own_##type) == sizeof(type), #type); \
    _Static_assert(_Alignof(own_##type) == _Alignof(type), #type);
#define SAME_PLACE(type, member)                                                         \
    _Static_assert(offsetof(own_##type, member) == offsetof(type, member) &&             \
                       sizeof(((own_##type *)0)->member) == sizeof(((type *)0)->member), \
                   #type "." #member);

SAME_SIZE(hipError_t)
SAME_SIZE(hipDevice_t)
SAME_SIZE(hipDeviceptr_t)
SAME_SIZE(hipStream_t)
SAME_SIZE(hipEvent_t)
SAME_SIZE(hipMemGenericAllocationHandle_t)
SAME_SIZE(hipMemcpyKind)
SAME_SIZE(hipStreamCaptureMode)
SAME_SIZE(hipMemAllocationGranularity_flags)
SAME_SIZE(hipMemAllocationHandleType)
SAME_SIZE(hipUUID)
SAME_PLACE(hipUUID, bytes)
SAME_SIZE(hipIpcMemHandle_t)
SAME_PLACE(hipIpcMemHandle_t, reserved)
SAME_SIZE(hipPointerAttribute_t)
SAME_PLACE(hipPointerAttribute_t, device)
SAME_PLACE(hipPointerAttribute_t, devicePointer)
SAME_PLACE(hipPointerAttribute_t, hostPointer)
SAME_PLACE(hipPointerAttribute_t, isManaged)
SAME_PLACE(hipPointerAttribute_t, allocationFlags)
SAME_SIZE(hipMemLocation)
SAME_PLACE(hipMemLocation, type)
SAME_PLACE(hipMemLocation, id)
SAME_SIZE(hipMemAccessDesc)
SAME_PLACE(hipMemAccessDesc, location)
SAME_PLACE(hipMemAccessDesc, flags)
#if HIP_VERSION_MAJOR >= 6
SAME_PLACE(hipPointerAttribute_t, type)
SAME_SIZE(hipMemAllocationProp)
SAME_PLACE(hipMemAllocationProp, type)
SAME_PLACE(hipMemAllocationProp, requestedHandleType)
SAME_PLACE(hipMemAllocationProp, location)
SAME_PLACE(hipMemAllocationProp, win32HandleMetaData)
SAME_PLACE(hipMemAllocationProp, allocFlags.compressionType)
SAME_PLACE(hipMemAllocationProp, allocFlags.gpuDirectRDMACapable)
SAME_PLACE(hipMemAllocationProp, allocFlags.usage)
#endif
#endif
