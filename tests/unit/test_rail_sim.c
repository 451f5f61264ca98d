/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the choice of rails comes to over time: NICs, slices and faults in virtual time (rail_sim.h).
 * Rates are in units of one NIC.
 */
#include "rail_sim.h"
#include "test.h"

#define NIC 2.5e9 /* bytes per second */
#define MIB (UINT64_C(1) << 20)

static struct sim s;
static struct sim_flow *f;

static void begin(unsigned n_local, unsigned n_peer)
{
    sim_init(&s, n_local, NIC);
    f = sim_add(&s, n_peer, NIC, NULL);
}

static void run_ms(int ms)
{
    sim_run(&s, s.now + ms * SIM_MS);
}

/* The rate over so many milliseconds from now. */
static double rate_over(int ms)
{
    sim_reset(&s);
    run_ms(ms);
    return sim_rate(&s, f) / NIC;
}

#define assert_rate(rate, least) check_rate(__LINE__, rate, least)

static void check_rate(int line, double rate, double least)
{
    if (rate < least)
        fail_msg("line %d: %.3f NICs' worth, not %.3f", line, rate, least);
}

/* Lets everything come to an end; nothing may be lost, left or counted twice. */
static void end(void)
{
    for (unsigned k = 0; k < s.n_flows; k++)
        s.flows[k].stopped = true;
    run_ms(60000);
    for (unsigned k = 0; k < s.n_flows; k++) {
        struct tei_paths *p = &s.flows[k].paths;

        assert_int_equal(s.flows[k].under_way, 0);
        for (unsigned rail = 0; rail < p->n_local * p->n_peer; rail++) {
            assert_int_equal(p->rails[rail].outstanding, 0);
            assert_int_equal(p->rails[rail].n_out, 0);
        }
    }
    for (unsigned i = 0; i < s.nics.n; i++)
        assert_int_equal(atomic_load(&s.nics.nic[i].outstanding), 0);
    sim_fini(&s);
}

/* ---- While all is well ---------------------------------------------------------------------------- */

TEST(test_equal_nics_add_up)
{
    double one;

    begin(1, 1);
    one = rate_over(40);
    end();
    assert_rate(one, 0.98);
    for (unsigned k = 2; k <= 8; k *= 2) {
        begin(k, k);
        assert_rate(rate_over(40), 0.98 * k * one); /* from the very start */
        end();
    }
}

TEST(test_shapes)
{
    static const unsigned shapes[][2] = {{1, 4}, {4, 1}, {3, 2}, {2, 3}, {8, 3}};

    for (size_t k = 0; k < TEI_ARRAY_LEN(shapes); k++) {
        unsigned l = shapes[k][0], p = shapes[k][1];

        begin(l, p);
        run_ms(10);
        assert_rate(rate_over(40), 0.98 * (l < p ? l : p));
        end();
    }
}

/* Four NICs into one: none of them is left out. */
TEST(test_a_shared_end_is_shared_evenly)
{
    begin(4, 1);
    run_ms(20);
    (void)rate_over(100);
    for (unsigned i = 0; i < 4; i++)
        assert_rate(sim_rail_rate(&s, f, i, 0) / NIC, 0.2);
    end();
}

TEST(test_fast_nics)
{
    sim_init(&s, 8, 25e9);
    f = sim_add(&s, 8, 25e9, NULL);
    run_ms(2);
    assert_rate(rate_over(6) / 10, 0.98 * 8);
    end();
}

TEST(test_short_slices)
{
    begin(8, 8);
    f->slice = 4096;
    f->in_flight = MIB;
    run_ms(5);
    assert_rate(rate_over(10), 0.98 * 8);
    s.nic[5].bps = NIC / 4;
    run_ms(10);
    assert_rate(rate_over(10), 0.95 * 7.25);
    end();
}

/* One flow has only the first two NICs, the other all four: that one takes the other two. */
TEST(test_two_peers_with_skewed_lists)
{
    struct tei_path_list two = {2, {0, 1}};
    struct sim_flow *other;
    double both;

    begin(4, 4);
    other = sim_add(&s, 4, NIC, NULL);
    tei_paths_route(&other->paths, &two, NULL, NULL, NULL, &other->route);
    run_ms(20);
    sim_reset(&s);
    run_ms(100);
    both = (sim_rate(&s, f) + sim_rate(&s, other)) / NIC;
    assert_rate(both, 0.98 * 4);
    assert_rate(sim_rate(&s, other) / NIC, 0.6);
    end();
}

TEST(test_two_peers_share_evenly)
{
    struct sim_flow *other;

    begin(4, 4);
    other = sim_add(&s, 4, NIC, NULL);
    run_ms(20);
    sim_reset(&s);
    run_ms(100);
    assert_rate(sim_rate(&s, f) / NIC, 1.9);
    assert_rate(sim_rate(&s, other) / NIC, 1.9);
    end();
}

