/* SPDX-License-Identifier: Apache-2.0 */
/* Faults: pauses, probation, what stands in for a rail or NIC that is lost, and what is told of it. */
#include "rail_fixture.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static const struct tei_path_conf plain;

/* Refreshes the route and tells its rails. */
static const char *rails_now(void)
{
    struct tei_path_choice c;

    (void)pick(1, TEI_PATH_NO_RAIL, &c);
    return rails();
}

static int rail(unsigned local, unsigned peer)
{
    return (int)tei_path_rail(&paths, local, peer);
}

static enum tei_rail_state state_of(unsigned local, unsigned peer)
{
    return (enum tei_rail_state)paths.rails[rail(local, peer)].state;
}

static void fault(unsigned local, unsigned peer)
{
    tei_paths_failed(&paths, rail(local, peer), TEI_PATH_FAULT_RAIL, now);
}

static void use(unsigned local, unsigned peer, bool ok)
{
    tei_paths_posted(&paths, rail(local, peer), SLICE, now);
    tei_paths_done(&paths, rail(local, peer), SLICE, now, ok);
}

static void begin_8_by_8(void)
{
    assert_int_equal(begin("a b c d e f g h", "a b c d e f g h", plain), 0);
}

/* A choice is the rail on trial, once; what became of that slice is told. */
static void pass_trial(unsigned local, unsigned peer, bool ok)
{
    struct tei_path_choice c;
    int given = give(SLICE);

    assert_int_equal(given, rail(local, peer));
    assert_true(pick(SLICE, TEI_PATH_NO_RAIL, &c) != TEI_PATH_RAIL || c.rail != given);
    now += 100000;
    if (!ok)
        fault(local, peer);
    tei_paths_done(&paths, given, SLICE, now, ok);
}

/* ---- Pauses and probation ------------------------------------------------------------------------- */

TEST(test_pause_then_probation_then_full_share)
{
    assert_int_equal(begin("a b", "a b", plain), 0);
    lead("", "", "", "");
    fault(0, 0);
    now += 99 * MS;
    assert_string_equal(rails_now(), "0-1 1-0 1-1");
    assert_int_equal(state_of(0, 0), TEI_RAIL_PAUSED);
    now += MS;
    assert_string_equal(rails_now(), "0-1 1-0 1-1");
    assert_int_equal(state_of(0, 0), TEI_RAIL_PROBATION);
    pass_trial(0, 0, true);
    assert_int_equal(state_of(0, 0), TEI_RAIL_PROBATION);
    pass_trial(0, 0, true);
    assert_string_equal(rails_now(), "0-0 1-1");
    tei_paths_fini(&paths);
}

TEST(test_a_long_slice_ends_probation)
{
    int given;

    assert_int_equal(begin("a b", "a b", plain), 0);
    lead("", "", "", "");
    fault(0, 0);
    now += 100 * MS;
    given = give(1U << 20);
    assert_int_equal(given, rail(0, 0));
    tei_paths_done(&paths, given, 1U << 20, now, true);
    assert_int_equal(state_of(0, 0), TEI_RAIL_ACTIVE);
    tei_paths_fini(&paths);
}

TEST(test_pauses_double_up_to_the_longest)
{
    static const int want[] = {100, 200, 400, 800, 1000, 1000};
    struct tei_path_conf conf = {.rail_pause_ns = 1000 * MS};

    assert_int_equal(begin("a b", "a b", conf), 0);
    lead("", "", "", "");
    use(0, 1, true);
    use(1, 0, true);
    fault(0, 0);
    for (size_t i = 0; i < TEI_ARRAY_LEN(want); i++) {
        assert_true(paths.rails[0].until_ns == now + want[i] * MS);
        now += want[i] * MS - 1;
        (void)rails_now();
        assert_int_equal(state_of(0, 0), TEI_RAIL_PAUSED);
        now++;
        pass_trial(0, 0, false);
        assert_int_equal(state_of(0, 0), TEI_RAIL_PAUSED);
        use(0, 1, true);
        use(1, 0, true);
    }
    tei_paths_fini(&paths);
}

