/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.h - the TCP transport: an instance and its workers. Private to src/transport/tcp, as are
 * tcp_work.h, tcp_peer.h (peers and their work), tcp_piece.h, tcp_fence.h, tcp_lane.h, tcp_frame.h and
 * tcp_stream.h (lanes of the native framing), tcp_session.h and tcp_device.h (the serving end). What there is:
 *
 *   tcp          the instance: workers, listener, table of peers
 *   tcp_worker   a thread with an event loop; every socket belongs to one
 *   tcp_peer     where requests go: host, port, protocol version; shared by all attachments to it.
 *                Has the queue of work
 *   tcp_bundle   the lanes that one peer has on one worker
 *   tcp_lane     one connection to a peer
 *   tcp_session  one connection from a peer, and the request it is being served
 *   tcp_source   an address that sessions of a worker come from
 *   tcp_exchange what is said on a lane: tcp_classic.c, tcp_native.c
 *   tcp_classic  what a lane to a peer of version 1 or 2 has beside: the piece of work it carries
 *   tcp_stream   what a lane to a peer of our own make has beside: its frames under way
 *   tcp_frame    a request of the native framing: pieces of one or many works
 *   tcp_channel  the same at the serving end: what a session has beside
 *   tcp_stage    what a session has beside while it serves memory of devices
 *   tcp_remnant  a connection to a peer of version 1 or 2 that was given up with a WRITE on it
 *
 * Work waits in its peer's queue. A lane that is free takes a piece: the whole of a short work,
 * conf->tcp_piece_size bytes of a long one, so that several lanes carry a long one at once. To a
 * peer of another make (version 1, 2) a piece is one request on the wire and a lane carries one at
 * a time. To one of our own a lane has many frames under way, and a frame has up to
 * TCP_FRAME_BLOCKS pieces.
 *
 * Locks, in the order they may be taken:
 *   tcp.peers_lock       the table of peers, their reference counts
 *   tcp_worker.lock      the loop, sockets, I/O state of lanes and sessions; held during callbacks
 *   tcp_peer.lock        queue, cursors and errors of work
 *   tcp.live_lock        the count of work not given back yet
 * host->refused() is called with the second and the third held.
 * peers_lock and a worker's lock are never held together, nor are two workers' locks. Against the
 * order, post() tries for a worker's lock while it holds a peer's; as it does not wait for it, that
 * cannot dead-lock. A lane's `state` and piece, the list of its frames and their blocks are written
 * with both its worker's and its peer's lock held, so either is enough to read them.
 *
 * A lane's socket may be driven by a thread that waits for its work: see tcp_drive.c.
 *
 * host->work_done() is called with none of them held: finished work gathers in tcp_worker.done and
 * is handed over by tei_tcp_worker_leave(), or after a turn of the loop.
 */
#ifndef TEI_TCP_H
#define TEI_TCP_H

#include "base/bans.h"
#include "base/loop.h"
#include "base/os.h"
#include "base/pool.h"
#include "base/source.h"
#include "transport/tcp/tcp_wire.h"
#include "transport/transport.h"

#define TCP_WORKERS_MAX  64
#define TCP_LANES_MAX    16
#define TCP_ADDRS_MAX    8
#define TCP_PEER_BUCKETS 256
#define TCP_HINTS        64                  /* of a worker */
#define TCP_CALLS        4                   /* socket calls for one connection per event */
#define TCP_TICK_NS      (5 * TEI_NS_PER_MS) /* least time between two rounds of the watchdog */

#define TCP_SINK      ((size_t)64 << 10)  /* where bytes go that nobody waits for any more */
#define TCP_SUM_BYTES ((size_t)256 << 10) /* received at a time: in the cache when summed */

struct tcp;
struct tcp_lane;
struct tcp_staging;
struct tcp_work;

/* A lane that carries work of an owner; see tcp_drive.c. */
struct tcp_hint {
    const void *owner;
    struct tcp_lane *lane;
    unsigned n; /* pieces; 0: the place is free */
};

struct tcp_counters {
    uint64_t served_requests, served_bytes_in, served_bytes_out, served_rejected;
    uint64_t retries, reconnects;
};

