/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softascend.c - libascendcl.so: AscendCL as of CANN 8.3, as far as this project uses it. A thread has no
 * device until it chooses one, its context is the device's default one, and a key of memory is text that is
 * closed by whoever made or opened it. Keys are of whole pages of 2 MiB, and of memory that begins there.
 * SOFTGPU_ASCEND_DEFAULT=0: a copy's direction has to be said.
 */
#include "fabric/softgpu/softascend.h"
#include "fabric/softgpu/core.h"

#include <stdlib.h>
#include <string.h>

enum {
    PARAM_INVALID = 107000,
    INVALID_DEVICE = 107001,
    CONTEXT_NULL = 107002,
    INVALID_HANDLE = 107017,
    NOT_SUPPORTED = 207000,
    NO_MEMORY = 207001,
    NO_DEVICE = 207004,
    REPEAT_INITIALIZE = 100002,
    UNINITIALIZE = 100001,
    UNALIGNED = 200003,
    DRIVER_FAILURE = 500004,
};
enum { TO_DEVICE = 1, TO_HOST, WITHIN, BY_ADDRESS };
enum { LOCATION_HOST, LOCATION_DEVICE, LOCATION_UNKNOWN };
enum { NO_PID_CHECK = 1, PEER_ACCESS = 1, PINNED = 0x10000000, KEY_BYTES = 65 };

static const enum softgpu_kind ASCEND = SOFTGPU_ASCEND;

/* What was opened by a key. */
static struct opened {
    struct opened *next;
    uintptr_t addr;
    char key[KEY_BYTES];
} * all_opened; /* under struct sg_process.lock */

static _Thread_local bool has_device;
static _Atomic bool initialised;

__attribute__((constructor)) static void load(void)
{
    sg_plays(ASCEND);
}

static aclError code_of(int rc)
{
    switch (rc) {
    case SG_OK:
        return 0;
    case SG_INVALID_VALUE:
        return PARAM_INVALID;
    case SG_OUT_OF_MEMORY:
        return NO_MEMORY;
    case SG_NOT_INITIALIZED:
        return UNINITIALIZE;
    case SG_NO_DEVICE:
        return NO_DEVICE;
    case SG_INVALID_DEVICE:
        return INVALID_DEVICE;
    case SG_INVALID_CONTEXT:
        return CONTEXT_NULL;
    case SG_INVALID_HANDLE:
        return INVALID_HANDLE;
    case SG_NOT_SUPPORTED:
    case SG_PEER_UNSUPPORTED:
        return NOT_SUPPORTED;
    default:
        return DRIVER_FAILURE;
    }
}

/* Takes the lock, unless it fails. */
static int enter(void)
{
    return atomic_load(&initialised) ? sg_enter(ASCEND) : SG_NOT_INITIALIZED;
}

static int enter_context(struct sg_context **out)
{
    if (!atomic_load(&initialised))
        return SG_NOT_INITIALIZED;
    return has_device ? sg_enter_context(ASCEND, out) : SG_INVALID_CONTEXT;
}

static aclError leave(int rc)
{
    return code_of(sg_leave(rc));
}

/* ------------------------------------------------------------------------------------- devices */

aclError aclInit(const char *config)
{
    int rc = config ? SG_INVALID_VALUE : sg_init(ASCEND);

    if (rc)
        return code_of(rc);
    return atomic_exchange(&initialised, true) ? REPEAT_INITIALIZE : 0;
}

aclError aclrtGetDeviceCount(uint32_t *count)
{
    int rc = enter(), n = 0;

    if (rc)
        return code_of(rc);
    while (sg_device(ASCEND, n))
        n++;
    *count = (uint32_t)n;
    return leave(SG_OK);
}

aclError aclrtSetDevice(int32_t device)
{
    struct sg_context *c;
    int rc = enter();

    if (rc)
        return code_of(rc);
    rc = sg_set_device(ASCEND, device);
    if (rc == SG_OK)
        rc = sg_retain(ASCEND, device, &c);
    has_device |= rc == SG_OK;
    return leave(rc);
}

aclError aclrtGetDevice(int32_t *device)
{
    *device = sg_get_device(ASCEND);
    return has_device ? 0 : CONTEXT_NULL;
}

aclError aclrtGetCurrentContext(aclrtContext *out)
{
    int rc = enter();

    if (rc)
        return code_of(rc);
    if (!has_device)
        return leave(SG_INVALID_CONTEXT);
    *out = sg_current(ASCEND);
    return leave(SG_OK);
}

