/* SPDX-License-Identifier: Apache-2.0 */
#include "common_memory.h"

#include <stdio.h>
#include <string.h>

#include "common_units.h"

#define FILL       0xCC
#define FILL_BYTES (4u << 20)   /* of a GPU's memory at a time */
#define SLOW_BYTES (256u << 20) /* what takes long enough to say so */

/* ---- Mirrors --------------------------------------------------------------------------------- */

static bool mirror_fail(struct mirror *m, const char *what, const char *why)
{
    snprintf(m->error, sizeof(m->error), "%s: %s", what, why);
    return false;
}

bool mirror_open(struct mirror *m, const struct setup *s, void *part, uint64_t length)
{
    void *copy = part;

    *m = (struct mirror){.setup = s, .part = part, .length = length};
    if (s->vram && te_alloc(s->engine, length, NULL, &copy))
        return mirror_fail(m, "no host memory beside that of the GPU", te_errmsg());
    m->seen = copy;
    if (s->vram && te_register(s->engine, copy, length, NULL, TE_LOCAL_ONLY))
        return mirror_fail(m, "no host memory beside that of the GPU", te_errmsg());
    return true;
}

void mirror_close(struct mirror *m)
{
    if (m->seen && m->seen != m->part) {
        te_unregister(m->setup->engine, m->seen);
        te_free(m->setup->engine, m->seen);
    }
    m->seen = m->part = NULL;
}

/* Sees a batch with one request of this engine to itself through. */
static bool finish(struct mirror *m, te_batch b)
{
    te_engine *e = m->setup->engine;
    char text[400] = "";
    struct te_status st = {.state = TE_FAILED};

    if (te_wait(e, b, -1) || te_status(e, b, 0, &st))
        return mirror_fail(m, "a copy between GPU and host", te_errmsg());
    if (st.state == TE_COMPLETED)
        return true;
    te_status_msg(e, b, 0, text, sizeof(text));
    return mirror_fail(m, "a copy between GPU and host", text[0] ? text : te_strerror(st.error));
}

static bool copy(struct mirror *m, enum te_opcode opcode, uint64_t at, uint64_t n)
{
    te_engine *e = m->setup->engine;
    te_request r = {.opcode = (int)opcode,
                    .source = m->seen + at,
                    .target = TE_LOCAL_SEGMENT,
                    .target_offset = (uint64_t)(uintptr_t)(m->part + at),
                    .length = n};
    te_batch b;

    if (m->seen == m->part)
        return true;
    if (te_batch_alloc(e, 1, &b))
        return mirror_fail(m, "a copy between GPU and host", te_errmsg());
    bool ok = te_submit(e, b, &r, 1, NULL)
                  ? mirror_fail(m, "a copy between GPU and host", te_errmsg())
                  : finish(m, b);
    te_batch_free(e, b);
    return ok;
}

bool mirror_push(struct mirror *m, uint64_t at, uint64_t n)
{
    return copy(m, TE_WRITE, at, n);
}

bool mirror_pull(struct mirror *m, uint64_t at, uint64_t n)
{
    return copy(m, TE_READ, at, n);
}

/* ---- Buffers --------------------------------------------------------------------------------- */

/* A GPU's memory is filled by way of a mirror that walks through it. */
static bool fill(struct setup *s, void *addr)
{
    struct mirror m;
    uint64_t step = s->vram && s->length > FILL_BYTES ? FILL_BYTES : s->length;
    bool ok = mirror_open(&m, s, addr, step);
    char size[UNITS_SIZE_MAX];

    if (s->length >= SLOW_BYTES)
        fprintf(stderr, "%s: filling %s of memory (--init_mem)\n", s->line->tool,
                units_size(s->length, size));
    if (ok)
        memset(m.seen, FILL, step);
    for (uint64_t at = 0; ok && at < s->length; at += step) {
        m.part = (uint8_t *)addr + at;
        ok = mirror_push(&m, 0, step < s->length - at ? step : s->length - at);
    }
    if (!ok)
        setup_fail(s, "cannot fill a buffer: %s", m.error);
    mirror_close(&m);
    return ok;
}

