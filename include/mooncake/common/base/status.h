/* SPDX-License-Identifier: Apache-2.0 */
/* The name that programs for Mooncake include, with -I<prefix>/include/mooncake. */
#ifndef MOONCAKE_COMMON_BASE_STATUS_H
#define MOONCAKE_COMMON_BASE_STATUS_H

#include "../../detail/status.h"

#endif
