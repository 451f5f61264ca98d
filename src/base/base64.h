/* SPDX-License-Identifier: Apache-2.0 */
/* base64.h - the encoding of RFC 4648 section 4. */
#ifndef TEI_BASE64_H
#define TEI_BASE64_H

#include "base/base.h"

/* malloc'ed text; NULL when memory is out. */
char *tei_base64_encode(const void *data, size_t n);

/*
 * The bytes of a text, into `out`, and how many in *len. False for a text that is none (wrong letter, length
 * or padding), and for one of more than `room` bytes. exact: also for one whose last letter has bits behind
 * the last byte, as another text of the same bytes has none.
 */
bool tei_base64_decode(const char *text, size_t n, bool exact, uint8_t *out, size_t room,
                       size_t *len);

/* The same, malloc'ed and with a NUL behind it. TE_ERR_INVALID or TE_ERR_MEMORY; unlogged. */
int tei_base64_decode_new(const char *text, size_t n, char **out, size_t *len);

#endif