aclError aclrtSetCurrentContext(aclrtContext context)
{
    const struct sg_device *d;
    int rc = enter(), i = 0;

    if (rc)
        return code_of(rc);
    while ((d = sg_device(ASCEND, i)) && &d->context != context)
        i++;
    rc = d && d->context.active ? sg_set_device(ASCEND, i) : SG_INVALID_VALUE;
    has_device |= rc == SG_OK;
    return leave(rc);
}

aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t *flags, int32_t *active)
{
    const struct sg_device *d;
    int rc = enter();

    if (rc)
        return code_of(rc);
    d = sg_device(ASCEND, device);
    *flags = 0;
    *active = d && d->context.active;
    return leave(d ? SG_OK : SG_INVALID_DEVICE);
}

aclError aclrtDeviceGetUuid(int32_t device, aclrtUuid *out)
{
    const struct sg_device *d;
    int rc = enter();

    if (rc)
        return code_of(rc);
    d = sg_device(ASCEND, device);
    if (d)
        memcpy(out->bytes, d->uuid, sizeof(out->bytes));
    return leave(d ? SG_OK : SG_INVALID_DEVICE);
}

/* -------------------------------------------------------------------------------------- memory */

aclError aclrtPointerGetAttributes(const void *ptr, aclrtPtrAttributes *out)
{
    const struct sg_range *r;
    struct sg_context *c;
    int rc = enter_context(&c);

    if (rc)
        return code_of(rc);
    r = sg_find(ASCEND, (uintptr_t)ptr);
    *out = (aclrtPtrAttributes){.location.type = LOCATION_UNKNOWN};
    if (r && r->sort == SG_PINNED)
        out->location.type = LOCATION_HOST;
    else if (r)
        *out = (aclrtPtrAttributes){.location = {(uint32_t)r->device, LOCATION_DEVICE},
                                    .pageSize = SG_GRAIN};
    return leave(SG_OK);
}

aclError aclrtMemGetAddressRange(void *ptr, void **base, size_t *size)
{
    const struct sg_range *r;
    struct sg_context *c;
    int rc = enter_context(&c);

    if (rc)
        return code_of(rc);
    r = sg_find(ASCEND, (uintptr_t)ptr);
    if (!r)
        return leave(SG_INVALID_VALUE);
    *base = (void *)r->addr;
    *size = r->size;
    return leave(SG_OK);
}

aclError aclrtMalloc(void **out, size_t size, int policy)
{
    struct sg_context *c;
    uintptr_t addr;
    int rc = enter_context(&c);

    if (rc)
        return code_of(rc);
    rc = policy || !size ? SG_INVALID_VALUE : sg_alloc(c, size, &addr);
    if (rc == SG_OK)
        *out = (void *)addr;
    return leave(rc);
}

aclError aclrtFree(void *ptr)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    return rc ? code_of(rc) : leave(sg_free(c, (uintptr_t)ptr));
}

aclError aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flags)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    if (rc)
        return code_of(rc);
    return leave(flags == PINNED ? sg_pin(c, (uintptr_t)ptr, size, 1) : SG_INVALID_VALUE);
}

aclError aclrtHostUnregister(void *ptr)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    return rc ? code_of(rc) : leave(sg_unpin(c, (uintptr_t)ptr));
}

aclError aclrtMemsetAsync(void *to, size_t max, int32_t byte, size_t n, aclrtStream stream)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    if (rc)
        return code_of(rc);
    return leave(n > max ? SG_INVALID_VALUE : sg_fill(c, stream, (uintptr_t)to, (uint8_t)byte, n));
}

static bool is_device(const void *ptr)
{
    const struct sg_range *r = sg_find(ASCEND, (uintptr_t)ptr);

    return r && r->sort != SG_PINNED;
}

/* Whether it is what the addresses are; at BY_ADDRESS old releases balk. */
static bool fits(const void *to, const void *from, int kind)
{
    const char *knows = getenv("SOFTGPU_ASCEND_DEFAULT");

    if (kind == BY_ADDRESS)
        return !knows || strcmp(knows, "0") != 0;
    return kind == (is_device(to) ? (is_device(from) ? WITHIN : TO_DEVICE) : TO_HOST);
}

aclError aclrtMemcpyAsync(void *to, size_t max, const void *from, size_t n, int kind,
                          aclrtStream stream)
{
    struct sg_copy v = {.to = (uintptr_t)to, .from = (uintptr_t)from, .n = n};
    struct sg_context *c;
    int rc = enter_context(&c);

    if (rc)
        return code_of(rc);
    rc = n > max || !fits(to, from, kind) ? SG_INVALID_VALUE
                                          : sg_copy(c, stream, &v, 1, false, NULL);
    return leave(rc);
}

