/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mover.c - a thread that runs copies to, from and within devices.
 *
 * A move goes: post() -> `inbox` -> the queue of its lane -> parts under way -> ended(). There is one
 * lane, with its own queue of the driver, for each (kind, device, flow), so that both directions of a
 * device and all devices run beside each other; its driver queue is opened when the first move comes
 * and stays. The thread goes round the lanes. Of each it asks the driver which marks are over, and
 * fills up the window: a mark is what is submitted in one call and told over as one, either a part
 * of a long move, which then goes to the end of the lane's queue, or many short moves together.
 * Nobody waits for a single copy. The windows are so small that what is under way between host and
 * device is over in about a millisecond at 25 GB/s: cancel and deadlines take no longer.
 *
 * A move is in exactly one list as long as it is the mover's:
 *   inbox       nobody has looked at it;
 *   queue       of its lane: some of its bytes were not given to a part; `next` is that cursor;
 *   flying      of its lane: no more parts of it begin, `out` of them are under way;
 *   ended       it is over, and waits for the thread to say so.
 * It is over when `out` is 0 and either `error` is set or `next` has reached the end. Setting the
 * error takes it from `queue` to `flying` or `ended`; whoever sets it first decides. So it ends
 * exactly once, and never while the device may still touch its memory: a part that is with the
 * driver cannot be taken back. A device that stalls keeps what is under way for as long as it
 * likes, past its deadline and past cancel; what is in a queue behind that ends in time.
 *
 * When a mark fails, it and all that the lane submitted after it are over, and nobody knows which of
 * its copies is to blame. A mark of one copy fails its move. Else the driver queue is opened anew,
 * which a device that has had a fatal error refuses: then everything in the lane fails. If it opens,
 * the parts of the failed marks, which are still in them, are run one at a time (`solo`), and each
 * fails for itself alone. The lanes outlive all this; the next move that is posted tries again.
 *
 * `lock` guards all lists and the fields of moves; marks and the driver queues are the thread's own.
 * The driver and ended() are called with the lock released. While something is under way the thread
 * spins for SPIN_NS after the last event, then naps; without, it sleeps until a post.
 */
#include "base/err.h"
#include "base/os.h"
#include "plat/plat.h"

#include <sched.h>
#include <stdlib.h>

#define PART        ((uint64_t)8 << 20) /* bytes of a mark */
#define PART_MERGE  4                   /* a tail up to a fourth of it goes along */
#define COPIES      128                 /* of a mark */
#define WINDOW      3                   /* marks of a lane between host and device, */
#define WINDOW_MAX  8                   /* and within devices, which are faster */
#define SPIN_NS     50000
#define NAP_NS      50000
#define LONG_NS     5000000 /* without an event: the device is busy with something else */
#define LONG_NAP_NS 500000

_Static_assert(WINDOW_MAX <= TEI_GPU_MARKS, "the driver queue has room for all marks");

struct part {
    struct tei_move *move;
    uint64_t at, n;
};

struct mark {
    uint64_t ticket;
    int error; /* it could not be submitted */
    unsigned n;
    struct part parts[COPIES];
};

struct lane {
    struct tei_link link;
    enum tei_mem_kind kind;
    int device;
    enum tei_flow flow;
    struct tei_list queue, flying;
    struct tei_gpu_queue *q; /* NULL: to be opened */
    struct mark marks[WINDOW_MAX];
    unsigned first, n;    /* the marks that are out, in a ring */
    bool solo;            /* they have failed, and their parts are run one by one: */
    unsigned solo_at;     /* the one in the first mark that is next, or under way */
    uint64_t solo_ticket; /* 0: not under way */
};

struct tei_mover {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    void (*tell)(void *arg, struct tei_list *moves);
    void *arg;
    struct tei_list inbox, ended, lanes;
    bool closed, quit;
    int64_t first_late_ns; /* the earliest deadline, or earlier */
};

static struct tei_move *move_of(struct tei_link *link)
{
    return tei_container_of(link, struct tei_move, link);
}

static struct lane *lane_of(struct tei_link *link)
{
    return tei_container_of(link, struct lane, link);
}

/* ----------------------------------------------------------------------------------- one move */

/* The first error of a move that is in a list; `flying` is its lane's, NULL if it has none yet. */
static void fail_move(struct tei_mover *m, struct tei_list *flying, struct tei_move *v, int error,
                      const char *why)
{
    if (v->error)
        return;
    v->error = error;
    v->why = why;
    tei_list_del(&v->link);
    tei_list_push_back(v->out ? flying : &m->ended, &v->link);
}

static void end_part(struct tei_mover *m, struct lane *l, const struct part *p, int error)
{
    struct tei_move *v = p->move;

    if (error)
        fail_move(m, &l->flying, v, error, "a copy by the device failed");
    else
        v->moved += p->n;
    if (--v->out || (!v->error && v->next < v->n))
        return;
    tei_list_del(&v->link);
    tei_list_push_back(&m->ended, &v->link);
}

