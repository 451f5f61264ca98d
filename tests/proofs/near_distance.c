/* SPDX-License-Identifier: Apache-2.0 */
/* The distance is 0 of the same text alone, and never more than the longer one is long. */
/* proof: --unsigned-overflow-check --unwind 6 */
#include "base/near.c"
#include "proof.h"

enum { MAX = 4 };

void proof(void)
{
    const char *a = any_text(MAX), *b = any_text(MAX);
    size_t d = tei_near_distance(a, b);

    PROVE((d == 0) == (strcmp(a, b) == 0));
    PROVE(d <= tei_max(strlen(a), strlen(b)));
}
