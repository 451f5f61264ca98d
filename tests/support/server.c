/* SPDX-License-Identifier: Apache-2.0 */
#include "patience.h"
#include "server.h"

#include "proc.h"

#include "base/os.h"
#include "base/sock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TAIL_BYTES  4096
#define TERM_MS     PATIENCE_MS
#define CONNECT_MS  1000
#define BETWEEN_MS  20 /* two tries to connect */
#define EXEC_FAILED 127

/* Those that exit() has to stop, and the process that started them. */
static struct test_server *started;
static pid_t owner;

bool test_program_found(const char *name)
{
    const char *path = getenv("PATH");
    char *copy = strdup(path ? path : ""), *save = NULL, file[4096];
    bool found = false;

    assert(copy);
    for (char *dir = strtok_r(copy, ":", &save); dir && !found; dir = strtok_r(NULL, ":", &save)) {
        snprintf(file, sizeof file, "%s/%s", dir, name);
        found = access(file, X_OK) == 0;
    }
    free(copy);
    return found;
}

/* ---- its folder */

static bool make_folder(struct test_server *s)
{
    const char *tmp = getenv("TMPDIR");

    if (!tmp || strlen(tmp) > sizeof s->dir - sizeof "/te-server.XXXXXX")
        tmp = "/tmp";
    snprintf(s->dir, sizeof s->dir, "%s/te-server.XXXXXX", tmp);
    if (!mkdtemp(s->dir)) {
        s->dir[0] = '\0';
        return false;
    }
    snprintf(s->log, sizeof s->log, "%s/server.log", s->dir);
    return true;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static void remove_folder(struct test_server *s)
{
    if (s->dir[0])
        nftw(s->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    s->dir[0] = '\0';
}

static void show_log(struct test_server *s)
{
    int fd = open(s->log, O_RDONLY | O_CLOEXEC);
    char buf[TAIL_BYTES + 1];
    off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    ssize_t n = fd < 0 ? 0 : pread(fd, buf, TAIL_BYTES, end > TAIL_BYTES ? end - TAIL_BYTES : 0);

    buf[n > 0 ? n : 0] = '\0';
    fprintf(stderr, "%s on port %u did not start; the end of its output:\n%s\n", s->argv[0],
            (unsigned)s->port, buf);
    s->port_taken = strcasestr(buf, "in use") != NULL;
    if (fd >= 0)
        close(fd);
}

/* ---- its process */

/* In the child. `life_fd` stays open in the server, and so closes when it ends. */
static void become_server(const struct test_server *s, pid_t parent, int log_fd, int life_fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent && chdir(s->dir) == 0 && dup2(log_fd, STDOUT_FILENO) >= 0 &&
        dup2(log_fd, STDERR_FILENO) >= 0 && fcntl(life_fd, F_SETFD, 0) == 0)
        execvp(s->argv[0], s->argv);
    dprintf(STDERR_FILENO, "cannot be run: %s\n", strerror(errno));
    _exit(EXEC_FAILED);
}

static bool spawn(struct test_server *s)
{
    int life[2], log_fd = open(s->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    pid_t parent = getpid();

    if (log_fd < 0)
        return false;
    if (pipe2(life, O_CLOEXEC) != 0) {
        close(log_fd);
        return false;
    }
    s->pid = fork();
    if (s->pid == 0)
        become_server(s, parent, log_fd, life[1]);
    close(log_fd);
    close(life[1]);
    if (s->pid > 0)
        s->life_fd = life[0];
    else
        close(life[0]);
    return s->pid > 0;
}

/* Waits until it has ended; false if it has not in time. */
static bool wait_end(const struct test_server *s, int64_t deadline_ns)
{
    struct pollfd p = {.fd = s->life_fd, .events = POLLIN};
    int n;

    do {
        n = poll(&p, 1, tei_left_ms(deadline_ns));
    } while (n < 0 && errno == EINTR);
    return n > 0;
}

/* Ends it by `sig`, after a while by SIGKILL. */
static void end(struct test_server *s, int sig)
{
    if (s->pid <= 0)
        return;
    kill(s->pid, sig);
    kill(s->pid, SIGCONT);
    if (sig == SIGKILL || !wait_end(s, tei_deadline_ns(TERM_MS)))
        kill(s->pid, SIGKILL);
    while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    close(s->life_fd);
    s->pid = 0;
}

static bool listens(uint16_t port)
{
    struct tei_addr a;
    bool connected = false;
    int fd;

    if (!tei_resolve_numeric("127.0.0.1", port, &a))
        return false;
    fd = tei_connect_start(&a);
    if (fd >= 0) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};

        connected = poll(&p, 1, CONNECT_MS) == 1 && tei_connect_result(fd) == 0;
        tei_fd_close(fd);
    }
    return connected;
}

