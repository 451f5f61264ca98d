/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softcufile.c - a stand-in for libcufile.so.0 over the memory of softgpu: reads and writes go
 * between a file and where the host finds that memory. It minds the rules of the library's manual:
 * a driver that is opened first, a context that is current, files that are regular, opened for direct
 * I/O and registered, memory of a GPU in one allocation. What would be harm done to a real one, to
 * take back what is in use, ends the process.
 */
#include "fabric/softgpu/softcufile.h"
#include "fabric/softgpu/softgpu.h"
#include "transport/nvmeof/cufile.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX 256

#define EXPORT __attribute__((visibility("default")))

#define DIE(...)                                     \
    do {                                             \
        fprintf(stderr, "softcufile: " __VA_ARGS__); \
        fputc('\n', stderr);                         \
        abort();                                     \
    } while (0)

struct file {
    int fd;  /* the caller's; -1: free */
    int own; /* the same file, by the page cache */
    unsigned busy;
};

struct buffer {
    const char *from; /* NULL: free */
    size_t length;
    unsigned busy;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static struct file files[MAX] = {[0 ... MAX - 1] = {.fd = -1}};
static struct buffer buffers[MAX];
static long users, n_files, n_buffers, n_reads, n_writes, n_held, n_parts;
static int open_error, file_error, buffer_error, io_error;
static long io_after, short_of;
static bool hold;

/* ----------------------------------------------------------------------------------- what is there */

static bool has_context(void)
{
    int (*get)(void **context);
    void *at = dlsym(RTLD_DEFAULT, "cuCtxGetCurrent"), *context = NULL;

    if (!at)
        return false;
    memcpy(&get, &at, sizeof get);
    return get(&context) == 0 && context;
}

/* Where the host finds the range, if it is a GPU's and in one piece; else the error. */
static int find_memory(const char *at, size_t n, char **out)
{
    char *last;

    *out = softgpu_alias(at);
    if (!*out)
        return CUFILE_POINTER;
    last = softgpu_alias(at + n - 1);
    if (last != *out + n - 1)
        return CUFILE_POINTER_RANGE;
    return has_context() ? 0 : CUFILE_CONTEXT;
}

static struct cufile_error answer(int error)
{
    return (struct cufile_error){.err = error};
}

/* ------------------------------------------------------------------------------------------- driver */

EXPORT struct cufile_error cuFileDriverOpen(void);
EXPORT struct cufile_error cuFileDriverClose_v2(void);

struct cufile_error cuFileDriverOpen(void)
{
    int error;

    pthread_mutex_lock(&lock);
    error = open_error ? open_error : users ? CUFILE_ALREADY_OPEN : 0;
    users += error == 0;
    pthread_mutex_unlock(&lock);
    return answer(error);
}

struct cufile_error cuFileDriverClose_v2(void)
{
    pthread_mutex_lock(&lock);
    if (users == 0 || n_files || n_buffers)
        DIE("the driver is closed with %ld users, %ld files, %ld buffers", users, n_files,
            n_buffers);
    users--;
    pthread_mutex_unlock(&lock);
    return answer(0);
}

/* -------------------------------------------------------------------------------------------- files */

EXPORT struct cufile_error cuFileHandleRegister(void **handle, struct cufile_file *file);
EXPORT void cuFileHandleDeregister(void *handle);

static int check_file(const struct cufile_file *d)
{
    struct stat st;

    if (users == 0)
        return CUFILE_NOT_INITIALIZED;
    if (d->type != CUFILE_FD || d->ops || fstat(d->of.fd, &st) != 0)
        return CUFILE_ARGUMENT;
    for (size_t i = 0; i < MAX; i++)
        if (files[i].fd == d->of.fd)
            return CUFILE_HANDLE_KNOWN;
    if (!S_ISREG(st.st_mode))
        return CUFILE_FILE_TYPE;
    if (!(fcntl(d->of.fd, F_GETFL) & O_DIRECT))
        return CUFILE_FILE_FLAGS;
    return file_error;
}

static int add_file(int fd, void **handle)
{
    int mode = fcntl(fd, F_GETFL) & O_ACCMODE;
    char path[40];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (size_t i = 0; i < MAX; i++) {
        if (files[i].fd >= 0)
            continue;
        files[i] = (struct file){.fd = fd, .own = open(path, mode | O_CLOEXEC)};
        if (files[i].own < 0)
            break;
        n_files++;
        *handle = &files[i];
        return 0;
    }
    return CUFILE_INTERNAL;
}

struct cufile_error cuFileHandleRegister(void **handle, struct cufile_file *file)
{
    int error;

    pthread_mutex_lock(&lock);
    error = check_file(file);
    if (!error)
        error = add_file(file->of.fd, handle);
    pthread_mutex_unlock(&lock);
    return answer(error);
}

static struct file *file_of(void *handle)
{
    for (size_t i = 0; i < MAX; i++)
        if (handle == &files[i] && files[i].fd >= 0)
            return &files[i];
    return NULL;
}

void cuFileHandleDeregister(void *handle)
{
    struct file *f;

    pthread_mutex_lock(&lock);
    f = file_of(handle);
    if (!f || f->busy)
        DIE("a file is let go of that %s", f ? "is in use" : "is not registered");
    if (fcntl(f->fd, F_GETFD) < 0)
        DIE("a file was closed before it was let go of");
    close(f->own);
    f->fd = -1;
    n_files--;
    pthread_mutex_unlock(&lock);
}

/* ------------------------------------------------------------------------------------------- memory */

EXPORT struct cufile_error cuFileBufRegister(const void *from, size_t length, int flags);
EXPORT struct cufile_error cuFileBufDeregister(const void *from);

static struct buffer *buffer_at(const void *from)
{
    for (size_t i = 0; i < MAX; i++)
        if (buffers[i].from == from)
            return &buffers[i];
    return NULL;
}

static int add_buffer(const char *from, size_t length)
{
    struct buffer *b = buffer_at(NULL);
    char *alias;
    int error = find_memory(from, length, &alias);

    if (error || buffer_error)
        return error ? error : buffer_error;
    if (buffer_at(from))
        return CUFILE_MEMORY_KNOWN;
    if (!b)
        return CUFILE_PINNING;
    *b = (struct buffer){.from = from, .length = length};
    n_buffers++;
    return 0;
}

struct cufile_error cuFileBufRegister(const void *from, size_t length, int flags)
{
    int error = CUFILE_ARGUMENT;

