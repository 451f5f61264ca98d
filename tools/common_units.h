/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and sizes as users write them, and the units that rates are told in. */
#ifndef TOOLS_COMMON_UNITS_H
#define TOOLS_COMMON_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A whole number in decimal and nothing else. */
bool units_parse_count(const char *text, uint64_t *out);

/*
 * A number with an optional unit: K M G T and KiB MiB GiB TiB are powers of 1024, KB MB GB TB are
 * powers of 1000.
 */
bool units_parse_size(const char *text, uint64_t *out);

/*
 * A list of sizes separated by commas. An item "A..B" stands for A, 2A, 4A, ... up to B, "A..B*F"
 * for A, FA, FFA, ... Writes at most `max` of them and their number to *count; false when the text
 * is wrong or holds more.
 */
bool units_parse_list(const char *text, uint64_t *out, size_t max, size_t *count);

#define UNITS_SIZE_MAX 32

/* A size as units_parse_size() reads it, exactly: "64K", "65537". Returns `text`. */
const char *units_size(uint64_t bytes, char text[UNITS_SIZE_MAX]);

/* The units that rates are told in, as --report_unit takes them: "GB|GiB|Gb|...". */
#define UNITS_REPORT "GB|GiB|Gb|MB|MiB|Mb|KB|KiB|Kb"

/* Bytes in one report unit ("Gb" is 10^9 bits); 0 for a name that is none. */
double units_report(const char *name);

#endif
