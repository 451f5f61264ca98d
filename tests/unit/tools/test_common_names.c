/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of names: what fits is appended whole, what does not is left out, a name is found whole. */
#include "tools/common_names.c"
#include "test.h"

TEST(names_are_appended)
{
    char names[32] = "";

    names_add(names, sizeof names, "eth0");
    assert_string_equal(names, "eth0");
    names_add(names, sizeof names, "eth1");
    assert_string_equal(names, "eth0, eth1");
}

TEST(a_name_that_does_not_fit_is_left_out)
{
    char names[11] = "";

    names_add(names, sizeof names, "elevenbytes");
    assert_string_equal(names, "");
    names_add(names, sizeof names, "eth0");
    names_add(names, sizeof names, "eth10");
    assert_string_equal(names, "eth0");
    names_add(names, sizeof names, "eth1");
    assert_string_equal(names, "eth0, eth1");
    names_add(names, sizeof names, "");
    assert_string_equal(names, "eth0, eth1");
}

TEST(a_name_is_found_whole)
{
    const char *names = "tcp, host_huge, rdma";

    assert_true(names_have(names, "tcp"));
    assert_true(names_have(names, "host_huge"));
    assert_true(names_have(names, "rdma"));
    assert_false(names_have(names, "host"));
    assert_false(names_have(names, "huge"));
    assert_false(names_have(names, "rdma2"));
    assert_false(names_have("", "tcp"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_appended),
        cmocka_unit_test(a_name_that_does_not_fit_is_left_out),
        cmocka_unit_test(a_name_is_found_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
