/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvmeof_cufile.c - files and memory of NVIDIA's GPUs, by cuFile (GPUDirect Storage).
 *
 * The library is opened with the first region of such memory; where it is not there, or does not
 * take the region, the core moves the bytes through host memory. Its calls block, so threads make
 * them. A file is registered with it as it is opened, by its descriptor for direct I/O. cuFile does
 * not tell two writers of one page apart, and some files it does not take: the parts of pages at the
 * ends of a write, and all I/O of such files, go through an I/O's bounce buffer as unaligned memory
 * of the host does, and these threads copy between that and the GPU.
 */
#include "base/err.h"
#include "plat/plat.h"
#include "transport/nvmeof/cufile.h"
#include "transport/nvmeof/nvmeof.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libcufile.so.0"

struct nvmeof_gpu {
    struct nvmeof_pool *pool;
};

/* What is registered with the library, for all engines: it takes memory once, and knows it by `addr`. */
struct memory {
    struct memory *next;
    const char *addr;
    size_t length;
    unsigned users;
};

/* The library is the process's, and so is what it has opened. */
static struct {
    pthread_mutex_t lock;
    struct memory *memories;
    struct cufile api; /* `library` NULL: not opened yet; it stays */
    unsigned users;
    bool ours; /* its driver was opened here, not by the program */
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct {
    const char *name;
    size_t at; /* of the member in struct cufile */
} symbols[] = {
#define SYMBOL(member, symbol, type, arguments) {symbol, offsetof(struct cufile, member)},
    CUFILE_SYMBOLS(SYMBOL)
#undef SYMBOL
};

static const char *text_of(int error)
{
    switch (error) {
#define TEXT(number, name, text) \
    case CUFILE_##name:          \
        return text;
        CUFILE_ERRORS(TEXT)
#undef TEXT
    default:
        return "an error of no known meaning";
    }
}

/* -------------------------------------------------------------------------------------- the library */

/* False, and `why`. */
static bool load(struct cufile *out, char *why, size_t n)
{
    struct cufile c = {.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)};

    if (!c.library) {
        snprintf(why, n, "%s", dlerror());
        return false;
    }
    for (size_t i = 0; i < TEI_ARRAY_LEN(symbols); i++) {
        void *at = dlsym(c.library, symbols[i].name);

        if (!at && symbols[i].at == offsetof(struct cufile, driver_close)) {
            at = dlsym(c.library, CUFILE_DRIVER_CLOSE_OLD);
        } else if (!at) {
            snprintf(why, n, LIBRARY " has no %s", symbols[i].name);
            dlclose(c.library);
            return false;
        }
        memcpy((char *)&c + symbols[i].at, &at, sizeof at);
    }
    *out = c;
    return true;
}

/* One more user of the driver. False, and `why`. */
static bool open_driver(char *why, size_t n)
{
    struct cufile_error e = {0};

    if (!shared.api.library && !load(&shared.api, why, n))
        return false;
    if (shared.users == 0) {
        e = shared.api.driver_open();
        shared.ours = e.err == 0;
    }
    if (e.err && e.err != CUFILE_ALREADY_OPEN) {
        snprintf(why, n, "cuFileDriverOpen: %s (%d)", text_of(e.err), e.err);
        return false;
    }
    shared.users++;
    return true;
}

static void close_driver(void)
{
    if (--shared.users == 0 && shared.ours && shared.api.driver_close)
        (void)shared.api.driver_close();
}

/* --------------------------------------------------------------------------------- one I/O's step */

static void trouble(struct nvmeof_io *io, int error, const char *text)
{
    io->error = error;
    io->trouble = text;
}

/* What a file is not for, however often it is tried. */
static bool is_of_file(int error)
{
    return error == CUFILE_FILE_UNSUPPORTED || error == CUFILE_FILE_TYPE ||
           error == CUFILE_FILE_FLAGS || error == CUFILE_NOT_DIRECT || error == CUFILE_DISABLED;
}

