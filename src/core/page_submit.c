/* SPDX-License-Identifier: Apache-2.0 */
/* page_submit.c - te_submit_pages(): what it is given is checked, copied and submitted as one task. */
#include "core/core.h"
#include "core/page_list.h"
#include "core/submit.h"

#include <assert.h>

/* In errors. */
static const char *const names[] = {"local.", "remote."};

/* One row of equal steps of a side. */
struct axis {
    uint64_t step, count;
};

/* Adds what the row spans; false if that is more than 64 bits hold. */
static bool add_axis(const struct axis *a, uint64_t *extent)
{
    uint64_t span;

    return tei_mul_ok(a->step, a->count - 1, &span) && tei_add_ok(*extent, span, extent);
}

/* From the shortest step to the longest. */
static void sort_axes(struct axis *a, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = i; k > 0 && a[k - 1].step > a[k].step; k--) {
            struct axis x = a[k];

            a[k] = a[k - 1];
            a[k - 1] = x;
        }
}

/* What a side's pool spans, from its base on, and whether two of its pieces have a byte in common. */
static int measure(const te_pages *g, const te_page_side *s, const char *name, uint64_t *extent,
                   bool *overlap)
{
    struct axis axes[] = {
        {s->part_stride, g->parts}, {s->stride, s->pages}, {s->layer_stride, g->layers}};
    bool wraps = false;
    uint64_t end;

    sort_axes(axes, TEI_ARRAY_LEN(axes));
    *extent = g->length;
    *overlap = false;
    for (size_t i = 0; i < TEI_ARRAY_LEN(axes); i++) {
        *overlap |= axes[i].count > 1 && axes[i].step < *extent;
        if (axes[i].count && !add_axis(&axes[i], extent)) {
            *extent = UINT64_MAX;
            wraps = true;
        }
    }
    if (wraps || !tei_add_ok(s->base, *extent, &end))
        return TEI_FAIL(
            TE_ERR_INVALID,
            "te_pages: the pool at %sbase wraps around the address space, with its strides "
            "and %llu pages",
            name, (unsigned long long)s->pages);
    return 0;
}

static int check_layout(const te_pages *g, uint64_t extent[2])
{
    bool overlap[2];
    int written = g->opcode == TE_READ ? 0 : 1;
    int rc = measure(g, &g->local, names[0], &extent[0], &overlap[0]);

    if (!rc)
        rc = measure(g, &g->remote, names[1], &extent[1], &overlap[1]);
    if (!rc && overlap[written])
        rc = TEI_FAIL(
            TE_ERR_INVALID,
            "te_pages: pages at %sbase, which are written to, overlap: one of the strides is "
            "less than what lies within it",
            names[written]);
    return rc;
}

static int check_counts(te_pages *g, uint64_t *total)
{
    if (g->opcode != TE_READ && g->opcode != TE_WRITE)
        return TEI_FAIL(TE_ERR_INVALID, "te_pages: opcode %d is neither TE_READ nor TE_WRITE",
                        g->opcode);
    *total = 0;
    if ((g->local.index || g->remote.index) && g->index_bits != 32 && g->index_bits != 64)
        return TEI_FAIL(TE_ERR_INVALID, "te_pages: index_bits is %u, neither 32 nor 64",
                        g->index_bits);
    if (!g->n || !g->length)
        return 0;
    g->parts = g->parts ? g->parts : 1;
    g->layers = g->layers ? g->layers : 1;
    if (!tei_mul_ok(g->n, g->parts, total) || !tei_mul_ok(*total, g->layers, total) ||
        !tei_mul_ok(*total, g->length, total))
        return TEI_FAIL(
            TE_ERR_INVALID,
            "te_pages: %zu pages of %zu parts of %llu bytes in %zu layers are more bytes "
            "than 64 bits count",
            g->n, g->parts, (unsigned long long)g->length, g->layers);
    return 0;
}

