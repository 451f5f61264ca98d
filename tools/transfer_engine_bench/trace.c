/* SPDX-License-Identifier: Apache-2.0 */
#include "trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

/* What is being read, for messages. */
struct place {
    size_t line;
    char *error;
};

__attribute__((format(printf, 2, 3))) static bool fail(const struct place *p, const char *fmt, ...)
{
    va_list args;
    int n = snprintf(p->error, TRACE_ERROR_MAX, "line %zu: ", p->line);

    va_start(args, fmt);
    vsnprintf(p->error + n, TRACE_ERROR_MAX - (size_t)n, fmt, args);
    va_end(args);
    return false;
}

/* The array with room for `count` elements; it grows by doubling. NULL: out of memory. */
static void *grow(void *array, size_t *room, size_t count, size_t size)
{
    size_t want = *room ? *room : 1024;
    if (array && count <= *room)
        return array;
    while (want < count)
        want *= 2;
    void *grown = reallocarray(array, want, size);
    *room = grown ? want : *room;
    return grown;
}

static bool read_number(const struct place *p, const json_t *o, const char *name, uint64_t *out)
{
    const json_t *value = json_object_get(o, name);
    if (!value)
        return fail(p, "field %s is missing", name);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return fail(p, "field %s must be a whole number that is not negative", name);
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static bool read_ids(const struct place *p, struct trace *t, const json_t *o, size_t *count)
{
    const json_t *ids = json_object_get(o, "hash_ids");
    size_t n = json_array_size(ids);
    if (!ids)
        return fail(p, "field hash_ids is missing");
    if (!json_is_array(ids))
        return fail(p, "field hash_ids must be an array of whole numbers");
    uint64_t *all = grow(t->ids, &t->id_room, t->id_count + n, sizeof(*all));
    if (!all)
        return fail(p, "out of memory");
    t->ids = all;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return fail(p, "hash_ids[%zu] must be a whole number that is not negative", i);
        all[t->id_count + i] = (uint64_t)json_integer_value(id);
    }
    *count = n;
    return true;
}

static bool read_request(const struct place *p, struct trace *t, const json_t *o)
{
    struct trace_request r = {.first_id = t->id_count, .line = p->line};
    uint64_t output;

    if (!read_number(p, o, "timestamp", &r.timestamp_ms) ||
        !read_number(p, o, "input_length", &r.tokens) ||
        !read_number(p, o, "output_length", &output) || !read_ids(p, t, o, &r.blocks))
        return false;
    uint64_t blocks = r.tokens / TRACE_BLOCK_TOKENS + (r.tokens % TRACE_BLOCK_TOKENS != 0);
    if (r.blocks != blocks)
        return fail(p,
                    "hash_ids has %zu ids, but input_length %" PRIu64 " is %" PRIu64
                    " blocks of %d tokens",
                    r.blocks, r.tokens, blocks, TRACE_BLOCK_TOKENS);
    if (t->count && r.timestamp_ms < t->requests[t->count - 1].timestamp_ms)
        return fail(p,
                    "timestamp %" PRIu64 " lies before that of the request before, %" PRIu64
                    ": sort the file by time",
                    r.timestamp_ms, t->requests[t->count - 1].timestamp_ms);
    struct trace_request *all = grow(t->requests, &t->request_room, t->count + 1, sizeof(*all));
    if (!all)
        return fail(p, "out of memory");
    t->requests = all;
    all[t->count++] = r;
    t->id_count += r.blocks;
    t->blocks_max = r.blocks > t->blocks_max ? r.blocks : t->blocks_max;
    return true;
}

bool trace_parse_line(struct trace *t, const char *text, size_t length, size_t number,
                      char error[TRACE_ERROR_MAX])
{
    const struct place place = {number, error};
    json_error_t why;

    while (length && strchr(" \t\r\n", text[length - 1]) && text[length - 1])
        length--;
    if (length == 0)
        return true;
    json_t *o = json_loadb(text, length, JSON_REJECT_DUPLICATES, &why);
    if (!o)
        return fail(&place, "no JSON: %s", why.text);
    bool ok = json_is_object(o) ? read_request(&place, t, o)
                                : fail(&place, "no JSON object: expected {\"timestamp\": ...}");
    json_decref(o);
    return ok;
}

bool trace_read(struct trace *t, FILE *in, size_t max, char error[TRACE_ERROR_MAX])
{
    struct place place = {0, error};
    char *text = NULL;
    size_t room = 0;
    ssize_t n;
    bool ok = true;

    while (ok && (max == 0 || t->count < max)) {
        place.line++;
        errno = 0;
        n = getline(&text, &room, in);
        if (n < 0) {
            ok = feof(in) || fail(&place, "cannot be read: %s", strerror(errno));
            break;
        }
        ok = trace_parse_line(t, text, (size_t)n, place.line, error);
    }
    free(text);
    if (ok && t->count == 0) {
        snprintf(error, TRACE_ERROR_MAX, "there is no request in it");
        ok = false;
    }
    return ok;
}

void trace_free(struct trace *t)
{
    free(t->requests);
    free(t->ids);
    *t = (struct trace){0};
}

uint64_t trace_block_tokens(const struct trace_request *request, size_t i)
{
    uint64_t left = request->tokens - (uint64_t)i * TRACE_BLOCK_TOKENS;
    return left < TRACE_BLOCK_TOKENS ? left : TRACE_BLOCK_TOKENS;
}
