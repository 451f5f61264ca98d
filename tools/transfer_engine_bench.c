/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures reads or writes between this process and a target, or checks that they arrive whole, or
 * replays a trace.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "common_colour.h"
#include "common_flags.h"
#include "common_load.h"
#include "common_setup.h"
#include "common_units.h"
#include "te.h"
#include "transfer_engine_bench/sweep.h"
#include "transfer_engine_bench/trace_replay.h"

#define TOOL "transfer_engine_bench"

struct bench_flags {
    const char *backend, *sweep_block_size, *sweep_batch_size, *sweep_threads;
    const char *html, *sweep_limits;
    bool init_mem, json, sweep, verify, poll;
};

#define ROW(member) .name = #member, .offset = offsetof(struct bench_flags, member)

static const struct flag bench_flag_table[] = {
    {ROW(init_mem), .kind = FLAG_SWITCH, .initial = "true",
     .help = "Fill the buffers with 0xCC before the test, so that no page is touched first in it."},
    {ROW(backend), .kind = FLAG_TEXT, .initial = "classic", .choices = "classic",
     .help = "The engine; there is one."},
    {ROW(verify), .kind = FLAG_SWITCH, .initial = "false",
     .help = "Write random data, read it back, compare every byte; exit 1 on a difference."},
    {ROW(poll), .kind = FLAG_SWITCH, .initial = "false",
     .help = "Ask for every request's state in a loop, which times each, instead of sleeping."},
    {ROW(json), .kind = FLAG_SWITCH, .initial = "false",
     .help = "Print one JSON object on stdout, and everything else on stderr."},
    {ROW(sweep), .kind = FLAG_SWITCH, .initial = "false",
     .help = "Measure every combination of the three lists below, --duration each (default 1: with "
             "the\n      lists as they are, 36 rows, so some 40 seconds)."},
    {ROW(sweep_block_size), .kind = FLAG_TEXT, .initial = "4K..4M*4",
     .help = "List of sizes: A,B or A..B (doubling) or A..B*F."},
    {ROW(sweep_batch_size), .kind = FLAG_TEXT, .initial = "1,16", .help = "List, as above."},
    {ROW(sweep_threads), .kind = FLAG_TEXT, .initial = "1,2,4", .help = "List, as above."},
    {ROW(html), .kind = FLAG_TEXT, .initial = "",
     .help = "With --sweep: write a page with charts of throughput and latency to this file."},
    {ROW(sweep_limits), .kind = FLAG_TEXT, .initial = "",
     .help = "With --html: file with the lines of raw_stream --json and its like, to be drawn as\n"
             "      limits; none: memcpy is measured here, which takes a second."},
};

struct bench {
    struct setup_flags common;
    struct bench_flags own;
    struct replay_flags trace;
    struct flags line;
    struct sweep sweep; /* its lists have one value each without --sweep */
    struct setup setup;
    struct replay replay; /* --trace */
    FILE *text;           /* where tables and lines go: stdout, or stderr with --json */
    json_t *out;
    bool failed;
};

/* ---- What is told ---------------------------------------------------------------------------- */

static void print_latency(FILE *out, const char *what, const struct hist *h)
{
    fprintf(out, "%s: avg %.1f, p50 %.1f, p99 %.1f, p99.9 %.1f, max %.1f us\n", what,
            hist_mean_us(h), hist_quantile_us(h, 0.5), hist_quantile_us(h, 0.99),
            hist_quantile_us(h, 0.999), (double)h->max_ns / 1e3);
}

static double iops(const struct load_result *r)
{
    return r->seconds > 0 ? (double)r->requests / r->seconds : 0;
}

static void print_result(const struct bench *b, const struct load *load,
                         const struct load_result *r)
{
    char carriers[SETUP_NAMES_MAX];

    if (r->failed || r->corrupt) {
        fprintf(b->text, "%sTest failed%s ", colour_on(b->text, COLOUR_BAD), colour_off(b->text));
        if (r->batches)
            fprintf(b->text, "after %.*f s and %" PRIu64 " batches\n", (int)load->precision,
                    r->seconds, r->batches);
        else
            fprintf(b->text, "before the first batch had ended\n");
        return;
    }
    load_report(b->text, load, r);
    setup_carriers(load->setup, load->opcode, load->block, carriers);
    fprintf(b->text, "Carried by: %s\n", carriers);
    fprintf(b->text, "IOPS: %.0f requests/s\n", iops(r));
    print_latency(b->text, "Batch latency", &r->batch);
    print_latency(b->text,
                  load->poll ? "Request latency" : "Request latency (batch latency / requests)",
                  &r->request);
    if (load->verify)
        fprintf(b->text, "Verified: %" PRIu64 " bytes, %s0 errors%s\n", r->verified,
                colour_on(b->text, COLOUR_GOOD), colour_off(b->text));
}

