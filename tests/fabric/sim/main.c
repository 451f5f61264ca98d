/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - runs seeds, each in a process of its own, and finds the smallest run that fails.
 */
#include "fleet.h"
#include "load.h"
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CPU_S    120  /* of a seed */
#define WALL_S   1800 /* of one that does not run at all: the machine may be busy with others */
#define JOBS     64
#define RESULT   3  /* the descriptor that a run tells its end by */
#define FAILURES 10 /* after which no other run begins */
#define ENDLESS  UINT64_MAX

struct report {
    struct sim_result result;
    struct sim_counts counts;
};

static struct {
    uint64_t first, n, batches, jobs; /* batches: until there were so many */
    struct sim_knobs knobs;
    bool one, check_hash, no_shrink;
    int to; /* where a run reports to; 0: this process runs others */
    int fleet;
} args = {.first = 1, .n = 100, .jobs = 1, .knobs = {-1, -1, -1, -1, -1}};

static const char usage[] =
    "usage: sim [OPTION...]\n"
    "\n"
    "Runs random programs on several engines, hosts of a simulated network, in virtual time. A seed is a run.\n"
    "\n"
    "  --seeds=N        runs so many seeds (100)\n"
    "  --batches=N      runs so many seeds that there are as many batches\n"
    "  --from=SEED      beginning with this one (1)\n"
    "  --jobs=N         so many at a time (1)\n"
    "  --seed=SEED      runs this one\n"
    "  --trace          prints what happens in it, in order\n"
    "  --check-hash     runs each seed three times and compares the hashes of the schedules\n"
    "  --no-shrink      does not look for a smaller run when one fails\n"
    "  --hosts=N        so many hosts, instead of what the seed chooses (2 to 4); 64 at most\n"
    "  --rounds=N       so many batches of each user (4 to 23)\n"
    "  --store=N        engines find each other by: 0 each other, 1 HTTP, 2 redis, 3 etcd\n"
    "  --faults=MASK    1 cut paths, 2 resets, 4 frozen hosts, 8 killed hosts, 16 short sends and reads,\n"
    "                   32 lost SYNs, 64 no descriptors, 256 a metadata server that fails, is slow or away,\n"
    "                   512 no memory, 1024 threads without a processor, 128 a byte of memory is spoilt, which must be found\n"
    "  --fabrics=MASK   1 files, 2 files that fail (EIO, a full disc, no answer for seconds),\n"
    "                   4 NICs, 8 NICs that fail, 16 paths that are cut are so for NICs, too,\n"
    "                   32 files become shorter and longer,\n"
    "                   64 GPUs, 128 GPUs that fail, stand still, or lose their context,\n"
    "                   256 paths that are asked for, 512 requests that wait,\n"
    "                   1024 requests of pages, 2048 counters, 4096 leases,\n"
    "                   8192 hosts that mean harm, by frames of their own\n"
    "  --fleet=N        tables of so many engines, 20 to 1000: what they cost, and what one of them, or the metadata server,\n"
    "                   does to the others' requests while it is slow, frozen, dead or started again\n"
    "  --help           prints this\n";

/* ------------------------------------------------------------------------------------- one seed */

static void describe(uint64_t seed, const struct sim_knobs *k, char *out, size_t n)
{
    int at = snprintf(out, n, "sim --seed=%llu", (unsigned long long)seed);

    if (k->hosts >= 0)
        at += snprintf(out + at, n - (size_t)at, " --hosts=%d", k->hosts);
    if (k->rounds >= 0)
        at += snprintf(out + at, n - (size_t)at, " --rounds=%d", k->rounds);
    if (k->faults >= 0)
        at += snprintf(out + at, n - (size_t)at, " --faults=%d", k->faults);
    if (k->fabrics >= 0)
        at += snprintf(out + at, n - (size_t)at, " --fabrics=%d", k->fabrics);
    if (k->store >= 0)
        snprintf(out + at, n - (size_t)at, " --store=%d", k->store);
}

/* One processor is all that a run uses, for one of its threads runs at a time. */
static void stay_on_one(uint64_t n)
{
    cpu_set_t all, one;

    if (sched_getaffinity(0, sizeof(all), &all) < 0)
        return;
    n %= (uint64_t)CPU_COUNT(&all);
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && n-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof(one), &one);
            return;
        }
}

