/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=60 */
/*
 * The quiet-memory test can fail: linked with a transport that breaks the rule on purpose (it tells
 * the end of cancelled and overdue work while the bytes still move), the same cases see the
 * violation.
 */
#include "quiet.h"

#include "te.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

static void cancel_read_is_seen(void **state)
{
    (void)state;
    assert_true(quiet_run(QUIET_CANCEL, TE_READ) > 0);
}

static void deadline_write_is_seen(void **state)
{
    (void)state;
    assert_true(quiet_run(QUIET_DEADLINE, TE_WRITE) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancel_read_is_seen),
        cmocka_unit_test(deadline_write_is_seen),
    };

    /* The thread sanitizer sees the violation as the data race that it is; here it is to be counted. */
    if (!getenv("TE_FAULT")) {
        setenv("TE_FAULT", "early=1", 1);
        setenv("TSAN_OPTIONS", "report_bugs=0", 1);
        execl("/proc/self/exe", "test_quiet_fault", (char *)NULL);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
