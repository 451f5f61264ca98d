/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nics.c - NICs of hosts, by softverbs, whose threads are threads of this world: devices of a host, which go on
 * while its processes stand still. What softverbs shares among processes and shows as sysfs lies in a folder of
 * the real system that main.c takes away.
 */
#include "fabric/softverbs/softverbs.h"

#include "load.h"
#include "machine.h"
#include "sim.h"
#include "te.h"
#include "world.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NICS    2 /* of a host, at most */
#define PIECE   4096
#define INSTALL 20 /* tries */
#define ALL     64 /* that softverbs has */

static char library[96], folder[64];
static int n_nics[SIM_HOSTS];
static int (*control)(const char *, const char *, char *, size_t);

static bool is_on(void)
{
    return sim_world.knobs.fabrics & FABRIC_NICS;
}

/* ---------------------------------------------------------------------------- what softverbs asks */

static bool is_alive(uint32_t pid)
{
    return sim_process_is_alive((pid_t)pid);
}

/* By the paths that streams take. */
static bool reaches(uint32_t from, uint32_t to)
{
    return !(sim_world.knobs.fabrics & FABRIC_NIC_CUTS) ||
           !sim_path(sim_process_host((pid_t)from), sim_process_host((pid_t)to))->cut;
}

static int copy(void *to, const void *from, size_t n, uint32_t from_pid, uint32_t to_pid)
{
    for (size_t done = 0; done < n; done += PIECE) {
        if (!is_alive(from_pid) || !is_alive(to_pid) || !reaches(from_pid, to_pid))
            return ESRCH;
        memmove((char *)to + done, (const char *)from + done, n - done < PIECE ? n - done : PIECE);
        sim_point();
    }
    return 0;
}

const struct softverbs_world softverbs_world = {is_alive, reaches, copy};

/* The C library's go past read() and write() here. */
int eventfd_read(int fd, eventfd_t *value)
{
    return read(fd, value, sizeof(*value)) == sizeof(*value) ? 0 : -1;
}

int eventfd_write(int fd, eventfd_t value)
{
    return write(fd, &value, sizeof(value)) == sizeof(value) ? 0 : -1;
}

/* -------------------------------------------------------------------------------------- the fabric */

/* In memory, where there are such files. Both are as long: a text that is longer may lie elsewhere in memory, and
 * where it lies is a part of the run. */
void sim_nics_folder(int pid, char out[64])
{
    const char *root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp/./.";

    snprintf(out, 64, "%s/te_sim_nics.%08d", root, pid);
}

