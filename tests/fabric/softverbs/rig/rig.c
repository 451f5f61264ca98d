/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/softverbs/rig/rig.h"
#include "patience.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

const struct rig_opts rig_default = {
    .cap = {.max_send_wr = 64,
            .max_recv_wr = 64,
            .max_send_sge = 8,
            .max_recv_sge = 8,
            .max_inline_data = 128},
    .cqe = 256,
    .access = RIG_ACCESS,
    .qp_access = RIG_ACCESS,
    .timeout = 12, /* 17 ms */
    .retry_cnt = 3,
    .rnr_retry = 7,
    .min_rnr_timer = 12,
    .rd_atomic = 16,
    .dest_rd_atomic = 16,
    .mtu = IBV_MTU_4096,
};

static char dir[64];

/* ----------------------------------------------------------------------------------- the fabric */

void rig_fabric(const char *nics)
{
    char path[128];
    FILE *out;

    snprintf(dir, sizeof(dir), "/tmp/softverbs.XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/fabric.json", dir);
    out = fopen(path, "we");
    assert_non_null(out);
    fprintf(out, "{\"nics\": %s}\n", nics);
    fclose(out);
    setenv("SOFTVERBS", path, 1);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

void rig_fabric_end(void)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    unsetenv("SOFTVERBS");
}

const char *rig_dir(void)
{
    return dir;
}

void rig_ctl(const char *fmt, ...)
{
    char line[256], reply[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    if (softverbs_control(NULL, line, reply, sizeof(reply)))
        fail_msg("%s: %s", line, reply);
}

long rig_stat(const char *nic, const char *key)
{
    char line[128], reply[512], want[32];
    const char *at;

    snprintf(line, sizeof(line), "stats %s", nic);
    assert_int_equal(softverbs_control(NULL, line, reply, sizeof(reply)), 0);
    snprintf(want, sizeof(want), " %s=", key);
    at = strstr(reply, want);
    assert_non_null(at);
    return atol(at + strlen(want));
}

/* --------------------------------------------------------------------------------------- an end */

struct ibv_context *rig_context(const char *nic)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *ctx = NULL;

    assert_non_null(list);
    for (int i = 0; list[i] && !ctx; i++)
        if (strcmp(ibv_get_device_name(list[i]), nic) == 0)
            ctx = ibv_open_device(list[i]);
    ibv_free_device_list(list);
    if (!ctx)
        fail_msg("cannot open %s: %s", nic, strerror(errno));
    return ctx;
}

static struct ibv_qp *make_qp(const struct rig_end *e)
{
    struct ibv_qp_init_attr_ex a = {.send_cq = e->send_cq,
                                    .recv_cq = e->recv_cq,
                                    .cap = e->o.cap,
                                    .qp_type = IBV_QPT_RC,
                                    .sq_sig_all = e->o.sig_all,
                                    .comp_mask = IBV_QP_INIT_ATTR_PD,
                                    .pd = e->pd};

    if (e->o.send_ops) {
        a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        a.send_ops_flags = e->o.send_ops;
    }
    return ibv_create_qp_ex(e->ctx, &a);
}

void rig_open(struct rig_end *e, const char *nic, size_t size, const struct rig_opts *o)
{
    memset(e, 0, sizeof(*e));
    e->o = o ? *o : rig_default;
    e->ctx = rig_context(nic);
    e->pd = ibv_alloc_pd(e->ctx);
    assert_non_null(e->pd);
    e->channel = ibv_create_comp_channel(e->ctx);
    assert_non_null(e->channel);
    e->recv_cq = ibv_create_cq(e->ctx, e->o.cqe, e, e->channel, 0);
    e->send_cq = e->o.common_cq ? e->recv_cq : ibv_create_cq(e->ctx, e->o.cqe, e, NULL, 0);
    assert_non_null(e->recv_cq);
    assert_non_null(e->send_cq);
    e->size = size;
    e->buf = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(e->buf, MAP_FAILED);
    e->mr = ibv_reg_mr(e->pd, e->buf, size, e->o.access);
    assert_non_null(e->mr);
    e->qp = make_qp(e);
    if (!e->qp)
        fail_msg("create_qp: %s", strerror(errno));
}

void rig_close(struct rig_end *e)
{
    if (e->qp)
        assert_int_equal(ibv_destroy_qp(e->qp), 0);
    if (e->mr)
        assert_int_equal(ibv_dereg_mr(e->mr), 0);
    munmap(e->buf, e->size);
    if (e->send_cq != e->recv_cq)
        assert_int_equal(ibv_destroy_cq(e->send_cq), 0);
    assert_int_equal(ibv_destroy_cq(e->recv_cq), 0);
    assert_int_equal(ibv_destroy_comp_channel(e->channel), 0);
    assert_int_equal(ibv_dealloc_pd(e->pd), 0);
    assert_int_equal(ibv_close_device(e->ctx), 0);
}

struct rig_addr rig_addr(const struct rig_end *e)
{
    struct rig_addr a = {.qpn = e->qp->qp_num,
                         .psn = e->qp->qp_num * 7 & 0xffffff,
                         .rkey = e->mr->rkey,
                         .base = (uintptr_t)e->buf,
                         .size = e->size};
    struct ibv_port_attr port;

    assert_int_equal(ibv_query_port(e->ctx, 1, &port), 0);
    a.lid = port.lid;
    a.ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
    assert_int_equal(ibv_query_gid(e->ctx, 1, 0, &a.gid), 0);
    return a;
}

/* ---------------------------------------------------------------------------------------- states */

