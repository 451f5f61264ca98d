/* SPDX-License-Identifier: Apache-2.0 */
/* notify.h - messages that follow requests. */
#ifndef TEI_NOTIFY_H
#define TEI_NOTIFY_H

#include "base/jobs.h"
#include "base/sock.h"
#include "te.h"

#include <stdatomic.h>
#include <stdbool.h>

/* What te_submit() or te_notify_after() promised to send once all requests are done. */
struct group {
    te_engine *engine;
    _Atomic size_t left;
    _Atomic bool failed;
    te_segment target;
    struct tei_hostport where;
    te_message message;
    struct group *next; /* in batch.after */
    struct tei_job job;
};

int tei_group_create(te_engine *e, const te_submit_opts *o, size_t n, struct group **out);
void tei_group_free(struct group *g);
void tei_group_done(struct group *g, size_t n, bool failed);

#endif
