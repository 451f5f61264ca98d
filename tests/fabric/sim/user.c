/* SPDX-License-Identifier: Apache-2.0 */
/*
 * user.c - a user of a host: its batches, and what must be true of them.
 */
#include "world.h"

#include "load.h"
#include "machine.h"
#include "sim.h"
#include "te.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_MS 3000
#define BOUND_NS   (60 * SIM_S) /* of a request's life beyond its deadline */
#define PIECE_NS \
    (TIMEOUT_MS * SIM_MS) /* a piece that does not move ends after it: TE_TRANSFER_TIMEOUT_MS */
#define SYN_NS     (3 * SIM_S) /* a connection takes as much longer where SYNs are lost */
#define LANES      4           /* MC_TCP_LANES_PER_PEER */
#define SETTLE_NS  (300 * SIM_S)
#define TOLD_NS    (60 * SIM_S)
#define JSON       ((size_t)1 << 20)
#define CANCEL_MS  2000   /* a cancelled request ends within, unless its host stands still */
#define PATIENT_MS 600000 /* where threads have no processor for seconds, again and again */

/* -------------------------------------------------------------------------------------- a batch */

static void fill(unsigned char *p, size_t n)
{
    uint64_t word = sim_random();

    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)((word >> (i % 8 * 8)) + i / 8);
}

struct intent sim_intend(struct user *u, struct life *to, int slot, int opcode, size_t at,
                         size_t length)
{
    struct intent i = {.opcode = opcode,
                       .slot = &to->slots[sim_slot_number(u, slot)],
                       .at = at,
                       .length = length,
                       .local = u->local + (size_t)slot * sim_world.slot};

    sim_trace("user %d: %s of slot %d of host %d, %zu + %zu", u->index,
              opcode == TE_READ ? "READ" : "WRITE", slot, to->host, at, length);
    sim_allow(i.local, sim_world.slot, true);
    if (i.opcode == TE_WRITE) {
        fill(sim_view(i.local), i.length);
        memset(i.slot->sure + i.at, 0, i.length);
        memcpy(i.slot->want + i.at, sim_view(i.local), i.length);
        i.slot->busy = true;
    } else {
        memset(sim_view(i.local), 0x5a, i.length);
    }
    return i;
}

/* A part of a slot, a READ or a WRITE of it. */
static struct intent intend(struct user *u, struct life *to, int slot)
{
    size_t at = sim_one_in(3) ? 0 : (size_t)sim_below(sim_world.slot - 1);
    size_t length =
        sim_one_in(3) ? sim_world.slot - at : 1 + (size_t)sim_below(sim_world.slot - at);

    return sim_intend(u, to, slot, sim_one_in(2) ? TE_READ : TE_WRITE, at, length);
}

static void check_read(const struct intent *i)
{
    const unsigned char *got = sim_view(i->local);

    for (size_t k = 0; k < i->length; k++) {
        sim_world.counts.bytes += i->slot->sure[i->at + k];
        if (i->slot->sure[i->at + k] && got[k] != i->slot->want[i->at + k])
            sim_fail("torn: a READ brought %02x as byte %zu, which was written as %02x", got[k],
                     i->at + k, i->slot->want[i->at + k]);
    }
}

/* What was asked has ended so; its memory is the engine's no more. */
void sim_conclude(const struct intent *i, int state, const struct life *l)
{
    sim_trace("%s of %zu + %zu: state %d", i->opcode == TE_READ ? "READ" : "WRITE", i->at,
              i->length, state);
    sim_world.counts.completed += state == TE_COMPLETED;
    sim_world.counts.ended += state != TE_COMPLETED;
    if (i->opcode == TE_WRITE) {
        i->slot->busy = false;
        if (state == TE_COMPLETED && !l->over)
            memset(i->slot->sure + i->at, 1, i->length);
    } else if (state == TE_COMPLETED) {
        check_read(i);
    }
    sim_allow(i->local, sim_world.slot, false);
}

