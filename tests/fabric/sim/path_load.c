/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path_load.c - paths asked for (te_paths.h) and connecting ahead (te_warm()), and what must be true of them: what is
 * allowed, and nothing else, has carried a request, and what is impossible is refused at once.
 */
#include "world.h"

#include "load.h"
#include "machine.h"
#include "sim.h"
#include "te.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WARM_NS (120 * SIM_S) /* te_warm() without a limit ends within */

enum { LOCAL, TCP, HOST, RDMA, FILES, NVLINK_INTRA, NVLINK, TRANSPORTS };
#define BIT(t) (1u << (t))

static const char *const names[] = {
    [LOCAL] = "local",   [TCP] = "tcp",      [HOST] = "host",
    [RDMA] = "rdma",     [FILES] = "nvmeof", [NVLINK_INTRA] = "nvlink_intra",
    [NVLINK] = "nvlink",
};

/* What is asked for, as the call takes it, and what that comes to. */
struct asked {
    char require[64], prefer[64], forbid[64];
    te_paths paths;
    struct sim_rules rules;
};

/* So many, and all of these: those of GPUs only where there are some. */
static int n_transports(void)
{
    return sim_world.knobs.fabrics & FABRIC_GPUS ? TRANSPORTS : NVLINK_INTRA;
}

static unsigned all(void)
{
    return BIT(n_transports()) - 1;
}

/* Of a call that was to return at that time. */
static void check_prompt(const char *call, int64_t due, int64_t begin)
{
    if (sim_now() > due + sim_patience() && !sim_stood(sim_host(), begin))
        sim_fail("%s has returned %lld ms late", call, (long long)((sim_now() - due) / SIM_MS));
}

static const struct sim_book *book_of(const struct life *own)
{
    return &sim_world.hosts[own->host].book;
}

/* What an earlier WRITE there may still bring is waited for after te_close(), too. */
static bool has_written(const struct life *own, const struct life *to)
{
    return own->writes[to->host] > 0 || book_of(own)->written[to->host];
}

/* ------------------------------------------------------------------------------------ what is asked for */

static int place_of(const char *name)
{
    for (int t = 0; t < TRANSPORTS; t++)
        if (strcmp(names[t], name) == 0)
            return t;
    return -1;
}

/* Names of some, in any order; returns the first, -1: there is none. */
static int list(char out[64], unsigned some)
{
    int n = n_transports(), first = -1, from = (int)sim_below((uint64_t)n);
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < n; i++) {
        int t = (from + i) % n;

        if (!(some & BIT(t)))
            continue;
        used += (size_t)snprintf(out + used, 64 - used, "%s%s",
                                 first < 0       ? ""
                                 : sim_one_in(3) ? " , "
                                                 : ",",
                                 names[t]);
        first = first < 0 ? t : first;
    }
    return first;
}

static unsigned some(void)
{
    return (unsigned)sim_below(all() + 1);
}

/* Of what is allowed one is always one of `keep`. */
static void ask(struct asked *a, unsigned keep)
{
    unsigned required = sim_one_in(2) ? some() : 0, forbidden = sim_one_in(2) ? some() : 0;

    required |= required ? keep : 0;
    forbidden &= ~keep;
    if (required && !(required & ~forbidden))
        forbidden = 0;
    *a = (struct asked){.paths = {.size = sizeof(a->paths)}};
    list(a->require, required);
    list(a->forbid, forbidden);
    a->rules.first = sim_one_in(2) ? list(a->prefer, some()) : -1;
    a->rules.is_known = true;
    a->rules.allowed = (required ? required : all()) & ~forbidden;
    a->paths.require = required || sim_one_in(2) ? a->require : NULL;
    a->paths.prefer = a->rules.first >= 0 ? a->prefer : NULL;
    a->paths.forbid = forbidden || sim_one_in(2) ? a->forbid : NULL;
    sim_trace("paths: require '%s', prefer '%s', forbid '%s'", a->require, a->prefer, a->forbid);
}

/* Those that may carry requests to it. */
static unsigned reaching(const struct life *own, const struct life *to)
{
    unsigned bits = BIT(TCP);

    if (to == own)
        return BIT(LOCAL);
    if (sim_is_same_machine(own->host, to->host))
        bits |= BIT(HOST);
    if (sim_world.knobs.fabrics & FABRIC_NICS)
        bits |= BIT(RDMA);
    if (sim_world.knobs.fabrics & FABRIC_GPUS)
        bits |= BIT(NVLINK_INTRA) | BIT(NVLINK);
    return bits;
}

