/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ofi.h - the transport over libfabric: one-sided reads and writes by endpoints that are connected to
 * nobody (FI_EP_RDM), shared by all peers.
 *
 *     ofi.c          the ops
 *     ofi_library.c  libfabric by dlopen
 *     ofi_keys.c     what stands in the descriptor
 *     ofi_find.c     which NICs there are, and what their providers ask for
 *     ofi_nic.c      a NIC: domain, endpoints, completions
 *     ofi_memory.c   registered memory, and the page that says which keys are good
 *     ofi_peer.c     peers and attachments
 *     ofi_work.c     parts of work: given to a provider, and what becomes of them
 *     ofi_thread.c   the thread
 *
 * Each NIC has an endpoint that only serves, whose address is in the descriptor, and one that only asks.
 * The latter is a generation: what a provider has been given cannot be recalled, so that a part of a work
 * which has failed, and does not come back within a moment, ends when the generation is closed that has
 * it. What has been asked anew goes by the next one meanwhile.
 *
 * A part that comes back with an error may have been refused, or its connection has broken: providers do
 * not tell these apart. So the word of its region on the target's page is read. Is it another one than the
 * descriptor has said, the region is gone (TE_ERR_STALE); else a READ goes out again, and a WRITE ends
 * TE_ERR_LINK, since it may have been applied.
 *
 * One lock guards everything but what is said to be fixed. The thread te/ofi holds it while it is in the
 * provider, which does not block but where an endpoint is closed.
 */
#ifndef TEI_OFI_H
#define TEI_OFI_H

#include "base/waker.h"
#include "transport/ledger.h"
#include "transport/ofi/ofi_keys.h"
#include "transport/ofi/ofi_library.h"

#include <pthread.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdatomic.h>

#define OFI_PART       ((uint64_t)1 << 20) /* of a work that is moved at a time */
#define OFI_PEER_BYTES (16 * OFI_PART)     /* under way to one peer */

enum {
    OFI_OPS = 1024,       /* parts under way, of all peers and NICs */
    OFI_PEER_PARTS = 128, /* to one peer */
    OFI_CREDITS = 512,    /* to one NIC, if its queue has room for so many */
    OFI_FDS = 4 * OFI_NICS + 1,
};

struct ofi;
struct ofi_nic;

/* The endpoint of a NIC that asks, and what it was given. */
struct ofi_gen {
    struct tei_link link; /* in nic.gens */
    struct ofi_nic *nic;
    struct fid_ep *ep;
    struct fid_cq *cq;
    int fd;                 /* of cq; -1: it has none */
    struct tei_list flying; /* struct ofi_op */
    size_t n_flying;
    int64_t suspect_ns; /* since then parts of works that have failed do not come back; 0: none */
    bool retired;       /* is given nothing any more */
};

struct ofi_nic {
    struct ofi *ofi;
    size_t index;
    char name[OFI_NAME];
    struct fi_info *info;
    bool is_virtual, needs_local, binds_memory; /* mr_mode */
    bool fences; /* nothing arrives in memory any more once its key is closed */
    size_t credits;
    uint64_t part; /* the longest part */
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    /* Those that serve. */
    struct fid_ep *ep;
    struct fid_cq *cq;
    int fd;
    uint8_t addr[OFI_ADDR];
    size_t addr_len;
    struct fid_mr *page_mr, *words_mr;
    struct ofi_gen *gen; /* that is given what comes; NULL: made when something comes */
    struct tei_list gens;
    int64_t rest_ns;   /* no generation could be made: not again before this time */
    uint64_t bytes[2]; /* sent, received */
    uint64_t n_failed;
};

/* What has been registered. */
struct ofi_region {
    struct tei_link link; /* in ofi.regions */
    struct ofi_region_keys keys;
    struct fid_mr *mr[OFI_NICS];
};

/* An engine by its addresses; there is one for all attachments that name these. */
struct ofi_peer {
    struct tei_link link;   /* in ofi.peers */
    struct tei_link active; /* in ofi.active, while it has work */
    unsigned refs;          /* attachments */
    struct tei_ledger ledger;
    struct tei_list waiting; /* struct ofi_op that are to be given to a provider */
    size_t n_parts;          /* not back yet, waiting ones included */
    size_t n_flying;
    uint64_t bytes;
    int64_t mute_ns;    /* since then it has taken nothing, and nothing is under way; 0: it has */
    int64_t again_ns;   /* nothing is offered to it before this time */
    int64_t pause_ns;   /* the last pause, which grows */
    uint64_t n_stalled; /* of the ledger's that were told */
    _Atomic int64_t dark_ns; /* could not be reached: not to be chosen before this time */
    size_t n_nics;
    struct ofi_nic_keys nics[OFI_NICS];
    bool inserted[OFI_NICS]; /* by NIC of ours */
    fi_addr_t addr[OFI_NICS];
};

/* Fixed once it is made. */
struct ofi_attach {
    struct tei_attach base;
    struct ofi_peer *peer;
    struct ofi_keys keys;
};

