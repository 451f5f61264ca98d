/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submit.c - te_submit: validate -> route -> cut -> post. Read this first.
 *
 * Everything that can be wrong with a request is found before anything starts. What is cut sits on
 * one list per transport (plan.c), and handing these over cannot fail. One thing is not known here:
 * whether a range that the target's descriptor lacks has been registered there since. Such a request
 * is accepted and parked (park.c) until the descriptor was fetched again.
 */
#include "core/submit.h"
#include "core/core.h"
#include "core/complete.h"
#include "core/gate.h"
#include "core/lease.h"
#include "core/notify.h"
#include "core/page_feed.h"
#include "core/rules.h"
#include "core/then.h"
#include "core/trace.h"
#include "core/view.h"

#include <assert.h>

/* Tasks that no transport gets: empty ones are done, the others wait for their peer. */
static void settle_unposted(struct plan *p)
{
    struct tei_link *l;

    while ((l = tei_list_pop(&p->unposted))) {
        struct task *t = tei_container_of(l, struct task, link);

        if (t->req.length == 0)
            tei_task_end(t, TE_ERR_OK, NULL);
        else
            tei_peer_park(t->view->peer, t);
    }
}

/* What requests have beside them, few do: NULL. */
struct beside {
    const struct tei_traceparent *trace;
    const struct rules *rules;
    const te_lease_key *key;
    struct gate *gate;
};

/* The submit lock is held. */
static int submit_planned(struct plan *p, size_t n, const struct beside *x, tei_fill fill,
                          const void *arg)
{
    struct batch *b = p->batch;
    size_t first = atomic_load_explicit(&b->claimed, memory_order_relaxed);
    int rc;

    if (n > b->capacity - first)
        return TEI_FAIL(
            TE_ERR_TOO_MANY,
            "batch has room for %zu more requests of %zu, not for %zu; allocate a larger one",
            b->capacity - first, b->capacity, n);
    p->ruled = x->rules != NULL;
    rc = tei_beside_set(b, BESIDE_TRACE, x->trace, sizeof(*x->trace), n);
    if (!rc)
        rc = tei_beside_set(b, BESIDE_RULES, x->rules, sizeof(*x->rules), n);
    if (!rc)
        rc = tei_beside_set(b, BESIDE_LEASE, x->key, sizeof(*x->key), n);
    if (!rc)
        rc = fill(p, &b->tasks[first], n, arg);
    if (rc) {
        tei_plan_drop(p);
        return rc;
    }
    if (x->gate) {
        tei_gate_hold(x->gate, p, n);
        return 0;
    }
    tei_batch_begin(b, n);
    tei_plan_post(p);
    tei_page_feed_posted(p);
    settle_unposted(p);
    return 0;
}

enum { OPTS_FIRST_SIZE = TEI_SIZE_UP_TO(te_submit_opts, notify_target) };
static_assert(OPTS_FIRST_SIZE <= sizeof(te_submit_opts), "te_submit_opts may only grow");

/* Reads what the caller gave, NULL included, into `known`. */
static int take_opts(te_submit_opts *known, const te_submit_opts *o)
{
    int rc = 0;

    *known = (te_submit_opts){.size = sizeof(*known)};
    if (o)
        rc = tei_sized_take(known, sizeof(*known), OPTS_FIRST_SIZE, o, "te_submit_opts");
    if (!rc && known->deadline_ms < 0)
        rc = TEI_FAIL(TE_ERR_INVALID, "te_submit_opts: deadline_ms %lld is negative",
                      (long long)known->deadline_ms);
    return rc;
}

/* *out stays as it is where there is none. */
static int take_trace(const te_submit_opts *o, struct tei_traceparent *room,
                      const struct tei_traceparent **out)
{
    const char *wrong;

    if (!o->traceparent)
        return 0;
    wrong = tei_traceparent_read(o->traceparent, room);
    if (wrong)
        return TEI_FAIL(TE_ERR_INVALID, "te_submit_opts: traceparent '%.80s': %s", o->traceparent,
                        wrong);
    *out = room;
    return 0;
}

static int take_rules(const te_submit_opts *o, struct rules *room, const struct rules **out)
{
    bool said = false;
    int rc = tei_rules_read(o->paths, room, &said);

    if (!rc && o->lease && tei_lease_is_none(o->lease))
        rc = TEI_FAIL(TE_ERR_INVALID, "te_submit_opts: the key of the lease is all zeros, which "
                                      "te_lease_grant() makes no key of");
    if (!rc && o->lease)
        tei_lease_rules(room);
    *out = said || o->lease ? room : NULL;
    return rc;
}

enum { STREAM_FIRST_SIZE = TEI_SIZE_UP_TO(te_stream, fd) };
static_assert(STREAM_FIRST_SIZE <= sizeof(te_stream), "te_stream may only grow");

static int take_stream(const te_stream *given, te_stream *known)
{
    int rc;

    *known = (te_stream){.size = sizeof(*known)};
    rc = tei_sized_take(known, sizeof(*known), STREAM_FIRST_SIZE, given, "te_stream");
    if (rc)
        return rc;
    if (!known->location && known->fd <= 0)
        return TEI_FAIL(TE_ERR_INVALID, "te_stream: neither a location nor a descriptor is given");
    return 0;
}

