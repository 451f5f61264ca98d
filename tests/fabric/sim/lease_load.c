/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_load.c - leases (te_lease.h) that hosts grant and revoke, what users of others do by their keys, and what must be
 * true of it. The memory is a mark but for what a lease lets in. Once te_revoke() has returned it is a mark again, and
 * for a while nobody can touch it: whoever does so ends the run.
 */
#include "world.h"

#include "load.h"
#include "sim.h"
#include "te.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPAN ((size_t)8 * 1024) /* of a user, in the memory that leases are of */
#define MARK 0x6b

struct sim_lent {
    char *memory; /* registered for nobody */
    size_t size;
    unsigned
        serial; /* of the lease, odd: it is granted; even: is being revoked, or was. No other one has it */
    unsigned revoked; /* the serial that it had when te_revoke() returned last */
    te_lease id;
    te_lease_key key;
    te_lease_key old;  /* that of the lease before, which is over */
    size_t begin, end; /* what it is of */
    unsigned access;
    int64_t until; /* 0: no limit */
};

/* What a user knows of one: it need not be so any more. */
struct shown {
    struct sim_lent lent;
    bool was_over; /* it had been revoked before the request was submitted */
};

static unsigned serials;

/* ----------------------------------------------------------------------------------------- who grants */

void sim_leases_begin(struct life *l, char *memory, size_t size)
{
    l->lent = sim_new(sizeof(*l->lent));
    l->lent->memory = memory;
    l->lent->size = size;
    memset(sim_view(memory), MARK, size);
    sim_register(l->engine, memory, size, 0);
}

size_t sim_leases_size(void)
{
    return (size_t)sim_world.knobs.hosts * LIVES * USERS * SPAN;
}

static void grant(struct life *l)
{
    struct sim_lent *g = l->lent;
    int64_t lifetime_ms = 0;
    int rc;

    g->begin = 0;
    g->end = g->size;
    g->access = TE_REMOTE_READ | TE_REMOTE_WRITE;
    if (!sim_world.is_quiet && sim_one_in(2)) {
        g->begin = (size_t)sim_below(g->size / 2);
        g->end = g->begin + 1 + (size_t)sim_below(g->size - g->begin);
    }
    if (!sim_world.is_quiet && sim_one_in(4))
        g->access = 1 + (unsigned)sim_below(3);
    if (!sim_world.is_quiet && sim_one_in(5))
        lifetime_ms = 1 + (int64_t)sim_below(2000);
    g->until = lifetime_ms ? sim_now() + lifetime_ms * SIM_MS : 0;
    while ((rc = sim_later.lease_grant(l->engine, g->memory + g->begin, g->end - g->begin,
                                       g->access, lifetime_ms, &g->id, &g->key)) < 0 &&
           rc == TE_ERR_MEMORY && (sim_world.knobs.faults & FAULT_MEMORY) && !sim_world.is_quiet)
        usleep(1000);
    sim_ok(rc, "te_lease_grant");
    serials += 2;
    g->serial = serials - 1;
    sim_trace("host %d: lease %u of %zu + %zu", l->host, g->serial, g->begin, g->end - g->begin);
}

static void revoke_lease(struct life *l)
{
    int64_t begin = sim_now();

    sim_ok(sim_later.revoke(l->engine, l->lent->id), "te_revoke");
    if (sim_now() > begin + sim_patience() && !sim_stood(l->host, begin))
        sim_fail("te_revoke() has taken %lld ms", (long long)((sim_now() - begin) / SIM_MS));
    if (sim_one_in(8) && sim_later.revoke(l->engine, l->lent->id) != TE_ERR_NOT_FOUND)
        sim_fail("a lease is revoked twice");
}

/* The lease is of what was registered then. */
static void register_anew(struct life *l)
{
    sim_unregister(l->engine, l->lent->memory);
    sim_register(l->engine, l->lent->memory, l->lent->size, 0);
}

/* Its key is of no use any more. It ends those that are inside, with all else that is on their connections. */
static void take_back(struct life *l, void (*by)(struct life *))
{
    struct host *h = &sim_world.hosts[l->host];
    struct sim_lent *g = l->lent;
    unsigned was = g->serial, had_closed = sim_breaks_begin(h);

    g->serial = was + 1;
    by(l);
    g->revoked = was;
    g->old = g->key;
    sim_breaks_end(h, had_closed);
}

/* All of it, or what is not in the lease. */
static void check_marked(const struct sim_lent *g, size_t from, size_t to, const char *what)
{
    const char *is = sim_view(g->memory);

    for (size_t i = from; i < to; i++)
        if (is[i] != MARK)
            sim_fail("torn: byte %zu was written %s", i, what);
}

