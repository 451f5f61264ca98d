/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page_list.h - the pages of one te_submit_pages(): copies of their numbers, and a cursor.
 *
 * The task of such a request has `paged` set, and the list is its req.source.
 */
#ifndef TEI_PAGE_LIST_H
#define TEI_PAGE_LIST_H

#include "base/jobs.h"
#include "core/batch.h"

enum {
    TEI_PAGES_OUT = 2048,   /* pieces of work of one list that are under way at most */
    TEI_PAGES_STEPS = 65536 /* pages, or parts of some, that are looked at for one window at most */
};

struct page_side {
    uint64_t base, stride, part_stride, layer_stride;
    uint64_t extent;   /* from `base` to the end of the pool */
    const char *index; /* NULL: in order */
};

/* A row of bytes on both sides. */
struct page_run {
    uint64_t local, remote, length;
    size_t page; /* the first one */
};

struct page_list {
    struct task *task;
    size_t page, part, layer; /* of the next piece, behind `rest` */
    struct page_run rest;     /* of the last one; of length 0: nothing */
    size_t n, parts, layers;
    uint64_t length;
    bool wide; /* page numbers of 64 bits */
    struct page_side local, remote;
    struct page_run bad; /* what was cut last, or could not be */
    /* page_feed.c's */
    struct page_list *next; /* in a plan */
    size_t cut;             /* pieces of the last window; who feeds has it */
    struct tei_job job;
    pthread_mutex_t lock; /* of these */
    size_t out;           /* pieces of work */
    bool feeding, ended;
    char copies[];
};

static inline struct page_list *tei_page_list_of(const struct task *t)
{
    return t->req.source;
}

/* Copies what was checked; the last two members of a side are set here. NULL when memory is out. */
struct page_list *tei_page_list_make(const te_pages *g, const uint64_t extent[2]);
void tei_page_list_free(struct page_list *l);
uint64_t tei_page_list_number(const struct page_list *l, const struct page_side *s, size_t i);

/* ---- the cursor */
void tei_page_list_rewind(struct page_list *l);
static inline bool tei_page_list_at_end(const struct page_list *l)
{
    return l->layer == l->layers && !l->rest.length;
}
/* Takes the next piece, and those behind it that adjoin on both sides: *steps of them at most, 1 or more. */
struct page_run tei_page_list_take(struct page_list *l, size_t *steps);
/* The run that was taken last, of which so many bytes were cut, goes on behind those. */
void tei_page_list_keep(struct page_list *l, const struct page_run *r, uint64_t done);
/* Says which page could not be cut; returns buf. */
const char *tei_page_list_where(const struct task *t, char *buf, size_t n);

#endif
