/* SPDX-License-Identifier: Apache-2.0 */
/* softcuda_kernel.c - kernels of libcuda.so.1, as far as this project launches them. */
#include "fabric/softgpu/core.h"
#include "fabric/softgpu/softcuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef SOFT_FACE /* see softcuda.c */
#define SOFT_FACE SOFTGPU_CUDA
#endif
static const enum softgpu_kind CUDA = SOFT_FACE;

/*
 * The one kernel that is played is the library's for small copies: its blocks of threads in groups of
 * *args[1], for each group a row of the table at args[0].
 */
struct scatter_row {
    uint64_t to, from, n;
};

static char scatter_module, scatter_function;

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    if (rc)
        return rc;
    if (!out || !image)
        return sg_leave(SG_INVALID_VALUE);
    if (!strstr(image, ".entry te_scatter("))
        return sg_leave(SG_INVALID_IMAGE);
    *out = (CUmodule)&scatter_module;
    return sg_leave(SG_OK);
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    if (rc)
        return rc;
    if (!out || !name || module != (CUmodule)&scatter_module)
        return sg_leave(SG_INVALID_VALUE);
    if (strcmp(name, "te_scatter") != 0)
        return sg_leave(SG_NOT_FOUND);
    *out = (CUfunction)&scatter_function;
    return sg_leave(SG_OK);
}

/* What a kernel must not touch ends the program here, as it would end its context on a device. */
static void reach(const struct sg_context *c, uint64_t addr, uint64_t n)
{
    const struct sg_range *r = sg_find(CUDA, (uintptr_t)addr);

    if (r && r->sort != SG_PINNED && r->device == c->device && addr + n <= r->addr + r->size)
        return;
    fprintf(stderr, "softgpu: a kernel touches %zu bytes at 0x%zx, which are not of its device\n",
            (size_t)n, (size_t)addr);
    abort();
}

static int scatter(struct sg_context *c, CUstream stream, const struct scatter_row *rows, size_t n)
{
    struct sg_copy *v = calloc(n, sizeof(*v));
    int rc;

    if (!v)
        return SG_OUT_OF_MEMORY;
    for (size_t i = 0; i < n; i++) {
        reach(c, rows[i].to, rows[i].n);
        reach(c, rows[i].from, rows[i].n);
        v[i] = (struct sg_copy){.to = rows[i].to, .from = rows[i].from, .n = rows[i].n};
    }
    rc = sg_copy(c, stream, v, n, true, NULL);
    free(v);
    return rc;
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream stream, void **args,
                        void **extra)
{
    struct sg_context *c;
    int rc = sg_enter_context(CUDA, &c);

    if (rc)
        return rc;
    if (f != (CUfunction)&scatter_function || gy != 1 || gz != 1 || !bx || bx > 1024 || by != 1 ||
        bz != 1 || shared || (uintptr_t)stream <= 2 || !args || extra || !gx ||
        gx % *(const unsigned *)args[1])
        return sg_leave(SG_INVALID_VALUE);
    rc = sg_fault(CUDA, SG_AT_launch, SG_OUT_OF_RESOURCES, NULL);
    if (rc)
        return sg_leave(rc);
    return sg_leave(scatter(c, stream, args[0], gx / *(const unsigned *)args[1]));
}