static json_t *latency_json(const struct hist *h)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "avg", hist_mean_us(h), "min",
                     (double)h->min_ns / 1e3, "p50", hist_quantile_us(h, 0.5), "p99",
                     hist_quantile_us(h, 0.99), "p999", hist_quantile_us(h, 0.999), "max",
                     (double)h->max_ns / 1e3);
}

/* Text that came from outside may be no UTF-8, which JSON cannot hold. */
static json_t *text_json(const char *text)
{
    json_t *o = json_string(text);
    return o ? o : json_string("told on standard error");
}

static json_t *result_json(const struct load *load, const struct load_result *r)
{
    double rate = r->seconds > 0 ? (double)r->bytes / r->seconds : 0;
    char carriers[SETUP_NAMES_MAX];

    setup_carriers(load->setup, load->opcode, load->block, carriers);
    json_t *o =
        json_pack("{s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:f, s:f, s:s, s:f, s:o, s:o, s:s, s:b}",
                  "block_size", (json_int_t)load->block, "batch_size", (json_int_t)load->batch,
                  "threads", (json_int_t)load->threads, "duration_s", r->seconds, "batch_count",
                  (json_int_t)r->batches, "request_count", (json_int_t)r->requests, "bytes",
                  (json_int_t)r->bytes, "throughput_bytes_per_s", rate, "throughput",
                  rate / load->report_bytes, "report_unit", load->report_unit, "iops", iops(r),
                  "batch_latency_us", latency_json(&r->batch), "request_latency_us",
                  latency_json(&r->request), "carried_by", carriers, "failed",
                  (int)(r->failed || r->corrupt));
    if (o && r->error[0])
        json_object_set_new(o, "error", text_json(r->error));
    if (o && load->verify)
        json_object_set_new(o, "verified_bytes", json_integer((json_int_t)r->verified));
    if (o && load->verify)
        json_object_set_new(o, "corrupt", json_boolean(r->corrupt));
    return o;
}

static json_t *stats_json(te_engine *e)
{
    struct te_stats st = {.size = sizeof(st)};
    if (te_stats(e, &st))
        return json_object();
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requests_submitted",
                     (json_int_t)st.requests_submitted, "requests_completed",
                     (json_int_t)st.requests_completed, "requests_failed",
                     (json_int_t)st.requests_failed, "retries", (json_int_t)st.retries,
                     "reconnects", (json_int_t)st.reconnects, "refreshes", (json_int_t)st.refreshes,
                     "connections", (json_int_t)st.connections);
}

static json_t *head_json(const struct bench *b)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:b}", "tool", TOOL,
                     "version", te_version(), "operation", b->common.operation, "protocol",
                     b->setup.protocol, "metadata_server", b->common.metadata_server, "segment_id",
                     b->common.segment_id, "local_server_name", b->setup.name, "buffer_size",
                     (json_int_t)b->setup.length, "buffers", (json_int_t)b->setup.count, "memory",
                     b->setup.buffers[0].location, "verify", (int)b->own.verify);
}

static void print_json(const json_t *o)
{
    json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    printf("\n");
}

/* Nothing was measured, and that has been told in text. */
static int give_up(struct bench *b, int status)
{
    if (b->own.json) {
        json_t *o = json_pack("{s:s, s:s, s:s, s:b, s:o}", "tool", TOOL, "version", te_version(),
                              "operation", b->common.operation, "failed", 1, "error",
                              text_json(b->setup.error));
        print_json(o);
        json_decref(o);
    }
    setup_close(&b->setup);
    return status;
}

/* ---- One measurement, and many --------------------------------------------------------------- */

static struct load make_load(const struct bench *b, uint64_t block, uint64_t batch,
                             uint64_t threads)
{
    return (struct load){
        .setup = &b->setup,
        .tool = TOOL,
        .opcode = strcmp(b->common.operation, "write") == 0 ? TE_WRITE : TE_READ,
        .block = block,
        .batch = batch,
        .threads = threads,
        .seconds = b->own.sweep && !flags_given(&b->line, "duration") ? 1 : b->common.duration,
        .batches = b->common.batches,
        .deadline_ms = b->common.deadline_ms,
        .verify = b->own.verify,
        .poll = b->own.poll,
        .progress = isatty(STDERR_FILENO) == 1,
        .row = b->own.sweep ? b->sweep.count + 1 : 0,
        .rows = b->own.sweep ? sweep_total(&b->sweep) : 0,
        .report_bytes = units_report(b->common.report_unit),
        .report_unit = b->common.report_unit,
        .precision = b->common.report_precision,
    };
}

