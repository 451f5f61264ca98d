/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw_stream.c - the limit of TCP throughput between two processes of this host: one process sends
 * on N connections, the other receives, one blocking thread per connection and side, one syscall
 * per chunk, no protocol at all. With a window, the receiver acknowledges by bytes of its own, and the
 * sender is never further ahead of them than that: what a program can reach that has so many bytes
 * outstanding. Each stream walks through its own part of a big buffer, on both
 * sides, so the bytes come from memory and go to memory as those of a real transfer do.
 */
#include "bench.h"

static size_t chunk = 1U << 20, buffer = 256U << 20, limit_bytes, window, ack;
static int streams = 1, socket_buffer;
static double seconds = 2.0;
static const char *cc;
static bool json, wait_all;

static const struct bench_opt options[] = {
    {"streams", BENCH_INT, &streams, "connections and threads a side (1)"},
    {"chunk", BENCH_SIZE, &chunk, "bytes a syscall (1M)"},
    {"buffer", BENCH_SIZE, &buffer, "bytes of memory a process, shared by the streams (256M)"},
    {"seconds", BENCH_SECONDS, &seconds, "how long to send (2)"},
    {"bytes", BENCH_SIZE, &limit_bytes, "stop after so many bytes in total"},
    {"window", BENCH_SIZE, &window, "bytes that the sender may be ahead of the acknowledgement"},
    {"ack", BENCH_SIZE, &ack, "bytes that one acknowledgement is for (with --window; a chunk)"},
    {"cc", BENCH_TEXT, &cc, "congestion control (the system's)"},
    {"sockbuf", BENCH_INT, &socket_buffer, "SO_SNDBUF and SO_RCVBUF (0: grown by the system)"},
    {"waitall", BENCH_FLAG, &wait_all, "receive with MSG_WAITALL"},
    BENCH_NET_OPTIONS,
    {"json", BENCH_FLAG, &json, "print one line of JSON"},
};

struct stream {
    int fd;
    char *part; /* this stream's share of the buffer */
    size_t part_bytes;
    int64_t deadline_ns; /* sender */
    uint64_t bytes;      /* sender: at most; receiver: got */
    int64_t from_ns;     /* receiver: what comes before is not counted */
    uint64_t early;      /* receiver: that */
};

/* Waits until the receiver has acknowledged all but a window of what was sent. */
static void await_window(int fd, uint64_t sent, uint64_t *acked)
{
    char bytes[256];
    while (sent - *acked * ack >= window) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0)
            bench_die_errno("receive an acknowledgement");
        *acked += (uint64_t)n;
    }
}

/* Windows and buffers have grown by then. The program of the engine does the same. */
static double warm_up(void)
{
    return limit_bytes == 0 ? 0.1 : 0;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void *send_stream(void *arg)
{
    struct stream *s = arg;
    uint64_t left = s->bytes, total = 0, acked = 0;
    for (size_t at = 0; left > 0 && bench_now_ns() < s->deadline_ns;) {
        size_t n = smaller(smaller(s->part_bytes - at, chunk), left);
        if (window != 0) {
            await_window(s->fd, total, &acked);
            n = smaller(n, window - (size_t)(total - acked * ack));
        }
        ssize_t sent = send(s->fd, s->part + at, n, MSG_NOSIGNAL);
        if (sent <= 0)
            bench_die_errno("send");
        left -= (uint64_t)sent;
        total += (uint64_t)sent;
        at = (at + (size_t)sent) % s->part_bytes;
    }
    shutdown(s->fd, SHUT_WR);
    return NULL;
}

/* One byte for each `ack` bytes that are complete; a sender that is done wants none. */
static void acknowledge(int fd, uint64_t before, uint64_t now)
{
    static const char zeros[256];
    for (uint64_t n = now / ack - before / ack; n > 0;) {
        ssize_t sent = send(fd, zeros, smaller((size_t)n, sizeof zeros), MSG_NOSIGNAL);
        if (sent < 0)
            return;
        n -= (uint64_t)sent;
    }
}

static void *receive_stream(void *arg)
{
    struct stream *s = arg;
    for (size_t at = 0;;) {
        size_t n = smaller(s->part_bytes - at, chunk);
        ssize_t got = recv(s->fd, s->part + at, n, wait_all ? MSG_WAITALL : 0);
        if (got < 0 && window != 0 && errno == ECONNRESET)
            return NULL; /* it left without our last acknowledgements */
        if (got < 0)
            bench_die_errno("recv");
        if (got == 0)
            return NULL;
        s->bytes += (uint64_t)got;
        if (bench_now_ns() < s->from_ns)
            s->early = s->bytes;
        if (window != 0)
            acknowledge(s->fd, s->bytes - (uint64_t)got, s->bytes);
        at = (at + (size_t)got) % s->part_bytes;
    }
}

static void set_socket_buffer(int fd)
{
    if (socket_buffer == 0)
        return;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &socket_buffer, sizeof socket_buffer) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &socket_buffer, sizeof socket_buffer) != 0)
        bench_die_errno("SO_SNDBUF");
}

