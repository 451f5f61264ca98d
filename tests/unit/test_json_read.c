/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of JSON in place, held against jansson. */
#include "json_same.h"
#include "test.h"

#include <stdio.h>

#include "base/err.h"

static uint64_t seed;

static unsigned draw(unsigned below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed >> 20) % below;
}

/* ------------------------------------------------------------------------------ fixed texts */

static const struct {
    const char *text;
    bool good;
} texts[] = {
    {"0", true},
    {"-0", true},
    {"00", false},
    {"-", false},
    {"+1", false},
    {".5", false},
    {"1.", false},
    {"1.5", true},
    {"1e", false},
    {"1E+07", true},
    {"-1.5e-300", true},
    {"9223372036854775807", true},
    {"9223372036854775808", false},
    {"-9223372036854775808", true},
    {"-9223372036854775809", false},
    {"99999999999999999999999999999999", false},
    {"18446744073709551616", false},
    {"true", true},
    {"tru", false},
    {"truex", false},
    {"null", true},
    {"nul", false},
    {"False", false},
    {"", false},
    {"  ", false},
    {" \t\r\n[ ]\n", true},
    {"[]]", false},
    {"[1,]", false},
    {"[,1]", false},
    {"[1 2]", false},
    {"[1,,2]", false},
    {"{\"a\":1,}", false},
    {"{,}", false},
    {"{\"a\"}", false},
    {"{\"a\":}", false},
    {"{a:1}", false},
    {"{1:1}", false},
    {"{\"a\":1 \"b\":2}", false},
    {"{\"a\":{\"b\":[{}]}}", true},
    {"[}", false},
    {"{]", false},
    {"[", false},
    {"{\"a\"", false},
    {"\"", false},
    {"\"\\\"", false},
    {"\"\\x\"", false},
    {"\"\\", false},
    {"\"\\u", false},
    {"\"\\u12", false},
    {"\"\\u12g4\"", false},
    {"\"\\u0000\"", false},
    {"\"\\u0001\"", true},
    {"\"\\ud83d\\ude00\"", true},
    {"\"\\ud83d\"", false},
    {"\"\\ud83d\\u0041\"", false},
    {"\"\\ude00\"", false},
    {"\"\\ud83dxxxxxx\"", false},
    {"\"\\b\\f\\n\\r\\t\\/\\\\\\\"\"", true},
    {"\"a\tb\"", false},
    {"\"\x7f\"", true},
    {"\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"", true},
    {"\"\xc3\"", false},
    {"\"\xc0\x80\"", false},
    {"\"\xe0\x9f\xbf\"", false},
    {"\"\xe0\xa0\x80\"", true},
    {"\"\xed\xa0\x80\"", false},
    {"\"\xed\x9f\xbf\"", true},
    {"\"\xf0\x8f\xbf\xbf\"", false},
    {"\"\xf4\x8f\xbf\xbf\"", true},
    {"\"\xf4\x90\x80\x80\"", false},
    {"\"\xf5\x80\x80\x80\"", false},
    {"\"\x80\"", false},
    {"\xef\xbb\xbf[]", false},
};

TEST(fixed_texts)
{
    for (size_t i = 0; i < TEI_ARRAY_LEN(texts); i++) {
        bool taken;

        if (!json_same(texts[i].text, strlen(texts[i].text), &taken) || taken != texts[i].good)
            fail_msg("%s", texts[i].text);
    }
}

TEST(bytes_that_are_no_text)
{
    bool taken;

    assert_true(json_same("[\"a\0b\"]", 7, &taken) && !taken);
    assert_true(json_same("[1]\0", 4, &taken) && !taken);
    assert_true(json_same("\0", 1, &taken) && !taken);
    for (unsigned c = 0; c < 256; c++) {
        char one[] = {'"', (char)c, '"'}, bare = (char)c;

        assert_true(json_same(one, 3, &taken));
        assert_int_equal(taken, c >= 0x20 && c < 0x80 && c != '"' && c != '\\');
        assert_true(json_same(&bare, 1, &taken));
    }
}

/* As deep as jansson goes, and not deeper. */
TEST(depth)
{
    char text[2 * 3000];
    bool taken;

    for (unsigned n = 2040; n < 2056; n++) {
        memset(text, '[', n);
        memset(text + n, ']', n);
        assert_true(json_same(text, 2 * (size_t)n, &taken));
        assert_int_equal(taken, n <= 2048);
    }
    memset(text, '[', sizeof text);
    assert_true(json_same(text, sizeof text, &taken) && !taken);
}

/* ----------------------------------------------------------------------------- random texts */

struct text {
    char p[1 << 16];
    size_t len;
};

static void put(struct text *t, const char *s)
{
    size_t n = strlen(s);

    if (t->len + n < sizeof t->p) {
        memcpy(t->p + t->len, s, n);
        t->len += n;
    }
}

static void put_one(struct text *t, const char *const *list, unsigned n)
{
    put(t, list[draw(n)]);
}

static void put_blanks(struct text *t)
{
    static const char *const blanks[] = {"", "", "", " ", "\n", "\t ", "\r\n"};

    put_one(t, blanks, TEI_ARRAY_LEN(blanks));
}

static void put_string(struct text *t)
{
    static const char *const pieces[] = {"a",
                                         "addr",
                                         "\\\"",
                                         "\\\\",
                                         "\\/",
                                         "\\n",
                                         "\\u00e9",
                                         "\xc3\xa9",
                                         "\\ud83d\\ude00",
                                         "\xf0\x9f\x98\x80",
                                         "\xe2\x82\xac",
                                         "0",
                                         "{[,:]}"};

    put(t, "\"");
    for (unsigned n = draw(5); n; n--)
        put_one(t, pieces, TEI_ARRAY_LEN(pieces));
    put(t, "\"");
}

static void put_value(struct text *t, unsigned depth);

static void put_container(struct text *t, bool object, unsigned depth)
{
    put(t, object ? "{" : "[");
    for (unsigned n = draw(5), i = 0; i < n; i++) {
        put(t, i ? "," : "");
        put_blanks(t);
        if (object) {
            put_string(t);
            put_blanks(t);
            put(t, ":");
        }
        put_value(t, depth + 1);
    }
    put_blanks(t);
    put(t, object ? "}" : "]");
}

static void put_value(struct text *t, unsigned depth)
{
    static const char *const words[] = {"true",
                                        "false",
                                        "null",
                                        "0",
                                        "-0",
                                        "-17",
                                        "9223372036854775807",
                                        "1.5",
                                        "1e5",
                                        "-2E-3",
                                        "123",
                                        "4096",
                                        "-9223372036854775808"};

    put_blanks(t);
    switch (depth < 6 ? draw(4) : draw(2)) {
    case 0:
        put_one(t, words, TEI_ARRAY_LEN(words));
        break;
    case 1:
        put_string(t);
        break;
    default:
        put_container(t, draw(2), depth);
    }
    put_blanks(t);
}

static void spoil(struct text *t)
{
    static const char odd[] = "{}[]\",:\\u0e-+.\x80\xc3\xff\n ";
    size_t at = t->len ? draw((unsigned)t->len) : 0;

    switch (draw(3)) {
    case 0:
        t->p[at] = odd[draw(sizeof odd)];
        break;
    case 1:
        t->len = at;
        break;
    default:
        memmove(t->p + at, t->p + at + 1, t->len - at);
        t->len -= t->len > 0;
    }
}

TEST(random_texts)
{
    static struct text t;
    unsigned n_taken = 0, n_refused = 0;

    for (seed = 1; n_taken < 20000 || n_refused < 20000;) {
        bool taken;

        t.len = 0;
        put_value(&t, 0);
        if (draw(2))
            spoil(&t);
        if (!json_same(t.p, t.len, &taken))
            fail_msg("%.*s", (int)t.len, t.p);
        n_taken += taken;
        n_refused += !taken;
    }
}

/* ------------------------------------------------------------------------------- the rest */

/* What jansson has from malloc(), and the most it has had. */
static size_t held, peak;

static void *count_malloc(size_t n)
{
    size_t *p = malloc(sizeof(size_t) * 2 + n);

    if (!p)
        return NULL;
    *p = n;
    held += n;
    peak = tei_max(peak, held);
    return p + 2;
}

static void count_free(void *at)
{
    size_t *p = at;

    if (!p)
        return;
    held -= p[-2];
    free(p - 2);
}

static void weigh(const char *text, size_t len)
{
    struct tei_json_value v;
    struct tei_json_reader r;
    json_error_t error;
    json_t *j;

    tei_json_reader_init(&r, text, len, TEI_NEVER);
    assert_true(tei_json_read(&r, &v));
    peak = 0;
    if (tei_json_tree(&v, NULL, 0, &j, &error) == 0) {
        if (peak > r.tree + 8192) /* the parser itself */
            fail_msg("%zu bytes, not %zu: %.200s", peak, r.tree, text);
        json_decref(j);
    }
    assert_int_equal(held, 0);
}

/* What a tree is said to take is never less than it takes. */
TEST(weight_of_trees)
{
    static const char *const items[] = {"[]",  "{}",         "[[]]",    "\"\"", "0",
                                        "1.5", "{\"a\":[]}", "[0,1,2]", "true"};
    static struct text t;

    json_set_alloc_funcs(count_malloc, count_free);
    for (size_t i = 0; i < TEI_ARRAY_LEN(items); i++) {
        t.len = 0;
        put(&t, "[0");
        while (t.len < 40000) {
            put(&t, ",");
            put(&t, items[i]);
        }
        put(&t, "]");
        weigh(t.p, t.len);
    }
    for (seed = 7, t.len = 0; t.len < 40000;) {
        char key[16];

        snprintf(key, sizeof key, "\"%zx\":", t.len);
        put(&t, t.len ? "," : "{");
        put(&t, key);
        put_value(&t, 3);
    }
    put(&t, "}");
    weigh(t.p, t.len);
    json_set_alloc_funcs(malloc, free);
}

TEST(cuts)
{
    static const char text[] =
        "{\"a\":[1,{\"x\":[2]}],\"b\":{\"c\":[ ],\"d\":[3]},\"e\":[],\"f\":7}";
    struct tei_json_value v, key, a, b, c, d, e, list[3];
    struct tei_json_reader r;
    json_error_t error;
    json_t *j;
    char *dump;

    tei_json_reader_init(&r, text, sizeof text - 1, TEI_NEVER);
    assert_true(tei_json_read(&r, &v));
    tei_json_reader_inside(&r, &v, TEI_NEVER);
    assert_true(tei_json_next(&r, &key, &a));
    assert_true(tei_json_next(&r, &key, &b));
    assert_true(tei_json_next(&r, &key, &e));
    tei_json_reader_inside(&r, &b, TEI_NEVER);
    assert_true(tei_json_next(&r, &key, &c));
    assert_true(tei_json_next(&r, &key, &d));
    list[0] = a;
    list[1] = d;
    list[2] = e;
    assert_int_equal(tei_json_tree(&v, list, 3, &j, &error), 0);
    dump = json_dumps(j, JSON_COMPACT);
    assert_string_equal(dump, "{\"a\":[],\"b\":{\"c\":[],\"d\":[]},\"e\":[],\"f\":7}");
    free(dump);
    json_decref(j);
}

TEST(trees_refuse_what_comes_twice)
{
    static const char text[] = "{\"a\":1,\"b\":2,\"\\u0061\":3}";
    struct tei_json_value v;
    struct tei_json_reader r;
    json_error_t error;
    json_t *j;

    tei_json_reader_init(&r, text, sizeof text - 1, TEI_NEVER);
    assert_true(tei_json_read(&r, &v));
    assert_int_equal(tei_json_tree(&v, NULL, 0, &j, &error), TE_ERR_JSON);
    assert_non_null(strstr(error.text, "duplicate"));
}

TEST(deadline)
{
    static char text[1 << 16];
    struct tei_json_value v;
    struct tei_json_reader r;

    memset(text, '0', sizeof text);
    text[0] = '[';
    for (size_t i = 2; i < sizeof text - 1; i += 2)
        text[i] = ',';
    memcpy(text + sizeof text - 2, " ]", 2);
    tei_json_reader_init(&r, text, sizeof text, tei_now_ns());
    assert_false(tei_json_read(&r, &v));
    assert_true(r.late);
    assert_null(r.wrong);
    tei_json_reader_init(&r, text, sizeof text, TEI_NEVER);
    assert_true(tei_json_read(&r, &v));
    /* What is short is read in any case. */
    tei_json_reader_init(&r, "[1,2,3]", 7, tei_now_ns());
    assert_true(tei_json_read(&r, &v));
}

TEST(copies_have_an_end)
{
    struct tei_json_value v;
    struct tei_json_reader r;
    char out[8];

    tei_json_reader_init(&r, "\"abc\\u20ac\"", 11, TEI_NEVER);
    assert_true(tei_json_read(&r, &v));
    assert_false(tei_json_copy(&v, out, 6));
    assert_true(tei_json_copy(&v, out, 7));
    assert_string_equal(out, "abc\xe2\x82\xac");
    assert_true(tei_json_is(&v, "abc\xe2\x82\xac"));
    assert_false(tei_json_is(&v, "abc"));
}

struct members {
    char text[256];
    size_t weight;
};

static void note_member(void *arg, unsigned depth, const struct tei_json_value *key,
                        const struct tei_json_value *value, size_t weight)
{
    struct members *m = arg;
    size_t n = strlen(m->text);

    snprintf(m->text + n, sizeof m->text - n, "%u %.*s %.*s\n", depth, (int)key->len, key->text,
             (int)value->len, value->text);
    if (depth == 1)
        m->weight += weight;
}

/* Those of the two outer objects are told while the text is read, each once. */
TEST(members_are_told)
{
    static const char text[] =
        "{\"a\":[1,{\"no\":2}],\"te\":{\"r\":[3],\"x\":{\"no\":4}},\"b\":{}}";
    struct members m = {0};
    struct tei_json_value v;
    struct tei_json_reader r;
    size_t empty;

    tei_json_reader_init(&r, "{}", 2, TEI_NEVER);
    assert_true(tei_json_read(&r, &v));
    empty = r.tree;
    tei_json_reader_init(&r, text, sizeof text - 1, TEI_NEVER);
    r.on_member = note_member;
    r.arg = &m;
    assert_true(tei_json_read(&r, &v));
    assert_string_equal(m.text, "1 a [1,{\"no\":2}]\n2 r [3]\n2 x {\"no\":4}\n"
                                "1 te {\"r\":[3],\"x\":{\"no\":4}}\n1 b {}\n");
    assert_int_equal(m.weight + empty, r.tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_texts),
        cmocka_unit_test(bytes_that_are_no_text),
        cmocka_unit_test(depth),
        cmocka_unit_test(random_texts),
        cmocka_unit_test(weight_of_trees),
        cmocka_unit_test(cuts),
        cmocka_unit_test(trees_refuse_what_comes_twice),
        cmocka_unit_test(deadline),
        cmocka_unit_test(copies_have_an_end),
        cmocka_unit_test(members_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
