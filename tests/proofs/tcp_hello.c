/* SPDX-License-Identifier: Apache-2.0 */
/* A greeting is what was written; of any bytes the options have a length that 16 bits count in their unit. */
/* proof: --unsigned-overflow-check --unwind 49 */
#include "transport/tcp/tcp_wire.c"
#include "proof.h"

void proof(void)
{
    uint8_t bytes[TCP_HELLO_LEN], again[TCP_HELLO_LEN];
    struct tcp_hello h, back;

    tei_tcp_hello_decode(bytes, &h);
    PROVE(h.options % TCP_OPTION_UNIT == 0 && h.options / TCP_OPTION_UNIT <= UINT16_MAX);
    PROVE(h.version <= UINT16_MAX && h.flags <= UINT16_MAX);
    PROVE(h.options == 0 || h.version != TCP_NATIVE_FIRST);
    tei_tcp_hello_encode(&h, again);
    PROVE(tei_tcp_hello_begins(again));
    tei_tcp_hello_decode(again, &back);
    PROVE(back.version == h.version && back.flags == h.flags && back.options == h.options);
    PROVE(back.target == h.target && back.client == h.client && back.connection == h.connection);
}
