/* SPDX-License-Identifier: Apache-2.0 */
/* Structs of programs that were compiled with an older, this, and a newer release. */
#include "base/sized.h"
#include "test.h"

#include <string.h>
#include <te.h>

struct older {
    size_t size;
    int32_t a;
};

struct present {
    size_t size;
    int32_t a;
    int64_t b;
    int32_t c;
};

struct newer {
    struct present now;
    unsigned char more[100];
};

enum { FIRST = TEI_SIZE_UP_TO(struct present, a) };

static int take(struct present *to, const void *from)
{
    *to = (struct present){sizeof(*to), 1, 2, 3};
    return tei_sized_take(to, sizeof(*to), FIRST, from, "struct present");
}

static int give(void *to)
{
    const struct present from = {sizeof(from), 1, 2, 3};

    return tei_sized_give(to, sizeof(from), FIRST, &from, "struct present");
}

TEST(padding_counts)
{
    assert_int_equal(FIRST, sizeof(struct older));
    assert_int_equal(TEI_SIZE_UP_TO(struct present, c), sizeof(struct present));
}

TEST(taken)
{
    struct older old = {sizeof(old), 10};
    struct newer young = {.now = {sizeof(young), 10, 20, 30}};
    struct present got;

    assert_int_equal(take(&got, &old), 0);
    assert_int_equal(got.a, 10);
    assert_int_equal(got.b, 2);
    assert_int_equal(got.c, 3);
    assert_int_equal(take(&got, &young), 0);
    assert_int_equal(got.a, 10);
    assert_int_equal(got.c, 30);
    for (size_t i = 0; i < sizeof(young.more); i++) {
        young.more[i] = 1;
        assert_int_equal(take(&got, &young), TE_ERR_INVALID);
        assert_int_equal(got.a, 1);
        assert_non_null(strstr(te_errmsg(), "struct present: size is"));
        assert_non_null(strstr(te_errmsg(), "built for a newer library"));
        young.more[i] = 0;
    }
}

TEST(given)
{
    struct older old = {sizeof(old), 0};
    struct newer young;

    assert_int_equal(give(&old), 0);
    assert_int_equal(old.size, sizeof(old));
    assert_int_equal(old.a, 1);
    memset(&young, 0xa5, sizeof(young));
    young.now.size = sizeof(young) - 1;
    assert_int_equal(give(&young), 0);
    assert_int_equal(young.now.size, sizeof(young) - 1);
    assert_int_equal(young.now.c, 3);
    for (size_t i = offsetof(struct newer, more); i < young.now.size; i++) /* padding, too */
        assert_int_equal(((const unsigned char *)&young)[i], 0);
}

TEST(nonsense)
{
    const size_t sizes[] = {0, 3, FIRST - 1, TEI_SIZED_MAX + 1, SIZE_MAX};
    struct present bad = {0, 10, 20, 30}, got;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        bad.size = sizes[i];
        assert_int_equal(take(&got, &bad), TE_ERR_INVALID);
        assert_int_equal(give(&bad), TE_ERR_INVALID);
        assert_int_equal(bad.a, 10);
        assert_non_null(strstr(te_errmsg(), "sizeof(struct present)"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(padding_counts),
        cmocka_unit_test(taken),
        cmocka_unit_test(given),
        cmocka_unit_test(nonsense),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
