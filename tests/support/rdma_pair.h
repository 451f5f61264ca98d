/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_pair.h - engines in one process, joined by the rdma transport over a simulated fabric, whose
 * options are set as users do it: by environment variables. One fabric at a time; main thread only.
 */
#ifndef TEST_RDMA_PAIR_H
#define TEST_RDMA_PAIR_H

#include "te.h"

#include <stdbool.h>

#define RDMA_PAIR_SIZE ((size_t)8 << 20)

/* Which verbs library the engines open. */
#define RDMA_PAIR_PLAIN    "libibverbs.so.1"    /* softverbs */
#define RDMA_PAIR_RECORDED "libverbs_record.so" /* tests/fabric/verbs_record */

enum rdma_pair_side { RDMA_PAIR_A = 1, RDMA_PAIR_B = 2, RDMA_PAIR_BOTH = 3 };

/* A variable of the engines that are made from here on, until rdma_pair_end(). Not copied. */
void rdma_pair_set(enum rdma_pair_side side, const char *name, const char *value);

/*
 * A fabric of `n` NICs on each side (rdma_fabric.h; `keys` as there). Variables are set before or
 * after.
 */
void rdma_pair_fabric(const char *library, unsigned n, const char *keys);

/*
 * An engine that sees the NICs of its side, A "left0"..., B "right0"..., or what MC_TE_FILTERS or
 * MC_CUSTOM_TOPO_JSON of its side say. What te_engine_create() returns.
 */
int rdma_pair_engine(enum rdma_pair_side side, te_engine **out);

struct rdma_pair {
    te_engine *a, *b;       /* a asks, b is asked */
    unsigned char *am, *bm; /* registered memory of each, RDMA_PAIR_SIZE bytes, filled */
    te_segment seg;         /* b, as opened by a */
};

/* Both engines, in the fabric that there is. */
void rdma_pair_begin(struct rdma_pair *p);
/* Closes what was begun, if it was, takes all variables back, and the fabric down. */
void rdma_pair_end(struct rdma_pair *p);

/* `n` bytes between the begins of both memories, which must have gone well. Ends with the same bytes there. */
void rdma_pair_move(struct rdma_pair *p, int opcode, size_t n);
/* The same, be it that it fails: its status, and the text of te_status_msg(). */
struct te_status rdma_pair_try(struct rdma_pair *p, int opcode, size_t n, char *msg, size_t size);

/*
 * From here on log lines of `level` and above are kept instead of shown; rdma_pair_end() shows
 * lines again. The first 64 KiB of them.
 */
void rdma_pair_keep_log(enum te_log_level level);
/* How many of the lines kept have all of `a` and `b` (may be NULL) in them. */
size_t rdma_pair_logged(const char *a, const char *b);

#endif
