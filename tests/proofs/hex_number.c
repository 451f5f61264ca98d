/* SPDX-License-Identifier: Apache-2.0 */
/* A number of 64 bits is of a text of just 16 digits. */
/* proof: --unsigned-overflow-check --unwind 20 */
#include "base/hex.c"
#include "libc.h"
#include "proof.h"

enum { MAX = 18 };

/* Of 16 digits it is their value. */
unsigned long long strtoull(const char *text, char **end, int base)
{
    unsigned long long n = 0;

    PROVE(!end && base == 16);
    for (; *text; text++) {
        PROVE(n >> 60 == 0);
        n = n << 4 | (unsigned)tei_hex_digit(*text);
    }
    return n;
}

void proof(void)
{
    const char *text = any_text(MAX);
    uint64_t number;

    if (tei_hex_number(text, &number))
        PROVE(strlen(text) == 16);
}
