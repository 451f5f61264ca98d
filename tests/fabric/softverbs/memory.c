/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - protection domains and memory regions.
 *
 * lkey and rkey are one number, as on most NICs. Registering does not pin: the range must be mapped
 * (asked of mincore), and its first and last page writable where the access flags want that.
 *
 * Memory of a simulated GPU (tests/fabric/softgpu, where the process has loaded it) has addresses
 * that nobody can touch; the bytes lie elsewhere in the process, where softgpu_alias() says. An MR
 * over it, or over a mapping of its dma-buf, tells other processes of that place: the GPU's address
 * is only what requests name it by.
 */
#include "fabric/softverbs/fabric.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define KNOWN_ACCESS                                                             \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE)

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct sv_context *c = sv_context_of(context);
    struct sv_pd *pd;

    if (sv_dead(c)) {
        errno = EIO;
        return NULL;
    }
    if (sv_denied(c->nic, SV_DENY_alloc_pd))
        return NULL;
    if (c->n_pd >= c->nic->limits.max_pd) {
        errno = ENOMEM;
        return NULL;
    }
    pd = calloc(1, sizeof(*pd));
    if (!pd)
        return NULL;
    pd->pd.context = context;
    pd->pd.handle = atomic_fetch_add(&c->f->s->next_pd, 1) + 1;
    c->n_pd++;
    return &pd->pd;
}

int ibv_dealloc_pd(struct ibv_pd *ibpd)
{
    struct sv_pd *pd = (struct sv_pd *)(void *)ibpd;

    if (pd->users)
        return EBUSY;
    sv_context_of(ibpd->context)->n_pd--;
    free(pd);
    return 0;
}

/* Whether the kernel itself can read there, as it must to pin: a real GPU's memory it cannot. */
static bool kernel_reads(uintptr_t at)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)at, 1};

    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT;
}

static uintptr_t page_size(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

static uintptr_t page_of(uintptr_t addr)
{
    return addr & ~(page_size() - 1);
}

static int check_mapped(uintptr_t addr, size_t length)
{
    unsigned char seen[4096];
    uintptr_t from = page_of(addr), end = addr + length, step = page_size() * sizeof(seen);

    if (sv_world()) /* which may let nobody touch it but in a request */
        return 0;
    for (; from < end; from += step)
        if (mincore((void *)from, end - from < step ? end - from : step, seen))
            return EFAULT;
    return kernel_reads(addr) && kernel_reads(addr + length - 1) ? 0 : EFAULT;
}

/* Whether the page can be written. Where it cannot even be populated for reading, the kernel or the
 * kind of memory does not know this request, and nothing is said. */
static bool page_writable(uintptr_t at)
{
    return madvise((void *)at, page_size(), MADV_POPULATE_WRITE) == 0 || errno == ENOMEM ||
           madvise((void *)at, page_size(), MADV_POPULATE_READ) != 0;
}

static int check_writable(uintptr_t addr, size_t length)
{
    if (sv_world())
        return 0;
    return page_writable(page_of(addr)) && page_writable(page_of(addr + length - 1)) ? 0 : EFAULT;
}

/* Functions of softgpu.h, none of which is there in a process without such a GPU. */
struct softgpu {
    void *(*alias)(const void *ptr);
    bool (*peermem)(const void *ptr, size_t length);
    int (*map)(int fd, uint64_t offset, size_t length, void **out);
    void (*unmap)(void *addr, size_t length);
};

static void find(void *library, const char *name, void *out)
{
    void *at = dlsym(library, name);

    memcpy(out, &at, sizeof(at));
}

/* False: there is none. */
static bool find_softgpu(struct softgpu *g)
{
    void *library = dlopen("libsoftgpu.so.0", RTLD_NOLOAD | RTLD_LAZY);

    if (!library)
        return false;
    find(library, "softgpu_alias", &g->alias);
    find(library, "softgpu_peermem", &g->peermem);
    find(library, "softgpu_dmabuf_map", &g->map);
    find(library, "softgpu_dmabuf_unmap", &g->unmap);
    dlclose(library); /* whoever loaded it keeps it */
    return g->alias && g->peermem && g->map && g->unmap;
}

/* What every way to register asks first; `verb`: which is denied on command. */
static int check_request(const struct sv_context *c, uintptr_t addr, size_t length, unsigned access,
                         enum sv_deny verb)
{
    if (sv_dead(c))
        return EIO;
    if (length == 0 || addr + length < addr || length > c->nic->limits.max_mr_size ||
        (access & ~(unsigned)KNOWN_ACCESS) ||
        ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
         !(access & IBV_ACCESS_LOCAL_WRITE)))
        return EINVAL;
    if (sv_denied(c->nic, verb))
        return errno;
    return c->n_mr >= c->nic->limits.max_mr ? ENOMEM : 0;
}

