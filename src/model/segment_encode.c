/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment_encode.c - a segment as text.
 *
 * A descriptor may have 100,000 buffers, and a JSON tree of them costs more time than everything
 * else a publish does. So only the small keys go through a tree; buffers and rights are written as
 * text.
 *
 * All of it is written once: the text without buffers, rights and page, and where in it these belong;
 * one text of all buffers and one of all rights; and where in them those of each buffer begin. A page
 * is then found by bisection and copied from these, whatever its cut, so that many readers, or one that
 * asks all the time, cost what they are sent.
 */
#include "model/model.h"

#include "base/err.h"
#include "base/os.h"

#include <inttypes.h>
#include <stdatomic.h>
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

/* Where the parts of one buffer begin. */
struct place {
    size_t buffer, right;
};

struct tei_segment_text {
    _Atomic unsigned refs;
    uint64_t version;
    char *name;        /* of the segment, for messages */
    struct out fixed;  /* all that no page is without */
    size_t at_buffers; /* the places of the others in it, in this order */
    size_t at_server;
    size_t at_page;
    size_t at_rights;
    size_t at_written;
    struct out server;    /* ",\"server_name\":\"..\"", for readers that know no pages */
    struct out written;   /* ",\"written\":1", for readers of what a metadata server keeps */
    struct out buffers;   /* "{..},{..}," */
    struct out rights;    /* "[1,\"r\"],[2,\"w\"]," */
    struct place *places; /* n + 1 */
    size_t n;
};

/* What one call of tei_segment_text_new() has in hand. */
struct encoder {
    const struct tei_encode *e;
    struct tei_segment_text *t;
    json_t *root; /* all keys but "buffers" and "te" */
    json_t *te;   /* all keys of "te" but "rights" and "page" */
    char *name;   /* e->name as JSON text */
    size_t name_len;
};

/* ------------------------------------------------------------------------------- the fixed part */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void out_member(struct out *o, const char *key, const json_t *value)
{
    json_t *quoted = json_string(key);

    if (o->len && o->p[o->len - 1] != '{')
        out_text(o, ",");
    out_json(o, quoted);
    out_text(o, ":");
    out_json(o, value);
    json_decref(quoted);
}

/* The members whose keys are between these two (NULL: no bound), in order. */
static void out_members(struct out *o, json_t *j, const char *after, const char *before)
{
    const char **keys = calloc(json_object_size(j) + 1, sizeof *keys), *key;
    json_t *value;
    size_t n = 0;

    if (!keys) {
        o->bad = true;
        return;
    }
    json_object_foreach(j, key, value) {
        if ((!after || strcmp(key, after) > 0) && (!before || strcmp(key, before) < 0))
            keys[n++] = key;
    }
    qsort(keys, n, sizeof *keys, by_name);
    for (size_t i = 0; i < n; i++)
        out_member(o, keys[i], json_object_get(j, keys[i]));
    free(keys);
}

/* Early descriptions of the protocol have the name under this key. */
#define SERVER_NAME "server_name"
#define WRITTEN     "written"

static void out_server(struct encoder *x)
{
    struct out *o = &x->t->server;

    out_text(o, ",\"" SERVER_NAME "\":");
    out_bytes(o, x->name, x->name_len);
}

static void out_written(struct encoder *x)
{
    struct out *o = &x->t->written;

    out_text(o, ",\"" WRITTEN "\":");
    out_u64(o, (uint64_t)tei_wall_ms());
}

/* "te" always has a key before "page", so that "page" and "rights" can begin with a comma. */
static void out_fixed(struct encoder *x)
{
    struct tei_segment_text *t = x->t;
    struct out *o = &t->fixed;

    out_text(o, "{");
    out_members(o, x->root, NULL, "buffers");
    out_text(o, o->len > 1 ? ",\"buffers\":[" : "\"buffers\":[");
    t->at_buffers = o->len;
    out_text(o, "]");
    out_members(o, x->root, "buffers", SERVER_NAME);
    t->at_server = o->len;
    out_members(o, x->root, SERVER_NAME, "te");
    out_text(o, ",\"te\":{");
    out_members(o, x->te, NULL, "page");
    t->at_page = o->len;
    out_members(o, x->te, "page", "rights");
    t->at_rights = o->len;
    out_members(o, x->te, "rights", WRITTEN);
    t->at_written = o->len;
    out_members(o, x->te, WRITTEN, NULL);
    out_text(o, "}");
    out_members(o, x->root, "te", NULL);
    out_text(o, "}");
}

/* ------------------------------------------------------------------------------------- buffers */

/* A device is told, since peers choose by it how to get there. */
static const char *name_of(const struct encoder *x, const struct tei_published *b)
{
    bool of_device = b->location && tei_mem_kind_of(b->location) != TEI_MEM_HOST;

    return of_device ? b->location : x->e->name;
}

