/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_history.h - one history of a ledger, read from bytes, beside a model that knows nothing of
 * lists: whatever happens, each work ends exactly once, with the right error, when none of its
 * parts is under way. For fuzz_ledger and the unit test; NDEBUG is never set in tests.
 */
#ifndef TEST_LEDGER_HISTORY_H
#define TEST_LEDGER_HISTORY_H

#include "base/err.h"
#include "base/os.h"
#include "transport/ledger.h"

#include <assert.h>
#include <string.h>

#ifndef HISTORY_WORKS
#define HISTORY_WORKS 12
#define HISTORY_PARTS 24
#endif
#define HISTORY_PATIENCE 50

struct history_work {
    struct tei_entry entry;
    _Atomic uint64_t moved;
    bool live;
    int error;
    uint64_t given, good; /* bytes */
    unsigned out, waiting;
    int64_t since;
};

struct history {
    struct tei_ledger ledger;
    struct history_work works[HISTORY_WORKS];
    struct tei_part parts[HISTORY_PARTS];
    size_t n_parts;
    int64_t now, progress;
};

static const char history_owners[2];
static char history_local[256]; /* no work is longer */

static inline struct history_work *history_of(const struct tei_entry *e)
{
    return tei_container_of((struct tei_entry *)e, struct history_work, entry);
}

static inline bool history_must_end(const struct history_work *w)
{
    return w->live && w->out == 0 && (w->error || w->given == w->entry.base.length);
}

/* What has ended is what the model says, and nothing else. */
static inline void history_reap(struct history *h)
{
    struct tei_list done;
    struct tei_link *link;

    tei_list_init(&done);
    tei_ledger_reap(&h->ledger, &done);
    while ((link = tei_list_pop(&done))) {
        struct history_work *w = history_of(tei_container_of(link, struct tei_entry, base.link));

        assert(history_must_end(w));
        assert(w->entry.base.error == w->error && w->moved == w->good);
        assert(w->error || w->good == w->entry.base.length);
        w->live = false;
    }
    for (size_t i = 0; i < HISTORY_WORKS; i++)
        assert(!history_must_end(&h->works[i]));
}

static inline bool history_is_mild(int error)
{
    return error == TE_ERR_STALE || error == TE_ERR_PEER;
}

static inline void history_fold(struct history_work *w, int error)
{
    if (!w->error || (history_is_mild(w->error) && !history_is_mild(error)))
        w->error = error;
}

/* Nothing if that one is not over. */
static inline void history_post(struct history *h, unsigned i, uint64_t length, int64_t deadline)
{
    struct history_work *w = &h->works[i];

    if (w->live)
        return;
    memset(w, 0, sizeof(*w));
    w->entry.base.owner = &history_owners[i & 1];
    w->entry.base.moved = &w->moved;
    w->entry.base.local = history_local;
    w->entry.base.remote = 1000;
    w->entry.base.length = length;
    w->entry.base.deadline_ns = deadline;
    w->entry.next = w->entry.out = 99; /* what is there before post() means nothing */
    w->live = true;
    w->since = h->now;
    tei_ledger_post(&h->ledger, &w->entry, h->now);
}

static inline void history_take(struct history *h, uint64_t max, bool waits)
{
    const struct tei_entry *first = tei_ledger_first(&h->ledger);
    struct tei_part *part = &h->parts[h->n_parts];
    struct history_work *w;

    if (!first || h->n_parts == HISTORY_PARTS)
        return;
    w = history_of(first);
    tei_ledger_take(&h->ledger, max, h->now, part);
    assert(part->entry == first && w->live && !w->error);
    assert(part->length && part->length <= max && part->remote == 1000 + w->given);
    assert(part->local == history_local + w->given);
    if (w->out++ == w->waiting)
        w->since = h->now;
    w->given += part->length;
    if (waits) {
        tei_part_waits(part);
        w->waiting++;
    }
    h->n_parts++;
}

