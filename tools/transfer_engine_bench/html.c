/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer_engine_bench/html.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common_units.h"
#include "common_xml.h"
#include "transfer_engine_bench/chart.h"

/* ---- The page -------------------------------------------------------------------------------- */

static const char *const head[] = {
    "<!DOCTYPE html>",
    "<html lang=\"en\">",
    "<head>",
    "<meta charset=\"utf-8\"/>",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>",
    "<title>Transfer Engine: throughput and latency by block size</title>",
    "<style>",
    ":root { color-scheme: light dark; --back: #fcfcfb; --ink: #1f1f1d; --soft: #63625d;",
    "  --line: #e4e3de; --limit: #63625d; --c0: #2a78d6; --c1: #d9571f; --c2: #14875d;",
    "  --c3: #a87300; --c4: #c2478a; --c5: #008300; --c6: #4a3aa7; --c7: #c92f2e; }",
    "@media (prefers-color-scheme: dark) { :root { --back: #1a1a19; --ink: #f2f1ec;",
    "  --soft: #b0aea6; --line: #383835; --limit: #b0aea6; --c0: #5a9ff0; --c1: #ee7a4c;",
    "  --c2: #35b98a; --c3: #d6a42b; --c4: #e287b0; --c5: #55b355; --c6: #a29af0;",
    "  --c7: #f07f7f; } }",
    "body { background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;",
    "  max-width: 92rem; margin: 0 auto; padding: 1rem 1.25rem 3rem; }",
    "h1 { font-size: 1.4rem; margin: 0.5rem 0 0; } h2 { font-size: 1.1rem; margin: 2rem 0 0; }",
    "p { margin: 0.4rem 0; max-width: 70rem; } p, figcaption, th { color: var(--soft); }",
    ".charts { display: grid; gap: 1rem; margin: 0.5rem 0;",
    "  grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }",
    "figure { margin: 0; } figcaption { font-weight: 600; }",
    "svg.chart { width: 100%; height: auto; display: block; }",
    "svg text { fill: var(--soft); font-size: 12px; }",
    ".grid { stroke: var(--line); } .base { stroke: var(--soft); }",
    ".curve { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }",
    ".dot { fill: currentColor; stroke: var(--back); stroke-width: 1.5; }",
    ".hit { fill: transparent; } .point:hover .dot { r: 6px; }",
    ".limit line { stroke: var(--limit); stroke-width: 1.5; stroke-dasharray: 6 4; }",
    "svg .name { paint-order: stroke; stroke: var(--back); stroke-width: 3px;",
    "  pointer-events: none; }",
    ".c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); }",
    ".c3 { color: var(--c3); } .c4 { color: var(--c4); } .c5 { color: var(--c5); }",
    ".c6 { color: var(--c6); } .c7 { color: var(--c7); }",
    ".legend { list-style: none; display: flex; flex-wrap: wrap; gap: 0.2rem 1.4rem; padding: 0; }",
    ".key { display: inline-block; width: 1.6rem; border-top: 3px solid; margin-right: 0.5rem;",
    "  vertical-align: middle; } .dash { border-top: 2px dashed var(--limit); }",
    ".wide { overflow-x: auto; } table { border-collapse: collapse; }",
    "th, td { padding: 0.2rem 0.9rem 0.2rem 0; text-align: right; white-space: nowrap;",
    "  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }",
    ".words th, .words td { text-align: left; white-space: normal; overflow-wrap: anywhere; }",
    "</style>",
    "</head>",
    "<body>",
    "<h1>Throughput and latency by block size</h1>",
    "<p>Throughput counts the bytes of all threads, from their common start to the end of the",
    "last one. Latency is that of a whole batch, as the thread sees it that submits it: from",
    "before the batch is allocated until its last request has ended. Every point tells its",
    "figures where the pointer rests on it; all of them are in the table below.</p>",
};

static void print_legend(FILE *out, const struct sweep *s)
{
    fputs("<ul class=\"legend\">\n", out);
    for (size_t i = 0; i < s->threads.count; i++)
        fprintf(out, "<li><span class=\"key c%zu\"></span>%" PRIu64 " thread%s</li>\n",
                i % CHART_COLOURS, s->threads.at[i], s->threads.at[i] == 1 ? "" : "s");
    fputs("<li><span class=\"key dash\"></span>raw limit, no engine</li>\n</ul>\n", out);
}

static void print_charts(FILE *out, const struct sweep *s, size_t batch)
{
    static const enum limit_kind kinds[] = {LIMIT_RATE, LIMIT_P50, LIMIT_P99};

    fprintf(out, "<h2>%" PRIu64 " request%s a batch</h2>\n", s->batch.at[batch],
            s->batch.at[batch] == 1 ? "" : "s");
    print_legend(out, s);
    fputs("<div class=\"charts\">\n", out);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct chart chart = {.sweep = s, .batch = batch, .kind = kinds[i]};
        fprintf(out, "<figure><figcaption>%s</figcaption>\n", chart_title(kinds[i]));
        chart_print(out, &chart);
        fputs("</figure>\n", out);
    }
    fputs("</div>\n", out);
}

