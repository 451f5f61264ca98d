/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fails the n-th allocation, or the n-th call of the system of one sort, within a phase of an engine's life, for one n
 * after the other until nothing fails any more; test_oom.py and test_calls.py start it. Without memory, what fails must
 * answer TE_ERR_MEMORY; else an error that does not blame the call, with what the system said, where it is asked by the
 * library itself. The same must work when nothing fails any more, and neither memory nor descriptors nor mappings may
 * leak. A failure that no call answers is right, too: the library did without.
 *
 *   fault_sweep [-a] [-c CALL:ERROR] [-n N | -r RUNS -o OFFSET] PHASE METADATA PEER ADDRESS [OPTION=VALUE]...
 *   fault_sweep -l
 *
 * PEER is a segment with SIZE bytes to read and write at ADDRESS. -a fails all from the n-th on, not that one alone; -c
 * names what fails instead of allocations, and -l lists that, a line each, with "-a" where that goes with it; -n is for
 * one n; -r takes about so many, evenly spaced, of which OFFSET says where they begin.
 */
#include <dirent.h>
#include <execinfo.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "core/core.h"
#include "fabric/calls/calls.h"
#include "fabric/oom/oom.h"
#include "te.h"

#define SIZE      ((size_t)4 << 20) /* of the memory here and there */
#define REQUESTS  24
#define PIECE     (SIZE / REQUESTS / 4096 * 4096)
#define SMALL     64
#define TEXT_MAX  65536
#define HANG_S    240 /* nothing takes so long */
#define BAD_MAX   60
#define WARM_UPS  3
#define BATCH_MAX 64

struct world {
    const char *metadata, *peer;
    uint64_t remote;
    char **options; /* NAME=VALUE, up to a NULL */
    te_engine *engine;
    te_segment seg;
    te_batch batch;
    te_prep prep;
    unsigned char *mem;
    te_request reqs[REQUESTS];
    bool canceling;
    te_engine *server; /* the peer, where it is in this process, with its memory */
    unsigned char *served;
    char name[300];
};

struct phase {
    const char *name;
    bool fresh; /* a process for each n: what libraries do when they are used first */
    bool keeps; /* one engine for all of the sweep */
    bool both;  /* the peer is here, too: what it lacks may be told as any error */
    void (*before)(struct world *w); /* of each n, while there is memory */
    void (*act)(struct world *w);
    void (*after)(struct world *w);
};

/* What fails: one of the two. */
static const struct faults {
    const char *what;
    void (*arm)(uint64_t n, bool onwards);
    void (*disarm)(void);
    uint64_t (*seen)(void), (*failed)(void);
    int (*where)(void *frames[]);
    bool (*is_right)(int rc, const char *why); /* what a call answers, and its text */
} memory_faults, call_faults, *faults = &memory_faults;

static const struct phase *phase;
static const char *chosen = "allocation";
static uint64_t current;
static bool onwards;
static struct tally {
    unsigned bad, answered; /* wrong errors and leaks; steps in which a call failed */
    uint64_t seen;          /* of the last step: how many there were to fail */
    bool reached;           /* there were so many that one failed */
} * tally;                  /* shared with the processes of a fresh phase */
static bool step_answered;
static char text[TEXT_MAX];

/* ---- what is wrong */

static void tell_where(void)
{
    void *frames[OOM_FRAMES > CALLS_FRAMES ? OOM_FRAMES : CALLS_FRAMES];
    int n = faults->where(frames);

    backtrace_symbols_fd(frames, n, STDERR_FILENO);
}

static void complain(const char *what, const char *why)
{
    faults->disarm();
    dprintf(STDERR_FILENO, "%s: %s %" PRIu64 "%s: %s: %s; what failed:\n", phase->name, chosen,
            current, onwards ? " and all after it" : "", what, why);
    tell_where();
    if (++tally->bad >= BAD_MAX)
        _exit(1);
}

