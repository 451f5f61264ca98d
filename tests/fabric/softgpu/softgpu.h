/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softgpu.h - what softgpu offers beyond the drivers that it plays. README.md tells the commands.
 *
 * The functions are in libsoftgpu.so.0, on which both stand-ins depend. Tests look them up by
 * dlsym(RTLD_DEFAULT, ...), since they are not there when the drivers are real; what was opened by
 * dlopen with RTLD_LOCAL is found by dlopen("libsoftgpu.so.0", RTLD_NOLOAD | RTLD_LAZY) first. All
 * are safe from any thread.
 */
#ifndef SOFTGPU_H
#define SOFTGPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum softgpu_kind {
    SOFTGPU_CUDA,
    SOFTGPU_HIP,
    SOFTGPU_ASCEND,
    SOFTGPU_MUSA,
    SOFTGPU_MACA,
    SOFTGPU_SUPA,
    SOFTGPU_KINDS
};

/*
 * A program that plays several processes in one, each of which getpid() tells from the others, defines this. Each has
 * contexts, memory, streams and faults of its own then, though all are mapped in one address space. Memory of another
 * is found by open() of /proc/PID/fd/N, which such a program has to answer.
 */
struct softgpu_world {
    void **(*process)(
        void); /* where softgpu keeps what the calling thread's process has; NULL at first */
    const char *(*host)(void);                          /* as SOFTGPU_HOST, of that process */
    void (*copy)(void *to, const void *from, size_t n); /* what a stream copies */
};
extern const struct softgpu_world softgpu_world
    __attribute__((weak, visibility("default"))); /* not defined: none */

#pragma GCC visibility push(default)

/*
 * Whether this process's libcuda.so.1, or the library of another kind, is the stand-in: a real one may
 * be in the process beside another's stand-in.
 */
bool softgpu_plays(enum softgpu_kind kind);

/*
 * Runs commands, separated by newlines or semicolons, for this process only. 0, or an errno: EINVAL
 * for what is not understood, and then nothing behind it was done.
 */
int softgpu_control(const char *commands);

/* Contexts that are alive on a device of this process: 0 or 1. -1: there is no such device (yet). */
int softgpu_contexts(enum softgpu_kind kind, int device);

/*
 * What is alive in this process: "allocs", "ipc" (memory opened by handle), "pins", "managed",
 * "mappings" and "spaces" (VMM), "handles" (VMM), "streams", "events". -1 for any other word.
 */
long softgpu_live(enum softgpu_kind kind, const char *what);

/* How often a place of `fail` (README.md) was come by in this process. -1 for any other word. */
long softgpu_calls(enum softgpu_kind kind, const char *place);

/*
 * Begins or ends the capture of a stream by this thread, in GLOBAL mode; one at a time. Meanwhile
 * what makes, frees or pins memory, queries or waits fails with 900 in each thread whose mode is not
 * RELAXED, and spoils the capture. At its end: whether it is good.
 */
bool softgpu_capture(enum softgpu_kind kind, bool begin);

/*
 * Where the host may touch the device memory at `ptr`, which is of this process or opened by it;
 * NULL if it is no such memory, or no device has access to it yet. Good up to the end of the allocation or mapping, while that lives.
 */
void *softgpu_alias(const void *ptr);

/*
 * Whether all of [ptr, ptr + length) is device memory in one piece, which a NIC could pin by way of
 * the driver ("peermem"): not if SOFTGPU_PEERMEM=0.
 */
bool softgpu_peermem(const void *ptr, size_t length);

/*
 * Maps `length` bytes at `offset` of a dma-buf for reading and writing, as a NIC would; *out need
 * not be aligned if `offset` is not. 0 or an errno: ENOTSUP: it is no dma-buf of softgpu; EINVAL:
 * it is shorter. To be undone by softgpu_dmabuf_unmap with the same length.
 */
int softgpu_dmabuf_map(int fd, uint64_t offset, size_t length, void **out);
void softgpu_dmabuf_unmap(void *addr, size_t length);

#pragma GCC visibility pop

#endif
