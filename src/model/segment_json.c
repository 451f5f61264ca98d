/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

#include "base/err.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A request for a page is short; whatever is longer is the descriptor that other engines send
 * along.
 */
#define PAGE_REQUEST_MAX 256

#define FAIL_KEY(fmt, ...) TEI_FAIL(TE_ERR_JSON, "segment descriptor: " fmt, __VA_ARGS__)

static const char *type_name(const json_t *j)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "an array", [JSON_STRING] = "a string",
        [JSON_INTEGER] = "an integer", [JSON_REAL] = "a real",    [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",        [JSON_NULL] = "null",
    };

    return j ? names[json_typeof(j)] : "missing";
}

/* The string of a key that must be there and not be empty. */
static int read_text(const json_t *root, const char *key, char **out)
{
    const json_t *j = json_object_get(root, key);

    if (!json_is_string(j))
        return FAIL_KEY("key '%s' is %s, must be a string", key, type_name(j));
    if (!json_string_length(j))
        return FAIL_KEY("key '%s' is empty", key);
    *out = strdup(json_string_value(j));
    return *out ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory for a segment's %s", key);
}

static int read_positive(const json_t *object, const char *key, size_t index, uint64_t *out)
{
    const json_t *j = json_object_get(object, key);

    if (!json_is_integer(j))
        return FAIL_KEY("buffers[%zu]: '%s' is %s, must be an integer", index, key, type_name(j));
    if (json_integer_value(j) <= 0)
        return FAIL_KEY("buffers[%zu]: '%s' is %" JSON_INTEGER_FORMAT ", must be positive", index,
                        key, json_integer_value(j));
    *out = (uint64_t)json_integer_value(j);
    return 0;
}

/* Offsets into a device stand in "buffers" too, but are no memory with an address. */
static bool has_no_address(const json_t *object)
{
    return !json_object_get(object, "addr") &&
           (json_object_get(object, "file_path") || json_object_get(object, "offset"));
}

/* One device of an rdma descriptor. */
static int read_device(const json_t *device, size_t index)
{
    static const char *const keys[] = {"name", "gid"};

    for (size_t i = 0; i < TEI_ARRAY_LEN(keys); i++) {
        const json_t *j = json_object_get(device, keys[i]);

        if (!json_is_string(j) || !json_string_length(j))
            return FAIL_KEY("devices[%zu]: '%s' is %s, must be a string that is not empty", index,
                            keys[i], json_is_string(j) ? "empty" : type_name(j));
    }
    return 0;
}

static bool is_rdma(const struct tei_segment *s)
{
    return strcmp(s->protocol, "rdma") == 0;
}

static int read_devices(const struct tei_segment *s)
{
    const json_t *list = json_object_get(s->root, "devices"), *device;
    size_t i;

    if (!is_rdma(s))
        return 0;
    if (list && !json_is_array(list))
        return FAIL_KEY("key 'devices' is %s, must be an array", type_name(list));
    json_array_foreach(list, i, device) {
        int rc = read_device(device, i);

        if (rc)
            return rc;
    }
    return 0;
}

/* A buffer of an rdma descriptor has a key for each device, or none for peers: "rkey":[]. */
static int read_keys(const struct tei_segment *s, const json_t *object, size_t index)
{
    const json_t *rkey = json_object_get(object, "rkey"), *lkey = json_object_get(object, "lkey");
    size_t n = json_array_size(rkey), devices;

    if (!is_rdma(s))
        return 0;
    if ((rkey && !json_is_array(rkey)) || (lkey && !json_is_array(lkey)))
        return FAIL_KEY("buffers[%zu]: 'rkey' and 'lkey' must be arrays", index);
    devices = json_array_size(json_object_get(s->root, "devices"));
    if (n && (n != json_array_size(lkey) || n != devices))
        return FAIL_KEY("buffers[%zu]: %zu of 'rkey', %zu of 'lkey', %zu devices: must be as many",
                        index, n, json_array_size(lkey), devices);
    for (size_t i = 0; i < n; i++)
        if (!json_is_integer(json_array_get(rkey, i)))
            return FAIL_KEY("buffers[%zu]: rkey[%zu] is %s, must be an integer", index, i,
                            type_name(json_array_get(rkey, i)));
    return 0;
}

