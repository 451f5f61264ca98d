/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32c.c - CRC-32C of long buffers.
 *
 * The instruction has a latency of three cycles and can be issued every cycle, so three streams go
 * side by side: a run of bytes is cut in three lanes of equal length, and the checksums of the lanes
 * are joined. Joining needs "this checksum, as if LANE more bytes of zeros had followed", which is a
 * linear map of 32 bits; it stands in four tables of 256 words for each lane length (the method is
 * that of Mark Adler's public description of 2013). Tables are made once, at the first use.
 *
 * Processors that multiply polynomials in 512-bit registers (VPCLMULQDQ) do better: 256 bytes at a
 * time are folded into the 256 that follow, which leaves the remainder as it is, until 64 are left
 * for the instruction (the method of Gopal and others, Intel, 2009). A register holds its bits
 * reflected, so a product comes out multiplied by x: the factor for a distance of D bits is
 * x^(D+63) for the first half of 16 bytes and x^(D-1) for the second.
 */
#include "base/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define CRC_TARGET    __attribute__((target("sse4.2")))
#define CRC_U64(c, v) ((uint32_t)_mm_crc32_u64((c), (v)))
#define CRC_U8(c, v)  _mm_crc32_u8((c), (v))
static bool find_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#define CRC_TARGET    __attribute__((target("+crc")))
#define CRC_U64(c, v) __crc32cd((c), (v))
#define CRC_U8(c, v)  __crc32cb((c), (v))
static bool find_instruction(void)
{
    return (getauxval(AT_HWCAP) & (1UL << 7)) != 0; /* HWCAP_CRC32 */
}
#else
static bool find_instruction(void)
{
    return false;
}
#endif

#define POLYNOMIAL UINT32_C(0x82f63b78) /* bits reversed */
#define LONG_LANE  ((size_t)8192)
#define SHORT_LANE ((size_t)256)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_instruction, has_folding;
static uint32_t bytes[8][256];                         /* by tables, eight bytes a step */
static uint32_t skip_long[4][256], skip_short[4][256]; /* as if a lane of zeros followed */

/* ------------------------------------------------------------------------------------- by tables */

static uint32_t by_tables(uint32_t crc, const uint8_t *p, size_t n)
{
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t lo = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                             (uint32_t)p[3] << 24);

        crc = bytes[7][lo & 255] ^ bytes[6][lo >> 8 & 255] ^ bytes[5][lo >> 16 & 255] ^
              bytes[4][lo >> 24] ^ bytes[3][p[4]] ^ bytes[2][p[5]] ^ bytes[1][p[6]] ^
              bytes[0][p[7]];
    }
    while (n--)
        crc = crc >> 8 ^ bytes[0][(crc ^ *p++) & 255];
    return crc;
}