static int code_of(int error)
{
    if (is_of_file(error))
        return TE_ERR_UNSUPPORTED;
    return error == CUFILE_DENIED ? TE_ERR_ACCESS : TE_ERR_CONTEXT;
}

/* What -1 means. That there is no errno is no success. */
static int64_t failed(void)
{
    return errno > 0 ? -errno : -EIO;
}

/* Bytes, or a negative errno; where cuFile has a word of its own, that is the I/O's trouble. */
static int64_t move(struct nvmeof_io *io)
{
    char *from = (char *)io->work->entry.base.region->addr;
    size_t n = (size_t)(io->length - io->done);
    off_t at = (off_t)(io->at + io->done), into = io->memory + io->done - from;
    void *handle = io->file->cufile;
    ssize_t rc;

    errno = 0;
    rc = io->write ? shared.api.write(handle, from, n, at, into)
                   : shared.api.read(handle, from, n, at, into);
    if (rc < -1) {
        trouble(io, code_of((int)-rc), text_of((int)-rc));
        io->refused = is_of_file((int)-rc);
        return -EIO;
    }
    if (rc < 0)
        return failed();
    if (io->write && io->file->owner->conf->file_flush && fdatasync(io->file->direct) != 0)
        return failed();
    return rc;
}

static int64_t copy(struct nvmeof_io *io)
{
    bool fetch = io->step == NVMEOF_FETCH;
    int rc = fetch ? tei_mem_copy(io->bounce, io->memory, (size_t)io->length)
                   : tei_mem_copy(io->memory, io->bounce + io->skip, (size_t)io->want);

    if (rc)
        trouble(io, rc, "its driver does not copy");
    return rc ? -EIO : 0;
}

/* cuFile works in the context that is current. */
static int64_t do_step(struct nvmeof_io *io)
{
    const struct tei_region *r = io->work->entry.base.region;
    int64_t result;
    int was, rc;

    if (io->step != NVMEOF_MOVE)
        return copy(io);
    rc = tei_gpu_enter(r->kind, r->device, &was);
    if (rc) {
        trouble(io, rc, "its driver gives no context");
        return -EIO;
    }
    result = move(io);
    tei_gpu_leave(r->kind, was);
    return result;
}

bool tei_nvmeof_gpu_has(const struct nvmeof_io *io)
{
    return io->gpu && (io->step == NVMEOF_FETCH || io->step == NVMEOF_STORE || !io->bounced);
}

struct nvmeof_pool *tei_nvmeof_gpu_pool(struct nvmeof *n)
{
    struct nvmeof_gpu *g = atomic_load_explicit(&n->gpu, memory_order_acquire);

    return g ? g->pool : NULL;
}

/* ------------------------------------------------------------------------------------------ files */

void tei_nvmeof_gpu_file_add(struct nvmeof_file *f)
{
    struct cufile_file d = {.type = CUFILE_FD, .of.fd = f->direct};
    struct cufile_error e;

    f->cufile_asked = atomic_load_explicit(&f->owner->gpu, memory_order_acquire) != NULL;
    if (!f->cufile_asked || f->direct < 0 || f->cufile_refused)
        return;
    e = shared.api.handle_register(&f->cufile, &d);
    if (!e.err)
        return;
    f->cufile = NULL;
    TEI_INFO("%s: cuFile does not take it (%s, %d): its data goes through host memory", f->path,
             text_of(e.err), e.err);
}

void tei_nvmeof_gpu_file_del(struct nvmeof_file *f)
{
    if (f->cufile)
        shared.api.handle_deregister(f->cufile);
    f->cufile = NULL;
}

/* ---------------------------------------------------------------------------------------- regions */

/* With the shared lock. */
static bool open_gpu(struct nvmeof *n, char *why, size_t len)
{
    struct nvmeof_gpu *g;

    if (atomic_load_explicit(&n->gpu, memory_order_relaxed))
        return true;
    if (!open_driver(why, len))
        return false;
    g = calloc(1, sizeof *g);
    if (g && tei_nvmeof_pool_open(n, "te/gpufile", do_step, &g->pool) == 0) {
        /* Release: partner of the acquires of those who look whether it is there. */
        atomic_store_explicit(&n->gpu, g, memory_order_release);
        return true;
    }
    free(g);
    close_driver();
    snprintf(why, len, "no memory or thread");
    return false;
}

