/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment_buffers.c - the lists of a descriptor, read as a stream: "buffers" and "te"."rights". The
 * text has been checked before, so all that can stop a reader here is the deadline.
 */
#include "model/segment_read.h"

#include "base/os.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LOCATION_MAX 64 /* bytes of a buffer's name: one that is longer is that of no device */

/* The keys of a buffer that mean something, some of them to a transport alone: none may come twice. */
enum { ADDR, FILE_PATH, LENGTH, LKEY, NAME, OFFSET, PATH_MAP, PROTOCOL, RKEY, SHM_NAME, N_KEYS };
static const char *const key_names[] = {
    [ADDR] = "addr",         [FILE_PATH] = "file_path", [LENGTH] = "length",
    [LKEY] = "lkey",         [NAME] = "name",           [OFFSET] = "offset",
    [RKEY] = "rkey",         [PROTOCOL] = "protocol",   [PATH_MAP] = "local_path_map",
    [SHM_NAME] = "shm_name",
};

/* One buffer of the list. */
struct item {
    size_t index;
    struct tei_json_value whole, keys[N_KEYS];
};

static bool is_text(const struct tei_json_value *v)
{
    return v->kind == TEI_JSON_STRING && v->len;
}

static const char *not_text(const struct tei_json_value *v)
{
    return v->kind == TEI_JSON_STRING ? "empty" : tei_json_kind_name(v->kind);
}

/* A host that comes twice in it would have two paths. */
static int check_path_map(const struct item *i)
{
    json_error_t error = {0};
    json_t *tree = NULL;
    int rc = tei_json_tree(&i->keys[PATH_MAP], NULL, 0, &tree, &error);

    json_decref(tree);
    if (rc == TE_ERR_JSON)
        return FAIL_KEY("buffers[%zu]: '%s': %s", i->index, key_names[PATH_MAP], error.text);
    return rc;
}

static int read_keys(const struct tei_json_value *whole, struct item *i)
{
    struct tei_json_value key, value;
    struct tei_json_reader r;

    i->whole = *whole;
    memset(i->keys, 0, sizeof i->keys);
    if (whole->kind != TEI_JSON_OBJECT)
        return FAIL_KEY("buffers[%zu] is %s, must be an object", i->index,
                        tei_json_kind_name(whole->kind));
    tei_json_reader_inside(&r, whole, TEI_NEVER);
    while (tei_json_next(&r, &key, &value)) {
        size_t k = 0;

        while (k < N_KEYS && !tei_json_is(&key, key_names[k]))
            k++;
        if (k < N_KEYS && i->keys[k].kind != TEI_JSON_MISSING)
            return FAIL_KEY("buffers[%zu]: duplicate object key '%s'", i->index, key_names[k]);
        if (k < N_KEYS)
            i->keys[k] = value;
    }
    return i->keys[PATH_MAP].kind == TEI_JSON_OBJECT ? check_path_map(i) : 0;
}

static int read_positive(const struct item *i, size_t key, uint64_t *out)
{
    const struct tei_json_value *v = &i->keys[key];

    if (v->kind != TEI_JSON_INTEGER)
        return FAIL_KEY("buffers[%zu]: '%s' is %s, must be an integer", i->index, key_names[key],
                        tei_json_kind_name(v->kind));
    if (v->integer <= 0)
        return FAIL_KEY("buffers[%zu]: '%s' is %" PRId64 ", must be positive", i->index,
                        key_names[key], v->integer);
    *out = (uint64_t)v->integer;
    return 0;
}

