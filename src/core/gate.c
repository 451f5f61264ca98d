/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.c - requests that wait for other work before they are begun.
 *
 * The requests of one call have one gate. They were checked, and cut to see that they can be, and hold their views and
 * regions. While they wait, the gate is in `held`, under ctl.lock; whoever takes it out of there has it alone, and
 * either begins its requests or ends them all: te/ctl when the descriptor is readable or the first deadline has
 * passed, the thread that watches streams, te_cancel() and the end of the engine. They have one batch and one deadline,
 * so no gate is ever divided.
 *
 * What these two threads find is done by a job, since nothing may block there. Between `held` and the transport the
 * requests are in no list: as in park.c, te_cancel() marks them first, and the job holds parking.repost, shared, from
 * when it looks for the mark until they are posted. By then descriptor and transports may be others, so each is cut
 * anew, by the view that its peer has now.
 */
#include "core/gate.h"
#include "core/complete.h"
#include "core/core.h"
#include "core/page_feed.h"
#include "core/page_list.h"
#include "core/plan.h"
#include "core/slow.h"
#include "core/view.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define RENEW_AT_A_TIME 64

struct gate {
    struct tei_link link; /* in gates.held */
    te_engine *engine;
    struct task *first; /* NULL: not held yet */
    size_t n;
    int64_t deadline_ns;
    int fd; /* of ours; -1: none */
    struct tei_watch watch;
    struct stream_watch *stream; /* NULL: none, or it is over */
    const char *note;            /* how that has failed */
    bool over;                   /* before its requests were held: with `error` */
    int error;
    struct tei_job job;
};

static struct gate *gate_of(struct tei_link *l)
{
    return tei_container_of(l, struct gate, link);
}

void tei_gates_init(struct gates *s)
{
    tei_list_init(&s->held);
    tei_stream_watcher_init(&s->streams);
}

void tei_gates_fini(struct gates *s)
{
    tei_stream_watcher_fini(&s->streams);
}

static void free_gate(struct gate *g)
{
    if (g->fd >= 0)
        tei_fd_close(g->fd);
    free(g);
}

/* ------------------------------------------------------------------------------------ they begin */

/* What was posted by an older view is posted by the newest; the peer has one as long as the task has. */
static void renew_view(struct task *t)
{
    struct view *old = t->view;

    t->view = tei_view_current(old->peer);
    tei_view_put(old, 1);
}

static int cut(struct plan *p, struct task *t)
{
    if (tei_task_canceled(t))
        return TE_ERR_CANCELED;
    if (t->req.length == 0)
        return 0;
    if (p->engine->conf.disable_metacache && t->view->seg)
        return TE_ERR_STALE;
    return tei_plan_cut(p, t);
}

/* Cuts a task; where that is not to be, it waits for its peer or has ended. */
static void begin_task(struct plan *p, struct task *t)
{
    int rc;

    renew_view(t);
    atomic_store_explicit(&t->state, TE_WAITING, memory_order_relaxed);
    if (t->batch->stories)
        tei_slow_let_go(t);
    rc = cut(p, t);
    if ((rc == TE_ERR_STALE || rc == TE_ERR_ACCESS) && t->view->seg) {
        atomic_store_explicit(&t->state, TE_PENDING, memory_order_relaxed);
        tei_list_push_back(&p->unposted, &t->link);
    } else if (rc || t->req.length == 0) {
        tei_task_end(t, rc,
                     rc == TE_ERR_UNSUPPORTED || rc == TE_ERR_BUSY ? tei_plan_why_unreached(t)
                                                                   : NULL);
    }
}

static void begin(struct gate *g)
{
    te_engine *e = g->engine;
    struct plan plan;
    struct tei_link *l;

    tei_plan_init(&plan, e, NULL, g->n);
    pthread_rwlock_rdlock(&e->parking.repost);
    for (size_t i = 0; i < g->n; i++)
        begin_task(&plan, &g->first[i]);
    tei_plan_post(&plan);
    tei_page_feed_posted(&plan);
    while ((l = tei_list_pop(&plan.unposted))) {
        struct task *t = tei_container_of(l, struct task, link);

        tei_peer_park(t->view->peer, t);
    }
    pthread_rwlock_unlock(&e->parking.repost);
}

/* -------------------------------------------------------------------------------------- they end */

static const char *why(const struct gate *g, int error)
{
    if (g->note || error == TE_ERR_CONTEXT)
        return g->note;
    switch (error) {
    case TE_ERR_CANCELED:
        return NULL;
    case TE_ERR_TIMEOUT:
        return "what te_submit_opts.after names was not done in time; allow more, or look at what is to do it";
    default:
        return "the descriptor of te_submit_opts.after was closed at its other end, or has an error";
    }
}

