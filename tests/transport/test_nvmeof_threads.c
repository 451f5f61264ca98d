/* SPDX-License-Identifier: Apache-2.0 */
/* By threads in place of io_uring. The file is in the folder that the test runs in. */
#include "conformance.h"

static void configure(struct tei_conf *conf)
{
    conf->file_uring = false;
}

static const struct conformance fixture = {
    .transport = "nvmeof", .folder = ".", .configure = configure};
CONFORMANCE_COMMON(fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {CONFORMANCE_COMMON_TESTS};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
