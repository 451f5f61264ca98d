/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.h - THE CONTRACT between the core and a transport.
 *
 * The core (src/core) validates requests, picks a transport for each and hands it work. A transport
 * moves the bytes and says so. It knows nothing of batches, handles or names; all it can reach is
 * the struct tei_host it was given, so a test can run it with a made-up host and no engine. The
 * core calls every op through a table in which optional ops that are left out have been replaced by
 * harmless ones (transport.c).
 *
 * Rules
 *  1. Work has one owner: the submitter until post(), the transport after it, the core at
 *     host->work_done(), exactly once. Lists are intrusive, so handing over needs no memory and
 *     cannot fail. Room in a device (queue depth, socket buffer) is the transport's private
 *     concern.
 *  2. host->work_done() may be called from any transport thread, and from post(), poll() and
 *     drive(), with no transport lock held.
 *  3. Errors by class (tei_err_class): PATH errors may be retried by the transport on another path
 *     up to conf->retry_cnt, but only when the earlier attempt is known dead; REQUEST errors are
 *     final; FATAL closes the transport.
 *  4. Quiet memory: when work_done() is called the work's local memory is never touched again, and
 *     a WRITE that ends without error has been applied at the target.
 *  5. post() never blocks and never fails. cancel() is best effort; the work still ends exactly
 *     once.
 *  6. After stop() returns no callback runs and no thread of the transport lives.
 *
 * Life of an instance: probe -> (allocated, zeroed) -> open -> [describe, region_add/del,
 * attach/detach, warm, score, post, poll, drive, cancel, peer_gone, stats, links, nics]* -> close -> stop -> fini.
 * open() that failed is followed by fini() alone.
 */
#ifndef TEI_TRANSPORT_H
#define TEI_TRANSPORT_H

#include "base/base.h"
#include "base/jobs.h"
#include "base/queue.h"
#include "base/sock.h"
#include "base/waker.h"
#include "conf/conf.h"
#include "model/model.h"
#include "te.h"
#include "transport/nics.h"
#include "transport/story.h"
#include "transport/warmth.h"

#include <limits.h>

#define TEI_TRANSPORT_ABI  1
#define TEI_TRANSPORTS_MAX 16
#define TEI_SCORE_LATER    UINT_MAX /* cannot carry it yet: 0, but not to be remembered */
#define TEI_SCORE_LAST \
    1 /* could, but whatever else can is better, also where this one is preferred */

/* Of registered memory of devices, beside the kinds: some can be told to a fabric; some is out of
 * reach for every transport to other hosts. */
#define TEI_KIND_FABRIC   TEI_MEM_BIT(TEI_MEM_KINDS)
#define TEI_KIND_STRANDED TEI_MEM_BIT(TEI_MEM_KINDS + 1)

enum tei_transport_caps {
    /* reaches this engine itself only: each engine has it, from its start to its end */
    TEI_CAP_LOCAL_ONLY = 1 << 0,
    /*
     * Reaches other engines; may be the descriptor's "protocol". An engine that discovers its transports
     * has the first one that its host can run.
     */
    TEI_CAP_REMOTE = 1 << 1,
    /*
     * Reaches engines of other processes of this host. Never the descriptor's "protocol": its keys are under "te".
     */
    TEI_CAP_SAME_HOST = 1 << 2,
    /*
     * Moves between memory and files (tei_segment.files), which no other one is attached to. Needs
     * attach(), and describes nothing.
     */
    TEI_CAP_FILE = 1 << 3,
    /*
     * A REMOTE one for memory of devices alone. Never picked by discovery. Where it is not the
     * descriptor's "protocol", describe() still adds its object under its own name in "te"."gpu".
     */
    TEI_CAP_DEVICE = 1 << 4,
    TEI_CAP_NICS = 1 << 5, /* goes by the NIC priority matrix, which open() asks for */
    /* What has ended leaves nothing that could still arrive, unless with TE_ERR_CONTEXT: a device is broken. */
    TEI_CAP_SETTLED = 1 << 6,
    TEI_CAP_LIVES = 1 << 7, /* heeds tei_attach.one_life, without which it gets none */
    /* Shows tei_work.key to the target, which looks at it before the first byte; else it gets none that has one. */
    TEI_CAP_LEASES = 1 << 8,
};

