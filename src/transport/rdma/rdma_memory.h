/* SPDX-License-Identifier: Apache-2.0 */
/* rdma_memory.h - registered memory and its keys, by NIC. */
#ifndef TEI_RDMA_MEMORY_H
#define TEI_RDMA_MEMORY_H

#include "transport/rdma/rdma.h"

/* The keys of a memory region; 0 where the NIC has none. `mr` is under rdma.memory_lock. */
struct rdma_keys {
    struct ibv_mr *mr;
    _Atomic uint32_t lkey, rkey;
};

/* Registered memory: chunk c of NIC n is at[n * n_chunks + c]. */
struct rdma_memory {
    struct tei_link link;    /* in rdma.memories, under memory_lock */
    struct tei_link lacking; /* in rdma.lacking while `lost` is not 0 */
    const struct tei_region *region;
    bool dmabuf; /* how NICs register it: through dma-bufs, else by its addresses */
    uint64_t chunk;
    size_t n_chunks;
    size_t row; /* of rdma.matrix, n_rows where it has none */
    _Atomic uint32_t
        lost; /* NICs, a bit each, that do not have it: they failed, or did not take it again */
    struct rdma_keys at[];
};

/* ops */
int tei_rdma_region_add(struct tei_transport *t, struct tei_region *r);
int tei_rdma_region_del(struct tei_transport *t, struct tei_region *r);
int tei_rdma_describe_buffer(struct tei_transport *t, const struct tei_region *r, uint64_t addr,
                             json_t *object);

static inline const struct rdma_keys *tei_rdma_keys_at(const struct rdma_memory *m, size_t nic,
                                                       uint64_t addr)
{
    return &m->at[nic * m->n_chunks + (size_t)((addr - m->region->addr) / m->chunk)];
}

/* NICs, a bit each, that do not have the registered memory at `addr`. */
uint32_t tei_rdma_memory_lost(struct rdma *t, uintptr_t addr);
/*
 * All memory at one NIC that was opened anew / is to be closed; memory_lock is held. What it does not
 * take again of a GPU's is lost to it, and no failure: all other memory would be, too.
 */
int tei_rdma_memory_join(struct rdma_nic *n);
void tei_rdma_memory_leave(struct rdma_nic *n);

#endif