/* One that fails soon after it came back waits for longer; one that has worked since does not. */
TEST(test_a_flapping_rail_pauses_for_longer)
{
    assert_int_equal(begin("a b", "a b", plain), 0);
    lead("", "", "", "");
    for (int k = 0; k < 3; k++) {
        fault(0, 0);
        assert_true(paths.rails[0].until_ns == now + (100 << k) * MS);
        now += (100 << k) * MS;
        pass_trial(0, 0, true);
        pass_trial(0, 0, true);
        assert_int_equal(state_of(0, 0), TEI_RAIL_ACTIVE);
        use(0, 1, true);
    }
    now += 4001 * MS;
    fault(0, 0);
    assert_true(paths.rails[0].until_ns == now + 100 * MS);
    tei_paths_fini(&paths);
}

TEST(test_a_burst_of_faults_is_one)
{
    assert_int_equal(begin("a b", "a b", plain), 0);
    lead("", "", "", "");
    for (int k = 0; k < 50; k++, now += MS)
        fault(0, 0);
    assert_true(paths.rails[0].pause_ns == 100 * MS);
    now += 60 * MS;
    (void)rails_now();
    assert_int_equal(state_of(0, 0), TEI_RAIL_PROBATION);
    fault(0, 0); /* a late one, of a slice given before the pause */
    assert_int_equal(state_of(0, 0), TEI_RAIL_PROBATION);
    assert_int_equal(paths.rails[0].n_faults, 51);
    tei_paths_fini(&paths);
}

TEST(test_slices_of_before_hold_up_the_trial)
{
    assert_int_equal(begin("a b", "a b", plain), 0);
    lead("", "", "", "");
    tei_paths_posted(&paths, 0, SLICE, now);
    fault(0, 0);
    now += 150 * MS;
    for (int k = 0; k < 10; k++)
        assert_int_not_equal(give(SLICE), 0);
    tei_paths_done(&paths, 0, SLICE, now, false);
    assert_int_equal(give(SLICE), 0);
    tei_paths_fini(&paths);
}

TEST(test_a_retry_is_no_trial)
{
    struct tei_path_choice c;

    assert_int_equal(begin("a b", "a b", plain), 0);
    lead("", "", "", "");
    fault(0, 0);
    now += 150 * MS;
    assert_int_equal(pick(SLICE, rail(1, 1), &c), TEI_PATH_RAIL);
    assert_int_not_equal(c.rail, 0);
    tei_paths_fini(&paths);
}

TEST(test_the_only_rail)
{
    struct tei_path_choice c;
    int64_t first;

    assert_int_equal(begin("a", "a", plain), 0);
    lead("", "", "", "");
    fault(0, 0);
    first = now + 10 * MS; /* shorter, as there is nothing else */
    assert_int_equal(pick(SLICE, 0, &c), TEI_PATH_NONE);
    assert_true(c.at_ns == first);
    now = first;
    assert_int_equal(pick(SLICE, 0, &c), TEI_PATH_RAIL);
    assert_int_equal(c.rail, 0);
    tei_paths_posted(&paths, 0, SLICE, now);
    assert_int_equal(pick(SLICE, TEI_PATH_NO_RAIL, &c), TEI_PATH_WAIT);
    fault(0, 0);
    tei_paths_done(&paths, 0, SLICE, now, false);
    assert_int_equal(pick(SLICE, TEI_PATH_NO_RAIL, &c), TEI_PATH_NONE);
    assert_true(c.at_ns == now + 20 * MS);
    tei_paths_fini(&paths);
}

/* With all paused the first to be tried is the one whose pause ends first; then the one after. */
TEST(test_all_paused)
{
    struct tei_path_choice c;

    assert_int_equal(begin("a", "a b c", plain), 0);
    lead("", "", "", "");
    for (unsigned j = 0; j < 3; j++, now += MS)
        fault(0, j);
    assert_int_equal(pick(SLICE, TEI_PATH_NO_RAIL, &c), TEI_PATH_NONE);
    assert_true(c.at_ns > now && c.at_ns <= now + 100 * MS);
    now = c.at_ns;
    assert_int_equal(pick(SLICE, TEI_PATH_NO_RAIL, &c), TEI_PATH_RAIL);
    assert_true(paths.rails[c.rail].until_ns == now);
    tei_paths_posted(&paths, c.rail, SLICE, now);
    assert_int_equal(pick(SLICE, TEI_PATH_NO_RAIL, &c), TEI_PATH_WAIT);
    assert_true(c.at_ns > now && c.at_ns < INT64_MAX);
    tei_paths_fini(&paths);
}

