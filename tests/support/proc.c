/* SPDX-License-Identifier: Apache-2.0 */
#include "patience.h"
#include "proc.h"

#include "base/os.h"
#include "base/sock.h"

#include <assert.h>
#include <dirent.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PORT_MIN   20000
#define PORT_MAX   29999
#define PORT_TRIES 200

static size_t n_claims;

/* Claims the port among the tests of this host until this process ends, by an abstract unix socket that
 * te_proc.py names alike. */
static bool claim_port(uint16_t port)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int n =
        snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "te-test-port-%u", (unsigned)port);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && bind(fd, (const struct sockaddr *)&name,
                        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0) {
        n_claims++;
        return true;
    }
    if (fd >= 0)
        close(fd);
    return false;
}

/* The claim comes first: another test's server may be about to listen on a port that is claimed. */
uint16_t test_free_port(void)
{
    for (int i = 0; i < PORT_TRIES; i++) {
        uint16_t port = (uint16_t)(PORT_MIN + tei_random_u64() % (PORT_MAX - PORT_MIN + 1));
        int fd = claim_port(port) ? tei_listen("127.0.0.1", &port, 1) : -1;

        if (fd >= 0) {
            tei_fd_close(fd);
            return port;
        }
    }
    return 0;
}

bool test_was_ignored(int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof info;

    return poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, PATIENCE_MS) == 1 &&
           getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_total_retrans > 0;
}

uint16_t test_dead_port(int *fd)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;

    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert(*fd >= 0 && bind(*fd, (const struct sockaddr *)&a, len) == 0); /* and does not listen */
    assert(getsockname(*fd, (struct sockaddr *)&a, &len) == 0);
    return ntohs(a.sin_port);
}

static bool any(const char *name)
{
    (void)name;
    return true;
}

/* Not one of the kernel's for io_uring, which go after their ring when they like. */
static bool is_thread(const char *name)
{
    char path[sizeof "/proc/self/task//comm" + NAME_MAX], comm[32] = "";
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/task/%s/comm", name);
    f = fopen(path, "re");
    if (!f)
        return false;
    if (!fgets(comm, sizeof comm, f))
        comm[0] = '\0';
    fclose(f);
    return strncmp(comm, "iou-", 4) != 0;
}

static size_t count_entries(const char *path, bool (*counts)(const char *name))
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    size_t n = 0;

    assert(dir);
    while ((entry = readdir(dir)))
        n += counts(entry->d_name);
    closedir(dir);
    return n;
}

bool test_under_valgrind(void)
{
    const char *preload = getenv("LD_PRELOAD");

    return preload && strstr(preload, "vgpreload");
}

size_t test_count_fds(void)
{
    return count_entries("/proc/self/fd", any) - n_claims;
}

size_t test_count_threads(void)
{
    return count_entries("/proc/self/task", is_thread);
}

size_t test_settled_threads(void)
{
    size_t n = test_count_threads();

    for (int i = 0; i < 20; i++) {
        size_t now;

        usleep(1000);
        now = test_count_threads();
        if (now < n) {
            n = now;
            i = 0;
        }
    }
    return n;
}

static void say_left(const char *when, size_t fds, size_t threads)
{
    fprintf(stderr, "%s %zu descriptors and %zu threads are there, where %zu and %zu were\n", when,
            test_count_fds(), test_count_threads(), fds, threads);
}

bool test_nothing_left(size_t fds, size_t threads)
{
    enum { SILENT_MS = 5000 };

    for (int left = PATIENCE_MS; test_count_fds() > fds || test_count_threads() > threads; left--) {
        if (left == PATIENCE_MS - SILENT_MS)
            say_left("waiting until nothing is left:", fds, threads);
        if (left == 0) {
            say_left("in vain:", fds, threads);
            return false;
        }
        usleep(1000);
    }
    return true;
}
