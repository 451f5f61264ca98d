/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=60 */
/*
 * The variables that say what the rdma transport makes of devices: queues, threads, queue pairs and
 * their attributes, memory regions, slices. Seen where it asks the verbs library for them.
 */
#include "fabric/verbs_record/record.h"
#include "proc.h"
#include "rdma_fabric.h"
#include "rdma_pair.h"

#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <cmocka.h>

#define KIB 1024u

static struct rdma_pair p;

static void set(const char *name, const char *value)
{
    rdma_pair_set(RDMA_PAIR_BOTH, name, value);
}

/* A pair of engines with `n` NICs each. */
static void begin(unsigned n)
{
    record_clear();
    rdma_pair_fabric(RDMA_PAIR_RECORDED, n, NULL);
    rdma_pair_begin(&p);
}

static int end(void **state)
{
    (void)state;
    rdma_pair_end(&p);
    record_clear();
    return 0;
}

/* The first time that a queue pair of a NIC was brought to a state. */
static struct record step(const char *nic, enum ibv_qp_state state)
{
    struct record r = {.thread = 0};

    for (size_t i = 0; record_get(RECORD_MODIFY, nic, i, &r); i++)
        if ((r.mask & IBV_QP_STATE) && r.attr.qp_state == state)
            return r;
    fail_msg("no queue pair of %s was brought to state %d", nic, (int)state);
    return r;
}

/* ------------------------------------------------------------------------------ queues and threads */

/* Those of the engines' threads that have this name; with `cpu` >= 0, that run on this CPU only. */
static size_t threads_named(const char *name, int cpu)
{
    DIR *dir = opendir("/proc/self/task");
    const struct dirent *d;
    size_t n = 0;

    assert_non_null(dir);
    while ((d = readdir(dir))) {
        char path[300], text[32] = "";
        cpu_set_t cpus;
        FILE *f;

        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", d->d_name);
        f = d->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (!f)
            continue;
        if (fscanf(f, "%31s", text) == 1 && strcmp(text, name) == 0 &&
            (cpu < 0 || (sched_getaffinity(atoi(d->d_name), sizeof(cpus), &cpus) == 0 &&
                         CPU_COUNT(&cpus) == 1 && CPU_ISSET((unsigned)cpu, &cpus))))
            n++;
        fclose(f);
    }
    closedir(dir);
    return n;
}

static void queues_by_default(void **state)
{
    struct record r;

    (void)state;
    begin(2);
    assert_int_equal(record_count(RECORD_CQ, "left0"), 2); /* one for each of the two threads */
    assert_int_equal(record_count(RECORD_CHANNEL, "left1"), 2);
    assert_true(record_get(RECORD_CQ, "left1", 0, &r));
    assert_int_equal(r.depth, 4096);
    assert_int_equal(threads_named("te/rdma", -1), 2 * 2 * 2);
}

static void queues(void **state)
{
    struct record r;

    (void)state;
    set("MC_NUM_CQ_PER_CTX", "5");
    set("MC_NUM_COMP_CHANNELS_PER_CTX", "3");
    set("MC_WORKERS_PER_CTX", "1");
    set("MC_MAX_CQE_PER_CTX", "100");
    begin(1);
    assert_int_equal(record_count(RECORD_CQ, "left0"), 5);
    assert_int_equal(record_count(RECORD_CHANNEL, "left0"), 3);
    assert_int_equal(threads_named("te/rdma", -1), 2 * 3);
    assert_true(record_get(RECORD_CQ, "left0", 4, &r));
    assert_int_equal(r.depth, 100);
    rdma_pair_move(&p, TE_READ, RDMA_PAIR_SIZE); /* 128 slices */
}

static void workers(void **state)
{
    (void)state;
    set("MC_WORKERS_PER_CTX", "4");
    begin(1);
    assert_int_equal(threads_named("te/rdma", -1), 2 * 4);
    assert_int_equal(record_count(RECORD_CQ, "left0"), 4);
    rdma_pair_move(&p, TE_WRITE, RDMA_PAIR_SIZE);
}