/* Deals the buffer out to the streams. */
static void deal(struct stream *s, uint64_t bytes)
{
    size_t part = buffer / (size_t)streams;
    char *base = bench_buffer(buffer);
    for (size_t i = 0; i < (size_t)streams; i++)
        s[i] = (struct stream){.part = base + i * part, .part_bytes = part, .bytes = bytes};
}

static void run_sender(uint16_t port, pthread_barrier_t *gate)
{
    struct stream s[BENCH_THREADS_MAX];
    deal(s, limit_bytes != 0 ? limit_bytes / (size_t)streams : UINT64_MAX);
    for (int i = 0; i < streams; i++) {
        s[i].fd = bench_connect(port, cc);
        set_socket_buffer(s[i].fd);
    }
    pthread_barrier_wait(gate);
    for (int i = 0; i < streams; i++)
        s[i].deadline_ns = bench_deadline_ns(warm_up() + seconds);
    bench_threads((size_t)streams, send_stream, s, sizeof *s);
}

static void report(const struct stream *s, int64_t ns)
{
    uint64_t bytes = 0;
    char used[BENCH_CC_MAX];
    for (int i = 0; i < streams; i++)
        bytes += s[i].bytes - s[i].early;
    bench_get_cc(s[0].fd, used);
    if (json)
        printf("{\"bench\": \"raw_stream\", \"streams\": %d, \"chunk\": %zu, \"buffer\": %zu, "
               "\"cc\": \"%s\", \"bytes\": %ju, \"seconds\": %.3f, \"gb_s\": %.4f}\n",
               streams, chunk, buffer, used, (uintmax_t)bytes, (double)ns / 1e9,
               bench_gb_s(bytes, ns));
    else
        printf("%.2f GB/s: %d stream%s, chunks of %zu bytes, congestion control %s\n",
               bench_gb_s(bytes, ns), streams, streams == 1 ? "" : "s", chunk, used);
}

static void run_receiver(int listener, pthread_barrier_t *gate)
{
    struct stream s[BENCH_THREADS_MAX];
    deal(s, 0);
    for (int i = 0; i < streams; i++) {
        s[i].fd = bench_accept(listener);
        set_socket_buffer(s[i].fd);
    }
    pthread_barrier_wait(gate);
    int64_t start = bench_deadline_ns(warm_up());
    for (int i = 0; i < streams; i++)
        s[i].from_ns = start;
    bench_threads((size_t)streams, receive_stream, s, sizeof *s);
    report(s, bench_now_ns() - start);
}

int main(int argc, char **argv)
{
    const char *about =
        "[option...]\n\nStreams from one process to another over TCP and prints the "
        "rate.\nA read and a write are the same here.";
    size_t n = sizeof options / sizeof options[0];
    int at = bench_options(argc, argv, about, options, n);
    if (at < argc)
        bench_usage_error("unexpected argument", argv[at]);
    if (streams < 1 || streams > BENCH_THREADS_MAX || buffer / (size_t)streams < chunk)
        bench_die("1 to %d streams, each with room for a chunk, please", BENCH_THREADS_MAX);
    ack = ack != 0 ? ack : chunk;
    if (window != 0 && (window < ack || wait_all))
        bench_die("a window of at least an acknowledgement's bytes and no --waitall, please");
    unsigned guard = (unsigned)seconds + 120;
    uint16_t port;
    int listener = bench_listen(cc, &port);
    pthread_barrier_t *gate = bench_gate(2);
    pid_t pid = fork();
    if (pid < 0)
        bench_die_errno("fork");
    bench_guard(guard, pid == 0);
    if (pid == 0) {
        run_sender(port, gate);
        return 0;
    }
    run_receiver(listener, gate);
    bench_reap(pid);
    return 0;
}
