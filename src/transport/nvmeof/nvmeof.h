/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvmeof.h - private to this folder: the transport between memory and files.
 *
 * A segment of files is a row of files and block devices of this host, local ones or those of others
 * that are mounted here (NVMe over fabrics, or any other way): the descriptor says under which path.
 *
 *   nvmeof.c          the ops; work is posted here and ends here
 *   nvmeof_path.c     which path a buffer has on this host; what may be opened. Pure, but for open
 *   nvmeof_file.c     open files, shared by all attachments to the same path
 *   nvmeof_cut.c      a piece of work as I/O requests: alignment, edges, bounces
 *   nvmeof_end.c      work that fails
 *   nvmeof_io.c       I/O requests: started, taken back
 *   nvmeof_worker.c   the thread te/file: which work goes on, deadlines
 *   nvmeof_ring.c     I/O by io_uring
 *   nvmeof_threads.c  I/O by threads that read and write, where io_uring is refused
 *   nvmeof_cufile.c   memory of GPUs: cuFile, in threads of its own
 *
 * Locks. `lock` of struct nvmeof guards the lists of files, the queues of each file, the state of
 * work, I/O and files. It is never held during I/O, open, close, work_done() or posting a job, but
 * while a part that is not aligned is copied. A device has a lock of its own, which is a leaf.
 *
 * Quiet memory. The kernel may use the memory of an I/O request until it gives the request back, and
 * nothing takes it from the kernel before. So work that is cancelled, or is late, ends once what is
 * under way of it has come back; no more of it is started.
 */
#ifndef TEI_NVMEOF_H
#define TEI_NVMEOF_H

#include "base/waker.h"
#include "transport/nvmeof/nvmeof_file.h"
#include "transport/nvmeof/nvmeof_io.h"
#include "transport/nvmeof/nvmeof_path.h"

#include <pthread.h>

#define NVMEOF_IO_MAX     ((uint64_t)1 << 20)   /* bytes of one I/O request */
#define NVMEOF_BOUNCE     ((uint64_t)128 << 10) /* of one that is bounced */
#define NVMEOF_ALIGN_MAX  ((uint64_t)64 << 10)  /* that is asked of a file's parts */
#define NVMEOF_IOS        256                   /* under way at once, to all files */
#define NVMEOF_CUFILE_MAX ((uint64_t)4 << 20)   /* bytes of one I/O request by cuFile */
#define NVMEOF_FILE_SLOTS 1024                  /* descriptors registered with the ring */
#define NVMEOF_CHUNK      ((size_t)32 << 20)    /* of a region, pinned at a time */

/*
 * A registered region, for the ring. Each NVMEOF_CHUNK of it is pinned when work touches it first, in
 * the background; `chunk` has the slot of each, or one of these.
 */
enum nvmeof_chunk { NVMEOF_UNPINNED = -1, NVMEOF_WANTED = -2, NVMEOF_UNPINNABLE = -3 };

struct nvmeof_region {
    struct nvmeof *owner;
    char *addr;
    size_t length, n;    /* n: chunks; a GPU's has none */
    int device;          /* -1: the host's */
    bool registered;     /* with cuFile, by an engine of the process */
    bool pinning, dying; /* the job runs; it is to end. Under the lock */
    struct tei_job job;
    _Atomic int chunk[]; /* a slot is stored with release, once it is there */
};

/* nvmeof_cufile.c */
struct nvmeof_gpu;
/*
 * TE_ERR_UNSUPPORTED, unlogged: cuFile is not to be had, or does not take the region. `registered`:
 * it is to be taken back, by region_del, when none of its I/O is under way. Engines share what they
 * register: the last of them takes it back.
 */
int tei_nvmeof_gpu_region_add(struct nvmeof *n, const struct tei_region *region, bool *registered);
void tei_nvmeof_gpu_region_del(const struct nvmeof_region *r);
/* A file was opened, or opened anew / is to be closed. */
void tei_nvmeof_gpu_file_add(struct nvmeof_file *f);
void tei_nvmeof_gpu_file_del(struct nvmeof_file *f);
/* Whether the I/O's step is for the threads there, which have all of these. */
bool tei_nvmeof_gpu_has(const struct nvmeof_io *io);
struct nvmeof_pool *tei_nvmeof_gpu_pool(struct nvmeof *n); /* NULL: no such memory was registered */
void tei_nvmeof_gpu_stop(struct nvmeof *n);
void tei_nvmeof_gpu_fini(struct nvmeof *n); /* no file is open */

struct nvmeof {
    struct tei_transport base;
    const struct tei_conf *conf;
    struct nvmeof_names names;
    pthread_mutex_t lock;
    bool ready, closed, quit;
    struct nvmeof_roots roots;
    struct nvmeof_file *files[2]; /* by path: those that records name, and those `by_path` */
    struct tei_list busy;         /* those of them that have work */
    struct tei_list ended;        /* work that is over */
    size_t pending;               /* work that has not ended */
    int64_t late_ns;              /* no work is late before */

    /* from the first attachment on */
    bool started, starting; /* starting: some thread is at it */
    bool opened;            /* the thread has tried to open the device, with this result: */
    int start_rc;
    pthread_t thread;
    struct tei_waker waker;
    const struct nvmeof_device_ops *device;
    void *state; /* the device's */
    struct nvmeof_io *ios;
    struct tei_list idle; /* of them */
    unsigned flying;      /* the others */
    unsigned jobs;        /* opening or closing a file, or pinning memory */
    unsigned opening;     /* of them */
    bool cancels;         /* some I/O under way may be of work that was given up */
    char notice[320];     /* what is to be logged of a file */
    pthread_cond_t quiet; /* `jobs`, `opened`, `starting` has changed, or I/O of a GPU is back */
    _Atomic(struct nvmeof_gpu *) gpu; /* from the first region of a GPU on that cuFile takes */
    _Atomic bool told_staged;         /* why memory of GPUs goes through the host's */
};

static inline struct nvmeof *tei_nvmeof_of(struct tei_transport *t)
{
    return tei_container_of(t, struct nvmeof, base);
}

static inline bool tei_nvmeof_is_gpu(const struct nvmeof_work *w)
{
    return w->entry.base.region->kind != TEI_MEM_HOST;
}

static inline struct nvmeof_work *tei_nvmeof_work_of(struct tei_link *l)
{
    return tei_container_of(l, struct nvmeof_work, entry.base.link);
}

/* Device and thread, once. */
int tei_nvmeof_start(struct nvmeof *n);
/* Waits until all work has ended, then ends the thread. */
void tei_nvmeof_stop(struct nvmeof *n);
void tei_nvmeof_fini(struct nvmeof *n);

#endif