/* By the descriptor that tells of batches that have ended, which are of this engine. */
static void look_at_done(const struct life *own)
{
    struct pollfd p = {.fd = te_event_fd(own->engine), .events = POLLIN};
    te_batch ids[4];
    int n;

    if (p.fd < 0)
        return; /* no descriptor is to be had */
    poll(&p, 1, (int)sim_below(500));
    n = te_done(own->engine, ids, 4);
    sim_ok(n, "te_done");
    for (int i = 0; i < n; i++) {
        struct run *r = own->runs;

        while (r && r->batch != ids[i])
            r = r->next;
        if (!r || ++r->told > r->submits)
            sim_fail("te_done() tells of batch %llx, %s", (unsigned long long)ids[i],
                     r ? "once more than it was submitted to"
                       : "which is not one of this engine's");
    }
}

te_batch sim_batch(struct life *own, size_t capacity, unsigned submits)
{
    struct run *r = sim_new(sizeof(*r));

    sim_ok(te_batch_alloc(own->engine, capacity, &r->batch), "te_batch_alloc");
    r->submits = submits;
    r->next = own->runs;
    own->runs = r;
    return r->batch;
}

int sim_wait(te_engine *e, te_batch b, int64_t ms)
{
    int64_t end = sim_now() + ms * SIM_MS;
    int rc = te_wait(e, b, ms);

    if (rc == TE_ERR_TIMEOUT && sim_now() < end)
        sim_fail("te_wait() has given up %lld us before its time",
                 (long long)((end - sim_now()) / SIM_US));
    if (rc != TE_ERR_TIMEOUT)
        sim_ok(rc, "te_wait");
    return rc;
}

int64_t sim_patience(void)
{
    return (sim_world.knobs.faults & FAULT_AWAY ? 60 : 2) * SIM_S;
}

static bool is_in_line(const struct host *h, int to)
{
    return h->spoke_classic || sim_world.hosts[to].spoke_classic ||
           (sim_world.knobs.fabrics & FABRIC_GPUS);
}

static int64_t queue_to(const struct host *h, int to)
{
    bool one = sim_machine_is_shared(h->number) || (sim_world.knobs.fabrics & FABRIC_GPUS);
    size_t lanes = one ? 1 : LANES;
    int64_t each = PIECE_NS + (sim_world.knobs.faults & FAULT_LOST ? SYN_NS : 0);

    return is_in_line(h, to) ? each * (int64_t)((h->n_paged[to] + lanes - 1) / lanes) : 0;
}

/*
 * By versions 1 and 2 a connection has one piece at a time, of all that this engine's requests have for that target. One
 * that stands still takes the beginning of each, which is progress for those in line, and each that has begun ends once
 * it has not moved for the time limit: as many at a time as there are connections, which within a machine may be one. So
 * nothing need end, and no byte need move, for that time and once more for each piece in line per connection; the engine
 * promises no less, and no more. The native framing promises the time limit itself. What either side has spoken in an
 * earlier life counts, since pieces may be from then. Memory of a device goes through a stage of few slots, in which a
 * piece has one, whatever carries it further.
 */
int64_t sim_queue_ns(const struct life *to)
{
    const struct host *h = &sim_world.hosts[sim_host()];
    int64_t most = 0;

    for (int i = 0; i < SIM_HOSTS; i++) {
        int64_t ns = !to || to->host == i ? queue_to(h, i) : 0;

        most = ns > most ? ns : most;
    }
    return most;
}

/* Behind pieces of pages, as it is said above, at some time since then. */
static bool was_in_line(int from, int to, int64_t since)
{
    const struct host *h = &sim_world.hosts[from];

    return is_in_line(h, to) && (h->n_paged[to] > 0 || h->paged_until[to] >= since);
}

void sim_await_end(te_engine *e, te_batch b, int64_t deadline_ms)
{
    int64_t ms = deadline_ms ? deadline_ms : TIMEOUT_MS, begin = sim_now();
    int64_t queue_ns = 0;

    do { /* what was in line with it at any time */
        int64_t now_ns = deadline_ms ? 0 : sim_queue_ns(NULL);

        queue_ns = now_ns > queue_ns ? now_ns : queue_ns;
        if (sim_stood(sim_host(), begin))
            begin = sim_now(); /* it does nothing while it stands still */
        else if (sim_now() >= begin + ms * SIM_MS + BOUND_NS + queue_ns)
            sim_fail("a batch with a deadline of %lld ms has not ended %lld s after it",
                     (long long)ms, (long long)((BOUND_NS + queue_ns) / SIM_S));
    } while (sim_wait(e, b, 10000) == TE_ERR_TIMEOUT);
}

