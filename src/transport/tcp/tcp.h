/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.h - private structs of the TCP transport; included by src/transport/tcp only.
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
 * a time. To one of our own a lane has many frames under way, and a frame has
 * up to TCP_FRAME_BLOCKS pieces.
 *
 * Locks, in the order they may be taken:
 *   tcp.peers_lock       the table of peers, their reference counts
 *   tcp_worker.lock      the loop, sockets, I/O state of lanes and sessions; held during callbacks
 *   tcp_peer.lock        queue, cursors and errors of work
 *   tcp.live_lock        the count of work not given back yet
 * peers_lock and a worker's lock are never held together, nor are two workers' locks. Against the
 * order, post() tries for a worker's lock while it holds a peer's; as it does not wait for it, that
 * cannot dead-lock. A lane's `state` and `work`, the list of its frames and their blocks are written
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

#include <errno.h>

#define TCP_WORKERS_MAX    64
#define TCP_LANES_MAX      16
#define TCP_ADDRS_MAX      8
#define TCP_PEER_BUCKETS   256
#define TCP_HINTS          64                     /* of a worker */
#define TCP_CALLS          4                      /* socket calls for one connection per event */
#define TCP_INLINE_MAX     ((uint64_t)64 << 10)   /* a WRITE that post() sends itself */
#define TCP_CONNECT_NS     (1250 * TEI_NS_PER_MS) /* a lost SYN is sent again after 1 s */
#define TCP_BACKOFF_NS     (5 * TEI_NS_PER_MS)
#define TCP_BACKOFF_MAX_NS (200 * TEI_NS_PER_MS)
#define TCP_HEAD_NS        (5 * TEI_NS_PER_S)  /* for the rest of a header that has begun */
#define TCP_HELLO_NS       (5 * TEI_NS_PER_S)  /* for the greeting to be answered */
#define TCP_DRAIN_NS       (1 * TEI_NS_PER_S)  /* for a client to heed a refusal */
#define TCP_TICK_NS        (5 * TEI_NS_PER_MS) /* least time between two rounds of the watchdog */
#define TCP_FRESH_NS       (1 * TEI_NS_PER_MS) /* a lane idle for longer is looked at before use */

#define TCP_FRAMES_MAX   64                   /* under way on a lane */
#define TCP_SINK         ((size_t)64 << 10)   /* where bytes go that nobody waits for any more */
#define TCP_WINDOW_MIN   ((uint64_t)4 << 20)  /* bytes under way on a lane */
#define TCP_FRAME_SPREAD ((uint64_t)64 << 10) /* to a peer with several addresses, at least */
#define TCP_SUM_BYTES    ((size_t)256 << 10)  /* received at a time: in the cache when summed */
#define TCP_WINDOW_MAX   ((uint64_t)64 << 20)
#define TCP_PATH_NS      (2 * TEI_NS_PER_S) /* several addresses: silence of a host at one */
#define TCP_SPANS        8                  /* of a peer, lost for good */
#define TCP_ROUND_NS     (500 * TEI_NS_PER_MS / 1000)
#define TCP_CALL_NS      (2 * TEI_NS_PER_MS) /* of a round, before others have their turn */
#define TCP_LEFT_MAX     64                  /* peers without attachments that are kept */

struct tcp;
struct tcp_peer;
struct tcp_classic;
struct tcp_stream;
struct tcp_channel;
struct tcp_stage;
struct tcp_staging;
struct tcp_bundle;
struct tcp_lane;

struct tcp_work {
    struct tei_work base;
    /* Under the peer's lock. */
    uint64_t next; /* bytes given to lanes so far */
    uint32_t out;  /* pieces that lanes carry now */
    bool patient;  /* has failed, but lets the pieces under way end by themselves */
    bool held;     /* is in peer.held, not in its queue; see tcp_fence.c */
    int64_t posted_ns;
    struct tei_link behind; /* held: in the waiters of what it waits for */
};

/* A range of the target's memory: at <= x < end; end is 0 where there is none. */
struct tcp_span {
    uint64_t at, end;
};

