/* SPDX-License-Identifier: Apache-2.0 */
/* ofi_memory.c - registered memory, and the page that tells peers which keys are good. */
#include "base/err.h"
#include "base/os.h"
#include "transport/ofi/ofi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_TRIES = 8, WORDS = 512 /* of a page of memory */ };

static void close_mr(struct fid_mr **mr)
{
    if (*mr)
        (void)fi_close(&(*mr)->fid);
    *mr = NULL;
}

/* Where we choose keys they are random: nobody guesses one, and none comes again. */
static uint64_t draw_key(const struct ofi_nic *n)
{
    size_t bits = 8 * n->info->domain_attr->mr_key_size;
    uint64_t key = tei_random_u64();

    return bits < 64 ? key & ((UINT64_C(1) << bits) - 1) : key;
}

static int try_mr(struct ofi_nic *n, void *addr, size_t length, uint64_t access, struct fid_mr **mr)
{
    int rc = fi_mr_reg(n->domain, addr, length, access, 0, draw_key(n), 0, mr, NULL);

    if (rc || !n->binds_memory)
        return rc;
    rc = fi_mr_bind(*mr, &n->ep->fid, 0);
    if (!rc)
        rc = fi_mr_enable(*mr);
    if (rc)
        close_mr(mr);
    return rc;
}

/* A key that is in use already is drawn again. */
static int open_mr(struct ofi_nic *n, void *addr, size_t length, uint64_t access,
                   struct fid_mr **mr)
{
    int rc = -FI_ENOKEY;

    for (int i = 0; i < KEY_TRIES && (rc == -FI_ENOKEY || rc == -EEXIST); i++)
        rc = try_mr(n, addr, length, access, mr);
    if (!rc)
        return 0;
    *mr = NULL;
    return TEI_FAIL(rc == -FI_ENOMEM ? TE_ERR_MEMORY : TE_ERR_SYSTEM,
                    "ofi: %s does not register memory of %zu bytes: %s", n->name, length,
                    n->ofi->lib.strerror(-rc));
}

/* ------------------------------------------------------------------------------------ of this side */

static uint64_t *map_words(size_t n)
{
    void *p = NULL;

    if (posix_memalign(&p, 4096, n * sizeof(uint64_t)))
        return NULL;
    memset(p, 0, n * sizeof(uint64_t));
    return p;
}

int tei_ofi_memory_open(struct ofi *t)
{
    int rc = 0;

    t->page = map_words(OFI_SLOTS);
    t->words = map_words(OFI_OPS);
    if (!t->page || !t->words)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the page of ofi");
    for (size_t i = 0; !rc && i < t->n_nics; i++) {
        struct ofi_nic *n = &t->nics[i];

        rc = open_mr(n, t->page, OFI_SLOTS * sizeof(uint64_t), FI_REMOTE_READ, &n->page_mr);
        if (!rc)
            rc = open_mr(n, t->words, OFI_OPS * sizeof(uint64_t), FI_READ, &n->words_mr);
    }
    return rc;
}

void tei_ofi_memory_close(struct ofi *t)
{
    for (size_t i = 0; i < t->n_nics; i++) {
        close_mr(&t->nics[i].page_mr);
        close_mr(&t->nics[i].words_mr);
    }
    free(t->page);
    free(t->words);
}

/* ------------------------------------------------------------------------------------------ regions */

static void close_region(struct ofi *t, struct ofi_region *r)
{
    for (size_t i = 0; i < t->n_nics; i++)
        close_mr(&r->mr[i]);
}

static uint64_t rights(unsigned access)
{
    return FI_READ | FI_WRITE | (access & TE_REMOTE_READ ? FI_REMOTE_READ : 0) |
           (access & TE_REMOTE_WRITE ? FI_REMOTE_WRITE : 0);
}

static int open_region(struct ofi *t, const struct tei_region *from, struct ofi_region *r)
{
    int rc = 0;

    for (size_t i = 0; !rc && i < t->n_nics; i++) {
        struct ofi_nic *n = &t->nics[i];

        if (!from->access && !n->needs_local)
            continue;
        rc = open_mr(n, (void *)from->addr, from->length, rights(from->access), &r->mr[i]);
        if (!rc)
            r->keys.key[i] = fi_mr_key(r->mr[i]);
    }
    if (rc)
        close_region(t, r);
    return rc;
}

/* Peers are told of it, if there is a slot. */
static void give_slot(struct ofi *t, struct ofi_region *r)
{
    uint32_t i = 0;

    while (i < OFI_SLOTS && t->page[i])
        i++;
    r->keys.slot = i;
    if (i == OFI_SLOTS)
        return;
    r->keys.generation = tei_random_u64() | 1; /* 0: no region */
    t->page[i] = r->keys.generation;
}