/* The stream of `then` is held up last: what is refused before leaves it alone. */
static int take_order(struct batch *b, size_t n, const te_submit_opts *o, struct gate **gate,
                      struct group **group)
{
    te_stream after, then;
    int rc = o->after ? take_stream(o->after, &after) : 0;

    if (!rc && o->then)
        rc = take_stream(o->then, &then);
    if (!rc && o->after && n)
        rc = tei_gate_make(b->engine, &after, gate);
    if (!rc && o->then)
        rc = tei_then_make(&then, n, group);
    return rc;
}

static int submit_pinned(struct batch *b, size_t n, const te_submit_opts *o, tei_fill fill,
                         const void *arg)
{
    struct beside beside = {.key = o->lease};
    struct tei_traceparent trace;
    struct rules rules;
    struct plan plan;
    int rc = take_trace(o, &trace, &beside.trace);

    if (!rc)
        rc = take_rules(o, &rules, &beside.rules);
    tei_plan_init(&plan, b->engine, b, n);
    if (o->deadline_ms > 0)
        plan.deadline_ns = tei_deadline_ns(o->deadline_ms);
    if (!rc && o->notify_name)
        rc = tei_notify_group(b->engine, o, n, &plan.group);
    if (!rc && (o->after || o->then))
        rc = take_order(b, n, o, &beside.gate, &plan.group);
    if (!rc && n) {
        pthread_mutex_lock(&b->submit_lock);
        rc = submit_planned(&plan, n, &beside, fill, arg);
        pthread_mutex_unlock(&b->submit_lock);
    }
    if (rc)
        tei_group_drop(plan.group);
    if (rc && beside.gate)
        tei_gate_drop(beside.gate);
    return rc;
}

int tei_submit(te_engine *e, te_batch id, size_t n, const te_submit_opts *opts, tei_fill fill,
               const void *arg)
{
    te_submit_opts known;
    int rc = take_opts(&known, opts);
    struct batch *b;

    if (rc)
        return rc;
    b = tei_batch_pin(&e->batches, id);
    if (!b)
        return TEI_FAIL(TE_ERR_NOT_FOUND, "batch %llu does not exist", (unsigned long long)id);
    rc = submit_pinned(b, n, &known, fill, arg);
    tei_batch_unpin(&e->batches, id);
    return rc;
}

/* ------------------------------------------------------------------------ an array of requests */

/* Those of one target in a row share its view: how many holds are not counted on it yet. */
struct shared_view {
    struct view *view;
    te_segment target;
    size_t owed;
};

static void count_views(struct shared_view *s)
{
    if (s->owed)
        tei_view_hold(s->view, s->owed);
    s->owed = 0;
}

static struct view *hold_view(struct peers *set, struct shared_view *s, te_segment target)
{
    if (s->view && s->target == target) {
        s->owed++;
        return s->view;
    }
    count_views(s);
    s->target = target;
    s->view = tei_view_get(set, target);
    return s->view;
}

static struct tei_region *hold_source(struct plan *p, const te_request *r)
{
    struct tei_region *region;

    if (p->region && tei_region_contains(p->region, (uintptr_t)r->source, r->length)) {
        p->owed++;
        return p->region;
    }
    region = tei_region_hold_local(&p->engine->regions, (uintptr_t)r->source, r->length);
    if (region) {
        tei_plan_count(p);
        p->region = region;
    }
    return region;
}

static TEI_COLD int refuse_source(struct plan *p, const te_request *r, size_t i)
{
    char why[256];

    return TEI_FAIL(TE_ERR_NOT_REGISTERED, "request %zu: source %p + %llu %s", i, r->source,
                    (unsigned long long)r->length,
                    tei_region_why_not(&p->engine->regions, (uintptr_t)r->source, r->length, why,
                                       sizeof(why)));
}

/* Fills in the task of request i. On failure it may hold a view. */
static int claim_task(struct plan *p, struct task *t, const te_request *r, size_t i,
                      struct shared_view *s)
{
    int rc = tei_request_check(r, i);

    tei_plan_claim(p, t, NULL, NULL);
    t->req = *r;
    if (rc)
        return rc;
    t->view = hold_view(&p->engine->peers, s, r->target);
    if (!t->view)
        return TEI_FAIL(
            TE_ERR_NOT_FOUND,
            "request %zu: segment %d is not open in this engine; te_open() gives its id", i,
            (int)r->target);
    if (r->length == 0)
        return 0;
    t->region = hold_source(p, r);
    return t->region ? 0 : refuse_source(p, r, i);
}

static int fill_requests(struct plan *p, struct task *tasks, size_t n, const void *arg)
{
    const te_request *reqs = arg;
    struct shared_view s = {0};
    size_t i = 0;
    int rc = 0;

    while (!rc && i < n) {
        rc = claim_task(p, &tasks[i], &reqs[i], i, &s);
        if (!rc)
            rc = tei_plan_task(p, &tasks[i], i, NULL);
        i++;
    }
    count_views(&s);
    tei_plan_count(p);
    while (rc && i-- > 0)
        tei_plan_release(&tasks[i]);
    return rc;
}

int te_submit(te_engine *e, te_batch id, const te_request *reqs, size_t n,
              const te_submit_opts *opts)
{
    int rc = tei_engine_check(e);

    if (!rc && n && !reqs)
        rc = TEI_FAIL(TE_ERR_INVALID, "requests is NULL");
    return rc ? rc : tei_submit(e, id, n, opts, fill_requests, reqs);
}
