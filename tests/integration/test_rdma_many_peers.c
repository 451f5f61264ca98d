/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=120 */
/*
 * One engine that reads from many more peers than its NIC may have endpoints: each peer is an engine
 * of its own, with its own name, port and memory; they live in a few processes. What room there is goes
 * from peer to peer, and nobody notices but by the time it takes.
 */
#include "child_engine.h"
#include "patience.h"
#include "rdma_fabric.h"
#include "rdma_pair.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define PEERS 200u
#else
#define PEERS 1000u
#endif
#define PROCESSES 4u
#define POOL      64u
#define ROUNDS    4u  /* reads from each peer */
#define MANY      64u /* requests under way */
#define PER_PEER  (64u << 10)

/* Shared with the processes of the peers. */
struct stage {
    char name[PEERS][64];
    _Atomic bool bad;
    unsigned char memory[PEERS][PER_PEER];
};

static struct stage *stage;
static pid_t processes[PROCESSES];
static int done_fd = -1;

/* ------------------------------------------------------------------------------------- the peers */

static bool start_peer(unsigned i)
{
    te_engine *e;

    return rdma_pair_engine(RDMA_PAIR_B, &e) == 0 &&
           te_register(e, stage->memory[i], PER_PEER, "cpu:0", TE_REMOTE_READ) == 0 &&
           te_engine_name(e, stage->name[i], sizeof(stage->name[i])) == 0;
}

/* Its engines end with the process, which takes no time. */
static void serve(unsigned process, int ready, int done)
{
    char byte = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (unsigned i = process; i < PEERS; i += PROCESSES)
        if (!start_peer(i)) {
            fprintf(stderr, "peer %u: %s\n", i, te_errmsg());
            stage->bad = true;
            break;
        }
    (void)!write(ready, &byte, 1);
    while (read(done, &byte, 1) > 0)
        continue;
    raise(SIGKILL); /* no sanitizer is to look for what engines leave that nobody destroys */
}

static void start_peers(void)
{
    int ready[2], done[2];
    char byte;

    stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(stage, MAP_FAILED);
    for (unsigned i = 0; i < PEERS; i++)
        fill(stage->memory[i], PER_PEER, i + 1);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(done), 0);
    for (unsigned k = 0; k < PROCESSES; k++) {
        processes[k] = fork();
        assert_true(processes[k] >= 0);
        if (processes[k] == 0) {
            close(done[1]);
            serve(k, ready[1], done[0]);
        }
    }
    close(ready[1]);
    close(done[0]);
    done_fd = done[1];
    for (unsigned k = 0; k < PROCESSES; k++)
        assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    assert_false(stage->bad);
}

static void stop_peers(void)
{
    if (done_fd >= 0)
        close(done_fd);
    done_fd = -1;
    for (unsigned k = 0; k < PROCESSES; k++)
        if (processes[k] > 0)
            waitpid(processes[k], NULL, 0);
    memset(processes, 0, sizeof(processes));
    if (stage)
        munmap(stage, sizeof(*stage));
    stage = NULL;
}

/* --------------------------------------------------------------------------------- what is watched */

static _Atomic bool watching;
static pthread_t watcher;
static _Atomic uint64_t most_queue_pairs, most_connections;
static te_engine *engine;

static void note_most(_Atomic uint64_t *most, uint64_t now)
{
    if (now > *most)
        *most = now;
}

static uint64_t connections(void)
{
    struct te_stats s = {.size = sizeof(s)};

    assert_int_equal(te_stats(engine, &s), 0);
    return s.connections;
}

static void *watch(void *arg)
{
    bool last;

    (void)arg;
    do { /* once more when it is to end, so that it has looked at all */
        last = !watching;
        note_most(&most_queue_pairs, rdma_fabric_count("left0", "qps"));
        note_most(&most_connections, connections());
        usleep(2000);
    } while (!last);
    return NULL;
}

