/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c - a random program over the public interface on several hosts, and what must be true of it.
 *
 * Each host has an engine, memory that the others may write and read, and users. A user has slots of its
 * own in the memory of each host, so that it alone knows what must be there: a byte is sure once a WRITE
 * of it is COMPLETED, and is not from the submission of a WRITE until then. A byte that is sure and is
 * not what was written, there or in what a READ brought, is an error; so is a touch of a request's
 * memory after its end, for it cannot be touched then; so is a request that does not end in time, or an
 * engine that leaves a thread or a descriptor behind. Faults come for a while; once they have stopped
 * everything must succeed.
 */
#include "load.h"

#include "sim.h"
#include "te.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LIVES      6 /* of a host, at most */
#define USERS      2 /* of a host */
#define SLOTS      3 /* of a user, in the memory of each host */
#define EXTRA      (64 * 1024)
#define PAGE       ((size_t)4096)
#define PORT       15001
#define TIMEOUT_MS 3000
#define BOUND_NS   (60 * SIM_S) /* of a request's life beyond its deadline */
#define SETTLE_NS  (300 * SIM_S)
#define FAULTS     100
#define CANCEL_MS  2000 /* a cancelled request ends within, unless its host stands still */

struct slot {
    unsigned char *want;
    bool *sure;
    bool busy; /* a WRITE of it is under way */
};

/* A host's life: a new one begins with each start. */
struct life {
    te_engine *engine;
    char name[64];
    char *memory, *extra;
    struct slot *slots;
    bool over;
    int host;
    unsigned there;   /* odd while `extra` is registered, another number each time */
    struct run *runs; /* all that ever were, the newest first */
};

/* A batch, by what te_done() may say of it. */
struct run {
    te_batch batch;
    unsigned submits, told;
    struct run *next;
};

struct user {
    struct host *host;
    int index;
    pthread_t thread;
    char *local; /* for each slot as much */
    bool done;   /* with its rounds */
};

struct host {
    int number;
    struct life *life; /* NULL: is not up */
    struct user users[USERS];
    int lives;    /* that have begun */
    bool through; /* all that it was to do is done */
};

struct intent {
    int opcode;
    struct slot *slot;
    size_t at, length;
    char *local;
};

static struct {
    struct sim_knobs knobs;
    size_t slot; /* its bytes */
    struct host hosts[SIM_HOSTS];
    bool is_quiet; /* faults have stopped, and what they did is over */
    int64_t quiet_since;
    struct sim_counts counts;
} load;

/* ---------------------------------------------------------------------------------------- memory */

/* With a gap behind them: a request may span regions that adjoin. */
static char *pages(size_t size)
{
    char *p = mmap(NULL, size + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED || mprotect(p, size, PROT_READ | PROT_WRITE) < 0)
        sim_fail("out of memory");
    return p;
}

static void allow(char *at, size_t size, bool yes)
{
    if (mprotect(at, size, yes ? PROT_READ | PROT_WRITE : PROT_NONE) < 0)
        sim_fail("mprotect failed");
}

/* Each life has slots of its own: what an engine sent that is dead may still arrive. */
static size_t slot_number(const struct user *u, int slot)
{
    int life = (u->host->number - 1) * LIVES + u->host->lives - 1;

    return (size_t)((life * USERS + u->index) * SLOTS + slot);
}

static size_t memory_size(void)
{
    return (size_t)load.knobs.hosts * LIVES * USERS * SLOTS * load.slot;
}

/* What is sure is there. */
static void check_slot(const struct life *l, const struct user *u, int slot)
{
    size_t n = slot_number(u, slot);
    const struct slot *s = &l->slots[n];
    const unsigned char *is = (const unsigned char *)l->memory + n * load.slot;

    for (size_t i = 0; i < load.slot && !s->busy && !l->over; i++)
        if (s->sure[i] && is[i] != s->want[i])
            sim_fail(
                "torn: byte %zu of slot %d of user %d of host %d in %s is %02x and was written as %02x",
                i, slot, u->index, u->host->number, l->name, is[i], s->want[i]);
}

