/* SPDX-License-Identifier: Apache-2.0 */
/* nvme.h - the NVMe subsystems that this host is connected to, as sysfs shows them. */
#ifndef TE_SEGMENT_NVME_H
#define TE_SEGMENT_NVME_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define NVME_NAME_MAX 64
#define NVME_WWID_MAX 256

/* Whether this host has a controller of that subsystem. */
bool nvme_is_connected(const char *sysfs, const char *nqn);

struct nvme_device {
    char name[NVME_NAME_MAX]; /* "nvme1n1" */
    char wwid[NVME_WWID_MAX]; /* what the namespace is known by everywhere; "" if it does not say */
};

/*
 * The block device of a namespace: that of the subsystem, behind which the kernel chooses among
 * paths, or that of a controller where it does not. False if there is none (yet).
 */
bool nvme_find(const char *sysfs, const char *nqn, uint32_t nsid, struct nvme_device *out);

#endif
