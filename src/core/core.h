/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.h - private structs of the engine; included by src/core only.
 *
 * Who owns what
 *   engine   conf, threads, transports, everything below
 *   region   registered memory; in one ordered map (region.c)
 *   peer     an opened segment; holds the current view
 *   view     one descriptor of a peer with the transports' attachments to it: immutable, counted.
 *            Tasks hold the view they were routed by, so a refresh just swaps the peer's pointer
 *   batch    tasks; counted: one reference for the id, one while any task is unfinished
 *   task     one request; split in pieces of work, which transports own while they run
 *
 * Locks, in the order they may be taken: admin, batch.submit_lock, parking.repost, transports.lock
 * (shared or not), ctl_lock (held during callbacks of the ctl loop), publisher.lock, descriptor.lock, peers.lock,
 * transports.lock shared, peer.lock, regions.lock; the rest are leaves, but for allocs.lock, then the lock
 * of region.c, over regions.lock. transports.lock stands twice: it prefers readers, and who holds it exclusively
 * waits for nothing. Transports are called with admin, submit_lock, parking.repost, transports.lock or
 * peers.lock held, detach() and describe() with ctl_lock too; never with a peer's or the publish
 * lock. The log sink may be called with any held, so it must not call back.
 */
#ifndef TEI_CORE_H
#define TEI_CORE_H

#include "base/base.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/jobs.h"
#include "base/loop.h"
#include "base/os.h"
#include "base/pool.h"
#include "base/sized.h"
#include "conf/conf.h"
#include "core/alloc.h"
#include "core/batch.h"
#include "core/complete.h"
#include "core/descriptor.h"
#include "core/drive.h"
#include "core/events.h"
#include "core/inbox.h"
#include "core/keep.h"
#include "core/matrix.h"
#include "core/metrics.h"
#include "core/notify.h"
#include "core/park.h"
#include "core/peer.h"
#include "core/publish.h"
#include "core/region.h"
#include "core/register.h"
#include "core/transports.h"
#include "core/view.h"
#include "meta/meta.h"
#include "model/model.h"
#include "transport/transport.h"

/* ----------------------------------------------------------------------------------------- engine */

struct stage;

struct counters {
    _Atomic uint64_t submitted, refreshes, notified, store_failures;
};

/* No address of this platform has these bytes, so no C++ object that begins with a pointer does. */
#define TEI_ENGINE_MARK UINT64_C(0x656e69676e45e754)
/* What include/mooncake/detail/engine.h gives for an engine that a program took for a C++ object. */
#define TEI_HANDLE_MARK UINT64_C(0x656c646e6168e754)

struct te_engine {
    uint64_t mark; /* first: TEI_ENGINE_MARK, by which a pointer to something else is known */
    unsigned fork_epoch;
    _Atomic bool closing;
    struct tei_conf conf;
    uint64_t incarnation;
    char name[TEI_HOSTPORT_MAX];
    struct tei_hostport addr;
    char bind[TEI_HOST_MAX]; /* where all ports are opened; "" for all addresses */
    struct tei_directory *dir;
    bool announced; /* the directory has our keys */

    struct tei_host host;
    struct tei_jobs jobs;
    struct tei_jobs fetches; /* what waits for peers: dead ones hold up nothing else */
    struct tei_loop ctl;
    pthread_mutex_t ctl_lock; /* the loop's */
    pthread_t ctl_thread;
    bool ctl_running;
    struct tei_rpc_server *rpc;

    /* installing and registering: the transports below change under it */
    pthread_mutex_t admin;
    struct transports transports;
    struct matrix matrix;
    _Atomic(struct stage *) stage; /* NULL until memory of a device is registered */

    struct regions regions;
    struct allocs allocs;

    struct descriptor descriptor;
    struct publisher publisher;
    struct keeper keeper;
    struct tei_job host_job;

    struct peers peers;
    struct parking parking;
    struct tei_timer refresh_timer; /* MC_TE_METADATA_REFRESH_INTERVAL_SECONDS */

    struct batches batches;
    struct tei_handles preps;
    struct drivers drivers;
    struct events events;

    struct inbox inbox;