/* Offsets into a device stand in "buffers" too, but are no memory with an address. */
static bool has_no_address(const struct item *i)
{
    return i->keys[ADDR].kind == TEI_JSON_MISSING && (i->keys[FILE_PATH].kind != TEI_JSON_MISSING ||
                                                      i->keys[OFFSET].kind != TEI_JSON_MISSING);
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

/* A file, which begins where the one before it ends. */
static int read_file(struct tei_segment *s, const struct item *i)
{
    struct tei_buffer *b = &s->buffers[s->n_buffers];
    int rc;

    *b = (struct tei_buffer){0};
    if (!is_text(&i->keys[FILE_PATH]))
        return FAIL_KEY("buffers[%zu]: 'file_path' is %s, must be a string that is not empty",
                        i->index, not_text(&i->keys[FILE_PATH]));
    rc = read_positive(i, LENGTH, &b->length);
    if (rc)
        return rc;
    b->addr = s->n_buffers ? b[-1].addr + b[-1].length : 0;
    return add_buffer(s, b, i->index);
}

/* Some protocols put the segment's name there. */
static uint8_t kind_of(const struct tei_segment *s, const struct tei_json_value *name)
{
    char location[LOCATION_MAX];

    if (!tei_json_copy(name, location, sizeof location) || strcmp(location, s->name) == 0)
        return TEI_MEM_HOST;
    return (uint8_t)tei_mem_kind_of(location);
}

static int read_memory(struct tei_segment *s, const struct item *i)
{
    struct tei_buffer *b = &s->buffers[s->n_buffers];
    int rc;

    *b = (struct tei_buffer){0};
    rc = s->several ? tei_segment_protocol_of(s, &i->keys[PROTOCOL], i->index, &b->by) : 0;
    if (rc)
        return rc;
    if (has_no_address(i)) {
        s->offsets = true;
        return 0;
    }
    if (!is_text(&i->keys[NAME]))
        return FAIL_KEY("buffers[%zu]: 'name' is %s, must be a string that is not empty", i->index,
                        not_text(&i->keys[NAME]));
    rc = read_positive(i, ADDR, &b->addr);
    if (!rc)
        rc = read_positive(i, LENGTH, &b->length);
    b->kind = kind_of(s, &i->keys[NAME]);
    return rc ? rc : add_buffer(s, b, i->index);
}

/* ------------------------------------------------------------------------------------------- room */

static int no_memory(size_t n)
{
    return TEI_FAIL(TE_ERR_MEMORY, "no memory for a segment of %zu buffers", n);
}

/* Room for one more of the list; what is not written to takes no memory. */
static int make_room(struct tei_segment *s, size_t *cap)
{
    size_t n = *cap ? *cap * 2 : 64;
    struct tei_buffer *buffers;
    uint32_t *spots;

    if (s->n_listed < *cap)
        return 0;
    buffers = reallocarray(s->buffers, n, sizeof *buffers);
    if (!buffers)
        return no_memory(n);
    s->buffers = buffers;
    spots = s->text ? reallocarray(s->spots, n, sizeof *spots) : NULL;
    if (s->text && !spots)
        return no_memory(n);
    s->spots = spots;
    *cap = n;
    return 0;
}

/* Gives back what is left over; without success it stays. */
static void trim(struct tei_segment *s)
{
    struct tei_buffer *buffers = reallocarray(s->buffers, s->n_buffers + 1, sizeof *buffers);
    uint32_t *spots = s->text ? reallocarray(s->spots, s->n_listed + 1, sizeof *spots) : NULL;

    if (buffers)
        s->buffers = buffers;
    if (spots)
        s->spots = spots;
}

/* For transports, which read the keys that they have there by themselves. */
static int keep_text(struct tei_segment *s, const struct tei_json_value *list)
{
    if (strcmp(s->protocol, tei_protocol_keyless) == 0)
        return 0;
    s->text = malloc(list->len + 1);
    if (!s->text)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for %zu bytes of a segment's buffers", list->len);
    memcpy(s->text, list->text, list->len);
    s->text[list->len] = '\0';
    s->text_len = list->len;
    return 0;
}

/* `tree` is what that of the item would take. */
static int read_item(struct tei_segment *s, const struct tei_json_value *list,
                     const struct tei_json_value *whole, size_t tree)
{
    struct item i = {.index = s->n_listed};
    int rc;

    if (!tei_json_tree_fits(tree, whole->len))
        return TEI_FAIL(TE_ERR_TOO_LARGE, "segment descriptor: buffers[%zu] would take %zu bytes",
                        i.index, tree);
    rc = read_keys(whole, &i);
    if (rc)
        return rc;
    if (s->text)
        s->spots[s->n_listed] = (uint32_t)(whole->text - list->text);
    s->n_listed++;
    return s->files ? read_file(s, &i) : read_memory(s, &i);
}

static int read_items(struct tei_segment *s, const struct tei_json_value *list,
                      const struct tei_segment_limits *limits)
{
    struct tei_json_reader r;
    struct tei_json_value whole;
    size_t cap = 0;
    int rc = 0;

    tei_json_reader_inside(&r, list, limits->deadline_ns);
    for (; !rc && tei_json_next(&r, NULL, &whole); r.tree = 0) {
        if (s->n_listed == limits->max_buffers)
            return TEI_FAIL(TE_ERR_TOO_LARGE,
                            "a segment descriptor has more buffers than "
                            "TE_DESCRIPTOR_MAX_BUFFERS allows (%zu were left); raise it if that "
                            "is right",
                            limits->max_buffers);
        rc = make_room(s, &cap);
        if (!rc)
            rc = read_item(s, list, &whole, r.tree);
    }
    if (!rc && r.late)
        rc = tei_segment_read_failed(&r);
    if (!rc && cap)
        trim(s);
    return rc;
}

int tei_segment_read_buffers(struct tei_segment *s, const struct tei_json_value *list,
                             const struct tei_segment_limits *limits)
{
    int rc;

    if (!list->len)
        return 0;
    rc = keep_text(s, list);
    if (!rc)
        rc = read_items(s, list, limits);
    return rc ? rc : tei_segment_order_buffers(s);
}

json_t *tei_segment_buffer(const struct tei_segment *s, size_t index)
{
    struct tei_json_reader r;
    struct tei_json_value whole;
    json_t *object = NULL;

    if (!s->text || index >= s->n_listed)
        return NULL;
    tei_json_reader_init(&r, s->text + s->spots[index], s->text_len - s->spots[index], TEI_NEVER);
    if (tei_json_read(&r, &whole))
        (void)tei_json_load(whole.text, whole.len, 0, &object, NULL);
    return object;
}

/* ------------------------------------------------------------------------------------------ order */

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
int tei_segment_order_buffers(struct tei_segment *s)
{
    const bool is_ours = json_object_get(s->root, "te") != NULL;
    size_t n = 0;

    sort_buffers(s);
    if (s->several)
        return tei_segment_cut_buffers(s, is_ours);
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

/* ----------------------------------------------------------------------------------------- rights */

static struct tei_buffer *buffer_at(struct tei_segment *s, uint64_t addr)
{
    struct tei_buffer key = {.addr = addr};

    return s->n_buffers ? bsearch(&key, s->buffers, s->n_buffers, sizeof key, by_addr) : NULL;
}

/* [address, text] and nothing more. */
static bool read_pair(const struct tei_json_value *pair, struct tei_json_value *addr,
                      struct tei_json_value *right)
{
    struct tei_json_value more;
    struct tei_json_reader r;

    if (pair->kind != TEI_JSON_ARRAY)
        return false;
    tei_json_reader_inside(&r, pair, TEI_NEVER);
    return tei_json_next(&r, NULL, addr) && tei_json_next(&r, NULL, right) &&
           addr->kind == TEI_JSON_INTEGER && right->kind == TEI_JSON_STRING &&
           !tei_json_next(&r, NULL, &more);
}

static int read_right(struct tei_segment *s, const struct tei_json_value *pair, size_t index)
{
    struct tei_json_value addr, right;
    struct tei_buffer *b;

    if (!read_pair(pair, &addr, &right))
        return FAIL_KEY("te.rights[%zu] is not [address, \"r\" or \"w\"]", index);
    b = buffer_at(s, (uint64_t)addr.integer);
    if (!b)
        return FAIL_KEY("te.rights[%zu]: no buffer begins at %" PRId64, index, addr.integer);
    if (!tei_json_is(&right, "r") && !tei_json_is(&right, "w"))
        return FAIL_KEY("te.rights[%zu]: '%.*s' is neither \"r\" nor \"w\"", index,
                        (int)tei_min(right.len, 20), right.text);
    b->access &= tei_json_is(&right, "r") ? TE_REMOTE_READ : TE_REMOTE_WRITE;
    return 0;
}

int tei_segment_read_rights(struct tei_segment *s, const struct tei_json_value *list,
                            int64_t deadline_ns)
{
    struct tei_json_value pair;
    struct tei_json_reader r;
    int rc = 0;

    if (!list->len)
        return 0;
    tei_json_reader_inside(&r, list, deadline_ns);
    for (size_t i = 0; !rc && tei_json_next(&r, NULL, &pair); i++)
        rc = read_right(s, &pair, i);
    return !rc && r.late ? tei_segment_read_failed(&r) : rc;
}
