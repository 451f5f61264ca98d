/* SPDX-License-Identifier: Apache-2.0 */
#include "model/json_read.h"

#include "base/err.h"
#include "base/os.h"

#include <string.h>

#define DEPTH_MAX   2048
#define CLOCK_EVERY 4096 /* values */

/*
 * What jansson takes from malloc() for each kind of value, from above: its struct, and the table that
 * even an empty container has; for each member its entry and place in the table, for each item its
 * place.
 */
#define TREE_OBJECT 256
#define TREE_ARRAY  128
#define TREE_STRING 64
#define TREE_NUMBER 32
#define TREE_MEMBER 112
#define TREE_ITEM   16

const char *tei_json_kind_name(enum tei_json_kind kind)
{
    static const char *const names[] = {
        [TEI_JSON_MISSING] = "missing",    [TEI_JSON_OBJECT] = "an object",
        [TEI_JSON_ARRAY] = "an array",     [TEI_JSON_STRING] = "a string",
        [TEI_JSON_INTEGER] = "an integer", [TEI_JSON_REAL] = "a real",
        [TEI_JSON_TRUE] = "true",          [TEI_JSON_FALSE] = "false",
        [TEI_JSON_NULL] = "null",
    };

    return names[kind];
}

static bool fail(struct tei_json_reader *r, const char *wrong)
{
    r->wrong = wrong;
    return false;
}

/* The next byte, 0 at the end: no token has a NUL in it. */
static char peek(const struct tei_json_reader *r)
{
    return r->at < r->end ? *r->at : '\0';
}

static bool take(struct tei_json_reader *r, char c)
{
    if (peek(r) != c || r->at == r->end)
        return false;
    r->at++;
    return true;
}