static inline void history_back(struct history *h, unsigned arg, int error)
{
    struct history_work *w;
    struct tei_part part;
    size_t at;

    if (!h->n_parts)
        return;
    at = arg % h->n_parts;
    part = h->parts[at];
    h->parts[at] = h->parts[--h->n_parts];
    part.error = error;
    w = history_of(part.entry);
    w->out--;
    w->waiting -= part.waits;
    if (error) {
        history_fold(w, error);
    } else {
        w->good += part.length;
        w->since = h->progress = h->now;
    }
    tei_ledger_back(&h->ledger, &part, h->now);
}

/* Owner 2 is everybody. */
static inline void history_fail(struct history *h, unsigned of)
{
    const void *owner = of == 2 ? NULL : &history_owners[of];

    for (size_t i = 0; i < HISTORY_WORKS; i++)
        if (h->works[i].live && (!owner || owner == h->works[i].entry.base.owner))
            history_fold(&h->works[i], TE_ERR_CANCELED);
    tei_ledger_fail(&h->ledger, owner, TE_ERR_CANCELED, NULL);
}

/* When nothing of it was moved for too long. */
static inline int64_t history_stall(const struct history *h, const struct history_work *w)
{
    bool waits = w->out == w->waiting;

    return (waits && w->since < h->progress ? h->progress : w->since) + HISTORY_PATIENCE;
}

static inline void history_tick(struct history *h, int64_t ns)
{
    int64_t next;

    h->now += ns;
    next = tei_ledger_tick(&h->ledger, h->now);
    assert(next > h->now);
    for (size_t i = 0; i < HISTORY_WORKS; i++) {
        struct history_work *w = &h->works[i];
        int64_t limit = history_stall(h, w);

        if (!w->live || (w->error && !history_is_mild(w->error)))
            continue;
        if (w->entry.base.deadline_ns < limit)
            limit = w->entry.base.deadline_ns;
        if (limit <= h->now)
            w->error = TE_ERR_TIMEOUT;
        else
            assert(next <= limit);
    }
}

static inline void history_step(struct history *h, unsigned op, unsigned arg)
{
    static const int errors[] = {TE_ERR_STALE, TE_ERR_PEER, TE_ERR_ACCESS, TE_ERR_SYSTEM};

    switch (op % 8) {
    case 0:
    case 1:
        history_post(h, arg % HISTORY_WORKS, 1 + arg, arg & 16 ? h->now + (arg >> 2) : TEI_NEVER);
        break;
    case 2:
    case 3:
        history_take(h, 1 + arg % 100, arg & 64);
        break;
    case 4:
        history_back(h, arg, TE_ERR_OK);
        break;
    case 5:
        history_back(h, arg, errors[arg % TEI_ARRAY_LEN(errors)]);
        break;
    case 6:
        history_tick(h, arg % 16);
        break;
    default:
        history_fail(h, arg % 3);
    }
    history_reap(h);
}

static inline void history_begin(struct history *h)
{
    memset(h, 0, sizeof(*h));
    tei_ledger_init(&h->ledger, 0);
    h->ledger.patience_ns = HISTORY_PATIENCE;
}

/* Everything is cancelled, and must be over with the last part. */
static inline void history_end(struct history *h)
{
    history_fail(h, 2);
    history_reap(h);
    while (h->n_parts) {
        history_back(h, 0, TE_ERR_OK);
        history_reap(h);
    }
    for (size_t i = 0; i < HISTORY_WORKS; i++)
        assert(!h->works[i].live);
    assert(tei_ledger_is_idle(&h->ledger));
    assert(tei_ledger_tick(&h->ledger, TEI_NEVER - 1) == TEI_NEVER);
}

/* Two bytes a step. */
static inline void history_run(const uint8_t *bytes, size_t n)
{
    struct history h;

    history_begin(&h);
    for (size_t i = 0; i + 1 < n; i += 2)
        history_step(&h, bytes[i], bytes[i + 1]);
    history_end(&h);
}

#endif