/* A port that begins to be listened on is no event; the end of the process is one. */
static bool run_server(struct test_server *s)
{
    int64_t deadline_ns = tei_deadline_ns((int64_t)s->timeout_s * 1000);
    bool up = false;

    if (!spawn(s))
        return false;
    while (!up && tei_left_ms(deadline_ns) > 0 && !wait_end(s, tei_deadline_ns(BETWEEN_MS)))
        up = listens(s->port);
    if (!up) {
        end(s, SIGTERM);
        show_log(s);
    }
    return up;
}

/* ---- start and stop */

static void stop_all(void)
{
    while (started && owner == getpid())
        test_server_stop(started);
}

static void add_started(struct test_server *s)
{
    if (owner != getpid()) {
        owner = getpid();
        started = NULL;
        atexit(stop_all);
    }
    s->next = started;
    started = s;
}

static void del_started(struct test_server *s)
{
    struct test_server **at = &started;

    while (*at && *at != s)
        at = &(*at)->next;
    if (*at)
        *at = s->next;
}

bool test_server_start(struct test_server *s, const char *const argv[], uint16_t port,
                       int timeout_s)
{
    *s = (struct test_server){.port = port, .timeout_s = timeout_s};
    for (size_t i = 0; argv[i]; i++) {
        assert(i < TEST_SERVER_ARGS);
        s->argv[i] = strdup(argv[i]);
        assert(s->argv[i]);
    }
    if (!make_folder(s)) {
        fprintf(stderr, "no temporary folder for %s: %s\n", argv[0], strerror(errno));
        test_server_stop(s);
        return false;
    }
    add_started(s);
    if (run_server(s))
        return true;
    test_server_stop(s);
    return false;
}

void test_server_stop(struct test_server *s)
{
    end(s, SIGTERM);
    del_started(s);
    remove_folder(s);
    for (size_t i = 0; s->argv[i]; i++)
        free(s->argv[i]);
    s->argv[0] = NULL;
}

void test_server_kill(struct test_server *s)
{
    end(s, SIGKILL);
}

bool test_server_restart(struct test_server *s)
{
    end(s, SIGKILL);
    return run_server(s);
}

void test_server_freeze(const struct test_server *s)
{
    int status;

    assert(kill(s->pid, SIGSTOP) == 0);
    assert(waitpid(s->pid, &status, WUNTRACED) == s->pid && WIFSTOPPED(status));
}

void test_server_thaw(const struct test_server *s)
{
    assert(kill(s->pid, SIGCONT) == 0);
}

static bool etcd_start_at(struct test_server *s, uint16_t port, const char *scheme,
                          const char *const more[])
{
    char client[64], peer[64], cluster[80];
    const char *argv[TEST_SERVER_ARGS + 1] = {
        "etcd",  "--data-dir",           "data", "--log-level",
        "error", "--listen-client-urls", client, "--advertise-client-urls",
        client,  "--listen-peer-urls",   peer,   "--initial-advertise-peer-urls",
        peer,    "--initial-cluster",    cluster};
    size_t n = 15;

    snprintf(client, sizeof client, "%s://127.0.0.1:%u", scheme, (unsigned)port);
    snprintf(peer, sizeof peer, "http://127.0.0.1:%u", (unsigned)test_free_port());
    snprintf(cluster, sizeof cluster, "default=%s", peer);
    for (size_t i = 0; more && more[i] && n < TEST_SERVER_ARGS; i++)
        argv[n++] = more[i];
    return test_server_start(s, argv, port, PATIENCE_MS / 1000);
}

bool test_etcd_start(struct test_server *s, uint16_t port, const char *scheme,
                     const char *const more[])
{
    for (int i = 0; i < TEST_PORT_TRIES; i++) {
        if (etcd_start_at(s, port ? port : test_free_port(), scheme, more))
            return true;
        if (!s->port_taken)
            break;
    }
    return false;
}
