/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.h - the inside of libsoftgpu.so.0: one driver behind the faces softcuda.c, softhip.c and softascend.c.
 * The first two are built under other makers' names, too; face.h.
 *
 *   device.c  settings, devices, contexts, the lock
 *   fault.c   commands, and what fails because of them
 *   memory.c  allocations, pinned and managed memory: which range an address is in
 *   ipc.c     handles and file descriptors for others
 *   vmm.c     memory apart from its addresses
 *   stream.c  streams, events, copies
 *   names.c   codes in words
 *
 * Device memory is a memfd, mapped twice: without any permission at the address that the program
 * knows, where the host faults, and for reading and writing at the "alias", where copies go. Behind
 * the memory lies a page that only softgpu uses (struct sg_label). Another process reaches it
 * through /proc/<pid>/fd, so that nothing is left behind by a process that is killed, and checks the
 * label: a descriptor may mean something else by then.
 *
 * One lock guards all state, which is struct sg_process: a program that plays several processes (softgpu_world)
 * has one for each. Faces take it with sg_enter() or sg_enter_context(), give it back with
 * sg_leave(), and every function below is called with it held unless it says otherwise. Copies run
 * without it. Codes are the same numbers in both drivers.
 */
#ifndef SOFTGPU_CORE_H
#define SOFTGPU_CORE_H

#include "fabric/softgpu/softgpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <unistd.h>

#define SG_API          __attribute__((visibility("default")))
#define SG_MAX_DEVICES  8
#define SG_PAGE         ((size_t)sysconf(_SC_PAGESIZE))
#define SG_GRAIN        ((size_t)2 << 20) /* of blocks and of VMM */
#define SG_ALIGN        ((size_t)256)     /* of allocations */
#define SG_SMALL        ((size_t)1 << 20) /* from here on an allocation has blocks of its own */
#define SG_SLOTS        (SG_GRAIN / SG_ALIGN)
#define SG_HANDLE_BYTES 64

enum sg_code {
    SG_OK = 0,
    SG_INVALID_VALUE = 1,
    SG_OUT_OF_MEMORY = 2,
    SG_NOT_INITIALIZED = 3,
    SG_BAD_DIRECTION = 21,
    SG_NO_DEVICE = 100,
    SG_INVALID_DEVICE = 101,
    SG_INVALID_IMAGE = 200,
    SG_INVALID_CONTEXT = 201,
    SG_MAP_FAILED = 205,
    SG_PEER_UNSUPPORTED = 217,
    SG_OPERATING_SYSTEM = 304,
    SG_INVALID_HANDLE = 400,
    SG_NOT_FOUND = 500,
    SG_NOT_READY = 600,
    SG_ILLEGAL_ADDRESS = 700,
    SG_OUT_OF_RESOURCES = 701,
    SG_CONTEXT_IS_DESTROYED = 709,
    SG_ALREADY_REGISTERED = 712,
    SG_NOT_REGISTERED = 713,
    SG_LAUNCH_FAILED = 719,
    SG_NOT_PERMITTED = 800,
    SG_NOT_SUPPORTED = 801,
    SG_DRIVER_MISMATCH = 803,
    SG_CAPTURED = 900,
    SG_UNKNOWN = 999,
};

/* ---- device.c */

struct sg_context {
    enum softgpu_kind kind;
    int device; /* of this process */
    unsigned retained;
    bool active;
    uint64_t life; /* counts how often it was made: what was made in another life is gone */
    int dead;      /* the code that all calls give from now on */
};

struct sg_device {
    int number;   /* of the machine */
    char pci[16]; /* "0000:81:00.0" */
    uint8_t uuid[16];
    size_t used;
    struct sg_context context;
};

struct sg_settings {
    int devices;
    size_t memory; /* of each device */
    unsigned delay_us;
    bool fabric, peer, dmabuf, peermem;
    int cuda_version, hip_version;
    uint64_t host, fabric_id; /* hashes: who may open handles */
};

struct sg_range;

struct sg_driver {
    bool ready;
    int devices;
    struct sg_device device[SG_MAX_DEVICES];
};

SG_API void sg_plays(enum softgpu_kind kind); /* without the lock, when the face is loaded */
SG_API int sg_init(enum softgpu_kind kind);   /* without the lock */
/* Take the lock, or fail without it: not initialised, in a forked child, without a live context. */
SG_API int sg_enter(enum softgpu_kind kind);
SG_API int sg_enter_context(enum softgpu_kind kind, struct sg_context **out);
/* The code of the range's context, or else of the current one, if that is dead. `r` may be NULL. */
SG_API int sg_dead(enum softgpu_kind kind, const struct sg_range *r);
SG_API int sg_leave(int code);                                          /* returns the code */
SG_API struct sg_device *sg_device(enum softgpu_kind kind, int device); /* NULL: none */
/* The device with this uuid, -1 if this process does not see it. */
int sg_device_by_uuid(enum softgpu_kind kind, const uint8_t uuid[16]);
SG_API const struct sg_settings *sg_look(void); /* without the lock, after sg_init() */

