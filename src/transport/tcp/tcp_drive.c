/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_drive.c - a thread that waits for its work drives the lane that carries it.
 *
 * The reply to a short request would wake the lane's worker, which would receive it and wake the
 * thread that waits: one switch of threads too many. So that thread borrows the lane's watch
 * (base/loop.h): it sleeps on the socket by itself, or spins, and runs the lane's callback under
 * the worker's lock, exactly as the worker would. The worker's loop meanwhile does not look for
 * data there. Everything else is as ever: the watchdog looks at the lane, cancel and close call
 * the bundle, which closes the lane, and closing removes the watch, which wakes the driver.
 *
 * A driver that leaves with something in flight has the loop look for it again. With nothing in
 * flight the watch stays hushed, and the next piece on the lane asks the loop to heed it, for who
 * posts may never wait. That is two system calls a request, and worse: on one CPU the peer answers
 * inside the send, and the loop, asked late, would still wake the worker. So when one thread has
 * driven the lane several times in a row, alone, the next piece that it posts there is left to it
 * without asking the loop. If it does not come, a timer has the loop heed the lane after 1.5 HUSH_NS,
 * or HUSH_LONG_NS, at most; and if a reply lay there by then, it takes twice as long a streak for the
 * lane to be left to a driver again, until it has been driven for long enough. The timer runs only as
 * long as lanes are driven at that pace, so idle engines sleep; and drivers put it off as long as
 * nobody stays away, so that it does not wake the worker then. That is a system call, and in a virtual machine an
 * expensive one, so a driver that has come back hundreds of times is given HUSH_LONG_NS: it puts the
 * timer off every four milliseconds or so.
 *
 * What either brings is in docs/performance.md, "Who is woken".
 *
 * Which lane it is stands in a small table of the worker, noted when a lane takes a piece. It is a
 * hint: an entry counts at most the pieces that are really in flight, so an entry that is not 0
 * names a lane that lives and carries work of that owner; a piece that finds its place taken is not
 * noted, and cannot be driven. Nor is work that is spread over several lanes: driving one of them
 * would only get into the way of the worker.
 */
#include "transport/tcp/tcp_lane.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

#define HUSH_NS       (2 * TEI_NS_PER_MS)
#define HUSH_LONG_NS  (8 * TEI_NS_PER_MS) /* after STREAK_MAX */
#define STREAK        4
#define STREAK_MAX    256
#define FORGIVEN      16 /* streaks of the length needed: also a busy CPU keeps a driver away */
#define LOOK_EVERY    16 /* pieces, while replies were not prompt */
#define SPINS_IN_VAIN 4
#define SPIN_EVERY    64 /* waits, while spinning was in vain */

_Static_assert(POLLIN == EPOLLIN && POLLOUT == EPOLLOUT && POLLERR == EPOLLERR &&
                   POLLHUP == EPOLLHUP,
               "poll() and epoll name events alike");

static size_t place_of(const void *owner)
{
    uint64_t h = (uint64_t)(uintptr_t)owner * 0x9e3779b97f4a7c15u;

    return (size_t)(h >> 32) % TCP_HINTS;
}

unsigned tei_tcp_drive_took(struct tcp_lane *l, const void *owner, unsigned n)
{
    struct tcp_worker *w = l->bundle->worker;
    size_t at = place_of(owner);
    struct tcp_hint *h = &w->hints[at];

    if (h->n == 0)
        *h = (struct tcp_hint){.owner = owner, .lane = l};
    if (h->owner != owner || h->lane != l)
        return 0;
    h->n += n;
    /* Relaxed: says where to look; what is there is read under that worker's lock. */
    atomic_store_explicit(&w->t->leads[at], (unsigned char)w->index, memory_order_relaxed);
    return n;
}

void tei_tcp_drive_ended(struct tcp_lane *l, const void *owner, unsigned n)
{
    struct tcp_hint *h = &l->bundle->worker->hints[place_of(owner)];

    if (n && h->n >= n && h->owner == owner && h->lane == l)
        h->n -= n;
}

/* The lane that carries `n` pieces of this owner or more, NULL if none is known to. */
static struct tcp_lane *carrier(const struct tcp_worker *w, const void *owner, size_t n)
{
    const struct tcp_hint *h = &w->hints[place_of(owner)];

    return h->n >= n && h->owner == owner ? h->lane : NULL;
}

/* -------------------------------------------------------------------------- what is left to whom */

static void on_hush_timer(struct tei_timer *t);

/* How long the driver of this lane may stay away. */
static int64_t patience(const struct tcp_driven *d)
{
    return d->streak >= STREAK_MAX ? HUSH_LONG_NS : HUSH_NS;
}

/* The piece that was left to a driver has found it, or need not. */
static void not_alone(struct tcp_lane *l)
{
    l->bundle->worker->n_alone -= l->driven.alone;
    l->driven.alone = false;
}

