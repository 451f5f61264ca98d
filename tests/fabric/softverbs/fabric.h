/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fabric.h - what one process keeps of the fabric, and what the files of softverbs share.
 *
 *   fabric.c   opening the state file, slots of processes, holds and fences, mail
 *   config.c   the JSON description and the tree that looks like sysfs
 *   device.c   devices, contexts, queries      memory.c  PDs and MRs
 *   cq.c       CQs, channels, async events     qp.c      QPs and their states
 *   post.c     posting                         engine.c  the thread that carries work out
 *   move.c     one work request: whom it reaches, what it may touch, the copying
 *   control.c  the controls, also in softverbs_ctl
 *
 * Locks of a process, in the order taken: fabric.objects, pause of a QP (engine.c), qp.lock,
 * cq.lock, channel and context locks. fabric.run_lock, which guards the engine's schedule, is a
 * leaf. Shared locks (shared.h) are leaves, too.
 */
#ifndef SOFTVERBS_FABRIC_H
#define SOFTVERBS_FABRIC_H

#include "fabric/softverbs/shared.h"
#include "fabric/softverbs/softverbs.h"

#include <sys/types.h>

#define SV_MAX_MSG (1u << 30)
#define SV_US      1000
#define SV_MS      1000000

struct sv_config { /* what the JSON file says */
    char dir[4096 - 64];
    uint64_t hash;
    uint32_t n_nics;
    struct sv_nic nics[SV_MAX_NICS];
};

struct sv_peer { /* another process, by its slot */
    uint32_t pid;
    uint64_t start;
    int pidfd; /* -1: none */
    int64_t checked;
    bool alive;
};

struct sv_fabric {
    struct sv_fabric *next; /* of another process that this one plays, too */
    unsigned refs;
    bool forked; /* this is a child of the process that opened it: all of it is dead */
    char dir[4096 - 64];
    char label[64];
    struct sv_state *s;
    struct sv_proc *me;
    uint32_t slot;
    uint32_t pid;
    struct sv_peer peers[SV_MAX_PROCS]; /* the engine's */

    pthread_mutex_t objects; /* the lists of contexts, QPs and CQs */
    struct sv_context *contexts;
    struct sv_qp *qps;
    struct sv_qp **by_slot; /* local QPs by index in the shared table */
    struct sv_cq *cqs;
    _Atomic bool cq_overrun;
    pthread_mutex_t mail_lock; /* readers of this process's mailbox */

    pthread_t engine;
    pthread_mutex_t run_lock;
    pthread_cond_t idle;   /* the engine left a QP */
    struct sv_qp *kicked;  /* list: something new to look at */
    struct sv_qp *running; /* being looked at */
    struct sv_qp **heap;   /* by `due` */
    uint32_t heap_len, heap_cap;
    bool quit;
};

struct sv_device {
    struct ibv_device dev;
    struct sv_fabric *f;
    uint32_t nic;
};

struct sv_async { /* an event in the queue of a context */
    struct sv_async *next;
    struct ibv_async_event event;
};

struct sv_context {
    struct sv_context *next;
    struct sv_fabric *f;
    struct sv_nic *nic;
    struct sv_counters *counters;
    uint32_t nic_index, generation;
    uint64_t event_seq; /* the engine's: events of the NIC seen */
    _Atomic int n_pd, n_cq, n_qp, n_mr;
    pthread_mutex_t lock;
    pthread_cond_t acked;
    struct sv_async *events, **events_end;
    struct ibv_device device; /* a copy: the list it came from may be freed */
    struct verbs_context v;
};

struct sv_pd {
    struct ibv_pd pd;
    _Atomic int users;
};

struct sv_local_mr {
    struct ibv_mr mr;
    struct sv_fabric *f;
    void *map; /* of a dma-buf, NULL: it is none */
    void (*unmap)(void *map, size_t length);
};

struct sv_channel {
    struct ibv_comp_channel channel;
    pthread_mutex_t lock;
    struct sv_cq **queue; /* CQs with an event, oldest first */
    unsigned queued, capacity;
};

struct sv_cqe {
    struct ibv_wc wc;
    struct sv_qp *qp;
    uint32_t index; /* of the work request, to free its place when polled */
    bool recv;
};

