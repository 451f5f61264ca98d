/* SPDX-License-Identifier: Apache-2.0 */
/* inbox.h - messages that have come. */
#ifndef TEI_INBOX_H
#define TEI_INBOX_H

#include "base/queue.h"
#include "te.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct inbox {
    pthread_mutex_t lock;
    struct tei_list entries;
    struct tei_list sources; /* of the messages in it */
    size_t n, bytes;
    _Atomic uint64_t received;
};

void tei_inbox_init(struct inbox *b);
void tei_inbox_fini(struct inbox *b);
/* `source`: the key of the sender's address, base/source.h; NULL: this engine. Takes over both parts. */
int tei_inbox_add(struct inbox *b, const uint8_t *source, te_message *m);

#endif
