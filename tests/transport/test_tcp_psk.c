/* SPDX-License-Identifier: Apache-2.0 */
/* With TE_AUTH=psk: all that the transport must do, behind a proof on the data port. */
#include "conformance.h"

#include "auth_rig.h"

static const struct conformance fixture = {.transport = "tcp", .configure = auth_configure};
CONFORMANCE_REMOTE(fixture)

/* They do not run without it by mistake. */
static void it_is_on(void **state)
{
    struct pair *p = pair_open(&fixture);

    (void)state;
    assert_non_null(p->ha.conf.identity);
    assert_non_null(p->hb.conf.identity);
    pair_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CONFORMANCE_REMOTE_TESTS, cmocka_unit_test(it_is_on)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