SG_API int sg_retain(enum softgpu_kind kind, int device, struct sg_context **out);
SG_API int sg_release(enum softgpu_kind kind, int device);
/* The environment variable that says which devices are seen, and the kind's word in commands. */
const char *sg_visible(enum softgpu_kind kind);
const char *sg_word(enum softgpu_kind kind);
/* CUDA and MUSA: a stack of contexts of this thread, of each. */
SG_API int sg_push(enum softgpu_kind kind, struct sg_context *c);
SG_API int sg_pop(enum softgpu_kind kind, struct sg_context **out);
SG_API struct sg_context *sg_current(enum softgpu_kind kind); /* may be NULL */
/* The others: a device of this thread, 0 at first. A device's context begins when it is needed first. */
SG_API int sg_set_device(enum softgpu_kind kind, int device);
SG_API int sg_get_device(enum softgpu_kind kind);

uint64_t sg_hash(const void *data, size_t n);
uint64_t sg_random(void);
int64_t sg_now_ns(void);

/* ---- fault.c */

#define SG_PLACE_MAP(X) \
    X(init)             \
    X(alloc)            \
    X(pin)              \
    X(copy)             \
    X(launch)           \
    X(stream)           \
    X(event)            \
    X(record)           \
    X(query)            \
    X(ipc_get)          \
    X(ipc_open)         \
    X(create)           \
    X(map)              \
    X(access)           \
    X(unmap)            \
    X(export)           \
    X(import)           \
    X(dmabuf)
#define SG_PLACE_ROW(name) SG_AT_##name,
enum sg_place { SG_PLACE_MAP(SG_PLACE_ROW) SG_PLACES };

enum { SG_MAX_FAULTS = 32 };

struct sg_command {
    enum sg_place place;
    int kind;         /* -1: both */
    long first, left; /* fails from the first call on, counted down to 1; then `left` times */
    int code;         /* 0: the usual one */
    bool async;
};

void sg_fault_start(void); /* SOFTGPU_FAULTS */
/* Looks at the control file. */
void sg_fault_listen(void);
/* Counts, and returns the code to fail with, or 0. *async: it is to fail when it is carried out. */
SG_API int sg_fault(enum softgpu_kind kind, enum sg_place place, int code, bool *async);
/* SG_CAPTURED if the program is capturing a stream and this thread minds: for what waits or frees. */
int sg_captured(enum softgpu_kind kind);
SG_API int sg_exchange_capture_mode(enum softgpu_kind kind, int *mode);
/* Returns when nothing is stalled any more; drops the lock meanwhile. */
void sg_stalled(enum softgpu_kind kind, int device);

/* ---- memory.c */

/* Lies in the memfd behind the memory. */
struct sg_label {
    uint64_t magic, id;
    uint64_t size;
    uint8_t uuid[16];
    uint32_t kind, types, direct;
    uint32_t live[SG_SLOTS]; /* by offset / SG_ALIGN: the number of the allocation there, or 0 */
};
#define SG_LABEL_BYTES ((sizeof(struct sg_label) + SG_PAGE - 1) / SG_PAGE * SG_PAGE)

struct sg_block {
    int fd;
    unsigned refs;
    enum softgpu_kind kind;
    int device;
    bool own; /* of this process: counts against the device */
    size_t size;
    struct sg_label *label; /* mapped */
};

enum sg_sort {
    SG_FREE,              /* of a block of small allocations */
    SG_HOLE,              /* reserved addresses with nothing mapped there */
    SG_BESIDE,            /* of a block of which something was opened by handle: the rest */
    SG_MEMORY,            /* from here on it is memory */
    SG_ALLOC = SG_MEMORY, /* cuMemAlloc */
    SG_OPENED,            /* by handle */
    SG_PINNED,            /* host memory */
    SG_MANAGED,           /* the host may touch it */
    SG_MAPPED,            /* VMM */
};