static void watch_on(void)
{
    most_queue_pairs = most_connections = 0;
    watching = true;
    assert_int_equal(pthread_create(&watcher, NULL, watch, NULL), 0);
}

static void watch_no_more(void)
{
    if (watching) {
        watching = false;
        pthread_join(watcher, NULL);
    }
}

static double now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static long resident_kib(void)
{
    long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &size, &resident), 2);
    fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* ------------------------------------------------------------------------------------------- reads */

static te_segment segments[PEERS];
static unsigned char *memory; /* MANY times PER_PEER */
static uint32_t dice;

static uint32_t roll(uint32_t below)
{
    dice ^= dice << 13;
    dice ^= dice >> 17;
    dice ^= dice << 5;
    return dice % below;
}

struct flight {
    te_batch batch;
    unsigned peer;
    size_t at, n;
};

static void begin_read(struct flight *f, unsigned slot, unsigned peer)
{
    te_request r;

    f->peer = peer;
    f->at = roll(PER_PEER);
    f->n = 1 + roll((uint32_t)(PER_PEER - f->at));
    r = (te_request){.opcode = TE_READ,
                     .source = memory + (size_t)slot * PER_PEER,
                     .target = segments[peer],
                     .target_offset = (uintptr_t)stage->memory[peer] + f->at,
                     .length = f->n};
    memset(r.source, 0xee, f->n);
    assert_int_equal(te_batch_alloc(engine, 1, &f->batch), 0);
    assert_int_equal(te_submit(engine, f->batch, &r, 1, NULL), 0);
}

static void end_read(struct flight *f, unsigned slot)
{
    struct te_status st;
    char msg[512];

    assert_int_equal(te_wait(engine, f->batch, PATIENCE_MS), 0);
    assert_int_equal(te_status(engine, f->batch, 0, &st), 0);
    if (st.state != TE_COMPLETED) {
        (void)te_status_msg(engine, f->batch, 0, msg, sizeof(msg));
        fail_msg("peer %u: %s", f->peer, msg);
    }
    assert_memory_equal(memory + (size_t)slot * PER_PEER, stage->memory[f->peer] + f->at, f->n);
    assert_int_equal(te_batch_free(engine, f->batch), 0);
}

/* Each peer ROUNDS times, in an order that has no pattern. */
static void read_from_all(void)
{
    static unsigned order[PEERS * ROUNDS];
    static struct flight flights[MANY];
    const unsigned n = PEERS * ROUNDS;

    for (unsigned i = 0; i < n; i++)
        order[i] = i % PEERS;
    for (unsigned i = n; i-- > 1;) {
        unsigned k = roll(i + 1), other = order[k];

        order[k] = order[i];
        order[i] = other;
    }
    for (unsigned i = 0; i < n + MANY; i++) {
        if (i >= MANY)
            end_read(&flights[i % MANY], i % MANY);
        if (i < n)
            begin_read(&flights[i % MANY], i % MANY, order[i]);
    }
}

static void open_all(void)
{
    memory = map_pages((size_t)MANY * PER_PEER);
    assert_int_equal(te_register(engine, memory, (size_t)MANY * PER_PEER, "cpu:0", TE_LOCAL_ONLY),
                     0);
    for (unsigned i = 0; i < PEERS; i++)
        assert_int_equal(te_open(engine, stage->name[i], &segments[i]), 0);
}

