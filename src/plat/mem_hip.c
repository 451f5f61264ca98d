/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem_hip.c - the row of HIP, by AMD's runtime library.
 *
 * The runtime has no contexts to push: each thread has a current device, which is changed around
 * calls and then put back; so is its mode of captures, for which mem_cuda.c has the reason. ROCm 5, 6 and 7 differ in what hip.h cannot say:
 *   kinds of memory    ROCm 5 has another numbering
 *   flags of IPC       ROCm 5 has none
 *   mapped memory      its structs are what hip.h has from ROCm 6 on; before that it is not used
 *   imported files     ROCm 7.1 takes the descriptor for a pointer, before that a pointer to it
 *
 * Few runtimes know the fabric. Where one does not, mapped memory is exported as a file descriptor,
 * and who imports it fetches that from the process, as the kernel allows. The handle names the
 * process, by a hash of its number and of the time at which it began, which tells strangers nothing
 * (base/here.h), and the descriptor of a note: a sealed memfd that names the memory's descriptor. Handle
 * and note have the same random token. So a handle that somebody made up leads to nothing that its owner
 * has not exported.
 */
#include "plat/gpu.h"

#include "plat/hip.h"

#include "base/err.h"
#include "base/here.h"
#include "base/os.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROCM_6   60000000
#define ROCM_7_1 70100000

#define ALL_SYMBOLS(X) TEI_HIP_SYMBOLS(X) TEI_HIP_MAP_SYMBOLS(X) TEI_HIP_NEW_SYMBOLS(X)

static struct {
#define MEMBER(result, name, args, required) result(*name) args;
    ALL_SYMBOLS(MEMBER)
#undef MEMBER
} hip;

static const struct tei_symbol symbols[] = {
#define SYMBOL(result, name, args, required) {#name, offsetof(__typeof__(hip), name), required},
    ALL_SYMBOLS(SYMBOL)
#undef SYMBOL
};

/*
 * Every call goes this way. The runtime keeps the last error of the thread, and the program, which
 * asks for it after its own calls, would take ours for its own.
 */
#define CALL(name, ...) forget_error(hip.name(__VA_ARGS__))

static int forget_error(int status)
{
    if (status)
        (void)hip.hipGetLastError();
    return status;
}

/* 0 where the runtime does not say. */
static int version(void)
{
    static _Atomic int known;
    int v = atomic_load_explicit(&known, memory_order_relaxed);

    if (v == 0 && CALL(hipRuntimeGetVersion, &v) == 0)
        atomic_store_explicit(&known, v, memory_order_relaxed);
    return v;
}

static bool has_maps(void)
{
#define IS_THERE(result, name, args, required) &&hip.name
    return version() >= ROCM_6 TEI_HIP_MAP_SYMBOLS(IS_THERE);
#undef IS_THERE
}

/* ---------------------------------------------------------------------------------------- devices */

static int start(int *devices)
{
    int status = CALL(hipInit, 0);

    return status ? status : CALL(hipGetDeviceCount, devices);
}

static const char *error_name(int status)
{
    return hip.hipGetErrorName(status);
}

static const char *error_text(int status)
{
    return hip.hipGetErrorString(status);
}

static int tell_pci(int device, char *out, int size)
{
    return CALL(hipDeviceGetPCIBusId, out, size, device);
}

static int tell_uuid(int device, uint8_t out[16])
{
    hipUUID uuid;
    int status = CALL(hipDeviceGetUuid, &uuid, device);

    if (!status)
        memcpy(out, uuid.bytes, sizeof(uuid.bytes));
    return status;
}

static int retain(void *addr, uint64_t *piece)
{
    hipMemGenericAllocationHandle_t h = NULL;
    int status = TEI_GPU_NOT_SUPPORTED;

    if (has_maps())
        status = CALL(hipMemRetainAllocationHandle, &h, addr);
    *piece = (uintptr_t)h;
    return status;
}

static void release(uint64_t piece)
{
    (void)CALL(hipMemRelease, (hipMemGenericAllocationHandle_t)(uintptr_t)piece);
}

