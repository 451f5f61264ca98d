/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=60 */
/*
 * What an address may take of the data port where there is not enough for all: places, and the time
 * that DROPs cost.
 */
#include "conformance.h"

#include "native.h"

#include "base/os.h"
#include "proc.h"
#include "transport/tcp/tcp_session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PLACES 8
#define BYTES  ((size_t)32 << 20) /* more than any socket holds */

static const uint8_t ok[] = {0, 0, 0, 0, 0x56, 0x54, 0x43, 0x4d};

static void few_places(struct tei_conf *c)
{
    c->tcp_threads = 1;
    c->tcp_max_sessions = PLACES;
}

#define MANY 16u /* addresses, with two sessions each */

static void many_places(struct tei_conf *c)
{
    c->tcp_threads = 1;
    c->tcp_max_sessions = 4 * MANY;
}

struct port {
    struct fake_host host;
    struct tei_transport *t;
    struct tei_region *region;
    char *memory;
    uint16_t number;
};

static void port_open(struct port *p, void (*configure)(struct tei_conf *))
{
    fake_host_init(&p->host);
    configure(&p->host.conf);
    p->t = fake_open(&p->host, "tcp");
    p->memory = malloc(BYTES);
    assert_non_null(p->memory);
    fill_pattern(p->memory, BYTES, 7);
    p->region = fake_region_add(&p->host, p->t, p->memory, BYTES, TE_REMOTE_READ);
    p->number = native_port(p->t);
}

static void port_close(struct port *p)
{
    fake_region_del(&p->host, p->t, p->region);
    fake_close(p->t);
    fake_host_fini(&p->host);
    free(p->memory);
}

/* A connection from 127.0.0.`host` that may be under way yet. */
static int call_from(const struct port *p, unsigned host)
{
    struct sockaddr_in from = {.sin_family = AF_INET};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(p->number)};
    struct timeval limit = {.tv_sec = PATIENCE_MS / 1000};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
        assert_int_equal(errno, EINPROGRESS);
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    return fd;
}

static int dial_from(const struct port *p, unsigned host)
{
    int fd = call_from(p, host);

    assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, PATIENCE_MS), 1);
    return fd;
}

static void ask(const struct port *p, int fd, uint64_t n)
{
    struct tcp_head h = {n, (uintptr_t)p->memory, TE_READ, 2};
    uint8_t bytes[TCP_HEAD_LEN];

    tei_tcp_head_encode(&h, bytes);
    native_put(fd, bytes, sizeof bytes);
}

/* Whether a request is answered, well; false: the connection has ended. */
static bool is_served(const struct port *p, int fd)
{
    char got[sizeof ok + 64];
    ssize_t n;

    ask(p, fd, 64);
    n = recv(fd, got, sizeof got, MSG_WAITALL);
    if (n != (ssize_t)sizeof got) {
        assert_true(n == 0 || errno == ECONNRESET);
        return false;
    }
    assert_memory_equal(got, ok, sizeof ok);
    assert_memory_equal(got + sizeof ok, p->memory, 64);
    return true;
}

/* Takes all places there are with a READ of everything, of which the first bytes are read. */
static void hog(const struct port *p, unsigned host, int fds[PLACES])
{
    uint8_t status[sizeof ok];

    for (unsigned i = 0; i < PLACES; i++) {
        fds[i] = dial_from(p, host);
        ask(p, fds[i], BYTES);
        native_get(fds[i], status, sizeof status); /* it is being served */
    }
}

static void close_all(const int fds[PLACES])
{
    for (unsigned i = 0; i < PLACES; i++)
        close(fds[i]);
}

/* Others get a place at once, each time, and keep it. */
static void a_hog_gives_way_to_others(void **state)
{
    int fds[PLACES], others[PLACES / 2];
    struct port p;

    (void)state;
    port_open(&p, few_places);
    hog(&p, 2, fds);
    for (unsigned i = 0; i < 50; i++) {
        int fd = dial_from(&p, 1);

        assert_true(is_served(&p, fd));
        close(fd);
    }
    for (unsigned i = 0; i < PLACES / 2; i++)
        assert_true(is_served(&p, others[i] = dial_from(&p, 1)));
    /* It comes back again and again, and gets none of theirs. */
    for (unsigned i = 0; i < 50; i++) {
        int fd = dial_from(&p, 2);

        (void)is_served(&p, fd);
        close(fd);
        assert_true(is_served(&p, others[i % (PLACES / 2)]));
    }
    for (unsigned i = 0; i < PLACES / 2; i++)
        close(others[i]);
    close_all(fds);
    port_close(&p);
}

