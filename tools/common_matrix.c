/* SPDX-License-Identifier: Apache-2.0 */
#include "common_matrix.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

/* ["a","b"] of "a, b"; NULL when memory is out. */
static json_t *names_of(const char *devices)
{
    json_t *names = json_array();

    for (const char *at = devices; names && *at; at += strcspn(at, ",")) {
        size_t len;

        at += strspn(at, ", \t");
        len = strcspn(at, ", \t");
        if (len > 0 && json_array_append_new(names, json_stringn(at, len)) != 0) {
            json_decref(names);
            return NULL;
        }
    }
    return names;
}

static int add_row(json_t *matrix, const char *location, json_t *names)
{
    return json_object_set_new(matrix, location, json_pack("[O[]]", names));
}

char *matrix_of_devices(const char *devices, const int *nodes, size_t n_nodes)
{
    json_t *matrix = json_object(), *names = names_of(devices);
    char location[32], *text = NULL;
    int rc = names ? 0 : -1;

    for (size_t i = 0; !rc && i < n_nodes; i++) {
        snprintf(location, sizeof(location), "cpu:%d", nodes[i]);
        rc = add_row(matrix, location, names);
    }
    if (!rc && add_row(matrix, "cuda:0", names) == 0 && add_row(matrix, "hip:0", names) == 0)
        text = json_dumps(matrix, JSON_COMPACT);
    json_decref(names);
    json_decref(matrix);
    return text;
}
