/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared.h - what all processes of one fabric see: the layout of <dir>/softverbs.state.
 *
 * The file is mapped by every process that opened the fabric, and by softverbs_ctl. It holds the
 * NICs, a slot for each process, and the tables of queue pairs and memory regions. There is no
 * server: whoever posts a work request also carries it out. Its process has one thread, the engine
 * (engine.c), which looks the peer's QP and MR up in the tables, checks what a NIC would check, and
 * moves the bytes with process_vm_readv and process_vm_writev, or memcpy inside one process. The
 * peer's own threads take no part, so that a one-sided operation goes on while the peer is stopped.
 *
 * A SEND, and a WRITE with immediate data, also takes a receive out of the peer's receive queue.
 * The queue's entries lie in the peer's private memory; where they lie, and the counters rq_tail
 * (posted by the owner) and rq_head (taken by the other side), lie in the QP's slot. The completion
 * is put into the mailbox of the peer's process, and that process's engine makes a CQE of it.
 *
 * Keys and numbers carry a generation. A QP number is an index in the table and ten bits that
 * change with each use of the slot, an lkey or rkey is an index and twelve bits; a slot's `id` or
 * `key` is the whole number while it is in use, and 0 else. So a stale key finds nothing. Fields
 * are written before the key is stored, and checked again after a hold was taken.
 *
 * Holds. "No byte moves after ibv_dereg_mr returned" must be true across processes, and must not
 * depend on every process being alive. A counter of users in the MR would be left too high by a
 * process killed while it copies. So a process says in its own slot what it is working on (hold_qp,
 * hold_mr), then looks whether that is still valid, and only then copies at most SV_CHUNK bytes.
 * Who invalidates a QP or an MR stores 0 (or the new state) first and then waits until no live
 * process holds it: both sides use sequentially consistent accesses, thus one of them sees the
 * other. Processes that died hold nothing. One that is stopped by a signal is not inside a system
 * call, but may be just before it; its remote iovec lies in its slot for the sake of this case, and
 * who waits empties it: the call, when it comes, moves nothing. See sv_fence() in fabric.c.
 *
 * Locks. `lock` guards the tables of slots, the lists of free ones and all control state;
 * `mail_lock` the writers of a mailbox. Both are robust: a holder that dies passes them on, and
 * what they guard is either rebuilt (lists of free slots) or was not yet published (mail).
 * Everything else in here is single atomics.
 *
 * Time. A NIC has, for each direction, the moment until which its wire is taken (tx.free, rx.free,
 * CLOCK_MONOTONIC). A transfer reserves its time on both NICs with a compare-and-swap and ends at
 * the later of both ends, plus latency.
 *
 * Events. Each NIC keeps the last SV_EVENTS events with a running number. Who adds one rings the
 * bell (a futex) of every process; their engines compare numbers and act.
 */
#ifndef SOFTVERBS_SHARED_H
#define SOFTVERBS_SHARED_H

#include <infiniband/verbs.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define SV_MAGIC     0x73767236u /* changes with the layout */
#define SV_MAX_NICS  64u
#define SV_MAX_PROCS 128u
#define SV_QP_BITS   14u
#define SV_MAX_QPS   (1u << SV_QP_BITS)
#define SV_MR_BITS   20u
#define SV_MAX_MRS   (1u << SV_MR_BITS)
#define SV_MAX_GIDS  16u
#define SV_EVENTS    64u
#define SV_MAIL      1024u
#define SV_MAX_SGE   30u
#define SV_CHUNK     (256u << 10) /* bytes copied under one hold */
#define SV_NEVER     INT64_MAX

#define SV_STATE_FILE "softverbs.state"

/* Verbs that `deny` knows. */
#define SV_DENY_MAP(X) \
    X(open)            \
    X(alloc_pd) X(reg_mr) X(reg_dmabuf_mr) X(create_cq) X(create_qp) X(modify_qp) X(query_port)
#define SV_DENY_ROW(name) SV_DENY_##name,
enum sv_deny { SV_DENY_MAP(SV_DENY_ROW) SV_N_DENY };

/* In the event ring of a NIC, beside enum ibv_event_type: */
enum {
    SV_EVENT_CQ_ERR = 100, /* every CQ of the NIC */
    SV_EVENT_QP_FATAL,     /* the QP `arg`, or every one if 0 */
    SV_EVENT_RETRY,        /* nothing to tell, but what waits may go on */
};

struct sv_limits {
    int max_qp, max_qp_wr, max_cq, max_cqe, max_mr, max_pd, max_sge, max_inline, max_qp_rd_atom;
    uint64_t max_mr_size;
};

struct sv_counters {
    _Atomic uint64_t bytes, wrs, doorbells, completions;
    _Atomic uint64_t reads; /* of one QP on the wire at once: the most there were */
    _Atomic int64_t cqs;
};

struct sv_event {
    _Atomic uint32_t type, arg;
};

