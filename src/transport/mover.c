/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mover.c - a thread that has devices copy work.
 *
 * There is one lane, with a ledger and a queue of the driver of its own, for each (kind, device,
 * flow), so that both directions of a device and all devices run beside each other; its driver queue
 * is opened when the first move comes and stays. The thread goes round the lanes. Of each it asks the
 * driver which marks are over, and fills up the window: a mark is what is submitted in one call and
 * reported over as one, either a part of a long move or many short moves together. Nobody waits for a
 * single copy. The windows are so small that what is under way between host and device is over in
 * about a millisecond at 25 GB/s: cancel and deadlines take no longer.
 *
 * A part that is with the driver cannot be taken back. A device that stalls keeps what is under way
 * for as long as it likes, past its deadline and past cancel, and the mover logs that; what is in a
 * queue behind it ends in time.
 *
 * When a mark fails, it and all that the lane submitted after it are over, and nobody knows which of
 * its copies is to blame. A mark of one copy fails its move. Else the driver queue is opened again,
 * which a device that has had a fatal error refuses: then everything in the lane fails. If it opens,
 * the parts of the failed marks, which are still in them, are run one at a time (`solo`), and each
 * fails for itself alone. The lanes outlive all this; the next move that is posted tries again.
 *
 * `lock` guards the list of lanes and the ledgers; marks and the driver queues are the thread's own.
 * The driver and ended() are called with the lock released. The thread spins for SPIN_NS after the last
 * event, since waking it takes as long as many a copy; then it naps while something is under way, and
 * sleeps until a post if not.
 */
#include "transport/mover.h"

#include "base/err.h"
#include "base/os.h"

#include <sched.h>
#include <stdlib.h>

#define PART        ((uint64_t)8 << 20) /* bytes of a mark, at least */
#define PART_MAX    ((uint64_t)64 << 20)
#define SHORT_NS    25000 /* a mark that takes less is too small: twice as many bytes next time, */
#define LENGTHY_NS  80000 /* and half as many after one that takes more */
#define PART_MERGE  4     /* a tail up to a fourth of it goes along */
#define COPIES      128   /* of a mark */
#define WINDOW      3     /* marks of a lane between host and device, */
#define WINDOW_MAX  8     /* and within devices, which are faster */
#define SPIN_NS     100000
#define NAP_NS      50000
#define LONG_NS     5000000 /* without an event: the device is busy with something else */
#define LONG_NAP_NS 500000

_Static_assert(WINDOW_MAX <= TEI_GPU_MARKS, "the driver queue has room for all marks");

struct mark {
    uint64_t ticket;
    int error;     /* it could not be submitted */
    int64_t at_ns; /* when it was submitted */
    uint64_t bytes;
    unsigned n;
    struct tei_part parts[COPIES];
};

struct lane {
    struct tei_link link;
    enum tei_mem_kind kind;
    int device;
    enum tei_flow flow;
    struct tei_ledger ledger;
    uint64_t reported;       /* of ledger.n_stalled */
    struct tei_gpu_queue *q; /* NULL: to be opened */
    struct mark marks[WINDOW_MAX];
    unsigned first, n;    /* the marks that are out, in a ring */
    uint64_t part;        /* bytes of a mark */
    int64_t over_ns;      /* when the last one was over */
    bool solo;            /* they have failed, and their parts are run one by one: */
    unsigned solo_at;     /* the one in the first mark that is next, or under way */
    uint64_t solo_ticket; /* 0: not under way */
};

struct tei_mover {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    void (*ended)(void *arg, struct tei_list *moves);
    void *arg;
    int64_t no_progress_ms;
    bool kernels;
    int64_t look_ns;      /* ended() is to be called then */
    int64_t now_ns;       /* when the thread's round has begun; its own */
    struct tei_list over; /* moves that the thread is to give back */
    struct tei_list lanes;
    bool news; /* something was posted or cancelled since the thread has last looked */
    bool closed, quit;
};

static struct lane *lane_of(struct tei_link *link)
{
    return tei_container_of(link, struct lane, link);
}

