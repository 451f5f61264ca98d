/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: serial */
/*
 * Processes of one fabric that are killed, stopped and racing: nothing wedges, nothing leaks, and
 * no byte moves after ibv_dereg_mr, ibv_modify_qp to ERR or ibv_destroy_qp returned, not even when
 * the process that moves it is stopped in the middle and goes on later.
 */
#include "fabric/softverbs/rig/rig.h"
#include "fabric/softverbs/shared.h"
#include "patience.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define SIZE   (4u << 20)
#define ROUNDS 12

static struct rig_end a;
static struct rig_addr peer;
static int to_child[2], from_child[2];
static pid_t child;

static int begin(void **state)
{
    (void)state;
    rig_fabric("[{\"name\": \"sv0\"}, {\"name\": \"sv1\"}]");
    return 0;
}

static int end(void **state)
{
    (void)state;
    rig_fabric_end();
    return 0;
}

/* Starts `run` in a child, which never returns from it. */
static void start(void (*run)(void))
{
    assert_int_equal(pipe(to_child) | pipe(from_child), 0);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run();
        _exit(0);
    }
}

static void reap(int sig)
{
    if (sig)
        kill(child, sig);
    assert_int_equal(waitpid(child, NULL, 0), child);
    for (unsigned i = 0; i < 2; i++) {
        close(to_child[i]);
        close(from_child[i]);
    }
}

/* Both sides of the exchange of addresses, over the pipes. */
static void meet(struct rig_end *e, int in, int out)
{
    struct rig_addr own = rig_addr(e);

    if (write(out, &own, sizeof(own)) != sizeof(own) ||
        read(in, &peer, sizeof(peer)) != sizeof(peer))
        _exit(9);
    rig_connect(e, &peer);
    if (write(out, "c", 1) != 1 || read(in, &own, 1) != 1)
        _exit(9);
}

static void child_meets(struct rig_end *e)
{
    rig_open(e, "sv1", SIZE, NULL);
    meet(e, to_child[0], from_child[1]);
}

/* Writes into the parent's memory without end, other bytes each time. */
static void write_for_ever(uint32_t length, unsigned at_a_time)
{
    static struct rig_end e;

    child_meets(&e);
    rig_fill(e.buf, SIZE, 1);
    for (unsigned i = 0;; i++) {
        if (rig_post(&e, IBV_WR_RDMA_WRITE, i, i * 8 % 65536, length, &peer, 0))
            break;
        if (i + 1 >= at_a_time && rig_wc(e.send_cq).status != IBV_WC_SUCCESS)
            break;
    }
    pause();
}

static void write_much(void)
{
    write_for_ever(SIZE - 65536, 4);
}

/* So that much of the time is spent between looking and copying. */
static void write_little(void)
{
    write_for_ever(512, 60);
}

static void just_connect(void)
{
    static struct rig_end e;

    child_meets(&e);
    pause();
}

static void open_and_start(void (*run)(void))
{
    start(run);
    rig_open(&a, "sv0", SIZE, NULL);
    meet(&a, from_child[0], to_child[1]);
}

static uint64_t checksum(void)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < SIZE; i += 8)
        sum = sum * 31 + *(volatile uint64_t *)(void *)(a.buf + i);
    return sum;
}

/* The memory stays as it is while the writer goes on trying. */
static void is_quiet(void)
{
    uint64_t before = checksum();

    usleep(10000);
    assert_true(checksum() == before);
}

static void wait_for_writes(void)
{
    uint64_t before = checksum();

    WAIT_FOR(checksum() != before);
    usleep((useconds_t)(rand() % 3000));
}

/* ---------------------------------------------------------------------------------------- quiet memory */

static void deregister_while_written(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        open_and_start(write_much);
        wait_for_writes();
        assert_int_equal(ibv_dereg_mr(a.mr), 0);
        a.mr = NULL;
        is_quiet();
        rig_event(a.ctx, IBV_EVENT_QP_ACCESS_ERR);
        reap(SIGKILL);
        rig_close(&a);
    }
}

