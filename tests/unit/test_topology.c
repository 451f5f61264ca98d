/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"
#include "test.h"
#include "topology_text.h"

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
    again = topology_text(&t);
    assert_non_null(again);
    assert_string_equal(again, text);
    free(again);
    tei_topology_fini(&t);
}

TEST(test_round_trip)
{
    check_round_trip("{}");
    check_round_trip("{\"cpu:0\":[[],[]]}");
    check_round_trip("{\"cpu:0\":[[\"rxe0\"],[]],\"cpu:1\":[[\"rxe0\"],[]],"
                     "\"cuda:0\":[[\"mlx5_0\",\"mlx5_1\"],[\"mlx5_2\"]]}");
}

TEST(test_fields)
{
    struct tei_topology t;

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

TEST(test_refused)
{
    static const char *const bad[] = {
        "",
        "null",
        "[]",
        "{",
        "{\"cpu:0\":[]}",
        "{\"cpu:0\":[{}]}",
        "{\"cpu:0\":[\"a\"]}",
        "{\"cpu:0\":[[\"\"]]}",
        "{\"cpu:0\":[[\"a\",\"a\"]]}",
        "{\"cpu:0\":[[\"a\"],[\"b\",\"a\"]]}",
        "{\"cpu:0\":[[\"a\"],null]}",
        "{\"cpu:0\":[[],[],[]]}",
        "{\"cpu:0\":{}}",
        "{\"cpu:0\":[[],{}]}",
        "{\"cpu:0\":[\"a\",\"b\"]}",
        "{\"cpu:0\":[[1],[]]}",
        "{\"cpu:0\":[[\"a\"],[null]]}",
        "{\"cpu:0\":[[\"a\"],[\"b\"]],\"cpu:1\":[\"a\"]}",
        "{\"cpu:0\":[[],[]],\"cpu:0\":[[],[]]}",
    };
    struct tei_topology t = {.n_rows = 77};

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        assert_int_equal(decode(bad[i], &t), TE_ERR_JSON);
        assert_non_null(strstr(te_errmsg(), "topology"));
        assert_int_equal(t.n_rows, 77);
    }
}

/* As the first description of the protocol had it. */
TEST(test_one_array)
{
    const struct tei_topology_row *row;
    struct tei_topology t;
    char *text;

    assert_int_equal(
        decode("{\"cpu:0\":[[\"m0\",\"m1\"],[\"m2\"]],\"cuda:0\":[[\"m1\",\"m0\"]]}", &t), 0);
    row = topology_row(&t, "cuda:0");
    assert_non_null(row);
    assert_int_equal(row->n_preferred, 2);
    assert_int_equal(row->n_available, 0);
    text = topology_text(&t);
    assert_string_equal(text,
                        "{\"cpu:0\":[[\"m0\",\"m1\"],[\"m2\"]],\"cuda:0\":[[\"m1\",\"m0\"],[]]}");
    free(text);
    assert_null(topology_row(&t, "cuda:1"));
    assert_null(topology_row(&t, "cuda"));
    tei_topology_fini(&t);
}

TEST(test_too_many_devices)
{
    struct tei_topology t;
    char text[4096] = "{\"cpu:0\":[[";

    for (int i = 0; i < 257; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s\"d%d\"", i ? "," : "", i);
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "]]}");
    assert_int_equal(decode(text, &t), TE_ERR_JSON);
    assert_non_null(strstr(te_errmsg(), "256"));
}

static void check_devices(const char *text, const char *expected)
{
    struct tei_topology t;
    const char **names;
    char all[256] = "";
    size_t n;

    assert_int_equal(decode(text, &t), 0);
    assert_int_equal(tei_topology_devices(&t, &names, &n), 0);
    for (size_t i = 0; i < n; i++)
        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s ", names[i]);
    assert_string_equal(all, expected);
    free(names);
    tei_topology_fini(&t);
}

TEST(test_devices)
{
    check_devices("{}", "");
    check_devices("{\"cpu:0\":[[],[]],\"cpu:1\":[[]]}", "");
    check_devices("{\"cpu:0\":[[\"b\"],[\"c\",\"a\"]],\"cpu:1\":[[\"a\",\"d\"],[\"b\",\"e\"]]}",
                  "b c a d e ");
}

TEST(test_from_devices)
{
    const int nodes[] = {0, 8};
    struct tei_topology t = {.n_rows = 77};
    char *text;

    assert_int_equal(tei_topology_from_devices("mlx5_2, mlx5_1,", nodes, 2, &t), 0);
    text = topology_text(&t);
    assert_string_equal(text, "{\"cpu:0\":[[\"mlx5_2\",\"mlx5_1\"],[]],"
                              "\"cpu:8\":[[\"mlx5_2\",\"mlx5_1\"],[]],"
                              "\"cuda:0\":[[\"mlx5_2\",\"mlx5_1\"],[]],"
                              "\"hip:0\":[[\"mlx5_2\",\"mlx5_1\"],[]]}");
    free(text);
    tei_topology_fini(&t);
    t.n_rows = 77;
    assert_int_equal(tei_topology_from_devices("", nodes, 2, &t), TE_ERR_INVALID);
    assert_int_equal(tei_topology_from_devices(" , ,", nodes, 2, &t), TE_ERR_INVALID);
    assert_int_equal(tei_topology_from_devices("a,b,a", nodes, 2, &t), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "twice"));
    assert_int_equal(t.n_rows, 77);
}

/* What is added is a copy. */
TEST(test_add)
{
    char name[] = "a";
    const char *names[] = {name};
    struct tei_topology t = {0};

    assert_int_equal(tei_topology_add(&t, "cpu:0", NULL, 0, names, 1), 0);
    assert_int_equal(tei_topology_add(&t, "cpu:1", names, 1, NULL, 0), 0);
    name[0] = 'x';
    assert_int_equal(t.n_rows, 2);
    assert_string_equal(t.rows[0].available[0], "a");
    assert_int_equal(t.rows[0].n_preferred, 0);
    assert_string_equal(t.rows[1].preferred[0], "a");
    tei_topology_fini(&t);
}

TEST(test_read)
{
    json_t *root = json_pack("{s:[[s],[]]}", "cpu:0", "a");
    struct tei_topology t;

    assert_int_equal(tei_topology_read(NULL, &t), TE_ERR_JSON);
    assert_int_equal(tei_topology_read(root, &t), 0);
    json_decref(root);
    assert_string_equal(t.rows[0].preferred[0], "a");
    tei_topology_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_one_array),
        cmocka_unit_test(test_too_many_devices),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_from_devices),
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
