/* SPDX-License-Identifier: Apache-2.0 */
/* Whether model/json_read.h reads a text as jansson does. */
#ifndef TE_TESTS_JSON_SAME_H
#define TE_TESTS_JSON_SAME_H

#include "model/json_read.h"

#include "base/os.h"

#include <stdlib.h>
#include <string.h>

static inline bool json_same_value(const struct tei_json_value *v, const json_t *j);

/* Strings, the keys among them, are without a NUL. */
static inline bool json_same_text(const struct tei_json_value *v, const char *text)
{
    static const char other[] = "another text";
    char *copy = malloc(v->len + 1);
    bool same = copy && tei_json_copy(v, copy, v->len + 1) && strcmp(copy, text) == 0 &&
                (strlen(text) > 63 || tei_json_is(v, text)) &&
                tei_json_is(v, other) == (strcmp(text, other) == 0);

    free(copy);
    return same;
}

static inline const json_t *json_same_member(const struct tei_json_value *key, const json_t *j)
{
    char *copy = malloc(key->len + 1);
    const json_t *member =
        copy && tei_json_copy(key, copy, key->len + 1) ? json_object_get(j, copy) : NULL;

    free(copy);
    return member;
}

static inline bool json_same_container(const struct tei_json_value *v, const json_t *j)
{
    size_t n = 0, want = json_is_object(j) ? json_object_size(j) : json_array_size(j);
    struct tei_json_value key, value;
    struct tei_json_reader r;

    tei_json_reader_inside(&r, v, TEI_NEVER);
    for (; tei_json_next(&r, &key, &value); n++) {
        const json_t *member = json_is_object(j) ? json_same_member(&key, j) : json_array_get(j, n);

        if (!member || !json_same_value(&value, member))
            return false;
    }
    return n == want && !r.wrong && !r.late && r.at == r.end;
}

static inline bool json_same_value(const struct tei_json_value *v, const json_t *j)
{
    switch (v->kind) {
    case TEI_JSON_OBJECT:
        return json_is_object(j) && json_same_container(v, j);
    case TEI_JSON_ARRAY:
        return json_is_array(j) && json_same_container(v, j);
    case TEI_JSON_STRING:
        return json_is_string(j) && json_same_text(v, json_string_value(j));
    case TEI_JSON_INTEGER:
        return json_is_integer(j) && v->integer == json_integer_value(j);
    case TEI_JSON_REAL:
        return json_is_real(j);
    case TEI_JSON_TRUE:
        return json_is_true(j);
    case TEI_JSON_FALSE:
        return json_is_false(j);
    case TEI_JSON_NULL:
        return json_is_null(j);
    case TEI_JSON_MISSING:
        break;
    }
    return false;
}

/*
 * Whether both take the text and find the same in it, or neither does. What only jansson looks at, a
 * key that comes twice or a real number beyond a double, is no difference; nor is a NUL, which jansson
 * takes here and there. *taken: both took it.
 */
static inline bool json_same(const char *text, size_t len, bool *taken)
{
    struct tei_json_value v;
    struct tei_json_reader r;
    json_error_t error;
    json_t *j = json_loadb(text, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    bool good, same;

    tei_json_reader_init(&r, text, len, TEI_NEVER);
    good = tei_json_read(&r, &v) && tei_json_at_end(&r);
    same = good == (r.wrong == NULL) && !r.late && r.at >= r.begin && r.at <= r.end;
    *taken = j != NULL && good;
    if (memchr(text, '\0', len))
        same = same && !good;
    else if (j)
        same = same && good && json_same_value(&v, j);
    else if (json_error_code(&error) != json_error_duplicate_key &&
             strncmp(error.text, "real number overflow", 20) != 0)
        same = same && !good;
    json_decref(j);
    return same;
}

#endif
