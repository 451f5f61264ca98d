/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common_flags.c"
#include "tools/common_units.c"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct values {
    bool loud, node;
    const char *word, *any_text, *list;
    uint64_t count, block_size;
    int64_t index;
    double seconds, factor;
} v;

static struct extra {
    bool last;
} x;

static const struct flag rows[] = {
    {.name = "loud",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct values, loud),
     .initial = "false",
     .help = ""},
    {.name = "node",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct values, node),
     .initial = "true",
     .help = ""},
    {.name = "word",
     .kind = FLAG_TEXT,
     .offset = offsetof(struct values, word),
     .initial = "read",
     .choices = "read|write",
     .help = ""},
    {.name = "any_text",
     .kind = FLAG_TEXT,
     .offset = offsetof(struct values, any_text),
     .initial = "",
     .help = ""},
    {.name = "list",
     .kind = FLAG_TEXT,
     .offset = offsetof(struct values, list),
     .initial = "",
     .appends = true,
     .help = ""},
    {.name = "count",
     .kind = FLAG_COUNT,
     .offset = offsetof(struct values, count),
     .initial = "3",
     .min = 1,
     .max = 9,
     .help = ""},
    {.name = "index",
     .kind = FLAG_INDEX,
     .offset = offsetof(struct values, index),
     .initial = "0",
     .help = ""},
    {.name = "block_size",
     .kind = FLAG_SIZE,
     .offset = offsetof(struct values, block_size),
     .initial = "4096",
     .min = 1,
     .help = ""},
    {.name = "seconds",
     .kind = FLAG_SECONDS,
     .offset = offsetof(struct values, seconds),
     .initial = "10",
     .help = ""},
    {.name = "factor",
     .kind = FLAG_FACTOR,
     .offset = offsetof(struct values, factor),
     .initial = "0",
     .help = ""},
};

static const struct flag more_rows[] = {
    {.name = "last",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct extra, last),
     .initial = "false",
     .help = ""},
};

static const struct flag_table tables[] = {
    {rows, sizeof(rows) / sizeof(rows[0]), &v},
    {more_rows, 1, &x},
};

static struct flags line;

/* Parses words that end in NULL. */
static int parse(const char *first, ...)
{
    char *argv[16] = {(char *)(uintptr_t) "tool"};
    int n = 1;
    va_list ap;
    va_start(ap, first);
    for (const char *w = first; w; w = va_arg(ap, const char *))
        argv[n++] = (char *)(uintptr_t)w;
    va_end(ap);
    line = (struct flags){.tool = "tool", .about = "", .tables = tables, .count = 2};
    return flags_parse(&line, n, argv);
}

TEST(defaults)
{
    assert_int_equal(parse(NULL), -1);
    assert_true(!v.loud && v.node && !x.last && v.count == 3 && v.block_size == 4096);
    assert_true(v.seconds == 10);
    assert_string_equal(v.word, "read");
    assert_string_equal(v.any_text, "");
    assert_false(flags_given(&line, "word"));
}

TEST(spellings)
{
    assert_int_equal(parse("--block-size=64K", "-word", "write", "--any_text=--x=y", "--seconds=.5",
                           "--factor=1.25", "--loud", "--nonode", "--last", NULL),
                     -1);
    assert_true(v.loud && !v.node && x.last && v.block_size == 65536 && v.seconds == 0.5);
    assert_true(v.factor == 1.25);
    assert_string_equal(v.word, "write");
    assert_string_equal(v.any_text, "--x=y");
    assert_true(flags_given(&line, "block_size"));
    assert_true(flags_given(&line, "last"));
    assert_true(flags_given(&line, "node"));
    assert_false(flags_given(&line, "count"));
    assert_int_equal(parse("--loud=yes", "--node=0", "--no-last", "--any_text=", NULL), -1);
    assert_true(v.loud && !v.node && !x.last);
    assert_int_equal(parse("--no_loud", "--count", "9", "--count=4", NULL), -1);
    assert_true(!v.loud && v.count == 4);
    assert_int_equal(v.index, 0);
    assert_int_equal(parse("--index", "-1", NULL), -1);
    assert_int_equal(v.index, -1);
    assert_int_equal(parse("--index=7", NULL), -1);
    assert_int_equal(v.index, 7);
}

