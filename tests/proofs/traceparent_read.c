/* SPDX-License-Identifier: Apache-2.0 */
/* Any text is refused, or is a trace context that has its text again. */
/* proof: --unsigned-overflow-check --unwind 61 */
#include "base/hex.c"
#include "base/traceparent.c"
#include "proof.h"

enum { MAX = 59 };

void proof(void)
{
    const char *text = any_text(MAX);
    struct tei_traceparent t;

    if (!tei_traceparent_read(text, &t))
        PROVE(t.version == 0 && tei_traceparent_is_good(&t));
}
