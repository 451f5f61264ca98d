/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.h - what the parts of a run share: its hosts, and memory of which each byte may be sure.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "load.h"
#include "sim.h"
#include "te.h"
#include "te_counter.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIVES        6 /* of a host, at most */
#define USERS        2 /* of a host */
#define SLOTS        3 /* of a user, in the memory of each host */
#define EXTRA        (64 * 1024)
#define RESETS       16
#define SIM_COUNTERS 2 /* of an engine */

#define SIM_NOWHERE ((void *)0x20000) /* nothing is ever mapped there */

struct slot {
    unsigned char *want;
    bool *sure;
    bool busy; /* a WRITE of it is under way */
};

/* A batch, by what te_done() may say of it. */
struct run {
    te_batch batch;
    unsigned submits, told;
    struct run *next;
};

/* Which transports may carry requests to a segment, or of a call. */
struct sim_rules {
    bool is_known;
    unsigned allowed; /* bits, as path_load.c counts them */
    int first;        /* the first that is preferred, -1: none */
};

/* What an engine's segments of each host are opened with. */
struct sim_book {
    struct sim_rules rules[SIM_HOSTS];
    const struct life *of[SIM_HOSTS]; /* the life of the host that they are of */
    unsigned epoch[SIM_HOSTS];        /* another one once they may have changed */
    unsigned openings[SIM_HOSTS];     /* ever */
    unsigned closing[SIM_HOSTS];      /* calls of te_close() under way */
    bool written[SIM_HOSTS];          /* there were WRITEs when it was closed once */
};

/* A host's life: a new one begins with each start. */
struct life {
    te_engine *engine;
    unsigned retries; /* MC_RETRY_CNT */
    bool is_v1;       /* MC_TCP_PROTO */
    bool is_native;   /* TE_TCP_NATIVE */
    char name[64];
    char *memory, *extra;
    struct slot *slots;
    bool over;
    int host;
    unsigned
        there; /* odd while `extra` is registered, another number each time; wake: it goes, or comes */
    int64_t stays_until;        /* it does not go before */
    struct run *runs;           /* all that ever were, the newest first */
    uint16_t opens[SIM_HOSTS];  /* of the segment of each host, that are not closed */
    uint16_t writes[SIM_HOSTS]; /* to it, since none was open */
    struct sim_tally *tallies[SIM_COUNTERS];
    struct sim_lent *lent; /* the memory that leases are of; NULL: there are none in the run */
};

/* An engine that comes and goes. */
struct guest {
    char name[64]; /* empty: is not up */
    char *memory;
    int host;
    unsigned visitors;
    bool is_stranger; /* has gone, and what is no engine is in its place */
};

struct user {
    struct host *host;
    int index;
    pthread_t thread;
    char *local;                       /* for each slot as much */
    bool done;                         /* with its rounds */
    bool waits;                        /* requests of it are held, and use its memory */
    struct sim_hold *holds[SIM_HOSTS]; /* what it has of a counter of each */
    unsigned lease_doubts[SIM_HOSTS]; /* of each, the last by which a WRITE did not end COMPLETED */
};

struct host {
    int number;
    struct life *life; /* NULL: is not up */
    struct user users[USERS];
    int lives;           /* that have begun */
    bool through;        /* all that it was to do is done */
    int64_t stood_until; /* it was frozen, or is */
    int64_t
        broke_at; /* its te_unregister() has ended connections, or te_revoke(), the last time; 0: never */
    unsigned takes_away; /* calls of these under way; before the first it had closed so many: */
    unsigned had_closed;
    struct guest guests[USERS];
    struct sim_book book;           /* of its life */
    size_t n_paged[SIM_HOSTS];      /* pieces of pages that it has under way to each */
    int64_t paged_until[SIM_HOSTS]; /* there were some; 0: never */
    bool spoke_classic;             /* had a life with version 1 or 2 */
};

