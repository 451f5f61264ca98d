/* SPDX-License-Identifier: Apache-2.0 */
/* observe.c - counters, and why a request goes which way. */
#include "core/observe.h"
#include "core/core.h"
#include "core/install.h"
#include "core/life.h"
#include "core/plan.h"
#include "core/route.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- counters */

/* Those that are destroyed included: no counter falls. */
static void read_transports(struct transports *set, struct te_stats *s)
{
    pthread_rwlock_rdlock(&set->lock);
    *s = set->past_stats;
    if (set->leaving)
        set->leaving->ops.stats(set->leaving, s);
    for (size_t i = 0; i < set->n; i++)
        if (set->list[i])
            set->list[i]->ops.stats(set->list[i], s);
    pthread_rwlock_unlock(&set->lock);
}

static void read_core(te_engine *e, struct te_stats *s)
{
    struct counters *c = &e->count;
    struct totals t;

    tei_metrics_totals(e, &t);
    s->requests_submitted = atomic_load_explicit(&c->submitted, memory_order_relaxed);
    s->requests_completed = t.completed[TE_READ] + t.completed[TE_WRITE];
    s->requests_failed = t.failed[TE_READ] + t.failed[TE_WRITE];
    s->bytes_read = t.bytes[TE_READ];
    s->bytes_written = t.bytes[TE_WRITE];
    s->refreshes = atomic_load_explicit(&c->refreshes, memory_order_relaxed);
    s->notifications_sent = atomic_load_explicit(&c->notified, memory_order_relaxed);
    s->metadata_failures = atomic_load_explicit(&c->store_failures, memory_order_relaxed);
    s->metadata_down = tei_keep_is_down(&e->keeper);
    s->notifications_received = atomic_load_explicit(&e->inbox.received, memory_order_relaxed);
    s->regions = atomic_load_explicit(&e->regions.n, memory_order_relaxed);
    pthread_rwlock_rdlock(&e->peers.lock);
    s->segments_open = HASH_COUNT(e->peers.by_name) - 1;
    pthread_rwlock_unlock(&e->peers.lock);
}

void tei_stats_read(te_engine *e, struct te_stats *s)
{
    read_transports(&e->transports, s);
    s->size = sizeof(*s);
    read_core(e, s);
}

enum { STATS_FIRST_SIZE = TEI_SIZE_UP_TO(struct te_stats, metadata_down) };
static_assert(STATS_FIRST_SIZE <= sizeof(struct te_stats), "te_stats may only grow");

int te_stats(te_engine *e, struct te_stats *out)
{
    struct te_stats s;
    int rc = tei_engine_check(e);

    if (rc)
        return rc;
    if (!out)
        return TEI_FAIL(TE_ERR_INVALID, "the place for the counters is NULL");
    tei_stats_read(e, &s);
    return tei_sized_give(out, sizeof(s), STATS_FIRST_SIZE, &s, "struct te_stats");
}

/* A figure that has fallen would be a huge one otherwise. */
static uint64_t since(uint64_t now, uint64_t was)
{
    return now > was ? now - was : 0;
}

/* Asked for by name, so it is told whatever the log level. */
static void on_metric_timer(struct tei_timer *t)
{
    static struct tei_log_site site;
    te_engine *e = tei_container_of(t, te_engine, metric_line.timer);
    const struct te_stats *was = &e->metric_line.last;
    int seconds = e->conf.metric_interval_s;
    struct te_stats now;
    uint64_t moved, served;

    tei_stats_read(e, &now);
    moved = since(now.bytes_read, was->bytes_read) + since(now.bytes_written, was->bytes_written);
    served = since(now.served_bytes_out, was->served_bytes_out) +
             since(now.served_bytes_in, was->served_bytes_in);
    tei_log(&site, TE_LOG_INFO,
            "[Metrics] Transfer Engine Stats (over last %ds): Throughput: %.2f MB/s | Requests: "
            "%llu completed, %llu failed | Served: %.2f MB/s, %llu requests",
            seconds, (double)moved / 1e6 / seconds,
            (unsigned long long)since(now.requests_completed, was->requests_completed),
            (unsigned long long)since(now.requests_failed, was->requests_failed),
            (double)served / 1e6 / seconds,
            (unsigned long long)since(now.served_requests, was->served_requests));
    e->metric_line.last = now;
    tei_metric_start(e);
}