struct sv_cq {
    union {
        struct ibv_cq cq;
        struct ibv_cq_ex ex;
    };
    struct sv_cq *next;
    struct sv_context *ctx;
    _Atomic int users;
    pthread_mutex_t lock;
    struct sv_cqe *ring;
    uint32_t head, count, size;
    bool armed, solicited_only;
    bool dead; /* overrun, or told so */
    unsigned comp_events, async_events;
};

enum sv_wr_phase { SV_WR_NEW, SV_WR_MOVING };

struct sv_wr {
    uint64_t wr_id, remote_addr;
    uint32_t opcode, flags, rkey, imm;
    uint32_t length, moved;
    uint32_t num_sge;
    uint32_t phase, fate; /* fate: a status known beforehand, 0 for none */
    bool fate_late;       /* to fail after the bytes were moved */
    bool arrived;         /* the target is done with it, and the sender may not know */
    struct ibv_sge *sge;
    int64_t posted_at;
    int64_t begin, end; /* on the wire, without latency */
};

struct sv_qp {
    struct ibv_qp_ex x; /* first: an ibv_qp is an sv_qp */
    struct sv_qp *next;
    struct sv_context *ctx;
    struct sv_qp_slot *slot;
    struct ibv_qp_cap cap;
    struct ibv_qp_attr attr;
    bool sig_all;
    uint64_t ops; /* of ibv_qp_init_attr_ex.send_ops_flags */
    unsigned async_events;

    pthread_mutex_t lock;
    enum ibv_qp_state state;
    struct sv_wr *sq;
    struct ibv_sge *sges;
    uint8_t *inline_data;
    uint32_t sq_mask;
    uint32_t posted, launched, done; /* running numbers: done <= launched <= posted */
    _Atomic uint32_t sq_freed;       /* polled: the place can be used again */
    struct sv_recv *rq;
    uint32_t rq_mask;
    uint32_t rq_posted, rq_done;
    _Atomic uint32_t rq_freed;

    /* The engine's, under `lock` as well. */
    int64_t due;
    uint32_t heap_index; /* plus 1; 0: not in the heap */
    uint32_t reads_out;
    bool reads_full;  /* the next one waits for a read to complete */
    int64_t ready_at; /* when the last wait of this kind ended */
    int64_t wire_end; /* of the last one launched */
    int64_t wait_until;
    unsigned retries, rnr_retries;
    _Atomic uint32_t sq_psn;
    bool stuck; /* a work request was dropped */
    bool drain; /* tell IBV_EVENT_SQ_DRAINED when nothing is on its way */

    _Atomic bool paused; /* written under run_lock, like the two below */
    bool kicked;
    struct sv_qp *kicked_next;

    /* ibv_wr_*: the list under construction. */
    struct ibv_send_wr *build;
    struct ibv_sge *build_sge;
    uint8_t *build_data;
    uint32_t n_build;
    int build_error;
    pthread_mutex_t build_lock;
};

static inline struct sv_context *sv_context_of(struct ibv_context *c)
{
    return (struct sv_context *)(void *)((char *)c - offsetof(struct sv_context, v.context));
}

static inline struct sv_qp *sv_qp_of(struct ibv_qp *qp)
{
    return (struct sv_qp *)(void *)qp;
}

static inline struct sv_cq *sv_cq_of(struct ibv_cq *cq)
{
    return (struct sv_cq *)(void *)cq;
}

/* True when every verb of the context answers EIO. */
static inline bool sv_dead(const struct sv_context *c)
{
    return c->f->forked || atomic_load_explicit(&c->nic->dead, memory_order_relaxed) ||
           atomic_load_explicit(&c->nic->generation, memory_order_relaxed) != c->generation;
}

/* Raises a counter that knows the most there was. */
static inline void sv_count_most(_Atomic uint64_t *most, uint64_t n)
{
    uint64_t before = atomic_load(most);

    while (before < n && !atomic_compare_exchange_weak(most, &before, n)) {}
}

/* That of the program, NULL: a process is one. */
static inline const struct softverbs_world *sv_world(void)
{
    return &softverbs_world;
}

int64_t sv_now(void);
void sv_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t until);
void sv_futex_wake(_Atomic uint32_t *word);

