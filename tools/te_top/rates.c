/* SPDX-License-Identifier: Apache-2.0 */
#include "te_top/rates.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_MAX  300
#define BOUNDS_MAX 128

struct looks {
    const struct samples *was, *now;
    double seconds;
};

static json_t *per_second(const struct looks *l, const char *name, const char *label,
                          const char *value)
{
    return json_real(samples_sum(l->was, l->now, name, label, value) / l->seconds);
}

/* ---------------------------------------------------------------------------------------- times */

struct bound {
    double le, count;
};

static int by_bound(const void *a, const void *b)
{
    const struct bound *x = a, *y = b;

    return (x->le > y->le) - (x->le < y->le);
}

/* The buckets of all series of a transport (NULL: of all), added up by their bound. */
static size_t take_bounds(const struct looks *l, const char *transport, struct bound *b)
{
    char le[40];
    size_t n = 0;

    for (size_t i = 0; i < l->now->n; i++) {
        const struct sample *s = &l->now->v[i];
        struct bound one = {.count = 0};
        size_t k = 0;

        if (strcmp(s->name, "request_seconds_bucket") != 0 ||
            (transport && !samples_has(s, "transport", transport)))
            continue;
        one.le = strtod(samples_label(s, "le", le, sizeof(le)), NULL);
        while (k < n && b[k].le != one.le && !(isinf(b[k].le) && isinf(one.le)))
            k++;
        if (k == BOUNDS_MAX)
            continue;
        if (k == n)
            b[n++] = one;
        b[k].count += samples_growth(l->was, s);
    }
    qsort(b, n, sizeof(*b), by_bound);
    return n;
}

/* As histogram_quantile() does it: within a bucket, times are spread evenly. */
static json_t *quantile(const struct bound *b, size_t n, double q)
{
    double rank = n ? q * b[n - 1].count : 0, below = 0, from = 0;

    for (size_t i = 0; rank > 0 && i < n; i++) {
        if (b[i].count >= rank) {
            if (isinf(b[i].le))
                return json_real(from);
            return json_real(from + (b[i].le - from) * (rank - below) / (b[i].count - below));
        }
        below = b[i].count;
        from = b[i].le;
    }
    return json_null();
}

static void set_times(json_t *to, const struct looks *l, const char *transport)
{
    struct bound b[BOUNDS_MAX];
    size_t n = take_bounds(l, transport, b);

    json_object_set_new(to, "p50_s", quantile(b, n, 0.5));
    json_object_set_new(to, "p99_s", quantile(b, n, 0.99));
}

/* ---------------------------------------------------------------------------------------- parts */

/* A row for each value of a label of a metric, in the order in which they come first. */
static json_t *rows_of(const struct looks *l, const char *metric, const char *label,
                       void (*fill)(const struct looks *l, json_t *row, const struct sample *s,
                                    const char *value))
{
    json_t *rows = json_array(), *seen = json_object();
    char value[LABEL_MAX];

    for (size_t i = 0; i < l->now->n; i++) {
        const struct sample *s = &l->now->v[i];

        if (strcmp(s->name, metric) != 0 ||
            json_object_get(seen, samples_label(s, label, value, sizeof(value))))
            continue;
        json_object_set_new(seen, value, json_true());
        json_array_append_new(rows, json_pack("{ss}", label, value));
        fill(l, json_array_get(rows, json_array_size(rows) - 1), s, value);
    }
    json_decref(seen);
    return rows;
}

static void fill_transport(const struct looks *l, json_t *row, const struct sample *s,
                           const char *name)
{
    char labels[LABEL_MAX];

    (void)s;
    snprintf(labels, sizeof(labels), "transport=\"%s\"", name);
    json_object_set_new(row, "bytes", per_second(l, "transport_bytes_total", "transport", name));
    json_object_set_new(row, "attempts",
                        per_second(l, "transport_attempts_total", "transport", name));
    json_object_set_new(row, "failures",
                        per_second(l, "transport_attempt_failures_total", "transport", name));
    json_object_set_new(row, "retries",
                        per_second(l, "transport_retries_total", "transport", name));
    json_object_set_new(
        row, "served_bytes",
        json_real((samples_sum(l->was, l->now, "served_sent_bytes_total", "transport", name) +
                   samples_sum(l->was, l->now, "served_received_bytes_total", "transport", name)) /
                  l->seconds));
    json_object_set_new(row, "connections",
                        json_real(samples_value(l->now, "transport_connections", labels)));
    set_times(row, l, name);
}

/* By the labels as they stand: a name may have been cut, or have had bytes replaced. */
static double peer_sum(const struct looks *l, const char *metric, const struct sample *like)
{
    const char *end = strstr(like->labels, "\",opcode=");
    size_t n = end ? (size_t)(end - like->labels) : strlen(like->labels);
    double sum = 0;

    for (size_t i = 0; i < l->now->n; i++)
        if (strcmp(l->now->v[i].name, metric) == 0 &&
            strncmp(l->now->v[i].labels, like->labels, n) == 0 && l->now->v[i].labels[n] == '"')
            sum += samples_growth(l->was, &l->now->v[i]);
    return sum / l->seconds;
}