/* ---------------------------------------------------------------------------------------- a batch */

static void ok(int rc, const char *what)
{
    if (rc < 0)
        sim_fail("%s: %s: %s", what, te_errname(rc), te_errmsg());
}

static void fill(unsigned char *p, size_t n)
{
    uint64_t word = sim_random();

    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)((word >> (i % 8 * 8)) + i / 8);
}

/* A part of a slot, a READ or a WRITE of it. */
static struct intent intend(struct user *u, struct life *l, int slot)
{
    size_t at = sim_one_in(3) ? 0 : (size_t)sim_below(load.slot - 1);
    struct intent i = {.opcode = sim_one_in(2) ? TE_READ : TE_WRITE,
                       .slot = &l->slots[slot_number(u, slot)],
                       .at = at,
                       .length =
                           sim_one_in(3) ? load.slot - at : 1 + (size_t)sim_below(load.slot - at),
                       .local = u->local + (size_t)slot * load.slot};

    allow(i.local, load.slot, true);
    if (i.opcode == TE_WRITE) {
        fill((unsigned char *)i.local, i.length);
        memset(i.slot->sure + i.at, 0, i.length);
        memcpy(i.slot->want + i.at, i.local, i.length);
        i.slot->busy = true;
    } else {
        memset(i.local, 0x5a, i.length);
    }
    return i;
}

static void check_read(const struct intent *i)
{
    const unsigned char *got = (const unsigned char *)i->local;

    for (size_t k = 0; k < i->length; k++)
        if (i->slot->sure[i->at + k] && got[k] != i->slot->want[i->at + k])
            sim_fail("torn: a READ brought %02x as byte %zu, which was written as %02x", got[k],
                     i->at + k, i->slot->want[i->at + k]);
}

/* What was asked has ended so; its memory is the engine's no more. */
static void conclude(const struct intent *i, int state, const struct life *l)
{
    load.counts.completed += state == TE_COMPLETED;
    load.counts.ended += state != TE_COMPLETED;
    if (i->opcode == TE_WRITE) {
        i->slot->busy = false;
        if (state == TE_COMPLETED && !l->over)
            memset(i->slot->sure + i->at, 1, i->length);
    } else if (state == TE_COMPLETED) {
        check_read(i);
    }
    allow(i->local, load.slot, false);
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
    ok(n, "te_done");
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

static te_batch begin_batch(struct life *own, size_t capacity, unsigned submits)
{
    struct run *r = sim_new(sizeof(*r));

    ok(te_batch_alloc(own->engine, capacity, &r->batch), "te_batch_alloc");
    r->submits = submits;
    r->next = own->runs;
    own->runs = r;
    return r->batch;
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
        te_wait(own->engine, b, ms);
    } else if (sim_one_in(3)) {
        look_at_done(own);
    }
    if (!sim_one_in(5))
        return false;
    ok(te_cancel(own->engine, b), "te_cancel");
    return true;
}

/* Looks at each request until all have ended, or the time has come. */
static bool see_ends(te_engine *e, te_batch b, size_t n, int64_t until)
{
    struct te_status s;

    for (size_t k = 0; k < n && sim_now() < until;) {
        ok(te_status(e, b, k, &s), "te_status");
        if (s.state == TE_WAITING || s.state == TE_PENDING)
            usleep(100);
        else
            k++;
    }
    return sim_now() < until;
}

/* Returns whether it has cancelled it. */
static bool await_end(const struct life *own, te_batch b, size_t n, int64_t deadline_ms)
{
    int64_t end = sim_now() + deadline_ms * SIM_MS + BOUND_NS;
    bool canceled = let_go_on(own, b);
    int rc;

    if (canceled && !(load.knobs.faults & FAULT_FREEZE) && te_wait(own->engine, b, CANCEL_MS) < 0)
        sim_fail("a batch has not ended %d ms after te_cancel()", CANCEL_MS);
    if (sim_one_in(3) && see_ends(own->engine, b, n, end))
        return canceled;
    while ((rc = te_wait(own->engine, b, 10000)) == TE_ERR_TIMEOUT && sim_now() < end)
        ;
    if (rc == TE_ERR_TIMEOUT)
        sim_fail("a batch with a deadline of %lld ms has not ended %lld s after it",
                 (long long)deadline_ms, (long long)(BOUND_NS / SIM_S));
    return canceled;
}

