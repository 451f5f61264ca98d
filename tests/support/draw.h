/* SPDX-License-Identifier: Apache-2.0 */
/* draw.h - numbers that are drawn alike in each run of a test: Marsaglia's xorshift64. For one thread. */
#ifndef TEST_DRAW_H
#define TEST_DRAW_H

#include <stdint.h>

static uint64_t draw_state = UINT64_C(0x9e3779b97f4a7c15); /* not 0; to be set for other numbers */

/* One of 0 to below - 1. */
static inline uint64_t draw(uint64_t below)
{
    draw_state ^= draw_state << 13;
    draw_state ^= draw_state >> 7;
    draw_state ^= draw_state << 17;
    return draw_state % below;
}

#endif
