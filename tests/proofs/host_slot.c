/* SPDX-License-Identifier: Apache-2.0 */
/* A slot that is taken for a region is a range that does not wrap, here and in the memory that it lies in. */
/* proof: --unsigned-overflow-check */
#include "transport/host/host_peer.c"
#include "proof.h"

void proof(void)
{
    struct host_slot s;
    struct host_known k;

    if (!read_slot(&s, &k))
        return;
    PROVE(k.length > 0 && k.length <= UINT64_MAX - k.addr && k.length <= UINT64_MAX - k.offset);
    PROVE(k.epoch % 2 == 1);
}
