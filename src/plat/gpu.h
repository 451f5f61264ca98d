/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - how the parts of plat see a driver of devices. Private to src/plat.
 *
 *   mem.c        what an address is in, and one copy between any two
 *   gpu.c        which drivers there are: opened once, asked about devices; pinned memory
 *   gpu_queue.c  queues of copies
 *   gpu_share.c  memory of devices, and handles of it for other processes
 *   mem_cuda.c, mem_hip.c   a row each: the driver's calls under the names of struct tei_driver
 *   gpu_row.h    those of both rows that are alike
 *   gpu_file.c   handles that lead to a descriptor of another process
 *
 * A row only translates. What is an error, which code it gets and whether it is logged is decided by
 * the files above it. A kind without a row (TEI_MEM_HOST) has no driver.
 */
#ifndef TEI_PLAT_GPU_H
#define TEI_PLAT_GPU_H

#include "plat/plat.h"

#define TEI_GPU_DEVICES 64 /* of a kind: more are not looked at */

/* Statuses that are told apart. HIP numbers them as CUDA does; 0 is success in both. */
enum {
    TEI_GPU_INVALID_VALUE = 1,
    TEI_GPU_OUT_OF_MEMORY = 2,
    TEI_GPU_NOT_INITIALIZED = 3,
    TEI_GPU_DEINITIALIZED = 4,
    TEI_GPU_INSUFFICIENT_DRIVER = 35, /* HIP only */
    TEI_GPU_NO_DEVICE = 100,
    TEI_GPU_INVALID_DEVICE = 101,
    TEI_GPU_INVALID_CONTEXT = 201,
    TEI_GPU_NOT_READY = 600,
    TEI_GPU_ALREADY_PINNED = 712,
    TEI_GPU_NOT_SUPPORTED = 801
};

/* A function of the driver's library, and where in the row's table its address goes. */
struct tei_symbol {
    const char *name;
    size_t at;
    bool required;
};

/* What a driver says about an address. */
struct tei_gpu_seen {
    bool on_device; /* else nothing below but `managed` is said */
    bool managed;
    int device;
    bool ipc, fabric;
};

/* Calls return the driver's status. Those of the second half are made between enter and leave. */
struct tei_driver {
    const char *name;  /* "cuda", as in "cuda:0" */
    const char *title; /* for messages */
    const char *files[4];
    const struct tei_symbol *symbols;
    size_t n_symbols;
    void *table;

    int (*init)(int *devices);
    const char *(*error_name)(int status);
    const char *(*error_text)(int status);
    int (*pci)(int device, char *out, int size);
    int (*uuid)(int device, uint8_t out[16]);
    /* Says that the address is on no device when nobody has initialised the driver. */
    int (*look)(const void *addr, struct tei_gpu_seen *out);
    /*
     * Makes a device the thread's current one, and calls good while the program captures a stream;
     * *was is for leave.
     */
    int (*enter)(int device, int *was);
    void (*leave)(int was);

    int (*range)(const void *addr, uintptr_t *base, size_t *length);
    int (*alloc)(size_t length, void **out);
    int (*free)(void *addr);
    int (*pin)(void *addr, size_t length);
    int (*unpin)(void *addr);

    int (*stream_open)(void **stream); /* non-blocking: waits for no other, none waits for it */
    int (*stream_wait)(void *stream);
    void (*stream_close)(void *stream);
    int (*event_open)(void **event); /* one that sleeps when it is waited for */
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*event_wait)(void *event);
    void (*event_close)(void *event);
    int (*copy)(const struct tei_copy *v, size_t n, void *stream); /* n: 1 to TEI_GPU_BATCH */
    int (*zero)(void *addr, size_t length, void *stream);

    int (*ipc_export)(void *base, uint8_t out[TEI_GPU_HANDLE]);
    int (*ipc_open)(const uint8_t handle[TEI_GPU_HANDLE], void **base);
    int (*ipc_close)(void *base);

    /* Memory made of physical pieces ("handles") that are mapped at reserved addresses. */
    int (*granularity)(int device, size_t *out);
    int (*create)(int device, size_t size, uint64_t *piece); /* to be exported as TEI_GPU_FABRIC */
    int (*retain)(void *addr, uint64_t *piece);
    void (*release)(uint64_t piece);
    int (*map)(uint64_t piece, size_t size, void **addr); /* reserves and maps */
    int (*allow)(void *addr, size_t size, int device);
    void (*unmap)(void *addr, size_t size); /* and gives the reservation back */
    int (*fabric_export)(uint64_t piece, uint8_t out[TEI_GPU_HANDLE]);
    void (*fabric_unexport)(const uint8_t handle[TEI_GPU_HANDLE]);
    int (*fabric_import)(const uint8_t handle[TEI_GPU_HANDLE], size_t size, uint64_t *piece);

    int (*dmabuf)(int device, uintptr_t addr, size_t size, int *fd);
};

