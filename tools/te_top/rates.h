/* SPDX-License-Identifier: Apache-2.0 */
/* rates.h - what an engine does, as the document that --json prints and the screen shows. */
#ifndef TE_TOP_RATES_H
#define TE_TOP_RATES_H

#include <jansson.h>

#include "te_top/samples.h"

/*
 * Two looks at an engine, so many seconds apart. NULL: no memory. Quantities are by second, times in
 * seconds; a quantile is null if nothing has ended.
 */
json_t *rates_of(const struct samples *was, const struct samples *now, double seconds);

#endif
