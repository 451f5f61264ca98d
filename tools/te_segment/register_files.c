/* SPDX-License-Identifier: Apache-2.0 */
/* register_files.c - a segment whose buffers are files and block devices of this host. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "te_segment/change.h"
#include "te_segment/file.h"

#define FILES_MAX 1024 /* of one command line */

struct new_file {
    char path[PATH_MAX];
    uint64_t length;
    struct file_info info;
    bool created;
};

struct new_segment {
    struct new_file *files;
    size_t n;
    char host[HOST_TEXT_MAX];
    json_t *targets; /* NULL: none was given */
};

/* ---- checks */

static int check_new_name(const char *name)
{
    size_t kind = strlen(RECORD_KIND);

    if (strlen(name) >= TEI_HOSTPORT_MAX)
        return fail(USAGE, "cannot register '%.60s...': a name has at most %d bytes", name,
                    TEI_HOSTPORT_MAX - 1);
    if (strncmp(name, RECORD_KIND, kind) != 0 || strchr(name + kind, '/') ||
        !text_is_path(name + kind, false))
        return fail(USAGE,
                    "cannot register these files as '%.300s': it is " RECORD_KIND "NAME or NAME, "
                    "where NAME is UTF-8 without '/' and control characters, and not '.' or '..'",
                    name);
    return 0;
}

static int check_vacant(struct job *j)
{
    struct tei_bytes text = {0};
    int rc = registry_get(&j->registry, tei_keys_segment(j->registry.conf, j->name), &text);

    tei_bytes_fini(&text);
    if (rc && rc != TE_ERR_NOT_FOUND)
        return fail(FAILED, "%s", te_errmsg());
    if (!rc)
        return fail(FAILED,
                    "segment '%s' is registered already; --force replaces it, and hosts that have "
                    "mounted it must mount it again",
                    j->name);
    return 0;
}

/* ---- files */

static int create_file(struct new_file *f, const char *path, uint64_t size)
{
    char why[WHY_MAX];

    if (access(path, F_OK) == 0)
        return 0;
    f->created = file_create(path, size, why);
    /* Known from here on, so that it is taken away again should the rest fail. */
    if (!f->created || !realpath(path, f->path))
        return fail(FAILED, "file '%s': %s", path, f->created ? "it is gone" : why);
    return 0;
}

/* The bytes to register: all there are, or what --length says. */
static int choose_length(const struct settings *s, struct new_file *f, const char *path)
{
    uint64_t have = f->info.length;

    if (s->create > have)
        return fail(FAILED,
                    "file '%s' is there already, and has %" PRIu64 " bytes, less than --create: "
                    "remove it or make it larger",
                    path, have);
    if (s->length > have)
        return fail(FAILED, "file '%s' has %" PRIu64 " bytes, less than --length=%" PRIu64, path,
                    have, s->length);
    f->length = s->length ? s->length : have;
    return 0;
}

static int check_twice(const struct new_segment *s, const struct new_file *f)
{
    for (const struct new_file *other = s->files; other < f; other++)
        if (other->info.dev == f->info.dev && other->info.number == f->info.number &&
            other->info.is_device == f->info.is_device)
            return fail(FAILED,
                        "file '%s' is the same as '%s': its bytes would be in the segment "
                        "twice",
                        f->path, other->path);
    return 0;
}

static int add_file(struct job *j, struct new_segment *s, const char *path)
{
    struct new_file *f = &s->files[s->n++];
    char why[WHY_MAX];
    int rc = 0;

    if (!path[0])
        return fail(USAGE, "--file has an empty path");
    if (j->settings->create)
        rc = create_file(f, path, j->settings->create);
    if (rc)
        return rc;
    if (!file_probe(path, &f->info, why))
        return fail(FAILED, "file '%s': %s", path, why);
    if (f->info.is_read_only)
        return fail(FAILED, "file '%s' can be opened for reading only", path);
    if (!file_record_path(path, f->info.is_device, f->path, why))
        return fail(FAILED, "file '%s': %s", path, why);
    rc = choose_length(j->settings, f, path);
    return rc ? rc : check_twice(s, f);
}

static int add_files(struct job *j, struct new_segment *s)
{
    size_t n;
    char **paths = text_split(j->settings->file, &n);
    int rc = 0;

    if (!paths)
        return fail(FAILED, "no memory for the files");
    if (n > FILES_MAX)
        rc = fail(USAGE, "--file names %zu files, more than %d", n, FILES_MAX);
    else if (!(s->files = calloc(n, sizeof *s->files)))
        rc = fail(FAILED, "no memory for the files");
    for (size_t i = 0; i < n && !rc; i++)
        rc = add_file(j, s, paths[i]);
    free(paths);
    return rc;
}

/* ---- how others reach them */

