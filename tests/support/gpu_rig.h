/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_rig.h - engines with memory at every place that this machine has, in this process and in
 * others: of the host, of two CUDA devices, and of a HIP, an Ascend and a MUSA device, which stands for
 * the makers that are a row of names.
 *
 * A forked child cannot use a driver that its parent has opened, so all peers are started before the
 * first engine of this process.
 */
#ifndef TEST_GPU_RIG_H
#define TEST_GPU_RIG_H

#include "te.h"

#include <stdbool.h>
#include <sys/types.h>

#define RIG_BYTES ((size_t)6 << 20) /* at each place */

enum { PLACE_HOST, PLACE_CUDA0, PLACE_CUDA1, PLACE_HIP, PLACE_NPU, PLACE_MUSA, PLACES };
extern const char *const places[PLACES]; /* as locations */

struct memory {
    char *at[PLACES]; /* registered for peers; NULL: there is no such device */
};

/* An engine in a process of its own. */
struct peer {
    pid_t pid;
    int hold; /* it serves until this is closed */
    char name[300];
    struct memory mem;
};

/* An engine of this process, and a peer as it sees it. */
struct rig {
    te_engine *e;
    struct memory mine;
    char *scratch; /* host memory that peers cannot see */
    te_segment seg;
};

/* P2P on 127.0.0.1, with "NAME=VALUE" set; NULL: nothing. */
te_engine *make_engine(const char *option);
/* Ends the test if softgpu plays a driver and one of its devices has no memory. */
void take_memory(te_engine *e, struct memory *m);
void give_memory(te_engine *e, const struct memory *m);
bool has_devices(const struct memory *m);

struct peer start_peer(const char *option);
/* Stops it as SIGSTOP does, and returns when it has stopped. SIGCONT lets it go on. */
void freeze_peer(const struct peer *p);
/* Lets it go on if it was stopped. Those that were started later have to be stopped before. */
void stop_peer(struct peer *p);

struct rig rig_up(const char *option, const struct peer *p);
void rig_down(struct rig *r);

/* One request from its submit to its end. */
struct te_status move(te_engine *e, int opcode, void *local, te_segment seg, uint64_t remote,
                      size_t n);
/* The same; ends the test unless all was moved. */
void moves(te_engine *e, int opcode, void *local, te_segment seg, uint64_t remote, size_t n);
/* Writes memory at any place of this engine from `scratch`, or reads it into that. */
void put(te_engine *e, char *scratch, char *to, size_t n);
void get(te_engine *e, char *scratch, const char *from, size_t n);

/* A command of softgpu (tests/fabric/softgpu); false if the drivers are real. */
bool soft_control(const char *commands);

#endif
