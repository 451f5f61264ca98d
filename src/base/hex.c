/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hex.h"

#include <stdlib.h>
#include <string.h>

static const char lower[] = "0123456789abcdef";

void tei_hex_write(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = lower[bytes[i] >> 4];
        out[2 * i + 1] = lower[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

int tei_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool tei_hex_read(const char *text, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int high = tei_hex_digit(text[2 * i]), low = high < 0 ? -1 : tei_hex_digit(text[2 * i + 1]);

        if (low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

bool tei_hex_is(const char *text, size_t digits)
{
    return text && strlen(text) == digits && strspn(text, lower) == digits;
}

bool tei_hex_number(const char *text, uint64_t *out)
{
    if (!tei_hex_is(text, 16))
        return false;
    *out = strtoull(text, NULL, 16);
    return true;
}