/* config.c */
int sv_config_load(const char *path, struct sv_config *out);
void sv_tree_path(char *out, size_t size, const char *dir, const char *label, const char *rest, ...)
    __attribute__((format(printf, 5, 6)));
int sv_tree_make(const char *dir, const struct sv_state *s);
void sv_tree_update(const char *dir, const struct sv_state *s, uint32_t nic);

/* fabric.c: the state file. map creates it, or makes it anew when `fresh` or when nobody uses it
 * and the description changed. */
int sv_state_map(const struct sv_config *config, bool fresh, struct sv_state **out);
void sv_state_unmap(struct sv_state *s);
bool sv_lock(struct sv_state *s);
void sv_unlock(struct sv_state *s);
bool sv_proc_alive(uint32_t pid, uint64_t start, char *state);
void sv_reap(struct sv_state *s); /* lock held */
void sv_ring_all(struct sv_state *s);
void sv_ring(struct sv_proc *p);
void sv_event(struct sv_nic *nic, uint32_t type, uint32_t arg); /* lock held; ring afterwards */

struct sv_fabric *sv_fabric_get(void); /* opens it, or takes one more reference */
void sv_fabric_put(struct sv_fabric *f);
bool sv_visible(const struct sv_fabric *f, const struct sv_nic *nic);
bool sv_denied(struct sv_nic *nic, enum sv_deny verb); /* sets errno */

struct sv_mr *sv_mr_alloc(struct sv_fabric *f);
void sv_mr_free(struct sv_state *s, struct sv_mr *mr);
struct sv_qp_slot *sv_qp_alloc(struct sv_fabric *f);
void sv_qp_free(struct sv_state *s, struct sv_qp_slot *q);
void sv_fence_qp(struct sv_fabric *f, uint32_t qpn);
void sv_fence_mr(struct sv_fabric *f, uint32_t key);
bool sv_peer_alive(struct sv_fabric *f, uint32_t slot);
bool sv_mail_post(struct sv_proc *to, const struct sv_mail *mail, _Atomic uint32_t *counter);
void sv_mail_drain(struct sv_fabric *f);

/* cq.c */
bool sv_cq_push(struct sv_cq *cq, const struct sv_cqe *cqe, bool solicited);
void sv_cq_clean(struct sv_cq *cq, const struct sv_qp *qp);
void sv_cq_fail(struct sv_cq *cq);
void sv_cqs_abandon(struct sv_context *c); /* frees those that the program left behind */
int sv_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int sv_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *sv_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
void sv_async_push(struct sv_context *ctx, struct ibv_async_event event);
void sv_async_forget(struct sv_context *ctx, const void *object);

/* qp.c */
struct ibv_qp *sv_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
void sv_qp_fail(struct sv_qp *qp); /* qp.lock held */
void sv_qps_abandon(struct sv_context *c);
void sv_qp_event(struct sv_qp *qp, enum ibv_event_type type);

/* post.c */
int sv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int sv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* wr_api.c */
int sv_wr_api(struct sv_qp *qp);

/* engine.c */
int sv_engine_start(struct sv_fabric *f);
void sv_engine_stop(struct sv_fabric *f);
void sv_kick(struct sv_qp *qp);
void sv_pause(struct sv_qp *qp); /* the engine is off the QP until sv_resume; blocks */
void sv_resume(struct sv_qp *qp);
void sv_complete_send(struct sv_qp *qp, uint32_t index, enum ibv_wc_status status);
void sv_complete_recv(struct sv_qp *qp, uint32_t index, const struct sv_mail *m);

/* move.c */
enum sv_result { SV_MOVED, SV_NO_ANSWER, SV_NOT_READY, SV_BUSY, SV_FAILED };
struct sv_move {
    enum sv_result result;
    enum ibv_wc_status status; /* FAILED */
    uint32_t rnr_timer;        /* NOT_READY */
};
uint32_t sv_target_nic(struct sv_qp *qp); /* SV_MAX_NICS: unreachable */
struct sv_move sv_move_some(struct sv_qp *qp, struct sv_wr *wr);

/* control.c */
int sv_control(struct sv_state *s, const char *dir, const char *command, char *reply, size_t size);

#endif