extern struct sim_world {
    struct sim_knobs knobs;
    size_t slot;                                                    /* its bytes */
    enum { STORE_NONE, STORE_HTTP, STORE_REDIS, STORE_ETCD } store; /* by what engines meet */
    struct host hosts[SIM_HOSTS];
    bool is_quiet; /* faults have stopped, and what they did is over */
    int n_told;    /* hosts that have seen by themselves that others change */
    int64_t quiet_since;
    struct sim_counts counts;
    struct {
        int64_t at;
        int a, b;     /* between which hosts, 0: any */
    } resets[RESETS]; /* a ring */
    unsigned n_resets;
} sim_world;

/* world.c. A call of the library that must succeed; memory with a gap behind it, for a request may
 * span regions that adjoin; whether anybody may touch it. */
void sim_ok(int rc, const char *what);
char *sim_pages(size_t size);
void sim_allow(char *at, size_t size, bool yes);

/* Register and unregister memory; try again as long as it fails for a metadata server out of reach. */
bool sim_may_try_again(int rc);
void sim_register(te_engine *e, void *at, size_t length, unsigned access);
void sim_unregister(te_engine *e, void *at);

/* Of a host: all slots; that of a user of this life; what is sure of it must be there. */
size_t sim_memory_size(void);
size_t sim_slot_number(const struct user *u, int slot);
void sim_check_slot(const struct life *l, const struct user *u, int slot);

/* Of any host, NULL if that is not up. */
struct life *sim_any_life(void);

/* What a request is to bring about. */
struct intent {
    int opcode;
    struct slot *slot;
    size_t at, length;
    char *local;
};

/* user.c. A request from or to a part of a slot, and its end, of which only that it has come is known. */
struct intent sim_intend(struct user *u, struct life *to, int slot, int opcode, size_t at,
                         size_t length);
struct te_request sim_request_of(const struct user *u, const struct life *to, te_segment seg,
                                 const struct intent *i, int slot);
void sim_conclude(const struct intent *i, int state, const struct life *l);
te_batch sim_batch(struct life *own, size_t capacity, unsigned submits);
/* One of slots towards a life of a host; true if all of it is COMPLETED. */
bool sim_run_batch(struct user *u, struct life *to, te_segment seg, int64_t deadline_ms);
/* te_wait(), which does not give up before its time. */
int sim_wait(te_engine *e, te_batch b, int64_t ms);
/* Until all has ended, which it must some time beyond its deadline; 0: it has none. */
void sim_await_end(te_engine *e, te_batch b, int64_t deadline_ms);
/* How much later a request to it without one may end, for the pieces of pages in line with it; NULL: to any host. */
int64_t sim_queue_ns(const struct life *to);
void sim_await_canceled(const struct life *own, te_batch b);
/* Within which what is to go on does so: longer where threads have no processor for seconds. */
int64_t sim_patience(void);
/* A request that has ended, and was not cancelled: whether it may have ended so. */
struct sim_judged {
    bool in_time; /* has no deadline */
    bool fresh;   /* nothing was written to that segment before, since it was opened */
    int64_t begin;
};
void sim_check_connected(const char *why);
int sim_check_end(const struct life *own, te_batch b, size_t task, const struct life *to,
                  struct sim_judged how);
/* Of requests to slots from `first` on, which have all ended: whether all of it is COMPLETED. `how` NULL: cancelled. */
bool sim_end_slots(const struct user *u, te_batch b, struct life *to, const struct intent *intents,
                   size_t first, size_t n, const struct sim_judged *how);
void sim_check_extra(const struct life *own, te_batch b, const struct life *to, unsigned there);
/* A request to a host is about to be submitted. */
void sim_count_write(struct life *own, const struct life *to, int opcode);
/* te_open() and te_close() of the segment of a host. */
int sim_open(struct life *own, const struct life *to, te_segment *seg);
int sim_open_with(struct life *own, const struct life *to, const te_paths *paths,
                  const struct sim_rules *rules, te_segment *seg);
void sim_close(struct life *own, const struct life *to, te_segment seg);

