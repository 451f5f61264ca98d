/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/changed.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define UNUSED_MAX 4096

/* The next one from row *i on; false past the end. What only follows from another option is none. */
static bool next(const struct tei_conf *c, size_t *i, struct tei_conf_row *row)
{
    while (tei_conf_row(c, (*i)++, row))
        if (strcmp(row->source, "default") != 0 && strcmp(row->value, row->fallback) != 0)
            return true;
    return false;
}

size_t changed_count(const struct tei_conf *c, size_t *all)
{
    struct tei_conf_row row;
    size_t n = 0;

    for (size_t i = 0; next(c, &i, &row);)
        n++;
    for (*all = 0; tei_conf_row(c, *all, &row);)
        (*all)++;
    return n;
}

json_t *changed_json(const struct tei_conf *c)
{
    json_t *all = json_array();
    char unused[UNUSED_MAX];
    struct tei_conf_row row;

    for (size_t i = 0; next(c, &i, &row);)
        json_array_append_new(all, json_pack("{ss ss ss ss}", "name", row.name, "value", row.value,
                                             "default", row.fallback, "source", row.source));
    tei_conf_unused(unused, sizeof unused);
    return json_pack("{so ss}", "changed", all, "without_effect", unused);
}

static const char *shown(const char *text)
{
    return text[0] ? text : "(empty)";
}

void changed_print(const struct tei_conf *c)
{
    char unused[UNUSED_MAX];
    struct tei_conf_row row;
    size_t n = 0;

    for (size_t i = 0; next(c, &i, &row); n++)
        printf("%s = %s%s%s  [%s; default: %s]\n", row.name, shown(row.value), row.unit ? " " : "",
               row.unit ? row.unit : "", row.source, shown(row.fallback));
    if (n == 0)
        printf("Every option has its default.\n");
    if (tei_conf_unused(unused, sizeof unused))
        printf("Variables without effect: %s\n", unused);
}