struct tcp_attach {
    struct tei_attach base;
    struct tcp_peer *peer;
    struct tei_segment *several; /* of several protocols: not all of it need be of tcp; else NULL */
};

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
    pthread_t thread;
    bool ready, running;
    struct tei_timer watchdog; /* fires when the first thing that could be late is */
    struct tei_list bundles;
    struct tei_list idle, serving; /* sessions: between two requests, longest ago first; in one */
    unsigned n_sessions, n_lanes;  /* connections */
    struct tei_list sources;       /* of the sessions */
    struct tei_call round_call;    /* queued while sessions wait for the next round */
    bool round_called;
    uint64_t round; /* of serving several sources, each for TCP_ROUND_NS */
    struct tei_list done;
    size_t n_done;
    char *sink;                  /* TCP_SINK bytes */
    struct tcp_staging *staging; /* NULL until memory of a device is served */
    char note[200];              /* a log line that waits for the lock to be free, "" for none */
    enum te_log_level note_level;
    _Atomic unsigned n_active; /* lanes that wait for the network: poll() is worth while */
    uint64_t next_serial;      /* of sessions */
    struct tcp_counters count;
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

/* ---------------------------------------------------------------------------------- client side */

enum lane_state {
    LANE_OFF,    /* no connection */
    LANE_PAUSED, /* none, to be tried again at retry_ns */
    LANE_CONNECTING,
    LANE_IDLE, /* connected, nothing to do */
    LANE_BUSY, /* carries something */
};

/* What is known of the thread that drives a lane, and expected of it; worker's lock. */
struct tcp_driven {
    struct tei_link link; /* in worker.hushed */
    pthread_t thread;     /* the last one */
    unsigned streak;      /* pieces it has driven, one after the other */
    unsigned need;        /* a streak so long makes it likely that it will drive the next one */
    bool expected;        /* so the piece that begins is left to it */
    bool alone;           /* and it is not there yet */
    bool prompt;          /* the last reply was there as soon as the request was sent */
    unsigned posted;      /* pieces begun for it */
    unsigned in_vain;     /* spins that saw nothing, one after the other */
    int64_t begun_ns, ended_ns;
};

struct tcp_lane {
    struct tcp_bundle *bundle;
    enum lane_state state; /* both locks */
    bool drop;             /* peer's lock: close it instead of using it again */
    struct tei_watch watch;
    struct tcp_driven driven;
    bool used;           /* this connection has finished an exchange, or been idle */
    bool proven;         /* a status, or the answer to the greeting, has come on it */
    bool unanswered;     /* the greeting was not answered */
    bool near;           /* the peer is on this host */
    bool was_up;         /* has been connected before */
    unsigned tries;      /* failures since the last finished piece */
    int64_t progress_ns; /* of the piece; idle: since when */
    int64_t round_ns;    /* when connecting began */
    int64_t attempt_ns;  /* the attempt under way */
    unsigned address;    /* that it goes to, in peer.addrs */
    unsigned path;       /* 0: one of these; else peer.more[path - 1] */
    int64_t limit_ns;    /* of a round: each address has its time */
    int64_t retry_ns;
    int sys_errno;               /* of the last failure */
    struct tcp_classic *classic; /* for the peer's life: this, or the next one */
    struct tcp_stream *stream;
};

/* Why an exchange or a connection ended. */
struct tcp_fault {
    int error, sys_errno;
    const char *why;
};

/*
 * What is said on the lanes to a peer. Nothing else asks which one that is. A lane carries what it has
 * taken of the queue, and keeps some of it while it has no connection, if that is to be tried again.
 */