/* Optional ops that a transport's own table has: tei_transport.has. */
enum tei_transport_has {
    TEI_HAS_POLL = 1 << 0,
    TEI_HAS_DRIVE = 1 << 1,
    TEI_HAS_HANDSHAKE = 1 << 2,
    TEI_HAS_BUFFER_KEYS = 1 << 3, /* describe_buffer(): the descriptor's buffers have keys of it */
    TEI_HAS_SETTLE = 1 << 4,
};

struct tei_transport;
struct tei_host;
struct tei_work;
struct tei_rpc_call; /* a peer's message that waits for its answer */
struct tei_who;      /* whom a peer has proved to be; auth_who.h, as the next one */
struct tei_allow;

/*
 * Registered memory, shared by core and transports. The core makes and destroys it. `remote_users` counts served
 * requests inside it, by host->region_hold() and region_release(); region_del() must bring it to 0.
 */
struct tei_region {
    struct tei_link link; /* the core's */
    uint64_t serial;      /* the core's: no other region that this engine has had has it */
    uintptr_t addr;
    size_t length;
    unsigned access;         /* te_access: of all peers */
    struct tei_allow *allow; /* the core's: who may do `allowed`, too; NULL: nobody */
    unsigned allowed;
    char location[32];
    uint8_t kind;            /* enum tei_mem_kind; the host may touch HOST alone */
    int device;              /* of this kind; -1: HOST */
    bool leaving;            /* the core's: is being unregistered, and not found */
    _Atomic bool told;       /* that its memory is not mapped any more was logged */
    _Atomic unsigned direct; /* bits by tei_transport.index: has it, and reaches it by itself */
    _Atomic uint32_t local_users;   /* work of this engine */
    _Atomic uint32_t remote_users;  /* served requests of peers */
    void *keys[TEI_TRANSPORTS_MAX]; /* by tei_transport.index: what region_add() got */
};

/* Whether all of the range lies in the region. */
static inline bool tei_region_contains(const struct tei_region *r, uint64_t addr, uint64_t length)
{
    return addr >= r->addr && length <= r->length && addr - r->addr <= r->length - length;
}

/* A lease (te_lease.h), as the target holds it: what it allows, in this region. */
struct tei_lease {
    uint64_t addr, length;
    unsigned access;
    struct tei_region *region;
};

/* A transport's view of one peer's descriptor; a transport embeds it as the first member of its own. */
struct tei_attach {
    struct tei_transport *transport;
    void *peer;    /* opaque, as the next set before attach() */
    bool one_life; /* no byte may go to the next engine of the name */
};

/* Who is told that a work has ended, where that is not a request. */
struct tei_sink {
    void (*done)(struct tei_sink *s, struct tei_work *w); /* takes it back */
    /* As note() of struct tei_host. */
    const char *(*note)(struct tei_sink *s, const struct tei_work *w, const char *text);
};

/*
 * One request, or its part inside one remote buffer. A transport embeds it as the first member of its own struct, the
 * rest of which post() sets: it holds anything.
 */
