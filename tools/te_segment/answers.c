/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answers.c - which engines of segments answer now.
 *
 * An engine of this make is asked for its descriptor without buffers, which says whose it is: after an
 * engine was killed another one may have got its port. Engines of other makes know no pages, so they
 * get a probe, which every engine answers.
 */
#include "te_segment/answers.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/jobs.h"
#include "base/os.h"

#define THREADS    256 /* asked at a time */
#define PAGE_BYTES (1 << 20)

struct question {
    struct tei_job job;
    const struct tei_conf *conf;
    struct entry *entry;
};

static int check_name(const struct entry *e, const struct tei_bytes *reply)
{
    struct tei_segment *s;
    int rc = tei_segment_decode(reply->data, reply->len, &tei_segment_unlimited, &s);

    if (rc == TE_ERR_METADATA)
        return 0; /* it has no descriptor at this moment */
    if (rc)
        return rc;
    if (strcmp(s->name, e->segment->name) != 0)
        rc = TEI_FAIL(TE_ERR_PEER, "another engine answers there, %.200s", s->name);
    tei_segment_put(s);
    return rc;
}

/* A page that begins behind the last buffer has none. */
static int ask_ours(const struct entry *e, int64_t deadline_ns)
{
    char *body = tei_page_request_encode(INT32_MAX, PAGE_BYTES);
    struct tei_bytes reply;
    int rc = body ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory to ask it");

    if (!rc)
        rc = tei_rpc_request(&e->where, TEI_RPC_METADATA, body, strlen(body), 2 * PAGE_BYTES,
                             deadline_ns, &reply);
    free(body);
    if (rc)
        return rc;
    rc = check_name(e, &reply);
    tei_bytes_fini(&reply);
    return rc;
}

static void ask(struct tei_job *job)
{
    struct question *q = tei_container_of(job, struct question, job);
    struct entry *e = q->entry;
    int64_t deadline_ns = tei_deadline_ns((int64_t)q->conf->handshake_connect_timeout_s * 1000);
    bool ours = e->segment && e->segment->incarnation;
    int rc = ours ? ask_ours(e, deadline_ns) : tei_rpc_probe(&e->where, deadline_ns);

    e->answer = rc ? ANSWER_NO : ANSWER_YES;
    if (rc)
        e->silent = strdup(te_errmsg());
}

int answers_ask(const struct tei_conf *conf, struct entry *list, size_t n)
{
    struct question *all = calloc(n + 1, sizeof *all);
    struct tei_jobs jobs;

    if (!all)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to ask the engines");
    tei_jobs_init(&jobs, THREADS);
    for (size_t i = 0; i < n; i++) {
        all[i] = (struct question){.conf = conf, .entry = &list[i]};
        if (list[i].where.port)
            tei_jobs_post(&jobs, &all[i].job, ask);
    }
    tei_jobs_stop(&jobs);
    tei_jobs_fini(&jobs);
    free(all);
    return 0;
}
