/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes are read as options up to their end, and an unknown kind that is told has no mark. */
/* proof: --unsigned-overflow-check --unwind 10 */
#include "transport/tcp/tcp_wire.c"
#include "proof.h"

enum { UNITS = 8 };

void proof(void)
{
    size_t units;
    unsigned known;
    uint32_t unknown;

    ASSUME(units <= UNITS);
    const uint8_t *list = any_bytes(units * TCP_OPTION_UNIT);
    tei_tcp_options_read(list, units * TCP_OPTION_UNIT, known, &unknown);
    PROVE((unknown & TCP_OPTION_MUST) == 0 && unknown <= UINT16_MAX);
    PROVE(unknown == 0 || !is_known(known, unknown));
}
