/* SPDX-License-Identifier: Apache-2.0 */
/* A sum that is told is that of the numbers, and none is told that would wrap. */
/* proof: --unsigned-overflow-check */
#include "base/base.h"
#include "proof.h"

void proof(void)
{
    uint64_t a, b, sum;

    if (tei_add_ok(a, b, &sum))
        PROVE(sum >= a && sum >= b && sum - a == b);
    else
        PROVE(UINT64_MAX - a < b);
}
