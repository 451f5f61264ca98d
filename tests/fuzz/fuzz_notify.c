/* SPDX-License-Identifier: Apache-2.0 */
/* Notifications of peers: what is accepted comes back the same from its own encoding. */
#include "meta/meta.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *name, *msg, *name2, *msg2, *text;

    te_log_set_level(TE_LOG_OFF);
    if (tei_notify_decode((const char *)data, size, &name, &msg))
        return 0;
    assert(tei_notify_encode(name, msg, &text) == 0);
    assert(tei_notify_decode(text, strlen(text), &name2, &msg2) == 0);
    assert(strcmp(name, name2) == 0 && strcmp(msg, msg2) == 0);
    free(name);
    free(msg);
    free(name2);
    free(msg2);
    free(text);
    return 0;
}