/* True if it has cancelled it. */
static bool let_go_on(const struct life *own, te_batch b)
{
    int64_t ms = (int64_t)sim_below(8) * (int64_t)sim_below(500);

    if (sim_one_in(4)) { /* looks again and again */
        for (struct te_status s;
             te_batch_status(own->engine, b, &s) == 0 && s.state == TE_WAITING && ms > 0; ms -= 5)
            usleep(5000);
    } else if (sim_one_in(3)) {
        sim_wait(own->engine, b, ms);
    } else if (sim_one_in(3)) {
        look_at_done(own);
    }
    if (!sim_one_in(5))
        return false;
    sim_ok(te_cancel(own->engine, b), "te_cancel");
    return true;
}

/* Looks at each request until all have ended, or the time has come. */
static bool see_ends(te_engine *e, te_batch b, size_t n, int64_t until)
{
    struct te_status s;

    for (size_t k = 0; k < n && sim_now() < until;) {
        sim_ok(te_status(e, b, k, &s), "te_status");
        if (s.state == TE_WAITING || s.state == TE_PENDING)
            usleep(100);
        else
            k++;
    }
    return sim_now() < until;
}

void sim_await_canceled(const struct life *own, te_batch b)
{
    bool patient =
        (sim_world.knobs.faults & FAULT_AWAY) ||
        (sim_world.knobs.fabrics & FABRIC_GPU_FAULTS); /* a device keeps what it has begun */
    int64_t begin = sim_now(), ms = patient ? PATIENT_MS : CANCEL_MS;

    if (sim_wait(own->engine, b, ms) == TE_ERR_TIMEOUT && !sim_stood(own->host, begin))
        sim_fail("a batch has not ended %lld ms after te_cancel()", (long long)ms);
}

/* Returns whether it has cancelled it. */
static bool await_end(const struct life *own, te_batch b, size_t n, int64_t deadline_ms)
{
    bool canceled = let_go_on(own, b);

    if (canceled)
        sim_await_canceled(own, b);
    if (!sim_one_in(3) ||
        !see_ends(own->engine, b, n, sim_now() + (deadline_ms ? deadline_ms : TIMEOUT_MS) * SIM_MS))
        sim_await_end(own->engine, b, deadline_ms);
    return canceled;
}

/* What can go wrong in this run is no more than this, beside what is never wrong. Where there are NICs a
 * request to memory that has gone breaks its queue pair, and with it others. */
static bool only(int faults)
{
    return !(sim_world.knobs.faults & ~(faults | FAULT_SHORT | FAULT_SPOIL)) &&
           !(sim_world.knobs.fabrics & (FABRIC_NICS | FABRIC_GPU_FAULTS));
}

/* Connections between two, whichever of them has connected, that the network has ended since then, or shortly before. */
static unsigned resets_since(int64_t begin, int one, int other)
{
    unsigned n = 0;

    for (int i = 0; i < RESETS; i++) {
        int a = sim_world.resets[i].a, b = sim_world.resets[i].b;

        n += sim_world.resets[i].at > begin - SIM_S &&
             (!a || (a == one && b == other) || (a == other && b == one));
    }
    return n;
}

/* Whoever connects looks whether the connection is up before it gives that up. */
void sim_check_connected(const char *why)
{
    if (only(FAULT_FREEZE | FAULT_RESET | FAULT_AWAY) && strstr(why, "connecting") &&
        strstr(why, "timed out"))
        sim_fail("a connection that comes up is given up: %s", why);
}

/* Whether memory of the target went from under somebody's request since then, or shortly before, which
 * ends the connection for all that are on it; who stood still meanwhile learns of it later. */