/* A request that has ended, and was not cancelled: whether it may have ended so. */
static void check_end(te_engine *e, te_batch b, size_t task, const struct life *to, bool in_time)
{
    bool calm = !(load.knobs.faults & ~(FAULT_SHORT | FAULT_SPOIL)) && in_time;
    struct te_status s;
    char why[512];

    ok(te_status(e, b, task, &s), "te_status");
    te_status_msg(e, b, task, why, sizeof(why));
    if (s.state == TE_INVALID && !to->over)
        sim_fail("a request to memory that is registered was refused: %s", why);
    if (s.state != TE_COMPLETED && calm)
        sim_fail("a request failed, and nothing is wrong: %s", why);
}

static struct te_request request_of(const struct user *u, const struct life *to, te_segment seg,
                                    const struct intent *i, int slot)
{
    uint64_t base = (uint64_t)(uintptr_t)to->memory + slot_number(u, slot) * load.slot;

    return (te_request){i->opcode, i->local, seg, base + i->at, i->length};
}

/* By a prepared list of them all, of which those of one direction are submitted, and then the others. */
static void submit_prepared(te_engine *e, te_batch b, const te_request *reqs, size_t n,
                            const te_submit_opts *opts)
{
    void *local[SLOTS];
    uint64_t remote[SLOTS];
    size_t length[SLOTS];
    uint32_t index[SLOTS];
    te_prep prep;

    for (size_t i = 0; i < n; i++)
        local[i] = reqs[i].source, remote[i] = reqs[i].target_offset, length[i] = reqs[i].length;
    ok(te_prep_create(e, reqs[0].target, local, remote, length, n, &prep), "te_prep_create");
    for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++) {
        size_t k = 0;

        for (size_t i = 0; i < n; i++)
            if (reqs[i].opcode == opcode)
                index[k++] = (uint32_t)i;
        if (k)
            ok(te_prep_submit(e, b, prep, opcode, index, k, opts), "te_prep_submit");
    }
    ok(te_prep_destroy(e, prep), "te_prep_destroy");
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

/* One batch towards a life of a host; true if all of it is COMPLETED. */
static bool run_batch(struct user *u, struct life *to, te_segment seg, int64_t deadline_ms)
{
    struct life *own = u->host->life;
    struct intent intents[SLOTS] = {0};
    te_request reqs[SLOTS];
    char note[16];
    te_submit_opts opts = {.size = sizeof(opts), .deadline_ms = deadline_ms, .notify_target = seg};
    size_t n = 1 + (size_t)sim_below(SLOTS);
    bool whole = true, canceled, is_prepared = sim_one_in(3);
    unsigned id = sim_note_new(to->host, note);
    te_batch b = begin_batch(own, n, is_prepared ? 2 : 1);

    for (size_t k = 0; k < n; k++) {
        check_slot(to, u, (int)k);
        intents[k] = intend(u, to, (int)k);
        reqs[k] = request_of(u, to, seg, &intents[k], (int)k);
    }
    opts.notify_name = is_prepared || sim_one_in(2) ? NULL : "behind";
    opts.notify_msg = note;
    if (is_prepared)
        submit_prepared(own->engine, b, reqs, n, &opts);
    else
        ok(te_submit(own->engine, b, reqs, n, &opts), "te_submit");
    canceled = await_end(own, b, n, deadline_ms ? deadline_ms : TIMEOUT_MS);
    for (size_t k = 0; k < n; k++) {
        size_t task = task_of(intents, k, is_prepared);
        struct te_status s;

        if (!canceled)
            check_end(own->engine, b, task, to, !deadline_ms);
        ok(te_status(own->engine, b, task, &s), "te_status");
        whole = whole && s.state == TE_COMPLETED;
        conclude(&intents[k], s.state, to);
        check_slot(to, u, (int)k);
    }
    sim_note_conclude(id, whole);
    ok(te_batch_free(own->engine, b), "te_batch_free");
    load.counts.batches++;
    return whole;
}

