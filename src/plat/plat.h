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

/* The machine's NUMA nodes as "cpu:N" rows. */
int tei_discover(struct tei_topology *out);

#endif
