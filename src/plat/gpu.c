/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.c - which drivers of devices there are.
 *
 * A driver is in one of four states. ABSENT: the process has not loaded it, as far as we have
 * looked. FOUND: its symbols are in the row's table, nothing has been initialised by us; addresses
 * are asked about from here on. OPEN: initialised, its devices are counted. LOST: it was OPEN, and
 * this process is a forked child, where no driver works: there is no memory of devices then.
 * States are changed under the lock, and read without it. A library stays loaded for good.
 */
#include "plat/gpu.h"

#include "base/err.h"

#include <ctype.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum state { ABSENT, FOUND, OPEN, LOST };

static struct driver {
    const struct tei_driver *row;
    _Atomic int state;
    _Atomic int used; /* the first device that was entered, and 1 more */
    int devices;
    unsigned long long adds; /* libraries that the process had loaded so far when it was ABSENT */
} drivers[TEI_MEM_KINDS] = {
#if TE_USE_CUDA
    [TEI_MEM_CUDA] = {.row = &tei_driver_cuda},
#endif
#if TE_USE_HIP
    [TEI_MEM_HIP] = {.row = &tei_driver_hip},
#endif
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Acquire: pairs with set_state(), so that what is in the row's table is seen. */
static enum state state_of(const struct driver *d)
{
    return (enum state)atomic_load_explicit(&d->state, memory_order_acquire);
}

static void set_state(struct driver *d, enum state s)
{
    atomic_store_explicit(&d->state, (int)s, memory_order_release);
}

static struct driver *driver_of(enum tei_mem_kind kind)
{
    return kind < TEI_MEM_KINDS && drivers[kind].row ? &drivers[kind] : NULL;
}

/* Nobody in the child holds the lock. */
static void forget_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    for (size_t i = 0; i < TEI_ARRAY_LEN(drivers); i++)
        if (state_of(&drivers[i]) == OPEN)
            set_state(&drivers[i], LOST);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_in_child);
}

static void take_lock(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
}

int tei_gpu_keep(int code, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return tei_err_keep(code, text);
}

const char *tei_gpu_why(const struct tei_driver *d, int status)
{
    static _Thread_local char text[256];

    snprintf(text, sizeof(text), "%s: %s", d->error_name(status), d->error_text(status));
    return text;
}

/* ---------------------------------------------------------------------------- finding and opening */

/* The library, as far as `flags` (RTLD_NOLOAD or none) let it be opened. */
static void *open_library(const struct tei_driver *row, int flags)
{
    void *library = NULL;

    for (const char *const *file = row->files; *file && !library; file++)
        library = dlopen(*file, RTLD_NOW | RTLD_LOCAL | flags);
    return library;
}

static int fill_table(const struct tei_driver *row, void *library)
{
    for (size_t i = 0; i < row->n_symbols; i++) {
        const struct tei_symbol *s = &row->symbols[i];
        void *at = dlsym(library, s->name);

        if (!at && s->required)
            return tei_gpu_keep(TE_ERR_UNSUPPORTED, "the %s library has no %s: it is too old",
                                row->title, s->name);
        memcpy((char *)row->table + s->at, &at, sizeof(at));
    }
    return 0;
}

/* ABSENT to FOUND; the lock is held. */
static int find(struct driver *d, int flags)
{
    void *library = open_library(d->row, RTLD_NOLOAD);
    int rc;

    if (!library && !(flags & RTLD_NOLOAD))
        library = open_library(d->row, 0);
    if (!library)
        return tei_gpu_keep(TE_ERR_UNSUPPORTED, "there is no %s driver: %s", d->row->title,
                            flags & RTLD_NOLOAD ? "it is not loaded" : dlerror());
    rc = fill_table(d->row, library);
    if (rc)
        dlclose(library);
    else
        set_state(d, FOUND);
    return rc;
}

/* FOUND to OPEN; the lock is held. */
static int initialise(struct driver *d)
{
    int n = 0, status = d->row->init(&n);

    if (status && status != TEI_GPU_NO_DEVICE)
        return tei_gpu_keep(TE_ERR_UNSUPPORTED, "the %s driver does not start: %s", d->row->title,
                            tei_gpu_why(d->row, status));
    if (status || n <= 0)
        return tei_gpu_keep(TE_ERR_UNSUPPORTED, "the %s driver has no device", d->row->title);
    d->devices = n < TEI_GPU_DEVICES ? n : TEI_GPU_DEVICES;
    set_state(d, OPEN);
    return 0;
}

static int note_adds(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(unsigned long long *)arg = info->dlpi_adds;
    return 1; /* the first one tells */
}

/* Under the lock. Asking for a library by name takes long, so only once others have been loaded. */
static void look_again(struct driver *d)
{
    unsigned long long adds = 0;

    dl_iterate_phdr(note_adds, &adds);
    if (adds == d->adds)
        return;
    (void)find(d, RTLD_NOLOAD);
    dl_iterate_phdr(note_adds, &d->adds);
}

const struct tei_driver *tei_driver_loaded(enum tei_mem_kind kind, bool fresh)
{
    struct driver *d = driver_of(kind);
    enum state s = d ? state_of(d) : LOST;

    if (s == ABSENT && fresh) {
        take_lock();
        if (state_of(d) == ABSENT)
            look_again(d);
        pthread_mutex_unlock(&lock);
        s = state_of(d);
    }
    return s == FOUND || s == OPEN ? d->row : NULL;
}

bool tei_gpu_is_loaded(enum tei_mem_kind kind)
{
    return tei_driver_loaded(kind, true) != NULL;
}

