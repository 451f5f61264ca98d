/* SPDX-License-Identifier: Apache-2.0 */
/*
 * warm.c - te_warm(): connects to a segment ahead. How that is done is each transport's to know (warm() of
 * transport.h): all are asked to begin, none waits, and then those that are not through are asked again until they
 * are, in the caller's thread and within one limit of time.
 *
 * A target that is out of reach by one of them may have been started again: its descriptor is fetched as soon as
 * that is known, in the background as for requests, and all begins once more by what that says. The same where the
 * descriptor has changed meanwhile for another reason.
 */
#include "base/os.h"
#include "base/sized.h"
#include "core/core.h"
#include "core/life.h"
#include "core/rules.h"
#include "core/view.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A descriptor may change at any time: no more than so many are followed. */
#define MOVES_MAX 8

enum { WARM_FIRST_SIZE = TEI_SIZE_UP_TO(struct te_warm, by) };
static_assert(WARM_FIRST_SIZE <= sizeof(struct te_warm), "te_warm may only grow");
static_assert(TEI_TRANSPORTS_MAX == TEI_ARRAY_LEN(((struct te_warm *)NULL)->by),
              "each transport has a place");

/* One call. */
struct warmup {
    int64_t begin_ns, deadline_ns;
    struct view *view; /* the one that is asked now; held */
    unsigned moves;    /* views before it */
    uint64_t fetch;    /* of the peer, which this call has asked for; 0: none */
    size_t via
        [TEI_TRANSPORTS_MAX]; /* of the view, by place in out->by: those that the segment's rules allow */
    struct tei_warmth *of; /* likewise by place */
    struct te_warm *out;
};

static void begin_view(struct warmup *x, struct view *v)
{
    x->view = v;
    memset(x->of, 0, TEI_TRANSPORTS_MAX * sizeof(*x->of));
    memset(x->out->by, 0, sizeof(x->out->by));
    x->out->n = 0;
    for (size_t i = 0; i < v->n_via; i++)
        if (tei_rules_allow(v->peer->rules, v->via[i].transport->place))
            x->via[x->out->n++] = i;
}

/* ----------------------------------------------------------------------------------- transports */

/* Asks a transport, and notes what it says; whether it is not through. */
static bool ask(const struct warmup *x, const struct via *via, size_t i)
{
    struct tei_warmth *w = &x->of[i];
    struct te_warmed *by = &x->out->by[i];

    via->transport->ops.warm(via->transport, via->attach, w);
    w->begun = true;
    *by = (struct te_warmed){.error = w->error,
                             .ready = w->ready,
                             .opening = w->opening,
                             .failed = w->failed,
                             .time_ns = (uint64_t)(tei_now_ns() - x->begin_ns)};
    snprintf(by->transport, sizeof(by->transport), "%s", via->transport->ops.name);
    return w->opening > 0;
}

/* Whether one of them is not through. */
static bool ask_all(const struct warmup *x)
{
    bool opening = false;

    for (size_t i = 0; i < x->out->n; i++)
        if (!x->of[i].begun || x->of[i].opening)
            opening = ask(x, &x->view->via[x->via[i]], i) || opening;
    return opening;
}

/* Whether there is no way by this transport. */
static bool is_cold(const struct te_warmed *by)
{
    return by->ready == 0 && by->opening == 0 && by->failed > 0;
}

/* The first of that kind; NULL: there is a way by each. */
static const struct te_warmed *first_cold(const struct te_warm *out)
{
    for (size_t i = 0; i < out->n; i++)
        if (is_cold(&out->by[i]))
            return &out->by[i];
    return NULL;
}

/* ---------------------------------------------------------------------------------- descriptors */

/* Whether by one of them the target is out of reach in a way that a fresh descriptor may mend. */
static bool is_gone(const struct te_warm *out)
{
    for (size_t i = 0; i < out->n; i++)
        if (is_cold(&out->by[i]) &&
            (tei_err_is_mild(out->by[i].error) || out->by[i].error == TE_ERR_LINK))
            return true;
    return false;
}

/* Whether a fetch that may mend what is cold is under way. */
static bool is_fetching(struct warmup *x)
{
    if (x->view->seg && !x->fetch && is_gone(x->out))
        x->fetch = tei_peer_refresh(x->view->peer);
    return x->fetch && !tei_peer_refreshed(x->view->peer, x->fetch);
}

