/* SPDX-License-Identifier: Apache-2.0 */
/* ctl.c - te/ctl. */
#include "core/ctl.h"
#include "core/core.h"

/*
 * Those that an engine has once: of publisher, keeper, rekey, adders, gates, metric_line and the file of metrics; two of
 * parking.
 */
#define CTL_TIMERS 9

void tei_ctl_init(struct ctl *c)
{
    pthread_mutex_init(&c->lock, NULL);
}

void tei_ctl_fini(struct ctl *c)
{
    pthread_mutex_destroy(&c->lock);
}

int tei_ctl_open(struct ctl *c)
{
    int rc = tei_loop_init(&c->loop, &c->lock);

    return rc ? rc : tei_loop_set_aside(&c->loop, CTL_TIMERS);
}

int tei_ctl_run(struct ctl *c)
{
    return tei_loop_start(&c->loop, "te/ctl");
}

void tei_ctl_stop(struct ctl *c)
{
    tei_loop_join(&c->loop);
    tei_loop_fini(&c->loop);
}

void tei_ctl_timer(te_engine *e, struct tei_timer *t, int64_t when_ns,
                   void (*callback)(struct tei_timer *t))
{
    pthread_mutex_lock(&e->ctl.lock);
    if (!atomic_load_explicit(&e->closing, memory_order_relaxed) &&
        (!t->slot || when_ns < t->when_ns))
        tei_timer_set(&e->ctl.loop, t, when_ns, callback);
    pthread_mutex_unlock(&e->ctl.lock);
}
