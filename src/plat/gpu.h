/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - how the parts of plat see a driver of devices. Private to src/plat.
 *
 *   mem.c        what an address is in, and one copy between any two
 *   gpu.c        which drivers there are: opened once, asked about devices; pinned memory
 *   gpu_queue.c  queues of copies
 *   gpu_stream.c streams of the program
 *   gpu_share.c  memory of devices, and handles of it for other processes
 *   makers.c     the makers, a row of names each
 *   mem_cuda.c, mem_hip.c, mem_ascend.c   a runtime each: its calls under the names of struct tei_api
 *   gpu_row.h    those of CUDA and HIP that are alike
 *   cuda_scatter.c   many small copies within a device by one kernel
 *   gpu_file.c   handles that lead to a descriptor of another process
 *
 * An api only translates. What is an error, which code it gets and whether it is logged is decided by
 * the files above it. A kind without a maker (TEI_MEM_HOST) has no driver.
 */
#ifndef TEI_PLAT_GPU_H
#define TEI_PLAT_GPU_H

#include "plat/plat.h"

#define TEI_GPU_DEVICES 64 /* of a kind: more are not looked at */

/*
 * Statuses that are told apart, and 0, which is success. CUDA and HIP number them so; an api that does
 * not translates these.
 */
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

/* A function of the driver's library, and where in its table the address goes. */
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

/* A runtime's code, the status that it is here, or itself; and in words. */
struct tei_gpu_error {
    int code, status;
    const char *name, *text;
};

struct tei_driver;

/*
 * What a runtime can do. Calls return the driver's status. Those of the second half are made between
 * enter and leave. NULL is allowed where it says "or NULL": the runtime has no such thing.
 */
struct tei_api {
    const char *prefix; /* of all its names: "cu" */
    const struct tei_symbol *symbols;
    size_t n_symbols;
    size_t table; /* bytes: for the addresses of these, and for what a driver remembers */
    /* Of one with codes of its own; else error_name and error_text say what a status is. */
    const struct tei_gpu_error *errors;
    size_t n_errors;

    int (*init)(const struct tei_driver *d, int *devices);
    const char *(*error_name)(const struct tei_driver *d, int status);
    const char *(*error_text)(const struct tei_driver *d, int status);
    /* or NULL: it does not say */
    int (*pci)(const struct tei_driver *d, int device, char *out, int size);
    /* TEI_GPU_NOT_SUPPORTED: it does not say */
    int (*uuid)(const struct tei_driver *d, int device, uint8_t out[16]);
    /* Says that the address is on no device when nobody has initialised the driver. */
    int (*look)(const struct tei_driver *d, const void *addr, struct tei_gpu_seen *out);
    /*
     * Makes a device the thread's current one, and calls good while the program captures a stream;
     * *was is for leave.
     */
    int (*enter)(const struct tei_driver *d, int device, int *was);
    void (*leave)(const struct tei_driver *d, int was);

    int (*range)(const struct tei_driver *d, const void *addr, uintptr_t *base, size_t *length);
    int (*alloc)(const struct tei_driver *d, size_t length, void **out);
    int (*free)(const struct tei_driver *d, void *addr);
    int (*pin)(const struct tei_driver *d, void *addr, size_t length);
    int (*unpin)(const struct tei_driver *d, void *addr);

    /* non-blocking: waits for no other, none waits for it */
    int (*stream_open)(const struct tei_driver *d, void **stream);
    int (*stream_wait)(const struct tei_driver *d, void *stream);
    int (*stream_close)(const struct tei_driver *d, void *stream);
    /* one that is asked about, never waited for: so the device need not interrupt the host */
    int (*event_open)(const struct tei_driver *d, void **event);
    int (*event_record)(const struct tei_driver *d, void *event, void *stream);
    int (*event_query)(const struct tei_driver *d, void *event);
    int (*event_close)(const struct tei_driver *d, void *event);
    /*
     * or NULL: what is submitted to the stream later waits until the pinned word has this value, or one that is
     * less than 2^31 later
     */
    int (*wait_value)(const struct tei_driver *d, int device, void *stream, void *word,
                      uint32_t value);
    /* n: 1 to TEI_GPU_BATCH */
    int (*copy)(const struct tei_driver *d, const struct tei_copy *v, size_t n, void *stream);
    /*
     * or NULL: the same for small copies within the device, by a kernel of ours. TEI_GPU_NOT_SUPPORTED: not for
     * these, nothing is submitted. n = 0: has the driver take the kernel, which takes time.
     */
    int (*scatter)(const struct tei_driver *d, int device, const struct tei_copy *v, size_t n,
                   void *stream);
    int (*zero)(const struct tei_driver *d, void *addr, size_t length, void *stream);

    int (*ipc_export)(const struct tei_driver *d, void *base, uint8_t out[TEI_GPU_HANDLE]);
    int (*ipc_open)(const struct tei_driver *d, const uint8_t handle[TEI_GPU_HANDLE], void **base);
    /* `handle`: by which it was opened */
    int (*ipc_close)(const struct tei_driver *d, void *base, const uint8_t handle[TEI_GPU_HANDLE]);
    /* or NULL; `base` is NULL */
    int (*ipc_unexport)(const struct tei_driver *d, void *base,
                        const uint8_t handle[TEI_GPU_HANDLE]);