static int look(const void *addr, struct tei_gpu_seen *out)
{
    hipPointerAttribute_t a = {.device = -1};
    int status = CALL(hipPointerGetAttributes, &a, addr);
    int on_device = version() < ROCM_6 ? TEI_hipMemoryTypeDevice - 1 : TEI_hipMemoryTypeDevice;
    uint64_t piece;

    *out = (struct tei_gpu_seen){.managed = !status && a.isManaged};
    if (status || a.type != on_device || a.isManaged)
        return status;
    out->on_device = true;
    out->device = a.device;
    out->fabric = retain((void *)(uintptr_t)addr, &piece) == 0;
    out->ipc = !out->fabric;
    if (out->fabric)
        release(piece);
    return 0;
}

/* *mode: the new one, and then the old one. Old runtimes have no modes. */
static void exchange_capture_mode(hipStreamCaptureMode *mode)
{
    if (hip.hipThreadExchangeStreamCaptureMode)
        (void)CALL(hipThreadExchangeStreamCaptureMode, mode);
}

/* `was` has both: the mode, and MODES times the device. */
#define MODES 3

static int enter(int device, int *was)
{
    hipStreamCaptureMode mode = TEI_hipStreamCaptureModeRelaxed;
    int before, status = CALL(hipGetDevice, &before);

    if (!status && before != device)
        status = CALL(hipSetDevice, device);
    if (status)
        return status;
    exchange_capture_mode(&mode);
    *was = before * MODES + mode;
    return 0;
}

static void leave(int was)
{
    hipStreamCaptureMode mode = was % MODES;

    (void)CALL(hipSetDevice, was / MODES);
    exchange_capture_mode(&mode);
}

/* ----------------------------------------------------------------------------------------- memory */

static int find_range(const void *addr, uintptr_t *base, size_t *length)
{
    hipDeviceptr_t p = NULL;
    int status = CALL(hipMemGetAddressRange, &p, length, (void *)(uintptr_t)addr);

    *base = (uintptr_t)p;
    return status;
}

static int allocate(size_t length, void **out)
{
    return CALL(hipMalloc, out, length);
}

static int release_memory(void *addr)
{
    return CALL(hipFree, addr);
}

static int pin(void *addr, size_t length)
{
    return CALL(hipHostRegister, addr, length, TEI_hipHostRegisterPortable);
}

static int unpin(void *addr)
{
    return CALL(hipHostUnregister, addr);
}

/* ----------------------------------------------------------------------------------------- copies */

static int open_stream(void **out)
{
    hipStream_t s = NULL;
    int status = CALL(hipStreamCreateWithFlags, &s, TEI_hipStreamNonBlocking);

    *out = s;
    return status;
}

static int wait_stream(void *stream)
{
    return CALL(hipStreamSynchronize, stream);
}

static void close_stream(void *stream)
{
    (void)CALL(hipStreamDestroy, stream);
}

static int open_event(void **out)
{
    hipEvent_t e = NULL;
    int status =
        CALL(hipEventCreateWithFlags, &e, TEI_hipEventBlockingSync | TEI_hipEventDisableTiming);

    *out = e;
    return status;
}

static int record_event(void *event, void *stream)
{
    return CALL(hipEventRecord, event, stream);
}

static int query_event(void *event)
{
    return CALL(hipEventQuery, event);
}

static int wait_event(void *event)
{
    return CALL(hipEventSynchronize, event);
}

static void close_event(void *event)
{
    (void)CALL(hipEventDestroy, event);
}

static int copy(const struct tei_copy *v, size_t n, void *stream)
{
    int status = 0;

    for (size_t i = 0; !status && i < n; i++)
        status = CALL(hipMemcpyAsync, v[i].to, v[i].from, v[i].n, TEI_hipMemcpyDefault, stream);
    return status;
}

static int zero(void *addr, size_t length, void *stream)
{
    return CALL(hipMemsetAsync, addr, 0, length, stream);
}

/* -------------------------------------------------------------------------------------------- IPC */