TEST(test_round_robin_uses_all)
{
    struct tei_path_conf conf = {.roundrobin = true, .rail_pause_ns = 30000 * SIM_MS};

    sim_init(&s, 4, NIC);
    f = sim_add(&s, 4, NIC, &conf);
    assert_rate(rate_over(40), 0.98 * 4);
    end();
}

/* ---- A rail that is slower than the others ---------------------------------------------------------- */

/* How much of the sum of the rates is reached, with the last of `k` local NICs at a quarter. */
static double with_a_slow_nic(unsigned k, uint64_t request, enum sim_policy policy)
{
    double rate;

    begin(k, k);
    s.nic[k - 1].bps = NIC / 4;
    f->policy = policy;
    f->request = request;
    f->in_flight = request ? request : 8 * MIB;
    run_ms(60);
    rate = rate_over(200) / (k - 0.75);
    end();
    return rate;
}

TEST(test_a_slow_rail_gets_its_share)
{
    for (unsigned k = 2; k <= 8; k *= 2)
        assert_rate(with_a_slow_nic(k, 0, SIM_PICK), 0.95);
    assert_rate(with_a_slow_nic(8, 64 * MIB, SIM_PICK), 0.95);
    assert_rate(with_a_slow_nic(2, 16 * MIB, SIM_PICK), 0.95);
}

/* The control: what the same slices come to when they are dealt out evenly. */
TEST(test_static_striping_does_not_get_there)
{
    for (unsigned k = 2; k <= 8; k *= 2)
        assert_true(with_a_slow_nic(k, 0, SIM_STRIPE) < 0.92);
    assert_true(with_a_slow_nic(8, 64 * MIB, SIM_STRIPE) < 0.92);
}

/* The end of a request does not wait for long on a rail that is slow beyond all measure. */
TEST(test_the_end_of_a_request_is_not_held_up)
{
    begin(8, 8);
    s.nic[0].bps = NIC / 64;
    f->request = 64 * MIB;
    f->in_flight = 64 * MIB;
    run_ms(300);
    sim_reset(&s);
    run_ms(200);
    assert_rate(sim_rate(&s, f) / NIC, 0.9 * 7);
    assert_true(f->worst_ns < 15 * SIM_MS); /* the whole takes 3.8 ms at best */
    end();
}

TEST(test_it_slows_down_then_recovers)
{
    begin(8, 8);
    run_ms(50);
    s.nic[2].bps = NIC / 4;
    run_ms(50);
    assert_rate(rate_over(50), 0.95 * 7.25);
    s.nic[2].bps = NIC;
    run_ms(50);
    assert_rate(rate_over(50), 0.97 * 8);
    end();
}

/* The same with requests, where no backlog does the work of a prediction. */
TEST(test_requests_follow_the_rates)
{
    begin(4, 4);
    f->request = 32 * MIB;
    f->in_flight = 32 * MIB;
    run_ms(50);
    s.nic[2].bps = NIC / 4;
    run_ms(50);
    assert_rate(rate_over(50), 0.95 * 3.25);
    s.nic[2].bps = NIC;
    run_ms(50);
    assert_rate(rate_over(50), 0.95 * 4);
    end();
}

/* Completions are seen late and in heaps, as by a thread that does not always run. */
TEST(test_coarse_polling)
{
    begin(4, 4);
    s.poll_ns = 300000;
    f->in_flight = 16 * MIB;
    run_ms(50);
    assert_rate(rate_over(50), 0.97 * 4);
    s.nic[2].bps = NIC / 4;
    run_ms(50);
    assert_rate(rate_over(50), 0.95 * 3.25);
    end();
}

/* Slow is not the NIC, but what is between: only one rail of it. */
TEST(test_a_slow_way_between)
{
    begin(4, 4);
    f->rail[tei_path_rail(&f->paths, 1, 1)].bps = NIC / 8;
    run_ms(50);
    assert_rate(rate_over(100), 0.95 * 3.125);
    end();
}

/* Rails that meet in a NIC, one of them slow: the others take what it leaves. */
TEST(test_a_slow_rail_behind_a_shared_nic)
{
    begin(2, 4);
    f->nic[3].bps = NIC / 8;
    run_ms(50);
    assert_rate(rate_over(100), 0.97 * 2);
    f->nic[1].bps = NIC / 4;
    run_ms(50);
    assert_rate(rate_over(100), 0.95 * 1.375);
    end();
}

/* ---- Faults ---------------------------------------------------------------------------------------- */