/* -------------------------------------------------------------------------------------- lanes */

/* The lane of the move; NULL when memory is out. */
static struct lane *find_lane(struct tei_mover *m, const struct tei_move *v)
{
    struct tei_link *link, *tmp;
    struct lane *l;

    TEI_LIST_EACH(&m->lanes, link, tmp) {
        l = lane_of(link);
        if (l->kind == v->kind && l->device == v->device && l->flow == v->flow)
            return l;
    }
    l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    l->kind = v->kind;
    l->device = v->device;
    l->flow = v->flow;
    l->part = PART;
    tei_ledger_init(&l->ledger, m->no_progress_ms);
    tei_list_push_back(&m->lanes, &l->link);
    return l;
}

static void end_part(struct tei_mover *m, struct lane *l, struct tei_part *p, int error)
{
    p->error = error;
    p->why = error ? "a copy by the device failed" : NULL;
    tei_ledger_back(&l->ledger, p, m->now_ns);
}

static struct mark *first_mark(struct lane *l)
{
    return &l->marks[l->first];
}

static void drop_mark(struct lane *l)
{
    l->first = (l->first + 1) % WINDOW_MAX;
    l->n--;
}

/* Everything in the lane fails; nothing of it is under way. */
static void fail_lane(struct tei_mover *m, struct lane *l, int error, const char *why)
{
    for (; l->n; drop_mark(l), l->solo_at = 0)
        for (struct mark *k = first_mark(l); l->solo_at < k->n; l->solo_at++)
            end_part(m, l, &k->parts[l->solo_at], error);
    tei_ledger_fail(&l->ledger, NULL, error, why);
    l->solo = false;
}

/* Opens the lane's driver queue if it is not open; without, the lane is empty. */
static bool open_queue(struct tei_mover *m, struct lane *l)
{
    struct tei_gpu_queue *q;
    int rc;

    if (l->q)
        return true;
    pthread_mutex_unlock(&m->lock);
    rc = tei_gpu_queue_open(l->kind, l->device, &q);
    if (!rc && m->kernels && l->flow == TEI_WITHIN)
        tei_gpu_queue_use_kernels(q); /* the driver may compile: not with the lock held */
    pthread_mutex_lock(&m->lock);
    if (rc) {
        fail_lane(m, l, rc, "the device gave no queue for copies");
        return false;
    }
    l->q = q;
    return true;
}

static void close_queue(struct tei_mover *m, struct lane *l)
{
    struct tei_gpu_queue *q = l->q;

    l->q = NULL;
    pthread_mutex_unlock(&m->lock);
    tei_gpu_queue_close(q);
    pthread_mutex_lock(&m->lock);
}

/* A copy that was refused leaves the driver queue as it was. */
static void drop_broken(struct tei_mover *m, struct lane *l)
{
    if (l->q && tei_gpu_queue_is_broken(l->q))
        close_queue(m, l);
}

/* 0, and the ticket; else the driver's error. */
static int submit(struct tei_mover *m, struct lane *l, const struct tei_part *parts, unsigned n,
                  uint64_t *ticket)
{
    struct tei_copy v[COPIES];
    int rc;

    for (unsigned i = 0; i < n; i++) {
        char *remote = (char *)(uintptr_t)parts[i].remote; /* of this process */
        bool reads = parts[i].entry->base.opcode == TE_READ;

        v[i].to = reads ? parts[i].local : remote;
        v[i].from = reads ? remote : parts[i].local;
        v[i].n = (size_t)parts[i].length;
        v[i].to_device = l->flow != TEI_FROM_DEVICE;
        v[i].from_device = l->flow != TEI_TO_DEVICE;
    }
    pthread_mutex_unlock(&m->lock);
    rc = tei_gpu_queue_copy(l->q, v, n, ticket);
    pthread_mutex_lock(&m->lock);
    return rc;
}

