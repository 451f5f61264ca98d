/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer_engine_bench/chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "common_units.h"
#include "common_xml.h"

/* The picture, in units of its own; the page scales it. */
#define WIDTH        460.0
#define HEIGHT       320.0
#define LEFT         54.0
#define RIGHT        446.0
#define TOP          28.0
#define BOTTOM       272.0
#define LABEL_HEIGHT 13.0 /* of a line of text */
#define LABEL_WIDTH  32.0 /* of the name of a block size */
#define FLAT         3.0  /* how far above all points a limit is still drawn */

struct scale {
    bool log;
    double low, high; /* values */
    double from, to;  /* and where they lie */
};

struct range {
    double low, high; /* high 0: nothing in it */
};

/* ---- Figures --------------------------------------------------------------------------------- */

static const struct {
    const char *title, *unit, *axis;
} figures[] = {
    [LIMIT_RATE] = {"Throughput", "GB/s", "GB/s (1 GB = 10&#8313; bytes)"},
    [LIMIT_P50] = {"Batch latency, p50", "&#181;s", "&#181;s (log axis)"},
    [LIMIT_P99] = {"Batch latency, p99", "&#181;s", "&#181;s (log axis)"},
};

const char *chart_title(enum limit_kind kind)
{
    return figures[kind].title;
}

const char *chart_unit(enum limit_kind kind)
{
    return figures[kind].unit;
}

static double figure(const struct sweep_point *p, enum limit_kind kind)
{
    return kind == LIMIT_RATE ? p->gb_s : kind == LIMIT_P50 ? p->p50_us : p->p99_us;
}

/* Whether a point can be drawn; 0 has no place on a log axis. */
static bool is_drawn(const struct sweep_point *p, enum limit_kind kind)
{
    return p && p->measured && figure(p, kind) > 0;
}

static void widen(struct range *r, double value)
{
    r->low = r->high == 0 || value < r->low ? value : r->low;
    r->high = value > r->high ? value : r->high;
}

/* Of all points of the sweep, so that charts of the same figure have the same axis. */
static struct range range_of(const struct sweep *s, enum limit_kind kind)
{
    struct range r = {0, 0};
    for (size_t i = 0; i < s->count; i++) {
        if (is_drawn(&s->points[i], kind))
            widen(&r, figure(&s->points[i], kind));
    }
    return r;
}

bool chart_off_scale(const struct sweep *s, const struct limit *limit)
{
    return limit->kind == LIMIT_RATE && limit->value > FLAT * range_of(s, LIMIT_RATE).high;
}

/* ---- Scales ---------------------------------------------------------------------------------- */

static double place(const struct scale *s, double value)
{
    double share = s->log ? log(value / s->low) / log(s->high / s->low)
                          : (value - s->low) / (s->high - s->low);
    return s->from + share * (s->to - s->from);
}

/* The largest of ..., 1, 2, 5, 10, 20, ... that is not above a value. */
static double round_down(double value)
{
    double ten = pow(10, floor(log10(value) + 1e-9)), digits = value / ten * (1 + 1e-9);
    return ten * (digits >= 5 ? 5 : digits >= 2 ? 2 : 1);
}

/* The next of that row. */
static double round_next(double tick)
{
    double ten = pow(10, floor(log10(tick) + 1e-9)), digits = tick / ten;
    return ten * (digits > 4 ? 10 : digits > 1.5 ? 5 : 2);
}

static double round_up(double value)
{
    double below = round_down(value);
    return below >= value * (1 - 1e-9) ? below : round_next(below);
}

/* The step of a linear axis from 0 to `high`. */
static double step_to(double high)
{
    return round_up(high / 5);
}

static struct scale y_scale(const struct sweep *s, enum limit_kind kind)
{
    struct scale y = {.log = kind != LIMIT_RATE, .from = BOTTOM, .to = TOP};
    struct range r = range_of(s, kind);

