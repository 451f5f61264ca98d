/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=120 */
/*
 * A thousand engines on one etcd: all register at once, each with keys and a lease of its own, open
 * another, follow it, keep their leases alive, and learn of a change within a second. What is
 * simulated is the engine: the directories, connections and threads that talk to etcd are real.
 * What it takes is printed; docs/metadata.md has the figures of a run.
 */
#include "meta/meta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/os.h"
#include "patience.h"
#include "proc.h"
#include "server.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define ENGINES 200
#else
#define ENGINES 1000
#endif
#define WORKERS 32
#define RENEWED "etcd_debugging_lease_renewed_total"
#define EXPIRED "etcd_debugging_server_lease_expired_total"
#define WATCHES "etcd_debugging_mvcc_watcher_total"
#define TTL_S   3600 /* nothing expires, however slow the machine */

struct engine {
    struct tei_directory *dir;
    char name[32];
    _Atomic int changes; /* told of the one that it follows */
    _Atomic int64_t told_ns;
};

static struct tei_conf conf;
static struct test_server etcd;
static struct engine engines[ENGINES];
static _Atomic int next, failed;
static char why[1024];

/* ---- many workers, one step */

struct step {
    int (*run)(struct engine *e, size_t i);
};

static void *work(void *arg)
{
    const struct step *s = arg;

    for (int i; (i = atomic_fetch_add(&next, 1)) < ENGINES;) {
        int rc = s->run(&engines[i], (size_t)i);

        if (rc && atomic_fetch_add(&failed, 1) == 0)
            snprintf(why, sizeof why, "engine %d: %d: %.900s", i, rc, te_errmsg());
    }
    return NULL;
}