static void on_signal(int sig)
{
    void *frames[64];
    int n;

    faults->disarm();
    dprintf(STDERR_FILENO, "%s: %s %" PRIu64 "%s: %s\n", phase->name, chosen, current,
            onwards ? " and all after it" : "", sig == SIGALRM ? "it hangs" : strsignal(sig));
    n = backtrace(frames, 64);
    backtrace_symbols_fd(frames, n, STDERR_FILENO);
    dprintf(STDERR_FILENO, "what failed:\n");
    tell_where();
    _exit(1);
}

/*
 * A thread that cannot be had may lack memory, or the system threads: the C library does not say. Nor
 * does libcurl of a host's name that it could not resolve.
 */
static bool is_for_memory(int rc, const char *why)
{
    return rc == TE_ERR_MEMORY || (rc == TE_ERR_SYSTEM && oom_linker_failed()) ||
           (rc == TE_ERR_METADATA &&
            (strstr(why, "Could not resolve host") || strstr(why, "thread failed to start")));
}

/*
 * The same may work later, or elsewhere: it is not the call that is wrong. Where all ports are in use, it says just that.
 * What is over with the next try, as after a signal, nobody is told of.
 */
static bool is_for_call(int rc, const char *why)
{
    if (!calls_may_last(chosen))
        return false;
    if (rc == TE_ERR_BUSY && strstr(chosen, "EADDRINUSE") && strstr(why, "are all in use"))
        return true;
    if (tei_err_class(rc) != TEI_CLASS_PATH && tei_err_class(rc) != TEI_CLASS_FATAL)
        return false;
    return !calls_by_program() || strstr(why, calls_text());
}

static const struct faults memory_faults = {"allocations", oom_arm,   oom_disarm,   oom_seen,
                                            oom_failed,    oom_where, is_for_memory},
                           call_faults = {"calls",      calls_arm,   calls_disarm, calls_seen,
                                          calls_failed, calls_where, is_for_call};

/* Takes the result of a call in which something may fail. */
static bool call(const char *name, int rc)
{
    char why[512];

    if (rc >= 0)
        return true;
    step_answered = true;
    if (phase->both)
        return false;
    if (!faults->is_right(rc, te_errmsg())) {
        snprintf(why, sizeof(why), "%s: %.400s", te_errname(rc), te_errmsg());
        complain(name, why);
    }
    return false;
}

/* And of one that has all it needs. */
static void must(const char *name, int rc)
{
    char why[512];

    if (rc >= 0)
        return;
    snprintf(why, sizeof(why), "afterwards, %s: %.400s", te_errname(rc), te_errmsg());
    complain(name, why);
}

/* ---- what every phase needs */

static void set_options(const struct world *w, te_options *o, bool armed)
{
    te_options_init(o);
    o->metadata = w->metadata;
    o->ip_or_host_name = "127.0.0.1";
    o->local_server_name = strcmp(w->metadata, "P2PHANDSHAKE") == 0 ? "127.0.0.1" : "fault_sweep";
    for (char **at = w->options; *at; at++) {
        char name[128];
        const char *value = strchr(*at, '=');

        snprintf(name, sizeof(name), "%.*s", (int)(value - *at), *at);
        if (armed)
            call("te_option_set", te_option_set(o, name, value + 1));
        else
            must("te_option_set", te_option_set(o, name, value + 1));
    }
}

static void make_engine(struct world *w)
{
    te_options o;

    set_options(w, &o, false);
    must("te_engine_create", te_engine_create(&o, &w->engine));
    te_options_fini(&o);
    if (!w->engine)
        _exit(1);
}

static void end_engine(struct world *w)
{
    te_engine_destroy(w->engine);
    w->engine = NULL;
}