struct tei_work {
    struct tei_link link; /* the current owner's */
    /* Set by the core; read-only for transports. */
    const void *owner;               /* what cancel() names */
    void *task;                      /* opaque */
    struct tei_transport *transport; /* the one it is posted to */
    struct tei_attach *attach;       /* NULL: this engine */
    struct tei_region *region;       /* holds `local` */
    /* the core's; holds `remote` when the target is this engine, else NULL */
    struct tei_region *target_region;
    _Atomic uint64_t *moved;   /* for the request: a transport adds each part it finished, once */
    struct tei_story *story;   /* see story.h; NULL: none is wanted */
    _Atomic int64_t *taken_ns; /* its first part was taken then, 0: not yet; NULL: not asked */
    const struct tei_traceparent *trace; /* for who serves it, if that can be told; NULL: none */
    const te_lease_key *key;             /* to be shown to who serves it; NULL: none */
    char *local;
    uint64_t remote;
    uint64_t length; /* never 0 */
    /* TEI_NEVER: only lack of progress (conf->transfer_timeout_ms) ends it */
    int64_t deadline_ns;
    int opcode; /* TE_READ, TE_WRITE */
    /* For te_path(); cleared by the core: of host->nic(), for the last part; by tei_work_changed(). */
    uint8_t nic, changes;
    /* The core's; NULL: the request itself. Here, so that it is cleared in one step with the next. */
    struct tei_sink *sink;
    /* Cleared by the core; set by the transport before work_done(). */
    int error;     /* TE_ERR_OK or why not */
    int sys_errno; /* errno behind it, 0 if none */
    /* Static text, or one from host->note(): what was being done; NULL: nothing to add. */
    const char *why;
};

/* A thread that waits for an owner's work and would rather move it itself than be woken. */
struct tei_drive {
    const void *owner;
    const _Atomic size_t *left; /* 0: nothing of the owner is unfinished, at any transport */
    int64_t until_ns;           /* TEI_NEVER: no limit */
    int64_t spin_ns;            /* looks for so long without sleeping, anew after each event */
    struct tei_waker *waker;    /* rung when `left` has become 0 by another thread's doing */
};

/* What the core offers. */
struct tei_host {
    const struct tei_conf *conf;
    struct tei_jobs *jobs;    /* for what may block, but not until a peer answers */
    struct tei_jobs *waits;   /* for what waits for a peer */
    uint64_t incarnation;     /* of the engine, as in its descriptor */
    const char *segment_name; /* of this engine; fixed before the first open() */
    const char *bind_host;    /* where to listen, "" for all addresses */

    /* Takes back finished work: a list of tei_work.link. Empties it. */
    void (*work_done)(struct tei_host *h, struct tei_list *done);

    /*
     * For a peer's request: finds the one region that holds [addr, addr + length) and allows `who` (NULL: nobody that
     * is known) that access, and keeps it from being unregistered until region_release(). TE_ERR_NOT_REGISTERED,
     * TE_ERR_ACCESS, TE_ERR_REJECTED: others may (not logged). O(log n).
     */
    int (*region_hold)(struct tei_host *h, uint64_t addr, uint64_t length, unsigned access,
                       struct tei_who *who, struct tei_region **out);
    void (*region_release)(struct tei_host *h, struct tei_region *r);
    /*
     * For a peer's request that shows a key: its lease, which stays as it is until lease_release(), and its region, held
     * as by region_hold(). TE_ERR_NOT_FOUND: there is none now. TE_ERR_TIMEOUT: it is over. TE_ERR_REJECTED: as above.
     */
    int (*lease_hold)(struct tei_host *h, const te_lease_key *key, struct tei_who *who,
                      const struct tei_lease **out);
    void (*lease_release)(struct tei_host *h, const struct tei_lease *l);