struct sv_wire {
    _Alignas(64) _Atomic int64_t free; /* until then it is taken */
    _Atomic int64_t taken;             /* ns, in all: what the rate says that transfers take */
};

struct sv_gid {
    _Atomic uint64_t prefix, id; /* as they lie in memory: network order */
    _Atomic uint32_t type;       /* enum ibv_gid_type */
};

struct sv_nic {
    /* Set at creation. */
    char name[64], host[64], pci[32];
    int numa;
    bool instant, same_keys, ethernet;
    enum ibv_mtu mtu;
    int64_t latency_ns;
    struct sv_limits limits;

    /* Changed by softverbs_ctl. */
    _Atomic uint64_t rate; /* bytes per second, 0: not paced */
    _Atomic uint32_t lid;
    struct sv_gid gids[SV_MAX_GIDS];
    _Atomic uint32_t port_up, down_retries; /* down: WRs end in RETRY_EXC instead of never */
    _Atomic uint32_t dead, generation;      /* contexts of an older generation stay dead */
    _Atomic int64_t stall_until;
    _Atomic int64_t hold_after; /* steps that own requests may still move, plus 1; 0: no limit */
    _Atomic uint32_t held;      /* one waits for the limit to go */
    _Atomic uint64_t blocked;   /* bit per NIC that what this one sends does not come to */
    _Atomic uint32_t peermem;   /* registers memory of devices by its addresses */

    /* Faults to come. `faults` is a shortcut: 0 when none of the others is set. */
    _Atomic uint32_t faults;
    _Atomic int64_t fail_in; /* work requests until the first that fails */
    _Atomic int64_t fail_count;
    _Atomic uint32_t fail_status, fail_moved;
    _Atomic int64_t drop_left;
    _Atomic int64_t deny_after[SV_N_DENY]; /* calls left until refusal, plus 1; 0: none */
    _Atomic int32_t deny_errno[SV_N_DENY];

    _Atomic uint64_t event_seq;
    struct sv_event events[SV_EVENTS];
    struct sv_counters gone; /* counters of processes that are no more */

    struct sv_wire tx, rx;
};

struct sv_mr {
    _Atomic uint32_t key;
    _Atomic uint32_t proc, nic, pd, access;
    uint32_t generation, used, next_free; /* under the lock */
    _Atomic uint64_t addr, length, iova;  /* addr: where the owner's process has the bytes */
};

struct sv_qp_slot {
    _Atomic uint32_t id;
    _Atomic uint32_t state; /* enum ibv_qp_state */
    _Atomic uint32_t proc, nic, nic_generation, pd, access;
    uint32_t generation, used, next_free; /* under the lock */
    _Atomic uint32_t dest_qpn, dlid, is_global, sgid_index, path_mtu, rq_psn, dest_rd_atomic,
        rnr_timer;
    _Atomic uint64_t dgid_prefix, dgid_id;
    _Atomic uint32_t established; /* something was received */
    _Atomic uint64_t rq_addr;
    _Atomic uint32_t rq_mask, rq_head, rq_tail; /* running numbers */
};

/* An entry of a receive queue, in its owner's memory. */
struct sv_recv {
    uint64_t wr_id;
    uint32_t num_sge;
    struct ibv_sge sge[SV_MAX_SGE];
};

enum sv_mail_kind { SV_MAIL_RECV, SV_MAIL_QP_ERROR, SV_MAIL_ESTABLISHED };

struct sv_mail {
    uint32_t kind, qpn;
    uint32_t rq_index; /* RECV: of the receive taken */
    uint32_t status;   /* RECV: enum ibv_wc_status; QP_ERROR: enum ibv_event_type, or ~0 for none */
    uint32_t opcode, byte_len, imm, wc_flags, src_qp, solicited;
};

struct sv_proc {
    _Atomic uint32_t pid; /* 0: free */
    _Atomic uint32_t engine_tid;
    _Atomic uint64_t start; /* tells apart two processes that had the same pid */
    _Atomic uint32_t bell, sleeping;

    _Alignas(64) _Atomic uint32_t hold_qp;
    _Atomic uint32_t hold_mr[2]; /* local, remote */
    struct iovec remote_iov;

    struct sv_counters counters[SV_MAX_NICS];

    pthread_mutex_t mail_lock;
    _Atomic uint32_t mail_head, mail_tail;
    struct sv_mail mail[SV_MAIL];
};

struct sv_state {
    uint32_t magic;
    uint32_t n_nics;
    uint64_t config_hash;
    pthread_mutex_t lock;
    _Atomic uint32_t next_pd;
    _Atomic uint32_t proc_used; /* high-water marks, and heads of the free lists */
    uint32_t qp_used, qp_free, mr_used, mr_free;
    struct sv_nic nics[SV_MAX_NICS];
    struct sv_proc procs[SV_MAX_PROCS];
    struct sv_qp_slot qps[SV_MAX_QPS];
    struct sv_mr mrs[SV_MAX_MRS];
};

#endif
