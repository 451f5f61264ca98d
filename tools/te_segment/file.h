/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - files and block devices of this host, and what this host is called. */
#ifndef TE_SEGMENT_FILE_H
#define TE_SEGMENT_FILE_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "te_segment/text.h"

struct file_info {
    uint64_t length;
    bool is_device, is_read_only; /* the latter: for us */
    dev_t dev;                    /* of a device its own, else that of its file system */
    ino_t number;                 /* 0 for a device */
};

/*
 * Looks whether it is a regular file or a block device, not empty, not in use as a mounted device
 * or part of another one, that can be opened for reading, and for writing as well or not.
 */
bool file_probe(const char *path, struct file_info *out, char why[WHY_MAX]);

/* The same, and that it has that many bytes or more. */
bool file_holds(const char *path, uint64_t length, struct file_info *out, char why[WHY_MAX]);

/* The same, and that it has `whole` bytes, as the one that was registered, and no more; 0: unknown. */
bool file_is(const char *path, uint64_t length, uint64_t whole, struct file_info *out,
             char why[WHY_MAX]);

/*
 * The path to record: absolute and without links, but a device keeps the name that it was given by,
 * as /dev/disk/by-id/..., which outlives a restart.
 */
bool file_record_path(const char *given, bool is_device, char out[PATH_MAX], char why[WHY_MAX]);

/* Makes a file of that size with every block of it allocated; false if it is there already, too. */
bool file_create(const char *path, uint64_t size, char why[WHY_MAX]);

/* ---- hosts */

#define HOST_TEXT_MAX 512

/* `given`, or gethostname(2) if that is "". */
bool host_name(const char *given, char out[HOST_TEXT_MAX], char why[WHY_MAX]);

/* What an engine with `given` as its local_server_name goes by, in this order; their number. */
size_t host_names(const char *given, char out[3][HOST_TEXT_MAX]);

#endif