/* That always can. */
static unsigned sure(const struct life *own, const struct life *to)
{
    return to == own ? BIT(LOCAL) : BIT(TCP);
}

/* ----------------------------------------------------------------------------------------- requests */

/* Of one call; with the segment's rules as they were when it began. */
struct request {
    struct user *user;
    struct life *to;
    te_segment seg;
    te_batch batch;
    struct asked asked;
    struct sim_rules segment;
    unsigned epoch, allowed;
    size_t n;
    struct intent intents[SLOTS];
    struct sim_judged how;
    bool extra; /* to memory of the target that comes and goes */
};

/* Nobody has opened or closed the segment meanwhile, so that its rules are known. */
static bool is_known(const struct request *r)
{
    const struct life *own = r->user->host->life;

    return r->segment.is_known && book_of(own)->epoch[r->to->host] == r->epoch;
}

static void begin(struct request *r, struct user *u, struct life *to, te_segment seg, unsigned keep)
{
    struct life *own = u->host->life;

    *r = (struct request){.user = u, .to = to, .seg = seg, .n = 1 + (size_t)sim_below(SLOTS)};
    r->segment = book_of(own)->rules[to->host];
    r->epoch = book_of(own)->epoch[to->host];
    r->batch = sim_batch(own, SLOTS, 1);
    ask(&r->asked, keep);
    r->allowed = r->asked.rules.allowed & (r->segment.is_known ? r->segment.allowed : all());
}

static int submit(struct request *r)
{
    te_engine *e = r->user->host->life->engine;
    te_submit_opts opts = {.size = sizeof(opts), .paths = &r->asked.paths};
    int64_t now = sim_now();
    te_request reqs[SLOTS];
    int rc;

    for (size_t k = 0; k < r->n; k++)
        reqs[k] = sim_request_of(r->user, r->to, r->seg, &r->intents[k], (int)k);
    if (r->extra)
        reqs[0].target_offset = (uintptr_t)r->to->extra + r->intents[0].at;
    if (r->n == 1 && sim_one_in(2))
        rc = sim_submit_prepared(e, r->batch, reqs, r->n, &opts);
    else
        rc = te_submit(e, r->batch, reqs, r->n, &opts);
    check_prompt("te_submit()", now, now);
    sim_trace("user %d: paths to host %d: %s", r->user->index, r->to->host, te_errname(rc));
    return rc;
}

/* What has carried it, or does, is allowed. */
static struct te_path check_path(const struct request *r, size_t task)
{
    unsigned allowed = is_known(r) ? r->allowed : r->asked.rules.allowed;
    struct te_path p = {.size = sizeof(p)};
    int place;

    sim_ok(sim_later.path(r->user->host->life->engine, r->batch, task, &p), "te_path");
    if (!p.transport[0])
        return p;
    place = place_of(p.transport);
    if (place < 0 || !(allowed & BIT(place)))
        sim_fail("a request goes by %s, and may go by %x: require '%s', forbid '%s'", p.transport,
                 allowed, r->asked.require, r->asked.forbid);
    return p;
}

/* It goes by the first that is preferred, if that always can. */
static void check_carrier(const struct request *r, size_t task)
{
    struct te_path p = check_path(r, task);
    int first = r->asked.rules.first >= 0 ? r->asked.rules.first : r->segment.first;

    if (!p.transport[0])
        sim_fail("a request is COMPLETED, and nothing has carried it");
    if ((r->asked.rules.first < 0 && !is_known(r)) || first < 0)
        return;
    if ((sure(r->user->host->life, r->to) & r->allowed & BIT(first)) &&
        strcmp(p.transport, names[first]) != 0)
        sim_fail("a request goes by %s, and %s is preferred", p.transport, names[first]);
}

/* A WRITE to where an earlier one over TCP may still be applied is refused where TCP is not allowed. */
static bool may_be_busy(const struct request *r, int rc, bool written)
{
    bool writes = false;

    for (size_t k = 0; k < r->n; k++)
        writes = writes || r->intents[k].opcode == TE_WRITE;
    return rc == TE_ERR_BUSY && !(r->allowed & BIT(TCP)) && written && writes;
}