/* Who has them all gets those of its own that have stalled, and otherwise none. */
static void a_hog_shares_with_itself(void **state)
{
    int fds[PLACES], fd;
    struct port p;

    (void)state;
    port_open(&p, few_places);
    hog(&p, 2, fds);
    do { /* a second later */
        fd = dial_from(&p, 2);
        usleep(20000);
    } while (!is_served(&p, fd) && close(fd) == 0);
    close(fd);
    close_all(fds);
    port_close(&p);
}

/* While there is room nobody is limited. */
static void one_address_may_have_all(void **state)
{
    struct port p;
    int fds[PLACES];

    (void)state;
    port_open(&p, few_places);
    for (unsigned i = 0; i < PLACES; i++)
        assert_true(is_served(&p, fds[i] = dial_from(&p, 2)));
    for (unsigned i = 0; i < PLACES; i++)
        assert_true(is_served(&p, fds[i]));
    close_all(fds);
    port_close(&p);
}

static int option(int fd, int level, int name)
{
    socklen_t len = sizeof(int);
    int value = -1;

    assert_int_equal(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

/* A connection costs few calls to accept, and has the options of the socket that listens. */
static void options_are_inherited(void **state)
{
    struct tcp_worker *w;
    struct port p;
    int fd, s;

    (void)state;
    port_open(&p, few_places);
    fd = dial_from(&p, 1);
    assert_true(is_served(&p, fd));
    w = tei_tcp_of(p.t)->workers;
    tei_tcp_worker_enter(w);
    s = tei_tcp_session_find(w, 1)->watch.fd;
    assert_int_equal(option(s, IPPROTO_TCP, TCP_NODELAY), 1);
    assert_int_equal(option(s, SOL_SOCKET, SO_KEEPALIVE), 1);
    assert_int_equal(option(s, IPPROTO_TCP, TCP_KEEPIDLE), 10);
    tei_tcp_worker_leave(w);
    close(fd);
    port_close(&p);
}

/* The bytes of a reply that the kernel has taken and not sent, once it takes no more. */
static int unsent(struct tcp_worker *w, uint64_t serial)
{
    int bytes = -1;

    while (bytes < 0) {
        struct tcp_session *s;

        tei_tcp_worker_enter(w);
        s = tei_tcp_session_find(w, serial);
        if (s && s->state == SESSION_SEND && s->watch.events == EPOLLOUT)
            assert_int_equal(ioctl(s->watch.fd, SIOCOUTQNSD, &bytes), 0);
        tei_tcp_worker_leave(w);
    }
    return bytes;
}

#define CROWD 12

/* Of replies that nobody takes the kernel holds little, and less of each the more an address has. */
static void little_is_held_of_replies(void **state)
{
    int fds[CROWD], bytes[CROWD];
    struct port p;

    (void)state;
    port_open(&p, many_places);
    for (unsigned i = 0; i < CROWD; i++) {
        fds[i] = dial_from(&p, 2);
        ask(&p, fds[i], BYTES);
        bytes[i] = unsent(tei_tcp_of(p.t)->workers, i + 1);
    }
    assert_in_range(bytes[0], 0, 5 << 18);
    assert_in_range(bytes[CROWD - 1], 0, 128 << 10);
    for (unsigned i = 0; i < CROWD; i++)
        close(fds[i]);
    port_close(&p);
}

/* DROPs of many sessions of one address: all are answered, also where some do not wait for it. */
static void drops_take_turns(void **state)
{
    struct native c[PLACES / 2]; /* those of the round before may be there still */
    struct port p;

    (void)state;
    port_open(&p, few_places);
    for (unsigned round = 0; round < 30; round++) {
        for (unsigned i = 0; i < PLACES / 2; i++)
            c[i] = native_greet(p.t, 100 + i, 1000 + i, false);
        for (unsigned i = 0; i < PLACES / 2; i++)
            native_send(&c[i], TCP_FRAME_DROP, 1, &(struct tcp_range){.addr = 5}, 1, NULL);
        for (unsigned i = 0; i < PLACES / 2; i++) {
            if ((i + round) % 3)
                native_expect(&c[i], TCP_FRAME_DROPPED, 1, TCP_OK, 0, 0);
            close(c[i].fd);
        }
    }
    port_close(&p);
}

/* ------------------------------------------------------------------------- who waits for the engine */

#define AN_HOUR (3600 * TEI_NS_PER_S)

/* A session that waits for its turn in the middle of a READ; returns with the worker's lock held. */
static struct tcp_session *await_paused(struct tcp_worker *w)
{
    for (int64_t end_ns = tei_deadline_ns(PATIENCE_MS); tei_now_ns() < end_ns;) {
        struct tei_link *n, *tmp;

        tei_tcp_worker_enter(w);
        TEI_LIST_EACH(&w->serving, n, tmp) {
            struct tcp_session *s = tei_container_of(n, struct tcp_session, link);

            if (tei_link_is_in(&s->turn) && s->state == SESSION_SEND)
                return s;
        }
        tei_tcp_worker_leave(w);
    }
    fail_msg("no session ever waits for its turn");
    return NULL;
}

struct reader {
    pthread_t thread;
    int fd;
    bool whole;
};

/* Takes all of a READ. */
static void *read_all(void *arg)
{
    struct reader *r = arg;
    size_t left = BYTES + sizeof ok;
    char bytes[65536];
    ssize_t n = 1;

    while (left > 0 && n > 0) {
        n = recv(r->fd, bytes, tei_min(left, sizeof bytes), 0);
        left -= n > 0 ? (size_t)n : 0;
    }
    r->whole = left == 0;
    return NULL;
}

/*
 * However long the round of the sources takes, a session that waits for its turn is not late, nor one
 * that has stalled.
 */
static void a_turn_is_waited_for(void **state)
{
    struct reader readers[PLACES];
    struct tcp_session *s;
    struct tcp_worker *w;
    bool whole = false;
    uint64_t serial;
    struct port p;

    (void)state;
    port_open(&p, few_places);
    w = tei_tcp_of(p.t)->workers;
    for (unsigned i = 0; i < PLACES; i++) {
        readers[i].fd = dial_from(&p, 2 + i % 2);
        ask(&p, readers[i].fd, BYTES);
    }
    for (unsigned i = 0; i < PLACES; i++)
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_all, &readers[i]), 0);
    s = await_paused(w);
    serial = s->serial;
    tei_tcp_sessions_tick(w, tei_now_ns() + AN_HOUR); /* ends all the others */
    s = tei_tcp_session_find(w, serial);
    tei_tcp_worker_leave(w);
    assert_non_null(s);
    for (unsigned i = 0; i < PLACES; i++) {
        pthread_join(readers[i].thread, NULL);
        whole = whole || readers[i].whole;
        close(readers[i].fd);
    }
    assert_true(whole);
    port_close(&p);
}