/* The name of the link is as long wherever this program lies, for the reason above. */
void sim_link_library(const char *in, const char *name, const char *without, char out[96])
{
    char there[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", there, sizeof(there) - 64);
    char *end;

    there[n > 0 ? n : 0] = '\0';
    end = strrchr(there, '/');
    if (!end)
        sim_fail("the folder of this program is not known");
    snprintf(end, 64, "/../%s", name);
    if (syscall(SYS_faccessat, AT_FDCWD, there, R_OK) < 0)
        sim_fail("%s is not to be had: %s; runs without %s", there, strerror(errno), without);
    snprintf(out, 96, "%s/%s", in, strchr(name, '/') + 1);
    unlink(out);
    if (symlink(there, out) < 0)
        sim_fail("%s cannot be made", out);
}

/* softverbs lies beside this program; without it the run would be another one. */
static void load_library(void)
{
    void *at;

    sim_link_library(folder, "softverbs/libibverbs.so.1", "NICs: --fabrics=0 to 3", library);
    at = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    at = at ? dlsym(at, "softverbs_control") : NULL;
    if (!at)
        sim_fail("%s is not softverbs: %s", library, dlerror());
    memcpy(&control, &at, sizeof(control));
}

static void write_description(const char *path)
{
    FILE *out = fopen(path, "w");
    uint64_t most = sim_world.knobs.hosts * NICS > ALL ? 1 : NICS;
    bool first = true;

    if (!out)
        sim_fail("%s cannot be written", path);
    fprintf(out, "{\"nics\":[");
    for (int h = 1; h <= sim_world.knobs.hosts; h++) {
        n_nics[h] = sim_one_in(6) ? 0 : 1 + (int)sim_below(most);
        for (int i = 0; i < n_nics[h]; i++, first = false)
            fprintf(out, "%s{\"name\":\"h%d_%d\",\"numa\":0,\"gbps\":%d,\"latency_us\":%d}",
                    first ? "" : ",", h, i, 1 << sim_below(8), 2 << sim_below(8));
    }
    fprintf(out, "]}");
    fclose(out);
}

static void *faults_main(void *arg);

void sim_nics_lay(void)
{
    char path[80];

    if (!is_on())
        return;
    sim_own_is_whole = true; /* softverbs finds out by one whether memory is there */
    sim_nics_folder((int)syscall(SYS_getpid), folder);
    if (mkdir(folder, 0700) < 0 && errno != EEXIST) /* of a run that was killed: made anew */
        sim_fail("%s cannot be made", folder);
    load_library();
    snprintf(path, sizeof(path), "%s/fabric.json", folder);
    write_description(path);
    setenv("SOFTVERBS", path, 1);
    if (control(path, "setup", NULL, 0))
        sim_fail("no fabric of NICs");
    if (sim_world.knobs.fabrics & FABRIC_NIC_FAULTS)
        sim_spawn(0, faults_main, NULL);
}

void sim_nics_options(te_options *o)
{
    char path[80];

    if (!is_on())
        return;
    sim_ok(te_option_set(o, "TE_IBVERBS_PATH", library), "TE_IBVERBS_PATH");
    snprintf(path, sizeof(path), "%s/all/sys", folder);
    sim_ok(te_option_set(o, "TE_SYSFS_PATH", path), "TE_SYSFS_PATH");
    snprintf(path, sizeof(path), "%s/all/dev", folder);
    sim_ok(te_option_set(o, "TE_DEV_PATH", path), "TE_DEV_PATH");
}

/* An engine may come up without: descriptors and memory are not always to be had. */
void sim_nics_install(te_engine *e, int host)
{
    char matrix[128];
    int at = snprintf(matrix, sizeof(matrix), "{\"cpu:0\":[[");

    if (!is_on() || !n_nics[host])
        return;
    for (int i = 0; i < n_nics[host]; i++)
        at += snprintf(matrix + at, sizeof(matrix) - (size_t)at, "%s\"h%d_%d\"", i ? "," : "", host,
                       i);
    snprintf(matrix + at, sizeof(matrix) - (size_t)at, "],[]]}");
    for (int i = 0; i < INSTALL && te_transport_install(e, "rdma", matrix) < 0; i++) {
        sim_trace("no NICs: %s", te_errmsg());
        usleep(100000);
    }
}

/* ------------------------------------------------------------------------------------------ faults */

static void order(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void order(const char *fmt, ...)
{
    char text[128], reply[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    sim_trace("NICs: %s", text);
    if (control(NULL, text, reply, sizeof(reply)))
        sim_fail("softverbs does not do '%s': %s", text, reply);
}

static void heal(const char *nic)
{
    order("clear %s", nic);
    order("port %s up", nic);
    order("revive %s", nic);
}

static void spoil(const char *nic)
{
    static const char *const status[] = {"RETRY_EXC", "REM_ACCESS_ERR", "GENERAL", "REM_OP_ERR"};

    switch (sim_below(9)) {
    case 0:
        order("port %s down %s", nic, sim_one_in(2) ? "never" : "retry");
        break;
    case 1:
        order("fail %s nth=%d count=%d status=%s%s", nic, 1 + (int)sim_below(20),
              1 + (int)sim_below(4), status[sim_below(4)], sim_one_in(2) ? " moved=1" : "");
        break;
    case 2:
        order("drop %s %d", nic, 1 + (int)sim_below(3));
        break;
    case 3:
        order("stall %s %d", nic, 1 << sim_below(13));
        break;
    case 4:
        order("kill %s", nic);
        break;
    case 5:
        order("cq_err %s", nic);
        break;
    case 6:
        order("qp_fatal %s", nic);
        break;
    case 7:
        order("hold %s %d", nic, (int)sim_below(8));
        break;
    default:
        order("deny %s create_qp after=%d", nic, (int)sim_below(4));
        break;
    }
    sim_world.counts.faults++;
}

static void any_nic(char name[16])
{
    int h = 1 + (int)sim_below((uint64_t)sim_world.knobs.hosts);

    name[0] = '\0';
    if (n_nics[h])
        snprintf(name, 16, "h%d_%d", h, (int)sim_below((uint64_t)n_nics[h]));
}

static bool faults_are_over, faults_have_ended;

static void *faults_main(void *arg)
{
    char nic[16];

    while (!faults_are_over) {
        usleep((useconds_t)(sim_below(1500) * 1000));
        any_nic(nic);
        if (!nic[0] || faults_are_over)
            continue;
        spoil(nic);
        usleep((useconds_t)(1000 << sim_below(13)));
        heal(nic);
    }
    faults_have_ended = true;
    return arg;
}

void sim_nics_quiet(void)
{
    faults_are_over = true;
    while ((sim_world.knobs.fabrics & FABRIC_NIC_FAULTS) && !faults_have_ended)
        usleep(10000);
}
