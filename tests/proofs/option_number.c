/* SPDX-License-Identifier: Apache-2.0 */
/* The number of an option with its unit, of any text: read without an overflow, and no other than it says. */
/* proof: --unsigned-overflow-check --unwind 23 */
#include "conf/value.c"
#include "proof.h"

enum { MAX = 21 };

void proof(void)
{
    size_t len;
    int64_t n;
    bool units = any_bool();

    ASSUME(len <= MAX);
    const char *text = any_bytes(len);
    if (!read_number(text, len, units, &n))
        return;
    PROVE(len > 0);
    PROVE(n >= 0 || *text == '-');
    PROVE(n <= 0 || *text != '-');
}
