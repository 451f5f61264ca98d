/* SPDX-License-Identifier: Apache-2.0 */
/* ofi_keys.c - the keys of a descriptor. Whatever they hold is somebody's word. */
#include "transport/ofi/ofi_keys.h"

#include "base/hex.h"
#include "te.h"

#include <inttypes.h>
#include <rdma/fabric.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define VERSION    1
#define LENGTH_MAX (UINT64_C(1) << 46)
#define ADDR_MAX   INT64_MAX /* a JSON number */

static const char malformed[] = "its keys of ofi are malformed";

/* --------------------------------------------------------------------------------------- writing */

static json_t *number_json(uint64_t n)
{
    char text[17];

    snprintf(text, sizeof text, "%016" PRIx64, n);
    return json_string(text);
}

static json_t *nic_json(const struct ofi_nic_keys *n)
{
    char addr[2 * OFI_ADDR + 1];
    json_t *page = json_array(), *j;

    tei_hex_write(n->addr, n->addr_len, addr);
    tei_json_append(&page, number_json(n->page_key));
    tei_json_append(&page, json_integer((json_int_t)n->page_addr));
    j = json_pack("{ss ss sb}", "name", n->name, "addr", addr, "virtual", (int)n->is_virtual);
    tei_json_set(&j, "page", page);
    return j;
}

static json_t *region_json(const struct ofi_region_keys *r, size_t n_nics)
{
    json_t *j = json_pack("[I, I, i, i]", (json_int_t)r->addr, (json_int_t)r->length,
                          (int)r->access, (int)r->slot);

    tei_json_append(&j, number_json(r->generation));
    for (size_t i = 0; i < n_nics; i++)
        tei_json_append(&j, number_json(r->key[i]));
    return j;
}

json_t *tei_ofi_keys_json(const struct ofi_keys *k)
{
    json_t *nics = json_array(), *regions = json_array();
    json_t *j = json_pack("{si ss s[II] sI}", "v", VERSION, "provider", k->provider, "protocol",
                          (json_int_t)k->protocol, (json_int_t)k->protocol_version, "format",
                          (json_int_t)k->format);

    for (size_t i = 0; i < k->n_nics; i++)
        tei_json_append(&nics, nic_json(&k->nics[i]));
    for (size_t i = 0; i < k->n; i++)
        tei_json_append(&regions, region_json(&k->v[i], k->n_nics));
    tei_json_set(&j, "nics", nics);
    tei_json_set(&j, "regions", regions);
    return j;
}

/* --------------------------------------------------------------------------------------- reading */

static bool read_number(const json_t *j, uint64_t max, uint64_t *out)
{
    if (!json_is_integer(j) || json_integer_value(j) < 0 || (uint64_t)json_integer_value(j) > max)
        return false;
    *out = (uint64_t)json_integer_value(j);
    return true;
}

static bool read_number32(const json_t *j, uint32_t *out)
{
    uint64_t n;

    if (!read_number(j, UINT32_MAX, &n))
        return false;
    *out = (uint32_t)n;
    return true;
}

static bool read_addr(const json_t *j, struct ofi_nic_keys *n)
{
    size_t digits = json_string_length(j); /* 0: no string */

    n->addr_len = digits / 2;
    return digits > 0 && digits % 2 == 0 && n->addr_len <= OFI_ADDR &&
           tei_hex_read(json_string_value(j), n->addr, n->addr_len);
}

static bool read_nic(const json_t *j, struct ofi_nic_keys *n)
{
    const json_t *page = json_object_get(j, "page"), *is_virtual = json_object_get(j, "virtual");

    n->is_virtual = json_is_true(is_virtual);
    return tei_json_word(json_object_get(j, "name"), n->name, sizeof n->name) &&
           json_is_boolean(is_virtual) && read_addr(json_object_get(j, "addr"), n) &&
           tei_hex_number(json_string_value(json_array_get(page, 0)), &n->page_key) &&
           read_number(json_array_get(page, 1), ADDR_MAX - 8 * OFI_SLOTS, &n->page_addr);
}

static bool read_nics(const json_t *list, struct ofi_keys *k)
{
    size_t n = json_array_size(list);

    if (n == 0 || n > OFI_NICS)
        return false;
    for (; k->n_nics < n; k->n_nics++)
        if (!read_nic(json_array_get(list, k->n_nics), &k->nics[k->n_nics]))
            return false;
    return true;
}