static int out_filled(struct encoder *x, const struct tei_published *b, const char *protocol)
{
    json_t *j = json_object();
    int rc = TE_ERR_MEMORY;

    if (j && !json_object_set_new(j, "addr", json_integer((json_int_t)b->addr)) &&
        !json_object_set_new(j, "length", json_integer((json_int_t)b->length)) &&
        !json_object_set_new(j, "name", json_string(name_of(x, b))) &&
        (!protocol || !json_object_set_new(j, "protocol", json_string(protocol))))
        rc = x->e->fill ? x->e->fill(x->e->arg, protocol, b, j) : 0;
    if (!rc)
        out_json(&x->t->buffers, j);
    json_decref(j);
    return rc;
}

static int out_buffer(struct encoder *x, const struct tei_published *b, const char *protocol)
{
    struct out *o = &x->t->buffers;

    if (protocol || x->e->fill || name_of(x, b) != x->e->name)
        return out_filled(x, b, protocol);
    out_text(o, "{\"addr\":");
    out_u64(o, b->addr);
    out_text(o, ",\"length\":");
    out_u64(o, b->length);
    out_text(o, ",\"name\":");
    out_bytes(o, x->name, x->name_len);
    out_text(o, "}");
    return 0;
}

static void out_right(struct encoder *x, const struct tei_published *b)
{
    struct out *o = &x->t->rights;

    if ((b->access & TE_REMOTE_RW) == TE_REMOTE_RW)
        return;
    out_text(o, "[");
    out_u64(o, b->addr);
    out_text(o, b->access & TE_REMOTE_READ ? ",\"r\"]," : ",\"w\"],");
}

static bool is_published(const struct tei_published *b)
{
    return (b->access & TE_REMOTE_RW) != 0;
}

static size_t times_listed(const struct tei_encode *e)
{
    return e->n_protocols ? e->n_protocols : 1;
}

static size_t count_published(const struct tei_encode *e)
{
    size_t n = 0;

    for (size_t i = 0; i < e->n_buffers; i++)
        n += is_published(&e->buffers[i]);
    return n;
}

/* As often as it is listed; its right is told with the first, once. */
static int write_buffer(struct encoder *x, const struct tei_published *b)
{
    const struct tei_encode *e = x->e;
    struct tei_segment_text *t = x->t;

    for (size_t i = 0; i < times_listed(e); i++) {
        int rc = out_buffer(x, b, e->n_protocols ? e->protocols[i] : NULL);

        if (rc)
            return rc;
        out_text(&t->buffers, ",");
        if (i == 0)
            out_right(x, b);
        t->places[++t->n] = (struct place){t->buffers.len, t->rights.len};
    }
    return 0;
}

static int write_buffers(struct encoder *x)
{
    struct tei_segment_text *t = x->t;
    int rc = 0;

    t->places = calloc(count_published(x->e) * times_listed(x->e) + 1, sizeof *t->places);
    if (!t->places)
        return TE_ERR_MEMORY;
    for (size_t i = 0; !rc && i < x->e->n_buffers; i++)
        if (is_published(&x->e->buffers[i]))
            rc = write_buffer(x, &x->e->buffers[i]);
    return rc;
}

/* ------------------------------------------------------------------------------------ the whole */

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
    json_object_del(x->te, WRITTEN);
    if (json_object_set_new(x->root, "name", json_string(x->e->name)) ||
        json_object_set_new(x->root, "timestamp", json_string(when)) ||
        json_object_set_new(x->te, "v", json_integer(1)) ||
        json_object_set_new(x->te, "incarnation", json_string(incarnation)) ||
        json_object_set_new(x->te, "version", json_integer((json_int_t)x->e->version)))
        return TE_ERR_MEMORY;
    x->name = tei_json_text(json_object_get(x->root, "name"), &x->name_len);
    return x->name ? 0 : TE_ERR_MEMORY;
}

static int write_all(struct encoder *x)
{
    int rc = fill_root(x);

    if (!rc)
        rc = write_buffers(x);
    if (!rc) {
        out_fixed(x);
        out_server(x);
        out_written(x);
        x->t->name = strdup(x->e->name);
    }
    json_decref(x->root);
    json_decref(x->te);
    free(x->name);
    if (rc == TE_ERR_MEMORY ||
        (!rc && (!x->t->name || x->t->fixed.bad || x->t->server.bad || x->t->written.bad ||
                 x->t->buffers.bad || x->t->rights.bad)))
        rc = TEI_FAIL(TE_ERR_MEMORY, "segment %s: no memory for its descriptor", x->e->name);
    return rc;
}

int tei_segment_text_new(const struct tei_encode *e, struct tei_segment_text **out)
{
    struct encoder x = {.e = e, .t = calloc(1, sizeof *x.t)};
    json_t *name = NULL;
    int rc;

    if (!x.t)
        return TEI_FAIL(TE_ERR_MEMORY, "segment %s: no memory for its descriptor", e->name);
    atomic_init(&x.t->refs, 1);
    x.t->version = e->version;
    rc = tei_json_string(e->name, &name) == TE_ERR_INVALID
             ? TEI_FAIL(TE_ERR_INVALID, "segment name %s is not UTF-8", e->name)
             : write_all(&x);
    json_decref(name);
    if (rc)
        tei_segment_text_put(x.t);
    else
        *out = x.t;
    return rc;
}

