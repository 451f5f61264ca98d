/* SPDX-License-Identifier: Apache-2.0 */
#include "te_top/screen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common_colour.h"

#define QUANTITY 16

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    return text ? text : "?";
}

static double both(const json_t *o, const char *key)
{
    const json_t *pair = json_object_get(o, key);

    return number(pair, "read") + number(pair, "write");
}

/* "0", "123", "1.23 k", "45.6 G": powers of 1000. */
static const char *quantity(double v, char buf[QUANTITY])
{
    static const char units[] = " kMGTPE";
    size_t i = 0;

    while (v >= 999.5 && i < sizeof(units) - 2) {
        v /= 1000;
        i++;
    }
    if (i == 0)
        snprintf(buf, QUANTITY, "%.*f", v > 0 && v < 9.95 ? 1 : 0, v);
    else
        snprintf(buf, QUANTITY, "%.*f %c", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, units[i]);
    return buf;
}

static const char *duration(const json_t *o, const char *key, char buf[QUANTITY])
{
    const json_t *v = json_object_get(o, key);
    double s = json_number_value(v);

    if (!json_is_number(v))
        snprintf(buf, QUANTITY, "-");
    else if (s < 1e-3)
        snprintf(buf, QUANTITY, "%.0f us", s * 1e6);
    else if (s < 1)
        snprintf(buf, QUANTITY, "%.1f ms", s * 1e3);
    else
        snprintf(buf, QUANTITY, "%.2f s", s);
    return buf;
}

/* -------------------------------------------------------------------------------------- sparks */

void sparks_add(struct sparks *s, double value)
{
    if (s->n == SPARKS)
        memmove(s->v, s->v + 1, (SPARKS - 1) * sizeof(*s->v));
    else
        s->n++;
    s->v[s->n - 1] = isfinite(value) && value > 0 ? fmin(value, 1e30) : 0;
}

static void put_sparks(FILE *f, const struct sparks *s)
{
    static const char *const bars[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                       "\u2585", "\u2586", "\u2587", "\u2588"};
    double most = 0;

    for (size_t i = 0; i < s->n; i++)
        most = s->v[i] > most ? s->v[i] : most;
    for (size_t i = 0; i < s->n; i++)
        fputs(s->v[i] > 0 ? bars[(int)fmin(7 * s->v[i] / most, 7)] : " ", f);
}

/* --------------------------------------------------------------------------------------- tables */

static void put_head(FILE *f, const json_t *e, const struct sparks *s)
{
    char a[QUANTITY], b[QUANTITY], c[QUANTITY], d[QUANTITY];
    double failed = both(e, "failed");

    fprintf(f, "%s (%d) %s, version %s  ", text_of(e, "program"), (int)number(e, "pid"),
            text_of(e, "segment"), text_of(e, "version"));
    put_sparks(f, s);
    fprintf(f, "\n  read %sB/s  write %sB/s  served %sB/s out, %sB/s in\n",
            quantity(number(json_object_get(e, "bytes"), "read"), a),
            quantity(number(json_object_get(e, "bytes"), "write"), b),
            quantity(number(e, "served_sent"), c), quantity(number(e, "served_received"), d));
    fprintf(f, "  %s requests/s  ", quantity(both(e, "completed"), a));
    fprintf(f, "%s%s failed/s%s  %s in flight, %s parked  p50 %s  p99 %s\n",
            colour_on(f, failed > 0 ? COLOUR_BAD : COLOUR_NONE), quantity(failed, a),
            failed > 0 ? colour_off(f) : "", quantity(number(e, "inflight_requests"), b),
            quantity(number(e, "parked_requests"), c), duration(e, "p50_s", d),
            duration(e, "p99_s", (char[QUANTITY]){0}));
    if (number(e, "metadata_up") == 0)
        fprintf(f, "  %sthe metadata server does not answer%s\n", colour_on(f, COLOUR_BAD),
                colour_off(f));
}

