/* SPDX-License-Identifier: Apache-2.0 */
/* A port is digits alone, and what they say. */
/* proof: --unsigned-overflow-check --unwind 9 --conversion-check */
#include "base/sock.c"
#include "proof.h"

enum { MAX = 7 };

void proof(void)
{
    const char *text = any_text(MAX);
    unsigned long sum = 0;
    uint16_t port;

    if (!parse_port(text, &port))
        return;
    for (const char *p = text; *p; p++) {
        PROVE(*p >= '0' && *p <= '9');
        sum = sum * 10 + (unsigned long)(*p - '0');
    }
    PROVE(sum == port && *text);
}
