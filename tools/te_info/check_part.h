/* SPDX-License-Identifier: Apache-2.0 */
/* check_part.h - what checks are made of. */
#ifndef TE_INFO_CHECK_PART_H
#define TE_INFO_CHECK_PART_H

#include <stdint.h>

#include "te_info/check.h"

/* How it came out; with a remedy a WARN or a FAIL. */
__attribute__((format(printf, 3, 4))) void check_say(struct check *c, enum check_result result,
                                                     const char *value, ...);
__attribute__((format(printf, 2, 3))) void check_advise(struct check *c, const char *remedy, ...);

#define CHECK_SIZE 32
/* "1.5 GiB"; UINT64_MAX is "unlimited". */
const char *check_size(uint64_t bytes, char text[CHECK_SIZE]);

/* One of limits(5) of this process; false if it is not told. */
bool check_limit(const struct check_host *h, const char *name, uint64_t *soft, uint64_t *hard);
/* Whether this process has that capability, a number of linux/capability.h. */
bool check_capable(const struct check_host *h, unsigned capability);

/* Lists of the kernel, "0-3,8": whether the number is in it, how many are. */
bool check_list_has(const char *list, unsigned long number);
size_t check_list_count(const char *list);

void check_engine(const struct check_host *h, struct check *c);
void check_options(const struct check_host *h, struct check *c);
void check_open_files(const struct check_host *h, struct check *c);
void check_locked_memory(const struct check_host *h, struct check *c);
void check_process_vm(const struct check_host *h, struct check *c);
void check_namespaces(const struct check_host *h, struct check *c);
void check_shared_memory(const struct check_host *h, struct check *c);

void check_ports(const struct check_host *h, struct check *c);
void check_congestion(const struct check_host *h, struct check *c);
void check_tcp_buffers(const struct check_host *h, struct check *c);
void check_listen_queue(const struct check_host *h, struct check *c);
void check_interfaces(const struct check_host *h, struct check *c);
void check_rdma(const struct check_host *h, struct check *c);

void check_gpus(const struct check_host *h, struct check *c);
void check_cpus(const struct check_host *h, struct check *c);
void check_memory(const struct check_host *h, struct check *c);
void check_huge_pages(const struct check_host *h, struct check *c);
void check_io_uring(const struct check_host *h, struct check *c);
void check_clock_source(const struct check_host *h, struct check *c);
void check_clock(const struct check_host *h, struct check *c);

#endif
