/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched.c - who runs.
 *
 * Each thread of the world waits until it is its turn (turn.c). Whoever runs chooses the next one, passes the
 * turn to it and waits: so all that is below needs no lock. Two ways of choosing, by seed. Uniform: at a point, with a chance that the seed sets, any thread that can run. By priority:
 * each thread has one by chance, the highest runs, and at a few points chosen beforehand the one that
 * runs falls to the lowest: few changes at the right points find most races that there are.
 *
 * A third way is for figures in virtual time (fleet.c): each thread has a processor and a clock of its own, and the
 * one whose clock is furthest behind runs, until it is a little ahead of what comes next.
 *
 * An event is a function and a time; deadlines of blocked threads are events, too. Events run in the
 * thread that finds them due, which only marks others as able to run.
 */
#include "sim.h"
#include "turn.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS     (1 << 20)
#define POINT_NS    200
#define CHANGES     8
#define FIRST_LIMIT 200000 /* points among which the changes of priority lie */
#define AWAY_LIMIT  22     /* of the time that a thread has no processor: 2^this us */
#define AHEAD_NS    (2 * SIM_US)
#define MANY        (1u << 20) /* events, of which some may be stale */
#define BUCKETS     (1u << 15)

enum state { READY, BLOCKED, DONE };

struct sim_thread {
    enum state state;
    int host, id;
    struct sim_turn turn;
    const void *on;
    const char *what;
    uint64_t sleep; /* counts its sleeps, by which a deadline knows its own */
    bool in_time;
    unsigned held;
    bool dead;          /* with its host's process */
    bool is_device;     /* of the host, and goes on while its processes stand still */
    int64_t away_until; /* its processor is somebody else's */
    int64_t priority;
    int64_t clock;                               /* its own, where each has one */
    bool is_lined;                               /* there is an event for its next turn */
    struct sim_thread *next_asleep, **asleep_at; /* among those that are blocked, by `on` */
    void *(*fn)(void *);
    void *arg;
    pthread_t real;
    void *result;
    char name[16];
};

struct event {
    int64_t when;
    uint64_t order;
    void (*fn)(void *);
    void *arg;
    struct sim_thread *sleeper; /* if fn is NULL: whose deadline it is, or whose turn */
    uint64_t sleep;
    bool is_turn;
};

typedef int create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
typedef int join_fn(pthread_t, void **);

static struct {
    bool on, by_priority, by_time;
    uint64_t chance_state, entropy_state;
    struct sim_thread *threads[THREADS]; /* all that ever were */
    int n_threads;
    struct sim_thread *alive[THREADS]; /* that may run at some time */
    int n_alive;
    int place[THREADS];           /* of a thread among these, by its number */
    uint64_t ready[THREADS / 64]; /* those of them that are READY, by place */
    struct sim_thread *asleep[BUCKETS];
    struct sim_thread *leaving; /* has ended, and may still run a little */
    int64_t time;
    unsigned switch_in;
    uint64_t changes[CHANGES];
    int64_t lowest;
    struct event *events;
    size_t n_events, cap_events;
    uint64_t order;
    bool stopped[SIM_LIMIT];
    uint64_t points, switches, hash;
} world;

static __thread struct sim_thread *me;
static pthread_key_t end_key; /* whose destructor ends a thread */

uint64_t sim_burns = 20000000;
unsigned sim_away_in;
int sim_away_hosts;
bool sim_trace_on;
const char *sim_repeat = "";

/* ---------------------------------------------------------------------------------------- reports */

static const char *host_of(const struct sim_thread *t)
{
    return t ? t->name : "-";
}

static void say(const char *fmt, va_list args)
{
    fprintf(stderr, "%12.6f host %d %-14s ", (double)world.time / 1e9, me ? me->host : 0,
            host_of(me));
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
}

void sim_trace(const char *fmt, ...)
{
    va_list args;

    if (!sim_trace_on)
        return;
    va_start(args, fmt);
    say(fmt, args);
    va_end(args);
}

static void list_threads(void)
{
    for (int i = 0; i < world.n_alive; i++) {
        const struct sim_thread *t = world.alive[i];

        fprintf(stderr, "  thread %d of host %d, %s: %s%s\n", t->id, t->host, t->name,
                t->state == READY ? "can run" : t->what,
                world.stopped[t->host] ? " (stopped)" : "");
    }
}

