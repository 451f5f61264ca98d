/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmm.c - memory by handle, address space by reservation, and mappings of the one into the other. A
 * reservation has an alias of its own, so that mappings in a row are in a row there, too.
 */
#include "fabric/softgpu/core.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct sg_space {
    struct sg_space *next;
    uintptr_t addr, alias;
    size_t size;
};

struct sg_handle {
    struct sg_handle *next;
    uint64_t id;
    unsigned refs;
    struct sg_block *block;
};

enum { HANDLE_STEP = 16, FIRST_HANDLE = 0x5000 };

static struct sg_handle **find_handle(enum softgpu_kind kind, uint64_t id)
{
    struct sg_handle **h = &SG->handles[kind];

    while (*h && (*h)->id != id)
        h = &(*h)->next;
    return h;
}

/* Takes over the caller's reference of the block. */
static int add_handle(enum softgpu_kind kind, struct sg_block *b, uint64_t *out)
{
    struct sg_handle *h = calloc(1, sizeof(*h));

    if (!h) {
        sg_block_put(b);
        return SG_OUT_OF_MEMORY;
    }
    SG->n_handles++;
    *h = (struct sg_handle){.next = SG->handles[kind],
                            .id = FIRST_HANDLE + HANDLE_STEP * SG->n_handles,
                            .refs = 1,
                            .block = b};
    SG->handles[kind] = h;
    *out = h->id;
    return SG_OK;
}

int sg_vmm_create(enum softgpu_kind kind, int device, size_t size, unsigned types, bool direct,
                  uint64_t *out)
{
    struct sg_block *b;
    int rc = sg_fault(kind, SG_AT_create, SG_OUT_OF_MEMORY, NULL);

    if (rc)
        return rc;
    if (!sg_device(kind, device))
        return SG_INVALID_DEVICE;
    if (!size || size % SG_GRAIN || (types & ~(unsigned)(SG_TYPE_FD | SG_TYPE_FABRIC)))
        return SG_INVALID_VALUE;
    if ((types & SG_TYPE_FABRIC) && !SG->settings.fabric)
        return SG_NOT_SUPPORTED;
    rc = sg_block_make(kind, device, size, &b);
    if (rc)
        return rc;
    b->label->types = types;
    b->label->direct = direct;
    return add_handle(kind, b, out);
}

int sg_vmm_release(enum softgpu_kind kind, uint64_t handle)
{
    struct sg_handle **at = find_handle(kind, handle), *h = *at;

    if (!h)
        return SG_INVALID_VALUE;
    if (--h->refs)
        return SG_OK;
    *at = h->next;
    sg_block_put(h->block);
    free(h);
    return SG_OK;
}

struct sg_block *sg_vmm_block(enum softgpu_kind kind, uint64_t handle)
{
    struct sg_handle *h = *find_handle(kind, handle);

    return h ? h->block : NULL;
}

int sg_vmm_retain(enum softgpu_kind kind, uintptr_t addr, uint64_t *out)
{
    const struct sg_range *r = sg_find(kind, addr);

    if (!r || r->sort != SG_MAPPED)
        return SG_INVALID_VALUE;
    for (struct sg_handle *h = SG->handles[kind]; h; h = h->next)
        if (h->block == r->block) {
            h->refs++;
            *out = h->id;
            return SG_OK;
        }
    r->block->refs++;
    return add_handle(kind, r->block, out);
}

int sg_vmm_reserve(enum softgpu_kind kind, size_t size, size_t align, uintptr_t *out)
{
    struct sg_range hole = {.size = size, .sort = SG_HOLE, .kind = kind, .device = -1};
    struct sg_space *s;

    if (!size || size % SG_GRAIN || (align & (align - 1)) || align > SG_GRAIN)
        return SG_INVALID_VALUE;
    s = calloc(1, sizeof(*s));
    if (!s)
        return SG_OUT_OF_MEMORY;
    s->size = size;
    if (sg_space_make(size, &s->addr))
        goto free_space;
    if (sg_space_make(size, &s->alias))
        goto unmap_addr;
    hole.addr = s->addr;
    hole.alias = (char *)s->alias;
    hole.space = s;
    if (!sg_range_add(&hole))
        goto unmap_alias;
    s->next = SG->spaces[kind];
    SG->spaces[kind] = s;
    *out = s->addr;
    return SG_OK;
unmap_alias:
    sg_unmap(s->alias, size);
unmap_addr:
    sg_unmap(s->addr, size);
free_space:
    free(s);
    return SG_OUT_OF_MEMORY;
}

int sg_vmm_unreserve(enum softgpu_kind kind, uintptr_t addr, size_t size)
{
    struct sg_range *r = sg_find_any(kind, addr);
    struct sg_space **at = &SG->spaces[kind], *s;

    if (!r || r->sort != SG_HOLE || r->addr != addr || r->size != size || r->space->size != size)
        return SG_INVALID_VALUE;
    s = r->space;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    sg_range_del(r);
    sg_unmap(s->addr, size);
    sg_unmap(s->alias, size);
    free(s);
    return SG_OK;
}

