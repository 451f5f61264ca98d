/* SPDX-License-Identifier: Apache-2.0 */
#include "common_colour.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* NO_COLOR counts if it is not empty, as no-color.org has it. */
static bool has_colour(FILE *out)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");

    return isatty(fileno(out)) == 1 && !(none && none[0]) && term && strcmp(term, "dumb") != 0;
}

const char *colour_on(FILE *out, enum colour c)
{
    static const char *const codes[] = {[COLOUR_NONE] = "",
                                        [COLOUR_GOOD] = "\033[32m",
                                        [COLOUR_WARN] = "\033[33m",
                                        [COLOUR_BAD] = "\033[31m"};

    return has_colour(out) ? codes[c] : "";
}

const char *colour_off(FILE *out)
{
    return has_colour(out) ? "\033[m" : "";
}

const char *colour_clear(void)
{
    return isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "";
}