/* A part under way. */
struct ofi_op {
    struct fi_context2 context; /* the provider's, and the name by which it gives the part back */
    struct tei_link link;       /* in ofi.idle, peer.waiting or gen.flying */
    struct tei_part part;
    struct ofi_peer *peer;
    const struct ofi_region_keys *to; /* of the attachment, which outlives the work */
    struct ofi_gen *gen;              /* NULL: no provider has it */
    size_t nic;
    unsigned tries;
    bool asking; /* reads the word on the page */
    bool sent;   /* some of it may be on its way, or was */
    int64_t not_before_ns;
    const char *why; /* it failed last */
};

struct ofi {
    struct tei_transport base;
    struct ofi_library lib; /* fixed */
    pthread_mutex_t lock;
    struct tei_waker waker;
    pthread_t thread;
    bool ready, running, closed, quit;
    size_t n_nics; /* fixed, as what is fixed of them */
    struct ofi_nic nics[OFI_NICS];
    struct tei_list regions;
    uint64_t *page;  /* OFI_SLOTS words, which peers read */
    uint64_t *words; /* OFI_OPS words, into which their pages are read */
    struct tei_list peers, active;
    struct ofi_op *ops;
    struct tei_list idle;
    struct tei_list over; /* works, for work_done() */
    size_t next_nic;
    uint64_t n_retries;
    const char *trouble; /* to be logged once the lock is let go */
};

static inline struct ofi *tei_ofi_of(struct tei_transport *t)
{
    return tei_container_of(t, struct ofi, base);
}

static inline struct ofi_op *tei_ofi_op_of(struct tei_link *link)
{
    return tei_container_of(link, struct ofi_op, link);
}

/* Where nothing else is said, the lock is held. */

/* ---- ofi_find.c; without the lock */
/* What TE_OFI_PROVIDER asks for, or devices that the kernel shows. False, with why not. */
bool tei_ofi_probe(const struct tei_conf *conf, char *why, size_t n);
/* Fills in t->nics: names and infos. */
int tei_ofi_find(struct ofi *t);

/* ---- ofi_nic.c */
/* Before there are threads. What it has opened tei_ofi_nic_close() closes, also where it has failed. */
int tei_ofi_nic_open(struct ofi_nic *n);
void tei_ofi_nic_close(struct ofi_nic *n);
/* Opens the endpoint that serves; its address may be another one than before. */
int tei_ofi_serve(struct ofi_nic *n);
void tei_ofi_unserve(struct ofi_nic *n);
/* The generation that takes a part now; NULL: none does. */
struct ofi_gen *tei_ofi_gen(struct ofi_nic *n, int64_t now);
/* Nothing touches the memory of what it had from then on; false: it cannot be closed now. */
bool tei_ofi_gen_close(struct ofi_gen *g);
/* Lets providers work; hands what has ended to tei_ofi_back(). Whether anything has. */
bool tei_ofi_progress(struct ofi_nic *n, int64_t now);
/* Adds what may be slept on; false: not now, or there is something that cannot be slept on. */
bool tei_ofi_may_sleep(struct ofi_nic *n, int *fds, size_t *n_fds, bool *blind);

/* ---- ofi_memory.c */
int tei_ofi_memory_open(struct ofi *t);
void tei_ofi_memory_close(struct ofi *t);
/* Ops, without the lock. */
int tei_ofi_region_add(struct tei_transport *t, struct tei_region *r);
int tei_ofi_region_del(struct tei_transport *t, struct tei_region *r);
int tei_ofi_describe(struct tei_transport *t, json_t *root);

/* ---- ofi_peer.c; ops, without the lock */
int tei_ofi_attach(struct tei_transport *t, struct tei_attach *a, const struct tei_segment *s,
                   const struct tei_hostport *where);
void tei_ofi_detach(struct tei_transport *t, struct tei_attach *a);
unsigned tei_ofi_score(struct tei_transport *t, const struct tei_attach *a, const te_request *r);
void tei_ofi_why_not(struct tei_transport *t, const struct tei_attach *a, const te_request *r,
                     char *why, size_t n);

/* ---- ofi_work.c */
/* All works, which are put into the ledgers of their peers. */
void tei_ofi_take(struct ofi *t, struct tei_list *works);
void tei_ofi_fail(struct ofi *t, const void *owner, int error);
/* A part is back from the provider: err 0, or a number of libfabric's. */
void tei_ofi_back(struct ofi_op *op, int err, int64_t now);
/* The generation that had it is closed. */
void tei_ofi_lost(struct ofi_op *op, int64_t now);
/* Ends what is late, and offers what there is. Returns when to look again. */
int64_t tei_ofi_step(struct ofi *t, struct ofi_peer *p, int64_t now);
/* Retires and closes generations with parts that do not come back. When to look again. */
int64_t tei_ofi_watch(struct ofi_nic *n, int64_t now);

/* ---- ofi_thread.c; without the lock */
int tei_ofi_thread_start(struct ofi *t);
/* Waits until all work has ended. */
void tei_ofi_thread_stop(struct ofi *t);

#endif
