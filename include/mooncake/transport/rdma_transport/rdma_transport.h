/* SPDX-License-Identifier: Apache-2.0 */
/* RdmaTransport, by the name that programs for Mooncake include. */
#ifndef MOONCAKE_RDMA_TRANSPORT_H
#define MOONCAKE_RDMA_TRANSPORT_H

#include "../transport.h"

#endif
