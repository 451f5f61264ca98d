/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_alike.h - the runtime of the GPUs that a program is built for, by the name that programs for
 * Mooncake include. Nothing without one; USE_CUDA or USE_HIP says which is meant, as in Mooncake's build.
 */
#ifndef MOONCAKE_CUDA_ALIKE_H
#define MOONCAKE_CUDA_ALIKE_H

#if defined(USE_CUDA) && __has_include(<cuda_runtime.h>)
#include <cuda.h>
#include <cuda_runtime.h>
#elif defined(USE_HIP) && __has_include(<hip/hip_runtime.h>)
#include <hip/hip_runtime.h>
#endif

#endif
