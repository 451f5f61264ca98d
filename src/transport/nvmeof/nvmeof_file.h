/* SPDX-License-Identifier: Apache-2.0 */
/* nvmeof_file.h - open files. */
#ifndef TEI_NVMEOF_FILE_H
#define TEI_NVMEOF_FILE_H

#include "base/hash.h"
#include "base/jobs.h"
#include "transport/ledger.h"

#define NVMEOF_WHY 384 /* bytes of what is said of a file */

struct nvmeof;

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
    /* I/O by which it tells: what it has, and what is over once it has given back all that it had then. */
    struct tei_list asked, unsure;
    uint64_t n_asked;
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

#endif
