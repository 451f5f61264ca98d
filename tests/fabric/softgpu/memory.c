/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - what lies where in the address space of this process. Each driver has its own table:
 * one does not know the other's memory, and both may pin the same.
 */
#include "fabric/softgpu/core.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x33757067746f7306u /* changes with the layout of the label */
enum { DIRT = 0xa5, MAX_DIRT = 4 << 20 };

/* -------------------------------------------------------------------------------------- table */

/* Index of the first range that ends behind `addr`. */
static size_t index_of(enum softgpu_kind kind, uintptr_t addr)
{
    size_t low = 0, high = SG->tables[kind].n;

    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct sg_range *r = SG->tables[kind].v[middle];

        if (r->addr + r->size <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct sg_range *sg_find_from(enum softgpu_kind kind, uintptr_t addr)
{
    size_t i = index_of(kind, addr);

    return i < SG->tables[kind].n ? SG->tables[kind].v[i] : NULL;
}

struct sg_range *sg_find_any(enum softgpu_kind kind, uintptr_t addr)
{
    struct sg_range *r = sg_find_from(kind, addr);

    return r && r->addr <= addr ? r : NULL;
}

struct sg_range *sg_find(enum softgpu_kind kind, uintptr_t addr)
{
    struct sg_range *r = sg_find_any(kind, addr);

    return r && r->sort >= SG_MEMORY ? r : NULL;
}

struct sg_range *sg_range_add(const struct sg_range *like)
{
    struct sg_range *r = malloc(sizeof(*r));
    size_t i = index_of(like->kind, like->addr);

    if (r && SG->tables[like->kind].n == SG->tables[like->kind].room) {
        size_t room = SG->tables[like->kind].room * 2 + 64;
        struct sg_range **v = realloc(SG->tables[like->kind].v, room * sizeof(struct sg_range *));

        if (!v) {
            free(r);
            return NULL;
        }
        SG->tables[like->kind].v = v;
        SG->tables[like->kind].room = room;
    }
    if (!r)
        return NULL;
    *r = *like;
    r->id = ++SG->last_id;
    memmove(SG->tables[r->kind].v + i + 1, SG->tables[r->kind].v + i,
            (SG->tables[r->kind].n - i) * sizeof(struct sg_range *));
    SG->tables[r->kind].v[i] = r;
    SG->tables[r->kind].n++;
    return r;
}

void sg_range_del(struct sg_range *r)
{
    size_t i = index_of(r->kind, r->addr);

    SG->tables[r->kind].n--;
    memmove(SG->tables[r->kind].v + i, SG->tables[r->kind].v + i + 1,
            (SG->tables[r->kind].n - i) * sizeof(struct sg_range *));
    free(r);
}

/* Splits `r` at `n` bytes; the rest is the new one. */
static struct sg_range *split(struct sg_range *r, size_t n)
{
    struct sg_range rest = *r, *added;
    size_t whole = r->size;

    rest.addr += n;
    rest.size -= n;
    rest.offset += n;
    rest.alias = r->alias + n;
    r->size = n;
    added = sg_range_add(&rest);
    if (!added)
        r->size = whole;
    return added;
}

struct sg_range *sg_range_cut(enum softgpu_kind kind, enum sg_sort sort, uintptr_t addr,
                              size_t size)
{
    struct sg_range *r = sg_find_any(kind, addr);

    if (!r || r->sort != sort || addr + size > r->addr + r->size)
        return NULL;
    if (r->addr < addr)
        r = split(r, addr - r->addr);
    if (r && r->size > size && !split(r, size))
        return NULL;
    return r;
}

static bool joins(const struct sg_range *a, const struct sg_range *b)
{
    return a->addr + a->size == b->addr && a->sort == b->sort && a->block == b->block &&
           a->space == b->space;
}

struct sg_range *sg_range_join(struct sg_range *r)
{
    struct sg_range **v = SG->tables[r->kind].v;
    size_t i = index_of(r->kind, r->addr);

    if (i + 1 < SG->tables[r->kind].n && joins(r, v[i + 1])) {
        r->size += v[i + 1]->size;
        free(v[i + 1]);
        SG->tables[r->kind].n--;
        memmove(v + i + 1, v + i + 2, (SG->tables[r->kind].n - i - 1) * sizeof(struct sg_range *));
    }
    if (i > 0 && joins(v[i - 1], r)) {
        v[i - 1]->size += r->size;
        r = v[i - 1];
        free(v[i]);
        SG->tables[r->kind].n--;
        memmove(v + i, v + i + 1, (SG->tables[r->kind].n - i) * sizeof(struct sg_range *));
    }
    return r;
}

void sg_range_each(enum softgpu_kind kind, void (*see)(void *arg, const struct sg_range *r),
                   void *arg)
{
    for (size_t i = 0; i < SG->tables[kind].n; i++)
        see(arg, SG->tables[kind].v[i]);
}

/* ------------------------------------------------------------------------------------- blocks */

static int map_label(struct sg_block *b)
{
    void *p = mmap(NULL, SG_LABEL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, (off_t)b->size);

    if (p == MAP_FAILED)
        return SG_OUT_OF_MEMORY;
    madvise(p, SG_LABEL_BYTES, MADV_DONTFORK);
    b->label = p;
    return SG_OK;
}

int sg_block_make(enum softgpu_kind kind, int device, size_t size, struct sg_block **out)
{
    struct sg_device *d = sg_device(kind, device);
    struct sg_block *b;

    if (size > SG->settings.memory - d->used)
        return SG_OUT_OF_MEMORY;
    b = calloc(1, sizeof(*b));
    if (!b)
        return SG_OUT_OF_MEMORY;
    *b = (struct sg_block){.refs = 1, .kind = kind, .device = device, .own = true, .size = size};
    b->fd = memfd_create("softgpu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (b->fd < 0 || ftruncate(b->fd, (off_t)(size + SG_LABEL_BYTES)) < 0 || map_label(b)) {
        if (b->fd >= 0)
            close(b->fd);
        free(b);
        return SG_OUT_OF_MEMORY;
    }
    b->label->magic = MAGIC;
    b->label->id = sg_random();
    b->label->size = size;
    b->label->kind = (uint32_t)kind;
    memcpy(b->label->uuid, d->uuid, sizeof(d->uuid));
    d->used += size;
    *out = b;
    return SG_OK;
}

int sg_block_from(enum softgpu_kind kind, int fd, struct sg_block **out)
{
    struct sg_block *b = calloc(1, sizeof(*b));
    struct stat st;

    if (!b)
        return SG_OUT_OF_MEMORY;
    *b = (struct sg_block){.refs = 1, .kind = kind, .fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)};
    if (b->fd < 0 || fstat(b->fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        (size_t)st.st_size < SG_LABEL_BYTES)
        goto bad;
    b->size = (size_t)st.st_size - SG_LABEL_BYTES;
    if (map_label(b))
        goto bad;
    if (b->label->magic != MAGIC || b->label->kind != (uint32_t)kind || b->label->size != b->size) {
        munmap(b->label, SG_LABEL_BYTES);
        goto bad;
    }
    b->device = sg_device_by_uuid(kind, b->label->uuid);
    *out = b;
    return SG_OK;
bad:
    if (b->fd >= 0)
        close(b->fd);
    free(b);
    return SG_INVALID_VALUE;
}

void sg_block_put(struct sg_block *b)
{
    if (--b->refs)
        return;
    if (b->own)
        SG->drivers[b->kind].device[b->device].used -= b->size;
    munmap(b->label, SG_LABEL_BYTES);
    close(b->fd);
    free(b);
}

int sg_space_make(size_t size, uintptr_t *out)
{
    char *p =
        mmap(NULL, size + SG_GRAIN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before;

    if (p == MAP_FAILED)
        return SG_OUT_OF_MEMORY;
    before = (SG_GRAIN - (uintptr_t)p % SG_GRAIN) % SG_GRAIN;
    if (before)
        munmap(p, before);
    munmap(p + before + size, SG_GRAIN - before);
    madvise(p + before, size, MADV_DONTFORK);
    *out = (uintptr_t)p + before;
    return SG_OK;
}

int sg_map_at(const struct sg_block *b, size_t offset, size_t size, uintptr_t addr, int protection)
{
    void *p = mmap((void *)addr, size, protection, MAP_SHARED | MAP_FIXED, b->fd, (off_t)offset);

    if (p == MAP_FAILED)
        return SG_MAP_FAILED;
    madvise(p, size, MADV_DONTFORK);
    return SG_OK;
}

void sg_map_nothing(uintptr_t addr, size_t size)
{
    mmap((void *)addr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
         0);
    madvise((void *)addr, size, MADV_DONTFORK);
}

void sg_unmap(uintptr_t addr, size_t size)
{
    munmap((void *)addr, size);
}

/* -------------------------------------------------------------------------------- allocations */

/* A new block, mapped twice, as one free range. */
static int add_block(struct sg_context *c, size_t size, struct sg_range **out)
{
    struct sg_range r = {.size = size, .sort = SG_FREE, .kind = c->kind, .device = c->device};
    uintptr_t alias = 0;
    int rc = sg_block_make(c->kind, c->device, size, &r.block);

    if (rc)
        return rc;
    if (sg_space_make(size, &r.addr))
        goto put;
    if (sg_space_make(size, &alias))
        goto unmap_addr;
    r.alias = (char *)alias;
    if (sg_map_at(r.block, 0, size, r.addr, PROT_NONE) ||
        sg_map_at(r.block, 0, size, alias, PROT_READ | PROT_WRITE))
        goto unmap_alias;
    *out = sg_range_add(&r);
    if (*out)
        return SG_OK;
unmap_alias:
    sg_unmap(alias, size);
unmap_addr:
    sg_unmap(r.addr, size);
put:
    sg_block_put(r.block);
    return SG_OUT_OF_MEMORY;
}

static void del_block(struct sg_range *r)
{
    sg_unmap(r->addr, r->size);
    sg_unmap((uintptr_t)r->alias, r->size);
    sg_block_put(r->block);
    sg_range_del(r);
}

static struct sg_range *find_free(const struct sg_context *c, size_t size)
{
    for (size_t i = 0; i < SG->tables[c->kind].n; i++) {
        struct sg_range *r = SG->tables[c->kind].v[i];

        if (r->sort == SG_FREE && r->device == c->device && r->size >= size)
            return r;
    }
    return NULL;
}

int sg_alloc(struct sg_context *c, size_t size, uintptr_t *out)
{
    size_t asked = size;
    struct sg_range *r;
    int rc = sg_fault(c->kind, SG_AT_alloc, SG_OUT_OF_MEMORY, NULL);

    if (rc)
        return rc;
    if (size == 0)
        return SG_INVALID_VALUE;
    if (size > SG->settings.memory)
        return SG_OUT_OF_MEMORY;
    size = (size + SG_ALIGN - 1) / SG_ALIGN * SG_ALIGN;
    r = size < SG_SMALL ? find_free(c, size) : NULL;
    if (!r)
        rc = add_block(c, (size + SG_GRAIN - 1) / SG_GRAIN * SG_GRAIN, &r);
    if (rc)
        return rc;
    if (size < SG_SMALL)
        r = sg_range_cut(c->kind, SG_FREE, r->addr, size);
    if (!r)
        return SG_OUT_OF_MEMORY;
    r->sort = SG_ALLOC;
    r->number = ++SG->last_number;
    r->block->label->live[r->offset / SG_ALIGN % SG_SLOTS] = r->number;
    memset(r->alias, DIRT, asked < MAX_DIRT ? asked : MAX_DIRT);
    *out = r->addr;
    return SG_OK;
}

static void drop(struct sg_range *r)
{
    r->block->label->live[r->offset / SG_ALIGN % SG_SLOTS] = 0;
    r->sort = SG_FREE;
    r = sg_range_join(r);
    if (r->size == r->block->size)
        del_block(r);
}

int sg_free(struct sg_context *c, uintptr_t addr)
{
    struct sg_range *r;
    int rc = sg_captured(c->kind);

    if (rc)
        return rc;
    sg_quiesce(c->kind, -1, false);
    r = sg_find(c->kind, addr);
    if (!r || r->addr != addr || (r->sort != SG_ALLOC && r->sort != SG_MANAGED))
        return SG_INVALID_VALUE;
    if (r->sort == SG_ALLOC) {
        drop(r);
        return SG_OK;
    }
    sg_unmap(r->addr, (r->size + SG_PAGE - 1) / SG_PAGE * SG_PAGE);
    sg_range_del(r);
    return SG_OK;
}

void sg_free_all(struct sg_context *c)
{
    for (size_t i = 0; i < SG->tables[c->kind].n;) {
        struct sg_range *r = SG->tables[c->kind].v[i];

        if (r->sort == SG_ALLOC && r->device == c->device) {
            drop(r);
            i = 0;
        } else {
            i++;
        }
    }
}

int sg_alloc_managed(struct sg_context *c, size_t size, uintptr_t *out)
{
    struct sg_range r = {.size = size, .sort = SG_MANAGED, .kind = c->kind, .device = c->device};
    int rc = sg_fault(c->kind, SG_AT_alloc, SG_OUT_OF_MEMORY, NULL);
    void *p;

    if (rc)
        return rc;
    if (size == 0)
        return SG_INVALID_VALUE;
    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return SG_OUT_OF_MEMORY;
    r.addr = (uintptr_t)p;
    r.alias = p;
    if (!sg_range_add(&r)) {
        munmap(p, size);
        return SG_OUT_OF_MEMORY;
    }
    *out = r.addr;
    return SG_OK;
}

bool sg_host_mapped(uintptr_t addr, size_t size)
{
    uintptr_t first = addr / SG_PAGE * SG_PAGE, last = (addr + size - 1) / SG_PAGE * SG_PAGE;
    unsigned char seen;

    return mincore((void *)first, SG_PAGE, &seen) == 0 &&
           mincore((void *)last, SG_PAGE, &seen) == 0;
}

int sg_pin(struct sg_context *c, uintptr_t addr, size_t size, unsigned flags)
{
    struct sg_range r = {.addr = addr,
                         .size = size,
                         .sort = SG_PINNED,
                         .kind = c->kind,
                         .device = c->device,
                         .alias = (char *)addr,
                         .flags = flags};
    int rc = sg_fault(c->kind, SG_AT_pin, SG_OUT_OF_MEMORY, NULL);
    const struct sg_range *next;

    if (rc)
        return rc;
    if (!addr || !size || addr + size < addr || !sg_host_mapped(addr, size))
        return SG_INVALID_VALUE;
    next = sg_find_from(c->kind, addr);
    if (next && next->addr < addr + size)
        return next->sort == SG_PINNED ? SG_ALREADY_REGISTERED : SG_INVALID_VALUE;
    return sg_range_add(&r) ? SG_OK : SG_OUT_OF_MEMORY;
}

int sg_unpin(struct sg_context *c, uintptr_t addr)
{
    struct sg_range *r;
    int rc = sg_captured(c->kind);

    if (rc)
        return rc;
    sg_quiesce(c->kind, -1, false);
    r = sg_find(c->kind, addr);
    if (!r || r->sort != SG_PINNED || r->addr != addr)
        return SG_NOT_REGISTERED;
    sg_range_del(r);
    return SG_OK;
}

/* ------------------------------------------------------------------------- what tests may ask */

void *softgpu_alias(const void *ptr)
{
    uintptr_t addr = (uintptr_t)ptr;
    char *alias = NULL;

    pthread_mutex_lock(&SG->lock);
    for (int kind = 0; kind < SOFTGPU_KINDS && !alias; kind++) {
        const struct sg_range *r = sg_find((enum softgpu_kind)kind, addr);

        if (r && r->sort != SG_PINNED && (r->sort != SG_MAPPED || r->can_read))
            alias = r->alias + (addr - r->addr);
    }
    pthread_mutex_unlock(&SG->lock);
    return alias;
}

bool softgpu_peermem(const void *ptr, size_t length)
{
    uintptr_t addr = (uintptr_t)ptr;
    bool yes = false;

    pthread_mutex_lock(&SG->lock);
    for (int kind = 0; kind < SOFTGPU_KINDS && SG->settings.peermem && !yes; kind++) {
        const struct sg_range *r = sg_find((enum softgpu_kind)kind, addr);

        yes = r && r->block && length <= r->size && addr - r->addr <= r->size - length &&
              (r->sort != SG_MAPPED || r->block->label->direct);
    }
    pthread_mutex_unlock(&SG->lock);
    return yes;
}

struct count {
    enum sg_sort sort;
    long n;
};

static void count_one(void *arg, const struct sg_range *r)
{
    struct count *c = arg;

    c->n += r->sort == c->sort;
}

static long count(enum softgpu_kind kind, enum sg_sort sort)
{
    struct count c = {.sort = sort};

    sg_range_each(kind, count_one, &c);
    return c.n;
}

static long live(enum softgpu_kind kind, const char *what)
{
    static const struct {
        const char *what;
        enum sg_sort sort;
    } ranges[] = {{"allocs", SG_ALLOC},
                  {"ipc", SG_OPENED},
                  {"pins", SG_PINNED},
                  {"managed", SG_MANAGED},
                  {"mappings", SG_MAPPED}};

    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (strcmp(what, ranges[i].what) == 0)
            return count(kind, ranges[i].sort);
    if (strcmp(what, "spaces") == 0 || strcmp(what, "handles") == 0)
        return sg_vmm_live(kind, what[0] == 's');
    if (strcmp(what, "streams") == 0)
        return sg_stream_live(kind);
    return strcmp(what, "events") == 0 ? sg_event_live(kind) : -1;
}

long softgpu_live(enum softgpu_kind kind, const char *what)
{
    long n;

    pthread_mutex_lock(&SG->lock);
    n = live(kind, what);
    pthread_mutex_unlock(&SG->lock);
    return n;
}
