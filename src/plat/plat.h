/* SPDX-License-Identifier: Apache-2.0 */
/* plat.h - the host: where memory lies, memory on a node, and what the machine looks like. */
#ifndef TEI_PLAT_H
#define TEI_PLAT_H

#include "base/base.h"
#include "model/model.h"

#define TEI_LOCATION_MAX 32

/*
 * Checks a location given by a user ("cpu:0", "cuda:1", "*") and, for "*" or NULL, looks where the
 * first page of `addr` lies: "cpu:N", or "*" if it is not in memory yet or the kernel will not say.
 * TE_ERR_INVALID for anything else.
 */
int tei_mem_locate(const void *addr, const char *wanted, char out[TEI_LOCATION_MAX]);

/*
 * Page-aligned zeroed memory, on the node of "cpu:N" where the kernel allows, anywhere for "*" or
 * NULL. From 64 KiB on it is a sealed memfd where the system gives one, so that tei_share_hold()
 * finds it; a forked child does not have it.
 */
int tei_mem_alloc(size_t length, const char *location, void **out);
void tei_mem_free(void *addr, size_t length);

/* Memory of tei_mem_alloc() that other processes can map. */
struct tei_share {
    uint64_t id; /* never used twice in a process */
    int fd;      /* a memfd of `size` bytes, sealed against shrinking and growing */
    size_t size;
};
/*
 * The one that holds all of [addr, addr + length), and how far inside in *offset; NULL if none
 * does. The descriptor stays open until tei_share_put(), even if the memory is freed meanwhile.
 */
struct tei_share *tei_share_hold(uintptr_t addr, size_t length, size_t *offset);
struct tei_share *tei_share_get(struct tei_share *s); /* one more reference; returns s */
void tei_share_put(struct tei_share *s);              /* NULL is accepted */

/* ------------------------------------------------------------------------------------ discovery */

/* Where discovery looks, and which NICs may be used. Text is borrowed for the call. */
struct tei_look {
    const char *sysfs, *dev; /* "/sys" and "/dev", or folders laid out alike */
    /*
     * A machine as hwloc writes it to XML, instead of this one; NULL: this machine if `sysfs` is
     * "/sys", else `sysfs`/hwloc.xml if there is such a file, else only the NUMA nodes of `sysfs`.
     */
    const char *xml;
    const char *devices; /* "a,b": no other NICs; NULL or "": all */
    const char *filters; /* the same from MC_TE_FILTERS */
    int port;            /* of the NIC, from 1 */
    int gid_index;       /* entry of the port's GID table; -1: the first that is not empty */
};

/* What the options say, with `devices` (may be NULL). Borrows from both. */
struct tei_conf;
struct tei_look tei_look_from(const struct tei_conf *c, const char *devices);

/* One RDMA NIC. Text is "" and numbers are -1 where the system does not say. */
struct tei_nic {
    char name[64];     /* "mlx5_0" */
    char pci[16];      /* "0000:81:00.0" */
    int numa;          /* the nearest NUMA node, the first of several */
    int port;          /* that was looked at */
    char state[16];    /* of the port: "ACTIVE" */
    double speed_gbps; /* of the port; 0: not said */
    char link_layer[16];
    char gid[40]; /* as text, 8 groups of hexadecimal digits */
    int gid_index;
    bool usable;
    char why[256]; /* why it is not usable, in a sentence */
};

struct tei_nics {
    struct tei_nic *v; /* by name, mlx5_2 before mlx5_10 */
    size_t n;
};

/*
 * Lists the NICs, without hwloc: `numa` is what sysfs says. Cheap enough for a transport's probe().
 * No NIC is no error.
 */
int tei_nics_list(const struct tei_look *look, struct tei_nics *out);
void tei_nics_fini(struct tei_nics *nics);

/*
 * Lists the NICs, and makes the priority matrix of those that are usable:
 *   cpu:N   for every NUMA node. Preferred: the NICs of the node; if it has none, the nearest ones
 *           where the distances between nodes are known, else none.
 *   cuda:N, hip:N  for NVIDIA's and AMD's GPUs in the order of their PCI addresses. Preferred: the
 *           NICs that share most of the way to the GPU: a PCI switch before a root complex, before
 *           a NUMA node, before the nearest of the other nodes.
 * The others are available; so are, everywhere, NICs of which nobody knows where they are. Reads
 * the machine by hwloc, which takes some milliseconds. Either result may be NULL.
 */
int tei_discover(const struct tei_look *look, struct tei_nics *nics, struct tei_topology *out);

/*
 * The numbers of the NUMA nodes, ascending, malloc'ed; a kernel that shows none has node 0.
 * TE_ERR_MEMORY.
 */
int tei_numa_nodes(const char *sysfs, int **out, size_t *n);

#endif