/* Finds the place of the bytes, too. */
static int check_region(const struct sv_context *c, void *addr, size_t length, unsigned access,
                        void **place)
{
    int rc = check_request(c, (uintptr_t)addr, length, access, SV_DENY_reg_mr);
    struct softgpu gpu;

    if (rc)
        return rc;
    *place = find_softgpu(&gpu) ? gpu.alias(addr) : NULL;
    if (*place)
        return c->nic->peermem && gpu.peermem(addr, length) ? 0 : EFAULT;
    *place = addr;
    rc = check_mapped((uintptr_t)addr, length);
    if (rc == 0 && (access & IBV_ACCESS_LOCAL_WRITE))
        rc = check_writable((uintptr_t)addr, length);
    return rc;
}

static void publish(const struct sv_context *c, struct sv_mr *slot, const struct ibv_mr *mr,
                    const void *place, uint64_t iova, unsigned access)
{
    atomic_store_explicit(&slot->proc, c->f->slot, memory_order_relaxed);
    atomic_store_explicit(&slot->nic, c->nic_index, memory_order_relaxed);
    atomic_store_explicit(&slot->pd, mr->pd->handle, memory_order_relaxed);
    atomic_store_explicit(&slot->access, access, memory_order_relaxed);
    atomic_store_explicit(&slot->addr, (uintptr_t)place, memory_order_relaxed);
    atomic_store_explicit(&slot->length, mr->length, memory_order_relaxed);
    atomic_store_explicit(&slot->iova, iova, memory_order_relaxed);
    atomic_store(&slot->key, mr->lkey);
}

/* An MR of bytes at `place` of this process; `addr` is what its struct says. NULL and ENOMEM. */
static struct sv_local_mr *make_mr(struct ibv_pd *pd, const void *place, void *addr, size_t length,
                                   uint64_t iova, unsigned access)
{
    struct sv_context *c = sv_context_of(pd->context);
    struct sv_local_mr *mr = calloc(1, sizeof(*mr));
    struct sv_mr *slot = mr ? sv_mr_alloc(c->f) : NULL;

    if (!slot) {
        free(mr);
        errno = ENOMEM;
        return NULL;
    }
    mr->f = c->f;
    mr->mr.context = pd->context;
    mr->mr.pd = pd;
    mr->mr.addr = addr;
    mr->mr.length = length;
    mr->mr.handle = (uint32_t)(slot - c->f->s->mrs);
    mr->mr.rkey = (c->nic->same_keys ? 1 : slot->generation) << SV_MR_BITS | mr->mr.handle;
    mr->mr.lkey = mr->mr.rkey;
    publish(c, slot, &mr->mr, place, iova, access);
    ((struct sv_pd *)(void *)pd)->users++;
    c->n_mr++;
    return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                unsigned access)
{
    void *place;
    int rc = check_region(sv_context_of(pd->context), addr, length, access, &place);
    struct sv_local_mr *mr = rc ? NULL : make_mr(pd, place, addr, length, iova, access);

    if (rc)
        errno = rc;
    return mr ? &mr->mr : NULL;
}

struct ibv_mr *(ibv_reg_mr)(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

struct ibv_mr *(ibv_reg_mr_iova)(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                 int access)
{
    return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
                                 int fd, int access)
{
    struct sv_context *c = sv_context_of(pd->context);
    int rc = check_request(c, iova, length, (unsigned)access, SV_DENY_reg_dmabuf_mr);
    struct sv_local_mr *mr = NULL;
    struct softgpu gpu;
    void *map;

    if (!rc && (!find_softgpu(&gpu) || gpu.map(fd, offset, length, &map) != 0))
        rc = EINVAL;
    if (rc) {
        errno = rc;
        return NULL;
    }
    mr = make_mr(pd, map, (void *)(uintptr_t)offset, length, iova, (unsigned)access);
    if (!mr) {
        gpu.unmap(map, length);
        errno = ENOMEM;
        return NULL;
    }
    mr->map = map;
    mr->unmap = gpu.unmap;
    return &mr->mr;
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
                 int access)
{
    (void)mr, (void)flags, (void)pd, (void)addr, (void)length, (void)access;
    errno = EOPNOTSUPP;
    return IBV_REREG_MR_ERR_INPUT;
}

int ibv_dereg_mr(struct ibv_mr *ibmr)
{
    struct sv_local_mr *mr = (struct sv_local_mr *)(void *)ibmr;
    struct sv_fabric *f = mr->f;
    struct sv_mr *slot;

    if (!f->forked) {
        slot = &f->s->mrs[ibmr->handle];
        atomic_store(&slot->key, 0);
        sv_fence_mr(f, ibmr->lkey);
        sv_mr_free(f->s, slot);
        ((struct sv_pd *)(void *)ibmr->pd)->users--;
        sv_context_of(ibmr->context)->n_mr--;
    }
    if (mr->map)
        mr->unmap(mr->map, ibmr->length);
    free(mr);
    return 0;
}
