/* SPDX-License-Identifier: Apache-2.0 */
/* The key file: what it may say, who may reach it, and where its bytes are kept. */
#include "auth/auth_keys.h"
#include "auth_rig.h"
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "te.h"

static int parse(const char *text, size_t n, struct auth_file **out)
{
    *out = NULL;
    return tei_auth_parse(text, n, "keys", out);
}

static void expect_good(const char *text, size_t ids)
{
    struct auth_file *f;

    assert_int_equal(parse(text, strlen(text), &f), 0);
    assert_int_equal(f->n, ids);
    tei_auth_file_free(f);
}

/* The error has that word, and no part of a key. */
static void expect_bad(const char *text, size_t n, const char *why)
{
    struct auth_file *f;

    assert_int_equal(parse(text, n, &f), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), why));
    assert_null(strstr(te_errmsg(), "QUFB"));
    assert_null(f);
}

#define BAD(text, why) expect_bad(text, sizeof(text) - 1, why)

TEST(lines_that_are_good)
{
    struct auth_file *f;

    expect_good("a:" KEY_A "\n", 1);
    expect_good("a:" KEY_A, 1);
    expect_good("# ours\r\n\r\na:" KEY_A "\r\n# others\r\nb.2:" KEY_B "\r\n", 2);
    expect_good("a:" KEY_A "\nA:" KEY_A "\n_-.:" KEY_B "\n", 3);
    assert_int_equal(parse("a:" KEY_A "\nb:" KEY_B "\n", strlen("a:" KEY_A "\nb:" KEY_B "\n"), &f),
                     0);
    assert_string_equal(f->lines[0].id, "a");
    assert_int_equal(f->lines[1].len, 32);
    for (size_t i = 0; i < 32; i++)
        assert_int_equal(f->lines[1].key[i], 'B');
    assert_false(f->own_may_come);
    assert_ptr_equal(tei_auth_find(f, "b", 1), &f->lines[1]);
    assert_null(tei_auth_find(f, "b", 0));
    assert_null(tei_auth_find(f, "bb", 2));
    tei_auth_file_free(f);
}

TEST(the_first_line_may_be_repeated)
{
    struct auth_file *f;
    const char *text = "a:" KEY_A "\nb:" KEY_B "\na:" KEY_A "\n";

    assert_int_equal(parse(text, strlen(text), &f), 0);
    assert_int_equal(f->n, 2);
    assert_true(f->own_may_come);
    tei_auth_file_free(f);
    BAD("a:" KEY_A "\na:" KEY_B "\n", "line 2");
    BAD("a:" KEY_A "\nb:" KEY_B "\nb:" KEY_B "\n", "line 3");
}

TEST(lines_that_are_bad)
{
    BAD("", "no line");
    BAD("\n\n# nothing\n", "no line");
    BAD("a\n", "':'");
    BAD(":" KEY_A "\n", "an id is");
    BAD("a b:" KEY_A "\n", "an id is");
    BAD("\xc3\xa4:" KEY_A "\n", "an id is");
    BAD("a\0:" KEY_A "\n", "an id is");
    BAD("a:" KEY_A "\n" KEY_A "\n", "line 2");
    BAD("a:\n", "a key is");
    BAD("a:QUFB\n", "a key is");                                          /* too short */
    BAD("a:" KEY_A " \n", "a key is");                                    /* a blank behind it */
    BAD("a:QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUF=\n", "a key is");  /* bits behind it */
    BAD("a:QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU=E\n", "a key is");  /* padding within */
    BAD("a:QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE\n", "a key is");   /* no padding */
    BAD("a:QUFBQUFBQUFBQUFBQUF\0QUFBQUFBQUFBQUFBQUFBQUE=\n", "a key is"); /* a NUL */
    BAD("a:====\n", "a key is");
    BAD("a:=\n", "a key is");
}

TEST(long_ids_and_keys)
{
    char text[512];

    snprintf(text, sizeof(text), "%064d:" KEY_A, 1);
    expect_good(text, 1);
    snprintf(text, sizeof(text), "%065d:" KEY_A, 1);
    expect_bad(text, strlen(text), "an id is");
    /* 64 bytes are 88 characters, 66 are one more. */
    snprintf(text, sizeof(text), "a:%.*s==", 86, KEY_A KEY_A KEY_A);
    memset(text + 2, 'A', 86);
    expect_good(text, 1);
    memset(text + 2, 'A', 88);
    text[90] = '\0';
    expect_bad(text, 90, "a key is");
}

