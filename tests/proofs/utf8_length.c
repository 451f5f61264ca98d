/* SPDX-License-Identifier: Apache-2.0 */
/* A character ends where its bytes do, and has no form that is too long, nor is it a surrogate or too high. */
/* proof: --unsigned-overflow-check --unwind 5 --conversion-check */
#include "base/utf8.c"
#include "proof.h"

enum { MAX = 5 };

void proof(void)
{
    size_t n, len;
    uint32_t c;

    ASSUME(n >= 1 && n <= MAX);
    const unsigned char *p = any_bytes(n);
    len = tei_utf8_length(p, n);
    PROVE(len == 0 || (len >= 2 && len <= 4 && len <= n));
    if (!len)
        return;
    c = p[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++)
        c = c << 6 | (p[i] & 0x3fu);
    PROVE(c >= (len == 2 ? 0x80u : len == 3 ? 0x800u : 0x10000u) && c <= 0x10ffff);
    PROVE(c < 0xd800 || c > 0xdfff);
}
