/* SPDX-License-Identifier: Apache-2.0 */
/* answers.c - which engines of segments answer now. */
#include "te_segment/answers.h"

#include <stdlib.h>
#include <string.h>

#include "auth/auth.h"
#include "base/err.h"
#include "base/jobs.h"
#include "base/os.h"

#define THREADS 256 /* asked at a time */

struct question {
    struct tei_job job;
    const struct tei_conf *conf;
    struct tei_auth *auth;
    struct entry *entry;
};

static void ask(struct tei_job *job)
{
    struct question *q = tei_container_of(job, struct question, job);
    struct entry *e = q->entry;
    int64_t deadline_ns = tei_deadline_ns((int64_t)q->conf->handshake_connect_timeout_s * 1000);
    int rc = tei_rpc_ask_owner(q->auth, &e->where, e->segment, deadline_ns);

    e->answer = rc ? ANSWER_NO : ANSWER_YES;
    if (rc)
        e->silent = strdup(te_errmsg());
}

int answers_ask(const struct tei_conf *conf, struct entry *list, size_t n)
{
    struct question *all;
    struct tei_auth *auth;
    struct tei_jobs jobs;
    int rc = tei_auth_open(conf, tei_random_u64(), &auth);

    if (rc)
        return rc;
    all = calloc(n + 1, sizeof *all);
    if (!all) {
        tei_auth_close(auth);
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to ask the engines");
    }
    tei_jobs_init(&jobs, THREADS);
    for (size_t i = 0; i < n; i++) {
        all[i] = (struct question){.conf = conf, .auth = auth, .entry = &list[i]};
        if (list[i].where.port)
            tei_jobs_post(&jobs, &all[i].job, ask);
    }
    tei_jobs_stop(&jobs);
    tei_jobs_fini(&jobs);
    free(all);
    tei_auth_close(auth);
    return 0;
}