static int export_ipc(void *base, uint8_t out[TEI_GPU_HANDLE])
{
    hipIpcMemHandle_t h;
    int status = CALL(hipIpcGetMemHandle, &h, base);

    if (!status)
        memcpy(out, h.reserved, TEI_GPU_HANDLE);
    return status;
}

static int open_ipc(const uint8_t handle[TEI_GPU_HANDLE], void **base)
{
    hipIpcMemHandle_t h;
    unsigned flags = version() < ROCM_6 ? 0 : TEI_hipIpcMemLazyEnablePeerAccess;

    memcpy(h.reserved, handle, TEI_GPU_HANDLE);
    return CALL(hipIpcOpenMemHandle, base, h, flags);
}

static int close_ipc(void *base)
{
    return CALL(hipIpcCloseMemHandle, base);
}

/* ---------------------------------------------------------------------------------- mapped memory */

static hipMemAllocationProp memory_of(int device, int sort)
{
    return (hipMemAllocationProp){.type = TEI_hipMemAllocationTypePinned,
                                  .requestedHandleType = sort,
                                  .location = {TEI_hipMemLocationTypeDevice, device}};
}

static int tell_granularity(int device, size_t *out)
{
    hipMemAllocationProp prop = memory_of(device, TEI_hipMemHandleTypePosixFileDescriptor);

    if (!has_maps())
        return TEI_GPU_NOT_SUPPORTED;
    return CALL(hipMemGetAllocationGranularity, out, &prop,
                TEI_hipMemAllocationGranularityRecommended);
}

static int create(int device, size_t size, uint64_t *piece)
{
    hipMemAllocationProp fabric = memory_of(device, TEI_hipMemHandleTypeFabric),
                         file = memory_of(device, TEI_hipMemHandleTypePosixFileDescriptor);
    hipMemGenericAllocationHandle_t h = NULL;
    int status = CALL(hipMemCreate, &h, size, &fabric, 0);

    if (status && status != TEI_GPU_OUT_OF_MEMORY) {
        status = CALL(hipMemCreate, &h, size, &file, 0);
    }
    *piece = (uintptr_t)h;
    return status;
}

static int map(uint64_t piece, size_t size, void **addr)
{
    void *p = NULL;
    int status = CALL(hipMemAddressReserve, &p, size, 0, NULL, 0);

    if (status)
        return status;
    status = CALL(hipMemMap, p, size, 0, (hipMemGenericAllocationHandle_t)(uintptr_t)piece, 0);
    if (status)
        (void)CALL(hipMemAddressFree, p, size);
    else
        *addr = p;
    return status;
}

static int allow(void *addr, size_t size, int device)
{
    hipMemAccessDesc access = {.location = {TEI_hipMemLocationTypeDevice, device},
                               .flags = TEI_hipMemAccessFlagsProtReadWrite};

    return CALL(hipMemSetAccess, addr, size, &access, 1);
}

static void unmap(void *addr, size_t size)
{
    (void)CALL(hipMemUnmap, addr, size);
    (void)CALL(hipMemAddressFree, addr, size);
}

/* -------------------------------------------------------------------- handles of mapped memory */

/* What a handle says that leads to a descriptor of this host; the rest of it is zero. */
struct place {
    char magic[8];
    uint8_t token[16], life[TEI_HERE_LIFE]; /* of the process, with the token as the nonce */
    int32_t note;
};

/* The same by version 0.1. */
struct old_place {
    char magic[8];
    uint64_t began;
    int32_t pid, note;
    uint8_t token[16];
};

struct note {
    char magic[8];
    uint8_t token[16];
    int32_t fd;
};

#define NOTE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

/* Without their ends. */
static const char magic[] = "te-hipfd"; /* of notes, and of old places */
static const char place_magic[] = "te-hipf2";

_Static_assert(sizeof(struct place) <= TEI_GPU_HANDLE, "handles of files");

static bool is_of(const struct place *p, pid_t pid)
{
    uint8_t life[TEI_HERE_LIFE];

    return tei_here_life(p->token, pid, life) && memcmp(life, p->life, sizeof(life)) == 0;
}