/*
 * The calls of a row, whose file names each function alike: a row that lacks one does not compile.
 */
#define TEI_DRIVER_CALLS                                                                     \
    .init = start, .error_name = error_name, .error_text = error_text, .pci = tell_pci,      \
    .uuid = tell_uuid, .look = look, .enter = enter, .leave = leave, .range = find_range,    \
    .alloc = allocate, .free = release_memory, .pin = pin, .unpin = unpin,                   \
    .stream_open = open_stream, .stream_wait = wait_stream, .stream_close = close_stream,    \
    .event_open = open_event, .event_record = record_event, .event_query = query_event,      \
    .event_wait = wait_event, .event_close = close_event, .copy = copy, .zero = zero,        \
    .ipc_export = export_ipc, .ipc_open = open_ipc, .ipc_close = close_ipc,                  \
    .granularity = tell_granularity, .create = create, .retain = retain, .release = release, \
    .map = map, .allow = allow, .unmap = unmap, .fabric_export = export_fabric,              \
    .fabric_unexport = unexport_fabric, .fabric_import = import_fabric, .dmabuf = export_dmabuf

extern const struct tei_driver tei_driver_cuda, tei_driver_hip;

#define TEI_GPU_BATCH 128

/* ---- gpu.c */

/*
 * The driver if the process has loaded it, whoever did; NULL if not. `fresh`: looks again; else goes
 * by what an earlier call has found, which costs one load.
 */
const struct tei_driver *tei_driver_loaded(enum tei_mem_kind kind, bool fresh);
/* The driver if tei_gpu_open() has opened it; else NULL, and the text of an error is kept. */
const struct tei_driver *tei_driver_open(enum tei_mem_kind kind);

/* "CUDA_ERROR_NOT_PERMITTED: operation not permitted", in a thread-local buffer. */
const char *tei_gpu_why(const struct tei_driver *d, int status);
/* Keeps the text of an error that is not logged; returns `code`. */
int tei_gpu_keep(int code, const char *fmt, ...) TEI_PRINTF(2, 3);

/* ---- gpu_queue.c */

/* A queue for one thing at a time: one that has been used before, if there is one. */
int tei_gpu_queue_borrow(enum tei_mem_kind kind, int device, struct tei_gpu_queue **out);
void tei_gpu_queue_return(struct tei_gpu_queue *q);
/* Zeroes memory of the queue's device, and waits for that. */
int tei_gpu_queue_zero(struct tei_gpu_queue *q, void *addr, size_t length);

/* ---- gpu_file.c; see there */

/* Takes a descriptor of memory over, and makes a handle that leads to it. A driver's status. */
int tei_gpu_file_export(int fd, uint8_t out[TEI_GPU_HANDLE]);
/* Closes it; nothing if the handle is not of that sort, or not of this process. */
void tei_gpu_file_unexport(const uint8_t handle[TEI_GPU_HANDLE]);
/* Whether a handle is of that sort. */
bool tei_gpu_file_is(const uint8_t handle[TEI_GPU_HANDLE]);
/* A duplicate of another process's descriptor, to be closed; -1 if there is none. */
int tei_gpu_file_fetch(const uint8_t handle[TEI_GPU_HANDLE]);

#endif
