/* SPDX-License-Identifier: Apache-2.0 */
/*
 * discover.h - how the parts of discovery see the machine. Private to src/plat.
 *
 *   discover.c          the order of things, and the matrix
 *   discover_nic.c      RDMA NICs, out of sysfs and the device folder
 *   discover_machine.c  NUMA nodes, GPUs, who is near whom, out of hwloc
 */
#ifndef TEI_PLAT_DISCOVER_H
#define TEI_PLAT_DISCOVER_H

#include "plat/plat.h"

#include <hwloc.h>

/* Where a device hangs. */
struct tei_place {
    hwloc_bitmap_t nodes; /* the NUMA nodes that it is near; empty: unknown */
    hwloc_obj_t object;   /* its PCI device, or what stands for it; NULL: not in the tree */
};

struct tei_gpu {
    char location[32]; /* "cuda:0" */
    struct tei_place place;
};

/* All zero is a machine that tei_machine_close() accepts. */
struct tei_machine {
    hwloc_topology_t tree; /* NULL: only NUMA nodes are known */
    int *nodes;            /* ascending */
    size_t n_nodes;
    uint64_t *distance; /* from node i to node j at i * n_nodes + j; NULL: unknown */
    struct tei_gpu *gpus;
    size_t n_gpus;
};

int tei_machine_open(const struct tei_look *look, struct tei_machine *out);
void tei_machine_close(struct tei_machine *m);

/* Finds a NIC by its name or its PCI address, else goes by the NUMA node that sysfs named. */
int tei_machine_place(const struct tei_machine *m, const struct tei_nic *nic,
                      struct tei_place *out);
void tei_place_fini(struct tei_place *p);

#define TEI_FAR UINT64_MAX /* a distance that nobody knows */

/* The shortest distance from a node (its index in m->nodes) to a place. */
uint64_t tei_machine_distance(const struct tei_machine *m, size_t node, const struct tei_place *to);

/* How near a NIC is to a GPU. */
struct tei_nearness {
    unsigned shared;   /* steps from the root of the tree to where the ways part: more is nearer */
    uint64_t distance; /* between their NUMA nodes, where that is all that tells them apart */
};
/* False when nobody knows. */
bool tei_machine_nearness(const struct tei_machine *m, const struct tei_gpu *gpu,
                          const struct tei_place *nic, struct tei_nearness *out);

#endif
