/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpuipc.h - private to src/transport/gpuipc: nvlink_intra, nvlink, hip, ascend, musa, maca and supa, the
 * transports that map a peer's device memory and copy from and to it. They differ in the driver and in the sort of
 * handle alone (struct gpuipc.kind, .sort).
 *
 *   owner                                         initiator
 *   gpuipc_export   --- handles, te.gpu ------>   gpuipc_peer: what it shares, mapped when first used
 *   gpuipc_page     <-- enters, leaves --------   gpuipc_work, around each copy
 *   the memory      <== copies of the mover ===
 *
 * The owner does nothing while others copy. What it can do when memory is unregistered stands in
 * gpuipc_page.h: those of our make that share a process table with it stop. Nothing stops others:
 * an engine of another make, and one on another host by a fabric handle, may write until it reads
 * the new descriptor, and has the memory mapped for as long as it likes.
 *
 * Two engines of one process meet without a driver, which refuses a process its own handles: the
 * initiator finds the owner's table in a list of this process (tei_gpuipc_table_find), and its
 * addresses are good as they are. What may be done there says that table, not the descriptor: who
 * wrote that could else have this process read and write memory of its own.
 *
 * What the mover has holds up an owner that unregisters. So it is given GPUIPC_PIECE of a work at a
 * time, which enters and leaves by itself, and GPUIPC_WINDOW in all; the rest waits in a ledger.
 *
 * Mappings are made by a job on te/aux, since that takes milliseconds; work waits meanwhile in a
 * ledger of its own, so it can be late while the driver does not answer. They are kept, the one unused
 * for longest goes when there are more than TE_GPU_MAPPINGS, and all go with the peer.
 * What the driver does not map is refused from then on, as long as the peer is known: its work ends
 * TE_ERR_PEER before a byte has moved, so the core gives it to another transport.
 *
 * Locks: gpuipc.lock guards the initiator's side, table.lock the owner's; the mover is called with
 * gpuipc.lock held, the driver and the core with none, but for export in table.lock.
 *
 *   gpuipc.c         the ops, from first to last
 *   gpuipc_keys.c    keys, without a driver
 *   gpuipc_page.c    the fence, without a driver
 *   gpuipc_export.c  the owner: allocations that are shared
 *   gpuipc_peer.c    the initiator: peers, and what it has mapped
 *   gpuipc_work.c    the initiator: requests
 */
#ifndef TEI_GPUIPC_H
#define TEI_GPUIPC_H

#include "base/hash.h"
#include "transport/gpuipc/gpuipc_keys.h"
#include "transport/gpuipc/gpuipc_page.h"
#include "transport/mover.h"

#include <pthread.h>

#define GPUIPC_WINDOW (UINT64_C(64) << 20)
#define GPUIPC_PIECE  (UINT64_C(64) << 20)
_Static_assert(GPUIPC_PIECE >= GPUIPC_WINDOW, "of a work one piece is with the mover at a time");

/* -------------------------------------------------------------------------------------- owner */

/* An allocation with registered memory that peers may use. */
struct gpuipc_alloc {
    struct tei_link link; /* in the table's list */
    struct gpuipc_entry entry;
    unsigned refs; /* regions */
    bool gone;     /* other memory lies there now; neither in the tree nor in the list */
};

/* A region that is shared: what region_add() has got. */
struct gpuipc_share {
    uint64_t addr, length;
    unsigned access; /* te_access */
    size_t n;
    struct gpuipc_alloc *v[];
};

/* A region for some peers only: what region_add() has got of it. */
struct gpuipc_hidden {
    struct tei_link link; /* in gpuipc_table.hidden */
    uint64_t addr, length;
};

/* What an engine shares; outlives it as long as others of this process are attached to it. */
struct gpuipc_table {
    struct tei_link link; /* in the list of this process */
    _Atomic unsigned refs;
    pid_t pid; /* a child finds only its own */
    enum tei_mem_kind kind;
    uint64_t incarnation;    /* of the engine */
    struct gpuipc_keys keys; /* of itself; no entries */
    int fd;
    struct gpuipc_page *page;
    pthread_mutex_t drain; /* one fence at a time, `phase` and `ended`; before `lock` */
    uint32_t phase;        /* what the page must say */
    bool ended;            /* nobody may enter any more, and who was inside was waited for */
    pthread_mutex_t lock;
    void *allocs;           /* tsearch tree of struct gpuipc_alloc by address */
    struct tei_list listed; /* the same, in no order */
    void *regions;          /* of struct gpuipc_share: what they are registered for */
    struct tei_list hidden; /* what no allocation that is told of may have a byte of */
    size_t n_allocs;
    uint32_t n_used, n_free; /* slots that were ever used; those of `free` */
    uint32_t *free;
    uint32_t *generation; /* of each slot: what the page must say */
};

