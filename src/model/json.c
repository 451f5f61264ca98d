/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

#include <stdlib.h>

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
