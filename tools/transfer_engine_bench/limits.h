/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of programs that use no engine, to be drawn beside what is measured. */
#ifndef TOOLS_TRANSFER_ENGINE_BENCH_LIMITS_H
#define TOOLS_TRANSFER_ENGINE_BENCH_LIMITS_H

#include <stdbool.h>
#include <stddef.h>

#define LIMITS_MAX      16
#define LIMIT_LABEL_MAX 96

enum limit_kind {
    LIMIT_RATE, /* GB/s */
    LIMIT_P50,  /* us */
    LIMIT_P99,  /* us */
};

/* What the bytes go through. */
enum limit_path { LIMIT_NETWORK, LIMIT_PROCESSES, LIMIT_MEMORY };

struct limit {
    enum limit_kind kind;
    enum limit_path path;
    double value;
    char label[LIMIT_LABEL_MAX];
};

struct limits {
    struct limit at[LIMITS_MAX];
    size_t count;
};

/*
 * Adds the figures of a file of JSON objects, one behind the other: lines of raw_stream,
 * raw_memcpy, raw_process_vm and raw_pingpong, or objects with members such as "stream_GBps". A
 * later figure of the same label takes the place of an earlier one. Writes what is wrong to
 * `error`, at most `n` bytes, and returns false when the file cannot be read or an object has no
 * such figure.
 */
bool limits_read(struct limits *l, const char *path, char *error, size_t n);

/* Adds what one thread copies within this process in a GB/s; false when there is no memory. */
bool limits_measure_copy(struct limits *l, double seconds);

bool limits_have(const struct limits *l, enum limit_path path);

#endif