static void check_outside(const struct sim_lent *g)
{
    bool writes = g->access & TE_REMOTE_WRITE;

    check_marked(g, 0, writes ? g->begin : g->size, "that no lease is of");
    check_marked(g, g->end, g->size, "that no lease is of");
}

/* The memory is somebody else's for a while. */
static void keep_away(struct life *l, int64_t us)
{
    struct sim_lent *g = l->lent;

    memset(sim_view(g->memory), MARK, g->size);
    sim_allow(g->memory, g->size, false);
    sim_block(&g->serial, "has memory of its own", sim_now() + us * SIM_US);
    sim_allow(g->memory, g->size, true);
    check_marked(g, 0, g->size, "after its lease had ended");
}

static void lend(struct life *l, uint64_t us)
{
    struct sim_lent *g = l->lent;

    bool by_memory = sim_one_in(5);

    grant(l);
    sim_block(&g->serial, "lends memory", sim_now() + (int64_t)sim_below(us) * SIM_US);
    take_back(l, by_memory ? register_anew : revoke_lease);
    check_outside(g);
    keep_away(l, (int64_t)sim_below(us / 8));
    if (by_memory)
        revoke_lease(l);
}

/* The last one stays, for what must be reached in the end. */
void *sim_leases_main(void *life)
{
    struct life *l = life;

    while (!sim_world.is_quiet) {
        lend(l, 2000000);
        for (uint64_t n = sim_one_in(3) ? sim_below(60) : 0, us = 16u << sim_below(8);
             n > 0 && !sim_world.is_quiet; n--)
            lend(l, us);
    }
    grant(l);
    return NULL;
}

/* Nobody shows a key any more. */
void sim_leases_end(struct life *l)
{
    if (!l->lent)
        return;
    take_back(l, revoke_lease);
    keep_away(l, 0);
}

/* ------------------------------------------------------------------------------------------ who shows */

static bool is_open(const struct life *to, const struct shown *k)
{
    return k->lent.serial % 2 && to->lent->serial == k->lent.serial && !to->over;
}

/* By the bounds and rights that it has, if it has not ended. */
static bool allows(const struct shown *k, const te_request *r, const struct life *to)
{
    size_t at = (size_t)(r->target_offset - (uintptr_t)to->lent->memory);
    unsigned needs = r->opcode == TE_READ ? TE_REMOTE_READ : TE_REMOTE_WRITE;

    return at >= k->lent.begin && at + r->length <= k->lent.end && (k->lent.access & needs);
}

/* Neither knows any way by which a key can be shown, or the segment may have been opened with other ways. */
static bool may_lack_way(const struct life *own, const struct life *to)
{
    return own->is_v1 || !own->is_native || to->is_v1 || !to->is_native || to->over ||
           (sim_world.knobs.fabrics & CALLS_PATHS);
}

/* Without faults it is not refused, and never is one of use that is over. */
static void check_refusal(const struct life *own, te_batch b, const struct life *to,
                          const struct shown *k, const te_request *r, struct sim_judged how)
{
    bool late = k->lent.until && sim_now() >= k->lent.until;
    struct te_status s;
    char why[512];

    sim_ok(te_status(own->engine, b, 0, &s), "te_status");
    te_status_msg(own->engine, b, 0, why, sizeof(why));
    if (s.state == TE_COMPLETED && (k->was_over || !allows(k, r, to)))
        sim_fail("a request was done by a lease that %s",
                 k->was_over ? "had been revoked" : "does not allow it");
    if (s.error == TE_ERR_ACCESS) {
        if (is_open(to, k) && allows(k, r, to) && !late)
            sim_fail("a request that a lease allows was refused: %s", why);
        return;
    }
    if (s.error == TE_ERR_UNSUPPORTED && may_lack_way(own, to))
        return;
    sim_check_end(own, b, 0, to, how);
}