static void register_and_open(struct world *w)
{
    must("te_register", te_register(w->engine, w->mem, SIZE, "cpu:0", TE_REMOTE_RW));
    must("te_open", te_open(w->engine, w->peer, &w->seg));
    for (size_t i = 0; i < REQUESTS; i++)
        w->reqs[i] = (te_request){i % 2 ? TE_READ : TE_WRITE, w->mem + i * PIECE, w->seg,
                                  w->remote + i * PIECE, i % 3 ? PIECE : SMALL};
}

static void ready(struct world *w)
{
    make_engine(w);
    register_and_open(w);
}

/* One request of all the memory; true if it is COMPLETED. */
static void transfer(struct world *w, int opcode)
{
    te_request r = {opcode, w->mem, w->seg, w->remote, SIZE};
    struct te_status st = {0};
    te_batch b;

    must("te_batch_alloc", te_batch_alloc(w->engine, 1, &b));
    must("te_submit", te_submit(w->engine, b, &r, 1, NULL));
    must("te_wait", te_wait(w->engine, b, -1));
    must("te_batch_status", te_batch_status(w->engine, b, &st));
    if (st.state != TE_COMPLETED) {
        te_status_msg(w->engine, b, 0, text, sizeof(text));
        complain("a transfer afterwards", text);
    }
    must("te_batch_free", te_batch_free(w->engine, b));
}

/* Random bytes there and back: the engine works. */
static void check_engine(struct world *w)
{
    static unsigned char want[SIZE];
    static uint64_t state = 1;

    for (size_t i = 0; i < SIZE; i += sizeof(state)) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        memcpy(want + i, &state, sizeof(state));
    }
    memcpy(w->mem, want, SIZE);
    transfer(w, TE_WRITE);
    memset(w->mem, 0, SIZE);
    transfer(w, TE_READ);
    if (memcmp(w->mem, want, SIZE) != 0)
        complain("the bytes that came back", "they differ");
}

static void check_and_end(struct world *w)
{
    check_engine(w);
    end_engine(w);
}

/* ---- create */

static void do_create(struct world *w)
{
    te_options o;

    set_options(w, &o, true);
    call("te_engine_create", te_engine_create(&o, &w->engine));
    te_options_fini(&o);
}

static void after_create(struct world *w)
{
    if (w->engine)
        register_and_open(w);
    end_engine(w);
}

/* ---- open */

static void do_open(struct world *w)
{
    te_segment seg;
    te_buffer bufs[4];
    size_t total;

    if (!call("te_open", te_open(w->engine, w->peer, &seg)))
        return;
    call("te_segment_buffers", te_segment_buffers(w->engine, seg, bufs, 4, &total));
    if (!call("te_close", te_close(w->engine, seg)))
        must("te_close", te_close(w->engine, seg));
}

/* The segment is closed meanwhile: each open asks for the descriptor. */
static void close_segment(struct world *w)
{
    must("te_close", te_close(w->engine, w->seg));
}

static void open_and_check(struct world *w)
{
    must("te_open", te_open(w->engine, w->peer, &w->seg));
    for (size_t i = 0; i < REQUESTS; i++)
        w->reqs[i].target = w->seg;
    check_engine(w);
}

/* ---- unregister, refused */

static int (*region_del)(struct tei_transport *t, struct tei_region *r);

static int refuse(struct tei_transport *t, struct tei_region *r)
{
    (void)t;
    (void)r;
    return TEI_FAIL(TE_ERR_BUSY, "refused");
}

/* The transport that is asked first. */
static struct tei_transport *last_transport(const struct world *w)
{
    size_t i = w->engine->transports.n;

    while (i-- > 1 && !w->engine->transports.list[i]) {}
    return w->engine->transports.list[i];
}

/* What cannot be taken from a transport stays registered, and that takes no memory. */
static void do_unregister(struct world *w)
{
    if (te_unregister(w->engine, w->mem) != TE_ERR_BUSY)
        complain("te_unregister", "it is not refused");
}

static void before_unregister(struct world *w)
{
    region_del = last_transport(w)->ops.region_del;
    last_transport(w)->ops.region_del = refuse;
}

