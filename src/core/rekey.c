/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rekey.c - keys change without a restart: the key file is looked at once a second, with TE_AUTH alone.
 *
 * A timer on te/ctl posts a job (te/aux), since a file may be slow to look at.
 */
#include "core/rekey.h"
#include "core/core.h"

#define LOOK_NS TEI_NS_PER_S

static void look_job(struct tei_job *j)
{
    te_engine *e = tei_container_of(j, te_engine, rekey.job);

    /* An engine that is being destroyed may run it on te/ctl, which has the lock that the timer is set with. */
    if (atomic_load_explicit(&e->closing, memory_order_relaxed))
        return;
    tei_auth_look(e->conf.identity);
    tei_rekey_start(e);
}

static void on_timer(struct tei_timer *t)
{
    te_engine *e = tei_container_of(t, te_engine, rekey.timer);

    tei_jobs_post(&e->jobs, &e->rekey.job, look_job);
}

void tei_rekey_start(te_engine *e)
{
    if (e->conf.identity)
        tei_ctl_timer(e, &e->rekey.timer, tei_now_ns() + LOOK_NS, on_timer);
}