static bool no_buffer(struct setup *s, const char *why)
{
    char size[UNITS_SIZE_MAX];

    return setup_fail(s,
                      "no buffer of %s: %s; ask for less by --buffer_size, or by --threads, "
                      "--batch_size and --block_size, which raise it",
                      units_size(s->length, size), why);
}

static bool take_nodes(struct setup *s)
{
    int nodes[SETUP_BUFFERS_MAX];
    size_t n = setup_nodes(nodes);

    for (size_t i = 0; i < n; i++) {
        struct setup_buffer b = {.node = nodes[i], .location = "*"};
        if (nodes[i] >= 0)
            snprintf(b.location, sizeof(b.location), "cpu:%d", nodes[i]);
        if (te_alloc(s->engine, s->length, b.location, &b.addr))
            return no_buffer(s, te_errmsg());
        s->buffers[s->count++] = b;
    }
    return true;
}

/* Memory of one GPU; the caller says what an error means. */
static int alloc_gpu(const struct setup *s, const char *kind, int64_t gpu, struct setup_buffer *b)
{
    *b = (struct setup_buffer){.node = -1};
    snprintf(b->location, sizeof(b->location), "%s:%lld", kind, (long long)gpu);
    setup_hush(s, true);
    int rc = te_alloc(s->engine, s->length, b->location, &b->addr);
    setup_hush(s, false);
    return rc;
}

/*
 * Memory of the first GPU, of the kind that --protocol is for, else of the first kind that is here. Its
 * name, or NULL after a message.
 */
static const char *alloc_first(struct setup *s, int64_t gpu, struct setup_buffer *b)
{
    static const char *const kinds[] = {"cuda", "hip", "npu", "musa", "maca", "supa"};
    enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };
    const char *own = setup_gpu_kind(s->flags->protocol);
    char why[400] = "";

    for (size_t i = 0, used = 0; i < KINDS; i++) {
        const char *kind = own ? own : kinds[i];
        int rc = alloc_gpu(s, kind, gpu, b);

        if (!rc)
            return kind;
        if (own || rc != TE_ERR_UNSUPPORTED) {
            setup_fail(s, "--use_vram: no buffer of %llu bytes of %s:%lld: %s",
                       (unsigned long long)s->length, kind, (long long)gpu, te_errmsg());
            return NULL;
        }
        if (used < sizeof(why))
            used += (size_t)snprintf(why + used, sizeof(why) - used, "%s%s", used ? "; " : "",
                                     te_errmsg());
    }
    setup_fail(s, "--use_vram: no GPU: %s", why);
    return NULL;
}

/* --gpu_id=-1 takes one after the other until there is none of that number. */
static bool take_gpus(struct setup *s)
{
    int64_t gpu = s->flags->gpu_id < 0 ? 0 : s->flags->gpu_id;
    struct setup_buffer b;
    const char *kind = alloc_first(s, gpu, &b);

    if (!kind)
        return false;
    s->buffers[s->count++] = b;
    while (s->flags->gpu_id < 0 && s->count < SETUP_BUFFERS_MAX) {
        int rc = alloc_gpu(s, kind, ++gpu, &b);
        if (rc == TE_ERR_NO_DEVICE)
            break;
        if (rc)
            return no_buffer(s, te_errmsg());
        s->buffers[s->count++] = b;
    }
    return true;
}

bool memory_take(struct setup *s)
{
    return s->vram ? take_gpus(s) : take_nodes(s);
}

bool memory_offer(struct setup *s, unsigned access)
{
    for (size_t i = 0; i < s->count; i++) {
        struct setup_buffer *b = &s->buffers[i];

        if (te_register(s->engine, b->addr, s->length, b->location, access))
            return setup_fail(s, "cannot register a buffer of %llu bytes of %s: %s",
                              (unsigned long long)s->length, b->location, te_errmsg());
        b->registered = true;
        if (s->flags->init_mem && !fill(s, b->addr))
            return false;
    }
    return true;
}

void memory_close(struct setup *s)
{
    for (size_t i = 0; i < s->count; i++) {
        if (s->buffers[i].registered)
            te_unregister(s->engine, s->buffers[i].addr);
        te_free(s->engine, s->buffers[i].addr);
    }
    s->count = 0;
}
