/* SPDX-License-Identifier: Apache-2.0 */
/* change.h - the record of a segment of files, read from the server and changed there. */
#ifndef TE_SEGMENT_CHANGE_H
#define TE_SEGMENT_CHANGE_H

#include "te_segment/command.h"
#include "te_segment/file.h"
#include "te_segment/record.h"

/*
 * Reads the record of the segment: a reference to its JSON, which the caller may change. 0, or the
 * status to exit with after a message.
 */
int record_load(struct job *j, json_t **out);

/*
 * Whether a file of this host can be file i of the record: with --force one that is longer than what
 * was registered, too.
 */
bool record_takes(const struct job *j, const json_t *root, size_t i, const char *path,
                  struct file_info *info, char why[WHY_MAX]);

/* What one host says of where it has the files. */
struct change {
    const char *host;
    const char *const *paths; /* of each file, NULL: no change; paths NULL: the host has none */
};

/*
 * Makes the change in the record as it is now, whose files must be those of `seen`, and sees to it
 * that it stays there. 0, or the status to exit with after a message.
 */
int record_change(struct job *j, const json_t *seen, const struct change *c);

#endif
