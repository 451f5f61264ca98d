/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request traces: one JSON object a line,
 *   {"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [id, ...]}
 * with one id for each block of 512 tokens of the prompt, the last block maybe in part. An equal id
 * is the same block of KV cache.
 */
#ifndef TOOLS_TRANSFER_ENGINE_BENCH_TRACE_H
#define TOOLS_TRANSFER_ENGINE_BENCH_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TRACE_BLOCK_TOKENS 512
#define TRACE_ERROR_MAX    512

struct trace_request {
    uint64_t timestamp_ms;
    uint64_t tokens; /* of the prompt */
    size_t first_id; /* of its blocks, in the trace's ids */
    size_t blocks;
    size_t line; /* of the file, from 1 */
};

/* All zero before it is read. */
struct trace {
    struct trace_request *requests;
    uint64_t *ids;
    size_t count, id_count;
    size_t request_room, id_room;
    size_t blocks_max; /* of one request */
};

/*
 * Adds the requests of a file, at most `max` of them (0: all). False with one line in `error`, which
 * names the line of the file; trace_free() is due in both cases.
 */
bool trace_read(struct trace *t, FILE *in, size_t max, char error[TRACE_ERROR_MAX]);

/* Adds the request that one line holds, if it holds one. `number` is the line's, from 1. */
bool trace_parse_line(struct trace *t, const char *text, size_t length, size_t number,
                      char error[TRACE_ERROR_MAX]);

void trace_free(struct trace *t);

/* How many tokens are in block `i` of a request. */
uint64_t trace_block_tokens(const struct trace_request *request, size_t i);

#endif
