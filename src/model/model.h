/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - what engines tell each other about themselves: segments, buffers, topology. Pure data:
 * no I/O, no threads.
 */
#ifndef TEI_MODEL_H
#define TEI_MODEL_H

#include "base/base.h"
#include "te.h"

#include <jansson.h>

/*
 * Compact text with sorted keys, NUL-terminated and malloc'ed; its length in *len unless that is
 * NULL. NULL when memory is out.
 */
char *tei_json_text(const json_t *j, size_t *len);

/*
 * Reads a text, as json_loadb() does with `flags` (JSON_REJECT_DUPLICATES, JSON_DECODE_ANY). 0,
 * TE_ERR_MEMORY, or TE_ERR_JSON with text and position in *why (may be NULL); unlogged. When memory is
 * out jansson's own reader leaves bytes out and goes on, or ends the process: nothing here calls it.
 */
int tei_json_load(const char *text, size_t len, size_t flags, json_t **out, json_error_t *why);
/*
 * The same of a text from a stranger, who may not make much memory of little text: TE_ERR_TOO_LARGE if
 * the tree would take more than twice the text and 8 MiB.
 */
int tei_json_load_bounded(const char *text, size_t len, json_t **out, json_error_t *why);
/*
 * Makes a JSON string of a text, which it does not parse (tei_json_load() does). TE_ERR_MEMORY, or
 * TE_ERR_INVALID for what is not UTF-8; unlogged.
 */
int tei_json_string(const char *text, json_t **out);
/* A copy with all that is in it; NULL when memory is out: jansson's own leaves parts out then. */
json_t *tei_json_clone(const json_t *j);
/*
 * Building a value step by step: each takes over the reference to `item`. If there is no memory, for this or
 * for the item, which is NULL then, the value is released and NULL, and later steps do nothing.
 */
void tei_json_append(json_t **array, json_t *item);
void tei_json_set(json_t **object, const char *key, json_t *item);
/* The object of that key, which is put there if there is none; borrowed. NULL: no memory, or no object. */
json_t *tei_json_member(json_t *object, const char *key);
/* "an object", "missing" (NULL): for messages. */
const char *tei_json_type_name(const json_t *j);
/* Copies a string that is printable, without blanks, and shorter than `n`; false: it is none. */
bool tei_json_word(const json_t *j, char *out, size_t n);

/* ------------------------------------------------------------------------------------- segments */

/* The kinds of memory of devices, and the word of their locations: "cuda:0". "ascend" is "npu", too. */
#define TEI_MEM_DEVICES(X) \
    X(CUDA, "cuda")        \
    X(HIP, "hip")          \
    X(ASCEND, "npu")       \
    X(MUSA, "musa")        \
    X(MACA, "maca")        \
    X(SUPA, "supa")

/* What a location says of the memory there: "cuda:0", "hip:1"; "cpu:0", "*" and "segments:..". */
enum tei_mem_kind {
    TEI_MEM_HOST,
#define TEI_MEM_ROW(name, word) TEI_MEM_##name,
    TEI_MEM_DEVICES(TEI_MEM_ROW)
#undef TEI_MEM_ROW
        TEI_MEM_OTHER, /* of a device that this library does not know: a peer's */
    TEI_MEM_KINDS
};
#define TEI_MEM_BIT(kind) (1u << (kind))
#define TEI_MEM_ANY       (TEI_MEM_BIT(TEI_MEM_KINDS) - 1)
#define TEI_MEM_KNOWN \
    (TEI_MEM_BIT(TEI_MEM_OTHER) - 1) /* the host's, and of devices that are known */

enum tei_mem_kind tei_mem_kind_of(const char *location);
/* "cuda"; of the host "cpu". */
const char *tei_mem_word(enum tei_mem_kind kind);

struct tei_buffer {
    uint64_t addr, length;
    /* place in the descriptor's "buffers" array, for transports with keys per buffer */
    uint32_t index;
    uint8_t access; /* te_access; TE_REMOTE_RW when the descriptor does not say */
    uint8_t kind;   /* enum tei_mem_kind */
    uint8_t by;     /* TEI_BY_: what reaches it, where the segment has several protocols */
};

/* OTHERS: cxl, hip, maca and musa, by none of which a segment of several protocols is reached. */
enum { TEI_BY_TCP = 1 << 0, TEI_BY_RDMA = 1 << 1, TEI_BY_OTHERS = 1 << 2 };
/* Those that an engine of ours tells beside each other. */
enum { TEI_PROTOCOLS_TOLD = 2 };
extern const char *const tei_protocols_told[TEI_PROTOCOLS_TOLD];

/*
 * A descriptor as read: immutable once it is whole, shared by reference count. `root` is its JSON for
 * the keys that transports parse in attach(), with nothing in "buffers" and "te"."rights": these may be
 * of any number. What else a protocol but tcp has to say of a buffer is kept as text:
 * tei_segment_buffer().
 */