/* -1 with errno. */
static int write_note(const struct note *n)
{
    int fd = tei_fd_own(memfd_create("te_hip", MFD_CLOEXEC | MFD_ALLOW_SEALING));

    if (fd < 0 || (write(fd, n, sizeof(*n)) == (ssize_t)sizeof(*n) &&
                   fcntl(fd, F_ADD_SEALS, NOTE_SEALS) == 0))
        return fd;
    tei_fd_close(fd);
    return -1;
}

/* The memory's descriptor that a note with this token names; -1: it is no such note. */
static int read_note(int fd, const uint8_t token[16])
{
    struct note n;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & NOTE_SEALS) != NOTE_SEALS ||
        pread(fd, &n, sizeof(n), 0) != (ssize_t)sizeof(n) ||
        memcmp(n.magic, magic, sizeof(n.magic)) != 0 ||
        memcmp(n.token, token, sizeof(n.token)) != 0)
        return -1;
    return n.fd;
}

/* Takes the descriptor over. The driver's status. */
static int export_file(int fd, uint8_t out[TEI_GPU_HANDLE])
{
    struct place p = {.note = -1};
    struct note n = {.fd = tei_fd_own(fd)};

    memcpy(p.magic, place_magic, sizeof(p.magic));
    memcpy(n.magic, magic, sizeof(n.magic));
    tei_random(p.token, sizeof(p.token));
    memcpy(n.token, p.token, sizeof(n.token));
    if (tei_here_life(p.token, getpid(), p.life))
        p.note = write_note(&n);
    if (p.note < 0) {
        tei_fd_close(fd);
        return TEI_GPU_NOT_SUPPORTED;
    }
    memset(out, 0, TEI_GPU_HANDLE);
    memcpy(out, &p, sizeof(p));
    return 0;
}

static int export_fabric(uint64_t piece, uint8_t out[TEI_GPU_HANDLE])
{
    hipMemGenericAllocationHandle_t h = (hipMemGenericAllocationHandle_t)(uintptr_t)piece;
    int fd = -1,
        status = CALL(hipMemExportToShareableHandle, out, h, TEI_hipMemHandleTypeFabric, 0);

    if (!status)
        return 0;
    status =
        CALL(hipMemExportToShareableHandle, &fd, h, TEI_hipMemHandleTypePosixFileDescriptor, 0);
    return status ? status : export_file(fd, out);
}

/* One whose process is not there any more leads to nobody. */
static bool is_old_place(const uint8_t handle[TEI_GPU_HANDLE], struct place *out)
{
    struct tei_process process;
    struct old_place old;

    memcpy(&old, handle, sizeof(old));
    if (memcmp(old.magic, magic, sizeof(old.magic)) != 0)
        return false;
    *out = (struct place){.note = old.note};
    memcpy(out->token, old.token, sizeof(out->token));
    if (!tei_process_look(old.pid, &process) || process.began != old.began ||
        !tei_here_life(out->token, old.pid, out->life))
        memset(out->life, 0, sizeof(out->life));
    return true;
}

static bool is_place(const uint8_t handle[TEI_GPU_HANDLE], struct place *out)
{
    memcpy(out, handle, sizeof(*out));
    return memcmp(out->magic, place_magic, sizeof(out->magic)) == 0 || is_old_place(handle, out);
}

static void unexport_fabric(const uint8_t handle[TEI_GPU_HANDLE])
{
    struct place p;
    int fd = -1;

    if (is_place(handle, &p) && is_of(&p, getpid()))
        fd = read_note(p.note, p.token);
    if (fd >= 0) {
        tei_fd_close(fd);
        tei_fd_close(p.note);
    }
}

/* 0: there is none. The owner of one handle has most often another one, too. */
static pid_t find_owner(const struct place *p)
{
    static _Atomic pid_t last;
    pid_t pid = atomic_load_explicit(&last, memory_order_relaxed);

    if (pid && is_of(p, pid))
        return pid;
    pid = tei_here_find_life(p->token, p->life);
    atomic_store_explicit(&last, pid, memory_order_relaxed);
    return pid;
}

