/* SPDX-License-Identifier: Apache-2.0 */
/*
 * micro.h - what the files of te_micro share: its options, an engine with a target to move to and
 * from, and the measures. engines.c makes engines and the other process, fabric.c the NICs that they
 * may have, startup.c, lease.c, idle.c, throughput.c, pages.c and faults.c hold measures, te_micro.c the rest.
 */
#ifndef MICRO_H
#define MICRO_H

#include "bench.h"
#include "te.h"

#include <inttypes.h>

enum { NAME_MAX_BYTES = 256, WAIT_MS = 20000 };

/* -------------------------------------------------------------------------- options (te_micro.c) */

extern size_t block, buffer;
extern int threads, batch, depth, rounds, nics, nic_mbps;
extern double seconds;
extern const char *transport, *metadata, *set_text, *peer_set_text, *only, *memory, *spin, *segment;
extern bool json, be_peer, own_memory, apart, prepared, instant, slow_nic, striped;
extern char address[64]; /* of this process's engine */

/* ------------------------------------------------------------------------------------- engines.c */

struct peer {
    pid_t pid;
    FILE *in, *out; /* what it reads and what it prints */
    char name[NAME_MAX_BYTES];
    uint64_t base;
};

/* An engine with a registered buffer and a target to move to and from. */
struct bench {
    te_engine *e;
    char *base;
    struct peer peer; /* none if pid is 0 */
    te_segment target;
    uint64_t target_base;
};

/* Ends the program with the library's own words if a call has failed. */
void check(int rc, const char *what);

/* An engine as the options want it; the second form wants the time of its making told. */
te_engine *engine_make(void);
te_engine *engine_make_timed(int64_t *ns);

/* Congestion control of this process's TCP socket that has carried most; "none" without one. */
void find_cc(char out[BENCH_CC_MAX]);

/* The same of the other process. */
void peer_cc(struct peer *p, char out[BENCH_CC_MAX]);

/* The file that this program is. */
void own_path(char *out, size_t n);

/* Be the other process until standard input ends. */
void run_peer(void);

/* Starts the other process with the options argv[1..argc-1]. */
struct peer peer_start(char **argv, int argc);
void peer_stop(struct peer *p);

/* The same, and an engine here that has opened it. */
struct bench bench_open(char **argv, int argc);
void bench_close(struct bench *b);

/* A request for `n` bytes at the same place of both buffers. */
te_request request_at(const struct bench *b, int opcode, size_t at, size_t n);
te_batch batch_open(const struct bench *b, size_t n);
void batch_close(const struct bench *b, te_batch id);

/* Waits for a batch; it must be COMPLETED. */
void wait_all(const struct bench *b, te_batch id);

/* Moves `n` requests from start to end. */
void move(const struct bench *b, const te_request *reqs, size_t n);

/* The same requests as a prepared list; all are for the bench's target. */
te_prep prep_make(const struct bench *b, const te_request *reqs, size_t n);

static inline size_t or_default(size_t given, size_t otherwise)
{
    return given != 0 ? given : otherwise;
}

/* -------------------------------------------------------------------------------------- fabric.c */

/* What the NICs of this side have carried so far. */
struct fabric_count {
    uint64_t bytes, requests, doorbells;
    uint64_t least; /* bytes of the NIC that has fewest */
};

/* Makes the NICs that --nics asks for, before the first engine; nothing without it. */
void fabric_begin(void);

/* Has an engine use them. */
void fabric_options(te_options *o);

/* With --striped a matrix by which the buffer's part k, "cpu:k", has the NIC k alone; else NULL. */
const char *fabric_matrix(void);

/* A command of softverbs_ctl; it must succeed. `reply` may be NULL. */
void fabric_do(const char *command, char *reply, size_t size);
/* This side's first NIC falls to a quarter of its rate. */
void fabric_slow(void);
struct fabric_count fabric_count(void);

/* -------------------------------------------------------------------------------------- measures */

void measure_init(void);
void measure_lease(void);
/* `ahead`: connected by te_warm() before. */
void measure_first(char **argv, int argc, bool ahead);
void measure_idle(const struct bench *b);
void measure_throughput(struct bench *b);
void measure_faults(const struct bench *b);
void measure_nics(void);
void measure_pages(const struct bench *b);

#endif