struct sg_range {
    uintptr_t addr;
    size_t size;
    enum sg_sort sort;
    enum softgpu_kind kind;
    int device;
    char *alias;
    struct sg_block *block;
    size_t offset;                /* in the block */
    uint32_t number;              /* of the allocation: SG_ALLOC, SG_OPENED */
    unsigned opened;              /* how often: SG_OPENED */
    unsigned can_read, can_write; /* devices, by bit: SG_MAPPED */
    unsigned flags;               /* as given: SG_PINNED */
    uint64_t id;                  /* differs for each */
    struct sg_space *space;       /* SG_HOLE, SG_MAPPED */
};

SG_API struct sg_range *sg_find(enum softgpu_kind kind, uintptr_t addr); /* memory only */
struct sg_range *sg_find_any(enum softgpu_kind kind, uintptr_t addr);
/* The first range that ends behind `addr`; NULL if none. */
struct sg_range *sg_find_from(enum softgpu_kind kind, uintptr_t addr);
struct sg_range *sg_range_add(const struct sg_range *like); /* NULL: no memory */
void sg_range_del(struct sg_range *r);
/*
 * Cuts ranges of this sort so that one is [addr, addr + size), and returns it. NULL: there is none
 * that covers it, or no memory.
 */
struct sg_range *sg_range_cut(enum softgpu_kind kind, enum sg_sort sort, uintptr_t addr,
                              size_t size);
/* Makes one of neighbours of the same sort in the same block or space; returns it. */
struct sg_range *sg_range_join(struct sg_range *r);
void sg_range_each(enum softgpu_kind kind, void (*see)(void *arg, const struct sg_range *r),
                   void *arg);

int sg_block_make(enum softgpu_kind kind, int device, size_t size, struct sg_block **out);
/* From a descriptor that somebody gave, which it duplicates; label checked. */
int sg_block_from(enum softgpu_kind kind, int fd, struct sg_block **out);
void sg_block_put(struct sg_block *b);
/* Address space without permission, aligned to SG_GRAIN; and the mappings of memory into it. */
int sg_space_make(size_t size, uintptr_t *out);
int sg_map_at(const struct sg_block *b, size_t offset, size_t size, uintptr_t addr, int protection);
void sg_unmap(uintptr_t addr, size_t size);
void sg_map_nothing(uintptr_t addr, size_t size); /* back to address space */

SG_API int sg_alloc(struct sg_context *c, size_t size, uintptr_t *out);
SG_API int sg_free(struct sg_context *c, uintptr_t addr);
void sg_free_all(struct sg_context *c);
SG_API int sg_alloc_managed(struct sg_context *c, size_t size, uintptr_t *out);
SG_API int sg_pin(struct sg_context *c, uintptr_t addr, size_t size, unsigned flags);
SG_API int sg_unpin(struct sg_context *c, uintptr_t addr);

/* Whether the host could touch it; the ends are looked at. */
bool sg_host_mapped(uintptr_t addr, size_t size);

/* ---- ipc.c */

SG_API int sg_ipc_get(struct sg_context *c, uintptr_t addr, void *handle);
SG_API int sg_ipc_open(struct sg_context *c, const void *handle, uintptr_t *out);
/* A handle as text of at most SG_HANDLE_BYTES, and back; false if it is none. */
SG_API void sg_ipc_text(const void *handle, char text[SG_HANDLE_BYTES + 1]);
SG_API bool sg_ipc_parse(enum softgpu_kind kind, const char *text, void *handle);
SG_API int sg_ipc_close(struct sg_context *c, uintptr_t addr);
int sg_fabric_export(const struct sg_block *b, void *handle);
int sg_fabric_import(enum softgpu_kind kind, const void *handle, struct sg_block **out);
SG_API int sg_dmabuf(enum softgpu_kind kind, uintptr_t addr, size_t size, int *fd);

/* ---- vmm.c */

enum { SG_TYPE_FD = 1, SG_TYPE_FABRIC = 8 };

struct sg_grant {
    int device;
    unsigned flags; /* 0, 1: read, 3: write, too */
};

SG_API int sg_vmm_create(enum softgpu_kind kind, int device, size_t size, unsigned types,
                         bool direct, uint64_t *out);
SG_API int sg_vmm_release(enum softgpu_kind kind, uint64_t handle);
SG_API int sg_vmm_retain(enum softgpu_kind kind, uintptr_t addr, uint64_t *out);
SG_API struct sg_block *sg_vmm_block(enum softgpu_kind kind, uint64_t handle); /* NULL: none */
SG_API int sg_vmm_reserve(enum softgpu_kind kind, size_t size, size_t align, uintptr_t *out);
SG_API int sg_vmm_unreserve(enum softgpu_kind kind, uintptr_t addr, size_t size);
SG_API int sg_vmm_map(enum softgpu_kind kind, uintptr_t addr, size_t size, uint64_t handle);
SG_API int sg_vmm_unmap(enum softgpu_kind kind, uintptr_t addr, size_t size);
SG_API int sg_vmm_access(enum softgpu_kind kind, uintptr_t addr, size_t size,
                         const struct sg_grant *v, size_t n);
