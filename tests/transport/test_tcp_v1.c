/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance.h"

/* To a peer that speaks version 1 only: no status, one request per connection. */
static void configure(struct tei_conf *c)
{
    c->tcp_force_v1 = true;
}

static const struct conformance fixture = {
    .transport = "tcp", .configure = configure, .mute = true};
CONFORMANCE_REMOTE(fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {CONFORMANCE_REMOTE_TESTS};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