static bool is_of_another_life(const struct view *v, const struct view *than)
{
    return v->over || (v->seg && than->seg && v->seg->incarnation != than->seg->incarnation);
}

/* Begins by the peer's view of now, if it is another and may mend what is cold, or is opening in vain. */
static bool move_on(struct warmup *x)
{
    struct view *now = x->moves < MOVES_MAX ? tei_view_current(x->view->peer) : NULL;

    if (!now)
        return false;
    if (now->serial == x->view->serial ||
        !(first_cold(x->out) || is_of_another_life(now, x->view))) {
        tei_view_put(now, 1);
        return false;
    }
    x->moves++;
    tei_view_put(x->view, 1);
    begin_view(x, now);
    return true;
}

/* ----------------------------------------------------------------------------------- the call */

static bool is_over(const struct warmup *x)
{
    return tei_now_ns() >= x->deadline_ns || tei_engine_check(x->view->engine) != 0;
}

/* Until all are through, or the time is over; whether some are not. */
static bool warm_all(struct warmup *x)
{
    for (;;) {
        bool opening = ask_all(x);
        bool fetching = is_fetching(x); /* looked at before its view is */

        if (move_on(x))
            continue;
        if ((!opening && !fetching) || is_over(x))
            return opening;
        tei_nap(x->begin_ns, x->deadline_ns);
    }
}

/* `opening`: the time is over. Why the first transport that is cold is so comes before that. */
static int verdict(const struct warmup *x, bool opening)
{
    const struct te_warmed *cold = first_cold(x->out);
    const char *name = x->view->peer->name;

    if (x->view->over)
        return tei_life_fail_now(x->view->peer, x->view->instead);
    if (x->view->n_via == 0)
        return TEI_FAIL(TE_ERR_UNSUPPORTED,
                        "no installed transport reaches segment '%s'; te_explain() says why", name);
    if (x->out->n == 0)
        return TEI_FAIL(
            TE_ERR_UNSUPPORTED,
            "no transport that te_open_with() allows reaches segment '%s'; te_explain() "
            "says why",
            name);
    if (cold)
        return TEI_FAIL(cold->error, "segment '%s': %s: %s", name, cold->transport,
                        x->of[cold - x->out->by].why);
    if (opening && tei_engine_check(x->view->engine))
        return TE_ERR_CLOSED;
    if (opening && x->deadline_ns > x->begin_ns)
        return TEI_FAIL(TE_ERR_TIMEOUT,
                        "segment '%s': not all connections are up in time; is the target stopped?",
                        name);
    return 0;
}

static int warm_segment(te_engine *e, te_segment seg, struct warmup *x)
{
    struct view *v = tei_view_get(&e->peers, seg);
    int rc;

    if (!v)
        return TEI_FAIL(TE_ERR_NOT_FOUND, "segment %d is not open; te_open() gives its id",
                        (int)seg);
    x->of = malloc(TEI_TRANSPORTS_MAX * sizeof(*x->of));
    if (!x->of) {
        tei_view_put(v, 1);
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to connect ahead");
    }
    begin_view(x, v);
    rc = verdict(x, warm_all(x));
    tei_view_put(x->view, 1);
    free(x->of);
    return rc;
}

int te_warm(te_engine *e, te_segment seg, int64_t timeout_ms, struct te_warm *out)
{
    struct te_warm found = {.size = sizeof(found)};
    int64_t now = tei_now_ns();
    struct warmup x = {.begin_ns = now, .deadline_ns = now, .out = &found};
    int rc = tei_engine_check(e);

    if (!rc && out) /* before anything is begun */
        rc = tei_sized_give(out, sizeof(found), WARM_FIRST_SIZE, &found, "struct te_warm");
    if (rc)
        return rc;
    if (timeout_ms)
        x.deadline_ns = tei_deadline_ns(timeout_ms);
    rc = warm_segment(e, seg, &x);
    found.time_ns = (uint64_t)(tei_now_ns() - now);
    if (out)
        (void)tei_sized_give(out, sizeof(found), WARM_FIRST_SIZE, &found, "struct te_warm");
    return rc;
}
