/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_sysfs.h - a temporary folder with RDMA NICs as the kernel would show them: sysfs/ laid out
 * as /sys, dev/ as /dev. What fails ends the test.
 */
#ifndef TEST_FAKE_SYSFS_H
#define TEST_FAKE_SYSFS_H

#include <limits.h>
#include <stdbool.h>

struct fake_sysfs {
    char root[64], sysfs[80], dev[80];
    int n_nics;
};

/* Members that are NULL are as a working NIC has them. */
struct fake_nic {
    const char *name;
    const char *pci;   /* address; NULL: none, as of a virtual NIC */
    int numa;          /* what numa_node says; only with `pci` */
    const char *state; /* of port 1: "4: ACTIVE" */
    const char *rate;  /* "100 Gb/sec (4X EDR)" */
    const char *layer; /* "InfiniBand" */
    const char *gid;   /* entry 0 */
    bool no_verbs;     /* not in class/infiniband_verbs */
    bool no_node;      /* nothing in dev/ */
};

void fake_sysfs_make(struct fake_sysfs *s);
void fake_sysfs_remove(struct fake_sysfs *s);

/* Writes a file of the folder, with the folders above it: path is "sysfs/...". */
void fake_sysfs_write(const struct fake_sysfs *s, const char *path, const char *text);

/* The device node, infiniband/uverbsN, is one that reads and writes as /dev/null. */
void fake_sysfs_add(struct fake_sysfs *s, const struct fake_nic *nic);

/* A working NIC. */
void fake_sysfs_nic(struct fake_sysfs *s, const char *name, const char *pci, int numa);

/* NUMA node `n`, with its line of distances unless that is NULL. */
void fake_sysfs_node(const struct fake_sysfs *s, int n, const char *distances);

#endif
