/* SPDX-License-Identifier: Apache-2.0 */
/* gate.h - requests that wait for other work before they are begun, te_submit_opts.after. */
#ifndef TEI_GATE_H
#define TEI_GATE_H

#include "base/loop.h"
#include "base/queue.h"
#include "core/stream_watch.h"
#include "te.h"

struct batch;
struct gate;
struct plan;

struct gates { /* under ctl.lock */
    struct tei_list held;
    struct tei_timer timer; /* of the first deadline */
    struct stream_watcher streams;
};

void tei_gates_init(struct gates *s);
void tei_gates_fini(struct gates *s);

/* What the requests of one call are to wait for. *out is NULL where that is done already. */
int tei_gate_make(te_engine *e, const te_stream *after, struct gate **out);
/* The requests were not submitted. */
void tei_gate_drop(struct gate *g);
/*
 * Takes over the next `n` tasks of the plan's batch, which are claimed and cut: what was cut is given back, and they
 * are cut anew when the gate opens. The submit lock is held.
 */
void tei_gate_hold(struct gate *g, struct plan *p, size_t n);
/* Ends what is held of a batch CANCELED. */
void tei_gates_cancel(te_engine *e, const struct batch *b);
/* The same of everything, for good: the engine is closing. */
void tei_gates_close(te_engine *e);
/* Gives what is held the views that its peers have now, so that older ones may go. */
void tei_gates_renew(te_engine *e);

#endif
