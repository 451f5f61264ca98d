/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer_engine_bench/limits.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <jansson.h>

#define COPY_MAX   (256ull << 20) /* bytes of source, and as many of destination */
#define COPY_BLOCK (1ull << 20)
#define RATE_MAX   1e9 /* GB/s and us: what is larger is no figure */

/* Members of an object written by hand. */
static const struct {
    const char *key, *label;
    enum limit_kind kind;
    enum limit_path path;
} plain[] = {
    {"stream_GBps", "raw stream", LIMIT_RATE, LIMIT_NETWORK},
    {"memcpy_GBps", "memcpy", LIMIT_RATE, LIMIT_MEMORY},
    {"process_vm_GBps", "process_vm", LIMIT_RATE, LIMIT_PROCESSES},
    {"pingpong_us", "raw ping-pong", LIMIT_P50, LIMIT_NETWORK},
};

/* What the programs of tests/bench print with --json. */
static const struct {
    const char *bench, *key, *suffix;
    enum limit_kind kind;
    enum limit_path path;
} programs[] = {
    {"raw_stream", "gb_s", "", LIMIT_RATE, LIMIT_NETWORK},
    {"raw_memcpy", "gb_s", "", LIMIT_RATE, LIMIT_MEMORY},
    {"raw_process_vm", "gb_s", "", LIMIT_RATE, LIMIT_PROCESSES},
    {"raw_pingpong", "p50_us", ", p50", LIMIT_P50, LIMIT_NETWORK},
    {"raw_pingpong", "p99_us", ", p99", LIMIT_P99, LIMIT_NETWORK},
};

__attribute__((format(printf, 3, 4))) static bool fail(char *error, size_t n, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(error, n, fmt, args);
    va_end(args);
    return false;
}

/* The limit of this label, a new one if there is none; NULL when there is no room. */
static struct limit *slot(struct limits *l, const char *label)
{
    for (size_t i = 0; i < l->count; i++) {
        if (strcmp(l->at[i].label, label) == 0)
            return &l->at[i];
    }
    if (l->count == LIMITS_MAX)
        return NULL;
    struct limit *limit = &l->at[l->count++];
    snprintf(limit->label, sizeof(limit->label), "%s", label);
    return limit;
}

static bool add(struct limits *l, enum limit_kind kind, double value, enum limit_path path,
                const char *label)
{
    struct limit *limit = slot(l, label);
    if (!limit)
        return false;
    limit->kind = kind;
    limit->value = value;
    limit->path = path;
    return true;
}

/* ---- A file ---------------------------------------------------------------------------------- */

static bool positive(const json_t *o, const char *key, double *value)
{
    const json_t *number = json_object_get(o, key);
    *value = json_number_value(number);
    return json_is_number(number) && *value > 0 && *value <= RATE_MAX;
}

/* "raw_stream, 4 streams, reno": what a line of a program says of how it was run. */
static void name_run(const json_t *o, const char *bench, const char *suffix,
                     char label[LIMIT_LABEL_MAX])
{
    static const char *const counts[] = {"stream", "thread"};
    char count[40] = "", cc[24] = "";
    const char *used = json_string_value(json_object_get(o, "cc"));

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        char key[16];
        snprintf(key, sizeof(key), "%ss", counts[i]);
        json_int_t number = json_integer_value(json_object_get(o, key));
        if (number > 0)
            snprintf(count, sizeof(count), ", %lld %s%s", (long long)number, counts[i],
                     number == 1 ? "" : "s");
    }
    if (used)
        snprintf(cc, sizeof(cc), ", %.16s", used);
    snprintf(label, LIMIT_LABEL_MAX, "%s%s%s%s", bench, count, cc, suffix);
}