/* Not by the chance of the run: seeds without other fabrics are what they were before there were any. */
static int fabrics_of(uint64_t seed)
{
    static const int some[] = {0, 0, 0, 1, 3, 4, 12, 15};
    uint64_t chance = seed * 0x9e3779b97f4a7c15u, calls = chance >> 56 & 7;
    int fabrics = some[chance >> 61];

    if ((fabrics & FABRIC_NICS) && (chance >> 60 & 1))
        fabrics |= FABRIC_NIC_CUTS;
    if ((fabrics & FABRIC_FILES) && (chance >> 59 & 1))
        fabrics |= FABRIC_FILE_SIZES;
    if (calls == 4 || calls > 5)
        fabrics |= CALLS_PAGES;
    if (calls > 4)
        fabrics |= CALLS_COUNTERS;
    if ((chance >> 54 & 3) == 0)
        fabrics |= CALLS_STREAMS;
    if ((chance >> 52 & 3) == 0)
        fabrics |= CALLS_PATHS;
    if ((chance >> 45 & 3) == 0)
        fabrics |= CALLS_LEASES;
    if ((chance >> 42 & 7) == 0)
        fabrics |= HOSTS_FOES;
    if ((chance >> 49 & 7) == 0)
        fabrics |= chance >> 48 & 1 ? FABRIC_GPUS | FABRIC_GPU_FAULTS : FABRIC_GPUS;
    return fabrics;
}

/* In this process, which is a new one: what was before would be a part of the run. */
static int run(uint64_t seed, const struct sim_knobs *k, int out)
{
    static char repeat[128];
    struct sim_knobs whole = *k;
    struct report r;

    describe(seed, k, repeat, sizeof(repeat));
    sim_repeat = repeat;
    whole.fabrics = k->fabrics < 0 ? fabrics_of(seed) : k->fabrics;
    setrlimit(RLIMIT_CPU, &(struct rlimit){CPU_S, RLIM_INFINITY});
    alarm(WALL_S);
    sim_begin(seed);
    r.counts = sim_load(&whole);
    r.result = sim_result();
    sim_end();
    return write(out, &r, sizeof(r)) == sizeof(r) ? 0 : 1;
}

static int run_fleet(void)
{
    static char repeat[32];

    snprintf(repeat, sizeof(repeat), "sim --fleet=%d", args.fleet);
    sim_repeat = repeat;
    alarm(WALL_S);
    sim_begin(args.first);
    sim_fleet(args.fleet, SIM_REQUESTS);
    sim_end();
    return 0;
}

_Noreturn static void exec_run(uint64_t seed, const struct sim_knobs *k, int out)
{
    char words[8][32], *argv[] = {words[0], words[1], words[2],
                                  words[3], words[4], words[5],
                                  words[6], words[7], sim_trace_on ? "--trace" : NULL,
                                  NULL};
    char where[4096], *env[] = {NULL, NULL};
    const char *path = getenv("LD_LIBRARY_PATH"); /* another build of the library */

    if (path && (size_t)snprintf(where, sizeof(where), "LD_LIBRARY_PATH=%s", path) < sizeof(where))
        env[0] = where;
    snprintf(words[0], 32, "sim");
    snprintf(words[1], 32, "--seed=%llu", (unsigned long long)seed);
    snprintf(words[2], 32, "--hosts=%d", k->hosts);
    snprintf(words[3], 32, "--rounds=%d", k->rounds);
    snprintf(words[4], 32, "--faults=%d", k->faults);
    snprintf(words[5], 32, "--to=%d", out);
    snprintf(words[6], 32, "--fabrics=%d", k->fabrics);
    snprintf(words[7], 32, "--store=%d", k->store);
    execve("/proc/self/exe", argv, env);
    _exit(2);
}

/* A run under way, in a process of its own. */
struct job {
    uint64_t seed;
    pid_t pid;
    int result;
    unsigned place; /* which goes by itself among those under way */
    bool is_silent;
};