/* By a prepared list, all of one direction. */
int sim_submit_prepared(te_engine *e, te_batch b, const te_request *reqs, size_t n,
                        const te_submit_opts *opts);

/* rare.c. About what the bytes of a slot take. */
int64_t sim_time_to(int from, int to);
/* One of what the run has that can befall these two, for so long. */
void sim_trouble(int from, int to, int64_t ns);
/* What seldom meets by chance. It may leave the segment closed, SIM_CLOSED. */
#define SIM_CLOSED (-1)
void sim_rewrite(struct user *u, struct life *to, te_segment *seg);
void sim_submit_beside_wait(struct user *u, struct life *to, te_segment seg);
void sim_read_beside_reset(struct user *u, struct life *to, te_segment seg);
void sim_write_beside_break(struct user *u, struct life *to, te_segment seg);
void sim_unregister_beside(struct user *u, te_batch b, size_t n);
void sim_write_unreadable(struct user *u, const struct life *to, te_segment seg);
void sim_refused_calls(struct user *u, te_segment seg);

/* fetch.c; as above. */
void sim_park_beside_fetch(struct user *u, struct life *to, te_segment *seg);
void sim_close_beside_refresh(struct user *u, struct life *to, te_segment *seg);

/* What a batch writes: bytes of slots from that one on, at its target. */
struct sim_range {
    size_t at, length;
};
struct sim_claim {
    const struct life *to;
    size_t slot, n;
    struct sim_range *ranges;
};

/* page_load.c. A request of pages of that batch, its first one, to all slots of the user; what it writes; until
 * it has ended, which it must some time after its deadline, or after the last that has moved (0); its state, and lets go
 * of it; some of them; whether one is COMPLETED. */
struct sim_paged;
struct sim_paged *sim_pages_submit(struct user *u, struct life *to, te_segment seg, te_batch b,
                                   int opcode, const te_submit_opts *opts);
struct sim_claim sim_pages_claim(const struct sim_paged *p);
void sim_pages_await(const struct sim_paged *p, int64_t deadline_ms);
int sim_pages_end(struct sim_paged *p, bool canceled);
void sim_pages_use(struct user *u, struct life *to, te_segment seg);
bool sim_pages_reach(struct user *u, struct life *to, te_segment seg);

/* count_load.c. Counters, where the run has any: of a new engine; who waits for them, a thread; additions to those of a
 * host; all of them counted once nothing is wrong any more; what they are in the end. */
void sim_counts_begin(struct life *l);
void *sim_counts_main(void *life);
void sim_counts_use(struct user *u, struct life *to);
void sim_counts_reach(struct user *u);
void sim_counts_end(struct life *l);

/* lease_load.c. Leases, where the run has any: the memory, so much of it, of a new engine; who grants and revokes them, a
 * thread; requests by their keys; whether all is there that is written so; the last one is revoked. */
size_t sim_leases_size(void);
void sim_leases_begin(struct life *l, char *memory, size_t size);
void *sim_leases_main(void *life);
void sim_leases_use(struct user *u, struct life *to, te_segment seg);
bool sim_leases_reach(struct user *u, struct life *to, te_segment seg);
void sim_leases_end(struct life *l);
/* For those who mean harm: some place in the memory that leases are of; a key that opens nothing, 24 bytes, in place of
 * the random ones that are there. */
char *sim_leases_place(const struct life *l);
void sim_leases_wrong_key(const struct life *l, uint8_t *key);

/* foe.c. Hosts that mean harm, from that one on. */
#define SIM_FOES 3
void sim_foes_lay(int first);

/* gate_load.c. Requests that wait: some of them; whether some that were let go on are COMPLETED; one that waits when the
 * engine ends, and what must be true of it then. */
struct sim_left;
void sim_gates_use(struct user *u, struct life *to, te_segment seg);
bool sim_gates_reach(struct user *u, struct life *to, te_segment seg);
struct sim_left *sim_gates_leave(const struct user *u, te_engine *e, const struct life *to);
void sim_gates_left(struct sim_left *l);

