/* SPDX-License-Identifier: Apache-2.0 */
/* complete.h - the end of requests. */
#ifndef TEI_COMPLETE_H
#define TEI_COMPLETE_H

#include "te.h"
#include "transport/transport.h"

struct batch;
struct group;
struct task;

/* struct tei_host op: the one completion function. */
void tei_work_done(struct tei_host *h, struct tei_list *done);
/* struct tei_host op. */
const char *tei_work_note(struct tei_host *h, const struct tei_work *w, const char *text);
/* Ends a task that has no work with a transport: never posted, parked, or empty. */
void tei_task_end(struct task *t, int error, const char *why);
/*
 * An error of a part of a task that is not over. The first one stands, but for one that would let the
 * request be tried again: of several pieces each must be so, or bytes of a dead attempt might arrive after
 * the second one has completed.
 */
void tei_task_fail(struct task *t, int error, int sys_errno, const char *why);
/* Nothing of the task is under way any more: it ends, or is tried again. */
void tei_task_over(struct task *t);
/* True if te_cancel() or te_engine_destroy() got this task. */
bool tei_task_canceled(const struct task *t);
/* Sends a message once no request of the batch is unfinished. Takes it over. */
void tei_batch_after(struct batch *b, struct group *g);
/* Marks `n` tasks of a batch unfinished, before they are posted. */
void tei_batch_begin(struct batch *b, size_t n);

#endif
