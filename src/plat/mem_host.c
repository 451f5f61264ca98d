/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem_host.c - host memory: which NUMA node a page is on, memory on a given node, and memory that
 * other processes of this host can map.
 *
 * What is shared is a memfd: it has no name that others could open, its size is sealed, so nobody
 * who maps it can be made to fault, and it is gone with the last who has it. All of this process
 * stand in one tree by address. One is counted: one reference for the memory, one for each
 * tei_share_hold().
 */
#include "plat/plat.h"

#include "base/err.h"
#include "base/os.h"
#include "base/pages.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <search.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* "kind:number", kind of letters and '_'. */
static bool is_location(const char *s)
{
    const char *colon = strchr(s, ':');

    if (!colon || colon == s || !colon[1] || strlen(s) >= TEI_LOCATION_MAX)
        return false;
    for (const char *c = s; c < colon; c++)
        if (!isalpha((unsigned char)*c) && *c != '_')
            return false;
    return strspn(colon + 1, "0123456789") == strlen(colon + 1);
}

/* The node of a page that is in memory, -1 if it is not or the kernel does not say. */
static int page_node(const void *addr)
{
    void *page = (void *)((uintptr_t)addr & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1));
    int node = -1;

    if (syscall(SYS_move_pages, 0, 1UL, &page, NULL, &node, 0) != 0)
        return -1;
    return node;
}

/* Whether a location that was given fits what the address is in. Other makers' memory may be the host's. */
static bool fits(const struct tei_mem_info *m, const char *here, const char *wanted)
{
    enum tei_mem_kind kind = tei_mem_kind_of(wanted);

    if (m->kind == TEI_MEM_HOST)
        return kind == TEI_MEM_HOST || kind == TEI_MEM_OTHER;
    return kind == m->kind && strcmp(strchr(here, ':'), strchr(wanted, ':')) == 0;
}

/* Where the address is, by itself. */
static int look_up(const void *addr, struct tei_mem_info *m, char out[TEI_LOCATION_MAX])
{
    int node, rc = tei_mem_inspect(addr, 1, m);

    if (rc)
        return rc;
    node = m->kind == TEI_MEM_HOST ? page_node(addr) : -1;
    if (m->kind != TEI_MEM_HOST)
        snprintf(out, TEI_LOCATION_MAX, "%s:%d", tei_mem_word(m->kind), m->device);
    else if (node < 0)
        memcpy(out, "*", 2);
    else
        snprintf(out, TEI_LOCATION_MAX, "cpu:%d", node);
    return 0;
}

int tei_mem_locate(const void *addr, const char *wanted, char out[TEI_LOCATION_MAX])
{
    bool given = wanted && strcmp(wanted, "*") != 0;
    struct tei_mem_info m;
    char here[TEI_LOCATION_MAX] = "*";
    int rc = 0;

    if (given && !is_location(wanted))
        return TEI_FAIL(TE_ERR_INVALID, "location '%.64s' is neither '*' nor like 'cpu:0'", wanted);
    if (addr)
        rc = look_up(addr, &m, here);
    if (rc)
        return rc;
    if (given && addr && !fits(&m, here, wanted))
        return TEI_FAIL(TE_ERR_INVALID, "location '%s' is not where %p is: in memory of %s", wanted,
                        addr, m.kind == TEI_MEM_HOST ? "the host" : here);
    /* One word for each kind, whichever was given. */
    snprintf(out, TEI_LOCATION_MAX, "%s",
             given && !(addr && m.kind != TEI_MEM_HOST) ? wanted : here);
    return 0;
}

int tei_mem_check_mapped(uintptr_t addr, size_t length)
{
    uintptr_t begin = addr & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);

    /* MS_ASYNC does nothing else than looking for ranges that are not mapped. */
    if (addr >> 56 || msync((void *)begin, length + (addr - begin), MS_ASYNC) == 0 ||
        errno != ENOMEM)
        return 0;
    return TEI_FAIL(TE_ERR_INVALID,
                    "region 0x%zx + %zu: not all of it is mapped in this process; register memory "
                    "once it is there, and unregister it before it is unmapped",
                    (size_t)addr, length);
}

/*
 * Prefers `node` for the range; a kernel without NUMA, or one that forbids it, leaves the default.
 */
static int bind_node(void *addr, size_t length, const char *location)
{
    unsigned long mask[16] = {0};
    unsigned long node = strtoul(strchr(location, ':') + 1, NULL, 10);
    size_t bits = 8 * sizeof(mask[0]);

    if (node >= TEI_ARRAY_LEN(mask) * bits)
        return TEI_FAIL(TE_ERR_NUMA, "there is no NUMA node %lu", node);
    mask[node / bits] = 1UL << (node % bits);
    if (syscall(SYS_mbind, addr, length, MPOL_PREFERRED, mask, sizeof(mask) * 8, 0) == 0)
        return 0;
    if (errno == ENOSYS || errno == EPERM)
        return 0;
    return TEI_FAIL(TE_ERR_NUMA, "binding memory to %s: %s", location, tei_errno_text(errno));
}

/* ------------------------------------------------------------------------------------- sharing */

#define SHARE_MIN ((size_t)64 << 10)
#define SHARES    1024 /* of a process: each costs a descriptor, and a quarter of these at most */

struct share {
    struct tei_share base;
    uintptr_t addr;
    _Atomic unsigned refs;
};

static pthread_mutex_t shares_lock = PTHREAD_MUTEX_INITIALIZER;
static void *shares; /* tsearch tree by address */
static size_t n_shares;

