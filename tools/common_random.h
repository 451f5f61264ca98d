/* SPDX-License-Identifier: Apache-2.0 */
/* A fast generator for test data (splitmix64). No secrets come from it. */
#ifndef TOOLS_COMMON_RANDOM_H
#define TOOLS_COMMON_RANDOM_H

#include <stdint.h>

/* The next number of the sequence that `state` is in; any value begins one. */
uint64_t random_next(uint64_t *state);

void random_fill(uint64_t *state, uint8_t *data, uint64_t length);

#endif
