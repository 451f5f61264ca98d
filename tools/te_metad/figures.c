/* SPDX-License-Identifier: Apache-2.0 */
#include "te_metad/figures.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "te.h"
#include "te_metad/log.h"

#define KEY_SHOWN 256 /* bytes of a key in a line of the log */

static const char *const verbs[VERB_COUNT] = {
    [VERB_OTHER] = "other",   [VERB_GET] = "get",         [VERB_LIST] = "list",
    [VERB_PUT] = "put",       [VERB_KEEP] = "keep",       [VERB_DELETE] = "delete",
    [VERB_HEALTH] = "health", [VERB_METRICS] = "metrics",
};

static const double bounds_s[FIGURES_BOUNDS] = {0.0001, 0.001, 0.01, 0.1, 1, 10};

int64_t figures_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ------------------------------------------------------------------------------------------- log */

/* Bytes of a client, so that none of them ends the line or does something to a terminal. */
static size_t write_quoted(const char *text, size_t len, char *out, size_t room)
{
    size_t n = 0;
    for (size_t i = 0; i < len && n + 4 < room; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c > ' ' && c < 0x7f && c != '%')
            out[n++] = (char)c;
        else
            n += (size_t)snprintf(out + n, room - n, "%%%02X", c);
    }
    out[n] = '\0';
    return n;
}

static socklen_t length_of(const struct sockaddr *from)
{
    return from->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* One write, so that lines of several threads do not mix. */
static void log_one(const struct figure *one, int64_t took_ns)
{
    char at[LOG_TIME], host[64] = "-", port[8] = "-", method[64], url[128], key[3 * KEY_SHOWN + 8];
    log_time(at);
    if (one->from)
        getnameinfo(one->from, length_of(one->from), host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    write_quoted(one->method, strnlen(one->method, 16), method, sizeof method);
    write_quoted(one->url, strlen(one->url), url, sizeof url);
    write_quoted(one->key ? one->key : "", one->key_len < KEY_SHOWN ? one->key_len : KEY_SHOWN, key,
                 sizeof key);
    fprintf(stderr, "%s %s %s %s %s%s%s %u %.3f ms\n", at, host, port, method, url,
            one->key ? (one->verb == VERB_LIST ? "?prefix=" : "?key=") : "", key, one->status,
            (double)took_ns / 1e6);
}

/* -------------------------------------------------------------------------------------- counting */

void figures_add(struct figures *f, const struct figure *one)
{
    int64_t took_ns = figures_now_ns() - one->begin_ns;
    unsigned digit = one->status / 100, i = 0;
    if (digit < FIGURES_CLASSES)
        atomic_fetch_add(&f->requests[one->verb][digit], 1);
    while (i < FIGURES_BOUNDS && (double)took_ns > bounds_s[i] * 1e9)
        i++;
    atomic_fetch_add(&f->times[i], 1);
    atomic_fetch_add(&f->sum_ns, (unsigned long long)took_ns);
    if (one->url)
        log_one(one, took_ns);
}

/* ---------------------------------------------------------------------------------------- /metrics */

static void head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP te_metad_%s %s\n# TYPE te_metad_%s %s\n", name, help, name, type);
}

static void gauge(FILE *out, const char *name, const char *help, uint64_t value)
{
    head(out, name, "gauge", help);
    fprintf(out, "te_metad_%s %llu\n", name, (unsigned long long)value);
}

static void write_requests(struct figures *f, FILE *out)
{
    head(out, "requests_total", "counter",
         "Requests that were answered, by what they asked for and the class of the status.");
    for (size_t verb = 0; verb < VERB_COUNT; verb++)
        for (size_t digit = 2; digit < FIGURES_CLASSES; digit++)
            fprintf(out, "te_metad_requests_total{request=\"%s\",status=\"%zuxx\"} %llu\n",
                    verbs[verb], digit, atomic_load(&f->requests[verb][digit]));
}

static void write_times(struct figures *f, FILE *out)
{
    unsigned long long sum = 0;
    head(out, "request_seconds", "histogram", "Time from the head of a request to its answer.");
    for (size_t i = 0; i < FIGURES_BOUNDS; i++) {
        sum += atomic_load(&f->times[i]);
        fprintf(out, "te_metad_request_seconds_bucket{le=\"%g\"} %llu\n", bounds_s[i], sum);
    }
    sum += atomic_load(&f->times[FIGURES_BOUNDS]);
    fprintf(out, "te_metad_request_seconds_bucket{le=\"+Inf\"} %llu\n", sum);
    fprintf(out, "te_metad_request_seconds_sum %.9f\n", (double)atomic_load(&f->sum_ns) / 1e9);
    fprintf(out, "te_metad_request_seconds_count %llu\n", sum);
}

char *figures_text(struct figures *f, struct store *store, size_t connections)
{
    char *text = NULL;
    size_t len;
    struct store_limits used, limits;
    FILE *out = open_memstream(&text, &len);
    if (!out)
        return NULL;
    store_used(store, &used, &limits);
    head(out, "info", "gauge", "1. The label is the version.");
    fprintf(out, "te_metad_info{version=\"%s\"} 1\n", TE_VERSION_STRING);
    write_requests(f, out);
    write_times(f, out);
    gauge(out, "keys", "Keys that there are, some of them expired maybe.", used.keys);
    gauge(out, "keys_limit", "--max-keys: what goes beyond it is refused.", limits.keys);
    gauge(out, "bytes", "Bytes of all keys and values.", used.bytes);
    gauge(out, "bytes_limit", "--max-bytes: what goes beyond it is refused.", limits.bytes);
    gauge(out, "connections", "Connections that are open.", connections);
    bool whole = !ferror(out);
    whole = fclose(out) == 0 && whole;
    if (whole)
        return text;
    free(text);
    return NULL;
}
