/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.h - libibverbs, opened at run time: the library is not linked with it, so that one binary
 * runs on hosts without RDMA. One table of the functions that are called by symbol; what verbs.h of
 * rdma-core defines inline (ibv_post_send, ibv_poll_cq, ibv_req_notify_cq) goes through the context
 * and needs none.
 */
#ifndef TEI_VERBS_H
#define TEI_VERBS_H

#include "base/base.h"
#include "conf/conf.h"

#include <infiniband/verbs.h>

/* Name of the symbol without "ibv_", whether one can do without it. */
#define TEI_VERBS_SYMBOLS(X)      \
    X(get_device_list, true)      \
    X(free_device_list, true)     \
    X(open_device, true)          \
    X(close_device, true)         \
    X(query_device, true)         \
    X(query_port, true)           \
    X(alloc_pd, true)             \
    X(dealloc_pd, true)           \
    X(reg_mr, true)               \
    X(dereg_mr, true)             \
    X(create_comp_channel, true)  \
    X(destroy_comp_channel, true) \
    X(create_cq, true)            \
    X(destroy_cq, true)           \
    X(get_cq_event, true)         \
    X(ack_cq_events, true)        \
    X(create_qp, true)            \
    X(modify_qp, true)            \
    X(destroy_qp, true)           \
    X(get_async_event, true)      \
    X(ack_async_event, true)      \
    X(wc_status_str, true)        \
    X(event_type_str, true)       \
    X(fork_init, false)           \
    X(reg_mr_iova2, false)        \
    X(reg_dmabuf_mr, false)

struct tei_verbs {
    void *library;
#define TEI_VERBS_MEMBER(name, required) __typeof__(ibv_##name) *name;
    TEI_VERBS_SYMBOLS(TEI_VERBS_MEMBER)
#undef TEI_VERBS_MEMBER
};

/*
 * Opens the library that TE_IBVERBS_PATH names ("": libibverbs.so.1). TE_ERR_UNSUPPORTED with the
 * linker's reason in te_errmsg(), not logged: for most hosts that is no fault. It stays open for as
 * long as the process lives, since providers of devices start threads in it.
 */
int tei_verbs_open(const struct tei_conf *conf, struct tei_verbs *out);

/* The port as it is now; an errno value or 0. */
int tei_verbs_port(const struct tei_verbs *v, struct ibv_context *c, uint8_t port,
                   struct ibv_port_attr *out);

/* Gigabits a second of an active port, 0 if it does not tell. */
double tei_verbs_port_gbps(const struct ibv_port_attr *a);

#endif
