/* SPDX-License-Identifier: Apache-2.0 */
#include "base/jobs.h"
#include "test.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os.h"
#include "patience.h"
#include "te.h"

#define N 64

static struct tei_jobs jobs;

/* A job that counts, and waits until the gate is open. */
struct work {
    struct tei_job job;
    int number;
};

static struct work work[N];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int started, finished, at_once, most_at_once, order[N];
static bool gate_open;
static pthread_t runner;

static int reset(void **state)
{
    (void)state;
    started = finished = at_once = most_at_once = 0;
    gate_open = true;
    memset(work, 0, sizeof work);
    for (int i = 0; i < N; i++)
        work[i].number = i;
    return 0;
}

static void run_work(struct tei_job *j)
{
    struct work *w = tei_container_of(j, struct work, job);

    pthread_mutex_lock(&lock);
    runner = pthread_self();
    order[started++] = w->number;
    most_at_once = ++at_once > most_at_once ? at_once : most_at_once;
    pthread_cond_broadcast(&changed);
    while (!gate_open)
        pthread_cond_wait(&changed, &lock);
    at_once--;
    finished++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void post(int i)
{
    tei_jobs_post(&jobs, &work[i].job, run_work);
}

static void wait_for(const int *counter, int value)
{
    pthread_mutex_lock(&lock);
    while (*counter < value)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void set_gate(bool open)
{
    pthread_mutex_lock(&lock);
    gate_open = open;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void end(void)
{
    tei_jobs_stop(&jobs);
    assert_int_equal(jobs.threads, 0);
    tei_jobs_fini(&jobs);
}

TEST(test_runs_in_a_thread_of_its_own)
{
    char name[16];

    tei_jobs_init(&jobs, 4);
    set_gate(false);
    post(0);
    wait_for(&started, 1);
    assert_false(pthread_equal(runner, pthread_self()));
    pthread_getname_np(runner, name, sizeof name);
    set_gate(true);
    assert_string_equal(name, "te/aux");
    end();
}

static bool is_idle(void)
{
    bool idle;

    pthread_mutex_lock(&jobs.lock);
    idle = !jobs.running && !jobs.queued;
    pthread_mutex_unlock(&jobs.lock);
    return idle;
}

static unsigned count_threads(void)
{
    unsigned threads;

    pthread_mutex_lock(&jobs.lock);
    threads = jobs.threads;
    pthread_mutex_unlock(&jobs.lock);
    return threads;
}

/* One that hangs does not hold up the others, up to max. */
TEST(test_max_at_once)
{
    tei_jobs_init(&jobs, 4);
    set_gate(false);
    for (int i = 0; i < 10; i++)
        post(i);
    wait_for(&started, 4);
    usleep(20000);
    pthread_mutex_lock(&lock);
    assert_int_equal(started, 4);
    pthread_mutex_unlock(&lock);
    set_gate(true);
    end();
    assert_int_equal(finished, 10);
    assert_int_equal(most_at_once, 4);
}

TEST(test_starts_in_order)
{
    tei_jobs_init(&jobs, 1);
    for (int i = 0; i < N; i++)
        post(i);
    end();
    assert_int_equal(finished, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(order[i], i);
}

TEST(test_a_thread_is_used_again)
{
    pthread_t first;

    tei_jobs_init(&jobs, 8);
    assert_int_equal(tei_jobs_start(&jobs), 0); /* one that does not end by itself */
    post(0);
    wait_for(&finished, 1);
    first = runner;
    for (int i = 1; i < 20; i++) {
        WAIT_FOR(is_idle());
        post(i);
        wait_for(&finished, i + 1);
    }
    assert_true(pthread_equal(first, runner));
    end();
}

TEST(test_idle_threads_end)
{
    tei_jobs_init(&jobs, 3);
    set_gate(false);
    for (int i = 0; i < 3; i++)
        post(i);
    wait_for(&started, 3);
    set_gate(true);
    WAIT_FOR(count_threads() == 0);
    post(3);
    wait_for(&finished, 4);
    end();
}

TEST(test_stop_runs_what_was_posted)
{
    tei_jobs_init(&jobs, 2);
    for (int i = 0; i < N; i++)
        post(i);
    end();
    assert_int_equal(finished, N);
}

static void post_next(struct tei_job *j)
{
    struct work *w = tei_container_of(j, struct work, job);

    if (w->number + 1 < N)
        tei_jobs_post(&jobs, &work[w->number + 1].job, post_next);
    pthread_mutex_lock(&lock);
    finished++;
    pthread_mutex_unlock(&lock);
}

/* A job may post others; those that come after stop run at once. */
TEST(test_jobs_post_jobs)
{
    tei_jobs_init(&jobs, 2);
    tei_jobs_post(&jobs, &work[0].job, post_next);
    end();
    assert_int_equal(finished, N);
}

TEST(test_after_stop_the_caller_runs_it)
{
    tei_jobs_init(&jobs, 2);
    tei_jobs_stop(&jobs);
    post(0);
    assert_int_equal(finished, 1);
    assert_true(pthread_equal(runner, pthread_self()));
    tei_jobs_stop(&jobs);
    tei_jobs_fini(&jobs);
    tei_jobs_fini(&jobs);
}

static void *poster(void *arg)
{
    int first = *(int *)arg;

    for (int i = first; i < first + N / 4; i++)
        post(i);
    return NULL;
}

TEST(test_many_posters)
{
    int first[4] = {0, N / 4, N / 2, 3 * N / 4};
    pthread_t threads[4];

    tei_jobs_init(&jobs, 3);
    for (int i = 0; i < 4; i++)
        assert_int_equal(tei_thread_start(&threads[i], "poster", poster, &first[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    end();
    assert_int_equal(finished, N);
}

/* In a process of its own, as another user: root is not bound by the limit. */
static int work_without_threads(void)
{
    struct rlimit none = {.rlim_cur = 0, .rlim_max = 0};

    if (geteuid() == 0 && setresuid(65534, 65534, 65534))
        return 1;
    if (setrlimit(RLIMIT_NPROC, &none))
        return 2;
    tei_jobs_init(&jobs, 2);
    post(0);
    post(1);
    tei_jobs_stop(&jobs);
    tei_jobs_fini(&jobs);
    return finished == 2 && pthread_equal(runner, pthread_self()) ? 0 : 3;
}

TEST(test_without_threads_the_caller_runs_it)
{
    pid_t pid = fork();
    int status = -1;

    if (pid == 0)
        _exit(work_without_threads());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_runs_in_a_thread_of_its_own, reset),
        cmocka_unit_test_setup(test_max_at_once, reset),
        cmocka_unit_test_setup(test_starts_in_order, reset),
        cmocka_unit_test_setup(test_a_thread_is_used_again, reset),
        cmocka_unit_test_setup(test_idle_threads_end, reset),
        cmocka_unit_test_setup(test_stop_runs_what_was_posted, reset),
        cmocka_unit_test_setup(test_jobs_post_jobs, reset),
        cmocka_unit_test_setup(test_after_stop_the_caller_runs_it, reset),
        cmocka_unit_test_setup(test_many_posters, reset),
        cmocka_unit_test_setup(test_without_threads_the_caller_runs_it, reset),
    };

    te_log_set_level(TE_LOG_OFF);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