void tei_metric_start(te_engine *e)
{
    if (e->conf.metric)
        tei_timer_set(&e->ctl.loop, &e->metric_line.timer,
                      tei_now_ns() + e->conf.metric_interval_s * TEI_NS_PER_S, on_metric_timer);
}

/* -------------------------------------------------------------------------------------- explain */

static int explain_source(struct regions *m, const te_request *r, FILE *f)
{
    struct tei_region *region = tei_region_hold_local(m, (uintptr_t)r->source, r->length);
    char why[256];

    if (!region) {
        fprintf(f, "source %p + %llu %s\n", r->source, (unsigned long long)r->length,
                tei_region_why_not(m, (uintptr_t)r->source, r->length, why, sizeof(why)));
        return TE_ERR_NOT_REGISTERED;
    }
    fprintf(f, "source: region 0x%zx + %zu at %s\n", (size_t)region->addr, region->length,
            region->location);
    tei_region_release_local(region, 1);
    return 0;
}

/* Whether the target's driver does not copy from or to the source. */
static bool are_strangers(struct regions *m, const te_request *r, const struct tei_region *target)
{
    struct tei_region *source = tei_region_hold_local(m, (uintptr_t)r->source, r->length);
    bool apart = source && tei_regions_apart(source, target);

    if (source)
        tei_region_release_local(source, 1);
    return apart;
}

static int explain_own_target(te_engine *e, const te_request *r, FILE *f)
{
    for (uint64_t done = 0, part; done < r->length; done += part) {
        struct tei_region *region =
            tei_region_hold_part(&e->regions, r->target_offset + done, r->length - done, &part);

        if (!region) {
            fprintf(f, "target: this engine itself, where 0x%llx is not registered\n",
                    (unsigned long long)(r->target_offset + done));
            return TE_ERR_NOT_REGISTERED;
        }
        if (are_strangers(&e->regions, r, region))
            fprintf(f,
                    "target: this engine itself, at %s, copied through host memory, since the "
                    "source's driver does not reach it\n",
                    region->location);
        tei_region_release_local(region, 1);
    }
    fprintf(f, "target: this engine itself\n");
    return 0;
}

/* What the descriptor lacks is no error of a submit, which fetches it again first: *parks. */
static int explain_target(const struct view *v, const te_request *r, FILE *f, bool *parks)
{
    unsigned access = r->opcode == TE_READ ? TE_REMOTE_READ : TE_REMOTE_WRITE;
    char rank[512];
    int rc;

    if (!v->seg)
        return explain_own_target(v->engine, r, f);
    rc = tei_segment_allows(v->seg, r->target_offset, r->length, access);
    *parks = rc != 0;
    fprintf(f, "target: segment '%s' with %zu buffers, version %llu: %s\n", v->seg->name,
            v->seg->n_buffers, (unsigned long long)v->seg->version,
            rc == 0               ? "has the range and allows this"
            : rc == TE_ERR_ACCESS ? "does not allow this; a submit fetches the descriptor again"
                                  : "lacks the range; a submit fetches the descriptor again");
    if (tei_segment_rank(v->seg, rank, sizeof(rank)))
        fprintf(
            f,
            "target: its engine moves data by a library of the NPU's maker that this engine does "
            "not use, %s; see docs/ascend.md\n",
            rank);
    return 0;
}

/* How the source gets to a transport that does not reach it. */
static void explain_staging(te_engine *e, const te_request *r, struct tei_transport *t, FILE *f)
{
    struct tei_region *region = tei_region_hold_local(&e->regions, (uintptr_t)r->source, r->length);

    if (region && tei_transports_carrier(&e->transports, region, NULL, t) != t)
        fprintf(f, "source: copied through host memory, since %s does not reach %s\n", t->ops.name,
                region->location);
    if (region)
        tei_region_release_local(region, 1);
}

