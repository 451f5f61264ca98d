/* SPDX-License-Identifier: Apache-2.0 */
#include "te_segment/text.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

bool because(char why[WHY_MAX], const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, WHY_MAX, fmt, args);
    va_end(args);
    return false;
}

/* Those of ASCII, and U+0080 to U+009F, which are 0xc2 and then the character. */
static bool is_control(const unsigned char *at)
{
    return at[0] < 0x20 || at[0] == 0x7f || (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0);
}

bool text_is_plain(const char *text, size_t max)
{
    size_t len = strnlen(text, max + 1);
    json_t *utf8 = len > max ? NULL : json_string(text);
    bool plain = utf8 && len;

    json_decref(utf8);
    for (size_t i = 0; plain && i < len; i++)
        plain = !is_control((const unsigned char *)&text[i]);
    return plain;
}

/* Neither empty nor a step up or on the spot. */
static bool is_component(const char *at, size_t len)
{
    return len && !(len == 1 && at[0] == '.') && !(len == 2 && at[0] == '.' && at[1] == '.');
}

bool text_is_path(const char *text, bool absolute)
{
    if (!text_is_plain(text, PATH_MAX - 1) || (text[0] == '/') != absolute)
        return false;
    for (const char *at = text + absolute;; at++) {
        size_t len = strcspn(at, "/");

        if (!is_component(at, len))
            return false;
        at += len;
        if (!*at)
            return true;
    }
}

char **text_split(const char *text, size_t *n)
{
    size_t count = 1, i = 1;
    char **items, *copy;

    for (const char *at = text; *at; at++)
        count += *at == ',';
    items = malloc(count * sizeof *items + strlen(text) + 1);
    if (!items)
        return NULL;
    copy = strcpy((char *)(items + count), text);
    items[0] = copy;
    for (; *copy; copy++) {
        if (*copy == ',') {
            *copy = '\0';
            items[i++] = copy + 1;
        }
    }
    *n = count;
    return items;
}
