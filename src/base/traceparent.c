/* SPDX-License-Identifier: Apache-2.0 */
/* traceparent.c - trace contexts: https://www.w3.org/TR/trace-context/, "traceparent Header Field Values". */
#include "base/traceparent.h"
#include "base/hex.h"

#include <stdio.h>
#include <string.h>

enum { AT_TRACE = 3, AT_PARENT = 36, AT_FLAGS = 53, END = 55 };
static_assert(END + 1 == TEI_TRACEPARENT_TEXT, "the text ends with the flags");

static bool is_zero(const uint8_t *id, size_t n)
{
    static const uint8_t zeros[16];

    return memcmp(id, zeros, n) == 0;
}

bool tei_traceparent_is_good(const struct tei_traceparent *t)
{
    return !is_zero(t->trace, sizeof t->trace) && !is_zero(t->parent, sizeof t->parent);
}

/* Digits in lower case and dashes, where they belong. */
static bool has_its_shape(const char *text)
{
    size_t i = 0;

    for (; i < END && text[i]; i++) {
        bool dash = i == AT_TRACE - 1 || i == AT_PARENT - 1 || i == AT_FLAGS - 1;

        if (dash ? text[i] != '-' : !strchr("0123456789abcdef", text[i]))
            return false;
    }
    return i == END;
}

const char *tei_traceparent_read(const char *text, struct tei_traceparent *out)
{
    if (!has_its_shape(text))
        return "it is not 00-TRACE-PARENT-FLAGS, of 32, 16 and 2 digits, each of 0-9 or a-f";
    tei_hex_read(text, &out->version, 1);
    if (out->version == 0xff || (out->version == 0 ? text[END] : text[END] && text[END] != '-'))
        return "it is of no version, or goes on behind its flags";
    out->version = 0;
    tei_hex_read(text + AT_TRACE, out->trace, sizeof out->trace);
    tei_hex_read(text + AT_PARENT, out->parent, sizeof out->parent);
    tei_hex_read(text + AT_FLAGS, &out->flags, 1);
    return tei_traceparent_is_good(out)
               ? NULL
               : "the id of the trace, or of the parent span, is all zeros";
}

bool tei_traceparent_take(const uint8_t *bytes, size_t n, struct tei_traceparent *out)
{
    if (n < sizeof *out || bytes[0] == 0xff)
        return false;
    memcpy(out, bytes, sizeof *out);
    out->version = 0;
    return tei_traceparent_is_good(out);
}

const char *tei_traceparent_write(const struct tei_traceparent *t, char buf[TEI_TRACEPARENT_TEXT])
{
    char trace[2 * sizeof t->trace + 1], parent[2 * sizeof t->parent + 1];

    tei_hex_write(t->trace, sizeof t->trace, trace);
    tei_hex_write(t->parent, sizeof t->parent, parent);
    snprintf(buf, TEI_TRACEPARENT_TEXT, "%02x-%s-%s-%02x", t->version, trace, parent, t->flags);
    return buf;
}

bool tei_traceparent_same(const struct tei_traceparent *a, const struct tei_traceparent *b)
{
    return a == b || (a && b && memcmp(a, b, sizeof *a) == 0);
}
