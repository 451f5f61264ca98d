/* SPDX-License-Identifier: Apache-2.0 */
/* The life of work inside a transport. */
#include "fuzz/ledger_history.h"
#include "test.h"

#define HISTORIES 3000

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

TEST(work_ends_exactly_once_and_quiet)
{
    uint64_t seed = 88172645463325252u;
    uint8_t bytes[512];

    for (int i = 0; i < HISTORIES; i++) {
        for (size_t k = 0; k < sizeof(bytes); k++)
            bytes[k] = (uint8_t)(draw(&seed) >> 24);
        history_run(bytes, sizeof(bytes));
    }
}

/* A ledger with patience 50 and `n` works of 10 bytes, posted at 0. */
static void begin(struct history *h, size_t n)
{
    memset(h, 0, sizeof(*h));
    tei_ledger_init(&h->ledger, 0);
    h->ledger.patience_ns = HISTORY_PATIENCE;
    for (unsigned i = 0; i < n; i++) {
        struct tei_work *w = &h->works[i].entry.base;

        w->moved = &h->works[i].moved;
        w->length = 10;
        w->deadline_ns = TEI_NEVER;
        tei_ledger_post(&h->ledger, &h->works[i].entry, 0);
    }
}

static bool is_reaped(struct history *h)
{
    struct tei_list done;

    tei_list_init(&done);
    tei_ledger_reap(&h->ledger, &done);
    return !tei_list_empty(&done);
}

TEST(a_part_that_is_stuck_is_stalled_though_others_move)
{
    struct history h;
    struct tei_part stuck, part;

    begin(&h, 2);
    tei_ledger_take(&h.ledger, 10, 0, &stuck);
    for (int64_t now = 10; now < 50; now += 10) {
        tei_ledger_take(&h.ledger, 2, now, &part);
        tei_ledger_back(&h.ledger, &part, now);
        assert_int_equal(tei_ledger_tick(&h.ledger, now), 50);
    }
    tei_ledger_tick(&h.ledger, 50);
    assert_int_equal(h.works[0].entry.base.error, TE_ERR_TIMEOUT);
    assert_int_equal(h.works[1].entry.base.error, TE_ERR_OK);
    assert_int_equal(h.ledger.n_stalled, 1);
    assert_false(is_reaped(&h)); /* the part may still touch memory */
    tei_ledger_back(&h.ledger, &stuck, 60);
    assert_true(is_reaped(&h));
    assert_int_equal(h.works[0].entry.base.error, TE_ERR_TIMEOUT);
    assert_int_equal(h.works[0].moved, 10);
}

TEST(work_that_waits_is_not_late_while_others_move)
{
    struct history h;
    struct tei_part part;

    begin(&h, 2);
    tei_ledger_take(&h.ledger, 10, 0, &part);
    tei_ledger_back(&h.ledger, &part, 40);
    assert_true(is_reaped(&h));
    assert_int_equal(tei_ledger_tick(&h.ledger, 60), 90);
    tei_ledger_tick(&h.ledger, 90);
    assert_true(is_reaped(&h));
    assert_int_equal(h.works[1].entry.base.error, TE_ERR_TIMEOUT);
    assert_int_equal(h.ledger.n_stalled, 0);
}

TEST(an_error_that_forbids_another_try_stays)
{
    struct history h;
    struct tei_part parts[3];

    begin(&h, 1);
    for (size_t i = 0; i < 3; i++)
        tei_ledger_take(&h.ledger, 3, 0, &parts[i]);
    parts[0].error = parts[2].error = TE_ERR_STALE;
    parts[1].error = TE_ERR_SYSTEM;
    parts[1].sys_errno = 5;
    parts[1].why = "second";
    tei_ledger_back(&h.ledger, &parts[0], 1);
    assert_null(tei_ledger_first(&h.ledger)); /* the last byte of a failed work is not given out */
    tei_ledger_back(&h.ledger, &parts[1], 1);
    assert_false(is_reaped(&h));
    tei_ledger_back(&h.ledger, &parts[2], 1);
    assert_true(is_reaped(&h));
    assert_int_equal(h.works[0].entry.base.error, TE_ERR_SYSTEM);
    assert_int_equal(h.works[0].entry.base.sys_errno, 5);
    assert_string_equal(h.works[0].entry.base.why, "second");
}

