/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane of the native framing whose peer answers with anything. The first byte says how many bytes
 * come at a time, the second which works there are (4 of them, a bit each: READ or WRITE) and
 * whether frames have checksums, the rest comes. One worker without a thread, whose loop is turned
 * here; one lane, on a socket pair. Whatever came, each work ends once, and no byte outside the
 * works' memory, or within it after its end, is changed.
 */
#include "transport/tcp/tcp_stream.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define WORKS     4
#define LENGTH    ((size_t)100)
#define INPUT_MAX ((size_t)64 << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tcp tcp;
static struct tcp_worker worker;
static struct tei_conf conf;
static struct tcp_work works[WORKS];
static _Atomic uint64_t bytes_moved;
static char memory[WORKS][3 * LENGTH]; /* the middle is the work's */
static char after[WORKS][LENGTH];      /* as it was when the work ended */
static bool done[WORKS];

static void work_done(struct tei_host *h, struct tei_list *list)
{
    struct tei_link *n;

    (void)h;
    while ((n = tei_list_pop(list))) {
        size_t i = (size_t)(tei_tcp_work_of(n) - works);

        assert(i < WORKS && !done[i]);
        done[i] = true;
        memcpy(after[i], memory[i] + LENGTH, LENGTH);
    }
}

static struct tei_host host = {.conf = &conf, .work_done = work_done};

static void set_up(void)
{
    if (tei_conf_load(NULL, &conf) || tei_tcp_worker_init(&worker, &tcp, 0))
        abort();
    te_log_set_level(TE_LOG_ERROR); /* a wrong answer is worth a warning */
    conf.tcp_lanes = 1;
    tcp.base.host = &host;
    tcp.conf = &conf;
    tcp.workers = &worker;
    tcp.n_workers = 1;
    tcp.id = 1;
    tcp.no_progress_ns = TEI_NEVER;
    pthread_mutex_init(&tcp.peers_lock, NULL);
    pthread_mutex_init(&tcp.live_lock, NULL);
    for (size_t i = 0; i < TCP_PEER_BUCKETS; i++)
        tei_list_init(&tcp.peers[i]);
    tei_list_init(&tcp.left);
    tei_pool_init(&tcp.frames, sizeof(struct tcp_frame));
    tei_pool_init(&tcp.remnants, sizeof(struct tcp_remnant));
}

static struct tcp_peer *make_peer(uint8_t kinds)
{
    struct tcp_target target = {.where = {.host = "127.0.0.1", .port = 1},
                                .exchange = &tei_tcp_native,
                                .framing = TCP_NATIVE_VERSION,
                                .id = 2};
    struct tcp_peer *p;

    if (tei_tcp_peer_get(&tcp, &target, &p))
        abort();
    for (size_t i = 0; i < WORKS; i++) {
        works[i] = (struct tcp_work){.entry.base = {.moved = &bytes_moved,
                                                    .local = memory[i] + LENGTH,
                                                    .length = LENGTH,
                                                    .remote = 1 + i,
                                                    .deadline_ns = TEI_NEVER,
                                                    .opcode = kinds >> i & 1 ? TE_WRITE : TE_READ}};
        done[i] = false;
        tei_ledger_post(&p->ledger, &works[i].entry, tei_now_ns());
    }
    memset(memory, 0, sizeof memory);
    tcp.live = WORKS;
    return p;
}

static void on_lane(struct tei_watch *w, uint32_t events)
{
    struct tcp_lane *l = tei_container_of(w, struct tcp_lane, watch);

    if (l->state == LANE_BUSY)
        tei_tcp_native.event(l, events, tei_now_ns());
}

static void connect_lane(struct tcp_peer *p, int fd)
{
    struct tcp_lane *l = &p->bundles[0].lanes[0];
    bool greeted;

    if (tei_watch_add(&worker.loop, &l->watch, fd, EPOLLIN, on_lane))
        abort();
    pthread_mutex_lock(&p->lock);
    greeted = tei_tcp_native.up(l, tei_now_ns());
    pthread_mutex_unlock(&p->lock);
    if (!greeted)
        abort();
    tei_tcp_native.begin(l, tei_now_ns());
}

/* Turns the loop as long as the lane has its connection, which is not made again here. */
static bool turn(const struct tcp_peer *p, int fd)
{
    const struct tcp_lane *l = &p->bundles[0].lanes[0];
    char requests[4096];

    while (l->state == LANE_BUSY && tei_loop_turn(&worker.loop)) {}
    while (recv(fd, requests, sizeof requests, MSG_DONTWAIT) > 0) {}
    return l->state == LANE_BUSY;
}

static void feed(const struct tcp_peer *p, int fd, const uint8_t *data, size_t size)
{
    size_t step = data[0] ? (size_t)data[0] * data[0] : 1, at = 2;

    while (turn(p, fd) && at < size) {
        ssize_t n = send(fd, data + at, tei_min(step, size - at), MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n <= 0)
            break;
        at += (size_t)n;
    }
}

static void end(struct tcp_peer *p)
{
    atomic_store(&tcp.closed, true);
    tei_tcp_peer_cancel(p, NULL);
    tei_tcp_bundle_stop(&p->bundles[0]);
    tei_tcp_peer_put(p);
    while (tei_loop_turn(&worker.loop)) {} /* its last call frees the peer */
    tei_timer_stop(&worker.loop, &worker.watchdog);
    atomic_store(&tcp.closed, false);
}

static void check(void)
{
    static const char zeros[LENGTH];

    assert(tcp.live == 0);
    for (size_t i = 0; i < WORKS; i++) {
        assert(done[i]);
        assert(memcmp(memory[i], zeros, LENGTH) == 0);
        assert(memcmp(memory[i] + LENGTH, after[i], LENGTH) == 0);
        assert(memcmp(memory[i] + 2 * LENGTH, zeros, LENGTH) == 0);
        assert(works[i].entry.base.opcode == TE_READ || memcmp(after[i], zeros, LENGTH) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tcp_peer *p;
    int ends[2];

    if (!tcp.workers)
        set_up();
    if (size < 2 || size > INPUT_MAX || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends))
        return 0;
    conf.tcp_crc32c = data[1] & 0x80;
    tei_tcp_worker_enter(&worker);
    p = make_peer(data[1]);
    connect_lane(p, ends[1]);
    feed(p, ends[0], data, size);
    end(p);
    tei_tcp_worker_leave(&worker);
    close(ends[0]);
    check();
    return 0;
}