struct tcp_exchange {
    /* What `n` lanes have beside; TE_ERR_MEMORY. */
    int (*make)(struct tcp_lane *lanes, unsigned n);
    void (*unmake)(struct tcp_lane *lanes);
    /* Either lock. Whether it would take something now; bytes under way. */
    bool (*takes_more)(const struct tcp_lane *l);
    uint64_t (*load)(const struct tcp_lane *l);
    /* Whether it may have a part of that work; whether it keeps anything. */
    bool (*carries)(const struct tcp_lane *l, const struct tcp_work *work);
    bool (*keeps)(const struct tcp_lane *l);
    /* Peer's lock. Fails the works of `owner`, NULL: all. */
    void (*cancel)(struct tcp_lane *l, const void *owner, const struct tcp_fault *f);
    /* The last frame that may still bring a WRITE that has ended to that range: tei_tcp_frames_last(). */
    struct tcp_frame *(*reach)(const struct tcp_lane *l, const struct tcp_span *span, bool exact);
    /* Both locks. Takes from the queue, at most so many frames, and makes it busy; false: nothing. */
    bool (*take)(struct tcp_lane *l, unsigned frames, int64_t now);
    /* The connection is up: makes it busy or idle; false when memory is out. */
    bool (*up)(struct tcp_lane *l, int64_t now);
    /* The connection is closed. What is carried ends for reason f, NULL: may be tried again. */
    void (*end)(struct tcp_lane *l, const struct tcp_fault *f);
    /* It will not be opened again for now. What is kept ends; others may take the rest. */
    void (*unreached)(struct tcp_lane *l, const struct tcp_fault *f);
    /* Worker's lock. The socket is about to be closed, for reason f or NULL, or is taken over. */
    void (*cut)(struct tcp_lane *l, const struct tcp_fault *f);
    /* Sends what it has taken. */
    void (*begin)(struct tcp_lane *l, int64_t now);
    void (*event)(struct tcp_lane *l, uint32_t events, int64_t now);
    /* When what it carries is late; that it is. */
    int64_t (*late_at)(const struct tcp_lane *l);
    void (*late)(struct tcp_lane *l, int64_t now);
    /* Lets go of works with an error. */
    void (*sweep)(struct tcp_lane *l, int64_t now);
};

extern const struct tcp_exchange tei_tcp_classic, tei_tcp_native;

/* A part of one work, as a frame carries it. */
struct tcp_block {
    struct tcp_work *work; /* NULL: it has ended meanwhile */
    char *local;
    struct tcp_range range;
};

/*
 * A request of the native framing. It is on a lane's stream, or in one of its peer's lists `again`
 * and `lost`.
 */
struct tcp_frame {
    struct tei_link link;
    unsigned type; /* enum tcp_frame_type */
    unsigned n;    /* blocks */
    unsigned tries;
    bool asked;          /* lost: a DROP for its connection is under way */
    uint64_t id;         /* on the connection */
    uint64_t connection; /* lost: the one that may still bring it; DROP: the one to drop */
    uint64_t payload;    /* bytes of all blocks */
    size_t head_len;
    uint64_t sent, total; /* of head, payload and trailer, on this connection */
    uint32_t crc;         /* of the payload sent so far */
    uint8_t trailer[TCP_TRAILER_LEN];
    uint32_t zero_last;        /* the last call without a copy that carried a part of it, 0: none */
    int64_t sent_ns;           /* when the last byte was handed over; before: when the first was */
    uint64_t delivered;        /* stream.delivered at that time */
    struct tcp_span unsettled; /* WRITE: covers the blocks whose work has ended before the answer */
    struct tei_list waiters;   /* works that are held until that is empty */
    const void *owner;         /* of the first block */
    unsigned noted;            /* blocks of that owner that tcp_drive.c knows of */
    struct tcp_block blocks[TCP_FRAME_BLOCKS];
    uint8_t head[TCP_FRAME_HEAD_MAX];
};

/*
 * What is left of a lane's connection: the target is told that nothing more comes, and its end is
 * awaited, which says that it applies nothing of this connection any more. Both locks, see tcp.h.
 */
struct tcp_remnant {
    struct tei_link link; /* in bundle.remnants */
    struct tcp_bundle *bundle;
    struct tei_watch watch;
    struct tcp_span span;
    struct tei_list waiters;
    int64_t until_ns; /* for as long WRITEs wait for it */
    bool overdue;
};

struct tcp_bundle {
    struct tei_link link; /* in worker.bundles */
    struct tcp_peer *peer;
    struct tcp_worker *worker;
    struct tei_call call;
    bool called;            /* peer's lock: `call` is queued */
    bool failing;           /* peer's lock: lanes may carry pieces of failed works */
    unsigned n_idle, n_off; /* peer's lock: lanes in these states */
    unsigned n_lanes;
    struct tcp_lane *lanes;
    struct tei_list remnants;
};

