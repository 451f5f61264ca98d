/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"
#include "transport/gpuipc/gpuipc_page.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "patience.h"
#include "te.h"

struct rig {
    struct gpuipc_page *own; /* the owner's view */
    struct gpuipc_page *of;  /* an initiator's */
    struct gpuipc_row *row;
    struct gpuipc_keys keys;
    int fd;
    uint32_t phase;
};

static void open_rig(struct rig *r)
{
    char why[300] = "";

    memset(r, 0, sizeof *r);
    tei_random(r->keys.nonce, sizeof r->keys.nonce);
    r->own = tei_gpuipc_page_make(r->keys.nonce, &r->fd);
    assert_non_null(r->own);
    r->keys.fd = (uint64_t)r->fd;
    r->of = tei_gpuipc_page_find(&r->keys, getpid(), why, sizeof why);
    if (!r->of)
        fail_msg("%s", why);
    r->row = tei_gpuipc_row_take(r->of);
    assert_non_null(r->row);
}

static void close_rig(struct rig *r)
{
    tei_gpuipc_row_give(r->row);
    tei_gpuipc_page_unmap(r->of);
    tei_gpuipc_page_unmap(r->own);
    tei_fd_close(r->fd);
}

TEST(enters_what_is_there)
{
    struct rig r;
    unsigned side;

    open_rig(&r);
    atomic_store(&r.own->generation[7], 41);
    assert_true(tei_gpuipc_enter(r.of, r.row, 7, 41, &side));
    tei_gpuipc_leave(r.row, side);
    assert_false(tei_gpuipc_enter(r.of, r.row, 7, 40, &side));
    assert_false(tei_gpuipc_enter(r.of, r.row, GPUIPC_SLOTS, 0, &side));
    assert_false(tei_gpuipc_enter(r.of, r.row, GPUIPC_NO_SLOT, 0, &side));
    atomic_store(&r.own->generation[7], 42);
    assert_false(tei_gpuipc_enter(r.of, r.row, 7, 41, &side));
    assert_int_equal(tei_gpuipc_page_drain(r.own, &r.phase), 0);
    close_rig(&r);
}

TEST(waits_for_those_inside)
{
    unsigned side, other;
    struct rig r;

    open_rig(&r);
    assert_true(tei_gpuipc_enter(r.of, r.row, 1, 0, &side));
    atomic_store(&r.own->generation[1], 1);
    assert_int_equal(tei_gpuipc_page_drain(r.own, &r.phase), TE_ERR_BUSY);
    assert_non_null(strstr(te_errmsg(), "process"));
    /* What has entered since then holds up nobody but itself. */
    tei_gpuipc_leave(r.row, side);
    assert_true(tei_gpuipc_enter(r.of, r.row, 2, 0, &other));
    tei_gpuipc_leave(r.row, other);
    assert_int_equal(tei_gpuipc_page_drain(r.own, &r.phase), 0);
    close_rig(&r);
}

/* What a peer writes where the phase stands does not mislead the owner. */
TEST(knows_the_phase_itself)
{
    struct rig r;
    unsigned side;

    open_rig(&r);
    assert_int_equal(tei_gpuipc_page_drain(r.own, &r.phase), 0);
    assert_int_equal(atomic_load(&r.of->phase), 2);
    atomic_store(&r.of->phase, 77);
    assert_true(tei_gpuipc_enter(r.of, r.row, 1, 0, &side));
    assert_int_equal(side, 1);
    assert_int_equal(tei_gpuipc_page_drain(r.own, &r.phase), TE_ERR_BUSY);
    tei_gpuipc_leave(r.row, side);
    assert_int_equal(tei_gpuipc_page_drain(r.own, &r.phase), 0);
    assert_int_equal(atomic_load(&r.of->phase), r.phase);
    close_rig(&r);
}

/* A process that ends inside holds up nobody, and its row is free again. */
TEST(forgets_the_dead)
{
    struct rig r;
    int status;
    pid_t pid;

    open_rig(&r);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char why[300];
        struct gpuipc_page *p = tei_gpuipc_page_find(&r.keys, getppid(), why, sizeof why);
        struct gpuipc_row *row = p ? tei_gpuipc_row_take(p) : NULL;
        unsigned side;

        _exit(row && tei_gpuipc_enter(p, row, 3, 0, &side) ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(atomic_load(&r.own->rows[1].who) != 0);
    assert_int_equal(tei_gpuipc_page_drain(r.own, &r.phase), 0);
    assert_true(atomic_load(&r.own->rows[1].who) == 0);
    close_rig(&r);
}

static void *stay_inside(void *arg)
{
    int *pipes = arg;

    assert_int_equal(write(pipes[1], "", 1), 1);
    pause();
    return NULL;
}

/* A process that is inside; `only_thread` false: its first thread has ended. Its number. */
static pid_t fork_inside(const struct rig *r, bool only_thread)
{
    int pipes[2];
    pid_t pid;
    char c;

    assert_int_equal(pipe(pipes), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char why[300];
        struct gpuipc_page *p = tei_gpuipc_page_find(&r->keys, getppid(), why, sizeof why);
        struct gpuipc_row *row = p ? tei_gpuipc_row_take(p) : NULL;
        pthread_t thread;
        unsigned side;

        if (!row || !tei_gpuipc_enter(p, row, 3, 0, &side))
            _exit(1);
        if (only_thread)
            stay_inside(pipes);
        if (pthread_create(&thread, NULL, stay_inside, pipes) != 0)
            _exit(1);
        syscall(SYS_exit, 0); /* only this thread, without what a sanitizer does then */
    }
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &c, 1), 1);
    close(pipes[0]);
    return pid;
}

