/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common_matrix.c"
#include "test.h"

#include <stdlib.h>

static void check(const char *devices, const int *nodes, size_t n, const char *want)
{
    char *text = matrix_of_devices(devices, nodes, n);

    assert_non_null(text);
    assert_string_equal(text, want);
    free(text);
}

TEST(every_node_prefers_the_devices)
{
    const int nodes[] = {0, 8};

    check("mlx5_2", nodes, 2,
          "{\"cpu:0\":[[\"mlx5_2\"],[]],\"cpu:8\":[[\"mlx5_2\"],[]],"
          "\"cuda:0\":[[\"mlx5_2\"],[]],\"hip:0\":[[\"mlx5_2\"],[]]}");
    check(",a , b,", nodes, 1,
          "{\"cpu:0\":[[\"a\",\"b\"],[]],\"cuda:0\":[[\"a\",\"b\"],[]],"
          "\"hip:0\":[[\"a\",\"b\"],[]]}");
    check("", nodes, 1, "{\"cpu:0\":[[],[]],\"cuda:0\":[[],[]],\"hip:0\":[[],[]]}");
}

TEST(names_are_escaped)
{
    check("a\"b\\", NULL, 0, "{\"cuda:0\":[[\"a\\\"b\\\\\"],[]],\"hip:0\":[[\"a\\\"b\\\\\"],[]]}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_node_prefers_the_devices),
        cmocka_unit_test(names_are_escaped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
