/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te-test: timeout=90
 *
 * What fails on the way: completions with errors, ports, queues and devices, at either end. Transfers
 * go on by what is left, every byte arrives, and what comes back is used again.
 */
#include "conformance.h"
#include "rdma_fabric.h"

#include "base/err.h"
#include "base/os.h"
#include "proc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NICS   2
#define FLIGHT 32
#define PART   (PAIR_BYTES / FLIGHT)

static size_t fds, threads;

static struct pair *open_pair_with(void (*configure)(struct tei_conf *c))
{
    static struct conformance with = {.transport = "rdma"};
    struct pair *p;

    with.configure = configure;
    with.topology[0] = rdma_fabric_topology(false);
    with.topology[1] = rdma_fabric_topology(true);
    p = pair_open(&with);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    return p;
}

static struct pair *open_pair(void)
{
    return open_pair_with(rdma_fabric_configure);
}

static void post_all(struct pair *p, struct fake_task *tasks)
{
    struct tei_list list;

    tei_list_init(&list);
    for (size_t i = 0; i < FLIGHT; i++)
        fake_work(&list, p->a, p->attach, &tasks[i], i % 2 ? TE_WRITE : TE_READ, p->am + i * PART,
                  p->bm + i * PART, PART);
    p->a->ops.post(p->a, &list);
}

static void check_all(struct pair *p, struct fake_task *tasks)
{
    assert_true(fake_wait(&p->ha, NULL, tasks, FLIGHT, PATIENCE_MS));
    for (size_t i = 0; i < FLIGHT; i++)
        assert_int_equal(tasks[i].error, 0);
    assert_memory_equal(p->am, p->bm, PAIR_BYTES);
}

static void refill(struct pair *p, uint32_t seed)
{
    fill_pattern(p->am, PAIR_BYTES, seed);
    fill_pattern(p->bm, PAIR_BYTES, seed + 1000);
}

/* Everything arrives though `fault` hits while it is under way. */
static void survive(struct pair *p, const char *fault, unsigned delay_us)
{
    struct fake_task tasks[FLIGHT];

    refill(p, delay_us);
    post_all(p, tasks);
    usleep(delay_us);
    rdma_fabric_tell("%s", fault);
    check_all(p, tasks);
}

static uint64_t bytes_of(const char *nic)
{
    return rdma_fabric_count(nic, "bytes");
}

/* Whether the NIC comes to carry a part of what is sent. */
static bool comes_back(struct pair *p, const char *nic)
{
    uint64_t before = bytes_of(nic);

    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        assert_int_equal(fake_transfer(p->a, p->attach, i % 2, p->am, p->bm, PAIR_BYTES), 0);
        if (bytes_of(nic) - before > PAIR_BYTES / 4)
            return true;
        usleep(10000);
    }
    return false;
}

/* Whether the target tells its peers to use this NIC. */
static bool describes(struct pair *p, const char *nic)
{
    json_t *root = json_object();
    char *text;
    bool found;

    assert_int_equal(p->b->ops.describe(p->b, root), 0);
    text = json_dumps(json_object_get(root, "priority_matrix"), 0);
    assert_non_null(text);
    found = strstr(text, nic) != NULL;
    free(text);
    json_decref(root);
    return found;
}

static void errors_of_completions(void **state)
{
    static const char *const statuses[] = {"RETRY_EXC",     "WR_FLUSH",    "LOC_QP_OP", "LOC_PROT",
                                           "BAD_RESP",      "REM_OP",      "GENERAL",   "FATAL",
                                           "RNR_RETRY_EXC", "RESP_TIMEOUT"};
    struct pair *p = open_pair();

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(statuses); i++) {
        struct fake_task tasks[FLIGHT];

        refill(p, (uint32_t)i);
        rdma_fabric_tell("fail left%zu status=%s nth=%zu moved=%zu", i % 2, statuses[i], 1 + i * 5,
                         i % 3 / 2);
        post_all(p, tasks);
        check_all(p, tasks);
    }
    assert_true(comes_back(p, "left0"));
    assert_true(comes_back(p, "left1"));
    pair_close(p);
}

