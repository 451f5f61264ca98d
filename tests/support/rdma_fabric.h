/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_fabric.h - a simulated RDMA fabric (tests/fabric/softverbs) of a test's own, in a directory of
 * its own that goes when the fabric does.
 *
 * Two hosts have `n` NICs each, "left0"... and "right0"... All of them can be seen from every process
 * of the test, so which host is which is told by topologies alone. One fabric at a time; main thread
 * only, but for rdma_fabric_tell() and rdma_fabric_count().
 */
#ifndef TEST_RDMA_FABRIC_H
#define TEST_RDMA_FABRIC_H

#include "conf/conf.h"

/*
 * `keys`: what each NIC has beyond its name, JSON without braces, such as "\"gbps\":10"; may be
 * NULL. What was up before goes down.
 */
void rdma_fabric_up(unsigned n, const char *keys);
void rdma_fabric_down(void);

/*
 * In place of it the NICs of this machine that TE_TEST_RDMA_NICS names, "rxe0,rxe1": the first half
 * of them is the left side, and "left0" the first. How many a side has; 0 where the variable is not
 * set. Nothing can be told to them, and of numbers they have only "bytes", all traffic of the NIC.
 */
unsigned rdma_fabric_real(void);

/* {"cpu:0":[[every NIC of the side],[]]}; valid until the fabric goes. Of "right" if `right`. */
const char *rdma_fabric_topology(bool right);

/* Has engines use the fabric. */
void rdma_fabric_configure(struct tei_conf *c);

/* One command of softverbs_ctl; one that is refused ends the process. */
void rdma_fabric_tell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A number from the statistics of a NIC: "bytes", "wrs", "doorbells", "qps", "mrs", "cqs". */
uint64_t rdma_fabric_count(const char *nic, const char *what);

#endif
