/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=300 */
/* The ofi transport by libfabric's provider tcp (tcp;ofi_rxm up to 1.x), over 127.0.0.1. */
#include "conformance.h"
#include "ofi_here.h"

#include <string.h>

static void configure(struct tei_conf *conf)
{
    strcpy(conf->ofi_provider, "tcp");
    strcpy(conf->ofi_domain, "lo");
}

static const struct conformance fixture = {.transport = "ofi", .configure = configure};
CONFORMANCE_REMOTE(fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {CONFORMANCE_REMOTE_TESTS};

    need_ofi("tcp");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
