/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_fence.c - WRITEs that wait until no byte of an earlier one can come after them.
 *
 * A WRITE that was cancelled, late or broken off has ended, but what was handed to the kernel may
 * still be applied by the target, at any time. Its range is *unsettled* until that is known to be
 * over, and a WRITE that overlaps it is held back meanwhile. What settles a range:
 *
 *   native        the answer to that WRITE; the end of its connection, closed by the target; the
 *                 answer to a DROP of that connection, on another one: also after a RST, which something
 *                 between the hosts may have made up, unless nobody listens there any more: then its process
 *                 or its engine has ended. The frame itself remembers the
 *                 range (frame.unsettled): on its stream, or in peer.lost, or in peer.unsettled if no
 *                 other work has a part in it.
 *   version 1, 2  the end of its connection, closed by the target. There is no DROP, so the connection
 *                 is not closed here but becomes a tcp_remnant: a half-close (shutdown(SHUT_WR)) tells
 *                 the target that nothing more comes. A target reads what has come before it finds
 *                 the end and closes, so its FIN follows the last byte that it applied, and it sends
 *                 RST only where it has closed with bytes unread, which nobody can read any more.
 *                 That our own end has given the connection up (ETIMEDOUT) proves nothing: the target
 *                 may have received bytes that it has not read. Such a range is lost (peer.spans).
 *
 * With version 1 and 2 a RST is taken for the target's. One that something between the hosts has made up, while
 * the target is stopped, is not told from it: what the target has received by then it may apply when it goes on.
 *
 * A held WRITE is in the waiters of one thing that it waits for, and is looked at again when that is
 * settled. It obeys its deadline and cancel() as a queued one does. It fails when its remnant is
 * overdue, conf->tcp_status_timeout_ms after the half-close, and at once where the range is lost.
 *
 * No memory is needed for any of this: a lane has its remnant before it sends the first byte of a
 * WRITE. What there may be of each is bounded: with TCP_REMNANTS_MAX remnants, or
 * TCP_LEFT_OVER_MAX frames in peer.unsettled, every WRITE to the peer waits. Spans are merged.
 *
 * Another transport, such as host, carries no WRITE that would be held here: tei_route() asks (holds()).
 *
 * It costs a look at peer.n_unsettled for each post, and for each WRITE where there are several transports.
 */
#include "transport/tcp/tcp_nics.h"
#include "transport/tcp/tcp_stream.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define TCP_REMNANTS_MAX  32
#define TCP_LEFT_OVER_MAX 1024

static const struct tei_span everywhere = {0, UINT64_MAX};

static struct tcp_remnant *remnant_of(struct tei_link *n)
{
    return tei_container_of(n, struct tcp_remnant, link);
}

static struct tei_span span_of(const struct tcp_work *work)
{
    return (struct tei_span){work->entry.base.remote,
                             work->entry.base.remote + work->entry.base.length};
}

/* ------------------------------------------------------------------------------- what has to wait */

static const struct tcp_fault overdue = {
    TE_ERR_LINK, 0,
    "an earlier WRITE to this range may still arrive: the target has not ended its connection yet"};

static const struct tcp_fault lost = {
    TE_ERR_LINK, 0,
    "an earlier WRITE to this range may still arrive: its connection broke, and the target cannot be "
    "asked; once it is known to be over, close the segment and open it again"};

static bool is_crowded(const struct tcp_peer *p)
{
    return p->n_remnants >= TCP_REMNANTS_MAX || p->n_left_over >= TCP_LEFT_OVER_MAX;
}

/* Looks at the remnants; *waiters stays as it is where there is nothing to wait for. */
static const struct tcp_fault *remnants_reach(const struct tcp_peer *p, const struct tei_span *span,
                                              struct tei_list **waiters)
{
    struct tei_link *n, *tmp;

    for (unsigned i = 0; p->n_remnants && i < p->n_bundles; i++) {
        TEI_LIST_EACH(&p->bundles[i].remnants, n, tmp) {
            struct tcp_remnant *r = remnant_of(n);
            bool reaches = tei_spans_overlap(r->span, *span);

            if (r->overdue && (reaches || p->n_remnants >= TCP_REMNANTS_MAX))
                return &overdue;
            if (reaches)
                *waiters = &r->waiters;
        }
    }
    return NULL;
}