static void run_once(struct bench *b)
{
    struct load load =
        make_load(b, b->sweep.block.at[0], b->sweep.batch.at[0], b->sweep.threads.at[0]);
    static struct load_result result;
    b->failed = !load_run(&load, &result);
    print_result(b, &load, &result);
    json_t *o = result_json(&load, &result);
    json_object_update(b->out, o);
    json_decref(o);
}

static void print_point(const struct bench *b, const struct load *load, const struct load_result *r)
{
    double rate = r->seconds > 0 ? (double)r->bytes / r->seconds / 1e9 : 0;
    fprintf(b->text, "%12" PRIu64 " %8" PRIu64 " %8" PRIu64 " %12.3f %14.1f %12.1f %12.1f %12.1f\n",
            load->block, load->batch, load->threads, rate, hist_mean_us(&r->batch),
            hist_quantile_us(&r->batch, 0.5), hist_quantile_us(&r->batch, 0.99),
            hist_quantile_us(&r->batch, 0.999));
    fflush(b->text);
}

/* Measures one combination; false when the sweep is to end. */
static bool run_point(struct bench *b, json_t *points, uint64_t block, uint64_t batch,
                      uint64_t threads)
{
    struct load load = make_load(b, block, batch, threads);
    static struct load_result result;
    sweep_fit_load(&load);
    bool ok = load_run(&load, &result);
    print_point(b, &load, &result);
    json_t *o = result_json(&load, &result);
    if (o && load.batch != batch)
        json_object_set_new(o, "batch_size_asked", json_integer((json_int_t)batch));
    json_array_append_new(points, o);
    if (!sweep_add(&b->sweep, &load, &result))
        ok = setup_fail(&b->setup, "no memory for the points of --sweep: shorten its lists");
    b->failed |= !ok;
    return ok && !result.interrupted;
}

static void run_sweep(struct bench *b)
{
    const struct sweep *s = &b->sweep;
    json_t *points = json_array();
    bool more = true;

    fprintf(b->text, "%12s %8s %8s %12s %14s %12s %12s %12s\n", "BlkSize (B)", "Batch", "Threads",
            "BW (GB/s)", "Avg Lat (us)", "P50 (us)", "P99 (us)", "P999 (us)");
    for (size_t t = 0; more && t < s->threads.count; t++) {
        for (size_t n = 0; more && n < s->batch.count; n++) {
            for (size_t i = 0; more && i < s->block.count; i++)
                more = run_point(b, points, s->block.at[i], s->batch.at[n], s->threads.at[t]);
        }
    }
    struct load load = make_load(b, 0, 0, 0);
    if (b->own.html[0] && !sweep_draw(s, &b->setup, b->own.html, &load))
        b->failed = true;
    json_object_set_new(b->out, "points", points);
    json_object_set_new(b->out, "failed", json_boolean(b->failed));
    if (b->setup.error[0])
        json_object_set_new(b->out, "error", text_json(b->setup.error));
}

/* ---- Both sides ------------------------------------------------------------------------------ */

static bool read_list(struct bench *b, const char *name, const char *text, uint64_t max,
                      struct sweep_list *p)
{
    bool ok = units_parse_list(text, p->at, SWEEP_LIST_MAX, &p->count);
    for (size_t i = 0; ok && i < p->count; i++)
        ok = p->at[i] >= 1 && p->at[i] <= max;
    return ok || setup_fail(&b->setup,
                            "bad value '%s' for --%s: expected a list such as 4K,64K or 4K..4M*4",
                            text, name);
}

static bool read_points(struct bench *b)
{
    struct sweep *s = &b->sweep;
    if (!b->own.sweep) {
        s->block = (struct sweep_list){.at = {b->common.block_size}, .count = 1};
        s->batch = (struct sweep_list){.at = {b->common.batch_size}, .count = 1};
        s->threads = (struct sweep_list){.at = {b->common.threads}, .count = 1};
        return true;
    }
    return read_list(b, "sweep_block_size", b->own.sweep_block_size, 1ull << 40, &s->block) &&
           read_list(b, "sweep_batch_size", b->own.sweep_batch_size, 1u << 20, &s->batch) &&
           read_list(b, "sweep_threads", b->own.sweep_threads, 1024, &s->threads);
}

