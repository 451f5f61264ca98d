/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

static void free_names(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

void tei_topology_fini(struct tei_topology *t)
{
    for (size_t i = 0; i < t->n_rows; i++) {
        free(t->rows[i].location);
        free_names(t->rows[i].preferred, t->rows[i].n_preferred);
        free_names(t->rows[i].available, t->rows[i].n_available);
    }
    free(t->rows);
    *t = (struct tei_topology){0};
}

static int read_names(const char *location, const json_t *list, char ***out, size_t *n)
{
    const json_t *name;
    size_t i;

    if (!json_is_array(list))
        return TEI_FAIL(TE_ERR_JSON, "topology: '%.64s' does not have two arrays", location);
    *out = calloc(json_array_size(list) + 1, sizeof **out);
    if (!*out)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a topology");
    json_array_foreach(list, i, name) {
        if (!json_is_string(name))
            return TEI_FAIL(TE_ERR_JSON, "topology: '%.64s': device %zu is no string", location, i);
        (*out)[i] = strdup(json_string_value(name));
        if (!(*out)[i])
            return TEI_FAIL(TE_ERR_MEMORY, "no memory for a topology");
        ++*n;
    }
    return 0;
}

static int read_row(struct tei_topology_row *row, const char *location, const json_t *lists)
{
    int rc;

    if (json_array_size(lists) != 2)
        return TEI_FAIL(TE_ERR_JSON, "topology: '%.64s' does not have two arrays", location);
    row->location = strdup(location);
    if (!row->location)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a topology");
    rc = read_names(location, json_array_get(lists, 0), &row->preferred, &row->n_preferred);
    if (!rc)
        rc = read_names(location, json_array_get(lists, 1), &row->available, &row->n_available);
    return rc;
}

static int read_rows(struct tei_topology *t, json_t *root)
{
    const char *location;
    json_t *lists;
    int rc;

    t->rows = calloc(json_object_size(root) + 1, sizeof *t->rows);
    if (!t->rows)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a topology");
    json_object_foreach(root, location, lists) {
        rc = read_row(&t->rows[t->n_rows++], location, lists);
        if (rc)
            return rc;
    }
    return 0;
}

int tei_topology_decode(const char *text, size_t len, struct tei_topology *out)
{
    struct tei_topology t = {0};
    json_error_t error;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    int rc;

    if (!root)
        return TEI_FAIL(TE_ERR_JSON, "topology: %s at byte %d", error.text, error.position);
    if (json_is_object(root))
        rc = read_rows(&t, root);
    else
        rc = TEI_FAIL(TE_ERR_JSON, "topology: it is no JSON object");
    json_decref(root);
    if (rc)
        tei_topology_fini(&t);
    else
        *out = t;
    return rc;
}

/* NULL when memory is out; so are the next two. */
static json_t *names_json(char *const *names, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        if (json_array_append_new(list, json_string(names[i]))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *row_json(const struct tei_topology_row *row)
{
    json_t *lists = json_array();

    if (json_array_append_new(lists, names_json(row->preferred, row->n_preferred)) ||
        json_array_append_new(lists, names_json(row->available, row->n_available))) {
        json_decref(lists);
        return NULL;
    }
    return lists;
}

json_t *tei_topology_json(const struct tei_topology *t)
{
    json_t *root = json_object();

    for (size_t i = 0; i < t->n_rows; i++) {
        if (json_object_set_new(root, t->rows[i].location, row_json(&t->rows[i]))) {
            json_decref(root);
            return NULL;
        }
    }
    return root;
}

char *tei_topology_encode(const struct tei_topology *t)
{
    json_t *root = tei_topology_json(t);
    char *text = tei_json_text(root, NULL);

    json_decref(root);
    return text;
}
