/* SPDX-License-Identifier: Apache-2.0 */
/*
 * makers.c - every maker of devices: what its memory is called (model/model.h), its library, its names.
 *
 * Where a runtime is CUDA's or HIP's under other names, this row is all there is to it. Hygon's devices
 * are HIP's by all names but the library's, Iluvatar CoreX's are CUDA's by that, too.
 */
#include "plat/gpu.h"

#define MAKER(word, called, runtime, names, ...)                                      \
    {                                                                                 \
        .name = (word), .title = (called), .files = {__VA_ARGS__}, .api = &(runtime), \
        .prefix = (names)                                                             \
    }

struct tei_driver tei_drivers[TEI_MEM_KINDS] = {
#if TE_USE_CUDA
    [TEI_MEM_CUDA] = MAKER("cuda", "CUDA", tei_api_cuda, "cu", "libcuda.so.1"),
#endif
#if TE_USE_MUSA
    [TEI_MEM_MUSA] = MAKER("musa", "MUSA", tei_api_cuda, "mu", "libmusa.so.1", "libmusa.so.4"),
#endif
#if TE_USE_HIP
    [TEI_MEM_HIP] = MAKER("hip", "HIP", tei_api_hip, "hip", "libamdhip64.so.7", "libamdhip64.so.6",
                          "libamdhip64.so.5", "libgalaxyhip.so.5"),
#endif
#if TE_USE_MACA
    [TEI_MEM_MACA] = MAKER("maca", "MACA", tei_api_hip, "mc", "libmcruntime.so"),
#endif
#if TE_USE_SUPA
    [TEI_MEM_SUPA] = MAKER("supa", "SUPA", tei_api_hip, "supa", "libsupa.so"),
#endif
#if TE_USE_ASCEND
    [TEI_MEM_ASCEND] = MAKER("npu", "Ascend", tei_api_ascend, "acl", "libascendcl.so"),
#endif
};