    /* Which NICs go with which memory: by the user, else by discovery, now. To be freed by tei_topology_fini(). Slow. */
    int (*topology)(struct tei_host *h, struct tei_topology *out);
    /* What describe() writes has changed: peers are to be told, in the background. */
    void (*changed)(struct tei_host *h);
    /* Nobody listens where that leads, for which work waits: the descriptor is fetched again. Also under own locks. */
    void (*refused)(struct tei_host *h, const struct tei_attach *a);
    /*
     * Sends a connection message (a JSON object) to a peer's handshake port and waits for the
     * answer, malloc'ed and NUL-terminated. TE_ERR_PEER: nobody listens there.
     */
    int (*connect)(struct tei_host *h, const struct tei_hostport *where, const char *body,
                   size_t len, char **answer, size_t *answer_len);
    /* A copy of a text, for the `why` of work that ends; lives as long as that can be asked for. NULL: no memory. */
    const char *(*note)(struct tei_host *h, const struct tei_work *w, const char *text);
    /* A number for the local NIC of that name, the same each time, 1 or more; 0: there are too many. */
    uint8_t (*nic)(struct tei_host *h, const char *name);
    /* Answers a message that handshake() was given. */
    void (*answer)(struct tei_host *h, struct tei_rpc_call *call, const char *text, size_t len);
};

struct tei_transport_ops {
    /* ---- always required */
    const char *name; /* the scheme written in metadata */
    unsigned abi;     /* TEI_TRANSPORT_ABI */
    unsigned caps;
    /*
     * Kinds of memory, in bits (TEI_MEM_BIT), that `local` of a work may be in: what is in another
     * one the core copies through host memory, and region_add() is not called for it. HOST is among
     * them.
     */
    unsigned mem_kinds;
    unsigned target_kinds; /* kinds that `remote` may be in: for others it is not asked */
    size_t size;           /* bytes of the instance, whose first member is struct tei_transport */
    size_t work_size;      /* bytes of a piece of work, whose first member is struct tei_work */
    size_t attach_size;    /* bytes of an attachment, whose first member is struct tei_attach */

    /* Acquires devices, starts threads; t->host and t->ops are set. On failure it is left safe for fini(). */
    int (*open)(struct tei_transport *t);
    /*
     * 0: cannot carry; else a preference, larger is better. Quick: it is asked for each request. The
     * core may remember the answer for as long as `a` lives, unless it is TEI_SCORE_LATER. `a` is
     * NULL for this engine itself. Source and target range have been found already.
     */
    unsigned (*score)(struct tei_transport *t, const struct tei_attach *a, const te_request *r);
    /* Takes all work on the list (tei_work.link), which may be for many peers, and empties it. */
    void (*post)(struct tei_transport *t, struct tei_list *work);
    /*
     * Refuses what is posted from now on (ends it TE_ERR_CANCELED) and ends what is there the same
     * way; does not wait. Callable twice.
     */
    void (*close)(struct tei_transport *t);
    /* close(), then waits until all work is done and every thread joined. */
    void (*stop)(struct tei_transport *t);
    /* Frees what open() got. Accepts an instance whose open() failed half way. */
    void (*fini)(struct tei_transport *t);

    /* ---- when it is installed by itself, that is without te_transport_install(): optional */
    /*
     * Beside a REMOTE one, once memory of all these kinds is there, in bits: TEI_MEM_BIT(), and TEI_KIND_;
     * TEI_MEM_HOST is there from the start. One that waits for memory of devices stays away where an
     * option asks for another transport (TEI_ASKS in transports.def). 0: never.
     */
    unsigned beside;
    /* What in the options keeps it from that, static text; NULL if nothing does. Default: nothing. */
    const char *(*why_off)(const struct tei_conf *conf);

