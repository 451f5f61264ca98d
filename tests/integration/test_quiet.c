/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=120 */
/*
 * The quiet-memory rule holds for cancel, deadline, death of the peer and destroy, both directions.
 */
#include "quiet.h"

#include "te.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void cancel_read(void **state)
{
    (void)state;
    assert_int_equal(quiet_run(QUIET_CANCEL, TE_READ), 0);
}

static void cancel_write(void **state)
{
    (void)state;
    assert_int_equal(quiet_run(QUIET_CANCEL, TE_WRITE), 0);
}

static void deadline_read(void **state)
{
    (void)state;
    assert_int_equal(quiet_run(QUIET_DEADLINE, TE_READ), 0);
}

static void deadline_write(void **state)
{
    (void)state;
    assert_int_equal(quiet_run(QUIET_DEADLINE, TE_WRITE), 0);
}

static void peer_death_read(void **state)
{
    (void)state;
    assert_int_equal(quiet_run(QUIET_PEER_DEATH, TE_READ), 0);
}

static void peer_death_write(void **state)
{
    (void)state;
    assert_int_equal(quiet_run(QUIET_PEER_DEATH, TE_WRITE), 0);
}

static void destroy_read(void **state)
{
    (void)state;
    assert_int_equal(quiet_run(QUIET_DESTROY, TE_READ), 0);
}

static void destroy_write(void **state)
{
    (void)state;
    assert_int_equal(quiet_run(QUIET_DESTROY, TE_WRITE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancel_read),     cmocka_unit_test(cancel_write),
        cmocka_unit_test(deadline_read),   cmocka_unit_test(deadline_write),
        cmocka_unit_test(peer_death_read), cmocka_unit_test(peer_death_write),
        cmocka_unit_test(destroy_read),    cmocka_unit_test(destroy_write),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
