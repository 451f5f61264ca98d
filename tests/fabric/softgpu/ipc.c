/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc.c - handles of 64 bytes that say which descriptor of which process the memory is, and
 * descriptors that play a dma-buf: such a one is a memfd opened anew, whose file position tells
 * where in it the range begins and how many pages it has.
 */
#include "fabric/softgpu/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TICKET_MAGIC   0x53475453u
#define DMABUF_PAGES   28 /* bits of the file position: 1 TiB */
#define DMABUF_PRESENT ((off_t)1 << 62)

struct ticket {
    uint32_t magic;
    uint16_t kind;
    uint16_t fabric;
    int32_t pid, fd;
    uint64_t id;     /* of the block */
    uint64_t offset; /* of the allocation in it */
    uint64_t size;
    uint64_t scope;  /* hash of the host, or of the fabric */
    uint32_t number; /* of the allocation; 0: all of the block */
    uint32_t unused;
    uint64_t check;
};
_Static_assert(sizeof(struct ticket) == SG_HANDLE_BYTES, "a handle has 64 bytes");

static uint64_t check_of(const struct ticket *t)
{
    return sg_hash(t, offsetof(struct ticket, check));
}

static void write_ticket(const struct sg_block *b, bool fabric, const struct sg_range *r,
                         void *handle)
{
    struct ticket t = {.magic = TICKET_MAGIC,
                       .kind = (uint16_t)b->kind,
                       .fabric = fabric,
                       .pid = getpid(),
                       .fd = b->fd,
                       .id = b->label->id,
                       .offset = r ? r->offset : 0,
                       .size = r ? r->size : b->size,
                       .scope = fabric ? SG->settings.fabric_id : SG->settings.host,
                       .number = r ? r->number : 0};

    t.check = check_of(&t);
    memcpy(handle, &t, sizeof(t));
}

static bool read_ticket(enum softgpu_kind kind, bool fabric, const void *handle, struct ticket *out)
{
    memcpy(out, handle, sizeof(*out));
    return out->magic == TICKET_MAGIC && out->check == check_of(out) && out->kind == kind &&
           (out->fabric != 0) == fabric &&
           out->scope == (fabric ? SG->settings.fabric_id : SG->settings.host);
}

static bool is_alive(const struct ticket *t, const struct sg_block *b)
{
    return t->number == 0 || b->label->live[t->offset / SG_ALIGN % SG_SLOTS] == t->number;
}

/* The block behind a ticket, if its owner still has it. */
static int fetch(enum softgpu_kind kind, const struct ticket *t, struct sg_block **out)
{
    struct sg_block *b;
    char path[64];
    int fd, rc;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", t->pid, t->fd);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return SG_INVALID_VALUE;
    rc = sg_block_from(kind, fd, &b);
    close(fd);
    if (rc)
        return rc;
    if (b->label->id != t->id || !is_alive(t, b) || t->offset > b->size ||
        t->size > b->size - t->offset) {
        sg_block_put(b);
        return SG_INVALID_VALUE;
    }
    *out = b;
    return SG_OK;
}

int sg_ipc_get(struct sg_context *c, uintptr_t addr, void *handle)
{
    const struct sg_range *r = sg_find(c->kind, addr);
    int rc = sg_fault(c->kind, SG_AT_ipc_get, SG_INVALID_VALUE, NULL);

    if (rc)
        return rc;
    if (!r || r->sort != SG_ALLOC)
        return SG_INVALID_VALUE;
    write_ticket(r->block, false, r, handle);
    return SG_OK;
}

struct search {
    const struct ticket *t;
    const struct sg_range *found;
};

static void see_opened(void *arg, const struct sg_range *r)
{
    struct search *s = arg;

    if (r->sort == SG_OPENED && r->block->label->id == s->t->id && r->number == s->t->number)
        s->found = r;
}