TEST(test_a_dead_rail_is_avoided)
{
    unsigned at;

    begin(4, 4);
    run_ms(50);
    at = tei_path_rail(&f->paths, 1, 1);
    f->dead[at] = true;
    run_ms(50);
    assert_rate(rate_over(500), 0.95 * 4); /* others of these two NICs do its work */
    assert_int_equal(f->done_on[at], 0);
    end();
}

/* Nobody says that a local NIC is dead: its slices fail after 5 ms, and it is left alone but for trials. */
TEST(test_a_dead_nic_is_avoided)
{
    uint64_t failed;

    begin(4, 4);
    run_ms(50);
    sim_kill_local(&s, 1, true);
    run_ms(150);
    failed = f->n_failed;
    assert_rate(rate_over(1000), 0.95 * 3);
    assert_true(f->n_failed - failed < 30);
    end();
}

TEST(test_a_nic_comes_back_by_itself)
{
    begin(4, 4);
    run_ms(50);
    sim_kill_local(&s, 1, true);
    run_ms(300);
    sim_kill_local(&s, 1, false);
    run_ms(500);
    assert_rate(rate_over(100), 0.95 * 4);
    assert_rate(sim_rail_rate(&s, f, 1, 1) / NIC, 0.95);
    end();
}

/* However long it was away: its port says so. */
TEST(test_a_nic_comes_back_by_its_port)
{
    begin(4, 4);
    run_ms(50);
    sim_kill_local(&s, 1, true);
    tei_path_nic_down(&s.nics, 1);
    run_ms(20);
    assert_rate(rate_over(2000), 0.97 * 3);
    sim_kill_local(&s, 1, false);
    tei_path_nic_up(&s.nics, 1, 0);
    run_ms(50);
    assert_rate(rate_over(100), 0.97 * 4);
    end();
}

TEST(test_the_available_list_stands_in)
{
    struct tei_path_list preferred = {2, {0, 1}}, available = {2, {2, 3}};

    begin(4, 4);
    tei_paths_route(&f->paths, &preferred, &available, &preferred, &available, &f->route);
    run_ms(20);
    assert_rate(rate_over(50), 0.98 * 2);
    sim_kill_local(&s, 0, true);
    tei_path_nic_down(&s.nics, 0);
    run_ms(20);
    assert_rate(rate_over(100), 0.95 * 2);
    assert_true(sim_rail_rate(&s, f, 2, 0) > 0);
    sim_kill_local(&s, 0, false);
    tei_path_nic_up(&s.nics, 0, 0);
    run_ms(500);
    assert_rate(rate_over(100), 0.98 * 2);
    assert_rate(sim_rail_rate(&s, f, 0, 0) / NIC, 0.95);
    assert_true(sim_rail_rate(&s, f, 2, 0) <= 0);
    end();
}

/* With every rail dead nobody spins: tries are as rare as the pauses say, and it all comes back. */
TEST(test_all_dead_is_no_busy_loop)
{
    begin(2, 2);
    run_ms(50);
    sim_kill_local(&s, 0, true);
    sim_kill_local(&s, 1, true);
    run_ms(20);
    f->n_none = 0;
    f->n_sent = 0;
    run_ms(2000);
    assert_true(f->n_none < 200);
    assert_true(f->n_sent < 100);
    sim_kill_local(&s, 0, false);
    sim_kill_local(&s, 1, false);
    run_ms(4000);
    assert_rate(rate_over(100), 0.97 * 2);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_nics_add_up),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_a_shared_end_is_shared_evenly),
        cmocka_unit_test(test_fast_nics),
        cmocka_unit_test(test_short_slices),
        cmocka_unit_test(test_two_peers_with_skewed_lists),
        cmocka_unit_test(test_two_peers_share_evenly),
        cmocka_unit_test(test_round_robin_uses_all),
        cmocka_unit_test(test_a_slow_rail_gets_its_share),
        cmocka_unit_test(test_static_striping_does_not_get_there),
        cmocka_unit_test(test_the_end_of_a_request_is_not_held_up),
        cmocka_unit_test(test_it_slows_down_then_recovers),
        cmocka_unit_test(test_requests_follow_the_rates),
        cmocka_unit_test(test_coarse_polling),
        cmocka_unit_test(test_a_slow_way_between),
        cmocka_unit_test(test_a_slow_rail_behind_a_shared_nic),
        cmocka_unit_test(test_a_dead_rail_is_avoided),
        cmocka_unit_test(test_a_dead_nic_is_avoided),
        cmocka_unit_test(test_a_nic_comes_back_by_itself),
        cmocka_unit_test(test_a_nic_comes_back_by_its_port),
        cmocka_unit_test(test_the_available_list_stands_in),
        cmocka_unit_test(test_all_dead_is_no_busy_loop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