/* The range is known; whether it can be one. */
static int add_buffer(struct tei_segment *s, struct tei_buffer *b, size_t index)
{
    uint64_t end;

    if (!tei_add_ok(b->addr, b->length, &end) || end > INT64_MAX)
        return FAIL_KEY("buffers[%zu]: %" PRIu64 " + %" PRIu64 " wraps", index, b->addr, b->length);
    b->access = TE_REMOTE_RW;
    b->index = (uint32_t)index;
    s->kinds |= TEI_MEM_BIT(b->kind);
    s->n_buffers++;
    return 0;
}

static int read_path_map(const json_t *map, size_t index)
{
    const char *host;
    json_t *path;

    if (map && !json_is_object(map))
        return FAIL_KEY("buffers[%zu]: 'local_path_map' is %s, must be an object", index,
                        type_name(map));
    json_object_foreach((json_t *)map, host, path) {
        if (!json_is_string(path) || !json_string_length(path))
            return FAIL_KEY("buffers[%zu]: the path of host '%.64s' is %s, must be a string that "
                            "is not empty",
                            index, host, json_is_string(path) ? "empty" : type_name(path));
    }
    return 0;
}

/* A file, which begins where the one before it ends. */
static int read_file(struct tei_segment *s, const json_t *object, size_t index)
{
    struct tei_buffer *b = &s->buffers[s->n_buffers];
    const json_t *path = json_object_get(object, "file_path");
    int rc;

    if (!json_is_object(object))
        return FAIL_KEY("buffers[%zu] is %s, must be an object", index, type_name(object));
    if (!json_is_string(path) || !json_string_length(path))
        return FAIL_KEY("buffers[%zu]: 'file_path' is %s, must be a string that is not empty",
                        index, json_is_string(path) ? "empty" : type_name(path));
    rc = read_path_map(json_object_get(object, "local_path_map"), index);
    if (!rc)
        rc = read_positive(object, "length", index, &b->length);
    if (rc)
        return rc;
    b->addr = s->n_buffers ? b[-1].addr + b[-1].length : 0;
    return add_buffer(s, b, index);
}

static int read_buffer(struct tei_segment *s, const json_t *object, size_t index)
{
    struct tei_buffer *b = &s->buffers[s->n_buffers];
    const json_t *name = json_object_get(object, "name");
    int rc;

    if (s->files)
        return read_file(s, object, index);
    if (!json_is_object(object))
        return FAIL_KEY("buffers[%zu] is %s, must be an object", index, type_name(object));
    if (has_no_address(object)) {
        s->offsets = true;
        return 0;
    }
    if (!json_is_string(name) || !json_string_length(name))
        return FAIL_KEY("buffers[%zu]: 'name' is %s, must be a string that is not empty", index,
                        json_is_string(name) ? "empty" : type_name(name));
    rc = read_positive(object, "addr", index, &b->addr);
    if (!rc)
        rc = read_positive(object, "length", index, &b->length);
    if (!rc)
        rc = read_keys(s, object, index);
    /* Some protocols put the segment's name there. */
    b->kind = strcmp(json_string_value(name), s->name) == 0
                  ? TEI_MEM_HOST
                  : (uint8_t)tei_mem_kind_of(json_string_value(name));
    return rc ? rc : add_buffer(s, b, index);
}

static int by_addr(const void *a, const void *b)
{
    const struct tei_buffer *x = a, *y = b;

    return (x->addr > y->addr) - (x->addr < y->addr);
}

/* Most writers sort; asking first is much cheaper than sorting what is sorted. */
static void sort_buffers(struct tei_segment *s)
{
    size_t i = 1;

    while (i < s->n_buffers && s->buffers[i - 1].addr < s->buffers[i].addr)
        i++;
    if (i < s->n_buffers)
        qsort(s->buffers, s->n_buffers, sizeof *s->buffers, by_addr);
}

/*
 * Nobody registers memory twice, so of two that overlap one is gone. Mooncake's engine, started again
 * after a crash, takes the dead one's buffers out of the metadata and lists its own behind them: what
 * is listed later counts. An engine of ours never does, and is told so.
 */