/* A duplicate of the memory's descriptor, -1 if there is none. */
static int fetch(const struct place *p)
{
    int process, note = -1, there = -1, fd = -1;
    pid_t pid = find_owner(p);

    if (!pid || pid == getpid())
        return -1;
    process = (int)syscall(SYS_pidfd_open, pid, 0);
    if (process < 0)
        return -1;
    /* The number cannot change hands while the process is held. */
    if (is_of(p, pid))
        note = (int)syscall(SYS_pidfd_getfd, process, p->note, 0);
    if (note >= 0) {
        there = read_note(note, p->token);
        close(note);
    }
    if (there >= 0)
        fd = (int)syscall(SYS_pidfd_getfd, process, there, 0);
    close(process);
    return fd;
}

static int import_file(const struct place *p, size_t size, hipMemGenericAllocationHandle_t *out)
{
    int fd = fetch(p), status = TEI_GPU_NOT_SUPPORTED;
    void *by_value = (void *)(intptr_t)fd;
    off_t end = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;

    if (end >= 0 && (uint64_t)end >= size)
        status = CALL(hipMemImportFromShareableHandle, out, version() < ROCM_7_1 ? &fd : by_value,
                      TEI_hipMemHandleTypePosixFileDescriptor);
    else
        TEI_DEBUG("descriptor of another process: %s",
                  fd < 0 ? "it cannot be fetched" : "it is too short");
    if (fd >= 0)
        close(fd);
    return status;
}

static int import_fabric(const uint8_t handle[TEI_GPU_HANDLE], size_t size, uint64_t *piece)
{
    uint8_t copy_of_it[TEI_GPU_HANDLE];
    hipMemGenericAllocationHandle_t h = NULL;
    struct place p;
    int status;

    memcpy(copy_of_it, handle, sizeof(copy_of_it));
    if (is_place(handle, &p))
        status = import_file(&p, size, &h);
    else
        status = CALL(hipMemImportFromShareableHandle, &h, copy_of_it, TEI_hipMemHandleTypeFabric);
    *piece = (uintptr_t)h;
    return status;
}

static int export_dmabuf(int device, uintptr_t addr, size_t size, int *fd)
{
    (void)device;
    if (!hip.hipMemGetHandleForAddressRange)
        return TEI_GPU_NOT_SUPPORTED;
    return CALL(hipMemGetHandleForAddressRange, fd, (void *)addr, size,
                TEI_hipMemRangeHandleTypeDmaBufFd, 0);
}

_Static_assert((int)TEI_GPU_INVALID_VALUE == (int)TEI_hipErrorInvalidValue &&
                   (int)TEI_GPU_NOT_INITIALIZED == (int)TEI_hipErrorNotInitialized &&
                   (int)TEI_GPU_DEINITIALIZED == (int)TEI_hipErrorDeinitialized &&
                   (int)TEI_GPU_INSUFFICIENT_DRIVER == (int)TEI_hipErrorInsufficientDriver &&
                   (int)TEI_GPU_INVALID_DEVICE == (int)TEI_hipErrorInvalidDevice &&
                   (int)TEI_GPU_INVALID_CONTEXT == (int)TEI_hipErrorInvalidContext &&
                   (int)TEI_GPU_OUT_OF_MEMORY == (int)TEI_hipErrorOutOfMemory &&
                   (int)TEI_GPU_NO_DEVICE == (int)TEI_hipErrorNoDevice &&
                   (int)TEI_GPU_NOT_READY == (int)TEI_hipErrorNotReady &&
                   (int)TEI_GPU_ALREADY_PINNED == (int)TEI_hipErrorHostMemoryAlreadyRegistered &&
                   (int)TEI_GPU_NOT_SUPPORTED == (int)TEI_hipErrorNotSupported,
               "statuses of HIP");

const struct tei_driver tei_driver_hip = {
    .name = "hip",
    .title = "HIP",
    .files = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"},
    .symbols = symbols,
    .n_symbols = TEI_ARRAY_LEN(symbols),
    .table = &hip,
    TEI_DRIVER_CALLS,
};
