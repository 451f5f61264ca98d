/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - what the programs of tests/bench share: options, clock, cold buffers, sockets, order
 * statistics. Each program is one file and this header; a program that fails says why and exits 1,
 * one that is called wrongly exits 2. Every process sets an alarm, so none outlives its run.
 */
#ifndef BENCH_H
#define BENCH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BENCH_CC_MAX      16
#define BENCH_THREADS_MAX 64

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BENCH_OPTIMIZED false
#elif defined(__OPTIMIZE__)
#define BENCH_OPTIMIZED true
#else
#define BENCH_OPTIMIZED false
#endif

/* ------------------------------------------------------------------------------------ failing */

__attribute__((noreturn, format(printf, 1, 2))) static inline void bench_die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(1);
}

/* The same with the text of errno. */
__attribute__((noreturn)) static inline void bench_die_errno(const char *what)
{
    bench_die("%s: %s", what, strerror(errno));
}

/* Ends this process when `seconds` are over, and when its parent does; call it in each process. */
static inline void bench_guard(unsigned seconds, bool child)
{
    signal(SIGPIPE, SIG_IGN);
    alarm(seconds);
    if (child)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* Waits for a child; it must have ended well. */
static inline void bench_reap(pid_t pid)
{
    int status = 0;
    if (waitpid(pid, &status, 0) != pid)
        bench_die_errno("waitpid");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        bench_die("the other process failed (wait status %d)", status);
}

/* -------------------------------------------------------------------------------------- clock */

static inline int64_t bench_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t bench_deadline_ns(double seconds)
{
    return bench_now_ns() + (int64_t)(seconds * 1e9);
}

/* Gigabytes (1e9) a second. */
static inline double bench_gb_s(uint64_t bytes, int64_t ns)
{
    return ns > 0 ? (double)bytes / (double)ns : 0.0;
}

/* ------------------------------------------------------------------------------------ options */

enum bench_kind { BENCH_SIZE, BENCH_INT, BENCH_SECONDS, BENCH_TEXT, BENCH_FLAG };

/* One option: its name without "--", what it holds, where to, and its line of --help. */
struct bench_opt {
    const char *name;
    enum bench_kind kind;
    void *to; /* size_t, int, double, const char * or bool, by kind */
    const char *help;
};

__attribute__((noreturn)) static inline void bench_usage_error(const char *what, const char *arg)
{
    fprintf(stderr, "%s: %s '%s'; try --help\n", program_invocation_short_name, what, arg);
    exit(2);
}

/* Bytes, with K, M or G behind the number for powers of 1024. */
static inline bool bench_parse_size(const char *text, size_t *out)
{
    char *end = NULL;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    unsigned shift = 0;
    if (end != text && *end != '\0') {
        shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 64;
        end++;
    }
    if (end == text || *end != '\0' || errno != 0 || shift == 64 || n == 0 || n >> (44 - shift))
        return false;
    *out = (size_t)(n << shift);
    return true;
}

static inline bool bench_parse_int(const char *text, int *out)
{
    char *end = NULL;
    long n = strtol(text, &end, 10);
    if (end == text || *end != '\0' || n < 0 || n > 100000000)
        return false;
    *out = (int)n;
    return true;
}

static inline bool bench_parse_seconds(const char *text, double *out)
{
    char *end = NULL;
    double n = strtod(text, &end);
    if (end == text || *end != '\0' || !(n > 0.0 && n <= 120.0))
        return false;
    *out = n;
    return true;
}

static inline bool bench_opt_set(const struct bench_opt *o, const char *value)
{
    switch (o->kind) {
    case BENCH_SIZE:
        return bench_parse_size(value, o->to);
    case BENCH_INT:
        return bench_parse_int(value, o->to);
    case BENCH_SECONDS:
        return bench_parse_seconds(value, o->to);
    case BENCH_TEXT:
        *(const char **)o->to = value;
        return true;
    case BENCH_FLAG:
        break;
    }
    return false;
}

/* The text after "Usage: " has its first line without the program's name. */
__attribute__((noreturn)) static inline void bench_help(const char *about,
                                                        const struct bench_opt *opts, size_t n)
{
    static const char *const values[] = {" BYTES", " N", " S", " TEXT", ""};
    printf("Usage: %s %s\n\nOptions:\n", program_invocation_short_name, about);
    for (size_t i = 0; i < n; i++)
        printf("  --%s%-*s %s\n", opts[i].name, 16 - (int)strlen(opts[i].name),
               values[opts[i].kind], opts[i].help);
    puts("  --help             this text\n\nBYTES may end in K, M or G.");
    exit(0);
}

/* Reads "--name value", "--name=value" and flags; stops at the first word that is no option. */
static inline int bench_options(int argc, char **argv, const char *about,
                                const struct bench_opt *opts, size_t n)
{
    int at = 1;
    for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
        const char *arg = argv[at] + 2;
        size_t len = strcspn(arg, "="), i = 0;
        if (strcmp(arg, "help") == 0)
            bench_help(about, opts, n);
        while (i < n && (strlen(opts[i].name) != len || strncmp(opts[i].name, arg, len) != 0))
            i++;
        if (i == n)
            bench_usage_error("unknown option", argv[at]);
        if (opts[i].kind == BENCH_FLAG) {
            *(bool *)opts[i].to = true;
            continue;
        }
        const char *value = arg[len] == '=' ? arg + len + 1 : at + 1 < argc ? argv[++at] : "";
        if (!bench_opt_set(&opts[i], value))
            bench_usage_error("not a good value", value);
    }
    return at;
}