/* A request to `extra`, which was registered before it began and was so until it had ended, is not refused. */
static void check_extra(te_engine *e, te_batch b, const struct life *to, unsigned there)
{
    struct te_status s;

    ok(te_status(e, b, 0, &s), "te_status");
    if (s.state == TE_INVALID && there % 2 && to->there == there && !to->over)
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
                    .length = 1 + sim_below(load.slot)};
    bool fits = r.target_offset + r.length <= (uintptr_t)to->extra + EXTRA;
    unsigned there = fits ? to->there : 0;
    te_batch b = begin_batch(own, 1, 1);
    int rc;

    allow(local, load.slot, true);
    rc = te_submit(e, b, &r, 1, NULL);
    if (rc != TE_ERR_NOT_REGISTERED ||
        to != u->host->life) /* of its own an engine knows what is there */
        ok(rc, "te_submit");
    await_end(own, b, rc == 0, TIMEOUT_MS);
    if (rc == 0)
        check_extra(e, b, to, there);
    allow(local, load.slot, false);
    ok(te_batch_free(e, b), "te_batch_free");
    load.counts.batches++;
}

/* ----------------------------------------------------------------------------------------- a user */

static struct life *any_life(void)
{
    return load.hosts[1 + sim_below((uint64_t)load.knobs.hosts)].life;
}

/* What has ended holds no memory: it can be unregistered. */
static void register_anew(struct user *u)
{
    te_engine *e = u->host->life->engine;

    ok(te_unregister(e, u->local), "te_unregister");
    ok(te_register(e, u->local, SLOTS * load.slot, "cpu:0", 0), "te_register");
}

static void one_round(struct user *u)
{
    te_engine *e = u->host->life->engine;
    struct life *to = any_life();
    te_segment seg;

    if (!to || te_open(e, to->name, &seg) < 0) {
        usleep(1000 * (useconds_t)(1 + sim_below(200)));
        return;
    }
    if (sim_one_in(6))
        touch_extra(u, to, seg);
    else
        run_batch(u, to, seg, sim_one_in(2) ? 0 : 1 + (int64_t)(sim_below(70) * sim_below(70)));
    if (sim_one_in(8) && te_notify(e, seg, "note", "x") == 0)
        load.counts.notified++;
    if (sim_one_in(8))
        te_refresh(e, to->name);
    ok(te_close(e, seg), "te_close");
    if (sim_one_in(4))
        register_anew(u);
    if (sim_one_in(4))
        usleep((useconds_t)sim_below(300000));
}

/* With faults gone every host is reached, within a time. */
static void reach_all(struct user *u)
{
    te_engine *e = u->host->life->engine;

    for (int h = 1; h <= load.knobs.hosts; h++) {
        struct life *to = load.hosts[h].life;
        bool reached = false;
        te_segment seg;

        while (!reached) {
            if (sim_now() > load.quiet_since + SETTLE_NS)
                sim_fail("host %d does not reach host %d, %lld s after the last fault",
                         u->host->number, h, (long long)(SETTLE_NS / SIM_S));
            if (te_open(e, to->name, &seg) < 0) {
                usleep(100000);
                continue;
            }
            reached = run_batch(u, to, seg, 0);
            te_close(e, seg);
        }
    }
}

static void *user_main(void *arg)
{
    struct user *u = arg;

    for (int i = 0; i < load.knobs.rounds; i++)
        one_round(u);
    u->done = true;
    while (!load.is_quiet)
        usleep(50000);
    reach_all(u);
    return NULL;
}

/* ----------------------------------------------------------------------------------------- a host */

static void set(te_options *o, const char *name, const char *value)
{
    ok(te_option_set(o, name, value), name);
}

static const char *any_of(const char *a, const char *b, const char *c)
{
    const char *all[] = {a, b, c};

    return all[sim_below(3)];
}

