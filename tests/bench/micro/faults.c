/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults.c - what a port that goes down in mid-transfer costs, and how soon all is as before once it
 * is up again. A thread keeps --depth blocks under way, each a batch of its own, and notes how long
 * none ended; the main thread takes the port down and up.
 */
#include "micro.h"

#include <poll.h>
#include <stdatomic.h>

enum { BLOCKS_MAX = 64, WARM_MS = 400, RATE_MS = 500, DOWN_MS = 700, UP_MS = 1000 };

struct stream {
    const struct bench *b;
    int opcode;
    size_t block, at;
    te_batch ids[BLOCKS_MAX];
    int64_t begun_ns[BLOCKS_MAX];
    int64_t last_ns; /* when a block ended */
    _Atomic bool stop;
    _Atomic uint64_t moved, failed;
    _Atomic int64_t gap_ns;  /* the longest time in which no block ended, */
    _Atomic int64_t slow_ns; /* and the longest that a block took, since they were set to 0 */
};

static void raise_to(_Atomic int64_t *most, int64_t value)
{
    if (value > atomic_load(most))
        atomic_store(most, value);
}

static void begin_block(struct stream *s, int slot)
{
    te_request r = request_at(s->b, s->opcode, s->at, s->block);
    s->at = s->at + 2 * s->block <= buffer ? s->at + s->block : 0;
    s->ids[slot] = batch_open(s->b, 1);
    s->begun_ns[slot] = bench_now_ns();
    check(te_submit(s->b->e, s->ids[slot], &r, 1, NULL), "te_submit");
}

static void end_block(struct stream *s, te_batch id)
{
    struct te_status status = {.state = TE_WAITING};
    int64_t now = bench_now_ns();
    int slot = 0;
    while (s->ids[slot] != id)
        slot++;
    check(te_batch_status(s->b->e, id, &status), "te_batch_status");
    if (status.state == TE_COMPLETED)
        atomic_fetch_add(&s->moved, s->block);
    else
        atomic_fetch_add(&s->failed, 1);
    raise_to(&s->gap_ns, now - s->last_ns);
    raise_to(&s->slow_ns, now - s->begun_ns[slot]);
    s->last_ns = now;
    batch_close(s->b, id);
    s->ids[slot] = TE_INVALID_BATCH;
    if (!atomic_load(&s->stop))
        begin_block(s, slot);
}

static bool is_over(const struct stream *s)
{
    for (int i = 0; i < depth; i++)
        if (s->ids[i] != TE_INVALID_BATCH)
            return false;
    return true;
}

static void *run_stream(void *arg)
{
    struct stream *s = arg;
    struct pollfd fd = {.fd = te_event_fd(s->b->e), .events = POLLIN};
    te_batch done[BLOCKS_MAX];
    check(fd.fd, "te_event_fd");
    s->last_ns = bench_now_ns();
    for (int i = 0; i < depth; i++)
        begin_block(s, i);
    while (!is_over(s)) {
        int n = poll(&fd, 1, WAIT_MS) > 0 ? te_done(s->b->e, done, BLOCKS_MAX) : -1;
        if (n < 0)
            bench_die("no block ends any more");
        for (int i = 0; i < n; i++)
            end_block(s, done[i]);
    }
    return NULL;
}

static void sleep_ms(int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

static double rate(struct stream *s)
{
    int64_t start = bench_now_ns();
    uint64_t from = atomic_load(&s->moved);
    sleep_ms(RATE_MS);
    return bench_gb_s(atomic_load(&s->moved) - from, bench_now_ns() - start);
}

/* What a port of `host` costs: one line. */
static void pull(struct stream *s, const char *host)
{
    char command[64];
    double before, without, after, stall_ms, slow_ms;
    before = rate(s);
    atomic_store(&s->gap_ns, 0);
    atomic_store(&s->slow_ns, 0);
    snprintf(command, sizeof command, "port %s/nic0 down", host);
    fabric_do(command, NULL, 0);
    sleep_ms(DOWN_MS - RATE_MS);
    without = rate(s);
    stall_ms = (double)atomic_load(&s->gap_ns) / 1e6;
    slow_ms = (double)atomic_load(&s->slow_ns) / 1e6;
    snprintf(command, sizeof command, "port %s/nic0 up", host);
    fabric_do(command, NULL, 0);
    sleep_ms(UP_MS);
    after = rate(s);
    printf(
        json ? "{\"bench\": \"faults\", \"op\": \"%s\", \"stall_ms\": %.2f, \"slowest_ms\": %.2f, "
               "\"before_gb_s\": %.3f, \"without_gb_s\": %.3f, \"after_gb_s\": %.3f, "
               "\"recovered\": %.3f, \"failed\": %" PRIu64 "}\n"
             : "faults: %s: stall %.1f ms, slowest block %.1f ms; %.2f GB/s before, %.2f without, "
               "%.2f a second after (%.2f of it); %" PRIu64 " requests failed\n",
        host[0] == 'a' ? "local" : "peer", stall_ms, slow_ms, before, without, after,
        after / before, atomic_load(&s->failed));
    fflush(stdout);
}

void measure_faults(const struct bench *b)
{
    struct stream s = {.b = b, .block = or_default(block, 1U << 20), .opcode = TE_READ};
    pthread_t thread;
    if (depth < 2 || depth > BLOCKS_MAX || nics < 2 || s.block * 2 > buffer)
        bench_die("faults wants 2 NICs, and 2 to %d blocks under way", BLOCKS_MAX);
    if (only != NULL && strcmp(only, "write") == 0)
        s.opcode = TE_WRITE;
    if (pthread_create(&thread, NULL, run_stream, &s) != 0)
        bench_die("no thread");
    sleep_ms(WARM_MS);
    pull(&s, "a");
    pull(&s, "b");
    atomic_store(&s.stop, true);
    pthread_join(thread, NULL);
}
