/* SPDX-License-Identifier: Apache-2.0 */
#include "rdma_fabric.h"

#include <dlfcn.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY TE_TEST_BUILD "/tests/softverbs/libibverbs.so.1"

#define DIE(...)                                      \
    do {                                              \
        fprintf(stderr, "rdma fabric: " __VA_ARGS__); \
        fputc('\n', stderr);                          \
        abort();                                      \
    } while (0)

/* softverbs.h needs headers that the tests do without. */
typedef int (*control_fn)(const char *path, const char *command, char *reply, size_t size);

static char dir[96]; /* "": there is no fabric */
static char real_names[64][32];
static size_t n_real; /* of both sides; 0: simulated */
static char topologies[2][1024];
static control_fn control;

static int run(const char *command, char *reply, size_t size)
{
    char path[128];

    snprintf(path, sizeof path, "%s/fabric.json", dir);
    return control(path, command, reply, size);
}

static void open_library(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *at = library ? dlsym(library, "softverbs_control") : NULL;

    if (!at)
        DIE("%s", dlerror());
    memcpy(&control, &at, sizeof at);
}

static void write_description(unsigned n, const char *keys)
{
    char path[128];
    FILE *out;

    snprintf(path, sizeof path, "%s/fabric.json", dir);
    out = fopen(path, "w");
    if (!out)
        DIE("%s cannot be written", path);
    fputs("{\"nics\":[", out);
    for (unsigned i = 0; i < 2 * n; i++)
        fprintf(out, "%s{\"name\":\"%s%u\",\"numa\":0%s%s}", i ? "," : "", i < n ? "left" : "right",
                i % n, keys ? "," : "", keys ? keys : "");
    fputs("]}", out);
    fclose(out);
    setenv("SOFTVERBS", path, 1);
}

static void name_nic(char out[32], bool right, unsigned i)
{
    if (n_real)
        snprintf(out, 32, "%s", real_names[i + (right ? n_real / 2 : 0)]);
    else
        snprintf(out, 32, "%s%u", right ? "right" : "left", i);
}

static void write_topology(char out[1024], bool right, unsigned n)
{
    size_t used = (size_t)snprintf(out, 1024, "{\"cpu:0\":[[");
    char name[32];

    for (unsigned i = 0; i < n; i++) {
        name_nic(name, right, i);
        used += (size_t)snprintf(out + used, 1024 - used, "%s\"%s\"", i ? "," : "", name);
    }
    snprintf(out + used, 1024 - used, "],[]]}");
}

void rdma_fabric_up(unsigned n, const char *keys)
{
    const char *tmp = getenv("TMPDIR");
    char reply[256];

    rdma_fabric_down();
    if (!control)
        open_library();
    snprintf(dir, sizeof dir, "%.64s/te_fabric.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        DIE("no directory like %s", dir);
    write_description(n, keys);
    write_topology(topologies[0], false, n);
    write_topology(topologies[1], true, n);
    if (run("setup", reply, sizeof reply))
        DIE("setup: %s", reply);
}

unsigned rdma_fabric_real(void)
{
    const char *names = getenv("TE_TEST_RDMA_NICS");

    n_real = 0;
    for (; names && *names && n_real < 64; n_real++) {
        size_t n = strcspn(names, ",");

        snprintf(real_names[n_real], sizeof real_names[0], "%.*s", (int)n, names);
        names += n + (names[n] == ',');
    }
    if (n_real % 2)
        DIE("TE_TEST_RDMA_NICS names %zu NICs, which are no two sides", n_real);
    write_topology(topologies[0], false, (unsigned)n_real / 2);
    write_topology(topologies[1], true, (unsigned)n_real / 2);
    return (unsigned)n_real / 2;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void rdma_fabric_down(void)
{
    if (dir[0])
        nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    dir[0] = '\0';
    unsetenv("SOFTVERBS");
}

const char *rdma_fabric_topology(bool right)
{
    return topologies[right];
}

void rdma_fabric_configure(struct tei_conf *c)
{
    if (n_real)
        return;
    snprintf(c->ibverbs_path, sizeof c->ibverbs_path, "%s", LIBRARY);
    snprintf(c->sysfs_path, sizeof c->sysfs_path, "%s/all/sys", dir);
    snprintf(c->dev_path, sizeof c->dev_path, "%s/all/dev", dir);
}

void rdma_fabric_tell(const char *fmt, ...)
{
    char command[256], reply[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(command, sizeof command, fmt, args);
    va_end(args);
    if (run(command, reply, sizeof reply))
        DIE("%s: %s", command, reply);
}

/* What a SoftRoCE device sent and received; a packet holds a page at most. */
static uint64_t count_real(const char *side_and_number)
{
    static const char *const counters[] = {"sent_pkts", "rcvd_pkts"};
    bool right = side_and_number[0] == 'r';
    uint64_t packets = 0;
    char nic[32];

    name_nic(nic, right, (unsigned)atoi(side_and_number + (right ? 5 : 4)));
    for (size_t i = 0; i < 2; i++) {
        char path[160], text[32] = "";
        FILE *in;

        snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/hw_counters/%s", nic,
                 counters[i]);
        in = fopen(path, "r");
        if (!in || !fgets(text, sizeof text, in))
            DIE("%s cannot be read", path);
        fclose(in);
        packets += strtoull(text, NULL, 10);
    }
    return packets * 4096;
}

uint64_t rdma_fabric_count(const char *nic, const char *what)
{
    char command[128], reply[512], key[64];
    const char *at;

    if (n_real)
        return count_real(nic);
    snprintf(command, sizeof command, "stats %s", nic);
    snprintf(key, sizeof key, " %s=", what);
    if (run(command, reply, sizeof reply))
        DIE("%s: %s", command, reply);
    at = strstr(reply, key);
    if (!at)
        DIE("no %s in '%s'", what, reply);
    return strtoull(at + strlen(key), NULL, 10);
}
