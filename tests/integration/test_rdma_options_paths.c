/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=90 */
/*
 * The variables that say which way the rdma transport goes, for how long it tries, and what it tells:
 * seen in which NICs carry what, in what becomes of requests, and in the log.
 */
#include "fabric/verbs_record/record.h"
#include "patience.h"
#include "rdma_fabric.h"
#include "rdma_pair.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static struct rdma_pair p;

static void set(const char *name, const char *value)
{
    rdma_pair_set(RDMA_PAIR_BOTH, name, value);
}

static void begin_with(unsigned n, const char *keys)
{
    record_clear();
    rdma_pair_fabric(RDMA_PAIR_RECORDED, n, keys);
    rdma_pair_begin(&p);
}

static void begin(unsigned n)
{
    begin_with(n, NULL);
}

static int end(void **state)
{
    (void)state;
    rdma_pair_end(&p);
    record_clear();
    return 0;
}

static int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* -------------------------------------------------------------------------------- packet numbers */

/* What a queue pair was made to begin to send with. */
static uint32_t sends_from(uint32_t qp_num)
{
    struct record r;

    for (size_t i = 0; record_get(RECORD_MODIFY, NULL, i, &r); i++)
        if (r.qp_num == qp_num && (r.mask & IBV_QP_SQ_PSN))
            return r.attr.sq_psn;
    fail_msg("queue pair %u was not made to send", qp_num);
    return 0;
}

/* Each end awaits what the other one sends, and nobody else can know the number. */
static void packets_are_numbered_at_random(void **state)
{
    uint32_t last = 0, differ = 0;
    struct record r;
    size_t n = 0;

    (void)state;
    begin(1);
    rdma_pair_move(&p, TE_WRITE, 1000);
    for (size_t i = 0; record_get(RECORD_MODIFY, NULL, i, &r); i++) {
        if (!(r.mask & IBV_QP_RQ_PSN))
            continue;
        assert_int_equal(r.attr.rq_psn, sends_from(r.attr.dest_qp_num));
        differ |= n++ ? r.attr.rq_psn ^ last : 0;
        last = r.attr.rq_psn;
    }
    assert_true(n >= 2);
    assert_int_not_equal(differ, 0);
}

/* ------------------------------------------------------------------------------- which transports */

static void explain(char *out, size_t size)
{
    te_request r = {.opcode = TE_READ,
                    .source = p.am,
                    .target = p.seg,
                    .target_offset = (uintptr_t)p.bm,
                    .length = 1};

    assert_int_equal(te_explain(p.a, &r, out, size), 0);
}

static void rdma_by_itself(void **state)
{
    (void)state;
    begin(1);
    rdma_pair_move(&p, TE_READ, 1000);
    assert_int_equal(rdma_fabric_count("left0", "bytes"), 1000);
}

static void force_tcp(void **state)
{
    char text[2048];

    (void)state;
    set("MC_FORCE_TCP", "1");
    begin(1);
    rdma_pair_move(&p, TE_READ, 1000);
    assert_int_equal(rdma_fabric_count("left0", "bytes"), 0);
    assert_int_equal(record_count(RECORD_CQ, NULL), 0);
    explain(text, sizeof(text));
    assert_non_null(strstr(text, "MC_FORCE_TCP"));
}

static void force_hca(void **state)
{
    (void)state;
    set("MC_FORCE_HCA", "1");
    begin(1);
    rdma_pair_move(&p, TE_WRITE, 1000);
    assert_int_equal(rdma_fabric_count("left0", "bytes"), 1000);
}

static void force_hca_without_one(void **state)
{
    te_engine *e = NULL;

    (void)state;
    set("MC_FORCE_HCA", "1");
    set("TE_SYSFS_PATH", "/nonexistent");
    rdma_pair_fabric(RDMA_PAIR_RECORDED, 1, NULL);
    assert_int_not_equal(rdma_pair_engine(RDMA_PAIR_A, &e), 0);
    assert_non_null(strstr(te_errmsg(), "no RDMA device"));
}

/* ------------------------------------------------------------------------------------- which NICs */

