/* SPDX-License-Identifier: Apache-2.0 */
/* A slice is some of what is left, so that cutting ends; the last one is longer by a share at most. */
/* proof: --unsigned-overflow-check */
#include "model/slice.c"
#include "proof.h"

void proof(void)
{
    uint64_t left, slice, ratio, n;

    ASSUME(left > 0);
    n = tei_slice_len(left, slice, ratio);
    PROVE(n > 0 && n <= left);
    PROVE(n == left || n == slice);
}
