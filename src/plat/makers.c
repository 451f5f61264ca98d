/* SPDX-License-Identifier: Apache-2.0 */
/*
 * makers.c - every maker of devices: what its memory is called (model/model.h), its library, its names.
 *
 * Where a runtime is CUDA's or HIP's under other names, this row is all there is to it. Hygon's devices
 * are HIP's by all names but the library's, Iluvatar CoreX's are CUDA's by that, too.
 */
#include "plat/gpu.h"

struct tei_driver tei_drivers[TEI_MEM_KINDS] = {
#if TE_USE_CUDA
    [TEI_MEM_CUDA] = {"cuda", "CUDA", {"libcuda.so.1"}, &tei_api_cuda, "cu"},
#endif
#if TE_USE_MUSA
    [TEI_MEM_MUSA] = {"musa", "MUSA", {"libmusa.so.1", "libmusa.so.4"}, &tei_api_cuda, "mu"},
#endif
#if TE_USE_HIP
    [TEI_MEM_HIP] = {"hip",
                     "HIP",
                     {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                      "libgalaxyhip.so.5"},
                     &tei_api_hip,
                     "hip"},
#endif
#if TE_USE_MACA
    [TEI_MEM_MACA] = {"maca", "MACA", {"libmcruntime.so"}, &tei_api_hip, "mc"},
#endif
#if TE_USE_SUPA
    [TEI_MEM_SUPA] = {"supa", "SUPA", {"libsupa.so"}, &tei_api_hip, "supa"},
#endif
#if TE_USE_ASCEND
    [TEI_MEM_ASCEND] = {"npu", "Ascend", {"libascendcl.so"}, &tei_api_ascend, "acl"},
#endif
};