struct tei_segment_text *tei_segment_text_get(struct tei_segment_text *t)
{
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

void tei_segment_text_put(struct tei_segment_text *t)
{
    /* Release: this holder's reads come before; acquire: the last one frees after all of them. */
    if (!t || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1)
        return;
    free(t->fixed.p);
    free(t->server.p);
    free(t->written.p);
    free(t->buffers.p);
    free(t->rights.p);
    free(t->places);
    free(t->name);
    free(t);
}

uint64_t tei_segment_text_version(const struct tei_segment_text *t)
{
    return t->version;
}

/* --------------------------------------------------------------------------------------- pages */

#define PAGE_FORMAT  ",\"page\":{\"count\":%zu,\"from\":%zu,\"total\":%zu}"
#define PAGE_MAX     100
#define RIGHTS_OPEN  ",\"rights\":["
#define RIGHTS_EXTRA (sizeof RIGHTS_OPEN)

/* Buffers and rights of the buffers in [from, to), with the commas behind them. */
static size_t size_of(const struct tei_segment_text *t, size_t from, size_t to)
{
    return t->places[to].buffer - t->places[from].buffer + t->places[to].right -
           t->places[from].right;
}

/* The last one that can end a page that begins with `from` and has so much room for its buffers. */
static size_t end_of_page(const struct tei_segment_text *t, size_t from, size_t room)
{
    size_t low = from, high = t->n;

    while (low < high) {
        size_t mid = low + (high - low + 1) / 2;

        if (size_of(t, from, mid) <= room)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

/* Items, without the comma behind the last. */
static void out_items(struct out *o, const struct out *items, size_t begin, size_t end)
{
    if (end > begin)
        out_bytes(o, items->p + begin, end - begin - 1);
}

static int write_page(const struct tei_segment_text *t, size_t from, size_t to, const char *page,
                      struct out *o)
{
    const struct place begin = t->places[from], end = t->places[to];
    const char *fixed = t->fixed.p;

    out_room(o, t->fixed.len + t->server.len + t->written.len + size_of(t, from, to) +
                    strlen(page) + RIGHTS_EXTRA);
    out_bytes(o, fixed, t->at_buffers);
    out_items(o, &t->buffers, begin.buffer, end.buffer);
    out_bytes(o, fixed + t->at_buffers, t->at_server - t->at_buffers);
    if (!page[0])
        out_bytes(o, t->server.p, t->server.len);
    out_bytes(o, fixed + t->at_server, t->at_page - t->at_server);
    out_text(o, page);
    out_bytes(o, fixed + t->at_page, t->at_rights - t->at_page);
    if (end.right > begin.right) {
        out_text(o, RIGHTS_OPEN);
        out_items(o, &t->rights, begin.right, end.right);
        out_text(o, "]");
    }
    out_bytes(o, fixed + t->at_rights, t->at_written - t->at_rights);
    if (!page[0])
        out_bytes(o, t->written.p, t->written.len);
    out_bytes(o, fixed + t->at_written, t->fixed.len - t->at_written);
    if (!o->bad)
        return 0;
    free(o->p);
    return TEI_FAIL(TE_ERR_MEMORY, "segment %s: no memory for its descriptor", t->name);
}

/* The end of the page and what it says of itself. */
static int cut_page(const struct tei_segment_text *t, size_t asked, size_t from, size_t max_bytes,
                    size_t *to, char page[PAGE_MAX])
{
    size_t room = t->fixed.len + RIGHTS_EXTRA +
                  (size_t)snprintf(page, PAGE_MAX, PAGE_FORMAT, t->n, asked, t->n);

    *to = room <= max_bytes ? end_of_page(t, from, max_bytes - room) : from;
    if (room > max_bytes || (*to == from && from < t->n))
        return TEI_FAIL(TE_ERR_TOO_LARGE,
                        "segment %s: a page of %zu bytes has no room for one buffer; "
                        "raise MC_HANDSHAKE_MAX_LENGTH",
                        t->name, max_bytes);
    snprintf(page, PAGE_MAX, PAGE_FORMAT, *to - from, asked, t->n);
    return 0;
}

int tei_segment_text_page(const struct tei_segment_text *t, size_t from, size_t max_bytes,
                          char **text, size_t *len)
{
    const bool paged = max_bytes && t->n;
    size_t first = paged ? tei_min(from, t->n) : 0, to = t->n;
    char page[PAGE_MAX] = "";
    struct out o = {0};
    int rc = paged ? cut_page(t, from, first, max_bytes, &to, page) : 0;

    if (!rc)
        rc = write_page(t, first, to, page, &o);
    if (rc)
        return rc;
    *text = o.p;
    *len = o.len;
    return 0;
}
