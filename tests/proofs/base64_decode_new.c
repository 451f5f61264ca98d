/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever becomes of a text: no memory is lost, and the bytes have a NUL behind them. */
/* proof: --unsigned-overflow-check --unwind 10 --memory-leak-check */
#include "base/base64.c"
#include "proof.h"
#include "te.h"

enum { MAX = 9 };

void proof(void)
{
    char text[MAX], *data;
    size_t n, len;
    int rc;

    ASSUME(n <= MAX);
    rc = tei_base64_decode_new(text, n, &data, &len);
    PROVE(rc == 0 || rc == TE_ERR_MEMORY || rc == TE_ERR_INVALID);
    if (rc)
        return;
    PROVE(data[len] == '\0');
    free(data);
}
