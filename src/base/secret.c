/* SPDX-License-Identifier: Apache-2.0 */
/* secret.c - see secret.h. */
#include "base/secret.h"

#include "base/base.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STACK_BYTES 16384 /* deeper than libcrypto goes for an HMAC */

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static size_t whole_pages(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (n + page - 1) / page * page;
}

void *tei_secret_alloc(size_t n)
{
    size_t size = whole_pages(n);
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    if (madvise(p, size, MADV_DONTDUMP) != 0) {
        munmap(p, size);
        return NULL;
    }
    /* Better with these, and good without: a kernel or a limit may refuse them. */
    (void)madvise(p, size, MADV_WIPEONFORK);
    (void)mlock(p, size);
    return p;
}

void tei_secret_free(void *p, size_t n)
{
    if (!p)
        return;
    explicit_bzero(p, n);
    munmap(p, whole_pages(n));
}

/*
 * Vector registers keep what was copied last, and the dynamic linker saves them on the stack when it binds a function of
 * any library. Callers do not count on them; compilers that look into this function are told what it changes.
 */
#if defined(__x86_64__)
#define ZERO(n)       "pxor %%xmm" #n ",%%xmm" #n "\n\t"
#define ZERO_UPPER(n) "vpxord %%zmm" #n ",%%zmm" #n ",%%zmm" #n "\n\t"
#define LOWER                                                                                \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#ifdef __AVX512F__
#define UPPER                                                                                   \
    , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", \
        "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31"
#else /* the compiler does not use them */
#define UPPER
#endif

static void clear_registers(void)
{
    if (__builtin_cpu_supports("avx512f"))
        __asm__ volatile(ZERO_UPPER(16) ZERO_UPPER(17) ZERO_UPPER(18) ZERO_UPPER(19) ZERO_UPPER(20)
                             ZERO_UPPER(21) ZERO_UPPER(22) ZERO_UPPER(23) ZERO_UPPER(24)
                                 ZERO_UPPER(25) ZERO_UPPER(26) ZERO_UPPER(27) ZERO_UPPER(28)
                                     ZERO_UPPER(29) ZERO_UPPER(30) ZERO_UPPER(31)
                         :
                         :
                         : "memory" UPPER);
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("vzeroall" : : : LOWER);
    else
        __asm__ volatile(ZERO(0) ZERO(1) ZERO(2) ZERO(3) ZERO(4) ZERO(5) ZERO(6) ZERO(7) ZERO(8)
                             ZERO(9) ZERO(10) ZERO(11) ZERO(12) ZERO(13) ZERO(14) ZERO(15)
                         :
                         :
                         : LOWER);
}
#else
static void clear_registers(void)
{
}
#endif

TEI_COLD void tei_secret_burn(void)
{
    uint8_t left[STACK_BYTES];

    clear_registers();
    explicit_bzero(left, sizeof(left));
}

/* --------------------------------------------------------------------------------------- tickets */

struct tei_ticket *tei_ticket_new(const char *id, size_t len, const uint8_t key[TEI_TICKET_KEY])
{
    struct tei_ticket *t = tei_secret_alloc(sizeof(*t));

    assert(len <= TEI_TICKET_ID_MAX);
    if (!t)
        return NULL;
    atomic_init(&t->refs, 1);
    memcpy(t->id, id, len);
    memcpy(t->key, key, TEI_TICKET_KEY);
    return t;
}

struct tei_ticket *tei_ticket_get(struct tei_ticket *t)
{
    if (t)
        atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

void tei_ticket_put(struct tei_ticket *t)
{
    if (t && atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) == 1)
        tei_secret_free(t, sizeof(*t));
}