/* Moves bytes; whether the NIC has carried any by then. One that is slow to connect has not, at first. */
static bool carries(const char *nic)
{
    rdma_pair_move(&p, TE_READ, RDMA_PAIR_SIZE);
    return rdma_fabric_count(nic, "bytes") > 0;
}

static void filters(void **state)
{
    (void)state;
    rdma_pair_set(RDMA_PAIR_A, "MC_TE_FILTERS", "left1,left2");
    begin(3);
    WAIT_FOR(carries("left1") && carries("left2"));
    assert_int_equal(record_count(RECORD_CQ, "left0"), 0);
}

static void filters_exclude(void **state)
{
    (void)state;
    rdma_pair_set(RDMA_PAIR_A, "MC_TE_FILTERS_EXCLUDE", "left2, left0");
    begin(3);
    WAIT_FOR(carries("left1"));
    assert_int_equal(record_count(RECORD_CQ, "left0"), 0);
    assert_int_equal(record_count(RECORD_CQ, "left2"), 0);
}

/* A file with a matrix, for `side`; removed by the kernel's temporary folder of the fabric. */
static void set_matrix(enum rdma_pair_side side, const char *path, const char *json)
{
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    fputs(json, f);
    fclose(f);
    rdma_pair_set(side, "MC_CUSTOM_TOPO_JSON", path);
}

static void custom_topology(void **state)
{
    char path[64];

    (void)state;
    snprintf(path, sizeof(path), "/tmp/te_matrix_a.%d", (int)getpid());
    set_matrix(RDMA_PAIR_A, path, "{\"cpu:0\": [[\"left2\"], [\"left1\"]]}");
    begin(3);
    unlink(path);
    rdma_pair_move(&p, TE_READ, RDMA_PAIR_SIZE);
    assert_int_equal(record_count(RECORD_CQ, "left0"), 0);
    assert_int_not_equal(record_count(RECORD_CQ, "left1"), 0);
    assert_int_equal(rdma_fabric_count("left1", "bytes"), 0); /* not preferred */
    assert_int_equal(rdma_fabric_count("left2", "bytes"), RDMA_PAIR_SIZE);
}

/*
 * The NIC that the first queue pair of `nic` was connected with, by the number at the end of its GID.
 * Later ones may be for other NICs, where this one was slow to connect.
 */
static unsigned first_peer(const char *nic)
{
    struct record r;

    for (size_t i = 0; record_get(RECORD_MODIFY, nic, i, &r); i++)
        if (r.mask & IBV_QP_AV)
            return r.attr.ah_attr.grh.dgid.raw[15];
    return 0;
}

/*
 * Both ends have NICs of the same names, as hosts of one cluster have. A prefers both, B the second:
 * without affinity the first one of A goes there, too.
 */
static void begin_with_namesakes(const char *affinity)
{
    char a[64], b[64];

    if (affinity)
        set("MC_ENABLE_DEST_DEVICE_AFFINITY", affinity);
    snprintf(a, sizeof(a), "/tmp/te_matrix_a.%d", (int)getpid());
    snprintf(b, sizeof(b), "/tmp/te_matrix_b.%d", (int)getpid());
    set_matrix(RDMA_PAIR_A, a, "{\"cpu:0\": [[\"left0\", \"left1\"], []]}");
    set_matrix(RDMA_PAIR_B, b, "{\"cpu:0\": [[\"left1\"], [\"left0\"]]}");
    begin(2);
    unlink(a);
    unlink(b);
    WAIT_FOR(carries("left0") && carries("left1"));
}

static void no_destination_affinity(void **state)
{
    (void)state;
    begin_with_namesakes(NULL);
    assert_int_equal(first_peer("left0"), 2);
}

static void destination_affinity(void **state)
{
    (void)state;
    begin_with_namesakes("1");
    assert_int_equal(first_peer("left0"), 1);
    assert_int_equal(first_peer("left1"), 2);
}

/* The NIC that a queue pair was connected with, by the number at the end of its GID. */
static unsigned peer_of(uint32_t qp_num)
{
    struct record r;

    for (size_t i = 0; record_get(RECORD_MODIFY, NULL, i, &r); i++)
        if (r.qp_num == qp_num && (r.mask & IBV_QP_AV))
            return r.attr.ah_attr.grh.dgid.raw[15];
    return 0;
}

