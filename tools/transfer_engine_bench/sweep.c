/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer_engine_bench/sweep.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "common_units.h"
#include "transfer_engine_bench/html.h"

#define COPY_SECONDS 1.0 /* that memcpy is measured for */
#define FACTS_MAX    24

/* ---- Points ---------------------------------------------------------------------------------- */

size_t sweep_total(const struct sweep *s)
{
    return s->block.count * s->batch.count * s->threads.count;
}

const struct sweep_point *sweep_at(const struct sweep *s, size_t block, size_t batch,
                                   size_t threads)
{
    size_t at = (threads * s->batch.count + batch) * s->block.count + block;
    return at < s->count ? &s->points[at] : NULL;
}

uint64_t sweep_fit(uint64_t room, uint64_t block, uint64_t batch, uint64_t threads)
{
    uint64_t most = room / block / threads;
    return batch < most ? batch : most;
}

void sweep_fit_load(struct load *load)
{
    const struct setup *setup = load->setup;
    uint64_t room = load->verify ? setup->length / 2 : setup->length;

    for (size_t i = 0; i < setup->remote_count; i++)
        room = setup->remotes[i].length < room ? setup->remotes[i].length : room;
    uint64_t batch = sweep_fit(room, load->block, load->batch, load->threads);
    char block[UNITS_SIZE_MAX], held[UNITS_SIZE_MAX];
    if (batch == load->batch)
        return;
    fprintf(stderr,
            "%s: WARN: batch lowered from %" PRIu64 " to %" PRIu64 " for blocks of %s and %" PRIu64
            " threads: the buffers hold %s (--buffer_size, of both sides)\n",
            load->tool, load->batch, batch, units_size(load->block, block), load->threads,
            units_size(room, held));
    load->batch = batch;
}

bool sweep_add(struct sweep *s, const struct load *load, const struct load_result *r)
{
    if (!s->points)
        s->points = calloc(sweep_total(s), sizeof(*s->points));
    if (!s->points)
        return false;
    double seconds = r->seconds > 0 ? r->seconds : 1;
    s->points[s->count++] = (struct sweep_point){
        .block = load->block,
        .batch = load->batch,
        .threads = load->threads,
        .measured = r->batches > 0 && !r->failed && !r->corrupt,
        .gb_s = (double)r->bytes / seconds / 1e9,
        .iops = (double)r->requests / seconds,
        .avg_us = hist_mean_us(&r->batch),
        .p50_us = hist_quantile_us(&r->batch, 0.5),
        .p99_us = hist_quantile_us(&r->batch, 0.99),
        .p999_us = hist_quantile_us(&r->batch, 0.999),
        .request_p50_us = hist_quantile_us(&r->request, 0.5),
    };
    return true;
}

void sweep_free(struct sweep *s)
{
    free(s->points);
    s->points = NULL;
}

/* ---- Limits ---------------------------------------------------------------------------------- */

bool sweep_prepare(struct sweep *s, struct setup *setup, const char *html, const char *limits)
{
    char error[SETUP_ERROR_MAX];
    if (limits[0] && !limits_read(&s->limits, limits, error, sizeof(error)))
        return setup_fail(setup, "--sweep_limits: %s", error);
    if (!html[0])
        return true;
    if (!html_try(html, error, sizeof(error)))
        return setup_fail(setup, "--html: %s", error);
    if (!limits_have(&s->limits, LIMIT_MEMORY) && !limits_measure_copy(&s->limits, COPY_SECONDS))
        fprintf(stderr, "%s: WARN: no memory to measure memcpy in: the page is without it\n",
                setup->line->tool);
    return true;
}

/* ---- What the page says of the run ----------------------------------------------------------- */

struct facts {
    struct html_fact at[FACTS_MAX];
    size_t count;
};

__attribute__((format(printf, 3, 4))) static void say(struct facts *f, const char *name,
                                                      const char *fmt, ...)
{
    va_list args;
    struct html_fact *fact = &f->at[f->count++];
    fact->name = name;
    va_start(args, fmt);
    vsnprintf(fact->value, sizeof(fact->value), fmt, args);
    va_end(args);
}