/* The batch may be gone after it. */
static void end_gate(struct gate *g, int error)
{
    for (size_t i = 0; i < g->n; i++) {
        if (g->first[i].batch->stories)
            tei_slow_let_go(&g->first[i]); /* it was not slow: it has not begun */
        tei_task_end(&g->first[i], error, why(g, error));
    }
    free_gate(g);
}

static void settle_job(struct tei_job *j)
{
    struct gate *g = tei_container_of(j, struct gate, job);

    if (g->error) {
        end_gate(g, g->error);
        return;
    }
    begin(g);
    free_gate(g);
}

/* What the gate waited for has come, or (error) never will. It is in no list. */
static void settle(struct gate *g, int error)
{
    g->error = error;
    tei_jobs_post(&g->engine->feeds, &g->job, settle_job);
}

/* Takes it out of `held`. Under ctl.lock. */
static void take(struct gate *g)
{
    tei_list_del(&g->link);
    tei_watch_del(&g->watch);
    if (g->stream)
        tei_stream_watch_forget(g->stream);
    g->stream = NULL;
}

/* Moves those that are past `now`, or of this batch, or all, from `held` to a list. Under ctl.lock. */
static void pick(te_engine *e, const struct batch *b, int64_t now_ns, struct tei_list *out)
{
    struct tei_link *l, *tmp;

    tei_list_init(out);
    TEI_LIST_EACH(&e->gates.held, l, tmp) {
        struct gate *g = gate_of(l);

        if (now_ns ? g->deadline_ns > now_ns : b && g->first->batch != b)
            continue;
        take(g);
        tei_list_push_back(out, l);
    }
}

void tei_gates_cancel(te_engine *e, const struct batch *b)
{
    struct tei_list out;
    struct tei_link *l;

    pthread_mutex_lock(&e->ctl.lock);
    pick(e, b, 0, &out);
    pthread_mutex_unlock(&e->ctl.lock);
    while ((l = tei_list_pop(&out)))
        end_gate(gate_of(l), TE_ERR_CANCELED);
}

void tei_gates_close(te_engine *e)
{
    tei_gates_cancel(e, NULL);
    tei_stream_watcher_stop(e);
}

static void on_timer(struct tei_timer *t);

/* Has the timer go off by then. Under ctl.lock. */
static void watch_deadline(te_engine *e, int64_t when_ns)
{
    struct tei_timer *t = &e->gates.timer;

    if (when_ns != TEI_NEVER && (!t->slot || when_ns < t->when_ns))
        tei_timer_set(&e->ctl.loop, t, when_ns, on_timer);
}

/* On te/ctl, under its lock. */
static void on_timer(struct tei_timer *t)
{
    te_engine *e = tei_container_of(t, te_engine, gates.timer);
    struct tei_list late;
    struct tei_link *l, *tmp;

    pick(e, NULL, tei_now_ns(), &late);
    while ((l = tei_list_pop(&late)))
        settle(gate_of(l), TE_ERR_TIMEOUT);
    TEI_LIST_EACH(&e->gates.held, l, tmp)
        watch_deadline(e, gate_of(l)->deadline_ns);
}

/* ------------------------------------------------------------------------------------- they wait */

/* The end of a connection is readable, too: there may be nothing to be read. Bits of poll(2) are those of epoll. */
static int verdict(int fd, uint32_t events)
{
    int n = 0;

    if (!(events & EPOLLIN))
        return TE_ERR_SYSTEM;
    return events & (EPOLLHUP | EPOLLRDHUP) && ioctl(fd, FIONREAD, &n) == 0 && n == 0
               ? TE_ERR_SYSTEM
               : 0;
}

/* On te/ctl, under its lock. */
static void on_readable(struct tei_watch *w, uint32_t events)
{
    struct gate *g = tei_container_of(w, struct gate, watch);
    int error = verdict(g->fd, events);

    if (!g->first) {
        g->over = true;
        g->error = error;
        tei_watch_del(w);
        return;
    }
    take(g);
    settle(g, error);
}

/* Under ctl.lock. */
static void on_stream(struct stream_watch *w, int error)
{
    struct gate *g = w->arg;

    g->stream = NULL;
    if (error)
        g->note = tei_batch_note(g->first->batch, te_errmsg());
    take(g);
    settle(g, error);
}

static int fail_fd(int fd)
{
    int rc = errno == EBADF || errno == EPERM ? TE_ERR_INVALID : TE_ERR_SYSTEM;

    return TEI_FAIL(rc, "te_stream: descriptor %d cannot be waited for: %s; give an eventfd", fd,
                    tei_errno_text(errno));
}

