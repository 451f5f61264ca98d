/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/check_part.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "te_info/file.h"

#define VENDOR_NVIDIA   0x10de
#define VENDOR_AMD      0x1002
#define VENDOR_HUAWEI   0x19e5
#define CLASS_DISPLAY   0x03
#define CLASS_PROCESSOR 0x12

#define THREADS_MOST 4 /* of I/O, where TE_TCP_THREADS does not say */
#define MEMORY_LEAST (UINT64_C(1) << 30)

/* ------------------------------------------------------------------------------------------ GPUs */

static unsigned long number_in(const struct check_host *h, const char *device, const char *name)
{
    char line[FILE_LINE];

    return file_line(line, "%s/bus/pci/devices/%s/%s", h->sysfs, device, name)
               ? strtoul(line, NULL, 16)
               : 0;
}

struct gpus {
    size_t nvidia, amd, huawei;
};

static struct gpus count_gpus(const struct check_host *h)
{
    struct gpus n = {0};
    char path[PATH_MAX];
    const struct dirent *d;
    DIR *all;

    snprintf(path, sizeof path, "%s/bus/pci/devices", h->sysfs);
    all = opendir(path);
    while (all && (d = readdir(all))) {
        unsigned long vendor = number_in(h, d->d_name, "vendor");
        unsigned long kind = number_in(h, d->d_name, "class") >> 16;

        n.nvidia += vendor == VENDOR_NVIDIA && kind == CLASS_DISPLAY;
        n.amd += vendor == VENDOR_AMD && kind == CLASS_PROCESSOR;
        n.huawei += vendor == VENDOR_HUAWEI && kind == CLASS_PROCESSOR;
    }
    if (all)
        closedir(all);
    return n;
}

/* What the driver of one of them has to say; "": nothing. */
static const char *why_no_gpu(const struct check_host *h, const struct gpus *n)
{
    if (n->nvidia && h->asked.cuda[0])
        return h->asked.cuda;
    if (n->amd && h->asked.hip[0])
        return h->asked.hip;
    return n->huawei ? h->asked.ascend : "";
}

void check_gpus(const struct check_host *h, struct check *c)
{
    struct gpus n = count_gpus(h);
    const char *why = why_no_gpu(h, &n);
    char text[96];

    if (n.nvidia + n.amd + n.huawei == 0) {
        check_say(c, CHECK_ABSENT, "none");
        return;
    }
    snprintf(text, sizeof text, "%zu of NVIDIA, %zu of AMD", n.nvidia, n.amd);
    if (n.huawei)
        snprintf(text + strlen(text), sizeof text - strlen(text), ", %zu of Huawei", n.huawei);
    if (!why[0]) {
        check_say(c, CHECK_OK, "%s", text);
        return;
    }
    check_say(c, CHECK_WARN, "%s, but %.300s", text, why);
    check_advise(c, "install the driver's libraries, or give them to the container (--gpus all)");
}

/* ----------------------------------------------------------------------------------------- groups */

/*
 * Hands out the first line of a file of our control group, and of those above it, which bind as well.
 * False where there are no groups of version 2.
 */
static bool each_group(const struct check_host *h, const char *file,
                       void (*each)(void *arg, const char *line), void *arg)
{
    char group[FILE_LINE], line[FILE_LINE];

    if (!file_line(line, "%s/fs/cgroup/cgroup.controllers", h->sysfs) ||
        !file_row(group, "0::", "%s/self/cgroup", h->proc))
        return false;
    if (strstr(group, "/..")) /* seen from a namespace that it is not in */
        group[0] = '\0';
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = '\0';
        if (file_line(line, "%s/fs/cgroup%s/%s", h->sysfs, group, file))
            each(arg, line);
    }
    return true;
}

/* ------------------------------------------------------------------------------- CPUs and memory */

/* "max 100000", or microseconds of CPU time in so many. */
static void take_quota(void *arg, const char *line)
{
    double *least = arg, quota, period;

    if (sscanf(line, "%lf %lf", &quota, &period) == 2 && period > 0 && quota / period < *least)
        *least = quota / period;
}

/* How many I/O threads an engine has: src/transport/tcp/tcp.c. */
static double io_threads(const struct check_host *h, size_t cpus)
{
    return h->conf->tcp_threads ? h->conf->tcp_threads : (double)tei_min(cpus, THREADS_MOST);
}

static void tell_quota(const struct check_host *h, double quota, size_t cpus, struct check *c)
{
    size_t used = strlen(c->value);

    snprintf(c->value + used, sizeof c->value - used, "; cgroup allows %.1f", quota);
    if (quota >= io_threads(h, cpus) || (h->conf->tcp_threads == 1 && h->conf->spin_us == 0))
        return;
    c->result = CHECK_WARN;
    check_advise(c, "TE_TCP_THREADS=%d%s, or a larger cpu.max (--cpus of a container)",
                 quota < 2 ? 1 : (int)quota, quota < 2 ? " TE_SPIN_US=0" : "");
}