/* The clock of this program: each reading is so much later than the one before, beside what passes. */
static _Atomic int64_t reading_ns, gone_ns;

int clock_gettime(clockid_t id, struct timespec *ts)
{
    long status = syscall(SYS_clock_gettime, id, ts);
    int64_t ns = atomic_fetch_add(&gone_ns, atomic_load(&reading_ns)) + ts->tv_nsec;

    ts->tv_sec += (time_t)(ns / TEI_NS_PER_S);
    ts->tv_nsec = (long)(ns % TEI_NS_PER_S);
    return (int)status;
}

struct drain {
    struct pollfd fds[2 * MANY];
    _Atomic bool quit;
};

/* Reads whatever comes. */
static void *read_on(void *arg)
{
    struct drain *d = arg;
    static char bytes[65536];

    while (!atomic_load(&d->quit) && poll(d->fds, 2 * MANY, 100) >= 0)
        for (unsigned i = 0; i < 2 * MANY; i++)
            if (d->fds[i].revents)
                (void)!recv(d->fds[i].fd, bytes, sizeof bytes, MSG_DONTWAIT);
    return NULL;
}

/* Whether a round is under way of which sources have had their turn, and others wait for theirs. */
static bool is_within_round(struct tcp_worker *w)
{
    struct tei_link *n, *tmp;
    bool waits = false, had = false;

    tei_tcp_worker_enter(w);
    TEI_LIST_EACH(&w->sources, n, tmp) {
        struct tei_source *base = tei_container_of(n, struct tei_source, link);
        const struct tcp_source *s = tei_container_of(base, struct tcp_source, base);

        had = had || s->walked == w->round;
        waits = waits || (s->walked != w->round && !tei_list_empty(&s->waiting));
    }
    tei_tcp_worker_leave(w);
    return waits && had;
}