/*
 * Two hosts of four NICs of the same names, and memory on different rails: A prefers the first NIC,
 * B the third. Where only rails carry, no NIC reaches one of another name.
 */
static void begin_on_rails(bool blocked)
{
    char a[64], b[64];

    record_clear();
    snprintf(a, sizeof(a), "/tmp/te_matrix_a.%d", (int)getpid());
    snprintf(b, sizeof(b), "/tmp/te_matrix_b.%d", (int)getpid());
    set_matrix(RDMA_PAIR_A, a, "{\"cpu:0\": [[\"left0\"], [\"left1\", \"left2\", \"left3\"]]}");
    set_matrix(RDMA_PAIR_B, b, "{\"cpu:0\": [[\"left2\"], [\"left0\", \"left1\", \"left3\"]]}");
    rdma_pair_fabric(RDMA_PAIR_RECORDED, 4, NULL);
    for (unsigned i = 0; blocked && i < 4; i++)
        for (unsigned j = i + 1; j < 4; j++)
            rdma_fabric_tell("block left%u left%u", i, j);
    rdma_pair_begin(&p);
    unlink(a);
    unlink(b);
}

/* Every slice left through the NIC, for the peer with that number, and no other pair is connected. */
static void check_all_through(const char *nic, unsigned peer)
{
    struct te_stats s = {.size = sizeof(s)};
    struct record r;
    size_t n = 0;

    for (; record_get(RECORD_WR, NULL, n, &r); n++) {
        assert_string_equal(r.nic, nic);
        assert_int_equal(peer_of(r.qp_num), peer);
    }
    assert_true(n >= RDMA_PAIR_SIZE / 65536);
    assert_int_equal(record_count(RECORD_QP, NULL), 4); /* two at each end */
    assert_int_equal(te_stats(p.a, &s), 0);
    assert_int_equal(s.retries, 0);
}

static void destination_affinity_on_rails(void **state)
{
    (void)state;
    set("MC_ENABLE_DEST_DEVICE_AFFINITY", "1");
    begin_on_rails(true);
    rdma_pair_move(&p, TE_WRITE, RDMA_PAIR_SIZE);
    check_all_through("left0", 1);
    rdma_pair_move(&p, TE_READ, RDMA_PAIR_SIZE);
    check_all_through("left0", 1);
}

/* Its port goes down: another NIC carries on, to its own namesake. */
static void destination_affinity_without_the_nic(void **state)
{
    struct record r;

    (void)state;
    set("MC_ENABLE_DEST_DEVICE_AFFINITY", "1");
    begin_on_rails(true);
    rdma_pair_move(&p, TE_WRITE, RDMA_PAIR_SIZE);
    rdma_fabric_tell("port left0 down");
    rdma_pair_move(&p, TE_WRITE, RDMA_PAIR_SIZE);
    WAIT_FOR(carries("left1"));
    for (size_t i = 0; record_get(RECORD_WR, "left1", i, &r); i++)
        assert_int_equal(peer_of(r.qp_num), 2);
}

/* The peer has no NIC of that name: any other will do. */
static void destination_affinity_without_a_namesake(void **state)
{
    char b[64];

    (void)state;
    set("MC_ENABLE_DEST_DEVICE_AFFINITY", "1");
    rdma_pair_set(RDMA_PAIR_A, "MC_TE_FILTERS", "left0");
    snprintf(b, sizeof(b), "/tmp/te_matrix_b.%d", (int)getpid());
    set_matrix(RDMA_PAIR_B, b, "{\"cpu:0\": [[\"left2\"], [\"left1\"]]}");
    begin(3);
    unlink(b);
    rdma_pair_move(&p, TE_WRITE, RDMA_PAIR_SIZE);
    check_all_through("left0", 3);
}