/* What it says goes to stderr, or nowhere. Its descriptors are the same whatever else is under way. */
static struct job start(uint64_t seed, const struct sim_knobs *k, unsigned place, bool is_silent)
{
    struct job j = {.seed = seed, .place = place, .is_silent = is_silent};
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0 || (j.pid = fork()) < 0) {
        perror("sim");
        exit(2);
    }
    if (j.pid == 0) {
        if (is_silent && !freopen("/dev/null", "w", stderr))
            _exit(2);
        if (ends[1] == RESULT ? fcntl(RESULT, F_SETFD, 0) : dup2(ends[1], RESULT) < 0)
            _exit(2);
        stay_on_one(place);
        exec_run(seed, k, RESULT);
    }
    close(ends[1]);
    j.result = ends[0];
    return j;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *at)
{
    (void)st, (void)flag, (void)at;
    return remove(path);
}

/* True if it passed; *torn is counted. */
static bool finish(const struct job *j, struct report *r, uint64_t *torn)
{
    ssize_t got = read(j->result, r, sizeof(*r));
    int status = 0;
    char folder[64];

    close(j->result);
    waitpid(j->pid, &status, 0);
    sim_nics_folder((int)j->pid, folder);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (WIFSIGNALED(status) && !j->is_silent)
        fprintf(stderr, "seed %llu: %s\n", (unsigned long long)j->seed,
                WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGXCPU
                    ? "takes too long"
                    : strsignal(WTERMSIG(status)));
    *torn += WIFEXITED(status) && WEXITSTATUS(status) == SIM_TORN;
    return got == sizeof(*r) && status == 0;
}

static bool try_once(uint64_t seed, const struct sim_knobs *k, struct report *r, bool is_silent)
{
    struct job j = start(seed, k, (unsigned)seed, is_silent);
    uint64_t torn = 0;

    return finish(&j, r, &torn);
}

/* --------------------------------------------------------------------------------------- shrinking */

static bool still_fails(uint64_t seed, struct sim_knobs *k, struct sim_knobs smaller)
{
    struct report r;

    if (try_once(seed, &smaller, &r, true))
        return false;
    *k = smaller;
    return true;
}

/* Fewer kinds of faults, hosts, rounds, as long as it fails. Another knob makes another run of the seed. */
static void shrink(uint64_t seed, struct sim_knobs k)
{
    char text[128];

    for (int bit = 1; bit <= FAULTS_ALL; bit <<= 1) {
        struct sim_knobs smaller = k;

        smaller.faults = (k.faults < 0 ? FAULTS_ALL : k.faults) & ~bit;
        if (smaller.faults != k.faults)
            still_fails(seed, &k, smaller);
    }
    k.fabrics = k.fabrics < 0 ? fabrics_of(seed) : k.fabrics;
    for (int bit = CALLS_COUNTERS; bit; bit >>= 1)
        if (k.fabrics & bit)
            still_fails(seed, &k,
                        (struct sim_knobs){k.hosts, k.rounds, k.faults, k.fabrics & ~bit, k.store});
    for (int hosts = 2; hosts <= 3; hosts++)
        if (still_fails(seed, &k,
                        (struct sim_knobs){hosts, k.rounds, k.faults, k.fabrics, k.store}))
            break;
    for (int rounds = 1; rounds <= 16; rounds *= 2)
        if (still_fails(seed, &k,
                        (struct sim_knobs){k.hosts, rounds, k.faults, k.fabrics, k.store}))
            break;
    describe(seed, &k, text, sizeof(text));
    fprintf(stderr, "smallest found: %s\n", text);
}

/* -------------------------------------------------------------------------------------- many seeds */

static bool hashes_agree(uint64_t seed, const struct report *first)
{
    struct report r;

    for (int i = 0; i < 2; i++)
        if (!try_once(seed, &args.knobs, &r, false) || r.result.hash != first->result.hash) {
            fprintf(stderr, "seed %llu: the hash is not the same each time\n",
                    (unsigned long long)seed);
            return false;
        }
    return true;
}

static void add(struct report *sum, const struct report *r)
{
    sum->counts.batches += r->counts.batches;
    sum->counts.completed += r->counts.completed;
    sum->counts.ended += r->counts.ended;
    sum->counts.notified += r->counts.notified;
    sum->counts.faults += r->counts.faults;
    sum->counts.bytes += r->counts.bytes;
    sum->counts.counted += r->counts.counted;
    sum->counts.hostile += r->counts.hostile;
    sum->result.points += r->result.points;
    sum->result.switches += r->result.switches;
    sum->result.virtual_ns += r->result.virtual_ns;
}

