/* SPDX-License-Identifier: Apache-2.0 */
/* Which rails a route has, and which of them a slice is given. */
#include "base/err.h"
#include "rail_fixture.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

/* Gives all rails of the route a slice, so that none is due for a probe. */
static void warm(void)
{
    for (unsigned k = 0; k < route.n_set; k++) {
        tei_paths_posted(&paths, route.set[k], 1, now);
        tei_paths_done(&paths, route.set[k], 1, now, true);
    }
}

static void expect(const char *local, const char *peer, const char *lists[4], const char *want)
{
    assert_int_equal(begin(local, peer, (struct tei_path_conf){0}), 0);
    lead(lists[0], lists[1], lists[2], lists[3]);
    assert_string_equal(rails(), want);
    tei_paths_fini(&paths);
}

/* ---- Pairs ---------------------------------------------------------------------------------------- */

TEST(test_pairs_by_position)
{
    const char *all[4] = {"", "", "", ""};

    expect("a", "x", all, "0-0");
    expect("a b", "x y", all, "0-0 1-1");
    expect("a b c", "x y", all, "0-0 1-1 2-0");
    expect("a b", "x y z w v", all, "0-0 0-2 0-4 1-1 1-3");
    expect("a", "x y z w", all, "0-0 0-1 0-2 0-3");
    expect("a b c d", "x", all, "0-0 1-0 2-0 3-0");
}

TEST(test_pairs_by_name)
{
    const char *all[4] = {"", "", "", ""};
    const char *part[4] = {"0 1", "2", "2 0", "1"};

    expect("a b c", "c a b", all, "0-1 1-2 2-0");
    expect("a b c", "c x a", all, "0-2 1-1 2-0");
    expect("a b c d", "d c", all, "0-0 1-1 2-1 3-0");
    expect("a b", "z y b a", all, "0-0 0-3 1-1 1-2");
    /* A namesake that is not preferred does not count. */
    expect("a b c", "a b c", part, "0-0 1-2");
}

TEST(test_lists)
{
    const char *skewed[4] = {"0 1", "2 3", "1", "0"};
    const char *available[4] = {"", "2 1", "", "0"};
    const char *wrong[4] = {"1 1 9 0", "0 1 2", "31 0", "0"};

    expect("a b c d", "x y", skewed, "0-1 1-1");
    expect("a b c d", "x y", available, "1-0 2-0");
    expect("a b c", "x", wrong, "0-0 1-0");
    assert_int_equal(route.local[0].n, 2);
    assert_int_equal(route.local[1].n, 1);
}

TEST(test_same_name)
{
    assert_int_equal(begin("a b c", "c b a x", (struct tei_path_conf){.same_name = true}), 0);
    lead("0 1", "2", "1 3", "0 2");
    assert_string_equal(rails(), "0-2 1-1"); /* what else the peer prefers is left alone */
    lead("0", "1 2", "3", "0 1 2");
    assert_string_equal(rails(), "0-2");
    tei_paths_fini(&paths);
    /* Those without a namesake are paired as ever, and take what the peer prefers. */
    assert_int_equal(begin("a b", "c b x", (struct tei_path_conf){.same_name = true}), 0);
    lead("", "", "", "");
    assert_string_equal(rails(), "0-0 0-2 1-1");
    tei_paths_fini(&paths);
}

/* Memory that some NICs do not have is no reason to leave the partners of the others. */
TEST(test_same_name_for_memory_of_some_nics)
{
    struct tei_path_want want = {.len = SLICE, .now = now, .avoid = TEI_PATH_NO_RAIL};
    struct tei_path_choice c;

    assert_int_equal(begin("a b c", "a b c", (struct tei_path_conf){.same_name = true}), 0);
    lead("0 1", "2", "2", "0 1");
    want.peer_without = 1;
    for (int k = 0; k < 20; k++) {
        assert_int_equal(tei_paths_pick(&paths, &route, &want, &c), TEI_PATH_RAIL);
        assert_int_equal(c.rail, tei_path_rail(&paths, 1, 1));
    }
    want.peer_without = 3; /* none of the preferred: another NIC and its partner */
    assert_int_equal(tei_paths_pick(&paths, &route, &want, &c), TEI_PATH_RAIL);
    assert_int_equal(c.rail, tei_path_rail(&paths, 2, 2));
    want.local_without = 4; /* no partners: whatever has it */
    assert_int_equal(tei_paths_pick(&paths, &route, &want, &c), TEI_PATH_RAIL);
    assert_int_equal(c.peer, 2);
    tei_paths_fini(&paths);
}

