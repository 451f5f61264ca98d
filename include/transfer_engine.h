/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_engine.h - the C++ class, by the name and at the place that programs for Mooncake expect it:
 * on the usual path. Mooncake's other headers are in mooncake/, which pkg-config's module
 * mooncake-transfer-engine puts on the path as well. For C, which has no class, the C names.
 */
#ifndef TRANSFER_ENGINE_H
#define TRANSFER_ENGINE_H

#ifdef __cplusplus
#include "mooncake/transfer_engine.h"
#else
#include "transfer_engine_c.h"
#endif

#endif