static bool broke_since(int64_t begin, int from, int to)
{
    const struct host *h = &sim_world.hosts[to];
    int64_t broke = h->broke_at, stood = sim_world.hosts[from].stood_until;

    if (h->takes_away && sim_net_closed(to) != h->had_closed)
        return true;
    return broke && (stood > broke ? stood : broke) > begin - SIM_S;
}

/* What a request cannot be told, for it cannot have been. Targets close the connections of one that has stood still
 * with half a WRITE sent. */
static void check_why(const struct te_status *s, const char *why, const struct sim_judged *how,
                      bool broke)
{
    sim_check_connected(why);
    if (only(FAULT_FREEZE | FAULT_AWAY) && !broke && strstr(why, "broke too often"))
        sim_fail("no connection breaks: %s", why);
    if (how->fresh && strstr(why, "the target cannot be asked"))
        sim_fail("the segment was opened anew, and its ranges are still lost: %s", why);
    if (!why[0])
        sim_fail("a request has ended in state %d with error %d, and says nothing", s->state,
                 s->error);
}

/* Version 1 has one sign, the end of the connection, for a range that is refused and for a target that
 * has no descriptors. A NIC that fails says of any range that it is not there, as often as it likes, and has
 * other keys once it was opened anew, for which a request asks once. So does a target whose device does not copy, or
 * that has no memory for it. */
static bool is_ambiguous(const struct life *own)
{
    unsigned fabrics = (unsigned)sim_world.knobs.fabrics, faults = (unsigned)sim_world.knobs.faults;

    return (own->is_v1 && (faults & (FAULT_FILES | FAULT_MEMORY))) ||
           (fabrics & (FABRIC_NIC_FAULTS | FABRIC_GPU_FAULTS)) ||
           ((fabrics & FABRIC_GPUS) && (faults & FAULT_MEMORY));
}

int sim_check_end(const struct life *own, te_batch b, size_t task, const struct life *to,
                  struct sim_judged how)
{
    bool broke = broke_since(how.begin, own->host, to->host);
    struct te_status s;
    char why[512];

    sim_ok(te_status(own->engine, b, task, &s), "te_status");
    te_status_msg(own->engine, b, task, why, sizeof(why));
    if (s.state == TE_COMPLETED)
        return s.state;
    check_why(&s, why, &how, broke || sim_stood(own->host, how.begin));
    if (s.state == TE_INVALID && !to->over && !is_ambiguous(own))
        sim_fail("a request to memory that is registered was refused: %s", why);
    if (was_in_line(own->host, to->host, how.begin) && strstr(why, "deadline passed"))
        return s.state;
    if (how.in_time && !broke && only(0))
        sim_fail("a request failed, and nothing is wrong: %s", why);
    if (how.in_time && !broke && only(FAULT_RESET) && strncmp(why, "read", 4) == 0 &&
        resets_since(how.begin, own->host, to->host) <=
            own->retries) /* a WRITE may not be sent twice */
        sim_fail("a request failed, and no more connections broke than it may try again: %s", why);
    return s.state;
}

/* The rules of a segment are what it is opened with, unless others open or close it meanwhile. */
int sim_open_with(struct life *own, const struct life *to, const te_paths *paths,
                  const struct sim_rules *rules, te_segment *seg)
{
    struct sim_book *book = &sim_world.hosts[own->host].book;
    int h = to->host, rc;
    bool first = own->opens[h]++ == 0 && !book->closing[h];
    unsigned opening = ++book->openings[h];

    if (first || book->closing[h] || paths || book->of[h] != to) {
        book->rules[h] = (struct sim_rules){.is_known = false, .first = -1};
        book->epoch[h]++;
    }
    rc = paths ? sim_later.open_with(own->engine, to->name, paths, seg)
               : te_open(own->engine, to->name, seg);
    if (rc == 0 && first && book->openings[h] == opening && !book->closing[h]) {
        book->rules[h] = *rules;
        book->of[h] = to;
        book->epoch[h]++;
    }
    if (rc < 0)
        own->opens[h]--;
    return rc;
}

int sim_open(struct life *own, const struct life *to, te_segment *seg)
{
    static const struct sim_rules any = {.is_known = true, .allowed = ~0u, .first = -1};

    return sim_open_with(own, to, NULL, &any, seg);
}