struct tei_segment {
    _Atomic unsigned refs;
    char *name, *protocol;      /* of several protocols "tcp,rdma": tei_segment_speaks() */
    uint64_t incarnation;       /* random number of that engine's life; 0: not one of ours */
    uint64_t version;           /* grows with every change within one life; 0: not one of ours */
    struct tei_buffer *buffers; /* ascending by addr, none overlapping */
    size_t n_buffers;
    size_t n_listed; /* in "buffers", those included that are none of these */
    unsigned kinds;  /* of them all, in bits: TEI_MEM_BIT() */
    bool files;      /* buffers are files, one after another from addr 0 on */
    bool by_path;    /* of files: by tei_segment_of_file(), so no record says which file it is */
    bool several;    /* protocols: each buffer says by which it is reached */
    bool offsets;    /* buffers that are offsets into a device were left out: they have no addr */
    json_t *root;
    char *text; /* of what "buffers" lists; NULL where only addr, length and name are of use */
    size_t text_len;
    uint32_t *spots;           /* where in it each one begins */
    struct tei_ticket *ticket; /* that its engine has given us (TE_AUTH=mtls), or NULL */
};

/* What reading a descriptor may take. */
struct tei_segment_limits {
    size_t max_bytes, max_buffers; /* named as TE_DESCRIPTOR_MAX_BYTES and _BUFFERS */
    int64_t deadline_ns;           /* TEI_NEVER */
};

/*
 * Reads a descriptor (docs/protocol.md, "Segment descriptor"). "name" or the older "server_name".
 * Unknown keys are ignored. TE_ERR_JSON says which key is wrong: bytes that are no JSON object,
 * nesting deeper than the reader allows, a key of the wrong type, an empty buffer name, address 0,
 * length 0, a range that wraps, buffers that overlap. "null" is TE_ERR_METADATA: the peer has none
 * yet. TE_ERR_TOO_LARGE: more than `limits` allows, or keys other than lists of buffers and rights of
 * which a tree would take more than twice their text and 8 MiB. TE_ERR_TIMEOUT: the deadline passed.
 */
int tei_segment_decode(const char *text, size_t len, const struct tei_segment_limits *limits,
                       struct tei_segment **out);
/* For text that the caller has bounded. */
extern const struct tei_segment_limits tei_segment_unlimited;

/*
 * By which library of an NPU's maker, and by which NPU, an engine of another make moves this segment's data, as
 * text; false if it says of none.
 */
bool tei_segment_rank(const struct tei_segment *s, char *out, size_t n);
/* Whether that is its protocol, or one of them. */
bool tei_segment_speaks(const struct tei_segment *s, const char *protocol);
/* Of several protocols: whether all of the range is reached by one, a bit of TEI_BY_. O(log n) a piece. */
bool tei_segment_by(const struct tei_segment *s, uint64_t addr, uint64_t length, uint8_t by);

/*
 * The keys of the buffer of that index; NULL when memory is out, they are not kept, or a number in them
 * is too large for a double.
 */
json_t *tei_segment_buffer(const struct tei_segment *s, size_t index);

/*
 * A segment that is one file, whose path the caller tells: its buffer has one entry "*" in
 * local_path_map.
 */
int tei_segment_of_file(const char *name, const char *path, uint64_t length,
                        struct tei_segment **out);

struct tei_segment *tei_segment_get(struct tei_segment *s); /* one more reference; returns s */
void tei_segment_put(struct tei_segment *s);                /* NULL is accepted */

/*
 * How much of [addr, addr + length) the first buffer touching it covers: its index in *at and the
 * bytes within that buffer in *part (at most length). false if no buffer contains addr. length 0
 * counts as 1 byte for the lookup. O(log n).
 */
bool tei_segment_cover(const struct tei_segment *s, uint64_t addr, uint64_t length, size_t *at,
                       uint64_t *part);

static inline bool tei_buffer_holds(const struct tei_buffer *b, uint64_t addr, uint64_t length)
{
    return addr >= b->addr && length <= b->length && addr - b->addr <= b->length - length;
}
/* The buffer that holds the whole range; NULL if none does. O(log n). */
const struct tei_buffer *tei_segment_find(const struct tei_segment *s, uint64_t addr,
                                          uint64_t length);

/*
 * TE_ERR_OK if adjacent buffers cover the whole range and allow `access`; TE_ERR_STALE if a byte is
 * missing, else TE_ERR_ACCESS if a right is. Not logged, and sets no text: a descriptor fetched
 * again may say otherwise.
 */
int tei_segment_allows(const struct tei_segment *s, uint64_t addr, uint64_t length,
                       unsigned access);

/* One region of our own, as published. */
struct tei_published {
    uint64_t addr, length; /* that end at 2^63 - 1 at most */
    unsigned access;
    const char *location;
    const void *region; /* for `fill` */
};

