/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_file.c - handles that lead to a file descriptor of another process of this host, for drivers that do
 * not know a fabric. They give memory out as a descriptor, and who imports it fetches that from the
 * process, as the kernel allows.
 *
 * The handle names the process, by a hash of its number and of the time at which it began, which tells
 * strangers nothing (base/here.h), and the descriptor of a note: a sealed memfd that names the memory's
 * descriptor. Handle and note have the same random token. So a handle that somebody made up leads to
 * nothing that its owner has not exported.
 */
#include "plat/gpu.h"

#include "base/err.h"
#include "base/here.h"
#include "base/os.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What a handle says that leads to a descriptor of this host; the rest of it is zero. */
struct place {
    char magic[8];
    uint8_t token[16], life[TEI_HERE_LIFE]; /* of the process, with the token as the nonce */
    int32_t note;
};

/* The same by version 0.1. */
struct old_place {
    char magic[8];
    uint64_t began;
    int32_t pid, note;
    uint8_t token[16];
};

struct note {
    char magic[8];
    uint8_t token[16];
    int32_t fd;
};

#define NOTE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

/* Without their ends. */
static const char magic[] = "te-hipfd"; /* of notes, and of old places */
static const char place_magic[] = "te-hipf2";

_Static_assert(sizeof(struct place) <= TEI_GPU_HANDLE, "handles of files");

static bool is_of(const struct place *p, pid_t pid)
{
    uint8_t life[TEI_HERE_LIFE];

    return tei_here_life(p->token, pid, life) && memcmp(life, p->life, sizeof(life)) == 0;
}

/* -1 with errno. */
static int write_note(const struct note *n)
{
    int fd = tei_fd_own(memfd_create("te_hip", MFD_CLOEXEC | MFD_ALLOW_SEALING));

    if (fd < 0 || (write(fd, n, sizeof(*n)) == (ssize_t)sizeof(*n) &&
                   fcntl(fd, F_ADD_SEALS, NOTE_SEALS) == 0))
        return fd;
    tei_fd_close(fd);
    return -1;
}

/* The memory's descriptor that a note with this token names; -1: it is no such note. */
static int read_note(int fd, const uint8_t token[16])
{
    struct note n;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & NOTE_SEALS) != NOTE_SEALS ||
        pread(fd, &n, sizeof(n), 0) != (ssize_t)sizeof(n) ||
        memcmp(n.magic, magic, sizeof(n.magic)) != 0 ||
        memcmp(n.token, token, sizeof(n.token)) != 0)
        return -1;
    return n.fd;
}

int tei_gpu_file_export(int fd, uint8_t out[TEI_GPU_HANDLE])
{
    struct place p = {.note = -1};
    struct note n = {.fd = tei_fd_own(fd)};

    memcpy(p.magic, place_magic, sizeof(p.magic));
    memcpy(n.magic, magic, sizeof(n.magic));
    tei_random(p.token, sizeof(p.token));
    memcpy(n.token, p.token, sizeof(n.token));
    if (tei_here_life(p.token, getpid(), p.life))
        p.note = write_note(&n);
    if (p.note < 0) {
        tei_fd_close(fd);
        return TEI_GPU_NOT_SUPPORTED;
    }
    memset(out, 0, TEI_GPU_HANDLE);
    memcpy(out, &p, sizeof(p));
    return 0;
}

/* One whose process is not there any more leads to nobody. */
static bool is_old_place(const uint8_t handle[TEI_GPU_HANDLE], struct place *out)
{
    struct tei_process process;
    struct old_place old;

    memcpy(&old, handle, sizeof(old));
    if (memcmp(old.magic, magic, sizeof(old.magic)) != 0)
        return false;
    *out = (struct place){.note = old.note};
    memcpy(out->token, old.token, sizeof(out->token));
    if (!tei_process_look(old.pid, &process) || process.began != old.began ||
        !tei_here_life(out->token, old.pid, out->life))
        memset(out->life, 0, sizeof(out->life));
    return true;
}

static bool is_place(const uint8_t handle[TEI_GPU_HANDLE], struct place *out)
{
    memcpy(out, handle, sizeof(*out));
    return memcmp(out->magic, place_magic, sizeof(out->magic)) == 0 || is_old_place(handle, out);
}

void tei_gpu_file_unexport(const uint8_t handle[TEI_GPU_HANDLE])
{
    struct place p;
    int fd = -1;

    if (is_place(handle, &p) && is_of(&p, getpid()))
        fd = read_note(p.note, p.token);
    if (fd >= 0) {
        tei_fd_close(fd);
        tei_fd_close(p.note);
    }
}

/* 0: there is none. The owner of one handle has most often another one, too. */
static pid_t find_owner(const struct place *p)
{
    static _Atomic pid_t last;
    pid_t pid = atomic_load_explicit(&last, memory_order_relaxed);

    if (pid && is_of(p, pid))
        return pid;
    pid = tei_here_find_life(p->token, p->life);
    atomic_store_explicit(&last, pid, memory_order_relaxed);
    return pid;
}

bool tei_gpu_file_is(const uint8_t handle[TEI_GPU_HANDLE])
{
    struct place p;

    return is_place(handle, &p);
}

int tei_gpu_file_fetch(const uint8_t handle[TEI_GPU_HANDLE])
{
    int process, note = -1, there = -1, fd = -1;
    struct place p;
    pid_t pid = is_place(handle, &p) ? find_owner(&p) : 0;

    if (!pid || pid == getpid())
        return -1;
    process = (int)syscall(SYS_pidfd_open, pid, 0);
    if (process < 0)
        return -1;
    /* The number cannot change hands while the process is held. */
    if (is_of(&p, pid))
        note = (int)syscall(SYS_pidfd_getfd, process, p.note, 0);
    if (note >= 0) {
        there = read_note(note, p.token);
        close(note);
    }
    if (there >= 0)
        fd = (int)syscall(SYS_pidfd_getfd, process, there, 0);
    close(process);
    return fd;
}