/* ------------------------------------------------------------------------------------ buffers */

/* Memory of this process with every page in place, so that no fault is measured. */
static inline char *bench_buffer(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        bench_die_errno("mmap of a buffer");
    memset(p, 0x5a, bytes);
    return p;
}

/* A page that this process and the children it forks later share. */
static inline void *bench_shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        bench_die_errno("mmap of shared memory");
    return p;
}

/* A barrier that `n` threads of this process and its children meet at. */
static inline pthread_barrier_t *bench_gate(unsigned n)
{
    pthread_barrier_t *gate = bench_shared(sizeof *gate);
    pthread_barrierattr_t attr;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    if (pthread_barrier_init(gate, &attr, n) != 0)
        bench_die("cannot make a barrier");
    return gate;
}

/* ------------------------------------------------------------------------------------ threads */

/* Starts `n` threads, the i-th on the i-th object of `size` bytes at `args`, and joins them. */
static inline void bench_threads(size_t n, void *(*run)(void *), void *args, size_t size)
{
    pthread_t ids[BENCH_THREADS_MAX];
    if (n == 0 || n > BENCH_THREADS_MAX)
        bench_die("between 1 and %d threads, please", BENCH_THREADS_MAX);
    for (size_t i = 0; i < n; i++)
        if (pthread_create(&ids[i], NULL, run, (char *)args + i * size) != 0)
            bench_die("cannot start a thread");
    for (size_t i = 0; i < n; i++)
        pthread_join(ids[i], NULL);
}

