/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker threads that move data between this side's buffers and the target's, and what they
 * measure. A plain load reads or writes the same blocks over and over. A verified load writes
 * random bytes, reads them back into other memory and compares, at odd addresses and with the two
 * directions cut into requests differently.
 */
#ifndef TOOLS_COMMON_LOAD_H
#define TOOLS_COMMON_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common_hist.h"
#include "common_setup.h"

struct load {
    const struct setup *setup;
    const char *tool;
    enum te_opcode opcode;
    uint64_t block, batch, threads;
    double seconds;       /* how long to go on */
    uint64_t batches;     /* or until each worker did so many; 0: no such limit */
    uint64_t deadline_ms; /* of each batch; 0: the engine's */
    bool verify;
    bool poll;           /* ask for every task's state in a loop instead of sleeping in te_wait() */
    bool progress;       /* a live line on stderr */
    bool tell_workers;   /* each that has verified its share says so at its end */
    size_t row, rows;    /* what the line calls this load: row 3 of 36; 0: the only one */
    double report_bytes; /* the unit of the live line */
    const char *report_unit;
    uint64_t precision;
};

#define LOAD_ERROR_MAX 1024

struct load_result {
    double seconds; /* from the common start to the end of the last worker */
    uint64_t batches, requests, bytes;
    uint64_t verified;          /* bytes compared */
    bool failed;                /* a transfer did not complete */
    bool corrupt;               /* bytes differed */
    bool interrupted;           /* by SIGINT or SIGTERM */
    char error[LOAD_ERROR_MAX]; /* the first thing that went wrong, as it was told; or "" */
    struct hist batch;
    struct hist request; /* by --poll measured; else a batch's time over its requests */
};

/*
 * Runs it to its end. False when it could not start, a transfer failed or bytes differed; all that
 * has been told then.
 */
bool load_run(const struct load *load, struct load_result *result);

/* Prints the line "Test completed: duration ..., batch count ..., throughput ...". */
void load_report(FILE *out, const struct load *load, const struct load_result *result);

#endif