/* The NICs of the fabric are on node 0, which has the CPUs that sysfs gives it. */
static void workers_near_the_nic(void **state)
{
    struct tei_conf c;
    char path[sizeof(c.sysfs_path) + 64];
    cpu_set_t may;
    unsigned cpu = 0;
    FILE *f;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(may), &may), 0);
    if (CPU_COUNT(&may) < 2)
        skip();
    while (!CPU_ISSET(cpu, &may))
        cpu++;
    rdma_pair_fabric(RDMA_PAIR_RECORDED, 1, NULL);
    rdma_fabric_configure(&c);
    snprintf(path, sizeof(path), "mkdir -p '%s/devices/system/node/node0'", c.sysfs_path);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof(path), "%s/devices/system/node/node0/cpulist", c.sysfs_path);
    f = fopen(path, "we");
    assert_non_null(f);
    fprintf(f, "%u,1000-1003\n", cpu);
    fclose(f);
    rdma_pair_begin(&p);
    rdma_pair_move(&p, TE_READ, RDMA_PAIR_SIZE);
    assert_int_equal(threads_named("te/rdma", (int)cpu), 2 * 2);
    assert_int_equal(threads_named("te/rdma-mon", (int)cpu), 0);
}

/* ------------------------------------------------------------------------------------- queue pairs */

static void queue_pairs_by_default(void **state)
{
    struct record r;

    (void)state;
    begin(1);
    rdma_pair_move(&p, TE_READ, 100);
    assert_int_equal(record_count(RECORD_QP, "left0"), 2);
    assert_true(record_get(RECORD_QP, "left0", 0, &r));
    assert_int_equal(r.cap.max_send_wr, 256);
    assert_int_equal(r.cap.max_send_sge, 4);
    assert_int_equal(r.cap.max_inline_data, 64);
    r = step("left0", IBV_QPS_INIT);
    assert_int_equal(r.attr.port_num, 1);
    assert_int_equal(r.attr.pkey_index, 0);
    r = step("left0", IBV_QPS_RTR);
    assert_int_equal(r.attr.path_mtu, IBV_MTU_4096);
    assert_int_equal(r.attr.ah_attr.sl, 0);
    assert_int_equal(r.attr.ah_attr.grh.traffic_class, 0);
    assert_int_equal(r.attr.ah_attr.grh.sgid_index, 0);
}

static void queue_pairs(void **state)
{
    struct record r;

    (void)state;
    set("MC_NUM_QP_PER_EP", "3");
    set("MC_MAX_WR", "32");
    set("MC_MAX_SGE", "2");
    set("MC_MAX_INLINE", "100");
    begin(1);
    rdma_pair_move(&p, TE_READ, RDMA_PAIR_SIZE);
    rdma_pair_move(&p, TE_WRITE, RDMA_PAIR_SIZE);
    assert_int_equal(record_count(RECORD_QP, "left0"), 3);
    assert_int_equal(record_count(RECORD_QP, "right0"), 3);
    assert_int_equal(rdma_fabric_count("left0", "qps"), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_true(record_get(RECORD_QP, "left0", i, &r));
        assert_int_equal(r.cap.max_send_wr, 32);
        assert_int_equal(r.cap.max_send_sge, 2);
        assert_int_equal(r.cap.max_inline_data, 100);
    }
}

/* More than the device has is what the device has. */
static void queue_pairs_too_large(void **state)
{
    struct record r;

    (void)state;
    set("MC_MAX_WR", "65535");
    set("MC_MAX_SGE", "65535");
    set("MC_MAX_INLINE", "65535");
    set("MC_MAX_CQE_PER_CTX", "65535");
    record_clear();
    rdma_pair_fabric(RDMA_PAIR_RECORDED, 1,
                     "\"limits\":{\"max_qp_wr\":64,\"max_sge\":3,\"max_inline\":32,"
                     "\"max_cqe\":200}");
    rdma_pair_begin(&p);
    rdma_pair_move(&p, TE_WRITE, RDMA_PAIR_SIZE);
    assert_true(record_get(RECORD_QP, "left0", record_count(RECORD_QP, "left0") - 1, &r));
    assert_int_equal(r.cap.max_send_wr, 64);
    assert_int_equal(r.cap.max_send_sge, 3);
    assert_int_equal(r.cap.max_inline_data, 0); /* since what was asked for was refused */
    assert_true(record_get(RECORD_CQ, "left0", 0, &r));
    assert_int_equal(r.depth, 200);
}

