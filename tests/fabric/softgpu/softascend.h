/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softascend.h - the part of AscendCL that libascendcl.so of this folder has, told from its documentation,
 * on purpose apart from what src/plat declares. Also for tests that are linked with it.
 */
#ifndef SOFTASCEND_H
#define SOFTASCEND_H

#include <stddef.h>
#include <stdint.h>

typedef int aclError;
typedef void *aclrtContext;
typedef struct sg_stream *aclrtStream;
typedef struct sg_event *aclrtEvent;

typedef struct {
    uint32_t id;
    int type; /* 0: host, 1: device, 2: not known */
} aclrtMemLocation;

typedef struct {
    aclrtMemLocation location;
    uint32_t pageSize;
    uint32_t rsv[4];
} aclrtPtrAttributes;

typedef struct {
    char bytes[16];
} aclrtUuid;

_Static_assert(sizeof(aclrtPtrAttributes) == 28, "as in acl_rt.h");

#pragma GCC visibility push(default)
aclError aclInit(const char *config);
aclError aclrtGetDeviceCount(uint32_t *count);
aclError aclrtSetDevice(int32_t device);
aclError aclrtGetDevice(int32_t *device);
aclError aclrtGetCurrentContext(aclrtContext *out);
aclError aclrtSetCurrentContext(aclrtContext context);
aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t *flags, int32_t *active);
aclError aclrtDeviceGetUuid(int32_t device, aclrtUuid *out);
aclError aclrtPointerGetAttributes(const void *ptr, aclrtPtrAttributes *out);
aclError aclrtMemGetAddressRange(void *ptr, void **base, size_t *size);
aclError aclrtMalloc(void **out, size_t size, int policy);
aclError aclrtFree(void *ptr);
aclError aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flags);
aclError aclrtHostUnregister(void *ptr);
aclError aclrtMemsetAsync(void *to, size_t max, int32_t byte, size_t n, aclrtStream stream);
aclError aclrtMemcpyAsync(void *to, size_t max, const void *from, size_t n, int kind,
                          aclrtStream stream);
aclError aclrtCreateStreamWithConfig(aclrtStream *out, uint32_t priority, uint32_t flags);
aclError aclrtDestroyStream(aclrtStream stream);
aclError aclrtSynchronizeStream(aclrtStream stream);
aclError aclrtCreateEventExWithFlag(aclrtEvent *out, uint32_t flags);
aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);
aclError aclrtQueryEventStatus(aclrtEvent event, int *status);
aclError aclrtSynchronizeEvent(aclrtEvent event);
aclError aclrtDestroyEvent(aclrtEvent event);
aclError aclmdlRICaptureThreadExchangeMode(int *mode);
aclError aclrtIpcMemGetExportKey(void *ptr, size_t size, char *key, size_t length, uint64_t flags);
aclError aclrtIpcMemImportByKey(void **out, const char *key, uint64_t flags);
aclError aclrtIpcMemClose(const char *key);
#pragma GCC visibility pop

#endif