/* The link that leads to what is registered from there on; it leads nowhere if nothing is. */
static struct memory **find_memory(const char *addr)
{
    struct memory **m = &shared.memories;

    while (*m && (*m)->addr != addr)
        m = &(*m)->next;
    return m;
}

/* With the shared lock. What the program has registered itself stays its own. */
static bool register_new(const struct tei_region *region, struct memory *m, bool *registered,
                         char *why, size_t len)
{
    struct cufile_error e;
    int was;

    if (tei_gpu_enter(region->kind, region->device, &was) != 0) {
        snprintf(why, len, "%s", te_errmsg());
        return false;
    }
    e = shared.api.buf_register((void *)region->addr, region->length, 0);
    tei_gpu_leave(region->kind, was);
    *registered = e.err == 0;
    if (*registered) {
        *m = (struct memory){.next = shared.memories,
                             .addr = (char *)region->addr,
                             .length = region->length,
                             .users = 1};
        shared.memories = m;
    }
    if (!e.err || e.err == CUFILE_MEMORY_KNOWN)
        return true;
    snprintf(why, len, "cuFileBufRegister: %s (%d)", text_of(e.err), e.err);
    return false;
}

/* With the shared lock. */
static bool register_memory(const struct tei_region *region, bool *registered, char *why,
                            size_t len)
{
    struct memory *m = *find_memory((char *)region->addr);
    bool taken;

    if (m && m->length < region->length) {
        snprintf(why, len, "another engine of the process has registered less of it with cuFile");
        return false;
    }
    if (m) {
        m->users++;
        *registered = true;
        return true;
    }
    m = malloc(sizeof *m);
    if (!m) {
        snprintf(why, len, "no memory");
        return false;
    }
    taken = register_new(region, m, registered, why, len);
    if (!*registered)
        free(m);
    return taken;
}

int tei_nvmeof_gpu_region_add(struct nvmeof *n, const struct tei_region *region, bool *registered)
{
    char why[256] = "TE_FILE_CUFILE is off";
    bool done = false;

    if (n->conf->file_cufile) {
        pthread_mutex_lock(&shared.lock);
        done = open_gpu(n, why, sizeof why) && register_memory(region, registered, why, sizeof why);
        pthread_mutex_unlock(&shared.lock);
    }
    if (done)
        return 0;
    if (!atomic_exchange(&n->told_staged, true))
        TEI_INFO("files: the memory at %s goes through host memory: %s", region->location, why);
    return tei_err_keep(TE_ERR_UNSUPPORTED, why);
}

void tei_nvmeof_gpu_region_del(const struct nvmeof_region *r)
{
    struct memory **at, *m;
    int was;

    pthread_mutex_lock(&shared.lock);
    at = find_memory(r->addr);
    m = *at;
    if (m && --m->users == 0) {
        *at = m->next;
        free(m);
        /* Else the driver has let go of all by now. */
        if (tei_gpu_enter(TEI_MEM_CUDA, r->device, &was) == 0) {
            (void)shared.api.buf_deregister(r->addr);
            tei_gpu_leave(TEI_MEM_CUDA, was);
        }
    }
    pthread_mutex_unlock(&shared.lock);
}

void tei_nvmeof_gpu_stop(struct nvmeof *n)
{
    struct nvmeof_gpu *g = atomic_load_explicit(&n->gpu, memory_order_acquire);

    if (g && g->pool)
        tei_nvmeof_pool_close(g->pool);
    if (g)
        g->pool = NULL;
}

void tei_nvmeof_gpu_fini(struct nvmeof *n)
{
    struct nvmeof_gpu *g = atomic_load_explicit(&n->gpu, memory_order_acquire);

    if (!g)
        return;
    pthread_mutex_lock(&shared.lock);
    close_driver();
    pthread_mutex_unlock(&shared.lock);
    free(g);
}