    if (kind != LIMIT_RATE) { /* one axis for both quantiles */
        struct range other = range_of(s, kind == LIMIT_P50 ? LIMIT_P99 : LIMIT_P50);
        if (other.high > 0) {
            widen(&r, other.low);
            widen(&r, other.high);
        }
    }
    for (size_t i = 0; i < s->limits.count; i++) {
        const struct limit *l = &s->limits.at[i];
        if ((l->kind == LIMIT_RATE) == (kind == LIMIT_RATE) && !chart_off_scale(s, l))
            widen(&r, l->value);
    }
    if (r.high == 0)
        r = (struct range){1, 10};
    if (!y.log) {
        double step = step_to(r.high);
        y.high = ceil(r.high / step - 1e-9) * step;
        return y;
    }
    y.low = round_down(r.low);
    y.high = round_up(r.high);
    if (y.high <= y.low)
        y.high = round_next(y.low);
    return y;
}

static struct scale x_scale(const struct sweep *s)
{
    struct range r = {0, 0};
    for (size_t i = 0; i < s->block.count; i++)
        widen(&r, (double)s->block.at[i]);
    /* Room on both sides, which also gives a single size its place. */
    return (struct scale){
        .log = true, .low = r.low / 1.3, .high = r.high * 1.3, .from = LEFT, .to = RIGHT};
}

