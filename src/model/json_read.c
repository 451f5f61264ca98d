/* SPDX-License-Identifier: Apache-2.0 */
#include "model/json_read.h"

#include "model/model.h"

#include "base/err.h"
#include "base/hex.h"
#include "base/os.h"
#include "base/utf8.h"

#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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
/* A tree of so many bytes is made of any text. */
#define TREE_FREE ((size_t)8 << 20)

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

/* The four digits at p; -1 if they are none. */
static int32_t hex_unit(const char *p, size_t left)
{
    uint8_t bytes[2];

    if (left < 4 || !tei_hex_read(p, bytes, sizeof(bytes)))
        return -1;
    return bytes[0] << 8 | bytes[1];
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
            c < 0x80 ? 1 : tei_utf8_length((const unsigned char *)r->at, (size_t)(r->end - r->at));

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

/* Up to the next one of a container, which has begun; false at its end, which is taken. */
static bool go_next(struct tei_json_reader *r, char close, bool first, struct tei_json_value *key)
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
    return true;
}

/* The next one of a container; false at its end. */
static bool read_next(struct tei_json_reader *r, char close, bool first, unsigned depth,
                      struct tei_json_value *key, struct tei_json_value *out)
{
    return go_next(r, close, first, key) && read_value(r, depth, out);
}

static bool read_container(struct tei_json_reader *r, char close, unsigned depth,
                           struct tei_json_value *out)
{
    const char *from = r->at++;
    bool told = close == '}' && depth <= 2 && r->on_member;
    struct tei_json_value key, value;
    size_t before;

    r->tree += close == '}' ? TREE_OBJECT : TREE_ARRAY;
    before = r->tree;
    for (bool first = true; read_next(r, close, first, depth + 1, &key, &value); first = false) {
        if (told)
            r->on_member(r->arg, depth, &key, &value, r->tree - before);
        before = r->tree;
    }
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

/*
 * jansson's own reader is not asked: when memory is out it leaves bytes out of what it reads, and goes on,
 * or ends the process.
 */
struct builder {
    struct tei_json_reader reader;
    const struct tei_json_value *cuts;
    size_t n_cuts;
    bool unique; /* no key comes twice */
};

static int build(struct builder *b, unsigned depth, json_t **out);

/* What was made, or that memory is out. */
static int made(json_t *j, json_t **out)
{
    *out = j;
    return j ? 0 : TE_ERR_MEMORY;
}

static int build_string(const struct tei_json_value *v, json_t **out)
{
    char *copy;
    int rc;

    if (!v->escaped)
        return made(json_stringn_nocheck(v->text, v->len), out);
    copy = malloc(v->len + 1);
    if (!copy)
        return TE_ERR_MEMORY;
    tei_json_copy(v, copy, v->len + 1);
    rc = made(json_string_nocheck(copy), out);
    free(copy);
    return rc;
}

/* The point is a point, whatever the program's locale says. */
static int build_real(struct builder *b, const struct tei_json_value *v, json_t **out)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    char *copy = malloc(v->len + 1);
    double real;

    if (!plain || !copy) {
        free(copy);
        if (plain)
            freelocale(plain);
        return TE_ERR_MEMORY;
    }
    tei_json_copy(v, copy, v->len + 1); /* a number has no escapes */
    real = strtod_l(copy, NULL, plain);
    free(copy);
    freelocale(plain);
    if (real == HUGE_VAL || real == -HUGE_VAL) {
        fail(&b->reader, "a number that is too large");
        return TE_ERR_JSON;
    }
    return made(json_real(real), out);
}

static int build_scalar(struct builder *b, const struct tei_json_value *v, json_t **out)
{
    switch (v->kind) {
    case TEI_JSON_STRING:
        return build_string(v, out);
    case TEI_JSON_INTEGER:
        return made(json_integer(v->integer), out);
    case TEI_JSON_REAL:
        return build_real(b, v, out);
    case TEI_JSON_NULL:
        return made(json_null(), out);
    default:
        return made(json_boolean(v->kind == TEI_JSON_TRUE), out);
    }
}