    /* ---- required with TEI_CAP_REMOTE and TEI_CAP_SAME_HOST */
    /*
     * Adds the transport's top-level keys to the descriptor (ports, devices); "protocol" is the
     * core's. With SAME_HOST: one object under its own name in the object "te".
     */
    int (*describe)(struct tei_transport *t, json_t *root);
    /*
     * Parses the peer's keys, which a stranger wrote: checks kinds and lengths before it opens what they name.
     * `where` is the peer's RPC address. REMOTE: no traffic, but a short look at this host (a file, a device).
     * SAME_HOST: called from threads that may block, so it may talk to the peer's process for conf->host_timeout_ms.
     * TE_ERR_UNSUPPORTED: not to be reached this way; why not, for te_explain(), is left by tei_err_keep(), unlogged.
     */
    int (*attach)(struct tei_transport *t, struct tei_attach *a, const struct tei_segment *s,
                  const struct tei_hostport *where);
    /* ---- required with TEI_CAP_FILE, beside attach() */
    /*
     * From now on files may be opened at or below this path, too, as they may below those of
     * TE_FILE_PATHS. Where there is no such path, the files of segments that are `by_path` may, and no
     * others.
     */
    int (*allow)(struct tei_transport *t, const char *path);
    /*
     * Whether all files of the segment that have a part of this range may be opened, by their paths
     * alone: touches none. Else TE_ERR_ACCESS (not logged), and `why` names one, and the remedy.
     */
    int (*admit)(struct tei_transport *t, const struct tei_segment *s, uint64_t begin,
                 uint64_t length, char *why, size_t n);

