/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing behind the digits that are asked for is read, and what is taken are digits. */
/* proof: --unsigned-overflow-check --unwind 9 */
#include "base/hex.c"
#include "proof.h"

enum { MAX = 8 };

void proof(void)
{
    size_t n, at;

    ASSUME(n <= MAX && at < 2 * n);
    const char *text = any_bytes(2 * n);
    uint8_t *out = any_bytes(n);
    if (tei_hex_read(text, out, n))
        PROVE(tei_hex_digit(text[at]) >= 0 && tei_hex_digit(text[at]) <= 15);
}
