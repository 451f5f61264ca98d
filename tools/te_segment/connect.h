/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connect.h - brings the files of a record to this host by NVMe over fabrics, and takes them away.
 *
 * Of each file with a target: nvme(1) connects the subsystem, unless that is connected already; the
 * namespace's block device is waited for; mount(8) mounts the file system on it at
 * --mount_dir/NAME/<number of the file>, if the target says where in one the file is.
 */
#ifndef TE_SEGMENT_CONNECT_H
#define TE_SEGMENT_CONNECT_H

#include "te_segment/change.h"

struct link;

/* What has been done so far, for connect_undo(). */
struct links {
    const struct job *job;
    const json_t *root;
    struct link *list;
    const char **paths; /* of each file on this host; NULL: it has no target */
    size_t n;
};

/* 0, or the status to exit with after a message; then all is undone. */
int connect_files(const struct job *j, const json_t *root, struct links *out);
/* Ends what connect_files() has begun, the last first. */
void connect_undo(struct links *l);
void connect_fini(struct links *l);

/*
 * Unmounts what connect_files() has mounted for this segment, and disconnects its subsystems, but
 * not one of which `host` has files of another segment.
 */
int disconnect_files(struct job *j, const json_t *root, const char *host);

/* nvme disconnect. */
int nvme_disconnect(const char *nqn);

#endif