/*
 * Why a WRITE of this range cannot be sent at all, or NULL; then *waiters is where it has to wait, or NULL
 * if nothing is in its way.
 */
static const struct tcp_fault *reached(struct tcp_peer *p, const struct tei_span *span,
                                       struct tei_list **waiters)
{
    const struct tcp_fault *why;
    struct tcp_frame *f;

    *waiters = NULL;
    if (tei_span_set_reaches(&p->spans, *span))
        return &lost;
    why = remnants_reach(p, span, waiters);
    f = tei_tcp_frames_reach(p, span, UINT64_MAX);
    if (f)
        *waiters = &f->waiters;
    if (!*waiters && is_crowded(p))
        *waiters = &p->crowded;
    return why;
}

/*
 * The same for who waits and sends nothing: for as long as he likes, not for there to be fewer, and for nothing
 * that came after `until`.
 */
static const struct tcp_fault *touched(struct tcp_peer *p, const struct tei_span *span,
                                       uint64_t until, struct tei_list **waiters)
{
    struct tei_link *n, *tmp;
    struct tcp_frame *f;

    *waiters = NULL;
    if (tei_span_set_reaches(&p->spans, *span))
        return &lost;
    for (unsigned i = 0; p->n_remnants && i < p->n_bundles; i++)
        TEI_LIST_EACH(&p->bundles[i].remnants, n, tmp)
            if (remnant_of(n)->doubt <= until && tei_spans_overlap(remnant_of(n)->span, *span))
                *waiters = &remnant_of(n)->waiters;
    f = *waiters ? NULL : tei_tcp_frames_reach(p, span, until);
    if (f)
        *waiters = &f->waiters;
    return NULL;
}

static const struct tcp_fault *obstacle(struct tcp_peer *p, const struct tcp_work *work,
                                        struct tei_list **waiters)
{
    struct tei_span span = span_of(work);

    *waiters = NULL;
    if (work->entry.base.opcode != TE_WRITE)
        return NULL;
    return work->only_waits ? touched(p, &span, work->doubts, waiters) : reached(p, &span, waiters);
}

/*
 * Who has seen the end of a WRITE sees what that left. That there is too much of it holds up what goes
 * over TCP, and nothing else.
 */
bool tei_tcp_fence_holds(struct tcp_peer *p, struct tei_span span)
{
    struct tei_list *waiters;
    bool yes;

    if (tei_tcp_unsettled(p) == 0)
        return false;
    pthread_mutex_lock(&p->lock);
    yes = touched(p, &span, UINT64_MAX, &waiters) || waiters;
    pthread_mutex_unlock(&p->lock);
    return yes;
}

/* Ends one that is held. */
static void fail(struct tcp_peer *p, struct tcp_work *work, const struct tcp_fault *f)
{
    tei_tcp_work_fail(p, &p->held, work, f);
    tei_tcp_reap(p, NULL);
}

/* False: there is nothing to wait for. */
static bool hold(struct tcp_peer *p, struct tcp_work *work, int64_t now)
{
    struct tei_list *waiters;
    const struct tcp_fault *why = obstacle(p, work, &waiters);

    if (!why && !waiters)
        return false;
    work->entry.base.why = "waiting for the target's word that an earlier WRITE there is over";
    work->behind = (struct tei_link){0};
    tei_list_push_back(waiters ? waiters : &p->crowded, &work->behind);
    tei_list_del(&work->entry.base.link);
    tei_ledger_post(&p->held, &work->entry, now);
    if (why)
        fail(p, work, why);
    return true;
}

void tei_tcp_fence_hold(struct tcp_peer *p, struct tei_list *works, int64_t now)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(works, link, tmp) {
        tei_tcp_work_of(link)->only_waits = false;
        (void)hold(p, tei_tcp_work_of(link), now);
    }
}

static struct tcp_work *behind_of(struct tei_link *n)
{
    return tei_container_of(n, struct tcp_work, behind);
}