/* path_load.c. Requests by paths that are asked for; once nothing is wrong, whether one of them is COMPLETED and all is
 * connected. */
void sim_paths_use(struct user *u, struct life *to, te_segment *seg);
bool sim_paths_reach(struct user *u, struct life *to, te_segment seg);

/* past.c. Before hosts begin; whether the library is 0.1; calls that it lacks, or does without. */
void sim_past_look(void);
bool sim_is_past(void);
void sim_segment_json(te_engine *e, te_segment seg, char *json, size_t n); /* not in 0.1 */
void *sim_alloc(te_engine *e, size_t n, const te_alloc_opts *opts);
extern struct sim_later { /* not in 0.1, which is not asked for them */
    __typeof__(&te_submit_pages) submit_pages;
    __typeof__(&te_counter_create) counter_create;
    __typeof__(&te_counter_destroy) counter_destroy;
    __typeof__(&te_counter_value) counter_value;
    __typeof__(&te_counter_wait) counter_wait;
    __typeof__(&te_counter_fd) counter_fd;
    __typeof__(&te_adder_open) adder_open;
    __typeof__(&te_adder_after) adder_after;
    __typeof__(&te_adder_flush) adder_flush;
    __typeof__(&te_adder_close) adder_close;
    __typeof__(&te_open_with) open_with;
    __typeof__(&te_path) path;
    __typeof__(&te_warm) warm;
    __typeof__(&te_lease_grant) lease_grant;
    __typeof__(&te_revoke) revoke;
} sim_later;

/* guest.c. */
void sim_keep_guest(struct user *u);
void sim_visit_guest(struct user *u);
/* te_engine_destroy(), which must end. */
void sim_destroy(te_engine *e, const struct host *h);

/* host.c. A new engine of a host, with its transport installed; *l is told of its options. */
te_engine *sim_make_engine(const struct host *h, int port, struct life *l);
/* Around a call that may end connections of peers; what the first has given is for the second. */
unsigned sim_breaks_begin(struct host *h);
void sim_breaks_end(struct host *h, unsigned had_closed);

/* user.c, host.c: threads. `arg` is the user, or the host that starts. */
void *sim_user_main(void *arg);
void *sim_host_main(void *arg);

/* disk_load.c. Files, where the run has any: laid before hosts begin; for an engine; requests to them of a user; all
 * of a batch COMPLETED once nothing is wrong any more; a batch that is under way when the engine ends. */
void sim_files_lay(void);
void sim_files_options(te_options *o);
void sim_files_install(te_engine *e);
void sim_files_use(struct user *u);
void sim_files_reach(struct user *u);
void sim_files_leave(struct user *u, te_engine *e);
void sim_files_quiet(void);
void sim_files_check(void); /* that all is there which is sure */

/* nics.c. NICs by softverbs, where the run has any, as with files. */
void sim_nics_lay(void);
void sim_nics_options(te_options *o);
void sim_nics_install(te_engine *e, int host);
void sim_nics_quiet(void);

/* gpus.c. GPUs by softgpu, where the run has any, as with files. Memory of a device of the caller's host, NULL: of
 * none, this time; where the run looks at memory of any sort, and its location for te_register(); before the process
 * of the caller ends. */
void sim_gpus_lay(void);
void sim_gpus_options(te_options *o);
char *sim_gpu_memory(size_t size);
void *sim_view(const void *at);
const char *sim_location(const void *at);
void sim_gpus_end(void);
void sim_gpus_quiet(void);

/* faults.c. One of those that the run has, now; and what may go wrong at any time. */
void sim_one_fault(void);
void sim_freeze(int host, int64_t ns);
void sim_cut(int from, int to, int64_t ns);
void sim_reset(int a, int b); /* a connection between them; 0: any */
/* Whether a host was frozen at some time since. */
bool sim_stood(int host, int64_t since);
void sim_set_chances(bool on);
bool sim_kill_host(struct host *h); /* false: not yet, it has locks; or it has no life left */

#endif