static te_engine *make_engine(const struct host *h)
{
    char address[32], name[40];
    te_engine *e = NULL;
    te_options o;

    snprintf(address, sizeof(address), "10.77.0.%d", h->number);
    snprintf(name, sizeof(name), "%s:%d", address, PORT);
    te_options_init(&o);
    o.local_server_name = name;
    o.auto_discover = 0;
    set(&o, "TE_HOST_PATH", "off");
    set(&o, "TE_TRANSFER_TIMEOUT_MS", "3000");
    set(&o, "TE_TCP_NATIVE", any_of("on", "on", "off"));
    set(&o, "TE_TCP_CRC32C", any_of("on", "off", "off"));
    set(&o, "TE_TCP_PIECE_SIZE", any_of("1000", "5000", "4194304"));
    set(&o, "TE_TCP_ZEROCOPY", any_of("auto", "on", "off"));
    set(&o, "TE_TCP_THREADS", any_of("1", "2", "1"));
    while (te_engine_create(&o, &e) < 0) {
        if (load.is_quiet)
            sim_fail("no engine: %s", te_errmsg());
        usleep(100000);
    }
    te_options_fini(&o);
    return e;
}

static struct slot *make_slots(void)
{
    size_t n = memory_size() / load.slot;
    struct slot *slots = sim_new(n * sizeof(*slots));
    char *want = pages(memory_size()), *sure = pages(memory_size());

    for (size_t i = 0; i < n; i++) {
        slots[i].want = (unsigned char *)want + i * load.slot;
        slots[i].sure = (bool *)(void *)(sure + i * load.slot);
    }
    return slots;
}

/* In many regions across which slots lie, so that requests are cut. */
static void register_parts(const struct life *l)
{
    te_buffer parts[SIM_HOSTS * LIVES * USERS * SLOTS];
    size_t n = 0, size = memory_size(), part = load.slot / 2 * 5;

    for (size_t at = 0; at < size; at += part)
        parts[n++] = (te_buffer){l->memory + at, size - at < part ? size - at : part};
    ok(te_register_batch(l->engine, parts, n, "cpu:0", TE_REMOTE_READ | TE_REMOTE_WRITE),
       "te_register_batch");
}

static struct life *begin_life(struct host *h)
{
    struct life *l = sim_new(sizeof(*l));

    l->engine = make_engine(h);
    l->host = h->number;
    ok(te_engine_name(l->engine, l->name, sizeof(l->name)), "te_engine_name");
    l->memory = pages(memory_size());
    l->extra = pages(EXTRA);
    l->slots = make_slots();
    while (te_transport_install(l->engine, "tcp", NULL) < 0)
        usleep(100000);
    register_parts(l);
    return l;
}

/* The host's memory comes and goes until the load is over. */
static void *keeper_main(void *arg)
{
    struct life *l = arg;

    while (!load.is_quiet) {
        sim_notes_take(l->engine);
        ok(te_register(l->engine, l->extra, EXTRA, "cpu:0", TE_REMOTE_READ | TE_REMOTE_WRITE),
           "te_register");
        l->there++;
        usleep((useconds_t)sim_below(2000000));
        l->there++;
        while (te_unregister(l->engine, l->extra) == TE_ERR_BUSY)
            usleep(10000);
        allow(l->extra, EXTRA, false);
        usleep((useconds_t)sim_below(300000));
        allow(l->extra, EXTRA, true);
    }
    return NULL;
}

/* A batch is under way when its engine ends; its memory is not touched after that. */
static void end_under_way(const struct user *u, te_engine *e, const struct life *to)
{
    te_submit_opts opts = {.size = sizeof(opts)};
    te_segment seg;
    te_batch b;

    allow(u->local, SLOTS * load.slot, true);
    if (to && te_open(e, to->name, &seg) == 0) {
        te_request r = {.opcode = sim_one_in(2) ? TE_READ : TE_WRITE,
                        .source = u->local,
                        .target = seg,
                        .target_offset = (uintptr_t)(sim_one_in(2) ? to->memory : to->extra),
                        .length = SLOTS * load.slot};

        ok(te_batch_alloc(e, 1, &b), "te_batch_alloc");
        (void)te_submit(e, b, &r, 1, &opts);
    }
    te_engine_destroy(e);
    allow(u->local, SLOTS * load.slot, false);
}

