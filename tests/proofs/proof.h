/* SPDX-License-Identifier: Apache-2.0 */
/* proof.h - what every proof has. A local variable that nothing was written to has any value, for CBMC. */
#ifndef TEI_PROOF_H
#define TEI_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define ASSUME(x) __CPROVER_assume(x)
#define PROVE(x)  __CPROVER_assert(x, #x)

void proof(void);

/* In place of proof(): refuted, or no input is left by what proof() assumes. */
void reach_end(void)
{
    proof();
    __CPROVER_assert(0, "the end is reached");
}

/* Of a variable of type bool the value may be any of its byte: this is one of the two. */
static inline bool any_bool(void)
{
    int any;

    return any != 0;
}

static inline size_t any_size(size_t max)
{
    size_t n;

    ASSUME(n <= max);
    return n;
}

/* n bytes of any value, and nothing behind them. */
static inline void *any_bytes(size_t n)
{
    void *p = malloc(n);

    ASSUME(p);
    return p;
}

/* A text of n characters at most, and nothing behind its NUL. */
static inline char *any_text(size_t max)
{
    size_t n = any_size(max);
    char *text = any_bytes(n + 1);

    text[n] = '\0';
    return text;
}

#endif
