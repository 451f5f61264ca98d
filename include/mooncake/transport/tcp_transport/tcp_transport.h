/* SPDX-License-Identifier: Apache-2.0 */
/* TcpTransport, by the name that programs for Mooncake include. */
#ifndef MOONCAKE_TCP_TRANSPORT_H
#define MOONCAKE_TCP_TRANSPORT_H

#include "../transport.h"

#endif
