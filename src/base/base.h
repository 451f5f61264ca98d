/* SPDX-License-Identifier: Apache-2.0 */
/* base.h - the few macros every file may use. */
#ifndef TEI_BASE_H
#define TEI_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEI_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* From a pointer to a member back to its object; a pointer of another type does not compile. */
#define tei_container_of(ptr, type, member) \
    ((type *)((char *)(1 ? (ptr) : &((type *)0)->member) - offsetof(type, member)))

/* Seldom called: it is to take nothing from its caller, neither registers nor a guard of its stack. */
#define TEI_COLD __attribute__((cold, noinline))

/* Whether the address sanitizer looks on: memory that is kept for later use would hide from it that it was freed. */
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define TEI_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define TEI_ASAN 1
#endif
#ifndef TEI_ASAN
#define TEI_ASAN 0
#endif

#define TEI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

static inline size_t tei_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t tei_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* *sum = a + b; false on overflow. */
static inline bool tei_add_ok(uint64_t a, uint64_t b, uint64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

/* *product = a * b; false on overflow. */
static inline bool tei_mul_ok(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

#endif
