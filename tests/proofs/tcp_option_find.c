/* SPDX-License-Identifier: Apache-2.0 */
/* The value of an option, if there is one, ends within the list. */
/* proof: --unsigned-overflow-check --unwind 10 */
#include "transport/tcp/tcp_wire.c"
#include "proof.h"

enum { UNITS = 8 };

void proof(void)
{
    size_t units, len, n;
    unsigned kind;

    ASSUME(units <= UNITS);
    n = units * TCP_OPTION_UNIT;
    const uint8_t *list = any_bytes(n);
    const uint8_t *value = tei_tcp_option_find(list, n, kind, &len);
    if (value)
        PROVE(value >= list + TCP_OPTION_LEN && len <= n - (size_t)(value - list));
}