void sim_close(struct life *own, const struct life *to, te_segment seg)
{
    struct sim_book *book = &sim_world.hosts[own->host].book;
    bool alone = own->opens[to->host] == 1;

    book->closing[to->host]++;
    book->written[to->host] |= own->writes[to->host] > 0;
    sim_ok(te_close(own->engine, seg), "te_close");
    if (alone && own->opens[to->host] == 1)
        own->writes[to->host] = 0;
    own->opens[to->host]--;
    book->closing[to->host]--;
}

struct te_request sim_request_of(const struct user *u, const struct life *to, te_segment seg,
                                 const struct intent *i, int slot)
{
    uint64_t base = (uint64_t)(uintptr_t)to->memory + sim_slot_number(u, slot) * sim_world.slot;

    return (te_request){i->opcode, i->local, seg, base + i->at, i->length};
}

int sim_submit_prepared(te_engine *e, te_batch b, const te_request *reqs, size_t n,
                        const te_submit_opts *opts)
{
    void *local[SLOTS];
    uint64_t remote[SLOTS];
    size_t length[SLOTS];
    te_prep prep;
    int rc;

    for (size_t k = 0; k < n; k++)
        local[k] = reqs[k].source, remote[k] = reqs[k].target_offset, length[k] = reqs[k].length;
    sim_ok(te_prep_create(e, reqs[0].target, local, remote, length, n, &prep), "te_prep_create");
    rc = te_prep_submit(e, b, prep, reqs[0].opcode, NULL, n, opts);
    sim_ok(te_prep_destroy(e, prep), "te_prep_destroy");
    return rc;
}

/* By a prepared list of them all, of which those of one direction are submitted, and then the others. */
static void submit_prepared(te_engine *e, te_batch b, const te_request *reqs, size_t n,
                            const te_submit_opts *opts)
{
    void *local[SLOTS] = {NULL};
    uint64_t remote[SLOTS] = {0};
    size_t length[SLOTS] = {0};
    uint32_t index[SLOTS];
    te_prep prep;

    for (size_t i = 0; i < n; i++)
        local[i] = reqs[i].source, remote[i] = reqs[i].target_offset, length[i] = reqs[i].length;
    sim_ok(te_prep_create(e, reqs[0].target, local, remote, length, n, &prep), "te_prep_create");
    for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++) {
        size_t k = 0;

        for (size_t i = 0; i < n; i++)
            if (reqs[i].opcode == opcode)
                index[k++] = (uint32_t)i;
        if (k)
            sim_ok(te_prep_submit(e, b, prep, opcode, index, k, opts), "te_prep_submit");
    }
    sim_ok(te_prep_destroy(e, prep), "te_prep_destroy");
}

/* The tasks of a batch go by its submits. */
static size_t task_of(const struct intent *intents, size_t k, bool is_prepared)
{
    size_t task = 0;

    for (size_t i = 0; is_prepared && i < SLOTS; i++)
        task += intents[i].length && (intents[i].opcode < intents[k].opcode ||
                                      (intents[i].opcode == intents[k].opcode && i < k));
    return is_prepared ? task : k;
}

/* All of a batch is over: sees how, and lets go of it. True if all of it is COMPLETED. */
static bool end_batch(struct user *u, struct life *to, te_batch b, const struct intent *intents,
                      size_t n, bool is_prepared, const struct sim_judged *how)
{
    const struct life *own = u->host->life;
    bool whole = true;

    for (size_t k = 0; k < n; k++) {
        size_t task = task_of(intents, k, is_prepared);
        struct te_status s;

        if (how)
            sim_check_end(own, b, task, to, *how);
        sim_ok(te_status(own->engine, b, task, &s), "te_status");
        whole = whole && s.state == TE_COMPLETED;
        sim_conclude(&intents[k], s.state, to);
        sim_check_slot(to, u, (int)k);
    }
    sim_ok(te_batch_free(own->engine, b), "te_batch_free");
    sim_world.counts.batches++;
    return whole;
}