static void skip_blanks(struct tei_json_reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

/* ---------------------------------------------------------------------------------------- strings */

/* Bytes of the character beyond ASCII at p; 0 if it is none. */
static size_t utf8_length(const unsigned char *p, size_t left)
{
    unsigned char low = 0x80, high = 0xbf;
    size_t n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

    if (p[0] < 0xc2 || p[0] > 0xf4 || n > left)
        return 0;
    /* What the first byte says of the second: no overlong form, no surrogate, nothing too high. */
    if (p[0] == 0xe0)
        low = 0xa0;
    else if (p[0] == 0xed)
        high = 0x9f;
    else if (p[0] == 0xf0)
        low = 0x90;
    else if (p[0] == 0xf4)
        high = 0x8f;
    if (p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        return (c | 0x20) - 'a' + 10;
    return -1;
}

/* The four digits at p; -1 if they are none. */
static int32_t hex_unit(const char *p, size_t left)
{
    int32_t unit = 0;

    if (left < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(p[i]);

        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

/*
 * The character that "\u" stands before, and in *used how many bytes say it, two units where they
 * are a pair; -1 if there is none.
 */
static int32_t unicode_at(const char *p, size_t left, size_t *used)
{
    int32_t unit = hex_unit(p, left), low;

    *used = 4;
    if (unit < 0xd800 || unit > 0xdfff)
        return unit;
    if (unit > 0xdbff || left < 10 || p[4] != '\\' || p[5] != 'u')
        return -1;
    low = hex_unit(p + 6, left - 6);
    *used = 10;
    return low >= 0xdc00 && low <= 0xdfff ? 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00) : -1;
}

static bool skip_escape(struct tei_json_reader *r)
{
    size_t used = 0;

    r->at++;
    if (take(r, 'u')) {
        if (unicode_at(r->at, (size_t)(r->end - r->at), &used) <= 0)
            return fail(r, "no character of Unicode, or U+0000");
        r->at += used;
        return true;
    }
    if (r->at == r->end || !memchr("\"\\/bfnrt", *r->at, 8))
        return fail(r, "no such escape");
    r->at++;
    return true;
}

static bool read_string(struct tei_json_reader *r, struct tei_json_value *out)
{
    *out = (struct tei_json_value){.kind = TEI_JSON_STRING, .text = ++r->at};
    while (r->at < r->end && *r->at != '"') {
        unsigned char c = (unsigned char)*r->at;
        size_t n =
            c < 0x80 ? 1 : utf8_length((const unsigned char *)r->at, (size_t)(r->end - r->at));

        if (c < 0x20)
            return fail(r, "a control character in a string");
        if (!n)
            return fail(r, "it is not UTF-8");
        if (c != '\\') {
            r->at += n;
            continue;
        }
        out->escaped = true;
        if (!skip_escape(r))
            return false;
    }
    out->len = (size_t)(r->at - out->text);
    r->tree += TREE_STRING + out->len;
    return take(r, '"') || fail(r, "a string has no end");
}

static size_t put_utf8(uint32_t c, char out[4])
{
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(n == 1 ? c : first[n] | c);
    return n;
}

/* The character at *at, which it moves on; `out` gets its bytes. */
static size_t next_character(const char **at, const char *end, char out[4])
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    const char *p = *at, *plain;
    size_t used = 0;
    uint32_t c;

    if (*p != '\\') {
        out[0] = *p;
        *at = p + 1;
        return 1;
    }
    if (p[1] != 'u') {
        plain = strchr(from, p[1]);
        out[0] = plain ? to[plain - from] : p[1];
        *at = p + 2;
        return 1;
    }
    c = (uint32_t)unicode_at(p + 2, (size_t)(end - p - 2), &used);
    *at = p + 2 + used;
    return put_utf8(c, out);
}

bool tei_json_copy(const struct tei_json_value *string, char *out, size_t n)
{
    const char *at = string->text, *end = at + string->len;
    size_t len = 0;

    while (at < end) {
        char c[4];
        size_t more = next_character(&at, end, c);

        if (len + more >= n)
            return false;
        memcpy(out + len, c, more);
        len += more;
    }
    out[len] = '\0';
    return true;
}

bool tei_json_is(const struct tei_json_value *string, const char *text)
{
    char copy[64];

    if (string->escaped)
        return tei_json_copy(string, copy, sizeof copy) && strcmp(copy, text) == 0;
    return strlen(text) == string->len && memcmp(text, string->text, string->len) == 0;
}

/* ---------------------------------------------------------------------------------------- numbers */

/* How many digits there are. */
static size_t skip_digits(struct tei_json_reader *r)
{
    const char *from = r->at;

    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    return (size_t)(r->at - from);
}

static bool set_integer(struct tei_json_reader *r, const char *digits, size_t n, bool negative,
                        int64_t *out)
{
    const uint64_t max = (uint64_t)INT64_MAX + negative;
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t digit = (uint64_t)(digits[i] - '0');

        if (sum > (max - digit) / 10)
            return fail(r, "an integer of more than 64 bits");
        sum = sum * 10 + digit;
    }
    *out = negative ? (int64_t)-sum : (int64_t)sum;
    return true;
}

static bool read_number(struct tei_json_reader *r, struct tei_json_value *out)
{
    const char *from = r->at, *digits;
    bool negative = take(r, '-'), real = false;
    size_t n;

    digits = r->at;
    n = skip_digits(r);
    if (!n || (n > 1 && *digits == '0'))
        return fail(r, n ? "a number that begins with 0" : "no value");
    if (take(r, '.')) {
        real = true;
        if (!skip_digits(r))
            return fail(r, "no digit after the point");
    }
    if (take(r, 'e') || take(r, 'E')) {
        real = true;
        if (!take(r, '+'))
            take(r, '-');
        if (!skip_digits(r))
            return fail(r, "no digit in the exponent");
    }
    r->tree += TREE_NUMBER;
    *out = (struct tei_json_value){.kind = real ? TEI_JSON_REAL : TEI_JSON_INTEGER,
                                   .text = from,
                                   .len = (size_t)(r->at - from)};
    return real || set_integer(r, digits, n, negative, &out->integer);
}

/* ----------------------------------------------------------------------------------------- values */

static bool read_word(struct tei_json_reader *r, const char *word, enum tei_json_kind kind,
                      struct tei_json_value *out)
{
    size_t n = strlen(word);

    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return fail(r, "no value");
    *out = (struct tei_json_value){.kind = kind, .text = r->at, .len = n};
    r->at += n;
    return true;
}

/* False once the deadline has passed, which is looked at now and then. */
static bool in_time(struct tei_json_reader *r)
{
    if (++r->read % CLOCK_EVERY == 0 && r->deadline_ns != TEI_NEVER)
        r->late = tei_now_ns() >= r->deadline_ns;
    return !r->late;
}

static bool read_value(struct tei_json_reader *r, unsigned depth, struct tei_json_value *out);

static bool read_key(struct tei_json_reader *r, struct tei_json_value *key)
{
    if (peek(r) != '"')
        return fail(r, "no key");
    if (!read_string(r, key))
        return false;
    r->tree += TREE_MEMBER - TREE_STRING;
    skip_blanks(r);
    if (!take(r, ':'))
        return fail(r, "no ':' after a key");
    return true;
}

/* The next one of a container, which has begun; false at its end, which is taken. */
static bool read_next(struct tei_json_reader *r, char close, bool first, unsigned depth,
                      struct tei_json_value *key, struct tei_json_value *out)
{
    skip_blanks(r);
    if (take(r, close))
        return false;
    if (!first && !take(r, ','))
        return fail(r,
                    close == '}' ? "no ',' or '}' after a member" : "no ',' or ']' after an item");
    skip_blanks(r);
    if (close == '}' && !read_key(r, key))
        return false;
    if (close == ']')
        r->tree += TREE_ITEM;
    return read_value(r, depth, out);
}

static bool read_container(struct tei_json_reader *r, char close, unsigned depth,
                           struct tei_json_value *out)
{
    const char *from = r->at++;
    struct tei_json_value key, value;
    bool first = true;

    r->tree += close == '}' ? TREE_OBJECT : TREE_ARRAY;
    while (read_next(r, close, first, depth + 1, &key, &value))
        first = false;
    *out = (struct tei_json_value){.kind = close == '}' ? TEI_JSON_OBJECT : TEI_JSON_ARRAY,
                                   .text = from,
                                   .len = (size_t)(r->at - from)};
    return !r->wrong && !r->late;
}

static bool read_value(struct tei_json_reader *r, unsigned depth, struct tei_json_value *out)
{
    if (depth > DEPTH_MAX)
        return fail(r, "it is nested too deep");
    if (!in_time(r))
        return false;
    skip_blanks(r);
    switch (peek(r)) {
    case '{':
        return read_container(r, '}', depth, out);
    case '[':
        return read_container(r, ']', depth, out);
    case '"':
        return read_string(r, out);
    case 't':
        return read_word(r, "true", TEI_JSON_TRUE, out);
    case 'f':
        return read_word(r, "false", TEI_JSON_FALSE, out);
    case 'n':
        return read_word(r, "null", TEI_JSON_NULL, out);
    default:
        return read_number(r, out);
    }
}

void tei_json_reader_init(struct tei_json_reader *r, const char *text, size_t len,
                          int64_t deadline_ns)
{
    *r = (struct tei_json_reader){
        .begin = text, .at = text, .end = text + len, .deadline_ns = deadline_ns};
}

void tei_json_reader_inside(struct tei_json_reader *r, const struct tei_json_value *container,
                            int64_t deadline_ns)
{
    tei_json_reader_init(r, container->text + 1, container->len - 1, deadline_ns);
    r->close = container->kind == TEI_JSON_OBJECT ? '}' : ']';
}

bool tei_json_read(struct tei_json_reader *r, struct tei_json_value *out)
{
    return read_value(r, 1, out);
}

bool tei_json_at_end(struct tei_json_reader *r)
{
    skip_blanks(r);
    return r->at == r->end || fail(r, "something after the end");
}

bool tei_json_next(struct tei_json_reader *r, struct tei_json_value *key,
                   struct tei_json_value *out)
{
    return read_next(r, r->close, r->at == r->begin, 1, key, out);
}

/* ------------------------------------------------------------------------------------------ trees */

/* What jansson reads, in the pieces that are left between the cuts. */
struct feed {
    const char *at, *end;
    const struct tei_json_value *cuts;
    size_t n;
};

static size_t feed(void *out, size_t max, void *arg)
{
    struct feed *f = arg;
    const char *to;
    size_t n;

    /* The brackets of a cut stay. */
    if (f->n && f->at == f->cuts->text + 1) {
        f->at += f->cuts->len - 2;
        f->cuts++;
        f->n--;
    }
    to = f->n ? f->cuts->text + 1 : f->end;
    n = tei_min(max, (size_t)(to - f->at));
    memcpy(out, f->at, n);
    f->at += n;
    return n;
}

int tei_json_tree(const struct tei_json_value *v, const struct tei_json_value *cuts, size_t n_cuts,
                  json_t **out, json_error_t *why)
{
    struct feed f = {.at = v->text, .end = v->text + v->len, .cuts = cuts, .n = n_cuts};
    enum json_error_code code;

    *out = json_load_callback(feed, &f, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, why);
    if (*out)
        return 0;
    /* The text has been checked; of what is left to be wrong with it, jansson tells. */
    code = json_error_code(why);
    return code == json_error_duplicate_key || code == json_error_numeric_overflow ? TE_ERR_JSON
                                                                                   : TE_ERR_MEMORY;
}
