/* SPDX-License-Identifier: Apache-2.0 */
/* A status, a block and a checksum are what was written. */
/* proof: --unsigned-overflow-check --unwind 17 */
#include "transport/tcp/tcp_wire.c"
#include "proof.h"

void proof(void)
{
    uint8_t status[TCP_STATUS_LEN], block[TCP_BLOCK_LEN], trailer[TCP_TRAILER_LEN];
    uint32_t code, got;
    struct tcp_range r, back;

    tei_tcp_status_encode(code, status);
    PROVE(tei_tcp_status_decode(status, &got) && got == code);
    tei_tcp_range_encode(&r, block);
    tei_tcp_range_decode(block, &back);
    PROVE(back.addr == r.addr && back.length == r.length);
    tei_tcp_trailer_encode(code, trailer);
    PROVE(tei_tcp_trailer_decode(trailer) == code);
}
