/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance.h"

/* The native framing with a checksum for every frame. */
static void configure(struct tei_conf *c)
{
    c->tcp_crc32c = true;
}

static const struct conformance fixture = {.transport = "tcp", .configure = configure};
CONFORMANCE_REMOTE(fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {CONFORMANCE_REMOTE_TESTS};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
