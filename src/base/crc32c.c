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
 *
 * Where registers for that have 256 bits, folding is as fast as the instruction, but uses other units
 * of the processor. So a run of bytes is cut in seven lanes: the first four are folded, as one, while
 * the instruction goes through the other three.
 */
#include "base/crc32c.h"

#include "base/base.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
/* Newer clangs have a feature of its own for these, which the other one does not always imply. */
#ifdef __clang__
#define CRC_FEATURES "sse4.2,crc32"
#else
#define CRC_FEATURES "sse4.2"
#endif
#define CRC_TARGET    __attribute__((target(CRC_FEATURES)))
#define CRC_U64(c, v) _mm_crc32_u64((c), (v))
#define CRC_U8(c, v)  _mm_crc32_u8((c), (v))
static bool find_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
#include <sys/auxv.h>
/* Said to the assembler: how a function asks for the instructions depends on compiler and version. */
#define CRC_EXTENSION ".arch_extension crc\n\t"
#define CRC_TARGET
#define CRC_U64(c, v) crc_word((uint32_t)(c), (v))
#define CRC_U8(c, v)  crc_byte((c), (v))
static inline uint32_t crc_word(uint32_t crc, uint64_t v)
{
    __asm__(CRC_EXTENSION "crc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(v));
    return crc;
}
static inline uint32_t crc_byte(uint32_t crc, uint8_t v)
{
    __asm__(CRC_EXTENSION "crc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(v));
    return crc;
}
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
#define AHEAD      1024                 /* bytes of each lane, asked for before they are needed */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool can[TEI_CRC32C_METHODS];
static uint32_t (*best)(uint32_t crc, const uint8_t *p, size_t n);
static uint32_t bytes[8][256]; /* by tables, eight bytes a step */

/* How long lanes may be, each a multiple of the next, and the maps that add so many zeros. */
static const size_t lane_len[] = {16384, 2048, 256};
static uint32_t lane_skip[TEI_ARRAY_LEN(lane_len)][4][256];

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

static inline uint32_t skip(uint32_t by[4][256], uint64_t crc)
{
    return by[0][crc & 255] ^ by[1][crc >> 8 & 255] ^ by[2][crc >> 16 & 255] ^ by[3][crc >> 24];
}

/* The map is linear: the image of each bit gives that of every word. */
static void make_map(uint32_t map[4][256], const uint32_t image[32])
{
    for (int k = 0; k < 4; k++)
        for (uint32_t i = 0; i < 256; i++) {
            map[k][i] = 0;
            for (int bit = 0; bit < 8; bit++)
                map[k][i] ^= i >> bit & 1 ? image[8 * k + bit] : 0;
        }
}

/* From the shortest lane to the longest, which is so many times the one before. */
static void make_skips(void)
{
    unsigned last = TEI_ARRAY_LEN(lane_len) - 1;
    uint32_t image[32];

    for (int bit = 0; bit < 32; bit++) {
        image[bit] = UINT32_C(1) << bit;
        for (size_t i = 0; i < lane_len[last]; i++)
            image[bit] = image[bit] >> 8 ^ bytes[0][image[bit] & 255];
    }
    make_map(lane_skip[last], image);
    for (unsigned i = last; i > 0; i--) {
        for (int bit = 0; bit < 32; bit++)
            for (size_t n = lane_len[i]; n < lane_len[i - 1]; n += lane_len[i])
                image[bit] = skip(lane_skip[i], image[bit]);
        make_map(lane_skip[i - 1], image);
    }
}

#ifdef CRC_TARGET
static inline uint64_t load(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* Three lanes of `lane` bytes. */
CRC_TARGET static uint32_t three_lanes(uint32_t crc, const uint8_t *p, size_t lane,
                                       uint32_t by[4][256])
{
    uint64_t a = crc, b = 0, c = 0; /* with 32 bits, a word would cost one more instruction */

    for (size_t i = 0; i < lane; i += 8) {
        a = CRC_U64(a, load(p + i));
        b = CRC_U64(b, load(p + lane + i));
        c = CRC_U64(c, load(p + 2 * lane + i));
    }
    return skip(by, skip(by, a) ^ b) ^ (uint32_t)c;
}

CRC_TARGET static uint32_t by_instruction(uint32_t crc, const uint8_t *p, size_t n)
{
    for (unsigned i = 0; i < TEI_ARRAY_LEN(lane_len); i++)
        for (size_t run = 3 * lane_len[i]; n >= run; p += run, n -= run)
            crc = three_lanes(crc, p, lane_len[i], lane_skip[i]);
    for (; n >= 8; p += 8, n -= 8)
        crc = (uint32_t)CRC_U64(crc, load(p));
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
#define HALF_TARGET __attribute__((target("avx2,vpclmulqdq,pclmul," CRC_FEATURES)))
#define FOLD_TARGET __attribute__((target("avx512f,vpclmulqdq,pclmul," CRC_FEATURES)))
#define FOLD_MIN    ((size_t)1024)
#define STRIPE      ((size_t)256)

/* By 2,048 bits and by 512, in the widest registers; by 1,024 and by 256, in those half as wide. */
static uint64_t fold_far[2], fold_near[2], half_far[2], half_near[2];

/* x^n modulo the polynomial, as the upper half of a reflected word. */
static uint64_t power(unsigned n)
{
    uint32_t r = UINT32_C(1) << 31;

    while (n--)
        r = r & 1 ? r >> 1 ^ POLYNOMIAL : r >> 1;
    return (uint64_t)r << 32;
}

static void make_factors(uint64_t by[2], unsigned bits)
{
    by[0] = power(bits + 63);
    by[1] = power(bits - 1);
}

static void make_folds(void)
{
    bool multiplies = can[TEI_CRC32C_INSTRUCTION] && __builtin_cpu_supports("vpclmulqdq") &&
                      __builtin_cpu_supports("pclmul");

    make_factors(fold_far, 2048);
    make_factors(fold_near, 512);
    make_factors(half_far, 1024);
    make_factors(half_near, 256);
    can[TEI_CRC32C_BOTH] = multiplies && __builtin_cpu_supports("avx2");
    can[TEI_CRC32C_FOLDING] = multiplies && __builtin_cpu_supports("avx512f");
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

    if (n < FOLD_MIN)
        return by_instruction(crc, p, n);
    fold_all(crc, p, folded, rest);
    return by_instruction(by_instruction(0, rest, sizeof rest), p + folded, n - folded);
}

/* ------------------------------------------------------------------ folding and instruction mixed */

HALF_TARGET static inline __m256i load_half(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

HALF_TARGET static inline __m256i fold_half(__m256i a, __m256i by, __m256i onto)
{
    __m256i low = _mm256_clmulepi64_epi128(a, by, 0x00),
            high = _mm256_clmulepi64_epi128(a, by, 0x11);

    return _mm256_xor_si256(_mm256_xor_si256(low, high), onto);
}

HALF_TARGET static inline __m256i half_factors(const uint64_t by[2])
{
    return _mm256_broadcastsi128_si256(_mm_set_epi64x((long long)by[1], (long long)by[0]));
}

/* 32 bytes. */
HALF_TARGET static inline uint64_t four_words(uint64_t crc, const uint8_t *p)
{
    crc = CRC_U64(crc, load(p));
    crc = CRC_U64(crc, load(p + 8));
    crc = CRC_U64(crc, load(p + 16));
    return CRC_U64(crc, load(p + 24));
}

/* What lies beyond the end may be asked for, too. */
static inline void ask_for(const uint8_t *p, size_t ahead)
{
    _mm_prefetch((const char *)((uintptr_t)p + ahead), _MM_HINT_T0);
}

/* Four lanes folded, three by the instruction, each of `lane` bytes, a multiple of 32. */
HALF_TARGET static uint32_t seven_lanes(uint32_t crc, const uint8_t *p, size_t lane,
                                        uint32_t by[4][256])
{
    const uint8_t *q = p + 4 * lane, *end = q;
    __m256i far = half_factors(half_far), near = half_factors(half_near);
    __m256i a = load_half(p), b = load_half(p + 32), c = load_half(p + 64), d = load_half(p + 96);
    uint64_t x = four_words(0, q), y = four_words(0, q + lane), z = four_words(0, q + 2 * lane);
    uint8_t rest[32];

    a = _mm256_xor_si256(a, _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)crc)));
    for (p += 128, q += 32; p < end; p += 128, q += 32) {
        ask_for(p, AHEAD);
        ask_for(p, AHEAD + 64);
        ask_for(q, AHEAD);
        ask_for(q, AHEAD + lane);
        ask_for(q, AHEAD + 2 * lane);
        a = fold_half(a, far, load_half(p));
        b = fold_half(b, far, load_half(p + 32));
        c = fold_half(c, far, load_half(p + 64));
        d = fold_half(d, far, load_half(p + 96));
        x = four_words(x, q);
        y = four_words(y, q + lane);
        z = four_words(z, q + 2 * lane);
    }
    b = fold_half(a, near, b);
    c = fold_half(b, near, c);
    d = fold_half(c, near, d);
    _mm256_storeu_si256((__m256i *)(void *)rest, d);
    return skip(by, skip(by, skip(by, four_words(0, rest)) ^ x) ^ y) ^ (uint32_t)z;
}

static uint32_t by_both(uint32_t crc, const uint8_t *p, size_t n)
{
    for (unsigned i = 0; i < TEI_ARRAY_LEN(lane_len); i++)
        for (size_t run = 7 * lane_len[i]; n >= run; p += run, n -= run)
            crc = seven_lanes(crc, p, lane_len[i], lane_skip[i]);
    return by_instruction(crc, p, n);
}
#else
static uint32_t by_folding(uint32_t crc, const uint8_t *p, size_t n)
{
    return by_instruction(crc, p, n);
}

static uint32_t by_both(uint32_t crc, const uint8_t *p, size_t n)
{
    return by_instruction(crc, p, n);
}

static void make_folds(void)
{
}
#endif

/* ------------------------------------------------------------------------------------ the choice */

static uint32_t (*const methods[])(uint32_t, const uint8_t *, size_t) = {
    [TEI_CRC32C_TABLES] = by_tables,
    [TEI_CRC32C_INSTRUCTION] = by_instruction,
    [TEI_CRC32C_BOTH] = by_both,
    [TEI_CRC32C_FOLDING] = by_folding,
};

static void make_all(void)
{
    make_bytes();
    make_skips();
    can[TEI_CRC32C_TABLES] = true;
    can[TEI_CRC32C_INSTRUCTION] = find_instruction();
    make_folds();
    for (unsigned i = 0; i < TEI_ARRAY_LEN(methods); i++)
        best = can[i] ? methods[i] : best;
}

bool tei_crc32c_can(enum tei_crc32c_method method)
{
    pthread_once(&once, make_all);
    return can[method];
}

uint32_t tei_crc32c_by(enum tei_crc32c_method method, uint32_t crc, const void *data, size_t n)
{
    pthread_once(&once, make_all);
    assert(can[method]);
    return ~methods[method](~crc, data, n);
}

uint32_t tei_crc32c(uint32_t crc, const void *data, size_t n)
{
    pthread_once(&once, make_all);
    return ~best(~crc, data, n);
}
