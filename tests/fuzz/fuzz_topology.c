/* SPDX-License-Identifier: Apache-2.0 */
/* Priority matrices: what is accepted reads back from its own text. */
#include "model/model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tei_topology a, b;
    char *text, *again;

    te_log_set_level(TE_LOG_OFF);
    if (tei_topology_decode((const char *)data, size, &a))
        return 0;
    text = tei_topology_encode(&a);
    assert(text && tei_topology_decode(text, strlen(text), &b) == 0);
    again = tei_topology_encode(&b);
    assert(again && strcmp(text, again) == 0 && a.n_rows == b.n_rows);
    free(text);
    free(again);
    tei_topology_fini(&a);
    tei_topology_fini(&b);
    return 0;
}