/* What it waited for is over. */
static void look_again(struct tcp_peer *p, struct tcp_work *work)
{
    struct tei_list *waiters;
    const struct tcp_fault *why = obstacle(p, work, &waiters);

    if (why) {
        fail(p, work, why);
    } else if (waiters) {
        tei_list_del(&work->behind);
        tei_list_push_back(waiters, &work->behind);
    } else {
        tei_list_del(&work->behind);
        tei_ledger_withdraw(&work->entry);
        if (work->only_waits) {
            tei_list_push_back(&p->ledger.over, &work->entry.base.link);
            tei_tcp_reap(p, NULL);
            return;
        }
        work->entry.base.why = tei_tcp_queued;
        tei_ledger_post(&p->ledger, &work->entry, work->entry.since_ns);
        tei_tcp_watch_queue(p);
        tei_tcp_bundle_call(&p->bundles[0]);
    }
}

void tei_tcp_fence_release(struct tcp_peer *p, struct tei_list *waiters)
{
    struct tei_list over;
    struct tei_link *n;

    tei_list_init(&over);
    tei_list_splice(&over, waiters);
    while ((n = tei_list_first(&over)))
        look_again(p, behind_of(n));
}

void tei_tcp_fence_thin_out(struct tcp_peer *p)
{
    if (!is_crowded(p))
        tei_tcp_fence_release(p, &p->crowded);
}

void tei_tcp_fence_fail(struct tcp_peer *p, struct tei_list *waiters, const struct tcp_fault *f)
{
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(waiters, n, tmp)
        if (!behind_of(n)->only_waits)
            fail(p, behind_of(n), f);
}

/* Who only waits is failed by what is lost for good alone. */
static void fail_range(struct tcp_peer *p, struct tei_span span, const struct tcp_fault *f)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&p->held.queue, link, tmp) {
        struct tcp_work *work = tei_tcp_work_of(link);

        if (tei_spans_overlap(span_of(work), span) && (f == &lost || !work->only_waits))
            fail(p, work, f);
    }
}

/* ---------------------------------------------------------------------- who waits and sends nothing */

static void refuse(struct tcp_work *work, int error, const char *why)
{
    work->entry.base.error = error;
    work->entry.base.why = why;
}

/* There is no time to wait: what nobody has asked the target for yet is asked for. */
static void only_ask(struct tcp_peer *p, struct tcp_work *work)
{
    struct tei_span span = span_of(work);
    struct tei_list *waiters;
    const struct tcp_fault *why = obstacle(p, work, &waiters);

    if (why) {
        refuse(work, why->error, why->why);
    } else if (waiters) {
        refuse(work, TE_ERR_TIMEOUT, "the target has not said yet that it is over");
        tei_tcp_frames_ask(p, &span);
    }
}

void tei_tcp_fence_settle(struct tcp_peer *p, struct tcp_work *work)
{
    int64_t now = tei_now_ns();
    struct tei_list done;
    bool held = false;

    tei_list_init(&done);
    tei_list_push_back(&done, &work->entry.base.link);
    work->only_waits = true;
    pthread_mutex_lock(&p->lock);
    work->doubts = p->n_doubts;
    if (atomic_load_explicit(&p->t->closed, memory_order_relaxed))
        refuse(work, TE_ERR_CANCELED, "the transport was closed");
    else if (work->entry.base.deadline_ns <= now)
        only_ask(p, work);
    else
        held = hold(p, work, now);
    if (held) {
        tei_tcp_watch_queue(p);
        tei_tcp_bundle_call(&p->bundles[0]); /* which asks the target, or wakes another that can */
    }
    pthread_mutex_unlock(&p->lock);
    tei_tcp_give_back(p->t, &done);
}

/* -------------------------------------------------------------------------- ranges that are lost */

static void lose(struct tcp_peer *p, struct tei_span span)
{
    size_t before = p->spans.n;

    tei_span_set_add(&p->spans, span);
    tei_tcp_unsettled_add(p, (int)p->spans.n - (int)before);
    fail_range(p, span, &lost);
}