TEST(test_affinity_map)
{
    struct tei_path_conf conf = {.affinity = " a = y , z ;b=x; nobody=x;; "};

    assert_int_equal(begin("a b c", "x y z", conf), 0);
    lead("0 1", "2", "0", "1 2");
    assert_string_equal(rails(), "0-1 0-2 1-0");
    lead("1", "0 2", "2",
         "0 1"); /* preferred by the peer alone: neither it nor those that the map has for it */
    assert_string_equal(rails(), "1-0");
    lead("2", "0 1", "1", "0 2"); /* not in the map */
    assert_string_equal(rails(), "2-1");
    tei_paths_fini(&paths);
}

TEST(test_affinity_map_refused)
{
    static const char *const bad[] = {"a",     "=b",  "a=",    "a=b,", "a=,b",
                                      "a=b=c", "a,b", "a=b;c", ","};

    assert_int_equal(tei_path_affinity_check(""), 0);
    assert_int_equal(tei_path_affinity_check(" ; ;"), 0);
    assert_int_equal(tei_path_affinity_check("a=b,c;d=e;"), 0);
    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        assert_int_equal(tei_path_affinity_check(bad[i]), TE_ERR_INVALID);
        assert_int_equal(begin("a", "b", (struct tei_path_conf){.affinity = bad[i]}),
                         TE_ERR_INVALID);
        assert_non_null(strstr(te_errmsg(), "MC_NIC_PEER_AFFINITY"));
    }
}

TEST(test_too_many_or_no_nics)
{
    char names[33 * 4 + 1] = "";

    for (unsigned i = 0; i < 33; i++)
        snprintf(names + 4 * i, 5, "n%02u ", i);
    assert_int_equal(begin("a", names, (struct tei_path_conf){0}), TE_ERR_INVALID);
    assert_int_equal(begin("a", "", (struct tei_path_conf){0}), TE_ERR_INVALID);
    assert_int_equal(begin("", "a", (struct tei_path_conf){0}), TE_ERR_INVALID);
    assert_int_equal(begin(names, names + 4, (struct tei_path_conf){0}), 0);
    lead("", "", "", "");
    assert_int_equal(route.n_set, 32);
    tei_paths_fini(&paths);
}

/* ---- The choice ----------------------------------------------------------------------------------- */

TEST(test_idle_rails_alike_take_turns)
{
    int n[4] = {0};

    assert_int_equal(begin("a b c d", "a b c d", (struct tei_path_conf){0}), 0);
    lead("", "", "", "");
    warm();
    for (int k = 0; k < 400; k++) {
        int rail = give(SLICE);

        tei_paths_done(&paths, rail, SLICE, now, true);
        n[rail / 4]++;
    }
    for (int k = 0; k < 4; k++)
        assert_int_equal(n[k], 100);
    tei_paths_fini(&paths);
}

TEST(test_slices_go_where_least_waits)
{
    assert_int_equal(begin("a b", "a b", (struct tei_path_conf){0}), 0);
    lead("", "", "", "");
    warm();
    tei_paths_posted(&paths, 0, 10 * SLICE, now);
    for (int k = 0; k < 9; k++)
        assert_int_equal(give(SLICE), 3);
    tei_paths_fini(&paths);
}

/* What other peers have on a NIC counts. */
TEST(test_a_nic_busy_for_another_peer_is_left_alone)
{
    struct tei_path_conf conf = {.rail_pause_ns = MS};
    struct tei_path_port port = {"x", 10 * GB, true};
    struct tei_paths other;

    assert_int_equal(begin("a b", "a b", (struct tei_path_conf){0}), 0);
    assert_int_equal(tei_paths_init(&other, &conf, &nics, &port, 1), 0);
    lead("", "", "", "");
    warm();
    tei_paths_posted(&other, 0, 10 * SLICE, now);
    for (int k = 0; k < 9; k++)
        assert_int_equal(give(SLICE), 3);
    tei_paths_done(&other, 0, 10 * SLICE, now, true);
    assert_int_equal(give(SLICE), 0);
    tei_paths_fini(&other);
    tei_paths_fini(&paths);
}

