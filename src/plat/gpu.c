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
#include "base/here.h"

#include <ctype.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum state { ABSENT, FOUND, OPEN, LOST };

static struct driver {
    _Atomic int state;
    _Atomic int used; /* the first device that was entered, and 1 more */
    int devices;
    unsigned long long adds; /* libraries that the process had loaded so far when it was ABSENT */
} drivers[TEI_MEM_KINDS];

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
    return kind < TEI_MEM_KINDS && tei_drivers[kind].api ? &drivers[kind] : NULL;
}

static struct tei_driver *row_at(const struct driver *d)
{
    return &tei_drivers[d - drivers];
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

/* By the runtime's code, or by the status that it was made; NULL if it is not known. */
static const struct tei_gpu_error *find_error(const struct tei_api *api, int number)
{
    for (size_t i = 0; i < api->n_errors; i++)
        if (api->errors[i].code == number || api->errors[i].status == number)
            return &api->errors[i];
    return NULL;
}

int tei_gpu_status(const struct tei_api *api, int code)
{
    const struct tei_gpu_error *e = code ? find_error(api, code) : NULL;

    return e ? e->status : code;
}

const char *tei_gpu_why(const struct tei_driver *d, int status)
{
    static _Thread_local char text[256];
    const struct tei_gpu_error *e = find_error(d->api, status);

    if (d->api->error_name)
        snprintf(text, sizeof(text), "%s: %s", d->api->error_name(d, status),
                 d->api->error_text(d, status));
    else if (e)
        snprintf(text, sizeof(text), "%s: %s", e->name, e->text);
    else
        snprintf(text, sizeof(text), "%s error %d", d->title, status);
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

/* A function by the maker's name for it. Where the api has two versions of one, a maker may have one. */
static void *find_symbol(const struct tei_driver *row, const struct tei_symbol *s, void *library,
                         char name[64])
{
    void *at;
    char *end;

    snprintf(name, 64, "%s%s", row->prefix, s->name + strlen(row->api->prefix));
    at = dlsym(library, name);
    end = name + strlen(name) - 3;
    if (!at && strcmp(row->prefix, row->api->prefix) != 0 && strcmp(end, "_v2") == 0) {
        *end = '\0';
        at = dlsym(library, name);
    }
    return at;
}

static int fill_table(struct tei_driver *row, void *library)
{
    if (!row->table)
        row->table = calloc(1, row->api->table);
    if (!row->table)
        return tei_gpu_keep(TE_ERR_MEMORY, "no memory for the calls of the %s driver", row->title);
    for (size_t i = 0; i < row->api->n_symbols; i++) {
        const struct tei_symbol *s = &row->api->symbols[i];
        char name[64];
        void *at = find_symbol(row, s, library, name);

        if (!at && s->required)
            return tei_gpu_keep(TE_ERR_UNSUPPORTED, "the %s library has no %s: it is too old",
                                row->title, name);
        memcpy((char *)row->table + s->at, &at, sizeof(at));
    }
    return 0;
}

/* ABSENT to FOUND; the lock is held. */
static int find(struct driver *d, int flags)
{
    void *library = open_library(row_at(d), RTLD_NOLOAD);
    int rc;

    if (!library && !(flags & RTLD_NOLOAD))
        library = open_library(row_at(d), 0);
    if (!library)
        return tei_gpu_keep(TE_ERR_UNSUPPORTED, "there is no %s driver: %s", row_at(d)->title,
                            flags & RTLD_NOLOAD ? "it is not loaded" : dlerror());
    rc = fill_table(row_at(d), library);
    if (rc)
        dlclose(library);
    else
        set_state(d, FOUND);
    return rc;
}

/* FOUND to OPEN; the lock is held. */
static int initialise(struct driver *d)
{
    int n = 0, status = row_at(d)->api->init(row_at(d), &n);

    if (status && status != TEI_GPU_NO_DEVICE)
        return tei_gpu_keep(TE_ERR_UNSUPPORTED, "the %s driver does not start: %s",
                            row_at(d)->title, tei_gpu_why(row_at(d), status));
    if (status || n <= 0)
        return tei_gpu_keep(TE_ERR_UNSUPPORTED, "the %s driver has no device", row_at(d)->title);
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

/* Whether it has a name like one of the files, whatever its version: 1 ends the search. */
static int is_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    const struct tei_driver *row = arg;
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;

    (void)size;
    for (const char *const *file = row->files; *file; file++) {
        const char *end = strstr(*file, ".so");

        if (strncmp(name, *file, (size_t)(end - *file) + strlen(".so")) == 0)
            return 1;
    }
    return 0;
}

/*
 * Under the lock. Asking for a library by name has the loader look for its file, so only one that is
 * there is asked for, and only once others have been loaded.
 */
static void look_again(struct driver *d)
{
    unsigned long long adds = 0;

    dl_iterate_phdr(note_adds, &adds);
    if (adds == d->adds)
        return;
    if (dl_iterate_phdr(is_library, row_at(d)))
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
    return s == FOUND || s == OPEN ? row_at(d) : NULL;
}

bool tei_gpu_is_loaded(enum tei_mem_kind kind)
{
    return tei_driver_loaded(kind, true) != NULL;
}

const char *tei_gpu_title(enum tei_mem_kind kind)
{
    return driver_of(kind) ? tei_drivers[kind].title : "";
}

bool tei_gpu_is_there(enum tei_mem_kind kind)
{
    struct driver *d = driver_of(kind);
    void *library;

    if (!d || tei_gpu_is_loaded(kind))
        return d;
    library = open_library(row_at(d), 0);
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
                                                "(TE_USE_CUDA, TE_USE_HIP, TE_USE_ASCEND, ...)");
    if (state_of(d) == OPEN)
        return 0;
    take_lock();
    if (state_of(d) == LOST)
        rc = tei_gpu_keep(TE_ERR_UNSUPPORTED,
                          "the %s driver was in use when this process was forked off: it works in "
                          "the parent only",
                          row_at(d)->title);
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
        return row_at(d);
    tei_gpu_keep(TE_ERR_UNSUPPORTED, "%s has not been opened", d ? row_at(d)->title : "no driver");
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
    if (!row->api->pci)
        return tei_gpu_keep(TE_ERR_UNSUPPORTED, "%s does not say PCI addresses", row->title);
    status = row->api->pci(row, device, text, (int)sizeof(text));
    if (status)
        return TEI_FAIL(TE_ERR_NO_DEVICE, "the PCI address of %s:%d: %s", row->name, device,
                        tei_gpu_why(row, status));
    for (char *c = text; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    memcpy(out, text, sizeof(text));
    return 0;
}

/* Of a device whose driver has no number: by its host and its number there. Zeros if the host has no name. */
static int name_by_host(enum tei_mem_kind kind, int device, uint8_t out[16])
{
    static const uint8_t nonce[TEI_HERE_NONCE];
    const uint16_t name[2] = {(uint16_t)kind, (uint16_t)device};
    struct tei_here here;

    memset(out, 0, 16);
    tei_here(nonce, &here);
    if (here.host[0]) {
        memcpy(out, name, sizeof(name));
        memcpy(out + sizeof(name), here.host, 16 - sizeof(name));
    }
    return 0;
}

int tei_gpu_uuid(enum tei_mem_kind kind, int device, uint8_t out[16])
{
    int rc, status;
    const struct tei_driver *row = row_of(kind, device, &rc);

    if (!row)
        return rc;
    status = row->api->uuid(row, device, out);
    if (status == TEI_GPU_NOT_SUPPORTED)
        return name_by_host(kind, device, out);
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
    status = row->api->enter(row, device, was);
    if (status)
        return TEI_FAIL(TE_ERR_CONTEXT, "a context on %s:%d: %s", row->name, device,
                        tei_gpu_why(row, status));
    atomic_compare_exchange_strong_explicit(&drivers[kind].used, &none, device + 1,
                                            memory_order_relaxed, memory_order_relaxed);
    return 0;
}

void tei_gpu_leave(enum tei_mem_kind kind, int was)
{
    tei_drivers[kind].api->leave(&tei_drivers[kind], was);
}

int tei_gpu_context(const struct tei_driver *d, int device,
                    int (*make)(const struct tei_driver *d, int device, void **out), void **out)
{
    static pthread_mutex_t make_lock = PTHREAD_MUTEX_INITIALIZER;
    struct tei_driver *row = &tei_drivers[d - tei_drivers];
    int status = 0;

    /* Acquire: pairs with the release below. */
    *out = atomic_load_explicit(&row->contexts[device], memory_order_acquire);
    if (*out)
        return 0;
    pthread_mutex_lock(&make_lock);
    *out = atomic_load_explicit(&row->contexts[device], memory_order_relaxed);
    if (!*out) {
        status = make(d, device, out);
        if (!status)
            atomic_store_explicit(&row->contexts[device], *out, memory_order_release);
    }
    pthread_mutex_unlock(&make_lock);
    return status;
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
    row = &tei_drivers[kind];
    status = row->api->pin(row, addr, length);
    row->api->leave(row, was);
    if (status == TEI_GPU_ALREADY_PINNED)
        return tei_gpu_keep(TE_ERR_OVERLAP, "somebody else has pinned memory at %p", addr);
    if (status == TEI_GPU_NOT_SUPPORTED)
        return tei_gpu_keep(TE_ERR_UNSUPPORTED, "%s does not pin memory of others", row->title);
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
    row = &tei_drivers[kind];
    status = row->api->unpin(row, addr);
    row->api->leave(row, was);
    if (status)
        TEI_WARN("unpinning the memory at %p: %s", addr, tei_gpu_why(row, status));
}