/* Ranges that touch are equal. */
static int compare(const void *a, const void *b)
{
    const struct share *x = a, *y = b;

    if (x->addr + (x->base.size - 1) < y->addr)
        return -1;
    return x->addr > y->addr + (y->base.size - 1);
}

/* A memfd of that size, -1 where the system refuses one. */
static int sealed_memfd(size_t length)
{
    struct rlimit limit;
    int fd;

    /* Beyond this limit a file is not merely refused, there is a signal. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < length)
        return -1;
    fd = tei_fd_own(memfd_create("te_alloc", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)length) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
        return fd;
    tei_fd_close(fd);
    return -1;
}

/* A forked child has none of that memory, and nobody there holds the lock. */
static void forget_in_child(void)
{
    pthread_mutex_init(&shares_lock, NULL);
    shares = NULL;
    n_shares = 0;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_in_child);
}

/* Sockets and the program's files need descriptors too. */
static size_t shares_max(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return SHARES;
    return tei_min(SHARES, (size_t)limit.rlim_cur / 4);
}

static bool add_share(struct share *s)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    size_t max = shares_max();
    bool added;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&shares_lock);
    added = n_shares < max && tsearch(s, &shares, compare);
    n_shares += added;
    pthread_mutex_unlock(&shares_lock);
    return added;
}

/* The whole of it, for us to write; then the last seal is put on. MAP_FAILED where that is refused. */
static void *map_and_seal(int fd, size_t length, bool peers_read)
{
    void *addr = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (addr == MAP_FAILED ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | (peers_read ? F_SEAL_FUTURE_WRITE : 0)) == 0)
        return addr;
    munmap(addr, length);
    return MAP_FAILED;
}

/* Maps shareable memory; MAP_FAILED where that is not to be had. */
static void *map_shared(size_t length, bool peers_read)
{
    static _Atomic uint64_t ids;
    struct share *s = calloc(1, sizeof(*s));
    void *addr = MAP_FAILED;
    int fd = s ? sealed_memfd(length) : -1;

    if (fd >= 0)
        addr = map_and_seal(fd, length, peers_read);
    if (addr != MAP_FAILED) {
        madvise(addr, length, MADV_DONTFORK);
        /* Pages of a memfd are huge only where they are asked for, and the system gives them. */
        if (length >= tei_huge_page())
            (void)madvise(addr, length, MADV_HUGEPAGE);
        s->base =
            (struct tei_share){.id = atomic_fetch_add_explicit(&ids, 1, memory_order_relaxed) + 1,
                               .fd = fd,
                               .size = length,
                               .read_only = peers_read};
        s->addr = (uintptr_t)addr;
        atomic_init(&s->refs, 1);
        if (add_share(s))
            return addr;
        munmap(addr, length);
    }
    if (fd >= 0)
        tei_fd_close(fd);
    free(s);
    return MAP_FAILED;
}

struct tei_share *tei_share_hold(uintptr_t addr, size_t length, size_t *offset)
{
    struct share key = {.addr = addr, .base.size = 1}, *s = NULL;
    struct share **node;

    pthread_mutex_lock(&shares_lock);
    node = tfind(&key, &shares, compare);
    if (node && length <= (*node)->base.size - (addr - (*node)->addr)) {
        s = *node;
        *offset = addr - s->addr;
        atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&shares_lock);
    return s ? &s->base : NULL;
}

struct tei_share *tei_share_get(struct tei_share *base)
{
    struct share *s = tei_container_of(base, struct share, base);

    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return base;
}

void tei_share_put(struct tei_share *base)
{
    struct share *s = tei_container_of(base, struct share, base);

    if (!base || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    tei_fd_close(base->fd);
    free(s);
}

/* Before the memory is unmapped, since its addresses may be another's right after. */
static void forget_share(void *addr)
{
    struct share key = {.addr = (uintptr_t)addr, .base.size = 1}, *s = NULL;
    struct share **node;

    pthread_mutex_lock(&shares_lock);
    node = tfind(&key, &shares, compare);
    if (node) {
        s = *node;
        tdelete(s, &shares, compare);
        n_shares--;
    }
    pthread_mutex_unlock(&shares_lock);
    if (s)
        tei_share_put(&s->base);
}

/* ---------------------------------------------------------------------------------- allocating */

static void *map_memory(size_t length, bool peers_read)
{
    void *addr = length >= SHARE_MIN ? map_shared(length, peers_read) : MAP_FAILED;

    if (addr == MAP_FAILED)
        addr = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return addr;
}

int tei_mem_alloc(size_t length, const char *location, bool peers_read, void **out)
{
    char where[TEI_LOCATION_MAX];
    void *addr;
    int rc;

    rc = tei_mem_locate(NULL, location, where);
    if (rc)
        return rc;
    if (strcmp(where, "*") != 0 && strncmp(where, "cpu:", 4) != 0)
        return TEI_FAIL(
            TE_ERR_UNSUPPORTED,
            "cannot allocate memory at '%s': there are 'cpu:N', 'cuda:N', 'hip:N' and '*'", where);
    addr = map_memory(length, peers_read);
    if (addr == MAP_FAILED)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for %zu bytes: %s", length,
                        tei_errno_text(errno));
    rc = where[0] == '*' ? 0 : bind_node(addr, length, where);
    if (rc) {
        tei_mem_free(addr, length);
        return rc;
    }
    *out = addr;
    return 0;
}

void tei_mem_free(void *addr, size_t length)
{
    forget_share(addr);
    munmap(addr, length);
}
