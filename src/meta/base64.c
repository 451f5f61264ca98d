/* SPDX-License-Identifier: Apache-2.0 */
#include "meta/base64.h"

#include <stdlib.h>
#include <string.h>

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

/* Four letters, of which the last `pad` are padding; false if one is none. */
static bool decode_word(const char *in, size_t pad, uint8_t **out)
{
    uint32_t w = 0;

    for (size_t i = 0; i < 4; i++) {
        int v = i < 4 - pad ? value_of(in[i]) : 0;

        if (v < 0)
            return false;
        w = w << 6 | (uint32_t)v;
    }
    *(*out)++ = (uint8_t)(w >> 16);
    if (pad < 2)
        *(*out)++ = (uint8_t)(w >> 8);
    if (pad < 1)
        *(*out)++ = (uint8_t)w;
    return true;
}

int tei_base64_decode(const char *text, size_t n, struct tei_bytes *out)
{
    size_t pad = n < 2 || text[n - 1] != '=' ? 0 : text[n - 2] == '=' ? 2 : 1;
    bool ok = n % 4 == 0;
    char *data = malloc(n / 4 * 3 + 1);
    uint8_t *p = (uint8_t *)data;

    if (!data)
        return TE_ERR_MEMORY;
    for (size_t i = 0; ok && i < n; i += 4)
        ok = decode_word(text + i, i + 4 == n ? pad : 0, &p);
    if (!ok) {
        free(data);
        return TE_ERR_INVALID;
    }
    *p = '\0';
    *out = (struct tei_bytes){.data = data, .len = (size_t)((char *)p - data)};
    return 0;
}