/* ---- What stands in -------------------------------------------------------------------------------- */

TEST(test_a_rail_is_replaced_within_the_preferred_lists)
{
    begin_8_by_8();
    lead("0 1 2 3", "4 5 6 7", "0 1 2 3", "4 5 6 7");
    fault(1, 1);
    assert_string_equal(rails_now(), "0-0 1-2 2-1 2-2 3-3");
    tei_paths_fini(&paths);
}

TEST(test_a_nic_is_replaced_from_the_available_list)
{
    begin_8_by_8();
    lead("0 1 2 3", "4 5 6 7", "0 1 2 3", "4 5 6 7");
    tei_path_nic_down(&nics, 1);
    assert_string_equal(rails_now(), "0-0 2-2 3-3 4-1");
    tei_path_nic_down(&nics, 4);
    tei_path_nic_down(&nics, 4);
    assert_string_equal(rails_now(), "0-0 2-2 3-3 5-1");
    tei_paths_peer_changed(&paths, 3, false);
    assert_string_equal(rails_now(), "0-0 2-2 3-4 5-1");
    tei_path_nic_up(&nics, 1, 0);
    tei_paths_peer_changed(&paths, 3, true);
    assert_string_equal(rails_now(), "0-0 1-1 2-2 3-3");
    tei_paths_fini(&paths);
}

TEST(test_without_an_available_list_neighbours_share)
{
    assert_int_equal(begin("a b c", "a b c", plain), 0);
    lead("", "", "", "");
    tei_path_nic_down(&nics, 0);
    assert_string_equal(rails_now(), "1-0 1-1 2-2");
    tei_paths_peer_changed(&paths, 2, false);
    assert_string_equal(rails_now(), "1-1 2-0");
    tei_paths_fini(&paths);
}

/* None of the preferred NICs is left, on either side. */
TEST(test_only_the_available_lists_are_left)
{
    begin_8_by_8();
    lead("0 1", "2 3", "0 1", "2 3");
    tei_path_nic_down(&nics, 0);
    tei_path_nic_down(&nics, 1);
    assert_string_equal(rails_now(), "2-0 3-1");
    tei_paths_peer_changed(&paths, 0, false);
    tei_paths_peer_changed(&paths, 1, false);
    assert_string_equal(rails_now(), "2-2 3-3");
    tei_path_nic_down(&nics, 2);
    tei_path_nic_down(&nics, 3);
    assert_string_equal(rails_now(), "4-2 5-2 6-2 7-2"); /* of no list, but they work */
    tei_paths_fini(&paths);
}

TEST(test_nothing_is_left)
{
    struct tei_path_choice c;

    assert_int_equal(begin("a", "a", plain), 0);
    lead("", "", "", "");
    tei_path_nic_down(&nics, 0);
    assert_int_equal(pick(1, TEI_PATH_NO_RAIL, &c), TEI_PATH_NONE);
    assert_true(c.at_ns == INT64_MAX);
    tei_path_nic_up(&nics, 0, 0);
    assert_int_equal(pick(1, TEI_PATH_NO_RAIL, &c), TEI_PATH_RAIL);
    tei_paths_fini(&paths);
}

TEST(test_the_map_holds_while_it_can)
{
    struct tei_path_conf conf = {.affinity = "a=x,y;b=z"};

    assert_int_equal(begin("a b", "x y z", conf), 0);
    lead("", "", "", "");
    assert_string_equal(rails(), "0-0 0-1 1-2");
    tei_paths_peer_changed(&paths, 2, false);
    assert_string_equal(rails_now(), "0-0 0-1"); /* b goes nowhere else */
    tei_path_nic_down(&nics, 0);
    assert_string_equal(rails_now(), "1-0"); /* but it does before nothing goes */
    tei_paths_fini(&paths);
}

