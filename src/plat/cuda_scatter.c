/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_scatter.c - many small copies within one device, by one kernel.
 *
 * The driver takes some microseconds for each copy within a device, one by one or in a batch, which for
 * the blocks of a KV cache is far longer than the bytes take. One kernel that gets a table of the copies
 * as its argument does 128 of them in the time of three (docs/gpu.md, "Figures").
 *
 * A copy that leaves its allocation is refused by the driver; a kernel that does so ends the program's
 * context. So nothing is given to the kernel but what the driver says, right before, to lie in memory of
 * this device as a whole; all else is left to the driver's copies, and to their errors. cuMemFree() waits for a
 * kernel that is under way, as it does for a copy.
 *
 * The kernel is PTX, which drivers compile for their devices: of the first version that has what is used
 * here, so that every device since 2014 takes it. Where it is not taken, the driver copies.
 */
#include "plat/cuda_table.h"

#include "base/log.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define PIECE_MAX  ((size_t)1 << 20) /* of a copy: beyond, the copy engines are as fast */
#define UNLIKE_MAX ((size_t)4 << 10) /* and of one whose sides differ modulo 16: by bytes */
#define THREADS    256
#define SPLIT      4 /* blocks of threads that share a piece: 16 KiB each of 64 KiB, 64 bytes a thread */

enum { READS = 1, WRITES = 3 }; /* of CU_POINTER_ATTRIBUTE_ACCESS_FLAGS */

/* As the kernel reads it. */
struct piece {
    uint64_t to, from, n;
};

/*
 * Where both sides are alike modulo 16, most goes by 16 bytes, four of these on their way in each thread,
 * and the ends by bytes; else all goes by bytes, neighbours by neighbours.
 */