_Noreturn void sim_fail(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    say(fmt, args);
    va_end(args);
    list_threads();
    fprintf(stderr, "again: %s\n", sim_repeat);
    fflush(NULL);
    _exit(strncmp(fmt, "torn", 4) == 0 ? SIM_TORN : 1);
}

/* ---------------------------------------------------------------------------- the C library's own calls */

#define REALS 1024 /* more than there are calls of sim_real() */

/*
 * By the address of the name, which is a literal of the caller's. Threads that begin or end ask beside the one that runs:
 * who is first has the place, and another one asks the loader until the function is there.
 */
void *sim_real(const char *name)
{
    static struct {
        const char *name;
        void *at;
    } known[REALS];
    size_t i = ((uintptr_t)name >> 2) % REALS;
    const char *there;
    void *at;

    while ((there = __atomic_load_n(&known[i].name, __ATOMIC_ACQUIRE)) != name) {
        if (!there && __atomic_compare_exchange_n(&known[i].name, &there, name, false,
                                                  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            break;
        if (there != name)
            i = (i + 1) % REALS;
    }
    at = __atomic_load_n(&known[i].at, __ATOMIC_ACQUIRE);
    if (!at) {
        at = dlsym(RTLD_NEXT, name);
        __atomic_store_n(&known[i].at, at, __ATOMIC_RELEASE);
    }
    return at;
}

/* ----------------------------------------------------------------------------------------- chance */

/* splitmix64, by Sebastiano Vigna, in the public domain */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t sim_random(void)
{
    return next(&world.chance_state);
}

uint64_t sim_entropy(void)
{
    return next(&world.entropy_state);
}

uint64_t sim_below(uint64_t n)
{
    return sim_random() % n;
}

bool sim_one_in(uint64_t n)
{
    return n && sim_below(n) == 0;
}

static void mix(uint64_t value)
{
    world.hash = (world.hash ^ value) * 0x100000001b3u;
}

/* ----------------------------------------------------------------------------------------- events */

static bool before(const struct event *a, const struct event *b)
{
    return a->when != b->when ? a->when < b->when : a->order < b->order;
}

static int by_time(const void *a, const void *b)
{
    return before(a, b) ? -1 : before(b, a);
}

/* Deadlines of those who have been woken. What is left is in order, which a heap may be. */
static void drop_stale(void)
{
    size_t n = 0;

    for (size_t i = 0; i < world.n_events; i++) {
        const struct event *e = &world.events[i];

        if (e->fn || e->is_turn || (e->sleeper->state == BLOCKED && e->sleeper->sleep == e->sleep))
            world.events[n++] = *e;
    }
    world.n_events = n;
    qsort(world.events, n, sizeof(*world.events), by_time);
}

static void push(struct event e)
{
    bool is_full = world.n_events == world.cap_events;
    size_t i;

    if (is_full && world.n_events >= MANY)
        drop_stale();
    if (is_full && world.n_events >= world.cap_events / 2) {
        world.cap_events = world.cap_events ? 2 * world.cap_events : 256;
        world.events = realloc(world.events, world.cap_events * sizeof(*world.events));
        if (!world.events)
            abort();
    }
    i = world.n_events++;
    e.order = world.order++;
    for (; i > 0 && before(&e, &world.events[(i - 1) / 2]); i = (i - 1) / 2)
        world.events[i] = world.events[(i - 1) / 2];
    world.events[i] = e;
}

static struct event pop(void)
{
    struct event first = world.events[0], last = world.events[--world.n_events];
    size_t i = 0, child;

    for (; (child = 2 * i + 1) < world.n_events; i = child) {
        if (child + 1 < world.n_events && before(&world.events[child + 1], &world.events[child]))
            child++;
        if (!before(&world.events[child], &last))
            break;
        world.events[i] = world.events[child];
    }
    world.events[i] = last;
    return first;
}

void sim_at(int64_t when, void (*fn)(void *), void *arg)
{
    push((struct event){.when = when, .fn = fn, .arg = arg});
}

static void mark(const struct sim_thread *t)
{
    int at = world.place[t->id];
    uint64_t bit = UINT64_C(1) << at % 64;

    if (t->state == READY)
        world.ready[at / 64] |= bit;
    else
        world.ready[at / 64] &= ~bit;
}

static struct sim_thread **bucket_of(const void *on)
{
    return &world.asleep[((uintptr_t)on * 0x9e3779b97f4a7c15u) >> 49];
}

static void fall_asleep(struct sim_thread *t)
{
    struct sim_thread **at = bucket_of(t->on);

    t->next_asleep = *at;
    if (*at)
        (*at)->asleep_at = &t->next_asleep;
    *at = t;
    t->asleep_at = at;
}

static void get_up(struct sim_thread *t)
{
    if (!t->asleep_at)
        return;
    *t->asleep_at = t->next_asleep;
    if (t->next_asleep)
        t->next_asleep->asleep_at = t->asleep_at;
    t->asleep_at = NULL;
}

/* Its turn comes when the world has come to the time of its clock. */
static void line_up(struct sim_thread *t)
{
    if (!world.by_time || t->is_lined)
        return;
    if (t->clock < world.time)
        t->clock = world.time;
    t->is_lined = true;
    push((struct event){.when = t->clock, .sleeper = t, .is_turn = true});
}

static void set_state(struct sim_thread *t, enum state state)
{
    t->state = state;
    mark(t);
    if (state == BLOCKED)
        fall_asleep(t);
    else
        get_up(t);
    if (state == READY)
        line_up(t);
}

static void run_event(const struct event *e)
{
    if (e->fn) {
        e->fn(e->arg);
    } else if (e->sleeper->state == BLOCKED && e->sleeper->sleep == e->sleep) {
        set_state(e->sleeper, READY);
        e->sleeper->in_time = false;
    }
}

static void run_due(void)
{
    while (world.n_events && world.events[0].when <= world.time) {
        struct event e = pop();

        run_event(&e);
    }
}

/* ----------------------------------------------------------------------------------------- choosing */

static bool can_run(const struct sim_thread *t)
{
    return t->state == READY && !t->dead && (!world.stopped[t->host] || t->held || t->is_device) &&
           t->away_until <= world.time;
}

static int gather(struct sim_thread **ready)
{
    int n = 0;

    for (int i = 0; i < world.n_alive; i += 64)
        for (uint64_t left = world.ready[i / 64]; left; left &= left - 1) {
            struct sim_thread *t = world.alive[i + __builtin_ctzll(left)];

            if (can_run(t))
                ready[n++] = t;
        }
    return n;
}

static struct sim_thread *highest(struct sim_thread **ready, int n)
{
    struct sim_thread *best = ready[0];

    for (int i = 1; i < n; i++)
        if (ready[i]->priority > best->priority)
            best = ready[i];
    return best;
}

/* Leaps to the next event where nobody can run. */
static struct sim_thread *choose_by_time(void)
{
    while (world.n_events) {
        struct event e = pop();

        world.time = e.when;
        if (!e.is_turn) {
            run_event(&e);
            continue;
        }
        e.sleeper->is_lined = false;
        if (can_run(e.sleeper))
            return e.sleeper;
    }
    sim_fail("nobody can run, and nothing is to come");
}

static struct sim_thread *choose(void)
{
    static struct sim_thread *ready[THREADS];
    int n;

    if (world.by_time)
        return choose_by_time();
    while ((n = gather(ready)) == 0) {
        struct event e;

        if (!world.n_events)
            sim_fail("nobody can run, and nothing is to come");
        e = pop();
        if (e.when > world.time)
            world.time = e.when;
        run_event(&e);
        run_due();
    }
    return world.by_priority ? highest(ready, n) : ready[sim_below((uint64_t)n)];
}

/* A thread that has ended is quite gone before another runs: its stack and its memory are free by then. */
static void see_off(void)
{
    join_fn *real = (join_fn *)sim_real("pthread_join");
    struct sim_thread *t = world.leaving;

    world.leaving = NULL;
    if (t)
        real(t->real, &t->result);
}

static void hand_over(struct sim_thread *to)
{
    struct sim_thread *from = me;

    if (to == from)
        return;
    world.switches++;
    mix((uint64_t)to->id + 1);
    if (from->state == DONE) {
        sim_turn_leave(&from->turn, &to->turn);
        return;
    }
    sim_turn_pass(&from->turn, &to->turn);
    see_off();
}

/* To another one, or to the caller. */
static void give_way(void)
{
    me->clock = world.time;
    if (can_run(me))
        line_up(me);
    hand_over(choose());
}

static bool is_change(void)
{
    for (int i = 0; i < CHANGES; i++)
        if (world.changes[i] == world.points)
            return true;
    return false;
}

void sim_charge(int64_t ns)
{
    world.time += ns;
    if (!world.by_time)
        run_due();
}

static bool is_ahead(void)
{
    return world.n_events && world.time - world.events[0].when > AHEAD_NS;
}

static void come_back(void *arg)
{
    (void)arg; /* that time passes is enough */
}

static void go_away(void)
{
    me->away_until = world.time + (SIM_US << sim_below(AWAY_LIMIT));
    sim_at(me->away_until, come_back, NULL);
}

void sim_point(void)
{
    static uint64_t quiet_since;
    static int64_t quiet_time;

    if (!sim_is_on())
        return;

    world.points++;
    if (world.time - quiet_time > 10 * SIM_S)
        quiet_time = world.time, quiet_since = world.points;
    if (world.points - quiet_since > sim_burns)
        sim_fail("%lu points in 10 s: a loop that burns", (unsigned long)sim_burns);
    sim_charge(POINT_NS);
    if (me->host && me->host <= sim_away_hosts && !me->is_device && sim_one_in(sim_away_in))
        go_away();
    if (world.by_priority && is_change())
        me->priority = --world.lowest;
    if (!can_run(me) || world.by_priority ||
        (world.by_time ? is_ahead() : sim_one_in(world.switch_in)))
        give_way();
}

/* What a library of the preset `sim` calls before each atomic operation. */
void tei_yield(void);

void tei_yield(void)
{
    sim_point();
}

bool sim_block(const void *on, const char *what, int64_t until)
{
    world.points++;
    me->on = on;
    me->what = what;
    set_state(me, BLOCKED);
    me->in_time = true;
    me->sleep++;
    if (until != SIM_NEVER)
        push((struct event){.when = until, .sleeper = me, .sleep = me->sleep});
    sim_charge(POINT_NS);
    give_way();
    return me->in_time;
}

static int by_place(const void *a, const void *b)
{
    return world.place[(*(struct sim_thread *const *)a)->id] -
           world.place[(*(struct sim_thread *const *)b)->id];
}

unsigned sim_wake(const void *on, bool all)
{
    static struct sim_thread *found[THREADS];
    unsigned n = 0;

    for (struct sim_thread *t = *bucket_of(on); t; t = t->next_asleep)
        if (t->on == on)
            found[n++] = t;
    if (n == 0)
        return 0;
    qsort(found, n, sizeof(*found), by_place);
    if (!all) {
        found[0] = found[sim_below(n)];
        n = 1;
    }
    for (unsigned i = 0; i < n; i++)
        set_state(found[i], READY);
    return n;
}

/* ----------------------------------------------------------------------------------------- threads */

bool sim_is_on(void)
{
    return world.on && me;
}

int sim_host(void)
{
    return me ? me->host : 0;
}

int64_t sim_now(void)
{
    return world.time;
}

void sim_lock_held(int change)
{
    me->held += (unsigned)change;
    if (change < 0 && me->held == 0 && !can_run(me))
        give_way();
}

void sim_lock_dropped(void)
{
    me->held--;
}

static void add_alive(struct sim_thread *t)
{
    world.place[t->id] = world.n_alive;
    world.alive[world.n_alive++] = t;
    mark(t);
}

static struct sim_thread *add_thread(int host)
{
    struct sim_thread *t = calloc(1, sizeof(*t));

    if (!t || world.n_threads == THREADS)
        sim_fail("more than %d threads", THREADS);
    t->host = host;
    t->id = world.n_threads;
    t->priority = (int64_t)sim_below(1u << 20);
    world.threads[world.n_threads++] = t;
    add_alive(t);
    if (me)
        line_up(t);
    return t;
}

/* Keeps the order of the others. */
static void remove_those(bool (*gone)(const struct sim_thread *))
{
    int n = world.n_alive;

    memset(world.ready, 0, sizeof(*world.ready) * (((size_t)n + 63) / 64));
    world.n_alive = 0;
    for (int i = 0; i < n; i++)
        if (gone(world.alive[i]))
            get_up(world.alive[i]);
        else
            add_alive(world.alive[i]);
}

static bool is_gone(const struct sim_thread *t)
{
    return t->state == DONE || t->dead;
}

/* Called by the C library as often as it calls destructors, the last time when those of others have run. */
static void end_thread(void *arg)
{
    uintptr_t left = (uintptr_t)arg - 1;

    if (left) {
        pthread_setspecific(end_key, (void *)left);
        return;
    }
    set_state(me, DONE);
    sim_wake(me, true);
    remove_those(is_gone);
    world.leaving = me;
    give_way();
    me = NULL;
}

/* What a library keeps for each thread it may free with a lock: that is a part of the run. */
static void *start(void *arg)
{
    me = arg;
    pthread_setspecific(end_key, (void *)(uintptr_t)PTHREAD_DESTRUCTOR_ITERATIONS);
    sim_turn_await(&me->turn);
    see_off();
    return me->fn(me->arg);
}

/* The number that the world's threads have for one. */
static pthread_t number_of(const struct sim_thread *t)
{
    return (pthread_t)(t->id + 1);
}

static struct sim_thread *numbered(pthread_t number)
{
    return number >= 1 && number <= (pthread_t)world.n_threads ? world.threads[number - 1] : NULL;
}

static int create(int host, void *(*fn)(void *), void *arg, pthread_t *out)
{
    create_fn *real = (create_fn *)sim_real("pthread_create");
    struct sim_thread *t = add_thread(host);

    t->fn = fn;
    t->arg = arg;
    *out = number_of(t);
    return real(&t->real, NULL, start, t);
}

int pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    if (!sim_is_on())
        return ((create_fn *)sim_real("pthread_create"))(out, attr, fn, arg);
    if (create(me->host, fn, arg, out))
        sim_fail("a thread cannot be started");
    sim_point();
    return 0;
}

void sim_spawn(int host, void *(*fn)(void *), void *arg)
{
    pthread_t thread;

    if (create(host, fn, arg, &thread))
        sim_fail("a thread cannot be started");
    snprintf(numbered(thread)->name, 16, "user");
}

pthread_t pthread_self(void)
{
    return sim_is_on() ? number_of(me) : ((pthread_t(*)(void))sim_real("pthread_self"))();
}

int pthread_join(pthread_t thread, void **result)
{
    struct sim_thread *t = numbered(thread);

    if (!sim_is_on() || !t)
        return ((join_fn *)sim_real("pthread_join"))(thread, result);
    while (t->state != DONE)
        sim_block(t, "joins a thread", SIM_NEVER);
    if (result)
        *result = t->result;
    return 0;
}

int pthread_detach(pthread_t thread)
{
    (void)thread;
    return 0;
}

int pthread_setname_np(pthread_t thread, const char *name)
{
    struct sim_thread *t = sim_is_on() ? numbered(thread) : NULL;

    if (t) {
        snprintf(t->name, 16, "%s", name);
        t->is_device = strcmp(name, "softverbs") == 0 || strcmp(name, "softgpu") == 0;
    }
    return 0;
}

void sim_stop(int host)
{
    world.stopped[host] = true;
}

void sim_continue(int host)
{
    world.stopped[host] = false;
    for (int i = 0; i < world.n_alive; i++)
        if (world.alive[i]->host == host && world.alive[i] != me && can_run(world.alive[i]))
            line_up(world.alive[i]);
}

bool sim_is_running(int host)
{
    return !world.stopped[host];
}

bool sim_kill(int host)
{
    for (int i = 0; i < world.n_alive; i++)
        if (world.alive[i]->host == host && world.alive[i]->held)
            return false;
    for (int i = 0; i < world.n_alive; i++)
        world.alive[i]->dead = world.alive[i]->host == host;
    remove_those(is_gone);
    return true;
}

bool sim_is_engine(void)
{
    return sim_is_on() && strncmp(me->name, "te/", 3) == 0;
}

unsigned sim_threads_of(int host)
{
    unsigned n = 0;

    for (int i = 0; i < world.n_alive; i++)
        n += world.alive[i]->host == host;
    return n;
}

/* -------------------------------------------------------------------------------------------- life */

void sim_begin(uint64_t seed)
{
    world.chance_state = seed * 2 + 1;
    world.entropy_state = ~seed;
    world.hash = 0xcbf29ce484222325u;
    world.time = SIM_S;
    world.by_priority = sim_one_in(3);
    world.switch_in = 1 + (unsigned)sim_below(24);
    for (int i = 0; i < CHANGES; i++)
        world.changes[i] = sim_below(FIRST_LIMIT);
    if (pthread_key_create(&end_key, end_thread))
        sim_fail("no key is to be had");
    me = add_thread(0);
    snprintf(me->name, sizeof(me->name), "main");
    sim_turn_first(&me->turn);
    world.on = true;
}

void sim_by_time(void)
{
    world.by_time = true;
    world.by_priority = false;
}

struct sim_result sim_result(void)
{
    return (struct sim_result){world.points, world.switches, world.hash, world.time - SIM_S};
}

void sim_end(void)
{
    world.on = false;
}
