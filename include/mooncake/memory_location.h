/* SPDX-License-Identifier: Apache-2.0 */
/* kWildcardLocation, by the name that programs for Mooncake include. */
#ifndef MOONCAKE_MEMORY_LOCATION_H
#define MOONCAKE_MEMORY_LOCATION_H

#include "detail/types.h"

#endif
