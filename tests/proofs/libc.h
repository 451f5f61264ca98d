/* SPDX-License-Identifier: Apache-2.0 */
/* libc.h - what is used here of the C library and CBMC has no model of. */
#ifndef TEI_PROOF_LIBC_H
#define TEI_PROOF_LIBC_H

#include <stdlib.h>
#include <string.h>

size_t strspn(const char *text, const char *accept)
{
    size_t n = 0;

    while (text[n] && strchr(accept, text[n]))
        n++;
    return n;
}

size_t strcspn(const char *text, const char *reject)
{
    size_t n = 0;

    while (text[n] && !strchr(reject, text[n]))
        n++;
    return n;
}

void *memchr(const void *bytes, int c, size_t n)
{
    const unsigned char *p = bytes;

    for (size_t i = 0; i < n; i++)
        if (p[i] == (unsigned char)c)
            return (void *)&p[i];
    return NULL;
}

#endif
