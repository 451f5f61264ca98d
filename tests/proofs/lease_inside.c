/* SPDX-License-Identifier: Apache-2.0 */
/* A range within a lease is allowed. */
/* proof: --unsigned-overflow-check */
#include "transport/tcp/tcp_lease.h"
#include "proof.h"

void proof(void)
{
    struct tei_lease l;
    struct tcp_range r;
    unsigned access;

    ASSUME(l.length <= UINT64_MAX - l.addr && r.length > 0 && r.length <= UINT64_MAX - r.addr);
    ASSUME(r.addr >= l.addr && r.addr + r.length <= l.addr + l.length);
    ASSUME((access & ~l.access) == 0);
    PROVE(tei_tcp_lease_allows(&l, &r, access));
}
