/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heap.c - memory of which a run gets the same addresses each time, since some of what the library does goes by
 * them. Sizes are rounded up, short ones to powers of two, so that a text of the real system that is a little longer,
 * such as the number of a process, changes nothing. What is freed is filled, so that whoever uses it meets
 * nonsense, and is given out again last. By a fault an allocation of the library fails in a thread of an
 * engine; what others ask for, other libraries among them, is always there. What the library has, and others for it,
 * is added up where that is asked for.
 */
#include "sim.h"

#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>

#define HEAP      ((size_t)64 << 30)
#define CLASSES   (4 * 36)
#define HEADER    64 /* keeps what follows aligned for all but pages */
#define FREED     0xd9
#define FILL_MOST 4096

struct block {
    size_t size;    /* that was asked for */
    unsigned class; /* size_of() it, this head among it */
    bool is_counted;
    struct block *next;
    void *start; /* of the block: before the head where an alignment was asked for */
};

_Static_assert(sizeof(struct block) <= HEADER, "fits");

static char *heap, *top;
static struct block *first[CLASSES], *last[CLASSES];
unsigned sim_memory_faults;
bool sim_heap_counts;
static size_t counted;
static bool
    locked; /* a thread that ends frees what is its own while no other runs, but beside one that begins */

static void lock(void)
{
    while (__atomic_test_and_set(&locked, __ATOMIC_ACQUIRE))
        ;
}

static void unlock(void)
{
    __atomic_clear(&locked, __ATOMIC_RELEASE);
}

static char *grow(size_t n)
{
    char *at;

    if (!heap) {
        heap = mmap((void *)0x100000000000, HEAP, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        top = heap;
    }
    if (heap == MAP_FAILED || (size_t)(heap + HEAP - top) < n)
        return NULL;
    at = top;
    top += n;
    return at;
}

/* Powers of two; beyond a page's quarter with three steps in between. */
static unsigned class_of(size_t n)
{
    unsigned power = n <= 128 ? 7 : 64 - (unsigned)__builtin_clzl(n - 1);
    size_t half = (size_t)1 << (power - 1);

    return power <= 10 ? 4 * power : 4 * power - 3 + (unsigned)((n - 1 - half) / (half / 4));
}

static size_t size_of(unsigned class)
{
    return ((size_t)1 << class / 4) + class % 4 * ((size_t)1 << class / 4) / 4;
}

/* *is_new: of bytes that nobody has had yet, which are 0. */
static void *take(size_t align, size_t size, bool *is_new)
{
    size_t head = align > HEADER ? align : HEADER;
    unsigned class;
    struct block *b;
    char *start;

    if (size > HEAP - head || (class = class_of(head + size)) >= CLASSES) {
        errno = ENOMEM;
        return NULL;
    }
    lock();
    *is_new = align > HEADER || !first[class];
    if (!*is_new) {
        b = first[class];
        first[class] = b->next;
        start = b->start;
    } else {
        size_t over = (size_t)(-(uintptr_t)top) % head; /* the first use maps the heap: aligned */

        start = grow(over + size_of(class));
        start = start ? start + over : NULL;
    }
    unlock();
    if (!start) {
        errno = ENOMEM;
        return NULL;
    }
    b = (struct block *)(void *)(start + head - HEADER);
    *b = (struct block){.size = size, .class = align <= HEADER ? class : CLASSES, .start = start};
    return start + head;
}

struct range {
    const char *name;
    uintptr_t begin, end;
};

/* That of what has such a name; the program's own is empty. */
static int find_range(struct dl_phdr_info *info, size_t size, void *out)
{
    struct range *r = out;

    (void)size;
    if (*r->name ? !strstr(info->dlpi_name, r->name) : *info->dlpi_name)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_flags & PF_X) {
            r->begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            r->end = r->begin + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

static bool is_in(const void *caller, struct range *r)
{
    if (!r->end)
        dl_iterate_phdr(find_range, r);
    return (uintptr_t)caller >= r->begin && (uintptr_t)caller < r->end;
}

static bool is_refused(const void *caller)
{
    static struct range library = {.name = "libtransfer_engine"};

    if (!sim_memory_faults || !sim_is_engine() || !is_in(caller, &library) ||
        !sim_one_in(sim_memory_faults))
        return false;
    errno = ENOMEM;
    return true;
}

static struct block *block_of(void *p)
{
    return (struct block *)(void *)((char *)p - HEADER);
}

static void *give(const void *caller, size_t align, size_t n, bool *is_new)
{
    static struct range program = {.name = ""};
    void *p = is_refused(caller) ? NULL : take(align, n, is_new);

    if (p && sim_heap_counts && !is_in(caller, &program)) {
        block_of(p)->is_counted = true;
        counted += n;
    }
    return p;
}

void *malloc(size_t n)
{
    bool is_new;

    return give(__builtin_return_address(0), HEADER, n, &is_new);
}

/* Of an alignment of pages a block is not used again: it is rare. */
void free(void *p)
{
    struct block *b;

    if (!p)
        return;
    b = block_of(p);
    if (b->size == SIZE_MAX)
        sim_fail("%p is freed twice", p);
    memset(p, FREED, b->size < FILL_MOST ? b->size : FILL_MOST);
    counted -= b->is_counted ? b->size : 0;
    b->size = SIZE_MAX;
    if (b->class == CLASSES)
        return;
    lock();
    b->next = NULL;
    if (first[b->class])
        last[b->class]->next = b;
    else
        first[b->class] = b;
    last[b->class] = b;
    unlock();
}

void *calloc(size_t n, size_t size)
{
    size_t bytes;
    bool is_new;
    void *p;

    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    p = give(__builtin_return_address(0), HEADER, bytes, &is_new);
    return p && !is_new ? memset(p, 0, bytes) : p;
}

void *realloc(void *old, size_t n)
{
    bool is_new;
    void *p = give(__builtin_return_address(0), HEADER, n, &is_new);

    if (p && old) {
        memcpy(p, old, block_of(old)->size < n ? block_of(old)->size : n);
        free(old);
    }
    return p;
}

void *reallocarray(void *old, size_t n, size_t size)
{
    size_t bytes;

    if (!__builtin_mul_overflow(n, size, &bytes))
        return realloc(old, bytes);
    errno = ENOMEM;
    return NULL;
}

void *aligned_alloc(size_t align, size_t n)
{
    bool is_new;

    return give(__builtin_return_address(0), align, n, &is_new);
}

void *memalign(size_t align, size_t n)
{
    bool is_new;

    return take(align, n, &is_new);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    bool is_new;
    void *p = give(__builtin_return_address(0), align, n, &is_new);

    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

size_t malloc_usable_size(void *p)
{
    return p ? block_of(p)->size : 0;
}

size_t sim_heap_counted(void)
{
    return counted;
}