static void kill_it(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* What cannot be found out about a process does not count as its end. */
TEST(who_cannot_be_looked_at_lives)
{
    struct rlimit was, none = {0};
    struct rig r;
    pid_t pid;

    open_rig(&r);
    pid = fork_inside(&r, true);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    none.rlim_max = was.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(tei_gpuipc_page_drain(r.own, &r.phase), TE_ERR_BUSY);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    kill_it(pid);
    assert_int_equal(tei_gpuipc_page_drain(r.own, &r.phase), 0);
    close_rig(&r);
}

/* The first thread of a process may end before the others. */
TEST(a_process_outlives_its_first_thread)
{
    struct rig r;
    pid_t pid;

    open_rig(&r);
    pid = fork_inside(&r, false);
    assert_int_equal(tei_gpuipc_page_drain(r.own, &r.phase), TE_ERR_BUSY);
    kill_it(pid);
    assert_int_equal(tei_gpuipc_page_drain(r.own, &r.phase), 0);
    close_rig(&r);
}

TEST(hands_out_all_rows)
{
    struct gpuipc_row *rows[GPUIPC_ROWS];
    struct rig r;

    open_rig(&r);
    for (size_t i = 1; i < GPUIPC_ROWS; i++) {
        rows[i] = tei_gpuipc_row_take(r.of);
        assert_non_null(rows[i]);
    }
    assert_null(tei_gpuipc_row_take(r.of));
    tei_gpuipc_row_give(rows[500]);
    assert_ptr_equal(tei_gpuipc_row_take(r.of), rows[500]);
    close_rig(&r);
}

static void check_not_found(const struct gpuipc_keys *k, pid_t pid, const char *reason)
{
    char why[300] = "";

    assert_null(tei_gpuipc_page_find(k, pid, why, sizeof why));
    if (!strstr(why, reason))
        fail_msg("'%s' does not say '%s'", why, reason);
}

TEST(finds_no_other_page)
{
    struct gpuipc_keys k;
    struct rig r;
    int fd;

    open_rig(&r);
    k = r.keys;
    k.nonce[3] ^= 1;
    check_not_found(&k, getpid(), "not the one");
    k = r.keys;
    check_not_found(&k, INT32_MAX, "cannot be opened"); /* above what a pid may be */
    k.fd = 0;
    check_not_found(&k, getpid(), "cannot be opened");
    k.fd = (uint64_t)open("/dev/null", O_RDWR | O_CLOEXEC);
    check_not_found(&k, getpid(), "cannot be opened");
    close((int)k.fd);
    /* of the right size, but it could be made smaller */
    fd = memfd_create("small", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof *r.own), 0);
    k.fd = (uint64_t)fd;
    check_not_found(&k, getpid(), "cannot be opened");
    close(fd);
    close_rig(&r);
}

struct race {
    struct rig *r;
    _Atomic uint32_t generation; /* that the initiator goes by */
    _Atomic uint32_t gone;       /* generations up to this one are fenced */
    _Atomic bool stop, bad;
    _Atomic unsigned entered;
};

static void *come_and_go(void *arg)
{
    struct race *race = arg;
    unsigned side;

    while (!atomic_load(&race->stop)) {
        uint32_t generation = atomic_load(&race->generation);

        if (!tei_gpuipc_enter(race->r->of, race->r->row, 9, generation, &side))
            continue;
        if (atomic_load(&race->gone) > generation)
            atomic_store(&race->bad, true);
        atomic_fetch_add(&race->entered, 1);
        tei_gpuipc_leave(race->r->row, side);
    }
    return NULL;
}

/* The owner has done with all generations before this one. Who is inside may get no CPU for long. */
static void begin_generation(struct race *race, uint32_t i)
{
    int64_t limit = tei_now_ns() + PATIENCE_NS;
    int rc = TE_ERR_BUSY;

    atomic_store(&race->r->own->generation[9], i);
    while (rc == TE_ERR_BUSY && tei_now_ns() < limit)
        rc = tei_gpuipc_page_drain(race->r->own, &race->r->phase);
    assert_int_equal(rc, 0);
    atomic_store(&race->gone, i);
    atomic_store(&race->generation, i);
}

/* Nobody is ever inside with a generation that the owner has done with. */
TEST(nobody_is_left_inside)
{
    pthread_t threads[3];
    struct race race = {0};
    struct rig r;

    open_rig(&r);
    race.r = &r;
    for (size_t i = 0; i < TEI_ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &race), 0);
    for (uint32_t i = 1; i < 300; i++) {
        unsigned before = atomic_load(&race.entered);

        begin_generation(&race, i);
        if (i % 2) /* the next one begins while they come and go, or at once */
            WAIT_FOR(atomic_load(&race.entered) > before);
    }
    atomic_store(&race.stop, true);
    for (size_t i = 0; i < TEI_ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
    assert_false(atomic_load(&race.bad));
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(enters_what_is_there),
                                       cmocka_unit_test(waits_for_those_inside),
                                       cmocka_unit_test(forgets_the_dead),
                                       cmocka_unit_test(knows_the_phase_itself),
                                       cmocka_unit_test(hands_out_all_rows),
                                       cmocka_unit_test(who_cannot_be_looked_at_lives),
                                       cmocka_unit_test(a_process_outlives_its_first_thread),
                                       cmocka_unit_test(finds_no_other_page),
                                       cmocka_unit_test(nobody_is_left_inside)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
