/* SPDX-License-Identifier: Apache-2.0 */
/* descriptor.h - our own descriptor, as text. */
#ifndef TEI_DESCRIPTOR_H
#define TEI_DESCRIPTOR_H

#include "core/region.h"
#include "te.h"

#include <pthread.h>

struct descriptor {
    _Atomic uint64_t version;      /* grows with each change */
    pthread_mutex_t lock;          /* held while the text is made */
    struct tei_segment_text *text; /* as last asked for: all that any peer may reach */
    bool for_all;                  /* each peer may reach all of it */
};

void tei_descriptor_init(struct descriptor *d);
void tei_descriptor_fini(struct descriptor *d);
/*
 * Our descriptor: the page of at most max_bytes from buffer `from`, or all of it when max_bytes is 0. malloc'ed. A peer
 * is told what it may reach; `by` NULL: all that any peer may.
 */
int tei_descriptor_text(te_engine *e, const struct reader *by, size_t from, size_t max_bytes,
                        char **text, size_t *len);

#endif
