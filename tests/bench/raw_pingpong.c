/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw_pingpong.c - the limit of latency between two processes of this host: the client sends a
 * request of 24 bytes, the server answers a head of 8 bytes and the data. Both sides are one thread
 * with one non-blocking socket that sleeps in epoll_wait whenever nothing can be done, as an engine
 * does that must not burn a core; with --spin the client, or both, ask the socket again and again
 * instead. Data is read from and written to ever new places of a big buffer.
 */
#include "bench.h"

#include <sys/epoll.h>
#include <sys/uio.h>

enum { REQUEST_BYTES = 24, HEAD_BYTES = 8, SAMPLES_MAX = 1 << 20, WARM_UP = 200 };

static size_t size = 4096, buffer = 256U << 20;
static int count = SAMPLES_MAX;
static double seconds = 2.0;
static const char *cpus, *cc, *spin = "none";
static bool json;

static const struct bench_opt options[] = {
    {"size", BENCH_SIZE, &size, "bytes of data in an answer (4K)"},
    {"buffer", BENCH_SIZE, &buffer, "bytes of memory a process that is walked through (256M)"},
    {"seconds", BENCH_SECONDS, &seconds, "how long to measure (2)"},
    {"count", BENCH_INT, &count, "stop after so many round trips"},
    {"spin", BENCH_TEXT, &spin, "none, one (the client) or both: who spins instead of sleeping"},
    {"cpus", BENCH_TEXT, &cpus, "A,B: the client on CPU A, the server on B"},
    {"cc", BENCH_TEXT, &cc, "congestion control (the system's)"},
    BENCH_NET_OPTIONS,
    {"json", BENCH_FLAG, &json, "print one line of JSON"},
};

struct side {
    int fd, ep;
    bool spins;
    char *base;
    size_t at; /* of the next data in the buffer */
};

static struct side side_make(int fd, bool spins)
{
    struct side s = {
        .fd = fd, .ep = epoll_create1(EPOLL_CLOEXEC), .spins = spins, .base = bench_buffer(buffer)};
    struct epoll_event ev = {.events = EPOLLIN};
    int flags = fcntl(fd, F_GETFL);
    if (s.ep < 0 || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        epoll_ctl(s.ep, EPOLL_CTL_ADD, fd, &ev) != 0)
        bench_die_errno("epoll");
    return s;
}

/* Where the next data lies. */
static char *side_next(struct side *s)
{
    char *p = s->base + s->at;
    s->at = s->at + 2 * size <= buffer ? s->at + size : 0;
    return p;
}

static void sleep_until(struct side *s, uint32_t what)
{
    struct epoll_event ev = {.events = what}, got;
    if (what != EPOLLIN && epoll_ctl(s->ep, EPOLL_CTL_MOD, s->fd, &ev) != 0)
        bench_die_errno("epoll_ctl");
    while (epoll_wait(s->ep, &got, 1, -1) < 0)
        if (errno != EINTR)
            bench_die_errno("epoll_wait");
    ev.events = EPOLLIN;
    if (what != EPOLLIN && epoll_ctl(s->ep, EPOLL_CTL_MOD, s->fd, &ev) != 0)
        bench_die_errno("epoll_ctl");
}

/* Takes `n` bytes off the front of an iovec of two. */
static void advance(struct iovec v[2], size_t n)
{
    size_t first = n < v[0].iov_len ? n : v[0].iov_len;
    for (int i = 0; i < 2; i++) {
        size_t part = i == 0 ? first : n - first;
        v[i].iov_base = (char *)v[i].iov_base + part;
        v[i].iov_len -= part;
    }
}

/* Sends or receives all of `head` and `data`; false when the other side has closed. */
static bool move(struct side *s, bool out, void *head, size_t head_n, void *data, size_t data_n)
{
    struct iovec v[2] = {{head, head_n}, {data, data_n}};
    while (v[0].iov_len + v[1].iov_len > 0) {
        if (!out && !s->spins)
            sleep_until(s, EPOLLIN);
        ssize_t n = out ? writev(s->fd, v, 2) : readv(s->fd, v, 2);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return false;
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            bench_die_errno(out ? "writev" : "readv");
        if (n > 0)
            advance(v, (size_t)n);
        else if (out)
            sleep_until(s, EPOLLOUT);
    }
    return true;
}

static void serve(int fd)
{
    struct side s = side_make(fd, strcmp(spin, "both") == 0);
    char request[REQUEST_BYTES], head[HEAD_BYTES] = {0};
    while (move(&s, false, request, sizeof request, NULL, 0))
        if (!move(&s, true, head, sizeof head, side_next(&s), size))
            return;
}

/* Round trips until time or count is up; returns how many were measured. */
static size_t play(struct side *s, int64_t *samples)
{
    char request[REQUEST_BYTES] = {0}, head[HEAD_BYTES];
    int64_t end = bench_deadline_ns(seconds);
    size_t n = 0;
    for (int i = 0; n < (size_t)count && n < SAMPLES_MAX; i++) {
        int64_t start = bench_now_ns();
        if (start >= end && n > 0)
            break;
        if (!move(s, true, request, sizeof request, NULL, 0) ||
            !move(s, false, head, sizeof head, side_next(s), size))
            bench_die("the server closed the connection");
        if (i >= WARM_UP)
            samples[n++] = bench_now_ns() - start;
    }
    return n;
}

static void report(int64_t *samples, size_t n)
{
    bench_sort(samples, n);
    double p50 = bench_quantile(samples, n, 0.5) / 1e3,
           p99 = bench_quantile(samples, n, 0.99) / 1e3;
    if (json)
        printf("{\"bench\": \"raw_pingpong\", \"size\": %zu, \"count\": %zu, \"p50_us\": %.2f, "
               "\"p99_us\": %.2f}\n",
               size, n, p50, p99);
    else
        printf("p50 %.1f us, p99 %.1f us: %zu round trips of %zu bytes\n", p50, p99, n, size);
}

int main(int argc, char **argv)
{
    const char *about = "[option...]\n\nAsks another process for data over TCP, one "
                        "request at a time, and prints the time a\nround trip takes.";
    int at = bench_options(argc, argv, about, options, sizeof options / sizeof options[0]);
    if (at < argc)
        bench_usage_error("unexpected argument", argv[at]);
    if (strcmp(spin, "none") != 0 && strcmp(spin, "one") != 0 && strcmp(spin, "both") != 0)
        bench_usage_error("--spin is none, one or both, not", spin);
    if (buffer < size)
        bench_die("a buffer of at least --size bytes, please");
    uint16_t port;
    int listener = bench_listen(cc, &port);
    pid_t pid = fork();
    if (pid < 0)
        bench_die_errno("fork");
    bench_guard((unsigned)seconds + 120, pid == 0);
    bench_pin(cpus, pid == 0);
    if (pid == 0) {
        serve(bench_accept(listener));
        return 0;
    }
    close(listener); /* the server alone holds it now: a connection to a dead one is reset */
    struct side s = side_make(bench_connect(port, cc), strcmp(spin, "none") != 0);
    int64_t *samples = (int64_t *)(void *)bench_buffer(SAMPLES_MAX * sizeof *samples);
    size_t n = play(&s, samples);
    close(s.fd);
    report(samples, n);
    bench_reap(pid);
    return 0;
}
