/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the option table with every variable that a version of the specification names: each has
 * a row whose default is the newest one told, or a line "| `NAME` | ..." in docs/compat.md.
 */
#include "conf/conf.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSIONS 5

static char *compat;

static char *read_all(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 20);

    assert_non_null(f);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

static int read_compat(void **state)
{
    (void)state;
    compat = read_all(TE_TEST_SRC "/docs/compat.md");
    return 0;
}

static int free_compat(void **state)
{
    (void)state;
    free(compat);
    return 0;
}

static bool is_excused(const char *name)
{
    char line[128];

    snprintf(line, sizeof line, "\n| `%s` |", name);
    return strstr(compat, line) != NULL;
}

/* The row of a name or alias when the option is set to `value`; NULL sets nothing. */
static bool find_row(const char *name, const char *value, struct tei_conf_row *out)
{
    struct te_option_list *set = NULL;
    static struct tei_conf c;
    bool found = false;

    if (value)
        assert_int_equal(tei_option_list_add(&set, name, value), 0);
    assert_int_equal(tei_conf_load(set, &c), 0);
    tei_option_list_free(set);
    for (size_t i = 0; !found && tei_conf_row(&c, i, out); i++)
        found = strcmp(out->name, name) == 0 || (out->alias && strcmp(out->alias, name) == 0);
    return found;
}

/* The newest default told, NULL if none is. */
static const char *newest(char told[VERSIONS][32])
{
    for (size_t i = 0; i < VERSIONS; i++)
        if (strcmp(told[i], "-") != 0 && strcmp(told[i], "?") != 0)
            return told[i];
    return NULL;
}

static int check_line(const char *line)
{
    struct tei_conf_row row;
    char name[64], told[VERSIONS][32];
    const char *fallback;

    if (sscanf(line, "%63s %31s %31s %31s %31s %31s", name, told[0], told[1], told[2], told[3],
               told[4]) != VERSIONS + 1) {
        print_error("not a line of %d words: %s", VERSIONS + 1, line);
        return 1;
    }
    fallback = newest(told);
    if (!find_row(name, NULL, &row)) {
        if (!is_excused(name))
            print_error("%s has no row, and no line in docs/compat.md\n", name);
        return !is_excused(name);
    }
    if (!fallback || is_excused(name))
        return 0;
    assert_true(find_row(name, fallback, &row));
    if (strcmp(row.value, row.fallback) == 0)
        return 0;
    print_error("%s: the specification says %s, the table %s, docs/compat.md nothing\n", name,
                fallback, row.fallback);
    return 1;
}

TEST(every_variable_has_its_row)
{
    FILE *f = fopen(TE_TEST_SRC "/tests/support/seed_variables.txt", "r");
    int bad = 0, lines = 0;
    char line[256];

    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#')
            continue;
        bad += check_line(line);
        lines++;
    }
    fclose(f);
    assert_int_equal(bad, 0);
    assert_true(lines >= 36);
}

TEST(every_row_that_differs_is_told)
{
    struct tei_conf_row row;

    assert_true(find_row("MC_GID_INDEX", NULL, &row));
    assert_true(is_excused("MC_GID_INDEX"));
    assert_false(is_excused("MC_NO_SUCH_VARIABLE"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variable_has_its_row),
        cmocka_unit_test(every_row_that_differs_is_told),
    };

    return cmocka_run_group_tests(tests, read_compat, free_compat);
}