static double wall_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double spent_s(void)
{
    struct rusage u;

    getrusage(RUSAGE_CHILDREN, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void print_sum(uint64_t seeds, uint64_t failed, uint64_t torn, const struct report *s,
                      double wall)
{
    double spent = spent_s();

    printf(
        "sim: %llu seeds, %llu failed; %llu batches, requests: %llu completed, %llu ended otherwise; %llu faults\n"
        "sim: %.0f virtual s in %.1f s; %llu points, %.0f a second; %llu switches\n"
        "sim: %llu bytes looked at, %llu runs torn; %llu additions counted; %llu hostile frames; %.0f processor s: %.0f points, %.0f batches in each\n",
        (unsigned long long)seeds, (unsigned long long)failed,
        (unsigned long long)s->counts.batches, (unsigned long long)s->counts.completed,
        (unsigned long long)s->counts.ended, (unsigned long long)s->counts.faults,
        (double)s->result.virtual_ns / 1e9, wall, (unsigned long long)s->result.points,
        (double)s->result.points / wall, (unsigned long long)s->result.switches,
        (unsigned long long)s->counts.bytes, (unsigned long long)torn,
        (unsigned long long)s->counts.counted, (unsigned long long)s->counts.hostile, spent,
        (double)s->result.points / spent, (double)s->counts.batches / spent);
    if (args.check_hash)
        printf("sim: the hash of each of %llu seeds was the same 3 times of 3\n",
               (unsigned long long)(seeds - failed));
}

/* How many failures a run that has ended adds. */
static uint64_t judge(const struct job *j, struct report *sum, uint64_t *torn)
{
    struct report r;

    if (!finish(j, &r, torn)) {
        if (!args.no_shrink && !args.one)
            shrink(j->seed, args.knobs);
        return 1;
    }
    add(sum, &r);
    if (args.one)
        printf("sim: seed %llu: hash %016llx\n", (unsigned long long)j->seed,
               (unsigned long long)r.result.hash);
    return args.check_hash && !hashes_agree(j->seed, &r);
}

static void tell_progress(uint64_t done, uint64_t failed)
{
    static double told;

    if (wall_s() - told < 10)
        return;
    told = wall_s();
    if (args.n == ENDLESS)
        fprintf(stderr, "sim: %llu seeds, %llu failed\n", (unsigned long long)done,
                (unsigned long long)failed);
    else
        fprintf(stderr, "sim: %llu of %llu seeds, %llu failed\n", (unsigned long long)done,
                (unsigned long long)args.n, (unsigned long long)failed);
}

/* Runs are judged in the order of their seeds: a long one does not keep those after it from running. */
struct runs {
    struct job jobs[JOBS];
    uint64_t begun, done;
};

static bool has_ended(const struct job *j)
{
    struct pollfd p = {.fd = j->result, .events = POLLIN};

    return poll(&p, 1, 0) != 0;
}

/* Returns how many there are. */
static nfds_t under_way(const struct runs *r, struct pollfd fds[JOBS])
{
    nfds_t n = 0;

    for (uint64_t i = r->done; i < r->begun; i++)
        if (!has_ended(&r->jobs[i % JOBS]))
            fds[n++] = (struct pollfd){.fd = r->jobs[i % JOBS].result, .events = POLLIN};
    return n;
}

static unsigned free_place(const struct runs *r)
{
    unsigned place = 0;

    for (uint64_t i = r->done; i < r->begun; i++)
        if (r->jobs[i % JOBS].place == place && !has_ended(&r->jobs[i % JOBS])) {
            place++;
            i = r->done - 1;
        }
    return place;
}

static void begin_runs(struct runs *r)
{
    struct pollfd fds[JOBS];

    while (r->begun < args.n && r->begun - r->done < JOBS && under_way(r, fds) < args.jobs) {
        r->jobs[r->begun % JOBS] = start(args.first + r->begun, &args.knobs, free_place(r), false);
        r->begun++;
    }
}

static void wait_for_one(const struct runs *r)
{
    struct pollfd fds[JOBS];
    nfds_t n = under_way(r, fds);

    if (n && !has_ended(&r->jobs[r->done % JOBS]))
        poll(fds, n, -1);
}

static uint64_t run_all(void)
{
    uint64_t failed = 0, torn = 0;
    struct runs r = {.begun = 0};
    struct report sum = {0};
    double begin = wall_s();

    while (r.done < args.n) {
        if (failed < FAILURES && (!args.batches || sum.counts.batches < args.batches))
            begin_runs(&r);
        if (r.begun == r.done)
            break;
        wait_for_one(&r);
        while (r.done < r.begun && has_ended(&r.jobs[r.done % JOBS]))
            failed += judge(&r.jobs[r.done++ % JOBS], &sum, &torn);
        if (!args.one)
            tell_progress(r.done, failed);
    }
    print_sum(r.done, failed, torn, &sum, wall_s() - begin);
    return failed;
}

/* ------------------------------------------------------------------------------------------- main */

/* Where pointers are is a part of a run. */
static void make_equal(char **argv)
{
    int now = personality(0xffffffff);

    if (now < 0 || (now & ADDR_NO_RANDOMIZE) ||
        personality((unsigned long)now | ADDR_NO_RANDOMIZE) < 0)
        return;
    execv("/proc/self/exe", argv);
    perror("sim: exec");
}

static int64_t number(const char *text)
{
    char *end;
    long long n = strtoll(text, &end, 0);

    if (!*text || *end || n < -1) {
        fprintf(stderr, "sim: '%s' is not a number; see --help\n", text);
        exit(2);
    }
    return n;
}

static void set_number(int option, int64_t n)
{
    if (option == 'n')
        args.n = (uint64_t)n;
    else if (option == 'b')
        args.batches = (uint64_t)n, args.n = ENDLESS;
    else if (option == 'f' || option == 's')
        args.first = (uint64_t)n;
    else if (option == 'j')
        args.jobs = n < 1 ? 1 : n > JOBS ? JOBS : (uint64_t)n;
    else if (option == 'H')
        args.knobs.hosts = n < 0 ? -1 : n < 2 ? 2 : n < SIM_HOSTS - 1 ? (int)n : SIM_HOSTS - 2;
    else if (option == 'r')
        args.knobs.rounds = (int)n;
    else if (option == 'F')
        args.knobs.faults = n < 0 ? -1 : (int)n & (FAULTS_ALL | FAULT_SPOIL);
    else if (option == 'W')
        args.knobs.fabrics = n < 0 ? -1 : (int)n & FABRICS_ALL;
    else if (option == 'E')
        args.fleet = n < 20 ? 20 : n > 1000 ? 1000 : (int)n;
    else if (option == 'S')
        args.knobs.store = n > 3 ? 3 : (int)n;
    else
        args.to = (int)n;
    if (option == 's')
        args.one = true, args.n = 1;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"seeds", 1, NULL, 'n'},
                                            {"from", 1, NULL, 'f'},
                                            {"seed", 1, NULL, 's'},
                                            {"trace", 0, NULL, 't'},
                                            {"jobs", 1, NULL, 'j'},
                                            {"hosts", 1, NULL, 'H'},
                                            {"rounds", 1, NULL, 'r'},
                                            {"faults", 1, NULL, 'F'},
                                            {"store", 1, NULL, 'S'},
                                            {"to", 1, NULL, 'o'},
                                            {"check-hash", 0, NULL, 'c'},
                                            {"no-shrink", 0, NULL, 'N'},
                                            {"batches", 1, NULL, 'b'},
                                            {"fabrics", 1, NULL, 'W'},
                                            {"fleet", 1, NULL, 'E'},
                                            {"help", 0, NULL, 'h'},
                                            {0}};

    make_equal(argv);
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (strchr("nbfsjHrFSWoE", c))
            set_number(c, number(optarg));
        else if (c == 't')
            sim_trace_on = true;
        else if (c == 'c')
            args.check_hash = true;
        else if (c == 'N')
            args.no_shrink = true;
        else
            return fputs(usage, c == 'h' ? stdout : stderr), c == 'h' ? 0 : 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (args.fleet)
        return run_fleet();
    if (args.to)
        return run(args.first, &args.knobs, args.to);
    return run_all() ? 1 : 0;
}