void check_cpus(const struct check_host *h, struct check *c)
{
    char online[FILE_LINE], allowed[FILE_LINE], nodes[FILE_LINE];
    double most = 1e9, quota = most;
    size_t cpus, usable;

    if (!file_line(online, "%s/devices/system/cpu/online", h->sysfs)) {
        check_say(c, CHECK_ABSENT, "not known");
        return;
    }
    if (!file_row(allowed, "Cpus_allowed_list:", "%s/self/status", h->proc))
        snprintf(allowed, sizeof allowed, "%s", online);
    if (!file_line(nodes, "%s/devices/system/node/online", h->sysfs))
        snprintf(nodes, sizeof nodes, "0");
    cpus = check_list_count(online);
    usable = check_list_count(allowed);
    check_say(c, CHECK_OK, "%zu of %zu; NUMA node%s %.64s", tei_min(usable, cpus), cpus,
              check_list_count(nodes) == 1 ? "" : "s", nodes);
    each_group(h, "cpu.max", take_quota, &quota);
    if (quota < most)
        tell_quota(h, quota, cpus, c);
}

static void take_limit(void *arg, const char *line)
{
    uint64_t *least = arg, limit;

    if (sscanf(line, "%" SCNu64, &limit) == 1 && limit < *least)
        *least = limit;
}

void check_memory(const struct check_host *h, struct check *c)
{
    uint64_t limit = UINT64_MAX, free_kib;
    char line[FILE_LINE], sizes[2][CHECK_SIZE];

    if (!file_row(line, "MemAvailable:", "%s/meminfo", h->proc) ||
        sscanf(line, "%" SCNu64, &free_kib) != 1) {
        check_say(c, CHECK_ABSENT, "not known");
        return;
    }
    each_group(h, "memory.max", take_limit, &limit);
    check_size(free_kib << 10, sizes[0]);
    check_size(limit, sizes[1]);
    if (limit == UINT64_MAX) {
        check_say(c, CHECK_OK, "%s available", sizes[0]);
        return;
    }
    check_say(c, CHECK_OK, "%s available; cgroup allows %s", sizes[0], sizes[1]);
    if (limit >= MEMORY_LEAST)
        return;
    c->result = CHECK_WARN;
    check_advise(c, "a larger memory.max (--memory of a container): memory that is registered, and "
                    "what the tools fill by default, counts");
}

void check_huge_pages(const struct check_host *h, struct check *c)
{
    char line[FILE_LINE], *word;

    if (!file_line(line, "%s/kernel/mm/transparent_hugepage/shmem_enabled", h->sysfs) ||
        !(word = strchr(line, '['))) {
        check_say(c, CHECK_ABSENT, "this kernel has none for memory of te_alloc()");
        return;
    }
    word[strcspn(word, "]")] = '\0';
    word++;
    check_say(c, CHECK_OK, "shmem_enabled is %.32s%s", word,
              strcmp(word, "never") == 0 ? "; advise can make blocks of 4 KiB faster" : "");
}

/* ------------------------------------------------------------------------------------------ files */

void check_io_uring(const struct check_host *h, struct check *c)
{
    bool wanted = h->conf->file_uring && h->conf->file_paths[0];
    char line[FILE_LINE];

    if (!TE_USE_URING || !h->conf->file_uring) {
        check_say(c, CHECK_ABSENT, "%s",
                  TE_USE_URING ? "TE_FILE_URING is off" : "not in this build");
        return;
    }
    if (!h->asked.io_uring) {
        check_say(c, CHECK_OK, "files can be read and written by it");
        return;
    }
    check_say(c, wanted ? CHECK_WARN : CHECK_OK, "refused (%s): threads read and write files",
              strerror(h->asked.io_uring));
    if (!wanted)
        return;
    if (file_line(line, "%s/sys/kernel/io_uring_disabled", h->proc) && atoi(line) > 0)
        check_advise(c, "sysctl -w kernel.io_uring_disabled=0");
    else
        check_advise(c,
                     "allow the calls io_uring_* in the seccomp profile (the kernel must be 5.11 "
                     "or newer)");
}

/* ----------------------------------------------------------------------------------------- clocks */

void check_clock_source(const struct check_host *h, struct check *c)
{
    static const char *const slow[] = {"hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"};
    const char *folder = "devices/system/clocksource/clocksource0";
    char now[FILE_LINE], other[FILE_LINE];

    if (!file_line(now, "%s/%s/current_clocksource", h->sysfs, folder)) {
        check_say(c, CHECK_ABSENT, "not known");
        return;
    }
    check_say(c, CHECK_OK, "%.64s", now);
    for (size_t i = 0; i < TEI_ARRAY_LEN(slow); i++) {
        if (strcmp(now, slow[i]) != 0)
            continue;
        file_line(other, "%s/%s/available_clocksource", h->sysfs, folder);
        check_say(c, CHECK_WARN, "%s: each look at the clock takes long", now);
        check_advise(c,
                     "echo NAME > /sys/%s/current_clocksource with tsc or the hypervisor's, of: "
                     "%.200s",
                     folder, other);
    }
}

void check_clock(const struct check_host *h, struct check *c)
{
    if (!h->asked.unsynchronised) {
        check_say(c, CHECK_OK, "synchronised");
        return;
    }
    check_say(c, CHECK_WARN,
              "not synchronised: times in logs of several hosts do not fit, and "
              "certificates may seem out of date");
    check_advise(c, "timedatectl set-ntp true, or chronyd");
}
