/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance.h"

static const struct conformance fixture = {.transport = "example"};
CONFORMANCE_REMOTE(fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {CONFORMANCE_REMOTE_TESTS};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