    /* ---- optional */
    /* No work uses what attach() has made; another may get its address. May come after stop(). Default: nothing. */
    void (*detach)(struct tei_transport *t, struct tei_attach *a);
    /*
     * Adds the keys to one buffer of the descriptor, which begins at `addr`: that of the region, or
     * a multiple of buffer_max() above it. Default: there are none.
     */
    int (*describe_buffer)(struct tei_transport *t, const struct tei_region *r, uint64_t addr,
                           json_t *object);
    /* The longest buffer that one set of keys is for: longer regions are told in parts. Default: any. */
    uint64_t (*buffer_max)(struct tei_transport *t);
    /*
     * Answers a peer's connection message (its JSON, valid during the call), by host->answer(),
     * exactly once, from this thread or another. Must not block. Default: that there is nothing
     * here to connect to.
     */
    void (*handshake)(struct tei_transport *t, struct tei_rpc_call *call, const char *body,
                      size_t len);
    /* Can this host run it? Cheap, no side effects; fills `why` when not. Default: yes. */
    bool (*probe)(const struct tei_conf *conf, char *why, size_t n);
    /*
     * For te_explain(): why score() has just been 0 for this peer. Default: that it cannot carry
     * the request.
     */
    void (*why_not)(struct tei_transport *t, const struct tei_attach *a, const te_request *r,
                    char *why, size_t n);
    /*
     * Whether an earlier WRITE of this transport, which has ended, may still be applied where this one
     * goes: no other transport is to carry it then, for this one alone can make it wait. Quick. Without
     * `a` and `r`: whether that is so anywhere; an instance that says yes is not taken out, since the next
     * one would know nothing of it, and may have its targets asked. Default: no.
     */
    bool (*holds)(struct tei_transport *t, const struct tei_attach *a, const te_request *r);
    /*
     * Takes a work that moves nothing, and has no local memory: it ends without an error once nothing of
     * a WRITE that had ended before the call is applied to its range any more; TE_ERR_LINK: that cannot be
     * found out. Obeys its deadline, and cancel(); where the deadline has passed it ends before this returns,
     * TE_ERR_TIMEOUT if it is not over, and the target is asked once all the same. May call work_done().
     * Default: the op is not there, and of a WRITE that failed nobody can say when it is over, unless this
     * process has made the copy.
     */
    void (*settle)(struct tei_transport *t, struct tei_work *w);
    /*
     * Required with settle(): whether both are to the same peer, so that what one of them holds the other
     * one does, too.
     */
    bool (*is_same)(const struct tei_attach *a, const struct tei_attach *b);
    /*
     * Registers memory with the device. Default: nothing to do. For memory that is not HOST,
     * TE_ERR_UNSUPPORTED (unlogged) says that it is out of the transport's reach: as if its kind
     * were not in mem_kinds.
     */
    int (*region_add)(struct tei_transport *t, struct tei_region *r);
    /*
     * Undoes it; also called for a region that region_add() refused or never got. The region is out
     * of the core's map already, or the transport is closed, so no new region_hold() comes for it.
     * Ends every served request still inside and returns when remote_users of this transport's
     * making is 0. Never waits for a peer; but where peers write by themselves, and one of them is
     * stopped in the middle of that, there is nothing that ends it: then, after a second at most,
     * TE_ERR_BUSY with its process in te_errmsg(), and the region stands as before. Default:
     * nothing, 0.
     */
    int (*region_del)(struct tei_transport *t, struct tei_region *r);
    /* Required with TEI_CAP_LEASES: ends every served request under the lease; never waits for a peer. */
    void (*lease_del)(struct tei_transport *t, const struct tei_lease *l);
    /*
     * Moves work in the caller's thread, without blocking, while that spins in te_wait(); whether
     * anything moved. Default: false.
     */
    bool (*poll)(struct tei_transport *t);
    /*
     * Moves work of d->owner in the caller's thread, sleeping between two events, until *d->left is
     * 0, d->until_ns has passed, or there is none of it that this thread can move. Whatever ends
     * the work elsewhere (cancel, close, a deadline, the peer) ends this too, by d->waker or by
     * itself. False where it has nothing to drive, or cannot: the caller then sleeps until the
     * transport's threads have moved it. Several threads may drive, each for its owner. Calls
     * work_done() like post(). stop() waits for the thread to be out. Default: false.
     */
    bool (*drive)(struct tei_transport *t, const struct tei_drive *d);
    /*
     * Ends the work with this owner soon, TE_ERR_CANCELED, unless it ends otherwise first. Never
     * blocks. Default: nothing.
     */
    void (*cancel)(struct tei_transport *t, const void *owner);
    /* Its engine is no more: close idle connections, do not try long for others. Default: nothing. */
    void (*peer_gone)(struct tei_transport *t, struct tei_attach *a);
    /*
     * Has all paths that the first work to the peer may take connected, as that would, and tells how far they are:
     * never waits. What was begun goes on if it is not asked again. A path is tried once, however often this is asked
     * with the same `w`, and one that was ready is opening no more. `a` as of score(). Default: there are none.
     */
    void (*warm)(struct tei_transport *t, struct tei_attach *a, struct tei_warmth *w);
    /* Adds to counters. Default: nothing. */
    void (*stats)(struct tei_transport *t, struct te_stats *s);
    /*
     * For te_links(): appends to the empty array `nics` one object for each NIC that it has opened,
     * or would not. "device" is its name; the other members go over those that discovery found, or
     * add to them: gid, gid_index, port, speed_gbps, state, used (whether it carries requests), why
     * (if not), inflight_bytes, bandwidth_bps (of late, bits). TE_ERR_MEMORY. Default: nothing.
     */
    int (*links)(struct tei_transport *t, json_t *nics);
    /* For the metrics: tei_nics_add() for what went through each NIC, or address. Default: nothing. */
    void (*nics)(struct tei_transport *t, struct tei_nic_table *out);
};

struct tei_transport {
    struct tei_transport_ops ops; /* merged with the defaults: every member may be called */
    struct tei_host *host;
    size_t index; /* in keys[] */
    size_t place; /* of its ops in the table of those that are built in */
    unsigned has; /* enum tei_transport_has, by the table before it was merged */
};

/* The table of transports that are built in, in order of preference; NULL past the end. */
const struct tei_transport_ops *tei_transport_at(size_t i);
/* By name; NULL if none. */
const struct tei_transport_ops *tei_transport_find(const char *name);
/* The transport that an option asks for, built in or not, and the option; NULL if none does. */
const char *tei_transport_asked(const struct tei_conf *conf, const char **option);

/* Allocates and opens an instance. */
int tei_transport_open(const struct tei_transport_ops *ops, struct tei_host *host, size_t index,
                       struct tei_transport **out);
/* fini and free; the caller has called close and stop. */
void tei_transport_destroy(struct tei_transport *t);

#endif
