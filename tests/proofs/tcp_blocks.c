/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a frame that is taken are within its head; their sum is the payload, and no more than a receiver takes. */
/* proof: --unsigned-overflow-check --unwind 9 */
#include "transport/tcp/tcp_channel.c"
#include "transport/tcp/tcp_wire.c"
#include "proof.h"

enum { MAX = 8 };

void proof(void)
{
    struct tcp_channel c;
    uint64_t sum = 0;

    ASSUME(c.head.count <= MAX);
    const uint8_t *bytes = any_bytes(TCP_FRAME_LEN + c.head.count * TCP_BLOCK_LEN);
    if (!read_blocks(&c, bytes))
        return;
    for (unsigned i = 0; i < c.head.count; i++) {
        PROVE(c.ranges[i].length <= TCP_FRAME_MAX);
        sum += c.ranges[i].length;
    }
    PROVE(sum == c.payload && sum <= TCP_FRAME_MAX);
    PROVE(c.head.length == (c.head.type == TCP_FRAME_WRITE ? sum : 0));
}
