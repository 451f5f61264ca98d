/* SPDX-License-Identifier: Apache-2.0 */
/* Colour for words that tell good from bad, where a terminal shows it and NO_COLOR does not forbid it. */
#ifndef TOOLS_COMMON_COLOUR_H
#define TOOLS_COMMON_COLOUR_H

#include <stdio.h>

enum colour { COLOUR_NONE, COLOUR_GOOD, COLOUR_WARN, COLOUR_BAD };

/* What to write before and after the word; "" where `out` has no colour. */
const char *colour_on(FILE *out, enum colour c);
const char *colour_off(FILE *out);

/* What to write to standard error before a line: it clears the live line of a terminal. */
const char *colour_clear(void);

#endif
