/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.h - the map of registered memory.
 *
 * The lock is taken shared by those who look for a region and leave with a count on it, and exclusively
 * by those who put one in or take one out, who hold the engine's `admin` too.
 */
#ifndef TEI_REGION_H
#define TEI_REGION_H

#include "base/queue.h"
#include "model/model.h"
#include "transport/transport.h"

#include <pthread.h>

struct regions {
    pthread_rwlock_t lock;
    void *tree;              /* of struct tei_region, ordered by address */
    struct tei_list by_addr; /* the same, one after the other */
    _Atomic size_t n;
    _Atomic size_t n_allowed; /* of these, those for some peers only */
    _Atomic uint64_t bytes;   /* of what peers may see */
    _Atomic uint64_t bytes_added,
        bytes_gone;            /* so far; what was hidden and shown again is no change */
    uint64_t unregistered;     /* regions so far */
    uint64_t inserted;         /* the serial of the last one */
    _Atomic uint64_t *version; /* of our descriptor; grows with each change, under the lock */
    struct regions *next_here; /* of the engines of this process */
    char node_there[32];       /* the last location that was found to be one; under admin */
};

void tei_regions_init(struct regions *m, _Atomic uint64_t *version);
/* Frees what is left. */
void tei_regions_fini(struct regions *m);

/* ---- users */
/* Holds the region that contains the whole range, for this engine's own use; NULL if none does. */
struct tei_region *tei_region_hold_local(struct regions *m, uint64_t addr, uint64_t length);
/* The same for the part of the range that the region at `addr` covers; its length in *part. */
struct tei_region *tei_region_hold_part(struct regions *m, uint64_t addr, uint64_t length,
                                        uint64_t *part);
void tei_region_release_local(struct tei_region *r, uint32_t n);
/* For a peer, as region_hold() and region_release() of struct tei_host. */
int tei_region_hold(struct regions *m, uint64_t addr, uint64_t length, unsigned access,
                    struct tei_who *who, struct tei_region **out);
void tei_region_release(struct tei_region *r);
/* The region that contains the whole range, not held; the lock is. */
struct tei_region *tei_region_at(struct regions *m, uint64_t addr, uint64_t length);
/* What is wrong with a range that no region contains, and what to do; returns buf. */
const char *tei_region_why_not(struct regions *m, uint64_t addr, uint64_t length, char *buf,
                               size_t n);

/* ---- lists */
/* A peer that wants to see them; nobody that is known: `who` is NULL. */
struct reader {
    struct tei_who *who;
};
/*
 * The regions that this peer may see, NULL: that any peer may, in address order and in parts of at most `max` bytes,
 * malloc'ed, and the version they belong to. The lock is held.
 */
int tei_region_list(struct regions *m, const struct reader *by, uint64_t max,
                    struct tei_published **out, size_t *n, uint64_t *version);
/* Writes at most `n` of them, whole, to `bufs`, unless that is NULL; returns how many there are. */
size_t tei_region_buffers(struct regions *m, te_buffer *bufs, size_t n);
/* Whether an engine of this process has a region with a byte of the range. */
bool tei_region_is_here(uint64_t addr, uint64_t length);

/* ---- changes; under admin */
/* TE_ERR_OVERLAP if a region has a byte of this one's range. */
int tei_region_check_free(struct regions *m, const struct tei_region *r);
/* Puts it in, where its range is free. */
int tei_region_insert(struct regions *m, struct tei_region *r);
/* The region that begins at `addr` is not found any more. TE_ERR_BUSY: requests of ours use it. */
int tei_region_hide(struct regions *m, const void *addr, struct tei_region **out);
/*
 * The same of all that begin where one of these does: their links are in `out` then, in order of address,
 * in which they have to be shown again. TE_ERR_BUSY, without an error text: of none.
 */
int tei_region_hide_all(struct regions *m, const te_buffer *bufs, size_t n, struct tei_list *out);
/* After that: as it was; or out, and freed. */
void tei_region_show_again(struct regions *m, struct tei_region *r);
void tei_region_erase(struct regions *m, struct tei_region *r);
/* One that is in no map. */
void tei_region_free(struct tei_region *r);

#endif