static int resolve_overlaps(struct tei_segment *s)
{
    const bool is_ours = json_object_get(s->root, "te") != NULL;
    size_t n = 0;

    for (size_t i = 0; i < s->n_buffers; i++) {
        struct tei_buffer *last = n ? &s->buffers[n - 1] : NULL, b = s->buffers[i];
        bool overlap = last && b.addr - last->addr < last->length;

        if (overlap && is_ours)
            return FAIL_KEY("buffers[%" PRIu32 "] and buffers[%" PRIu32 "] overlap at %" PRIu64,
                            last->index, b.index, b.addr);
        if (!overlap)
            s->buffers[n++] = b;
        else if (b.index > last->index)
            *last = b;
    }
    s->n_buffers = n;
    return 0;
}

static int read_buffers(struct tei_segment *s)
{
    const json_t *list = json_object_get(s->root, "buffers"), *object;
    size_t i, n = json_array_size(list);
    int rc;

    if (list && !json_is_array(list))
        return FAIL_KEY("key 'buffers' is %s, must be an array", type_name(list));
    if (!n)
        return 0;
    if (n > UINT32_MAX)
        return FAIL_KEY("%zu buffers are too many", n);
    s->buffers = calloc(n, sizeof *s->buffers);
    if (!s->buffers)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a segment of %zu buffers", n);
    json_array_foreach(list, i, object) {
        rc = read_buffer(s, object, i);
        if (rc)
            return rc;
    }
    sort_buffers(s);
    return resolve_overlaps(s);
}

static struct tei_buffer *buffer_at(struct tei_segment *s, uint64_t addr)
{
    struct tei_buffer key = {.addr = addr};

    return s->n_buffers ? bsearch(&key, s->buffers, s->n_buffers, sizeof key, by_addr) : NULL;
}

static int read_right(struct tei_segment *s, const json_t *pair, size_t index)
{
    const json_t *addr = json_array_get(pair, 0), *right = json_array_get(pair, 1);
    const char *text = json_string_value(right);
    struct tei_buffer *b;

    if (json_array_size(pair) != 2 || !json_is_integer(addr) || !text)
        return FAIL_KEY("te.rights[%zu] is not [address, \"r\" or \"w\"]", index);
    b = buffer_at(s, (uint64_t)json_integer_value(addr));
    if (!b)
        return FAIL_KEY("te.rights[%zu]: no buffer begins at %" JSON_INTEGER_FORMAT, index,
                        json_integer_value(addr));
    if (strcmp(text, "r") && strcmp(text, "w"))
        return FAIL_KEY("te.rights[%zu]: '%.20s' is neither \"r\" nor \"w\"", index, text);
    b->access &= *text == 'r' ? TE_REMOTE_READ : TE_REMOTE_WRITE;
    return 0;
}

static int read_rights(struct tei_segment *s, const json_t *te)
{
    const json_t *list = json_object_get(te, "rights"), *pair;
    size_t i;
    int rc;

    if (list && !json_is_array(list))
        return FAIL_KEY("key 'te.rights' is %s, must be an array", type_name(list));
    json_array_foreach(list, i, pair) {
        rc = read_right(s, pair, i);
        if (rc)
            return rc;
    }
    return 0;
}

static int read_incarnation(struct tei_segment *s, const json_t *te)
{
    const json_t *j = json_object_get(te, "incarnation");
    const char *text = json_string_value(j);

    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return FAIL_KEY("key 'te.incarnation' is %s, must be 16 hexadecimal digits",
                        text ? "another text" : type_name(j));
    s->incarnation = strtoull(text, NULL, 16);
    return 0;
}

/* Our own object; descriptors of other engines have none. */
static int read_te(struct tei_segment *s)
{
    const json_t *te = json_object_get(s->root, "te"), *version = json_object_get(te, "version");
    int rc;

    if (!te)
        return 0;
    if (!json_is_object(te))
        return FAIL_KEY("key 'te' is %s, must be an object", type_name(te));
    if (!json_is_integer(version) || json_integer_value(version) < 0)
        return FAIL_KEY("key 'te.version' is %s, must be an integer and not negative",
                        type_name(version));
    s->version = (uint64_t)json_integer_value(version);
    rc = read_incarnation(s, te);
    return rc ? rc : read_rights(s, te);
}

