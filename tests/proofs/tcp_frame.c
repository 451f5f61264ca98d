/* SPDX-License-Identifier: Apache-2.0 */
/* Any 32 bytes are the header of a frame, and that has the same bytes again. */
/* proof: --unsigned-overflow-check --unwind 33 */
#include "transport/tcp/tcp_wire.c"
#include "proof.h"

void proof(void)
{
    uint8_t bytes[TCP_FRAME_LEN], again[TCP_FRAME_LEN];
    struct tcp_frame_head h;
    size_t at;

    tei_tcp_frame_decode(bytes, &h);
    PROVE(h.type <= UINT8_MAX && h.count <= UINT16_MAX);
    PROVE(h.options % TCP_OPTION_UNIT == 0 && h.options <= UINT8_MAX * TCP_OPTION_UNIT);
    tei_tcp_frame_encode(&h, again);
    ASSUME(at < TCP_FRAME_LEN);
    PROVE(again[at] == bytes[at]);
}
