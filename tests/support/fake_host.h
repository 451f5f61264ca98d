/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_host.h - a made-up struct tei_host: lets a test run a transport without an engine.
 *
 * A host has a map of regions and counts what comes back through work_done(): each piece of work
 * belongs to a struct fake_task, which is told once. What a rule of the contract forbids (a second
 * work_done(), a region released that was not held) ends the process with a line on stderr.
 *
 * A transport that takes connection messages gets a handshake server of its own on 127.0.0.1, on a
 * thread of its own, from fake_open() until fake_close().
 */
#ifndef TEST_FAKE_HOST_H
#define TEST_FAKE_HOST_H

#include "base/loop.h"
#include "meta/meta.h"
#include "transport/transport.h"
#include "patience.h"

#include <pthread.h>

/* How long works of fake hosts may be without progress, if a test sets nothing else. What ends at all
 * has not waited for that: each test has its own limit. */
#define FAKE_NEVER_MS    (24 * 3600 * 1000)
#define FAKE_REGIONS_MAX 64
#define FAKE_KEPT_MAX    64 /* connection messages that one which is deaf has got */

struct fake_host {
    struct tei_host base;
    struct tei_conf
        conf; /* the defaults, listening on 127.0.0.1; to be changed before a transport is opened */
    struct tei_jobs jobs, waits;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    struct tei_region *regions[FAKE_REGIONS_MAX];
    size_t n_done;
    /* Memory of the test's in which fake_work() puts what it makes, one after the other; NULL: on the heap. */
    char *shelf;
    size_t shelf_size, shelf_used;

    char name[64]; /* of its segment, no other host's; to be changed before a transport is opened */
    uint64_t incarnation;
    /* what topology() gives: JSON; NULL: all NICs under conf.sysfs_path, for "cpu:0" */
    const char *topology;
    _Atomic size_t n_changed; /* calls of changed() */
    _Atomic size_t n_refused; /* of refused() */
    /* The one lease there is, and its key; `lease_error`: what lease_hold() gives instead. Under lock. */
    struct tei_lease lease;
    te_lease_key lease_key;
    int lease_error;
    unsigned lease_holds;
    bool deaf; /* under lock: connection messages are kept, and not answered */
    struct tei_rpc_call *kept[FAKE_KEPT_MAX];
    size_t n_kept;
    _Atomic size_t n_handshakes; /* messages that came */

    struct tei_transport *served; /* takes the messages; NULL: there is no server */
    struct tei_loop loop;
    struct tei_rpc_server *server;
    struct tei_hostport where;
};

/* What became of one piece of work. */
struct fake_task {
    _Atomic uint64_t moved;
    bool done, awaited;
    int error, sys_errno;
    const char *why;
    char note[512]; /* what host->note() was given last */
    uint8_t nic, changes;
};

void fake_host_init(struct fake_host *h);
/* From now on connection messages are kept, or answered again; those that were kept are refused. */
void fake_host_deafen(struct fake_host *h, bool deaf);
void fake_host_fini(struct fake_host *h);

struct tei_region *fake_region_add(struct fake_host *h, struct tei_transport *t, void *addr,
                                   size_t length, unsigned access);
/* The same for some peers only, of whom none is known here: whoever asks is refused. */
struct tei_region *fake_region_for_others(struct fake_host *h, struct tei_transport *t, void *addr,
                                          size_t length, unsigned access);
/* Out of the map, then out of the transport; then nobody may hold it any more. Frees it. */
void fake_region_del(struct fake_host *h, struct tei_transport *t, struct tei_region *r);

/* The host's lease is of that range from now on, without an error; its key. No request may hold the one before. */
te_lease_key fake_lease(struct fake_host *h, struct tei_region *r, const void *addr, size_t length,
                        unsigned access);
/* How many requests hold the lease; and lease_hold() gives that error from now on. */
unsigned fake_lease_holds(struct fake_host *h);
unsigned fake_lease_over(struct fake_host *h, int error);

/* One instance of a transport in its host. Opening one that fails ends the process. */
struct tei_transport *fake_open(struct fake_host *h, const char *transport);
void fake_close(struct tei_transport *t); /* close, stop, destroy */

/*
 * Attaches `t` to `target` of another host, through its descriptor as it is now; to this engine
 * itself (NULL) if `target` is NULL.
 */
struct tei_attach *fake_attach(struct tei_transport *t, struct tei_transport *target);
/*
 * The descriptor of a host with this one transport, malloc'ed; under "fake_port", which engines do
 * not have, where its handshake server listens. fake_attach_text() reads it in another process.
 */
char *fake_describe(struct tei_transport *t);
struct tei_attach *fake_attach_text(struct tei_transport *t, const char *text);
/*
 * The same through a descriptor of the test's own making; `root` is consumed. Returns what attach()
 * says.
 */
int fake_attach_json(struct tei_transport *t, json_t *root, const char *host,
                     struct tei_attach **out);
int fake_attach_segment(struct tei_transport *t, const struct tei_segment *s,
                        struct tei_attach **out);
void fake_detach(struct tei_transport *t, struct tei_attach *a);

/* Makes work and puts it on the list, for t->ops.post(). */
struct tei_work *fake_work(struct tei_list *list, struct tei_transport *t, struct tei_attach *a,
                           struct fake_task *task, int opcode, void *local, const void *remote,
                           uint64_t length);

/* Polls (if told to) and waits until the `n` tasks are done; false after `timeout_ms`. */
bool fake_wait(struct fake_host *h, struct tei_transport *poll, struct fake_task *tasks, size_t n,
               int64_t timeout_ms);

/* One work from post to end; TE_ERR_BUSY if it did not end within PATIENCE_MS. */
int fake_transfer(struct tei_transport *t, struct tei_attach *a, int opcode, void *local,
                  const void *remote, uint64_t length);

#endif