struct tcp_peer {
    struct tei_link link; /* in tcp.peers */
    struct tei_link left; /* in tcp.left while refs is 0; peers_lock */
    struct tcp *t;
    unsigned refs; /* attachments; peers_lock */
    struct tei_hostport where;
    int version; /* of its engine's tcp_proto_version: 1, 2 */
    const struct tcp_exchange *exchange;
    unsigned framing; /* native: the version of it that both know */
    uint64_t id;      /* native: the instance that is meant */
    bool numeric;     /* the host is an address: addrs[0] for good */

    pthread_mutex_t lock;
    bool gone;             /* no attachment is left: bundles close their lanes and leave */
    unsigned parts;        /* bundles, and the job if it runs: the last to leave frees the peer */
    struct tei_list queue; /* work with bytes that no lane has taken */
    size_t n_queued;
    struct tei_list again; /* frames to be sent once more */
    struct tei_list lost;  /* WRITE frames of broken connections, which may still bring them */
    size_t n_frames;       /* in both */
    /* What may still be written there for works that have ended, and what waits for it: tcp_fence.c. */
    _Atomic size_t n_unsettled; /* frames of which a part is, remnants and spans: 0 nearly always */
    struct tei_list unsettled;  /* WRITE frames of broken connections, of which all is */
    size_t n_left_over;         /* in it */
    unsigned n_remnants, n_spans;
    struct tcp_span spans[TCP_SPANS];
    struct tei_list held; /* WRITEs */
    size_t n_held;
    struct tei_list crowded;  /* those of them that wait for there to be fewer remnants or frames */
    struct tei_list ended;    /* work that ended while its bundle could not be reached */
    int64_t check_ns;         /* when the watchdog will look at the queue; TEI_NEVER: it will not */
    unsigned n_up, n_opening; /* lanes connected; paused or connecting */
    bool greeted;             /* one of those that are up is known to lead to it */
    bool near;                /* native: the last one that came up leads to this host */
    bool resolving;
    struct tei_job job;
    int n_addrs;
    struct tei_addr addrs[TCP_ADDRS_MAX];
    int n_more; /* native: further addresses of the peer, all used at once */
    struct tei_addr more[TCP_ADDRS_MAX];
    unsigned wrong;              /* bits: those of `more` where another engine answers */
    unsigned first;              /* the address to begin with: the last one that answered */
    _Atomic int64_t progress_ns; /* when a byte last moved on any lane */
    unsigned n_bundles;
    struct tcp_bundle *bundles;
};

/*
 * Whether a connection that broke with this errno value, 0: its end was read, was closed by the
 * peer. Else it is this host that has given it up, and the peer may know nothing of that.
 */
static inline bool tei_tcp_is_end(int sys_errno)
{
    return sys_errno == 0 || sys_errno == ECONNRESET || sys_errno == EPIPE;
}

/* ---------------------------------------------------------------------------------- server side */

enum session_state {
    SESSION_HEAD,
    SESSION_SEND,
    SESSION_RECEIVE,
    SESSION_STATUS,
    SESSION_REJECT,
    SESSION_DRAIN,
    SESSION_NATIVE, /* see tcp_channel.c */
};

struct tcp_source {
    struct tei_source base; /* its users are sessions, and the DROP under way */
    uint64_t round;         /* of the worker: the one that served_ns counts in */
    int64_t served_ns;
    uint64_t walked;         /* the round that it has had its turn in */
    struct tei_list waiting; /* for the next round: sessions, longest ago first */
    bool dropping;           /* a DROP of one of them is under way; the others wait */
    struct tei_list drops;   /* those that do, longest ago first */
};

