/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpus.c - GPUs of hosts, by softgpu: each process has contexts, streams and memory of its own, and what is shared
 * with others of its machine goes by handles, as between processes of a real system. Streams are devices of a host,
 * which go on while its processes stand still; with a process its streams end, in the middle of a copy.
 *
 * The host cannot touch memory of a device. The run looks at it where the stand-in does, its view, and what nobody may
 * touch is taken away there. The library finds the driver once for all hosts, since they are one process to it: the
 * stand-in has a context of one host stand for that of another (softgpu_world).
 */
#include "fabric/softgpu/softgpu.h"
#include "fabric/softgpu/softcuda.h"

#include "load.h"
#include "machine.h"
#include "sim.h"
#include "te.h"
#include "world.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEVICES  2 /* of a host */
#define GRAIN    ((size_t)2 << 20)
#define GAP      ((size_t)4096)    /* behind what is asked for */
#define LEAST    ((size_t)1 << 20) /* from here on an allocation shares its block with no other */
#define COPIED   4096              /* bytes between two points */
#define MEMORIES 1024
#define LATE_NS  (20 * SIM_S) /* in which a copy that was submitted is carried out */

enum shape { ALLOCATED, MAPPED, EXPORTED };

struct memory {
    char *at, *view;
    size_t size;
    const struct sim_process *owner; /* NULL: freed */
    enum shape shape;
};

static struct memory memories[MEMORIES];
static int n_memories;
static bool has_peers;  /* devices have access to each other; else each host has memory of one */
static bool has_fabric; /* memory that was made for it has handles */
static int acts_for;    /* a host, as whose process a thread of the world calls */

#define CALLS(X)                \
    X(cuInit)                   \
    X(cuDevicePrimaryCtxRetain) \
    X(cuCtxPushCurrent_v2)      \
    X(cuCtxPopCurrent_v2)       \
    X(cuStreamQuery)            \
    X(cuMemAlloc_v2)            \
    X(cuMemFree_v2)             \
    X(cuMemCreate)              \
    X(cuMemRelease)             \
    X(cuMemAddressReserve)      \
    X(cuMemAddressFree)         \
    X(cuMemMap)                 \
    X(cuMemUnmap)               \
    X(cuMemSetAccess)           \
    X(softgpu_alias)            \
    X(softgpu_control)

static struct {
#define MEMBER(name) __typeof__(&(name)) name;
    CALLS(MEMBER)
#undef MEMBER
} gpu;

static bool is_on(void)
{
    return sim_world.knobs.fabrics & FABRIC_GPUS;
}

static bool has_faults(void)
{
    return is_on() && (sim_world.knobs.fabrics & FABRIC_GPU_FAULTS);
}

/* ----------------------------------------------------------------------------- what softgpu asks */

/* Of a host that has no process any more it is nobody's. */
static void **process(void)
{
    static void *nobody;

    if (!sim_is_on())
        return &nobody;
    if (sim_host() || !acts_for)
        return &sim_process()->gpus;
    return sim_world.hosts[acts_for].life ? &sim_process_of(acts_for)->gpus : &nobody;
}

static const char *machine(void)
{
    static char names[SIM_HOSTS][16];
    int host = sim_host() ? sim_host() : acts_for, first = host;

    for (int h = host - 1; h > 0; h--)
        if (sim_is_same_machine(h, host))
            first = h;
    snprintf(names[host], sizeof(names[host]), "machine%d", first);
    return names[host];
}

static void copy(void *to, const void *from, size_t n)
{
    for (size_t done = 0; done < n; done += COPIED) {
        memmove((char *)to + done, (const char *)from + done,
                n - done < COPIED ? n - done : COPIED);
        sim_point();
    }
}

const struct softgpu_world softgpu_world = {process, machine, copy};

/* ------------------------------------------------------------------------------------- the drivers */