static void *host_main(void *arg)
{
    struct host *h = arg;
    struct life *l = begin_life(h);
    pthread_t keeper;

    h->lives++;
    for (int i = 0; i < USERS; i++)
        h->users[i].done = false;
    h->life = l;
    pthread_create(&keeper, NULL, keeper_main, l);
    for (int i = 0; i < USERS; i++) {
        struct user *u = &h->users[i];

        *u = (struct user){.host = h, .index = i, .local = pages(SLOTS * load.slot)};
        ok(te_register(l->engine, u->local, SLOTS * load.slot, "cpu:0", 0), "te_register");
        allow(u->local, SLOTS * load.slot, false);
        pthread_create(&u->thread, NULL, user_main, u);
    }
    for (int i = 0; i < USERS; i++)
        pthread_join(h->users[i].thread, NULL);
    pthread_join(keeper, NULL);
    h->through = true;
    for (int i = 1; i <= load.knobs.hosts; i++)
        while (!load.hosts[i].through)
            usleep(10000);
    end_under_way(&h->users[0], l->engine, any_life());
    h->life = NULL;
    return NULL;
}

/* ---------------------------------------------------------------------------------------- faults */

static void heal(void *arg)
{
    int *path = arg;

    sim_path_heal(path[0], path[1]);
    free(path);
}

static void cut(int from, int to, int64_t ns)
{
    int *path = sim_new(2 * sizeof(*path));

    path[0] = from, path[1] = to;
    sim_path_cut(from, to);
    sim_at(sim_now() + ns, heal, path);
}

static int any_host(void)
{
    return 1 + (int)sim_below((uint64_t)load.knobs.hosts);
}

static int64_t a_while(void)
{
    return (int64_t)(SIM_MS << sim_below(15));
}

static void cut_some(void)
{
    int a = any_host(), b = any_host();
    int64_t ns = a_while();

    if (a == b)
        return;
    cut(a, b, ns);
    if (!sim_one_in(3))
        cut(b, a, ns);
}

static void go_on(void *arg)
{
    sim_continue((int)(intptr_t)arg);
}

static void freeze_one(void)
{
    int h = any_host();

    sim_trace("host %d is frozen", h);
    sim_stop(h);
    sim_at(sim_now() + a_while(), go_on, (void *)(intptr_t)h);
}

static void restart(void *arg)
{
    struct host *h = arg;

    sim_trace("host %d starts again", h->number);
    sim_net_power_on(h->number);
    sim_spawn(h->number, host_main, h);
}

/* Its process is gone, or the machine is off, too. */
static void bury(struct host *h)
{
    struct life *l = h->life;

    sim_trace("host %d is dead", h->number);
    h->life = NULL;
    l->over = true;
    if (sim_one_in(2))
        sim_net_power_off(h->number);
    else
        sim_files_close(h->number);
    allow(l->memory, memory_size(), false);
    sim_at(sim_now() + a_while(), restart, h);
}

/* Locks of the library that all hosts of this process share must not be lost: it is waited for a
 * moment at which the host has none, while those of its threads that have none do not run. */
static void kill_one(void)
{
    struct host *h = &load.hosts[any_host()];
    bool dead = false;

    if (!h->life || h->lives == LIVES)
        return;
    for (int tries = 0; tries < 20 && !dead; tries++) {
        sim_stop(h->number);
        usleep(50);
        dead = sim_kill(h->number);
    }
    sim_continue(h->number);
    if (dead)
        bury(h);
}

static void spoil_one(void)
{
    const struct life *l = load.hosts[any_host()].life;
    size_t n = memory_size(), at = (size_t)sim_below(n);

    for (size_t i = 0; l && i < n; i++, at = (at + 1) % n)
        if (l->slots[at / load.slot].sure[at % load.slot]) {
            l->memory[at] ^= 1;
            return;
        }
}