TEST(test_short_slices_stay_for_64_kib)
{
    int changes = 0, last = -1;

    assert_int_equal(begin("a b", "a b", (struct tei_path_conf){0}), 0);
    lead("", "", "", "");
    warm();
    for (int k = 0; k < 160; k++) {
        int rail = give(4096);

        changes += rail != last;
        last = rail;
    }
    assert_int_equal(changes, 10);
    tei_paths_fini(&paths);
}

TEST(test_full_windows_wait)
{
    struct tei_path_choice c;
    uint64_t first = 10 * GB / 1000; /* what a rail never measured carries in a millisecond */
    uint64_t sent = 0;

    assert_int_equal(begin("a b", "a b", (struct tei_path_conf){0}), 0);
    lead("", "", "", "");
    while (pick(SLICE, TEI_PATH_NO_RAIL, &c) == TEI_PATH_RAIL) {
        tei_paths_posted(&paths, c.rail, SLICE, now);
        sent += SLICE;
        assert_true(sent <= 2 * (first + SLICE));
    }
    assert_true(sent >= 2 * first);
    assert_int_equal(pick(SLICE, TEI_PATH_NO_RAIL, &c), TEI_PATH_WAIT);
    assert_true(c.at_ns == INT64_MAX);
    tei_paths_done(&paths, 3, SLICE, now, true);
    assert_int_equal(give(SLICE), 3);
    tei_paths_fini(&paths);
}

TEST(test_bound_on_slices)
{
    struct tei_path_choice c;

    assert_int_equal(begin("a b", "a b", (struct tei_path_conf){.max_slices = 3}), 0);
    lead("", "", "", "");
    for (int k = 0; k < 6; k++)
        give(1);
    assert_int_equal(pick(1, TEI_PATH_NO_RAIL, &c), TEI_PATH_WAIT);
    tei_paths_done(&paths, 0, 1, now, true);
    assert_int_equal(give(1), 0);
    tei_paths_fini(&paths);
}

TEST(test_round_robin)
{
    struct tei_path_choice c;

    assert_int_equal(
        begin("a b c", "a b c", (struct tei_path_conf){.roundrobin = true, .max_slices = 10}), 0);
    lead("", "", "", "");
    for (int k = 0; k < 9; k++)
        assert_int_equal(give(k % 3 ? 1 : 50 * SLICE), k % 3 * 4);
    for (int k = 0; k < 7; k++)
        tei_paths_posted(&paths, 4, 1, now); /* full */
    assert_int_equal(give(1), 0);
    assert_int_equal(give(1), 8);
    assert_int_equal(give(1), 0);
    assert_int_equal(pick(1, 8, &c), TEI_PATH_RAIL);
    assert_int_equal(c.rail, 0);
    tei_paths_fini(&paths);
}

TEST(test_a_retry_avoids_its_rail)
{
    struct tei_path_choice c;

    assert_int_equal(begin("a b", "a b", (struct tei_path_conf){0}), 0);
    lead("", "", "", "");
    for (int k = 0; k < 10; k++) {
        assert_int_equal(pick(4096, 0, &c), TEI_PATH_RAIL);
        assert_int_equal(c.rail, 3);
        assert_int_equal(pick(4096, 3, &c), TEI_PATH_RAIL);
        assert_int_equal(c.rail, 0);
    }
    lead("0", "", "0", ""); /* nothing else: better that than none */
    assert_int_equal(pick(4096, 0, &c), TEI_PATH_RAIL);
    assert_int_equal(c.rail, 0);
    tei_paths_fini(&paths);
}

/* ---- The measured rate ---------------------------------------------------------------------------- */

/* Keeps `depth` slices on a rail that carries `bps` for so many milliseconds, with choices between. */
static void carry(int rail, double bps, unsigned depth, int ms)
{
    int64_t end = now + ms * MS, each = (int64_t)(SLICE * 1e9 / bps);
    struct tei_path_choice c;

    for (unsigned k = 0; k < depth; k++)
        tei_paths_posted(&paths, rail, SLICE, now);
    while (now < end) {
        now += each;
        tei_paths_done(&paths, rail, SLICE, now, true);
        tei_paths_posted(&paths, rail, SLICE, now);
        (void)pick(SLICE, TEI_PATH_NO_RAIL, &c);
    }
    for (unsigned k = 0; k < depth; k++)
        tei_paths_done(&paths, rail, SLICE, now, true);
}

