/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment_protocols.c - a descriptor of several protocols: its "protocol" is an array, and each buffer
 * says of which it is, so that one range stands in "buffers" once for each.
 *
 * The buffers of different protocols need not have the same bounds. They are cut at all of these, and
 * each piece knows the protocols that reach it.
 *
 * Of model/ and the core this file alone spells names of protocols.
 */
#include "model/segment_read.h"

#include "base/os.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t bit;
} protocols[] = {
    {"cxl", TEI_BY_OTHERS},  {"hip", TEI_BY_OTHERS}, {"maca", TEI_BY_OTHERS},
    {"musa", TEI_BY_OTHERS}, {"rdma", TEI_BY_RDMA},  {"tcp", TEI_BY_TCP},
};

const char *const tei_protocols_told[TEI_PROTOCOLS_TOLD] = {"tcp", "rdma"};
const char tei_protocol_of_files[] = "nvmeof";
const char tei_protocol_keyless[] = "tcp";

static size_t find_protocol(const char *name)
{
    size_t i = 0;

    while (i < TEI_ARRAY_LEN(protocols) && strcmp(name, protocols[i].name) != 0)
        i++;
    return i;
}

static int check_name(const json_t *j, size_t index, unsigned *seen)
{
    const char *name = json_is_string(j) ? json_string_value(j) : "";
    size_t i = find_protocol(name);

    if (i == TEI_ARRAY_LEN(protocols))
        return FAIL_KEY("protocol[%zu] is '%.64s', must be cxl, hip, maca, musa, rdma or tcp",
                        index, name);
    if (*seen & 1u << i)
        return FAIL_KEY("protocol[%zu] is '%s' once more", index, name);
    *seen |= 1u << i;
    return 0;
}

/* "tcp,rdma" */
static int join(struct tei_segment *s, const json_t *list)
{
    size_t n = json_array_size(list);

    s->protocol = calloc(n, sizeof "musa,");
    if (!s->protocol)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a segment's %s", "protocol");
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            strcat(s->protocol, ",");
        strcat(s->protocol, json_string_value(json_array_get(list, i)));
    }
    return 0;
}

int tei_segment_read_protocols(struct tei_segment *s, const json_t *list)
{
    unsigned seen = 0;
    const json_t *j;
    size_t i;

    if (json_array_size(list) < 2)
        return FAIL_KEY("key 'protocol' is an array of %zu, must have two or more",
                        json_array_size(list));
    json_array_foreach(list, i, j) {
        int rc = check_name(j, i, &seen);

        if (rc)
            return rc;
    }
    s->several = true;
    return join(s, list);
}

bool tei_segment_speaks(const struct tei_segment *s, const char *name)
{
    const char *at = s->protocol;
    size_t n = strlen(name);

    if (!s->several)
        return at && strcmp(at, name) == 0;
    if (find_protocol(name) == TEI_ARRAY_LEN(protocols))
        return false; /* "tcp,rdma" is none */
    for (; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || !at[n]))
            return true;
    }
    return false;
}

int tei_segment_protocol_of(const struct tei_segment *s, const struct tei_json_value *v,
                            size_t index, uint8_t *by)
{
    char name[8] = "";

    if (v->kind != TEI_JSON_STRING)
        return FAIL_KEY("buffers[%zu]: 'protocol' is %s, must be a string", index,
                        tei_json_kind_name(v->kind));
    if (!tei_json_copy(v, name, sizeof name) || !tei_segment_speaks(s, name))
        return FAIL_KEY("buffers[%zu]: 'protocol' is '%.*s', which is none of the segment's (%s)",
                        index, (int)tei_min(v->len, 64), v->text, s->protocol);
    *by = protocols[find_protocol(name)].bit;
    return 0;
}

bool tei_segment_by(const struct tei_segment *s, uint64_t addr, uint64_t length, uint8_t by)
{
    uint64_t part;
    size_t at;

    for (; length; addr += part, length -= part)
        if (!tei_segment_cover(s, addr, length, &at, &part) || !(s->buffers[at].by & by))
            return false;
    return true;
}

/* ------------------------------------------------------------------------------------------ pieces */

#define N_BITS 3 /* of tei_buffer.by */