/* A request by that key; its state. */
static int ask(struct user *u, struct life *to, te_segment seg, struct shown *k, te_request *r)
{
    struct life *own = u->host->life;
    te_submit_opts opts = {.size = sizeof(opts), .lease = &k->lent.key};
    bool cancel = !sim_world.is_quiet && sim_one_in(8);
    struct sim_judged how = {!cancel, own->writes[to->host] == 0, sim_now()};
    te_batch b = sim_batch(own, 1, 1);
    struct te_status s = {.state = TE_FAILED};
    int rc;

    r->target = seg;
    k->was_over = to->lent->revoked >= k->lent.serial;
    sim_count_write(own, to, r->opcode);
    rc = te_submit(own->engine, b, r, 1, &opts);
    if (rc != TE_ERR_UNSUPPORTED || !may_lack_way(own, to))
        sim_ok(rc, "te_submit");
    if (rc == 0 && sim_one_in(2)) { /* it ends in the middle of that */
        usleep(
            (useconds_t)sim_below((uint64_t)(2 * sim_time_to(own->host, to->host) / SIM_US + 1)));
        sim_wake(&to->lent->serial, true);
    }
    if (rc == 0 && cancel) {
        sim_ok(te_cancel(own->engine, b), "te_cancel");
        sim_await_canceled(own, b);
    } else if (rc == 0) {
        sim_await_end(own->engine, b, 0);
        check_refusal(own, b, to, k, r, how);
    }
    if (rc == 0)
        sim_ok(te_status(own->engine, b, 0, &s), "te_status");
    sim_trace("%s by lease %u: state %d, error %d", r->opcode == TE_READ ? "READ" : "WRITE",
              k->lent.serial, s.state, s.error);
    sim_ok(te_batch_free(own->engine, b), "te_batch_free");
    sim_world.counts.batches++;
    sim_world.counts.completed += s.state == TE_COMPLETED;
    sim_world.counts.ended += s.state != TE_COMPLETED;
    return s.state;
}

static void check_same(const struct life *to, const struct shown *k, const te_request *r,
                       const char *wrote, const void *got)
{
    if (is_open(to, k) && memcmp(wrote, got, r->length) != 0)
        sim_fail("torn: what was written by lease %u is not there", k->lent.serial);
    sim_world.counts.bytes += r->length;
}

/* Writes to a part of what is this user's in the memory, and reads that; whether both are COMPLETED. */
static bool use(struct user *u, struct life *to, te_segment seg)
{
    size_t slice = (sim_slot_number(u, 0) / SLOTS) * SPAN, at = (size_t)sim_below(SPAN - 1);
    te_request r = {.opcode = TE_WRITE,
                    .source = u->local,
                    .target_offset = (uintptr_t)to->lent->memory + slice + at,
                    .length = 1 + sim_below(SPAN - at)};
    struct shown k = {.lent = *to->lent};
    char *wrote = sim_new(SPAN), *there = (char *)(uintptr_t)r.target_offset;
    unsigned *doubt = &u->lease_doubts[to->host];
    bool well;

    if (sim_one_in(4))
        usleep((useconds_t)sim_below(200000)); /* and it may be over */
    sim_allow(u->local, sim_world.slot, true);
    for (size_t i = 0; i < r.length; i++)
        wrote[i] = (char)sim_below(256);
    memcpy(sim_view(u->local), wrote, r.length);
    well = ask(u, to, seg, &k, &r) == TE_COMPLETED;
    if (!well)
        *doubt = k.lent.serial;
    if (well && *doubt != k.lent.serial && is_open(to, &k))
        check_same(to, &k, &r, wrote, sim_view(there));
    memset(sim_view(u->local), 0, r.length);
    r.opcode = TE_READ;
    if (ask(u, to, seg, &k, &r) != TE_COMPLETED)
        well = false;
    else if (well && *doubt != k.lent.serial)
        check_same(to, &k, &r, wrote, sim_view(u->local));
    sim_allow(u->local, sim_world.slot, false);
    free(wrote);
    return well;
}

/* Of its own memory an engine does what it likes. */
static bool is_lent(const struct user *u, const struct life *to)
{
    return to != u->host->life && to->lent && to->lent->serial;
}

void sim_leases_use(struct user *u, struct life *to, te_segment seg)
{
    for (uint64_t n = 1 + sim_below(5); n > 0 && is_lent(u, to); n--)
        use(u, to, seg);
}

bool sim_leases_reach(struct user *u, struct life *to, te_segment seg)
{
    return !is_lent(u, to) || may_lack_way(u->host->life, to) || use(u, to, seg);
}

/* ------------------------------------------------------------------------------------ who means harm */

char *sim_leases_place(const struct life *l)
{
    return l->lent->memory + sim_below(l->lent->size - 1);
}

/* One that is over, or the one that counts but for a bit. */
void sim_leases_wrong_key(const struct life *l, uint8_t *key)
{
    uint64_t chance = sim_below(3);

    if (chance == 0 && l->lent->revoked) {
        memcpy(key, l->lent->old.bytes, sizeof(l->lent->old.bytes));
    } else if (chance == 1) {
        memcpy(key, l->lent->key.bytes, sizeof(l->lent->key.bytes));
        key[sim_below(sizeof(l->lent->key.bytes))] ^= (uint8_t)(1u << sim_below(8));
    }
}
