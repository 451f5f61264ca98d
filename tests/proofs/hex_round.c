/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as digits are read again as the same bytes. */
/* proof: --unsigned-overflow-check --unwind 9 */
#include "base/hex.c"
#include "proof.h"

enum { MAX = 8 };

void proof(void)
{
    size_t n, at;

    ASSUME(n <= MAX && at < n);
    const uint8_t *bytes = any_bytes(n);
    char *text = any_bytes(2 * n + 1);
    uint8_t *back = any_bytes(n);
    tei_hex_write(bytes, n, text);
    PROVE(text[2 * n] == '\0');
    PROVE(tei_hex_read(text, back, n));
    PROVE(back[at] == bytes[at]);
}