static const char ptx[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry te_scatter(.param .align 8 .b8 pieces[3072], .param .u32 split)\n"
    "{\n"
    ".reg .pred %p<8>;\n"
    ".reg .b16 %c;\n"
    ".reg .b32 %split, %block, %piece, %part, %threads, %id, %w;\n"
    ".reg .b64 %entry, %to, %from, %n, %i, %step, %head, %vecs, %skip, %bytes, %x, %y, %last, %far;\n"
    ".reg .b64 %a<8>;\n"
    /* which piece, which part of it, which thread of all that share it */
    "ld.param.u32 %split, [split];\n"
    "mov.u32 %block, %ctaid.x;\n"
    "mov.u32 %threads, %ntid.x;\n"
    "mov.u32 %id, %tid.x;\n"
    "div.u32 %piece, %block, %split;\n"
    "rem.u32 %part, %block, %split;\n"
    "mad.lo.u32 %w, %part, %threads, %id;\n"
    "cvt.u64.u32 %i, %w;\n"
    "mul.wide.u32 %step, %split, %threads;\n"
    "mov.b64 %entry, pieces;\n"
    "mul.wide.u32 %x, %piece, 24;\n"
    "add.u64 %entry, %entry, %x;\n"
    "ld.param.u64 %to, [%entry];\n"
    "ld.param.u64 %from, [%entry+8];\n"
    "ld.param.u64 %n, [%entry+16];\n"
    /* head: bytes before the first 16 that are aligned; all of them if the sides differ */
    "mov.u64 %head, %n;\n"
    "mov.u64 %vecs, 0;\n"
    "xor.b64 %x, %to, %from;\n"
    "and.b64 %x, %x, 15;\n"
    "setp.ne.u64 %p0, %x, 0;\n"
    "@%p0 bra ENDS;\n"
    "neg.s64 %x, %to;\n"
    "and.b64 %x, %x, 15;\n"
    "min.u64 %head, %x, %n;\n"
    "sub.u64 %vecs, %n, %head;\n"
    "shr.u64 %vecs, %vecs, 4;\n"
    /* x, y: where this thread's 16 bytes are; far: the distance to its next */
    "add.u64 %x, %from, %head;\n"
    "add.u64 %y, %to, %head;\n"
    "shl.b64 %last, %i, 4;\n"
    "add.u64 %x, %x, %last;\n"
    "add.u64 %y, %y, %last;\n"
    "shl.b64 %far, %step, 4;\n"
    "mov.u64 %skip, %i;\n"
    "FOUR:\n"
    "mad.lo.u64 %last, %step, 3, %skip;\n"
    "setp.ge.u64 %p1, %last, %vecs;\n"
    "@%p1 bra ONE;\n"
    "ld.global.v2.u64 {%a0, %a1}, [%x];\n"
    "add.u64 %x, %x, %far;\n"
    "ld.global.v2.u64 {%a2, %a3}, [%x];\n"
    "add.u64 %x, %x, %far;\n"
    "ld.global.v2.u64 {%a4, %a5}, [%x];\n"
    "add.u64 %x, %x, %far;\n"
    "ld.global.v2.u64 {%a6, %a7}, [%x];\n"
    "add.u64 %x, %x, %far;\n"
    "st.global.v2.u64 [%y], {%a0, %a1};\n"
    "add.u64 %y, %y, %far;\n"
    "st.global.v2.u64 [%y], {%a2, %a3};\n"
    "add.u64 %y, %y, %far;\n"
    "st.global.v2.u64 [%y], {%a4, %a5};\n"
    "add.u64 %y, %y, %far;\n"
    "st.global.v2.u64 [%y], {%a6, %a7};\n"
    "add.u64 %y, %y, %far;\n"
    "mad.lo.u64 %skip, %step, 4, %skip;\n"
    "bra FOUR;\n"
    "ONE:\n"
    "setp.ge.u64 %p2, %skip, %vecs;\n"
    "@%p2 bra ENDS;\n"
    "ld.global.v2.u64 {%a0, %a1}, [%x];\n"
    "st.global.v2.u64 [%y], {%a0, %a1};\n"
    "add.u64 %x, %x, %far;\n"
    "add.u64 %y, %y, %far;\n"
    "add.u64 %skip, %skip, %step;\n"
    "bra ONE;\n"
    /* byte i of the ends is byte i of the piece before the head's end, and after it 16 * vecs further */
    "ENDS:\n"
    "shl.b64 %skip, %vecs, 4;\n"
    "sub.u64 %bytes, %n, %skip;\n"
    "BYTE:\n"
    "setp.ge.u64 %p3, %i, %bytes;\n"
    "@%p3 bra DONE;\n"
    "setp.ge.u64 %p4, %i, %head;\n"
    "selp.u64 %last, %skip, 0, %p4;\n"
    "add.u64 %last, %last, %i;\n"
    "add.u64 %x, %from, %last;\n"
    "add.u64 %y, %to, %last;\n"
    "ld.global.u8 %c, [%x];\n"
    "st.global.u8 [%y], %c;\n"
    "add.u64 %i, %i, %step;\n"
    "bra BYTE;\n"
    "DONE:\n"
    "ret;\n"
    "}\n";

_Static_assert(TEI_GPU_BATCH * sizeof(struct piece) == 3072, "the table that the kernel takes");

/* ------------------------------------------------------------------------------------- the kernel */

static char refused; /* its address stands for a kernel that there is not */

/* The context is entered. */
static void *load(const struct tei_driver *d)
{
    bool is_nvidia = strcmp(d->prefix, d->api->prefix) == 0; /* PTX is of no other maker */
    CUmodule module;
    CUfunction f = NULL;
    int status = TEI_GPU_NOT_SUPPORTED;

    if (is_nvidia && CU->cuModuleLoadData && CU->cuModuleGetFunction && CU->cuLaunchKernel)
        status = CU->cuModuleLoadData(&module, ptx);
    if (!status)
        status = CU->cuModuleGetFunction(&f, module, "te_scatter");
    if (!status)
        return f;
    if (status == TEI_GPU_OUT_OF_MEMORY)
        return NULL; /* there may be some the next time */
    TEI_INFO("%s takes no kernel of this engine (status %d), so its own copies are made", d->title,
             status);
    return &refused;
}

/* NULL: there is none. Kept as the context is, for the life of the process. */
static CUfunction kernel_of(const struct tei_driver *d, int device)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    void *f = atomic_load_explicit(&CU->scatter[device], memory_order_acquire);

    if (!f) {
        pthread_mutex_lock(&lock);
        f = atomic_load_explicit(&CU->scatter[device], memory_order_relaxed);
        if (!f) {
            f = load(d);
            if (f)
                atomic_store_explicit(&CU->scatter[device], f, memory_order_release);
        }
        pthread_mutex_unlock(&lock);
    }
    return f == &refused ? NULL : f;
}

