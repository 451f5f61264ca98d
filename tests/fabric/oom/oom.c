/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/oom/oom.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

/* glibc's own, under the names that it exports for those who stand in for malloc(). */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
extern void __libc_free(void *block);

#define SLOTS_LOG2  18
#define SLOTS       ((size_t)1 << SLOTS_LOG2)
#define KEPT_FRAMES 12
#define SPARED_MAX  4

/* ---- what fails */

static _Atomic bool armed;
static _Atomic uint64_t first, seen, failed;
static _Atomic bool onwards_too, linker_failed;
static void *where[OOM_FRAMES];
static _Atomic int n_where;
static struct {
    uintptr_t begin, end;
} spared_ranges[SPARED_MAX];
static _Atomic size_t n_spared;
/* Set while this thread looks at itself. In the static block: to take memory here would not end. */
static _Thread_local bool inside __attribute__((tls_model("initial-exec")));

void oom_arm(uint64_t n, bool onwards)
{
    first = n;
    onwards_too = onwards;
    seen = failed = 0;
    linker_failed = false;
    n_where = 0;
    armed = true;
}

void oom_disarm(void)
{
    armed = false;
}

uint64_t oom_seen(void)
{
    return seen;
}

uint64_t oom_failed(void)
{
    return failed;
}

bool oom_linker_failed(void)
{
    return linker_failed;
}

int oom_where(void *frames[OOM_FRAMES])
{
    memcpy(frames, where, sizeof(where));
    return n_where;
}

static bool is_spared(void *const *frames, int n)
{
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < n_spared; k++)
            if ((uintptr_t)frames[i] >= spared_ranges[k].begin &&
                (uintptr_t)frames[i] < spared_ranges[k].end)
                return true;
    return false;
}

static uintptr_t linker_begin, linker_end;

static bool is_linker(const void *caller)
{
    return (uintptr_t)caller >= linker_begin && (uintptr_t)caller < linker_end;
}

/* Whether this allocation is to fail. */
static bool fails(const void *caller)
{
    void *frames[OOM_FRAMES];
    uint64_t n;
    int depth;

    if (!armed || inside)
        return false;
    inside = true;
    depth = backtrace(frames, OOM_FRAMES);
    inside = false;
    if (is_spared(frames, depth))
        return false;
    n = ++seen;
    if (first == 0 || n < first || (n > first && !onwards_too))
        return false;
    failed++;
    if (is_linker(caller))
        linker_failed = true;
    memcpy(where, frames, sizeof(frames));
    n_where = depth;
    errno = ENOMEM;
    return true;
}

/* ---- what is live: a hash table with open addresses */

