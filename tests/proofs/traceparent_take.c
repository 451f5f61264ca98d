/* SPDX-License-Identifier: Apache-2.0 */
/* Of bytes from the wire no more are read than there are. */
/* proof: --unsigned-overflow-check --unwind 33 */
#include "base/hex.c"
#include "base/traceparent.c"
#include "proof.h"

enum { MAX = 32 };

void proof(void)
{
    size_t n;
    struct tei_traceparent t;

    ASSUME(n <= MAX);
    const uint8_t *bytes = any_bytes(n);
    if (tei_traceparent_take(bytes, n, &t))
        PROVE(n >= sizeof(t) && t.version == 0 && tei_traceparent_is_good(&t));
}