/* Takes over `child`. */
static int add_member(struct builder *b, json_t *object, const struct tei_json_value *key,
                      json_t *child)
{
    char some[128], *text = key->len < sizeof some ? some : malloc(key->len + 1);
    int rc = text ? 0 : TE_ERR_MEMORY;

    if (!rc)
        tei_json_copy(key, text, key->len + 1);
    if (!rc && b->unique && json_object_get(object, text)) {
        fail(&b->reader, "duplicate object key");
        rc = TE_ERR_JSON;
    }
    if (!rc && json_object_set_nocheck(object, text, child) != 0)
        rc = TE_ERR_MEMORY;
    if (text != some)
        free(text);
    json_decref(child);
    return rc;
}

static int build_inside(struct builder *b, char close, unsigned depth, json_t *container)
{
    struct tei_json_reader *r = &b->reader;
    struct tei_json_value key;
    int rc = 0;

    for (bool first = true; !rc && go_next(r, close, first, &key); first = false) {
        json_t *child;

        rc = build(b, depth + 1, &child);
        if (!rc && close == '}')
            rc = add_member(b, container, &key, child);
        else if (!rc && json_array_append_new(container, child) != 0)
            rc = TE_ERR_MEMORY;
    }
    return rc || !r->wrong ? rc : TE_ERR_JSON;
}

static int build_container(struct builder *b, char close, unsigned depth, json_t **out)
{
    struct tei_json_reader *r = &b->reader;
    json_t *container = close == '}' ? json_object() : json_array();
    int rc;

    if (!container)
        return TE_ERR_MEMORY;
    if (b->n_cuts && r->at == b->cuts->text) {
        r->at += b->cuts->len;
        b->cuts++;
        b->n_cuts--;
        rc = 0;
    } else {
        r->at++;
        rc = build_inside(b, close, depth, container);
    }
    if (rc)
        json_decref(container);
    else
        *out = container;
    return rc;
}

static int build(struct builder *b, unsigned depth, json_t **out)
{
    struct tei_json_reader *r = &b->reader;
    struct tei_json_value v;

    skip_blanks(r);
    if (peek(r) != '{' && peek(r) != '[')
        return read_value(r, depth, &v) ? build_scalar(b, &v, out) : TE_ERR_JSON;
    if (depth > DEPTH_MAX) {
        fail(r, "it is nested too deep");
        return TE_ERR_JSON;
    }
    return build_container(b, peek(r) == '{' ? '}' : ']', depth, out);
}

/* What is wrong, as jansson would say it. */
static int build_all(struct builder *b, json_t **out, json_error_t *why)
{
    int rc = build(b, 1, out);

    if (!rc && !tei_json_at_end(&b->reader)) {
        json_decref(*out);
        rc = TE_ERR_JSON;
    }
    if (rc)
        *out = NULL;
    if (rc == TE_ERR_JSON && why) {
        snprintf(why->text, sizeof why->text, "%s", b->reader.wrong);
        why->position = (int)tei_min(INT_MAX, (size_t)(b->reader.at - b->reader.begin));
    }
    return rc;
}

int tei_json_tree(const struct tei_json_value *v, const struct tei_json_value *cuts, size_t n_cuts,
                  json_t **out, json_error_t *why)
{
    struct builder b = {.cuts = cuts, .n_cuts = n_cuts, .unique = true};

    tei_json_reader_init(&b.reader, v->text, v->len, TEI_NEVER);
    return build_all(&b, out, why);
}

int tei_json_load(const char *text, size_t len, size_t flags, json_t **out, json_error_t *why)
{
    struct builder b = {.unique = flags & JSON_REJECT_DUPLICATES};
    int rc;

    tei_json_reader_init(&b.reader, text, len, TEI_NEVER);
    rc = build_all(&b, out, why);
    if (rc || flags & JSON_DECODE_ANY || json_is_object(*out) || json_is_array(*out))
        return rc;
    json_decref(*out);
    *out = NULL;
    if (why) {
        snprintf(why->text, sizeof why->text, "it is neither an object nor an array");
        why->position = 0;
    }
    return TE_ERR_JSON;
}

bool tei_json_tree_fits(size_t tree, size_t len)
{
    return tree <= 2 * len + TREE_FREE;
}

int tei_json_load_bounded(const char *text, size_t len, json_t **out, json_error_t *why)
{
    struct tei_json_reader r;
    struct tei_json_value v;

    tei_json_reader_init(&r, text, len, TEI_NEVER);
    /* Where it fails the other does, with a tree of what was read so far. */
    (void)tei_json_read(&r, &v);
    if (!tei_json_tree_fits(r.tree, len))
        return TE_ERR_TOO_LARGE;
    return tei_json_load(text, len, 0, out, why);
}