    /*
     * Memory made of physical pieces ("handles") that are mapped at reserved addresses. With `granularity`
     * NULL there is none.
     */
    int (*granularity)(const struct tei_driver *d, int device, size_t *out);
    int (*create)(const struct tei_driver *d, int device, size_t size,
                  uint64_t *piece); /* to be exported as TEI_GPU_FABRIC */
    int (*retain)(const struct tei_driver *d, void *addr, uint64_t *piece);
    void (*release)(const struct tei_driver *d, uint64_t piece);
    int (*map)(const struct tei_driver *d, uint64_t piece, size_t size,
               void **addr); /* reserves and maps */
    int (*allow)(const struct tei_driver *d, void *addr, size_t size, int device);
    void (*unmap)(const struct tei_driver *d, void *addr,
                  size_t size); /* and gives the reservation back */
    int (*fabric_export)(const struct tei_driver *d, uint64_t piece, uint8_t out[TEI_GPU_HANDLE]);
    void (*fabric_unexport)(const struct tei_driver *d, const uint8_t handle[TEI_GPU_HANDLE]);
    int (*fabric_import)(const struct tei_driver *d, const uint8_t handle[TEI_GPU_HANDLE],
                         size_t size, uint64_t *piece);

    int (*dmabuf)(const struct tei_driver *d, int device, uintptr_t addr, size_t size,
                  int *fd); /* or NULL */
};

/*
 * A maker: a row of names. Several makers have one api, since their runtimes are one under other names:
 * a function of it is looked for by the maker's prefix in the place of the api's.
 */
struct tei_driver {
    const char *name;  /* "cuda", as in "cuda:0" */
    const char *title; /* for messages */
    const char *files[5];
    const struct tei_api *api;
    const char *prefix;                      /* "mu" */
    void *table;                             /* once it is loaded */
    void *_Atomic contexts[TEI_GPU_DEVICES]; /* of tei_gpu_context() */
};

/* makers.c: by their kind; a kind without a maker has no api. */
extern struct tei_driver tei_drivers[TEI_MEM_KINDS];
/* Of mem_cuda.c, mem_hip.c and mem_ascend.c. */
extern const struct tei_api tei_api_cuda, tei_api_hip, tei_api_ascend;

/* What its file has in `struct table` and `symbols`, and one entry of the latter. */
#define TEI_GPU_SYMBOL(name, args, required) {#name, offsetof(struct table, name), required},
#define TEI_API_TABLE \
    .symbols = symbols, .n_symbols = TEI_ARRAY_LEN(symbols), .table = sizeof(struct table)

/* The calls of an api whose file names each function alike; the second has what not every runtime has. */
#define TEI_API_CALLS                                                                           \
    .init = start, .uuid = tell_uuid, .look = look, .enter = enter, .leave = leave,             \
    .range = find_range, .alloc = allocate, .free = release_memory, .pin = pin, .unpin = unpin, \
    .stream_open = open_stream, .stream_wait = wait_stream, .stream_close = close_stream,       \
    .event_open = open_event, .event_record = record_event, .event_query = query_event,         \
    .event_close = close_event, .copy = copy, .zero = zero, .ipc_export = export_ipc,           \
    .ipc_open = open_ipc, .ipc_close = close_ipc
#define TEI_API_MAP_CALLS                                                                          \
    .error_name = error_name, .error_text = error_text, .pci = tell_pci, .wait_value = wait_value, \
    .granularity = tell_granularity, .create = create, .retain = retain, .release = release,       \
    .map = map, .allow = allow, .unmap = unmap, .fabric_export = export_fabric,                    \
    .fabric_unexport = unexport_fabric, .fabric_import = import_fabric, .dmabuf = export_dmabuf

#define TEI_GPU_BATCH 128

/* ---- gpu.c */

/*
 * The driver if the process has loaded it, whoever did; NULL if not. `fresh`: looks again; else goes
 * by what an earlier call has found, which costs one load.
 */
const struct tei_driver *tei_driver_loaded(enum tei_mem_kind kind, bool fresh);
/* The driver if tei_gpu_open() has opened it; else NULL, and the text of an error is kept. */
const struct tei_driver *tei_driver_open(enum tei_mem_kind kind);

/* The status that a code of this api is. */
int tei_gpu_status(const struct tei_api *api, int code);
/* "CUDA_ERROR_NOT_PERMITTED: operation not permitted", in a thread-local buffer. */
const char *tei_gpu_why(const struct tei_driver *d, int status);
/* Keeps the text of an error that is not logged; returns `code`. */
int tei_gpu_keep(int code, const char *fmt, ...) TEI_PRINTF(2, 3);

/*
 * The context of a device that `make` has made, once for the process: it is kept. For an api whose enter()
 * has need of one. The driver's status.
 */
int tei_gpu_context(const struct tei_driver *d, int device,
                    int (*make)(const struct tei_driver *d, int device, void **out), void **out);

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