    struct counters count;
    struct metrics metrics;
    struct metrics_server *metrics_server; /* NULL without TE_METRICS */
    struct tei_timer metric_timer;         /* MC_TE_METRIC; under ctl_lock */
    struct te_stats metric_last;           /* what the line before told */
};

/*
 * Public functions begin with this: an engine of NULL, of a forked parent or being destroyed
 * answers TE_ERR_CLOSED.
 */
int tei_engine_check(const te_engine *e);
/* What the program gave, as this library knows it; NULL: the defaults. */
int tei_options_take(const te_options *o, te_options *known);
/* Refuses calls from now on, and takes our keys out of the directory. */
void tei_engine_withdraw(te_engine *e);

/* ---- serve.c: requests of peers on the handshake port, and ours to theirs */
/* struct tei_host ops. */
int tei_serve_connect(struct tei_host *h, const struct tei_hostport *where, const char *body,
                      size_t len, char **answer, size_t *answer_len);
void tei_serve_answer(struct tei_host *h, struct tei_rpc_call *call, const char *text, size_t len);
/* struct tei_rpc_service. */
void tei_serve_rpc(void *arg, struct tei_rpc_call *call, enum tei_rpc_type type, const char *body,
                   size_t len);
bool tei_serve_is_heavy(void *arg, enum tei_rpc_type type, size_t len);

/* ---- install.c */
/* What every engine has, and what auto_discover picks. */
int tei_install_defaults(te_engine *e, bool auto_discover);
/* What goes with memory of the kinds registered so far; whether anything came of it. Under admin. */
bool tei_install_for_devices(te_engine *e);
/* `path` (may be NULL): given to allow() before the transport is of use. */
int tei_install(te_engine *e, const struct tei_transport_ops *ops, const char *path);
/* Why a transport is not installed, for te_explain(). */
void tei_install_why_not(const te_engine *e, const struct tei_transport_ops *ops, char *buf,
                         size_t n);

/* ---- route.c */
/*
 * Picks the transport for a request; NULL if none can carry it. Unless it *lasts, there may soon be a
 * better one.
 */
struct via *tei_route(struct view *v, const te_request *r, bool *lasts);
/* The one that must carry a WRITE, since an earlier WRITE that it had may still be applied there; or NULL. */
struct via *tei_route_holder(struct view *v, const te_request *r);
/* What sort of memory the target range begins in. */
enum tei_mem_kind tei_route_kind(const struct view *v, const te_request *r);
/* 0 also for a transport that does not reach this sort of memory. */
unsigned tei_route_score(const struct via *via, const te_request *r, enum tei_mem_kind kind);

/* ---- stage.c: memory of devices that a transport does not reach by itself */
/*
 * Makes what is needed to copy through host memory, once memory of such a device is registered.
 * Under admin.
 */
int tei_stage_start(te_engine *e, enum tei_mem_kind kind);
/* Who gets the work of a region that `t` is to carry: `t`, or the stage in its place. */
struct tei_transport *tei_stage_for(const te_engine *e, const struct tei_region *r,
                                    struct tei_transport *t);
/* Its memory, which transports have as they have regions; NULL until there is a stage. Under admin. */
struct tei_region *tei_stage_region(const te_engine *e);
void tei_stage_cancel(te_engine *e, const void *owner);
/* Before the transports are closed. */
void tei_stage_close(te_engine *e);
/* After that, and before they are stopped: waits until all its work is done. */
void tei_stage_stop(te_engine *e);
/* Once no transport has the memory. */
void tei_stage_fini(te_engine *e);

/* ---- submit.c */
struct plan {
    te_engine *engine;
    struct batch *batch;
    struct group *group;
    int64_t deadline_ns;
    /* the region that tasks hold which were claimed last: how many holds are not counted on it yet */
    struct tei_region *region;
    uint32_t owed;
    uint32_t used; /* bits by place: which of the next four are set */
    struct tei_list lists[TEI_CARRIERS];
    struct tei_transport *transports[TEI_CARRIERS];
    struct tei_pool_free *spare[TEI_CARRIERS]; /* work taken from the pools in bulk */
    size_t n_spare[TEI_CARRIERS];
    const struct tei_segment *segment; /* in which `buffer` was found last; NULL: none was */
    const struct tei_buffer *buffer;
    size_t expect;            /* requests still to come: how much to take at a time */
    struct tei_list unposted; /* tasks without work: empty ones and those to be parked */
};
void tei_plan_init(struct plan *p, te_engine *e, struct batch *b, size_t expect);
/*
 * Finds the target range of t->req in t->view and cuts the work: on 0 the pieces are on
 * lists[transport index] and t->left is set. TE_ERR_STALE or TE_ERR_ACCESS when the view does not
 * have it, TE_ERR_UNSUPPORTED when no transport carries it, TE_ERR_NOT_REGISTERED when this engine
 * is the target, TE_ERR_MEMORY.
 */
