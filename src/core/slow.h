/* SPDX-License-Identifier: Apache-2.0 */
/* slow.h - a line in the log for each request that takes longer than TE_SLOW_MS. Off: no story, no call. */
#ifndef TEI_SLOW_H
#define TEI_SLOW_H

#include "core/batch.h"
#include "transport/transport.h"

/* One story for each task, where TE_SLOW_MS is on. TE_ERR_MEMORY, unlogged. */
int tei_slow_stories(struct batch *b, int64_t slow_ms);
void tei_slow_free(struct batch *b);

static inline struct tei_story *tei_slow_story(const struct task *t)
{
    return t->batch->stories ? &t->batch->stories[t - t->batch->tasks] : NULL;
}

/* `n` tasks from this one on are submitted; tei_slow_story() is there. */
void tei_slow_begin(struct task *first, size_t n);
/* One has waited for other work, which is none of its time, and is about to be given to a transport. */
void tei_slow_let_go(struct task *t);
/* One waits for the descriptor of its target; it is about to be given to a transport, once more or not. */
void tei_slow_parked(struct task *t);
void tei_slow_posted(struct task *t);
/* One has ended with this error; its view is still held. Logs the line if it was slow. */
void tei_slow_ended(struct task *t, int error);

#endif
