/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=60 */
/*
 * The variables of mlx5 devices: seen in what libmlx5 is asked for, and in the log where it is of no use.
 */
#include "fabric/verbs_record/record.h"
#include "rdma_fabric.h"
#include "rdma_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define RECORDED TE_TEST_BUILD "/tests/softverbs/" RDMA_PAIR_RECORDED

static struct rdma_pair p;

static void set(const char *name, const char *value)
{
    rdma_pair_set(RDMA_PAIR_BOTH, name, value);
}

static int begin(void **state)
{
    (void)state;
    record_clear();
    set("TE_MLX5_PATH", RECORDED);
    rdma_pair_keep_log(TE_LOG_WARN);
    return 0;
}

static int end(void **state)
{
    (void)state;
    rdma_pair_end(&p);
    record_clear();
    return 0;
}

/* A transfer between two NICs, with so many queue pairs at each. */
static void move(const char *qps)
{
    set("MC_NUM_QP_PER_EP", qps);
    rdma_pair_fabric(RDMA_PAIR_RECORDED, 1, NULL);
    rdma_pair_begin(&p);
    rdma_pair_move(&p, TE_WRITE, RDMA_PAIR_SIZE);
}

/* The queue pairs of a NIC were given these ports, one after the other. */
static void check_ports(enum record_kind kind, const char *nic, const unsigned *ports, size_t n)
{
    struct record made, given;

    assert_int_equal(record_count(kind, nic), n);
    for (size_t i = 0; i < n; i++) {
        assert_true(record_get(RECORD_QP, nic, i, &made));
        assert_true(record_get(kind, nic, i, &given));
        assert_int_equal(given.qp_num, made.qp_num);
        assert_int_equal(given.port, ports[i]);
    }
}

static void udp_sports(void **state)
{
    static const unsigned ports[] = {50000, 65535, 50000};

    (void)state;
    set("MC_MLX5_QP_UDP_SPORTS", " 50000 ,65535");
    move("3");
    check_ports(RECORD_UDP_SPORT, "left0", ports, 3);
    check_ports(RECORD_UDP_SPORT, "right0", ports, 3);
    assert_int_equal(record_count(RECORD_LAG_PORT, NULL), 0);
    assert_int_equal(rdma_pair_logged("MLX5", NULL), 0);
}

static void lag_ports(void **state)
{
    static const unsigned ports[] = {1, 2, 1, 2};

    (void)state;
    set("MC_MLX5_QP_LAG_PORT_BALANCE", "1");
    move("4");
    check_ports(RECORD_LAG_PORT, "left0", ports, 4);
    check_ports(RECORD_LAG_PORT, "right0", ports, 4);
    assert_int_equal(record_count(RECORD_UDP_SPORT, NULL), 0);
}

static void lag_of_four_ports_and_sports(void **state)
{
    static const unsigned ports[] = {1, 2, 3, 4, 1}, sports[] = {1, 1, 1, 1, 1};

    (void)state;
    record_mlx5(true, 4);
    set("MC_MLX5_QP_LAG_PORT_BALANCE", "true");
    set("MC_MLX5_QP_UDP_SPORTS", "1");
    move("5");
    check_ports(RECORD_LAG_PORT, "left0", ports, 5);
    check_ports(RECORD_UDP_SPORT, "left0", sports, 5);
}

static void without_a_bond(void **state)
{
    (void)state;
    record_mlx5(true, 1);
    set("MC_MLX5_QP_LAG_PORT_BALANCE", "1");
    move("2");
    assert_int_equal(record_count(RECORD_LAG_PORT, NULL), 0);
    assert_int_equal(
        rdma_pair_logged("MC_MLX5_QP_LAG_PORT_BALANCE", "left0: its ports are not bonded"), 1);
}

static void of_another_make(void **state)
{
    (void)state;
    record_mlx5(false, 2);
    set("MC_MLX5_QP_UDP_SPORTS", "50000");
    move("2");
    assert_int_equal(record_count(RECORD_UDP_SPORT, NULL), 0);
    assert_int_equal(rdma_pair_logged("MC_MLX5_QP_UDP_SPORTS", "left0: it is no mlx5 device"), 1);
}

static void not_asked_for(void **state)
{
    (void)state;
    set("MC_MLX5_QP_LAG_PORT_BALANCE", "0");
    set("MC_MLX5_QP_UDP_SPORTS", "");
    move("2");
    assert_int_equal(record_count(RECORD_LAG_PORT, NULL), 0);
    assert_int_equal(record_count(RECORD_UDP_SPORT, NULL), 0);
}

/* Data moves without it. */
static void without_the_library(void **state)
{
    (void)state;
    set("TE_MLX5_PATH", "/nonexistent/libmlx5.so.1");
    set("MC_MLX5_QP_UDP_SPORTS", "50000");
    move("2");
    assert_int_equal(rdma_pair_logged("MC_MLX5_QP_UDP_SPORTS", "/nonexistent/libmlx5.so.1"), 2);
}

static void no_list_of_ports(void **state)
{
    static const char *const bad[] = {"0",   "65536", "x",  "1,,2",  "1 2",
                                      "1;2", ",1",    "-1", "123456"};

    (void)state;
    set("MC_FORCE_HCA", "1");
    rdma_pair_fabric(RDMA_PAIR_RECORDED, 1, NULL);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        te_engine *e = NULL;

        set("MC_MLX5_QP_UDP_SPORTS", bad[i]);
        assert_int_equal(rdma_pair_engine(RDMA_PAIR_A, &e), TE_ERR_INVALID);
        assert_non_null(strstr(te_errmsg(), "MC_MLX5_QP_UDP_SPORTS"));
        assert_null(e);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(udp_sports),          TEST(lag_ports),        TEST(lag_of_four_ports_and_sports),
        TEST(without_a_bond),      TEST(of_another_make),  TEST(not_asked_for),
        TEST(without_the_library), TEST(no_list_of_ports),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