/* All of the block is mapped, but only this of it is memory to this process. */
static int map_opened(struct sg_context *c, const struct ticket *t, struct sg_block *b,
                      uintptr_t *out)
{
    struct sg_range all = {.size = b->size,
                           .sort = SG_BESIDE,
                           .kind = c->kind,
                           .device = b->device >= 0 ? b->device : c->device,
                           .block = b,
                           .number = t->number,
                           .opened = 1};
    struct sg_range *r;
    uintptr_t alias;

    if (sg_space_make(b->size, &all.addr))
        return SG_MAP_FAILED;
    if (sg_space_make(b->size, &alias)) {
        sg_unmap(all.addr, b->size);
        return SG_MAP_FAILED;
    }
    all.alias = (char *)alias;
    r = sg_map_at(b, 0, b->size, all.addr, PROT_NONE) ||
                sg_map_at(b, 0, b->size, alias, PROT_READ | PROT_WRITE)
            ? NULL
            : sg_range_add(&all);
    if (r)
        r = sg_range_cut(c->kind, SG_BESIDE, r->addr + t->offset, t->size);
    if (!r) {
        sg_unmap(all.addr, b->size);
        sg_unmap(alias, b->size);
        return SG_MAP_FAILED;
    }
    r->sort = SG_OPENED;
    *out = r->addr;
    return SG_OK;
}

int sg_ipc_open(struct sg_context *c, const void *handle, uintptr_t *out)
{
    struct ticket t;
    struct search s = {.t = &t};
    struct sg_block *b;
    int rc = sg_fault(c->kind, SG_AT_ipc_open, SG_INVALID_VALUE, NULL);

    if (rc)
        return rc;
    if (!read_ticket(c->kind, false, handle, &t))
        return SG_INVALID_VALUE;
    if (t.pid == getpid())
        return SG_INVALID_CONTEXT;
    rc = fetch(c->kind, &t, &b);
    if (rc)
        return rc;
    sg_range_each(c->kind, see_opened, &s);
    if (s.found) {
        sg_block_put(b);
        sg_find(c->kind, s.found->addr)->opened++;
        *out = s.found->addr;
        return SG_OK;
    }
    rc = !SG->settings.peer && b->device >= 0 && b->device != c->device ? SG_PEER_UNSUPPORTED
                                                                        : map_opened(c, &t, b, out);
    if (rc)
        sg_block_put(b);
    return rc;
}

int sg_ipc_close(struct sg_context *c, uintptr_t addr)
{
    struct sg_range *r;

    sg_quiesce(c->kind, -1, false);
    r = sg_find(c->kind, addr);
    if (!r || r->sort != SG_OPENED || r->addr != addr)
        return SG_INVALID_VALUE;
    if (--r->opened)
        return SG_OK;
    r->sort = SG_BESIDE;
    r = sg_range_join(r); /* now all of the block */
    sg_unmap(r->addr, r->size);
    sg_unmap((uintptr_t)r->alias, r->size);
    sg_block_put(r->block);
    sg_range_del(r);
    return SG_OK;
}

/*
 * Text has no room for the whole: what it is of begins its block, sizes are in units of SG_ALIGN, and of the hash
 * of the host and of the check it has a part, by which the rest is made up again.
 */
void sg_ipc_text(const void *handle, char text[SG_HANDLE_BYTES + 1])
{
    struct ticket t;

    memcpy(&t, handle, sizeof(t));
    snprintf(text, SG_HANDLE_BYTES + 1, "%08x%04x%016llx%08x%08x%08x%012llx", (unsigned)t.pid,
             (unsigned)t.fd & 0xffff, (unsigned long long)t.id, (unsigned)(t.size / SG_ALIGN),
             (unsigned)t.scope, t.number, (unsigned long long)t.check >> 16);
}

