/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment_json.c - a descriptor as read.
 *
 * Its lists may be of any number: a tree of them would take twenty times their text. So the text is
 * checked first, in place, and the lists are found; a tree is made of what is left between them, if
 * it is not made of more than a peer can have to say; and the lists are read as a stream
 * (segment_buffers.c).
 */
#include "model/segment_read.h"

#include "base/hex.h"
#include "base/os.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A request for a page is short; whatever is longer is the descriptor that other engines send
 * along.
 */
#define PAGE_REQUEST_MAX 256

/* The string of a key that must be there and not be empty. */
static int read_text(const json_t *root, const char *key, char **out)
{
    const json_t *j = json_object_get(root, key);

    if (!json_is_string(j))
        return FAIL_KEY("key '%s' is %s, must be a string", key, tei_json_type_name(j));
    if (!json_string_length(j))
        return FAIL_KEY("key '%s' is empty", key);
    *out = strdup(json_string_value(j));
    return *out ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory for a segment's %s", key);
}

static int check_list(const json_t *object, const char *key, const char *name)
{
    const json_t *list = json_object_get(object, key);

    if (list && !json_is_array(list))
        return FAIL_KEY("key '%s' is %s, must be an array", name, tei_json_type_name(list));
    return 0;
}

static int read_incarnation(struct tei_segment *s, const json_t *te)
{
    const json_t *j = json_object_get(te, "incarnation");
    const char *text = json_string_value(j);

    if (!tei_hex_number(text, &s->incarnation))
        return FAIL_KEY("key 'te.incarnation' is %s, must be 16 hexadecimal digits",
                        text ? "another text" : tei_json_type_name(j));
    return 0;
}

/* Our own object; descriptors of other engines have none. */
static int read_te(struct tei_segment *s, const struct tei_json_value *rights, int64_t deadline_ns)
{
    const json_t *te = json_object_get(s->root, "te"), *version = json_object_get(te, "version");
    int rc;

    if (!te)
        return 0;
    if (!json_is_object(te))
        return FAIL_KEY("key 'te' is %s, must be an object", tei_json_type_name(te));
    if (!json_is_integer(version) || json_integer_value(version) < 0)
        return FAIL_KEY("key 'te.version' is %s, must be an integer and not negative",
                        tei_json_type_name(version));
    s->version = (uint64_t)json_integer_value(version);
    rc = read_incarnation(s, te);
    if (rc)
        return rc;
    rc = check_list(te, "rights", "te.rights");
    return rc ? rc : tei_segment_read_rights(s, rights, deadline_ns);
}

/* ---- the whole */

const struct tei_segment_limits tei_segment_unlimited = {
    .max_bytes = UINT32_MAX, .max_buffers = UINT32_MAX, .deadline_ns = TEI_NEVER};

/* What a descriptor is made of: its text, and the lists in it that no tree is made of. */
struct outline {
    struct tei_json_value whole, buffers, rights;
    size_t tree, list_weight;    /* of the rest, of the lists */
    struct tei_json_value inner; /* "rights" in the object that is being read */
    size_t inner_weight;
};

int tei_segment_read_failed(const struct tei_json_reader *r)
{
    if (r->late)
        return TEI_FAIL(TE_ERR_TIMEOUT, "no time left to read a segment descriptor of %zu bytes",
                        (size_t)(r->end - r->begin));
    return FAIL_KEY("%s at byte %zu", r->wrong, (size_t)(r->at - r->begin));
}

/* The first of a name counts: others are refused where the tree is made. */
static void note_list(struct tei_json_value *list, const struct tei_json_value *found,
                      size_t weight, size_t *sum)
{
    if (list->len)
        return;
    *list = *found;
    *sum += weight;
}

static void on_member(void *arg, unsigned depth, const struct tei_json_value *key,
                      const struct tei_json_value *value, size_t weight)
{
    struct outline *o = arg;

    if (depth == 2) {
        if (value->kind == TEI_JSON_ARRAY && tei_json_is(key, "rights"))
            note_list(&o->inner, value, weight, &o->inner_weight);
        return;
    }
    if (value->kind == TEI_JSON_ARRAY && tei_json_is(key, "buffers"))
        note_list(&o->buffers, value, weight, &o->list_weight);
    else if (o->inner.len && tei_json_is(key, "te"))
        note_list(&o->rights, &o->inner, o->inner_weight, &o->list_weight);
    o->inner = (struct tei_json_value){0};
    o->inner_weight = 0;
}

/* Checks the text and finds the lists, in one walk. */
static int outline(const char *text, size_t len, int64_t deadline_ns, struct outline *o)
{
    struct tei_json_reader r;

    *o = (struct outline){0};
    tei_json_reader_init(&r, text, len, deadline_ns);
    r.on_member = on_member;
    r.arg = o;
    if (!tei_json_read(&r, &o->whole) || !tei_json_at_end(&r))
        return tei_segment_read_failed(&r);
    o->tree = r.tree - o->list_weight;
    return 0;
}

