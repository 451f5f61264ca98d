/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slow.c - a line in the log for each request that takes longer than TE_SLOW_MS.
 *
 * A batch then has a story for each task. The core writes down when a request begins, waits, is posted and
 * ends; what the transports do in between they add by tei_work.story.
 */
#include "core/slow.h"
#include "base/log.h"
#include "core/core.h"
#include "core/trace.h"
#include "core/view.h"

#include <inttypes.h>
#include <stdlib.h>

int tei_slow_stories(struct batch *b, int64_t slow_ms)
{
    if (slow_ms <= 0)
        return 0;
    b->stories = calloc(b->capacity, sizeof(*b->stories));
    return b->stories ? 0 : TE_ERR_MEMORY;
}

void tei_slow_free(struct batch *b)
{
    size_t n = atomic_load_explicit(&b->claimed, memory_order_relaxed);

    for (size_t i = 0; b->stories && i < n; i++)
        pthread_mutex_destroy(&b->stories[i].lock);
    free(b->stories);
}

void tei_slow_begin(struct task *first, size_t n)
{
    int64_t now = tei_now_ns();

    for (size_t i = 0; i < n; i++) {
        struct tei_story *s = tei_slow_story(&first[i]);

        pthread_mutex_init(&s->lock, NULL);
        s->begun_ns = s->posted_ns = now;
    }
}

void tei_slow_let_go(struct task *t)
{
    struct tei_story *s = tei_slow_story(t);

    s->begun_ns = s->posted_ns = tei_now_ns();
}

void tei_slow_parked(struct task *t)
{
    struct tei_story *s = tei_slow_story(t);

    s->parked_ns = tei_now_ns();
    s->restarts += s->transport != NULL;
}

static void end_parking(struct tei_story *s, int64_t now)
{
    if (s->parked_ns)
        s->descriptor_ns += now - s->parked_ns;
    s->parked_ns = 0;
}

void tei_slow_posted(struct task *t)
{
    struct tei_story *s = tei_slow_story(t);

    s->posted_ns = tei_now_ns();
    s->moving_ns = 0;
    s->parts = 0;
    end_parking(s, s->posted_ns);
}

static double ms(int64_t ns)
{
    return (double)ns / TEI_NS_PER_MS;
}

/*
 * When it began to move. A transport may have taken the time before it was given the work, and one that moves
 * a short work at once, in the calling thread, takes no part of it.
 */
static int64_t moving_since(const struct tei_story *s, int error, int64_t now)
{
    if (!s->moving_ns)
        return error ? now : s->posted_ns;
    return s->moving_ns > s->posted_ns ? s->moving_ns : s->posted_ns;
}

static void tell(const struct task *t, const struct tei_story *s, int error, int64_t now)
{
    const struct tei_traceparent *trace = tei_trace_of(t);
    char text[TEI_TRACEPARENT_TEXT];
    bool waits = s->parked_ns != 0;
    int64_t moving_ns = moving_since(s, error, now);

    TEI_WARN(
        "slow request: %s of %" PRIu64 " bytes at 0x%" PRIx64
        " of segment '%s' took %.1f ms, more than TE_SLOW_MS=%" PRId64
        ": %s by %s; descriptor %.1f ms, earlier attempts %.1f ms, queue %.1f ms, wire %.1f ms; "
        "parts %u, retries %u, path changes %u, restarts %u; last way: %s%s%s",
        t->req.opcode == TE_READ ? "read" : "write", t->req.length, t->req.target_offset,
        t->view ? t->view->peer->name : "", ms(now - s->begun_ns), t->batch->engine->conf.slow_ms,
        te_errname(error), s->transport ? s->transport : "no transport",
        ms(s->descriptor_ns + (waits ? now - s->parked_ns : 0)),
        ms((waits ? s->parked_ns : s->posted_ns) - s->begun_ns - s->descriptor_ns),
        waits ? 0.0 : ms(moving_ns - s->posted_ns), waits ? 0.0 : ms(now - moving_ns), s->parts,
        s->retries, s->path_changes, s->restarts, s->path[0] ? s->path : "not known",
        trace ? "; trace " : "", trace ? tei_traceparent_write(trace, text) : "");
}

void tei_slow_ended(struct task *t, int error)
{
    struct tei_story *s = tei_slow_story(t);
    int64_t now = tei_now_ns();

    if (now - s->begun_ns > t->batch->engine->conf.slow_ms * TEI_NS_PER_MS)
        tell(t, s, error, now);
}
