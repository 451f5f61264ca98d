/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.h - the life of work inside a transport: which bytes are given out, what came back, which
 * error stays, what is late, and when a work is over. docs/design.md, "The ledger", has the rules.
 *
 * A ledger is pure data: it has no lock, no clock and calls nobody. The lock of its owner guards it,
 * and the owner passes the time. The parts that were taken belong to the owner until they are back.
 */
#ifndef TEI_LEDGER_H
#define TEI_LEDGER_H

#include "transport/transport.h"

/*
 * What a transport on a ledger embeds as the first member of its work. The ledger's alone, but that
 * `base.why` of a work without an error may be set to what has kept it: a timeout says that.
 */
struct tei_entry {
    struct tei_work base;
    uint64_t next;    /* bytes that were given to parts */
    int64_t since_ns; /* posted, or the last time that it moved or got its only part to move */
    uint32_t out;     /* parts under way */
    uint32_t waiting; /* of them those that wait inside a transport; tei_part_waits() */
};

/* A range of one work that is moved at a time. */
struct tei_part {
    struct tei_entry *entry;
    char *local;
    uint64_t remote;
    uint64_t length;
    /* Set by who moves it if it was not moved; as in struct tei_work. */
    int error, sys_errno;
    bool waits; /* tei_part_waits() */
    const char *why;
};

struct tei_ledger {
    struct tei_list queue;  /* without an error, and with bytes that no part has */
    struct tei_list whole;  /* without an error, all bytes given to parts that are under way */
    struct tei_list failed; /* with an error, and parts under way */
    struct tei_list over;   /* for tei_ledger_reap() */
    int64_t patience_ns;    /* how long a work may make no progress; TEI_NEVER: no limit */
    int64_t progress_ns;    /* the last time that a part of any work was moved */
    int64_t look_ns;        /* no work passes a limit before this time */
    uint64_t n_stalled;     /* times that parts of a work were not moved for so long */
};

static inline struct tei_entry *tei_entry_of(struct tei_link *link)
{
    return tei_container_of(link, struct tei_entry, base.link);
}

/* `no_progress_ms`: conf->transfer_timeout_ms; 0: no limit. */
void tei_ledger_init(struct tei_ledger *l, int64_t no_progress_ms);
void tei_ledger_post(struct tei_ledger *l, struct tei_entry *e, int64_t now);
/* All of a list of tei_work.link, which it empties. */
void tei_ledger_post_all(struct tei_ledger *l, struct tei_list *works, int64_t now);
/* The work of which the next part is taken; NULL: none. */
static inline const struct tei_entry *tei_ledger_first(const struct tei_ledger *l)
{
    struct tei_link *link = tei_list_first(&l->queue);

    return link ? tei_entry_of(link) : NULL;
}
/* The first part of a work is taken, to be moved. */
static inline void tei_work_taken(const struct tei_work *w, int64_t now)
{
    int64_t not_yet = 0;

    if (w->taken_ns)
        atomic_compare_exchange_strong_explicit(w->taken_ns, &not_yet, now, memory_order_relaxed,
                                                memory_order_relaxed);
}
/* The next part of any work in l->queue, at most `max` bytes long; the work keeps its turn. */
static inline void tei_ledger_take_of(struct tei_ledger *l, struct tei_entry *e, uint64_t max,
                                      int64_t now, struct tei_part *part)
{
    uint64_t at = e->next, n = tei_min(e->base.length - at, max);

    *part = (struct tei_part){
        .entry = e, .local = e->base.local + at, .remote = e->base.remote + at, .length = n};
    if (e->out++ == e->waiting)
        e->since_ns = now;
    if (at == 0)
        tei_work_taken(&e->base, now);
    if (e->base.story)
        tei_story_taken(e->base.story, now);
    e->next += n;
    if (e->next == e->base.length)
        tei_list_move_back(&l->whole, &e->base.link);
}
/* That of tei_ledger_first(), which there must be. One with more bytes then goes behind the others. */
static inline void tei_ledger_take(struct tei_ledger *l, uint64_t max, int64_t now,
                                   struct tei_part *part)
{
    struct tei_entry *e = tei_entry_of(l->queue.head.next);

    tei_ledger_take_of(l, e, max, now, part);
    if (e->next < e->base.length)
        tei_list_move_back(&l->queue, &e->base.link);
}
/* It was taken for a transport, in which it waits for others: these are the progress of its work. */
static inline void tei_part_waits(struct tei_part *part)
{
    part->waits = true;
    part->entry->waiting++;
}
/* It was not moved since its work has failed: that has its error. */
static inline void tei_part_give_up(struct tei_part *part)
{
    part->error = part->entry->base.error;
    part->why = NULL;
}
/* A part has ended: nothing touches its memory any more. */
void tei_ledger_back(struct tei_ledger *l, const struct tei_part *part, int64_t now);
/* A part of it goes another way than at its last try. */
static inline void tei_work_changed(struct tei_work *w)
{
    w->changes = (uint8_t)(w->changes + (w->changes < UINT8_MAX));
}
/* What is neither taken nor back has got on: some of a part. */
static inline void tei_ledger_progress(struct tei_ledger *l, struct tei_entry *e, int64_t now)
{
    e->since_ns = l->progress_ns = now;
}
/* tei_ledger_back() of a part that was moved, of which only this is known. */
static inline void tei_ledger_moved(struct tei_ledger *l, struct tei_entry *e, uint64_t length,
                                    bool waits, int64_t now)
{
    tei_ledger_progress(l, e, now);
    e->waiting -= waits;
    atomic_fetch_add_explicit(e->base.moved, length, memory_order_relaxed);
    if (--e->out == 0 && (e->base.error || e->next == e->base.length))
        tei_list_move_back(&l->over, &e->base.link);
}
/* Takes one out of l->queue of which no part is under way. */
static inline void tei_ledger_withdraw(struct tei_entry *e)
{
    tei_list_del(&e->base.link);
}
/* Whether no work is in it, but what is over. */
static inline bool tei_ledger_is_idle(const struct tei_ledger *l)
{
    return tei_list_empty(&l->queue) && tei_list_empty(&l->whole) && tei_list_empty(&l->failed);
}
/* Fails one that is not over. */
void tei_ledger_end(struct tei_ledger *l, struct tei_entry *e, int error, int sys_errno,
                    const char *why);
/* Fails the works of an owner, NULL: all. Those with parts under way are over when these are back. */
void tei_ledger_fail(struct tei_ledger *l, const void *owner, int error, const char *why);
/* Fails what is late. Returns when to look again; TEI_NEVER: when something was posted. */
int64_t tei_ledger_tick(struct tei_ledger *l, int64_t now);
/* Moves what is over behind `done`, for host->work_done(). */
static inline void tei_ledger_reap(struct tei_ledger *l, struct tei_list *done)
{
    tei_list_splice(done, &l->over);
}

/*
 * Work that one thread moves at once, all of it as one part, needs no ledger: the part of it, and the
 * end of both.
 */
static inline struct tei_part tei_part_all(struct tei_entry *e)
{
    return (struct tei_part){
        .entry = e, .local = e->base.local, .remote = e->base.remote, .length = e->base.length};
}
void tei_part_end(const struct tei_part *part);

#endif