struct tcp_worker {
    struct tcp *t;
    unsigned index;
    pthread_mutex_t turnstile, lock; /* see tcp_worker.c */
    _Atomic unsigned waiting;        /* threads at the turnstile */
    struct tei_loop loop;
    bool ready;
    struct tei_timer watchdog; /* fires when the first thing that could be late is */
    struct tei_list bundles;
    struct tei_list idle, serving; /* sessions: between two requests, longest ago first; in one */
    unsigned n_sessions, n_lanes;  /* connections */
    struct tei_list sources;       /* of the sessions */
    struct tei_call round_call;    /* queued while sessions wait for the next round */
    bool round_called;
    uint64_t round; /* of serving several sources, each for TCP_ROUND_NS */
    struct tei_list done;
    char *sink;                  /* TCP_SINK bytes */
    struct tcp_staging *staging; /* NULL until memory of a device is served */
    char note[640];              /* a log line that waits for the lock to be free, "" for none */
    enum te_log_level note_level;
    _Atomic unsigned n_active; /* lanes that wait for the network: poll() is worth while */
    uint64_t next_serial;      /* of sessions */
    struct tcp_counters count;
    struct tei_nic_table *closed; /* what connections that are closed have moved; NULL: none was */
    struct tei_list looks;        /* at those that are open; see tcp_nics.c */
    struct tcp_hint hints[TCP_HINTS];
    struct tei_list hushed;      /* lanes that a thread has driven */
    unsigned n_alone;            /* of them: left to a driver that is not there yet */
    struct tei_timer hush_timer; /* armed while one of them is used */
};

struct tcp {
    struct tei_transport base;
    const struct tei_conf *conf;
    _Atomic bool closed;
    bool set_congestion, set_congestion_near;
    uint64_t id;       /* of this instance, told to peers */
    json_t *addresses; /* told to peers beside the one they know; NULL: none */
    unsigned n_workers;
    struct tcp_worker *workers;
    _Atomic unsigned next_worker;           /* round robin, for lanes and for sessions */
    _Atomic unsigned char leads[TCP_HINTS]; /* the worker to ask for the owner at that place */
    int64_t no_progress_ns;                 /* TEI_NEVER: no limit */

    int listen_fd;
    uint16_t port;
    struct tei_watch listener;
    struct tei_timer relisten; /* accepting rests for want of descriptors */
    struct tei_bans bans;      /* of the listener; enforced on worker 0 */
    struct tei_call ban_call;
    _Atomic bool ban_called; /* it is on its way */
    struct tei_timer ban_timer;
    struct tei_pool sessions, channels, frames, stages, remnants;
    unsigned max_sessions; /* of one worker */

    pthread_mutex_t peers_lock;
    struct tei_list peers[TCP_PEER_BUCKETS];
    struct tei_list left; /* peers without attachments, longest ago first; see tei_tcp_peer_put() */
    unsigned n_left;

    pthread_mutex_t live_lock;
    pthread_cond_t quiet;
    size_t live;   /* work posted and not given back yet */
    int drivers;   /* threads in tei_tcp_drive() */
    unsigned jobs; /* of te/aux, under way */
    bool ready;    /* locks exist */
};

/* ---- tcp.c */
static inline struct tcp *tei_tcp_of(struct tei_transport *t)
{
    return tei_container_of(t, struct tcp, base);
}

/* Socket options that every data connection gets, in one place. */
void tei_tcp_tune(const struct tcp *t, int fd);
/*
 * Those that depend on who is at the other end: once connect() was called, or accept(). Whether that
 * is this host.
 */
bool tei_tcp_tune_connected(const struct tcp *t, int fd, const struct tei_addr *peer);
/* A job of te/aux that uses the instance, which stop() waits for. */
void tei_tcp_job_begun(struct tcp *t);
void tei_tcp_job_ended(struct tcp *t);
/* Gives back finished work; no lock held. */
void tei_tcp_give_back(struct tcp *t, struct tei_list *done);

/* ---- tcp_worker.c */
int tei_tcp_worker_init(struct tcp_worker *w, struct tcp *t, unsigned index);
int tei_tcp_worker_start(struct tcp_worker *w);
void tei_tcp_worker_fini(struct tcp_worker *w);
/* Takes the lock, waiting for the callbacks in hand. */
void tei_tcp_worker_enter(struct tcp_worker *w);
bool tei_tcp_worker_try(struct tcp_worker *w);
/* Releases the lock, then gives back the work that has finished. */
void tei_tcp_worker_leave(struct tcp_worker *w);
/* The watchdog runs at `when_ns` at the latest. Lock held. */
void tei_tcp_worker_arm(struct tcp_worker *w, int64_t when_ns);
/* Has a line logged once the lock is free; of several at a time only the first. Lock held. */
void tei_tcp_worker_note(struct tcp_worker *w, enum te_log_level level, const char *fmt, ...)
    TEI_PRINTF(3, 4);

#endif
