/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c - the codes in words, for both faces.
 */
#include "fabric/softgpu/core.h"

#include <stddef.h>

static const struct row {
    int code;
    const char *cuda, *hip, *text;
} rows[] = {
    {SG_OK, "CUDA_SUCCESS", "hipSuccess", "no error"},
    {SG_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "hipErrorInvalidValue", "invalid argument"},
    {SG_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory", "out of memory"},
    {SG_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "hipErrorNotInitialized",
     "initialization error"},
    {SG_BAD_DIRECTION, NULL, "hipErrorInvalidMemcpyDirection", "invalid copy direction"},
    {SG_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "hipErrorNoDevice", "no such device here"},
    {SG_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "hipErrorInvalidDevice",
     "invalid device ordinal"},
    {SG_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "hipErrorInvalidContext",
     "invalid device context"},
    {SG_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "hipErrorMapFailed", "mapping failed"},
    {SG_PEER_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "hipErrorPeerAccessUnsupported",
     "no access between these two devices"},
    {SG_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "hipErrorOperatingSystem",
     "a call of the system failed"},
    {SG_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "hipErrorInvalidImage",
     "device kernel image is invalid"},
    {SG_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "hipErrorInvalidHandle",
     "invalid resource handle"},
    {SG_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "hipErrorNotFound", "not found"},
    {SG_NOT_READY, "CUDA_ERROR_NOT_READY", "hipErrorNotReady", "not ready"},
    {SG_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "hipErrorIllegalAddress",
     "an illegal address was met"},
    {SG_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "hipErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {SG_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "hipErrorContextIsDestroyed",
     "context is destroyed"},
    {SG_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "hipErrorHostMemoryAlreadyRegistered", "memory is registered already"},
    {SG_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "hipErrorHostMemoryNotRegistered",
     "memory is not registered"},
    {SG_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "hipErrorLaunchFailure",
     "unspecified launch failure"},
    {SG_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", NULL, "operation not permitted"},
    {SG_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "hipErrorNotSupported",
     "operation not supported"},
    {SG_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", NULL,
     "the driver does not fit the system"},
    {SG_CAPTURED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "hipErrorStreamCaptureUnsupported",
     "not while a stream is captured"},
    {SG_UNKNOWN, "CUDA_ERROR_UNKNOWN", "hipErrorUnknown", "unknown error"},
};

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

    return !r ? NULL : kind == SOFTGPU_CUDA || kind == SOFTGPU_MUSA ? r->cuda : r->hip;
}

const char *sg_text(int code)
{
    const struct row *r = find(code);

    return r ? r->text : NULL;
}