static void run_all(const char *store)
{
    long before, after;
    double from, took;

    rdma_pair_set(RDMA_PAIR_BOTH, "MC_WORKERS_PER_CTX", "1");
    rdma_pair_set(RDMA_PAIR_BOTH, "MC_LOG_LEVEL", "WARNING");
    rdma_pair_set(RDMA_PAIR_A, "MC_MAX_EP_PER_CTX", "64");
    rdma_pair_set(RDMA_PAIR_A, "MC_ENDPOINT_STORE_TYPE", store);
    rdma_pair_fabric(RDMA_PAIR_PLAIN, 1, NULL);
    dice = 2463534242u;
    start_peers();
    assert_int_equal(rdma_pair_engine(RDMA_PAIR_A, &engine), 0);
    before = resident_kib();
    open_all();
    watch_on();
    from = now_s();
    read_from_all();
    took = now_s() - from;
    after = resident_kib();
    watch_no_more();
    printf("%s: %u reads from %u peers in %.2f s; at most %u connections, %u queue pairs; "
           "%.1f KiB resident for each peer\n",
           store, PEERS * ROUNDS, PEERS, took, (unsigned)most_connections,
           (unsigned)most_queue_pairs, (double)(after - before) / PEERS);
    assert_true(most_connections <= POOL);
    assert_true(most_queue_pairs <= 2 * POOL);
    assert_true(most_queue_pairs > POOL); /* it was used, too */
}

static int end(void **state)
{
    struct rdma_pair none = {.a = NULL};

    (void)state;
    watch_no_more();
    te_engine_destroy(engine);
    engine = NULL;
    if (memory)
        munmap(memory, (size_t)MANY * PER_PEER);
    memory = NULL;
    stop_peers();
    rdma_pair_end(&none);
    return 0;
}

static void many_peers_sieve(void **state)
{
    (void)state;
    run_all("SIEVE");
}

static void many_peers_fifo(void **state)
{
    (void)state;
    run_all("FIFO");
}

/* ------------------------------------------------------------------------- which one makes room */

#define FEW 5

static te_engine *few[FEW];
static unsigned char *few_memory[FEW];

static uint64_t connects(void)
{
    struct te_stats s = {.size = sizeof(s)};

    assert_int_equal(te_stats(engine, &s), 0);
    return s.reconnects;
}

/* How many connections a read from a peer takes. */
static uint64_t read_one(unsigned i)
{
    uint64_t before = connects();
    struct flight f = {.n = 100};
    te_request r = {.opcode = TE_READ,
                    .source = memory,
                    .target = segments[i],
                    .target_offset = (uintptr_t)few_memory[i],
                    .length = f.n};
    struct te_status st;

    assert_int_equal(te_batch_alloc(engine, 1, &f.batch), 0);
    assert_int_equal(te_submit(engine, f.batch, &r, 1, NULL), 0);
    assert_int_equal(te_wait(engine, f.batch, PATIENCE_MS), 0);
    assert_int_equal(te_status(engine, f.batch, 0, &st), 0);
    assert_int_equal(st.state, TE_COMPLETED);
    assert_memory_equal(memory, few_memory[i], f.n);
    assert_int_equal(te_batch_free(engine, f.batch), 0);
    return connects() - before;
}

/*
 * With room for three: peer 0 makes room for peer 3. Then, peers 1 and 2 being the oldest and 1 having
 * been used since, who makes room for peer 4?
 */
