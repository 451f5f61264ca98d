/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

#include "te.h"

#include <stdlib.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *tei_base64_encode(const void *data, size_t n)
{
    const uint8_t *in = data;
    size_t words = n / 3 + (n % 3 != 0);
    char *out = n <= SIZE_MAX / 2 ? malloc(4 * words + 1) : NULL, *p = out;

    if (!out)
        return NULL;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t w = (uint32_t)in[i] << 16;

        w |= i + 1 < n ? (uint32_t)in[i + 1] << 8 : 0;
        w |= i + 2 < n ? in[i + 2] : 0;
        *p++ = letters[w >> 18];
        *p++ = letters[w >> 12 & 63];
        *p++ = i + 1 < n ? letters[w >> 6 & 63] : '=';
        *p++ = i + 2 < n ? letters[w & 63] : '=';
    }
    *p = '\0';
    return out;
}

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool tei_base64_decode(const char *text, size_t n, bool exact, uint8_t *out, size_t room,
                       size_t *len)
{
    size_t pad = n < 2 || text[n - 1] != '=' ? 0 : text[n - 2] == '=' ? 2 : 1, at = 0;
    uint32_t word = 0;

    if (n % 4 != 0 || n / 4 * 3 - pad > room)
        return false;
    *len = n / 4 * 3 - pad;
    for (size_t i = 0; i < n; i++) {
        int v = i < n - pad ? value_of(text[i]) : 0;

        if (v < 0)
            return false;
        word = word << 6 | (uint32_t)v;
        for (int shift = 16; i % 4 == 3 && shift >= 0 && at < *len; shift -= 8)
            out[at++] = (uint8_t)(word >> shift);
    }
    return !exact || (word & ((UINT32_C(1) << 8 * pad) - 1)) == 0;
}

int tei_base64_decode_new(const char *text, size_t n, char **out, size_t *len)
{
    size_t room = n / 4 * 3;
    char *data = malloc(room + 1);

    if (!data)
        return TE_ERR_MEMORY;
    if (!tei_base64_decode(text, n, false, (uint8_t *)data, room, len)) {
        free(data);
        return TE_ERR_INVALID;
    }
    data[*len] = '\0';
    *out = data;
    return 0;
}
