/* SPDX-License-Identifier: Apache-2.0 */
/* Notifications of peers, and probes: the message that is accepted comes back the same from its own encoding. */
#include "meta/meta.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tei_counts counts;
    struct tei_probe_ask ask;
    te_message m, again;
    char *text;

    te_log_set_level(TE_LOG_OFF);
    tei_probe_read((const char *)data, size, &ask);
    assert(strlen(ask.counter) <= TEI_COUNT_NAME_MAX);
    if (tei_notify_decode((const char *)data, size, &m, &counts) || !m.name)
        return 0;
    assert(tei_notify_encode(&m, 0, &text) == 0);
    assert(tei_notify_decode(text, strlen(text), &again, NULL) == 0);
    assert(m.name_len == again.name_len && memcmp(m.name, again.name, m.name_len) == 0);
    assert(m.msg_len == again.msg_len && memcmp(m.msg, again.msg, m.msg_len) == 0);
    tei_message_fini(&m);
    tei_message_fini(&again);
    free(text);
    return 0;
}
