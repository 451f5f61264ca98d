/* SPDX-License-Identifier: Apache-2.0 */
#include "conf/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"

static const char *const level_names[] = {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "OFF"};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The part of `text` between leading and trailing blanks. */
static const char *trim(const char *text, size_t *len)
{
    size_t n;

    while (is_blank(*text))
        text++;
    n = strlen(text);
    while (n > 0 && is_blank(text[n - 1]))
        n--;
    *len = n;
    return text;
}

static bool same_word(const char *word, const char *text, size_t len)
{
    return strlen(word) == len && strncasecmp(word, text, len) == 0;
}

static bool read_switch(const char *text, size_t len)
{
    static const char *const off[] = {"", "0", "false", "no", "off"};

    for (size_t i = 0; i < TEI_ARRAY_LEN(off); i++)
        if (same_word(off[i], text, len))
            return false;
    return true;
}

static int64_t unit_factor(char c)
{
    switch (c) {
    case 'k':
    case 'K':
        return INT64_C(1) << 10;
    case 'm':
    case 'M':
        return INT64_C(1) << 20;
    case 'g':
    case 'G':
        return INT64_C(1) << 30;
    default:
        return 1;
    }
}

/* Sign, digits and, if `units`, a suffix: all of `text`, or false. */
static bool read_number(const char *text, size_t len, bool units, int64_t *out)
{
    const char *end = text + len;
    int64_t sign = 1, factor = 1, n = 0;

    if (len > 0 && (*text == '-' || *text == '+'))
        sign = *text++ == '-' ? -1 : 1;
    if (units && end > text) {
        factor = unit_factor(end[-1]);
        end -= factor > 1;
    }
    if (text == end)
        return false;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, *text - '0', &n))
            return false;
    }
    return !__builtin_mul_overflow(n * sign, factor, out);
}

static bool read_word(const struct tei_word *words, const char *text, size_t len, int64_t *out)
{
    for (; words->text; words++) {
        if (same_word(words->text, text, len)) {
            *out = words->value;
            return true;
        }
    }
    return false;
}

static bool read_level(const char *text, size_t len, int64_t *out)
{
    enum te_log_level level;
    char word[16];

    *out = -1;
    if (len == 0)
        return true;
    if (len >= sizeof word)
        return false;
    memcpy(word, text, len);
    word[len] = '\0';
    if (!tei_log_level_parse(word, &level))
        return false;
    *out = (int64_t)level;
    return true;
}

static void put_number(const struct tei_option_row *r, struct tei_conf *c, int64_t n)
{
    void *member = (char *)c + r->offset;

    switch (r->as) {
    case TEI_AS_BOOL:
        *(bool *)member = n != 0;
        return;
    case TEI_AS_INT:
        *(int *)member = (int)n;
        return;
    case TEI_AS_INT64:
        *(int64_t *)member = n;
        return;
    case TEI_AS_SIZE:
        *(size_t *)member = (size_t)n;
        return;
    case TEI_AS_U16:
        *(uint16_t *)member = (uint16_t)n;
        return;
    case TEI_AS_TEXT:
        return;
    }
}

static int64_t get_number(const struct tei_option_row *r, const struct tei_conf *c)
{
    const void *member = (const char *)c + r->offset;

    switch (r->as) {
    case TEI_AS_BOOL:
        return *(const bool *)member;
    case TEI_AS_INT:
        return *(const int *)member;
    case TEI_AS_INT64:
        return *(const int64_t *)member;
    case TEI_AS_SIZE:
        return (int64_t)(*(const size_t *)member);
    case TEI_AS_U16:
        return *(const uint16_t *)member;
    case TEI_AS_TEXT:
        break;
    }
    return 0;
}

static int64_t scale_of(const struct tei_option_row *r)
{
    return r->scale ? r->scale : 1;
}

/* Reads all kinds but text into a number as the member holds it. */
static bool read_value(const struct tei_option_row *r, const char *text, int64_t *out)
{
    size_t len;
    int64_t n;

    text = trim(text, &len);
    switch (r->kind) {
    case TEI_KIND_SWITCH:
        *out = read_switch(text, len);
        return true;
    case TEI_KIND_WORD:
        return read_word(r->words, text, len, out);
    case TEI_KIND_LEVEL:
        return read_level(text, len, out);
    case TEI_KIND_NUMBER:
    case TEI_KIND_SIZE:
        if (!read_number(text, len, r->kind == TEI_KIND_SIZE, &n) || n < r->min || n > r->max)
            return false;
        *out = n * scale_of(r);
        return true;
    case TEI_KIND_TEXT:
        break;
    }
    return false;
}

bool tei_value_parse(const struct tei_option_row *r, const char *text, struct tei_conf *c)
{
    size_t len = strlen(text);
    int64_t n;

    if (r->kind == TEI_KIND_TEXT) {
        if (len > (size_t)r->max)
            return false;
        memcpy((char *)c + r->offset, text, len + 1);
        return true;
    }
    if (!read_value(r, text, &n))
        return false;
    put_number(r, c, n);
    return true;
}

bool tei_value_is_set(const struct tei_option_row *r, const char *text)
{
    return *text || r->kind == TEI_KIND_SWITCH;
}

static const char *word_of(const struct tei_word *words, int64_t n)
{
    while (words->text && words->value != n)
        words++;
    return words->text ? words->text : "";
}

static const char *level_of(int64_t n)
{
    return n < 0 || n >= (int64_t)TEI_ARRAY_LEN(level_names) ? "" : level_names[n];
}

void tei_value_format(const struct tei_option_row *r, const struct tei_conf *c, char *buf, size_t n)
{
    int64_t number = get_number(r, c);

    switch (r->kind) {
    case TEI_KIND_SWITCH:
        snprintf(buf, n, "%s", number ? "on" : "off");
        return;
    case TEI_KIND_WORD:
        snprintf(buf, n, "%s", word_of(r->words, number));
        return;
    case TEI_KIND_LEVEL:
        snprintf(buf, n, "%s", level_of(number));
        return;
    case TEI_KIND_NUMBER:
    case TEI_KIND_SIZE:
        snprintf(buf, n, "%" PRId64, number / scale_of(r));
        return;
    case TEI_KIND_TEXT:
        snprintf(buf, n, "%s", (const char *)c + r->offset);
        return;
    }
}

/* Cut to fit. */
static void append(char *buf, size_t n, const char *joint, const char *text)
{
    size_t used = strlen(buf);

    snprintf(buf + used, n - used, "%s%s", joint, text);
}

void tei_value_expected(const struct tei_option_row *r, char *buf, size_t n)
{
    buf[0] = '\0';
    switch (r->kind) {
    case TEI_KIND_SWITCH:
        append(buf, n, "", "on or off");
        return;
    case TEI_KIND_WORD:
        for (const struct tei_word *w = r->words; w->text; w++)
            append(buf, n, w == r->words ? "one of " : ", ", w->text);
        return;
    case TEI_KIND_LEVEL:
        for (size_t i = 0; i < TEI_ARRAY_LEN(level_names); i++)
            append(buf, n, i ? ", " : "one of ", level_names[i]);
        return;
    case TEI_KIND_NUMBER:
    case TEI_KIND_SIZE:
        if (r->max == INT64_MAX)
            snprintf(buf, n, "at least %" PRId64, r->min);
        else
            snprintf(buf, n, "%" PRId64 " to %" PRId64, r->min, r->max);
        return;
    case TEI_KIND_TEXT:
        snprintf(buf, n, "at most %" PRId64 " bytes long", r->max);
        return;
    }
}
