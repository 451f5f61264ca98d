/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=300 */
/*
 * te_path() of requests whose transport fails, and which go by another one then: what it tells is of one
 * moment whenever it is asked, and their errors are those of what has failed.
 */
#include "child_engine.h"
#include "forbid_process_vm.h"
#include "metric.h"
#include "pair.h"
#include "patience.h"
#include "proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SEED_LOCAL  1
#define SEED_REMOTE 2
#define REQUESTS    16
#define PART        (PAIR_SIZE / REQUESTS)

static struct te_path path_of(te_engine *e, te_batch b, size_t task)
{
    struct te_path path = {.size = sizeof(path)};

    if (te_path(e, b, task, &path))
        fail_msg("%s", te_errmsg());
    return path;
}

static struct te_status status_of(te_engine *e, te_batch b, size_t task)
{
    struct te_status st;

    assert_int_equal(te_status(e, b, task, &st), 0);
    return st;
}

static bool is(const struct te_path *path, const char *transport, unsigned changes)
{
    return strcmp(path->transport, transport) == 0 && path->changes == changes;
}

/*
 * Of a request that goes from one transport to the other once, or not at all; or goes by the other from the
 * beginning, unless it was `seen` on its first one.
 */
static void is_of_one_moment(const struct te_path *path, const char *from, const char *to,
                             bool *seen)
{
    *seen |= is(path, from, 0);
    if (!is(path, from, 0) && !is(path, to, 1) && (*seen || !is(path, to, 0)))
        fail_msg("from %s to %s: '%s' after %u changes", from, to, path->transport, path->changes);
    assert_string_equal(path->nic, "");
    assert_int_equal(path->staged, 0);
}

static void submit(struct pair *p, te_batch b, int opcode, size_t n)
{
    te_request r[REQUESTS];

    for (size_t i = 0; i < n; i++)
        r[i] = (te_request){.opcode = opcode,
                            .source = p->am + i * PART,
                            .target = p->seg,
                            .target_offset = (uintptr_t)p->bm + i * PART,
                            .length = PART};
    if (te_submit(p->a, b, r, n, NULL))
        fail_msg("%s", te_errmsg());
}

/* Asks all the time until all of them have ended. */
static void follow(struct pair *p, te_batch b, size_t n, const char *from, const char *to)
{
    bool seen[REQUESTS] = {false};
    size_t ended;

    do {
        ended = 0;
        for (size_t i = 0; i < n; i++) {
            struct te_status st = status_of(p->a, b, i);
            struct te_path path = path_of(p->a, b, i);

            is_of_one_moment(&path, from, to, &seen[i]);
            ended += st.state != TE_WAITING && st.state != TE_PENDING;
        }
    } while (ended < n && te_wait(p->a, b, 0) == TE_ERR_TIMEOUT);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
}

static void fill_both(struct pair *p)
{
    fill(p->am, PAIR_SIZE, SEED_LOCAL);
    fill(p->bm, PAIR_SIZE, SEED_REMOTE);
}

/* ---------------------------------------------------------------------------- a way that is lost */

/* A thread that process_vm fails for, and which posts what is short enough to be copied by it at once. */
struct stranger {
    struct pair *p;
    te_batch b;
    te_request r;
    int rc;
    bool refused; /* by a kernel, or a sandbox, without seccomp filters */
};

static void *post_as_stranger(void *arg)
{
    struct stranger *s = arg;

    s->refused = forbid_process_vm(EFAULT) != 0;
    if (!s->refused)
        s->rc = te_submit(s->p->a, s->b, &s->r, 1, NULL);
    return NULL;
}