static void one_work_request_at_a_time(void **state)
{
    (void)state;
    set("MC_MAX_WR", "1");
    set("MC_NUM_QP_PER_EP", "1");
    set("MC_MAX_CQE_PER_CTX", "1");
    set("MC_WORKERS_PER_CTX", "1");
    begin(1);
    rdma_pair_move(&p, TE_READ, RDMA_PAIR_SIZE);
    assert_int_equal(rdma_fabric_count("left0", "doorbells"), RDMA_PAIR_SIZE / (64 * KIB));
}

static void inline_writes(void **state)
{
    static const struct {
        int opcode;
        size_t length;
        bool is_inline;
    } all[] = {
        {TE_WRITE, 1, true}, {TE_WRITE, 64, true}, {TE_WRITE, 65, false}, {TE_READ, 1, false}};
    struct record r;

    (void)state;
    begin(1);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        rdma_pair_move(&p, all[i].opcode, all[i].length);
        assert_true(record_get(RECORD_WR, "left0", i, &r));
        assert_int_equal(!!(r.flags & IBV_SEND_INLINE), all[i].is_inline);
        assert_int_equal(r.length, all[i].length);
    }
}

static void nothing_inline(void **state)
{
    struct record r;

    (void)state;
    set("MC_MAX_INLINE", "0");
    begin(1);
    rdma_pair_move(&p, TE_WRITE, 1);
    assert_true(record_get(RECORD_WR, "left0", 0, &r));
    assert_false(r.flags & IBV_SEND_INLINE);
}

static void address(void **state)
{
    struct record r;

    (void)state;
    set("MC_MTU", "1024");
    set("MC_IB_TC", "104");
    set("MC_IB_SL", "3");
    begin(1);
    rdma_pair_move(&p, TE_READ, 100);
    r = step("right0", IBV_QPS_RTR);
    assert_int_equal(r.attr.path_mtu, IBV_MTU_1024);
    assert_int_equal(r.attr.ah_attr.grh.traffic_class, 104);
    assert_int_equal(r.attr.ah_attr.sl, 3);
    assert_int_equal(r.attr.ah_attr.port_num, 1);
}

/* Gives ports of the fabric a type of service, as who runs a host does for rdma_cm. */
static void set_default_tos(const char *nic, const char *tos)
{
    char path[512];
    struct tei_conf c;
    size_t root;
    FILE *f;

    rdma_fabric_configure(&c);
    root = strlen(c.sysfs_path);
    assert_in_range(snprintf(path, sizeof(path),
                             "%s/kernel/config/rdma_cm/%s/ports/1/default_roce_tos", c.sysfs_path,
                             nic),
                    1, sizeof(path) - 1);
    for (char *at = path + root + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        (void)mkdir(path, 0755);
    }
    f = fopen(path, "we");
    assert_non_null(f);
    fprintf(f, "%s\n", tos);
    fclose(f);
}

/* The traffic class and service level of a connection from left0, whose port has a type of service. */
static struct ibv_ah_attr address_of_default(const char *tc, const char *sl)
{
    if (tc)
        set("MC_IB_TC", tc);
    if (sl)
        set("MC_IB_SL", sl);
    record_clear();
    rdma_pair_fabric(RDMA_PAIR_RECORDED, 1, NULL);
    set_default_tos("left0", "106");
    rdma_pair_begin(&p);
    rdma_pair_move(&p, TE_READ, 100);
    assert_int_equal(step("right0", IBV_QPS_RTR).attr.ah_attr.grh.traffic_class, tc ? atoi(tc) : 0);
    return step("left0", IBV_QPS_RTR).attr.ah_attr;
}

static void class_and_level_of_the_port(void **state)
{
    struct ibv_ah_attr a = address_of_default(NULL, NULL);

    (void)state;
    assert_int_equal(a.grh.traffic_class, 106);
    assert_int_equal(a.sl, 3);
}

/* 0 is a class and a level like others. */
static void class_and_level_of_0(void **state)
{
    struct ibv_ah_attr a = address_of_default("0", "0");

    (void)state;
    assert_int_equal(a.grh.traffic_class, 0);
    assert_int_equal(a.sl, 0);
}