static void make_bytes(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;

        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? c >> 1 ^ POLYNOMIAL : c >> 1;
        bytes[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            bytes[k][i] = bytes[k - 1][i] >> 8 ^ bytes[0][bytes[k - 1][i] & 255];
}

/* ------------------------------------------------------------------------------- by instruction */

/* The map is linear: the image of each bit gives that of every word. */
static void make_skip(uint32_t skip[4][256], size_t zeros)
{
    uint32_t image[32];

    for (int bit = 0; bit < 32; bit++) {
        uint32_t c = UINT32_C(1) << bit;

        for (size_t i = 0; i < zeros; i++)
            c = c >> 8 ^ bytes[0][c & 255];
        image[bit] = c;
    }
    for (int k = 0; k < 4; k++)
        for (uint32_t i = 0; i < 256; i++) {
            skip[k][i] = 0;
            for (int bit = 0; bit < 8; bit++)
                skip[k][i] ^= i >> bit & 1 ? image[8 * k + bit] : 0;
        }
}

#ifdef CRC_TARGET
static inline uint64_t load(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t skip(uint32_t by[4][256], uint32_t crc)
{
    return by[0][crc & 255] ^ by[1][crc >> 8 & 255] ^ by[2][crc >> 16 & 255] ^ by[3][crc >> 24];
}

/* Three lanes of `lane` bytes. */
CRC_TARGET static uint32_t three_lanes(uint32_t crc, const uint8_t *p, size_t lane,
                                       uint32_t by[4][256])
{
    uint32_t a = crc, b = 0, c = 0;

    for (size_t i = 0; i < lane; i += 8) {
        a = CRC_U64(a, load(p + i));
        b = CRC_U64(b, load(p + lane + i));
        c = CRC_U64(c, load(p + 2 * lane + i));
    }
    return skip(by, skip(by, a) ^ b) ^ c;
}

CRC_TARGET static uint32_t by_instruction(uint32_t crc, const uint8_t *p, size_t n)
{
    for (; n >= 3 * LONG_LANE; p += 3 * LONG_LANE, n -= 3 * LONG_LANE)
        crc = three_lanes(crc, p, LONG_LANE, skip_long);
    for (; n >= 3 * SHORT_LANE; p += 3 * SHORT_LANE, n -= 3 * SHORT_LANE)
        crc = three_lanes(crc, p, SHORT_LANE, skip_short);
    for (; n >= 8; p += 8, n -= 8)
        crc = CRC_U64(crc, load(p));
    while (n--)
        crc = CRC_U8(crc, *p++);
    return crc;
}
#else
static uint32_t by_instruction(uint32_t crc, const uint8_t *p, size_t n)
{
    return by_tables(crc, p, n);
}
#endif

/* ------------------------------------------------------------------------------------ by folding */

#if defined(__x86_64__)
#define FOLD_TARGET __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2")))
#define FOLD_MIN    ((size_t)1024)
#define STRIPE      ((size_t)256)

static uint64_t fold_far[2], fold_near[2]; /* by 2,048 bits, by 512 */

/* x^n modulo the polynomial, as the upper half of a reflected word. */
static uint64_t power(unsigned n)
{
    uint32_t r = UINT32_C(1) << 31;

    while (n--)
        r = r & 1 ? r >> 1 ^ POLYNOMIAL : r >> 1;
    return (uint64_t)r << 32;
}

static void make_folds(void)
{
    fold_far[0] = power(2048 + 63);
    fold_far[1] = power(2048 - 1);
    fold_near[0] = power(512 + 63);
    fold_near[1] = power(512 - 1);
    has_folding = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") &&
                  __builtin_cpu_supports("pclmul");
}

FOLD_TARGET static inline __m512i fold(__m512i a, __m512i by, __m512i onto)
{
    __m512i low = _mm512_clmulepi64_epi128(a, by, 0x00),
            high = _mm512_clmulepi64_epi128(a, by, 0x11);

    return _mm512_xor_si512(_mm512_xor_si512(low, high), onto);
}

FOLD_TARGET static inline __m512i factors(const uint64_t by[2])
{
    return _mm512_broadcast_i32x4(_mm_set_epi64x((long long)by[1], (long long)by[0]));
}

/* Leaves in `rest` 64 bytes whose checksum is that of the first n bytes, a multiple of STRIPE. */
FOLD_TARGET static void fold_all(uint32_t crc, const uint8_t *p, size_t n, uint8_t rest[64])
{
    __m512i far = factors(fold_far), near = factors(fold_near);
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512(p),
                                 _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    __m512i b = _mm512_loadu_si512(p + 64), c = _mm512_loadu_si512(p + 128),
            d = _mm512_loadu_si512(p + 192);

    for (p += STRIPE, n -= STRIPE; n >= STRIPE; p += STRIPE, n -= STRIPE) {
        a = fold(a, far, _mm512_loadu_si512(p));
        b = fold(b, far, _mm512_loadu_si512(p + 64));
        c = fold(c, far, _mm512_loadu_si512(p + 128));
        d = fold(d, far, _mm512_loadu_si512(p + 192));
    }
    b = fold(a, near, b);
    c = fold(b, near, c);
    d = fold(c, near, d);
    _mm512_storeu_si512(rest, d);
}

static uint32_t by_folding(uint32_t crc, const uint8_t *p, size_t n)
{
    size_t folded = n / STRIPE * STRIPE;
    uint8_t rest[64];

    fold_all(crc, p, folded, rest);
    return by_instruction(by_instruction(0, rest, sizeof rest), p + folded, n - folded);
}
#else
#define FOLD_MIN ((size_t)0)
static void make_folds(void)
{
    has_folding = false;
}

static uint32_t by_folding(uint32_t crc, const uint8_t *p, size_t n)
{
    return by_instruction(crc, p, n);
}
#endif

static void make_all(void)
{
    make_folds();
    make_bytes();
    make_skip(skip_long, LONG_LANE);
    make_skip(skip_short, SHORT_LANE);
    has_instruction = find_instruction();
}

uint32_t tei_crc32c(uint32_t crc, const void *data, size_t n)
{
    pthread_once(&once, make_all);
    crc = ~crc;
    if (has_folding && n >= FOLD_MIN)
        crc = by_folding(crc, data, n);
    else
        crc = has_instruction ? by_instruction(crc, data, n) : by_tables(crc, data, n);
    return ~crc;
}
