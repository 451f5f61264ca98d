/* SPDX-License-Identifier: Apache-2.0 */
/* Which transport carries a request. */

#include "core/core.h"
#include "core/route.h"
#include "test.h"

#include <string.h>

static unsigned score_of(struct tei_transport *t, const struct tei_attach *a, const te_request *r)
{
    (void)a;
    (void)r;
    return t->index ? 80 : 50;
}

/* The first one has an earlier WRITE of bytes 100 to 199. */
static bool first_holds(struct tei_transport *t, const struct tei_attach *a, const te_request *r)
{
    (void)a;
    return t->index == 0 && r->target_offset < 200 && r->target_offset + r->length > 100;
}

static struct tei_transport transports[2];

static void make_view(struct view *v)
{
    memset(v, 0, sizeof(*v));
    for (size_t i = 0; i < 2; i++) {
        struct tei_transport_ops ops = {
            .target_kinds = TEI_MEM_ANY, .score = score_of, .holds = first_holds};

        transports[i] = (struct tei_transport){.ops = ops, .index = i};
        v->via[v->n_via++].transport = &transports[i];
    }
}

static void expect(struct view *v, int opcode, uint64_t at, uint64_t length, size_t index,
                   bool last)
{
    te_request r = {.opcode = opcode, .target_offset = at, .length = length};
    bool lasts;

    assert_int_equal(tei_route(v, &r, &lasts)->transport->index, index);
    assert_int_equal(lasts, last);
    assert_int_equal(!tei_route_holder(v, &r), last);
}

TEST(the_best_carries_it)
{
    struct view v;

    make_view(&v);
    expect(&v, TE_WRITE, 0, 100, 1, true);
    expect(&v, TE_WRITE, 200, 8, 1, true);
    expect(&v, TE_READ, 100, 100, 1, true);
}

/* Bytes of the earlier one could come after it, if another one carried it. */
TEST(a_write_follows_an_earlier_one)
{
    struct view v;

    make_view(&v);
    expect(&v, TE_WRITE, 0, 101, 0, false);
    expect(&v, TE_WRITE, 199, 1, 0, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_best_carries_it),
                                       cmocka_unit_test(a_write_follows_an_earlier_one)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