/* One request that the host transport finds it cannot carry; false if that cannot be had here. */
static bool lose_host(struct pair *p, int opcode, size_t length)
{
    struct stranger s = {.p = p,
                         .r = {.opcode = opcode,
                               .source = p->am,
                               .target = p->seg,
                               .target_offset = (uintptr_t)p->bm,
                               .length = length}};
    struct te_path path;
    pthread_t thread;

    fill_both(p);
    assert_int_equal(te_batch_alloc(p->a, 1, &s.b), 0);
    assert_int_equal(pthread_create(&thread, NULL, post_as_stranger, &s), 0);
    pthread_join(thread, NULL);
    if (s.refused) {
        assert_int_equal(te_batch_free(p->a, s.b), 0);
        return false;
    }
    assert_int_equal(s.rc, 0);
    follow(p, s.b, 1, "host", "tcp");
    path = path_of(p->a, s.b, 0);
    assert_int_equal(status_of(p->a, s.b, 0).state, TE_COMPLETED);
    if (!is(&path, "tcp", 1))
        fail_msg("'%s' after %u changes", path.transport, path.changes);
    if (opcode == TE_READ)
        assert_int_equal(first_difference(p->am, length, SEED_REMOTE), length);
    else
        assert_int_equal(first_difference(p->bm, length, SEED_LOCAL), length);
    assert_int_equal(te_batch_free(p->a, s.b), 0);
    return true;
}

static void a_lost_way(void **state)
{
    struct pair *p = *state;

    for (int i = 0; i < 20; i++) {
        if (!lose_host(p, i % 2 ? TE_READ : TE_WRITE, 4096))
            skip();
        assert_int_equal(metric_of(p->a, "transport_path_changes_total{transport=\"tcp\"}"), i + 1);
        assert_int_equal(metric("transport_path_changes_total{transport=\"host\"}"), 0);
        assert_int_equal(metric("request_failovers_total{from=\"host\",to=\"tcp\"}"), i + 1);
        assert_int_equal(metric("request_failovers_total{from=\"tcp\",to=\"host\"}"), 0);
        /* Registered anew it is another region, which the host transport tries again. */
        assert_int_equal(te_unregister(p->b, p->bm), 0);
        assert_int_equal(te_register(p->b, p->bm, PAIR_SIZE, "*", TE_REMOTE_RW), 0);
        assert_int_equal(te_refresh(p->a, p->bname), 0);
    }
}

/* ------------------------------------------------------------------------- changes at the target */

/* Whether a request has ended in a way that a change of the target allows. */
static bool may_be(int opcode, const struct te_status *st, const struct te_path *path)
{
    /* Only what had been sent, in part, may have ended so. */
    if (st->error == TE_ERR_LINK)
        return opcode == TE_WRITE && is(path, "tcp", 0);
    return st->state == TE_COMPLETED || st->error == TE_ERR_PEER || st->error == TE_ERR_STALE;
}

/* How many have gone by `to`, after a change, with the bytes that they should have moved. */
static size_t count_changed(struct pair *p, te_batch b, int opcode, const char *to)
{
    const unsigned char *moved = opcode == TE_READ ? p->am : p->bm;
    unsigned char *expect = map_pages(PAIR_SIZE);
    size_t n = 0;

    fill(expect, PAIR_SIZE, opcode == TE_READ ? SEED_REMOTE : SEED_LOCAL);
    for (size_t i = 0; i < REQUESTS; i++) {
        struct te_status st = status_of(p->a, b, i);
        struct te_path path = path_of(p->a, b, i);
        char why[512];

        assert_int_equal(te_status_msg(p->a, b, i, why, sizeof(why)), 0);
        if (!may_be(opcode, &st, &path))
            fail_msg("by %s after %u changes: %s", path.transport, path.changes, why);
        if (st.state != TE_COMPLETED)
            continue;
        assert_memory_equal(moved + i * PART, expect + i * PART, PART);
        n += is(&path, to, 1);
    }
    munmap(expect, PAIR_SIZE);
    return n;
}

/* Requests, while `change` does something to the target; whether any of them has gone by `to` then. */
static bool changes_by(struct pair *p, int opcode, const char *from, const char *to,
                       void (*change)(struct pair *p))
{
    size_t n;
    te_batch b;

    fill_both(p);
    assert_int_equal(te_batch_alloc(p->a, REQUESTS, &b), 0);
    submit(p, b, opcode, REQUESTS);
    change(p);
    follow(p, b, REQUESTS, from, to);
    n = count_changed(p, b, opcode, to);
    assert_int_equal(te_batch_free(p->a, b), 0);
    return n > 0;
}