TEST(a_deadline_alone_is_no_stall)
{
    struct history h;
    struct tei_part part;

    begin(&h, 1);
    h.works[0].entry.base.deadline_ns = 5;
    tei_ledger_take(&h.ledger, 10, 0, &part);
    h.ledger.look_ns = 5;
    assert_int_equal(tei_ledger_tick(&h.ledger, 5), HISTORY_PATIENCE);
    assert_int_equal(h.works[0].entry.base.error, TE_ERR_TIMEOUT);
    assert_int_equal(h.ledger.n_stalled, 0);
    /* Its part does not come back: that is one, once. */
    assert_int_equal(tei_ledger_tick(&h.ledger, HISTORY_PATIENCE), TEI_NEVER);
    assert_int_equal(tei_ledger_tick(&h.ledger, 2 * HISTORY_PATIENCE), TEI_NEVER);
    assert_int_equal(h.ledger.n_stalled, 1);
    tei_ledger_back(&h.ledger, &part, 2 * HISTORY_PATIENCE);
    assert_true(is_reaped(&h));
}

TEST(a_work_that_failed_mildly_is_late_and_cancelled_as_others)
{
    struct history h;
    struct tei_part parts[4];

    begin(&h, 2);
    h.works[0].entry.base.owner = &history_owners[0];
    for (size_t i = 0; i < 4; i++)
        tei_ledger_take(&h.ledger, 5, 0, &parts[i]);
    parts[0].error = parts[1].error = TE_ERR_STALE;
    tei_ledger_back(&h.ledger, &parts[0], 1);
    tei_ledger_back(&h.ledger, &parts[1], 1);
    tei_ledger_fail(&h.ledger, &history_owners[0], TE_ERR_CANCELED, NULL);
    tei_ledger_tick(&h.ledger, HISTORY_PATIENCE);
    assert_false(is_reaped(&h));
    for (size_t i = 2; i < 4; i++) {
        tei_part_give_up(&parts[i]);
        tei_ledger_back(&h.ledger, &parts[i], HISTORY_PATIENCE);
    }
    assert_int_equal(h.works[0].entry.base.error, TE_ERR_CANCELED);
    assert_int_equal(h.works[1].entry.base.error, TE_ERR_TIMEOUT);
    assert_string_equal(h.works[1].entry.base.why, "waiting for a part under way");
    assert_true(is_reaped(&h));
}

TEST(parts_inside_a_transport_wait_for_others)
{
    struct history h;
    struct tei_part waits, part;

    begin(&h, 2);
    tei_ledger_take(&h.ledger, 10, 0, &waits);
    tei_part_waits(&waits);
    tei_ledger_take(&h.ledger, 10, 0, &part);
    tei_ledger_back(&h.ledger, &part, 40);
    tei_ledger_tick(&h.ledger, 60);
    assert_int_equal(h.works[0].entry.base.error, TE_ERR_OK);
    tei_ledger_tick(&h.ledger, 90);
    assert_int_equal(h.works[0].entry.base.error, TE_ERR_TIMEOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_ends_exactly_once_and_quiet),
        cmocka_unit_test(a_part_that_is_stuck_is_stalled_though_others_move),
        cmocka_unit_test(work_that_waits_is_not_late_while_others_move),
        cmocka_unit_test(an_error_that_forbids_another_try_stays),
        cmocka_unit_test(a_deadline_alone_is_no_stall),
        cmocka_unit_test(a_work_that_failed_mildly_is_late_and_cancelled_as_others),
        cmocka_unit_test(parts_inside_a_transport_wait_for_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