/* All of it but the lists as a tree. */
static int rest_of(const struct outline *o, json_t **root)
{
    struct tei_json_value cuts[2];
    json_error_t error;
    size_t n = 0;
    int rc;

    if (!tei_json_tree_fits(o->tree, o->whole.len))
        return TEI_FAIL(
            TE_ERR_TOO_LARGE,
            "segment descriptor: there is more in it than buffers; it would take %zu bytes",
            o->tree);
    if (o->buffers.len)
        cuts[n++] = o->buffers;
    if (o->rights.len)
        cuts[n++] = o->rights;
    if (n == 2 && cuts[1].text < cuts[0].text) {
        cuts[0] = o->rights;
        cuts[1] = o->buffers;
    }
    rc = tei_json_tree(&o->whole, cuts, n, root, &error);
    if (rc == TE_ERR_MEMORY)
        return TEI_FAIL(rc, "no memory for a segment descriptor of %zu bytes", o->whole.len);
    return rc ? FAIL_KEY("%s", error.text) : 0;
}

static int read_protocol(struct tei_segment *s)
{
    const json_t *j = json_object_get(s->root, "protocol");

    return json_is_array(j) ? tei_segment_read_protocols(s, j)
                            : read_text(s->root, "protocol", &s->protocol);
}

static int read_all(struct tei_segment *s, const struct outline *o,
                    const struct tei_segment_limits *limits)
{
    int rc = rest_of(o, &s->root);

    if (!rc)
        rc =
            read_text(s->root, json_object_get(s->root, "name") ? "name" : "server_name", &s->name);
    if (!rc)
        rc = read_protocol(s);
    if (!rc)
        s->files = strcmp(s->protocol, tei_protocol_of_files) == 0;
    if (!rc)
        rc = check_list(s->root, "buffers", "buffers");
    if (!rc)
        rc = tei_segment_read_buffers(s, &o->buffers, limits);
    if (!rc)
        rc = read_te(s, &o->rights, limits->deadline_ns);
    return rc;
}

static int segment_of(const struct outline *o, const struct tei_segment_limits *limits,
                      struct tei_segment **out)
{
    struct tei_segment *s = calloc(1, sizeof *s);
    int rc;

    if (!s)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a segment");
    atomic_init(&s->refs, 1);
    rc = read_all(s, o, limits);
    if (rc) {
        tei_segment_put(s);
        return rc;
    }
    *out = s;
    return 0;
}

int tei_segment_decode(const char *text, size_t len, const struct tei_segment_limits *limits,
                       struct tei_segment **out)
{
    struct outline o;
    int rc;

    if (len > limits->max_bytes)
        return TEI_FAIL(TE_ERR_TOO_LARGE,
                        "a segment descriptor has more bytes than TE_DESCRIPTOR_MAX_BYTES allows "
                        "(%zu more, %zu left); raise it if that is right",
                        len, limits->max_bytes);
    rc = outline(text, len, limits->deadline_ns, &o);
    if (rc)
        return rc;
    if (o.whole.kind == TEI_JSON_OBJECT)
        return segment_of(&o, limits, out);
    if (o.whole.kind == TEI_JSON_NULL)
        return TEI_FAIL(TE_ERR_METADATA, "the peer has no segment yet");
    return FAIL_KEY("it is %s", "no JSON object");
}

/* The record that such a file would have. */
static char *record_of_file(const char *name, const char *path, uint64_t length, size_t *len)
{
    json_t *root = json_pack("{s[{ss sI s{ss}}] ss ss}", "buffers", "file_path", path, "length",
                             (json_int_t)length, "local_path_map", "*", path, "name", name,
                             "protocol", tei_protocol_of_files);
    char *text = tei_json_text(root, len);

    json_decref(root);
    return text;
}

int tei_segment_of_file(const char *name, const char *path, uint64_t length,
                        struct tei_segment **out)
{
    size_t len;
    char *text = record_of_file(name, path, length, &len);
    int rc;

    if (!text)
        return TEI_FAIL(TE_ERR_INVALID, "file '%.200s': no memory, or the path is not UTF-8", path);
    rc = tei_segment_decode(text, len, &tei_segment_unlimited, out);
    free(text);
    if (!rc)
        (*out)->by_path = true;
    return rc;
}

/* ---- pages */

static bool read_count(const json_t *page, const char *key, size_t *out)
{
    const json_t *j = json_object_get(page, key);

    if (!json_is_integer(j) || json_integer_value(j) < 0)
        return false;
    *out = (size_t)json_integer_value(j);
    return true;
}

