/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles src/plat/cuda.h against NVIDIA's cuda.h: once with the vendor's types, for the prototypes
 * and the numbers; once more, with -DLAYOUTS, with our own types under other names, for their layouts.
 */
#include <cuda.h>

#include <stddef.h>

#ifndef LAYOUTS
#define TEI_VENDOR_TYPES
#include "plat/cuda.h"

#define SAME_NUMBER(name, value) _Static_assert((int)(name) == (value), #name);
TEI_CUDA_NUMBERS(SAME_NUMBER)

#define SAME_PROTOTYPE(name, args, required) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), CUresult(*) args), #name);
TEI_CUDA_SYMBOLS(SAME_PROTOTYPE)
#if CUDA_VERSION >= 12080
TEI_CUDA_NEW_NUMBERS(SAME_NUMBER)
#endif
#if CUDA_VERSION >= 12080 && CUDA_VERSION < 13000
TEI_CUDA_NEW_SYMBOLS(SAME_PROTOTYPE)
#endif

#else
#define CUresult                         own_CUresult
#define CUdevice                         own_CUdevice
#define CUdeviceptr                      own_CUdeviceptr
#define CUmemGenericAllocationHandle     own_CUmemGenericAllocationHandle
#define CUcontext                        own_CUcontext
#define CUstream                         own_CUstream
#define CUevent                          own_CUevent
#define CUdevice_attribute               own_CUdevice_attribute
#define CUpointer_attribute              own_CUpointer_attribute
#define CUstreamCaptureMode              own_CUstreamCaptureMode
#define CUmemAllocationGranularity_flags own_CUmemAllocationGranularity_flags
#define CUmemAllocationHandleType        own_CUmemAllocationHandleType
#define CUmemRangeHandleType             own_CUmemRangeHandleType
#define CUuuid                           own_CUuuid
#define CUipcMemHandle                   own_CUipcMemHandle
#define CUmemLocation                    own_CUmemLocation
#define CUmemAllocationProp              own_CUmemAllocationProp
#define CUmemAccessDesc                  own_CUmemAccessDesc
#define CUmemcpyAttributes               own_CUmemcpyAttributes
#include "plat/cuda.h"
#undef CUresult
#undef CUdevice
#undef CUdeviceptr
#undef CUmemGenericAllocationHandle
#undef CUcontext
#undef CUstream
#undef CUevent
#undef CUdevice_attribute
#undef CUpointer_attribute
#undef CUstreamCaptureMode
#undef CUmemAllocationGranularity_flags
#undef CUmemAllocationHandleType
#undef CUmemRangeHandleType
#undef CUuuid
#undef CUipcMemHandle
#undef CUmemLocation
#undef CUmemAllocationProp
#undef CUmemAccessDesc
#undef CUmemcpyAttributes

#define SAME_SIZE(type)                                        \
    _Static_assert(sizeof(own_##type) == sizeof(type), #type); \
    _Static_assert(_Alignof(own_##type) == _Alignof(type), #type);
#define SAME_PLACE(type, member)                                                         \
    _Static_assert(offsetof(own_##type, member) == offsetof(type, member) &&             \
                       sizeof(((own_##type *)0)->member) == sizeof(((type *)0)->member), \
                   #type "." #member);

SAME_SIZE(CUresult)
SAME_SIZE(CUdevice)
SAME_SIZE(CUdeviceptr)
SAME_SIZE(CUmemGenericAllocationHandle)
SAME_SIZE(CUcontext)
SAME_SIZE(CUstream)
SAME_SIZE(CUevent)
SAME_SIZE(CUdevice_attribute)
SAME_SIZE(CUpointer_attribute)
SAME_SIZE(CUstreamCaptureMode)
SAME_SIZE(CUmemAllocationGranularity_flags)
SAME_SIZE(CUmemAllocationHandleType)
SAME_SIZE(CUmemRangeHandleType)
SAME_SIZE(CUuuid)
SAME_PLACE(CUuuid, bytes)
SAME_SIZE(CUipcMemHandle)
SAME_PLACE(CUipcMemHandle, reserved)
SAME_SIZE(CUmemLocation)
SAME_PLACE(CUmemLocation, type)
SAME_PLACE(CUmemLocation, id)
SAME_SIZE(CUmemAllocationProp)
SAME_PLACE(CUmemAllocationProp, type)
SAME_PLACE(CUmemAllocationProp, requestedHandleTypes)
SAME_PLACE(CUmemAllocationProp, location)
SAME_PLACE(CUmemAllocationProp, win32HandleMetaData)
SAME_PLACE(CUmemAllocationProp, allocFlags.compressionType)
SAME_PLACE(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable)
SAME_PLACE(CUmemAllocationProp, allocFlags.usage)
SAME_SIZE(CUmemAccessDesc)
SAME_PLACE(CUmemAccessDesc, location)
SAME_PLACE(CUmemAccessDesc, flags)
#if CUDA_VERSION >= 12080
SAME_SIZE(CUmemcpyAttributes)
SAME_PLACE(CUmemcpyAttributes, srcAccessOrder)
SAME_PLACE(CUmemcpyAttributes, srcLocHint)
SAME_PLACE(CUmemcpyAttributes, dstLocHint)
SAME_PLACE(CUmemcpyAttributes, flags)
#endif
#endif