TEST(refusals)
{
    assert_int_equal(parse("--absent=1", NULL), 2);
    assert_int_equal(parse("--noword", NULL), 2);
    assert_int_equal(parse("--nonode=1", NULL), 2);
    assert_int_equal(parse("--block=1", NULL), 2);
    assert_int_equal(parse("--block_sizes=1", NULL), 2);
    assert_int_equal(parse("--count=0", NULL), 2);
    assert_int_equal(parse("--count=10", NULL), 2);
    assert_int_equal(parse("--count=", NULL), 2);
    assert_int_equal(parse("--count", NULL), 2);
    assert_int_equal(parse("--index=-2", NULL), 2);
    assert_int_equal(parse("--index=", NULL), 2);
    assert_int_equal(parse("--index=9223372036854775808", NULL), 2);
    assert_int_equal(parse("--word=rea", NULL), 2);
    assert_int_equal(parse("--word=read|write", NULL), 2);
    assert_int_equal(parse("--seconds=nan", NULL), 2);
    assert_int_equal(parse("--factor=-1", NULL), 2);
    assert_int_equal(parse("--loud=perhaps", NULL), 2);
    assert_int_equal(parse("word", NULL), 2);
    assert_int_equal(parse("-", NULL), 2);
    assert_int_equal(parse("--", NULL), 2);
}

/* What is said of a flag, without the newline; valid until the next one. */
static const char *said_of(const char *flag)
{
    static char text[512];
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO);
    size_t n;

    assert_non_null(file);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    assert_int_equal(parse(flag, NULL), 2);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n ? n - 1 : 0] = '\0';
    return text;
}

TEST(texts)
{
    char *longest =
        strdup("--aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");

    assert_string_equal(said_of("--block-sizes=1"),
                        "tool: unknown flag --block-sizes (--block_size? --help lists all)");
    assert_string_equal(said_of("--any_test"),
                        "tool: unknown flag --any_test (--any_text? --help lists all)");
    assert_string_equal(said_of("--nothing"), "tool: unknown flag --nothing (--help lists all)");
    assert_string_equal(said_of("--=1"), "tool: unknown flag -- (--help lists all)");
    assert_null(strchr(said_of(longest), '?'));
    assert_string_equal(said_of("--block_size=64Q"),
                        "tool: bad value '64Q' for --block_size: expected bytes, as 65536 or 64K "
                        "(K, M, G, T), of at least 1");
    assert_string_equal(said_of("--count=10"),
                        "tool: bad value '10' for --count: expected a number "
                        "of at least 1 and at most 9");
    assert_string_equal(said_of("--word=rea"),
                        "tool: bad value 'rea' for --word: expected read|write");
    free(longest);
}

static int parse_once(const char *a, const char *b, const char *c)
{
    char *argv[] = {(char *)(uintptr_t) "tool", (char *)(uintptr_t)a, (char *)(uintptr_t)b,
                    (char *)(uintptr_t)c, NULL};

    flags_fini(&line);
    line = (struct flags){.tool = "tool", .about = "", .once = true, .tables = tables, .count = 2};
    return flags_parse(&line, 4, argv);
}

TEST(lists)
{
    assert_int_equal(parse_once("--list=a,b", "--list=", "--list=c"), -1);
    assert_string_equal(v.list, "a,b,,c");
    assert_int_equal(parse_once("--list=", "--list=x", "--count=5"), -1);
    assert_string_equal(v.list, ",x");
    assert_int_equal(parse_once("--list=y", "--count=5", "--loud"), -1);
    assert_string_equal(v.list, "y");
    flags_fini(&line);
}

TEST(given_twice)
{
    assert_int_equal(parse_once("--count=5", "--loud", "--count=5"), 2);
    assert_int_equal(parse_once("--loud", "--last", "--noloud"), 2);
    assert_int_equal(parse_once("--loud", "--last", "--loud"), 2);
    assert_int_equal(parse_once("--any_text=a", "--last", "--any-text=b"), 2);
    assert_int_equal(parse_once("--noloud", "--last", "--any-text=b"), -1);
    flags_fini(&line);
}

TEST(help_ends_it)
{
    assert_int_equal(parse("--help", NULL), 0);
    assert_int_equal(parse("-h", NULL), 0);
    assert_int_equal(parse("--version", NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),     cmocka_unit_test(spellings), cmocka_unit_test(refusals),
        cmocka_unit_test(texts),        cmocka_unit_test(lists),     cmocka_unit_test(given_twice),
        cmocka_unit_test(help_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
