/* SPDX-License-Identifier: Apache-2.0 */
/* nvmeof_io.h - I/O requests of work, and what does them. */
#ifndef TEI_NVMEOF_IO_H
#define TEI_NVMEOF_IO_H

#include "transport/nvmeof/nvmeof_file.h"

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
    struct tei_part part;  /* of the work */
    struct tei_link asked; /* in `asked` or `unsure` of the file */
    uint64_t number; /* of those that were asked: its own, or the last one that it waits for */
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

/* Makes the next I/O request of the file's first work. False: the work has failed. Lock held. */
bool tei_nvmeof_cut(struct nvmeof_work *w, struct nvmeof_io *io);
/*
 * What came of an I/O's step: bytes, or a negative errno. Whether it is over; else it is to be
 * started again. Lock held.
 */
bool tei_nvmeof_settle(struct nvmeof_io *io, int64_t result);
/* Whether the kernel tells by the I/O's step of pages that were not written back: once to each descriptor. */
bool tei_nvmeof_tells_of_pages(const struct nvmeof_io *io);
/* Of one that wrote by such a step: fails it if any was told since it was cut. Lock held. */
void tei_nvmeof_check_pages(struct nvmeof_io *io);
/* Starts a step of an I/O. Lock held. */
void tei_nvmeof_io_start(struct nvmeof *n, struct nvmeof_io *io);
/* An I/O has come back. Lock held. */
void tei_nvmeof_io_done(struct nvmeof *n, struct nvmeof_io *io, int64_t result);

/* No more of the work is started; it ends at once if nothing is under way. Lock held. */
void tei_nvmeof_fail(struct nvmeof_work *w, int error, int sys_errno, const char *why);
/* The same with the file's path in the text, in place of "%s". */
void tei_nvmeof_fail_at(struct nvmeof_work *w, int error, int sys_errno, const char *what);

#endif
