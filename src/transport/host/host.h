/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - private to src/transport/host: the transport to engines of other processes of this host.
 *
 * The initiator's threads copy; the owner of the memory does nothing. Two ways lead into the owner:
 * memory of its te_alloc() is a memfd that the initiator maps too, if all of it is registered; any
 * other is read and written with process_vm_readv and process_vm_writev, if the owner is of our user
 * and has proved to be the process of that number. Where the kernel refuses these two, between the
 * processes or to the initiator at all, the first way alone is left.
 *
 *   initiator                                            owner
 *   host_peer   --- unix socket: greeting, memfds --->   host_session, on te/host
 *   host_run    --- reads --->  host_table               slots of its regions, which it alone writes
 *               --- writes -->  host_hazards             "I am writing in slot s", one per session
 *               === copies ==>  the memory
 *
 * Locks. loop_lock (the loop's, held in its callbacks) guards sessions and the list of peers; a
 * peer's lock its picture of the owner; table_lock the slots; the copier's its work. Order: loop_lock,
 * then one of the others; these are leaves. The core is called with none held.
 *
 *   host.c         the ops, from first to last
 *   host_who.c     whether two processes may reach each other
 *   host_wire.c    messages and keys, without a socket
 *   host_sock.c    packets and descriptors on the unix socket
 *   host_table.c   the owner: slots, and the fence around a region that goes
 *   host_serve.c   the owner: listening, sessions
 *   host_peer.c    the initiator: greeting, and the picture of the owner's regions
 *   host_run.c     the initiator: one copy
 */
#ifndef TEI_HOST_H
#define TEI_HOST_H

#include "base/loop.h"
#include "base/os.h"
#include "base/pages.h"
#include "plat/plat.h"
#include "transport/copier.h"
#include "transport/host/host_wire.h"
#include "transport/transport.h"

#include <pthread.h>

#define HOST_GUESTS_MAX 32 /* threads of the caller that post or copy at a time */
_Static_assert(TEI_COPY_THREADS + HOST_GUESTS_MAX <= HOST_HAZARDS, "each writer has a hazard");

struct host;

/* -------------------------------------------------------------------------------------- owner */

/* An allocation that others may map, with regions of ours in it. Under table_lock. */
struct host_memory {
    uint64_t id;
    struct tei_share *share;   /* held once */
    size_t readable, writable; /* bytes that are registered so; regions never overlap */
    size_t regions;
};

/* What the owner keeps about a slot. Under table_lock. */
struct host_owned {
    struct host_memory *memory; /* NULL: not shareable */
    size_t readable, writable;  /* what it adds to those */
    uint32_t next_free;         /* index + 1, 0 at the end */
};

/* A connected initiator. Under loop_lock, but for the words of `hazards`, which it writes. */
struct host_session {
    struct tei_link link;
    struct host *h;
    struct tei_watch watch;
    struct tei_timer timer;          /* until it has said hello */
    struct host_hazards *hazards;    /* NULL before that */
    bool has_memory;                 /* it was given a memfd */
    unsigned char proof[HOST_NONCE]; /* it has had this written, and reads it here */
    struct tei_proof *proving;       /* of TE_AUTH, while it is greeted */
    bool is_known;                   /* it has proved who it is */
    pid_t pid;
    int pidfd;                    /* -1: not known */
    unsigned refs;                /* the list's, and that of a fence that waits */
    uint32_t stuck[HOST_HAZARDS]; /* words that a fence has waited for in vain */
};

/* ---------------------------------------------------------------------------------- initiator */

/* A memfd of the owner, mapped. Under the peer's lock. */
struct host_map {
    struct tei_link link;
    uint64_t id;
    char *base;
    size_t size;
    bool read_only;       /* sealed so */
    int64_t ask_again_ns; /* it was asked for, and the answer may have been lost by then; 0: not */
    bool withheld;        /* not to be had when it was asked for last */
    uint64_t asked_at;    /* `seen` of the peer then */
    unsigned users;       /* regions known in it, and copies under way */
};

/* A region of the owner as last seen in the table. Under the peer's lock. */
struct host_known {
    uint64_t addr, length, memory, offset;
    uint32_t slot, epoch;
    unsigned access;
    struct host_map *map; /* NULL: not shareable */
    bool refused;         /* process_vm cannot reach its pages, or may not: `access` is 0 */
};

/* An owner, shared by all attachments to it. */
struct host_peer {
    struct tei_link link; /* in host.peers, under loop_lock with refs */
    unsigned refs;
    struct host *h;
    unsigned char nonce[HOST_NONCE];
    const char *expected;         /* tei_hostport.expected of the first who asked for it */
    pid_t pid;                    /* for process_vm, and messages */
    bool memfd_only;              /* process_vm is refused; does not change after the greeting */
    bool by_number;               /* only that led to the pidfd, not the socket */
    struct tei_watch watch, life; /* socket and process; under loop_lock */
    int fd, pidfd;
    int ends; /* epoll of both */
    /* It is gone, or may not be touched any more: an errno value, or -1; else 0. */
    _Atomic int broken;
    const struct host_table *table;
    struct host_hazards *hazards;
    pthread_mutex_t lock; /* the rest */
    void *known;          /* tsearch tree of struct host_known by address */
    struct host_known **by_slot;
    size_t n_by_slot;
    _Atomic uint64_t seen;    /* of the table's log; changes under `lock` */
    bool collided;            /* the picture may lack a region */
    _Atomic size_t n_refused; /* known regions with `refused` */
    struct tei_list maps;
    uint64_t free_hazards; /* a bit each */
};

struct host_attach {
    struct tei_attach base;
    struct host_peer *peer;
};

/* A part of a work, and what tei_host_peer_find() has found for it. */
struct host_piece {
    struct tei_part *part;
    uint32_t slot, epoch;
    struct host_map *map; /* held; NULL: process_vm */
    char *mapped;
};

/* What one thread copies at a time: parts of one opcode, for one peer. */
struct host_run {
    struct host_peer *peer;
    int opcode;
    size_t n;
    struct host_piece pieces[TEI_COPY_PARTS];
};

/* ------------------------------------------------------------------------------------ instance */

struct host {
    struct tei_transport base;
    const struct tei_conf *conf;
    bool ready; /* locks and lists exist */
    struct host_keys keys;
    uint64_t began; /* of this process, in clock ticks */

    int table_fd;
    struct host_table *table;
    pthread_mutex_t table_lock;
    struct host_owned *owned;
    size_t n_owned;
    void *memories;     /* tsearch tree of struct host_memory by id */
    uint32_t free_slot; /* index + 1, 0: none */

    pthread_mutex_t loop_lock;
    struct tei_loop loop;
    struct tei_watch listener;
    struct tei_timer rest; /* of the listener, when it cannot accept */
    struct tei_list sessions, peers;
    size_t n_sessions, n_peers;

    struct tei_copier copier;
};

static inline struct host *tei_host_of(struct tei_transport *t)
{
    return tei_container_of(t, struct host, base);
}

/* ---- host_who.c */
/* Whether it may be the same host as the peer's; else says why not. */
bool tei_host_who_fits(const struct tei_conf *conf, const struct host_keys *peer, char *why,
                       size_t n);
/*
 * The process at the other end of a connected socket, whose number is `pid`: by the socket itself, or
 * where the kernel does not know that yet, by the number, and *by_number is true. To be closed with
 * tei_fd_close(); -1 with errno: ESRCH if it has ended.
 */
int tei_host_who_pidfd(int socket, pid_t pid, bool *by_number);
/* One system call. False for -1. */
bool tei_host_who_has_ended(int pidfd);
/* Whether it runs as our user, real, effective and saved. */
bool tei_host_who_is_ours(pid_t pid);
/* Whether it is in our user, pid and mount namespaces, else, or if that is not known, says which. */
bool tei_host_who_is_among_us(pid_t pid, char *why, size_t n);

/* ---- host_sock.c */
/* Listening on an abstract name of its own choice, written to `name`; -1 with errno. */
int tei_host_listen(char name[HOST_SOCKET + 1]);
/* Connected, -1 with errno. What sends and receives does not block. */
int tei_host_connect(const char *name, int64_t timeout_ms);
/* Process and user at the other end; false with errno. */
bool tei_host_credentials(int fd, pid_t *pid, uid_t *uid);
/* Sends at once or not at all; false with errno. */
bool tei_host_send(int fd, const struct host_msg *m, const int *fds, size_t n_fds);
/*
 * One message, with the descriptors that came with it, of which *n_fds are the caller's now. 1; 0
 * if none is there, or this process may open no more descriptors; -1 if the other side is gone or
 * sent what it must not. *sender: the process that has sent it, told to an owner alone, else 0.
 */
int tei_host_recv(int fd, bool from_owner, struct host_msg *m, int fds[HOST_FDS], size_t *n_fds,
                  pid_t *sender);

/* ---- host_table.c */
int tei_host_table_open(struct host *h);
void tei_host_table_close(struct host *h);
int tei_host_region_add(struct tei_transport *t, struct tei_region *r);
int tei_host_region_del(struct tei_transport *t, struct tei_region *r);
/*
 * The memfd that the slot's region lies in, held, and its number; NULL, and why, if there is none or it
 * may not be given away.
 */
struct tei_share *tei_host_table_share(struct host *h, uint32_t slot, uint64_t *id,
                                       enum host_status *status);

/* ---- host_serve.c */
int tei_host_serve_open(struct host *h);
/* The thread is gone. */
void tei_host_serve_close(struct host *h);
/* Tells those that have memory of ours that some has left the table. */
void tei_host_serve_changed(struct host *h);
/* The caller holds loop_lock. */
void tei_host_session_put(struct host_session *s);

/* ---- host_auth.c */
/* Whether the initiator must still prove who it is: nothing else is read from it. */
bool tei_host_auth_needed(const struct host_session *s);
/* A packet of that has come; false: the session is to be closed. */
bool tei_host_auth_read(struct host_session *s);
/* The session is closed for having said nothing in time. */
void tei_host_auth_late(struct host_session *s);
void tei_host_auth_end(struct host_session *s);
/* Proves to the owner who we are, and has it prove that it is the one of the descriptor; false, and why not. */
bool tei_host_auth_prove(struct host_peer *p, const struct tei_ticket *ticket, char *why, size_t n);

/* ---- host_peer.c */
/* Finds the peer or greets it; TE_ERR_UNSUPPORTED with the reason in te_errmsg(). */
int tei_host_peer_get(struct host *h, const struct host_keys *k, const char *expected,
                      const struct tei_ticket *ticket, struct host_peer **out);
void tei_host_peer_put(struct host_peer *p);
/* Stops watching it; loop_lock is held. */
void tei_host_peer_unwatch(struct host_peer *p);
/* Finds the pieces in the owner's table: slot, epoch and map, or error. */
void tei_host_peer_find(struct host_peer *p, struct host_run *run);
/* Lets go of what it has found. */
void tei_host_peer_release(struct host_peer *p, struct host_run *run);
/* A free hazard; there always is one. */
struct host_hazard *tei_host_peer_hazard(struct host_peer *p);
void tei_host_peer_unhazard(struct host_peer *p, struct host_hazard *z);
/* The region of the slot is beyond process_vm. */
void tei_host_peer_refuse(struct host_peer *p, uint32_t slot, uint32_t epoch);
/*
 * Of a request for that range: 0 if some of it is beyond process_vm and cannot be mapped either;
 * TEI_SCORE_LATER if it can be, and its memfd, which is asked for, is not here yet.
 */
unsigned tei_host_peer_score(struct host_peer *p, const te_request *r);
/* Why it has no better score, in words. */
const char *tei_host_peer_why(struct host_peer *p, const te_request *r);
/* Whether it is gone: its socket closed, or its process ended. One system call. */
bool tei_host_peer_is_gone(struct host_peer *p);
/* What host_peer.broken says, in words. */
const char *tei_host_broken_text(int broken);

/* ---- host_run.c */
/* Copies a run of the copier. */
void tei_host_copy(struct tei_transport *t, struct tei_copy_run *parts);

#endif