/* The story of a work has the slices that went out again, and that they went by another rail. */
static void a_story_has_the_change(void **state)
{
    struct tei_story story = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct pair *p = open_pair();
    struct fake_task task;
    struct tei_list list;

    (void)state;
    for (int i = 0; i < NICS; i++)
        rdma_fabric_tell("fail left%d status=RETRY_EXC nth=1", i);
    tei_list_init(&list);
    fake_work(&list, p->a, p->attach, &task, TE_WRITE, p->am, p->bm, PAIR_BYTES)->story = &story;
    p->a->ops.post(p->a, &list);
    assert_true(fake_wait(&p->ha, NULL, &task, 1, PATIENCE_MS));
    assert_int_equal(task.error, 0);
    assert_true(story.parts > 1);
    assert_true(story.retries > 0);
    assert_true(story.path_changes > 0);
    assert_true(story.path_changes <= story.retries);
    assert_memory_equal(story.path, "left", 4);
    assert_non_null(strstr(story.path, " to right"));
    pair_close(p);
}

/* What the peer refuses is final, and told with the right of it. */
static void refused_by_the_peer(void **state)
{
    struct pair *p = open_pair();

    (void)state;
    rdma_fabric_tell("fail left0 status=REM_ACCESS nth=1");
    rdma_fabric_tell("fail left1 status=REM_ACCESS nth=1");
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100), TE_ERR_STALE);
    rdma_fabric_tell("clear left0");
    rdma_fabric_tell("clear left1");
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    pair_close(p);
}

static void port_goes_down_and_up_here(void **state)
{
    struct pair *p = open_pair();

    (void)state;
    survive(p, "port left0 down", 2000);
    assert_true(p->ha.n_changed > 0);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    rdma_fabric_tell("port left0 up");
    assert_true(comes_back(p, "left0"));
    pair_close(p);
}

/* The peer's NIC is used again once the descriptor has it, which another fault brings to light. */
static void port_goes_down_and_up_there(void **state)
{
    struct pair *p = open_pair();

    (void)state;
    survive(p, "port right1 down", 2000);
    WAIT_FOR(p->hb.n_changed > 0);
    assert_false(describes(p, "right1"));
    pair_attach_anew(p);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    rdma_fabric_tell("port right1 up");
    WAIT_FOR(describes(p, "right1"));
    pair_attach_anew(p);
    survive(p, "port right0 down", 2000);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    pair_close(p);
}

/* Nothing works for a while; then it goes on. */
static void all_ports_down_for_a_moment(void **state)
{
    struct pair *p = open_pair();
    struct fake_task tasks[FLIGHT];

    (void)state;
    refill(p, 1);
    post_all(p, tasks);
    rdma_fabric_tell("port left0 down");
    rdma_fabric_tell("port left1 down");
    usleep(300000);
    rdma_fabric_tell("port left1 up");
    check_all(p, tasks);
    rdma_fabric_tell("port left0 up");
    assert_true(comes_back(p, "left0"));
    pair_close(p);
}

static void queues_and_queue_pairs_fail(void **state)
{
    struct pair *p = open_pair();

    (void)state;
    survive(p, "qp_fatal left0", 1000);
    survive(p, "qp_fatal right1", 1000);
    survive(p, "cq_err left1", 1000);
    assert_true(comes_back(p, "left1"));
    survive(p, "cq_err right0", 1000);
    pair_attach_anew(p);
    assert_true(comes_back(p, "left0"));
    pair_close(p);
}

static void device_dies_and_comes_back(void **state)
{
    struct pair *p = open_pair();

    (void)state;
    survive(p, "kill left0", 1500);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, p->am, p->bm, PAIR_BYTES), 0);
    rdma_fabric_tell("revive left0");
    assert_true(comes_back(p, "left0"));
    survive(p, "kill right1", 1500);
    WAIT_FOR(!describes(p, "right1"));
    rdma_fabric_tell("revive right1");
    WAIT_FOR(describes(p, "right1"));
    pair_attach_anew(p);
    survive(p, "kill right0", 1500);
    pair_close(p);
}