static void one_fault(void)
{
    int fault = 1 << sim_below(4);

    if (load.knobs.faults & FAULT_SPOIL)
        spoil_one();
    if (!(fault & load.knobs.faults))
        return;
    load.counts.faults++;
    if (fault == FAULT_CUT)
        cut_some();
    else if (fault == FAULT_RESET)
        sim_net_reset();
    else if (fault == FAULT_FREEZE)
        freeze_one();
    else
        kill_one();
}

static void set_chances(bool on)
{
    int faults = on ? load.knobs.faults : 0;

    sim_net.short_in = faults & FAULT_SHORT ? 3 : 0;
    sim_net.lost_in = faults & FAULT_LOST ? 5 : 0;
    sim_file_faults = faults & FAULT_FILES ? 50 : 0;
}

/* -------------------------------------------------------------------------------------------- all */

static void lay_paths(void)
{
    for (int a = 0; a < SIM_HOSTS; a++)
        for (int b = 0; b < SIM_HOSTS; b++)
            *sim_path(a, b) = (struct sim_path){.latency_ns = (int64_t)(5000 << sim_below(12)),
                                                .bytes_per_s = (int64_t)(1000000 << sim_below(12))};
}

static void on_log(void *arg, enum te_log_level level, const char *line)
{
    (void)arg, (void)level;
    sim_trace("log: %s", line);
}

static void on_touch(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    sim_fail("memory was touched that is not the engine's: %p", info->si_addr);
}

static bool all_done(void)
{
    for (int h = 1; h <= load.knobs.hosts; h++)
        for (int i = 0; i < USERS; i++)
            if (!load.hosts[h].life || !load.hosts[h].users[i].done)
                return false;
    return true;
}

static void await_users(void)
{
    for (int i = 0; !all_done(); i++) {
        usleep((useconds_t)(sim_below(600) * 1000));
        if (i < FAULTS)
            one_fault();
    }
}

static void make_quiet(void)
{
    set_chances(false);
    for (bool all = false; !all;) { /* what is cut, frozen or off comes back by itself */
        usleep(1000000);
        all = true;
        for (int h = 1; h <= load.knobs.hosts; h++)
            all = all && load.hosts[h].life && sim_is_running(h);
    }
    usleep(40000000);
    load.quiet_since = sim_now();
    load.is_quiet = true;
}

static void check_left(void)
{
    for (int h = 1; h <= load.knobs.hosts; h++) {
        while (load.hosts[h].life)
            usleep(10000);
        usleep(10000);
        if (sim_files_of(h))
            sim_fail("host %d has left %u descriptors open", h, sim_files_of(h));
        if (sim_threads_of(h))
            sim_fail("host %d has left %u threads", h, sim_threads_of(h));
    }
}

struct sim_counts sim_load(const struct sim_knobs *k)
{
    struct sigaction touch = {.sa_sigaction = on_touch, .sa_flags = SA_SIGINFO};
    int hosts = 2 + (int)sim_below(3), rounds = 4 + (int)sim_below(20);
    int faults = sim_one_in(6) ? (sim_one_in(2) ? 0 : FAULT_SHORT) : (int)sim_below(FAULTS_ALL + 1);

    sigaction(SIGSEGV, &touch, NULL);
    te_log_set_sink(on_log, NULL);
    te_log_set_level(TE_LOG_DEBUG);
    load.knobs =
        (struct sim_knobs){k->hosts < 0 ? hosts : k->hosts, k->rounds < 0 ? rounds : k->rounds,
                           k->faults < 0 ? faults : k->faults};
    load.slot = sim_one_in(5) ? 96 * 1024 : 16 * 1024;
    lay_paths();
    for (int h = 1; h <= load.knobs.hosts; h++) {
        load.hosts[h].number = h;
        sim_spawn(h, host_main, &load.hosts[h]);
    }
    for (int h = 1; h <= load.knobs.hosts; h++)
        while (!load.hosts[h].life)
            usleep(10000);
    set_chances(true);
    await_users();
    make_quiet();
    check_left();
    return load.counts;
}
