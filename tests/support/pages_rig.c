/* SPDX-License-Identifier: Apache-2.0 */
/* pages_rig.c - requests of pages, for tests. */
#include "pages_rig.h"

#include "patience.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

te_batch pages_submit(te_engine *e, const te_pages *pages)
{
    te_batch b;

    assert_int_equal(te_batch_alloc(e, 1, &b), 0);
    if (te_submit_pages(e, b, pages, NULL))
        fail_msg("%s", te_errmsg());
    return b;
}

struct te_status pages_end(te_engine *e, te_batch b, char *msg, size_t n)
{
    struct te_status st, all;

    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    assert_int_equal(te_status(e, b, 0, &st), 0);
    assert_int_equal(te_batch_status(e, b, &all), 0);
    assert_int_equal(all.state, st.state);
    assert_int_equal(te_status_msg(e, b, 0, msg, n), 0);
    assert_int_equal(te_batch_free(e, b), 0);
    return st;
}

void pages_draw_many(const struct pages_world *w, struct pages_drawn *d, int opcode)
{
    te_pages *g = &d->pages;

    *g = (te_pages){.size = sizeof(*g),
                    .opcode = opcode,
                    .target = w->seg,
                    .length = 97,
                    .n = MANY,
                    .parts = 2,
                    .layers = 1,
                    .index_bits = 64};
    g->local = (te_page_side){
        .base = (uintptr_t)w->local, .pages = MANY, .stride = 205, .part_stride = 101};
    g->remote = (te_page_side){
        .base = w->remote_base, .pages = MANY, .stride = 99, .part_stride = (uint64_t)99 * MANY};
    for (size_t i = 0; i < MANY; i++) {
        d->local[i] = (uint64_t)i * 1237 % MANY;
        d->remote[i] = (uint64_t)i * 7 % MANY;
    }
    g->local.index = d->local;
    g->remote.index = d->remote;
}
