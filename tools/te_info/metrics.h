/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h - what te_stats_text() tells, as a page to be read (docs/metrics.md), text or JSON. */
#ifndef TE_INFO_METRICS_H
#define TE_INFO_METRICS_H

#include <jansson.h>

/* Both print to standard output. */
void metrics_markdown(void);
void metrics_print(void);
/* An array of objects. */
json_t *metrics_json(void);

#endif
