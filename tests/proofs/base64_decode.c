/* SPDX-License-Identifier: Apache-2.0 */
/* Of any text no more bytes than there is room for are written, and all of the length that is told. */
/* proof: --unsigned-overflow-check --unwind 14 */
#include "base/base64.c"
#include "proof.h"

enum { MAX = 13 };

void proof(void)
{
    size_t n, room, len;
    bool exact = any_bool();

    ASSUME(n <= MAX && room <= MAX);
    const char *text = any_bytes(n);
    uint8_t *out = any_bytes(room);
    if (tei_base64_decode(text, n, exact, out, room, &len))
        PROVE(len <= room && n % 4 == 0 && len <= n / 4 * 3 && len + 2 >= n / 4 * 3);
}