bool sim_end_slots(const struct user *u, te_batch b, struct life *to, const struct intent *intents,
                   size_t first, size_t n, const struct sim_judged *how)
{
    const struct life *own = u->host->life;
    struct te_status s;
    bool whole = true;

    for (size_t k = 0; k < n; k++) {
        if (how)
            sim_check_end(own, b, k, to, *how);
        sim_ok(te_status(own->engine, b, k, &s), "te_status");
        whole = whole && s.state == TE_COMPLETED;
        sim_conclude(&intents[k], s.state, to);
        sim_check_slot(to, u, (int)(first + k));
    }
    return whole;
}

void sim_count_write(struct life *own, const struct life *to, int opcode)
{
    if (opcode == TE_WRITE)
        own->writes[to->host]++;
}

/* One batch towards a life of a host; true if all of it is COMPLETED. */
bool sim_run_batch(struct user *u, struct life *to, te_segment seg, int64_t deadline_ms)
{
    struct life *own = u->host->life;
    struct intent intents[SLOTS] = {0};
    te_request reqs[SLOTS];
    char note[16];
    te_submit_opts opts = {.size = sizeof(opts), .deadline_ms = deadline_ms, .notify_target = seg};
    size_t n = 1 + (size_t)sim_below(SLOTS);
    bool whole, canceled, is_prepared = sim_one_in(3);
    unsigned id = sim_note_new(to->host, note);
    te_batch b = sim_batch(own, n, is_prepared ? 2 : 1);
    struct sim_judged how = {!deadline_ms, own->writes[to->host] == 0, sim_now()};

    for (size_t k = 0; k < n; k++) {
        sim_check_slot(to, u, (int)k);
        intents[k] = intend(u, to, (int)k);
        sim_count_write(own, to, intents[k].opcode);
        reqs[k] = sim_request_of(u, to, seg, &intents[k], (int)k);
    }
    opts.notify_name = is_prepared || sim_one_in(2) ? NULL : "behind";
    opts.notify_msg = note;
    if (is_prepared)
        submit_prepared(own->engine, b, reqs, n, &opts);
    else
        sim_ok(te_submit(own->engine, b, reqs, n, &opts), "te_submit");
    if (sim_one_in(8) && !u->waits)
        sim_unregister_beside(u, b, n);
    canceled = await_end(own, b, n, deadline_ms);
    whole = end_batch(u, to, b, intents, n, is_prepared, canceled ? NULL : &how);
    sim_note_conclude(id, whole);
    return whole;
}

/* A request to `extra`, which was registered before it began and was so until it had ended, is not refused. */
void sim_check_extra(const struct life *own, te_batch b, const struct life *to, unsigned there)
{
    struct te_status s;

    sim_ok(te_status(own->engine, b, 0, &s), "te_status");
    if (s.state == TE_INVALID && there % 2 && to->there == there && !to->over && !is_ambiguous(own))
        sim_fail("a request to memory that is registered was refused");
}

/* Memory that comes and goes, of which nothing is known: whatever happens, it is not touched while it is not there. */
static void touch_extra(struct user *u, struct life *to, te_segment seg)
{
    struct life *own = u->host->life;
    te_engine *e = own->engine;
    char *local = u->local;
    te_request r = {.opcode = sim_one_in(2) ? TE_READ : TE_WRITE,
                    .source = local,
                    .target = seg,
                    .target_offset = (uint64_t)(uintptr_t)to->extra + sim_below(EXTRA / 2),
                    .length = 1 + sim_below(sim_world.slot)};
    bool fits = r.target_offset + r.length <= (uintptr_t)to->extra + EXTRA;
    unsigned there = fits ? to->there : 0;
    te_batch b = sim_batch(own, 1, 1);
    int rc;

    sim_allow(local, sim_world.slot, true);
    sim_count_write(own, to, r.opcode);
    rc = te_submit(e, b, &r, 1, NULL);
    if (rc != TE_ERR_NOT_REGISTERED ||
        to != u->host->life) /* of its own an engine knows what is there */
        sim_ok(rc, "te_submit");
    if (sim_one_in(2)) { /* it goes in the middle of that */
        usleep(
            (useconds_t)sim_below((uint64_t)(2 * sim_time_to(own->host, to->host) / SIM_US + 1)));
        sim_wake(&to->there, true);
    }
    await_end(own, b, rc == 0, 0);
    if (rc == 0)
        sim_check_extra(own, b, to, there);
    sim_allow(local, sim_world.slot, false);
    sim_ok(te_batch_free(e, b), "te_batch_free");
    sim_world.counts.batches++;
}

