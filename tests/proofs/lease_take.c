/* SPDX-License-Identifier: Apache-2.0 */
/* The key of a lease is taken of a list of options if it is whole, and nothing beyond the list is. */
/* proof: --unsigned-overflow-check --unwind 10 */
#include "transport/tcp/tcp_lease.c"
#include "transport/tcp/tcp_wire.c"
#include "proof.h"

enum { UNITS = 6 };

void proof(void)
{
    size_t units;
    te_lease_key key;
    enum tcp_key got;

    ASSUME(units <= UNITS);
    const uint8_t *list = any_bytes(units * TCP_OPTION_UNIT);
    got = tei_tcp_lease_take(list, units * TCP_OPTION_UNIT, &key);
    PROVE(got != KEY_SHOWN || units * TCP_OPTION_UNIT >= TCP_LEASE_OPTIONS);
}
