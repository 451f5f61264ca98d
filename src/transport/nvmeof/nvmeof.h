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
 *   nvmeof_worker.c   the thread te/file: starts I/O, takes it back, watches deadlines
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

#include "base/hash.h"
#include "base/jobs.h"
#include "base/waker.h"
#include "transport/ledger.h"

#include <pthread.h>

#define NVMEOF_IO_MAX     ((uint64_t)1 << 20)   /* bytes of one I/O request */
#define NVMEOF_BOUNCE     ((uint64_t)128 << 10) /* of one that is bounced */
#define NVMEOF_ALIGN_MAX  ((uint64_t)64 << 10)  /* that is asked of a file's parts */
#define NVMEOF_IOS        256                   /* under way at once, to all files */
#define NVMEOF_CUFILE_MAX ((uint64_t)4 << 20)   /* bytes of one I/O request by cuFile */
#define NVMEOF_FILE_SLOTS 1024                  /* descriptors registered with the ring */
#define NVMEOF_CHUNK      ((size_t)32 << 20)    /* of a region, pinned at a time */
#define NVMEOF_WHY        384                   /* bytes of what is said of a file */

struct nvmeof;

/* ------------------------------------------------------------------------------------------ paths */

/* What this host may be called in local_path_map, in the order in which they are tried. */
struct nvmeof_names {
    const char *segment;       /* of this engine */
    char host[TEI_HOST_MAX];   /* the host part of it */
    char system[TEI_HOST_MAX]; /* gethostname(2) */
};
void tei_nvmeof_names(const char *segment, struct nvmeof_names *out);

/*
 * The path of one buffer of a descriptor on this host, malloc'ed: by local_path_map, or file_path
 * itself where server_name is this host. NULL: there is none, or it cannot be one, and `why` says
 * so.
 */
char *tei_nvmeof_path(const struct tei_segment *s, size_t index, const struct nvmeof_names *me,
                      char *why, size_t n);

/*
 * Paths at or below which files may be opened. While there is none, those may that the program has
 * opened by their path (`by_path`), and none that a record names. It only grows, so it is read without
 * a lock.
 */
struct nvmeof_root {
    struct nvmeof_root *next;
    char path[];
};
struct nvmeof_roots {
    _Atomic(struct nvmeof_root *) first;
};
/* TE_ERR_INVALID: not absolute. */
int tei_nvmeof_roots_add(struct nvmeof_roots *r, const char *path);
/* A list with colons. */
int tei_nvmeof_roots_add_all(struct nvmeof_roots *r, const char *list);
void tei_nvmeof_roots_fini(struct nvmeof_roots *r);

/* By what the path says, which is not looked at: 0, or TE_ERR_ACCESS and the reason in `why`. */
int tei_nvmeof_admit(const struct nvmeof_roots *roots, const char *path, bool by_path, char *why,
                     size_t n);
/*
 * A descriptor with O_PATH of what is at a path that had no links when it was looked up, or -1 and
 * errno. It goes from name to name and follows no link, so nobody leads it elsewhere meanwhile: what has
 * become a link is no folder, and at the end the link itself.
 */
int tei_nvmeof_walk(const char *path);
/*
 * A descriptor with O_PATH of the regular file or block device at `path`, where its links lead to a
 * place that is listed, too. On failure a te_err, its errno in *error (0: none) and the reason in `why`.
 */
int tei_nvmeof_find(const struct nvmeof_roots *roots, const char *path, bool by_path, int *fd,
                    int *error, char *why, size_t n);

/* ------------------------------------------------------------------------------------------ files */

enum nvmeof_state {
    NVMEOF_CLOSED, /* not opened yet, or to be opened anew */
    NVMEOF_OPENING,
    NVMEOF_OPEN,
    NVMEOF_FAILED /* `error` and `why` say why; ends what is queued, then it is CLOSED */
};

/*
 * One path. Attachments hold it, and the job that opens it. `direct` is -1 where the file system
 * takes no O_DIRECT; then all goes by `cached`. A path that the program has opened and a record names,
 * too, is that of two files here: what one may have open is not open for the other.
 */
