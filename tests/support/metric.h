/* SPDX-License-Identifier: Apache-2.0 */
/* metric.h - what te_stats_text() tells of an engine. */
#ifndef TEST_METRIC_H
#define TEST_METRIC_H

#include "te.h"

#include <stddef.h>

/* What metrics_look() has found last. */
extern char metrics_text[(size_t)1 << 20];

void metrics_look(te_engine *e);
/* Where it has the value of a series, by its name without transfer_engine_, and its labels; NULL: it has none. */
const char *metric_find(const char *series);
/* The same as a number; the test fails if there is none. */
unsigned long long metric(const char *series);
/* The same after another look. */
unsigned long long metric_of(te_engine *e, const char *series);

#endif
