/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32c.h - CRC-32C (Castagnoli, RFC 3720), by the instruction of the processor where it has one
 * (SSE 4.2, ARMv8 CRC), else by tables.
 */
#ifndef TEI_CRC32C_H
#define TEI_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what `crc` is of (0: of nothing) followed by `n` bytes. Safe from any thread. */
uint32_t tei_crc32c(uint32_t crc, const void *data, size_t n);

#endif
