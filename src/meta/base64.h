/* SPDX-License-Identifier: Apache-2.0 */
/* base64.h - the encoding of RFC 4648 section 4, in which etcd's JSON has its bytes. */
#ifndef TEI_META_BASE64_H
#define TEI_META_BASE64_H

#include "meta/meta.h"

/* malloc'ed text; NULL when memory is out. */
char *tei_base64_encode(const void *data, size_t n);

/* TE_ERR_INVALID for a text that is none (wrong letter, length or padding), or TE_ERR_MEMORY; unlogged. */
int tei_base64_decode(const char *text, size_t n, struct tei_bytes *out);

#endif
