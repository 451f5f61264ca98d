/* SPDX-License-Identifier: Apache-2.0 */
/* What is not defined here is found in softverbs, with which this is linked. */
#include "fabric/verbs_record/record.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/mlx5dv.h>

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                unsigned access);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct record *all[RECORD_KINDS]; /* RECORD_MAX of each */
static size_t n[RECORD_KINDS];
static _Atomic uint64_t refused_gids;
static atomic_bool are_not_mlx5;
static atomic_uint lag_ports = 2;
static _Thread_local bool forwarding; /* softverbs calls itself by the names that are taken here */
static int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

/* The function of this name behind this library, as a member of `to`'s type. */
static void find_next(const char *name, void *to)
{
    void *at = dlsym(RTLD_NEXT, name);

    if (!at)
        abort();
    memcpy(to, &at, sizeof(at));
}

/* ---------------------------------------------------------------------------------------- notes */

static void note(enum record_kind kind, const struct ibv_context *context, struct record r)
{
    struct timespec now;

    snprintf(r.nic, sizeof(r.nic), "%s", context->device->name);
    clock_gettime(CLOCK_MONOTONIC, &now);
    r.at_ms = now.tv_sec * 1000 + now.tv_nsec / 1000000;
    r.thread = gettid();
    pthread_mutex_lock(&lock);
    if (!all[kind])
        all[kind] = calloc(RECORD_MAX, sizeof(struct record));
    if (all[kind] && n[kind] < RECORD_MAX)
        all[kind][n[kind]++] = r;
    pthread_mutex_unlock(&lock);
}

void record_clear(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < RECORD_KINDS; i++) {
        free(all[i]);
        all[i] = NULL;
        n[i] = 0;
    }
    pthread_mutex_unlock(&lock);
    refused_gids = 0;
    record_mlx5(true, 2);
}

/* The `want`-th one of a NIC, or how many there are. The lock is held. */
static size_t look(enum record_kind kind, const char *nic, size_t want, struct record *out)
{
    size_t seen = 0;

    for (size_t i = 0; i < n[kind]; i++) {
        if (nic && strcmp(all[kind][i].nic, nic) != 0)
            continue;
        if (seen++ == want && out)
            *out = all[kind][i];
    }
    return seen;
}

size_t record_count(enum record_kind kind, const char *nic)
{
    size_t count;

    pthread_mutex_lock(&lock);
    count = look(kind, nic, 0, NULL);
    pthread_mutex_unlock(&lock);
    return count;
}

bool record_get(enum record_kind kind, const char *nic, size_t i, struct record *out)
{
    bool found;

    pthread_mutex_lock(&lock);
    found = look(kind, nic, i, out) > i;
    pthread_mutex_unlock(&lock);
    return found;
}

void record_refuse_gids(uint64_t bits)
{
    refused_gids = bits;
}

void record_mlx5(bool are_mlx5, unsigned ports)
{
    are_not_mlx5 = !are_mlx5;
    lag_ports = ports;
}

/* ---------------------------------------------------------------------------------------- verbs */

static int noted_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    for (const struct ibv_send_wr *w = wr; w; w = w->next) {
        struct record r = {.qp_num = qp->qp_num,
                           .opcode = w->opcode,
                           .flags = w->send_flags,
                           .sges = (uint32_t)w->num_sge};

        for (int i = 0; i < w->num_sge; i++)
            r.length += w->sg_list[i].length;
        note(RECORD_WR, qp->context, r);
    }
    return post_send(qp, wr, bad);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct ibv_context *(*next)(struct ibv_device *);
    struct ibv_context *context;

    find_next("ibv_open_device", &next);
    context = next(device);
    if (context) {
        post_send = context->ops.post_send;
        context->ops.post_send = noted_post_send;
    }
    return context;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct ibv_comp_channel *(*next)(struct ibv_context *);

    find_next("ibv_create_comp_channel", &next);
    note(RECORD_CHANNEL, context, (struct record){0});
    return next(context);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int vector)
{
    struct ibv_cq *(*next)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);

    find_next("ibv_create_cq", &next);
    note(RECORD_CQ, context, (struct record){.depth = cqe});
    return next(context, cqe, cq_context, channel, vector);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct ibv_qp *(*next)(struct ibv_pd *, struct ibv_qp_init_attr *);
    struct record r = {.cap = attr->cap};
    struct ibv_qp *qp;

    find_next("ibv_create_qp", &next);
    qp = next(pd, attr);
    r.qp_num = qp ? qp->qp_num : 0;
    note(RECORD_QP, pd->context, r);
    return qp;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    int (*next)(struct ibv_qp *, struct ibv_qp_attr *, int);

    find_next("ibv_modify_qp", &next);
    note(RECORD_MODIFY, qp->context,
         (struct record){.qp_num = qp->qp_num, .attr = *attr, .mask = mask});
    if ((mask & IBV_QP_AV) && (refused_gids >> attr->ah_attr.grh.sgid_index & 1))
        return EINVAL;
    return next(qp, attr, mask);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    struct ibv_mr *(*next)(struct ibv_pd *, void *, size_t, int);
    struct ibv_mr *mr;

    find_next("ibv_reg_mr", &next);
    note(RECORD_MR, pd->context, (struct record){.length = length, .access = (unsigned)access});
    forwarding = true;
    mr = next(pd, addr, length, access);
    forwarding = false;
    return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                unsigned access)
{
    struct ibv_mr *(*next)(struct ibv_pd *, void *, size_t, uint64_t, unsigned);

    find_next("ibv_reg_mr_iova2", &next);
    if (!forwarding)
        note(RECORD_MR, pd->context, (struct record){.length = length, .access = access});
    return next(pd, addr, length, iova, access);
}

/* ----------------------------------------------------------------------------------------- mlx5 */

bool mlx5dv_is_supported(struct ibv_device *device)
{
    (void)device;
    return !are_not_mlx5;
}

int mlx5dv_query_device(struct ibv_context *context, struct mlx5dv_context *out)
{
    (void)context;
    out->comp_mask &= MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS;
    out->num_lag_ports = (uint8_t)lag_ports;
    return 0;
}

/* Notes what a queue pair is given, which must be ready to send by then. */
static int give_port(enum record_kind kind, struct ibv_qp *qp, unsigned port)
{
    enum ibv_qp_state state = IBV_QPS_RESET;
    struct record r;

    for (size_t i = 0; record_get(RECORD_MODIFY, NULL, i, &r); i++)
        if (r.qp_num == qp->qp_num && (r.mask & IBV_QP_STATE))
            state = r.attr.qp_state;
    if (state != IBV_QPS_RTS || are_not_mlx5)
        return EINVAL;
    note(kind, qp->context, (struct record){.qp_num = qp->qp_num, .port = port});
    return 0;
}

int mlx5dv_modify_qp_lag_port(struct ibv_qp *qp, uint8_t port_num)
{
    return port_num <= lag_ports ? give_port(RECORD_LAG_PORT, qp, port_num) : EINVAL;
}

int mlx5dv_modify_qp_udp_sport(struct ibv_qp *qp, uint16_t udp_sport)
{
    return give_port(RECORD_UDP_SPORT, qp, udp_sport);
}
