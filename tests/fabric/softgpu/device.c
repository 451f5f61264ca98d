/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c - settings, devices, contexts, and the lock. The environment is read once, when the first
 * driver is initialised.
 *
 * Where a program plays several processes, a library in it may have initialised the driver in one of them, and found
 * its contexts there, for all: each has the driver ready from the start, and a context of any stands for its own.
 */
#include "fabric/softgpu/core.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { MAX_STACK = 16 };

static bool played[SOFTGPU_KINDS];
static struct sg_process only = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                 .changed = PTHREAD_COND_INITIALIZER};
static _Thread_local struct sg_context *stack[SOFTGPU_KINDS][MAX_STACK];
static _Thread_local int depth[SOFTGPU_KINDS];
static _Thread_local int devices[SOFTGPU_KINDS];

/* That of the program, NULL: it is one process. */
static const struct softgpu_world *world(void)
{
    return &softgpu_world;
}

struct sg_process *sg_process(void)
{
    void **own = world() ? world()->process() : NULL;
    struct sg_process *p;

    if (!own)
        return &only;
    if (*own)
        return *own;
    p = calloc(1, sizeof(*p));
    if (!p)
        abort();
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    return *own = p;
}

static const struct {
    const char *word, *visible;
    unsigned bus;
    bool pushes; /* contexts; else each thread has a device */
} kinds[SOFTGPU_KINDS] = {
    [SOFTGPU_CUDA] = {"cuda", "CUDA_VISIBLE_DEVICES", 0x41, true},
    [SOFTGPU_HIP] = {"hip", "HIP_VISIBLE_DEVICES", 0xc1, false},
    [SOFTGPU_ASCEND] = {"npu", "ASCEND_RT_VISIBLE_DEVICES", 0x81, false},
    [SOFTGPU_MUSA] = {"musa", "MUSA_VISIBLE_DEVICES", 0x51, true},
    [SOFTGPU_MACA] = {"maca", "MACA_VISIBLE_DEVICES", 0x61, false},
    [SOFTGPU_SUPA] = {"supa", "SUPA_VISIBLE_DEVICES", 0x71, false},
};

const char *sg_visible(enum softgpu_kind kind)
{
    return kinds[kind].visible;
}

const char *sg_word(enum softgpu_kind kind)
{
    return kinds[kind].word;
}

