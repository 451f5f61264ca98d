/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rig.h - what the tests of softverbs build on: a fabric of their own, and ends of a connection
 * with everything that a verbs program needs. Calls that fail end the test with cmocka's fail().
 */
#ifndef SOFTVERBS_RIG_H
#define SOFTVERBS_RIG_H

#include "fabric/softverbs/softverbs.h"

#include <stdbool.h>
#include <stdint.h>

#define RIG_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* The thread sanitizer ends a child of a process with threads when it starts one. */
#if defined(__SANITIZE_THREAD__)
#define RIG_CHILD_MAY_OPEN 0
#elif defined(__has_feature)
#define RIG_CHILD_MAY_OPEN (!__has_feature(thread_sanitizer))
#else
#define RIG_CHILD_MAY_OPEN 1
#endif

/* Makes a folder with fabric.json in it, of `nics` (the JSON array), and names it in SOFTVERBS.
 * rig_fabric_end() removes the folder; the fabric must be closed by then. */
void rig_fabric(const char *nics);
void rig_fabric_end(void);
const char *rig_dir(void);

/* softverbs_control() with a format; it must succeed. */
void rig_ctl(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A number of `stats NIC` (../README.md), such as "bytes". */
long rig_stat(const char *nic, const char *key);

struct rig_opts {
    struct ibv_qp_cap cap;
    int cqe; /* of both CQs */
    int sig_all;
    uint64_t send_ops; /* of ibv_create_qp_ex */
    unsigned access;   /* of the MR and of the QP */
    unsigned qp_access;
    uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer, rd_atomic, dest_rd_atomic;
    enum ibv_mtu mtu;
    bool common_cq;
};
extern const struct rig_opts rig_default;

struct rig_addr { /* all that the other side must know; may be written through a pipe */
    uint32_t qpn, psn, rkey;
    uint16_t lid;
    bool ethernet;
    union ibv_gid gid;
    uint64_t base, size;
};

struct rig_end {
    struct rig_opts o;
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel; /* of recv_cq */
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *buf;
    size_t size;
};

struct ibv_context *rig_context(const char *nic);
/* An end on a NIC with `size` bytes of memory; o NULL: rig_default. */
void rig_open(struct rig_end *e, const char *nic, size_t size, const struct rig_opts *o);
void rig_close(struct rig_end *e);
struct rig_addr rig_addr(const struct rig_end *e);
/* RESET to INIT, RTR, RTS. The functions return ibv_modify_qp's result. */
int rig_init(struct rig_end *e);
int rig_rtr(struct rig_end *e, const struct rig_addr *peer);
int rig_rts(struct rig_end *e);
void rig_connect(struct rig_end *e, const struct rig_addr *peer);
void rig_connect_both(struct rig_end *a, struct rig_end *b);
int rig_to(struct rig_end *e, enum ibv_qp_state state);
enum ibv_qp_state rig_state(struct rig_end *e);

/* One signaled work request on buf + at; op is READ or WRITE, remote an offset in the peer's memory. */
struct ibv_send_wr rig_wr(struct rig_end *e, enum ibv_wr_opcode op, struct ibv_sge *sge, size_t at,
                          uint32_t length, const struct rig_addr *peer, size_t remote);
int rig_post(struct rig_end *e, enum ibv_wr_opcode op, uint64_t id, size_t at, uint32_t length,
             const struct rig_addr *peer, size_t remote);
int rig_recv(struct rig_end *e, uint64_t id, size_t at, uint32_t length);

/* The next completion. */
struct ibv_wc rig_wc(struct ibv_cq *cq);
/* It is one of this request with this status. */
struct ibv_wc rig_expect(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status);
/* None comes within so many milliseconds. */
void rig_silence(struct ibv_cq *cq, int ms);
/* The next asynchronous event is of this type; it is acknowledged. */
void rig_event(struct ibv_context *ctx, enum ibv_event_type type);
void rig_no_event(struct ibv_context *ctx);

int64_t rig_now_ms(void);
void rig_fill(uint8_t *p, size_t n, uint64_t seed);
/* Where the first difference from rig_fill(seed) is, or -1. */
long rig_differs(const uint8_t *p, size_t n, uint64_t seed);

#endif