static void print_limit_table(FILE *out, const struct sweep *s)
{
    fputs("<h2>Raw limits</h2>\n<p>Figures of programs without an engine, which walk through large "
          "buffers. The bench moves\nthe same blocks again and again, and small ones stay in the "
          "caches: a curve may rise above a limit.</p>\n",
          out);
    if (!limits_have(&s->limits, LIMIT_NETWORK))
        fputs(
            "<p>No limit of the network was given: --sweep_limits=FILE takes what raw_stream and\n"
            "raw_pingpong of the source tree (build/tests/bench) print.</p>\n",
            out);
    fputs("<div class=\"wide\"><table class=\"words\">\n", out);
    for (size_t i = 0; i < s->limits.count; i++) {
        const struct limit *l = &s->limits.at[i];
        fputs("<tr><th scope=\"row\">", out);
        xml_text(out, l->label);
        fprintf(out, "</th><td>%.*f %s%s</td></tr>\n", l->kind == LIMIT_RATE ? 2 : 1, l->value,
                chart_unit(l->kind),
                chart_off_scale(s, l) ? ", far above all points and so not drawn" : "");
    }
    fputs("</table></div>\n", out);
}

static void print_facts(FILE *out, const struct html_fact *facts, size_t count)
{
    fputs("<h2>How it was measured</h2>\n<div class=\"wide\"><table class=\"words\">\n", out);
    for (size_t i = 0; i < count; i++) {
        fputs("<tr><th scope=\"row\">", out);
        xml_text(out, facts[i].name);
        fputs("</th><td>", out);
        xml_text(out, facts[i].value);
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static void print_row(FILE *out, const struct sweep_point *p)
{
    char size[UNITS_SIZE_MAX];
    units_size(p->block, size);
    fprintf(out, "<tr><td>%s</td><td>%" PRIu64 "</td><td>%" PRIu64 "</td>", size, p->batch,
            p->threads);
    if (p->measured)
        fprintf(out,
                "<td>%.3f</td><td>%.0f</td><td>%.1f</td><td>%.1f</td><td>%.1f</td><td>%.1f</td>"
                "<td>%.1f</td></tr>\n",
                p->gb_s, p->iops, p->avg_us, p->p50_us, p->p99_us, p->p999_us, p->request_p50_us);
    else
        fputs("<td colspan=\"7\">not measured</td></tr>\n", out);
}

static void print_numbers(FILE *out, const struct sweep *s)
{
    fputs("<h2>All numbers</h2>\n<div class=\"wide\"><table class=\"numbers\">\n<thead><tr>"
          "<th>Block</th><th>Batch</th><th>Threads</th><th>GB/s</th><th>Requests/s</th>"
          "<th>Batch avg, &#181;s</th><th>p50</th><th>p99</th><th>p99.9</th>"
          "<th>Request p50, &#181;s</th></tr></thead>\n<tbody>\n",
          out);
    for (size_t i = 0; i < s->count; i++)
        print_row(out, &s->points[i]);
    fputs("</tbody></table></div>\n", out);
}

void html_print(FILE *out, const struct sweep *s, const struct html_fact *facts, size_t count)
{
    for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++)
        fprintf(out, "%s\n", head[i]);
    for (size_t i = 0; i < s->batch.count; i++)
        print_charts(out, s, i);
    print_limit_table(out, s);
    print_facts(out, facts, count);
    print_numbers(out, s);
    fputs("</body>\n</html>\n", out);
}

/* ---- The file -------------------------------------------------------------------------------- */

/* Makes a new file beside `path`; NULL, and what is wrong, when that cannot be. */
static FILE *open_beside(const char *path, char temp[PATH_MAX], char *error, size_t n)
{
    struct stat st;
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        snprintf(error, n, "%s is no plain file: name a new file, or one to replace", path);
        return NULL;
    }
    if (snprintf(temp, PATH_MAX, "%s.%ld.tmp", path, (long)getpid()) >= PATH_MAX) {
        snprintf(error, n, "%.100s...: the name is too long: give a shorter one", path);
        return NULL;
    }
    int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f) {
        snprintf(error, n, "cannot write %s: cannot make %s: %s", path, temp, strerror(errno));
        if (fd >= 0) {
            close(fd);
            unlink(temp);
        }
    }
    return f;
}

bool html_try(const char *path, char *error, size_t n)
{
    char temp[PATH_MAX];
    FILE *f = open_beside(path, temp, error, n);
    if (!f)
        return false;
    fclose(f);
    unlink(temp);
    return true;
}

bool html_write(const char *path, const struct sweep *s, const struct html_fact *facts,
                size_t count, char *error, size_t n)
{
    char temp[PATH_MAX];
    FILE *f = open_beside(path, temp, error, n);
    if (!f)
        return false;
    html_print(f, s, facts, count);
    int why = fflush(f) || ferror(f) ? errno : 0;
    if (fclose(f) && !why)
        why = errno;
    if (!why && rename(temp, path))
        why = errno;
    if (why) {
        snprintf(error, n, "cannot write %s: %s", path, strerror(why));
        unlink(temp);
        return false;
    }
    return true;
}
