/* SPDX-License-Identifier: Apache-2.0 */
/* command.h - what the commands of te_segment share: flags, the job, how they fail. */
#ifndef TE_SEGMENT_COMMAND_H
#define TE_SEGMENT_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "te_segment/registry.h"

/* Statuses to exit with, besides 0. */
#define FAILED 1
#define USAGE  2

struct settings {
    const char *metadata_server, *cluster_id;
    const char *file, *path, *server_name, *target, *mount_dir, *nvme_options;
    const char *protocol, *devices, *matrix;
    uint64_t length, create;
    double wait;
    bool json, force, connect, disconnect;
};

/* What a command works with. */
struct job {
    const struct settings *settings;
    struct registry registry;
    const char *name; /* as te_open() takes it */
    bool bare;        /* it was given without a kind */
};

/* Each returns the status to exit with, and has told what was wrong. */
int command_register(struct job *j);
int command_mount(struct job *j);
int command_unmount(struct job *j);
int command_list(struct job *j);
int command_show(struct job *j);
int command_unregister(struct job *j);

/* Of register: a segment of files. */
int register_files(struct job *j);

/* Tells what is wrong, on one line; returns `status`. */
__attribute__((format(printf, 2, 3))) int fail(int status, const char *fmt, ...);
/* The same where the segment is not there; tells `consequence` and which names may have been meant. */
int fail_absent(const struct job *j, const char *consequence);

#endif