    pthread_mutex_lock(&lock);
    if (users == 0)
        error = CUFILE_NOT_INITIALIZED;
    else if (from && length && flags == 0)
        error = add_buffer(from, length);
    pthread_mutex_unlock(&lock);
    return answer(error);
}

struct cufile_error cuFileBufDeregister(const void *from)
{
    struct buffer *b;

    pthread_mutex_lock(&lock);
    b = from ? buffer_at(from) : NULL;
    if (b && b->busy)
        DIE("memory is let go of that is in use");
    if (b) {
        b->from = NULL;
        n_buffers--;
    }
    pthread_mutex_unlock(&lock);
    return answer(b ? 0 : CUFILE_MEMORY_UNKNOWN);
}

/* ------------------------------------------------------------------------------------------------ I/O */

EXPORT ssize_t cuFileRead(void *handle, void *from, size_t n, off_t at, off_t into);
EXPORT ssize_t cuFileWrite(void *handle, const void *from, size_t n, off_t at, off_t into);

struct io {
    bool write;
    void *handle;
    const char *from;
    size_t n;
    off_t at, into;
    /* found */
    struct file *file;
    struct buffer *buffer; /* NULL: not registered, which is allowed */
    char *alias;
};

/* What it is to answer, 0: nothing is wrong. */
static ssize_t begin(struct io *io)
{
    int error;

    io->file = file_of(io->handle);
    if (!io->file)
        return -CUFILE_HANDLE_UNKNOWN;
    if (io->n == 0 || io->at < 0 || io->into < 0)
        return -CUFILE_ARGUMENT;
    io->buffer = buffer_at(io->from);
    if (io->buffer && io->buffer->length - (size_t)io->into < io->n)
        return -CUFILE_MAPPED_RANGE;
    error = find_memory(io->from + io->into, io->n, &io->alias);
    if (!error && io_error && io_after-- <= 0)
        error = io_error;
    if (error && error < CUFILE_BASE) {
        if (error > 0)
            errno = error;
        return -1;
    }
    return -error;
}

static void wait_while_held(void)
{
    n_held++;
    while (hold)
        pthread_cond_wait(&wake, &lock);
    n_held--;
}

/* Lock held, and let go of meanwhile. */
static ssize_t run(struct io *io)
{
    ssize_t rc = begin(io);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int error;

    if (rc)
        return rc;
    io->file->busy++;
    if (io->buffer)
        io->buffer->busy++;
    if (io->write)
        n_parts += (size_t)io->at % page || io->n % page;
    wait_while_held();
    if (short_of && (size_t)short_of < io->n)
        io->n = (size_t)short_of;
    pthread_mutex_unlock(&lock);
    rc = io->write ? pwrite(io->file->own, io->alias, io->n, io->at)
                   : pread(io->file->own, io->alias, io->n, io->at);
    error = errno;
    pthread_mutex_lock(&lock);
    *(io->write ? &n_writes : &n_reads) += 1;
    io->file->busy--;
    if (io->buffer)
        io->buffer->busy--;
    errno = error;
    return rc;
}

static ssize_t move(struct io io)
{
    ssize_t rc;
    int error;

    pthread_mutex_lock(&lock);
    rc = run(&io);
    error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return rc;
}

ssize_t cuFileRead(void *handle, void *from, size_t n, off_t at, off_t into)
{
    return move((struct io){.handle = handle, .from = from, .n = n, .at = at, .into = into});
}

ssize_t cuFileWrite(void *handle, const void *from, size_t n, off_t at, off_t into)
{
    return move(
        (struct io){.write = true, .handle = handle, .from = from, .n = n, .at = at, .into = into});
}

/* ------------------------------------------------------------------------------------------ controls */

EXPORT int softcufile_control(const char *command)
{
    char word[16] = "";
    long a = 0, b = 0;
    int rc = 0;

    if (sscanf(command, "%15s %ld %ld", word, &a, &b) < 1)
        return EINVAL;
    pthread_mutex_lock(&lock);
    if (strcmp(word, "open") == 0)
        open_error = (int)a;
    else if (strcmp(word, "file") == 0)
        file_error = (int)a;
    else if (strcmp(word, "buffer") == 0)
        buffer_error = (int)a;
    else if (strcmp(word, "io") == 0)
        io_error = (int)a, io_after = b;
    else if (strcmp(word, "short") == 0)
        short_of = a;
    else if (strcmp(word, "hold") == 0 || strcmp(word, "release") == 0)
        hold = word[0] == 'h';
    else
        rc = EINVAL;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
    return rc;
}

EXPORT long softcufile_count(const char *what)
{
    static const struct {
        const char *name;
        const long *value;
    } rows[] = {
        {"users", &users},     {"files", &n_files}, {"buffers", &n_buffers}, {"reads", &n_reads},
        {"writes", &n_writes}, {"held", &n_held},   {"parts", &n_parts},
    };
    long value = -1;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, what) == 0)
            value = *rows[i].value;
    pthread_mutex_unlock(&lock);
    return value;
}
