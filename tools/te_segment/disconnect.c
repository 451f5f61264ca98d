/* SPDX-License-Identifier: Apache-2.0 */
/* disconnect.c - takes away what connect.c has brought, unless another segment uses it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "te_segment/connect.h"
#include "te_segment/mount_dir.h"
#include "te_segment/nvme.h"

/* ---- who else uses a subsystem */

static bool uses(const json_t *root, const char *nqn, const char *host)
{
    struct target t;

    for (size_t i = 0; i < record_count(root); i++)
        if (record_on(root, i, host) && record_target(root, i, &t) && strcmp(t.subnqn, nqn) == 0)
            return true;
    return false;
}

/* The name of another segment of which this host has a file in that subsystem; NULL if none. */
static const char *find_user(const struct job *j, const struct entry *list, size_t n,
                             const char *nqn, const char *host)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].is_files && strcmp(list[i].name, j->name) != 0 && uses(list[i].root, nqn, host))
            return list[i].name;
    return NULL;
}

static int disconnect_unused(struct job *j, const char *nqn, const char *host)
{
    struct entry *list = NULL;
    const char *user;
    size_t n = 0;
    int rc = 0;

    if (!j->settings->force && registry_list(&j->registry, &list, &n))
        return fail(FAILED,
                    "%s stays connected, as other segments may use it: %s; --force "
                    "disconnects it nevertheless",
                    nqn, te_errmsg());
    user = find_user(j, list, n, nqn, host);
    if (user)
        printf("%s stays connected: %s uses it\n", nqn, user);
    else
        rc = nvme_disconnect(nqn);
    if (!user && !rc)
        printf("disconnected %s\n", nqn);
    entries_free(list, n);
    return rc;
}

/* ---- of one segment */

static int unmount_all(const struct job *j, const json_t *root)
{
    char dir[PATH_MAX];

    for (size_t i = record_count(root); i-- > 0;) {
        int rc;

        mount_dir_of(j, i, dir);
        if (access(dir, F_OK))
            continue;
        rc = mount_dir_end(dir);
        if (rc)
            return rc;
        printf("unmounted %s\n", dir);
    }
    mount_dirs_remove(j);
    return 0;
}

/* Of each subsystem once. */
static int disconnect_all(struct job *j, const json_t *root, const char *host, json_t *done)
{
    int rc = 0;

    for (size_t i = 0; i < record_count(root) && !rc; i++) {
        struct target t;

        if (!record_target(root, i, &t) || json_object_get(done, t.subnqn))
            continue;
        json_object_set_new(done, t.subnqn, json_true());
        if (nvme_is_connected(j->registry.conf->sysfs_path, t.subnqn))
            rc = disconnect_unused(j, t.subnqn, host);
    }
    return rc;
}

int disconnect_files(struct job *j, const json_t *root, const char *host)
{
    json_t *done = json_object();
    int rc = done ? unmount_all(j, root) : fail(FAILED, "no memory for the subsystems");

    if (!rc)
        rc = disconnect_all(j, root, host, done);
    json_decref(done);
    return rc;
}
