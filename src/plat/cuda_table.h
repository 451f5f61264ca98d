/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_table.h - the addresses of CUDA's calls, by maker. For mem_cuda.c and cuda_scatter.c alone. */
#ifndef TEI_PLAT_CUDA_TABLE_H
#define TEI_PLAT_CUDA_TABLE_H

#include "plat/cuda.h"
#include "plat/gpu.h"

/* Of each maker. */
struct table {
#define MEMBER(name, args, required) CUresult(*name) args;
    TEI_CUDA_SYMBOLS(MEMBER)
    TEI_CUDA_NEW_SYMBOLS(MEMBER)
#undef MEMBER
    /* of each device, its kernel; NULL: not yet asked for */
    void *_Atomic scatter[TEI_GPU_DEVICES];
};
#define CU ((struct table *)d->table)

/* struct tei_api's scatter() */
int tei_cuda_scatter(const struct tei_driver *d, int device, const struct tei_copy *v, size_t n,
                     void *stream);

#endif