bool sg_ipc_parse(enum softgpu_kind kind, const char *text, void *handle)
{
    char again[SG_HANDLE_BYTES + 1];
    unsigned pid, fd, size, number;
    unsigned long long id;
    struct ticket t = {.magic = TICKET_MAGIC, .kind = (uint16_t)kind, .scope = SG->settings.host};

    if (sscanf(text, "%8x%4x%16llx%8x%*8x%8x", &pid, &fd, &id, &size, &number) != 5)
        return false;
    t.pid = (int32_t)pid;
    t.fd = (int32_t)fd;
    t.id = id;
    t.size = (uint64_t)size * SG_ALIGN;
    t.number = number;
    t.check = check_of(&t);
    memcpy(handle, &t, sizeof(t));
    sg_ipc_text(handle, again);
    return strcmp(text, again) == 0;
}

int sg_fabric_export(const struct sg_block *b, void *handle)
{
    write_ticket(b, true, NULL, handle);
    return SG_OK;
}

int sg_fabric_import(enum softgpu_kind kind, const void *handle, struct sg_block **out)
{
    struct ticket t;

    return read_ticket(kind, true, handle, &t) ? fetch(kind, &t, out) : SG_INVALID_VALUE;
}

/* ------------------------------------------------------------------------------------ dma-buf */

/* The first memory that lies in this page. */
static const struct sg_range *in_page(enum softgpu_kind kind, uintptr_t addr)
{
    const struct sg_range *r = sg_find_from(kind, addr);

    while (r && r->sort < SG_MEMORY && r->addr < addr + SG_PAGE)
        r = sg_find_from(kind, r->addr + r->size);
    return r && r->block && r->sort >= SG_MEMORY && r->addr < addr + SG_PAGE ? r : NULL;
}

/* What a page of the range holds beside the allocation comes along, as it does with the real one. */
int sg_dmabuf(enum softgpu_kind kind, uintptr_t addr, size_t size, int *fd)
{
    const struct sg_range *r = in_page(kind, addr);
    int rc = sg_fault(kind, SG_AT_dmabuf, SG_NOT_SUPPORTED, NULL);
    uintptr_t base;
    char path[64];

    if (rc)
        return rc;
    if (!SG->settings.dmabuf)
        return SG_NOT_SUPPORTED;
    if (!r || !size || size % SG_PAGE || addr % SG_PAGE)
        return SG_INVALID_VALUE;
    base = r->addr - r->offset; /* of what is mapped of the block */
    if (addr < base || size > (r->sort == SG_MAPPED ? r->size : r->block->size) - (addr - base))
        return SG_INVALID_VALUE;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", r->block->fd);
    *fd = open(path, O_RDWR | O_CLOEXEC);
    if (*fd < 0)
        return SG_OPERATING_SYSTEM;
    lseek(*fd,
          DMABUF_PRESENT | (off_t)((addr - base) / SG_PAGE) << DMABUF_PAGES |
              (off_t)(size / SG_PAGE),
          SEEK_SET);
    return SG_OK;
}

int softgpu_dmabuf_map(int fd, uint64_t offset, size_t length, void **out)
{
    const off_t pages = ((off_t)1 << DMABUF_PAGES) - 1;
    off_t at = lseek(fd, 0, SEEK_CUR);
    uint64_t start, size, skip = offset % SG_PAGE;
    char *p;

    if (at < 0 || !(at & DMABUF_PRESENT))
        return ENOTSUP;
    start = (uint64_t)((at & ~DMABUF_PRESENT) >> DMABUF_PAGES) * SG_PAGE;
    size = (uint64_t)(at & pages) * SG_PAGE;
    if (length == 0 || length > size || offset > size - length)
        return EINVAL;
    p = mmap(NULL, length + skip, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
             (off_t)(start + offset - skip));
    if (p == MAP_FAILED)
        return errno;
    *out = p + skip;
    return 0;
}

void softgpu_dmabuf_unmap(void *addr, size_t length)
{
    size_t skip = (uintptr_t)addr % SG_PAGE;

    munmap((char *)addr - skip, length + skip);
}
