/* SPDX-License-Identifier: Apache-2.0 */
/* An option that was written behind another one is a list with it, and is found with its value. */
/* proof: --unsigned-overflow-check --unwind 17 */
#include "transport/tcp/tcp_wire.c"
#include "proof.h"

enum { MAX = 12, ROOM = 2 * (TCP_OPTION_LEN + MAX) };

void proof(void)
{
    uint8_t list[ROOM], first[MAX], second[MAX];
    unsigned kind, other;
    size_t len, other_len, got, n, at;
    uint32_t unknown;

    ASSUME(len <= MAX && other_len <= MAX && at < len);
    ASSUME(kind > 0 && kind < TCP_OPTION_MUST && other > 0 && other < TCP_OPTION_MUST);
    ASSUME(kind != other);
    n = tei_tcp_option_put(list, other, first, other_len);
    PROVE(n >= TCP_OPTION_LEN + other_len && n % TCP_OPTION_UNIT == 0);
    n += tei_tcp_option_put(list + n, kind | TCP_OPTION_MUST, second, len);
    PROVE(n <= ROOM);
    PROVE(tei_tcp_options_read(list, n, 0, &unknown) && unknown == kind);
    const uint8_t *value = tei_tcp_option_find(list, n, kind, &got);
    PROVE(value && got == len && value[at] == second[at]);
}