/* The port's own MTU is the most that a path can have. */
static void mtu_of_the_port(void **state)
{
    (void)state;
    set("MC_MTU", "4096");
    record_clear();
    rdma_pair_fabric(RDMA_PAIR_RECORDED, 1, "\"mtu\":2048");
    rdma_pair_begin(&p);
    rdma_pair_move(&p, TE_READ, 100);
    assert_int_equal(step("left0", IBV_QPS_RTR).attr.path_mtu, IBV_MTU_2048);
}

/* The NICs of the fabric have one partition only: the error names what to look at. */
static void partition(void **state)
{
    struct te_status st;
    char msg[512];

    (void)state;
    set("MC_PKEY_INDEX", "5");
    set("MC_RETRY_CNT", "0");
    begin(1);
    rdma_pair_keep_log(TE_LOG_WARN);
    st = rdma_pair_try(&p, TE_READ, 100, msg, sizeof(msg));
    assert_int_equal(st.state, TE_FAILED);
    assert_non_null(strstr(msg, "the log says why"));
    assert_int_not_equal(rdma_pair_logged("MC_PKEY_INDEX", "left0"), 0);
    assert_int_equal(step("right0", IBV_QPS_INIT).attr.pkey_index, 5);
}

static void port_that_is_not_there(void **state)
{
    te_engine *e = NULL;

    (void)state;
    set("MC_IB_PORT", "2");
    set("MC_FORCE_HCA", "1");
    record_clear();
    rdma_pair_fabric(RDMA_PAIR_RECORDED, 1, NULL);
    assert_int_not_equal(rdma_pair_engine(RDMA_PAIR_A, &e), 0);
    assert_non_null(strstr(te_errmsg(), "port"));
    assert_null(e);
}

/* -------------------------------------------------------------------------------------------- GIDs */

/* Beside its first GID each NIC has others, of its own. */
static void begin_with_gids(void)
{
    record_clear();
    rdma_pair_fabric(RDMA_PAIR_RECORDED, 1, NULL);
    for (int i = 1; i <= 3; i++) {
        rdma_fabric_tell("gid_change left0 %d ::ffff:10.0.%d.1", i, i);
        rdma_fabric_tell("gid_change right0 %d ::ffff:10.0.%d.2", i, i);
    }
    rdma_pair_begin(&p);
}

static void check_gid(const char *variable)
{
    struct record r;

    set(variable, "2");
    begin_with_gids();
    rdma_pair_move(&p, TE_READ, 100);
    r = step("left0", IBV_QPS_RTR);
    assert_int_equal(r.attr.ah_attr.grh.sgid_index, 2);
    assert_int_equal(r.attr.ah_attr.grh.dgid.raw[14], 2); /* 10.0.2.2 */
    assert_int_equal(r.attr.ah_attr.grh.dgid.raw[15], 2);
}

static void gid_index(void **state)
{
    (void)state;
    check_gid("MC_GID_INDEX");
}

static void gid_index_of_nccl(void **state)
{
    (void)state;
    check_gid("NCCL_IB_GID_INDEX");
}

static void gid_that_is_not_there(void **state)
{
    te_engine *e = NULL;

    (void)state;
    set("MC_GID_INDEX", "9");
    set("MC_FORCE_HCA", "1");
    rdma_pair_fabric(RDMA_PAIR_RECORDED, 1, NULL);
    assert_int_not_equal(rdma_pair_engine(RDMA_PAIR_A, &e), 0);
    assert_non_null(strstr(te_errmsg(), "GID"));
}

/* How many GIDs were tried to connect the first queue pair of A, when all of them are refused. */
static size_t gids_tried(const char *retries)
{
    uint64_t seen = 0;
    struct record r;
    char msg[512];

    set("MC_AUTO_GID_MAX_RETRIES", retries);
    set("MC_RETRY_CNT", "0");
    begin_with_gids();
    rdma_pair_keep_log(TE_LOG_WARN);
    record_refuse_gids(0xffff);
    assert_int_equal(rdma_pair_try(&p, TE_READ, 100, msg, sizeof(msg)).state, TE_FAILED);
    assert_int_not_equal(rdma_pair_logged("MC_GID_INDEX", "left0"), 0);
    for (size_t i = 0; record_get(RECORD_MODIFY, "right0", i, &r); i++)
        if (r.mask & IBV_QP_AV)
            seen |= UINT64_C(1) << r.attr.ah_attr.grh.sgid_index;
    return (size_t)__builtin_popcountll(seen);
}

