/* SPDX-License-Identifier: Apache-2.0 */
#include "metric.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define PREFIX "transfer_engine_"

char metrics_text[(size_t)1 << 20];

void metrics_look(te_engine *e)
{
    assert_int_equal(te_stats_text(e, metrics_text, sizeof(metrics_text)), 0);
}

const char *metric_find(const char *series)
{
    size_t head = strlen(PREFIX), n = strlen(series);

    for (const char *line = metrics_text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, PREFIX, head) == 0 && strncmp(line + head, series, n) == 0 &&
            line[head + n] == ' ')
            return line + head + n + 1;
    }
    return NULL;
}

unsigned long long metric(const char *series)
{
    const char *at = metric_find(series);

    if (!at)
        fail_msg("no %s in\n%s", series, metrics_text);
    return strtoull(at, NULL, 10);
}

unsigned long long metric_of(te_engine *e, const char *series)
{
    metrics_look(e);
    return metric(series);
}