/* What the peer prefers brings no NIC of ours into use that the source does not prefer. */
static void peer_affinity_of_preferred(void **state)
{
    (void)state;
    set("MC_ENABLE_HCA_PEER_AFFINITY", "1");
    set("MC_NIC_PEER_AFFINITY", "left0=left0;left1=left1;left2=left2;left3=left3");
    begin_on_rails(false);
    rdma_pair_move(&p, TE_WRITE, RDMA_PAIR_SIZE);
    check_all_through("left0", 1);
}

static void peer_affinity_on_rails(void **state)
{
    (void)state;
    set("MC_ENABLE_HCA_PEER_AFFINITY", "1");
    set("MC_NIC_PEER_AFFINITY", "left0=left0;left1=left1;left2=left2;left3=left3");
    begin_on_rails(true);
    rdma_pair_move(&p, TE_WRITE, RDMA_PAIR_SIZE);
    rdma_pair_move(&p, TE_READ, RDMA_PAIR_SIZE);
    check_all_through("left0", 1);
}

static void peer_affinity(void **state)
{
    (void)state;
    set("MC_ENABLE_HCA_PEER_AFFINITY", "1");
    set("MC_NIC_PEER_AFFINITY", "left0=right1; left1=right0");
    begin(2);
    WAIT_FOR(carries("left0") && carries("left1"));
    assert_int_equal(first_peer("left0"), 4); /* right1 */
    assert_int_equal(first_peer("left1"), 3);
}

/* Rules that are not asked for are no rules; and by position left0 goes to right0. */
static void peer_affinity_off(void **state)
{
    (void)state;
    set("MC_ENABLE_HCA_PEER_AFFINITY", "0");
    set("MC_NIC_PEER_AFFINITY", "left0=right1;left1=right0");
    begin(2);
    WAIT_FOR(carries("left0") && carries("left1"));
    assert_int_equal(first_peer("left0"), 3);
    assert_int_equal(first_peer("left1"), 4);
}

static void peer_affinity_malformed(void **state)
{
    te_engine *e = NULL;

    (void)state;
    set("MC_ENABLE_HCA_PEER_AFFINITY", "1");
    set("MC_NIC_PEER_AFFINITY", "left0");
    set("MC_FORCE_HCA", "1");
    rdma_pair_fabric(RDMA_PAIR_RECORDED, 1, NULL);
    assert_int_not_equal(rdma_pair_engine(RDMA_PAIR_A, &e), 0);
    assert_non_null(strstr(te_errmsg(), "MC_NIC_PEER_AFFINITY"));
}

/* Two NICs, the second of which is slow. */
static void begin_uneven(const char *roundrobin)
{
    if (roundrobin)
        set("MC_PATH_ROUNDROBIN", roundrobin);
    rdma_pair_fabric(RDMA_PAIR_RECORDED, 2, "\"gbps\":2");
    rdma_fabric_tell("slow left1 0.4");
    rdma_pair_begin(&p);
}

/*
 * The part of the bytes that the slow one carries, of requests one at a time: many at once go wherever
 * there is room.
 */
static double slow_share(void)
{
    const size_t n = 128, length = 65536;
    uint64_t fast = rdma_fabric_count("left0", "bytes"), slow = rdma_fabric_count("left1", "bytes");

    for (size_t i = 0; i < n; i++)
        rdma_pair_move(&p, TE_READ, length);
    fast = rdma_fabric_count("left0", "bytes") - fast;
    slow = rdma_fabric_count("left1", "bytes") - slow;
    assert_int_equal(fast + slow, n * length);
    return (double)slow / (double)(fast + slow);
}

/* The machine may hold up the fast one now and then, but not each time. In turn would be one half. */
static void best_path(void **state)
{
    double share = 1;

    (void)state;
    begin_uneven(NULL);
    for (int i = 0; i < 20 && share > 0.35; i++)
        share = slow_share();
    if (share > 0.35)
        fail_msg("share %.3f", share);
}

static void paths_in_turn(void **state)
{
    double share;

    (void)state;
    begin_uneven("1");
    share = slow_share();
    if (share < 0.48 || share > 0.52)
        fail_msg("share %.3f", share);
}

