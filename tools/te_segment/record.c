/* SPDX-License-Identifier: Apache-2.0 */
#include "te_segment/record.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#define HOST_MAX 1024 /* bytes of a name in local_path_map */

/* ---- checks */

static const char *path_in(const json_t *j)
{
    const char *path = json_string_value(j);

    return path && text_is_path(path, true) ? path : NULL;
}

static bool check_map(const json_t *map, size_t i, char why[WHY_MAX])
{
    const char *host;
    json_t *path;

    if (map && !json_is_object(map))
        return because(why, "buffers[%zu]: 'local_path_map' is no object", i);
    json_object_foreach((json_t *)(uintptr_t)map, host, path) {
        if (!text_is_plain(host, HOST_MAX))
            return because(why, "buffers[%zu]: 'local_path_map' has a key that is no host", i);
        if (!path_in(path))
            return because(why,
                           "buffers[%zu]: 'local_path_map' has for %.64s what is no absolute path",
                           i, host);
    }
    return true;
}

static bool check_file(const json_t *file, size_t i, uint64_t *sum, char why[WHY_MAX])
{
    const json_t *length = json_object_get(file, "length");

    if (!path_in(json_object_get(file, "file_path")))
        return because(why, "buffers[%zu]: 'file_path' is no absolute path", i);
    if (!json_is_integer(length) || json_integer_value(length) <= 0)
        return because(why, "buffers[%zu]: 'length' is no positive integer", i);
    *sum += (uint64_t)json_integer_value(length);
    if (*sum > INT64_MAX)
        return because(why, "buffers[%zu]: the lengths together are beyond 2^63-1", i);
    return check_map(json_object_get(file, "local_path_map"), i, why);
}

static const json_t *targets_of(const json_t *root)
{
    const json_t *te = json_object_get(root, "te");

    return json_object_get(json_object_get(te, "nvmeof"), "target");
}

static bool check_targets(const json_t *root, char why[WHY_MAX])
{
    const json_t *list = targets_of(root), *one;
    char reason[WHY_MAX];
    struct target t;
    size_t i;

    if (list && !json_is_array(list))
        return because(why, "te.nvmeof.target is no array");
    if (json_array_size(list) > record_count(root))
        return because(why, "te.nvmeof.target is longer than 'buffers'");
    json_array_foreach(list, i, one) {
        if (!json_is_null(one) && !target_read(one, &t, reason))
            return because(why, "te.nvmeof.target[%zu]: %.400s", i, reason);
    }
    return true;
}

static const json_t *wholes_of(const json_t *root)
{
    const json_t *te = json_object_get(root, "te");

    return json_object_get(json_object_get(te, "nvmeof"), "file_length");
}

/* Those of the lengths have been checked. */
static bool check_wholes(const json_t *root, char why[WHY_MAX])
{
    const json_t *list = wholes_of(root), *one;
    size_t i;

    if (list && !json_is_array(list))
        return because(why, "te.nvmeof.file_length is no array");
    if (json_array_size(list) > record_count(root))
        return because(why, "te.nvmeof.file_length is longer than 'buffers'");
    json_array_foreach(list, i, one) {
        if (!json_is_null(one) && json_integer_value(one) < (json_int_t)record_length(root, i))
            return because(why, "te.nvmeof.file_length[%zu] is less than 'length'", i);
    }
    return true;
}

bool record_check(const json_t *root, char why[WHY_MAX])
{
    const json_t *list = json_object_get(root, "buffers"), *file;
    uint64_t sum = 0;
    size_t i;

    if (list && !json_is_array(list))
        return because(why, "'buffers' is no array");
    if (json_array_size(list) > RECORD_FILES_MAX)
        return because(why, "%zu files are more than %d", json_array_size(list), RECORD_FILES_MAX);
    if (!text_is_plain(record_owner(root), HOST_MAX) && record_owner(root)[0])
        return because(why, "'server_name' is no name of a host");
    json_array_foreach(list, i, file) {
        if (!check_file(file, i, &sum, why))
            return false;
    }
    return check_targets(root, why) && check_wholes(root, why);
}

/* ---- what there is */

size_t record_count(const json_t *root)
{
    return json_array_size(json_object_get(root, "buffers"));
}

const char *record_owner(const json_t *root)
{
    const char *owner = json_string_value(json_object_get(root, "server_name"));

    return owner ? owner : "";
}

static const json_t *file_at(const json_t *root, size_t i)
{
    return json_array_get(json_object_get(root, "buffers"), i);
}

const char *record_path(const json_t *root, size_t i)
{
    return json_string_value(json_object_get(file_at(root, i), "file_path"));
}

uint64_t record_length(const json_t *root, size_t i)
{
    return (uint64_t)json_integer_value(json_object_get(file_at(root, i), "length"));
}

uint64_t record_whole(const json_t *root, size_t i)
{
    const json_t *whole = json_array_get(wholes_of(root), i);

    return whole ? (uint64_t)json_integer_value(whole) : record_length(root, i);
}

json_t *record_map(const json_t *root, size_t i)
{
    return json_object_get(file_at(root, i), "local_path_map");
}

const char *record_on(const json_t *root, size_t i, const char *host)
{
    return json_string_value(json_object_get(record_map(root, i), host));
}

bool record_target(const json_t *root, size_t i, struct target *out)
{
    char why[WHY_MAX];

    return target_read(json_array_get(targets_of(root), i), out, why);
}

size_t record_hosts(const json_t *root)
{
    json_t *all = json_object();
    size_t n;

    for (size_t i = 0; i < record_count(root); i++)
        if (record_map(root, i))
            json_object_update(all, record_map(root, i));
    n = json_object_size(all);
    json_decref(all);
    return n;
}

bool record_same_files(const json_t *a, const json_t *b)
{
    bool same = record_count(a) == record_count(b);

    for (size_t i = 0; same && i < record_count(a); i++)
        same = record_length(a, i) == record_length(b, i) &&
               strcmp(record_path(a, i), record_path(b, i)) == 0;
    return same;
}