/* ------------------------------------------------------------------------------------- remnants */

/* Closes it. Worker's lock held, the peer's not. */
static void end(struct tcp_remnant *r, bool settled)
{
    struct tcp_peer *p = r->bundle->peer;
    int fd = r->watch.fd;

    tei_watch_del(&r->watch);
    tei_fd_close(fd);
    pthread_mutex_lock(&p->lock);
    tei_list_del(&r->link);
    p->n_remnants--;
    tei_tcp_unsettled_add(p, -1);
    if (!settled)
        lose(p, r->span);
    tei_tcp_fence_release(p, &r->waiters);
    tei_tcp_fence_thin_out(p);
    pthread_mutex_unlock(&p->lock);
    tei_pool_put(&p->t->remnants, r);
}

/* What the target still says is of no interest. */
static void on_remnant(struct tei_watch *watch, uint32_t events)
{
    struct tcp_remnant *r = tei_container_of(watch, struct tcp_remnant, watch);

    (void)events;
    for (int calls = 2 * TCP_CALLS; calls > 0; calls--) {
        ssize_t n = recv(watch->fd, r->bundle->worker->sink, TCP_SINK, MSG_DONTWAIT);

        if (n > 0 || (n < 0 && errno == EINTR))
            continue;
        if (n == 0 || errno != EAGAIN)
            end(r, tei_tcp_is_end(n < 0 ? errno : 0));
        return;
    }
}

/* The lane is left without a socket; false: the kernel does not watch it, and r is of no use. */
static bool take_over(struct tcp_lane *l, struct tei_span span, struct tcp_remnant *r)
{
    struct tcp_bundle *b = l->bundle;
    const struct tcp *t = b->worker->t;
    int fd = l->watch.fd;

    *r = (struct tcp_remnant){.bundle = b,
                              .span = span,
                              .until_ns =
                                  tei_now_ns() + t->conf->tcp_status_timeout_ms * TEI_NS_PER_MS};
    tei_list_init(&r->waiters);
    tei_tcp_lane_let_go(l);
    tei_tcp_nics_close(b->worker, fd);
    if (tei_watch_add(&b->worker->loop, &r->watch, fd, EPOLLIN, on_remnant) < 0) {
        tei_fd_close(fd);
        return false;
    }
    (void)shutdown(fd, SHUT_WR); /* where that fails there is an end to read */
    tei_list_push_back(&b->remnants, &r->link);
    r->doubt = ++b->peer->n_doubts;
    b->peer->n_remnants++;
    tei_tcp_unsettled_add(b->peer, 1);
    tei_tcp_worker_arm(b->worker, r->until_ns);
    return true;
}

bool tei_tcp_fence_cut(struct tcp_lane *l, struct tei_span span, const struct tcp_fault *f,
                       struct tcp_remnant *r)
{
    if (tei_err_is_mild(f->error) || (f->error == TE_ERR_LINK && tei_tcp_is_end(f->sys_errno)))
        return false;
    if (f->error != TE_ERR_LINK && take_over(l, span, r))
        return true;
    lose(l->bundle->peer, span);
    return false;
}

int64_t tei_tcp_fence_tick(struct tcp_bundle *b, int64_t now)
{
    struct tcp_peer *p = b->peer;
    int64_t next = TEI_NEVER;
    struct tei_link *n, *tmp;

    pthread_mutex_lock(&p->lock);
    TEI_LIST_EACH(&b->remnants, n, tmp) {
        struct tcp_remnant *r = remnant_of(n);

        if (r->overdue)
            continue;
        r->overdue = r->until_ns <= now;
        if (r->overdue)
            fail_range(p, p->n_remnants < TCP_REMNANTS_MAX ? r->span : everywhere, &overdue);
        else if (r->until_ns < next)
            next = r->until_ns;
    }
    pthread_mutex_unlock(&p->lock);
    return next;
}

void tei_tcp_fence_stop(struct tcp_bundle *b)
{
    struct tei_link *n;

    while ((n = tei_list_first(&b->remnants)))
        end(remnant_of(n), true);
}
