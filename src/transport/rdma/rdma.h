/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma.h - private to src/transport/rdma: what there is, who owns it, which lock guards what.
 *
 *   rdma      the transport: NICs, peers, a monitor thread
 *   nic       one RDMA device: context, protection domain, completion queues with a worker thread
 *             each, and its endpoints
 *   endpoint  queue pairs of one NIC, connected with those of one NIC of a peer; kept in the NIC's
 *             pool (rdma_pool.h), which caps their number
 *   peer      one engine as its descriptor tells it: NICs, rails (rail/rail.h), a ledger of work
 *   work      one piece of work of the core, in its peer's ledger; cut into slices a window at a time
 *   slice     one work request of an endpoint: at most a few of MC_SLICE_SIZE bytes
 *
 * How bytes move: post() queues work at its peer and runs a round: while the rails have room,
 * slices are cut, each gets a rail, and goes to the endpoint of that rail, which posts as many as
 * its queue pairs hold, chained, with one doorbell. A worker takes completions off its queue, counts
 * them at endpoint, rail and work, gives back what is finished, and runs another round. There is no
 * thread between the caller and the doorbell.
 *
 * What goes wrong: a slice comes back from the device with an error, or its endpoint is failed by
 * the monitor (port down, no completion for too long, peer gone) and then all its slices come back
 * flushed. Only then is a slice sent again, on another rail: an attempt that is not known to be dead
 * might still write. An endpoint that has failed is never used again; the next slice for its rail
 * makes a new one.
 *
 * Locks, in the order they may be taken: rdma.peers_lock, peer.lock, nic.pool_lock, endpoint.lock;
 * cq.lock is a leaf held while polling, taken with none of them held. work_done() is called with no
 * lock held.
 */
#ifndef TEI_RDMA_H
#define TEI_RDMA_H

#include "base/err.h"
#include "base/hash.h"
#include "base/loop.h"
#include "base/os.h"
#include "base/pool.h"
#include "transport/rdma/rdma_gid.h"
#include "transport/rdma/rdma_mlx5.h"
#include "rail/rail.h"
#include "transport/rdma/rdma_pool.h"
#include "transport/rdma/rdma_wire.h"
#include "transport/rdma/verbs.h"
#include "transport/ledger.h"

#include <pthread.h>
#include <stdatomic.h>

#define RDMA_NICS_MAX    TEI_PATH_NICS
#define RDMA_CHAIN_MAX   64 /* work requests of one doorbell, completions of one poll */
#define RDMA_GROUPS      16 /* endpoints that one round hands slices to before it posts */
#define RDMA_WATCHDOG_NS (200 * TEI_NS_PER_MS)
#define RDMA_TICK_NS     (10 * TEI_NS_PER_MS)
#define RDMA_FLUSH_NS    TEI_NS_PER_S       /* so long a device may take to give back what it had */
#define RDMA_PROBE_NS    (2 * TEI_NS_PER_S) /* more than a device takes to give a probe up */
#define RDMA_YIELD_NS \
    (40 * TEI_NS_PER_MS) /* for the peer's message to come first; under half of PATIENCE_NS */
#define RDMA_WR_PROBE ((uint64_t)1) /* in a wr_id: not a slice, but the probe of an endpoint */

struct rdma;
struct rdma_nic;
struct rdma_endpoint;
struct rdma_peer;

/* ------------------------------------------------------------------------------------------- NICs */

struct rdma_cq {
    struct rdma_nic *nic;
    struct ibv_cq *cq;
    pthread_mutex_t lock;    /* polling, and `unacked` */
    unsigned unacked;        /* events taken from the channel and not acknowledged */
    uint32_t depth;          /* completions that it holds */
    _Atomic uint32_t posted; /* work requests whose completion it will get; at most depth */
    _Atomic bool starved;    /* an endpoint found no room */
};

/* One thread and the queues it polls; index w has those of index w, w + n_workers, ... */
struct rdma_worker {
    struct rdma_nic *nic;
    unsigned index;
    struct ibv_comp_channel *channel;
    struct tei_waker waker;
    pthread_t thread;
    bool running;
};