static void after_unregister(struct world *w)
{
    last_transport(w)->ops.region_del = region_del;
    check_engine(w);
    must("te_unregister", te_unregister(w->engine, w->mem));
    must("te_register", te_register(w->engine, w->mem, SIZE, "cpu:0", TE_REMOTE_RW));
}

/* ---- register */

static unsigned char more[6][8192] __attribute__((aligned(4096)));

static void do_register(struct world *w)
{
    te_buffer bufs[3];
    void *addrs[3], *got = NULL;
    bool batch, last = false;

    for (size_t i = 0; i < 3; i++) {
        bufs[i] = (te_buffer){more[i], sizeof(more[i])};
        addrs[i] = more[i];
    }
    batch = call("te_register_batch", te_register_batch(w->engine, bufs, 3, "*", TE_REMOTE_RW));
    for (size_t i = 3; i < 6; i++)
        last = call("te_register",
                    te_register(w->engine, more[i], sizeof(more[i]), "cpu:0", TE_REMOTE_READ));
    if (call("te_alloc", te_alloc(w->engine, 1 << 18, "*", &got))) {
        if (call("te_register", te_register(w->engine, got, 1 << 18, NULL, TE_REMOTE_RW)))
            call("te_unregister", te_unregister(w->engine, got));
        if (!call("te_free", te_free(w->engine, got))) {
            te_unregister(w->engine, got);
            must("te_free", te_free(w->engine, got));
        }
    }
    if (batch)
        call("te_unregister_batch", te_unregister_batch(w->engine, addrs, 3));
    if (last)
        call("te_unregister", te_unregister(w->engine, more[5]));
}

static void after_register(struct world *w)
{
    for (size_t i = 0; i < 6; i++)
        te_unregister(w->engine, more[i]);
    for (size_t i = 0; i < 6; i++)
        must("te_register", te_register(w->engine, more[i], sizeof(more[i]), "*", TE_REMOTE_RW));
    for (size_t i = 0; i < 6; i++)
        must("te_unregister", te_unregister(w->engine, more[i]));
    check_engine(w);
}

/* ---- transfers */

static void check_tasks(struct world *w, size_t n)
{
    char why[600];

    for (size_t i = 0; i < n; i++) {
        struct te_status st = {0};

        call("te_status", te_status(w->engine, w->batch, i, &st));
        if (st.state == TE_COMPLETED || (w->canceling && st.state == TE_CANCELED))
            continue;
        step_answered = true;
        te_status_msg(w->engine, w->batch, i, text, sizeof(text));
        if (phase->both || (st.state == TE_FAILED && faults->is_right(st.error, text)))
            continue;
        snprintf(why, sizeof(why), "state %d, %s: %.500s", st.state, te_errname(st.error), text);
        complain("a request", why);
        return;
    }
}

static void end_batch(struct world *w, size_t n)
{
    if (n && w->canceling)
        call("te_cancel", te_cancel(w->engine, w->batch));
    call("te_wait", te_wait(w->engine, w->batch, -1));
    check_tasks(w, n);
    if (!call("te_batch_free", te_batch_free(w->engine, w->batch)))
        must("te_batch_free", te_batch_free(w->engine, w->batch));
}

static void do_submit(struct world *w)
{
    te_submit_opts opts = {.size = sizeof(opts), .deadline_ms = 1000 * HANG_S};
    size_t n = 0;

    if (!call("te_batch_alloc", te_batch_alloc(w->engine, BATCH_MAX, &w->batch)))
        return;
    if (call("te_submit", te_submit(w->engine, w->batch, w->reqs, REQUESTS, &opts)))
        n = REQUESTS;
    end_batch(w, n);
}

static void do_cancel(struct world *w)
{
    w->canceling = true;
    do_submit(w);
    w->canceling = false;
}