static void load_library(void)
{
    char folder[64], core[96], cuda[96];
    void *in_core, *in_cuda;

    sim_nics_folder((int)syscall(SYS_getpid), folder);
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        sim_fail("%s cannot be made", folder);
    sim_link_library(folder, "softgpu/libsoftgpu.so.0", "GPUs: --fabrics=63", core);
    sim_link_library(folder, "softgpu/libcuda.so.1", "GPUs: --fabrics=63", cuda);
    in_core = dlopen(core, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    in_cuda = in_core ? dlopen(cuda, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE) : NULL;
    if (!in_cuda)
        sim_fail("%s is not softgpu: %s", in_core ? cuda : core, dlerror());
#define FIND(name)                                \
    do {                                          \
        void *at = dlsym(in_cuda, #name);         \
                                                  \
        if (!at)                                  \
            sim_fail("softgpu has no %s", #name); \
        memcpy(&gpu.name, &at, sizeof(at));       \
    } while (0);
    CALLS(FIND)
#undef FIND
}

static void *faults_main(void *arg);

void sim_gpus_lay(void)
{
    if (!is_on())
        return;
    setenv("SOFTGPU_DMABUF", "0", 1); /* NICs go by memory of the host */
    setenv("SOFTGPU_PEERMEM", "0", 1);
    has_peers = !sim_one_in(4);
    setenv("SOFTGPU_PEER", has_peers ? "1" : "0", 1);
    has_fabric = has_peers && sim_one_in(2);
    setenv("SOFTGPU_FABRIC", has_fabric ? "1" : "0", 1);
    setenv("SOFTGPU_DELAY_US", sim_one_in(2) ? "50" : "2000", 1);
    load_library();
    if (has_faults())
        sim_spawn(0, faults_main, NULL);
}

static const char *one_of(const char *a, const char *b)
{
    return sim_one_in(2) ? a : b;
}

void sim_gpus_options(te_options *o)
{
    if (!is_on())
        return;
    sim_ok(te_option_set(o, "TE_FILE_CUFILE", "off"), "TE_FILE_CUFILE"); /* that of the machine */
    sim_ok(te_option_set(o, "TE_GPU_STAGE", one_of("1048576", "4194304")), "TE_GPU_STAGE");
    sim_ok(te_option_set(o, "TE_GPU_PIN", one_of("on", "off")), "TE_GPU_PIN");
    sim_ok(te_option_set(o, "TE_GPU_KERNEL", one_of("on", "off")), "TE_GPU_KERNEL");
    sim_ok(te_option_set(o, "TE_GPU_MAPPINGS", one_of("1", "1024")), "TE_GPU_MAPPINGS");
    sim_ok(te_option_set(o, "MC_USE_NVLINK_IPC", one_of("on", "off")), "MC_USE_NVLINK_IPC");
}

/* ------------------------------------------------------------------------------------------ memory */

static bool enter(int device)
{
    CUcontext c;

    return gpu.cuInit(0) == 0 && gpu.cuDevicePrimaryCtxRetain(&c, device) == 0 &&
           gpu.cuCtxPushCurrent_v2(c) == 0;
}

static void leave(void)
{
    gpu.cuCtxPopCurrent_v2(NULL);
}

static size_t mapped_size(size_t size)
{
    return (size + GRAIN - 1) / GRAIN * GRAIN;
}

/* One grain of it, at its place. */
static bool map_one(CUdeviceptr at, int device, enum shape shape)
{
    CUmemAllocationProp prop = {
        .type = 1, .requestedHandleTypes = shape == EXPORTED ? 8 : 0, .location = {1, device}};
    CUmemGenericAllocationHandle piece;
    bool mapped;

    if (gpu.cuMemCreate(&piece, GRAIN, &prop, 0) != 0)
        return false;
    mapped = gpu.cuMemMap(at, GRAIN, 0, piece, 0) == 0;
    gpu.cuMemRelease(piece);
    return mapped;
}

static void unmap(CUdeviceptr at, size_t mapped, size_t size)
{
    if (mapped)
        while (gpu.cuMemUnmap(at, mapped) != 0) /* by a fault */
            usleep(1000);
    gpu.cuMemAddressFree(at, size);
}

/* Pieces in a row. */
static char *map_all(size_t size, int device, enum shape shape)
{
    CUmemAccessDesc access[DEVICES];
    CUdeviceptr at;
    size_t done = 0;

    size = mapped_size(size);
    for (int i = 0; i < DEVICES; i++)
        access[i] = (CUmemAccessDesc){.location = {1, i}, .flags = 3};
    if (gpu.cuMemAddressReserve(&at, size, 0, 0, 0) != 0)
        return NULL;
    while (done < size && map_one(at + done, device, shape))
        done += GRAIN;
    if (done == size && (has_peers ? gpu.cuMemSetAccess(at, size, access, DEVICES)
                                   : gpu.cuMemSetAccess(at, size, &access[device], 1)) == 0)
        return (char *)(uintptr_t)at;
    unmap(at, done, size);
    return NULL;
}

static char *allocate(size_t size)
{
    CUdeviceptr at;

    return gpu.cuMemAlloc_v2(&at, size > LEAST ? size : LEAST) == 0 ? (char *)(uintptr_t)at : NULL;
}

static bool make(struct memory *m, int device)
{
    if (!enter(device))
        return false;
    m->at =
        m->shape == ALLOCATED ? allocate(m->size + GAP) : map_all(m->size + GAP, device, m->shape);
    m->view = m->at ? gpu.softgpu_alias(m->at) : NULL;
    leave();
    return m->at;
}

char *sim_gpu_memory(size_t size)
{
    struct memory m = {.size = size};

    if (!is_on() || sim_one_in(2))
        return NULL;
    if (n_memories == MEMORIES)
        sim_fail("more than %d memories of devices", MEMORIES);
    m.shape = sim_one_in(2) ? ALLOCATED : has_fabric ? EXPORTED : MAPPED;
    for (int tries = 0; !m.at; usleep(100000))
        if (!make(&m, has_peers ? (int)sim_below(DEVICES) : sim_host() % DEVICES) && ++tries == 50)
            return NULL; /* a device that does nothing any more */
    m.owner = sim_process();
    memories[n_memories++] = m;
    sim_trace("memory of a device: %zu bytes at %p, seen at %p, sort %d", size, (void *)m.at,
              (void *)m.view, (int)m.shape);
    return m.at;
}

static struct memory *memory_of(const void *at)
{
    for (int i = n_memories - 1; i >= 0; i--)
        if (memories[i].owner && (size_t)((const char *)at - memories[i].at) < memories[i].size)
            return &memories[i];
    return NULL;
}

void *sim_view(const void *at)
{
    const struct memory *m = is_on() ? memory_of(at) : NULL;

    return m ? m->view + ((const char *)at - m->at) : (void *)(uintptr_t)at;
}

const char *sim_location(const void *at)
{
    return is_on() && memory_of(at) ? "*" : "cpu:0";
}

static void release(struct memory *m)
{
    CUdeviceptr at = (uintptr_t)m->at;

    mprotect(m->view, m->size, PROT_READ | PROT_WRITE);
    m->owner = NULL;
    if (!enter(0))
        return;
    if (m->shape == ALLOCATED)
        gpu.cuMemFree_v2(at);
    else
        unmap(at, mapped_size(m->size + GAP), mapped_size(m->size + GAP));
    leave();
}

void sim_gpus_end(void)
{
    for (int i = 0; i < n_memories; i++)
        if (memories[i].owner == sim_process())
            release(&memories[i]);
}

/* ------------------------------------------------------------------------------------------ faults */

static void order(int host, const char *text)
{
    int rc;

    if (!sim_world.hosts[host].life)
        return;
    sim_trace("GPUs of host %d: %s", host, text);
    acts_for = host;
    rc = gpu.softgpu_control(text);
    acts_for = 0;
    if (rc)
        sim_fail("softgpu does not do '%s'", text);
}

/* Whether its context has gone: all that the process does with the device fails from then on. */
static bool is_lost(int host)
{
    bool lost = false;

    acts_for = host;
    for (int d = 0; d < DEVICES && sim_world.hosts[host].life; d++) {
        bool entered = enter(d);

        lost |= entered && gpu.cuStreamQuery(NULL) > 0;
        if (entered)
            leave();
    }
    acts_for = 0;
    return lost;
}

static void fail_some(int host)
{
    static const char *const places[] = {"alloc",  "pin",    "copy",    "copy",     "stream",
                                         "event",  "record", "query",   "map",      "access",
                                         "create", "import", "ipc_get", "ipc_open", "export"};
    char text[64];

    snprintf(text, sizeof(text), "fail %s nth=%d count=%d", places[sim_below(15)],
             1 + (int)sim_below(12), sim_one_in(4) ? 100000 : 1 + (int)sim_below(4));
    order(host, text);
}

static void spoil(int host)
{
    char text[64];

    if (sim_one_in(3)) {
        snprintf(text, sizeof(text), "stall ms=%d", 1 << sim_below(13));
        order(host, text);
    } else if (sim_one_in(4) && sim_world.hosts[host].lives < LIVES - 1) { /* or in its next */
        snprintf(text, sizeof(text), "fail copy async=1 nth=%d", 1 + (int)sim_below(20));
        order(host, text);
    } else {
        fail_some(host);
    }
    sim_world.counts.faults++;
}

/* A process whose context has gone is started again: nothing else helps. */
static void renew(int host)
{
    const struct life *was = sim_world.hosts[host].life;

    if (!was || !is_lost(host))
        return;
    sim_trace("the context of host %d is lost", host);
    usleep((useconds_t)(sim_below(3000) * 1000));
    while (sim_world.hosts[host].life == was && !sim_kill_host(&sim_world.hosts[host]))
        usleep(1000);
}

/* What was to fail late may do so long after nothing else fails any more. */
static void renew_all(void)
{
    for (int h = 1; h <= sim_world.knobs.hosts; h++)
        renew(h);
}

static bool faults_are_over, faults_have_ended;

static void *faults_main(void *arg)
{
    while (!faults_are_over) {
        int host = 1 + (int)sim_below((uint64_t)sim_world.knobs.hosts);

        usleep((useconds_t)(sim_below(1500) * 1000));
        if (!sim_world.hosts[host].life || faults_are_over)
            continue;
        spoil(host);
        usleep((useconds_t)(1000 << sim_below(13)));
        order(host, "clear");
        renew_all();
    }
    for (int64_t end = sim_now() + LATE_NS; sim_now() < end; usleep(100000))
        renew_all();
    faults_have_ended = true;
    return arg;
}

void sim_gpus_quiet(void)
{
    faults_are_over = true;
    while (has_faults() && !faults_have_ended)
        usleep(10000);
}
