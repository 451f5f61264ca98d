/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment_encode.c - a segment as text.
 *
 * A descriptor may have 100,000 buffers, and a JSON tree of them costs more time than everything
 * else a publish does. So only the small keys go through a tree; buffers and rights are written as
 * text, and the object is put together from its keys in order, with these texts in the places of
 * "buffers" and "te"."rights".
 *
 * The size of a page is known before it is put together: the same object is first written with no
 * buffers and with the longest page numbers it can have, and what a buffer adds to its two texts is
 * counted on top.
 */
#include "model/model.h"

#include "base/err.h"
#include "base/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DUMP_FLAGS (JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY)

/* Growing text; `bad` once memory was out. */
struct out {
    char *p;
    size_t len, cap;
    bool bad;
};

static bool out_room(struct out *o, size_t n)
{
    size_t cap = o->cap ? o->cap : 1024;
    char *p;

    if (o->bad)
        return false;
    while (cap - o->len < n + 1)
        cap *= 2;
    if (cap == o->cap)
        return true;
    p = realloc(o->p, cap);
    if (!p) {
        o->bad = true;
        return false;
    }
    o->p = p;
    o->cap = cap;
    return true;
}

static void out_bytes(struct out *o, const char *text, size_t n)
{
    if (!out_room(o, n))
        return;
    memcpy(o->p + o->len, text, n);
    o->len += n;
    o->p[o->len] = '\0';
}

static void out_text(struct out *o, const char *text)
{
    out_bytes(o, text, strlen(text));
}

