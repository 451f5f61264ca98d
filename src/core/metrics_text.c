/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics_text.c - the metrics of an engine as text, in the format that Prometheus scrapes.
 *
 * A snapshot is taken first, with the locks held that its parts need, and written without any. Each row
 * of metrics.def is written by the function of its scope.
 */
#include "base/utf8.h"
#include "core/core.h"
#include "core/metrics_serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "transfer_engine_"

struct by_transport {
    const char *name; /* NULL: it was never installed */
    struct te_stats own;
    uint64_t attempts[2], bytes[2], path_changes, failures[METRICS_CLASSES];
};

struct samples {
    uint64_t counts[METRICS_BOUNDS + 1], sum_k, sum_rest;
};

struct snapshot {
    const char *segment;
    struct te_stats stats;
    struct totals all;
    uint64_t fences_quiet, fences_unknown;
    uint64_t inflight, parked, leases, leases_granted, restarts, stalls, staged_bytes, inbox;
    uint64_t registered_bytes, bytes_added, bytes_gone;
    uint64_t metadata_up, name_taken;
    uint64_t errors[METRICS_ERRORS], refused[TEI_AUTH_N_CAUSES];
    struct by_transport transports[METRICS_CARRIERS];
    size_t n_peers;
    struct by_peer peers[METRICS_PEERS];
    struct totals others;
    struct samples latency[METRICS_CARRIERS][2], queue[METRICS_CARRIERS][2],
        wire[METRICS_CARRIERS][2], size[METRICS_CARRIERS][2];
    uint64_t failovers[TEI_TRANSPORTS_MAX][TEI_TRANSPORTS_MAX];
    struct tei_nic_table nics[TEI_TRANSPORTS_MAX];
};

static const char *const opcodes[] = {[TE_READ] = "read", [TE_WRITE] = "write"};

/* ------------------------------------------------------------------------------------- snapshot */

