/* SPDX-License-Identifier: Apache-2.0 */
#include "common_random.h"

#include <string.h>

uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

void random_fill(uint64_t *state, uint8_t *data, uint64_t length)
{
    uint64_t i = 0;
    for (; i + 8 <= length; i += 8) {
        uint64_t r = random_next(state);
        memcpy(data + i, &r, 8);
    }
    for (; i < length; i++)
        data[i] = (uint8_t)random_next(state);
}
