/* SPDX-License-Identifier: Apache-2.0 */
/* topology.c - the NIC priority matrix: from JSON and back, made by hand, and looked up. */
#include "model/model.h"

#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void free_names(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

static void free_row(struct tei_topology_row *row)
{
    free(row->location);
    free_names(row->preferred, row->n_preferred);
    free_names(row->available, row->n_available);
}

void tei_topology_fini(struct tei_topology *t)
{
    for (size_t i = 0; i < t->n_rows; i++)
        free_row(&t->rows[i]);
    free(t->rows);
    *t = (struct tei_topology){0};
}

/* -------------------------------------------------------------------------------------- reading */

#define ROW_DEVICES_MAX 256 /* names are compared with each other, and a peer may have sent them */

static bool has_name(char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static int add_name(const struct tei_topology_row *row, const char *name, char ***names, size_t *n)
{
    if (!name || !name[0])
        return TEI_FAIL(TE_ERR_JSON, "topology: '%.64s': a device is no string, or an empty one",
                        row->location);
    if (has_name(row->preferred, row->n_preferred, name) ||
        has_name(row->available, row->n_available, name))
        return TEI_FAIL(TE_ERR_JSON, "topology: '%.64s' names device '%.64s' twice", row->location,
                        name);
    (*names)[*n] = strdup(name);
    if (!(*names)[*n])
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a topology");
    ++*n;
    return 0;
}

/* `list` is NULL where the row does without. */
static int read_names(const struct tei_topology_row *row, const json_t *list, char ***names,
                      size_t *n)
{
    const json_t *name;
    size_t i;
    int rc;

    if (list && !json_is_array(list))
        return TEI_FAIL(TE_ERR_JSON, "topology: '%.64s' does not have two arrays", row->location);
    if (json_array_size(list) > ROW_DEVICES_MAX)
        return TEI_FAIL(TE_ERR_JSON, "topology: '%.64s' names more than %d devices", row->location,
                        ROW_DEVICES_MAX);
    *names = calloc(json_array_size(list) + 1, sizeof **names);
    if (!*names)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a topology");
    json_array_foreach(list, i, name) {
        rc = add_name(row, json_string_value(name), names, n);
        if (rc)
            return rc;
    }
    return 0;
}

static int read_row(struct tei_topology_row *row, const char *location, const json_t *lists)
{
    size_t n = json_array_size(lists);
    int rc;

    if (n != 1 && n != 2)
        return TEI_FAIL(TE_ERR_JSON, "topology: '%.64s' does not have two arrays", location);
    row->location = strdup(location);
    if (!row->location)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a topology");
    rc = read_names(row, json_array_get(lists, 0), &row->preferred, &row->n_preferred);
    if (!rc)
        rc = read_names(row, json_array_get(lists, 1), &row->available, &row->n_available);
    return rc;
}

static int read_rows(struct tei_topology *t, const json_t *root)
{
    const char *location;
    json_t *lists;
    int rc;

    t->rows = calloc(json_object_size(root) + 1, sizeof *t->rows);
    if (!t->rows)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a topology");
    json_object_foreach((json_t *)root, location, lists) {
        rc = read_row(&t->rows[t->n_rows++], location, lists);
        if (rc)
            return rc;
    }
    return 0;
}

int tei_topology_read(const json_t *root, struct tei_topology *out)
{
    struct tei_topology t = {0};
    int rc;

    if (!json_is_object(root))
        return TEI_FAIL(TE_ERR_JSON, "topology: it is no JSON object");
    rc = read_rows(&t, root);
    if (rc)
        tei_topology_fini(&t);
    else
        *out = t;
    return rc;
}

int tei_topology_decode(const char *text, size_t len, struct tei_topology *out)
{
    json_error_t error;
    json_t *root;
    int rc = tei_json_load(text, len, JSON_REJECT_DUPLICATES, &root, &error);

    if (rc == TE_ERR_MEMORY)
        return TEI_FAIL(rc, "no memory for a topology");
    if (rc)
        return TEI_FAIL(rc, "topology: %s at byte %d", error.text, error.position);
    rc = tei_topology_read(root, out);
    json_decref(root);
    return rc;
}

/* -------------------------------------------------------------------------------------- writing */

/* NULL when memory is out; so are the next two. */
static json_t *names_json(char *const *names, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        tei_json_append(&list, json_string(names[i]));
    return list;
}

static json_t *row_json(const struct tei_topology_row *row)
{
    json_t *lists = json_array();

    tei_json_append(&lists, names_json(row->preferred, row->n_preferred));
    tei_json_append(&lists, names_json(row->available, row->n_available));
    return lists;
}

json_t *tei_topology_json(const struct tei_topology *t)
{
    json_t *root = json_object();

    for (size_t i = 0; i < t->n_rows; i++)
        tei_json_set(&root, t->rows[i].location, row_json(&t->rows[i]));
    return root;
}

/* --------------------------------------------------------------------------------------- making */

/* NULL when memory is out. */
static char **copy_names(const char *const *names, size_t n)
{
    char **copy = calloc(n + 1, sizeof *copy);

    for (size_t i = 0; copy && i < n; i++) {
        copy[i] = strdup(names[i]);
        if (!copy[i]) {
            free_names(copy, i);
            return NULL;
        }
    }
    return copy;
}

int tei_topology_add(struct tei_topology *t, const char *location, const char *const *preferred,
                     size_t n_preferred, const char *const *available, size_t n_available)
{
    struct tei_topology_row *rows = realloc(t->rows, (t->n_rows + 1) * sizeof *rows), row = {0};

    if (!rows)
        return TE_ERR_MEMORY;
    t->rows = rows;
    row.location = strdup(location);
    row.preferred = copy_names(preferred, n_preferred);
    row.available = copy_names(available, n_available);
    row.n_preferred = row.preferred ? n_preferred : 0;
    row.n_available = row.available ? n_available : 0;
    if (!row.location || !row.preferred || !row.available) {
        free_row(&row);
        return TE_ERR_MEMORY;
    }
    rows[t->n_rows++] = row;
    return 0;
}

/* Cuts "a, b" in place into names without blanks; how many. `names` has room for all. */
static size_t cut_names(char *text, const char **names)
{
    char *rest = text, *name;
    size_t n = 0;

    while ((name = strsep(&rest, ","))) {
        name += strspn(name, " \t");
        name[strcspn(name, " \t")] = '\0';
        if (name[0])
            names[n++] = name;
    }
    return n;
}

static int check_names(const char *devices, const char *const *names, size_t n)
{
    if (n == 0)
        return TEI_FAIL(TE_ERR_INVALID, "'%.64s' names no device", devices);
    for (size_t i = 1; i < n; i++)
        if (has_name((char *const *)names, i, names[i]))
            return TEI_FAIL(TE_ERR_INVALID, "device '%.64s' is named twice", names[i]);
    return 0;
}

static int add_locations(struct tei_topology *t, const char *const *names, size_t n,
                         const int *nodes, size_t n_nodes)
{
    char location[32];
    int rc = 0;

    for (size_t i = 0; !rc && i < n_nodes; i++) {
        snprintf(location, sizeof location, "cpu:%d", nodes[i]);
        rc = tei_topology_add(t, location, names, n, NULL, 0);
    }
    if (!rc)
        rc = tei_topology_add(t, "cuda:0", names, n, NULL, 0);
    return rc ? rc : tei_topology_add(t, "hip:0", names, n, NULL, 0);
}

int tei_topology_from_devices(const char *devices, const int *nodes, size_t n_nodes,
                              struct tei_topology *out)
{
    struct tei_topology t = {0};
    char *text = strdup(devices);
    const char **names = calloc(strlen(devices) / 2 + 1, sizeof *names);
    size_t n = text && names ? cut_names(text, names) : 0;
    int rc = text && names ? check_names(devices, names, n) : TE_ERR_MEMORY;

    if (!rc)
        rc = add_locations(&t, names, n, nodes, n_nodes);
    if (rc)
        tei_topology_fini(&t);
    else
        *out = t;
    free(names);
    free(text);
    return rc == TE_ERR_MEMORY ? TEI_FAIL(rc, "no memory for a topology") : rc;
}

/* -------------------------------------------------------------------------------------- looking */

static void add_new(const char **all, size_t *n, char *const *names, size_t n_names)
{
    for (size_t i = 0; i < n_names; i++)
        if (!has_name((char *const *)all, *n, names[i]))
            all[(*n)++] = names[i];
}

int tei_topology_devices(const struct tei_topology *t, const char ***out, size_t *n)
{
    size_t room = 1, count = 0;
    const char **all;

    for (size_t i = 0; i < t->n_rows; i++)
        room += t->rows[i].n_preferred + t->rows[i].n_available;
    all = calloc(room, sizeof *all);
    if (!all)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a list of devices");
    for (size_t i = 0; i < t->n_rows; i++) {
        add_new(all, &count, t->rows[i].preferred, t->rows[i].n_preferred);
        add_new(all, &count, t->rows[i].available, t->rows[i].n_available);
    }
    *out = all;
    *n = count;
    return 0;
}