/* TE_ERR_BUSY: not yet over. */
static int poll_ticket(struct tei_mover *m, struct lane *l, uint64_t ticket)
{
    int rc;

    pthread_mutex_unlock(&m->lock);
    rc = tei_gpu_queue_poll(l->q, ticket);
    pthread_mutex_lock(&m->lock);
    return rc;
}

/* -------------------------------------------------------------------------- what has failed */

/* Goes on to the next part, and the next mark after the last one. */
static void advance_solo(struct lane *l)
{
    l->solo_ticket = 0;
    if (++l->solo_at == first_mark(l)->n) {
        l->solo_at = 0;
        drop_mark(l);
    }
}

/* The part that was run alone is over; if the driver queue has broken the next one gets a new one. */
static void end_solo(struct tei_mover *m, struct lane *l, int error)
{
    end_part(m, l, &first_mark(l)->parts[l->solo_at], error);
    advance_solo(l);
    drop_broken(m, l);
}

/* Goes on with the parts of failed marks; whether something happened. */
static bool step_solo(struct tei_mover *m, struct lane *l)
{
    struct tei_part *p = &first_mark(l)->parts[l->solo_at];
    int rc = 0;

    if (l->n == 0) {
        l->solo = false;
    } else if (l->solo_ticket) {
        rc = poll_ticket(m, l, l->solo_ticket);
        if (rc != TE_ERR_BUSY)
            end_solo(m, l, rc);
    } else if (p->entry->base.error) { /* it is over, or as good as that */
        end_part(m, l, p, p->entry->base.error);
        advance_solo(l);
    } else if (open_queue(m, l)) {
        rc = submit(m, l, p, 1, &l->solo_ticket);
        if (rc)
            end_solo(m, l, rc);
    }
    return rc != TE_ERR_BUSY;
}

/* ---------------------------------------------------------------------------- what goes well */

static void end_mark(struct tei_mover *m, struct lane *l, int error)
{
    struct mark *k = first_mark(l);

    for (unsigned i = 0; i < k->n; i++)
        end_part(m, l, &k->parts[i], error);
    drop_mark(l);
}

/*
 * Makes marks as large as what the device copies in some 50 us: so the driver is called seldom, and what
 * is under way is over soon. `bytes` were copied since `since`; short marks say nothing.
 */
static void learn(const struct tei_mover *m, struct lane *l, uint64_t bytes, int64_t since)
{
    int64_t took = m->now_ns - since; /* by a mark */

    if (bytes == 0 || (bytes < l->part && took <= LENGTHY_NS))
        return;
    if (bytes >= l->part)
        took /= (int64_t)(bytes / l->part);
    if (took < SHORT_NS)
        l->part = tei_min(2 * l->part, PART_MAX);
    else if (took > LENGTHY_NS && l->part > PART)
        l->part /= 2;
}

/* Ends the marks that are over; whether there were any. */
static bool reap(struct tei_mover *m, struct lane *l)
{
    int64_t since = l->n && first_mark(l)->at_ns > l->over_ns ? first_mark(l)->at_ns : l->over_ns;
    uint64_t bytes = 0;
    bool any = false;

    while (l->n && !l->solo) {
        struct mark *k = first_mark(l);
        int rc = k->error ? k->error : poll_ticket(m, l, k->ticket);

        if (rc == TE_ERR_BUSY)
            break;
        any = true;
        l->over_ns = m->now_ns;
        bytes += rc ? 0 : k->bytes;
        if (rc) {
            l->solo = true;
            drop_broken(m, l);
        }
        if (!rc || k->n == 1)
            end_mark(m, l, rc);
    }
    learn(m, l, bytes, since);
    return any;
}

static uint64_t left_of(const struct tei_entry *e)
{
    return e->base.length - e->next;
}

