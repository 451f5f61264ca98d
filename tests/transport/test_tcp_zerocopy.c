/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance.h"

#define PIECE_BYTES ((size_t)256 << 10) /* long enough to be sent without a copy */

/*
 * WRITEs without a copy in the kernel, where that is left on although loopback copies: what ends
 * when, and that memory is quiet then, is the same.
 */
static void configure(struct tei_conf *c)
{
    c->tcp_zerocopy = TEI_ZEROCOPY_ON;
    c->tcp_piece_size = PIECE_BYTES;
}

static const struct conformance fixture = {.transport = "tcp", .configure = configure};
CONFORMANCE_REMOTE(fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {CONFORMANCE_REMOTE_TESTS};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
