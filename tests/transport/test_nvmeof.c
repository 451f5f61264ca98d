/* SPDX-License-Identifier: Apache-2.0 */
/* By io_uring and direct I/O. The file is in the folder that the test runs in. */
#include "conformance.h"

static const struct conformance fixture = {.transport = "nvmeof", .folder = "."};
CONFORMANCE_COMMON(fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {CONFORMANCE_COMMON_TESTS};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