int tei_ofi_region_add(struct tei_transport *base, struct tei_region *from)
{
    struct ofi *t = tei_ofi_of(base);
    struct ofi_region *r = calloc(1, sizeof *r);
    int rc;

    if (!r)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a region of ofi");
    r->keys = (struct ofi_region_keys){
        .addr = from->addr, .length = from->length, .access = from->access, .slot = OFI_NO_SLOT};
    rc = open_region(t, from, r);
    if (rc) {
        free(r);
        return rc;
    }
    pthread_mutex_lock(&t->lock);
    if (from->access)
        give_slot(t, r);
    tei_list_push_back(&t->regions, &r->link);
    pthread_mutex_unlock(&t->lock);
    from->keys[base->index] = r;
    return 0;
}

/*
 * What a peer has begun to write goes on with some providers, though the key is closed: it ends with the
 * endpoint, and with it all that peers have under way. Whether the address is another one then.
 */
static bool begin_anew(struct ofi *t, struct ofi_nic *n)
{
    uint8_t addr[OFI_ADDR];
    size_t len = n->addr_len;

    if (!n->ep)
        return false;
    memcpy(addr, n->addr, sizeof addr);
    tei_ofi_unserve(n);
    if (t->closed)
        return false;
    if (tei_ofi_serve(n))
        t->trouble = "no endpoint can be opened to serve by: peers do not reach this engine by it";
    return !n->ep || len != n->addr_len || memcmp(addr, n->addr, len) != 0;
}

static bool close_keys(struct ofi *t, struct ofi_region *r)
{
    bool moved = false;

    tei_list_del(&r->link);
    if (r->keys.slot < OFI_SLOTS)
        t->page[r->keys.slot] = 0;
    close_region(t, r);
    for (size_t i = 0; r->keys.access && i < t->n_nics; i++)
        if (!t->nics[i].fences)
            moved |= begin_anew(t, &t->nics[i]);
    return moved;
}

int tei_ofi_region_del(struct tei_transport *base, struct tei_region *from)
{
    struct ofi *t = tei_ofi_of(base);
    struct ofi_region *r = from->keys[base->index];
    bool moved;

    if (!r)
        return 0;
    pthread_mutex_lock(&t->lock);
    moved = close_keys(t, r);
    pthread_mutex_unlock(&t->lock);
    tei_waker_ring(&t->waker); /* what may be slept on has changed */
    from->keys[base->index] = NULL;
    free(r);
    if (moved)
        base->host->changed(base->host);
    return 0;
}

/* ---------------------------------------------------------------------------------------- descriptor */

static void tell_nic(const struct ofi_nic *n, struct ofi_nic_keys *k)
{
    memcpy(k->name, n->name, sizeof k->name);
    memcpy(k->addr, n->addr, n->addr_len);
    k->addr_len = n->addr_len;
    k->is_virtual = n->is_virtual;
    k->page_key = fi_mr_key(n->page_mr);
    k->page_addr = n->is_virtual ? (uintptr_t)n->ofi->page : 0;
}

static void tell_provider(const struct fi_info *i, struct ofi_keys *k)
{
    strncpy(k->provider, i->fabric_attr->prov_name, sizeof k->provider - 1);
    k->protocol = i->ep_attr->protocol;
    k->protocol_version = i->ep_attr->protocol_version;
    k->format = i->addr_format;
}

/* Lock held. */
static json_t *keys_json(struct ofi *t)
{
    struct ofi_keys k = {.n_nics = t->n_nics, .v = calloc(OFI_SLOTS, sizeof k.v[0])};
    struct tei_link *link, *tmp;
    json_t *j;

    if (!k.v)
        return NULL;
    tell_provider(t->nics[0].info, &k);
    for (size_t i = 0; i < t->n_nics; i++)
        tell_nic(&t->nics[i], &k.nics[i]);
    TEI_LIST_EACH(&t->regions, link, tmp) {
        const struct ofi_region *r = tei_container_of(link, struct ofi_region, link);

        if (r->keys.slot < OFI_SLOTS)
            k.v[k.n++] = r->keys;
    }
    j = tei_ofi_keys_json(&k);
    tei_ofi_keys_fini(&k);
    return j;
}

int tei_ofi_describe(struct tei_transport *base, json_t *root)
{
    struct ofi *t = tei_ofi_of(base);
    json_t *te = tei_json_member(root, "te"), *keys;

    pthread_mutex_lock(&t->lock);
    keys = keys_json(t);
    pthread_mutex_unlock(&t->lock);
    if (!te || json_object_set_new(te, base->ops.name, keys) != 0)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the keys of %s", base->ops.name);
    return 0;
}
