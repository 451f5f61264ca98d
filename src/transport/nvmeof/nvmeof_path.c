/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/nvmeof/nvmeof.h"

#include "base/err.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANY_HOST "*"

/* -------------------------------------------------------------------------------- which path it is */

void tei_nvmeof_names(const char *segment, struct nvmeof_names *out)
{
    struct tei_hostport where;

    *out = (struct nvmeof_names){.segment = segment};
    if (tei_hostport_has_port(segment) && !tei_hostport_read(segment, 0, &where))
        snprintf(out->host, sizeof out->host, "%s", where.host);
    if (gethostname(out->system, sizeof out->system - 1) != 0)
        out->system[0] = '\0';
}

static bool is_me(const struct nvmeof_names *me, const char *host)
{
    return host && host[0] &&
           (strcmp(host, me->segment) == 0 || strcmp(host, me->host) == 0 ||
            strcmp(host, me->system) == 0);
}

/* The entry of this host, of the first of its names that has one. */
static const char *mapped(const json_t *buffer, const struct nvmeof_names *me)
{
    const char *const names[] = {me->segment, me->host, me->system, ANY_HOST};
    const json_t *map = json_object_get(buffer, "local_path_map");
    const char *path = NULL;

    for (size_t i = 0; i < TEI_ARRAY_LEN(names) && !path; i++)
        path = names[i][0] ? json_string_value(json_object_get(map, names[i])) : NULL;
    return path;
}

/* ".." could lead out of what the path seems to be in. */
static bool climbs(const char *path)
{
    for (const char *p = path; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || p[2] == '\0'))
            return true;
    }
    return false;
}

static bool is_sound(const char *path)
{
    return path[0] == '/' && !climbs(path) && strlen(path) < PATH_MAX;
}

/* The same of the keys of one buffer. */
static char *path_of(const json_t *buffer, const char *server, size_t index,
                     const struct nvmeof_names *me, char *why, size_t n)
{
    const char *there = json_string_value(json_object_get(buffer, "file_path"));
    const char *path = mapped(buffer, me);
    char *copy;

    if (!path && is_me(me, server))
        path = there;
    if (!path) {
        snprintf(
            why, n,
            "file %zu, %.200s of host %.100s, has no path on this host: its record has none for "
            "%.100s or %.100s; mount it here and tell with 'te_segment mount'",
            index, there, server ? server : "(not told)", me->segment, me->system);
        return NULL;
    }
    if (!is_sound(path)) {
        snprintf(why, n, "file %zu: its path %.300s is not absolute, too long, or has '..' in it",
                 index, path);
        return NULL;
    }
    copy = strdup(path);
    if (!copy)
        snprintf(why, n, "no memory");
    return copy;
}

char *tei_nvmeof_path(const struct tei_segment *s, size_t index, const struct nvmeof_names *me,
                      char *why, size_t n)
{
    const char *server = json_string_value(json_object_get(s->root, "server_name"));
    json_t *buffer = tei_segment_buffer(s, index);
    char *path = NULL;

    if (buffer)
        path = path_of(buffer, server, index, me, why, n);
    else
        snprintf(why, n, "no memory");
    json_decref(buffer);
    return path;
}

/* ------------------------------------------------------------------------------ what may be opened */

int tei_nvmeof_roots_add(struct nvmeof_roots *r, const char *path)
{
    size_t len = strlen(path) + 1;
    struct nvmeof_root *root;

    if (!is_sound(path))
        return TEI_FAIL(
            TE_ERR_INVALID,
            "path '%.200s' for files (TE_FILE_PATHS, or of an installation): it must be "
            "absolute and without '..'",
            path);
    root = malloc(sizeof *root + len);
    if (!root)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a path of files");
    memcpy(root->path, path, len);
    root->next = atomic_load_explicit(&r->first, memory_order_relaxed);
    /* Release: partner of the acquire in is_allowed(). */
    while (!atomic_compare_exchange_weak_explicit(&r->first, &root->next, root,
                                                  memory_order_release, memory_order_relaxed))
        continue;
    return 0;
}

int tei_nvmeof_roots_add_all(struct nvmeof_roots *r, const char *list)
{
    char *copy = strdup(list), *at = copy;
    int rc = copy ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory for TE_FILE_PATHS");

    while (!rc && at && *at) {
        const char *path = strsep(&at, ":");

        if (*path)
            rc = tei_nvmeof_roots_add(r, path);
    }
    free(copy);
    return rc;
}

