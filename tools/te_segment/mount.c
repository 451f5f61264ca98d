/* SPDX-License-Identifier: Apache-2.0 */
/* mount.c - mount and unmount: where a host has the files of a segment. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "te_segment/change.h"
#include "te_segment/connect.h"
#include "te_segment/file.h"
#include "te_segment/mount_dir.h"

static int check_flags(const struct job *j, char host[HOST_TEXT_MAX])
{
    char why[WHY_MAX];

    if (strncmp(j->name, RECORD_KIND, strlen(RECORD_KIND)) != 0)
        return fail(USAGE, "'%s' is no segment of files: it is " RECORD_KIND "NAME or NAME",
                    j->name);
    return host_name(j->settings->server_name, host, why) ? 0 : fail(USAGE, "%s", why);
}

static void tell(const struct job *j, const json_t *root, const struct change *c)
{
    printf("mounted %s on %s\n", j->name, c->host);
    for (size_t i = 0; i < record_count(root); i++) {
        if (c->paths[i])
            printf("  %s  %" PRIu64 " bytes\n", c->paths[i], record_length(root, i));
        else
            printf("  (file %zu is left as it is)\n", i);
    }
}

/* ---- --path */

/* Its path as it is to be recorded, malloc'ed. */
static int check_path(const struct job *j, const json_t *root, size_t i, const char *given,
                      char **out)
{
    char path[PATH_MAX], why[WHY_MAX];
    struct file_info info;

    if (!record_takes(j, root, i, given, &info, why) ||
        !file_record_path(given, info.is_device, path, why))
        return fail(FAILED, "file '%s': %s", given, why);
    *out = strdup(path);
    return *out ? 0 : fail(FAILED, "no memory for the paths");
}

/* An empty one leaves its file as it is, but not all can be empty. */
static int check_paths(const struct job *j, const json_t *root, char *const *given, size_t n,
                       char **paths)
{
    bool any = false;

    if (n != record_count(root))
        return fail(USAGE, "--path names %zu paths, the segment has %zu files: give one for each",
                    n, record_count(root));
    for (size_t i = 0; i < n; i++) {
        int rc = given[i][0] ? check_path(j, root, i, given[i], &paths[i]) : 0;

        if (rc)
            return rc;
        any |= paths[i] != NULL;
    }
    return any ? 0 : fail(USAGE, "--path has no path");
}

static int mount_paths(struct job *j, const json_t *root, const char *host)
{
    size_t n = 0, count = record_count(root);
    char **given = text_split(j->settings->path, &n);
    char **paths = calloc(count + 1, sizeof *paths);
    struct change c = {.host = host, .paths = (const char *const *)paths};
    int rc = given && paths ? check_paths(j, root, given, n, paths)
                            : fail(FAILED, "no memory for the paths");

    if (!rc)
        rc = record_change(j, root, &c);
    if (!rc)
        tell(j, root, &c);
    for (size_t i = 0; paths && i < count; i++)
        free(paths[i]);
    free(paths);
    free(given);
    return rc;
}

/* ---- --connect */

static int mount_connect(struct job *j, const json_t *root, const char *host)
{
    struct change c = {.host = host};
    struct links links;
    int rc = connect_files(j, root, &links);

    if (rc)
        return rc;
    c.paths = links.paths;
    rc = record_change(j, root, &c);
    if (rc)
        connect_undo(&links);
    else
        tell(j, root, &c);
    connect_fini(&links);
    return rc;
}

int command_mount(struct job *j)
{
    const struct settings *s = j->settings;
    char host[HOST_TEXT_MAX];
    json_t *root = NULL;
    int rc = check_flags(j, host);

    if (!rc && s->connect == (s->path[0] != '\0'))
        rc = fail(USAGE, "mount takes either --path=PATH[,PATH...] or --connect");
    if (!rc && s->connect)
        rc = mount_dir_check(j);
    if (!rc)
        rc = record_load(j, &root);
    if (rc)
        return rc;
    if (!record_count(root))
        rc = fail(FAILED, "segment '%s' has no files", j->name);
    else
        rc = s->connect ? mount_connect(j, root, host) : mount_paths(j, root, host);
    json_decref(root);
    return rc;
}

/* ---- unmount */

static bool is_mapped(const json_t *root, const char *host)
{
    for (size_t i = 0; i < record_count(root); i++)
        if (record_on(root, i, host))
            return true;
    return false;
}

/* What is not recorded may still be mounted, where that has failed before. */
static int unmount(struct job *j, const json_t *root, const char *host)
{
    struct change c = {.host = host};
    bool mapped = is_mapped(root, host);
    int rc;

    if (!mapped && !j->settings->disconnect)
        return fail(FAILED, "segment '%s' has no path of %s: nothing was removed", j->name, host);
    rc = record_change(j, root, &c);
    if (!rc && mapped)
        printf("unmounted %s on %s\n", j->name, host);
    if (!rc && j->settings->disconnect)
        rc = disconnect_files(j, root, host);
    return rc;
}

int command_unmount(struct job *j)
{
    char host[HOST_TEXT_MAX];
    json_t *root = NULL;
    int rc = check_flags(j, host);

    if (!rc && j->settings->force && !j->settings->disconnect)
        rc = fail(USAGE, "unmount takes --force with --disconnect only");
    if (!rc && j->settings->disconnect)
        rc = mount_dir_check(j);
    if (!rc)
        rc = record_load(j, &root);
    if (rc)
        return rc;
    rc = unmount(j, root, host);
    json_decref(root);
    return rc;
}