/* Whom a sweep fails, and how. */
struct sweep {
    int error;
    int64_t now_ns;    /* TE_ERR_TIMEOUT: those whose deadline has come; else */
    const void *owner; /* his, */
    bool all;          /* or all */
};

static bool is_meant(const struct sweep *s, const struct tei_move *v)
{
    if (s->error == TE_ERR_TIMEOUT)
        return v->deadline_ns <= s->now_ns;
    return s->all || v->owner == s->owner;
}

static void sweep_list(struct tei_mover *m, struct tei_list *list, struct tei_list *flying,
                       const struct sweep *s)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(list, link, tmp) {
        struct tei_move *v = move_of(link);

        if (is_meant(s, v))
            fail_move(m, flying, v, s->error, NULL);
        else if (v->deadline_ns < m->first_late_ns)
            m->first_late_ns = v->deadline_ns;
    }
}

static void sweep(struct tei_mover *m, const struct sweep *s)
{
    struct tei_link *link, *tmp;

    sweep_list(m, &m->inbox, NULL, s);
    TEI_LIST_EACH(&m->lanes, link, tmp) {
        struct lane *l = lane_of(link);

        sweep_list(m, &l->queue, &l->flying, s);
        sweep_list(m, &l->flying, &l->flying, s);
    }
}

static void end_late(struct tei_mover *m, int64_t now)
{
    if (now < m->first_late_ns)
        return;
    m->first_late_ns = TEI_NEVER;
    sweep(m, &(struct sweep){.error = TE_ERR_TIMEOUT, .now_ns = now});
}

/* -------------------------------------------------------------------------------------- lanes */

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
    tei_list_init(&l->queue);
    tei_list_init(&l->flying);
    tei_list_push_back(&m->lanes, &l->link);
    return l;
}

static void sort_inbox(struct tei_mover *m)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&m->inbox, link, tmp) {
        struct lane *l = find_lane(m, move_of(link));

        if (!l) {
            fail_move(m, NULL, move_of(link), TE_ERR_MEMORY, "no memory for a queue of a device");
            continue;
        }
        tei_list_del(link);
        tei_list_push_back(&l->queue, link);
    }
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
    struct tei_link *link, *tmp;

    for (; l->n; drop_mark(l), l->solo_at = 0)
        for (struct mark *k = first_mark(l); l->solo_at < k->n; l->solo_at++)
            end_part(m, l, &k->parts[l->solo_at], error);
    TEI_LIST_EACH(&l->queue, link, tmp) {
        fail_move(m, &l->flying, move_of(link), error, why);
    }
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