/* A part of the first move, and those behind it that fit in whole. */
static void gather(struct tei_mover *m, struct lane *l, struct mark *k)
{
    const struct tei_entry *e = tei_ledger_first(&l->ledger);
    uint64_t n = tei_slice_len(left_of(e), l->part, PART_MERGE), room = l->part;

    k->n = 0;
    k->bytes = 0;
    k->at_ns = m->now_ns;
    do {
        struct tei_part *p = &k->parts[k->n++];

        tei_ledger_take(&l->ledger, n, m->now_ns, p);
        k->bytes += p->length;
        room -= tei_min(room, p->length);
        n = room;
        e = tei_ledger_first(&l->ledger);
    } while (e && k->n < COPIES && left_of(e) <= room);
}

/* The last mark could not be submitted: that is seen to before anything follows it. */
static bool last_failed(const struct lane *l)
{
    return l->n && l->marks[(l->first + l->n - 1) % WINDOW_MAX].error;
}

/* Fills up the window; whether anything was submitted. */
static bool fill(struct tei_mover *m, struct lane *l)
{
    unsigned window = l->flow == TEI_WITHIN ? WINDOW_MAX : WINDOW;
    bool any = false;

    if (tei_ledger_first(&l->ledger) && !open_queue(m, l))
        return true;
    while (l->n < window && !last_failed(l) && tei_ledger_first(&l->ledger)) {
        struct mark *k = &l->marks[(l->first + l->n) % WINDOW_MAX];

        gather(m, l, k);
        l->n++;
        any = true;
        k->error = submit(m, l, k->parts, k->n, &k->ticket);
    }
    return any;
}

static void report(struct tei_mover *m, struct lane *l)
{
    if (l->reported == l->ledger.n_stalled)
        return;
    l->reported = l->ledger.n_stalled;
    pthread_mutex_unlock(&m->lock);
    TEI_WARN("device %d has stalled; its work ends when the device has ended its copies",
             l->device);
    pthread_mutex_lock(&m->lock);
}

static bool step(struct tei_mover *m, struct lane *l)
{
    bool any;

    tei_ledger_tick(&l->ledger, m->now_ns);
    report(m, l);
    any = reap(m, l);
    if (l->solo)
        return step_solo(m, l) || any;
    return fill(m, l) || any;
}

/* ----------------------------------------------------------------------------------- the thread */

/* Something is with the driver. */
static bool is_busy(const struct tei_mover *m)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&m->lanes, link, tmp) {
        if (lane_of(link)->n)
            return true;
    }
    return false;
}

static bool tell(struct tei_mover *m)
{
    struct tei_list over;

    if (tei_list_empty(&m->over))
        return false;
    tei_list_init(&over);
    tei_list_splice(&over, &m->over);
    pthread_mutex_unlock(&m->lock);
    m->ended(m->arg, &over);
    pthread_mutex_lock(&m->lock);
    return true;
}

/* One round over everything; whether something happened. */
static bool go_round(struct tei_mover *m)
{
    struct tei_link *link, *tmp;
    bool any = tell(m);

    TEI_LIST_EACH(&m->lanes, link, tmp) {
        any |= step(m, lane_of(link));
        tei_ledger_reap(&lane_of(link)->ledger, &m->over);
        any |= tell(m);
    }
    return any || m->news;
}

/* Has the owner look what is late. */
static void ask(struct tei_mover *m)
{
    struct tei_list none;

    tei_list_init(&none);
    m->look_ns = TEI_NEVER;
    pthread_mutex_unlock(&m->lock);
    m->ended(m->arg, &none);
    pthread_mutex_lock(&m->lock);
}

static void yield(struct tei_mover *m)
{
    pthread_mutex_unlock(&m->lock);
    sched_yield();
    pthread_mutex_lock(&m->lock);
}

/* Nothing has happened since `event`, though something is under way. */
static void rest(struct tei_mover *m, int64_t event)
{
    int64_t idle = m->now_ns - event;

    if (idle >= LONG_NS) {
        ask(m);
        if (m->news)
            return;
    }
    if (idle >= SPIN_NS)
        tei_cond_wait_until(&m->wake, &m->lock,
                            m->now_ns + (idle < LONG_NS ? NAP_NS : LONG_NAP_NS));
    else
        yield(m);
}

