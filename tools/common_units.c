/* SPDX-License-Identifier: Apache-2.0 */
#include "common_units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint64_t bytes;
} sizes[] = {
    {"", 1},           {"B", 1},
    {"K", 1ull << 10}, {"KiB", 1ull << 10},
    {"k", 1ull << 10}, {"KB", 1000ull},
    {"M", 1ull << 20}, {"MiB", 1ull << 20},
    {"m", 1ull << 20}, {"MB", 1000000ull},
    {"G", 1ull << 30}, {"GiB", 1ull << 30},
    {"g", 1ull << 30}, {"GB", 1000000000ull},
    {"T", 1ull << 40}, {"TiB", 1ull << 40},
    {"t", 1ull << 40}, {"TB", 1000000000000ull},
};

static const struct {
    const char *name;
    double bytes;
} rates[] = {
    {"GB", 1e9},           {"GiB", 1024. * 1024 * 1024},
    {"Gb", 1e9 / 8},       {"MB", 1e6},
    {"MiB", 1024. * 1024}, {"Mb", 1e6 / 8},
    {"KB", 1e3},           {"KiB", 1024.},
    {"Kb", 1e3 / 8},
};

/* Reads digits and leaves *end behind them; false when there are none or too many. */
static bool read_digits(const char *text, uint64_t *out, const char **end)
{
    if (*text < '0' || *text > '9')
        return false;
    char *stop;
    errno = 0;
    *out = strtoull(text, &stop, 10);
    *end = stop;
    return errno == 0;
}

bool units_parse_count(const char *text, uint64_t *out)
{
    const char *end;
    uint64_t value;
    if (!read_digits(text, &value, &end) || *end)
        return false;
    *out = value;
    return true;
}

/* A size that takes all of the first `len` characters. */
static bool read_size(const char *text, size_t len, uint64_t *out)
{
    const char *unit;
    uint64_t value;
    if (len == 0 || !read_digits(text, &value, &unit) || unit > text + len)
        return false;
    size_t rest = (size_t)(text + len - unit);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (strlen(sizes[i].name) != rest || strncmp(sizes[i].name, unit, rest) != 0)
            continue;
        return !__builtin_mul_overflow(value, sizes[i].bytes, out);
    }
    return false;
}

bool units_parse_size(const char *text, uint64_t *out)
{
    uint64_t value;
    if (!read_size(text, strlen(text), &value))
        return false;
    *out = value;
    return true;
}

/* Appends the sizes that one item of a list stands for. */
static bool expand(const char *item, size_t len, uint64_t *out, size_t max, size_t *count)
{
    const char *dots = memmem(item, len, "..", 2);
    const char *star = dots ? memchr(item, '*', len) : NULL;
    uint64_t from, to, factor = 2;

    if (!read_size(item, dots ? (size_t)(dots - item) : len, &from))
        return false;
    to = from;
    if (dots) {
        size_t to_len = (size_t)((star ? star : item + len) - (dots + 2));
        if (!read_size(dots + 2, to_len, &to) || from == 0 || to < from)
            return false;
        if (star && (!read_size(star + 1, (size_t)(item + len - star - 1), &factor) || factor < 2))
            return false;
    }
    for (uint64_t value = from; value <= to; value *= factor) {
        if (*count == max)
            return false;
        out[(*count)++] = value;
        if (value > to / factor)
            break;
    }
    return true;
}

bool units_parse_list(const char *text, uint64_t *out, size_t max, size_t *count)
{
    size_t n = 0;
    for (;;) {
        size_t len = strcspn(text, ",");
        if (!expand(text, len, out, max, &n))
            return false;
        if (!text[len])
            break;
        text += len + 1;
    }
    *count = n;
    return true;
}

double units_report(const char *name)
{
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        if (strcmp(rates[i].name, name) == 0)
            return rates[i].bytes;
    }
    return 0;
}

const char *units_size(uint64_t bytes, char text[UNITS_SIZE_MAX])
{
    static const char units[] = "TGMK";

    for (unsigned i = 0; units[i]; i++) {
        unsigned shift = 10 * (4 - i);
        if (bytes >> shift && (bytes >> shift) << shift == bytes) {
            snprintf(text, UNITS_SIZE_MAX, "%" PRIu64 "%c", bytes >> shift, units[i]);
            return text;
        }
    }
    snprintf(text, UNITS_SIZE_MAX, "%" PRIu64, bytes);
    return text;
}