static void begin_few(const char *store)
{
    char name[300];

    rdma_pair_set(RDMA_PAIR_A, "MC_MAX_EP_PER_CTX", "3");
    rdma_pair_set(RDMA_PAIR_A, "MC_ENDPOINT_STORE_TYPE", store);
    rdma_pair_fabric(RDMA_PAIR_PLAIN, 1, NULL);
    assert_int_equal(rdma_pair_engine(RDMA_PAIR_A, &engine), 0);
    memory = map_pages((size_t)MANY * PER_PEER);
    assert_int_equal(te_register(engine, memory, PER_PEER, "cpu:0", TE_LOCAL_ONLY), 0);
    for (unsigned i = 0; i < FEW; i++) {
        assert_int_equal(rdma_pair_engine(RDMA_PAIR_B, &few[i]), 0);
        few_memory[i] = map_pages(PER_PEER);
        fill(few_memory[i], PER_PEER, i);
        assert_int_equal(te_register(few[i], few_memory[i], PER_PEER, "cpu:0", TE_REMOTE_RW), 0);
        assert_int_equal(te_engine_name(few[i], name, sizeof(name)), 0);
        assert_int_equal(te_open(engine, name, &segments[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(read_one(i), 1);
    assert_int_equal(read_one(1), 0);
    assert_int_equal(read_one(4), 1);
}

static int end_few(void **state)
{
    for (unsigned i = 0; i < FEW; i++) {
        te_engine_destroy(few[i]);
        few[i] = NULL;
        if (few_memory[i])
            munmap(few_memory[i], PER_PEER);
        few_memory[i] = NULL;
    }
    return end(state);
}

static void sieve_spares_who_was_used(void **state)
{
    (void)state;
    begin_few("SIEVE");
    assert_int_equal(read_one(1), 0);
    assert_int_equal(read_one(2), 1);
}

static void fifo_takes_the_oldest(void **state)
{
    (void)state;
    begin_few("FIFO");
    assert_int_equal(read_one(2), 0);
    assert_int_equal(read_one(1), 1);
}

/* ----------------------------------------------------------------------------------- who is asked */

#define ASKERS 12

static te_engine *askers[ASKERS];

static int end_askers(void **state)
{
    for (unsigned i = 0; i < ASKERS; i++) {
        te_engine_destroy(askers[i]);
        askers[i] = NULL;
    }
    return end(state);
}

static void ask(unsigned i, te_segment from, const unsigned char *there)
{
    unsigned char *here = memory + (size_t)i * PER_PEER;
    te_request r = {.opcode = TE_READ,
                    .source = here,
                    .target = from,
                    .target_offset = (uintptr_t)there,
                    .length = PER_PEER};
    struct te_status st;
    te_batch b;

    memset(here, 0, PER_PEER);
    assert_int_equal(te_batch_alloc(askers[i], 1, &b), 0);
    assert_int_equal(te_submit(askers[i], b, &r, 1, NULL), 0);
    assert_int_equal(te_wait(askers[i], b, PATIENCE_MS), 0);
    assert_int_equal(te_status(askers[i], b, 0, &st), 0);
    assert_int_equal(st.state, TE_COMPLETED);
    assert_memory_equal(here, there, PER_PEER);
    assert_int_equal(te_batch_free(askers[i], b), 0);
    assert_true(rdma_fabric_count("right0", "qps") <= 2 * 4);
}

/* An engine with room for four, from which twelve read in turn: the one asked is `engine`. */
static void asked_by_many(void **state)
{
    unsigned char *there = map_pages(PER_PEER);
    te_segment segment[ASKERS];
    char name[300];

    (void)state;
    rdma_pair_set(RDMA_PAIR_B, "MC_MAX_EP_PER_CTX", "4");
    rdma_pair_fabric(RDMA_PAIR_PLAIN, 1, NULL);
    memory = map_pages((size_t)MANY * PER_PEER);
    fill(there, PER_PEER, 1);
    assert_int_equal(rdma_pair_engine(RDMA_PAIR_B, &engine), 0);
    assert_int_equal(te_register(engine, there, PER_PEER, "cpu:0", TE_REMOTE_READ), 0);
    assert_int_equal(te_engine_name(engine, name, sizeof(name)), 0);
    for (unsigned i = 0; i < ASKERS; i++) {
        assert_int_equal(rdma_pair_engine(RDMA_PAIR_A, &askers[i]), 0);
        assert_int_equal(te_register(askers[i], memory + (size_t)i * PER_PEER, PER_PEER, "cpu:0",
                                     TE_LOCAL_ONLY),
                         0);
        assert_int_equal(te_open(askers[i], name, &segment[i]), 0);
    }
    for (unsigned i = 0; i < 2 * ASKERS; i++)
        ask(i % ASKERS, segment[i % ASKERS], there);
    te_engine_destroy(engine);
    engine = NULL;
    munmap(there, PER_PEER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(many_peers_sieve, end),
        cmocka_unit_test_teardown(many_peers_fifo, end),
        cmocka_unit_test_teardown(sieve_spares_who_was_used, end_few),
        cmocka_unit_test_teardown(fifo_takes_the_oldest, end_few),
        cmocka_unit_test_teardown(asked_by_many, end_askers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