/* Every text that begins a good one, and every one with another byte in it, is read or refused, and no more. */
TEST(hostile_bytes)
{
    const char good[] = "# c\na:" KEY_A "\r\nb:" KEY_B "\n";
    char text[sizeof(good)];
    struct auth_file *f;
    unsigned taken = 0;

    for (size_t n = 0; n < sizeof(good); n++) {
        int rc = parse(good, n, &f);

        taken += rc == 0;
        assert_true(rc == 0 || rc == TE_ERR_INVALID);
        tei_auth_file_free(f);
    }
    for (size_t at = 0; at < sizeof(good) - 1; at++) {
        for (int byte = 0; byte < 256; byte += 15) {
            memcpy(text, good, sizeof(good));
            text[at] = (char)byte;
            taken += parse(text, sizeof(good) - 1, &f) == 0;
            tei_auth_file_free(f);
        }
    }
    assert_true(taken > 10);
}

TEST(too_many_ids)
{
    char *text = malloc((size_t)64 * 4200);
    size_t n = 0;

    assert_non_null(text);
    for (int i = 0; i < 4097; i++)
        n += (size_t)sprintf(text + n, "i%d:" KEY_A "\n", i);
    expect_bad(text, n, "4096");
    free(text);
}

static int read_it(const char *path)
{
    struct auth_stamp stamp;
    struct auth_file *f = NULL;
    int rc = tei_auth_read(path, &stamp, &f);

    tei_auth_file_free(f);
    return rc;
}

TEST(who_may_reach_the_file)
{
    const char *path = auth_file("modes", "a:" KEY_A "\n");
    static const mode_t bad[] = {0640, 0604, 0620, 0602, 0610, 0601, 0644};

    assert_int_equal(read_it(path), 0);
    assert_int_equal(chmod(path, 0400), 0);
    assert_int_equal(read_it(path), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(chmod(path, bad[i]), 0);
        assert_int_equal(read_it(path), TE_ERR_INVALID);
        assert_non_null(strstr(te_errmsg(), "chmod 600"));
    }
    assert_int_equal(read_it("/nonexistent/keys"), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "TE_AUTH_KEYS"));
    assert_int_equal(read_it(auth_folder()), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "no regular file"));
}

TEST(a_file_that_is_no_key_file)
{
    const char *path = auth_file("big", "");

    assert_int_equal(truncate(path, (1 << 20) + 1), 0);
    assert_int_equal(read_it(path), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "1 MiB"));
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(read_it(path), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "no line"));
}

/* What the kernel says of the pages: no core dump has them. */
TEST(secret_pages_are_not_dumped)
{
    void *p = tei_secret_alloc(5000);
    char line[512], flags[512] = "";
    FILE *f = fopen("/proc/self/smaps", "r");
    bool here = false;

    assert_non_null(p);
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        unsigned long begin, end;

        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            here = (uintptr_t)p >= begin && (uintptr_t)p < end;
        if (here && strncmp(line, "VmFlags:", 8) == 0)
            strcpy(flags, line);
    }
    fclose(f);
    assert_non_null(strstr(flags, " dd"));
    tei_secret_free(p, 5000);
    tei_secret_free(NULL, 0);
}

/* Fills a vector register with ones, burns, and returns what is there then. */
static uint64_t after_burn(void)
{
    uint64_t left = 1;

#if defined(__x86_64__)
    __asm__ volatile("pcmpeqd %%xmm7,%%xmm7" : : : "xmm7");
    tei_secret_burn();
    __asm__ volatile("movq %%xmm7,%0" : "=r"(left) : : "memory");
#else
    skip();
#endif
    return left;
}

TEST(registers_are_cleared)
{
    assert_int_equal(after_burn(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_that_are_good),
        cmocka_unit_test(the_first_line_may_be_repeated),
        cmocka_unit_test(lines_that_are_bad),
        cmocka_unit_test(long_ids_and_keys),
        cmocka_unit_test(hostile_bytes),
        cmocka_unit_test(too_many_ids),
        cmocka_unit_test(who_may_reach_the_file),
        cmocka_unit_test(a_file_that_is_no_key_file),
        cmocka_unit_test(secret_pages_are_not_dumped),
        cmocka_unit_test(registers_are_cleared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