/* How many figures of an object were added; -1: there is no room. */
static int add_object(struct limits *l, const json_t *o)
{
    const char *bench = json_string_value(json_object_get(o, "bench"));
    char label[LIMIT_LABEL_MAX];
    double value;
    int found = 0;

    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        if (!positive(o, plain[i].key, &value))
            continue;
        if (!add(l, plain[i].kind, value, plain[i].path, plain[i].label))
            return -1;
        found++;
    }
    for (size_t i = 0; bench && i < sizeof(programs) / sizeof(programs[0]); i++) {
        if (strcmp(bench, programs[i].bench) != 0 || !positive(o, programs[i].key, &value))
            continue;
        name_run(o, bench, programs[i].suffix, label);
        if (!add(l, programs[i].kind, value, programs[i].path, label))
            return -1;
        found++;
    }
    return found;
}

static bool skip_space(FILE *f)
{
    int c;
    do {
        c = getc(f);
    } while (c != EOF && isspace(c));
    if (c != EOF)
        ungetc(c, f);
    return c != EOF;
}

static bool read_objects(struct limits *l, FILE *f, const char *path, char *error, size_t n)
{
    size_t objects = 0;
    while (skip_space(f)) {
        json_error_t why;
        json_t *o = json_loadf(f, JSON_DISABLE_EOF_CHECK, &why);
        objects++;
        if (!o)
            return fail(error, n, "%s: object %zu is no JSON: %s", path, objects, why.text);
        int found = add_object(l, o);
        json_decref(o);
        if (found < 0)
            return fail(error, n, "%s has more than %d limits: leave some out", path, LIMITS_MAX);
        if (found == 0)
            return fail(error, n,
                        "%s: object %zu has no figure known here: expected a line of raw_stream, "
                        "raw_memcpy, raw_process_vm or raw_pingpong --json, or a positive "
                        "stream_GBps, memcpy_GBps, process_vm_GBps or pingpong_us",
                        path, objects);
    }
    if (ferror(f))
        return fail(error, n, "cannot read %s: %s", path, strerror(errno));
    return objects > 0 || fail(error, n, "%s is empty: expected JSON objects", path);
}

bool limits_read(struct limits *l, const char *path, char *error, size_t n)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return fail(error, n, "cannot read %s: %s", path, strerror(errno));
    bool ok = read_objects(l, f, path, error, n);
    fclose(f);
    return ok;
}

/* ---- Measured here --------------------------------------------------------------------------- */

/* Bytes of each buffer: COPY_MAX, or what takes a quarter of the memory at hand for both. */
static size_t copy_bytes(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && kib == 0 && fgets(line, sizeof(line), f))
        (void)sscanf(line, "MemAvailable: %llu kB", &kib);
    if (f)
        fclose(f);
    unsigned long long bytes = kib ? kib * 1024 / 8 : COPY_MAX;
    bytes = bytes < COPY_MAX ? bytes : COPY_MAX;
    return bytes < COPY_BLOCK ? COPY_BLOCK : bytes - bytes % COPY_BLOCK;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* GB/s of memcpy from the first half of `area` to the second, walking through both. */
static double copy_rate(char *area, size_t half, double seconds)
{
    int64_t begin = now_ns(), end = begin + (int64_t)(seconds * 1e9), now;
    uint64_t copied = 0;
    size_t at = 0;
    do {
        memcpy(area + half + at, area + at, COPY_BLOCK);
        copied += COPY_BLOCK;
        at = at + 2 * COPY_BLOCK <= half ? at + COPY_BLOCK : 0;
        now = now_ns();
    } while (now < end);
    return (double)copied / (double)(now - begin);
}

bool limits_measure_copy(struct limits *l, double seconds)
{
    size_t half = copy_bytes();
    char *area = mmap(NULL, 2 * half, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        return false;
    memset(area, 0x5a, 2 * half); /* every page in place, so that no fault is measured */
    double rate = copy_rate(area, half, seconds);
    munmap(area, 2 * half);
    return add(l, LIMIT_RATE, rate, LIMIT_MEMORY, "memcpy of large buffers here, 1 thread");
}

bool limits_have(const struct limits *l, enum limit_path path)
{
    for (size_t i = 0; i < l->count; i++) {
        if (l->at[i].path == path)
            return true;
    }
    return false;
}