struct tcp_session {
    struct tei_link link; /* in worker.idle or .serving */
    struct tcp_worker *worker;
    struct tcp_source *source;
    struct tei_link turn;      /* in source.waiting */
    uint32_t events;           /* while it is there: those to wait for again */
    int64_t paused_ns;         /* since when it has waited for us: for its turn, or for its DROP */
    struct tei_link drop_turn; /* in source.drops */
    uint64_t drop_client, drop_connection;
    struct tei_watch watch;
    struct tei_addr from; /* the other end */
    struct tei_call call; /* brings an accepted socket to its worker */
    enum session_state state;
    struct tcp_head head;
    uint8_t head_bytes[TCP_HEAD_LEN], status[TCP_STATUS_LEN];
    size_t head_got, status_left;
    struct tei_region *region; /* held while data moves */
    char *data;
    uint64_t left;
    int64_t since_ns;            /* last progress; before the first request: the beginning */
    bool proven;                 /* has had a request of version 1 or 2 */
    bool useful;                 /* a request, or a greeting, was answered */
    uint64_t serial;             /* tells it from others of this worker */
    struct tcp_channel *channel; /* of a native client, else NULL */
    struct tcp_stage *stage;     /* NULL: the request has no ranges on devices */
};

/* What a descriptor says of a peer. */
struct tcp_target {
    struct tei_hostport where;
    int version;
    const struct tcp_exchange *exchange;
    unsigned framing; /* native: the version of it to speak */
    uint64_t id;      /* native; else 0 */
    int n_more;
    struct tei_addr more[TCP_ADDRS_MAX];
};

/* What becomes of a session after a step: go on at once, wait for the socket, or close it. */
enum tcp_step { STEP_MORE, STEP_WAIT, STEP_CLOSE };