/* The first line of a file under /proc, or what follows "KEY   : " in it. */
static void read_proc(const char *path, const char *key, char *out, size_t n)
{
    char line[256];
    FILE *f = fopen(path, "re");
    snprintf(out, n, "unknown");
    while (f && fgets(line, sizeof(line), f)) {
        const char *value = line;
        line[strcspn(line, "\n")] = '\0';
        if (key) {
            if (strncmp(line, key, strlen(key)) != 0 || !(value = strchr(line, ':')))
                continue;
            value += 1 + strspn(value + 1, " \t");
        }
        snprintf(out, n, "%s", value);
        break;
    }
    if (f)
        fclose(f);
}

static void say_host(struct facts *f)
{
    char text[256], own[64] = "";
    struct utsname u;

    read_proc("/proc/cpuinfo", "model name", text, sizeof(text));
    say(f, "CPUs", "%ld, model %s", sysconf(_SC_NPROCESSORS_ONLN), text);
    if (uname(&u) == 0)
        say(f, "Host of this side", "%s: %s %s %s", u.nodename, u.sysname, u.release, u.machine);
    read_proc("/proc/sys/net/ipv4/tcp_congestion_control", NULL, text, sizeof(text));
    te_option_get(NULL, "TE_TCP_CONGESTION", own, sizeof(own));
    say(f, "TCP congestion control", "%s%s%s%s", text, own[0] ? ", the system's; " : "", own,
        own[0] ? " by TE_TCP_CONGESTION" : "");
}

static void say_date(struct facts *f)
{
    char text[64] = "unknown";
    time_t now = time(NULL);
    struct tm tm;
    if (localtime_r(&now, &tm))
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S %z", &tm);
    say(f, "Date", "%s", text);
}

static void say_list(struct facts *f, const char *name, const struct sweep_list *list)
{
    char text[300] = "";
    size_t at = 0;
    for (size_t i = 0; i < list->count && at < sizeof(text); i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%" PRIu64, i ? ", " : "",
                               list->at[i]);
    say(f, name, "%s", text);
}

static void say_best(struct facts *f, const struct sweep *s)
{
    const struct sweep_point *best = s->points;
    char size[UNITS_SIZE_MAX];

    for (size_t i = 1; i < s->count; i++)
        best = s->points[i].gb_s > best->gb_s ? &s->points[i] : best;
    say(f, "Most", "%.2f GB/s: blocks of %s, %" PRIu64 " a batch, %" PRIu64 " thread%s", best->gb_s,
        units_size(best->block, size), best->batch, best->threads, best->threads == 1 ? "" : "s");
}

static void gather(struct facts *f, const struct sweep *s, const struct load *load)
{
    const struct setup *setup = load->setup;
    char carriers[SETUP_NAMES_MAX], size[UNITS_SIZE_MAX];
    setup_carriers(setup, load->opcode, s->block.at[0], carriers);
    say_best(f, s);
    say_date(f);
    say(f, "Program", "%s %s", load->tool, te_version());
    say(f, "Operation", "%s",
        load->verify ? "write, read back and compare" : setup->flags->operation);
    say(f, "Carried by", "%s (protocol %s)", carriers, setup->protocol);
    say(f, "This side", "%s", setup->name);
    say(f, "Target", "%s", setup->flags->segment_id);
    say_list(f, "Requests a batch", &s->batch);
    say_list(f, "Threads", &s->threads);
    say(f, "Duration of each point", "%g s", load->seconds);
    if (load->batches)
        say(f, "Batches of each worker", "at most %" PRIu64, load->batches);
    say(f, "Waiting", "%s", load->poll ? "by asking in a loop (--poll)" : "asleep in te_wait()");
    say(f, "Buffers here", "%zu of %s bytes", setup->count, units_size(setup->length, size));
    say_host(f);
    if (s->count < sweep_total(s))
        say(f, "Ended early", "%zu of %zu points were measured", s->count, sweep_total(s));
}

bool sweep_draw(const struct sweep *s, struct setup *setup, const char *html,
                const struct load *load)
{
    char error[SETUP_ERROR_MAX];
    struct facts facts = {.count = 0};
    bool any = false;

    for (size_t i = 0; i < s->count; i++)
        any |= s->points[i].measured;
    if (!any)
        return setup_fail(setup, "--html: %s is not written: nothing was measured", html);
    gather(&facts, s, load);
    if (!html_write(html, s, facts.at, facts.count, error, sizeof(error)))
        return setup_fail(setup, "--html: %s", error);
    fprintf(stderr, "%s: wrote %s\n", setup->line->tool, html);
    return true;
}