/* 0, and the ticket; else the driver's error. */
static int submit(struct tei_mover *m, struct lane *l, const struct part *parts, unsigned n,
                  uint64_t *ticket)
{
    struct tei_copy v[COPIES];
    int rc;

    for (unsigned i = 0; i < n; i++) {
        const struct tei_move *mv = parts[i].move;

        v[i] = (struct tei_copy){mv->to + parts[i].at, mv->from + parts[i].at, (size_t)parts[i].n};
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

/* The part that was run alone is over; after an error the next one gets a new driver queue. */
static void end_solo(struct tei_mover *m, struct lane *l, int error)
{
    end_part(m, l, &first_mark(l)->parts[l->solo_at], error);
    advance_solo(l);
    if (error)
        close_queue(m, l);
}

/* Goes on with the parts of failed marks; whether something happened. */
static bool step_solo(struct tei_mover *m, struct lane *l)
{
    const struct part *p = &first_mark(l)->parts[l->solo_at];
    int rc = 0;

    if (l->n == 0) {
        l->solo = false;
    } else if (l->solo_ticket) {
        rc = poll_ticket(m, l, l->solo_ticket);
        if (rc != TE_ERR_BUSY)
            end_solo(m, l, rc);
    } else if (p->move->error) { /* it is over, or as good as that */
        end_part(m, l, p, p->move->error);
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

/* Ends the marks that are over; whether there were any. */
static bool reap(struct tei_mover *m, struct lane *l)
{
    bool any = false;

    while (l->n && !l->solo) {
        struct mark *k = first_mark(l);
        int rc = k->error ? k->error : poll_ticket(m, l, k->ticket);

        if (rc == TE_ERR_BUSY)
            break;
        any = true;
        if (rc) {
            l->solo = true;
            close_queue(m, l);
        }
        if (!rc || k->n == 1)
            end_mark(m, l, rc);
    }
    return any;
}

static void add_part(struct lane *l, struct mark *k, struct tei_move *v, uint64_t n)
{
    k->parts[k->n++] = (struct part){.move = v, .at = v->next, .n = n};
    v->next += n;
    v->out++;
    tei_list_del(&v->link);
    tei_list_push_back(v->next < v->n ? &l->queue : &l->flying, &v->link);
}

/* A part of the first move, and those behind it that fit in whole. The queue is not empty. */
static void gather(struct lane *l, struct mark *k)
{
    struct tei_move *v = move_of(tei_list_first(&l->queue));
    uint64_t n = tei_slice_len(v->n - v->next, PART, PART_MERGE), room = PART;

    k->n = 0;
    for (;;) {
        add_part(l, k, v, n);
        room -= tei_min(room, n);
        if (k->n == COPIES || tei_list_empty(&l->queue))
            return;
        v = move_of(tei_list_first(&l->queue));
        n = v->n - v->next;
        if (n > room)
            return;
    }
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

    if (!tei_list_empty(&l->queue) && !open_queue(m, l))
        return true;
    while (l->n < window && !last_failed(l) && !tei_list_empty(&l->queue)) {
        struct mark *k = &l->marks[(l->first + l->n) % WINDOW_MAX];

        gather(l, k);
        l->n++;
        any = true;
        k->error = submit(m, l, k->parts, k->n, &k->ticket);
    }
    return any;
}

static bool step(struct tei_mover *m, struct lane *l)
{
    bool any = reap(m, l);

    if (l->solo)
        return step_solo(m, l) || any;
    return fill(m, l) || any;
}

/* ----------------------------------------------------------------------------------- the thread */

static bool is_busy(const struct tei_mover *m)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&m->lanes, link, tmp) {
        if (lane_of(link)->n || !tei_list_empty(&lane_of(link)->queue))
            return true;
    }
    return false;
}

static bool tell(struct tei_mover *m)
{
    struct tei_list over;

    if (tei_list_empty(&m->ended))
        return false;
    tei_list_init(&over);
    tei_list_splice(&over, &m->ended);
    pthread_mutex_unlock(&m->lock);
    m->tell(m->arg, &over);
    pthread_mutex_lock(&m->lock);
    return true;
}

/* One round over everything; whether something happened. */
static bool go_round(struct tei_mover *m, int64_t now)
{
    struct tei_link *link, *tmp;
    bool any = !tei_list_empty(&m->inbox);

    sort_inbox(m);
    end_late(m, now);
    TEI_LIST_EACH(&m->lanes, link, tmp) {
        any |= step(m, lane_of(link));
        any |= tell(m);
    }
    return tell(m) || any;
}

/* Nothing has happened since `event`, though something is under way. */
static void rest(struct tei_mover *m, int64_t now, int64_t event)
{
    if (now - event >= SPIN_NS) {
        tei_cond_wait_until(&m->wake, &m->lock,
                            now + (now - event < LONG_NS ? NAP_NS : LONG_NAP_NS));
        return;
    }
    pthread_mutex_unlock(&m->lock);
    sched_yield();
    pthread_mutex_lock(&m->lock);
}

static void *run(void *arg)
{
    struct tei_mover *m = arg;
    int64_t event = 0;

    pthread_mutex_lock(&m->lock);
    for (;;) {
        int64_t now = tei_now_ns();

        if (go_round(m, now))
            event = tei_now_ns();
        else if (is_busy(m))
            rest(m, now, event);
        else if (!tei_list_empty(&m->inbox) || !tei_list_empty(&m->ended))
            continue; /* come while the lock was released */
        else if (m->quit)
            break;
        else
            pthread_cond_wait(&m->wake, &m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* ----------------------------------------------------------------------------------- from outside */

int tei_mover_start(const char *thread, void (*ended)(void *arg, struct tei_list *moves), void *arg,
                    struct tei_mover **out)
{
    struct tei_mover *m = calloc(1, sizeof(*m));
    int rc;

    if (!m)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a thread that copies");
    pthread_mutex_init(&m->lock, NULL);
    tei_cond_init(&m->wake);
    tei_list_init(&m->inbox);
    tei_list_init(&m->ended);
    tei_list_init(&m->lanes);
    m->tell = ended;
    m->arg = arg;
    m->first_late_ns = TEI_NEVER;
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

void tei_mover_post(struct tei_mover *m, struct tei_list *moves)
{
    struct tei_link *link, *tmp;
    int64_t late = TEI_NEVER;

    TEI_LIST_EACH(moves, link, tmp) {
        struct tei_move *v = move_of(link);

        v->error = 0;
        v->why = NULL;
        v->moved = v->next = 0;
        v->out = 0;
        late = v->deadline_ns < late ? v->deadline_ns : late;
    }
    pthread_mutex_lock(&m->lock);
    tei_list_splice(&m->inbox, moves);
    if (late < m->first_late_ns)
        m->first_late_ns = late;
    if (m->closed)
        sweep_list(m, &m->inbox, NULL, &(struct sweep){.error = TE_ERR_CANCELED, .all = true});
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

void tei_mover_cancel(struct tei_mover *m, const void *owner)
{
    pthread_mutex_lock(&m->lock);
    sweep(m, &(struct sweep){.error = TE_ERR_CANCELED, .owner = owner});
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

void tei_mover_close(struct tei_mover *m)
{
    pthread_mutex_lock(&m->lock);
    m->closed = true;
    sweep(m, &(struct sweep){.error = TE_ERR_CANCELED, .all = true});
    pthread_cond_signal(&m->wake);
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
