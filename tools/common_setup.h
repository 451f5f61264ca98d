/* SPDX-License-Identifier: Apache-2.0 */
/* What the bench and the validator share up to the first transfer: flags, engine, buffers, target. */
#ifndef TOOLS_COMMON_SETUP_H
#define TOOLS_COMMON_SETUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common_flags.h"
#include "te.h"

#define SETUP_BUFFERS_MAX 64   /* of NUMA nodes or GPUs, one each */
#define SETUP_REMOTES_MAX 1024 /* buffers of the target that are used */
#define SETUP_ERROR_MAX   1024
#define SETUP_NAMES_MAX   256 /* of transports */

struct setup_flags {
    const char *local_server_name, *metadata_server, *metadata_type, *mode, *operation;
    const char *protocol, *device_name, *nic_priority_matrix, *segment_id, *ip_or_host_name;
    const char *report_unit;
    uint64_t rpc_port, buffer_size, batch_size, block_size, threads, deadline_ms, batches;
    uint64_t report_precision;
    int64_t gpu_id;
    double duration;
    bool auto_discovery, use_vram;
    bool init_mem; /* fill the buffers first; not in the table: the tool sets it */
};

/* The table that fills a struct setup_flags. */
extern const struct flag setup_flag_table[];
extern const size_t setup_flag_count;

struct setup_buffer {
    void *addr;
    int node;          /* NUMA node, -1 for any */
    char location[32]; /* as te_alloc() takes it */
    bool registered;
};

struct setup {
    const struct setup_flags *flags;
    const struct flags *line; /* what the command line gave of them */
    te_engine *engine;
    const char *protocol; /* the one installed */
    bool vram;            /* buffers in memory of GPUs, which the host may not touch */
    char name[256];       /* of our segment */
    size_t count;         /* of buffers */
    uint64_t length;      /* of each buffer */
    struct setup_buffer buffers[SETUP_BUFFERS_MAX];
    te_segment target;
    size_t remote_count;
    te_buffer remotes[SETUP_REMOTES_MAX];
    char error[SETUP_ERROR_MAX]; /* the first that setup_fail() was told */
};

/*
 * Begins with what the command line said. Tells what it does not say and has no default, and
 * returns false.
 */
bool setup_begin(struct setup *s, const struct setup_flags *flags, const struct flags *line);

/* Prints "tool: ..." on standard error and keeps the text. Always false. */
__attribute__((format(printf, 2, 3))) bool setup_fail(struct setup *s, const char *fmt, ...);

/*
 * Makes the engine, installs the transport and registers one buffer of at least `length` bytes per
 * NUMA node, or per GPU that --gpu_id names, which peers may read and write. Tells what went wrong
 * and returns false on failure; setup_close() is due in both cases.
 */
bool setup_open(struct setup *s, uint64_t length);

/*
 * The same for an initiator, whose buffers are for itself: before they are filled, which
 * takes long, opens the segment that --segment_id names. Its buffers must hold `need` bytes
 * each.
 */
bool setup_open_both(struct setup *s, uint64_t length, uint64_t need);

/*
 * From here on the errors that calls end in are told by the tool alone, and other lines of the log as
 * the tool's. Whoever asks for a log has all of it, where and as it is written.
 */
void setup_divert_log(const char *tool);

/* "cuda", of which the memory is that a protocol moves; NULL if it moves the host's, too. */
const char *setup_gpu_kind(const char *protocol);

/* Whether the engine's log lines are dropped, since what the caller prints says more. */
void setup_hush(const struct setup *s, bool on);

/*
 * Names the transports that carry requests of `block` bytes between our buffers and the target's:
 * "host", or "rdma, tcp" where buffers differ; "unknown" once the target is gone.
 */
void setup_carriers(const struct setup *s, enum te_opcode opcode, uint64_t block,
                    char names[SETUP_NAMES_MAX]);

void setup_close(struct setup *s);

/* The bytes that one worker set needs: block * batch * threads; 0 when that overflows. */
uint64_t setup_need(uint64_t block, uint64_t batch, uint64_t threads);

/* The larger of the two, with a warning when that is not what the user asked for. */
uint64_t setup_raise(const char *tool, uint64_t asked, uint64_t need);

/* Prints the name of our segment and sleeps until SIGINT or SIGTERM. */
void setup_serve(const struct setup *s);

/* Blocks SIGINT and SIGTERM in this thread and those it starts; they are waited for instead. */
void setup_block_signals(void);

/* Whether SIGINT or SIGTERM came within `timeout_ms`; negative: waits until one comes. */
bool setup_interrupted(int timeout_ms);

/*
 * A descriptor to close, which polls readable while SIGINT or SIGTERM waits to be taken by
 * setup_interrupted(); -1 if there is none to be had.
 */
int setup_signal_fd(void);

/* The NUMA nodes, SETUP_BUFFERS_MAX at most; -1 alone where the kernel names none. */
size_t setup_nodes(int nodes[SETUP_BUFFERS_MAX]);

/* Binds the calling thread to the CPUs of a NUMA node, where that can be done. */
void setup_bind(int node);

#endif