/* One that is lost is replaced by another local NIC and its namesake; across only before nothing goes. */
TEST(test_namesakes_hold_while_they_can)
{
    struct tei_path_conf conf = {.same_name = true};

    assert_int_equal(begin("a b c", "a b c", conf), 0);
    lead("0", "1 2", "2", "0 1");
    assert_string_equal(rails(), "0-0");
    tei_paths_peer_changed(&paths, 0, false);
    assert_string_equal(rails_now(), "1-1");
    tei_path_nic_down(&nics, 1);
    assert_string_equal(rails_now(), "2-2");
    tei_paths_peer_changed(&paths, 2, false);
    assert_string_equal(rails_now(), "0-1 2-1");
    tei_paths_peer_changed(&paths, 0, true);
    assert_string_equal(rails_now(), "0-0");
    tei_paths_fini(&paths);
}

/* Back from a fault by a trial of its own, with nothing tried across. */
TEST(test_a_namesake_comes_back)
{
    struct tei_path_conf conf = {.same_name = true, .rail_pause_ns = 30000 * MS};

    assert_int_equal(begin("a b", "a b", conf), 0);
    lead("0", "1", "1", "0");
    fault(0, 0);
    assert_string_equal(rails_now(), "1-1");
    now += 100 * MS;
    assert_string_equal(rails_now(), "1-1");
    pass_trial(0, 0, true);
    pass_trial(0, 0, true);
    assert_string_equal(rails_now(), "0-0");
    tei_paths_fini(&paths);
}

TEST(test_a_nic_that_comes_back_is_tried_at_once)
{
    struct tei_path_conf conf = {.rail_pause_ns = 30000 * MS};

    assert_int_equal(begin("a b", "a b", conf), 0);
    lead("", "", "", "");
    fault(0, 0);
    now += 100 * MS;
    pass_trial(0, 0, false);
    tei_path_nic_down(&nics, 0);
    assert_string_equal(rails_now(), "1-0 1-1");
    tei_path_nic_up(&nics, 0, 20 * GB);
    assert_string_equal(rails_now(), "0-1 1-0 1-1");
    assert_int_equal(state_of(0, 0), TEI_RAIL_PROBATION);
    assert_true(paths.rails[1].nominal == 10e9); /* the peer's port is no faster than it was */
    pass_trial(0, 0, true);
    pass_trial(0, 0, true);
    assert_string_equal(rails_now(), "0-0 1-1");
    fault(0, 0);
    assert_true(paths.rails[0].until_ns == now + 100 * MS);
    tei_paths_fini(&paths);
}

/* ---- Faults of a NIC ------------------------------------------------------------------------------- */

TEST(test_a_local_fault_stops_the_nic)
{
    begin_8_by_8();
    lead("0 1", "4 5", "0 1", "4 5");
    tei_paths_failed(&paths, rail(1, 1), TEI_PATH_FAULT_LOCAL, now);
    assert_string_equal(rails_now(), "0-0 4-1");
    for (unsigned j = 0; j < 8; j++)
        assert_int_equal(state_of(1, j), TEI_RAIL_PAUSED);
    assert_int_equal(nics.nic[1].faults, 1);
    now += 100 * MS;
    pass_trial(1, 1, true);
    assert_int_equal(nics.nic[1].faults, 0);
    pass_trial(1, 1, true);
    assert_string_equal(rails_now(), "0-0 1-1");
    tei_paths_fini(&paths);
}

TEST(test_a_peer_fault_stops_its_nic)
{
    begin_8_by_8();
    lead("0 1", "4 5", "0 1", "4 5");
    tei_paths_failed(&paths, rail(1, 1), TEI_PATH_FAULT_PEER, now);
    assert_string_equal(rails_now(), "0-0 1-4");
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(state_of(i, 1), TEI_RAIL_PAUSED);
    assert_int_equal(nics.nic[1].faults, 0);
    tei_paths_fini(&paths);
}

/* However long it lasts, and whatever was before: a peer that is back must not wait for long. */
TEST(test_a_refused_rail_is_tried_again_soon)
{
    assert_int_equal(begin("a b", "a b", plain), 0);
    lead("", "", "", "");
    fault(1, 1);
    for (int i = 0; i < 20; i++) {
        tei_paths_failed(&paths, rail(1, 1), TEI_PATH_FAULT_REFUSED, now);
        now += 400 * MS;
        assert_string_equal(rails_now(), "0-0 0-1 1-0");
        assert_int_equal(state_of(1, 1), TEI_RAIL_PROBATION);
        tei_paths_posted(&paths, rail(1, 1), SLICE, now);
        tei_paths_done(&paths, rail(1, 1), SLICE, now, false);
    }
    tei_paths_fini(&paths);
}

