/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ofi_keys.h - what an engine tells of itself under "te"."ofi" of its descriptor, so that others read and
 * write its memory: the provider, a NIC's address each, and a key for each region and NIC.
 *
 *     {"v": 1, "provider": "tcp;ofi_rxm", "protocol": [P, V], "format": F,
 *      "nics": [{"name": "lo", "addr": "<hex>", "virtual": false, "page": ["<key>", ADDR]}, ...],
 *      "regions": [[ADDR, LENGTH, ACCESS, SLOT, "<generation>", "<key>", ...], ...]}
 *
 * Keys and generations are 16 hexadecimal digits; a region has a key for each NIC. "page" is memory that
 * peers may read: of each region the word at its slot is its generation for as long as its keys are good.
 */
#ifndef TEI_OFI_KEYS_H
#define TEI_OFI_KEYS_H

#include "model/model.h"

enum { OFI_NICS = 8, OFI_ADDR = 256, OFI_NAME = 64, OFI_SLOTS = 1024, OFI_NO_SLOT = OFI_SLOTS };

struct ofi_nic_keys {
    char name[OFI_NAME];
    uint8_t addr[OFI_ADDR];
    size_t addr_len;
    bool
        is_virtual; /* memory is named by its addresses there; else by offsets from its region's begin */
    uint64_t page_key, page_addr;
};

struct ofi_region_keys {
    uint64_t addr, length;
    unsigned access; /* te_access */
    uint32_t slot;
    uint64_t generation;
    uint64_t key[OFI_NICS];
};

struct ofi_keys {
    char provider[OFI_NAME];
    uint32_t protocol, protocol_version, format;
    size_t n_nics;
    struct ofi_nic_keys nics[OFI_NICS];
    size_t n;
    struct ofi_region_keys *v; /* ascending by address, none overlapping */
};

/* NULL when memory is out. */
json_t *tei_ofi_keys_json(const struct ofi_keys *k);
/* What a stranger wrote. NULL, or static text: why it is of no use; then nothing is to be freed. */
const char *tei_ofi_keys_read(const json_t *j, struct ofi_keys *k);
void tei_ofi_keys_fini(struct ofi_keys *k);
/* Why an address of a peer cannot be given to a provider whose own is `own`; NULL: it can. */
const char *tei_ofi_addr_check(uint32_t format, const uint8_t *addr, size_t len, const uint8_t *own,
                               size_t own_len);
/* The region that holds all of the range; NULL: none does. */
const struct ofi_region_keys *tei_ofi_keys_find(const struct ofi_keys *k, uint64_t addr,
                                                uint64_t length);
/* Whether regions side by side hold the range and allow the access. */
bool tei_ofi_keys_cover(const struct ofi_keys *k, uint64_t addr, uint64_t length, unsigned access);

#endif