static void do_prep(struct world *w)
{
    uint32_t order[REQUESTS];
    void *local[REQUESTS];
    uint64_t remote[REQUESTS];
    size_t length[REQUESTS], n = 0;
    te_prep p;

    for (size_t i = 0; i < REQUESTS; i++) {
        local[i] = w->reqs[i].source;
        remote[i] = w->reqs[i].target_offset;
        length[i] = (size_t)w->reqs[i].length;
        order[i] = (uint32_t)(REQUESTS - 1 - i);
    }
    if (!call("te_prep_create",
              te_prep_create(w->engine, w->seg, local, remote, length, REQUESTS, &p)))
        return;
    if (call("te_batch_alloc", te_batch_alloc(w->engine, BATCH_MAX, &w->batch))) {
        if (call("te_prep_submit",
                 te_prep_submit(w->engine, w->batch, p, TE_READ, order, REQUESTS, NULL)))
            n = REQUESTS;
        end_batch(w, n);
    }
    if (!call("te_prep_destroy", te_prep_destroy(w->engine, p)))
        must("te_prep_destroy", te_prep_destroy(w->engine, p));
}

static void do_events(struct world *w)
{
    te_batch done[4];

    if (!call("te_event_fd", te_event_fd(w->engine)))
        return;
    do_submit(w);
    call("te_done", te_done(w->engine, done, 4));
}

/* ---- the rest */

static void receive(struct world *w)
{
    te_notification *list;
    size_t n;

    if (call("te_notify_recv", te_notify_recv(w->engine, &list, &n)))
        te_notify_free(list, n);
}

/* The peer's inbox has an end; it is not what is tested. */
static void do_notify(struct world *w)
{
    te_submit_opts opts = {.size = sizeof(opts),
                           .notify_name = "name",
                           .notify_msg = "msg",
                           .traceparent =
                               "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"};

    call("te_notify", te_notify(w->engine, TE_LOCAL_SEGMENT, "name", "text"));
    receive(w);
    opts.notify_target = TE_LOCAL_SEGMENT;
    if (!call("te_batch_alloc", te_batch_alloc(w->engine, BATCH_MAX, &w->batch)))
        return;
    if (call("te_submit", te_submit(w->engine, w->batch, w->reqs, 2, &opts)))
        end_batch(w, 2);
    else
        end_batch(w, 0);
    receive(w);
}

static void do_notify_peer(struct world *w)
{
    call("te_notify", te_notify(w->engine, w->seg, "name", "text"));
}

static void do_links(struct world *w)
{
    struct te_stats stats = {.size = sizeof(stats)};

    call("te_links", te_links(w->engine, 0, text, sizeof(text)));
    call("te_links", te_links(w->engine, 1, text, sizeof(text)));
    call("te_topology_json", te_topology_json(w->engine, text, sizeof(text)));
    call("te_explain", te_explain(w->engine, w->reqs, text, sizeof(text)));
    call("te_stats", te_stats(w->engine, &stats));
}

static void do_refresh(struct world *w)
{
    call("te_refresh", te_refresh(w->engine, NULL));
    call("te_refresh", te_refresh(w->engine, w->peer));
    call("te_probe", te_probe(w->engine, w->peer));
}

static void do_install(struct world *w)
{
    if (call("te_transport_uninstall", te_transport_uninstall(w->engine, "tcp")))
        call("te_transport_install", te_transport_install(w->engine, "tcp", NULL));
}

static void after_install(struct world *w)
{
    must("te_transport_install", te_transport_install(w->engine, "tcp", NULL));
    check_engine(w);
}

static void before_destroy(struct world *w)
{
    ready(w);
    check_engine(w);
    must("te_batch_alloc", te_batch_alloc(w->engine, BATCH_MAX, &w->batch));
    must("te_submit", te_submit(w->engine, w->batch, w->reqs, REQUESTS, NULL));
}