/* ---------------------------------------------------------------------------------- initiator */

enum gpuipc_state {
    GPUIPC_UNMAPPED,
    GPUIPC_MAPPING, /* in struct gpuipc.wanted, or with the job */
    GPUIPC_MAPPED,
    GPUIPC_OWN, /* of this process */
    GPUIPC_REFUSED,
};

struct gpuipc_peer;

/* An allocation of a peer. Under gpuipc.lock, but for what never changes. */
struct gpuipc_memory {
    struct gpuipc_entry entry; /* without its slot and generation */
    struct gpuipc_peer *peer;  /* NULL: nobody is attached any more; unmapped and freed soon */
    enum tei_gpu_sort sort;
    int device;           /* of ours: the same one, or the one by which it is mapped */
    UT_hash_handle hh;    /* in peer->memory, by base, length and handle */
    struct tei_link link; /* in struct gpuipc.wanted or .idle */
    _Atomic int state;    /* enum gpuipc_state */
    char *at;             /* where it begins here */
    unsigned refs;        /* attachments */
    unsigned users;       /* work in the ledger, for which it stays mapped */
    char *why;            /* it is refused; set before the state */
};

/* A peer, shared by all attachments to it. Under gpuipc.lock. */
struct gpuipc_peer {
    char *key; /* all that it is known by: two that differ in anything share nothing */
    UT_hash_handle hh;
    unsigned refs;
    bool gone;                /* says the directory: nothing of it is kept mapped */
    struct gpuipc_table *own; /* of this process; NULL: of another */
    struct gpuipc_page *page; /* NULL: nobody fences */
    struct gpuipc_row *row;
    int pidfd; /* of the process that the page is of; -1: not known */
    struct gpuipc_memory *memory;
};

/* What an attachment knows of an allocation. */
struct gpuipc_known {
    uint64_t base, length;
    uint32_t slot, generation;
    bool stale; /* it is of this process, which knows better */
    struct gpuipc_memory *memory;
};

struct gpuipc_attach {
    struct tei_attach base;
    struct gpuipc_peer *peer;
    struct tei_segment ranges; /* what may be done where: its buffers, nothing else */
    struct gpuipc_known *v;    /* ascending by base */
    size_t n;
};

struct gpuipc_work {
    struct tei_entry entry;
    struct tei_part piece; /* with the mover, as: */
    struct tei_move move;
    _Atomic uint64_t moved; /* for the mover to add to; nobody looks */
    struct gpuipc_memory *memory;
    unsigned side; /* of the page */
};

/* ------------------------------------------------------------------------------------ instance */

struct gpuipc {
    struct tei_transport base;
    enum tei_mem_kind kind;
    enum tei_gpu_sort sort; /* of the handles that are given out */
    size_t n_devices;
    uint8_t (*uuids)[GPUIPC_UUID]; /* of each */
    bool has_fabric;               /* some device can have such memory */
    struct gpuipc_table *table;
    _Atomic bool told; /* that memory cannot be shared */

    struct tei_mover *mover;
    pthread_mutex_t lock;
    pthread_cond_t quiet; /* no job, no guests */
    bool ready;           /* these exist */
    bool closed;
    unsigned guests;    /* threads in post() */
    struct tei_job job; /* maps and unmaps */
    bool job_is_out;
    struct gpuipc_peer *peers;
    struct tei_list wanted; /* struct gpuipc_memory to map */
    struct tei_list idle;   /* mapped and unused: what is to go, then by when it was used last */
    size_t n_mapped;
    struct gpuipc_memory *mapping; /* what the job has the driver map */
    struct tei_job tell;           /* gives work back, even when the driver takes its time */
    bool tell_is_out;
    struct tei_ledger unmapped; /* work for memory that is not mapped yet */
    struct tei_ledger ledger;   /* work for memory that is */
    struct tei_list over;       /* work that is to be given back by the job */
    uint64_t under_way;         /* bytes with the mover */
};

