/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_rig.h"

#include "child_engine.h"
#include "patience.h"
#include "fabric/softgpu/softgpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

const char *const places[PLACES] = {"cpu:0", "cuda:0", "cuda:1", "hip:0", "ascend:0", "musa:0"};
static const enum softgpu_kind kinds[PLACES] = {SOFTGPU_KINDS, SOFTGPU_CUDA,   SOFTGPU_CUDA,
                                                SOFTGPU_HIP,   SOFTGPU_ASCEND, SOFTGPU_MUSA};

static bool is_soft(enum softgpu_kind kind)
{
    void *at = dlsym(RTLD_DEFAULT, "softgpu_plays");
    bool (*plays)(enum softgpu_kind);

    memcpy(&plays, &at, sizeof plays);
    return at && plays(kind);
}

bool soft_control(const char *commands)
{
    void *at = dlsym(RTLD_DEFAULT, "softgpu_control");
    int (*control)(const char *);

    memcpy(&control, &at, sizeof control);
    if (!at || !is_soft(SOFTGPU_CUDA))
        return false;
    assert_int_equal(control(commands), 0);
    return true;
}

te_engine *make_engine(const char *option)
{
    te_engine *e = NULL;
    te_options o;

    loopback_options(&o);
    if (option) {
        char name[64];
        int n = (int)strcspn(option, "=");

        snprintf(name, sizeof name, "%.*s", n, option);
        assert_int_equal(te_option_set(&o, name, option + n + 1), 0);
    }
    if (te_engine_create(&o, &e))
        fail_msg("%s", te_errmsg());
    te_options_fini(&o);
    return e;
}

void take_memory(te_engine *e, struct memory *m)
{
    for (size_t i = 0; i < PLACES; i++) {
        void *p = NULL;

        m->at[i] = NULL;
        if (te_alloc(e, RIG_BYTES, places[i], &p)) {
            if (!i || is_soft(kinds[i]))
                fail_msg("%s: %s", places[i], te_errmsg());
            continue;
        }
        if (te_register(e, p, RIG_BYTES, i ? "*" : places[i], TE_REMOTE_RW))
            fail_msg("%s: %s", places[i], te_errmsg());
        m->at[i] = p;
    }
}

void give_memory(te_engine *e, const struct memory *m)
{
    for (size_t i = 0; i < PLACES; i++) {
        if (!m->at[i])
            continue;
        assert_int_equal(te_unregister(e, m->at[i]), 0);
        assert_int_equal(te_free(e, m->at[i]), 0);
    }
}

/* --------------------------------------------------------------------------------------- the peer */

static void serve(const char *option, int out, int hold)
{
    struct peer me = {0};
    te_engine *e;
    char c;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    e = make_engine(option);
    take_memory(e, &me.mem);
    if (te_engine_name(e, me.name, sizeof me.name) || write(out, &me, sizeof me) != sizeof me)
        _exit(1);
    while (read(hold, &c, 1) > 0)
        continue;
    give_memory(e, &me.mem);
    te_engine_destroy(e);
    _exit(0);
}

/* Before this process has opened a driver: a forked child could not use it. */
struct peer start_peer(const char *option)
{
    struct peer p;
    int out[2], hold[2];
    pid_t pid;

    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe(hold), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(out[0]);
        close(hold[1]);
        serve(option, out[1], hold[0]);
    }
    close(out[1]);
    close(hold[0]);
    if (read(out[0], &p, sizeof p) != sizeof p)
        fail_msg("the peer did not come up");
    close(out[0]);
    p.pid = pid;
    p.hold = hold[1];
    return p;
}

void freeze_peer(const struct peer *p)
{
    int status;

    assert_int_equal(kill(p->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(p->pid, &status, WUNTRACED), p->pid);
    assert_true(WIFSTOPPED(status));
}

void stop_peer(struct peer *p)
{
    int status;

    close(p->hold);
    kill(p->pid, SIGCONT);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    assert_int_equal(status, 0);
}

/* ------------------------------------------------------------------------------------- transfers */

struct te_status move(te_engine *e, int opcode, void *local, te_segment seg, uint64_t remote,
                      size_t n)
{
    te_request r = {
        .opcode = opcode, .source = local, .target = seg, .target_offset = remote, .length = n};
    struct te_status st;
    te_batch b;

    assert_int_equal(te_batch_alloc(e, 1, &b), 0);
    if (te_submit(e, b, &r, 1, NULL))
        fail_msg("%s", te_errmsg());
    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    assert_int_equal(te_status(e, b, 0, &st), 0);
    if (st.state != TE_COMPLETED) {
        char msg[512] = "";

        te_status_msg(e, b, 0, msg, sizeof msg);
        print_message("state %d: %s\n", st.state, msg);
    }
    assert_int_equal(te_batch_free(e, b), 0);
    return st;
}

void moves(te_engine *e, int opcode, void *local, te_segment seg, uint64_t remote, size_t n)
{
    struct te_status st = move(e, opcode, local, seg, remote, n);

    assert_int_equal(st.state, TE_COMPLETED);
    assert_int_equal(st.bytes, n);
}

/* What the host wants in memory at any place of its own, or wants to see of it. */
void put(te_engine *e, char *scratch, char *to, size_t n)
{
    moves(e, TE_WRITE, scratch, TE_LOCAL_SEGMENT, (uintptr_t)to, n);
}

void get(te_engine *e, char *scratch, const char *from, size_t n)
{
    moves(e, TE_READ, scratch, TE_LOCAL_SEGMENT, (uintptr_t)from, n);
}

bool has_devices(const struct memory *m)
{
    for (size_t i = 1; i < PLACES; i++)
        if (m->at[i])
            return true;
    return false;
}

struct rig rig_up(const char *option, const struct peer *p)
{
    struct rig r = {.e = make_engine(option)};
    void *scratch;

    take_memory(r.e, &r.mine);
    assert_int_equal(te_alloc(r.e, RIG_BYTES, "cpu:0", &scratch), 0);
    assert_int_equal(te_register(r.e, scratch, RIG_BYTES, "cpu:0", TE_LOCAL_ONLY), 0);
    r.scratch = scratch;
    if (p)
        assert_int_equal(te_open(r.e, p->name, &r.seg), 0);
    return r;
}

void rig_down(struct rig *r)
{
    give_memory(r->e, &r->mine);
    assert_int_equal(te_unregister(r->e, r->scratch), 0);
    assert_int_equal(te_free(r->e, r->scratch), 0);
    te_engine_destroy(r->e);
}