struct rdma_nic {
    struct rdma *t;
    unsigned index; /* in rdma.nics and in memory.mrs */
    char name[64];
    uint8_t number;              /* of host->nic() */
    bool absent;                 /* it could not be opened, and our descriptor has it not */
    struct ibv_context *context; /* NULL: absent, or being opened anew; `why` says why */
    char why[128];
    struct ibv_pd *pd;
    struct ibv_device_attr limits;
    uint32_t depth; /* work requests of a queue pair */
    uint8_t port;
    struct ibv_port_attr port_attr;
    _Atomic uint64_t n_bytes[2]; /* by opcode: that slices brought to their end */
    _Atomic uint64_t n_failed;   /* slices that came back with an error */
    _Atomic uint64_t rate_bps;   /* bits a second, of late */
    int64_t rate_ns;             /* the monitor's: when the window began, */
    uint64_t rate_bytes;         /* and n_bytes then */
    pthread_mutex_t port_lock;   /* the next three, `port_attr` and `why` */
    struct tei_gid_entry *gids;
    size_t n_gids;
    struct tei_gid_entry gid; /* the one that is published */
    uint64_t nominal_bps;     /* bytes a second */
    uint8_t default_tos;      /* of connections of the port, as the host has it */
    bool is_mlx5;             /* and libmlx5 is asked for something */
    unsigned lag_ports;       /* over which queue pairs are spread; 0: they are not */
    _Atomic unsigned next_lag;
    _Atomic bool told_mlx5; /* that it refuses */
    _Atomic bool active;    /* its port is up and its device works */
    /*
     * Its device or a queue of it has failed: nothing that it has comes back by itself, and it is to
     * be opened anew. Changed by the monitor only.
     */
    _Atomic bool broken;
    bool silent; /* did not answer when it was last looked at; the monitor's, once there is one */
    /*
     * Shared while queue pairs are made and connected, before the endpoint's lock; exclusive while
     * the device is opened anew.
     */
    pthread_rwlock_t device_lock;

    struct rdma_cq *cqs;
    unsigned n_cqs;
    _Atomic unsigned next_cq;
    struct rdma_worker *workers;
    unsigned n_workers;
    _Atomic bool stopping; /* workers leave */
    struct tei_watch async_watch;

    pthread_mutex_t pool_lock;
    struct rdma_endpoint *by_path; /* those that take slices, uthash */
    struct tei_sieve pool;         /* of them those that have queue pairs */
    struct tei_list waiting;       /* of them those for which there is no room yet */
    struct tei_list dying;         /* out of by_path, until the last slice is back */
    uint64_t numbers;              /* that endpoints were given */
    size_t n_live;                 /* that have or make queue pairs, dying ones included */
    size_t cap;
    _Atomic uint64_t n_doorbells, n_slices;
};

/* -------------------------------------------------------------------------------------- endpoints */

/*
 * NEW -> (WAITING for room ->) CONNECTING -> READY, with WAIT_ACK before READY where the peer began
 * and announces when it is ready. Any -> DYING: no more slices; queue pairs are in error, or still
 * finish what they have (`draining`). The last slice back, the endpoint is taken apart.
 */
enum rdma_ep_state {
    RDMA_EP_NEW,
    RDMA_EP_WAITING,
    RDMA_EP_CONNECTING,
    RDMA_EP_WAIT_ACK,
    RDMA_EP_READY,
    RDMA_EP_DYING
};

struct rdma_qp {
    struct ibv_qp *qp;
    struct rdma_cq *cq;
    uint32_t psn;    /* of its first packet, where the peer knows it */
    uint32_t posted; /* under the endpoint's lock */
};

/* One of the peer's. */
struct rdma_far_qp {
    uint32_t number, psn;
};

/*
 * A write without data, whose completion shows whether the peer's queue pairs still answer. WANTED:
 * it is posted when there is room.
 */
enum rdma_probe { RDMA_PROBE_NONE, RDMA_PROBE_WANTED, RDMA_PROBE_OUT };

struct rdma_endpoint {
    struct rdma_nic *nic;
    char peer_path[TEI_RDMA_PATH]; /* "server@device" of the other end */
    UT_hash_handle hh;             /* under nic->pool_lock, as are the next two */
    struct tei_sieve_node node;
    struct tei_link link;  /* in nic->waiting or nic->dying */
    uint64_t number;       /* ascends in the table, and among the dying; under nic->pool_lock */
    _Atomic unsigned refs; /* the table's or the dying list's, rails', jobs' */
    _Atomic bool closed;   /* takes no more slices: DYING */

