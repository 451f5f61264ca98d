/* SPDX-License-Identifier: Apache-2.0 */
/* The name that programs for Mooncake include, with -I<prefix>/include/mooncake. */
#ifndef MOONCAKE_TRANSFER_ENGINE_H
#define MOONCAKE_TRANSFER_ENGINE_H

#include "../transfer_engine.hpp"
#include "error.h"

#endif
