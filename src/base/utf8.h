/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h - which bytes are a character. */
#ifndef TEI_UTF8_H
#define TEI_UTF8_H

#include <stddef.h>

/* Bytes of the UTF-8 character beyond ASCII at p, of which `left` bytes are there; 0 if it is none. */
size_t tei_utf8_length(const unsigned char *p, size_t left);

#endif
