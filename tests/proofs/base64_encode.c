/* SPDX-License-Identifier: Apache-2.0 */
/* What is encoded is decoded again, by the exact reading, too. */
/* proof: --unsigned-overflow-check --unwind 13 */
#include "base/base64.c"
#include "proof.h"

enum { MAX = 7 };

void proof(void)
{
    size_t n, len, at;
    uint8_t back[MAX];
    char *text;

    ASSUME(n <= MAX && at < n);
    const uint8_t *data = any_bytes(n);
    text = tei_base64_encode(data, n);
    if (!text)
        return;
    PROVE(tei_base64_decode(text, (n + 2) / 3 * 4, true, back, n, &len) && len == n);
    PROVE(back[at] == data[at]);
    free(text);
}