/* --------------------------------------------------------------------------- streams and events */

aclError aclrtCreateStreamWithConfig(aclrtStream *out, uint32_t priority, uint32_t flags)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    if (rc)
        return code_of(rc);
    return leave(priority > 7 || flags > 3 ? SG_INVALID_VALUE : sg_stream_create(c, false, out));
}

aclError aclrtDestroyStream(aclrtStream stream)
{
    int rc = enter();

    return rc ? code_of(rc) : leave(sg_stream_destroy(ASCEND, stream));
}

aclError aclrtSynchronizeStream(aclrtStream stream)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    return rc ? code_of(rc) : leave(sg_stream_sync(c, stream));
}

aclError aclrtCreateEventExWithFlag(aclrtEvent *out, uint32_t flags)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    if (rc)
        return code_of(rc);
    return leave(flags != 1 ? SG_INVALID_VALUE : sg_event_create(c, out));
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream)
{
    struct sg_context *c;
    int rc = enter_context(&c);

    return rc ? code_of(rc) : leave(sg_event_record(c, event, stream));
}

aclError aclrtQueryEventStatus(aclrtEvent event, int *status)
{
    int rc = enter();

    if (rc)
        return code_of(rc);
    rc = sg_event_query(ASCEND, event);
    *status = rc != SG_NOT_READY;
    return leave(rc == SG_NOT_READY ? SG_OK : rc);
}

aclError aclrtSynchronizeEvent(aclrtEvent event)
{
    int rc = enter();

    return rc ? code_of(rc) : leave(sg_event_sync(ASCEND, event));
}

aclError aclrtDestroyEvent(aclrtEvent event)
{
    int rc = enter();

    return rc ? code_of(rc) : leave(sg_event_destroy(ASCEND, event));
}

aclError aclmdlRICaptureThreadExchangeMode(int *mode)
{
    int rc = enter();

    return rc ? code_of(rc) : leave(sg_exchange_capture_mode(ASCEND, mode));
}

/* ----------------------------------------------------------------------------------------- IPC */

aclError aclrtIpcMemGetExportKey(void *ptr, size_t size, char *key, size_t length, uint64_t flags)
{
    char handle[SG_HANDLE_BYTES];
    const struct sg_range *r;
    struct sg_context *c;
    int rc = enter_context(&c);

    if (rc)
        return code_of(rc);
    r = sg_find(ASCEND, (uintptr_t)ptr);
    if (!r || r->size != size || length < KEY_BYTES || flags != NO_PID_CHECK)
        return leave(SG_INVALID_VALUE);
    if ((uintptr_t)ptr % SG_GRAIN || size % SG_GRAIN) {
        (void)sg_leave(SG_OK);
        return UNALIGNED;
    }
    rc = sg_ipc_get(c, (uintptr_t)ptr, handle);
    if (rc == SG_OK)
        sg_ipc_text(handle, key);
    return leave(rc);
}

static int open_key(struct sg_context *c, const char *key, uintptr_t *addr)
{
    char handle[SG_HANDLE_BYTES];
    struct opened *o;
    int rc = sg_ipc_parse(ASCEND, key, handle) ? sg_ipc_open(c, handle, addr) : SG_INVALID_VALUE;

    if (rc)
        return rc;
    o = calloc(1, sizeof(*o));
    if (!o) {
        (void)sg_ipc_close(c, *addr);
        return SG_OUT_OF_MEMORY;
    }
    o->addr = *addr;
    strcpy(o->key, key);
    o->next = all_opened;
    all_opened = o;
    return SG_OK;
}

aclError aclrtIpcMemImportByKey(void **out, const char *key, uint64_t flags)
{
    struct sg_context *c;
    uintptr_t addr = 0;
    int rc = enter_context(&c);

    if (rc)
        return code_of(rc);
    rc = flags > PEER_ACCESS ? SG_INVALID_VALUE : open_key(c, key, &addr);
    if (rc == SG_OK)
        *out = (void *)addr;
    return leave(rc);
}

/* By the process that has opened it, or, for which nothing is kept, by the one that has made it. */
aclError aclrtIpcMemClose(const char *key)
{
    struct opened **at, *o;
    struct sg_context *c;
    int rc = enter_context(&c);

    if (rc)
        return code_of(rc);
    for (at = &all_opened; *at && strcmp((*at)->key, key) != 0;)
        at = &(*at)->next;
    o = *at;
    if (!o)
        return leave(SG_OK);
    *at = o->next;
    rc = sg_ipc_close(c, o->addr);
    free(o);
    return leave(rc);
}