/* --------------------------------------------------------------------------------------- a user */

/* What has ended holds no memory: it can be unregistered. */
static void register_anew(struct user *u)
{
    te_engine *e = u->host->life->engine;

    sim_unregister(e, u->local);
    sim_register(e, u->local, SLOTS * sim_world.slot, 0);
}

static void one_of_all(struct user *u, struct life *to, te_segment *seg)
{
    int faults = sim_world.knobs.faults, fabrics = sim_world.knobs.fabrics;
    bool pages = (fabrics & CALLS_PAGES) && sim_one_in(4);
    bool counts = (fabrics & CALLS_COUNTERS) && sim_one_in(3);
    bool gates = (fabrics & CALLS_STREAMS) && sim_one_in(3);
    bool paths = (fabrics & CALLS_PATHS) && sim_one_in(3);
    bool leases = (fabrics & CALLS_LEASES) && sim_one_in(2);
    uint64_t chance = sim_below(30);

    if (pages)
        sim_pages_use(u, to, *seg);
    else if (counts)
        sim_counts_use(u, to);
    else if (gates)
        sim_gates_use(u, to, *seg);
    else if (paths)
        sim_paths_use(u, to, seg);
    else if (leases)
        sim_leases_use(u, to, *seg);
    else if (chance < 4)
        for (uint64_t n = sim_one_in(2) ? 1 : sim_below(12); n > 0; n--)
            touch_extra(u, to, *seg);
    else if (chance < 9)
        sim_rewrite(u, to, seg);
    else if (chance == 9)
        sim_submit_beside_wait(u, to, *seg);
    else if (chance == 10 && !sim_is_past())
        sim_refused_calls(u, *seg);
    else if (chance == 11 && (faults & FAULT_RESET))
        sim_write_unreadable(u, to, *seg);
    else if (chance == 12)
        sim_read_beside_reset(u, to, *seg);
    else if (chance < 15)
        sim_park_beside_fetch(u, to, seg);
    else if (chance == 15)
        sim_close_beside_refresh(u, to, seg);
    else if (chance < 18 && (faults & FAULT_CUT) && (faults & FAULT_RESET))
        sim_write_beside_break(u, to, *seg);
    else if (chance < 18 && (faults & FAULT_RESET))
        sim_read_beside_reset(u, to, *seg);
    else
        sim_run_batch(u, to, *seg,
                      sim_one_in(2) ? 0 : 1 + (int64_t)(sim_below(70) * sim_below(70)));
}

static void one_round(struct user *u)
{
    struct life *own = u->host->life, *to = sim_any_life();
    te_segment seg;

    if (sim_one_in(8))
        sim_keep_guest(u);
    if (!sim_one_in(3))
        sim_visit_guest(u);
    sim_files_use(u);
    if (!to || sim_open(own, to, &seg) < 0) {
        usleep(1000 * (useconds_t)(1 + sim_below(200)));
        return;
    }
    one_of_all(u, to, &seg);
    if (seg == SIM_CLOSED)
        return;
    if (sim_one_in(8) && te_notify(own->engine, seg, "note", "x") == 0)
        sim_world.counts.notified++;
    if (sim_one_in(8))
        te_refresh(own->engine, to->name);
    sim_close(own, to, seg);
    if (sim_one_in(4))
        register_anew(u);
    if (sim_one_in(4))
        usleep((useconds_t)sim_below(300000));
}

