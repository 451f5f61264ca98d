/* SPDX-License-Identifier: Apache-2.0 */
/* What a lease allows is a range within it, which does not wrap. */
/* proof: --unsigned-overflow-check */
#include "transport/tcp/tcp_lease.h"
#include "proof.h"

void proof(void)
{
    struct tei_lease l;
    struct tcp_range r;
    unsigned access;

    ASSUME(l.length <= UINT64_MAX - l.addr);
    if (!tei_tcp_lease_allows(&l, &r, access))
        return;
    PROVE(r.length > 0 && r.length <= UINT64_MAX - r.addr);
    PROVE(r.addr >= l.addr && r.addr + r.length <= l.addr + l.length);
    PROVE((access & ~l.access) == 0);
}