void tei_nvmeof_roots_fini(struct nvmeof_roots *r)
{
    struct nvmeof_root *root = atomic_load_explicit(&r->first, memory_order_relaxed);

    while (root) {
        struct nvmeof_root *next = root->next;

        free(root);
        root = next;
    }
}

/* The name that a path goes on with, past slashes and "." between them; "": it ends. */
static const char *next_name(const char *p)
{
    while (*p == '/' || (*p == '.' && (p[1] == '/' || p[1] == '\0')))
        p++;
    return p;
}

/* Whether a path is `root`, or one below it, by what both say. */
static bool is_below(const char *path, const char *root)
{
    size_t n = 0;

    do {
        path = next_name(path + n);
        root = next_name(root + n);
        n = strcspn(root, "/");
    } while (n && strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == '\0'));
    return n == 0;
}

/* The same of where the root's links lead. */
static bool is_really_below(const char *path, const char *root)
{
    char *there = realpath(root, NULL);
    bool below = there && is_below(path, there);

    free(there);
    return below;
}

/* `real`: the path is without links, and only where the roots' links lead counts. */
static bool is_listed(const struct nvmeof_roots *roots, const char *path, bool real)
{
    const struct nvmeof_root *root = atomic_load_explicit(&roots->first, memory_order_acquire);

    while (root && (real || !is_below(path, root->path)) && !is_really_below(path, root->path))
        root = root->next;
    return root != NULL;
}

/* Whether no list says what the program may open by its path. */
static bool is_free(const struct nvmeof_roots *roots, bool by_path)
{
    return by_path && !atomic_load_explicit(&roots->first, memory_order_acquire);
}

int tei_nvmeof_admit(const struct nvmeof_roots *roots, const char *path, bool by_path, char *why,
                     size_t n)
{
    if (is_free(roots, by_path) || is_listed(roots, path, false))
        return 0;
    snprintf(why, n,
             "%.180s is not at or below a path in TE_FILE_PATHS, or one given to "
             "te_transport_install() with \"nvmeof\": add it there if it may be opened",
             path);
    return TE_ERR_ACCESS;
}

/* ---------------------------------------------------------------------------------------- opening */

int tei_nvmeof_walk(const char *path)
{
    int fd = tei_fd_own(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));

    for (path = next_name(path); fd >= 0 && *path;) {
        char name[PATH_MAX];
        size_t n = strcspn(path, "/");
        int parent = fd, error;

        snprintf(name, sizeof name, "%.*s", (int)n, path);
        path = next_name(path + n);
        fd = tei_fd_own(
            openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC | (*path ? O_DIRECTORY : 0)));
        error = errno;
        tei_fd_close(parent);
        errno = error;
    }
    return fd;
}

/* EXDEV: its links lead to where nothing is listed. */
static int open_path(const struct nvmeof_roots *roots, const char *path, bool by_path)
{
    char real[PATH_MAX];

    if (is_free(roots, by_path))
        return tei_fd_own(open(path, O_PATH | O_CLOEXEC));
    if (!realpath(path, real))
        return -1;
    if (is_listed(roots, real, true))
        return tei_nvmeof_walk(real);
    errno = EXDEV;
    return -1;
}

static int error_of_open(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ENXIO:
    case ENODEV:
        return TE_ERR_NOT_FOUND;
    case EACCES:
    case EPERM:
    case ELOOP:
        return TE_ERR_ACCESS;
    default:
        return TE_ERR_SYSTEM;
    }
}

/* Why open_path() has failed; *error was its errno. */
static int fail_open(const char *path, int *error, char *why, size_t n)
{
    if (*error != EXDEV) {
        snprintf(why, n, "opening %.200s", path);
        return error_of_open(*error);
    }
    *error = 0;
    snprintf(why, n,
             "links lead %.180s out of the paths in TE_FILE_PATHS and those given to "
             "te_transport_install() with \"nvmeof\": add where it leads if that may be opened",
             path);
    return TE_ERR_ACCESS;
}

int tei_nvmeof_find(const struct nvmeof_roots *roots, const char *path, bool by_path, int *out,
                    int *error, char *why, size_t n)
{
    int fd, rc = tei_nvmeof_admit(roots, path, by_path, why, n);
    struct stat st;

    *error = 0;
    if (rc)
        return rc;
    fd = open_path(roots, path, by_path);
    if (fd < 0) {
        *error = errno;
        return fail_open(path, error, why, n);
    }
    if (fstat(fd, &st) != 0 || (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))) {
        snprintf(why, n, "%.180s is neither a regular file nor a block device", path);
        tei_fd_close(fd);
        return TE_ERR_INVALID;
    }
    *out = fd;
    return 0;
}
