/* SPDX-License-Identifier: Apache-2.0 */
/*
 * discover_nic.c - RDMA NICs, as sysfs and the device folder show them.
 *
 * A NIC is an entry of <sysfs>/class/infiniband. It is usable when no option leaves it out, its
 * port is up and has an address, and this process may open its device node; else the first of these
 * that fails is told in words, since "no NIC" is what users most often ask about.
 */
#include "plat/discover.h"

#include "base/err.h"
#include "conf/conf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_LEN    256
#define GIDS_MAX    256 /* entries of a port's GID table that are looked at */
#define PORT_ACTIVE '4' /* how the kernel begins the state of a port that is up */

struct tei_look tei_look_from(const struct tei_conf *c, const char *devices)
{
    return (struct tei_look){.sysfs = c->sysfs_path,
                             .dev = c->dev_path,
                             .devices = devices,
                             .filters = c->filters,
                             .without = c->filters_exclude,
                             .port = c->ib_port,
                             .gid_index = c->gid_index};
}

/* ----------------------------------------------------------------------------------------- sysfs */

/* The first line of a file, without its newline; false, and "", if there is none. */
static bool read_line(char line[LINE_LEN], const char *fmt, ...) TEI_PRINTF(2, 3);
static bool read_line(char line[LINE_LEN], const char *fmt, ...)
{
    char path[PATH_MAX];
    va_list args;
    FILE *f;

    va_start(args, fmt);
    vsnprintf(path, sizeof(path), fmt, args);
    va_end(args);
    line[0] = '\0';
    f = fopen(path, "re");
    if (!f)
        return false;
    if (!fgets(line, LINE_LEN, f))
        line[0] = '\0';
    fclose(f);
    line[strcspn(line, "\n")] = '\0';
    return line[0] != '\0';
}

