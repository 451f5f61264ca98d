/* SPDX-License-Identifier: Apache-2.0 */
/* topology_text.h - a matrix as text, and its rows by name. */
#ifndef TEST_TOPOLOGY_TEXT_H
#define TEST_TOPOLOGY_TEXT_H

#include "model/model.h"

#include <string.h>

/* malloc'ed compact JSON, NULL when memory is out. */
static inline char *topology_text(const struct tei_topology *t)
{
    json_t *root = tei_topology_json(t);
    char *text = tei_json_text(root, NULL);

    json_decref(root);
    return text;
}

/* The row of exactly that location; NULL if there is none. */
static inline const struct tei_topology_row *topology_row(const struct tei_topology *t,
                                                          const char *location)
{
    for (size_t i = 0; i < t->n_rows; i++)
        if (strcmp(t->rows[i].location, location) == 0)
            return &t->rows[i];
    return NULL;
}

#endif