static void check_refusal(const struct request *r, int rc, bool written)
{
    const struct life *own = r->user->host->life;

    if (may_be_busy(r, rc, written))
        return;
    if (rc == TE_ERR_UNSUPPORTED && (!is_known(r) || !(r->allowed & sure(own, r->to))))
        return;
    sim_fail("a call for paths (require '%s', forbid '%s'; %x) has failed: %s: %s",
             r->asked.require, r->asked.forbid, r->allowed, te_errname(rc), te_errmsg());
}

static void choose(struct request *r, size_t k)
{
    size_t at = (size_t)sim_below(sim_world.slot / 2);
    int opcode = (int)sim_below(2);

    sim_check_slot(r->to, r->user, (int)k);
    r->intents[k] = (struct intent){.opcode = opcode,
                                    .at = at,
                                    .length = 1 + (size_t)sim_below(sim_world.slot / 2),
                                    .local = r->user->local + k * sim_world.slot};
}

static void intend(struct request *r)
{
    struct life *own = r->user->host->life;

    r->how = (struct sim_judged){true, own->writes[r->to->host] == 0, sim_now()};
    for (size_t k = 0; k < r->n; k++) {
        struct intent *i = &r->intents[k];

        *i = sim_intend(r->user, r->to, (int)k, i->opcode, i->at, i->length);
        sim_count_write(own, r->to, i->opcode);
    }
}

static void look_on(const struct request *r)
{
    for (uint64_t n = sim_below(4); n > 0; n--) {
        for (size_t k = 0; k < r->n; k++)
            check_path(r, k);
        usleep((useconds_t)sim_below(2000));
    }
}

static bool end(struct request *r, bool canceled)
{
    struct life *own = r->user->host->life;
    bool whole = true;

    sim_await_end(own->engine, r->batch, 0);
    for (size_t k = 0; k < r->n; k++) {
        struct te_status s;

        if (!canceled)
            sim_check_end(own, r->batch, k, r->to, r->how);
        sim_ok(te_status(own->engine, r->batch, k, &s), "te_status");
        check_path(r, k);
        if (s.state == TE_COMPLETED)
            check_carrier(r, k);
        whole = whole && s.state == TE_COMPLETED;
        sim_conclude(&r->intents[k], s.state, r->to);
        sim_check_slot(r->to, r->user, (int)k);
    }
    return whole;
}

/* By paths of which one may be open. */
static bool try(struct user *u, struct life *to, te_segment seg, unsigned keep)
{
    struct life *own = u->host->life;
    struct request r;
    bool written = has_written(own, to), whole = false,
         cancel = !sim_world.is_quiet && sim_one_in(6);
    int rc;

    begin(&r, u, to, seg, keep);
    for (size_t k = 0; k < r.n; k++)
        choose(&r, k);
    intend(&r);
    rc = submit(&r);
    if (rc) {
        check_refusal(&r, rc, written);
        for (size_t k = 0; k < r.n; k++)
            sim_conclude(&r.intents[k], TE_FAILED, to);
    } else {
        look_on(&r);
        if (cancel) {
            sim_ok(te_cancel(own->engine, r.batch), "te_cancel");
            sim_await_canceled(own, r.batch);
        }
        whole = end(&r, cancel);
    }
    sim_ok(te_batch_free(own->engine, r.batch), "te_batch_free");
    sim_world.counts.batches++;
    return whole;
}

/* Memory that comes and goes, so that the request is parked, and may find another path then. */
static void try_extra(struct user *u, struct life *to, te_segment seg)
{
    struct life *own = u->host->life;
    struct request r;
    int rc;

    begin(&r, u, to, seg, sure(own, to));
    r.n = 1;
    r.intents[0] = (struct intent){.opcode = (int)sim_below(2),
                                   .at = (size_t)sim_below(EXTRA / 2),
                                   .length = 1 + (size_t)sim_below(EXTRA / 4),
                                   .local = u->local};
    sim_allow(u->local, SLOTS * sim_world.slot, true);
    sim_count_write(own, to, r.intents[0].opcode);
    r.extra = true;
    rc = submit(&r);
    if (rc && (rc != TE_ERR_NOT_REGISTERED || to != own))
        check_refusal(&r, rc, true);
    sim_wake(&to->there, true);
    for (int i = 0; !rc && i < 20 && sim_wait(own->engine, r.batch, (int64_t)sim_below(200)); i++)
        check_path(&r, 0);
    if (!rc) {
        sim_await_end(own->engine, r.batch, 0);
        check_path(&r, 0);
    }
    sim_allow(u->local, SLOTS * sim_world.slot, false);
    sim_ok(te_batch_free(own->engine, r.batch), "te_batch_free");
    sim_world.counts.batches++;
}

