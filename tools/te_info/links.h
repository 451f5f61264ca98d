/* SPDX-License-Identifier: Apache-2.0 */
/* links.h - what te_info tells of network interfaces and RDMA devices, read from the system. */
#ifndef TE_INFO_LINKS_H
#define TE_INFO_LINKS_H

#include <jansson.h>

/*
 * [{"name","up","running","speed_mbps","mtu","numa","addresses":[...]}, ...], in the system's
 * order. speed_mbps, mtu and numa are null where the system does not say. `sysfs` is "/sys" or a
 * folder that looks like it. A new reference; NULL, with errno, when the interfaces cannot be read.
 */
json_t *links_interfaces(const char *sysfs);

/* [{"name","numa","ports":[{"port","state","rate","link_layer"}]}, ...], sorted by name. */
json_t *links_rdma(const char *sysfs);

/* Both as text, on standard output. */
void links_print(const json_t *interfaces, const json_t *rdma);

#endif
