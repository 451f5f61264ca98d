/* SPDX-License-Identifier: Apache-2.0 */
/* observe.h - counters. */
#ifndef TEI_OBSERVE_H
#define TEI_OBSERVE_H

#include "base/loop.h"
#include "te.h"

/* MC_TE_METRIC */
struct metric_line {
    struct tei_timer timer; /* under ctl.lock */
    struct te_stats last;   /* what the line before told */
};

/* What te_stats() gives. */
void tei_stats_read(te_engine *e, struct te_stats *s);
/* Begins to log a line of figures every interval, if MC_TE_METRIC asks for it. Under ctl.lock. */
void tei_metric_start(te_engine *e);

#endif