struct sweep {
    const struct tei_buffer *in, *end;
    const struct tei_buffer *open[N_BITS]; /* the one of that protocol that is here */
    struct tei_buffer *out;
    size_t n_out;
    uint64_t at;
};

static void close_ended(struct sweep *w)
{
    for (size_t k = 0; k < N_BITS; k++)
        if (w->open[k] && w->open[k]->addr + w->open[k]->length <= w->at)
            w->open[k] = NULL;
}

static void open_one(struct sweep *w)
{
    const struct tei_buffer *b = w->in++;

    for (size_t k = 0; k < N_BITS; k++) {
        const struct tei_buffer *other = w->open[k];

        if (b->by & 1u << k && (!other || b->addr + b->length > other->addr + other->length))
            w->open[k] = b;
    }
}

static uint64_t next_bound(const struct sweep *w)
{
    uint64_t next = w->in < w->end ? w->in->addr : UINT64_MAX;

    for (size_t k = 0; k < N_BITS; k++)
        if (w->open[k] && w->open[k]->addr + w->open[k]->length < next)
            next = w->open[k]->addr + w->open[k]->length;
    return next;
}

/* The piece up to `next`. Its keys are those of rdma, which alone has some that are read here. */
static void emit(struct sweep *w, uint64_t next)
{
    struct tei_buffer piece = {.addr = w->at, .length = next - w->at, .access = TE_REMOTE_RW};

    for (size_t k = 0; k < N_BITS; k++) {
        const struct tei_buffer *b = w->open[k];

        if (!b)
            continue;
        if (!piece.by || 1u << k == TEI_BY_RDMA) {
            piece.index = b->index;
            piece.kind = b->kind;
        }
        piece.access &= b->access;
        piece.by |= (uint8_t)(1u << k);
    }
    if (piece.by)
        w->out[w->n_out++] = piece;
}

static void sweep(struct sweep *w)
{
    w->at = w->in < w->end ? w->in->addr : UINT64_MAX;
    while (w->at != UINT64_MAX) {
        uint64_t next;

        close_ended(w);
        while (w->in < w->end && w->in->addr == w->at)
            open_one(w);
        next = next_bound(w);
        emit(w, next);
        w->at = next;
    }
}

/*
 * As of one protocol (tei_segment_order_buffers()): of two of tcp, or of rdma, that overlap the one that is
 * listed later counts. Those of other protocols may overlap, as they are of several.
 */
static int drop_dead(struct tei_segment *s, bool is_ours, uint8_t by)
{
    struct tei_buffer *last = NULL;

    for (size_t i = 0; i < s->n_buffers; i++) {
        struct tei_buffer *b = &s->buffers[i];
        bool overlap = last && b->by & by && b->addr - last->addr < last->length;

        if (overlap && is_ours)
            return FAIL_KEY("buffers[%" PRIu32 "] and buffers[%" PRIu32
                            "] of one protocol overlap at %" PRIu64,
                            last->index, b->index, b->addr);
        if (overlap && b->index < last->index)
            b->by &= (uint8_t)~by;
        else if (overlap)
            last->by &= (uint8_t)~by;
        if (b->by & by)
            last = b;
    }
    return 0;
}

static void leave_out_dropped(struct tei_segment *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n_buffers; i++)
        if (s->buffers[i].by)
            s->buffers[n++] = s->buffers[i];
    s->n_buffers = n;
}

int tei_segment_cut_buffers(struct tei_segment *s, bool is_ours)
{
    struct sweep w;
    int rc = drop_dead(s, is_ours, TEI_BY_TCP);

    if (!rc)
        rc = drop_dead(s, is_ours, TEI_BY_RDMA);
    if (rc)
        return rc;
    leave_out_dropped(s);
    if (!s->n_buffers)
        return 0;
    w = (struct sweep){.in = s->buffers, .end = s->buffers + s->n_buffers};
    w.out = calloc(2 * s->n_buffers, sizeof *w.out); /* one for each bound at most */
    if (!w.out)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a segment of %zu buffers", s->n_buffers);
    sweep(&w);
    free(s->buffers);
    s->buffers = w.out;
    s->n_buffers = w.n_out;
    return 0;
}