int tei_segment_page(const struct tei_segment *s, struct tei_page *out)
{
    const json_t *page = json_object_get(json_object_get(s->root, "te"), "page");
    size_t listed = s->n_listed;
    struct tei_page p = {0};

    if (!page) {
        *out = p;
        return 0;
    }
    if (!read_count(page, "from", &p.from) || !read_count(page, "count", &p.count) ||
        !read_count(page, "total", &p.total) || !p.total)
        return FAIL_KEY("key 'te.page' is %s without from, count and total",
                        tei_json_type_name(page));
    if (p.count != listed || (p.count && (p.from > p.total || p.count > p.total - p.from)))
        return FAIL_KEY("te.page says %zu buffers from %zu of %zu, there are %zu", p.count, p.from,
                        p.total, listed);
    *out = p;
    return 0;
}

static bool same_version(const struct tei_segment *a, const struct tei_segment *b)
{
    return a->incarnation == b->incarnation && a->version == b->version &&
           strcmp(a->name, b->name) == 0 && strcmp(a->protocol, b->protocol) == 0;
}

static const json_t *page_of(const struct tei_segment *s)
{
    return json_object_get(json_object_get(s->root, "te"), "page");
}

static json_int_t total_of(const struct tei_segment *s)
{
    return json_integer_value(json_object_get(page_of(s), "total"));
}

static int changed(const struct tei_segment *s)
{
    return TEI_FAIL(TE_ERR_STALE, "segment %s changed while its pages were read", s->name);
}

/* Room for what the page adds. */
static int make_room(struct tei_segment *s, const struct tei_segment *page)
{
    const size_t n = s->n_buffers + page->n_buffers, listed = s->n_listed + page->n_listed;
    const size_t len = s->text_len + page->text_len;
    struct tei_buffer *buffers = n ? reallocarray(s->buffers, n, sizeof *buffers) : s->buffers;
    uint32_t *spots =
        page->text && listed ? reallocarray(s->spots, listed, sizeof *spots) : s->spots;
    char *text = page->text ? realloc(s->text, len + 1) : s->text;

    if (buffers)
        s->buffers = buffers;
    if (spots)
        s->spots = spots;
    if (text)
        s->text = text;
    if ((n && !buffers) || (page->text && ((listed && !spots) || !text)))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for segment %s of %zu buffers", s->name, n);
    return 0;
}

static void add_buffers(struct tei_segment *s, const struct tei_segment *page)
{
    for (size_t i = 0; i < page->n_buffers; i++) {
        s->buffers[s->n_buffers] = page->buffers[i];
        s->buffers[s->n_buffers++].index += (uint32_t)s->n_listed;
    }
    for (size_t i = 0; page->text && i < page->n_listed; i++)
        s->spots[s->n_listed + i] = (uint32_t)s->text_len + page->spots[i];
    if (page->text)
        memcpy(s->text + s->text_len, page->text, page->text_len + 1);
    s->n_listed += page->n_listed;
    s->text_len += page->text_len;
    s->kinds |= page->kinds;
    s->offsets |= page->offsets;
}

int tei_segment_append(struct tei_segment *s, const struct tei_segment *page)
{
    struct tei_page p;
    int rc = tei_segment_page(page, &p);

    if (rc)
        return rc;
    if (!same_version(s, page) || p.from != s->n_listed || (json_int_t)p.total != total_of(s))
        return changed(s);
    if (p.total > UINT32_MAX || s->text_len + page->text_len > UINT32_MAX)
        return FAIL_KEY("%zu buffers are too many", p.total);
    rc = make_room(s, page);
    if (!rc)
        add_buffers(s, page);
    return rc;
}

int tei_segment_complete(struct tei_segment *s)
{
    if (json_integer_value(json_object_get(page_of(s), "from")))
        return changed(s);
    if (page_of(s) && total_of(s) != (json_int_t)s->n_listed)
        return FAIL_KEY("its pages have %zu buffers of %" JSON_INTEGER_FORMAT, s->n_listed,
                        total_of(s));
    json_object_del(json_object_get(s->root, "te"), "page");
    return tei_segment_order_buffers(s);
}

char *tei_page_request_encode(size_t from, size_t max_bytes)
{
    char *text;

    if (asprintf(&text, "{\"te\":{\"page\":{\"from\":%zu,\"max\":%zu}}}", from, max_bytes) < 0)
        return NULL;
    return text;
}

bool tei_page_request_decode(const char *text, size_t len, size_t *from, size_t *max_bytes)
{
    json_t *root = NULL;
    const json_t *page;
    size_t first, max;
    bool ok;

    if (len <= PAGE_REQUEST_MAX)
        (void)tei_json_load(text, len, 0, &root, NULL);
    page = json_object_get(json_object_get(root, "te"), "page");
    ok = read_count(page, "from", &first) && read_count(page, "max", &max) && max;
    if (ok) {
        *from = first;
        *max_bytes = max;
    }
    json_decref(root);
    return ok;
}
