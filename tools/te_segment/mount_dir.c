/* SPDX-License-Identifier: Apache-2.0 */
#include "te_segment/mount_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "te_segment/program.h"
#include "te_segment/text.h"

static const char *own_name(const struct job *j)
{
    return strchr(j->name, '/') + 1;
}

int mount_dir_check(const struct job *j)
{
    if (!text_is_path(j->settings->mount_dir, true) ||
        strlen(j->settings->mount_dir) + strlen(j->name) + 32 > PATH_MAX)
        return fail(USAGE, "--mount_dir='%.300s' is no absolute path without '.' and '..'",
                    j->settings->mount_dir);
    if (!text_is_path(own_name(j), false))
        return fail(FAILED, "segment '%s': no folder can have its name", j->name);
    return 0;
}

void mount_dir_of(const struct job *j, size_t i, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/%s/%zu", j->settings->mount_dir, own_name(j), i);
}

int mount_dir_make(const char *path)
{
    char part[PATH_MAX];

    strcpy(part, path);
    for (char *at = part + 1;; at++) {
        bool last = !*at;

        if (*at && *at != '/')
            continue;
        *at = '\0';
        if (mkdir(part, 0755) && errno != EEXIST)
            return fail(FAILED, "folder '%s' cannot be made: %s", part, strerror(errno));
        if (last)
            return 0;
        *at = '/';
    }
}

int mount_dir_end(const char *dir)
{
    const char *const argv[] = {"umount", dir, NULL};
    int rc = program_run(argv, PROGRAM_UNDO_S);

    if (!rc && rmdir(dir))
        rc = fail(FAILED, "folder '%s' stays: %s", dir, strerror(errno));
    return rc;
}

void mount_dirs_remove(const struct job *j)
{
    char dir[PATH_MAX];

    mount_dir_of(j, 0, dir);
    *strrchr(dir, '/') = '\0';
    rmdir(dir); /* which fails while there is something in it */
}
