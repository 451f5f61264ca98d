/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fabric.c - simulated NICs for te_micro: a fabric of tests/fabric/softverbs that lasts as long as
 * the program, with as many NICs on either side as --nics says, and what it tells afterwards.
 *
 * Both processes stand for hosts of their own, "a" for this one and "b" for the other, each with the
 * NICs nic0, nic1, ... The library is opened here as well, for its controls; the engine opens the
 * same one by its path.
 */
#include "micro.h"

#include <dlfcn.h>
#include <ftw.h>

enum { NICS_MAX = 32, REPLY_MAX = 16 << 10 };

static char folder[256], library[512];
static int (*control)(const char *path, const char *command, char *reply, size_t size);

static const char *own_host(void)
{
    return be_peer ? "b" : "a";
}

/* ../softverbs/libibverbs.so.1 as seen from the folder of this program. */
static void open_library(void)
{
    char self[400];
    own_path(self, sizeof self);
    *strrchr(self, '/') = '\0';
    snprintf(library, sizeof library, "%s/../softverbs/libibverbs.so.1", self);
    void *lib = dlopen(library, RTLD_NOW);
    if (lib == NULL)
        bench_die("%s", dlerror());
    void *symbol = dlsym(lib, "softverbs_control");
    memcpy(&control, &symbol, sizeof control);
    if (control == NULL)
        bench_die("%s is not softverbs", library);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static void remove_folder(void)
{
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void describe(FILE *f)
{
    fputs("{\"nics\": [", f);
    for (int i = 0; i < 2 * nics; i++)
        fprintf(f, "%s{\"name\": \"nic%d\", \"host\": \"%s\", \"gbps\": %.6f, \"instant\": %s}",
                i > 0 ? ",\n" : "", i % nics, i < nics ? "a" : "b", nic_mbps * 8 / 1000.0,
                instant ? "true" : "false");
    fputs("]}\n", f);
}

/* The environment passes it on to the other process. */
static void make(void)
{
    const char *tmp = getenv("TMPDIR");
    char path[320];
    snprintf(folder, sizeof folder, "%s/te-micro.XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL)
        bench_die_errno(folder);
    atexit(remove_folder);
    snprintf(path, sizeof path, "%s/fabric.json", folder);
    FILE *f = fopen(path, "we");
    if (f == NULL)
        bench_die_errno(path);
    describe(f);
    fclose(f);
    setenv("SOFTVERBS", path, 1);
    fabric_do("setup", NULL, 0);
}

void fabric_begin(void)
{
    if (nics == 0)
        return;
    if (nics < 1 || nics > NICS_MAX)
        bench_die("1 to %d NICs, please", NICS_MAX);
    open_library();
    setenv("SOFTVERBS_HOST", own_host(), 1);
    if (!be_peer)
        make();
    else
        snprintf(folder, sizeof folder, "%.*s",
                 (int)(strlen(getenv("SOFTVERBS")) - strlen("/fabric.json")), getenv("SOFTVERBS"));
}

void fabric_options(te_options *o)
{
    char path[320];
    if (nics == 0)
        return;
    check(te_option_set(o, "TE_IBVERBS_PATH", library), "TE_IBVERBS_PATH");
    check(te_option_set(o, "TE_HOST_PATH", "0"), "TE_HOST_PATH");
    snprintf(path, sizeof path, "%s/%s/sys", folder, own_host());
    check(te_option_set(o, "TE_SYSFS_PATH", path), "TE_SYSFS_PATH");
    snprintf(path, sizeof path, "%s/%s/dev", folder, own_host());
    check(te_option_set(o, "TE_DEV_PATH", path), "TE_DEV_PATH");
}

const char *fabric_matrix(void)
{
    static char text[64 * NICS_MAX];
    size_t n = 0;
    if (!striped || be_peer)
        return NULL;
    for (int i = 0; i < nics; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%c\"cpu:%d\": [[\"nic%d\"], []]",
                              i > 0 ? ',' : '{', i, i);
    snprintf(text + n, sizeof text - n, "}");
    return text;
}

void fabric_do(const char *command, char *reply, size_t size)
{
    char text[REPLY_MAX];
    int rc =
        control(NULL, command, reply != NULL ? reply : text, reply != NULL ? size : sizeof text);
    if (rc != 0)
        bench_die("softverbs: %s: %s", command, strerror(rc));
}

void fabric_slow(void)
{
    char command[64];
    snprintf(command, sizeof command, "slow a/nic0 %.6f", nic_mbps * 8 / 4000.0);
    fabric_do(command, NULL, 0);
}

static uint64_t field(const char *line, const char *name)
{
    const char *at = strstr(line, name);
    return at != NULL ? strtoull(at + strlen(name), NULL, 10) : 0;
}

struct fabric_count fabric_count(void)
{
    struct fabric_count c = {.least = UINT64_MAX};
    char text[REPLY_MAX], *save = NULL;
    fabric_do("stats", text, sizeof text);
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        uint64_t bytes = field(line, " bytes=");
        if (strncmp(line, "nic=a/", 6) != 0)
            continue;
        c.bytes += bytes;
        c.least = bytes < c.least ? bytes : c.least;
        c.requests += field(line, " wrs=");
        c.doorbells += field(line, " doorbells=");
    }
    return c;
}

void measure_nics(void)
{
    struct fabric_count c = fabric_count();
    double of_each = nic_mbps / 1000.0, sum = of_each * (slow_nic ? nics - 0.75 : nics);
    printf(
        json ? "{\"bench\": \"nics\", \"nics_gb_s\": %.3f, \"wrs\": %" PRIu64
               ", \"doorbells\": %" PRIu64 ", \"wrs_doorbell\": %.2f, \"least_share\": %.3f}\n"
             : "nics: %.2f GB/s at most; %" PRIu64 " work requests, %" PRIu64
               " doorbells, %.1f a doorbell; the NIC with the fewest bytes has %.2f of its share\n",
        sum, c.requests, c.doorbells, (double)c.requests / (double)(c.doorbells ? c.doorbells : 1),
        c.bytes ? (double)c.least * nics / (double)c.bytes : 0.0);
    fflush(stdout);
}
