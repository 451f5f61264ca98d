/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - a libibverbs that notes what it is asked for and has softverbs do it, for tests of what
 * options make of queue pairs, queues and memory. TE_IBVERBS_PATH names it, a test links with it.
 * It is a libmlx5, too, for TE_MLX5_PATH, to which all devices are of mlx5.
 *
 * From any thread. What does not fit (RECORD_MAX) is counted and not kept.
 */
#ifndef TEST_VERBS_RECORD_H
#define TEST_VERBS_RECORD_H

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stddef.h>

#define RECORD_MAX 16384 /* of each kind */

enum record_kind {
    RECORD_CHANNEL,
    RECORD_CQ,
    RECORD_QP,
    RECORD_MODIFY,
    RECORD_MR,
    RECORD_WR,
    RECORD_LAG_PORT,
    RECORD_UDP_SPORT
};
#define RECORD_KINDS 8

struct record {
    char nic[64];
    int thread;              /* that asked, as gettid() tells it */
    int64_t at_ms;           /* on the monotonic clock */
    int depth;               /* CQ */
    uint32_t qp_num;         /* all but CHANNEL, CQ, MR */
    struct ibv_qp_cap cap;   /* QP: as asked for */
    struct ibv_qp_attr attr; /* MODIFY */
    int mask;
    size_t length; /* MR, WR */
    unsigned access;
    enum ibv_wr_opcode opcode;
    unsigned flags; /* WR */
    uint32_t sges;
    unsigned port; /* LAG_PORT, UDP_SPORT */
};

void record_clear(void);
/* Those that were asked of a NIC; NULL: of any. */
size_t record_count(enum record_kind kind, const char *nic);
/* The i-th of them; false if there are not so many. */
bool record_get(enum record_kind kind, const char *nic, size_t i, struct record *out);
/* From now on no queue pair can be made to receive by the GIDs of these indexes: EINVAL. */
void record_refuse_gids(uint64_t bits);
/* What devices are from now on: mlx5 or not, with so many ports in a bond. By default with 2. */
void record_mlx5(bool are_mlx5, unsigned ports);

#endif