static void bind_address(void **state)
{
    (void)state;
    rdma_pair_set(RDMA_PAIR_B, "MC_RDMA_BIND_ADDRESS", "10.9.8.7");
    begin(1);
    rdma_pair_keep_log(TE_LOG_DEBUG);
    rdma_pair_move(&p, TE_READ, 100);
    assert_int_equal(rdma_pair_logged("left0 to 10.9.8.7@right0", "connected"), 1);
}

/* -------------------------------------------------------------------------------- tries and times */

/* How often a slice is posted that always fails. */
static size_t tries(const char *retries)
{
    struct te_status st;
    char msg[512];

    set("MC_RETRY_CNT", retries);
    begin(1);
    rdma_pair_move(&p, TE_READ, 100);
    record_clear();
    rdma_fabric_tell("fail left0 status=RETRY_EXC nth=1 count=1000");
    st = rdma_pair_try(&p, TE_READ, 100, msg, sizeof(msg));
    assert_int_equal(st.state, TE_FAILED);
    assert_int_equal(st.error, TE_ERR_LINK);
    return record_count(RECORD_WR, "left0");
}

static void one_try(void **state)
{
    (void)state;
    assert_int_equal(tries("0"), 1);
}

static void five_retries(void **state)
{
    (void)state;
    assert_int_equal(tries("5"), 6);
}

static void slice_timeout(void **state)
{
    int64_t from, took;
    struct te_status st;
    char msg[512];

    (void)state;
    set("MC_SLICE_TIMEOUT", "1");
    set("MC_RETRY_CNT", "127");
    set("TE_TRANSFER_TIMEOUT_MS", "0"); /* nothing else ends it */
    begin(1);
    rdma_pair_move(&p, TE_READ, 100);
    rdma_fabric_tell("stall left0 86400000");
    from = now_ms();
    st = rdma_pair_try(&p, TE_READ, 100, msg, sizeof(msg));
    took = now_ms() - from;
    rdma_fabric_tell("clear left0");
    assert_int_equal(st.error, TE_ERR_TIMEOUT);
    assert_true(took >= 950);
}

/* Whether the NIC has paused for a second twice. The second of two long pauses must not be much longer:
 * a machine that stalls makes some longer, but not all that follow. */
static bool has_paused(const char *nic)
{
    int64_t last = -1, pauses = 0;
    struct record r;

    for (size_t i = 0; record_get(RECORD_WR, nic, i, &r); i++) {
        int64_t gap = last < 0 ? 0 : r.at_ms - last;

        pauses += gap >= 950;
        if (pauses > 1 && gap >= 950 && gap < 1450)
            return true;
        last = r.at_ms;
    }
    return false;
}

/*
 * A rail that fails again and again while another works: pauses double from 0.1 s on, but the fifth,
 * which would be of 1.6 s, is of 1 s, and so are those after it.
 */
static void rail_pause(void **state)
{
    int64_t from;

    (void)state;
    set("MC_RDMA_RAIL_PAUSE_SECONDS", "1");
    begin(2);
    rdma_pair_move(&p, TE_READ, RDMA_PAIR_SIZE);
    record_clear();
    rdma_fabric_tell("fail left0 status=RETRY_EXC nth=1 count=1000000");
    for (from = now_ms(); !has_paused("left0") && now_ms() < from + PATIENCE_MS; usleep(10000))
        rdma_pair_move(&p, TE_READ, 100000);
    assert_true(has_paused("left0"));
    assert_true(record_count(RECORD_WR, "left1") > 100);
}

#define FRAME_HEAD 9 /* bytes: the length and the type (docs/protocol.md) */

/* A handshake port at which nobody shakes hands: counts who comes to connect NICs, and hangs up. */
struct deaf {
    pthread_t thread;
    int fd;
    _Atomic int hellos;
    _Atomic bool stop;
};

static void *be_deaf(void *arg)
{
    struct deaf *d = arg;

    while (!d->stop) {
        char text[4096];
        struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
        ssize_t n;
        int fd = accept(d->fd, NULL, NULL);

        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        n = recv(fd, text, sizeof(text), 0);
        for (ssize_t more = 1; n > 0 && n < FRAME_HEAD && more > 0; n += more > 0 ? more : 0)
            more = recv(fd, text + n, sizeof(text) - (size_t)n, 0);
        if (n >= FRAME_HEAD && text[FRAME_HEAD - 1] == 0) /* type 0, connection */
            d->hellos++;
        close(fd);
    }
    return NULL;
}