/* A host that has never started anew, where no store says what it is, is known; else it may be asked first. */
static void check_impossible(const struct request *r, int rc)
{
    const struct life *own = r->user->host->life;
    bool is_first = sim_world.hosts[r->to->host].lives == 1 && !r->to->over;
    struct te_status s;

    if (rc == TE_ERR_UNSUPPORTED || may_be_busy(r, rc, has_written(own, r->to)))
        return;
    if (rc || (is_first && sim_world.store == STORE_NONE))
        sim_fail("no path is left (require '%s', forbid '%s'), and the call says %s",
                 r->asked.require, r->asked.forbid, te_errname(rc));
    sim_await_end(own->engine, r->batch, 0);
    for (size_t k = 0; k < r->n; k++) {
        sim_ok(te_status(own->engine, r->batch, k, &s), "te_status");
        if (s.state == TE_COMPLETED)
            sim_fail("no path is left, and a request is COMPLETED");
        check_path(r, k);
    }
}

/* Its memory cannot be touched, and the target stays as it is. */
static void try_impossible(struct user *u, struct life *to, te_segment seg)
{
    struct life *own = u->host->life;
    unsigned can = reaching(own, to);
    struct request r;
    int rc;

    begin(&r, u, to, seg, 0);
    if (r.asked.rules.allowed & can) { /* more than that must not be */
        r.asked.rules.first = -1;
        r.asked.paths = (te_paths){.size = sizeof(te_paths), .forbid = r.asked.forbid};
        list(r.asked.forbid, can | (some() & (all() & ~BIT(FILES))));
        r.asked.require[0] = '\0';
        r.asked.rules.allowed = all() & ~can;
        r.allowed &= r.asked.rules.allowed;
    }
    for (size_t k = 0; k < r.n; k++)
        choose(&r, k);
    rc = submit(&r);
    check_impossible(&r, rc);
    for (size_t k = 0; k < r.n; k++)
        sim_check_slot(to, u, (int)k);
    sim_ok(te_batch_free(own->engine, r.batch), "te_batch_free");
}

/* ------------------------------------------------------------------------------------------ segments */

/* Opens it anew by some paths; these always leave one that can carry requests, for others use it, too. */
static void reopen(struct user *u, const struct life *to, te_segment *seg)
{
    struct life *own = u->host->life;
    struct asked a;
    unsigned before;
    bool alone;
    int rc;

    sim_close(own, to, *seg);
    *seg = SIM_CLOSED;
    ask(&a, sure(own, to));
    before = book_of(own)->openings[to->host];
    alone = own->opens[to->host] == 0 && !book_of(own)->closing[to->host];
    rc = sim_open_with(own, to, &a.paths, &a.rules, seg);
    if (rc == 0)
        return;
    *seg = SIM_CLOSED;
    if (rc == TE_ERR_EXISTS && alone && book_of(own)->openings[to->host] == before + 1)
        sim_fail("te_open_with(): %s", te_errmsg());
    if (rc == TE_ERR_INVALID ? to != own : rc == TE_ERR_UNSUPPORTED)
        sim_fail("te_open_with(): %s: %s", te_errname(rc), te_errmsg());
    if (sim_open(own, to, seg) < 0)
        *seg = SIM_CLOSED;
}

static void refuse(const struct user *u, const struct life *to, te_segment seg, te_paths paths,
                   int as)
{
    te_engine *e = u->host->life->engine;
    te_submit_opts opts = {.size = sizeof(opts), .paths = &paths};
    te_request r = {TE_READ, u->local, seg, (uintptr_t)to->memory, 1};
    te_batch b;
    int rc;

    paths.size = sizeof(paths);
    sim_ok(te_batch_alloc(e, 1, &b), "te_batch_alloc");
    rc = te_submit(e, b, &r, 1, &opts);
    if (rc != as)
        sim_fail("paths '%s', '%s': %s instead of %s", paths.require, paths.forbid, te_errname(rc),
                 te_errname(as));
    sim_ok(te_batch_free(e, b), "te_batch_free");
}