int sg_vmm_map(enum softgpu_kind kind, uintptr_t addr, size_t size, uint64_t handle)
{
    struct sg_block *b = sg_vmm_block(kind, handle);
    int rc = sg_fault(kind, SG_AT_map, SG_MAP_FAILED, NULL);
    struct sg_range *r;

    if (rc)
        return rc;
    if (!b || !size || addr % SG_GRAIN || size % SG_GRAIN || size > b->size)
        return SG_INVALID_VALUE;
    r = sg_range_cut(kind, SG_HOLE, addr, size);
    if (!r)
        return SG_INVALID_VALUE;
    rc = sg_map_at(b, 0, size, addr, PROT_NONE);
    if (rc) {
        sg_range_join(r);
        return rc;
    }
    b->refs++;
    r->block = b;
    r->sort = SG_MAPPED;
    r->offset = 0;
    r->device = b->device >= 0 ? b->device : 0;
    r->can_read = r->can_write = 0;
    return SG_OK;
}

/* Whether mappings begin at `addr`, follow each other, and end at its end. */
static bool covers(enum softgpu_kind kind, uintptr_t addr, size_t size)
{
    uintptr_t at = addr;

    while (at < addr + size) {
        const struct sg_range *r = sg_find(kind, at);

        if (!r || r->sort != SG_MAPPED || r->addr != at)
            return false;
        at += r->size;
    }
    return size && at == addr + size;
}

int sg_vmm_unmap(enum softgpu_kind kind, uintptr_t addr, size_t size)
{
    uintptr_t at = addr;
    int rc = sg_fault(kind, SG_AT_unmap, SG_INVALID_VALUE, NULL);

    if (rc)
        return rc;
    sg_quiesce(kind, -1, false);
    if (!covers(kind, addr, size))
        return SG_INVALID_VALUE;
    while (at < addr + size) {
        struct sg_range *r = sg_find(kind, at);
        uintptr_t next = r->addr + r->size;

        sg_map_nothing(r->addr, r->size);
        sg_map_nothing((uintptr_t)r->alias, r->size);
        sg_block_put(r->block);
        r->block = NULL;
        r->sort = SG_HOLE;
        sg_range_join(r);
        at = next;
    }
    return SG_OK;
}

static void grant(struct sg_range *r, const struct sg_grant *g)
{
    unsigned bit = 1u << g->device;

    r->can_read = g->flags & 1 ? r->can_read | bit : r->can_read & ~bit;
    r->can_write = g->flags & 2 ? r->can_write | bit : r->can_write & ~bit;
}

int sg_vmm_access(enum softgpu_kind kind, uintptr_t addr, size_t size, const struct sg_grant *v,
                  size_t n)
{
    uintptr_t at = addr;
    int rc = sg_fault(kind, SG_AT_access, SG_NOT_PERMITTED, NULL);

    if (rc)
        return rc;
    if (!n || !covers(kind, addr, size))
        return SG_INVALID_VALUE;
    for (size_t i = 0; i < n; i++) {
        if (!sg_device(kind, v[i].device))
            return SG_INVALID_DEVICE;
        if (v[i].flags != 0 && v[i].flags != 1 && v[i].flags != 3)
            return SG_INVALID_VALUE;
    }
    while (at < addr + size) {
        struct sg_range *r = sg_find(kind, at);

        for (size_t i = 0; i < n; i++) {
            if (!SG->settings.peer && r->block->device >= 0 && v[i].device != r->block->device)
                return SG_PEER_UNSUPPORTED;
            grant(r, &v[i]);
        }
        if (sg_map_at(r->block, r->offset, r->size, (uintptr_t)r->alias, PROT_READ | PROT_WRITE))
            return SG_MAP_FAILED;
        at += r->size;
    }
    return SG_OK;
}

int sg_vmm_export(enum softgpu_kind kind, uint64_t handle, unsigned type, void *out)
{
    const struct sg_block *b = sg_vmm_block(kind, handle);
    int rc = sg_fault(kind, SG_AT_export, SG_NOT_SUPPORTED, NULL), fd;

    if (rc)
        return rc;
    if (!b || (type != SG_TYPE_FD && type != SG_TYPE_FABRIC) || !(b->label->types & type))
        return SG_INVALID_VALUE;
    if (type == SG_TYPE_FABRIC)
        return sg_fabric_export(b, out);
    fd = fcntl(b->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return SG_OPERATING_SYSTEM;
    *(int *)out = fd;
    return SG_OK;
}

int sg_vmm_import(enum softgpu_kind kind, unsigned type, int fd, const void *bytes, uint64_t *out)
{
    struct sg_block *b;
    int rc = sg_fault(kind, SG_AT_import, SG_INVALID_VALUE, NULL);

    if (rc)
        return rc;
    if (type == SG_TYPE_FABRIC && !SG->settings.fabric)
        return SG_NOT_SUPPORTED;
    if (type == SG_TYPE_FD)
        rc = sg_block_from(kind, fd, &b);
    else if (type == SG_TYPE_FABRIC)
        rc = sg_fabric_import(kind, bytes, &b);
    else
        return SG_INVALID_VALUE;
    if (rc)
        return rc;
    if (!(b->label->types & type)) {
        sg_block_put(b);
        return SG_INVALID_VALUE;
    }
    return add_handle(kind, b, out);
}

long sg_vmm_live(enum softgpu_kind kind, bool count_spaces)
{
    long n = 0;

    if (count_spaces)
        for (const struct sg_space *s = SG->spaces[kind]; s; s = s->next)
            n++;
    else
        for (const struct sg_handle *h = SG->handles[kind]; h; h = h->next)
            n++;
    return n;
}