    pthread_mutex_t lock; /* the rest */
    enum rdma_ep_state state;
    bool counted;    /* in nic->n_live; under nic->pool_lock */
    bool begun;      /* a job was posted that asks the peer */
    bool connecting; /* it is under way */
    bool agreed;     /* the peer was told, or has said, that both are connected with each other */
    bool followed;   /* a message was, since the answer to ours */
    bool yields;     /* the next one lets the peer ask first */
    bool draining, buried;
    bool on_trial;   /* its rail failed of late: a refusal is no news */
    bool refused;    /* the device took nothing of what was posted last */
    int error;       /* why it is DYING; PATH errors are told to the rail with the first slice */
    const char *why; /* the same in words that live for ever, or NULL */
    int64_t ended_ns;
    struct tei_hostport where;
    uint64_t peer_id; /* the life of the other engine, 0: not told */
    int64_t asked_ns; /* when it was asked for that; 0: it said so by itself */
    bool sorted;      /* `queue` has slices for that life alone */
    bool outdated;    /* there are some for a life that the engine may have begun since */
    bool has_peer;    /* the next four are known */
    bool numbered;    /* both ends have told the PSNs that they begin with, else they are 0 */
    uint8_t peer_gid[16];
    uint16_t peer_lid;
    struct rdma_far_qp *peer_qps;
    uint8_t ticket[TEI_RDMA_TICKET]; /* ours: a message that shows it may replace this endpoint */
    bool has_peer_ticket; /* the peer's, by which our next endpoint may replace its own */
    uint8_t peer_ticket[TEI_RDMA_TICKET];
    bool has_replaced; /* the peer's ticket of the endpoint before this one */
    uint8_t replaced[TEI_RDMA_TICKET];
    enum rdma_probe probe;
    struct rdma_qp *probe_qp; /* while it is OUT */
    int64_t probe_ns;         /* when it was first WANTED */
    struct tei_list asking;   /* messages that wait for what the probe shows */
    _Atomic size_t n_asking;
    struct rdma_qp *qps;
    unsigned n_qps;
    uint32_t inline_max;    /* bytes that the device takes with a work request */
    struct tei_list queue;  /* slices for which no queue pair had room */
    struct tei_list posted; /* slices that the device has */
    size_t n_posted, n_queued;
    uint64_t posted_bytes;
    int64_t progress_ns;      /* last completion, or first post after none was out */
    int64_t queued_ns;        /* when the queue was last empty */
    int64_t wait_until_ns;    /* WAIT_ACK ends then */
    int64_t yield_until_ns;   /* the peer is not asked before; 0: at once */
    struct tei_gid_entry gid; /* of ours, that it speaks from */
    struct tei_job job;
};

/* ------------------------------------------------------------------------------------------ peers */

/* The endpoints that a rail has had. */
struct rdma_past {
    uint8_t n;    /* that another took the place of, modulo 256 */
    bool drained; /* the last of these was connected, and gave way for want of room */
};

struct rdma_peer {
    struct tei_link link;  /* in rdma.peers; under peers_lock */
    _Atomic unsigned refs; /* attachments, and calls; the last one goes under peers_lock */
    struct rdma *t;
    char *server; /* first part of its NIC paths */
    uint64_t id;
    int64_t made_ns; /* its descriptor was there by then */
    struct tei_hostport where;
    struct tei_rdma_device *devices;
    size_t n_devices;

    pthread_mutex_t lock; /* the rest */
    bool worked;          /* bytes have been moved */
    struct tei_paths paths;
    struct rdma_endpoint **eps; /* by rail; NULL where none is known */
    struct rdma_past *past;     /* by rail */
    struct tei_ledger ledger;
    struct tei_list again; /* slices to be sent anew */
    bool failing;          /* of those some may be of works that have failed */
    struct tei_list spare; /* slices not in use */

    /*
     * No new connections until then (MC_CONN_PAUSE_TTL_MS). Set before the endpoint whose
     * connection failed leaves its NIC's table, and read under pool_lock by who finds none there.
     */
    _Atomic int64_t pause_ns;
};

struct rdma_attach {
    struct tei_attach base;
    struct rdma_peer *peer;
    struct tei_segment *seg;
    uint32_t *rkeys;  /* by place in seg->buffers * n_devices + device */
    bool has_keyless; /* some buffers have no key that is not 0 */
    uint16_t *rows;   /* by place in seg->buffers: row of `matrix`, n_rows where it has none */
    struct tei_topology matrix;
    /* by local row * (rows + 1) + remote row, NULL until it is used; under peer->lock */
    struct tei_path_route **routes;
};

/* ------------------------------------------------------------------------------- work and slices */

struct rdma_work {
    struct tei_entry entry;
    int64_t ended_ns; /* when it was first seen to have failed with slices out; 0: it was not */
    const uint32_t *rkeys; /* of its buffer, by device */
    uint32_t keyless;      /* devices that work and have none of it, a bit each */
    struct tei_path_route *route;
};

