/* SPDX-License-Identifier: Apache-2.0 */
/* One page, complete in itself, that shows a sweep: charts, limits, all numbers. */
#ifndef TOOLS_TRANSFER_ENGINE_BENCH_HTML_H
#define TOOLS_TRANSFER_ENGINE_BENCH_HTML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "transfer_engine_bench/sweep.h"

/* Something the page says of how it was measured. */
struct html_fact {
    const char *name;
    char value[320];
};

/* Prints the page: HTML that is well-formed XML, too. */
void html_print(FILE *out, const struct sweep *s, const struct html_fact *facts, size_t count);

/* Whether a page can be written to `path`; else what is wrong, at most `n` bytes of it. */
bool html_try(const char *path, char *error, size_t n);

/* Writes the page beside `path` and renames it, so that there is never half a page. */
bool html_write(const char *path, const struct sweep *s, const struct html_fact *facts,
                size_t count, char *error, size_t n);

#endif