/* Keeps this process, and the threads it starts, on one CPU of "A,B": A is side 0, B side 1. */
static inline void bench_pin(const char *cpus, int side)
{
    int n[2];
    cpu_set_t set;
    if (cpus == NULL)
        return;
    if (sscanf(cpus, "%d,%d", &n[0], &n[1]) != 2 || n[side] < 0 || n[side] >= CPU_SETSIZE)
        bench_usage_error("not two numbers of CPUs", cpus);
    CPU_ZERO(&set);
    CPU_SET((size_t)n[side], &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        bench_die_errno("sched_setaffinity");
}

/* ------------------------------------------------------------------------------------ sockets */

/*
 * Where the two sides are: side 0 connects, side 1 listens. One word counts for both. A network
 * namespace is one of /run/netns; without one both sides are where the program is.
 */
static const char *bench_addresses = "127.0.0.1", *bench_netns;

#define BENCH_NET_OPTIONS                                                                  \
    {"address", BENCH_TEXT, &bench_addresses, "A,B: of the side that asks, of the other"}, \
    {                                                                                      \
        "netns", BENCH_TEXT, &bench_netns, "A,B: their network namespaces (needs root)"    \
    }

/* The word of a side in "A,B". */
static inline void bench_side(const char *words, int side, char out[64])
{
    const char *comma = strchr(words, ',');
    const char *from = side != 0 && comma != NULL ? comma + 1 : words;
    snprintf(out, 64, "%.*s", (int)strcspn(from, ","), from);
}

static inline struct sockaddr_in bench_at(int side, uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    char text[64];
    bench_side(bench_addresses, side, text);
    if (inet_pton(AF_INET, text, &a.sin_addr) != 1)
        bench_usage_error("not an IPv4 address", text);
    return a;
}

/* Takes this thread, and what it starts, into the namespace of a side. */
static inline void bench_enter(int side)
{
    char name[64], path[128];
    if (bench_netns == NULL)
        return;
    bench_side(bench_netns, side, name);
    snprintf(path, sizeof path, "/run/netns/%s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0)
        bench_die("network namespace %s: %s", name, strerror(errno));
    close(fd);
}

/* A socket stays where it was made, wherever its maker goes. */
static inline int bench_socket(int side)
{
    int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0)
        bench_die_errno("/proc/thread-self/ns/net");
    bench_enter(side);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        bench_die_errno("socket");
    if (bench_netns != NULL && setns(home, CLONE_NEWNET) != 0)
        bench_die_errno("setns");
    close(home);
    return fd;
}

/* Congestion control of a socket: sets `want` unless that is NULL. */
static inline void bench_set_cc(int fd, const char *want)
{
    if (want != NULL &&
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, want, (socklen_t)strlen(want)) != 0)
        bench_die("congestion control %s: %s", want, strerror(errno));
}

static inline void bench_get_cc(int fd, char out[BENCH_CC_MAX])
{
    socklen_t n = BENCH_CC_MAX - 1;
    memset(out, 0, BENCH_CC_MAX);
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, out, &n) != 0)
        snprintf(out, BENCH_CC_MAX, "?");
}

/* Listens at a free port of side 1; what it accepts inherits the congestion control. */
static inline int bench_listen(const char *cc, uint16_t *port)
{
    struct sockaddr_in a = bench_at(1, 0);
    socklen_t n = sizeof a;
    int fd = bench_socket(1);
    bench_set_cc(fd, cc);
    if (bind(fd, (struct sockaddr *)&a, n) != 0 || listen(fd, BENCH_THREADS_MAX) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) != 0)
        bench_die_errno("listen");
    *port = ntohs(a.sin_port);
    return fd;
}

static inline int bench_no_delay(int fd)
{
    int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        bench_die_errno("TCP_NODELAY");
    return fd;
}

static inline int bench_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        bench_die_errno("accept");
    return bench_no_delay(fd);
}

static inline int bench_connect(uint16_t port, const char *cc)
{
    struct sockaddr_in a = bench_at(1, port);
    int fd = bench_socket(0);
    bench_set_cc(fd, cc);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
        bench_die_errno("connect");
    return bench_no_delay(fd);
}

/* --------------------------------------------------------------------------------- statistics */

static inline int bench_compare_i64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static inline void bench_sort(int64_t *v, size_t n)
{
    qsort(v, n, sizeof *v, bench_compare_i64);
}

/* The value below which a share `q` (0..1) of the sorted samples lies; 0 if there are none. */
static inline double bench_quantile(const int64_t *sorted, size_t n, double q)
{
    return n == 0 ? 0.0 : (double)sorted[(size_t)(q * (double)(n - 1))];
}

#endif
