/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays the moves of KV cache that a request trace asks for. This side is the prefill side; the
 * target's buffers are the cache of the decode side, whose books are kept here (trace_lru.h). Of
 * each request the blocks that are not in the cache are written to it, as one batch.
 */
#ifndef TOOLS_TRANSFER_ENGINE_BENCH_TRACE_REPLAY_H
#define TOOLS_TRANSFER_ENGINE_BENCH_TRACE_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "common_flags.h"
#include "common_hist.h"
#include "common_setup.h"
#include "trace.h"

struct replay_flags {
    const char *trace;
    uint64_t bytes_per_token, trace_lru, trace_inflight, trace_requests;
    double trace_speed;
};

/* The table that fills a struct replay_flags. */
extern const struct flag replay_flag_table[];
extern const size_t replay_flag_count;

/* What to replay. The first part is the caller's to fill. */
struct replay {
    struct setup *setup;
    const struct replay_flags *flags;
    bool verify;
    bool progress; /* a live line on stderr */

    struct trace trace;
    uint64_t block; /* bytes of a whole one */
    size_t slots;   /* of the cache */
};

struct replay_result {
    double seconds; /* from the start to the end of the last write */
    size_t requests;
    size_t in_part;         /* of them: those with more blocks than the cache has slots */
    uint64_t hit, missed;   /* blocks */
    uint64_t left_out;      /* blocks of the requests in part that found no slot */
    uint64_t evicted;       /* blocks */
    uint64_t bytes;         /* written */
    uint64_t verified;      /* bytes compared */
    bool failed;            /* a transfer did not complete */
    bool corrupt;           /* bytes differed */
    bool interrupted;       /* by SIGINT or SIGTERM */
    struct hist completion; /* of the requests */
};

/*
 * Whether the command line makes sense with a trace, or without one. Tells what is wrong with it and
 * returns false.
 */
bool replay_check(const struct replay *r);

/* Reads the trace. Tells what is wrong and returns false. replay_fini() is due in both cases. */
bool replay_read(struct replay *r);
void replay_fini(struct replay *r);

/* Bytes that each buffer of this side must have. */
uint64_t replay_need(const struct replay *r);

/*
 * Replays it; the setup is open on both sides, each of whose buffers holds a block. False when it
 * could not start, a transfer failed or bytes differed; all that has been told then.
 */
bool replay_run(struct replay *r, struct replay_result *result);

void replay_print(FILE *out, const struct replay *r, const struct replay_result *result);
json_t *replay_json(const struct replay *r, const struct replay_result *result);

#endif