static void *run(void *arg)
{
    struct tei_mover *m = arg;
    int64_t event = 0;

    pthread_mutex_lock(&m->lock);
    for (;;) {
        m->now_ns = tei_now_ns();
        m->news = false;
        if (m->now_ns >= m->look_ns)
            ask(m);
        if (go_round(m))
            event = tei_now_ns();
        else if (is_busy(m))
            rest(m, event);
        else if (m->quit)
            break;
        else if (m->now_ns - event < SPIN_NS)
            yield(m);
        else
            tei_cond_wait_until(&m->wake, &m->lock, m->look_ns);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* ----------------------------------------------------------------------------------- from outside */

int tei_mover_start(const char *thread, const struct tei_conf *conf,
                    void (*ended)(void *arg, struct tei_list *moves), void *arg,
                    struct tei_mover **out)
{
    struct tei_mover *m = calloc(1, sizeof(*m));
    int rc;

    if (!m)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a thread that copies");
    pthread_mutex_init(&m->lock, NULL);
    tei_cond_init(&m->wake);
    tei_list_init(&m->over);
    tei_list_init(&m->lanes);
    m->ended = ended;
    m->arg = arg;
    m->no_progress_ms = conf->transfer_timeout_ms;
    m->kernels = conf->gpu_kernel;
    m->look_ns = TEI_NEVER;
    rc = tei_thread_start(&m->thread, thread, run, m);
    if (rc) {
        pthread_cond_destroy(&m->wake);
        pthread_mutex_destroy(&m->lock);
        free(m);
        return rc;
    }
    *out = m;
    return 0;
}

/* Fails the moves of an owner, NULL: all. Lock held, as for notify(). */
static void fail(struct tei_mover *m, const void *owner)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&m->lanes, link, tmp) {
        tei_ledger_fail(&lane_of(link)->ledger, owner, TE_ERR_CANCELED, NULL);
    }
}

static void notify(struct tei_mover *m)
{
    m->news = true;
    pthread_cond_signal(&m->wake);
}

static void take(struct tei_mover *m, struct tei_move *v, int64_t now)
{
    struct lane *l = find_lane(m, v);

    if (l) {
        tei_ledger_post(&l->ledger, &v->entry, now);
        return;
    }
    v->entry.base.error = TE_ERR_MEMORY;
    v->entry.base.why = "no memory for a queue of a device";
    tei_list_push_back(&m->over, &v->entry.base.link);
}

void tei_mover_post(struct tei_mover *m, struct tei_list *moves)
{
    int64_t now = tei_now_ns();
    struct tei_link *link;

    pthread_mutex_lock(&m->lock);
    while ((link = tei_list_pop(moves)))
        take(m, tei_move_of(link), now);
    if (m->closed)
        fail(m, NULL);
    notify(m);
    pthread_mutex_unlock(&m->lock);
}

void tei_mover_cancel(struct tei_mover *m, const void *owner)
{
    pthread_mutex_lock(&m->lock);
    fail(m, owner);
    notify(m);
    pthread_mutex_unlock(&m->lock);
}

void tei_mover_look(struct tei_mover *m, int64_t when_ns)
{
    pthread_mutex_lock(&m->lock);
    if (when_ns < m->look_ns) {
        m->look_ns = when_ns;
        notify(m);
    }
    pthread_mutex_unlock(&m->lock);
}

void tei_mover_close(struct tei_mover *m)
{
    pthread_mutex_lock(&m->lock);
    m->closed = true;
    fail(m, NULL);
    notify(m);
    pthread_mutex_unlock(&m->lock);
}

void tei_mover_destroy(struct tei_mover *m)
{
    struct tei_link *link;

    if (!m)
        return;
    tei_mover_close(m);
    pthread_mutex_lock(&m->lock);
    m->quit = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    while ((link = tei_list_pop(&m->lanes))) {
        tei_gpu_queue_close(lane_of(link)->q);
        free(lane_of(link));
    }
    pthread_cond_destroy(&m->wake);
    pthread_mutex_destroy(&m->lock);
    free(m);
}