/* One for each file, or one whose nsid counts up. */
static int add_target(struct new_segment *s, size_t i, char *const *urls, size_t n)
{
    const char *url = n == 1 ? urls[0] : urls[i];
    char why[WHY_MAX];
    json_t *one = target_parse(url, n == 1 ? (uint32_t)i : 0, why);

    if (!one)
        return fail(USAGE, "--target='%.300s': %s", url, why);
    if (n == 1 && s->n > 1 && json_object_get(one, "fs_path")) {
        json_decref(one);
        return fail(USAGE, "--target: with fs_path give one for each of the %zu files", s->n);
    }
    return json_array_append_new(s->targets, one) ? fail(FAILED, "no memory for the targets") : 0;
}

static int add_targets(struct job *j, struct new_segment *s)
{
    size_t n;
    char **urls = text_split(j->settings->target, &n);
    int rc = 0;

    s->targets = json_array();
    if (!urls || !s->targets)
        rc = fail(FAILED, "no memory for the targets");
    else if (n != 1 && n != s->n)
        rc = fail(USAGE,
                  "--target names %zu targets for %zu files: give one for each, or one for all", n,
                  s->n);
    for (size_t i = 0; i < s->n && !rc; i++)
        rc = add_target(s, i, urls, n);
    free(urls);
    return rc;
}

/* ---- the record */

static json_t *buffers_of(const struct new_segment *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->n; i++) {
        const struct new_file *f = &s->files[i];
        json_t *one = json_pack("{ss sI s{ss}}", "file_path", f->path, "length",
                                (json_int_t)f->length, "local_path_map", s->host, f->path);

        if (!one || json_array_append_new(list, one)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Whether what was given is the device that the file will be on: how long that is, nobody knows. */
static bool is_below_device(const struct new_segment *s, size_t i)
{
    return s->files[i].info.is_device && json_object_get(json_array_get(s->targets, i), "fs_path");
}

/* What the files have, where that is more than was registered; NULL: of none it is. */
static json_t *wholes_of(const struct new_segment *s)
{
    json_t *list = json_array();
    bool more = false;

    for (size_t i = 0; i < s->n; i++) {
        uint64_t whole = s->files[i].info.length;

        more |= whole > s->files[i].length;
        json_array_append_new(list, is_below_device(s, i) ? json_null()
                                                          : json_integer((json_int_t)whole));
    }
    if (more && json_array_size(list) == s->n)
        return list;
    json_decref(list);
    return NULL;
}

/* Sixteen zeros: no life of an engine has written this. */
static json_t *te_of(const struct new_segment *s)
{
    json_t *nvmeof = json_pack("{sO* so*}", "target", s->targets, "file_length", wholes_of(s));

    if (json_object_size(nvmeof))
        return json_pack("{si ss si so}", "v", 1, "incarnation", "0000000000000000", "version", 0,
                         "nvmeof", nvmeof);
    json_decref(nvmeof);
    return NULL;
}

static char *text_of(const struct job *j, const struct new_segment *s, size_t *len)
{
    char when[40], *text;
    json_t *root;

    tei_timestamp(when, sizeof when);
    root = json_pack("{so ss ss ss si si ss so*}", "buffers", buffers_of(s), "name", j->name,
                     "server_name", s->host, "protocol", "nvmeof", "tcp_data_port", 0,
                     "tcp_proto_version", 1, "timestamp", when, "te", te_of(s));
    text = root ? tei_json_text(root, len) : NULL;
    json_decref(root);
    return text;
}

static int store(struct job *j, const struct new_segment *s)
{
    size_t len;
    char *text = text_of(j, s, &len);
    int rc;

    if (!text)
        return fail(FAILED, "no memory for the descriptor");
    rc = registry_put(&j->registry, tei_keys_segment(j->registry.conf, j->name), text, len);
    free(text);
    return rc ? fail(FAILED, "segment '%s' is not registered: %s", j->name, te_errmsg()) : 0;
}

static int check_sum(const struct new_segment *s)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < s->n; i++) {
        if (!tei_add_ok(sum, s->files[i].length, &sum) || sum > INT64_MAX)
            return fail(FAILED, "the files together have more than 2^63-1 bytes");
    }
    return 0;
}

static void tell(const struct job *j, const struct new_segment *s)
{
    printf("registered %s\n", j->name);
    for (size_t i = 0; i < s->n; i++)
        printf("  %s  %" PRIu64 " bytes%s\n", s->files[i].path, s->files[i].length,
               s->files[i].created ? ", made" : "");
}

static void segment_fini(struct new_segment *s, bool undo)
{
    for (size_t i = 0; undo && i < s->n; i++)
        if (s->files[i].created)
            unlink(s->files[i].path);
    free(s->files);
    json_decref(s->targets);
}

int register_files(struct job *j)
{
    struct new_segment s = {0};
    char why[WHY_MAX];
    int rc = check_new_name(j->name);

    if (!rc && !host_name(j->settings->server_name, s.host, why))
        rc = fail(USAGE, "%s", why);
    if (!rc && !j->settings->force)
        rc = check_vacant(j);
    if (!rc)
        rc = add_files(j, &s);
    if (!rc)
        rc = check_sum(&s);
    if (!rc && j->settings->target[0])
        rc = add_targets(j, &s);
    if (!rc)
        rc = store(j, &s);
    if (!rc)
        tell(j, &s);
    segment_fini(&s, rc);
    return rc;
}
