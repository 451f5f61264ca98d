/* SPDX-License-Identifier: Apache-2.0 */
/* hex.h - bytes as hexadecimal digits, two each. */
#ifndef TEI_HEX_H
#define TEI_HEX_H

#include "base/base.h"

/* In lower case; `out` has room for 2 * n + 1. */
void tei_hex_write(const uint8_t *bytes, size_t n, char *out);
/* The value of a digit of either case; -1: it is none. */
int tei_hex_digit(char c);
/* Reads n bytes from the first 2 * n characters, in either case; false: they are not all digits. */
bool tei_hex_read(const char *text, uint8_t *out, size_t n);

/* Whether a text is that many digits in lower case and nothing else; NULL is not. */
bool tei_hex_is(const char *text, size_t digits);
/* A number of 64 bits from a text of 16 such digits; false: it is another text, or NULL. */
bool tei_hex_number(const char *text, uint64_t *out);

#endif