struct rdma_slice {
    struct tei_link link;
    struct tei_part part;     /* of the work */
    struct rdma_endpoint *ep; /* while queued or posted there */
    struct rdma_qp *qp;       /* while posted */
    uint32_t lkey, rkey;
    int rail;
    uint8_t nic, device; /* of the rail */
    uint16_t attempts;   /* that failed by a fault of the path */
    uint16_t flushed;    /* times that it suffered from the fault of another */
    int64_t posted_ns;   /* under MC_TRACK_RDMA_POSTED_SLICES */
    int avoid;           /* the rail that failed last */
};

/* -------------------------------------------------------------------------------------- transport */

struct rdma {
    struct tei_transport base;
    const struct tei_conf *conf;
    struct tei_verbs verbs;
    struct tei_mlx5 mlx5;
    struct tei_path_nics path_nics;
    bool ready; /* locks and lists are there */
    char server[TEI_RDMA_PATH - 65];
    struct tei_topology matrix;
    struct ibv_device **devices; /* the library's list */
    struct rdma_nic *nics;
    size_t n_nics;
    uint64_t chunk;              /* longest memory region */
    pthread_mutex_t memory_lock; /* while memory is registered, and while a NIC is opened anew */
    struct tei_list memories;
    _Atomic uint32_t *row_users; /* by row of `matrix`, and one for none: memories that have it */
    bool told_staged;            /* that NICs refuse memory of devices; under memory_lock */
    pthread_mutex_t keys_lock; /* what regions' keys[] lead to, for who describes them meanwhile */
    struct tei_list lacking;   /* memories that some NIC does not have; under keys_lock */
    _Atomic size_t n_lacking;

    pthread_mutex_t peers_lock;
    struct tei_list peers;
    struct tei_pool slices;
    _Atomic bool closing;

    pthread_mutex_t live_lock;
    pthread_cond_t quiet;
    size_t live; /* work not over, jobs and endpoints not gone */

    struct tei_loop monitor;
    struct tei_timer tick, repair; /* repair: of NICs that are broken, or silent */
    struct tei_call wake;
    _Atomic bool ticking;
    _Atomic bool wanted;   /* asked for since the last tick began */
    _Atomic size_t n_work; /* not over */

    _Atomic uint64_t n_retries, n_connects;
};

static inline struct rdma *tei_rdma_of(struct tei_transport *t)
{
    return tei_container_of(t, struct rdma, base);
}

static inline struct rdma_work *tei_rdma_work_of(const struct tei_entry *e)
{
    return tei_container_of((struct tei_entry *)e, struct rdma_work, entry);
}

static inline struct rdma_peer *tei_rdma_peer_of(const struct tei_entry *e)
{
    return tei_container_of(e->base.attach, struct rdma_attach, base)->peer;
}

static inline struct rdma_slice *tei_rdma_slice_of(struct tei_link *l)
{
    return tei_container_of(l, struct rdma_slice, link);
}

/* Counts what stop() waits for. */
void tei_rdma_live(struct rdma *t, size_t n);
void tei_rdma_gone(struct rdma *t, size_t n);

/* ---- rdma_nic.c */
/* Opens every NIC of the matrix. TE_ERR_NO_DEVICE with the reason of each when none can be used. */
int tei_rdma_nics_open(struct rdma *t);
/* Once no endpoint is left and the workers are gone. */
void tei_rdma_nics_close(struct rdma *t);
/*
 * Opens a NIC anew whose device or queues have failed, if none of its endpoints is left; false if it
 * is to be tried again later. Blocks.
 */
bool tei_rdma_nic_repair(struct rdma_nic *n);
/* The port or the device has changed: looks again; true if `active` is another now. */
bool tei_rdma_nic_look(struct rdma_nic *n);
/* The port's GIDs have changed: reads them again; true if the published one is another now. */
bool tei_rdma_nic_reread(struct rdma_nic *n);
/* What the port was like when it was last looked at. */
struct ibv_port_attr tei_rdma_nic_port(struct rdma_nic *n);
/*
 * The GID to speak from to a peer's, NULL: to whomever; of those whose places are not in `tried`,
 * to which the one picked is added. False when none is left.
 */
bool tei_rdma_nic_gid(struct rdma_nic *n, const uint8_t *peer, uint64_t tried[TEI_GID_WORDS],
                      struct tei_gid_entry *out);