struct slot {
    void *block;     /* NULL: free */
    uint64_t serial; /* in the order of allocation */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot slots[SLOTS];
static void *(*places)[KEPT_FRAMES]; /* of each slot; NULL: not kept */
static uint64_t serial, mark;

static size_t home(const void *block)
{
    return (size_t)(((uint64_t)(uintptr_t)block * 0x9E3779B97F4A7C15u) >> (64 - SLOTS_LOG2));
}

static void keep_place(size_t i)
{
    void *frames[KEPT_FRAMES + 3] = {0};

    if (!places)
        return;
    inside = true;
    backtrace(frames, KEPT_FRAMES + 3);
    inside = false;
    memcpy(places[i], frames + 3, sizeof(places[i]));
}

static void enter(void *block, const void *caller)
{
    size_t i = home(block);

    if (!block || inside || is_linker(caller))
        return;
    pthread_mutex_lock(&lock);
    while (slots[i].block)
        i = (i + 1) % SLOTS;
    slots[i] = (struct slot){block, ++serial};
    keep_place(i);
    pthread_mutex_unlock(&lock);
}

/* Moves those up that stand behind a gap and belong at or before it. */
static void close_gap(size_t gap)
{
    for (size_t i = (gap + 1) % SLOTS; slots[i].block; i = (i + 1) % SLOTS) {
        size_t h = home(slots[i].block);

        if ((i - h) % SLOTS < (i - gap) % SLOTS)
            continue;
        slots[gap] = slots[i];
        if (places)
            memcpy(places[gap], places[i], sizeof(places[i]));
        gap = i;
    }
    slots[gap].block = NULL;
}

static void leave(void *block)
{
    if (!block || inside)
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = home(block); slots[i].block; i = (i + 1) % SLOTS) {
        if (slots[i].block == block) {
            close_gap(i);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

void oom_mark(void)
{
    pthread_mutex_lock(&lock);
    mark = serial;
    pthread_mutex_unlock(&lock);
}

size_t oom_leaks(void)
{
    size_t n = 0;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < SLOTS; i++)
        n += slots[i].block && slots[i].serial > mark;
    pthread_mutex_unlock(&lock);
    return n;
}

void oom_tell_leaks(int fd)
{
    inside = true;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < SLOTS; i++) {
        int n = 0;

        if (!slots[i].block || slots[i].serial <= mark)
            continue;
        dprintf(fd, "block %p:\n", slots[i].block);
        while (places && n < KEPT_FRAMES && places[i][n])
            n++;
        if (n > 0)
            backtrace_symbols_fd(places[i], n, fd);
    }
    pthread_mutex_unlock(&lock);
    inside = false;
}

/* ---- the functions */

#define CALLER __builtin_return_address(0)

static void *entered(void *block, const void *caller)
{
    enter(block, caller);
    return block;
}

void *malloc(size_t size)
{
    return fails(CALLER) ? NULL : entered(__libc_malloc(size), CALLER);
}

void *calloc(size_t n, size_t size)
{
    return fails(CALLER) ? NULL : entered(__libc_calloc(n, size), CALLER);
}

/* Taken out before: another thread may be given its address as soon as it is free. */
void *realloc(void *block, size_t size)
{
    void *moved;

    if (fails(CALLER))
        return NULL;
    leave(block);
    moved = __libc_realloc(block, size);
    enter(moved || size == 0 ? moved : block, CALLER);
    return moved;
}

void *reallocarray(void *block, size_t n, size_t size)
{
    size_t total;

    if (__builtin_mul_overflow(n, size, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, total);
}

void *memalign(size_t align, size_t size)
{
    return fails(CALLER) ? NULL : entered(__libc_memalign(align, size), CALLER);
}

void *aligned_alloc(size_t align, size_t size)
{
    return memalign(align, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
    void *block = memalign(align, size);

    if (!block)
        return ENOMEM;
    *out = block;
    return 0;
}

void free(void *block)
{
    leave(block);
    __libc_free(block);
}

/* ---- where libraries are */

struct search {
    const char *name;
    uintptr_t base, begin, end; /* of the library found, if base or name is its own */
};

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *s = arg;

    (void)size;
    if (s->name ? strncmp(file_name(info->dlpi_name), s->name, strlen(s->name)) != 0
                : info->dlpi_addr != s->base)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        if (!s->begin || begin < s->begin)
            s->begin = begin;
        if (begin + info->dlpi_phdr[i].p_memsz > s->end)
            s->end = begin + info->dlpi_phdr[i].p_memsz;
    }
    return 1;
}

static void spare(uintptr_t begin, uintptr_t end)
{
    if (n_spared == SPARED_MAX)
        abort();
    spared_ranges[n_spared].begin = begin;
    spared_ranges[n_spared].end = end;
    n_spared++;
}

void oom_spare(const char *name)
{
    struct search s = {.name = name};

    if (dl_iterate_phdr(look_at, &s))
        spare(s.begin, s.end);
}

void oom_spare_function(const char *name)
{
    void *at = dlsym(RTLD_DEFAULT, name);
    const ElfW(Sym) *symbol = NULL;
    Dl_info info;

    if (at && dladdr1(at, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol)
        spare((uintptr_t)at, (uintptr_t)at + symbol->st_size);
}

__attribute__((constructor)) static void prepare(void)
{
    struct search linker = {.base = getauxval(AT_BASE)};
    void *frames[1];

    inside = true;
    backtrace(frames, 1); /* loads what it needs */
    if (dl_iterate_phdr(look_at, &linker)) {
        linker_begin = linker.begin;
        linker_end = linker.end;
    }
    if (getenv("OOM_TRACE")) {
        void *kept = mmap(NULL, sizeof(*places) * SLOTS, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        places = kept == MAP_FAILED ? NULL : kept;
    }
    inside = false;
}
