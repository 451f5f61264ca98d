/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_lane.h - lanes, and what is said on them. */
#ifndef TEI_TCP_LANE_H
#define TEI_TCP_LANE_H

#include "transport/tcp/tcp_drive.h"
#include "transport/tcp/tcp_fence.h"
#include "transport/tcp/tcp_piece.h"

#define TCP_CONNECT_NS     (1250 * TEI_NS_PER_MS) /* a lost SYN is sent again after 1 s */
#define TCP_BACKOFF_NS     (5 * TEI_NS_PER_MS)
#define TCP_BACKOFF_MAX_NS (200 * TEI_NS_PER_MS)
#define TCP_FRESH_NS       (1 * TEI_NS_PER_MS) /* a lane idle for longer is looked at before use */

struct tcp_classic;
struct tcp_stream;

enum lane_state {
    LANE_OFF,    /* no connection */
    LANE_PAUSED, /* none, to be tried again at retry_ns */
    LANE_CONNECTING,
    LANE_IDLE, /* connected, nothing to do */
    LANE_BUSY, /* carries something */
};

/* What became of the last wish for a lane; see tcp_warm.c. */
enum tcp_wish {
    WISH_NONE,   /* there was none, or the lane is not needed */
    WISH_OPEN,   /* it is to be opened, though no work waits */
    WISH_UP,     /* it was ready */
    WISH_FAILED, /* it could not be */
};

struct tcp_lane {
    struct tcp_bundle *bundle;
    enum lane_state state; /* both locks */
    bool ready;            /* both locks: it is up, and known to lead to the peer */
    enum tcp_wish wish;    /* peer's lock, as is the next */
    uint8_t n_wishes;      /* that have ended, modulo 256 */
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
    char ends[TEI_STORY_PATH];   /* its two addresses, with TE_SLOW_MS; worker's lock */
    struct tcp_classic *classic; /* for the peer's life: this, or the next one */
    struct tcp_stream *stream;
};

static inline struct tcp_worker *tei_tcp_worker_of(const struct tcp_lane *l)
{
    return l->bundle->worker;
}

static inline struct tcp_peer *tei_tcp_peer_of(const struct tcp_lane *l)
{
    return l->bundle->peer;
}

/*
 * What is said on the lanes to a peer. Nothing else asks which one that is. A lane carries what it has
 * taken of the queue, and keeps some of it while it has no connection, if that is to be tried again.
 */
struct tcp_exchange {
    /* What `n` lanes have beside; TE_ERR_MEMORY. */
    int (*make)(struct tcp_lane *lanes, unsigned n);
    void (*unmake)(struct tcp_lane *lanes, unsigned n);
    /* Either lock. Whether it would take something now; bytes under way. */
    bool (*takes_more)(const struct tcp_lane *l);
    uint64_t (*load)(const struct tcp_lane *l);
    /* Whether it keeps anything. */
    bool (*keeps)(const struct tcp_lane *l);
    /* Peer's lock. The last frame that may still bring a WRITE that has ended to that range: tei_tcp_frames_last(). */
    struct tcp_frame *(*reach)(const struct tcp_lane *l, const struct tei_span *span,
                               uint64_t until, bool exact);
    /* Both locks. Takes from the queue, at most so many frames, and makes it busy; false: nothing. */
    bool (*take)(struct tcp_lane *l, unsigned frames, int64_t now);
    /* The connection is up: makes it busy or idle; false when memory is out. */
    bool (*up)(struct tcp_lane *l, int64_t now);
    /* The connection is closed. What is carried ends for reason f, NULL: may be tried again. */
    void (*end)(struct tcp_lane *l, const struct tcp_fault *f);
    /* It is out, and rests. What is kept ends; others may take the rest. */
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

/* ---- tcp_piece.c; both locks */
void tei_tcp_lane_set(struct tcp_lane *l, enum lane_state s);

/* ---- tcp_lane.c; worker's lock held, the peer's not */
/* The lane has no socket any more, which is the caller's to close. The peer's lock may be held. */
void tei_tcp_lane_let_go(struct tcp_lane *l);
/* Opens the connection of a lane that was set LANE_CONNECTING. */
void tei_tcp_lane_connect(struct tcp_lane *l, int64_t now);
/* There is no connection, for the reason of an errno value. */
void tei_tcp_lane_not_connected(struct tcp_lane *l, int err, int64_t now);
/* Paused, and none is up: as if it had failed for the last time. */
void tei_tcp_lane_forsake(struct tcp_lane *l, int64_t now);
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

#endif
