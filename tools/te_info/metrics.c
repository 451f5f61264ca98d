/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/metrics.h"

#include <stdio.h>

#include "core/metrics.h"

static const char markdown_head[] =
    "# Metrics\n"
    "\n"
    "This page lists every metric of an engine: its type, its labels and what it tells. It is printed from\n"
    "the table of the engine, `src/core/metrics.def`, by `make docs`.\n"
    "\n"
    "`te_stats_text()` gives them as text in the format of Prometheus, and so do `metrics_text()` in Python\n"
    "and Rust and `MetricsText()` in Go. `TE_METRICS=127.0.0.1:9464` has an engine serve them at\n"
    "`http://127.0.0.1:9464/metrics`, and `TE_METRICS=file:/run/node_exporter/te-%p.prom` has it write them\n"
    "to a file every ten seconds, for the textfile collector of node_exporter, `%p` being the number of the\n"
    "process. [operations.md](operations.md) tells what to alert on. Those of `te_metad` are in\n"
    "[metad.md](metad.md#metrics).\n"
    "\n"
    "- A **counter** grows from 0 on, since the engine was made; `rate()` makes a rate of it.\n"
    "- A **gauge** is a value of now.\n"
    "- A **histogram** has a bucket for each power of two from 1 us to 69 s, that of all of the time also for the\n"
    "  middle of two:\n"
    "  `histogram_quantile(0.99, sum by (le) (rate(transfer_engine_request_seconds_bucket[5m])))`.\n"
    "- **opcode** is `read` or `write`, **transport** a name as in `te_explain()`, or `stage` for memory of\n"
    "  devices that is copied through host memory.\n"
    "- Of a **NIC** there are bytes, what it had to carry again, and its connections. There are no attempts by NIC: an\n"
    "  attempt is a piece of work of a transport, which may go by several NICs at a time, in parts that only `rdma`\n"
    "  counts as such; of these, `transfer_engine_nic_resent_total` has those that failed.\n"
    "- Series of times are there once there is something to tell.\n"
    "\n"
    "Counting costs some instructions for each run of requests that end together, and no lock; times are\n"
    "sampled, so they cost nothing that could be measured.\n"
    "\n"
    "| Name | Type | Labels | Meaning |\n"
    "|---|---|---|---|\n";

void metrics_markdown(void)
{
    struct tei_metric_row row;

    fputs(markdown_head, stdout);
    for (size_t i = 0; tei_metric_row(i, &row); i++)
        printf("| `%s` | %s | %s | %s |\n", row.name, row.type, row.labels, row.help);
}

void metrics_print(void)
{
    struct tei_metric_row row;

    printf("Metrics of an engine (te_stats_text, TE_METRICS):\n");
    for (size_t i = 0; tei_metric_row(i, &row); i++)
        printf("  %s (%s%s%s)\n      %s\n", row.name, row.type, row.labels[0] ? " by " : "",
               row.labels, row.help);
}

json_t *metrics_json(void)
{
    struct tei_metric_row row;
    json_t *all = json_array();

    for (size_t i = 0; tei_metric_row(i, &row); i++)
        json_array_append_new(all, json_pack("{ssssssss}", "name", row.name, "type", row.type,
                                             "labels", row.labels, "help", row.help));
    return all;
}
