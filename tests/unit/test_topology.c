/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int decode(const char *text, struct tei_topology *t)
{
    return tei_topology_decode(text, strlen(text), t);
}

static void check_round_trip(const char *text)
{
    struct tei_topology t;
    char *again;

    assert_int_equal(decode(text, &t), 0);
    again = tei_topology_encode(&t);
    assert_non_null(again);
    assert_string_equal(again, text);
    free(again);
    tei_topology_fini(&t);
}

static void test_round_trip(void **state)
{
    (void)state;
    check_round_trip("{}");
    check_round_trip("{\"cpu:0\":[[],[]]}");
    check_round_trip("{\"cpu:0\":[[\"rxe0\"],[]],\"cpu:1\":[[\"rxe0\"],[]],"
                     "\"cuda:0\":[[\"mlx5_0\",\"mlx5_1\"],[\"mlx5_2\"]]}");
}

static void test_fields(void **state)
{
    struct tei_topology t;

    (void)state;
    assert_int_equal(decode("{\"cpu:0\": [[\"a\", \"b\"], [\"c\"]]}\n", &t), 0);
    assert_int_equal(t.n_rows, 1);
    assert_string_equal(t.rows[0].location, "cpu:0");
    assert_int_equal(t.rows[0].n_preferred, 2);
    assert_string_equal(t.rows[0].preferred[1], "b");
    assert_int_equal(t.rows[0].n_available, 1);
    assert_string_equal(t.rows[0].available[0], "c");
    tei_topology_fini(&t);
    assert_int_equal(t.n_rows, 0);
    tei_topology_fini(&t);
}

static void test_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "null",
        "[]",
        "{",
        "{\"cpu:0\":[]}",
        "{\"cpu:0\":[[]]}",
        "{\"cpu:0\":[[],[],[]]}",
        "{\"cpu:0\":{}}",
        "{\"cpu:0\":[[],{}]}",
        "{\"cpu:0\":[\"a\",\"b\"]}",
        "{\"cpu:0\":[[1],[]]}",
        "{\"cpu:0\":[[\"a\"],[null]]}",
        "{\"cpu:0\":[[\"a\"],[\"b\"]],\"cpu:1\":[[\"a\"]]}",
        "{\"cpu:0\":[[],[]],\"cpu:0\":[[],[]]}",
    };
    struct tei_topology t = {.n_rows = 77};

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        assert_int_equal(decode(bad[i], &t), TE_ERR_JSON);
        assert_non_null(strstr(te_errmsg(), "topology"));
        assert_int_equal(t.n_rows, 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
