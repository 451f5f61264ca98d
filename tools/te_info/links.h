/* SPDX-License-Identifier: Apache-2.0 */
/* links.h - what te_info tells of network interfaces, read from the system, and of RDMA devices. */
#ifndef TE_INFO_LINKS_H
#define TE_INFO_LINKS_H

#include <jansson.h>

/*
 * [{"name","up","running","speed_mbps","mtu","numa","addresses":[...]}, ...], in the system's
 * order. speed_mbps, mtu and numa are null where the system does not say. `sysfs` is "/sys" or a
 * folder that looks like it. A new reference; NULL, with errno, when the interfaces cannot be read.
 */
json_t *links_interfaces(const char *sysfs);

/* That as text, on standard output; and the "local_nics" of te_links(). */
void links_print_interfaces(const json_t *interfaces);
void links_print_nics(const json_t *nics);

#endif
