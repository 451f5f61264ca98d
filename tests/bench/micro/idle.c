/* SPDX-License-Identifier: Apache-2.0 */
/*
 * idle.c - how often an engine with nothing to do wakes up, at both ends.
 */
#include "micro.h"

#include <dirent.h>

/* Voluntary context switches of one thread so far; 0 if it is gone. */
static uint64_t switches_of(const char *tasks, const char *task)
{
    char path[512], line[256];
    uint64_t n = 0;
    snprintf(path, sizeof path, "%s/%s/status", tasks, task);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return 0;
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "voluntary_ctxt_switches: %" SCNu64, &n) == 1)
            break;
    fclose(f);
    return n;
}

/* The sum over all threads of a process but the one that `skip` names. */
static uint64_t switches(pid_t pid, pid_t skip)
{
    char tasks[64];
    uint64_t sum = 0;
    snprintf(tasks, sizeof tasks, "/proc/%d/task", (int)pid);
    DIR *d = opendir(tasks);
    if (d == NULL)
        bench_die_errno(tasks);
    for (struct dirent *entry = readdir(d); entry != NULL; entry = readdir(d))
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != (int)skip)
            sum += switches_of(tasks, entry->d_name);
    closedir(d);
    return sum;
}

/* A sleep that ends is a wake-up. What the transfer itself woke has settled after a second. */
void measure_idle(const struct bench *b)
{
    double span = seconds > 5.0 ? seconds : 5.0;
    te_request r = request_at(b, TE_READ, 0, 4096);
    struct timespec t = {.tv_sec = (time_t)span, .tv_nsec = 0}, settle = {.tv_sec = 1};
    move(b, &r, 1);
    nanosleep(&settle, NULL);
    uint64_t own = switches(getpid(), gettid()), other = switches(b->peer.pid, b->peer.pid);
    int64_t start = bench_now_ns();
    nanosleep(&t, NULL);
    own = switches(getpid(), gettid()) - own;
    other = switches(b->peer.pid, b->peer.pid) - other;
    double passed = (double)(bench_now_ns() - start) / 1e9;
    printf(json ? "{\"bench\": \"idle\", \"wakeups_s\": %.2f, \"peer_wakeups_s\": %.2f, "
                  "\"seconds\": %.1f}\n"
                : "idle: %.2f wake-ups a second, the peer %.2f (over %.1f s)\n",
           (double)own / passed, (double)other / passed, passed);
}
