/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors of peers. What is accepted must keep the promises that the core builds on (sorted,
 * without overlap or wrap), and must come back the same when it is encoded again. Files, which are not
 * encoded here, run on from 0 without a gap and have the keys that their paths are found by.
 */
#include "model/model.h"

#include "segment_text.h"
#include "transport/nvmeof/nvmeof.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_buffers(const struct tei_segment *s)
{
    uint64_t end = 0;

    for (size_t i = 0; i < s->n_buffers; i++) {
        const struct tei_buffer *b = &s->buffers[i];
        uint64_t part;
        size_t at;

        assert((b->addr || s->files) && b->length && b->addr >= end &&
               b->addr <= UINT64_MAX - b->length);
        assert((b->access & ~(unsigned)TE_REMOTE_RW) == 0);
        assert(b->index < s->n_listed);
        assert(tei_segment_cover(s, b->addr + b->length - 1, 2, &at, &part) && at == i &&
               part == 1);
        assert(tei_segment_allows(s, b->addr, b->length, b->access) == 0);
        end = b->addr + b->length;
    }
}

/*
 * A path that a host takes from it is absolute, and does not climb; else it is said why. It may not be
 * opened unless it is listed, as all are below "/".
 */
static void check_path(const struct tei_segment *s, size_t i)
{
    struct nvmeof_root *root = calloc(1, sizeof *root + 2);
    struct nvmeof_roots none = {NULL}, all = {root};
    struct nvmeof_names me;
    char why[1024] = "", *path;

    tei_nvmeof_names("10.0.0.1:12345", &me);
    path = tei_nvmeof_path(s, i, &me, why, sizeof why);
    assert(path ? path[0] == '/' && !strstr(path, "/../") : why[0] != '\0');
    if (path && root) {
        root->path[0] = '/';
        assert(tei_nvmeof_admit(&none, path, false, why, sizeof why) == TE_ERR_ACCESS);
        assert(tei_nvmeof_admit(&all, path, false, why, sizeof why) == 0);
    }
    free(root);
    free(path);
}

static void check_files(const struct tei_segment *s)
{
    uint64_t end = 0;

    assert(s->n_buffers == s->n_listed);
    for (size_t i = 0; i < s->n_buffers; i++) {
        json_t *b = tei_segment_buffer(s, i);
        const json_t *map = json_object_get(b, "local_path_map");

        assert(s->buffers[i].addr == end && s->buffers[i].index == i);
        assert(!b || json_string_length(json_object_get(b, "file_path")));
        assert(!map || json_is_object(map));
        json_decref(b);
        check_path(s, i);
        end += s->buffers[i].length;
    }
    assert(end <= INT64_MAX);
}

/* Each piece is reached by one protocol at least, which is the segment's. */
static void check_several(const struct tei_segment *s)
{
    for (size_t i = 0; i < s->n_buffers; i++) {
        const struct tei_buffer *b = &s->buffers[i];

        assert(b->by && !(b->by & ~(TEI_BY_TCP | TEI_BY_RDMA | TEI_BY_OTHERS)));
        assert(!(b->by & TEI_BY_TCP) || tei_segment_speaks(s, "tcp"));
        assert(!(b->by & TEI_BY_RDMA) || tei_segment_speaks(s, "rdma"));
        assert(tei_segment_by(s, b->addr, b->length, b->by));
    }
}

static void check_again(const struct tei_segment *s)
{
    struct tei_published *list = calloc(s->n_buffers + 1, sizeof *list);
    struct tei_encode e = {.name = s->name,
                           .incarnation = s->incarnation,
                           .version = s->version,
                           .buffers = list,
                           .base = s->root};
    struct tei_segment *t;
    char *text;
    size_t len;

    assert(list);
    for (size_t i = 0; i < s->n_buffers; i++)
        if (s->buffers[i].access)
            list[e.n_buffers++] = (struct tei_published){.addr = s->buffers[i].addr,
                                                         .length = s->buffers[i].length,
                                                         .access = s->buffers[i].access};
    assert(segment_text(&e, &text, &len) == 0);
    assert(strlen(text) == len && tei_segment_decode(text, len, &tei_segment_unlimited, &t) == 0);
    assert(strcmp(s->name, t->name) == 0 && s->incarnation == t->incarnation &&
           s->version == t->version);
    assert(t->n_buffers == e.n_buffers);
    for (size_t i = 0; i < t->n_buffers; i++)
        assert(t->buffers[i].addr == list[i].addr && t->buffers[i].access == list[i].access);
    tei_segment_put(t);
    free(text);
    free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tei_segment *s;
    struct tei_page page;
    size_t from, max;

    te_log_set_level(TE_LOG_OFF);
    tei_page_request_decode((const char *)data, size, &from, &max);
    if (tei_segment_decode((const char *)data, size, &tei_segment_unlimited, &s))
        return 0;
    assert(s->name && *s->name && s->protocol && *s->protocol);
    check_buffers(s);
    if (s->files)
        check_files(s);
    else if (s->several)
        check_several(s);
    else
        check_again(s);
    if (tei_segment_page(s, &page) == 0 && page.total && tei_segment_complete(s) == 0)
        check_buffers(s);
    tei_segment_put(s);
    return 0;
}