/* A second rail of the same NIC fails, and none has worked since the first. */
TEST(test_two_rails_tell_of_a_nic)
{
    begin_8_by_8();
    lead("", "", "", "");
    fault(3, 3);
    assert_string_equal(rails_now(), "0-0 1-1 2-2 3-4 4-3 4-4 5-5 6-6 7-7");
    use(4, 3, true);
    fault(3, 4);
    assert_string_equal(rails_now(), "0-0 1-1 2-2 4-3 4-4 5-5 6-6 7-7");
    assert_int_equal(state_of(3, 7), TEI_RAIL_PAUSED);
    assert_int_equal(state_of(7, 3), TEI_RAIL_ACTIVE);
    tei_paths_fini(&paths);
}

TEST(test_one_rail_that_works_clears_the_nic)
{
    begin_8_by_8();
    lead("", "", "", "");
    fault(3, 3);
    now += MS;
    use(3, 4, true);
    now += MS;
    fault(3, 4);
    assert_int_equal(state_of(3, 7), TEI_RAIL_ACTIVE);
    tei_paths_fini(&paths);
}

/* A NIC whose pair failed again is tried by a rail that was only paused along with it. */
TEST(test_a_lost_nic_is_tried_by_another_rail)
{
    static const enum tei_path_fault kinds[] = {TEI_PATH_FAULT_LOCAL, TEI_PATH_FAULT_PEER};

    for (size_t k = 0; k < 2; k++) {
        unsigned local = k == 0, peer = k != 0; /* 1-0, then 0-1 */

        assert_int_equal(begin("a b", "a b", plain), 0);
        lead("", "", "", "");
        tei_paths_failed(&paths, rail(1, 1), kinds[k], now);
        now += 100 * MS;
        pass_trial(1, 1, true);
        pass_trial(1, 1, true);
        assert_string_equal(rails_now(), "0-0 1-1");
        assert_int_equal(state_of(local, peer), TEI_RAIL_PROBATION);
        fault(1, 1);
        pass_trial(local, peer, true);
        pass_trial(local, peer, true);
        assert_string_equal(rails_now(), "0-0 0-1 1-0");
        tei_paths_fini(&paths);
    }
}

/* ---- Explanation ----------------------------------------------------------------------------------- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pause_then_probation_then_full_share),
        cmocka_unit_test(test_a_long_slice_ends_probation),
        cmocka_unit_test(test_pauses_double_up_to_the_longest),
        cmocka_unit_test(test_a_flapping_rail_pauses_for_longer),
        cmocka_unit_test(test_a_burst_of_faults_is_one),
        cmocka_unit_test(test_slices_of_before_hold_up_the_trial),
        cmocka_unit_test(test_a_retry_is_no_trial),
        cmocka_unit_test(test_the_only_rail),
        cmocka_unit_test(test_all_paused),
        cmocka_unit_test(test_a_rail_is_replaced_within_the_preferred_lists),
        cmocka_unit_test(test_a_nic_is_replaced_from_the_available_list),
        cmocka_unit_test(test_without_an_available_list_neighbours_share),
        cmocka_unit_test(test_only_the_available_lists_are_left),
        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_the_map_holds_while_it_can),
        cmocka_unit_test(test_namesakes_hold_while_they_can),
        cmocka_unit_test(test_a_namesake_comes_back),
        cmocka_unit_test(test_a_nic_that_comes_back_is_tried_at_once),
        cmocka_unit_test(test_a_local_fault_stops_the_nic),
        cmocka_unit_test(test_a_peer_fault_stops_its_nic),
        cmocka_unit_test(test_a_refused_rail_is_tried_again_soon),
        cmocka_unit_test(test_two_rails_tell_of_a_nic),
        cmocka_unit_test(test_one_rail_that_works_clears_the_nic),
        cmocka_unit_test(test_a_lost_nic_is_tried_by_another_rail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