static void check_bps(int rail, double want)
{
    double bps = paths.rails[rail].rate;

    if (bps < 0.97 * want || bps > 1.03 * want)
        fail_msg("rail %d is thought to carry %.3g, not %.3g", rail, bps, want);
}

TEST(test_rate_is_measured)
{
    assert_int_equal(begin("a b", "a b", (struct tei_path_conf){0}), 0);
    lead("", "", "", "");
    check_bps(0, 10e9);
    carry(0, 2.5e9, 8, 30);
    check_bps(0, 2.5e9);
    carry(0, 9e9, 8, 30);
    check_bps(0, 9e9);
    carry(0, 90e9, 8, 30); /* more than four times the port is not believed */
    check_bps(0, 40e9);
    carry(0, 50e6, 2, 200); /* nor less than a 64th */
    check_bps(0, 10e9 / 64);
    check_bps(3, 10e9);
    tei_paths_fini(&paths);
}

/* With nothing queued a low rate says nothing: 64 KiB in 13 us are 5 GB/s, and no sign of a slow rail. */
TEST(test_light_load_does_not_make_a_rail_slow)
{
    struct tei_path_choice c;

    assert_int_equal(begin("a", "a", (struct tei_path_conf){0}), 0);
    lead("", "", "", "");
    for (int k = 0; k < 2000; k++) {
        tei_paths_posted(&paths, 0, SLICE, now);
        now += 13000;
        tei_paths_done(&paths, 0, SLICE, now, true);
        now += 20000;
        (void)pick(SLICE, TEI_PATH_NO_RAIL, &c);
    }
    check_bps(0, 10e9);
    tei_paths_fini(&paths);
}

TEST(test_silence_makes_slow_and_idleness_forgets)
{
    struct tei_path_choice c;

    assert_int_equal(begin("a b", "a b", (struct tei_path_conf){0}), 0);
    lead("", "", "", "");
    for (int k = 0; k < 4; k++)
        tei_paths_posted(&paths, 0, SLICE, now);
    for (int k = 0; k < 25; k++, now += MS)
        (void)pick(SLICE, TEI_PATH_NO_RAIL, &c);
    check_bps(0, 10e9 / 64);
    assert_true(paths.rails[0].window <= 256U << 10);
    for (int k = 0; k < 4; k++)
        tei_paths_done(&paths, 0, SLICE, now, false);
    for (int k = 0; k < 4000; k++, now += MS)
        (void)pick(SLICE, TEI_PATH_NO_RAIL, &c);
    check_bps(0, 10e9);
    tei_paths_fini(&paths);
}

TEST(test_probe_after_20_ms)
{
    int probes = 0;

    assert_int_equal(begin("a b", "a b", (struct tei_path_conf){0}), 0);
    lead("", "", "", "");
    carry(3, 100e6, 1, 100); /* so slow that prediction would never take it */
    warm();
    for (int k = 0; k < 10000; k++, now += 20000) {
        int rail = give(SLICE);

        probes += rail == 3;
        tei_paths_done(&paths, rail, SLICE, now + (rail == 3 ? 600000 : 7000), true);
    }
    assert_in_range(probes, 9, 12); /* 200 ms */
    tei_paths_fini(&paths);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_by_position),
        cmocka_unit_test(test_pairs_by_name),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_same_name),
        cmocka_unit_test(test_same_name_for_memory_of_some_nics),
        cmocka_unit_test(test_affinity_map),
        cmocka_unit_test(test_affinity_map_refused),
        cmocka_unit_test(test_too_many_or_no_nics),
        cmocka_unit_test(test_idle_rails_alike_take_turns),
        cmocka_unit_test(test_slices_go_where_least_waits),
        cmocka_unit_test(test_a_nic_busy_for_another_peer_is_left_alone),
        cmocka_unit_test(test_short_slices_stay_for_64_kib),
        cmocka_unit_test(test_full_windows_wait),
        cmocka_unit_test(test_bound_on_slices),
        cmocka_unit_test(test_round_robin),
        cmocka_unit_test(test_a_retry_avoids_its_rail),
        cmocka_unit_test(test_rate_is_measured),
        cmocka_unit_test(test_light_load_does_not_make_a_rail_slow),
        cmocka_unit_test(test_silence_makes_slow_and_idleness_forgets),
        cmocka_unit_test(test_probe_after_20_ms),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
