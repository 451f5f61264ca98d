/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32c.h - CRC-32C (Castagnoli, RFC 3720), by the fastest method that the processor has.
 */
#ifndef TEI_CRC32C_H
#define TEI_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The checksum of what `crc` is of (0: of nothing) followed by `n` bytes. Safe from any thread. */
uint32_t tei_crc32c(uint32_t crc, const void *data, size_t n);

/* From the slowest to the fastest. */
enum tei_crc32c_method {
    TEI_CRC32C_TABLES,
    TEI_CRC32C_INSTRUCTION, /* SSE 4.2, ARMv8 CRC */
    TEI_CRC32C_BOTH,        /* that and folding beside each other: AVX2 with VPCLMULQDQ */
    TEI_CRC32C_FOLDING,     /* AVX-512 with VPCLMULQDQ */
    TEI_CRC32C_METHODS
};

bool tei_crc32c_can(enum tei_crc32c_method method);
/* By one that the processor has. */
uint32_t tei_crc32c_by(enum tei_crc32c_method method, uint32_t crc, const void *data, size_t n);

#endif