static void fill_peer(const struct looks *l, json_t *row, const struct sample *s, const char *name)
{
    (void)name;
    json_object_set_new(row, "bytes", json_real(peer_sum(l, "peer_bytes_total", s)));
    json_object_set_new(row, "completed",
                        json_real(peer_sum(l, "peer_requests_completed_total", s)));
    json_object_set_new(row, "failed", json_real(peer_sum(l, "peer_requests_failed_total", s)));
}

static void fill_error(const struct looks *l, json_t *row, const struct sample *s, const char *name)
{
    char class[16];

    (void)name;
    json_object_set_new(row, "class", json_string(samples_label(s, "class", class, sizeof(class))));
    json_object_set_new(row, "total", json_real(s->value));
    json_object_set_new(row, "rate", json_real(samples_growth(l->was, s) / l->seconds));
}

static json_t *errors_that_happened(const struct looks *l)
{
    json_t *all = rows_of(l, "request_errors_total", "error", fill_error);

    for (size_t i = json_array_size(all); i-- > 0;)
        if (json_number_value(json_object_get(json_array_get(all, i), "total")) == 0)
            json_array_remove(all, i);
    return all;
}

static double nic_rate(const struct looks *l, const struct sample *nic, const char *direction)
{
    char labels[2 * LABEL_MAX];

    snprintf(labels, sizeof(labels), "%s,direction=\"%s\"", nic->labels, direction);
    for (size_t i = 0; i < l->now->n; i++)
        if (strcmp(l->now->v[i].name, "nic_bytes_total") == 0 &&
            strcmp(l->now->v[i].labels, labels) == 0)
            return samples_growth(l->was, &l->now->v[i]) / l->seconds;
    return 0;
}

static json_t *nics_of(const struct looks *l)
{
    json_t *rows = json_array();
    char nic[LABEL_MAX], transport[LABEL_MAX];

    for (size_t i = 0; i < l->now->n; i++) {
        const struct sample *s = &l->now->v[i];

        if (strcmp(s->name, "nic_resent_total") != 0)
            continue;
        json_array_append_new(
            rows,
            json_pack("{ss ss sf sf sf sf sf}", "nic", samples_label(s, "nic", nic, sizeof(nic)),
                      "transport", samples_label(s, "transport", transport, sizeof(transport)),
                      "sent", nic_rate(l, s, "sent"), "received", nic_rate(l, s, "received"),
                      "resent", samples_growth(l->was, s) / l->seconds, "connections",
                      samples_value(l->now, "nic_connections", s->labels), "up",
                      samples_value(l->now, "nic_up", s->labels)));
    }
    return rows;
}

/* -------------------------------------------------------------------------------------- whole */

static void set_both(json_t *to, const struct looks *l, const char *key, const char *metric)
{
    json_object_set_new(to, key,
                        json_pack("{so so}", "read", per_second(l, metric, "opcode", "read"),
                                  "write", per_second(l, metric, "opcode", "write")));
}

static void set_info(json_t *to, const struct samples *s)
{
    char text[LABEL_MAX];

    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->v[i].name, "info") != 0)
            continue;
        json_object_set_new(to, "segment",
                            json_string(samples_label(&s->v[i], "segment", text, sizeof(text))));
        json_object_set_new(to, "version",
                            json_string(samples_label(&s->v[i], "version", text, sizeof(text))));
    }
}

json_t *rates_of(const struct samples *was, const struct samples *now, double seconds)
{
    static const char *const gauges[] = {"inflight_requests", "parked_requests", "registered_bytes",
                                         "segments_open", "metadata_up"};
    const struct looks l = {was, now, seconds > 0 ? seconds : 1};
    json_t *to = json_object();

    if (!to)
        return NULL;
    set_info(to, now);
    set_both(to, &l, "bytes", "bytes_total");
    set_both(to, &l, "completed", "requests_completed_total");
    set_both(to, &l, "failed", "requests_failed_total");
    json_object_set_new(to, "served_requests", per_second(&l, "served_requests_total", NULL, NULL));
    json_object_set_new(to, "served_sent", per_second(&l, "served_sent_bytes_total", NULL, NULL));
    json_object_set_new(to, "served_received",
                        per_second(&l, "served_received_bytes_total", NULL, NULL));
    for (size_t i = 0; i < sizeof(gauges) / sizeof(gauges[0]); i++)
        json_object_set_new(to, gauges[i], json_real(samples_value(now, gauges[i], "")));
    set_times(to, &l, NULL);
    json_object_set_new(to, "transports",
                        rows_of(&l, "transport_retries_total", "transport", fill_transport));
    json_object_set_new(to, "peers", rows_of(&l, "peer_bytes_total", "peer", fill_peer));
    json_object_set_new(to, "nics", nics_of(&l));
    json_object_set_new(to, "errors", errors_that_happened(&l));
    return to;
}
