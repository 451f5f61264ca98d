/* SPDX-License-Identifier: Apache-2.0 */
/* siphash.c - written from the authors' paper; all words are little-endian. */
#include "base/siphash.h"

#include <endian.h>
#include <string.h>

static uint64_t rotate(uint64_t x, unsigned n)
{
    return x << n | x >> (64 - n);
}

static void rounds(uint64_t v[4], int n)
{
    while (n-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

static void absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    rounds(v, 2);
    v[0] ^= word;
}

static uint64_t load(const uint8_t *p, size_t n)
{
    uint64_t word = 0;

    memcpy(&word, p, n);
    return le64toh(word);
}

static void squeeze(uint64_t v[4], uint8_t out[8])
{
    uint64_t word;

    rounds(v, 4);
    word = htole64(v[0] ^ v[1] ^ v[2] ^ v[3]);
    memcpy(out, &word, sizeof(word));
}

void tei_siphash(const uint8_t key[TEI_SIPHASH_LEN], const void *message, size_t n,
                 uint8_t out[TEI_SIPHASH_LEN])
{
    const uint8_t *p = message;
    uint64_t k0 = load(key, 8), k1 = load(key + 8, 8), length = (uint64_t)n << 56;
    uint64_t v[4] = {UINT64_C(0x736f6d6570736575) ^ k0, UINT64_C(0x646f72616e646f6d) ^ k1 ^ 0xee,
                     UINT64_C(0x6c7967656e657261) ^ k0, UINT64_C(0x7465646279746573) ^ k1};

    for (; n >= 8; p += 8, n -= 8)
        absorb(v, load(p, 8));
    absorb(v, length | load(p, n));
    v[2] ^= 0xee;
    squeeze(v, out);
    v[1] ^= 0xdd;
    squeeze(v, out + 8);
}
