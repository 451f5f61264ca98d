/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mooncake's names of what calls return that return an int; te.h has more of them. Not part of
 * transfer_engine.hpp, since they are outside of the namespace; transfer_engine.h brings them. Whoever
 * means the C library's header of this name has that as well.
 */
#if __has_include_next(<error.h>)
#pragma GCC system_header
#include_next <error.h>
#endif

#if defined(__cplusplus) && !defined(MOONCAKE_ERROR_H)
#define MOONCAKE_ERROR_H

#include "../te.h"

inline constexpr int ERR_INVALID_ARGUMENT = TE_ERR_INVALID;
inline constexpr int ERR_TOO_MANY_REQUESTS = TE_ERR_TOO_MANY;
inline constexpr int ERR_ADDRESS_NOT_REGISTERED = TE_ERR_NOT_REGISTERED;
inline constexpr int ERR_BATCH_BUSY = TE_ERR_BUSY;
inline constexpr int ERR_DEVICE_NOT_FOUND = TE_ERR_NO_DEVICE;
inline constexpr int ERR_ADDRESS_OVERLAPPED = TE_ERR_OVERLAP;
inline constexpr int ERR_DNS = TE_ERR_DNS;
inline constexpr int ERR_SOCKET = TE_ERR_SOCKET;
inline constexpr int ERR_MALFORMED_JSON = TE_ERR_JSON;
inline constexpr int ERR_REJECT_HANDSHAKE = TE_ERR_REJECTED;
inline constexpr int ERR_METADATA = TE_ERR_METADATA;
inline constexpr int ERR_ENDPOINT = TE_ERR_ENDPOINT;
inline constexpr int ERR_CONTEXT = TE_ERR_CONTEXT;
inline constexpr int ERR_NUMA = TE_ERR_NUMA;
inline constexpr int ERR_CLOCK = TE_ERR_CLOCK;
inline constexpr int ERR_MEMORY = TE_ERR_MEMORY;
inline constexpr int ERR_NOT_IMPLEMENTED = TE_ERR_NOT_IMPLEMENTED;

#endif
