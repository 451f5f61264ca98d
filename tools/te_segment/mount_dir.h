/* SPDX-License-Identifier: Apache-2.0 */
/* mount_dir.h - the folders that file systems of a segment are mounted at: DIR/NAME/0, DIR/NAME/1, ... */
#ifndef TE_SEGMENT_MOUNT_DIR_H
#define TE_SEGMENT_MOUNT_DIR_H

#include <limits.h>

#include "te_segment/command.h"

/* Whether --mount_dir and the name of the segment make paths; to be asked before the others. */
int mount_dir_check(const struct job *j);

/* That of file i. */
void mount_dir_of(const struct job *j, size_t i, char out[PATH_MAX]);

/* Makes it, and what it is in. */
int mount_dir_make(const char *path);

/* Unmounts what is there, and removes the folder. */
int mount_dir_end(const char *dir);

/* Removes the folder of all of the segment's, if it is empty. */
void mount_dirs_remove(const struct job *j);

#endif