static void refused_calls(const struct user *u, const struct life *to, te_segment seg)
{
    refuse(u, to, seg, (te_paths){.require = " , "}, TE_ERR_INVALID);
    refuse(u, to, seg, (te_paths){.require = "tcp", .forbid = "host,tcp"}, TE_ERR_INVALID);
    refuse(u, to, seg, (te_paths){.require = "tcp", .forbid = "pigeons"}, TE_ERR_UNSUPPORTED);
}

/* ------------------------------------------------------------------------------------ connecting ahead */

static void check_warmed(const struct request *r, const struct te_warm *w, int rc, bool waits)
{
    unsigned allowed = is_known(r) ? r->segment.allowed : all();
    bool opening = false;

    for (size_t i = 0; i < w->n; i++) {
        const struct te_warmed *by = &w->by[i];
        int place = place_of(by->transport);

        opening = opening || by->opening;
        if (place < 0 || !(allowed & BIT(place)))
            sim_fail("te_warm() connects by %s, and may by %x", by->transport, allowed);
        if (rc == 0 && (waits ? by->opening : 0))
            sim_fail("te_warm() has returned, and %s is opening", by->transport);
        if (rc == 0 && by->failed && !by->ready && !by->opening)
            sim_fail("te_warm() tells that all is well, and by %s nothing is", by->transport);
    }
    if (rc == TE_ERR_TIMEOUT && !opening)
        sim_fail("te_warm() was late, and nothing is opening");
    if (rc == TE_ERR_UNSUPPORTED && r->to != r->user->host->life &&
        !r->to->over) /* the next one has installed nothing yet */
        sim_fail("te_warm(): %s", te_errmsg());
}

static int warm(struct user *u, struct life *to, te_segment seg, int64_t ms)
{
    struct life *own = u->host->life;
    struct te_warm w = {.size = sizeof(w)};
    struct request r = {.user = u,
                        .to = to,
                        .segment = book_of(own)->rules[to->host],
                        .epoch = book_of(own)->epoch[to->host]};
    int64_t now = sim_now(), due = ms < 0 ? now + WARM_NS : now + ms * SIM_MS;
    int rc = sim_later.warm(own->engine, seg, ms, &w);

    sim_trace("user %d: warm host %d, %lld ms: %s", u->index, to->host, (long long)ms,
              te_errname(rc));
    check_prompt("te_warm()", due, now);
    if (rc == TE_ERR_TIMEOUT && (ms <= 0 || sim_now() < due))
        sim_fail("te_warm() has given up before its time");
    if (rc == TE_ERR_NOT_FOUND || rc == TE_ERR_INVALID)
        sim_fail("te_warm(): %s: %s", te_errname(rc), te_errmsg());
    check_warmed(&r, &w, rc, ms != 0);
    return rc;
}

void sim_paths_use(struct user *u, struct life *to, te_segment *seg)
{
    struct life *own = u->host->life;

    if (sim_one_in(10))
        refused_calls(u, to, *seg);
    if (sim_one_in(3))
        reopen(u, to, seg);
    for (uint64_t n = 1 + sim_below(4); *seg != SIM_CLOSED && n > 0; n--) {
        uint64_t chance = sim_below(8);

        if (chance == 0)
            warm(u, to, *seg, sim_one_in(4) ? -1 : sim_one_in(4) ? 0 : (int64_t)sim_below(3000));
        else if (chance == 1)
            try_impossible(u, to, *seg);
        else if (chance < 4)
            try_extra(u, to, *seg);
        else
            try(u, to, *seg, sim_one_in(3) ? 0 : sure(own, to));
        if (sim_one_in(6))
            sim_trouble(own->host, to->host, SIM_MS << sim_below(12));
    }
}

/* With NICs that have just come back it may take some tries; a request of what is always there is COMPLETED. */
bool sim_paths_reach(struct user *u, struct life *to, te_segment seg)
{
    bool warmed = warm(u, to, seg, 30000) == 0 || to == u->host->life;

    return try(u, to, seg, sure(u->host->life, to)) && warmed;
}
