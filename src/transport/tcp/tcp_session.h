/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_session.h - sessions: connections from peers, and how they are served. */
#ifndef TEI_TCP_SESSION_H
#define TEI_TCP_SESSION_H

#include "transport/tcp/tcp.h"

#define TCP_HEAD_NS  (5 * TEI_NS_PER_S) /* for the rest of a header that has begun */
#define TCP_DRAIN_NS (1 * TEI_NS_PER_S) /* for a client to heed a refusal */
#define TCP_ROUND_NS (500 * TEI_NS_PER_MS / 1000)
#define TCP_CALL_NS  (2 * TEI_NS_PER_MS) /* of a round, before others have their turn */

struct tcp_channel;
struct tcp_stage;

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
    int64_t since_ns;    /* last progress; before the first request: the beginning */
    int64_t prove_by_ns; /* its client must have proved who it is; TEI_NEVER: it has, or need not */
    struct tei_who *who; /* who that is; NULL: nobody that is known */
    bool refused;        /* for the want of a good proof; it is being told */
    bool proven;         /* has had a request of version 1 or 2 */
    bool useful;         /* a request, or a greeting, was answered */
    uint64_t serial;     /* tells it from others of this worker */
    struct tcp_channel *channel; /* of a native client, else NULL */
    struct tcp_stage *stage;     /* NULL: the request has no ranges on devices */
};

/* What becomes of a session after a step: go on at once, wait for the socket, or close it. */
enum tcp_step { STEP_MORE, STEP_WAIT, STEP_CLOSE };

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
/* The lease that its request is being served by; NULL: by none. */
const struct tei_lease *tei_tcp_channel_lease(const struct tcp_session *s);
/* Whether it is that connection of that client. */
bool tei_tcp_channel_is(const struct tcp_session *s, uint64_t client, uint64_t connection);
/* The connection that it asked to be dropped is gone. */
void tei_tcp_channel_dropped(struct tcp_session *s);
/* When it is late. */
int64_t tei_tcp_channel_late_at(const struct tcp_session *s);

/* ---- tcp_drop.c */
/* Ends a connection of a client, on whatever worker, and then tells the session that asked. */
bool tei_tcp_drop(struct tcp_session *asks, uint64_t client, uint64_t connection);

/* ---- tcp_ban.c */
/* The session begins, or has ended. Worker's lock held. */
void tei_tcp_ban_enter(const struct tcp_session *s);
void tei_tcp_ban_leave(const struct tcp_session *s);
/* Worker 0's lock held. */
void tei_tcp_ban_stop(struct tcp *t);

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
/* Worker 0's lock held. */
void tei_tcp_unlisten(struct tcp *t);
/* Serves a connected socket from now on; takes over the fd. Worker's lock held. */
void tei_tcp_session_open(struct tcp_worker *w, int fd);
/* Closes those inside region `r`, NULL: all. Worker's lock held. */
void tei_tcp_sessions_close(struct tcp_worker *w, const struct tei_region *r);
/* Closes those that serve a request by that lease. Worker's lock held. */
void tei_tcp_sessions_revoke(struct tcp_worker *w, const struct tei_lease *l);
/* Ends it, at whatever point it is. Worker's lock held. */
void tei_tcp_session_close(struct tcp_session *s);

/* ---- tcp_session_late.c; worker's lock held */
/* It waits for us from now on, and is not late meanwhile; it goes on, with these events. */
void tei_tcp_session_pause(struct tcp_session *s);
void tei_tcp_session_resume(struct tcp_session *s, uint32_t events);
static inline bool tei_tcp_session_is_paused(const struct tcp_session *s)
{
    return s->watch.events == 0;
}
/* TEI_NEVER: it may wait. */
int64_t tei_tcp_session_late_at(const struct tcp_session *s);
/* Closes those that are late; returns when another one could be. */
int64_t tei_tcp_sessions_tick(struct tcp_worker *w, int64_t now);

#endif