static inline struct gpuipc *tei_gpuipc_of(struct tei_transport *t)
{
    return tei_container_of(t, struct gpuipc, base);
}

/* ---- gpuipc_export.c */
/* One for this process's list, with one reference; TE_ERR_SYSTEM, TE_ERR_MEMORY. */
int tei_gpuipc_table_make(struct gpuipc *g, struct gpuipc_table **out);
/* The table of this process with that nonce, one more reference; NULL if there is none. */
struct gpuipc_table *tei_gpuipc_table_find(const uint8_t nonce[GPUIPC_NONCE]);
void tei_gpuipc_table_put(struct gpuipc_table *t); /* NULL is accepted */
/*
 * When the transport has been closed: cuts off all peers at once, and waits a second at most for
 * those inside. Then undoes all exports.
 */
void tei_gpuipc_table_end(struct gpuipc_table *t);
/* Whether keys with its nonce, out of a descriptor with that incarnation, are its engine's own. */
bool tei_gpuipc_table_wrote(const struct gpuipc_table *t, enum tei_mem_kind kind,
                            const struct gpuipc_keys *k, uint64_t incarnation);
/* Whether all of the range is registered for this access. */
bool tei_gpuipc_table_allows(struct gpuipc_table *t, uint64_t addr, uint64_t length,
                             unsigned access);
/* Whether the entry, as its owner's descriptor had it, is what the table has. */
bool tei_gpuipc_table_has(struct gpuipc_table *t, const struct gpuipc_entry *e);
int tei_gpuipc_region_add(struct tei_transport *t, struct tei_region *r);
int tei_gpuipc_region_del(struct tei_transport *t, struct tei_region *r);
int tei_gpuipc_describe(struct tei_transport *t, json_t *root);
int tei_gpuipc_describe_buffer(struct tei_transport *t, const struct tei_region *r, uint64_t addr,
                               json_t *object);

/* ---- gpuipc_peer.c */
int tei_gpuipc_attach(struct tei_transport *t, struct tei_attach *a, const struct tei_segment *s,
                      const struct tei_hostport *where);
void tei_gpuipc_detach(struct tei_transport *t, struct tei_attach *a);
void tei_gpuipc_peer_gone(struct tei_transport *t, struct tei_attach *a);
/* The allocation that holds the whole range; NULL if none does. */
const struct gpuipc_known *tei_gpuipc_find(const struct gpuipc_attach *a, uint64_t addr,
                                           uint64_t length);
/* The lock is held in all that follows. */
void tei_gpuipc_use(struct gpuipc *g, struct gpuipc_memory *m);
void tei_gpuipc_unuse(struct gpuipc *g, struct gpuipc_memory *m);
/* Has it mapped. */
void tei_gpuipc_want(struct gpuipc *g, struct gpuipc_memory *m);
/* Whether its process has; false where that is not to be known. */
bool tei_gpuipc_has_ended(const struct gpuipc_peer *p);
/* Jobs for tei_gpuipc_start_jobs(), once the lock is released; they count as started then. */
unsigned tei_gpuipc_claim_jobs(struct gpuipc *g);
void tei_gpuipc_start_jobs(struct gpuipc *g, unsigned claimed); /* without the lock */
/* Unmaps all that is idle. Without the lock, when no job runs any more. */
void tei_gpuipc_unmap_all(struct gpuipc *g);

/* ---- gpuipc_work.c */
void tei_gpuipc_post(struct tei_transport *t, struct tei_list *work);
void tei_gpuipc_cancel(struct tei_transport *t, const void *owner);
void tei_gpuipc_close(struct tei_transport *t);
/* The mover's. */
void tei_gpuipc_ended(void *arg, struct tei_list *moves);
/* Whether work waits for the memory. Lock held, as for the next. */
bool tei_gpuipc_is_awaited(const struct gpuipc *g, const struct gpuipc_memory *m);
/* What has waited for the memory, which has a state now, begins, or is in `done`. */
void tei_gpuipc_go_on(struct gpuipc *g, struct gpuipc_memory *m, struct tei_list *done);

#endif