/* As when the NIC is taken out, or its interface loses all addresses. */
static void gids_go_and_come_back(void **state)
{
    struct pair *p = open_pair();
    size_t told;

    (void)state;
    survive(p, "gid_change left0 0 ::", 1000);
    WAIT_FOR(p->ha.n_changed > 0);
    told = p->ha.n_changed;
    rdma_fabric_tell("gid_change left0 0 ::ffff:10.9.9.9");
    assert_true(comes_back(p, "left0"));
    WAIT_FOR(p->ha.n_changed > told);
    pair_close(p);
}

/* No event tells that a device answers again which did not when it was asked for its port. */
static void silent_for_a_moment(void **state)
{
    struct pair *p = open_pair();
    size_t told = p->ha.n_changed;

    (void)state;
    rdma_fabric_tell("deny left0 query_port errno=%d", EIO);
    rdma_fabric_tell("lid left0 0"); /* as it was, but the device tells of it */
    WAIT_FOR(p->ha.n_changed > told);
    rdma_fabric_tell("allow left0 query_port");
    assert_true(comes_back(p, "left0"));
    pair_close(p);
}

static void silent_at_first(void **state)
{
    struct pair *p;

    (void)state;
    rdma_fabric_tell("deny left0 query_port after=1 errno=%d", EIO);
    p = open_pair();
    assert_int_equal(bytes_of("left0"), 0);
    rdma_fabric_tell("allow left0 query_port");
    assert_true(comes_back(p, "left0"));
    pair_close(p);
}

/* A way that is cut, and tells nobody. */
static void blocked_rail(void **state)
{
    struct pair *p = open_pair();

    (void)state;
    survive(p, "block left0 right0", 1000);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    rdma_fabric_tell("unblock left0 right0");
    assert_true(comes_back(p, "left0"));
    pair_close(p);
}

static void device_without_queue_pairs(void **state)
{
    struct pair *p;

    (void)state;
    rdma_fabric_tell("deny left0 create_qp");
    p = open_pair();
    assert_int_equal(bytes_of("left0"), 0);
    rdma_fabric_tell("allow left0 create_qp");
    assert_true(comes_back(p, "left0"));
    pair_close(p);
}

static void refuses_to_register(void **state)
{
    struct pair *p = open_pair();
    void *memory = malloc(10000);
    struct tei_region r = {
        .addr = (uintptr_t)memory, .length = 10000, .access = TE_REMOTE_RW, .location = "cpu:0"};
    uint64_t before = rdma_fabric_count("left0", "mrs");

    (void)state;
    te_log_set_level(TE_LOG_OFF);
    rdma_fabric_tell("deny left1 reg_mr");
    assert_int_equal(p->a->ops.region_add(p->a, &r), TE_ERR_MEMORY);
    assert_non_null(strstr(te_errmsg(), "left1"));
    assert_int_equal(rdma_fabric_count("left0", "mrs"), before);
    assert_int_equal(p->a->ops.region_del(p->a, &r), 0);
    rdma_fabric_tell("allow left1 reg_mr");
    assert_int_equal(p->a->ops.region_add(p->a, &r), 0);
    assert_int_equal(p->a->ops.region_del(p->a, &r), 0);
    free(memory);
    pair_close(p);
}

static unsigned score(struct pair *p, const void *source)
{
    const te_request r = {.opcode = TE_READ,
                          .source = (void *)(uintptr_t)source,
                          .target_offset = (uintptr_t)p->bm,
                          .length = 100};

    return p->a->ops.score(p->a, p->attach, &r);
}

/*
 * Memory that one NIC could not register is not worth waiting for where the others are down: another
 * transport is to have it. What the NIC has goes on by rdma.
 */
