/* SPDX-License-Identifier: Apache-2.0 */
/*
 * siphash.h - SipHash-2-4 of 128 bits, by Aumasson and Bernstein (https://www.aumasson.jp/siphash): what
 * it gives tells nothing about the message to whoever has not the key.
 */
#ifndef TEI_SIPHASH_H
#define TEI_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

#define TEI_SIPHASH_LEN 16 /* of the key, too */

void tei_siphash(const uint8_t key[TEI_SIPHASH_LEN], const void *message, size_t n,
                 uint8_t out[TEI_SIPHASH_LEN]);

#endif