/* Whether the flags of a sweep go together. */
static bool check_sweep(struct bench *b)
{
    static const char *const files[] = {"html", "sweep_limits"};
    const char *values[] = {b->own.html, b->own.sweep_limits};

    if (b->own.sweep && strcmp(b->common.mode, "target") == 0)
        return setup_fail(&b->setup, "--sweep is for the initiator: leave it out with "
                                     "--mode=target");
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (!flags_given(&b->line, files[i]))
            continue;
        if (!values[i][0])
            return setup_fail(&b->setup, "--%s needs the name of a file", files[i]);
        if (!b->own.sweep)
            return setup_fail(&b->setup, "--%s goes with --sweep: give that, too", files[i]);
    }
    return !b->own.sweep_limits[0] || b->own.html[0] ||
           setup_fail(&b->setup, "--sweep_limits goes with --html=FILE, which draws them");
}

static uint64_t greatest(const struct sweep_list *p)
{
    uint64_t value = 0;
    for (size_t i = 0; i < p->count; i++)
        value = p->at[i] > value ? p->at[i] : value;
    return value;
}

static int run_target(struct bench *b)
{
    if (!setup_open(&b->setup, b->common.buffer_size))
        return give_up(b, 1);
    setup_serve(&b->setup);
    setup_close(&b->setup);
    return 0;
}

static void close_output(struct bench *b)
{
    if (b->own.json) {
        json_object_set_new(b->out, "stats", stats_json(b->setup.engine));
        print_json(b->out);
    }
    json_decref(b->out);
}

static int run_load(struct bench *b, uint64_t need)
{
    uint64_t length = setup_raise(TOOL, b->common.buffer_size, b->own.verify ? 2 * need : need);
    if (!sweep_prepare(&b->sweep, &b->setup, b->own.html, b->own.sweep_limits))
        return give_up(b, 1);
    if (!setup_open_both(&b->setup, length, need))
        return give_up(b, 1);
    b->out = head_json(b);
    if (b->own.sweep)
        run_sweep(b);
    else
        run_once(b);
    close_output(b);
    sweep_free(&b->sweep);
    setup_close(&b->setup);
    return b->failed ? 1 : 0;
}

static int run_trace(struct bench *b)
{
    static struct replay_result result;
    struct replay *r = &b->replay;
    uint64_t length = setup_raise(TOOL, b->common.buffer_size, replay_need(r));

    if (!setup_open_both(&b->setup, length, r->block))
        return give_up(b, 1);
    b->out = head_json(b);
    b->failed = !replay_run(r, &result);
    replay_print(b->text, r, &result);
    json_t *o = replay_json(r, &result);
    if (b->failed)
        json_object_set_new(o, "error", text_json(b->setup.error));
    json_object_update(b->out, o);
    json_decref(o);
    close_output(b);
    setup_close(&b->setup);
    return b->failed ? 1 : 0;
}

/* Reads the trace first: what is wrong with it is told before anything is opened. */
static int replay(struct bench *b)
{
    b->common.operation = "write";
    int status = replay_read(&b->replay) ? run_trace(b) : give_up(b, 1);
    replay_fini(&b->replay);
    return status;
}

static int run_initiator(struct bench *b)
{
    b->text = b->own.json ? stderr : stdout;
    b->replay = (struct replay){.setup = &b->setup,
                                .flags = &b->trace,
                                .verify = b->own.verify,
                                .progress = isatty(STDERR_FILENO) == 1};
    if (!replay_check(&b->replay))
        return give_up(b, 2);
    if (b->trace.trace[0])
        return replay(b);
    /* A sweep lowers a batch that does not fit. */
    uint64_t need = setup_need(greatest(&b->sweep.block), b->own.sweep ? 1 : b->common.batch_size,
                               greatest(&b->sweep.threads));
    if (need)
        return run_load(b, need);
    setup_fail(&b->setup, "block * batch * threads is too large");
    return give_up(b, 2);
}

int main(int argc, char **argv)
{
    static struct bench b;
    const struct flag_table tables[] = {
        {setup_flag_table, setup_flag_count, &b.common},
        {bench_flag_table, sizeof(bench_flag_table) / sizeof(bench_flag_table[0]), &b.own},
        {replay_flag_table, replay_flag_count, &b.trace},
    };
    b.line = (struct flags){
        .tool = TOOL,
        .about =
            "Measures how fast an initiator reads or writes the memory of a target. Start one\n"
            "with --mode=target, then another with --segment_id set to the name that the\n"
            "first one prints.",
        .tables = tables,
        .count = sizeof(tables) / sizeof(tables[0]),
    };
    int status = flags_parse(&b.line, argc, argv);
    if (status >= 0)
        return status;
    if (!setup_begin(&b.setup, &b.common, &b.line) || !check_sweep(&b) || !read_points(&b))
        return give_up(&b, 2);
    b.common.init_mem = b.own.init_mem;
    setup_block_signals();
    return strcmp(b.common.mode, "target") == 0 ? run_target(&b) : run_initiator(&b);
}