static void break_while_written(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        open_and_start(write_much);
        wait_for_writes();
        if (i % 3 == 0)
            assert_int_equal(rig_to(&a, IBV_QPS_ERR), 0);
        else if (i % 3 == 1)
            assert_int_equal(rig_to(&a, IBV_QPS_RESET), 0);
        else
            assert_int_equal(ibv_destroy_qp(a.qp), 0);
        if (i % 3 == 2)
            a.qp = NULL;
        is_quiet();
        reap(SIGKILL);
        rig_close(&a);
    }
}

/* The writer is stopped, perhaps in the middle. The region goes away meanwhile, and when the writer
 * goes on it finds nothing to write to. */
static void deregister_while_stopped(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2 * ROUNDS; i++) {
        open_and_start(i % 4 ? write_little : write_much);
        wait_for_writes();
        kill(child, SIGSTOP);
        assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
        assert_int_equal(ibv_dereg_mr(a.mr), 0); /* does not wait for it to go on */
        a.mr = NULL;
        is_quiet();
        kill(child, SIGCONT);
        is_quiet();
        reap(SIGKILL);
        rig_close(&a);
    }
}

static struct sv_state *map_state(void)
{
    char path[128];
    struct sv_state *s;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", rig_dir(), SV_STATE_FILE);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(s, MAP_FAILED);
    close(fd);
    return s;
}

/* The moment that chance hits seldom: a process that looked, holds the region, and is stopped just
 * before the system call. Whoever deregisters must neither wait for it nor leave it able to write. */
static void stopped_before_the_call(void **state)
{
    struct sv_state *s;
    struct sv_proc *p;

    (void)state;
    rig_open(&a, "sv0", SIZE, NULL);
    s = map_state();
    p = &s->procs[s->proc_used++];
    child = fork();
    if (child == 0) {
        p->engine_tid = (uint32_t)getpid();
        p->hold_mr[1] = a.mr->rkey;
        p->remote_iov = (struct iovec){a.buf, 4096};
        p->pid = (uint32_t)getpid();
        raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
    assert_int_equal(ibv_dereg_mr(a.mr), 0);
    a.mr = NULL;
    assert_int_equal(p->remote_iov.iov_len, 0);
    assert_int_equal(p->hold_mr[1] == 0, 0);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    rig_stat("sv0", "qps");
    assert_int_equal(p->pid, 0); /* reaped */
    munmap(s, sizeof(*s));
    rig_close(&a);
}

/* The other direction: own buffers, filled by the engine of the own process for requests under way. It
 * is held after some steps, at the beginning of a request or in the middle of one. Every other time it
 * goes on before the region goes away, and is somewhere, perhaps copying. */
static void deregister_the_source(void **state)
{
    enum { READS = 20, STEPS = SIZE / SV_CHUNK };

    (void)state;
    for (unsigned i = 0; i < 2 * ROUNDS; i++) {
        struct ibv_sge sge;
        struct ibv_send_wr last, *bad;
        struct ibv_wc wc;
        unsigned steps = i / 2 * (STEPS / 2 - 1), well = 0;

        open_and_start(just_connect);
        rig_ctl("hold sv0 %u", steps);
        for (unsigned k = 0; k < READS; k++)
            assert_int_equal(rig_post(&a, IBV_WR_RDMA_READ, k, 0, SIZE, &peer, 0), 0);
        last = rig_wr(&a, IBV_WR_RDMA_READ, &sge, 0, SIZE, &peer, 0);
        WAIT_FOR(rig_stat("sv0", "held"));
        if (i % 2) {
            rig_ctl("release sv0");
            usleep((useconds_t)(rand() % 3000));
        }
        assert_int_equal(ibv_dereg_mr(a.mr), 0);
        a.mr = NULL;
        memset(a.buf, 1, SIZE);
        is_quiet();
        rig_ctl("release sv0");
        is_quiet();
        assert_int_equal(ibv_post_send(a.qp, &last, &bad),
                         0); /* should the others have got through */
        while ((wc = rig_wc(a.send_cq)).status == IBV_WC_SUCCESS)
            well++;
        assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
        assert_in_range(well, steps / STEPS, i % 2 ? READS : steps / STEPS);
        reap(SIGKILL);
        rig_close(&a);
    }
}

/* ------------------------------------------------------------------------------------------ kill -9 */

static void killed_target(void **state)
{
    int64_t began;

    (void)state;
    open_and_start(just_connect);
    for (unsigned k = 0; k < 3; k++)
        assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, k, 0, SIZE, &peer, 0), 0);
    rig_expect(a.send_cq, 0, IBV_WC_SUCCESS);
    rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
    rig_expect(a.send_cq, 2, IBV_WC_SUCCESS);
    assert_int_equal(rig_stat("sv1", "qps"), 1);
    kill(child, SIGKILL);
    waitid(P_PID, (id_t)child, NULL, WEXITED | WNOWAIT); /* a zombie is as dead */
    began = rig_now_ms();
    assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 5, 0, SIZE, &peer, 0), 0);
    rig_expect(a.send_cq, 5, IBV_WC_RETRY_EXC_ERR);
    assert_true(rig_now_ms() - began >= 4 * 16);
    assert_int_equal(rig_stat("sv1", "qps"), 0);
    assert_int_equal(rig_stat("sv1", "mrs"), 0);
    assert_int_equal(rig_stat("sv1", "cqs"), 0);
    reap(0);
    rig_close(&a);
}

