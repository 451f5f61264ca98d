/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_sysfs.h"

#include <assert.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void fake_sysfs_make(struct fake_sysfs *s)
{
    const char *tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";

    *s = (struct fake_sysfs){0};
    snprintf(s->root, sizeof(s->root), "%s/te-sysfs-XXXXXX", tmp);
    assert(mkdtemp(s->root));
    snprintf(s->sysfs, sizeof(s->sysfs), "%s/sysfs", s->root);
    snprintf(s->dev, sizeof(s->dev), "%s/dev", s->root);
    assert(mkdir(s->sysfs, 0755) == 0 && mkdir(s->dev, 0755) == 0);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

void fake_sysfs_remove(struct fake_sysfs *s)
{
    assert(nftw(s->root, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0);
}

/* The full path, with the folders above it made. */
static void make_way(const struct fake_sysfs *s, const char *path, char full[PATH_MAX])
{
    snprintf(full, PATH_MAX, "%s/%s", s->root, path);
    for (char *at = full + strlen(s->root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(full, 0755);
        *at = '/';
    }
}

void fake_sysfs_write(const struct fake_sysfs *s, const char *path, const char *text)
{
    char full[PATH_MAX];
    FILE *f;

    make_way(s, path, full);
    f = fopen(full, "we");
    assert(f);
    fprintf(f, "%s\n", text);
    assert(fclose(f) == 0);
}

static void make_link(const struct fake_sysfs *s, const char *path, const char *to)
{
    char full[PATH_MAX];

    make_way(s, path, full);
    assert(symlink(to, full) == 0);
}

/* One attribute of class/infiniband/<nic>; nothing for "". */
static void write_attribute(const struct fake_sysfs *s, const struct fake_nic *nic,
                            const char *name, const char *text, const char *usual)
{
    char path[256];

    if (text && !text[0])
        return;
    snprintf(path, sizeof(path), "sysfs/class/infiniband/%s/%s", nic->name, name);
    fake_sysfs_write(s, path, text ? text : usual);
}

static void add_card(const struct fake_sysfs *s, const struct fake_nic *nic)
{
    char path[256], to[256], text[16];

    snprintf(path, sizeof(path), "sysfs/devices/pci0000:00/%s/numa_node", nic->pci);
    snprintf(text, sizeof(text), "%d", nic->numa);
    fake_sysfs_write(s, path, text);
    snprintf(path, sizeof(path), "sysfs/class/infiniband/%s/device", nic->name);
    snprintf(to, sizeof(to), "../../../devices/pci0000:00/%s", nic->pci);
    make_link(s, path, to);
}

void fake_sysfs_add(struct fake_sysfs *s, const struct fake_nic *nic)
{
    char path[128], gid[40];
    int n = s->n_nics++;

    snprintf(gid, sizeof(gid), "fe80:0000:0000:0000:0000:0000:0000:%04x", (unsigned)n + 1);
    write_attribute(s, nic, "ports/1/state", nic->state, "4: ACTIVE");
    write_attribute(s, nic, "ports/1/rate", nic->rate, "100 Gb/sec (4X EDR)");
    write_attribute(s, nic, "ports/1/link_layer", nic->layer, "InfiniBand");
    write_attribute(s, nic, "ports/1/gids/0", nic->gid, gid);
    if (nic->pci)
        add_card(s, nic);
    snprintf(path, sizeof(path), "sysfs/class/infiniband_verbs/uverbs%d/ibdev", n);
    if (!nic->no_verbs)
        fake_sysfs_write(s, path, nic->name);
    snprintf(path, sizeof(path), "dev/infiniband/uverbs%d", n);
    if (!nic->no_node)
        make_link(s, path, "/dev/null");
}

void fake_sysfs_nic(struct fake_sysfs *s, const char *name, const char *pci, int numa)
{
    fake_sysfs_add(s, &(struct fake_nic){.name = name, .pci = pci, .numa = numa});
}

void fake_sysfs_node(const struct fake_sysfs *s, int n, const char *distances)
{
    char path[128];

    snprintf(path, sizeof(path), "sysfs/devices/system/node/node%d/%s", n,
             distances ? "distance" : "cpulist");
    fake_sysfs_write(s, path, distances ? distances : "");
}