/* The places of the list of block sizes, the smallest first; how many. */
static size_t order_blocks(const struct sweep_list *list, size_t order[SWEEP_LIST_MAX])
{
    for (size_t i = 0; i < list->count; i++) {
        size_t at = i;
        for (; at > 0 && list->at[order[at - 1]] > list->at[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return list->count;
}

/* ---- Axes ------------------------------------------------------------------------------------ */

static void print_y_tick(FILE *out, const struct scale *y, double value)
{
    double at = place(y, value);
    char text[32];
    snprintf(text, sizeof(text), value < 1e5 ? "%g" : "%.0f", value);
    fprintf(out,
            "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n"
            "<text class=\"tick\" text-anchor=\"end\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
            LEFT, RIGHT, at, at, LEFT - 6, at + 4, text);
}

static void print_y_axis(FILE *out, const struct scale *y, enum limit_kind kind)
{
    if (y->log) {
        bool all = y->high / y->low <= 2000;
        for (double v = y->low; v <= y->high * (1 + 1e-9); v = round_next(v)) {
            bool power = fabs(log10(v) - round(log10(v))) < 1e-6;
            if (all || power)
                print_y_tick(out, y, v);
        }
    } else {
        double step = step_to(y->high);
        for (unsigned i = 0; i * step <= y->high * (1 + 1e-9); i++)
            print_y_tick(out, y, i * step);
    }
    fprintf(out, "<text class=\"axis\" x=\"4\" y=\"14\">%s</text>\n", figures[kind].axis);
}

static void print_x_axis(FILE *out, const struct scale *x, const struct sweep *s)
{
    size_t order[SWEEP_LIST_MAX], n = order_blocks(&s->block, order);
    double last = -LABEL_WIDTH;

    fprintf(out, "<line class=\"base\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", LEFT,
            RIGHT, BOTTOM, BOTTOM);
    for (size_t i = 0; i < n; i++) {
        char text[UNITS_SIZE_MAX];
        double at = place(x, (double)s->block.at[order[i]]);
        fprintf(out, "<line class=\"base\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", at,
                at, BOTTOM, BOTTOM + 4);
        if (at - last < LABEL_WIDTH)
            continue;
        last = at;
        units_size(s->block.at[order[i]], text);
        fprintf(out,
                "<text class=\"tick\" text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", at,
                BOTTOM + 18, text);
    }
    fprintf(out,
            "<text class=\"axis\" text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">"
            "Block size in bytes (log2 axis; K = 1,024)</text>\n",
            (LEFT + RIGHT) / 2, HEIGHT - 10);
}

/* ---- Curves and limits ----------------------------------------------------------------------- */

static void print_point(FILE *out, const struct sweep_point *p, double x, double y)
{
    char size[UNITS_SIZE_MAX];
    units_size(p->block, size);
    fprintf(out,
            "<g class=\"point\"><title>%" PRIu64 " thread%s, blocks of %s, %" PRIu64
            " a batch: %.3f GB/s, batch p50 %.1f &#181;s, p99 %.1f &#181;s</title>"
            "<circle class=\"hit\" cx=\"%.1f\" cy=\"%.1f\" r=\"11\"/>"
            "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/></g>\n",
            p->threads, p->threads == 1 ? "" : "s", size, p->batch, p->gb_s, p->p50_us, p->p99_us,
            x, y, x, y);
}

static void print_curve(FILE *out, const struct chart *c, size_t threads, const struct scale *x,
                        const struct scale *y)
{
    const struct sweep *s = c->sweep;
    size_t order[SWEEP_LIST_MAX], n = order_blocks(&s->block, order);

    fprintf(out, "<g class=\"series c%zu\"><polyline class=\"curve\" points=\"",
            threads % CHART_COLOURS);
    for (size_t i = 0; i < n; i++) {
        const struct sweep_point *p = sweep_at(s, order[i], c->batch, threads);
        if (is_drawn(p, c->kind))
            fprintf(out, "%.1f,%.1f ", place(x, (double)p->block), place(y, figure(p, c->kind)));
    }
    fputs("\"/>\n", out);
    for (size_t i = 0; i < n; i++) {
        const struct sweep_point *p = sweep_at(s, order[i], c->batch, threads);
        if (is_drawn(p, c->kind))
            print_point(out, p, place(x, (double)p->block), place(y, figure(p, c->kind)));
    }
    fputs("</g>\n", out);
}

/* The limit of this chart that comes after `last` (NULL: before all), upward; NULL at the end. */
static const struct limit *next_limit(const struct chart *c, const struct limit *last)
{
    const struct limits *all = &c->sweep->limits;
    const struct limit *best = NULL;
    for (const struct limit *l = all->at; l < all->at + all->count; l++) {
        bool behind = !last || l->value > last->value || (l->value == last->value && l > last);
        if (l->kind == c->kind && !chart_off_scale(c->sweep, l) && behind &&
            (!best || l->value < best->value))
            best = l;
    }
    return best;
}

static void print_limits(FILE *out, const struct chart *c, const struct scale *y)
{
    for (const struct limit *l = NULL; (l = next_limit(c, l));) {
        double at = place(y, l->value);
        fputs("<g class=\"limit\"><title>", out);
        xml_text(out, l->label);
        fprintf(out,
                ": %.*f %s</title><line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/></g>\n",
                c->kind == LIMIT_RATE ? 2 : 1, l->value, figures[c->kind].unit, LEFT, RIGHT, at,
                at);
    }
}

/* Above their lines. Throughput is low on the left and latency on the right: there is room. */
static void print_limit_names(FILE *out, const struct chart *c, const struct scale *y)
{
    bool left = c->kind == LIMIT_RATE;
    double at = HEIGHT;
    for (const struct limit *l = NULL; (l = next_limit(c, l));) {
        at = fmin(place(y, l->value) - 4, at - LABEL_HEIGHT);
        fprintf(out, "<text class=\"name\" text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">",
                left ? "start" : "end", left ? LEFT + 4 : RIGHT - 4, at);
        xml_text(out, l->label);
        fputs("</text>\n", out);
    }
}

void chart_print(FILE *out, const struct chart *c)
{
    struct scale x = x_scale(c->sweep), y = y_scale(c->sweep, c->kind);

    fprintf(out,
            "<svg class=\"chart\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
            "aria-label=\"%s against block size, batches of %" PRIu64 "\">\n",
            WIDTH, HEIGHT, figures[c->kind].title, c->sweep->batch.at[c->batch]);
    print_y_axis(out, &y, c->kind);
    print_x_axis(out, &x, c->sweep);
    print_limits(out, c, &y);
    for (size_t i = 0; i < c->sweep->threads.count; i++)
        print_curve(out, c, i, &x, &y);
    print_limit_names(out, c, &y);
    fputs("</svg>\n", out);
}
