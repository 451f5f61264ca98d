/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_diagnose.c - log lines about single slices, for those who look for a fault in a fabric; off
 * unless MC_LOG_RDMA_SLICE_AFFINITY or MC_TRACK_RDMA_POSTED_SLICES asks. Who asked wants every line,
 * so these are not limited to some a second, as others are.
 */
#include "transport/rdma/rdma.h"

#include <stdio.h>

#define SLICES_MAX 16 /* told of one endpoint */

void tei_rdma_tell_slice(const struct rdma_endpoint *ep, const struct rdma_slice *s)
{
    struct tei_log_site all = {0};

    tei_log(&all, TE_LOG_INFO, "rdma: %s of %zu bytes at 0x%zx goes through %s to %s",
            s->part.entry->base.opcode == TE_READ ? "read" : "write", (size_t)s->part.length,
            (size_t)s->part.local, ep->nic->name, ep->peer_path);
}

struct text {
    char line[SLICES_MAX][160];
    size_t n, of;
};

/* The lines are written under the lock and logged without it: a sink may take its time. */
static void write_lines(struct rdma_endpoint *ep, struct text *t)
{
    int64_t now = tei_now_ns();
    struct tei_link *link, *next;

    pthread_mutex_lock(&ep->lock);
    t->of = ep->n_posted;
    TEI_LIST_EACH(&ep->posted, link, next) {
        const struct rdma_slice *s = tei_rdma_slice_of(link);

        if (t->n == SLICES_MAX)
            break;
        snprintf(
            t->line[t->n++], sizeof t->line[0],
            "%s of %zu bytes at 0x%zx, 0x%zx there, posted %.3f ms ago to queue pair %u, failed "
            "%u times before",
            s->part.entry->base.opcode == TE_READ ? "read" : "write", (size_t)s->part.length,
            (size_t)s->part.local, (size_t)s->part.remote,
            (double)(now - s->posted_ns) / (double)TEI_NS_PER_MS, s->qp->qp->qp_num, s->attempts);
    }
    pthread_mutex_unlock(&ep->lock);
}

void tei_rdma_tell_posted(struct rdma_endpoint *ep, const char *why)
{
    struct text t = {.n = 0};
    struct tei_log_site all = {0};

    write_lines(ep, &t);
    if (t.of == 0)
        return;
    tei_log(&all, TE_LOG_WARN, "rdma: %s to %s ends with %zu slices posted: %s", ep->nic->name,
            ep->peer_path, t.of, why ? why : "ended");
    for (size_t i = 0; i < t.n; i++) {
        all = (struct tei_log_site){0};
        tei_log(&all, TE_LOG_WARN, "rdma:   %s", t.line[i]);
    }
}
