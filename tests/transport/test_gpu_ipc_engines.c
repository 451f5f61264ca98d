/* SPDX-License-Identifier: Apache-2.0 */
/* Engines of two processes with memory of devices: which way is taken, and what if it breaks. */
#include "child_engine.h"

#include "plat/plat.h"
#include "te.h"
#include "patience.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE ((size_t)8 << 20)

/* A target: a process that was forked before this one touched a driver. */
struct target {
    pid_t pid;
    int to, from;
    char name[300];
    uint64_t mem;
};

static struct target targets[3];

static void check(int rc, const char *what)
{
    if (rc) {
        fprintf(stderr, "%s: %s\n", what, te_errmsg());
        _exit(1);
    }
}

/* Tells its name and where its memory is; anew after each byte that comes. */
static void serve(int in, int out)
{
    struct target t = {0};
    te_options o;
    te_engine *e;
    void *mem;
    char order;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    loopback_options(&o);
    check(te_engine_create(&o, &e), "create");
    te_options_fini(&o);
    check(te_engine_name(e, t.name, sizeof t.name), "name");
    do {
        check(te_alloc(e, SIZE, "cuda:0", &mem), "alloc");
        check(te_register(e, mem, SIZE, "*", TE_REMOTE_RW), "register");
        t.mem = (uintptr_t)mem;
        if (write(out, &t, sizeof t) != (ssize_t)sizeof t || read(in, &order, 1) != 1)
            _exit(0);
        check(te_unregister(e, mem), "unregister");
        check(te_free(e, mem), "free");
    } while (true);
}

