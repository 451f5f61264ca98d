/* SPDX-License-Identifier: Apache-2.0 */
/* page_list.c - the pages of one te_submit_pages(). */
#include "core/page_list.h"
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct page_side make_side(const te_page_side *s, uint64_t extent, const char *index)
{
    return (struct page_side){.base = s->base,
                              .stride = s->stride,
                              .part_stride = s->part_stride,
                              .layer_stride = s->layer_stride,
                              .extent = extent,
                              .index = index};
}

/* Parts that adjoin on both sides are one. */
static void join_parts(struct page_list *l)
{
    if (l->local.part_stride != l->length || l->remote.part_stride != l->length)
        return;
    l->length *= l->parts;
    l->parts = 1;
}

struct page_list *tei_page_list_make(const te_pages *g, const uint64_t extent[2])
{
    size_t sides = (size_t)(g->local.index != NULL) + (size_t)(g->remote.index != NULL), bytes, all;
    struct page_list *l;
    char *at;

    if (!tei_mul_ok(g->n, sides ? g->index_bits / 8 : 0, &bytes) ||
        !tei_mul_ok(bytes, sides, &all) || !tei_add_ok(all, sizeof(*l), &all))
        return NULL;
    l = malloc(all);
    if (!l)
        return NULL;
    *l = (struct page_list){.n = g->n,
                            .parts = g->parts,
                            .layers = g->layers,
                            .length = g->length,
                            .wide = g->index_bits == 64};
    at = l->copies;
    l->local = make_side(&g->local, extent[0], g->local.index ? at : NULL);
    if (g->local.index) {
        memcpy(at, g->local.index, bytes);
        at += bytes;
    }
    if (g->remote.index)
        memcpy(at, g->remote.index, bytes);
    l->remote = make_side(&g->remote, extent[1], g->remote.index ? at : NULL);
    join_parts(l);
    pthread_mutex_init(&l->lock, NULL);
    return l;
}

void tei_page_list_free(struct page_list *l)
{
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* ---------------------------------------------------------------------------------------- cursor */

uint64_t tei_page_list_number(const struct page_list *l, const struct page_side *s, size_t i)
{
    uint64_t wide;
    uint32_t narrow;

    if (!s->index)
        return i;
    if (l->wide) {
        memcpy(&wide, s->index + i * sizeof(wide), sizeof(wide));
        return wide;
    }
    memcpy(&narrow, s->index + i * sizeof(narrow), sizeof(narrow));
    return narrow;
}

static uint64_t place_of(const struct page_list *l, const struct page_side *s)
{
    return s->base + tei_page_list_number(l, s, l->page) * s->stride + l->part * s->part_stride +
           l->layer * s->layer_stride;
}

static void step(struct page_list *l)
{
    if (++l->part < l->parts)
        return;
    l->part = 0;
    if (++l->page < l->n)
        return;
    l->page = 0;
    l->layer++;
}

void tei_page_list_rewind(struct page_list *l)
{
    l->page = l->part = l->layer = 0;
    l->rest.length = 0;
}

static bool adjoins(const struct page_list *l, const struct page_run *r)
{
    return place_of(l, &l->local) == r->local + r->length &&
           place_of(l, &l->remote) == r->remote + r->length;
}

struct page_run tei_page_list_take(struct page_list *l, size_t *steps)
{
    struct page_run r = l->rest;

    if (r.length) {
        l->rest.length = 0;
        return r;
    }
    r = (struct page_run){place_of(l, &l->local), place_of(l, &l->remote), l->length, l->page};
    step(l);
    for (--*steps; *steps && !tei_page_list_at_end(l) && adjoins(l, &r); --*steps) {
        r.length += l->length;
        step(l);
    }
    return r;
}

void tei_page_list_keep(struct page_list *l, const struct page_run *r, uint64_t done)
{
    l->rest = (struct page_run){r->local + done, r->remote + done, r->length - done, r->page};
}

const char *tei_page_list_where(const struct task *t, char *buf, size_t n)
{
    const struct page_list *l = tei_page_list_of(t);

    snprintf(buf, n,
             "page %llu of the target or one that adjoins, entry %zu of its list, at 0x%llx",
             (unsigned long long)tei_page_list_number(l, &l->remote, l->bad.page), l->bad.page,
             (unsigned long long)l->bad.remote);
    return buf;
}