static void out_u64(struct out *o, uint64_t v)
{
    char digits[20], *d = digits + sizeof digits;

    do {
        *--d = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    out_bytes(o, d, (size_t)(digits + sizeof digits - d));
}

static int out_dumped(const char *text, size_t n, void *o)
{
    out_bytes(o, text, n);
    return ((struct out *)o)->bad ? -1 : 0;
}

static void out_json(struct out *o, const json_t *j)
{
    if (json_dump_callback(j, out_dumped, o, DUMP_FLAGS))
        o->bad = true;
}

/* Cuts back to an earlier length. */
static void out_cut(struct out *o, size_t len)
{
    o->len = len;
    if (o->p)
        o->p[len] = '\0';
}

/* What one call of tei_segment_encode() has in hand. */
struct encoder {
    const struct tei_encode *e;
    json_t *root; /* all keys but "buffers" and "te" */
    json_t *te;   /* all keys of "te" but "rights" and "page" */
    char *name;   /* e->name as JSON text */
    size_t name_len;
    struct out buffers; /* "{..},{..}" */
    struct out rights;  /* "[1,\"r\"],[2,\"w\"]" */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A key whose value is text already. */
struct ready {
    const char *key;
    const struct out *text; /* NULL: leave the key out */
    const char *open, *close;
};

static void out_value(struct out *o, const char *key, const json_t *j, const struct ready *r,
                      size_t n_ready)
{
    for (size_t i = 0; i < n_ready; i++) {
        if (strcmp(key, r[i].key) == 0) {
            out_text(o, r[i].open);
            out_bytes(o, r[i].text->p ? r[i].text->p : "", r[i].text->len);
            out_text(o, r[i].close);
            return;
        }
    }
    out_json(o, json_object_get(j, key));
}

/* The object with the ready keys among its own, sorted. `j` has none of the ready keys. */
static void out_object(struct out *o, json_t *j, const struct ready *r, size_t n_ready)
{
    size_t n = 0, max = json_object_size(j) + n_ready;
    const char **keys = calloc(max ? max : 1, sizeof *keys), *key;
    json_t *value;

    if (!keys) {
        o->bad = true;
        return;
    }
    json_object_foreach(j, key, value) {
        keys[n++] = key;
    }
    for (size_t i = 0; i < n_ready; i++)
        if (r[i].text)
            keys[n++] = r[i].key;
    qsort(keys, n, sizeof *keys, by_name);
    for (size_t i = 0; i < n; i++) {
        json_t *quoted = json_string(keys[i]);

        out_text(o, i ? "," : "{");
        out_json(o, quoted);
        out_text(o, ":");
        out_value(o, keys[i], j, r, n_ready);
        json_decref(quoted);
    }
    out_text(o, n ? "}" : "{}");
    free(keys);
}

static void out_page(struct out *o, size_t from, size_t count, size_t total)
{
    out_text(o, "{\"count\":");
    out_u64(o, count);
    out_text(o, ",\"from\":");
    out_u64(o, from);
    out_text(o, ",\"total\":");
    out_u64(o, total);
    out_text(o, "}");
}

/* The whole descriptor; `page` NULL: without the page key. */
static void out_segment(struct out *o, const struct encoder *x, const struct out *buffers,
                        const struct out *rights, const struct out *page)
{
    struct out te = {0};
    const struct ready inner[] = {{"rights", rights->len ? rights : NULL, "[", "]"},
                                  {"page", page, "", ""}};
    const struct ready outer[] = {{"buffers", buffers, "[", "]"}, {"te", &te, "", ""}};

    out_object(&te, x->te, inner, TEI_ARRAY_LEN(inner));
    out_object(o, x->root, outer, TEI_ARRAY_LEN(outer));
    o->bad |= te.bad;
    free(te.p);
}

/* A device is told, since peers choose by it how to get there. */
static const char *name_of(const struct encoder *x, const struct tei_published *b)
{
    bool of_device = b->location && tei_mem_kind_of(b->location) != TEI_MEM_HOST;

    return of_device ? b->location : x->e->name;
}

static int out_filled(struct encoder *x, const struct tei_published *b)
{
    json_t *j = json_object();
    int rc = TE_ERR_MEMORY;

    if (j && !json_object_set_new(j, "addr", json_integer((json_int_t)b->addr)) &&
        !json_object_set_new(j, "length", json_integer((json_int_t)b->length)) &&
        !json_object_set_new(j, "name", json_string(name_of(x, b))))
        rc = x->e->fill ? x->e->fill(x->e->arg, b, j) : 0;
    if (!rc)
        out_json(&x->buffers, j);
    json_decref(j);
    return rc;
}

static int out_buffer(struct encoder *x, const struct tei_published *b)
{
    if (b->addr > INT64_MAX || b->length > INT64_MAX)
        return TEI_FAIL(TE_ERR_INVALID,
                        "region 0x%" PRIx64 " of %" PRIu64
                        " bytes cannot be published: JSON numbers of "
                        "peers end at 2^63 - 1",
                        b->addr, b->length);
    if (x->buffers.len)
        out_text(&x->buffers, ",");
    if (x->e->fill || name_of(x, b) != x->e->name)
        return out_filled(x, b);
    out_text(&x->buffers, "{\"addr\":");
    out_u64(&x->buffers, b->addr);
    out_text(&x->buffers, ",\"length\":");
    out_u64(&x->buffers, b->length);
    out_text(&x->buffers, ",\"name\":");
    out_bytes(&x->buffers, x->name, x->name_len);
    out_text(&x->buffers, "}");
    return 0;
}

static void out_right(struct encoder *x, const struct tei_published *b)
{
    if ((b->access & TE_REMOTE_RW) == TE_REMOTE_RW)
        return;
    if (x->rights.len)
        out_text(&x->rights, ",");
    out_text(&x->rights, "[");
    out_u64(&x->rights, b->addr);
    out_text(&x->rights, b->access & TE_REMOTE_READ ? ",\"r\"]" : ",\"w\"]");
}

static bool is_published(const struct tei_published *b)
{
    return (b->access & TE_REMOTE_RW) != 0;
}

/* Writes buffers from number `from` on while both texts stay within `room`; how many in *count. */
static int write_buffers(struct encoder *x, size_t room, size_t *count)
{
    size_t seen = 0;

    for (size_t i = 0; i < x->e->n_buffers; i++) {
        size_t buffers_len = x->buffers.len, rights_len = x->rights.len;
        int rc;

        if (!is_published(&x->e->buffers[i]) || seen++ < x->e->from)
            continue;
        rc = out_buffer(x, &x->e->buffers[i]);
        if (rc)
            return rc;
        out_right(x, &x->e->buffers[i]);
        if (x->buffers.len + x->rights.len > room) {
            out_cut(&x->buffers, buffers_len);
            out_cut(&x->rights, rights_len);
            return 0;
        }
        ++*count;
    }
    return 0;
}

static size_t count_published(const struct tei_encode *e)
{
    size_t n = 0;

    for (size_t i = 0; i < e->n_buffers; i++)
        n += is_published(&e->buffers[i]);
    return n;
}

/* A page's size without its buffers and rights, at most. */
static size_t page_overhead(const struct encoder *x, size_t total)
{
    struct out none = {0}, page = {0}, o = {0}, right = {0};
    size_t len;

    out_text(&right, " "); /* so that the key is there */
    out_page(&page, x->e->from, total, total);
    out_segment(&o, x, &none, &right, &page);
    len = o.bad || page.bad || right.bad ? SIZE_MAX : o.len;
    free(o.p);
    free(page.p);
    free(right.p);
    return len;
}

static int write_page(struct encoder *x, struct out *o)
{
    size_t total = count_published(x->e), fixed = page_overhead(x, total), count = 0;
    struct out page = {0};
    size_t room = fixed < x->e->max_bytes ? x->e->max_bytes - fixed : 0;
    int rc = write_buffers(x, room, &count);

    if (rc)
        return rc;
    if ((!count && x->e->from < total) || fixed > x->e->max_bytes)
        return TEI_FAIL(TE_ERR_TOO_LARGE,
                        "segment %s: a page of %zu bytes has no room for one buffer; "
                        "raise MC_HANDSHAKE_MAX_LENGTH",
                        x->e->name, x->e->max_bytes);
    out_page(&page, x->e->from, count, total);
    out_segment(o, x, &x->buffers, &x->rights, &page);
    o->bad |= page.bad;
    free(page.p);
    return 0;
}

static int write_all(struct encoder *x, struct out *o)
{
    size_t count = 0;
    int rc = write_buffers(x, SIZE_MAX, &count);

    if (!rc)
        out_segment(o, x, &x->buffers, &x->rights, NULL);
    return rc;
}

/* The keys of the core beside those of `base`. */
static int fill_root(struct encoder *x)
{
    char when[40], incarnation[17];
    json_t *theirs = json_object_get(x->e->base, "te");

    tei_timestamp(when, sizeof when);
    snprintf(incarnation, sizeof incarnation, "%016" PRIx64, x->e->incarnation);
    x->root = x->e->base ? tei_json_clone(x->e->base) : json_object();
    x->te = theirs ? tei_json_clone(theirs) : json_object();
    json_object_del(x->root, "buffers");
    json_object_del(x->root, "te");
    json_object_del(x->te, "rights");
    json_object_del(x->te, "page");
    if (json_object_set_new(x->root, "name", json_string(x->e->name)) ||
        json_object_set_new(x->root, "timestamp", json_string(when)) ||
        json_object_set_new(x->te, "v", json_integer(1)) ||
        json_object_set_new(x->te, "incarnation", json_string(incarnation)) ||
        json_object_set_new(x->te, "version", json_integer((json_int_t)x->e->version)))
        return TEI_FAIL(TE_ERR_MEMORY, "segment %s: no memory for its descriptor", x->e->name);
    x->name = tei_json_text(json_object_get(x->root, "name"), &x->name_len);
    return x->name
               ? 0
               : TEI_FAIL(TE_ERR_MEMORY, "segment %s: no memory for its descriptor", x->e->name);
}

static void encoder_fini(struct encoder *x)
{
    json_decref(x->root);
    json_decref(x->te);
    free(x->name);
    free(x->buffers.p);
    free(x->rights.p);
}

int tei_segment_encode(const struct tei_encode *e, char **text, size_t *len)
{
    struct encoder x = {.e = e};
    struct out o = {0};
    json_t *name;
    int rc = tei_json_string(e->name, &name);

    if (rc == TE_ERR_INVALID)
        return TEI_FAIL(rc, "segment name %s is not UTF-8", e->name);
    json_decref(name);
    rc = fill_root(&x);
    if (!rc)
        rc = e->max_bytes && count_published(e) ? write_page(&x, &o) : write_all(&x, &o);
    if (!rc && (o.bad || x.buffers.bad || x.rights.bad))
        rc = TEI_FAIL(TE_ERR_MEMORY, "segment %s: no memory for its descriptor", e->name);
    encoder_fini(&x);
    if (rc) {
        free(o.p);
        return rc;
    }
    *text = o.p;
    *len = o.len;
    return 0;
}