/* `out`: an int for SG_TYPE_FD, SG_HANDLE_BYTES for SG_TYPE_FABRIC. */
SG_API int sg_vmm_export(enum softgpu_kind kind, uint64_t handle, unsigned type, void *out);
/* `from`: the descriptor itself, or where the bytes are. */
SG_API int sg_vmm_import(enum softgpu_kind kind, unsigned type, int fd, const void *bytes,
                         uint64_t *out);
long sg_vmm_live(enum softgpu_kind kind, bool spaces);

/* ---- stream.c */

struct sg_stream;
struct sg_event;

/* One of a batch. */
struct sg_copy {
    uintptr_t to, from;
    size_t n;
    bool now; /* `from` is read before the call ends */
};

SG_API int sg_stream_create(struct sg_context *c, bool blocking, struct sg_stream **out);
SG_API int sg_stream_destroy(enum softgpu_kind kind, struct sg_stream *s);
/* NULL: the stream that all blocking ones are in order with. */
SG_API int sg_stream_sync(struct sg_context *c, struct sg_stream *s);
SG_API int sg_stream_query(struct sg_context *c, struct sg_stream *s);
SG_API int sg_stream_wait(struct sg_context *c, struct sg_stream *s, struct sg_event *e);
/* What comes later waits until the word, of host memory that is pinned, has this value or, of 2^31, a later one. */
SG_API int sg_stream_value(struct sg_context *c, struct sg_stream *s, uintptr_t word,
                           uint32_t value);
SG_API int sg_stream_call(struct sg_context *c, struct sg_stream *s, void (*call)(void *arg),
                          void *arg);
SG_API int sg_event_create(struct sg_context *c, struct sg_event **out);
SG_API int sg_event_destroy(enum softgpu_kind kind, struct sg_event *e);
SG_API int sg_event_record(struct sg_context *c, struct sg_event *e, struct sg_stream *s);
SG_API int sg_event_query(enum softgpu_kind kind, struct sg_event *e);
SG_API int sg_event_sync(enum softgpu_kind kind, struct sg_event *e);
/* All or nothing. *bad is set to the one that is at fault if one is. */
SG_API int sg_copy(struct sg_context *c, struct sg_stream *s, const struct sg_copy *v, size_t n,
                   bool any_order, size_t *bad);
SG_API int sg_fill(struct sg_context *c, struct sg_stream *s, uintptr_t to, uint8_t byte, size_t n);
/* Waits until all that is under way now, on a device or (-1) on all, has ended. */
void sg_quiesce(enum softgpu_kind kind, int device, bool blocking_only);
long sg_stream_live(enum softgpu_kind kind);
long sg_event_live(enum softgpu_kind kind);

/* ---- names.c: NULL for a code that is not known */

SG_API const char *sg_name(enum softgpu_kind kind, int code);
SG_API const char *sg_text(int code);

/* ---- device.c: all that a process has */

struct sg_process {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something ended */
    _Atomic pid_t owner;    /* who initialised; a forked child has nothing */
    struct sg_settings settings;
    struct sg_driver drivers[SOFTGPU_KINDS];

    struct sg_command faults[SG_MAX_FAULTS];
    int n_faults;
    long calls[SOFTGPU_KINDS][SG_PLACES];
    struct {
        bool on;
        int64_t until; /* 0: until `release` */
        int kind, device;
    } stall;
    struct {
        char path[1024];
        dev_t dev;
        ino_t ino;
        struct timespec changed;
    } control;
    /* Modes: 0 minds the captures of all threads (GLOBAL), 1 those of its own, 2 none (RELAXED). */
    struct {
        bool on, spoilt;
    } captures[SOFTGPU_KINDS];

    struct {
        struct sg_range **v; /* by address, none overlaps another */
        size_t n, room;
    } tables[SOFTGPU_KINDS];
    uint64_t last_id;
    uint32_t last_number;
    struct sg_space *spaces[SOFTGPU_KINDS];
    struct sg_handle *handles[SOFTGPU_KINDS];
    uint64_t n_handles;
    struct sg_stream *streams[SOFTGPU_KINDS];
    struct sg_event *events[SOFTGPU_KINDS];
    uint64_t last_op;
};

/* That of the calling thread. */
SG_API struct sg_process *sg_process(void);
#define SG (sg_process())

#endif
