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
    "- A **histogram** has a bucket for each power of two from 1 us to 69 s, of sizes from 1 KiB to 64 GiB, that of all of\n"
    "  the time also for the middle of two:\n"
    "  `histogram_quantile(0.99, sum by (le) (rate(transfer_engine_request_seconds_bucket[5m])))`.\n"
    "- **opcode** is `read` or `write`, **transport** a name as in `te_explain()`, or `stage` for memory of\n"
    "  devices that is copied through host memory.\n"
    "- Of a **NIC** there are bytes, what it had to carry again, and its connections. There are no attempts by NIC: an\n"
    "  attempt is a piece of work of a transport, which may go by several NICs at a time, in parts that only `rdma`\n"
    "  counts as such; of these, `transfer_engine_nic_resent_total` has those that failed.\n"
    "- Series of times are there once there is something to tell.\n"
    "- In the line of a slow request ([tracing.md](tracing.md#slow-requests)) the words are narrower: its queue is without\n"
    "  the time for the descriptor and for earlier attempts, which it tells apart; its path changes are those of NICs and\n"
    "  addresses, a change of transport is among its restarts.\n"
    "\n"
    "Counting costs some instructions for each run of requests that end together, and no lock; times are\n"
    "sampled. All of it takes less than 1 % of the time of a read of 4 KiB:\n"
    "[performance.md](performance.md#what-counting-costs).\n"
    "\n"
    "| Name | Type | Labels | Meaning |\n"
    "|---|---|---|---|\n";

static const char counterparts_head[] =
    "\n"
    "## For queries of other engines\n"
    "\n"
    "What metrics of TENT (Mooncake), NIXL, the Mooncake transfer engine (as its issue 2958 asks for them) and the NIXL\n"
    "connector of vLLM are called here. Times are in seconds here.\n"
    "\n"
    "| Theirs | Here |\n"
    "|---|---|\n";

#define OURS(name) "`transfer_engine_" name "`"

/* A line for each: their names, each between backquotes, and ours, or why there is none. */
static const struct {
    const char *theirs, *ours;
} counterparts[] = {
    {"`tent_read_requests_total`, `tent_write_requests_total`",
     OURS("requests_completed_total") " and " OURS("requests_failed_total") ", together"},
    {"`tent_read_bytes_total`, `tent_write_bytes_total`",
     OURS("bytes_total") ", " OURS("transport_bytes_total")},
    {"`tent_read_failures_total`, `tent_write_failures_total`", OURS("requests_failed_total")},
    {"`tent_task_failures_total`", OURS("request_errors_total") " by error, " OURS(
                                       "transport_attempt_failures_total") " by transport"},
    {"`tent_read_latency_us`, `tent_write_latency_us`", OURS("request_seconds")},
    {"`tent_read_size_bytes`, `tent_write_size_bytes`", OURS("request_size_bytes")},
    {"`tent_transport_attempts_total`", OURS("transport_attempts_total")},
    {"`tent_transport_attempt_failures_total`", OURS("transport_attempt_failures_total")},
    {"`tent_transport_attempt_latency_us`",
     OURS("request_wire_seconds") ", of the attempt that succeeded"},
    {"`tent_transport_failover_total`", OURS("request_failovers_total")},
    {"`tent_stage_queue_wait_us`, `tent_stage_dispatch_us`",
     OURS("request_queue_seconds") ", both in one"},
    {"`tent_stage_transport_us`", OURS("request_wire_seconds")},
    {"`tent_inflight_attempts`", OURS("inflight_requests")},
    {"`tent_registered_buffer_bytes`",
     OURS("registered_bytes") ": what is registered is so for all transports"},
    {"`tent_deadline_infeasible_total`",
     "none: a deadline is a time from the submit on, so it has never passed then"},
    {"`tent_deadline_mlu_permille`",
     "none: deadlines change no order here; " OURS(
         "request_errors_total") " has those that were missed, as TE_ERR_TIMEOUT"},
    {"`agent_tx_bytes_total`, `agent_rx_bytes_total`",
     OURS("bytes_total") "; what peers have moved: " OURS("served_sent_bytes_total") ", " OURS(
         "served_received_bytes_total")},
    {"`agent_tx_requests_num_total`, `agent_rx_requests_num_total`",
     OURS("requests_completed_total")},
    {"`agent_xfer_time_total`, `agent_xfer_time_us`", OURS("request_seconds")},
    {"`agent_xfer_post_time_total`, `agent_xfer_post_time_us`", OURS("request_queue_seconds")},
    {"`agent_memory_registered_total`", OURS("memory_registered_bytes_total")},
    {"`agent_memory_deregistered_total`", OURS("memory_deregistered_bytes_total")},
    {"`agent_errors_total`", OURS("request_errors_total")},
    {"`agent_telemetry_events_dropped_total`",
     "none: counters miss nothing, and a sample counts for the requests around it"},
    {"`transfer_requests_total`", OURS("requests_submitted_total")},
    {"`transfer_bytes_total`", OURS("bytes_total")},
    {"`transfer_failures_total`", OURS("requests_failed_total")},
    {"`inflight_transfers`", OURS("inflight_requests")},
    {"`transfer_latency_seconds`", OURS("request_seconds")},
    {"`vllm:nixl_xfer_time_seconds`", OURS("request_seconds")},
    {"`vllm:nixl_num_failed_transfers`", OURS("requests_failed_total")},
    {"`vllm:nixl_num_kv_expired_reqs`",
     "none: how long blocks of a cache are kept is the connector's, which counts it"},
};

void metrics_markdown(void)
{
    struct tei_metric_row row;

    fputs(markdown_head, stdout);
    for (size_t i = 0; tei_metric_row(i, &row); i++)
        printf("| `%s` | %s | %s | %s |\n", row.name, row.type, row.labels, row.help);
    fputs(counterparts_head, stdout);
    for (size_t i = 0; i < TEI_ARRAY_LEN(counterparts); i++)
        printf("| %s | %s |\n", counterparts[i].theirs, counterparts[i].ours);
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
