/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.c - memory that several hosts have mapped: memfds. The pages are the kernel's; the descriptors
 * are the world's. A copy from or to such memory is a point every few bytes, for others may look at it.
 */
#include "disk.h"
#include "machine.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define MAPPINGS 4096
#define AWAY_IN  128
#define AWAY_NS  (100 * SIM_MS)
#define PIECE    256 /* bytes of a copy between two points */

struct sim_memory {
    int real;
    unsigned refs, id;
};

struct memory_file {
    struct sim_file file;
    struct sim_memory *memory;
};

struct mapping {
    char *at;
    size_t size;
    unsigned id; /* of the memory */
};

static struct mapping mappings[MAPPINGS];
static int n_mappings;
extern char __executable_start, etext;

/* ------------------------------------------------------------------------------------ descriptors */

static struct memory_file *file_of(int fd)
{
    struct sim_file *f = sim_file_of(fd);

    return f && f->kind == SIM_MEMORY ? (struct memory_file *)f : NULL;
}

void sim_memory_put(struct sim_memory *m)
{
    if (--m->refs)
        return;
    close(m->real);
    free(m);
}

int sim_memory_open(struct sim_memory *m)
{
    struct memory_file *f = sim_new(sizeof(*f));
    int fd = sim_file_open(&f->file, SIM_MEMORY, false);

    if (fd < 0) {
        free(f);
        return -1;
    }
    f->memory = m;
    m->refs++;
    return fd;
}

struct sim_memory *sim_memory_of(int fd)
{
    struct memory_file *f = file_of(fd);

    if (!f)
        return NULL;
    f->memory->refs++;
    return f->memory;
}

int sim_memory_again(struct sim_file *f)
{
    return sim_memory_open(((struct memory_file *)f)->memory);
}

void sim_memory_close(struct sim_file *f)
{
    sim_memory_put(((struct memory_file *)f)->memory);
}

int memfd_create(const char *name, unsigned flags)
{
    static unsigned ids;
    struct sim_memory *m;
    int real = REAL(memfd_create)(name, flags), fd;

    if (!sim_is_on() || real < 0)
        return real;
    sim_point();
    m = sim_new(sizeof(*m));
    *m = (struct sim_memory){.real = real, .refs = 1, .id = ++ids};
    fd = sim_memory_open(m);
    sim_memory_put(m);
    return fd;
}

int ftruncate(int fd, off_t size)
{
    const struct memory_file *f = file_of(fd);

    return REAL(ftruncate)(f ? f->memory->real : fd, size);
}

int fstat(int fd, struct stat *out)
{
    const struct sim_disk_file *d = sim_disk_file_of(fd);
    const struct memory_file *f = file_of(fd);

    if (d)
        return sim_disk_fstat(d, out);
    if (!f && sim_file_of(fd)) { /* an eventfd has no type of file */
        memset(out, 0, sizeof(*out));
        out->st_mode = sim_file_of(fd)->kind == SIM_EVENT ? 0600 : S_IFSOCK | 0777;
        return 0;
    }
    if (!f)
        return REAL(fstat)(fd, out);
    if (REAL(fstat)(f->memory->real, out) < 0)
        return -1;
    out->st_uid = SIM_USER;
    return 0;
}

int fstatfs(int fd, struct statfs *out)
{
    const struct memory_file *f = file_of(fd);

    return REAL(fstatfs)(f ? f->memory->real : fd, out);
}

int sim_memory_fcntl(struct sim_file *f, int command, long arg)
{
    if (command == F_DUPFD_CLOEXEC)
        return sim_memory_again(f);
    return REAL(fcntl)(((struct memory_file *)f)->memory->real, command, arg);
}

/* --------------------------------------------------------------------------------------- mappings */

static struct mapping *mapping_of(const void *p)
{
    for (int i = 0; i < n_mappings; i++)
        if ((size_t)((const char *)p - mappings[i].at) < mappings[i].size)
            return &mappings[i];
    return NULL;
}

const void *sim_shared_key(const void *word)
{
    const struct mapping *m = mapping_of(word);

    return m ? (const void *)((uintptr_t)1 << 62 | (uintptr_t)m->id << 32 |
                              (uintptr_t)((const char *)word - m->at))
             : word;
}

/* All that lies in there. */
static void forget_mappings(const char *at, size_t size)
{
    for (int i = n_mappings - 1; i >= 0; i--)
        if (mappings[i].at >= at && mappings[i].at + mappings[i].size <= at + size)
            mappings[i] = mappings[--n_mappings];
}

/* The C library has the call by another name, too, by which it is found while dlsym() is not there yet. */
void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
    const struct memory_file *f = fd >= 0 ? file_of(fd) : NULL;
    void *p;

    if (flags & MAP_FIXED)
        forget_mappings(at, size);
    if (!f)
        return mmap64(at, size, prot, flags, fd, offset);
    sim_point();
    p = mmap64(at, size, prot, flags, f->memory->real, offset);
    if (p == MAP_FAILED)
        return p;
    if (n_mappings == MAPPINGS)
        sim_fail("more than %d mappings", MAPPINGS);
    mappings[n_mappings++] = (struct mapping){p, size, f->memory->id};
    return p;
}

int munmap(void *at, size_t size)
{
    struct mapping *m = mapping_of(at);

    if (m && m->at == at)
        *m = mappings[--n_mappings];
    return REAL(munmap)(at, size);
}

/* ------------------------------------------------------------------------------------------ copies */

void sim_copy_point(void)
{
    if (sim_one_in(AWAY_IN))
        sim_block(NULL, "is in the middle of a copy", sim_now() + (int64_t)sim_below(AWAY_NS));
    else
        sim_point();
}

static bool is_watched(const void *to, const void *from, const char *caller)
{
    return (caller < &__executable_start || caller >= &etext) && sim_is_on() &&
           (mapping_of(to) || mapping_of(from));
}

void *memcpy(void *to, const void *from, size_t n)
{
    size_t done = 0;

    if (n >= PIECE && is_watched(to, from, __builtin_return_address(0)))
        for (; n - done > PIECE; done += PIECE) {
            memmove((char *)to + done, (const char *)from + done, PIECE);
            sim_copy_point();
        }
    memmove((char *)to + done, (const char *)from + done, n - done);
    return to;
}
