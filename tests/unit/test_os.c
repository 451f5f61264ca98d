/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"
#include "test.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(deadlines_are_ahead_or_never)
{
    int64_t before = tei_now_ns(), d = tei_deadline_ns(1000);

    assert_true(d >= before + TEI_NS_PER_S && d <= tei_now_ns() + TEI_NS_PER_S);
    assert_true(tei_deadline_ns(-1) == TEI_NEVER);
    assert_true(tei_deadline_ns(INT64_MIN) == TEI_NEVER);
    assert_true(tei_deadline_ns(INT64_MAX) == TEI_NEVER);
    assert_true(tei_deadline_ns(INT64_MAX / TEI_NS_PER_MS) == TEI_NEVER);
}

TEST(what_is_left_is_rounded_up)
{
    int64_t start, took_ms;
    int left;

    assert_int_equal(tei_left_ms(TEI_NEVER), -1);
    assert_int_equal(tei_left_ms(0), 0);
    assert_int_equal(tei_left_ms(INT64_MIN), 0);
    assert_int_equal(tei_left_ms(tei_now_ns() - 1), 0);
    assert_int_equal(tei_left_ms(TEI_NEVER - 1), INT_MAX);
    start = tei_now_ns();
    left = tei_left_ms(start + 60000 * TEI_NS_PER_MS + 1);
    took_ms = (tei_now_ns() - start) / TEI_NS_PER_MS + 1;
    assert_true(left <= 60001 && left >= 60001 - took_ms);
}

struct told {
    char name[16];
    bool user_blocked, fault_blocked;
    _Atomic bool named;
};

static void *look_at_self(void *arg)
{
    struct told *t = arg;
    sigset_t set;

    while (!t->named)
        usleep(100);
    pthread_getname_np(pthread_self(), t->name, sizeof t->name);
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    t->user_blocked =
        sigismember(&set, SIGUSR1) && sigismember(&set, SIGTERM) && sigismember(&set, SIGPIPE);
    t->fault_blocked = sigismember(&set, SIGSEGV) || sigismember(&set, SIGBUS);
    return NULL;
}

TEST(threads_have_names_and_no_signals)
{
    struct told t = {0};
    pthread_t thread;
    sigset_t set;

    assert_int_equal(tei_thread_start(&thread, "te/a-name-too-long", look_at_self, &t), 0);
    t.named = true;
    pthread_join(thread, NULL);
    assert_string_equal(t.name, "te/a-name-too-l");
    assert_true(t.user_blocked);
    assert_false(t.fault_blocked);
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    assert_false(sigismember(&set, SIGUSR1));
}

TEST(conditions_keep_deadlines)
{
    pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t c;
    int64_t start = tei_now_ns();

    tei_cond_init(&c);
    pthread_mutex_lock(&m);
    assert_false(tei_cond_wait_until(&c, &m, start - 1));
    assert_false(tei_cond_wait_until(&c, &m, 0));
    assert_false(tei_cond_wait_until(&c, &m, -5));
    while (tei_cond_wait_until(&c, &m, start + 20 * TEI_NS_PER_MS))
        continue;
    assert_true(tei_now_ns() >= start + 20 * TEI_NS_PER_MS);
    pthread_mutex_unlock(&m);
    pthread_cond_destroy(&c);
}

struct gate {
    pthread_mutex_t m;
    pthread_cond_t c;
    bool open;
};

static void *open_gate(void *arg)
{
    struct gate *g = arg;

    usleep(5000);
    pthread_mutex_lock(&g->m);
    g->open = true;
    pthread_cond_signal(&g->c);
    pthread_mutex_unlock(&g->m);
    return NULL;
}

TEST(conditions_wait_for_ever_when_asked)
{
    struct gate g = {.m = PTHREAD_MUTEX_INITIALIZER};
    pthread_t t;

    tei_cond_init(&g.c);
    assert_int_equal(tei_thread_start(&t, "te/test", open_gate, &g), 0);
    pthread_mutex_lock(&g.m);
    while (!g.open)
        assert_true(tei_cond_wait_until(&g.c, &g.m, TEI_NEVER));
    pthread_mutex_unlock(&g.m);
    pthread_join(t, NULL);
    pthread_cond_destroy(&g.c);
}

TEST(the_limit_of_files_is_raised)
{
    struct rlimit lim;

    getrlimit(RLIMIT_NOFILE, &lim);
    lim.rlim_cur = lim.rlim_max < 64 ? lim.rlim_max : 64;
    setrlimit(RLIMIT_NOFILE, &lim);
    tei_raise_nofile();
    getrlimit(RLIMIT_NOFILE, &lim);
    assert_true(lim.rlim_cur == lim.rlim_max);
}

TEST(random_bytes_fill_and_differ)
{
    unsigned char a[1024] = {0}, b[1024] = {0};
    int zeros = 0;

    tei_random(a, sizeof a);
    tei_random(b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
    for (size_t i = 0; i < sizeof a; i++)
        zeros += a[i] == 0;
    assert_in_range(zeros, 0, 40);
    assert_true(tei_random_u64() != tei_random_u64());
    tei_random(a, 0);
}

/* A power of two, in pages; or no number that any length reaches. */
TEST(huge_pages_are_made_of_pages)
{
    size_t n = tei_huge_page(), page = (size_t)sysconf(_SC_PAGESIZE);
    char text[32];

    tei_file_word("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", text, sizeof text);
    if (!*text) {
        assert_true(n == SIZE_MAX);
        return;
    }
    assert_true(n > page && n % page == 0 && (n & (n - 1)) == 0);
    assert_true(n == strtoull(text, NULL, 10));
}

TEST(timestamps_have_their_form)
{
    int y, mo, d, h, mi, s, us, end = 0;
    char text[64], small[8];

    tei_timestamp(text, sizeof text);
    assert_int_equal(
        sscanf(text, "%4d-%2d-%2d %2d:%2d:%2d.%6d%n", &y, &mo, &d, &h, &mi, &s, &us, &end), 7);
    assert_int_equal(text[end], '\0');
    assert_int_equal(strlen(text), 26);
    tei_timestamp(small, sizeof small);
    assert_int_equal(strlen(small), 7);
}

TEST(a_child_sees_another_epoch)
{
    unsigned epoch = tei_fork_epoch();
    int status;
    pid_t pid;

    pid = fork();
    if (pid == 0) {
        bool first = tei_fork_epoch() == epoch + 1;

        pid = fork();
        if (pid == 0)
            _exit(tei_fork_epoch() == epoch + 2 ? 0 : 1);
        _exit(waitpid(pid, &status, 0) == pid && status == 0 && first ? 0 : 1);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(tei_fork_epoch(), epoch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deadlines_are_ahead_or_never),
        cmocka_unit_test(what_is_left_is_rounded_up),
        cmocka_unit_test(threads_have_names_and_no_signals),
        cmocka_unit_test(conditions_keep_deadlines),
        cmocka_unit_test(conditions_wait_for_ever_when_asked),
        cmocka_unit_test(the_limit_of_files_is_raised),
        cmocka_unit_test(random_bytes_fill_and_differ),
        cmocka_unit_test(huge_pages_are_made_of_pages),
        cmocka_unit_test(timestamps_have_their_form),
        cmocka_unit_test(a_child_sees_another_epoch),
    };

    return cmocka_run_group_tests_name("os", tests, NULL, NULL);
}
