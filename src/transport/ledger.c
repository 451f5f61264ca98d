/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.c - the life of work inside a transport.
 *
 * A work is in `queue` while it has bytes that no part has, in `whole` while all its bytes are in
 * parts under way, in `over` once it has ended. One that failed while parts of it are under way is in
 * no list: these parts lead back to it, and the last one of them ends it.
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
    tei_list_init(&l->over);
    l->n_queued = 0;
    l->patience_ns = no_progress_ms > 0 ? no_progress_ms * TEI_NS_PER_MS : TEI_NEVER;
    l->progress_ns = 0;
    l->look_ns = TEI_NEVER;
    l->watched = false;
    l->n_stalled = 0;
}

static void ledger_enter(struct tei_ledger *l, struct tei_entry *e)
{
    bool queued = e->next < e->base.length;

    tei_list_push_back(queued ? &l->queue : &l->whole, &e->base.link);
    l->n_queued += queued;
}

static void ledger_withdraw(struct tei_ledger *l, struct tei_entry *e)
{
    tei_list_del(&e->base.link);
    l->n_queued -= e->next < e->base.length;
}

/*
 * A work that waits for its turn makes progress when any other does. One with parts under way does
 * so by them alone: others that move do not hide that it is stuck. But parts may wait for a turn
 * themselves, with somebody who watches them.
 */
static int64_t ledger_limit(const struct tei_ledger *l, const struct tei_entry *e)
{
    int64_t since = e->since_ns;

    if (l->patience_ns == TEI_NEVER)
        return e->base.deadline_ns;
    if ((!e->out || l->watched) && since < l->progress_ns)
        since = l->progress_ns;
    return ledger_earlier(e->base.deadline_ns, since + l->patience_ns);
}

void tei_ledger_post(struct tei_ledger *l, struct tei_entry *e, int64_t now)
{
    e->next = 0;
    e->out = 0;
    e->since_ns = now;
    ledger_enter(l, e);
    l->look_ns = ledger_earlier(l->look_ns, ledger_limit(l, e));
}

const struct tei_entry *tei_ledger_first(const struct tei_ledger *l)
{
    struct tei_link *link = tei_list_first(&l->queue);

    return link ? tei_entry_of(link) : NULL;
}

void tei_ledger_take(struct tei_ledger *l, uint64_t max, int64_t now, struct tei_part *part)
{
    struct tei_entry *e = tei_entry_of(l->queue.head.next);
    uint64_t n = tei_min(e->base.length - e->next, max);

    *part = (struct tei_part){e, e->base.local + e->next, e->base.remote + e->next, n, 0, 0, NULL};
    ledger_withdraw(l, e);
    if (e->out++ == 0)
        e->since_ns = now;
    e->next += n;
    ledger_enter(l, e);
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

void tei_part_end(const struct tei_part *part)
{
    struct tei_work *w = &part->entry->base;

    if (!part->error) {
        atomic_fetch_add_explicit(w->moved, part->length, memory_order_relaxed);
    } else if (ledger_outweighs(part, w)) {
        w->error = part->error;
        w->sys_errno = part->sys_errno;
        w->why = part->why;
    }
}

/* Nothing more of a work with an error is taken. It is over when none of its parts is under way. */
static void ledger_settle(struct tei_ledger *l, const struct tei_part *part)
{
    struct tei_entry *e = part->entry;
    bool taken;

    tei_part_end(part);
    taken = e->base.error || e->next == e->base.length;
    if (taken && (e->base.error || !e->out) && tei_link_is_in(&e->base.link))
        ledger_withdraw(l, e);
    if (taken && !e->out)
        tei_list_push_back(&l->over, &e->base.link);
}

void tei_ledger_back(struct tei_ledger *l, const struct tei_part *part, int64_t now)
{
    part->entry->out--;
    if (!part->error)
        tei_ledger_progress(l, part->entry, now);
    ledger_settle(l, part);
}

void tei_ledger_end(struct tei_ledger *l, struct tei_entry *e, int error, int sys_errno,
                    const char *why)
{
    ledger_settle(
        l, &(struct tei_part){.entry = e, .error = error, .sys_errno = sys_errno, .why = why});
}

static void ledger_fail_list(struct tei_ledger *l, struct tei_list *list, const void *owner,
                             int error, const char *why)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(list, link, tmp) {
        if (!owner || tei_entry_of(link)->base.owner == owner)
            tei_ledger_end(l, tei_entry_of(link), error, 0, why);
    }
}

void tei_ledger_fail(struct tei_ledger *l, const void *owner, int error, const char *why)
{
    ledger_fail_list(l, &l->queue, owner, error, why);
    ledger_fail_list(l, &l->whole, owner, error, why);
}

static void ledger_end_late(struct tei_ledger *l, struct tei_list *list, int64_t now)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(list, link, tmp) {
        struct tei_entry *e = tei_entry_of(link);
        int64_t limit = ledger_limit(l, e);

        if (limit > now) {
            l->look_ns = ledger_earlier(l->look_ns, limit);
            continue;
        }
        l->n_stalled += e->out > 0;
        tei_ledger_end(l, e, TE_ERR_TIMEOUT, 0,
                       e->out ? "waiting for a part under way" : "waiting for its turn");
    }
}

int64_t tei_ledger_tick(struct tei_ledger *l, int64_t now)
{
    if (now < l->look_ns)
        return l->look_ns;
    l->look_ns = TEI_NEVER;
    ledger_end_late(l, &l->queue, now);
    ledger_end_late(l, &l->whole, now);
    return l->look_ns;
}