/* ---- tcp.c */
static inline struct tcp *tei_tcp_of(struct tei_transport *t)
{
    return tei_container_of(t, struct tcp, base);
}
static inline struct tcp_work *tei_tcp_work_of(struct tei_link *l)
{
    return tei_container_of(l, struct tcp_work, base.link);
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
void tei_tcp_give_back(struct tcp *t, struct tei_list *done, size_t n);

/* ---- tcp_address.c: the addresses of native peers */
/* Those that this engine announces: t->addresses. */
int tei_tcp_addresses_find(struct tcp *t);
/* What a descriptor says; false if its engine does not speak the native framing. */
bool tei_tcp_addresses_read(const json_t *root, struct tcp_target *target);

/* ---- tcp_worker.c */
int tei_tcp_worker_init(struct tcp_worker *w, struct tcp *t, unsigned index);
int tei_tcp_worker_start(struct tcp_worker *w);
void tei_tcp_worker_join(struct tcp_worker *w);
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
/* Adds to the work that is to be given back. Lock held. */
void tei_tcp_worker_done(struct tcp_worker *w, struct tcp_work *work);

/* ---- tcp_peer.c */
int tei_tcp_peer_get(struct tcp *t, const struct tcp_target *target, struct tcp_peer **out);
void tei_tcp_peer_put(struct tcp_peer *p);
void tei_tcp_peer_free(struct tcp_peer *p);
/* One bundle, or the look-up, has let go of the peer. */
void tei_tcp_peer_leave(struct tcp_peer *p);
/*
 * Whether there are addresses; *look_up: the caller is to ask for them once the lock is free. Peer's
 * lock held.
 */
bool tei_tcp_peer_has_addrs(struct tcp_peer *p, bool *look_up);
void tei_tcp_peer_look_up(struct tcp_peer *p);
/* Ends the work of `owner`, NULL: of everybody. */
void tei_tcp_peer_cancel(struct tcp_peer *p, const void *owner);
void tei_tcp_peer_drop_idle(struct tcp_peer *p);

/* ---- tcp_schedule.c */
/* Takes `n` pieces of work; the first of them is late at `late_ns`. */
void tei_tcp_peer_post(struct tcp_peer *p, struct tei_list *works, size_t n, int64_t now,
                       int64_t late_ns);
/* Does what there is to do for a bundle on its worker. */
void tei_tcp_bundle_run(struct tei_call *c);
/* What the watchdog does for a bundle; returns when next. Worker's lock held. */
int64_t tei_tcp_bundle_tick(struct tcp_bundle *b, int64_t now);
/* Ends all lanes and their work. Worker's lock held. */
void tei_tcp_bundle_stop(struct tcp_bundle *b);

/* ---- tcp_piece.c: the accounting of work; both locks held */
/* The first work of the queue that is not late; NULL if there is none. */
struct tcp_work *tei_tcp_queue_first(struct tcp_peer *p, struct tcp_worker *w, int64_t now);
/* Takes the next `len` bytes of it; what is left of it goes to the end of the queue. */
void tei_tcp_queue_take(struct tcp_peer *p, struct tcp_work *work, uint64_t len);
/*
 * A piece of `len` bytes has ended: well if f is NULL. Without a worker, which is cancel()'s case,
 * a work that is over goes to p->ended.
 */
void tei_tcp_part_end(struct tcp_peer *p, struct tcp_worker *w, struct tcp_work *work, uint64_t len,
                      const struct tcp_fault *f);
/* Whether the core may post the work again after this fault. */
bool tei_tcp_may_come_again(const struct tcp_fault *f);
void tei_tcp_lane_set(struct tcp_lane *l, enum lane_state s);
/* No lane gets through: ends what is queued. */
void tei_tcp_queue_fail(struct tcp_peer *p, struct tcp_worker *w, const struct tcp_fault *f);
/* Whether there is something for a lane to take. */
bool tei_tcp_is_waiting(const struct tcp_peer *p);
/* Ends queued work that is late; returns when the next one will be. */
int64_t tei_tcp_queue_tick(struct tcp_peer *p, struct tcp_worker *w, int64_t now);
/* Why no connection came up. Who asks about a work that failed so is told the data port's address. */
extern const char tei_tcp_connecting[];
/*
 * The first error of a work, which leaves the queue; its lanes are told. The peer's lock is enough.
 */
void tei_tcp_work_fail(struct tcp_peer *p, struct tcp_work *work, const struct tcp_fault *f);
/* Puts the bundle's call in its loop unless it is there already. The peer's lock is enough. */
void tei_tcp_bundle_call(struct tcp_bundle *b);

/* ---- tcp_fence.c: WRITEs that wait for what earlier ones may still bring; peer's lock held */
static inline size_t tei_tcp_unsettled(const struct tcp_peer *p)
{
    return atomic_load_explicit(&p->n_unsettled, memory_order_relaxed);
}
/* Relaxed: it changes under the lock, and whoever looks without it was told of a WRITE's end since. */
static inline void tei_tcp_unsettled_add(struct tcp_peer *p, int change)
{
    atomic_fetch_add_explicit(&p->n_unsettled, (size_t)change, memory_order_relaxed);
}
/* Moves what has to wait from the list to p->held; returns how many are left of the `n`. */
size_t tei_tcp_fence_hold(struct tcp_peer *p, struct tei_list *works, size_t n);
/* Whether a WRITE of this range would be held; from any thread, without the lock. */
bool tei_tcp_fence_holds(struct tcp_peer *p, struct tcp_span span);
/* Something was settled: of those that wait for it, what need not wait for anything else goes on. */
void tei_tcp_fence_release(struct tcp_peer *p, struct tei_list *waiters);
/* A held work waits no more; its base.link is out of every list. */
void tei_tcp_fence_leave(struct tcp_peer *p, struct tcp_work *work);
/* There are fewer remnants, or frames in p->unsettled. */
void tei_tcp_fence_thin_out(struct tcp_peer *p);
/* Fails those that wait for it. */
void tei_tcp_fence_fail(struct tcp_peer *p, struct tei_list *waiters, const struct tcp_fault *f);
/*
 * The lane gives up its connection with a part of a WRITE to that range on it, to a peer of version 1
 * or 2, for reason f; the socket is taken over if it still matters. Both locks.
 */
void tei_tcp_fence_cut(struct tcp_lane *l, struct tcp_span span, const struct tcp_fault *f);
/* What the watchdog does; returns when next. Worker's lock held, the peer's not. */
int64_t tei_tcp_fence_tick(struct tcp_bundle *b, int64_t now);
/* Closes what is left of connections. Worker's lock held, the peer's not. */
void tei_tcp_fence_stop(struct tcp_bundle *b);

/* ---- tcp_frame.c: frames in the peer's lists; peer's lock held, worker NULL: see part_end */
/* Ends the pieces whose work has an error. */
void tei_tcp_frames_prune(struct tcp_peer *p, struct tcp_worker *w);
/* Ends the pieces of `owner`, NULL: of everybody. */
void tei_tcp_frames_cancel(struct tcp_peer *p, const void *owner, const struct tcp_fault *fault);
/* Ends them all. */
void tei_tcp_frames_fail(struct tcp_peer *p, struct tcp_worker *w, const struct tcp_fault *fault);
/* Ends works that are late; returns when the next one will be. */
int64_t tei_tcp_frames_tick(struct tcp_peer *p, struct tcp_worker *w, int64_t now);
/* Frees those in p->unsettled. */
void tei_tcp_frames_settle(struct tcp_peer *p);
/* Whether a frame waits for a DROP that was not sent yet. */
bool tei_tcp_frames_want_drop(const struct tcp_peer *p);
/* The last frame that may still bring a WRITE that has ended to that range, or NULL. */
struct tcp_frame *tei_tcp_frames_reach(const struct tcp_peer *p, const struct tcp_span *span);

/* ---- tcp_lane.c; worker's lock held, the peer's not */
/* The lane has no socket any more, which is the caller's to close. The peer's lock may be held. */
void tei_tcp_lane_let_go(struct tcp_lane *l);
/* Opens the connection of a lane that was set LANE_CONNECTING. */
void tei_tcp_lane_connect(struct tcp_lane *l, int64_t now);
/* There is no connection, for the reason of an errno value. */
void tei_tcp_lane_not_connected(struct tcp_lane *l, int err, int64_t now);
/* Whether a connection that has rested is still good. */
bool tei_tcp_lane_is_fresh(struct tcp_lane *l, int64_t now);
/* Whether a connection that broke may be tried again; stale: that is no try. */
bool tei_tcp_lane_may_retry(const struct tcp_lane *l, bool stale);
void tei_tcp_lane_retry(struct tcp_lane *l, bool stale, int64_t now);
/* Ends the connection and, for reason f unless NULL, what it carries. */
void tei_tcp_lane_abort(struct tcp_lane *l, const struct tcp_fault *f);
/* The same, with a line in the log. */
void tei_tcp_lane_fail(struct tcp_lane *l, const struct tcp_fault *f);
/* Deals with what is due; returns when to look again, TEI_NEVER if not. */
int64_t tei_tcp_lane_tick(struct tcp_lane *l, int64_t now);

/* ---- tcp_channel.c: the serving end of the native framing; worker's lock held */
void tei_tcp_channels_init(struct tei_pool *pool);
/* The session's first bytes, `n` of them, are the greeting's; false when memory is out. */
bool tei_tcp_channel_open(struct tcp_session *s, const uint8_t *bytes, size_t n);
/* Lets go of regions and memory. */
void tei_tcp_channel_close(struct tcp_session *s);
/* One step; sets what the session's watch waits for. */
enum tcp_step tei_tcp_channel_step(struct tcp_session *s);
/* The region that the payload is in by now; NULL: in none. */
struct tei_region *tei_tcp_channel_region(const struct tcp_session *s);
bool tei_tcp_channel_holds(const struct tcp_session *s, const struct tei_region *r);
/* Whether it is that connection of that client. */
bool tei_tcp_channel_is(const struct tcp_session *s, uint64_t client, uint64_t connection);
/* The connection that it asked to be dropped is gone. */
void tei_tcp_channel_dropped(struct tcp_session *s);
/* When it is late. */
int64_t tei_tcp_channel_late_at(const struct tcp_session *s);

/* ---- tcp_device.c: requests for memory of devices; worker's lock held */
void tei_tcp_stages_init(struct tei_pool *pool);
/* False when memory is out. */
bool tei_tcp_stage_open(struct tcp_session *s, bool is_read);
/*
 * The next of at most TCP_FRAME_BLOCKS ranges of the request, of any kind, in region `r`. False: its
 * device cannot be reached.
 */
bool tei_tcp_stage_add(struct tcp_session *s, const struct tei_region *r, uint64_t addr,
                       uint64_t length);
/*
 * Where the next bytes of the payload are, or are to be put, `max` at most; 0: the stage has failed.
 * Good until the next call.
 */
int tei_tcp_stage_places(struct tcp_session *s, struct iovec *iov, int room, uint64_t max);
/* The first n of those bytes have been sent or received. */
void tei_tcp_stage_moved(struct tcp_session *s, uint64_t n);
/* Whether there is a stage that has. */
bool tei_tcp_stage_failed(const struct tcp_session *s);
/*
 * Waits for the copies under way; after it no memory of the request is touched. Whether all went well.
 * No stage is accepted.
 */
bool tei_tcp_stage_close(struct tcp_session *s);
/* Frees what was not used for long; returns when there is more to free. */
int64_t tei_tcp_staging_tick(struct tcp_worker *w, int64_t now);
/* No session has a stage any more. */
void tei_tcp_staging_fini(struct tcp_worker *w);

/* ---- tcp_drop.c */
/* Ends a connection of a client, on whatever worker, and then tells the session that asked. */
bool tei_tcp_drop(struct tcp_session *asks, uint64_t client, uint64_t connection);

/* ---- tcp_ban.c */
/* The session begins, or has ended. Worker's lock held. */
void tei_tcp_ban_enter(const struct tcp_session *s);
void tei_tcp_ban_leave(const struct tcp_session *s);
/* Worker 0's lock held. */
void tei_tcp_ban_stop(struct tcp *t);

/* ---- tcp_drive.c */
/*
 * The lane has taken `n` pieces of this owner; returns how many of them are noted, all or none.
 * Worker's lock held.
 */
unsigned tei_tcp_drive_took(struct tcp_lane *l, const void *owner, unsigned n);
/* So many of those that are noted are on the lane no more. Worker's lock held. */
void tei_tcp_drive_ended(struct tcp_lane *l, const void *owner, unsigned n);
/*
 * The calling thread has posted what the lane has taken, all that its call had, and may come to
 * drive it.
 */
void tei_tcp_drive_expect(struct tcp_lane *l, const void *owner, uint64_t length);
/* A piece begins on the lane: unless a driver is there or expected the loop must heed it. */
void tei_tcp_drive_begin(struct tcp_lane *l, int64_t now);
/* Its request was sent by the thread that is expected: perhaps the reply is there already. */
void tei_tcp_drive_look(struct tcp_lane *l);
/* The lane is about to be freed. */
void tei_tcp_drive_forget(struct tcp_lane *l);
bool tei_tcp_drive(struct tei_transport *base, const struct tei_drive *d);

/* ---- tcp_server.c */
/* Advances a session as far as its bytes go, and closes it if that is the end of it. */
void tei_tcp_session_run(struct tcp_session *s);
/* Ends the sessions of a connection. Worker's lock held. */
void tei_tcp_sessions_drop(struct tcp_worker *w, uint64_t client, uint64_t connection);
struct tcp_session *tei_tcp_session_find(struct tcp_worker *w, uint64_t serial);
/* Puts it among those that are being served, or that wait for a request. */
void tei_tcp_session_serving(struct tcp_session *s, bool serving);
/* What a socket call that failed means; waits for `events` where it may go on. */
enum tcp_step tei_tcp_session_stalled(struct tcp_session *s, uint32_t events);
int tei_tcp_listen(struct tcp *t);
/* It waits for us from now on, and is not late meanwhile; it goes on, with these events. */
void tei_tcp_session_pause(struct tcp_session *s);
void tei_tcp_session_resume(struct tcp_session *s, uint32_t events);
/* Worker 0's lock held. */
void tei_tcp_unlisten(struct tcp *t);
/* Serves a connected socket from now on; takes over the fd. Worker's lock held. */
void tei_tcp_session_open(struct tcp_worker *w, int fd);
int64_t tei_tcp_sessions_tick(struct tcp_worker *w, int64_t now);
/* Closes those inside region `r`, NULL: all. Worker's lock held. */
void tei_tcp_sessions_close(struct tcp_worker *w, const struct tei_region *r);

#endif