int tei_plan_cut(struct plan *p, struct task *t);
/* What can be said of request number i without looking at anything else. */
int tei_request_check(const te_request *r, size_t i);
/*
 * The whole of a te_submit(): `fill` claims and plans the next `n` tasks of the batch; on failure it
 * leaves them holding nothing.
 */
typedef int (*tei_fill)(struct plan *p, struct task *tasks, size_t n, const void *arg);
int tei_submit(te_engine *e, te_batch id, size_t n, const te_submit_opts *opts, tei_fill fill,
               const void *arg);
/* Counts the holds that are owed. */
static inline void tei_plan_count(struct plan *p)
{
    /* Relaxed: who unregisters looks at the count with regions.lock held exclusively. */
    if (p->owed)
        atomic_fetch_add_explicit(&p->region->local_users, p->owed, memory_order_relaxed);
    p->owed = 0;
}
/*
 * One more hold on a region that cannot go meanwhile, because regions.lock is held or a hold is
 * counted. Counted at the latest by tei_plan_count().
 */
static inline void tei_plan_hold(struct plan *p, struct tei_region *r)
{
    if (r != p->region)
        tei_plan_count(p);
    p->region = r;
    p->owed++;
}
/* Fills in a task, all but the request. One by one: of a struct this large gcc makes a slow loop. */
static inline void tei_plan_claim(const struct plan *p, struct task *t, struct view *v,
                                  struct tei_region *r)
{
    atomic_init(&t->state, TE_WAITING);
    t->refreshed = false;
    t->sample = 0;
    atomic_init(&t->left, 0);
    atomic_init(&t->error, TE_ERR_OK);
    t->sys_errno = 0;
    t->why = NULL;
    atomic_init(&t->moved, 0);
    t->batch = p->batch;
    t->group = p->group;
    t->view = v;
    t->region = r;
    t->deadline_ns = p->deadline_ns;
    t->link = (struct tei_link){0};
}
/*
 * Puts a task on its way, whose view and region are held. `via` carries it in one piece; NULL: what
 * does is to be found. What is said of an error calls it request i.
 */
int tei_plan_task(struct plan *p, struct task *t, size_t i, const struct via *via);
/* Lets go of what a task holds that was not posted. */
void tei_plan_release(struct task *t);
/* Hands all work to the transports. */
void tei_plan_post(struct plan *p);
/* Gives all work back unposted, and what is left over. */
void tei_plan_drop(struct plan *p);

/* ---- prep.c */
void tei_prep_fini(te_engine *e);

/* ---- shutdown.c */
void tei_shutdown_forget(const te_engine *e);

/* ---- metrics_text.c */
/* The metrics in the format of Prometheus, malloc'ed; NULL when memory is out. */
char *tei_metrics_text(te_engine *e);

/* ---- metrics_serve.c */
/* What TE_METRICS asks for, if anything. TE_ERR_INVALID: it cannot be read. */
int tei_metrics_serve_start(te_engine *e);
/* Under ctl_lock, once no job runs. */
void tei_metrics_serve_stop(te_engine *e);
/* Once te/ctl has ended. */
void tei_metrics_serve_fini(te_engine *e);

/* ---- observe.c */
/* What te_stats() gives. */
void tei_stats_read(te_engine *e, struct te_stats *s);
/* Begins to log a line of figures every interval, if MC_TE_METRIC asks for it. Under ctl_lock. */
void tei_metric_start(te_engine *e);

static inline te_engine *tei_host_engine(struct tei_host *h)
{
    return tei_container_of(h, te_engine, host);
}

#endif