static void start(struct target *t)
{
    int down[2], up[2];

    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    t->pid = fork();
    assert_true(t->pid >= 0);
    if (t->pid == 0) {
        close(down[1]);
        close(up[0]);
        serve(down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    t->to = down[1];
    t->from = up[0];
}

static void listen_to(struct target *t)
{
    struct target said;

    assert_int_equal(read(t->from, &said, sizeof said), sizeof said);
    memcpy(t->name, said.name, sizeof t->name);
    t->mem = said.mem;
}

static te_engine *make_engine(const char *option, const char *value)
{
    te_engine *e = NULL;
    te_options o;

    loopback_options(&o);
    if (option)
        assert_int_equal(te_option_set(&o, option, value), 0);
    assert_int_equal(te_engine_create(&o, &e), 0);
    te_options_fini(&o);
    return e;
}

static te_request request_for(int opcode, void *local, te_segment seg, uint64_t remote, size_t n)
{
    return (te_request){
        .opcode = opcode, .source = local, .target = seg, .target_offset = remote, .length = n};
}

static int move(te_engine *e, te_request r)
{
    struct te_status st;
    te_batch b;

    assert_int_equal(te_batch_alloc(e, 1, &b), 0);
    assert_int_equal(te_submit(e, b, &r, 1, NULL), 0);
    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    assert_int_equal(te_status(e, b, 0, &st), 0);
    assert_int_equal(te_batch_free(e, b), 0);
    return st.state;
}

static void check_both_ways(te_engine *e, void *local, te_segment seg, uint64_t remote, size_t n)
{
    unsigned char *bytes = malloc(n);

    fill(bytes, n, n);
    assert_int_equal(tei_mem_copy(local, bytes, n), 0);
    assert_int_equal(move(e, request_for(TE_WRITE, local, seg, remote, n)), TE_COMPLETED);
    memset(bytes, 0, n);
    assert_int_equal(tei_mem_copy(local, bytes, n), 0);
    assert_int_equal(move(e, request_for(TE_READ, local, seg, remote, n)), TE_COMPLETED);
    assert_int_equal(tei_mem_copy(bytes, local, n), 0);
    assert_int_equal(first_difference(bytes, n, n), n);
    free(bytes);
}

static void check_explains(te_engine *e, te_request r, const char *what)
{
    char text[4096];

    assert_int_equal(te_explain(e, &r, text, sizeof text), 0);
    if (!strstr(text, what))
        fail_msg("'%s' is not in: %s", what, text);
}

/* The line of te_explain() on the one that carries it. */
static const char mapped[] = "transport nvlink_intra: score 95, taken";

/* What lies here: of the host, and of one device or two. */
struct here {
    te_engine *e;
    te_segment seg;
    size_t n;
    void *mem[3];
};

static void open_here(struct here *h, struct target *t, const char *option, const char *value)
{
    static const char *const places[] = {"cpu:0", "cuda:0", "cuda:1"};

    h->e = make_engine(option, value);
    h->n = tei_gpu_count(TEI_MEM_CUDA) > 1 ? 3 : 2;
    for (size_t i = 0; i < h->n; i++) {
        assert_int_equal(te_alloc(h->e, SIZE, places[i], &h->mem[i]), 0);
        assert_int_equal(te_register(h->e, h->mem[i], SIZE, "*", TE_LOCAL_ONLY), 0);
    }
    assert_int_equal(te_open(h->e, t->name, &h->seg), 0);
}

static void close_here(struct here *h)
{
    for (size_t i = 0; i < h->n; i++) {
        assert_int_equal(te_unregister(h->e, h->mem[i]), 0);
        assert_int_equal(te_free(h->e, h->mem[i]), 0);
    }
    te_engine_destroy(h->e);
}

/* The memory of a process of this host is mapped, without being asked for. */
static void mapped_by_itself(void **state)
{
    struct target *t = &targets[0];
    struct here h;

    (void)state;
    open_here(&h, t, NULL, NULL);
    for (size_t i = 0; i < h.n; i++) {
        check_explains(h.e, request_for(TE_READ, h.mem[i], h.seg, t->mem, 100), mapped);
        check_both_ways(h.e, h.mem[i], h.seg, t->mem + 4097, SIZE - 5000);
    }
    close_here(&h);
}

/* As many as there are sources, and the order to unregister while they run. */
static void submit_and_order(struct here *h, struct target *t)
{
    const size_t part = SIZE / 30; /* each has its own, so the device's order does not matter */
    te_request r[30];
    struct te_status st;
    te_batch b;

    for (size_t i = 0; i < 30; i++)
        r[i] = request_for(i % 2 ? TE_READ : TE_WRITE, (char *)h->mem[i % h->n] + i * part, h->seg,
                           t->mem + i * part, part - 7);
    assert_int_equal(te_batch_alloc(h->e, 30, &b), 0);
    assert_int_equal(te_submit(h->e, b, r, 30, NULL), 0);
    assert_int_equal(write(t->to, "", 1), 1);
    assert_int_equal(te_wait(h->e, b, PATIENCE_MS), 0);
    for (size_t i = 0; i < 30; i++) {
        assert_int_equal(te_status(h->e, b, i, &st), 0);
        assert_true(st.state == TE_COMPLETED || st.state == TE_FAILED || st.state == TE_INVALID);
    }
    assert_int_equal(te_batch_free(h->e, b), 0);
    listen_to(t); /* which says that te_unregister() was 0 */
}

static int control_stream(const char *command)
{
    void *at = dlsym(RTLD_DEFAULT, "softgpu_control");
    int (*control)(const char *commands);

    if (!at)
        return 0; /* a driver is real: its copies take a while */
    memcpy(&control, &at, sizeof control);
    return control(command);
}

static void look(const struct here *h, const struct target *t, unsigned char *bytes)
{
    assert_int_equal(move(h->e, request_for(TE_READ, h->mem[0], h->seg, t->mem, SIZE)),
                     TE_COMPLETED);
    assert_int_equal(tei_mem_copy(bytes, h->mem[0], SIZE), 0);
}

/* A WRITE that was cancelled while its device copies is over there, too, once it is over here. */
static void canceled_is_over(void **state)
{
    unsigned char *then = malloc(SIZE), *now = malloc(SIZE);
    struct target *t = &targets[0];
    size_t total, canceled = 0;
    struct here h;

    (void)state;
    open_here(&h, t, NULL, NULL);
    for (size_t i = 0; i < 300 && (canceled < 3 || i < 30); i++) {
        te_request r = request_for(TE_WRITE, h.mem[i % h.n], h.seg, t->mem, SIZE);
        struct te_status st;
        te_batch b;

        fill(now, SIZE, i);
        assert_int_equal(tei_mem_copy(h.mem[i % h.n], now, SIZE), 0);
        assert_int_equal(control_stream("stall ms=86400000"), 0);
        assert_int_equal(te_batch_alloc(h.e, 1, &b), 0);
        assert_int_equal(te_submit(h.e, b, &r, 1, NULL), 0);
        assert_int_equal(te_cancel(h.e, b), 0);
        assert_int_equal(control_stream("release"), 0);
        assert_int_equal(te_wait(h.e, b, PATIENCE_MS), 0);
        assert_int_equal(te_status(h.e, b, 0, &st), 0);
        canceled += st.state == TE_CANCELED;
        if (te_fence(h.e, b, 0, NULL, 0, &total))
            fail_msg("%s", te_errmsg());
        assert_int_equal(te_batch_free(h.e, b), 0);
        look(&h, t, then);
        look(&h, t, now);
        assert_memory_equal(then, now, SIZE);
    }
    assert_true(canceled >= 3);
    free(then);
    free(now);
    close_here(&h);
}

/* It goes and comes again at an address that may be the same, while requests run. */
static void registered_anew(void **state)
{
    struct target *t = &targets[0];
    struct here h;

    (void)state;
    open_here(&h, t, NULL, NULL);
    for (size_t i = 0; i < 6; i++) {
        check_both_ways(h.e, h.mem[i % h.n], h.seg, t->mem + i, SIZE - 77);
        submit_and_order(&h, t);
    }
    check_both_ways(h.e, h.mem[1], h.seg, t->mem, SIZE);
    check_explains(h.e, request_for(TE_READ, h.mem[1], h.seg, t->mem, 100), mapped);
    close_here(&h);
}

/* Then tcp carries it, and te_explain() has the driver's word. */
static void refused_by_the_driver(void **state)
{
    void *at = dlsym(RTLD_DEFAULT, "softgpu_control");
    int (*control)(const char *commands);
    struct target *t = &targets[1];
    struct here h;

    (void)state;
    if (!at)
        skip();
    memcpy(&control, &at, sizeof control);
    open_here(&h, t, NULL, NULL);
    assert_int_equal(control("fail ipc_open count=1000; fail import count=1000"), 0);
    check_both_ways(h.e, h.mem[0], h.seg, t->mem + 1, 1000001);
    check_explains(h.e, request_for(TE_READ, h.mem[0], h.seg, t->mem, 100), "does not map");
    check_both_ways(h.e, h.mem[1], h.seg, t->mem + 1, 1000001);
    assert_int_equal(control("clear"), 0);
    close_here(&h);
}

/* What is read then is what was written, or the request fails; the engine goes on with others. */
static void the_peer_dies(void **state)
{
    struct target *t = &targets[2];
    unsigned char bytes[100000] = {0};
    struct here h;
    te_segment other;

    (void)state;
    open_here(&h, t, NULL, NULL);
    check_both_ways(h.e, h.mem[1], h.seg, t->mem, sizeof bytes);
    assert_int_equal(tei_mem_copy(h.mem[1], bytes, sizeof bytes), 0);
    kill(t->pid, SIGKILL);
    waitpid(t->pid, NULL, 0);
    t->pid = 0;
    for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++)
        assert_int_equal(move(h.e, request_for(opcode, h.mem[1], h.seg, t->mem, sizeof bytes)),
                         TE_FAILED);
    assert_int_equal(te_open(h.e, targets[0].name, &other), 0);
    check_both_ways(h.e, h.mem[h.n - 1], other, targets[0].mem, 100000);
    check_explains(h.e, request_for(TE_READ, h.mem[h.n - 1], other, targets[0].mem, 100), mapped);
    close_here(&h);
}

static void forced(void **state)
{
    struct here h;

    (void)state;
    open_here(&h, &targets[0], "MC_FORCE_TCP", "1");
    check_explains(h.e, request_for(TE_READ, h.mem[1], h.seg, targets[0].mem, 100),
                   "transport tcp: score 50, taken");
    check_both_ways(h.e, h.mem[1], h.seg, targets[0].mem, 1000001);
    close_here(&h);
    open_here(&h, &targets[0], "MC_INTRA_NVLINK", "1");
    check_both_ways(h.e, h.mem[1], h.seg, targets[0].mem, 1000001);
    check_explains(h.e, request_for(TE_READ, h.mem[1], h.seg, targets[0].mem, 100), mapped);
    close_here(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mapped_by_itself), cmocka_unit_test(canceled_is_over),
        cmocka_unit_test(registered_anew),  cmocka_unit_test(refused_by_the_driver),
        cmocka_unit_test(the_peer_dies),    cmocka_unit_test(forced)};
    int rc = 77;

    for (size_t i = 0; i < 3; i++)
        start(&targets[i]);
    if (tei_gpu_open(TEI_MEM_CUDA) == 0 && tei_gpu_count(TEI_MEM_CUDA) >= 1) {
        for (size_t i = 0; i < 3; i++)
            listen_to(&targets[i]);
        rc = cmocka_run_group_tests(tests, NULL, NULL);
    } else {
        puts("no CUDA driver, or no device");
    }
    for (size_t i = 0; i < 3; i++)
        if (targets[i].pid) {
            kill(targets[i].pid, SIGKILL);
            waitpid(targets[i].pid, NULL, 0);
        }
    return rc;
}
