/* SPDX-License-Identifier: Apache-2.0 */
/*
 * change.c - what a host adds to a record, or takes out of it, while others do the same.
 *
 * The stores cannot compare and swap. So a record is read, changed and put, and after a moment read
 * again: whoever had read it before our put and put it after has undone ours, and what we had read
 * of others with it. Then both are put together, and it is looked at again. The moment is several
 * times what reading and putting took ourselves; another one that takes still longer in between can
 * lose our entry, which te_segment show then tells.
 */
#include "te_segment/change.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/os.h"

#define TRIES     12
#define MOMENT_MS 150

int record_load(struct job *j, json_t **out)
{
    struct registry *r = &j->registry;
    struct tei_segment *segment;
    struct tei_bytes text;
    char why[WHY_MAX];
    json_t *root = NULL;
    int rc = registry_get(r, tei_keys_segment(r->conf, j->name), &text);

    if (rc == TE_ERR_NOT_FOUND)
        return fail_absent(j, "");
    if (rc)
        return fail(FAILED, "segment '%s': %s", j->name, te_errmsg());
    rc = tei_segment_decode(text.data, text.len, &tei_segment_unlimited, &segment);
    if (!rc)
        root = json_loadb(text.data, text.len, 0, NULL);
    tei_bytes_fini(&text);
    if (rc)
        return fail(FAILED, "segment '%s' is malformed: %s", j->name, te_errmsg());
    if (!segment->files)
        rc = fail(FAILED, "segment '%s' is none of files", j->name);
    else if (!root)
        rc = fail(FAILED, "segment '%s': no memory", j->name);
    else if (!record_check(root, why))
        rc = fail(FAILED, "segment '%s' is malformed: %s", j->name, why);
    else
        *out = json_incref(root);
    json_decref(root);
    tei_segment_put(segment);
    return rc;
}

bool record_takes(const struct job *j, const json_t *root, size_t i, const char *path,
                  struct file_info *info, char why[WHY_MAX])
{
    uint64_t length = record_length(root, i);

    return j->settings->force ? file_holds(path, length, info, why)
                              : file_is(path, length, record_whole(root, i), info, why);
}

/* ---- one change */

static int set_path(json_t *root, size_t i, const char *host, const char *path)
{
    json_t *map = record_map(root, i);

    if (!map) {
        json_t *file = json_array_get(json_object_get(root, "buffers"), i);

        if (json_object_set_new(file, "local_path_map", json_object()))
            return -1;
        map = record_map(root, i);
    }
    return json_object_set_new(map, host, json_string(path));
}

static int apply(json_t *root, const struct change *c)
{
    char when[40];

    for (size_t i = 0; i < record_count(root); i++) {
        if (!c->paths)
            json_object_del(record_map(root, i), c->host);
        else if (c->paths[i] && set_path(root, i, c->host, c->paths[i]))
            return -1;
    }
    tei_timestamp(when, sizeof when);
    return json_object_set_new(root, "timestamp", json_string(when));
}

static bool holds(const json_t *root, const struct change *c)
{
    for (size_t i = 0; i < record_count(root); i++) {
        const char *path = record_on(root, i, c->host);

        if (!c->paths && path)
            return false;
        if (c->paths && c->paths[i] && !(path && strcmp(path, c->paths[i]) == 0))
            return false;
    }
    return true;
}

/* Adds what was in `old`, and that somebody who had not read it has put aside. */
static int merge(json_t *root, const json_t *old)
{
    for (size_t i = 0; i < record_count(root); i++) {
        const char *host;
        json_t *path;

        json_object_foreach(record_map(old, i), host, path) {
            if (!record_on(root, i, host) && set_path(root, i, host, json_string_value(path)))
                return -1;
        }
    }
    return 0;
}

/* ---- until it stays */

static int put(struct job *j, const json_t *root)
{
    size_t len;
    char *text = tei_json_text(root, &len);
    int rc;

    if (!text)
        return fail(FAILED, "no memory for the descriptor");
    rc = registry_put(&j->registry, tei_keys_segment(j->registry.conf, j->name), text, len);
    free(text);
    return rc ? fail(FAILED, "segment '%s' is not changed: %s", j->name, te_errmsg()) : 0;
}

/* Longer with each try, and by chance, so that those who are at it come apart. */
static void wait_a_moment(unsigned tries, int64_t took_ns)
{
    uint64_t ms = MOMENT_MS + tei_random_u64() % (MOMENT_MS * (tries + 1));

    ms += 4 * (uint64_t)(took_ns / TEI_NS_PER_MS);
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000),
                                 .tv_nsec = (long)(ms % 1000) * TEI_NS_PER_MS},
              NULL);
}

/* Reads the record, whose files must not be other ones. */
static int load_same(struct job *j, const json_t *seen, json_t **out)
{
    json_t *root = NULL;
    int rc = record_load(j, &root);

    if (rc)
        return rc;
    if (!record_same_files(root, seen)) {
        json_decref(root);
        return fail(FAILED, "segment '%s' was registered anew meanwhile: try again", j->name);
    }
    *out = root;
    return 0;
}

/*
 * One try: looks whether the change is there, and makes it if not. `*last` is what the try before
 * has put, NULL at first; it becomes what is there now.
 */
static int try_change(struct job *j, const json_t *seen, const struct change *c, json_t **last,
                      bool *done)
{
    json_t *root = NULL;
    int rc = load_same(j, seen, &root);

    if (rc)
        return rc;
    *done = holds(root, c);
    if (!*done && ((*last && merge(root, *last)) || apply(root, c)))
        rc = fail(FAILED, "no memory for the descriptor");
    else if (!*done)
        rc = put(j, root);
    json_decref(*last);
    *last = root;
    return rc;
}

int record_change(struct job *j, const json_t *seen, const struct change *c)
{
    json_t *last = NULL;
    bool done = false;
    int64_t took = 0;
    int rc = 0;

    for (unsigned i = 0; i < TRIES && !rc && !done; i++) {
        int64_t start;

        if (i)
            wait_a_moment(i, took);
        start = tei_now_ns();
        rc = try_change(j, seen, c, &last, &done);
        took = tei_now_ns() - start;
    }
    json_decref(last);
    if (!rc && !done)
        rc = fail(FAILED, "segment '%s': others change it all the time, and undo this: try again",
                  j->name);
    return rc;
}
