/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=60 */
/* The http store against te_metad: keys that expire, are kept and listed; a token; TLS. */
#include "meta/meta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os.h"
#include "patience.h"

#define SOON     tei_deadline_ns(PATIENCE_MS)
#define STEP_MS  20
#define START_MS PATIENCE_MS
#define KEYS_MAX 8

/* The server of one test. */
static pid_t server;
static int server_out = -1;
static char url[64];
static char dir[] = "/tmp/te-test-XXXXXX";
static struct tei_conf conf;
static struct tei_store *store;

/* ---- processes */

/* Starts a program whose standard output is read from *out, where that is asked for. */
static pid_t start(char *const argv[], int *out)
{
    int fds[2] = {-1, -1};
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(fds[1], STDOUT_FILENO);
        close(fds[0]);
        close(fds[1]);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(fds[1]);
    if (out)
        *out = fds[0];
    else
        close(fds[0]);
    return pid;
}

static int wait_for(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The port in "te_metad: listening on 127.0.0.1:PORT". */
static unsigned read_port(void)
{
    struct pollfd ready = {.fd = server_out, .events = POLLIN};
    int64_t deadline = tei_deadline_ns(START_MS);
    char text[128];
    size_t n = 0;

    while (!memchr(text, '\n', n)) {
        ssize_t got;

        assert_int_equal(poll(&ready, 1, tei_left_ms(deadline)), 1);
        got = read(server_out, text + n, sizeof text - 1 - n);
        assert_true(got > 0);
        n += (size_t)got;
    }
    text[n] = '\0';
    return (unsigned)atoi(strrchr(text, ':') + 1);
}

static void serve(const char *scheme, char *const flags[])
{
    char program[] = TE_TEST_BIN "/te_metad", addr[] = "--addr=127.0.0.1:0", quiet[] = "--quiet";
    char *argv[8] = {program, addr, quiet};

    for (size_t i = 0; flags && flags[i]; i++)
        argv[3 + i] = flags[i];
    server = start(argv, &server_out);
    snprintf(url, sizeof url, "%s://127.0.0.1:%u/metadata", scheme, read_port());
}

/* Opens a store after the conf was filled in. */
static struct tei_store *open_store(void)
{
    struct tei_store *s;

    assert_int_equal(tei_store_open(url, &conf, &s), 0);
    return s;
}

static int set_up(void **state)
{
    (void)state;
    conf = (struct tei_conf){.metadata_timeout_ms = PATIENCE_MS, .metadata_max_value = 1 << 20};
    serve("http", NULL);
    store = open_store();
    return 0;
}

static int tear_down(void **state)
{
    pid_t pid = server;

    (void)state;
    tei_store_close(store);
    store = NULL;
    server = 0;
    close(server_out);
    if (pid > 0) {
        kill(pid, SIGTERM);
        assert_int_equal(wait_for(pid), 0);
    }
    return 0;
}

/* ---- calls */

static int put(const char *key, int ttl_s)
{
    return store->ops->put(store, key, "v", 1, ttl_s, SOON);
}

static int get(struct tei_store *s, const char *key)
{
    struct tei_bytes b;
    int rc = s->ops->get(s, key, SOON, &b, NULL);

    if (!rc)
        tei_bytes_fini(&b);
    return rc;
}

static int keep(const char *a, const char *b, int ttl_s)
{
    const char *const keys[] = {a, b};

    return store->ops->keep(store, keys, b ? 2 : 1, ttl_s, SOON);
}

static void pause_ms(int ms)
{
    usleep((useconds_t)ms * 1000);
}

static void wait_gone(const char *key)
{
    int64_t deadline = SOON;
    int rc;

    while ((rc = get(store, key)) == 0 && tei_left_ms(deadline) > 0)
        pause_ms(STEP_MS);
    assert_int_equal(rc, TE_ERR_NOT_FOUND);
}

struct listed {
    char keys[KEYS_MAX][64];
    size_t n;
};

static int add_key(void *arg, const char *key)
{
    struct listed *l = arg;

    assert_true(l->n < KEYS_MAX);
    snprintf(l->keys[l->n++], sizeof l->keys[0], "%s", key);
    return 0;
}

static struct listed list(const char *prefix)
{
    struct listed l = {0};

    assert_int_equal(store->ops->list(store, prefix, SOON, add_key, &l), 0);
    return l;
}

static int stop_at_first(void *arg, const char *key)
{
    (void)key;
    return ++*(int *)arg;
}

/* ---- tests */

static void test_a_key_expires(void **state)
{
    (void)state;
    assert_int_equal(put("mooncake/ram/a", 1), 0);
    assert_int_equal(put("mooncake/ram/b", 0), 0);
    wait_gone("mooncake/ram/a");
    assert_int_equal(get(store, "mooncake/ram/b"), 0);
    assert_int_equal(keep("mooncake/ram/a", NULL, 1), TE_ERR_NOT_FOUND);
    assert_int_equal(put("mooncake/ram/a", 1), 0);
}

static void test_keys_are_kept(void **state)
{
    (void)state;
    assert_int_equal(put("a", 5), 0);
    assert_int_equal(put("b", 5), 0);
    for (int i = 0; i < 8; i++) {
        pause_ms(800);
        assert_int_equal(keep("a", "b", 5), 0);
    }
    assert_int_equal(get(store, "a"), 0);
    wait_gone("a");
    wait_gone("b");
    assert_int_equal(keep("a", "b", 5), TE_ERR_NOT_FOUND);
}

/* One that is gone among several is told. */
static void test_one_of_the_keys_is_gone(void **state)
{
    (void)state;
    assert_int_equal(put("a", 60), 0);
    assert_int_equal(put("b", 60), 0);
    assert_int_equal(keep("a", "b", 60), 0);
    assert_int_equal(store->ops->del(store, "b", SOON), 0);
    assert_int_equal(keep("a", "b", 60), TE_ERR_NOT_FOUND);
}

static void test_list(void **state)
{
    static const char *const keys[] = {"te/b", "te/a b%2F", "te/\xc3\xa9&prefix=", "other"};
    struct listed l;
    int calls = 0;

    (void)state;
    assert_int_equal(list("").n, 0);
    for (size_t i = 0; i < TEI_ARRAY_LEN(keys); i++)
        assert_int_equal(put(keys[i], i % 2 ? 60 : 0), 0);
    l = list("te/");
    assert_int_equal(l.n, 3);
    assert_string_equal(l.keys[0], keys[1]);
    assert_string_equal(l.keys[1], keys[0]);
    assert_string_equal(l.keys[2], keys[2]);
    assert_int_equal(list("").n, 4);
    assert_int_equal(list(keys[2]).n, 1);
    assert_int_equal(list("te/c").n, 0);
    assert_int_equal(store->ops->list(store, "te/", SOON, stop_at_first, &calls), 1);
    assert_int_equal(calls, 1);
}

static void test_newline_in_a_key(void **state)
{
    (void)state;
    assert_int_not_equal(put("a\nb", 0), 0);
    assert_non_null(strstr(te_errmsg(), "newline"));
}

/* ---- token and TLS */

static char *in_dir(char buf[128], const char *before, const char *name)
{
    snprintf(buf, 128, "%s%s/%s", before, dir, name);
    return buf;
}

static void write_token(void)
{
    char path[128];
    FILE *f = fopen(in_dir(path, "", "token"), "w");

    assert_non_null(f);
    fputs("the-token\n", f);
    assert_int_equal(fclose(f), 0);
}

/* False: there is no openssl command. */
static bool make_certificate(void)
{
    char key[128], cert[128];
    char *argv[] = {"openssl",
                    "req",
                    "-x509",
                    "-newkey",
                    "ec",
                    "-pkeyopt",
                    "ec_paramgen_curve:P-256",
                    "-nodes",
                    "-days",
                    "2",
                    "-subj",
                    "/CN=localhost",
                    "-addext",
                    "subjectAltName=IP:127.0.0.1",
                    "-keyout",
                    in_dir(key, "", "key"),
                    "-out",
                    in_dir(cert, "", "cert"),
                    NULL};
    int rc = wait_for(start(argv, NULL));

    assert_true(rc == 0 || rc == 127);
    return rc == 0;
}

static int clean_up(void **state)
{
    static const char *const names[] = {"token", "key", "cert"};
    char path[128];

    for (size_t i = 0; i < TEI_ARRAY_LEN(names); i++)
        unlink(in_dir(path, "", names[i]));
    return tear_down(state);
}

static int set_up_files(void **state)
{
    (void)state;
    conf = (struct tei_conf){.metadata_timeout_ms = PATIENCE_MS, .metadata_max_value = 1 << 20};
    write_token();
    return 0;
}

static void test_token(void **state)
{
    char flag[128];
    char *flags[] = {in_dir(flag, "--token-file=", "token"), NULL};
    struct tei_store *stranger;

    (void)state;
    serve("http", flags);
    stranger = open_store();
    assert_int_equal(get(stranger, "k"), TE_ERR_METADATA);
    assert_non_null(strstr(te_errmsg(), "TE_METADATA_TOKEN"));
    tei_store_close(stranger);
    snprintf(conf.metadata_token, sizeof conf.metadata_token, "the-token");
    store = open_store();
    assert_int_equal(put("k", 60), 0);
    assert_int_equal(keep("k", NULL, 60), 0);
    assert_int_equal(list("k").n, 1);
    assert_int_equal(get(store, "k"), 0);
}

static void test_tls(void **state)
{
    char token[128], key[128], cert[128];
    char *flags[] = {in_dir(token, "--token-file=", "token"), in_dir(key, "--tls-key=", "key"),
                     in_dir(cert, "--tls-cert=", "cert"), NULL};
    struct tei_store *distrustful;

    (void)state;
    if (!make_certificate())
        skip();
    serve("https", flags);
    snprintf(conf.metadata_token, sizeof conf.metadata_token, "the-token");
    distrustful = open_store();
    assert_int_equal(get(distrustful, "k"), TE_ERR_METADATA);
    tei_store_close(distrustful);
    in_dir(conf.metadata_ca, "", "cert");
    store = open_store();
    assert_int_equal(put("k", 1), 0);
    assert_int_equal(keep("k", NULL, 2), 0);
    assert_int_equal(list("").n, 1);
    assert_int_equal(get(store, "k"), 0);
    wait_gone("k");
}

#define SERVED(test)     cmocka_unit_test_setup_teardown(test, set_up, tear_down)
#define WITH_FILES(test) cmocka_unit_test_setup_teardown(test, set_up_files, clean_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVED(test_a_key_expires),
        SERVED(test_keys_are_kept),
        SERVED(test_one_of_the_keys_is_gone),
        SERVED(test_list),
        SERVED(test_newline_in_a_key),
        WITH_FILES(test_token),
        WITH_FILES(test_tls),
    };
    int rc;

    if (access(TE_TEST_BIN "/te_metad", X_OK)) {
        puts("te_metad is not in this build");
        return 77;
    }
    te_log_set_level(TE_LOG_OFF);
    setenv("no_proxy", "*", 1);
    if (!mkdtemp(dir))
        return 1;
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(dir);
    return rc;
}