static bool read_region(const json_t *j, size_t n_nics, struct ofi_region_keys *r)
{
    uint64_t access, slot;

    if (json_array_size(j) != 5 + n_nics ||
        !read_number(json_array_get(j, 0), ADDR_MAX, &r->addr) ||
        !read_number(json_array_get(j, 1), LENGTH_MAX, &r->length) || !r->addr || !r->length ||
        !read_number(json_array_get(j, 2), TE_REMOTE_RW, &access) ||
        !read_number(json_array_get(j, 3), OFI_SLOTS - 1, &slot) ||
        !tei_hex_number(json_string_value(json_array_get(j, 4)), &r->generation))
        return false;
    r->access = (unsigned)access;
    r->slot = (uint32_t)slot;
    for (size_t i = 0; i < n_nics; i++)
        if (!tei_hex_number(json_string_value(json_array_get(j, 5 + i)), &r->key[i]))
            return false;
    return true;
}

static int by_addr(const void *a, const void *b)
{
    const struct ofi_region_keys *x = a, *y = b;

    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Sorts; false if two overlap. */
static bool put_in_order(struct ofi_keys *k)
{
    if (k->n)
        qsort(k->v, k->n, sizeof k->v[0], by_addr);
    for (size_t i = 1; i < k->n; i++)
        if (k->v[i].addr - k->v[i - 1].addr < k->v[i - 1].length)
            return false;
    return true;
}

static const char *read_regions(const json_t *list, struct ofi_keys *k)
{
    size_t n = json_array_size(list);

    if (!json_is_array(list) || n > OFI_SLOTS)
        return malformed;
    k->v = n ? calloc(n, sizeof k->v[0]) : NULL;
    if (n && !k->v)
        return "no memory for its keys of ofi";
    for (; k->n < n; k->n++)
        if (!read_region(json_array_get(list, k->n), k->n_nics, &k->v[k->n]))
            return malformed;
    return put_in_order(k) ? NULL : malformed;
}

static bool read_head(const json_t *j, struct ofi_keys *k)
{
    const json_t *protocol = json_object_get(j, "protocol");

    return tei_json_word(json_object_get(j, "provider"), k->provider, sizeof k->provider) &&
           read_number32(json_array_get(protocol, 0), &k->protocol) &&
           read_number32(json_array_get(protocol, 1), &k->protocol_version) &&
           read_number32(json_object_get(j, "format"), &k->format) &&
           read_nics(json_object_get(j, "nics"), k);
}

const char *tei_ofi_keys_read(const json_t *j, struct ofi_keys *k)
{
    const char *why;

    memset(k, 0, sizeof *k);
    if (!json_is_object(j))
        return "it has no keys of ofi";
    if (json_integer_value(json_object_get(j, "v")) != VERSION)
        return "it speaks another version of ofi";
    why = read_head(j, k) ? read_regions(json_object_get(j, "regions"), k) : malformed;
    if (why)
        tei_ofi_keys_fini(k);
    return why;
}

void tei_ofi_keys_fini(struct ofi_keys *k)
{
    free(k->v);
    k->v = NULL;
    k->n = 0;
}

/* Providers read as much as the format says, or the address itself: it must be like their own. */
const char *tei_ofi_addr_check(uint32_t format, const uint8_t *addr, size_t len, const uint8_t *own,
                               size_t own_len)
{
    bool is_socket = format == FI_SOCKADDR || format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6;

    if (len != own_len)
        return "its address has another length than this engine's";
    if (is_socket && (len < sizeof(sa_family_t) || memcmp(addr, own, sizeof(sa_family_t)) != 0))
        return "its address is of another family than this engine's";
    return NULL;
}

/* --------------------------------------------------------------------------------------- looking up */

const struct ofi_region_keys *tei_ofi_keys_find(const struct ofi_keys *k, uint64_t addr,
                                                uint64_t length)
{
    size_t low = 0, high = k->n;
    const struct ofi_region_keys *r;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (k->v[middle].addr <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    r = &k->v[low - 1];
    return length <= r->length && addr - r->addr <= r->length - length ? r : NULL;
}

bool tei_ofi_keys_cover(const struct ofi_keys *k, uint64_t addr, uint64_t length, unsigned access)
{
    while (length) {
        const struct ofi_region_keys *r = tei_ofi_keys_find(k, addr, 1);
        uint64_t part;

        if (!r || (r->access & access) != access)
            return false;
        part = tei_min(length, r->length - (addr - r->addr));
        addr += part;
        length -= part;
    }
    return true;
}