static void killed_while_writing(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        open_and_start(write_much);
        wait_for_writes();
        reap(SIGKILL);
        is_quiet();
        assert_int_equal(ibv_dereg_mr(a.mr), 0);
        a.mr = NULL;
        rig_close(&a);
        assert_int_equal(rig_stat("sv1", "qps") + rig_stat("sv1", "mrs"), 0);
    }
}

/* Makes and unmakes everything as fast as it can, so that it dies with locks held. */
static void churn(void)
{
    struct rig_end e;
    struct ibv_mr *mr[50];

    for (;;) {
        rig_open(&e, "sv1", 65536, NULL);
        for (unsigned i = 0; i < 50; i++)
            mr[i] = ibv_reg_mr(e.pd, e.buf, 4096, RIG_ACCESS);
        for (unsigned i = 0; i < 50; i++)
            ibv_dereg_mr(mr[i]);
        rig_close(&e);
        if (write(from_child[1], "r", 1) != 1)
            _exit(9);
    }
}

static void killed_with_locks(void **state)
{
    struct rig_end b;
    struct rig_addr to_b;
    char round;

    (void)state;
    for (unsigned i = 0; i < 2 * ROUNDS; i++) {
        start(churn);
        assert_int_equal(read(from_child[0], &round, 1), 1);
        usleep((useconds_t)(rand() % 10000));
        reap(SIGKILL);
        rig_open(&a, "sv0", SIZE, NULL);
        rig_open(&b, "sv1", SIZE, NULL);
        to_b = rig_addr(&b);
        rig_connect_both(&a, &b);
        rig_fill(a.buf, SIZE, i);
        assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, i, 0, SIZE, &to_b, 0), 0);
        rig_expect(a.send_cq, i, IBV_WC_SUCCESS);
        assert_int_equal(rig_differs(b.buf, SIZE, i), -1);
        rig_close(&a);
        rig_close(&b);
        assert_int_equal(rig_stat("sv1", "qps") + rig_stat("sv1", "mrs"), 0);
    }
}

/* ----------------------------------------------------------------------------------------- beginnings */

/* Several processes make the state file at the same time, and all find the same fabric. */
static void all_at_once(void **state)
{
    enum { N = 6 };
    _Atomic int *seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0); /* by so many, all the others */
    pid_t pids[N];
    int status;

    (void)state;
    assert_ptr_not_equal((void *)seen, MAP_FAILED);
    for (unsigned i = 0; i < N; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct rig_end e;

            rig_open(&e, i % 2 ? "sv1" : "sv0", 65536, NULL);
            WAIT_FOR(rig_stat("sv0", "qps") + rig_stat("sv1", "qps") >= N);
            status = rig_stat("sv0", "qps") + rig_stat("sv1", "qps") != N;
            atomic_fetch_add(seen, 1);
            WAIT_FOR(atomic_load(seen) == N);
            rig_close(&e);
            _exit(status);
        }
    }
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    munmap((void *)seen, sizeof(*seen));
}

int main(void)
{
#define FABRIC(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        FABRIC(deregister_while_written),
        FABRIC(break_while_written),
        FABRIC(deregister_while_stopped),
        FABRIC(stopped_before_the_call),
        FABRIC(deregister_the_source),
        FABRIC(killed_target),
        FABRIC(killed_while_writing),
        FABRIC(killed_with_locks),
        FABRIC(all_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
