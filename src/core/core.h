/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.h - the engine, of its parts; included by src/core only. Each part has its header, its lock, and
 * functions that take it alone where that is enough.
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
 * Locks, in the order they may be taken: admin, batch.submit_lock, parking.repost, transports.lock (shared or not),
 * ctl.lock (held during callbacks of the ctl loop), publisher.lock, descriptor.lock, peers.lock, transports.lock
 * shared, doubts.lock, peer.lock, regions.lock; the rest are leaves, but for allocs.lock, then the lock of region.c,
 * over regions.lock, and adders.lock, counters.lock, that of a counter. transports.lock stands twice: it prefers
 * readers, and who holds it exclusively waits for nothing. Transports are called with admin, submit_lock,
 * parking.repost, transports.lock or peers.lock held, detach() and describe() with ctl.lock too, holds() with
 * doubts.lock; never with a peer's or the publish lock, for refused() takes a peer's under locks of theirs. The log
 * sink may be called with any held, so it must not call back.
 */
#ifndef TEI_CORE_H
#define TEI_CORE_H

#include "auth/auth.h"
#include "base/base.h"
#include "base/err.h"
#include "base/os.h"
#include "base/sized.h"
#include "conf/conf.h"
#include "core/adder.h"
#include "core/alloc.h"
#include "core/batch.h"
#include "core/counter.h"
#include "core/ctl.h"
#include "core/descriptor.h"
#include "core/drive.h"
#include "core/events.h"
#include "core/gate.h"
#include "core/inbox.h"
#include "core/keep.h"
#include "core/lease.h"
#include "core/matrix.h"
#include "core/metrics.h"
#include "core/observe.h"
#include "core/park.h"
#include "core/path.h"
#include "core/peer.h"
#include "core/publish.h"
#include "core/region.h"
#include "core/rekey.h"
#include "core/transports.h"
#include "meta/meta.h"

struct counters {
    _Atomic uint64_t submitted, refreshes, notified, store_failures;
    _Atomic uint64_t fences_quiet, fences_unknown;
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

    struct tei_host host;
    struct tei_jobs jobs;
    struct tei_jobs fetches; /* what waits for peers: dead ones hold up nothing else */
    struct tei_jobs feeds;   /* the windows of requests of pages: never wait */
    struct ctl ctl;
    struct tei_rpc_server *rpc;

    /* installing and registering: the transports below change under it */
    pthread_mutex_t admin;
    struct transports transports;
    struct matrix matrix;

    struct regions regions;
    struct leases leases;
    struct allocs allocs;

    struct descriptor descriptor;
    struct publisher publisher;
    struct keeper keeper;
    struct rekey rekey;
    struct tei_job host_job;

    struct peers peers;
    struct parking parking;
    struct gates gates;

    struct batches batches;
    struct tei_handles preps;
    struct drivers drivers;
    struct events events;

    struct inbox inbox;
    struct counter_set counters;
    struct adders adders;
    struct nic_names nics;

    struct counters count;
    struct metrics metrics;
    struct metrics_server *metrics_server; /* NULL: nobody is served */
    struct metrics_file *metrics_file;     /* NULL without TE_METRICS=file: */
    struct metric_line metric_line;
};

/*
 * Public functions begin with this: an engine of NULL, of a forked parent or being destroyed
 * answers TE_ERR_CLOSED.
 */
int tei_engine_check(const te_engine *e);
/* What the program gave, as this library knows it; NULL: the defaults. */
int tei_options_take(const te_options *o, te_options *known);

static inline te_engine *tei_host_engine(struct tei_host *h)
{
    return tei_container_of(h, te_engine, host);
}

#endif