bool tei_gpu_is_there(enum tei_mem_kind kind)
{
    struct driver *d = driver_of(kind);
    void *library;

    if (!d || tei_gpu_is_loaded(kind))
        return d;
    library = open_library(d->row, 0);
    if (library)
        dlclose(library);
    return library;
}

int tei_gpu_open(enum tei_mem_kind kind)
{
    struct driver *d = driver_of(kind);
    int rc = 0;

    if (!d)
        return tei_gpu_keep(TE_ERR_UNSUPPORTED, "this build has no driver for this kind of memory "
                                                "(TE_USE_CUDA, TE_USE_HIP)");
    if (state_of(d) == OPEN)
        return 0;
    take_lock();
    if (state_of(d) == LOST)
        rc = tei_gpu_keep(TE_ERR_UNSUPPORTED,
                          "the %s driver was in use when this process was forked off: it works in "
                          "the parent only",
                          d->row->title);
    if (!rc && state_of(d) == ABSENT)
        rc = find(d, 0);
    if (!rc && state_of(d) == FOUND)
        rc = initialise(d);
    pthread_mutex_unlock(&lock);
    return rc;
}

const struct tei_driver *tei_driver_open(enum tei_mem_kind kind)
{
    struct driver *d = driver_of(kind);

    if (d && state_of(d) == OPEN)
        return d->row;
    tei_gpu_keep(TE_ERR_UNSUPPORTED, "%s has not been opened", d ? d->row->title : "no driver");
    return NULL;
}

/* ---------------------------------------------------------------------------------------- devices */

int tei_gpu_count(enum tei_mem_kind kind)
{
    return tei_driver_open(kind) ? drivers[kind].devices : 0;
}

/* The row, if there is such a device; else NULL, and the code in *rc. */
static const struct tei_driver *row_of(enum tei_mem_kind kind, int device, int *rc)
{
    const struct tei_driver *row = tei_driver_open(kind);

    *rc = row ? 0 : TE_ERR_UNSUPPORTED;
    if (row && (device < 0 || device >= drivers[kind].devices)) {
        *rc = TEI_FAIL(TE_ERR_NO_DEVICE, "there is no %s:%d: the driver has %d", row->name, device,
                       drivers[kind].devices);
        row = NULL;
    }
    return row;
}

int tei_gpu_pci(enum tei_mem_kind kind, int device, char out[16])
{
    char text[16] = "";
    int rc, status;
    const struct tei_driver *row = row_of(kind, device, &rc);

    if (!row)
        return rc;
    status = row->pci(device, text, (int)sizeof(text));
    if (status)
        return TEI_FAIL(TE_ERR_NO_DEVICE, "the PCI address of %s:%d: %s", row->name, device,
                        tei_gpu_why(row, status));
    for (char *c = text; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    memcpy(out, text, sizeof(text));
    return 0;
}

int tei_gpu_uuid(enum tei_mem_kind kind, int device, uint8_t out[16])
{
    int rc, status;
    const struct tei_driver *row = row_of(kind, device, &rc);

    if (!row)
        return rc;
    status = row->uuid(device, out);
    if (status)
        return TEI_FAIL(TE_ERR_NO_DEVICE, "the number of %s:%d: %s", row->name, device,
                        tei_gpu_why(row, status));
    return 0;
}

int tei_gpu_enter(enum tei_mem_kind kind, int device, int *was)
{
    int rc, status, none = 0;
    const struct tei_driver *row = row_of(kind, device, &rc);

    if (!row)
        return rc;
    status = row->enter(device, was);
    if (status)
        return TEI_FAIL(TE_ERR_CONTEXT, "a context on %s:%d: %s", row->name, device,
                        tei_gpu_why(row, status));
    atomic_compare_exchange_strong_explicit(&drivers[kind].used, &none, device + 1,
                                            memory_order_relaxed, memory_order_relaxed);
    return 0;
}

void tei_gpu_leave(enum tei_mem_kind kind, int was)
{
    drivers[kind].row->leave(was);
}

/* ---------------------------------------------------------------------------------- pinned memory */

/* Enters a device that is in use anyway: pinning needs one, and it does not matter which. */
static int enter_any(enum tei_mem_kind kind, int *was)
{
    const struct tei_driver *row = tei_driver_open(kind);
    int used = row ? atomic_load_explicit(&drivers[kind].used, memory_order_relaxed) : 0;

    if (!row)
        return TE_ERR_UNSUPPORTED;
    if (used == 0)
        return tei_gpu_keep(TE_ERR_UNSUPPORTED, "no %s device is in use", row->title);
    return tei_gpu_enter(kind, used - 1, was);
}

int tei_gpu_pin(enum tei_mem_kind kind, void *addr, size_t length)
{
    int was, status, rc = enter_any(kind, &was);
    const struct tei_driver *row;

    if (rc)
        return rc;
    row = drivers[kind].row;
    status = row->pin(addr, length);
    row->leave(was);
    if (status == TEI_GPU_ALREADY_PINNED)
        return tei_gpu_keep(TE_ERR_OVERLAP, "somebody else has pinned memory at %p", addr);
    if (status)
        return TEI_FAIL(TE_ERR_MEMORY, "pinning %zu bytes at %p: %s", length, addr,
                        tei_gpu_why(row, status));
    return 0;
}

void tei_gpu_unpin(enum tei_mem_kind kind, void *addr)
{
    int was, status;
    const struct tei_driver *row;

    if (enter_any(kind, &was) != 0)
        return;
    row = drivers[kind].row;
    status = row->unpin(addr);
    row->leave(was);
    if (status)
        TEI_WARN("unpinning the memory at %p: %s", addr, tei_gpu_why(row, status));
}