static void put_transports(FILE *f, const json_t *e)
{
    const json_t *t;
    size_t i;

    fprintf(f, "  %-14s %11s %11s %9s %9s %9s %6s %9s %9s\n", "TRANSPORT", "BYTES/S", "SERVED/S",
            "WORK/S", "FAILED/S", "RETRIES/S", "CONNS", "P50", "P99");
    json_array_foreach(json_object_get(e, "transports"), i, t) {
        char a[QUANTITY], b[QUANTITY], c[QUANTITY], d[QUANTITY], r[QUANTITY], p[QUANTITY],
            q[QUANTITY];

        fprintf(f, "  %-14s %11s %11s %9s %9s %9s %6.0f %9s %9s\n", text_of(t, "transport"),
                quantity(number(t, "bytes"), a), quantity(number(t, "served_bytes"), b),
                quantity(number(t, "attempts"), c), quantity(number(t, "failures"), d),
                quantity(number(t, "retries"), r), number(t, "connections"),
                duration(t, "p50_s", p), duration(t, "p99_s", q));
    }
}

static void put_nics(FILE *f, const json_t *e)
{
    const json_t *nics = json_object_get(e, "nics"), *n;
    size_t i;

    if (json_array_size(nics) == 0)
        return;
    fprintf(f, "  %-24s %-10s %11s %11s %9s %6s\n", "NIC", "TRANSPORT", "SENT/S", "RECEIVED/S",
            "RESENT/S", "CONNS");
    json_array_foreach(nics, i, n) {
        char a[QUANTITY], b[QUANTITY], c[QUANTITY];

        fprintf(f, "  %-24s %-10s %11s %11s %9s %6.0f%s%s%s\n", text_of(n, "nic"),
                text_of(n, "transport"), quantity(number(n, "sent"), a),
                quantity(number(n, "received"), b), quantity(number(n, "resent"), c),
                number(n, "connections"), number(n, "up") != 0 ? "" : colour_on(f, COLOUR_BAD),
                number(n, "up") != 0 ? "" : " down", number(n, "up") != 0 ? "" : colour_off(f));
    }
}

static int by_bytes(const void *a, const void *b)
{
    double x = number(*(json_t *const *)a, "bytes"), y = number(*(json_t *const *)b, "bytes");

    return (x < y) - (x > y);
}

static void put_peers(FILE *f, const json_t *e, size_t most)
{
    const json_t *peers = json_object_get(e, "peers");
    size_t n = json_array_size(peers);
    const json_t **rows = calloc(n + 1, sizeof(const json_t *));

    for (size_t i = 0; rows && i < n; i++)
        rows[i] = json_array_get(peers, i);
    if (rows && n && most)
        fprintf(f, "  %11s %11s %11s  PEER\n", "BYTES/S", "REQUESTS/S", "FAILED/S");
    if (rows)
        qsort(rows, n, sizeof(const json_t *), by_bytes);
    for (size_t i = 0; rows && i < n && i < most; i++) {
        char a[QUANTITY], b[QUANTITY], c[QUANTITY];

        fprintf(f, "  %11s %11s %11s  %s\n", quantity(number(rows[i], "bytes"), a),
                quantity(number(rows[i], "completed"), b), quantity(number(rows[i], "failed"), c),
                text_of(rows[i], "peer"));
    }
    free(rows);
}

static void put_errors(FILE *f, const json_t *e)
{
    const json_t *one;
    size_t i;

    json_array_foreach(json_object_get(e, "errors"), i, one) {
        char a[QUANTITY];

        fprintf(f, "  %s%s%s: %.0f so far, %s/s (%s)\n",
                colour_on(f, number(one, "rate") > 0 ? COLOUR_BAD : COLOUR_NONE),
                text_of(one, "error"), number(one, "rate") > 0 ? colour_off(f) : "",
                number(one, "total"), quantity(number(one, "rate"), a), text_of(one, "class"));
    }
}

void screen_engine(FILE *f, const json_t *engine, const struct sparks *s, size_t peers)
{
    put_head(f, engine, s);
    put_transports(f, engine);
    put_nics(f, engine);
    put_peers(f, engine, peers);
    put_errors(f, engine);
    fputc('\n', f);
}