/*
 * With many sources a round is no single stretch, in which the worker does nothing else. Here each turn
 * takes long, however fast the machine is.
 */
static void rounds_are_interrupted(void **state)
{
    static struct drain d;
    pthread_t thread;
    struct port p;

    (void)state;
    port_open(&p, many_places);
    for (unsigned i = 0; i < 2 * MANY; i++) {
        d.fds[i] = (struct pollfd){.fd = dial_from(&p, 2 + i % MANY), .events = POLLIN};
        for (unsigned k = 0; k < 8; k++)
            ask(&p, d.fds[i].fd, BYTES);
    }
    assert_int_equal(pthread_create(&thread, NULL, read_on, &d), 0);
    atomic_store(&reading_ns, TEI_NS_PER_MS / 5);
    WAIT_FOR(is_within_round(tei_tcp_of(p.t)->workers));
    atomic_store(&reading_ns, 0);
    atomic_store(&d.quit, true);
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < 2 * MANY; i++)
        close(d.fds[i].fd);
    port_close(&p);
}

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    unsigned n_inside;
    bool open;
};

struct gated {
    struct tei_job job;
    struct gate *gate;
};

static void pass_gate(struct tei_job *j)
{
    struct gate *g = tei_container_of(j, struct gated, job)->gate;

    pthread_mutex_lock(&g->lock);
    g->n_inside++;
    pthread_cond_broadcast(&g->cond);
    while (!g->open)
        pthread_cond_wait(&g->cond, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static bool is_dropping(struct tcp_worker *w)
{
    struct tei_link *n;
    bool yes;

    tei_tcp_worker_enter(w);
    n = tei_list_first(&w->sources);
    yes =
        n && tei_container_of(tei_container_of(n, struct tei_source, link), struct tcp_source, base)
                 ->dropping;
    tei_tcp_worker_leave(w);
    return yes;
}

/* The same while te/aux has other things to do than to serve a DROP. */
static void a_drop_is_waited_for(void **state)
{
    struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    struct gated jobs[64] = {0};
    struct native c;
    struct tcp_worker *w;
    struct port p;

    (void)state;
    port_open(&p, few_places);
    assert_true(p.host.jobs.max <= TEI_ARRAY_LEN(jobs));
    w = tei_tcp_of(p.t)->workers;
    c = native_greet(p.t, 100, 1000, false);
    for (unsigned i = 0; i < p.host.jobs.max; i++) {
        jobs[i].gate = &gate;
        tei_jobs_post(&p.host.jobs, &jobs[i].job, pass_gate);
    }
    pthread_mutex_lock(&gate.lock);
    while (gate.n_inside < p.host.jobs.max)
        pthread_cond_wait(&gate.cond, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    native_send(&c, TCP_FRAME_DROP, 1, &(struct tcp_range){.addr = 5}, 1, NULL);
    while (!is_dropping(w))
        usleep(1000);
    tei_tcp_worker_enter(w);
    tei_tcp_sessions_tick(w, tei_now_ns() + AN_HOUR);
    tei_tcp_worker_leave(w);
    pthread_mutex_lock(&gate.lock);
    gate.open = true;
    pthread_cond_broadcast(&gate.cond);
    pthread_mutex_unlock(&gate.lock);
    native_expect(&c, TCP_FRAME_DROPPED, 1, TCP_OK, 0, 0);
    close(c.fd);
    port_close(&p);
}

/* Many connections of host 2 with these bytes end, all at once. */
static void visit(const struct port *p, const uint8_t *bytes, size_t n)
{
    int fds[40];

    for (unsigned i = 0; i < TEI_ARRAY_LEN(fds); i++) {
        fds[i] = dial_from(p, 2);
        if (n)
            native_put(fds[i], bytes, n);
    }
    for (unsigned i = 0; i < TEI_ARRAY_LEN(fds); i++)
        close(fds[i]);
}

static void check_served(const struct port *p, unsigned host)
{
    int fd = dial_from(p, host);

    assert_true(is_served(p, fd));
    close(fd);
}

/* Until when host 2 is banned, the kernel having been told; 0: it never was. */
static int64_t banned_until(const struct port *p)
{
    static const uint8_t key[TEI_SOURCE_KEY] = {[12] = 127, [15] = 2};
    struct tei_bans *b = &tei_tcp_of(p->t)->bans;
    int64_t until_ns = 0;

    pthread_mutex_lock(&b->lock);
    for (size_t i = 0; i < TEI_BANS && !b->stale; i++)
        if (memcmp(b->of[i].key, key, sizeof key) == 0)
            until_ns = b->of[i].until_ns;
    pthread_mutex_unlock(&b->lock);
    return until_ns;
}

/* Whether a connection of host 2 is, others being served; not for good: its system tries again. */
static bool is_ignored(const struct port *p)
{
    int fd = call_from(p, 2);
    bool ignored;

    check_served(p, 1);
    ignored = test_was_ignored(fd);
    assert_true(is_served(p, fd));
    close(fd);
    return ignored;
}

/*
 * Visits until host 2 is banned, and then ignored. A ban may be over before a slow machine looks: each is
 * twice as long as the one before.
 */
static bool comes_to_be_ignored(const struct port *p, const uint8_t *bytes, size_t n)
{
    for (int i = 0; i < 8; i++) {
        int64_t before = banned_until(p);

        check_served(p, 1);
        visit(p, bytes, n);
        for (int ms = 0; ms < 1000 && banned_until(p) <= before; ms++)
            usleep(1000);
        if (banned_until(p) > before && is_ignored(p))
            return true;
    }
    return false;
}

static void who_is_of_no_use_is_ignored(void **state)
{
    static const uint8_t rubbish[TCP_HEAD_LEN] = {[16] = 0x42};
    static const size_t lengths[] = {0, TCP_HEAD_LEN / 2, TCP_HEAD_LEN};

    (void)state;
    for (unsigned i = 0; i < TEI_ARRAY_LEN(lengths); i++) {
        struct port p;

        port_open(&p, many_places);
        assert_true(comes_to_be_ignored(&p, rubbish, lengths[i]));
        port_close(&p);
    }
}

/* As one does that has an old descriptor, or one connection for each request. */
static void who_asks_is_not_ignored(void **state)
{
    uint8_t refused[TCP_HEAD_LEN];
    struct port p;
    size_t fds;

    (void)state;
    tei_tcp_head_encode(&(struct tcp_head){1, 1, TE_READ, 1}, refused);
    port_open(&p, many_places);
    check_served(&p, 1);
    fds = test_count_fds();
    for (int i = 0; i < 5; i++) {
        visit(&p, refused, sizeof refused);
        check_served(&p, 1);               /* all were let in before; places are few, */
        WAIT_FOR(test_count_fds() <= fds); /* so all end before more come */
    }
    assert_int_equal(banned_until(&p), 0);
    port_close(&p);
}

/* Sessions of no use, until they lead to a ban. */
static void be_banned(struct tcp *t, uint8_t address)
{
    struct tcp_source source = {.base.key = {[12] = 127, [15] = address}};
    struct tcp_session s = {.worker = &t->workers[0], .source = &source};

    for (int i = 0; i <= TEI_BAN_BURST; i++) {
        s.since_ns = tei_now_ns();
        tei_tcp_ban_enter(&s);
        tei_tcp_ban_leave(&s);
    }
}

/* The timer that ends a ban may enforce another one while worker 0 is still to be told of that. */
static void a_ban_is_told_once_at_a_time(void **state)
{
    struct tcp *t;
    struct port p;

    (void)state;
    port_open(&p, many_places);
    t = tei_tcp_of(p.t);
    tei_tcp_worker_enter(&t->workers[0]);
    be_banned(t, 8); /* the first is alone */
    be_banned(t, 9);
    (void)tei_bans_enforce(&t->bans, t->listen_fd, tei_now_ns());
    be_banned(t, 10);
    tei_tcp_worker_leave(&t->workers[0]);
    port_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hog_gives_way_to_others), cmocka_unit_test(a_hog_shares_with_itself),
        cmocka_unit_test(one_address_may_have_all),  cmocka_unit_test(drops_take_turns),
        cmocka_unit_test(options_are_inherited),     cmocka_unit_test(a_turn_is_waited_for),
        cmocka_unit_test(rounds_are_interrupted),    cmocka_unit_test(a_drop_is_waited_for),
        cmocka_unit_test(little_is_held_of_replies), cmocka_unit_test(who_is_of_no_use_is_ignored),
        cmocka_unit_test(who_asks_is_not_ignored),   cmocka_unit_test(a_ban_is_told_once_at_a_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
