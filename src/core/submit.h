/* SPDX-License-Identifier: Apache-2.0 */
/* submit.h - the whole of a te_submit(). */
#ifndef TEI_SUBMIT_H
#define TEI_SUBMIT_H

#include "core/plan.h"

/*
 * Claims and plans the next `n` tasks of the batch; on failure it leaves them holding nothing.
 */
typedef int (*tei_fill)(struct plan *p, struct task *tasks, size_t n, const void *arg);
int tei_submit(te_engine *e, te_batch id, size_t n, const te_submit_opts *opts, tei_fill fill,
               const void *arg);

#endif