static void arm(struct tcp_worker *w, int64_t when_ns)
{
    tei_timer_set(&w->loop, &w->hush_timer, when_ns, on_hush_timer);
}

/* The lane was driven just now: the timer may wait, unless a driver is being waited for. */
static void put_off(struct tcp_lane *l, int64_t now)
{
    struct tcp_worker *w = l->bundle->worker;
    int64_t time = patience(&l->driven);

    if (!w->hush_timer.slot || w->n_alone || w->hush_timer.when_ns - now > time / 2)
        return;
    arm(w, now + time);
    tei_loop_put_off(&w->loop);
}

static void heed(struct tcp_lane *l)
{
    tei_watch_heed(&l->watch);
    tei_tcp_drive_forget(l);
}

static bool has_data(const struct tcp_lane *l)
{
    struct pollfd p = {.fd = l->watch.fd, .events = POLLIN};

    return poll(&p, 1, 0) > 0;
}

/* A piece was left alone for too long. That is the driver's fault only if the reply is there. */
static void take_back(struct tcp_lane *l)
{
    struct tcp_driven *d = &l->driven;

    heed(l);
    if (!has_data(l))
        return;
    d->streak = 0;
    d->need = d->need < STREAK_MAX ? d->need * 2 : d->need;
}

/*
 * Whether the lane is, or was of late, used by its driver. If it has left a piece alone for too
 * long the loop heeds the lane.
 */
static bool is_driven(struct tcp_lane *l, int64_t now)
{
    struct tcp_driven *d = &l->driven;

    if (!l->watch.hushed) {
        tei_tcp_drive_forget(l);
        return false;
    }
    if (l->watch.loan)
        return true;
    if (l->state != LANE_BUSY)
        return d->ended_ns > now - patience(d);
    if (d->begun_ns > now - patience(d) / 2)
        return true;
    take_back(l);
    return false;
}

static void on_hush_timer(struct tei_timer *t)
{
    struct tcp_worker *w = tei_container_of(t, struct tcp_worker, hush_timer);
    int64_t now = tei_now_ns();
    struct tei_link *n, *tmp;
    bool again = false;

    TEI_LIST_EACH(&w->hushed, n, tmp)
        again = is_driven(tei_container_of(n, struct tcp_lane, driven.link), now) || again;
    if (again)
        arm(w, now + HUSH_NS);
}

/* The calling thread has driven the lane, which has nothing left to do. */
static void hush(struct tcp_lane *l)
{
    struct tcp_worker *w = l->bundle->worker;
    struct tcp_driven *d = &l->driven;
    int64_t now = tei_now_ns();

    if (d->streak && !pthread_equal(d->thread, pthread_self()))
        d->streak = 0;
    d->thread = pthread_self();
    d->streak++;
    d->need = d->need ? d->need : STREAK;
    if (d->need > STREAK && d->streak >= FORGIVEN * d->need) {
        d->need /= 2;
        d->streak = d->need;
    }
    d->ended_ns = now;
    if (!tei_link_is_in(&d->link))
        tei_list_push_back(&w->hushed, &d->link);
    if (d->streak >= d->need && !w->hush_timer.slot)
        arm(w, now + HUSH_NS);
    put_off(l, now);
}

void tei_tcp_drive_expect(struct tcp_lane *l, const void *owner, uint64_t length)
{
    struct tcp_worker *w = l->bundle->worker;
    struct tcp_driven *d = &l->driven;

    d->expected = l->watch.hushed && w->hush_timer.slot && d->streak >= d->need &&
                  pthread_equal(d->thread, pthread_self()) && length <= TCP_INLINE_MAX &&
                  carrier(w, owner, 1) == l;
}

/* Another lane may have put the timer off for longer than this one's driver may stay away. */
static void leave_alone(struct tcp_lane *l, int64_t now)
{
    struct tcp_worker *w = l->bundle->worker;
    int64_t until = now + patience(&l->driven);

    w->n_alone++;
    if (!w->hush_timer.slot || w->hush_timer.when_ns > until)
        arm(w, until);
}

void tei_tcp_drive_begin(struct tcp_lane *l, int64_t now)
{
    struct tcp_driven *d = &l->driven;
    bool expected = d->expected, since_before = d->alone;

    d->expected = false;
    if (!l->watch.hushed || l->watch.loan)
        return;
    not_alone(l);
    if (expected)
        leave_alone(l, now);
    else
        heed(l);
    d->alone = expected;
    d->begun_ns = expected && since_before ? d->begun_ns : now;
}

void tei_tcp_drive_look(struct tcp_lane *l)
{
    struct tcp_driven *d = &l->driven;

    if (l->state != LANE_BUSY || !l->watch.hushed || l->watch.loan ||
        (d->posted++ % LOOK_EVERY && !d->prompt))
        return;
    l->watch.fn(&l->watch, EPOLLIN);
    d->prompt = l->state != LANE_BUSY;
    if (!d->prompt)
        return;
    not_alone(l);
    d->streak++;
    d->ended_ns = d->begun_ns;
    put_off(l, d->ended_ns);
}