/* On the port that its name says. */
static void start_b(struct pair *p, const char *host_path)
{
    char name[sizeof(p->bname)];
    te_options o;

    loopback_options(&o);
    o.local_server_name = p->bname;
    assert_int_equal(te_option_set(&o, "TE_HOST_PATH", host_path), 0);
    if (te_engine_create(&o, &p->b))
        fail_msg("%s", te_errmsg());
    te_options_fini(&o);
    assert_int_equal(te_engine_name(p->b, name, sizeof(name)), 0);
    assert_string_equal(name, p->bname);
    assert_int_equal(te_register(p->b, p->bm, PAIR_SIZE, "*", TE_REMOTE_RW), 0);
}

/* A pair whose target has a port that nobody gets while it is away. */
static int set_up(void **state)
{
    struct pair *p;

    pair_setup(state);
    p = *state;
    te_engine_destroy(p->b);
    snprintf(p->bname, sizeof(p->bname), "127.0.0.1:%u", test_free_port());
    start_b(p, "1");
    assert_int_equal(te_open(p->a, p->bname, &p->seg), 0);
    return 0;
}

static void restart_with_host(struct pair *p)
{
    te_engine_destroy(p->b);
    start_b(p, "1");
}

static void restart_without_host(struct pair *p)
{
    te_engine_destroy(p->b);
    start_b(p, "0");
}

/* To tcp and back. What host had under way asks for the target at once, and mostly finds none. */
static bool by_restarts(struct pair *p, int opcode)
{
    bool changed;

    (void)changes_by(p, opcode, "host", "tcp", restart_without_host);
    assert_int_equal(te_refresh(p->a, p->bname), 0);
    changed = changes_by(p, opcode, "tcp", "host", restart_with_host);
    assert_int_equal(te_refresh(p->a, p->bname), 0);
    return changed;
}

static void a_restarted_target(void **state)
{
    WAIT_FOR(by_restarts(*state, TE_READ));
    WAIT_FOR(by_restarts(*state, TE_WRITE));
}

static void uninstall_host(struct pair *p)
{
    if (te_transport_uninstall(p->b, "host"))
        fail_msg("%s", te_errmsg());
}

static bool by_uninstall(struct pair *p, int opcode)
{
    bool changed = changes_by(p, opcode, "host", "tcp", uninstall_host);

    assert_int_equal(te_transport_install(p->b, "host", NULL), 0);
    assert_int_equal(te_refresh(p->a, p->bname), 0);
    return changed;
}

static void an_uninstalled_transport(void **state)
{
    WAIT_FOR(by_uninstall(*state, TE_READ));
    WAIT_FOR(by_uninstall(*state, TE_WRITE));
}

/* ------------------------------------------------------------------------ a target that is ending */

/* Resets every connection, as the port of an engine does that is just being ended; until it is shut down. */
static void *reset_all(void *arg)
{
    const struct linger now = {.l_onoff = 1};
    int listener = *(const int *)arg, fd;

    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        char byte;

        (void)!read(fd, &byte, 1);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        close(fd);
    }
    return NULL;
}

/* That its descriptor could not be fetched is not that a connection was lost during the transfer. */
static void a_target_that_is_ending(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct pair *p = *state;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pthread_t thread;
    struct te_status st;
    te_batch b;

    at.sin_port = htons((uint16_t)atoi(strchr(p->bname, ':') + 1));
    te_engine_destroy(p->b);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(pthread_create(&thread, NULL, reset_all, &fd), 0);
    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    submit(p, b, TE_WRITE, 1);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    st = status_of(p->a, b, 0);
    shutdown(fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(fd);
    start_b(p, "1");
    assert_int_equal(st.error, TE_ERR_PEER);
    assert_int_equal(te_batch_free(p->a, b), 0);
}

/* ------------------------------------------------------------------------------------------ main */

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, pair_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_lost_way),
        CASE(a_restarted_target),
        CASE(an_uninstalled_transport),
        CASE(a_target_that_is_ending),
    };

    engines_are_patient();
    te_log_set_level(TE_LOG_OFF);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