/* A peer of its own, which lacks memory when it serves. */
static void before_serve(struct world *w)
{
    make_engine(w);
    w->server = w->engine;
    must("te_engine_name", te_engine_name(w->server, w->name, sizeof(w->name)));
    must("te_register", te_register(w->server, w->served, SIZE, "cpu:0", TE_REMOTE_RW));
    w->peer = w->name;
    w->remote = (uintptr_t)w->served;
    ready(w);
}

static void do_serve(struct world *w)
{
    do_submit(w);
    do_notify_peer(w);
    do_refresh(w);
}

static void after_serve(struct world *w)
{
    must("te_refresh", te_refresh(w->engine, NULL));
    check_and_end(w);
    te_engine_destroy(w->server);
}

static const struct phase phases[] = {
    {"first", true, false, false, NULL, do_create, after_create},
    {"create", false, false, false, NULL, do_create, after_create},
    {"open", false, true, false, close_segment, do_open, open_and_check},
    {"register", false, true, false, NULL, do_register, after_register},
    {"unregister", false, true, false, before_unregister, do_unregister, after_unregister},
    {"connect", false, false, false, ready, do_submit, check_and_end},
    {"submit", false, true, false, NULL, do_submit, check_engine},
    {"cancel", false, true, false, NULL, do_cancel, check_engine},
    {"prep", false, true, false, NULL, do_prep, check_engine},
    {"events", false, false, false, ready, do_events, check_and_end},
    {"notify", false, true, false, NULL, do_notify, check_engine},
    {"notify-peer", false, true, false, NULL, do_notify_peer, check_engine},
    {"links", false, true, false, NULL, do_links, check_engine},
    {"refresh", false, true, false, NULL, do_refresh, check_engine},
    {"install", false, true, false, NULL, do_install, after_install},
    {"serve", false, false, true, before_serve, do_serve, after_serve},
    {"destroy", false, false, false, before_destroy, end_engine, NULL},
};

/* ---- the sweep */

static size_t open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    size_t n = 0;

    while (folder && readdir(folder))
        n++;
    if (folder)
        closedir(folder);
    return n;
}

static struct {
    size_t descriptors;
    uint64_t mapped;
} marked;

static void mark(void)
{
    oom_mark();
    marked.descriptors = open_descriptors();
    marked.mapped = calls_mapped();
}

static void check_leaks(const char *when)
{
    size_t blocks = oom_leaks(), descriptors = open_descriptors() - marked.descriptors;
    uint64_t mapped = calls_mapped() - marked.mapped;
    char why[128];

    if (blocks == 0 && descriptors == 0 && mapped == 0)
        return;
    snprintf(why, sizeof(why), "%zu blocks, %zd descriptors and %" PRId64 " mapped bytes leaked",
             blocks, (ssize_t)descriptors, (int64_t)mapped);
    complain(when, why);
    oom_tell_leaks(STDERR_FILENO);
}

/* One time through the phase with the n-th failing; false if there were not so many. */
static bool step(struct world *w, uint64_t n)
{
    alarm(HANG_S);
    current = n;
    step_answered = false;
    if (!phase->keeps)
        mark();
    if (phase->before)
        phase->before(w);
    faults->arm(n, onwards);
    phase->act(w);
    faults->disarm();
    tally->seen = faults->seen();
    tally->reached = faults->failed() > 0;
    tally->answered += step_answered;
    if (phase->after)
        phase->after(w);
    if (!phase->keeps && !phase->fresh && n > 0)
        check_leaks("the end of its engine");
    return tally->reached;
}

static bool step_in_child(struct world *w, uint64_t n)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        step(w, n);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        tally->bad++;
        return n < tally->seen; /* it has said why */
    }
    return tally->reached;
}

static void begin(struct world *w)
{
    if (phase->keeps) {
        ready(w);
        check_engine(w);
    }
}

static void end(struct world *w)
{
    if (phase->keeps)
        end_engine(w);
}

