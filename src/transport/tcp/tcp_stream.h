/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_stream.h - the native side of a lane; see tcp_stream.c.
 */
#ifndef TEI_TCP_STREAM_H
#define TEI_TCP_STREAM_H

#include "transport/tcp/tcp_frame.h"

#define TCP_HELLO_NS     (5 * TEI_NS_PER_S)   /* for the greeting to be answered */
#define TCP_FRAMES_MAX   64                   /* under way on a lane */
#define TCP_WINDOW_MIN   ((uint64_t)4 << 20)  /* bytes under way on a lane */
#define TCP_FRAME_SPREAD ((uint64_t)64 << 10) /* to a peer with several addresses, at least */
#define TCP_WINDOW_MAX   ((uint64_t)64 << 20)
#define TCP_PATH_NS      (2 * TEI_NS_PER_S) /* several addresses: silence of a host at one */

/* A place in the payload of a frame. */
struct tcp_cursor {
    unsigned block;
    uint64_t off; /* in it */
};

/* What was sent without a copy on one socket; see tcp_zerocopy.c. */
struct tcp_zerocopy {
    bool on, keep;       /* keep: even where the kernel copies */
    uint32_t sent, done; /* calls so far; noticed without a gap */
    uint32_t early;      /* noticed beyond the gap */
};

/* The native side of a lane. Worker's lock, but for `flight`, see tcp.h. */
struct tcp_stream {
    struct tei_list flight; /* frames sent or to be sent, in the order of their answers */
    unsigned n_flight;
    uint64_t bytes_flight; /* payload of these */
    uint64_t connection;   /* number of this connection among those of the instance */
    uint64_t next_id;
    bool crc;
    struct tei_proof *proof; /* of TE_AUTH, until the greeting is answered; NULL: none is needed */
    /* Sending. */
    struct tcp_frame *next;  /* the first one not wholly sent; NULL: there is none */
    struct tcp_cursor out;   /* in its payload */
    bool blocked;            /* the socket takes no more */
    _Atomic uint64_t unsent; /* bytes of the frames that wait for it; read with either lock */
    struct tcp_zerocopy zero;
    struct tei_list pinned; /* frames that were acknowledged, but may still be read by the kernel */
    /* Receiving the answer to the first frame of `flight`. */
    uint8_t head[TCP_FRAME_LEN], trailer[TCP_TRAILER_LEN];
    size_t head_got, trailer_got;
    struct tcp_cursor in;
    uint64_t left; /* payload still to come */
    uint32_t crc_in;
    bool heard;          /* anything since the lane was last idle */
    bool closed;         /* by the peer, as it seems: a reset may be somebody else's */
    bool ended;          /* its end was read: the peer applies nothing of it any more */
    bool forgive;        /* that it breaks is no try of its frames */
    int64_t deadline_ns; /* of the works under way, the first, or an earlier one */
    int64_t looked_ns;   /* at the path, when nothing had moved for long */
    /* How much to keep under way. */
    uint64_t window;
    uint64_t delivered; /* bytes of payload answered so far */
    uint64_t rate;      /* the best of late, bytes a second */
    int64_t rtt_ns;     /* the shortest of late */
    uint64_t pace;      /* bytes a second in the long run, 0: not known */
    uint64_t busy_bytes;
    int64_t busy_ns, busy_since_ns;
    int64_t renew_ns; /* when these two are to be learnt anew */
};

/* What has come, or not. */
enum tcp_reply {
    REPLY_NONE,
    REPLY_LOST,
    REPLY_WRONG,
    REPLY_STRANGER, /* another engine, by its own word: what was sent to the old one is settled */
    REPLY_FOREIGN,  /* no engine that can be understood */
    REPLY_UNKNOWN,
    REPLY_DEMANDING,
    REPLY_CORRUPT,
    REPLY_SECURED, /* TE_AUTH there, and not here */
    REPLY_OPEN,    /* the other way round */
    REPLY_NO_ID,
    REPLY_OTHER_KEY,
    REPLY_TICKET, /* the ticket is outdated: the handshake port gives another one */
    REPLY_OWN,
};

/* ---- tcp_native.c */
/* The connection broke for reason f; again: its frames may go out on another. Worker's lock. */
void tei_tcp_stream_broken(struct tcp_lane *l, const struct tcp_fault *f, bool again, int64_t now);

/* ---- tcp_stream.c */
/* Whether it would take another frame now; either lock. */
bool tei_tcp_stream_has_room(const struct tcp_lane *l);
/* Gives it at most so many frames; false if there was nothing for it. Both locks. */
bool tei_tcp_stream_fill(struct tcp_lane *l, unsigned frames, int64_t now);
/* A frame is to be sent, and answered. Both locks. */
void tei_tcp_stream_add(struct tcp_lane *l, struct tcp_frame *f);
/*
 * A WRITE of which nothing was sent leaves the flight, and goes out again without what has failed.
 * Both locks.
 */
void tei_tcp_stream_pull_back(struct tcp_lane *l, struct tcp_frame *f);
/*
 * Sends, and takes more to send as long as the socket has room; false if the connection is lost.
 * Worker's lock.
 */
bool tei_tcp_stream_pump(struct tcp_lane *l, int64_t now);
/* One call; *more: there may be more at once. Worker's lock. */
enum tcp_reply tei_tcp_stream_receive(struct tcp_lane *l, int64_t now, bool *more);
/* Takes the kernel's notices, and ends what waited for them. Worker's lock. */
void tei_tcp_stream_unpin(struct tcp_lane *l);

/* ---- tcp_path.c */
/* For one of several ways to the same peer: its end is to be noticed within 3 s. */
void tei_tcp_path_tune(int fd);
/* When to look whether the path is alive: only where there is another. */
int64_t tei_tcp_path_look_at(const struct tcp_lane *l);
/* Looks, if it is time; gives the connection up if the other host confirms nothing any more. */
bool tei_tcp_path_leave(struct tcp_lane *l, int64_t now);

/* ---- tcp_window.c; both locks */
void tei_tcp_window_init(struct tcp_lane *l);
/* A frame was answered, and is still counted as under way. */
void tei_tcp_window_learn(struct tcp_lane *l, const struct tcp_frame *f, int64_t now);
/* How much payload a frame should have. */
uint64_t tei_tcp_window_frame(const struct tcp_lane *l);

/* ---- tcp_zerocopy.c */
/* near: the peer is on this host. */
void tei_tcp_zerocopy_start(struct tcp_zerocopy *z, int fd, enum tei_zerocopy mode, bool near);
/* A call with MSG_ZEROCOPY has sent something; its number, never 0 until 2^32 of them. */
uint32_t tei_tcp_zerocopy_sent(struct tcp_zerocopy *z);
/* Whether the kernel is through with all calls up to number `last`, 0: there is none. */
bool tei_tcp_zerocopy_is_over(const struct tcp_zerocopy *z, uint32_t last);
void tei_tcp_zerocopy_reap(struct tcp_zerocopy *z, int fd);
/* Before the socket is closed: the kernel is to let go of the memory with it. */
void tei_tcp_zerocopy_end(const struct tcp_zerocopy *z, int fd);

#endif