static void no_nic_left_for_this_memory(void **state)
{
    struct pair *p = open_pair();
    char *memory = malloc(10000);
    struct tei_region *r;
    unsigned best = score(p, p->am);

    (void)state;
    rdma_fabric_tell("deny left0 reg_mr errno=%d", EIO);
    r = fake_region_add(&p->ha, p->a, memory, 10000, TE_REMOTE_RW);
    rdma_fabric_tell("allow left0 reg_mr");
    assert_int_equal(score(p, memory + 9999), best);
    rdma_fabric_tell("port left1 down");
    WAIT_FOR(score(p, memory) == 1);
    assert_int_equal(score(p, memory + 9999), 1);
    assert_int_equal(score(p, p->am), best);
    rdma_fabric_tell("port left1 up");
    WAIT_FOR(score(p, memory) == best);
    fake_region_del(&p->ha, p->a, r);
    free(memory);
    pair_close(p);
}

static void impatient(struct tei_conf *c)
{
    rdma_fabric_configure(c);
    c->transfer_timeout_ms = 2000;
}

/* No NIC of a peer that has worked does any more: that may pass, but not for ever. */
static void nothing_works(void **state)
{
    struct pair *p = open_pair_with(impatient);
    int64_t start = tei_now_ns();
    int rc;

    (void)state;
    rdma_fabric_tell("port right0 down");
    rdma_fabric_tell("port right1 down");
    rc = fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES);
    assert_int_equal(rc, TE_ERR_TIMEOUT);
    assert_true(tei_now_ns() - start > 2 * TEI_NS_PER_S);
    rdma_fabric_tell("port right0 up");
    rdma_fabric_tell("port right1 up");
    pair_close(p);
}

static void count_slow(void *arg, enum te_log_level level, const char *line)
{
    (void)level;
    if (strstr(line, "its connection takes too long; others carry what waits for it"))
        atomic_fetch_add((_Atomic unsigned *)arg, 1);
}

/* A connection that does not come about, though another one has: that one carries all, and it is told. */
static void others_carry_what_waits(void **state)
{
    static struct conformance with = {.transport = "rdma", .configure = rdma_fabric_configure};
    static _Atomic unsigned slow;
    struct fake_task tasks[FLIGHT];
    struct pair *p;

    (void)state;
    with.topology[0] = rdma_fabric_topology(false);
    with.topology[1] = rdma_fabric_topology(true);
    p = pair_open(&with);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 4096), 0);
    te_log_set_sink(count_slow, &slow);
    te_log_set_level(TE_LOG_DEBUG);
    fake_host_deafen(&p->hb, true);
    refill(p, 7);
    post_all(p, tasks);
    check_all(p, tasks);
    assert_true(atomic_load(&slow) > 0);
    fake_host_deafen(&p->hb, false);
    te_log_set_level(TE_LOG_WARN);
    te_log_set_sink(NULL, NULL);
    pair_close(p);
}

/* ------------------------------------------------------------------------------------------- main */

static int set_up(void **state)
{
    (void)state;
    rdma_fabric_up(NICS, NULL);
    fds = test_count_fds();
    threads = test_settled_threads();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rdma_fabric_down();
    return test_nothing_left(fds, threads) ? 0 : -1;
}

/* What stays for the life of a process is there before the first case counts. */
static int warm_up(void **state)
{
    (void)state;
    rdma_fabric_up(NICS, NULL);
    pair_close(open_pair());
    rdma_fabric_down();
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* test_rdma_faults [PATTERN]: only the cases that match. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(errors_of_completions),
        CASE(a_story_has_the_change),
        CASE(refused_by_the_peer),
        CASE(port_goes_down_and_up_here),
        CASE(port_goes_down_and_up_there),
        CASE(all_ports_down_for_a_moment),
        CASE(queues_and_queue_pairs_fail),
        CASE(device_dies_and_comes_back),
        CASE(gids_go_and_come_back),
        CASE(silent_for_a_moment),
        CASE(silent_at_first),
        CASE(blocked_rail),
        CASE(device_without_queue_pairs),
        CASE(refuses_to_register),
        CASE(no_nic_left_for_this_memory),
        CASE(nothing_works),
        CASE(others_carry_what_waits),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, warm_up, NULL);
}