static uint64_t now_of(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void take_carried(te_engine *e, size_t place, struct by_transport *t)
{
    const struct metrics *m = &e->metrics;

    for (size_t i = 0; i < METRICS_SHARDS; i++) {
        const struct carried *c = &m->shards[i].by[place];

        for (int op = 0; op < 2; op++) {
            t->attempts[op] += now_of(&c->attempts[op]);
            t->bytes[op] += now_of(&c->carried_bytes[op]);
        }
        t->path_changes += now_of(&c->path_changes);
    }
    for (size_t i = 0; i < METRICS_CLASSES; i++)
        t->failures[i] = now_of(&m->attempt_failures[place][i]);
}

static void add_figures(struct tei_transport *t, struct snapshot *s)
{
    s->transports[t->place].name = tei_transport_at(t->place)->name;
    t->ops.stats(t, &s->transports[t->place].own);
    t->ops.nics(t, &s->nics[t->place]);
}

/* Those that are installed, that were, and that have carried something. */
static void take_transports(te_engine *e, struct snapshot *s)
{
    const struct transports *set = &e->transports;
    const struct tei_transport_ops *ops;

    pthread_rwlock_rdlock(&e->transports.lock);
    for (size_t i = 0; (ops = tei_transport_at(i)); i++) {
        struct by_transport *t = &s->transports[i];

        take_carried(e, i, t);
        if (set->past[i].there || t->attempts[TE_READ] || t->attempts[TE_WRITE])
            t->name = ops->name;
        t->own = set->past[i].stats;
        s->nics[i] = set->past[i].nics;
    }
    if (set->leaving)
        add_figures(set->leaving, s);
    for (size_t i = 0; i < set->n; i++)
        if (set->list[i])
            add_figures(set->list[i], s);
    pthread_rwlock_unlock(&e->transports.lock);
}

static void take_samples(const struct histogram *h, struct samples *t)
{
    for (size_t k = 0; k <= METRICS_BOUNDS; k++)
        t->counts[k] = now_of(&h->counts[k]);
    t->sum_k = now_of(&h->sum_k);
    t->sum_rest = now_of(&h->sum_rest);
}

static void take_sampled(te_engine *e, struct snapshot *s)
{
    const struct metrics *m = &e->metrics;

    for (size_t i = 0; i < METRICS_CARRIERS; i++) {
        for (int op = 0; op < 2; op++) {
            take_samples(&m->latency[i][op], &s->latency[i][op]);
            take_samples(&m->queue[i][op], &s->queue[i][op]);
            take_samples(&m->wire[i][op], &s->wire[i][op]);
            take_samples(&m->size[i][op], &s->size[i][op]);
        }
    }
}

static void free_snapshot(struct snapshot *s)
{
    for (size_t i = 0; s && i < METRICS_PEERS; i++)
        free(s->peers[i].name);
    free(s);
}

/* NULL: memory is out. */
static struct snapshot *take_snapshot(te_engine *e)
{
    struct snapshot *s = calloc(1, sizeof(*s));
    uint64_t ended, revoked;

    if (!s)
        return NULL;
    s->segment = e->name;
    tei_metrics_totals(e, &s->all);
    tei_stats_read(
        e, &s->stats); /* after what has ended was read: no more can have ended than begun */
    ended = s->all.completed[0] + s->all.completed[1] + s->all.failed[0] + s->all.failed[1];
    s->inflight = s->stats.requests_submitted - ended;
    /* Acquire: partner of the release in te_revoke(); those that were granted later count as well. */
    revoked = atomic_load_explicit(&e->leases.revoked, memory_order_acquire);
    s->leases_granted = now_of(&e->leases.granted);
    s->leases = s->leases_granted - revoked;
    s->parked = atomic_load_explicit(&e->parking.parked, memory_order_relaxed);
    s->restarts = now_of(&e->metrics.restarts);
    s->fences_quiet = now_of(&e->count.fences_quiet);
    s->fences_unknown = now_of(&e->count.fences_unknown);
    s->stalls = now_of(&e->metrics.stalls);
    s->registered_bytes = now_of(&e->regions.bytes);
    s->bytes_added = now_of(&e->regions.bytes_added);
    s->bytes_gone = now_of(&e->regions.bytes_gone);
    s->metadata_up = !s->stats.metadata_down;
    s->name_taken = tei_keep_is_taken(&e->keeper);
    pthread_mutex_lock(&e->inbox.lock);
    s->inbox = e->inbox.n;
    pthread_mutex_unlock(&e->inbox.lock);
    for (size_t i = 0; i < METRICS_ERRORS; i++)
        s->errors[i] = now_of(&e->metrics.errors[i]);
    if (e->conf.identity)
        tei_auth_counts(e->conf.identity, s->refused);
    take_transports(e, s);
    take_carried(e, TEI_STAGE_INDEX, &s->transports[TEI_STAGE_INDEX]);
    for (size_t i = 0; i < TEI_TRANSPORTS_MAX; i++)
        for (size_t k = 0; k < TEI_TRANSPORTS_MAX; k++)
            s->failovers[i][k] = now_of(&e->metrics.failovers[i][k]);
    s->staged_bytes = s->transports[TEI_STAGE_INDEX].bytes[TE_READ] +
                      s->transports[TEI_STAGE_INDEX].bytes[TE_WRITE];
    take_sampled(e, s);
    if (tei_metrics_peers(e, s->peers, &s->n_peers, &s->others))
        return s;
    free_snapshot(s);
    return NULL;
}

/* ------------------------------------------------------------------------------------- the table */

enum scope {
    INFO,
    ENGINE,
    OPCODE,
    ERROR,
    CAUSE,
    PEER,
    TRANSPORT,
    TRANSPORT_OPCODE,
    TRANSPORT_CLASS,
    FROM_TO,
    NIC,
    NIC_DIRECTION,
    LATENCY,
    PHASE,
    SIZE
};

/* Where a member is: in the snapshot, in a peer's figures in a peer's figures, in one of its transports or NICs. */
#define AT_INFO(m)             offsetof(struct snapshot, m)
#define AT_ENGINE(m)           offsetof(struct snapshot, m)
#define AT_OPCODE(m)           offsetof(struct snapshot, m)
#define AT_ERROR(m)            offsetof(struct snapshot, m)
#define AT_CAUSE(m)            offsetof(struct snapshot, m)
#define AT_LATENCY(m)          offsetof(struct snapshot, m)
#define AT_PHASE(m)            offsetof(struct snapshot, m)
#define AT_SIZE(m)             offsetof(struct snapshot, m)
#define AT_FROM_TO(m)          offsetof(struct snapshot, m)
#define AT_PEER(m)             offsetof(struct totals, m)
#define AT_NIC(m)              offsetof(struct tei_nic_figures, m)
#define AT_NIC_DIRECTION(m)    offsetof(struct tei_nic_figures, m)
#define AT_TRANSPORT(m)        offsetof(struct by_transport, m)
#define AT_TRANSPORT_OPCODE(m) offsetof(struct by_transport, m)
#define AT_TRANSPORT_CLASS(m)  offsetof(struct by_transport, m)

struct row {
    enum scope scope;
    size_t offset;
    const char *name, *type, *help;
};

static const struct row rows[] = {
#define METRIC(scope, member, name, type, help) \
    {scope, AT_##scope(member), PREFIX name, type, help},
#include "core/metrics.def"
#undef METRIC
};

static const char *const labels[] = {
    [INFO] = "version, segment",
    [ENGINE] = "",
    [OPCODE] = "opcode",
    [ERROR] = "error, class",
    [CAUSE] = "cause",
    [PEER] = "peer, opcode",
    [TRANSPORT] = "transport",
    [TRANSPORT_OPCODE] = "transport, opcode",
    [TRANSPORT_CLASS] = "transport, class",
    [NIC] = "transport, nic",
    [NIC_DIRECTION] = "transport, nic, direction",
    [LATENCY] = "transport, opcode, le",
    [PHASE] = "transport, opcode, le",
    [SIZE] = "transport, opcode, le",
    [FROM_TO] = "from, to",
};

bool tei_metric_row(size_t i, struct tei_metric_row *out)
{
    if (i >= TEI_ARRAY_LEN(rows))
        return false;
    *out = (struct tei_metric_row){.name = rows[i].name,
                                   .type = rows[i].type,
                                   .labels = labels[rows[i].scope],
                                   .help = rows[i].help};
    return true;
}

/* -------------------------------------------------------------------------------------- writing */

static const uint64_t *member(const void *of, const struct row *r)
{
    return (const uint64_t *)(const void *)((const char *)of + r->offset);
}

/* A label's value: UTF-8, as the format wants it. Of a name that is not, the other bytes are told as U+FFFD. */
static void put_value(FILE *f, const char *text)
{
    for (size_t n = 1; *text; text += n) {
        n = (unsigned char)*text < 0x80
                ? 1
                : tei_utf8_length((const unsigned char *)text, strlen(text));
        if (n == 0)
            fputs("\xef\xbf\xbd", f);
        else if (*text == '\n')
            fputs("\\n", f);
        else
            fprintf(f, *text == '\\' || *text == '"' ? "\\%.*s" : "%.*s", (int)n, text);
        n += n == 0;
    }
}

static void write_info(const struct snapshot *s, const struct row *r, FILE *f)
{
    fprintf(f, "%s{version=\"%s\",segment=\"", r->name, te_version());
    put_value(f, s->segment);
    fputs("\"} 1\n", f);
}

static void write_engine(const struct snapshot *s, const struct row *r, FILE *f)
{
    fprintf(f, "%s %llu\n", r->name, (unsigned long long)*member(s, r));
}

static void write_opcode(const struct snapshot *s, const struct row *r, FILE *f)
{
    for (int op = 0; op < 2; op++)
        fprintf(f, "%s{opcode=\"%s\"} %llu\n", r->name, opcodes[op],
                (unsigned long long)member(s, r)[op]);
}

static const char *const classes[METRICS_CLASSES] = {"request", "path", "fatal"};

/* All there are: rate() sees no series whose first value is the first error. */
static void write_error(const struct snapshot *s, const struct row *r, FILE *f)
{
    static const int codes[] = {
#define CODE(name, number, class, text) (number),
        TE_ERR_MAP(CODE)
#undef CODE
    };

    for (size_t i = 0; i < METRICS_ERRORS; i++)
        if (codes[i] != TE_ERR_OK)
            fprintf(f, "%s{error=\"%s\",class=\"%s\"} %llu\n", r->name, te_errname(codes[i]),
                    classes[tei_err_class(codes[i]) - 1], (unsigned long long)member(s, r)[i]);
}

static void write_one_peer(const char *name, const struct totals *t, const struct row *r, FILE *f)
{
    for (int op = 0; op < 2; op++) {
        fprintf(f, "%s{peer=\"", r->name);
        put_value(f, name);
        fprintf(f, "\",opcode=\"%s\"} %llu\n", opcodes[op], (unsigned long long)member(t, r)[op]);
    }
}

/* All of them, so that the first of a kind is seen as one more. */
static void write_cause(const struct snapshot *s, const struct row *r, FILE *f)
{
    for (size_t i = 0; i < TEI_AUTH_N_CAUSES; i++)
        fprintf(f, "%s{cause=\"%s\"} %llu\n", r->name, tei_auth_label((enum tei_auth_cause)i),
                (unsigned long long)member(s, r)[i]);
}

static void write_peer(const struct snapshot *s, const struct row *r, FILE *f)
{
    for (size_t i = 0; i < s->n_peers; i++)
        write_one_peer(s->peers[i].name, &s->peers[i].told, r, f);
    write_one_peer("other", &s->others, r, f);
}

static const struct by_transport *next_transport(const struct snapshot *s, size_t *i)
{
    while (*i < TEI_TRANSPORTS_MAX && !s->transports[*i].name)
        ++*i;
    return *i < TEI_TRANSPORTS_MAX ? &s->transports[(*i)++] : NULL;
}

static void write_transport(const struct snapshot *s, const struct row *r, FILE *f)
{
    const struct by_transport *t;

    for (size_t i = 0; (t = next_transport(s, &i));)
        fprintf(f, "%s{transport=\"%s\"} %llu\n", r->name, t->name,
                (unsigned long long)*member(t, r));
}

static void write_transport_opcode(const struct snapshot *s, const struct row *r, FILE *f)
{
    const struct by_transport *t;

    for (size_t i = 0; (t = next_transport(s, &i));)
        for (int op = 0; op < 2; op++)
            fprintf(f, "%s{transport=\"%s\",opcode=\"%s\"} %llu\n", r->name, t->name, opcodes[op],
                    (unsigned long long)member(t, r)[op]);
}

static void write_transport_class(const struct snapshot *s, const struct row *r, FILE *f)
{
    const struct by_transport *t;

    for (size_t i = 0; (t = next_transport(s, &i));)
        for (int k = 0; k < METRICS_CLASSES; k++)
            fprintf(f, "%s{transport=\"%s\",class=\"%s\"} %llu\n", r->name, t->name, classes[k],
                    (unsigned long long)member(t, r)[k]);
}

/* All pairs that there can be: of a series that begins at 1 rate() does not see the first. */
static void write_from_to(const struct snapshot *s, const struct row *r, FILE *f)
{
    const struct by_transport *from, *to;

    for (size_t i = 0; (from = next_transport(s, &i));)
        for (size_t k = 0; (to = next_transport(s, &k));)
            if (from != to)
                fprintf(f, "%s{from=\"%s\",to=\"%s\"} %llu\n", r->name, from->name, to->name,
                        (unsigned long long)s->failovers[from - s->transports][to - s->transports]);
}

static void write_one_nic(const char *transport, const struct tei_nic_figures *n,
                          const char *direction, uint64_t value, const struct row *r, FILE *f)
{
    fprintf(f, "%s{transport=\"%s\",nic=\"", r->name, transport);
    put_value(f, n->name);
    if (direction)
        fprintf(f, "\",direction=\"%s", direction);
    fprintf(f, "\"} %llu\n", (unsigned long long)value);
}

static void write_nic(const struct snapshot *s, const struct row *r, FILE *f)
{
    for (size_t i = 0; i < TEI_TRANSPORTS_MAX; i++)
        for (size_t k = 0; k < s->nics[i].n; k++)
            write_one_nic(s->transports[i].name, &s->nics[i].v[k], NULL,
                          *member(&s->nics[i].v[k], r), r, f);
}

static void write_nic_direction(const struct snapshot *s, const struct row *r, FILE *f)
{
    static const char *const directions[] = {"sent", "received"};

    for (size_t i = 0; i < TEI_TRANSPORTS_MAX; i++)
        for (size_t k = 0; k < s->nics[i].n; k++)
            for (size_t d = 0; d < 2; d++)
                write_one_nic(s->transports[i].name, &s->nics[i].v[k], directions[d],
                              member(&s->nics[i].v[k], r)[d], r, f);
}

static uint64_t bound_at(size_t k)
{
    uint64_t octave = UINT64_C(1) << (METRICS_FIRST + k / 2);

    return k % 2 ? octave + octave / 2 : octave;
}

/* Bytes, or seconds of so many nanoseconds: as %.9f would, but with a point in every locale. */
static void put_number(FILE *f, const struct row *r, uint64_t n)
{
    if (r->scope == SIZE)
        fprintf(f, "%llu", (unsigned long long)n);
    else
        fprintf(f, "%llu.%09llu", (unsigned long long)(n / 1000000000),
                (unsigned long long)(n % 1000000000));
}

/* The sum in nanoseconds may need more than 64 bits. */
static void put_sum(FILE *f, const struct row *r, const struct samples *h)
{
    uint64_t k = h->sum_k + h->sum_rest / 1000, rest = h->sum_rest % 1000;

    if (r->scope == SIZE)
        put_number(f, r, k * 1000 + rest);
    else
        fprintf(f, "%llu.%09llu", (unsigned long long)(k / 1000000),
                (unsigned long long)(k % 1000000 * 1000 + rest));
}

static uint64_t count_of(const struct samples *t)
{
    uint64_t sum = 0;

    for (size_t k = 0; k <= METRICS_BOUNDS; k++)
        sum += t->counts[k];
    return sum;
}

/* All bounds, or of what there is much of powers of two only. */
static void write_buckets(const struct row *r, const char *of, const struct samples *h, FILE *f)
{
    size_t step = r->scope == LATENCY ? 1 : 2;
    uint64_t sum = 0;

    for (size_t k = 0; k < METRICS_BOUNDS; k++) {
        sum += h->counts[k];
        if (k % step)
            continue;
        fprintf(f, "%s_bucket{%s,le=\"", r->name, of);
        put_number(f, r, bound_at(k));
        fprintf(f, "\"} %llu\n", (unsigned long long)sum);
    }
}

static void write_one_histogram(const struct row *r, const char *of, const struct samples *h,
                                FILE *f)
{
    unsigned long long n = count_of(h);

    write_buckets(r, of, h, f);
    fprintf(f, "%s_bucket{%s,le=\"+Inf\"} %llu\n%s_sum{%s} ", r->name, of, n, r->name, of);
    put_sum(f, r, h);
    fprintf(f, "\n%s_count{%s} %llu\n", r->name, of, n);
}

/* Those that have a sample. */
static void write_histogram(const struct snapshot *s, const struct row *r, FILE *f)
{
    const struct samples(*all)[2] = (const void *)((const char *)s + r->offset);
    char of[96];

    for (size_t i = 0; i < METRICS_CARRIERS; i++) {
        for (int op = 0; op < 2; op++) {
            if (!count_of(&all[i][op]))
                continue;
            snprintf(of, sizeof(of), "transport=\"%s\",opcode=\"%s\"",
                     i == TEI_STAGE_INDEX ? "stage" : tei_transport_at(i)->name, opcodes[op]);
            write_one_histogram(r, of, &all[i][op], f);
        }
    }
}

static void (*const writers[])(const struct snapshot *s, const struct row *r, FILE *f) = {
    [INFO] = write_info,
    [ENGINE] = write_engine,
    [OPCODE] = write_opcode,
    [ERROR] = write_error,
    [CAUSE] = write_cause,
    [PEER] = write_peer,
    [TRANSPORT] = write_transport,
    [TRANSPORT_OPCODE] = write_transport_opcode,
    [TRANSPORT_CLASS] = write_transport_class,
    [NIC] = write_nic,
    [NIC_DIRECTION] = write_nic_direction,
    [LATENCY] = write_histogram,
    [PHASE] = write_histogram,
    [SIZE] = write_histogram,
    [FROM_TO] = write_from_to,
};

char *tei_metrics_text(te_engine *e)
{
    struct snapshot *s = take_snapshot(e);
    char *text = NULL;
    size_t len;
    FILE *f = s ? open_memstream(&text, &len) : NULL;
    bool whole = f != NULL;

    for (size_t i = 0; f && i < TEI_ARRAY_LEN(rows); i++) {
        fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", rows[i].name, rows[i].help, rows[i].name,
                rows[i].type);
        writers[rows[i].scope](s, &rows[i], f);
    }
    if (f) {
        whole = !ferror(f);
        whole = fclose(f) == 0 && text && whole;
    }
    free_snapshot(s);
    if (whole)
        return text;
    free(text);
    return NULL;
}

int te_stats_text(te_engine *e, char *buf, size_t n)
{
    int rc = tei_engine_check(e);
    char *text;

    if (rc)
        return rc;
    text = tei_metrics_text(e);
    if (!text)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the metrics");
    rc = tei_text_give(text, buf, n);
    free(text);
    return rc;
}
