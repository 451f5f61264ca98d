/* SPDX-License-Identifier: Apache-2.0 */
#include "common_xml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* XML 1.0, "Char". */
static bool is_allowed(uint32_t c)
{
    return c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c <= 0xD7FF) ||
           (c >= 0xE000 && c <= 0xFFFD) || (c >= 0x10000 && c <= 0x10FFFF);
}

/* Bytes of the character at `s` if it is well formed, in its shortest form and allowed; else 0. */
static size_t character(const unsigned char *s)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    uint32_t c = n == 1 ? s[0] : s[0] & (0xFFu >> (n + 1));

    if (s[0] >= 0x80 && (s[0] < 0xC0 || s[0] > 0xF7))
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3Fu);
    }
    return c >= least[n] && is_allowed(c) ? n : 0;
}

void xml_text(FILE *out, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        size_t n = character(s);
        if (n == 0)
            fputs("&#xFFFD;", out);
        else if (*s == '<' || *s == '>' || *s == '&' || *s == '"' || *s == '\'')
            fprintf(out, "&#%d;", *s);
        else
            fwrite(s, 1, n, out);
        s += n ? n : 1;
    }
}
