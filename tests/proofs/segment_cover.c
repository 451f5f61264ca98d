/* SPDX-License-Identifier: Apache-2.0 */
/* The buffer that is found has the address, the part is within it, and none is missed. */
/* proof: --unsigned-overflow-check --unwind 4 */
#include "model/segment.c"
#include "proof.h"

enum { MAX = 3 };

void proof(void)
{
    struct tei_buffer buffers[MAX];
    struct tei_segment s = {.buffers = buffers};
    uint64_t addr, length, part;
    size_t at, any = any_size(MAX);

    s.n_buffers = any_size(MAX);
    for (size_t i = 0; i < s.n_buffers; i++) {
        const struct tei_buffer *b = &buffers[i];

        ASSUME(b->length > 0 && b->length <= UINT64_MAX - b->addr);
        ASSUME(i == 0 || b->addr >= b[-1].addr + b[-1].length);
    }
    if (tei_segment_cover(&s, addr, length, &at, &part)) {
        PROVE(at < s.n_buffers && part <= length && (part > 0 || length == 0));
        PROVE(tei_buffer_holds(&s.buffers[at], addr, part));
    } else {
        ASSUME(any < s.n_buffers);
        PROVE(!tei_buffer_holds(&s.buffers[any], addr, 1));
    }
}