/* The copies are looked at, as the program's arrays may change meanwhile. */
static int check_numbers(const struct page_list *l, const struct page_side *s, uint64_t pages,
                         const char *name)
{
    uint64_t most = 0;
    size_t i = s->index ? 0 : (size_t)pages;

    if (!s->index)
        most = l->n - 1;
    else
        for (size_t k = 0; k < l->n; k++)
            most = tei_max(most, tei_page_list_number(l, s, k));
    if (most < pages)
        return 0;
    while (tei_page_list_number(l, s, i) < pages)
        i++;
    return TEI_FAIL(TE_ERR_INVALID, "te_pages: %sindex[%zu] is page %llu, and %spages is %llu",
                    name, i, (unsigned long long)tei_page_list_number(l, s, i), name,
                    (unsigned long long)pages);
}

/* One te_submit_pages(). */
struct order {
    const te_pages *pages;
    struct page_list *list; /* NULL: there is nothing to move */
    uint64_t total;
};

static int fail_source(struct plan *p, const struct order *o)
{
    const struct page_list *l = o->list;
    char why[256];

    return TEI_FAIL(TE_ERR_NOT_REGISTERED, "te_pages: the pool at local.base, 0x%llx + %llu, %s",
                    (unsigned long long)l->local.base, (unsigned long long)l->local.extent,
                    tei_region_why_not(&p->engine->regions, l->local.base, l->local.extent, why,
                                       sizeof(why)));
}

/* Fills in the task. On failure it may hold a view and a region. */
static int claim(struct plan *p, struct task *t, const struct order *o)
{
    const te_pages *g = o->pages;

    tei_plan_claim(p, t, NULL, NULL);
    t->req = (te_request){.opcode = g->opcode,
                          .source = o->list,
                          .target = g->target,
                          .target_offset = g->remote.base,
                          .length = o->total};
    t->view = tei_view_get(&p->engine->peers, g->target);
    if (!t->view)
        return TEI_FAIL(TE_ERR_NOT_FOUND,
                        "te_pages: segment %d is not open in this engine; te_open() gives its id",
                        (int)g->target);
    if (!o->list)
        return 0;
    o->list->task = t;
    t->paged = true;
    t->region = tei_region_hold_local(&p->engine->regions, g->local.base, o->list->local.extent);
    return t->region ? 0 : fail_source(p, o);
}

static int fill_pages(struct plan *p, struct task *tasks, size_t n, const void *arg)
{
    int rc = claim(p, tasks, arg);

    (void)n; /* 1 */
    if (!rc)
        rc = tei_plan_task(p, tasks, 0, NULL);
    if (rc)
        tei_plan_release(tasks);
    return rc;
}

/* Makes the list; none if there is nothing to move. */
static int prepare(te_pages *g, struct order *o)
{
    uint64_t extent[2];
    int rc = check_counts(g, &o->total);

    if (!rc && o->total)
        rc = check_layout(g, extent);
    if (rc || !o->total)
        return rc;
    o->list = tei_page_list_make(g, extent);
    if (!o->list)
        return TEI_FAIL(TE_ERR_MEMORY, "te_pages: no memory for the numbers of %zu pages", g->n);
    rc = check_numbers(o->list, &o->list->local, g->local.pages, names[0]);
    return rc ? rc : check_numbers(o->list, &o->list->remote, g->remote.pages, names[1]);
}

enum { PAGES_FIRST_SIZE = TEI_SIZE_UP_TO(te_pages, remote) };
static_assert(PAGES_FIRST_SIZE <= sizeof(te_pages), "te_pages may only grow");

int te_submit_pages(te_engine *e, te_batch b, const te_pages *pages, const te_submit_opts *opts)
{
    te_pages known = {.size = sizeof(known)};
    struct order o = {.pages = &known};
    int rc = tei_engine_check(e);

    if (!rc && !pages)
        rc = TEI_FAIL(TE_ERR_INVALID, "te_pages is NULL");
    if (!rc)
        rc = tei_sized_take(&known, sizeof(known), PAGES_FIRST_SIZE, pages, "te_pages");
    if (!rc)
        rc = prepare(&known, &o);
    if (!rc)
        rc = tei_submit(e, b, 1, opts, fill_pages, &o);
    if (rc && o.list)
        tei_page_list_free(o.list);
    return rc;
}
