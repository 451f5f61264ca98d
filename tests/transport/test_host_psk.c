/* SPDX-License-Identifier: Apache-2.0 */
/* With TE_AUTH=psk: all that the transport must do, behind a proof on the unix socket. */
#include "conformance.h"

#include "auth_rig.h"

static const struct conformance fixture = {.transport = "host", .configure = auth_configure};
CONFORMANCE_ONE_SIDED(fixture)

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
    const struct CMUnitTest tests[] = {CONFORMANCE_ONE_SIDED_TESTS, cmocka_unit_test(it_is_on)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