void tei_rdma_nic_set_active(struct rdma_nic *n, bool active, const char *why);
struct rdma_nic *tei_rdma_nic_find(struct rdma *t, const char *name);

/* ---- rdma_mlx5.c */
/* Whether the device can do what is asked of libmlx5; it was opened. */
void tei_rdma_mlx5_look(struct rdma_nic *n, struct ibv_device *device);
/* Gives connected queue pairs their source ports and ports of the bond. */
void tei_rdma_mlx5_spread(struct rdma_endpoint *ep);

/* ---- rdma_endpoint.c */
/*
 * The endpoint of a NIC to a peer's, referenced; made, and its connection begun, if there is none.
 * `on_trial`: the rail failed of late. `before`: the one that has ended, or NULL. TE_ERR_MEMORY, or
 * TE_ERR_PEER while no new ones are to be made.
 */
int tei_rdma_ep_get(struct rdma_nic *n, struct rdma_peer *p, size_t device, bool on_trial,
                    struct rdma_endpoint *before, struct rdma_endpoint **out);
/* The one at which a peer's message is aimed, made if `make`. */
struct rdma_endpoint *tei_rdma_ep_find(struct rdma_nic *n, const char *peer_path, bool make);
void tei_rdma_ep_hold(struct rdma_endpoint *ep);
void tei_rdma_ep_put(struct rdma_endpoint *ep);
/*
 * Takes all slices of the list, which are of one peer; posts them, now or once it is connected and has
 * room. What comes after its end goes back for the reason it ended for. Of slices for another life of
 * the engine than the one at the other end, those that the engine has left behind go back as
 * tei_rdma_late() says; where it may be the endpoint that is left behind, that ends.
 */
void tei_rdma_ep_take(struct rdma_endpoint *ep, struct tei_list *slices);
/* Begins to find out whether the peer's queue pairs answer. The endpoint's lock is held. */
void tei_rdma_ep_probe(struct rdma_endpoint *ep);
/* Has become READY, or got room: posts what waits. */
void tei_rdma_ep_kick(struct rdma_endpoint *ep);
bool tei_rdma_ep_is_ready(struct rdma_endpoint *ep);
/* Whether it was connected, and gives way, or has, for want of room. */
bool tei_rdma_ep_is_drained(struct rdma_endpoint *ep);
/* Whether it leads to a life of the peer's engine that is known not to be `id`. */
bool tei_rdma_ep_outlives(struct rdma_endpoint *ep, uint64_t id);
/* Moves slices to `out` that have waited since then for a connection that is not there yet. */
void tei_rdma_ep_take_waiting(struct rdma_endpoint *ep, int64_t since_ns, struct tei_list *out);
/*
 * Ends the endpoint for `error` (0: for no fault of its rail): takes it out of the pool, flushes its queue pairs, and sends what
 * was not posted back to its peer.
 */
void tei_rdma_ep_fail(struct rdma_endpoint *ep, int error, const char *why);
/* Has endpoints drained for those that wait for room, and `more`, as far as that is not under way. */
void tei_rdma_ep_make_room(struct rdma_nic *n, size_t more);
/* After completions: takes a DYING endpoint apart if nothing is left of it. */
void tei_rdma_ep_reap(struct rdma_endpoint *ep);
/* Each endpoint of a NIC, referenced meanwhile, with no lock held. */
void tei_rdma_eps_each(struct rdma_nic *n, void (*fn)(struct rdma_endpoint *ep, void *arg),
                       void *arg);

/* ---- rdma_diagnose.c */
/* Where a slice goes, as MC_LOG_RDMA_SLICE_AFFINITY has it. */
void tei_rdma_tell_slice(const struct rdma_endpoint *ep, const struct rdma_slice *s);
/* What an endpoint that is about to end has posted (MC_TRACK_RDMA_POSTED_SLICES). No lock is held. */
void tei_rdma_tell_posted(struct rdma_endpoint *ep, const char *why);

/* ---- rdma_qp.c: the queue pairs of an endpoint; its lock is held or it is the caller's alone */
int tei_rdma_qps_create(struct rdma_endpoint *ep);
/* Once it is `buried`; the array stays. */
void tei_rdma_qps_destroy(struct rdma_endpoint *ep);
/* Other PSNs than those that were told before; not while a message that tells them is under way. */
void tei_rdma_qps_renumber(struct rdma_endpoint *ep);
/* From nothing to ready to send, connected with the peer's. */
int tei_rdma_qps_connect(struct rdma_endpoint *ep);
void tei_rdma_qps_flush(struct rdma_endpoint *ep);

