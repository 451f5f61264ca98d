/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpuipc_keys.h - the keys of a descriptor, read and written without a driver. docs/protocol.md,
 * "Memory of GPUs", tells the same.
 */
#ifndef TEI_GPUIPC_KEYS_H
#define TEI_GPUIPC_KEYS_H

#include "base/here.h"
#include "model/model.h"
#include "plat/plat.h"

#define GPUIPC_VERSION 2 /* of the keys that are written; 1, of 0.1, is read, too */
#define GPUIPC_NONCE   TEI_HERE_NONCE
#define GPUIPC_UUID    TEI_HERE_DEVICE
#define GPUIPC_SLOTS   16384 /* allocations that one engine shares at a time */
#define GPUIPC_NO_SLOT UINT32_MAX

/* One allocation of the owner, by its addresses there. */
struct gpuipc_entry {
    uint64_t base, length;
    uint8_t handle[TEI_GPU_HANDLE];
    uint8_t
        uuid[GPUIPC_UUID]; /* of its device, as a hash, or of version 1 itself; zeros: not said */
    int device;            /* -1: not said; of other makes by the owner's numbers, else by ours */
    uint32_t slot, generation; /* GPUIPC_NO_SLOT: of an engine of another make */
};

/* What one of ours says, or what the buffers of an engine of another make say. */
struct gpuipc_keys {
    bool ours;
    enum tei_gpu_sort sort; /* only if ours, as are all that follow but the entries */
    uint8_t nonce[GPUIPC_NONCE];
    uint64_t fd; /* of its process: the page */
    int version;
    struct tei_here here;       /* version 2: without `net_ns` */
    char boot[64], machine[64]; /* version 1 */
    uint64_t pid;               /* likewise */
    struct gpuipc_entry *v;
    size_t n; /* ascending by base, none overlapping */
};

/* Upper case; `out` has 2 * n + 1 bytes. */
void tei_gpuipc_hex(const uint8_t *bytes, size_t n, char *out);

json_t *tei_gpuipc_entry_json(const struct gpuipc_entry *e); /* NULL: no memory */
/* Without "memory". NULL: no memory. */
json_t *tei_gpuipc_keys_json(const struct gpuipc_keys *k);

/*
 * Reads te.gpu.<name> of a peer's descriptor, or te.<name> of one of 0.1. NULL, or why not, static;
 * then there is nothing to free.
 */
const char *tei_gpuipc_keys_read(const json_t *j, struct gpuipc_keys *out);
/* The same of the "shm_name" of a descriptor's buffers; those that have none are left out. */
const char *tei_gpuipc_keys_of_buffers(const struct tei_segment *s, struct gpuipc_keys *out);
void tei_gpuipc_keys_fini(struct gpuipc_keys *k);

/* Whether the host parts of two segments' names are the same, in any case. */
bool tei_gpuipc_same_host_name(const char *a, const char *b);

#endif
