/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep.c - our keys in the metadata server: kept from expiring, and put again when they are lost.
 *
 * Keys expire TE_METADATA_TTL_S after they were last put or kept, so that those of a dead engine
 * vanish. A timer on te/ctl posts a job (te/aux) three times within that; without expiry the same
 * job looks every CHECK_NS whether a server that was started empty has lost us. Whatever is lost, by
 * the server's fault or because this process was stopped for longer than the keys live, is put
 * again. None of it is in the way of the data path: a server that is away only shows here.
 */
#include "core/keep.h"
#include "core/core.h"

#define CHECK_NS (10 * TEI_NS_PER_S)

static void keep_job(struct tei_job *j);

static void on_keep_timer(struct tei_timer *t)
{
    te_engine *e = tei_container_of(t, te_engine, keeper.timer);

    tei_jobs_post(&e->jobs, &e->keeper.job, keep_job);
}

static void start_timer(te_engine *e)
{
    int64_t ttl_ns = e->conf.metadata_ttl_s * TEI_NS_PER_S;
    int64_t period_ns = ttl_ns && ttl_ns / 3 < CHECK_NS ? ttl_ns / 3 : CHECK_NS;

    tei_ctl_timer(e, &e->keeper.timer, tei_now_ns() + period_ns, on_keep_timer);
}

/* Sets one bit of the state, or clears it; whether that is news. */
static bool change(struct keeper *s, int bit, bool set)
{
    int was = set ? atomic_fetch_or_explicit(&s->state, bit, memory_order_relaxed)
                  : atomic_fetch_and_explicit(&s->state, ~bit, memory_order_relaxed);

    return ((was & bit) != 0) != set;
}

static bool is_trouble(te_engine *e, int rc)
{
    bool yes = rc == TE_ERR_METADATA || rc == TE_ERR_TIMEOUT;

    if (yes)
        atomic_fetch_add_explicit(&e->count.store_failures, 1, memory_order_relaxed);
    return yes;
}

void tei_keep_note_put(te_engine *e, int rc)
{
    if (rc == TE_ERR_EXISTS) {
        if (change(&e->keeper, STORE_TAKEN, true))
            TEI_WARN("%s: another engine has taken this name in the metadata server, so this one "
                     "is not found any more; give each engine a name of its own",
                     e->name);
    } else if (is_trouble(e, rc)) {
        if (change(&e->keeper, STORE_REFUSES, true))
            TEI_WARN("%s: the metadata server does not take this engine's keys (%s); open segments "
                     "go on",
                     e->name, te_errmsg());
    } else if (rc == 0 && change(&e->keeper, STORE_REFUSES, false)) {
        TEI_WARN("%s: the metadata server takes keys again", e->name);
    }
}

/* What the job has learned, as loud when it is good as when it is bad, or the log would end so. */
static void note_keep(te_engine *e, int rc)
{
    bool trouble = is_trouble(e, rc), free_again;

    if (change(&e->keeper, STORE_DOWN, trouble))
        TEI_WARN("%s: the metadata server %s%s%s", e->name,
                 trouble ? "cannot be asked (" : "is in order again", trouble ? te_errmsg() : "",
                 trouble ? "); open segments go on" : "");
    if (trouble)
        return;
    if (rc == TE_ERR_EXISTS) {
        tei_keep_note_put(e, rc);
        return;
    }
    free_again = change(&e->keeper, STORE_TAKEN, false);
    if (free_again)
        TEI_WARN("%s: this name is free again in the metadata server", e->name);
    else if (rc == TE_ERR_NOT_FOUND)
        TEI_WARN("%s: the metadata server has lost this engine's keys; putting them again",
                 e->name);
}

static void keep_job(struct tei_job *j)
{
    te_engine *e = tei_container_of(j, te_engine, keeper.job);
    bool was_down = atomic_load_explicit(&e->keeper.state, memory_order_relaxed) & STORE_DOWN;
    int rc = TE_ERR_CLOSED;

    if (!atomic_load_explicit(&e->closing, memory_order_relaxed))
        rc = e->dir->ops->keep(e->dir, e->name);
    /* Whatever it found may have been taken out meanwhile. */
    if (atomic_load_explicit(&e->closing, memory_order_relaxed))
        return;
    note_keep(e, rc);
    if (rc == TE_ERR_NOT_FOUND)
        tei_publish_again(e);
    else if (rc == 0 && was_down)
        tei_publish_later(e); /* what could not be put while the server was away */
    start_timer(e);
}

bool tei_keep_is_down(struct keeper *s)
{
    return (atomic_load_explicit(&s->state, memory_order_relaxed) & (STORE_DOWN | STORE_REFUSES)) !=
           0;
}

bool tei_keep_is_taken(struct keeper *s)
{
    return (atomic_load_explicit(&s->state, memory_order_relaxed) & STORE_TAKEN) != 0;
}

void tei_keep_start(te_engine *e)
{
    if (e->dir->ops->stores)
        start_timer(e);
}