int rig_init(struct rig_end *e)
{
    struct ibv_qp_attr a = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = e->o.qp_access};

    return ibv_modify_qp(e->qp, &a,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int rig_rtr(struct rig_end *e, const struct rig_addr *peer)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = e->o.mtu,
                            .dest_qp_num = peer->qpn,
                            .rq_psn = peer->psn,
                            .max_dest_rd_atomic = e->o.dest_rd_atomic,
                            .min_rnr_timer = e->o.min_rnr_timer,
                            .ah_attr = {.port_num = 1, .dlid = peer->lid}};

    if (peer->ethernet) {
        a.ah_attr.is_global = 1;
        a.ah_attr.grh.dgid = peer->gid;
        a.ah_attr.grh.hop_limit = 64;
    }
    return ibv_modify_qp(e->qp, &a,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int rig_rts(struct rig_end *e)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
                            .timeout = e->o.timeout,
                            .retry_cnt = e->o.retry_cnt,
                            .rnr_retry = e->o.rnr_retry,
                            .sq_psn = rig_addr(e).psn,
                            .max_rd_atomic = e->o.rd_atomic};

    return ibv_modify_qp(e->qp, &a,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void rig_connect(struct rig_end *e, const struct rig_addr *peer)
{
    assert_int_equal(rig_init(e), 0);
    assert_int_equal(rig_rtr(e, peer), 0);
    assert_int_equal(rig_rts(e), 0);
}

void rig_connect_both(struct rig_end *a, struct rig_end *b)
{
    struct rig_addr to_a = rig_addr(a), to_b = rig_addr(b);

    rig_connect(a, &to_b);
    rig_connect(b, &to_a);
}

int rig_to(struct rig_end *e, enum ibv_qp_state state)
{
    struct ibv_qp_attr a = {.qp_state = state};

    return ibv_modify_qp(e->qp, &a, IBV_QP_STATE);
}

enum ibv_qp_state rig_state(struct rig_end *e)
{
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr init;

    assert_int_equal(ibv_query_qp(e->qp, &a, IBV_QP_STATE, &init), 0);
    return a.qp_state;
}

/* --------------------------------------------------------------------------------------- posting */

struct ibv_send_wr rig_wr(struct rig_end *e, enum ibv_wr_opcode op, struct ibv_sge *sge, size_t at,
                          uint32_t length, const struct rig_addr *peer, size_t remote)
{
    struct ibv_send_wr wr = {
        .sg_list = sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED};

    *sge = (struct ibv_sge){(uintptr_t)e->buf + at, length, e->mr->lkey};
    if (peer) {
        wr.wr.rdma.remote_addr = peer->base + remote;
        wr.wr.rdma.rkey = peer->rkey;
    }
    return wr;
}

int rig_post(struct rig_end *e, enum ibv_wr_opcode op, uint64_t id, size_t at, uint32_t length,
             const struct rig_addr *peer, size_t remote)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(e, op, &sge, at, length, peer, remote), *bad = NULL;
    int rc;

    wr.wr_id = id;
    rc = ibv_post_send(e->qp, &wr, &bad);
    if (rc)
        assert_ptr_equal(bad, &wr);
    return rc;
}

int rig_recv(struct rig_end *e, uint64_t id, size_t at, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)e->buf + at, length, e->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;

    return ibv_post_recv(e->qp, &wr, &bad);
}

/* ----------------------------------------------------------------------------------- completions */

int64_t rig_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int poll_until(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
    int64_t end = rig_now_ms() + ms;
    int n;

    while ((n = ibv_poll_cq(cq, 1, wc)) == 0 && rig_now_ms() < end)
        usleep(50);
    return n;
}

struct ibv_wc rig_wc(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    int n = poll_until(cq, &wc, PATIENCE_MS);

    if (n != 1)
        fail_msg("no completion came: %d", n);
    return wc;
}

struct ibv_wc rig_expect(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
    struct ibv_wc wc = rig_wc(cq);

    if (wc.wr_id != id || wc.status != status)
        fail_msg("got %lu: %s, want %lu: %s", wc.wr_id, ibv_wc_status_str(wc.status), id,
                 ibv_wc_status_str(status));
    return wc;
}

void rig_silence(struct ibv_cq *cq, int ms)
{
    struct ibv_wc wc;

    if (poll_until(cq, &wc, ms))
        fail_msg("unexpected completion of %lu: %s", wc.wr_id, ibv_wc_status_str(wc.status));
}

void rig_event(struct ibv_context *ctx, enum ibv_event_type type)
{
    struct pollfd p = {.fd = ctx->async_fd, .events = POLLIN};
    struct ibv_async_event event;

    if (poll(&p, 1, PATIENCE_MS) != 1)
        fail_msg("no event %s", ibv_event_type_str(type));
    assert_int_equal(ibv_get_async_event(ctx, &event), 0);
    if (event.event_type != type)
        fail_msg("event %s, want %s", ibv_event_type_str(event.event_type),
                 ibv_event_type_str(type));
    ibv_ack_async_event(&event);
}

void rig_no_event(struct ibv_context *ctx)
{
    struct pollfd p = {.fd = ctx->async_fd, .events = POLLIN};
    struct ibv_async_event event;

    if (poll(&p, 1, 20) == 1 && ibv_get_async_event(ctx, &event) == 0)
        fail_msg("unexpected event %s", ibv_event_type_str(event.event_type));
}

/* ------------------------------------------------------------------------------------------ data */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void rig_fill(uint8_t *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(mix(seed * 0x9e3779b97f4a7c15u + i / 8) >> i % 8 * 8);
}

long rig_differs(const uint8_t *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != (uint8_t)(mix(seed * 0x9e3779b97f4a7c15u + i / 8) >> i % 8 * 8))
            return (long)i;
    return -1;
}