/* What a descriptor is written from. */
struct tei_encode {
    const char *name; /* this engine's segment */
    uint64_t incarnation, version;
    const struct tei_published *buffers; /* ascending by addr; those with access 0 are left out */
    size_t n_buffers;
    /* protocol and transport keys, copied into the result; borrowed */
    json_t *base;
    /*
     * Each buffer is written once for each of these, with that as its "protocol"; 0: once, without.
     * These of all buffers are in "protocol" of `base`.
     */
    const char *const *protocols;
    size_t n_protocols;
    /*
     * Adds the transport's keys to one buffer's object (which has addr, length, name) of that protocol,
     * NULL where it has none; may be NULL.
     */
    int (*fill)(void *arg, const char *protocol, const struct tei_published *b, json_t *object);
    void *arg;
};

/*
 * A descriptor written once, for any number of pages of any cut: each costs what it copies. Immutable
 * and counted.
 */
struct tei_segment_text;
int tei_segment_text_new(const struct tei_encode *e, struct tei_segment_text **out);
struct tei_segment_text *tei_segment_text_get(struct tei_segment_text *t); /* returns t */
void tei_segment_text_put(struct tei_segment_text *t);                     /* NULL is accepted */
uint64_t tei_segment_text_version(const struct tei_segment_text *t);
/*
 * As compact JSON with sorted keys, without newline, malloc'ed; its length in *len. A page begins with
 * buffer `from`, stops before the text would exceed `max_bytes`, and holds at least one buffer, else
 * TE_ERR_TOO_LARGE. max_bytes 0: everything, and no page key.
 */
int tei_segment_text_page(const struct tei_segment_text *t, size_t from, size_t max_bytes,
                          char **text, size_t *len);

/*
 * Reading pages: what page a decoded descriptor is. total == 0: not paged, all is there.
 */
struct tei_page {
    size_t from, count, total;
};
int tei_segment_page(const struct tei_segment *s, struct tei_page *out);

/*
 * Adds to `s`, which nobody else has yet, the page that follows on what it has. TE_ERR_STALE if it is
 * of another version, or does not follow. After the last page comes tei_segment_complete(): then `s` is
 * whole, and no page. An error leaves `s` good for nothing but tei_segment_put().
 */
int tei_segment_append(struct tei_segment *s, const struct tei_segment *page);
int tei_segment_complete(struct tei_segment *s);

/* The body that asks for a page, malloc'ed: {"te":{"page":{"from":F,"max":M}}}; and its reader. */
char *tei_page_request_encode(size_t from, size_t max_bytes);
bool tei_page_request_decode(const char *text, size_t len, size_t *from, size_t *max_bytes);

/* ------------------------------------------------------------------------------------- topology */

struct tei_topology_row {
    char *location; /* "cpu:0" */
    char **preferred, **available;
    size_t n_preferred, n_available;
};

struct tei_topology {
    struct tei_topology_row *rows;
    size_t n_rows;
};

/*
 * {"cpu:0":[["a"],["b"]],...}: to each location the names of preferred devices and of the other ones
 * that may be used. A location with one array has no other ones. Anything else is TE_ERR_JSON, and
 * so is an empty name, one that comes twice in a row, or more than 256 of them in an array. An empty
 * object is an empty topology.
 */
int tei_topology_decode(const char *text, size_t len, struct tei_topology *out);
/* The same of JSON that has been read already, such as "priority_matrix" of a descriptor. */
int tei_topology_read(const json_t *root, struct tei_topology *out);
/* NULL when memory is out. */
json_t *tei_topology_json(const struct tei_topology *t);
void tei_topology_fini(struct tei_topology *t);

/* Appends a row; names are copied. TE_ERR_MEMORY, unlogged, leaves `t` as it was. */
int tei_topology_add(struct tei_topology *t, const char *location, const char *const *preferred,
                     size_t n_preferred, const char *const *available, size_t n_available);

/*
 * What "use these devices" means without discovery: "cpu:N" for each of `nodes`, "cuda:0" and
 * "hip:0", all of which prefer all of `devices` ("a,b"; blanks around names do not count).
 * TE_ERR_INVALID when it names none, or one twice.
 */
int tei_topology_from_devices(const char *devices, const int *nodes, size_t n_nodes,
                              struct tei_topology *out);

/*
 * Every device of the matrix once, in the order in which they are met row by row, preferred before
 * available: *n names of `t`, borrowed from it, in a malloc'ed array. TE_ERR_MEMORY.
 */
int tei_topology_devices(const struct tei_topology *t, const char ***out, size_t *n);

/* --------------------------------------------------------------------------------------- slices */

/*
 * Length of the next piece of a transfer of which `left` bytes remain: `slice`, or everything left
 * when that is no more than slice + slice / ratio, so that no tiny tail stands alone. ratio 0 never
 * merges.
 */
uint64_t tei_slice_len(uint64_t left, uint64_t slice, uint64_t ratio);

#endif