struct nvmeof_file {
    UT_hash_handle hh;    /* in nvmeof.files */
    struct tei_link busy; /* in nvmeof.busy while it has work */
    struct nvmeof *owner;
    char *path;
    bool by_path;
    unsigned refs;
    enum nvmeof_state state;
    int error, sys_errno;
    char why[NVMEOF_WHY];
    int direct, cached;           /* descriptors */
    int direct_slot, cached_slot; /* in the ring's table, -1: none */
    bool writable;
    /*
     * It is opened anew once nothing is under way: I/O failed, it seemed too short, or its path leads to
     * another file.
     */
    bool reopen;
    bool not_direct;     /* `direct` has refused I/O that should be aligned as it wants it */
    void *cufile;        /* cuFile's handle of `direct`; NULL: it has none */
    bool cufile_asked;   /* since there is memory for it */
    bool cufile_refused; /* it took the file, but not its I/O */
    uint64_t id[3];      /* which file it is: device and number, or the device that it is */
    uint64_t length;
    /*
     * Of direct I/O. Writes align to whole pages, and blocks of the file system, so that direct I/O and
     * the page cache never share one.
     */
    uint64_t read_align, write_align, memory_align;
    unsigned lost_write_backs; /* the kernel tells each but once, see nvmeof_cut.c */
    struct tei_ledger ledger;
    unsigned ios; /* under way, each a part in the ledger */
    struct tei_job job;
};

/* Finds or makes the file of a path, one reference more; takes `path` over. Lock held. */
struct nvmeof_file *tei_nvmeof_file_get(struct nvmeof *n, char *path, bool by_path);
/*
 * Of a file that is open: whether its path leads to another one by now, or it may be written by now;
 * then it is opened anew. May block; lock not held.
 */
void tei_nvmeof_file_look(struct nvmeof_file *f);
/* One reference less; the last one closes it in the background. Lock not held. */
void tei_nvmeof_file_put(struct nvmeof_file *f);
/* Begins to open it, in the background. Lock not held; the caller has a reference for the job. */
void tei_nvmeof_file_open(struct nvmeof_file *f);

/* ------------------------------------------------------------------------------------ work and I/O */

struct nvmeof_part {
    uint64_t begin, length;   /* in the segment */
    struct nvmeof_file *file; /* NULL: it has no path here, and `why` says so */
    char *why;
};

struct nvmeof_attach {
    struct tei_attach base;
    struct nvmeof_part *parts; /* ascending */
    size_t n;
};

struct nvmeof_work {
    struct tei_entry entry;
    struct nvmeof_file *file;
    uint64_t at; /* in the file */
    bool looked; /* the file was opened anew because it seemed too short */
};

/*
 * A write of less than a page goes through the page cache, which forgets the page first, and is
 * written back at once.
 */
enum nvmeof_step {
    NVMEOF_FETCH, /* from a GPU to the bounce buffer, before all else */
    NVMEOF_DROP,
    NVMEOF_MOVE,
    NVMEOF_WRITE_BACK,
    NVMEOF_STORE /* from the bounce buffer to a GPU, after all else */
};

struct nvmeof_io {
    struct tei_link link; /* in nvmeof.idle, or a list of the threads */
    struct nvmeof_work *work;
    struct nvmeof_file *file;
    struct tei_part part; /* of the work */
    enum nvmeof_step step;
    bool write, direct, edge;
    bool gpu;                  /* `memory` is a GPU's; by cuFile unless `bounced` */
    unsigned tries;            /* for nothing */
    unsigned lost_write_backs; /* of the file when it began */
    uint64_t at;               /* in the file */
    uint64_t length;           /* of the I/O */
    uint64_t done;             /* of it */
    char *memory;
    uint64_t want; /* bytes of the request that it is for */
    uint64_t skip; /* a read into the bounce buffer: bytes before them */
    bool bounced;
    bool flying;    /* started and not back */
    bool queued;    /* of the threads: not begun; under their lock */
    bool told;      /* the device was told to forget it */
    char *bounce;   /* NVMEOF_BOUNCE bytes, made when first needed, kept */
    int64_t result; /* of the threads */
    /* Of a GPU's: why the step failed, beside an errno, if not for the file system's reasons. */
    const char *trouble; /* static */
    int error;           /* te_err */
    bool refused;        /* cuFile does not want the file */
};

