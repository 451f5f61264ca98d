/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.c - the life of work inside a transport.
 *
 * A work is in `queue` while it has bytes that no part has, in `whole` while all its bytes are in
 * parts under way, in `failed` while it has an error and parts under way, in `over` once it has ended.
 */
#include "transport/ledger.h"

#include "base/err.h"
#include "base/os.h"

static int64_t ledger_earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void tei_ledger_init(struct tei_ledger *l, int64_t no_progress_ms)
{
    tei_list_init(&l->queue);
    tei_list_init(&l->whole);
    tei_list_init(&l->failed);
    tei_list_init(&l->over);
    l->patience_ns = no_progress_ms > 0 ? no_progress_ms * TEI_NS_PER_MS : TEI_NEVER;
    l->progress_ns = 0;
    l->look_ns = TEI_NEVER;
    l->n_stalled = 0;
}

/*
 * When it has made no progress for too long. A work that waits for its turn makes progress when any
 * other does. One with parts under way does so by them alone: others that move do not hide that it is
 * stuck. But parts that wait inside a transport do so for others.
 */
static int64_t ledger_stall(const struct tei_ledger *l, const struct tei_entry *e)
{
    int64_t since = e->since_ns;

    if (l->patience_ns == TEI_NEVER || since == TEI_NEVER)
        return TEI_NEVER;
    if (e->out == e->waiting && since < l->progress_ns)
        since = l->progress_ns;
    return since + l->patience_ns;
}

/* Whether it has an error to which no other is preferred. */
static bool ledger_is_final(const struct tei_entry *e)
{
    return e->base.error && !tei_err_is_mild(e->base.error);
}

static int64_t ledger_limit(const struct tei_ledger *l, const struct tei_entry *e)
{
    int64_t stall = ledger_stall(l, e);

    return ledger_is_final(e) ? stall : ledger_earlier(e->base.deadline_ns, stall);
}

static inline void ledger_begin(struct tei_ledger *l, struct tei_entry *e, int64_t now)
{
    int64_t stall = l->patience_ns == TEI_NEVER ? TEI_NEVER : now + l->patience_ns;

    assert(!e->base.error); /* nothing would ever end one that has failed in l->queue */
    e->next = 0;
    e->out = e->waiting = 0;
    e->since_ns = now;
    l->look_ns = ledger_earlier(l->look_ns, ledger_earlier(e->base.deadline_ns, stall));
}

void tei_ledger_post_all(struct tei_ledger *l, struct tei_list *works, int64_t now)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(works, link, tmp)
        ledger_begin(l, tei_entry_of(link), now);
    tei_list_splice(&l->queue, works);
}

void tei_ledger_post(struct tei_ledger *l, struct tei_entry *e, int64_t now)
{
    ledger_begin(l, e, now);
    tei_list_push_back(&l->queue, &e->base.link);
}

/*
 * The first error stays, unless it is mild and this one is not; of two timeouts, the one of the part
 * says more.
 */
static bool ledger_outweighs(const struct tei_part *part, const struct tei_work *w)
{
    if (w->error == TE_ERR_TIMEOUT)
        return part->error == TE_ERR_TIMEOUT && part->why;
    return !w->error || (tei_err_is_mild(w->error) && !tei_err_is_mild(part->error));
}

static void ledger_fold(const struct tei_part *part)
{
    struct tei_work *w = &part->entry->base;

    if (ledger_outweighs(part, w)) {
        w->error = part->error;
        w->sys_errno = part->sys_errno;
        w->why = part->why;
    }
}

void tei_part_end(const struct tei_part *part)
{
    if (part->error)
        ledger_fold(part);
    else
        atomic_fetch_add_explicit(part->entry->base.moved, part->length, memory_order_relaxed);
}

/* Nothing more of a work with an error is taken. It is over when none of its parts is under way. */
static void ledger_fail_part(struct tei_ledger *l, const struct tei_part *part)
{
    struct tei_entry *e = part->entry;
    bool had_failed = e->base.error;

    ledger_fold(part);
    if (!e->out || !had_failed)
        tei_list_move_back(e->out ? &l->failed : &l->over, &e->base.link);
}

void tei_ledger_back(struct tei_ledger *l, const struct tei_part *part, int64_t now)
{
    struct tei_entry *e = part->entry;

    if (!part->error) {
        tei_ledger_moved(l, e, part->length, part->waits, now);
        return;
    }
    e->out--;
    e->waiting -= part->waits;
    ledger_fail_part(l, part);
}

void tei_ledger_end(struct tei_ledger *l, struct tei_entry *e, int error, int sys_errno,
                    const char *why)
{
    ledger_fail_part(
        l, &(struct tei_part){.entry = e, .error = error, .sys_errno = sys_errno, .why = why});
}

void tei_ledger_fail(struct tei_ledger *l, const void *owner, int error, const char *why)
{
    struct tei_list *lists[] = {&l->queue, &l->whole, &l->failed};
    struct tei_link *link, *tmp;

    for (size_t i = 0; i < TEI_ARRAY_LEN(lists); i++)
        TEI_LIST_EACH(lists[i], link, tmp)
            if (!owner || tei_entry_of(link)->base.owner == owner)
                tei_ledger_end(l, tei_entry_of(link), error, 0, why);
}

/* Whose parts have stalled is counted, once: by `since_ns`, which the next part sets that is moved. */
static void ledger_look(struct tei_ledger *l, struct tei_entry *e, int64_t now)
{
    bool stalled = e->out && ledger_stall(l, e) <= now;
    bool late = !ledger_is_final(e) && ledger_limit(l, e) <= now;
    const char *why = e->out ? "waiting for a part under way" : "waiting for its turn";

    l->n_stalled += stalled;
    if (late && !e->base.error && e->base.why)
        why = e->base.why;
    if (late)
        tei_ledger_end(l, e, TE_ERR_TIMEOUT, 0, why);
    if (stalled)
        e->since_ns = TEI_NEVER;
    if (e->out || !late)
        l->look_ns = ledger_earlier(l->look_ns, ledger_limit(l, e));
}

int64_t tei_ledger_tick(struct tei_ledger *l, int64_t now)
{
    struct tei_list *lists[] = {&l->queue, &l->whole, &l->failed};
    struct tei_link *link, *tmp;

    if (now < l->look_ns)
        return l->look_ns;
    l->look_ns = TEI_NEVER;
    for (size_t i = 0; i < TEI_ARRAY_LEN(lists); i++)
        TEI_LIST_EACH(lists[i], link, tmp)
            ledger_look(l, tei_entry_of(link), now);
    return l->look_ns;
}