/* Takes over the reference to `root`. */
static int segment_of(json_t *root, struct tei_segment **out)
{
    struct tei_segment *s = calloc(1, sizeof *s);
    int rc;

    if (!s) {
        json_decref(root);
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a segment");
    }
    atomic_init(&s->refs, 1);
    s->root = root;
    rc = read_text(root, json_object_get(root, "name") ? "name" : "server_name", &s->name);
    if (!rc)
        rc = read_text(root, "protocol", &s->protocol);
    if (!rc)
        s->files = strcmp(s->protocol, "nvmeof") == 0;
    if (!rc)
        rc = read_devices(s);
    if (!rc)
        rc = read_buffers(s);
    if (!rc)
        rc = read_te(s);
    if (rc) {
        tei_segment_put(s);
        return rc;
    }
    *out = s;
    return 0;
}

int tei_segment_decode(const char *text, size_t len, struct tei_segment **out)
{
    json_error_t error;
    json_t *root = json_loadb(text, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);

    if (!root)
        return FAIL_KEY("%s at byte %d", error.text, error.position);
    if (json_is_object(root))
        return segment_of(root, out);
    if (json_is_null(root))
        return TEI_FAIL(TE_ERR_METADATA, "the peer has no segment yet");
    json_decref(root);
    return FAIL_KEY("it is %s", "no JSON object");
}

int tei_segment_of_file(const char *name, const char *path, uint64_t length,
                        struct tei_segment **out)
{
    json_t *root = json_pack("{s[{ss sI s{ss}}] ss ss}", "buffers", "file_path", path, "length",
                             (json_int_t)length, "local_path_map", "*", path, "name", name,
                             "protocol", "nvmeof");
    int rc;

    if (!root)
        return TEI_FAIL(TE_ERR_INVALID, "file '%.200s': no memory, or the path is not UTF-8", path);
    rc = segment_of(root, out);
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
    size_t listed = json_array_size(json_object_get(s->root, "buffers"));
    struct tei_page p = {0};

    if (!page) {
        *out = p;
        return 0;
    }
    if (!read_count(page, "from", &p.from) || !read_count(page, "count", &p.count) ||
        !read_count(page, "total", &p.total) || !p.total)
        return FAIL_KEY("key 'te.page' is %s without from, count and total", type_name(page));
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

/* The pages follow each other without a gap, up to the total. */
static int check_pages(struct tei_segment *const *pages, size_t n)
{
    size_t next = 0, total = 0;
    struct tei_page p;

    for (size_t i = 0; i < n; i++) {
        int rc = tei_segment_page(pages[i], &p);

        if (rc)
            return rc;
        if (!same_version(pages[0], pages[i]) || p.from != next || (i && p.total != total))
            return TEI_FAIL(TE_ERR_STALE, "segment %s changed while its pages were read",
                            pages[0]->name);
        next += p.count;
        total = p.total;
    }
    return next == total ? 0 : FAIL_KEY("its pages have %zu buffers of %zu", next, total);
}

static int append(json_t *to, const json_t *object, const char *key)
{
    json_t *list = json_object_get(object, key);

    return list ? json_array_extend(to, list) : 0;
}

/* One descriptor with the lists of all pages and the other keys of the first. */
static json_t *join_roots(struct tei_segment *const *pages, size_t n)
{
    json_t *root = json_copy(pages[0]->root), *te = json_copy(json_object_get(root, "te"));
    json_t *buffers = json_array(), *rights = json_array();
    int rc = json_object_set_new(root, "te", te) | json_object_set_new(root, "buffers", buffers) |
             json_object_set_new(te, "rights", rights);

    json_object_del(te, "page");
    for (size_t i = 0; i < n && !rc; i++)
        rc = append(buffers, pages[i]->root, "buffers") |
             append(rights, json_object_get(pages[i]->root, "te"), "rights");
    if (rc) {
        json_decref(root);
        return NULL;
    }
    return root;
}

int tei_segment_join(struct tei_segment *const *pages, size_t n, struct tei_segment **out)
{
    json_t *root;
    int rc = n ? check_pages(pages, n) : TEI_FAIL(TE_ERR_INVALID, "a segment of no pages");

    if (rc)
        return rc;
    root = join_roots(pages, n);
    if (!root)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for segment %s", pages[0]->name);
    return segment_of(root, out);
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
    json_t *root = len <= PAGE_REQUEST_MAX ? json_loadb(text, len, 0, NULL) : NULL;
    const json_t *page = json_object_get(json_object_get(root, "te"), "page");
    size_t first, max;
    bool ok = read_count(page, "from", &first) && read_count(page, "max", &max) && max;

    if (ok) {
        *from = first;
        *max_bytes = max;
    }
    json_decref(root);
    return ok;
}