void tei_tcp_drive_forget(struct tcp_lane *l)
{
    not_alone(l);
    if (tei_link_is_in(&l->driven.link))
        tei_list_del(&l->driven.link);
}

/* ------------------------------------------------------------------------------------ sleeping */

static struct timespec time_left(int64_t until_ns, int64_t now)
{
    int64_t left = until_ns > now ? until_ns - now : 0;

    return (struct timespec){.tv_sec = left / TEI_NS_PER_S, .tv_nsec = left % TEI_NS_PER_S};
}

/*
 * Waits for *events on the lane's socket, or the waker; then they are those that happened on the socket.
 * *spin_ns is 0 afterwards if it has looked for so long in vain. False: the kernel did not look.
 */
static bool wait_for(int fd, uint32_t *events, const struct tei_drive *d, int64_t *spin_ns)
{
    struct pollfd p[2] = {{.fd = fd, .events = (short)*events},
                          {.fd = d->waker->fd, .events = POLLIN}};
    int64_t now = *spin_ns || d->until_ns != TEI_NEVER ? tei_now_ns() : 0, end = now + *spin_ns;
    struct timespec ts;
    int n = 0;

    end = end < d->until_ns ? end : d->until_ns;
    for (; n == 0 && now < end; now = tei_now_ns())
        n = poll(p, 2, 0);
    if (n == 0) {
        *spin_ns = 0;
        ts = time_left(d->until_ns, now);
        n = ppoll(p, 2, d->until_ns == TEI_NEVER ? NULL : &ts, NULL);
    }
    if (n > 0 && p[1].revents)
        tei_waker_drain(d->waker);
    *events = n > 0 ? (uint32_t)p[0].revents : 0;
    return n >= 0 || errno == EINTR;
}

/*
 * How long to look for the next event before sleeping. Where that has been in vain, since the peer
 * takes longer or has no CPU but this one to run on, it is tried only now and then.
 */
static int64_t time_to_spin(struct tcp_driven *d, int64_t spin_ns)
{
    if (d->in_vain < SPINS_IN_VAIN)
        return spin_ns;
    if (d->in_vain++ < SPINS_IN_VAIN + SPIN_EVERY)
        return 0;
    d->in_vain = SPINS_IN_VAIN - 1;
    return spin_ns;
}

static bool in_time(const struct tei_drive *d)
{
    return d->until_ns == TEI_NEVER || tei_now_ns() < d->until_ns;
}

/*
 * Moves the lane until the owner has nothing on it any more. Worker's lock held but for sleeping. False: the worker's thread
 * has to do it.
 */
static bool ride(struct tcp_lane *l, const struct tei_drive *d)
{
    struct tcp_worker *w = l->bundle->worker;
    struct tei_loan loan;
    bool waited;

    not_alone(l);
    tei_watch_lend(&l->watch, &loan, d->waker);
    do {
        int64_t wanted = time_to_spin(&l->driven, d->spin_ns), spin_ns = wanted;
        int fd = l->watch.fd;
        uint32_t events = l->watch.events;

        tei_tcp_worker_leave(w);
        waited = wait_for(fd, &events, d, &spin_ns);
        tei_tcp_worker_enter(w);
        if (loan.watch && wanted)
            l->driven.in_vain = spin_ns ? 0 : l->driven.in_vain + 1;
        if (events)
            tei_loan_run(&loan, events);
    } while (waited && loan.watch && carrier(w, d->owner, 1) == l && atomic_load(d->left) &&
             in_time(d));
    tei_loan_end(&loan);
    if (loan.watch && l->state == LANE_BUSY)
        heed(l);
    else if (loan.watch)
        hush(l);
    return waited;
}

/* stop() waits for those who are in. */
static void count_drivers(struct tcp *t, int one)
{
    pthread_mutex_lock(&t->live_lock);
    t->drivers += one;
    if (one < 0 && t->drivers == 0)
        pthread_cond_broadcast(&t->quiet);
    pthread_mutex_unlock(&t->live_lock);
}

bool tei_tcp_drive(struct tei_transport *base, const struct tei_drive *d)
{
    struct tcp *t = tei_tcp_of(base);
    unsigned lead = atomic_load_explicit(&t->leads[place_of(d->owner)], memory_order_relaxed);
    struct tcp_worker *w = &t->workers[lead];
    struct tcp_lane *l;
    bool can;

    count_drivers(t, 1);
    tei_tcp_worker_enter(w);
    l = carrier(w, d->owner, tei_max(1, atomic_load(d->left)));
    can = l && l->state == LANE_BUSY && !l->watch.loan;
    if (can)
        can = ride(l, d);
    tei_tcp_worker_leave(w);
    count_drivers(t, -1);
    return can;
}