static int is_visible(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

/* Names in a folder in natural order; how many, 0 if it is not there. */
static size_t list(struct dirent ***names, const char *root, const char *folder)
{
    char path[PATH_MAX];
    int n;

    snprintf(path, sizeof(path), "%s/%s", root, folder);
    n = scandir(path, names, is_visible, versionsort);
    if (n < 0)
        *names = NULL;
    return n < 0 ? 0 : (size_t)n;
}

static void free_list(struct dirent **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

/* Copies what fits; what does not is no name of a device. */
static void copy(char *to, size_t n, const char *from)
{
    size_t len = strnlen(from, n - 1);

    memcpy(to, from, len);
    to[len] = '\0';
}

/* -------------------------------------------------------------------------------------- the card */

/* The PCI address is the name of the folder that <nic>/device leads to; a virtual NIC has none. */
static void read_pci(const char *sysfs, struct tei_nic *nic)
{
    char path[PATH_MAX], real[PATH_MAX], rest;
    unsigned domain, bus, slot, function;
    const char *name;

    snprintf(path, sizeof(path), "%s/class/infiniband/%s/device", sysfs, nic->name);
    if (!realpath(path, real))
        return;
    name = strrchr(real, '/') + 1;
    if (sscanf(name, "%x:%x:%x.%x%c", &domain, &bus, &slot, &function, &rest) == 4)
        copy(nic->pci, sizeof(nic->pci), name);
}

static void read_numa(const char *sysfs, struct tei_nic *nic)
{
    char line[LINE_LEN], *end;
    long node;

    nic->numa = -1;
    if (!read_line(line, "%s/class/infiniband/%s/device/numa_node", sysfs, nic->name))
        return;
    node = strtol(line, &end, 10);
    if (end != line && node >= 0 && node <= INT_MAX)
        nic->numa = (int)node;
}

/* -------------------------------------------------------------------------------------- the port */

static bool is_null_gid(const char *gid)
{
    return strspn(gid, "0:") == strlen(gid);
}

/* The wanted entry of the port's GID table, or the first that is not empty. */
static void read_gid(const char *sysfs, int wanted, struct tei_nic *nic)
{
    int first = wanted < 0 ? 0 : wanted, last = wanted < 0 ? GIDS_MAX - 1 : wanted;
    char line[LINE_LEN];

    for (int i = first; i <= last; i++) {
        if (read_line(line, "%s/class/infiniband/%s/ports/%d/gids/%d", sysfs, nic->name, nic->port,
                      i) &&
            !is_null_gid(line)) {
            copy(nic->gid, sizeof(nic->gid), line);
            nic->gid_index = i;
            return;
        }
    }
}

static bool read_port(const char *sysfs, struct tei_nic *nic)
{
    char line[LINE_LEN];
    bool active;

    read_line(line, "%s/class/infiniband/%s/ports/%d/state", sysfs, nic->name, nic->port);
    active = line[0] == PORT_ACTIVE;
    copy(nic->state, sizeof(nic->state), line + (line[0] && line[1] == ':' ? 3 : 0));
    if (read_line(line, "%s/class/infiniband/%s/ports/%d/rate", sysfs, nic->name, nic->port))
        nic->speed_gbps = strtod(line, NULL);
    if (read_line(line, "%s/class/infiniband/%s/ports/%d/link_layer", sysfs, nic->name, nic->port))
        copy(nic->link_layer, sizeof(nic->link_layer), line);
    if (read_line(line, "%s/class/infiniband/%s/ports/%d/lid", sysfs, nic->name, nic->port))
        nic->lid = (int)(strtoul(line, NULL, 16) & 0xffff);
    return active;
}

/* Why a port that is not up is of no use, and which other one is up. */
static void tell_port(const char *sysfs, struct tei_nic *nic)
{
    char line[LINE_LEN];

    if (!nic->state[0])
        snprintf(nic->why, sizeof(nic->why), "it has no port %d", nic->port);
    else
        snprintf(nic->why, sizeof(nic->why), "port %d is %s", nic->port, nic->state);
    for (int other = 1; other <= 2; other++) {
        size_t used = strlen(nic->why);

        read_line(line, "%s/class/infiniband/%s/ports/%d/state", sysfs, nic->name, other);
        if (other != nic->port && line[0] == PORT_ACTIVE)
            snprintf(nic->why + used, sizeof(nic->why) - used,
                     ", port %d is up: MC_IB_PORT chooses", other);
    }
}

static bool check_port(const struct tei_look *look, struct tei_nic *nic, bool active)
{
    if (!active) {
        tell_port(look->sysfs, nic);
        return false;
    }
    /* InfiniBand can do with a LID; Ethernet has nothing else to be found by. */
    if (nic->gid[0] || strcmp(nic->link_layer, "Ethernet") != 0)
        return true;
    if (look->gid_index >= 0)
        snprintf(nic->why, sizeof(nic->why), "port %d has no GID at index %d (MC_GID_INDEX)",
                 nic->port, look->gid_index);
    else
        snprintf(nic->why, sizeof(nic->why),
                 "port %d has no GID: its network interface is down, or has no address in this "
                 "network namespace",
                 nic->port);
    return false;
}

/* ----------------------------------------------------------------------------------- device node */

/* The name under <dev>/infiniband that belongs to a NIC; false if there is none. */
static bool find_node(const char *sysfs, const char *nic, char *node, size_t n)
{
    struct dirent **names;
    size_t count = list(&names, sysfs, "class/infiniband_verbs");
    bool found = false;

    for (size_t i = 0; !found && i < count; i++) {
        char line[LINE_LEN];

        found = read_line(line, "%s/class/infiniband_verbs/%s/ibdev", sysfs, names[i]->d_name) &&
                strcmp(line, nic) == 0;
        if (found)
            copy(node, n, names[i]->d_name);
    }
    free_list(names, count);
    return found;
}

static bool check_node(const struct tei_look *look, struct tei_nic *nic)
{
    char node[NAME_MAX + 1], path[PATH_MAX];
    struct stat st;

    if (!find_node(look->sysfs, nic->name, node, sizeof(node))) {
        snprintf(nic->why, sizeof(nic->why),
                 "%.100s/class/infiniband_verbs has no device of it: is the module ib_uverbs "
                 "loaded?",
                 look->sysfs);
        return false;
    }
    snprintf(path, sizeof(path), "%s/infiniband/%s", look->dev, node);
    if (stat(path, &st) != 0)
        snprintf(nic->why, sizeof(nic->why), "%.100s: %s; a container must be given the device",
                 path, tei_errno_text(errno));
    else if (!S_ISCHR(st.st_mode))
        snprintf(nic->why, sizeof(nic->why), "%.100s is no character device", path);
    else if (faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) != 0)
        snprintf(nic->why, sizeof(nic->why), "%.100s: %s", path, tei_errno_text(errno));
    else
        return true;
    return false;
}

/* --------------------------------------------------------------------------------------- options */

/* Whether "a, b" has the name. */
static bool is_in(const char *names, const char *name)
{
    size_t len = strlen(name);

    for (const char *at = names; at && *at; at += strcspn(at, ",")) {
        size_t n;

        at += strspn(at, ", \t");
        n = strcspn(at, ", \t");
        if (n == len && strncmp(at, name, n) == 0)
            return true;
    }
    return false;
}

/* An empty list allows all. */
static bool allows(const char *names, const char *name)
{
    return !names || strspn(names, ", \t") == strlen(names) || is_in(names, name);
}

static bool check_options(const struct tei_look *look, struct tei_nic *nic)
{
    if (!allows(look->devices, nic->name))
        snprintf(nic->why, sizeof(nic->why), "it is not one of the devices asked for (%.128s)",
                 look->devices);
    else if (!allows(look->filters, nic->name))
        snprintf(nic->why, sizeof(nic->why), "MC_TE_FILTERS (%.128s) leaves it out", look->filters);
    else if (is_in(look->without, nic->name))
        snprintf(nic->why, sizeof(nic->why), "MC_TE_FILTERS_EXCLUDE (%.128s) leaves it out",
                 look->without);
    else
        return true;
    return false;
}

static void read_nic(const struct tei_look *look, const char *name, struct tei_nic *nic)
{
    bool active;

    *nic = (struct tei_nic){.port = look->port, .gid_index = -1};
    copy(nic->name, sizeof(nic->name), name);
    read_pci(look->sysfs, nic);
    read_numa(look->sysfs, nic);
    active = read_port(look->sysfs, nic);
    read_gid(look->sysfs, look->gid_index, nic);
    nic->usable =
        check_options(look, nic) && check_port(look, nic, active) && check_node(look, nic);
}

int tei_nics_list(const struct tei_look *look, struct tei_nics *out)
{
    struct dirent **names;
    size_t n = list(&names, look->sysfs, "class/infiniband");
    struct tei_nic *v = calloc(n + 1, sizeof(*v));

    if (!v) {
        free_list(names, n);
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to list %zu NICs", n);
    }
    for (size_t i = 0; i < n; i++)
        read_nic(look, names[i]->d_name, &v[i]);
    free_list(names, n);
    *out = (struct tei_nics){.v = v, .n = n};
    return 0;
}

void tei_nics_fini(struct tei_nics *nics)
{
    free(nics->v);
    *nics = (struct tei_nics){0};
}