/* Without a failure, so that what is made once and kept is there; and what there is to fail. */
static uint64_t warm_up(struct world *w)
{
    if (phase->fresh)
        step_in_child(w, 0);
    for (int i = 0; i < WARM_UPS && !phase->fresh; i++) {
        begin(w);
        step(w, 0);
        end(w);
    }
    return tally->seen;
}

static void sweep(struct world *w, uint64_t only, uint64_t offset, uint64_t runs)
{
    uint64_t about = warm_up(w), stride = runs > 0 && about > runs ? about / runs : 1, done = 0;
    bool (*once)(struct world * w, uint64_t n) = phase->fresh ? step_in_child : step;

    if (!phase->fresh)
        mark();
    begin(w);
    for (uint64_t n = only ? only : 1 + offset % stride; once(w, n) && !only; n += stride)
        done++;
    end(w);
    if (!phase->fresh)
        check_leaks("the end of the sweep");
    printf("%s%s%s%s: %" PRIu64 " of about %" PRIu64 " %s, one in %" PRIu64
           "; an error %u times, a wrong one %u times\n",
           phase->name, faults == &call_faults ? ", " : "", faults == &call_faults ? chosen : "",
           onwards ? ", and all after it" : "", done, about, faults->what, stride, tally->answered,
           tally->bad);
}

static const struct phase *find_phase(const char *name)
{
    for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++)
        if (strcmp(phases[i].name, name) == 0)
            return &phases[i];
    return NULL;
}

static void drop(void *arg, enum te_log_level level, const char *line)
{
    (void)arg;
    if (getenv("SWEEP_LOG"))
        dprintf(STDERR_FILENO, "log %d: %s\n", level, line);
}

static void watch(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGALRM};

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        sigaction(signals[i], &action, NULL);
    te_log_set_sink(drop, NULL);
    te_log_set_level(TE_LOG_DEBUG);
}

static void *map(size_t n, int how)
{
    void *at = mmap(NULL, n, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        abort();
    return at;
}

static int list(void)
{
    const char *name;

    for (size_t i = 0; (name = calls_name(i)); i++)
        printf("%s%s\n", name, calls_may_last(name) ? " -a" : "");
    return 0;
}

static struct {
    uint64_t only, offset, runs;
    bool list;
} asked;

static bool read_options(int argc, char **argv)
{
    int option;

    while ((option = getopt(argc, argv, "+n:o:r:c:al")) >= 0) {
        switch (option) {
        case 'n':
            asked.only = strtoull(optarg, NULL, 10);
            break;
        case 'o':
            asked.offset = strtoull(optarg, NULL, 10);
            break;
        case 'r':
            asked.runs = strtoull(optarg, NULL, 10);
            break;
        case 'a':
            onwards = true;
            break;
        case 'l':
            asked.list = true;
            break;
        case 'c':
            chosen = optarg;
            faults = &call_faults;
            if (!calls_choose(optarg))
                return false;
            break;
        default:
            return false;
        }
    }
    return asked.list || (argc - optind >= 4 && (phase = find_phase(argv[optind])));
}

int main(int argc, char **argv)
{
    struct world w = {0};

    if (!read_options(argc, argv))
        return 2;
    if (asked.list)
        return list();
    w.metadata = argv[optind + 1];
    w.peer = argv[optind + 2];
    w.remote = strtoull(argv[optind + 3], NULL, 0);
    w.options = argv + optind + 4;
    w.mem = map(SIZE, MAP_PRIVATE);
    w.served = map(SIZE, MAP_PRIVATE);
    tally = map(sizeof(*tally), MAP_SHARED);
    watch();
    /*
     * What nothing here can help: hwloc crashes without memory, and libcurl sends a request without the
     * query of its URL, which the server answers as it likes.
     */
    oom_spare("libhwloc.so");
    oom_spare_function("curl_url_get");
    sweep(&w, asked.only, asked.offset, asked.runs);
    return tally->bad ? 1 : 0;
}