/* Takes the place of engine B. */
static void deafen(struct deaf *d)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_usec = 100000};
    char addr[300];
    int on = 1;

    assert_int_equal(te_engine_addr(p.b, addr, sizeof(addr)), 0);
    at.sin_port = htons((uint16_t)atoi(strrchr(addr, ':') + 1));
    te_engine_destroy(p.b);
    p.b = NULL;
    d->fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(d->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(d->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    assert_int_equal(bind(d->fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(d->fd, 16), 0);
    assert_int_equal(pthread_create(&d->thread, NULL, be_deaf, d), 0);
}

static void hear_again(struct deaf *d)
{
    d->stop = true;
    shutdown(d->fd, SHUT_RDWR);
    pthread_join(d->thread, NULL);
    close(d->fd);
}

static void fail_one(void)
{
    char msg[512];

    assert_int_equal(rdma_pair_try(&p, TE_READ, 100, msg, sizeof(msg)).state, TE_FAILED);
}

static void no_connection_pause(void **state)
{
    struct deaf d = {.fd = -1};
    int first;

    (void)state;
    begin(1);
    deafen(&d);
    fail_one();
    first = d.hellos;
    fail_one();
    assert_true(first > 1);
    assert_true(d.hellos > first);
    hear_again(&d);
}

/*
 * A thread that gives way to all others: when it begins a connection, that often fails before the
 * thread is on with what was to go over it. Returns NULL, or what is wrong.
 */
static void *fail_slowly(void *arg)
{
    struct sched_param none = {0};
    char msg[512];

    (void)arg;
    if (pthread_setschedparam(pthread_self(), SCHED_IDLE, &none) != 0)
        return "SCHED_IDLE is not allowed";
    return rdma_pair_try(&p, TE_READ, 100, msg, sizeof(msg)).state == TE_FAILED ? NULL
                                                                                : "no failure";
}

static void fail_at_once(size_t n)
{
    pthread_t threads[4];

    for (size_t i = 0; i < n; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fail_slowly, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        void *wrong;

        pthread_join(threads[i], &wrong);
        if (wrong)
            fail_msg("%s", (const char *)wrong);
    }
}

/* All threads that begin from now on, engines' too, share one CPU; the former ones are in `old`. */
static void share_a_cpu(cpu_set_t *old)
{
    cpu_set_t one;

    assert_int_equal(sched_getaffinity(0, sizeof(*old), old), 0);
    CPU_ZERO(&one);
    for (size_t i = 0; CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, old))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
}

/*
 * Requests of `n` threads to a peer that hangs up make one connection, wherever each is when it
 * fails.
 */
static void one_connection_of(size_t n)
{
    struct te_stats st = {.size = sizeof(st)};
    cpu_set_t cpus;

    share_a_cpu(&cpus);
    for (int round = 0; round < 10; round++) {
        struct deaf d = {.fd = -1};

        set("MC_CONN_PAUSE_TTL_MS", "600000");
        set("MC_RETRY_CNT", "0");
        begin(1);
        deafen(&d);
        fail_at_once(n);
        fail_one();
        hear_again(&d);
        assert_int_equal(te_stats(p.a, &st), 0);
        assert_int_equal(d.hellos, 1);
        assert_int_equal(st.retries, 0);
        end(NULL);
    }
    assert_int_equal(sched_setaffinity(0, sizeof(cpus), &cpus), 0);
}

static void one_connection(void **state)
{
    (void)state;
    one_connection_of(1);
}

static void one_connection_of_many(void **state)
{
    (void)state;
    one_connection_of(4);
}

static void connection_pause(void **state)
{
    struct deaf d = {.fd = -1};
    int64_t from;
    int before;

    (void)state;
    set("MC_CONN_PAUSE_TTL_MS", "3000");
    set("MC_RETRY_CNT", "0"); /* for pauses between tries may be longer */
    begin(1);
    deafen(&d);
    from = now_ms();
    fail_one();
    assert_int_equal(d.hellos, 1);
    fail_one();
    if (now_ms() < from + 3000) /* or else this was the next try already */
        assert_int_equal(d.hellos, 1);
    before = d.hellos;
    for (from = now_ms(); now_ms() < from + 3100;)
        usleep(10000);
    fail_one();
    assert_int_equal(d.hellos, before + 1);
    hear_again(&d);
}

/* -------------------------------------------------------------------------------------- diagnosis */

static void slices_in_the_log(void **state)
{
    (void)state;
    set("MC_LOG_RDMA_SLICE_AFFINITY", "1");
    begin(1);
    rdma_pair_keep_log(TE_LOG_INFO);
    rdma_pair_move(&p, TE_READ, 1 << 20);
    assert_int_equal(rdma_pair_logged("read of 65536 bytes", "through left0 to 127.0.0.1"), 16);
    rdma_pair_move(&p, TE_WRITE, 100);
    assert_int_equal(rdma_pair_logged("write of 100 bytes", "@right0"), 1);
}

static void no_slices_in_the_log(void **state)
{
    (void)state;
    begin(1);
    rdma_pair_keep_log(TE_LOG_DEBUG);
    rdma_pair_move(&p, TE_READ, 1 << 20);
    assert_int_equal(rdma_pair_logged("bytes at", NULL), 0);
}

/* The NIC completes nothing until the engine has given up waiting for it. */
static void *end_of_stall(void *arg)
{
    (void)arg;
    WAIT_FOR(rdma_pair_logged("no completion", NULL) > 0);
    rdma_fabric_tell("stall left0 0");
    return NULL;
}

/* What was out when no completion came. */
static void lose_some(void)
{
    pthread_t thread;

    begin(1);
    rdma_pair_move(&p, TE_READ, 100);
    rdma_pair_keep_log(TE_LOG_DEBUG);
    rdma_fabric_tell("stall left0 3600000");
    assert_int_equal(pthread_create(&thread, NULL, end_of_stall, NULL), 0);
    rdma_pair_move(&p, TE_READ, 3 * 65536);
    pthread_join(thread, NULL);
}

static void posted_slices(void **state)
{
    (void)state;
    set("MC_TRACK_RDMA_POSTED_SLICES", "1");
    lose_some();
    assert_int_not_equal(rdma_pair_logged("ends with 3 slices posted", "no completion"), 0);
    assert_true(rdma_pair_logged("read of 65536 bytes", "ms ago to queue pair") >= 3);
}

static void no_posted_slices(void **state)
{
    (void)state;
    lose_some();
    assert_int_equal(rdma_pair_logged("slices posted", NULL), 0);
    assert_int_equal(rdma_pair_logged("ms ago", NULL), 0);
}

#define TEST(f) cmocka_unit_test_teardown(f, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(packets_are_numbered_at_random),
        TEST(rdma_by_itself),
        TEST(force_tcp),
        TEST(force_hca),
        TEST(force_hca_without_one),
        TEST(filters),
        TEST(filters_exclude),
        TEST(custom_topology),
        TEST(no_destination_affinity),
        TEST(destination_affinity),
        TEST(destination_affinity_on_rails),
        TEST(destination_affinity_without_the_nic),
        TEST(destination_affinity_without_a_namesake),
        TEST(peer_affinity),
        TEST(peer_affinity_of_preferred),
        TEST(peer_affinity_on_rails),
        TEST(peer_affinity_off),
        TEST(peer_affinity_malformed),
        TEST(best_path),
        TEST(paths_in_turn),
        TEST(bind_address),
        TEST(one_try),
        TEST(five_retries),
        TEST(slice_timeout),
        TEST(rail_pause),
        TEST(no_connection_pause),
        TEST(one_connection),
        TEST(one_connection_of_many),
        TEST(connection_pause),
        TEST(slices_in_the_log),
        TEST(no_slices_in_the_log),
        TEST(posted_slices),
        TEST(no_posted_slices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