static int watch_fd(struct gate *g, int fd)
{
    te_engine *e = g->engine;
    int rc;

    g->fd = tei_fd_own(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (g->fd < 0)
        return fail_fd(fd);
    pthread_mutex_lock(&e->ctl.lock);
    rc = tei_watch_add(&e->ctl.loop, &g->watch, g->fd, EPOLLIN | EPOLLRDHUP, on_readable);
    pthread_mutex_unlock(&e->ctl.lock);
    return rc ? fail_fd(fd) : 0;
}

/* A file always says so, which epoll refuses. */
static bool is_done(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};
    struct stat st;

    return poll(&p, 1, 0) == 1 && verdict(fd, (uint32_t)p.revents) == 0 && fstat(fd, &st) == 0 &&
           !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

int tei_gate_make(te_engine *e, const te_stream *after, struct gate **out)
{
    struct stream_watch *stream = NULL;
    struct gate *g;
    int rc = after->location ? tei_stream_watch_make(e, after, &stream) : 0;

    if (rc || (after->location ? !stream : is_done(after->fd)))
        return rc;
    g = calloc(1, sizeof(*g));
    if (!g && stream)
        tei_stream_watch_drop(stream);
    if (!g)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for requests that wait");
    *g = (struct gate){.engine = e, .fd = -1, .stream = stream};
    rc = stream ? 0 : watch_fd(g, after->fd);
    if (rc)
        free_gate(g);
    else
        *out = g;
    return rc;
}

void tei_gate_drop(struct gate *g)
{
    te_engine *e = g->engine;

    pthread_mutex_lock(&e->ctl.lock);
    tei_watch_del(&g->watch);
    pthread_mutex_unlock(&e->ctl.lock);
    if (g->stream)
        tei_stream_watch_drop(g->stream);
    free_gate(g);
}

/* Nothing of them is on its way any more. */
static void uncut(struct plan *p, struct task *tasks, size_t n)
{
    tei_plan_drop(p);
    tei_list_init(&p->unposted);
    p->paged = NULL;
    for (size_t i = 0; i < n; i++) {
        tasks[i].link = (struct tei_link){0};
        atomic_store_explicit(&tasks[i].path, 0, memory_order_relaxed);
        atomic_store_explicit(&tasks[i].state, TE_PENDING, memory_order_relaxed);
    }
}

void tei_gate_hold(struct gate *g, struct plan *p, size_t n)
{
    struct batch *b = p->batch;
    te_engine *e = g->engine;
    struct task *first = &b->tasks[atomic_load_explicit(&b->claimed, memory_order_relaxed)];
    bool over;
    int error;

    uncut(p, first, n);
    g->n = n;
    g->deadline_ns = p->deadline_ns;
    tei_batch_begin(b, n);
    for (size_t i = 0; i < n; i++)
        tei_metrics_unsample(&first[i]); /* what it waits for is none of its time */
    pthread_mutex_lock(&e->ctl.lock);
    g->first = first;
    over = g->over || atomic_load(&e->closing);
    error = g->over ? g->error : TE_ERR_CANCELED;
    if (g->stream)
        tei_stream_watch_begin(e, g->stream, on_stream, g);
    if (over) {
        tei_watch_del(&g->watch);
        if (g->stream)
            tei_stream_watch_forget(g->stream);
        g->stream = NULL;
    } else {
        tei_list_push_back(&e->gates.held, &g->link);
        watch_deadline(e, g->deadline_ns);
    }
    pthread_mutex_unlock(&e->ctl.lock);
    if (over)
        settle(g, error);
}

/* --------------------------------------------------------------------------- transports that change */

/* Exchanges the next views that are not the newest; which, is in `old`. Under ctl.lock. */
static size_t exchange_views(te_engine *e, struct view *old[RENEW_AT_A_TIME])
{
    struct tei_link *l, *tmp;
    size_t n = 0;

    TEI_LIST_EACH(&e->gates.held, l, tmp) {
        struct gate *g = gate_of(l);

        for (size_t i = 0; i < g->n && n < RENEW_AT_A_TIME; i++) {
            struct task *t = &g->first[i];
            struct view *now = tei_view_current(t->view->peer);

            if (now == t->view) {
                tei_view_put(now, 1);
                continue;
            }
            old[n++] = t->view;
            t->view = now;
        }
    }
    return n;
}

void tei_gates_renew(te_engine *e)
{
    struct view *old[RENEW_AT_A_TIME];
    size_t n;

    do {
        pthread_mutex_lock(&e->ctl.lock);
        n = exchange_views(e, old);
        pthread_mutex_unlock(&e->ctl.lock);
        for (size_t i = 0; i < n; i++)
            tei_view_put(old[i], 1);
    } while (n == RENEW_AT_A_TIME);
}