/* With faults gone every host is reached, within a time. */
static void reach_all(struct user *u)
{
    struct life *own = u->host->life;

    for (int h = 1; h <= sim_world.knobs.hosts; h++) {
        struct life *to = sim_world.hosts[h].life;
        bool reached = false;
        te_segment seg;

        while (!reached) {
            if (sim_now() > sim_world.quiet_since + SETTLE_NS)
                sim_fail("host %d does not reach host %d, %lld s after the last fault",
                         u->host->number, h, (long long)(SETTLE_NS / SIM_S));
            if (sim_open(own, to, &seg) < 0) {
                usleep(100000);
                continue;
            }
            reached = sim_run_batch(u, to, seg, 0);
            if (sim_world.knobs.fabrics & CALLS_PAGES)
                reached = sim_pages_reach(u, to, seg) && reached;
            if (sim_world.knobs.fabrics & CALLS_STREAMS)
                reached = sim_gates_reach(u, to, seg) && reached;
            if (sim_world.knobs.fabrics & CALLS_PATHS)
                reached = sim_paths_reach(u, to, seg) && reached;
            if (sim_world.knobs.fabrics & CALLS_LEASES)
                reached = sim_leases_reach(u, to, seg) && reached;
            sim_close(own, to, seg);
        }
    }
}

/* Of the descriptor that is known of it. */
static long version_of(const struct life *own, te_segment seg, char *json)
{
    const char *at;

    sim_segment_json(own->engine, seg, json, JSON);
    at = strstr(json, "\"te\":");
    at = at ? strstr(at, "\"version\":") : NULL;
    return at ? strtol(at + 10, NULL, 10) : 0;
}

/* The segments of all others that are up are open from the first round to the end, for them to be followed. */
static void hold_all(const struct user *u, te_segment held[SIM_HOSTS])
{
    struct life *own = u->host->life;

    for (int h = 1; h <= sim_world.knobs.hosts; h++) {
        const struct life *to = sim_world.hosts[h].life;

        if (to && to != own && held[h] == SIM_CLOSED && sim_open(own, to, &held[h]) < 0)
            held[h] = SIM_CLOSED;
    }
}

/* Who follows others learns that they change without asking for anything. */
static void be_told(const struct user *u, int host, te_segment seg)
{
    struct life *own = u->host->life;
    int64_t begin = sim_now();
    char *json = sim_new(JSON);
    long was = version_of(own, seg, json);

    while (version_of(own, seg, json) == was) {
        if (sim_now() > begin + TOLD_NS)
            sim_fail("host %d is not told that host %d has changed, in %lld s", own->host, host,
                     (long long)(TOLD_NS / SIM_S));
        usleep(100000);
    }
    free(json);
}

/* After each another one is closed and opened: all are followed anew then. */
static void be_told_by_all(const struct user *u, te_segment held[SIM_HOSTS])
{
    struct life *own = u->host->life;

    for (int h = 1; h <= sim_world.knobs.hosts; h++)
        for (int turn = 0; h != own->host && turn < 2; turn++) {
            while (held[h] == SIM_CLOSED && (hold_all(u, held), held[h] == SIM_CLOSED))
                usleep(100000);
            be_told(u, h, held[h]);
            if (turn == 1) {
                sim_close(own, sim_world.hosts[h].life, held[h]);
                held[h] = SIM_CLOSED;
            }
            hold_all(u, held);
        }
    for (int h = 1; h <= sim_world.knobs.hosts; h++)
        if (held[h] != SIM_CLOSED)
            sim_close(own, sim_world.hosts[h].life, held[h]);
    sim_world.n_told++;
}

void *sim_user_main(void *arg)
{
    struct user *u = arg;
    bool follows = sim_world.store == STORE_ETCD && u->index == 0 && !sim_is_past();
    bool holds = follows && sim_one_in(2);
    te_segment held[SIM_HOSTS];

    for (int h = 0; h < SIM_HOSTS; h++)
        held[h] = SIM_CLOSED;
    for (int i = 0; i < sim_world.knobs.rounds; i++) {
        one_round(u);
        if (holds)
            hold_all(u, held);
    }
    u->done = true;
    while (!sim_world.is_quiet)
        usleep(50000);
    reach_all(u);
    if (sim_world.knobs.fabrics & CALLS_COUNTERS)
        sim_counts_reach(u);
    sim_files_reach(u);
    if (follows)
        be_told_by_all(u, held);
    return NULL;
}
