/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_FLAGS (JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY)

/* json_dumps() would take its memory from wherever the application told jansson to. */
char *tei_json_text(const json_t *j, size_t *len)
{
    size_t n = j ? json_dumpb(j, NULL, 0, TEXT_FLAGS) : 0;
    char *text = n ? malloc(n + 1) : NULL;

    if (!text)
        return NULL;
    if (json_dumpb(j, text, n, TEXT_FLAGS) != n) {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    if (len)
        *len = n;
    return text;
}

const char *tei_json_type_name(const json_t *j)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "an array", [JSON_STRING] = "a string",
        [JSON_INTEGER] = "an integer", [JSON_REAL] = "a real",    [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",        [JSON_NULL] = "null",
    };

    return j ? names[json_typeof(j)] : "missing";
}

/* A text of a stranger's goes into errors. */
bool tei_json_word(const json_t *j, char *out, size_t n)
{
    const char *text = json_string_value(j);

    if (!text || strlen(text) >= n)
        return false;
    for (const char *c = text; *c; c++)
        if (*c <= ' ' || *c > '~')
            return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

int tei_json_string(const char *text, json_t **out)
{
    json_error_t why = {0};

    *out = json_pack_ex(&why, 0, "s", text);
    if (*out)
        return 0;
    return json_error_code(&why) == json_error_invalid_utf8 ? TE_ERR_INVALID : TE_ERR_MEMORY;
}

static void unless(int failed, json_t **j)
{
    if (!failed)
        return;
    json_decref(*j);
    *j = NULL;
}

void tei_json_append(json_t **array, json_t *item)
{
    unless(json_array_append_new(*array, item), array);
}

void tei_json_set(json_t **object, const char *key, json_t *item)
{
    unless(json_object_set_new(*object, key, item), object);
}

json_t *tei_json_member(json_t *object, const char *key)
{
    if (!json_object_get(object, key) && json_object_set_new(object, key, json_object()) != 0)
        return NULL;
    return json_object_get(object, key);
}

static json_t *clone_object(const json_t *j)
{
    json_t *copy = json_object(), *value;
    const char *key;

    json_object_foreach((json_t *)j, key, value)
        unless(json_object_set_new_nocheck(copy, key, tei_json_clone(value)), &copy);
    return copy;
}

static json_t *clone_array(const json_t *j)
{
    json_t *copy = json_array();

    for (size_t i = 0; copy && i < json_array_size(j); i++)
        tei_json_append(&copy, tei_json_clone(json_array_get(j, i)));
    return copy;
}

json_t *tei_json_clone(const json_t *j)
{
    if (json_is_object(j))
        return clone_object(j);
    return json_is_array(j) ? clone_array(j) : json_deep_copy(j);
}