/* Where the kernel reads or writes. */
static inline char *tei_nvmeof_io_buffer(const struct nvmeof_io *io)
{
    return (io->bounced ? io->bounce : io->memory) + io->done;
}
/* The whole pages that hold what an edge wrote. */
static inline uint64_t tei_nvmeof_io_pages(const struct nvmeof_io *io, uint64_t *length)
{
    uint64_t align = io->file->write_align, begin = io->at - io->at % align;

    *length = (io->at - begin + io->length + align - 1) / align * align;
    return begin;
}

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

/*
 * How I/O is done. `start` is called with the lock held and must not block; each I/O comes back once
 * by tei_nvmeof_io_done(), out of wait(), which sleeps until there is one, the waker was rung or
 * timeout_ns is over (negative: none), with no lock held.
 */
struct nvmeof_device_ops {
    const char *name;
    int (*open)(struct nvmeof *n);
    void (*start)(struct nvmeof *n, struct nvmeof_io *io);
    void (*wait)(struct nvmeof *n, int64_t timeout_ns);
    void (*close)(struct nvmeof *n);           /* nothing is under way */
    unsigned (*share)(const struct nvmeof *n); /* I/O that one file may have under way */
    void (*cancel)(struct nvmeof *n, struct nvmeof_io *io); /* if it has not begun; lock held */
    /* These may be left out. */
    void (*file_add)(struct nvmeof *n, struct nvmeof_file *f); /* it has been opened */
    void (*file_del)(struct nvmeof *n, struct nvmeof_file *f);
    /* Pins one chunk: its slot, or UNPINNABLE. May take some milliseconds. */
    int (*pin)(struct nvmeof *n, void *addr, size_t length);
    void (*unpin)(struct nvmeof *n, int slot);
};

extern const struct nvmeof_device_ops tei_nvmeof_ring; /* where TE_USE_URING */
extern const struct nvmeof_device_ops tei_nvmeof_threads;

/* nvmeof_threads.c: threads that do steps. They start as they are needed, conf->file_threads at most. */
struct nvmeof_pool;
int tei_nvmeof_pool_open(struct nvmeof *n, const char *thread,
                         int64_t (*step)(struct nvmeof_io *io), struct nvmeof_pool **out);
void tei_nvmeof_pool_close(struct nvmeof_pool *p); /* nothing is under way */
void tei_nvmeof_pool_start(struct nvmeof_pool *p, struct nvmeof_io *io);
void tei_nvmeof_pool_cancel(struct nvmeof_pool *p, struct nvmeof_io *io);
/* Of one file: a file that does not answer leaves half of the threads to others. */
unsigned tei_nvmeof_pool_share(const struct nvmeof *n);
/* What they have done comes back, by tei_nvmeof_io_done(). Lock held. */
void tei_nvmeof_pool_take(struct nvmeof_pool *p);

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

/* Makes the next I/O request of the file's first work. False: the work has failed. Lock held. */
bool tei_nvmeof_cut(struct nvmeof_work *w, struct nvmeof_io *io);
/*
 * What came of an I/O's step: bytes, or a negative errno. Whether it is over; else it is to be
 * started again. Lock held.
 */
bool tei_nvmeof_settle(struct nvmeof_io *io, int64_t result);
/* An I/O has come back. Lock held. */
void tei_nvmeof_io_done(struct nvmeof *n, struct nvmeof_io *io, int64_t result);

/* No more of the work is started; it ends at once if nothing is under way. Lock held. */
void tei_nvmeof_fail(struct nvmeof_work *w, int error, int sys_errno, const char *why);
/* The same with the file's path in the text, in place of "%s". */
void tei_nvmeof_fail_at(struct nvmeof_work *w, int error, int sys_errno, const char *what);

#endif