/* CPU seconds of the server so far. */
static double cpu_of(pid_t pid)
{
    unsigned long user = 0, system = 0;
    char path[40], line[512] = "", *at;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    at = f && fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
    if (at)
        sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    if (f)
        fclose(f);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static void all(int (*run)(struct engine *e, size_t i), const char *what)
{
    struct step s = {run};
    pthread_t threads[WORKERS];
    int64_t begin = tei_now_ns();
    double cpu = cpu_of(etcd.pid);

    atomic_store(&next, 0);
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(tei_thread_start(&threads[i], "storm", work, &s), 0);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    printf("%-44s %7.0f ms, etcd %5.2f CPU s\n", what, (double)(tei_now_ns() - begin) / 1e6,
           cpu_of(etcd.pid) - cpu);
    if (atomic_load(&failed))
        fail_msg("%s: %d engines failed; the first: %s", what, atomic_load(&failed), why);
}

/* ---- the steps */

static int publish(const struct engine *e, size_t i)
{
    char text[256];
    int n = snprintf(text, sizeof text,
                     "{\"buffers\":[{\"addr\":4096,\"length\":8192,\"name\":\"%s\"}],\"name\":"
                     "\"%s\",\"protocol\":\"tcp\",\"tcp_data_port\":%zu,\"tcp_proto_version\":2}",
                     e->name, e->name, i % 60000 + 1);

    return e->dir->ops->publish(e->dir, e->name, text, (size_t)n);
}

static int enter(struct engine *e, size_t i)
{
    struct tei_hostport addr = {.host = "127.0.0.1", .port = (uint16_t)(i % 60000 + 1)};
    char conn[64];
    int rc;

    snprintf(conn, sizeof conn, "etcd://127.0.0.1:%u", (unsigned)etcd.port);
    snprintf(e->name, sizeof e->name, "node-%zu", i);
    rc = tei_directory_open(conn, &conf, &e->dir);
    if (!rc)
        rc = e->dir->ops->announce(e->dir, e->name, &addr);
    return rc ? rc : publish(e, i);
}

static void on_change(void *arg, const char *name)
{
    struct engine *e = arg;

    (void)name;
    atomic_store(&e->told_ns, tei_now_ns());
    atomic_fetch_add(&e->changes, 1);
}

static int open_next(struct engine *e, size_t i)
{
    const char *other = engines[(i + 1) % ENGINES].name;
    struct tei_hostport where;
    struct tei_segment *s;
    int64_t revision;
    int rc = e->dir->ops->lookup(e->dir, other, NULL, &s, &where, &revision);

    if (rc)
        return rc;
    rc = strcmp(s->name, other) == 0 && where.port == (i + 1) % ENGINES % 60000 + 1 ? 0 : -1;
    tei_segment_put(s);
    if (!rc)
        rc = e->dir->ops->listen(e->dir, on_change, e);
    if (!rc)
        e->dir->ops->follow(e->dir, other, revision);
    return rc;
}

static int keep(struct engine *e, size_t i)
{
    (void)i;
    return e->dir->ops->keep(e->dir, e->name);
}

static int publish_again(struct engine *e, size_t i)
{
    return publish(e, i);
}

static int leave(struct engine *e, size_t i)
{
    int rc = e->dir->ops->withdraw(e->dir, e->name);

    (void)i;
    e->dir->ops->close(e->dir);
    return rc;
}

/* ---- the story */

static void check_told(int64_t begin)
{
    int64_t last = begin, limit = tei_now_ns() + PATIENCE_NS;
    size_t told = 0;

    while (told < ENGINES && tei_now_ns() < limit) {
        told = 0;
        for (size_t i = 0; i < ENGINES; i++)
            told += atomic_load(&engines[i].changes) > 0;
        usleep(1000);
    }
    assert_int_equal(told, ENGINES);
    for (size_t i = 0; i < ENGINES; i++)
        if (atomic_load(&engines[i].told_ns) > last)
            last = atomic_load(&engines[i].told_ns);
    printf("%-44s %7.0f ms\n", "all were told of the change after", (double)(last - begin) / 1e6);
}

static int count_key(void *arg, const char *key)
{
    (void)key;
    ++*(size_t *)arg;
    return 0;
}

static size_t keys_left(void)
{
    struct tei_store *s;
    char conn[64];
    size_t n = 0;

    snprintf(conn, sizeof conn, "etcd://127.0.0.1:%u", (unsigned)etcd.port);
    assert_int_equal(tei_store_open(conn, &conf, &s), 0);
    assert_int_equal(s->ops->list(s, "mooncake/", tei_deadline_ns(PATIENCE_MS), count_key, &n), 0);
    tei_store_close(s);
    return n;
}

/* What etcd counts of itself. */
static double counter(const char *name)
{
    char command[200];
    double n = -1;
    FILE *f;

    snprintf(command, sizeof command, "curl -sSf http://127.0.0.1:%u/metrics | sed -n 's/^%s //p'",
             (unsigned)etcd.port, name);
    f = popen(command, "r");
    assert_non_null(f);
    if (fscanf(f, "%lf", &n) != 1)
        n = -1;
    pclose(f);
    assert_true(n >= 0);
    return n;
}

static void keep_all(void)
{
    double before = counter(RENEWED);

    all(keep, "keep the lease, once each");
    assert_true(counter(RENEWED) - before >= ENGINES);
}

static void a_thousand_engines(void **state)
{
    int64_t begin;

    (void)state;
    all(enter, "register at once: lease and two keys each");
    assert_int_equal(keys_left(), 2 * ENGINES);
    all(open_next, "open another and follow it");
    WAIT_FOR(counter(WATCHES) >= ENGINES);
    keep_all();
    for (size_t i = 0; i < ENGINES; i++)
        atomic_store(&engines[i].changes, 0);
    begin = tei_now_ns();
    all(publish_again, "publish again");
    check_told(begin);
    keep_all();
    assert_int_equal(keys_left(), 2 * ENGINES);
    assert_true(counter(EXPIRED) == 0);
    all(leave, "withdraw");
    assert_int_equal(keys_left(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_thousand_engines)};
    int rc;

    if (!test_program_found("etcd") || !test_program_found("curl")) {
        printf("etcd or curl is missing (Debian: etcd-server, curl)\n");
        return 77;
    }
    tei_raise_nofile();
    conf.metadata_timeout_ms = PATIENCE_MS;
    conf.metadata_max_value = 16 << 20;
    conf.descriptor_max_bytes = 1 << 20;
    conf.descriptor_max_buffers = 1024;
    conf.metadata_ttl_s = TTL_S;
    if (!test_etcd_start(&etcd, 0, "http", NULL))
        return 1;
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    test_server_stop(&etcd);
    return rc;
}