uint64_t sg_hash(const void *data, size_t n)
{
    const uint8_t *p = data;
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

uint64_t sg_random(void)
{
    uint64_t x = 0;

    while (getrandom(&x, sizeof(x), 0) != (ssize_t)sizeof(x))
        ;
    return x ? x : 1;
}

int64_t sg_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A number with an optional K, M or G. */
static size_t number(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    char *end;
    size_t x;

    if (!text || !*text)
        return otherwise;
    x = strtoull(text, &end, 10);
    switch (*end) {
    case 'K':
        return x << 10;
    case 'M':
        return x << 20;
    case 'G':
        return x << 30;
    default:
        return x;
    }
}

/* "6.2.1" -> 60200001 (HIP_VERSION: major * 10^7 + minor * 10^5 + patch). */
static int hip_version(const char *text)
{
    int major = 5, minor = 2, patch = 21153;

    if (text && *text) {
        minor = patch = 0;
        sscanf(text, "%d.%d.%d", &major, &minor, &patch);
    }
    return major * 10000000 + minor * 100000 + patch;
}

static void read_settings(void)
{
    const char *host = world() ? world()->host() : getenv("SOFTGPU_HOST");
    const char *fabric = getenv("SOFTGPU_FABRIC_ID");

    if (!host)
        host = "";
    if (!fabric)
        fabric = "";
    SG->settings = (struct sg_settings){
        .devices = (int)number("SOFTGPU_DEVICES", 2),
        .memory = number("SOFTGPU_MEMORY", (size_t)1 << 30),
        .delay_us = (unsigned)number("SOFTGPU_DELAY_US", 50),
        .fabric = number("SOFTGPU_FABRIC", 1) != 0,
        .peer = number("SOFTGPU_PEER", 1) != 0,
        .dmabuf = number("SOFTGPU_DMABUF", 1) != 0,
        .peermem = number("SOFTGPU_PEERMEM", 1) != 0,
        .cuda_version = (int)number("SOFTGPU_CUDA_VERSION", 12090),
        .hip_version = hip_version(getenv("SOFTGPU_HIP_VERSION")),
        .host = sg_hash(host, strlen(host)),
        .fabric_id = sg_hash(fabric, strlen(fabric)),
    };
    if (SG->settings.devices > SG_MAX_DEVICES)
        SG->settings.devices = SG_MAX_DEVICES;
}

static void add_device(enum softgpu_kind kind, int number)
{
    struct sg_driver *d = &SG->drivers[kind];
    struct sg_device *out = &d->device[d->devices];
    uint64_t seed[3] = {SG->settings.host, (uint64_t)kind, (uint64_t)number}, half;

    out->number = number;
    out->context = (struct sg_context){.kind = kind, .device = d->devices};
    snprintf(out->pci, sizeof(out->pci), "0000:%02x:00.0",
             (kinds[kind].bus + (unsigned)number) & 0xff);
    half = sg_hash(seed, sizeof(seed));
    memcpy(out->uuid, &half, 8);
    seed[2] ^= half;
    half = sg_hash(seed, sizeof(seed));
    memcpy(out->uuid + 8, &half, 8);
    d->devices++;
}

/* As the drivers take it: up to the first number that is no device, or comes again. */
static void add_devices(enum softgpu_kind kind)
{
    const char *seen = getenv(sg_visible(kind));
    unsigned done = 0;

    for (int i = 0; !seen && i < SG->settings.devices; i++)
        add_device(kind, i);
    while (seen && *seen) {
        char *end;
        long i = strtol(seen, &end, 10);

        if (end == seen || i < 0 || i >= SG->settings.devices || done & 1u << i)
            return;
        done |= 1u << i;
        add_device(kind, (int)i);
        seen = *end == ',' ? end + 1 : end;
    }
}

void sg_plays(enum softgpu_kind kind)
{
    played[kind] = true;
}

bool softgpu_plays(enum softgpu_kind kind)
{
    return played[kind];
}

static bool forked(void)
{
    pid_t pid = atomic_load(&SG->owner);

    return pid != 0 && !world() && pid != getpid();
}

int sg_init(enum softgpu_kind kind)
{
    struct sg_driver *d = &SG->drivers[kind];
    int rc = SG_OK;

    if (forked())
        return SG_NOT_INITIALIZED;
    pthread_mutex_lock(&SG->lock);
    if (atomic_load(&SG->owner) == 0) {
        read_settings();
        sg_fault_start();
        atomic_store(&SG->owner, getpid());
    }
    sg_fault_listen();
    if (!d->ready) {
        rc = sg_fault(kind, SG_AT_init, SG_NO_DEVICE, NULL);
        if (rc == SG_OK)
            add_devices(kind);
        if (rc == SG_OK && d->devices == 0)
            rc = SG_NO_DEVICE;
        d->ready = rc == SG_OK;
    }
    pthread_mutex_unlock(&SG->lock);
    return rc;
}

const struct sg_settings *sg_look(void)
{
    return &SG->settings;
}

int sg_enter(enum softgpu_kind kind)
{
    if (world() && !SG->drivers[kind].ready)
        (void)sg_init(kind);
    if (forked() || atomic_load(&SG->owner) == 0)
        return SG_NOT_INITIALIZED;
    pthread_mutex_lock(&SG->lock);
    if (!SG->drivers[kind].ready) {
        pthread_mutex_unlock(&SG->lock);
        return SG_NOT_INITIALIZED;
    }
    sg_fault_listen();
    return SG_OK;
}

int sg_leave(int code)
{
    pthread_mutex_unlock(&SG->lock);
    return code;
}

static void begin(struct sg_context *c)
{
    if (c->active)
        return;
    c->active = true;
    c->dead = 0;
    c->life++;
}

int sg_enter_context(enum softgpu_kind kind, struct sg_context **out)
{
    struct sg_context *c;
    int rc = sg_enter(kind);

    if (rc)
        return rc;
    c = sg_current(kind);
    if (c && !kinds[kind].pushes)
        begin(c);
    if (!c)
        return sg_leave(SG_INVALID_CONTEXT);
    if (!c->active)
        return sg_leave(SG_CONTEXT_IS_DESTROYED);
    if (c->dead)
        return sg_leave(c->dead);
    *out = c;
    return SG_OK;
}

int sg_dead(enum softgpu_kind kind, const struct sg_range *r)
{
    const struct sg_context *c = sg_current(kind);
    int code = r ? SG->drivers[kind].device[r->device].context.dead : SG_OK;

    return code || !c ? code : c->dead;
}

struct sg_device *sg_device(enum softgpu_kind kind, int device)
{
    if (device < 0 || device >= SG->drivers[kind].devices)
        return NULL;
    return &SG->drivers[kind].device[device];
}

int sg_device_by_uuid(enum softgpu_kind kind, const uint8_t uuid[16])
{
    for (int i = 0; i < SG->drivers[kind].devices; i++)
        if (memcmp(SG->drivers[kind].device[i].uuid, uuid, 16) == 0)
            return i;
    return -1;
}

int softgpu_contexts(enum softgpu_kind kind, int device)
{
    struct sg_device *d;
    int n = -1;

    pthread_mutex_lock(&SG->lock);
    d = sg_device(kind, device);
    if (d)
        n = d->context.active;
    pthread_mutex_unlock(&SG->lock);
    return n;
}

int sg_retain(enum softgpu_kind kind, int device, struct sg_context **out)
{
    struct sg_device *d = sg_device(kind, device);

    if (!d)
        return SG_INVALID_DEVICE;
    d->context.retained++;
    begin(&d->context);
    *out = &d->context;
    return SG_OK;
}

/* With the last one go all allocations; streams and events are of a life that is over. */
int sg_release(enum softgpu_kind kind, int device)
{
    struct sg_device *d = sg_device(kind, device);

    if (!d)
        return SG_INVALID_DEVICE;
    if (d->context.retained == 0)
        return SG_INVALID_CONTEXT;
    if (--d->context.retained == 0) {
        sg_quiesce(kind, device, false);
        sg_free_all(&d->context);
        d->context.active = false;
    }
    return SG_OK;
}

/* The caller's own for that of another process of this program. */
static struct sg_context *own_context(enum softgpu_kind kind, const struct sg_context *c)
{
    struct sg_context *own = &SG->drivers[kind].device[c->device].context;

    begin(own);
    return own;
}

int sg_push(enum softgpu_kind kind, struct sg_context *c)
{
    bool known = false;

    if (world() && c)
        c = own_context(kind, c);
    for (int i = 0; i < SG->drivers[kind].devices; i++)
        known |= c == &SG->drivers[kind].device[i].context;
    if (!known || depth[kind] == MAX_STACK)
        return SG_INVALID_CONTEXT;
    if (!c->active)
        return SG_CONTEXT_IS_DESTROYED;
    stack[kind][depth[kind]++] = c;
    return SG_OK;
}

int sg_pop(enum softgpu_kind kind, struct sg_context **out)
{
    if (depth[kind] == 0)
        return SG_INVALID_CONTEXT;
    depth[kind]--;
    if (out)
        *out = stack[kind][depth[kind]];
    return SG_OK;
}

struct sg_context *sg_current(enum softgpu_kind kind)
{
    if (!kinds[kind].pushes)
        return &SG->drivers[kind].device[devices[kind]].context;
    return depth[kind] ? stack[kind][depth[kind] - 1] : NULL;
}

int sg_set_device(enum softgpu_kind kind, int device)
{
    if (!sg_device(kind, device))
        return SG_INVALID_DEVICE;
    devices[kind] = device;
    return SG_OK;
}

int sg_get_device(enum softgpu_kind kind)
{
    return devices[kind];
}