/* ---- rdma_connect.c */
/* Begins to connect an endpoint that is to be, on te/aux, once, and not before its time. */
void tei_rdma_connect(struct rdma_endpoint *ep);
/* After an endpoint's probe, or its end: takes up the messages that waited for it. */
void tei_rdma_answer_asking(struct rdma_endpoint *ep);
/* Whether it tells of no NIC but of the peer, which cannot be talked to. */
bool tei_rdma_is_away(int error);
/* op */
void tei_rdma_handshake(struct tei_transport *t, struct tei_rpc_call *call, const char *body,
                        size_t len);

/* ---- rdma_peer.c: ops, and finding rails */
int tei_rdma_attach(struct tei_transport *t, struct tei_attach *a, const struct tei_segment *s,
                    const struct tei_hostport *where);
void tei_rdma_detach(struct tei_transport *t, struct tei_attach *a);
void tei_rdma_peer_gone(struct tei_transport *t, struct tei_attach *a);
/* Whether the peer's NICs have keys for all of a range. */
bool tei_rdma_has_keys(const struct tei_attach *a, uint64_t addr, uint64_t length);
static inline void tei_rdma_peer_hold(struct rdma_peer *p)
{
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
}
void tei_rdma_peer_put(struct rdma_peer *p);
/*
 * The route between memory of a row of our matrix and of one of the peer's buffers, by its place;
 * the peer's lock is held. NULL when memory is out.
 */
struct tei_path_route *tei_rdma_route(struct rdma_attach *a, size_t row, size_t buffer);
/*
 * The endpoint of a rail, referenced, made if need be. TE_ERR_MEMORY, or TE_ERR_PEER while no new
 * ones are to be made. No lock is held.
 */
int tei_rdma_peer_ep(struct rdma_peer *p, int rail, struct rdma_endpoint **out);
/* The same that is there now, or NULL; and what the rail has had before. */
struct rdma_endpoint *tei_rdma_peer_ep_now(struct rdma_peer *p, int rail, struct rdma_past *past);
void tei_rdma_peers_each(struct rdma *t, void (*fn)(struct rdma_peer *p, void *arg), void *arg);

/* ---- rdma_work.c */
void tei_rdma_post(struct tei_transport *t, struct tei_list *work);
void tei_rdma_cancel(struct tei_transport *t, const void *owner);
/*
 * A slice that came back: `error` 0 or why not. `fault`: it is for the path to answer for, else the
 * slice only suffered from another one's.
 */
struct rdma_back {
    struct rdma_slice *slice;
    int error;
    bool fault;
    bool is_late; /* another life of the peer's engine is at the other end */
    const char *why;
};
/* Counts them, sends anew what may be, ends work that is over, and has the next sent. */
void tei_rdma_back(const struct rdma_back *back, size_t n);
/* Slices that an endpoint never posted; `error` 0: through no fault of its rail. */
void tei_rdma_unsent(struct tei_list *slices, int error, const char *why);
/* The same of those for a life that is over, which ends all work for it: TE_ERR_STALE. */
void tei_rdma_late(struct tei_list *slices);
/* Deadlines and what has to wait for a time; the monitor calls it. */
void tei_rdma_peer_tick(struct rdma_peer *p, int64_t now_ns);

/* ---- rdma_warm.c: op */
void tei_rdma_warm(struct tei_transport *t, struct tei_attach *a, struct tei_warmth *w);

/* ---- rdma_worker.c */
int tei_rdma_workers_start(struct rdma_nic *n);
void tei_rdma_workers_stop(struct rdma_nic *n);
/*
 * Takes completions off a queue, RDMA_CHAIN_MAX at most; how many there were. With `try`, none while
 * another thread is at it.
 */
size_t tei_rdma_cq_poll(struct rdma_cq *c, bool try);
bool tei_rdma_poll(struct tei_transport *t);

/* ---- rdma_links.c */
/* op */
int tei_rdma_links(struct tei_transport *t, json_t *nics);
void tei_rdma_nics(struct tei_transport *t, struct tei_nic_table *out);
/* Now and then, while there is work: how fast the NIC is. */
void tei_rdma_nic_measure(struct rdma_nic *n, int64_t now_ns);

/* ---- rdma_monitor.c */
int tei_rdma_monitor_start(struct rdma *t);
void tei_rdma_monitor_stop(struct rdma *t);
/* Something is under way: ticks until nothing is. */
void tei_rdma_monitor_wake(struct rdma *t);

#endif