static void no_other_gid(void **state)
{
    (void)state;
    assert_int_equal(gids_tried("0"), 1);
}

static void two_other_gids(void **state)
{
    (void)state;
    assert_int_equal(gids_tried("2"), 3);
}

/* Without the one that was chosen before, another one is found, and told to the peer. */
static void other_gid_works(void **state)
{
    unsigned before;
    struct record r;

    (void)state;
    begin_with_gids();
    rdma_pair_move(&p, TE_READ, 100);
    before = step("left0", IBV_QPS_RTR).attr.ah_attr.grh.sgid_index;
    rdma_pair_end(&p);
    begin_with_gids();
    record_refuse_gids(1u << before);
    rdma_pair_move(&p, TE_READ, 100);
    for (size_t i = 0; record_get(RECORD_MODIFY, "left0", i, &r); i++)
        if ((r.mask & IBV_QP_AV) && r.attr.ah_attr.grh.sgid_index != before)
            return;
    fail_msg("no other GID was tried");
}

/* ------------------------------------------------------------------------------------------ memory */

static void memory_in_one_piece(void **state)
{
    struct record r;

    (void)state;
    begin(2);
    assert_int_equal(record_count(RECORD_MR, "right1"), 1);
    assert_true(record_get(RECORD_MR, "right1", 0, &r));
    assert_int_equal(r.length, RDMA_PAIR_SIZE);
    assert_int_equal(r.access & IBV_ACCESS_RELAXED_ORDERING, 0);
    assert_int_equal(r.access,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    assert_true(record_get(RECORD_MR, "left0", 0, &r));
    assert_int_equal(r.access, IBV_ACCESS_LOCAL_WRITE);
}

static void memory_in_pieces(void **state)
{
    struct record r;

    (void)state;
    set("MC_MAX_MR_SIZE", "3000000");
    begin(2);
    assert_int_equal(record_count(RECORD_MR, "right1"), 3);
    assert_true(record_get(RECORD_MR, "right1", 0, &r));
    assert_int_equal(r.length, 3000000);
    assert_true(record_get(RECORD_MR, "right1", 2, &r));
    assert_int_equal(r.length, RDMA_PAIR_SIZE - 6000000);
    rdma_pair_move(&p, TE_READ, RDMA_PAIR_SIZE);
    rdma_pair_move(&p, TE_WRITE, RDMA_PAIR_SIZE);
}

/* Memory that no page was written of yet is nowhere: what the user did not say is nothing to warn of. */
static void memory_anywhere(void **state)
{
    void *memory =
        mmap(NULL, RDMA_PAIR_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_ptr_not_equal(memory, MAP_FAILED);
    begin(1);
    rdma_pair_keep_log(TE_LOG_WARN);
    assert_int_equal(te_register(p.a, memory, RDMA_PAIR_SIZE, "*", TE_REMOTE_RW), 0);
    assert_int_equal(rdma_pair_logged("topology", NULL), 0);
    assert_int_equal(te_unregister(p.a, memory), 0);
    assert_int_equal(te_register(p.a, memory, RDMA_PAIR_SIZE, "cpu:77", TE_REMOTE_RW), 0);
    assert_int_equal(rdma_pair_logged("topology", "cpu:77"), 1);
    assert_int_equal(te_unregister(p.a, memory), 0);
    munmap(memory, RDMA_PAIR_SIZE);
}

static void relaxed_ordering(void **state)
{
    struct record r;

    (void)state;
    set("MC_IB_PCI_RELAXED_ORDERING", "1");
    begin(1);
    assert_true(record_get(RECORD_MR, "left0", 0, &r));
    assert_true(r.access & IBV_ACCESS_RELAXED_ORDERING);
    assert_true(record_get(RECORD_MR, "right0", 0, &r));
    assert_true(r.access & IBV_ACCESS_RELAXED_ORDERING);
    rdma_pair_move(&p, TE_READ, RDMA_PAIR_SIZE);
}

/* The threads that registered the pair's memory at NICs of A. */
static size_t registering_threads(const char *value)
{
    struct record r;
    int seen[4];
    size_t n = 0;

    if (value)
        set("MC_ENABLE_PARALLEL_REG_MR", value);
    begin(4);
    for (char nic[] = "left0"; nic[4] < '4'; nic[4]++) {
        size_t i = 0;

        assert_true(record_get(RECORD_MR, nic, 0, &r));
        while (i < n && seen[i] != r.thread)
            i++;
        if (i == n)
            seen[n++] = r.thread;
    }
    return n;
}

static void one_nic_after_the_other(void **state)
{
    (void)state;
    assert_int_equal(registering_threads("0"), 1);
}

static void all_nics_at_a_time(void **state)
{
    (void)state;
    assert_int_equal(registering_threads("1"), 4);
}

static void so_many_nics_at_a_time(void **state)
{
    (void)state;
    set("MC_MAX_CONCURRENT_REG_MR", "3");
    assert_int_equal(registering_threads("1"), 3);
    rdma_pair_move(&p, TE_WRITE, RDMA_PAIR_SIZE);
}

static void one_nic_at_a_time(void **state)
{
    (void)state;
    set("MC_MAX_CONCURRENT_REG_MR", "1");
    assert_int_equal(registering_threads(NULL), 1);
}

/* The memory of the pair was written to before. */
static void all_nics_at_a_time_by_itself(void **state)
{
    (void)state;
    assert_int_equal(registering_threads(NULL), 4);
}

/* ------------------------------------------------------------------------------------------ slices */

/* A read of `length` bytes goes in `n` slices, the last one of `last` bytes. */
static void check_slices(size_t length, size_t n, size_t last)
{
    size_t before = record_count(RECORD_WR, "left0"), total = 0;
    struct record r = {.length = 0};

    rdma_pair_move(&p, TE_READ, length);
    assert_int_equal(record_count(RECORD_WR, "left0") - before, n);
    for (size_t i = before; record_get(RECORD_WR, "left0", i, &r); i++) {
        total += r.length;
        assert_int_equal(r.sges, 1);
    }
    assert_int_equal(total, length);
    assert_int_equal(r.length, last);
}

static void slices(void **state)
{
    (void)state;
    set("MC_SLICE_SIZE", "4096");
    begin(1);
    check_slices(4 * KIB, 1, 4 * KIB);
    check_slices(12 * KIB, 3, 4 * KIB);
    check_slices(13 * KIB, 3, 5 * KIB); /* a quarter more: merged */
    check_slices(13 * KIB + 1, 4, KIB + 1);
}

static void slices_with_a_ratio(void **state)
{
    (void)state;
    set("MC_SLICE_SIZE", "4096");
    set("MC_FRAGMENT_RATIO", "2");
    begin(1);
    check_slices(14 * KIB, 3, 6 * KIB);
    check_slices(14 * KIB + 1, 4, 2 * KIB + 1);
}

static void slices_by_default(void **state)
{
    (void)state;
    begin(1);
    check_slices(80 * KIB, 1, 80 * KIB);
    check_slices(80 * KIB + 1, 2, 16 * KIB + 1);
}

#define TEST(f) cmocka_unit_test_teardown(f, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(queues_by_default),
        TEST(queues),
        TEST(workers),
        TEST(workers_near_the_nic),
        TEST(queue_pairs_by_default),
        TEST(queue_pairs),
        TEST(queue_pairs_too_large),
        TEST(one_work_request_at_a_time),
        TEST(inline_writes),
        TEST(nothing_inline),
        TEST(address),
        TEST(class_and_level_of_the_port),
        TEST(class_and_level_of_0),
        TEST(mtu_of_the_port),
        TEST(partition),
        TEST(port_that_is_not_there),
        TEST(gid_index),
        TEST(gid_index_of_nccl),
        TEST(gid_that_is_not_there),
        TEST(no_other_gid),
        TEST(two_other_gids),
        TEST(other_gid_works),
        TEST(memory_in_one_piece),
        TEST(memory_in_pieces),
        TEST(memory_anywhere),
        TEST(relaxed_ordering),
        TEST(one_nic_after_the_other),
        TEST(all_nics_at_a_time),
        TEST(all_nics_at_a_time_by_itself),
        TEST(so_many_nics_at_a_time),
        TEST(one_nic_at_a_time),
        TEST(slices),
        TEST(slices_with_a_ratio),
        TEST(slices_by_default),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