/* ------------------------------------------------------------------------------- what it may touch */

/* The allocation that was asked about last. */
struct range {
    CUdeviceptr base;
    size_t size;
};

/* Memory of the device, mapped, that it may read or write; where that begins and ends. */
static bool ask(const struct tei_driver *d, int device, CUdeviceptr addr, int needed,
                struct range *out)
{
    int type = 0, managed = 0, ordinal = -1, mapped = 0, access = 0;
    CUpointer_attribute what[] = {
        TEI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    TEI_CU_POINTER_ATTRIBUTE_IS_MANAGED,
        TEI_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, TEI_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        TEI_CU_POINTER_ATTRIBUTE_RANGE_SIZE,     TEI_CU_POINTER_ATTRIBUTE_MAPPED,
        TEI_CU_POINTER_ATTRIBUTE_ACCESS_FLAGS};
    void *where[] = {&type, &managed, &ordinal, &out->base, &out->size, &mapped, &access};

    return CU->cuPointerGetAttributes(TEI_ARRAY_LEN(what), what, where, addr) == 0 &&
           type == TEI_CU_MEMORYTYPE_DEVICE && !managed && ordinal == device && mapped &&
           (access & needed) == needed;
}

static bool holds(const struct range *r, CUdeviceptr addr, size_t n)
{
    return addr >= r->base && addr - r->base < r->size && n <= r->size - (addr - r->base);
}

static bool may_touch(const struct tei_driver *d, int device, const void *p, size_t n, int needed,
                      struct range *last)
{
    CUdeviceptr addr = (CUdeviceptr)(uintptr_t)p;

    return holds(last, addr, n) || (ask(d, device, addr, needed, last) && holds(last, addr, n));
}

/* Whether a kernel is quicker. */
static bool is_small(const struct tei_copy *c)
{
    bool alike = (((uintptr_t)c->to ^ (uintptr_t)c->from) & 15) == 0;

    return c->n <= (alike ? PIECE_MAX : UNLIKE_MAX);
}

static bool may_copy(const struct tei_driver *d, int device, const struct tei_copy *v, size_t n)
{
    struct range to = {0, 0}, from = {0, 0};

    for (size_t i = 0; i < n; i++)
        if (!is_small(&v[i]) || !may_touch(d, device, v[i].to, v[i].n, WRITES, &to) ||
            !may_touch(d, device, v[i].from, v[i].n, READS, &from))
            return false;
    return true;
}

static int launch(const struct tei_driver *d, CUfunction f, const struct tei_copy *v, size_t n,
                  void *stream)
{
    struct piece pieces[TEI_GPU_BATCH];
    unsigned split = SPLIT;
    void *args[] = {pieces, &split};
    int status;

    for (size_t i = 0; i < n; i++)
        pieces[i] = (struct piece){(uintptr_t)v[i].to, (uintptr_t)v[i].from, v[i].n};
    status = CU->cuLaunchKernel(f, (unsigned)n * split, 1, 1, THREADS, 1, 1, 0, stream, args, NULL);
    /* These two leave the context as it was. */
    return status == TEI_CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES || status == TEI_GPU_OUT_OF_MEMORY
               ? TEI_GPU_NOT_SUPPORTED
               : status;
}

int tei_cuda_scatter(const struct tei_driver *d, int device, const struct tei_copy *v, size_t n,
                     void *stream)
{
    CUfunction f;

    if (!may_copy(d, device, v, n))
        return TEI_GPU_NOT_SUPPORTED;
    f = kernel_of(d, device);
    if (!f)
        return TEI_GPU_NOT_SUPPORTED;
    return n ? launch(d, f, v, n, stream) : 0;
}
