/* SPDX-License-Identifier: Apache-2.0 */
/* Which transport carries a request. */

#include "core/core.h"
#include "core/peer.h"
#include "core/route.h"
#include "test.h"

#include <string.h>

/* Where bytes 1000 and above are, the second one is a last resort. */
static unsigned score_of(struct tei_transport *t, const struct tei_attach *a, const te_request *r)
{
    (void)a;
    if (t->index && r->target_offset >= 1000)
        return TEI_SCORE_LAST;
    return t->index ? 80 : 50;
}

/* The first one has an earlier WRITE of bytes 100 to 199. */
static bool first_holds(struct tei_transport *t, const struct tei_attach *a, const te_request *r)
{
    (void)a;
    return t->index == 0 && r->target_offset < 200 && r->target_offset + r->length > 100;
}

static struct tei_transport transports[2];
static struct rules segment_rules;
static struct peer peer;

static void make_view(struct view *v)
{
    memset(v, 0, sizeof(*v));
    peer.rules = NULL;
    v->peer = &peer;
    for (size_t i = 0; i < 2; i++) {
        struct tei_transport_ops ops = {
            .target_kinds = TEI_MEM_ANY, .score = score_of, .holds = first_holds};

        transports[i] = (struct tei_transport){.ops = ops, .index = i, .place = i + 4};
        v->via[v->n_via++].transport = &transports[i];
    }
}

static void expect(struct view *v, int opcode, uint64_t at, uint64_t length, size_t index,
                   bool last)
{
    te_request r = {.opcode = opcode, .target_offset = at, .length = length};
    struct route route = tei_route(v, &r, NULL);

    assert_int_equal(route.via->transport->index, index);
    assert_int_equal(route.lasts, last);
    assert_int_equal(route.held, !last);
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

static struct rules forbidding(size_t index)
{
    return (struct rules){.forbidden = (uint16_t)(1u << (index + 4))};
}

static struct rules preferring(size_t index)
{
    struct rules x = {.prefers = true};

    x.rank[index + 4] = 1;
    return x;
}

/* -1: none. */
static int carrier(struct view *v, const te_request *r, const struct rules *own)
{
    const struct via *via = tei_route(v, r, own).via;

    return via ? (int)via->transport->index : -1;
}

TEST(what_is_forbidden_carries_nothing)
{
    const te_request r = {.opcode = TE_READ, .length = 8};
    const struct rules no_0 = forbidding(0), no_1 = forbidding(1), nothing = {0};
    struct view v;

    make_view(&v);
    assert_int_equal(carrier(&v, &r, &no_0), 1);
    assert_int_equal(carrier(&v, &r, &no_1), 0);
    segment_rules = no_1;
    peer.rules = &segment_rules;
    assert_int_equal(carrier(&v, &r, NULL), 0);
    assert_int_equal(carrier(&v, &r, &nothing), 0);
    assert_int_equal(carrier(&v, &r, &no_0), -1);
    assert_false(tei_route(&v, &r, &no_0).held);
}

/* The request's own preference counts, and the segment's where it has none; neither allows what the other forbids. */
TEST(what_is_preferred_carries_it)
{
    const te_request r = {.opcode = TE_READ, .length = 8};
    const struct rules first = preferring(0), second = preferring(1), no_0 = forbidding(0);
    struct view v;

    make_view(&v);
    assert_int_equal(carrier(&v, &r, &first), 0);
    segment_rules = first;
    peer.rules = &segment_rules;
    assert_int_equal(carrier(&v, &r, NULL), 0);
    assert_int_equal(carrier(&v, &r, &second), 1);
    assert_int_equal(carrier(&v, &r, &no_0), 1);
    segment_rules = no_0;
    assert_int_equal(carrier(&v, &r, &first), 1);
}

/* Whatever else can carry it is better, unless nothing else is allowed. */
TEST(a_last_resort_is_not_preferred)
{
    const te_request r = {.opcode = TE_READ, .target_offset = 1000, .length = 8};
    const struct rules second = preferring(1), no_0 = forbidding(0);
    struct view v;

    make_view(&v);
    assert_int_equal(carrier(&v, &r, &second), 0);
    assert_int_equal(carrier(&v, &r, &no_0), 1);
}

/* Nobody else carries a WRITE there, and so it is not carried. */
TEST(an_earlier_write_of_one_that_is_forbidden)
{
    const te_request r = {.opcode = TE_WRITE, .target_offset = 150, .length = 8};
    const struct rules no_0 = forbidding(0);
    struct view v;

    make_view(&v);
    assert_int_equal(carrier(&v, &r, &no_0), -1);
    assert_true(tei_route(&v, &r, &no_0).held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_carries_it),
        cmocka_unit_test(a_write_follows_an_earlier_one),
        cmocka_unit_test(what_is_forbidden_carries_nothing),
        cmocka_unit_test(what_is_preferred_carries_it),
        cmocka_unit_test(a_last_resort_is_not_preferred),
        cmocka_unit_test(an_earlier_write_of_one_that_is_forbidden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