/* What is said of one that could carry the request, but does not. */
static void explain_other(struct view *v, const struct via *via, const struct route *route, FILE *f)
{
    const struct via *best = route->via;
    const struct rules *rules = v->peer->rules;
    size_t place = via->transport->place;

    if (!tei_rules_allow(rules, place))
        fprintf(f, "but it is not allowed by te_open_with()\n");
    else if (route->held && best)
        fprintf(f, "but an earlier WRITE there is not over, which %s had\n",
                best->transport->ops.name);
    else if (route->held)
        fprintf(f, "but an earlier WRITE there is not over, by a transport that is not allowed\n");
    else if (!best)
        fprintf(f, "since a moment ago\n");
    else if (rules && rules->rank[best->transport->place] > rules->rank[place])
        fprintf(f, "but %s is preferred by te_open_with()\n", best->transport->ops.name);
    else
        fprintf(f, "not above that of %s\n", best->transport->ops.name);
}

static const struct via *find_via(const struct view *v, size_t place)
{
    for (size_t i = 0; i < v->n_via; i++)
        if (v->via[i].transport->place == place)
            return &v->via[i];
    return NULL;
}

static void explain_transport(struct view *v, size_t place, const struct route *route,
                              const te_request *r, FILE *f)
{
    const struct via *via = find_via(v, place);
    unsigned score = via ? tei_route_score(via, r, tei_route_kind(v, r)) : 0;
    char why[512];

    fprintf(f, "transport %s: ", tei_transport_at(place)->name);
    if (via && via == route->via) {
        fprintf(f, "score %u, taken\n", score);
    } else if (score && score != TEI_SCORE_LATER) {
        fprintf(f, "score %u, ", score);
        explain_other(v, via, route, f);
    } else {
        tei_route_why_not(v, r, place, why, sizeof(why));
        fprintf(f, "%s\n", why);
    }
}

/* What a request that is taken ends with all the same. */
static void explain_files(const struct view *v, const te_request *r, struct tei_transport *t,
                          FILE *f)
{
    char why[1024];

    if ((t->ops.caps & TEI_CAP_FILE) &&
        t->ops.admit(t, v->seg, r->target_offset, r->length, why, sizeof(why)))
        fprintf(f, "target: %s\n", why);
}

/* A line for each transport that is built in. */
static int explain_route(struct view *v, const te_request *r, FILE *f)
{
    const struct route route = tei_route(v, r, NULL);
    char why[512];

    for (size_t i = 0; tei_transport_at(i); i++)
        explain_transport(v, i, &route, r, f);
    if (route.via) {
        explain_staging(v->engine, r, route.via->transport, f);
        explain_files(v, r, route.via->transport, f);
        return 0;
    }
    if (v->over) { /* it is taken, and ends so */
        tei_life_text(v, why, sizeof(why));
        fprintf(f, "%s\n", why);
        return 0;
    }
    if (route.held) {
        fprintf(f, "an earlier WRITE there is not over; te_fence() tells of it\n");
        return TE_ERR_BUSY;
    }
    fprintf(f, "no transport that %s carries it\n",
            v->peer->rules ? "te_open_with() allows" : "both engines have installed");
    return TE_ERR_UNSUPPORTED;
}

static int explain(te_engine *e, const te_request *r, FILE *f)
{
    bool parks = false;
    int rc = tei_request_check(r, 0);
    struct view *v;

    if (rc) {
        fprintf(f, "%s\n", te_errmsg());
        return rc;
    }
    v = tei_view_get(&e->peers, r->target);
    if (!v) {
        fprintf(f, "segment %d is not open\n", (int)r->target);
        return TE_ERR_NOT_FOUND;
    }
    if (r->length == 0) {
        fprintf(f, "length 0: complete at once, nothing is moved\n");
    } else {
        rc = explain_source(&e->regions, r, f);
        if (!rc)
            rc = explain_target(v, r, f, &parks);
        if (!rc)
            rc = explain_route(v, r, f);
        if (parks)
            rc = 0;
    }
    tei_view_put(v, 1);
    return rc;
}

int te_explain(te_engine *e, const te_request *r, char *buf, size_t n)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f;
    int rc = tei_engine_check(e);

    if (!rc && (!r || !buf || n == 0))
        rc = TEI_FAIL(TE_ERR_INVALID, "request or buffer is NULL");
    if (rc)
        return rc;
    f = open_memstream(&text, &len);
    if (!f)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the explanation");
    rc = explain(e, r, f);
    if (fclose(f) == 0)
        snprintf(buf, n, "%s", text);
    free(text);
    return rc ? tei_err_keep(rc, buf) : 0;
}
