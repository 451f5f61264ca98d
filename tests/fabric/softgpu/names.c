/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c - the codes in words, for both faces.
 */
#include "fabric/softgpu/core.h"

#include <stddef.h>

#define ROW(code, cuda, hip, text) {code, cuda, hip, text},
static const struct row {
    int code;
    const char *cuda, *hip, *text;
} rows[] = {
    ROW(SG_OK, "CUDA_SUCCESS", "hipSuccess", "no error") ROW(
        SG_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "hipErrorInvalidValue",
        "invalid argument") ROW(SG_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory",
                                "out of memory") ROW(SG_NOT_INITIALIZED,
                                                     "CUDA_ERROR_NOT_INITIALIZED",
                                                     "hipErrorNotInitialized",
                                                     "initialization error")
        ROW(SG_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "hipErrorNoDevice", "no such device here") ROW(
            SG_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "hipErrorInvalidDevice",
            "invalid device ordinal") ROW(SG_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT",
                                          "hipErrorInvalidContext", "invalid device context")
            ROW(SG_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "hipErrorMapFailed", "mapping failed") ROW(
                SG_PEER_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
                "hipErrorPeerAccessUnsupported", "no access between these two devices")
                ROW(SG_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "hipErrorOperatingSystem",
                    "a call of the system failed") ROW(SG_INVALID_HANDLE,
                                                       "CUDA_ERROR_INVALID_HANDLE",
                                                       "hipErrorInvalidHandle",
                                                       "invalid resource handle")
                    ROW(SG_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "hipErrorNotFound", "not found") ROW(
                        SG_NOT_READY, "CUDA_ERROR_NOT_READY", "hipErrorNotReady",
                        "not ready") ROW(SG_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
                                         "hipErrorIllegalAddress", "an illegal address was met")
                        ROW(SG_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED",
                            "hipErrorContextIsDestroyed", "context is destroyed")
                            ROW(SG_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
                                "hipErrorHostMemoryAlreadyRegistered",
                                "memory is registered already")
                                ROW(SG_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
                                    "hipErrorHostMemoryNotRegistered", "memory is not registered")
                                    ROW(SG_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED",
                                        "hipErrorLaunchFailure", "unspecified launch failure")
                                        ROW(SG_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED",
                                            "hipErrorNotPermitted", "operation not permitted")
                                            ROW(SG_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED",
                                                "hipErrorNotSupported", "operation not supported")
                                                ROW(SG_DRIVER_MISMATCH,
                                                    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
                                                    "hipErrorInsufficientDriver",
                                                    "the driver does not fit the system")
                                                    ROW(SG_UNKNOWN, "CUDA_ERROR_UNKNOWN",
                                                        "hipErrorUnknown", "unknown error")};

static const struct row *find(int code)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].code == code)
            return &rows[i];
    return NULL;
}

const char *sg_name(enum softgpu_kind kind, int code)
{
    const struct row *r = find(code);

    return !r ? NULL : kind == SOFTGPU_CUDA ? r->cuda : r->hip;
}

const char *sg_text(int code)
{
    const struct row *r = find(code);

    return r ? r->text : NULL;
}
