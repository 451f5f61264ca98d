/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges that ended WRITEs may still change: what is noted of which transport, and what a new view forgets. */

#include "core/core.h"
#include "core/doubt.h"
#include "core/view.h"
#include "test.h"

#include <string.h>

/* An attachment that still holds [begin, end). */
struct attach {
    struct tei_attach base;
    uint64_t begin, end;
};

static size_t n_asked;

static bool holds(struct tei_transport *t, const struct tei_attach *a, const te_request *r)
{
    const struct attach *mine = (const struct attach *)a;

    (void)t;
    n_asked++;
    return r->target_offset < mine->end && mine->begin < r->target_offset + r->length;
}

static bool is_same(const struct tei_attach *a, const struct tei_attach *b)
{
    return a == b;
}

static struct tei_transport knowing = {.ops = {.holds = holds, .is_same = is_same},
                                       .has = TEI_HAS_SETTLE};
static struct tei_transport mute = {.ops = {.holds = holds}};
static struct tei_transport near = {.ops = {.holds = holds, .caps = TEI_CAP_SETTLED}};
static struct peer peer;

static void begin(void)
{
    memset(&peer, 0, sizeof peer);
    pthread_mutex_init(&peer.doubts.lock, NULL);
}

static struct view view_of(struct tei_transport *t, struct attach *a)
{
    struct view v = {.peer = &peer, .n_via = 1};

    a->base.transport = t;
    v.via[0] = (struct via){t, &a->base};
    return v;
}

static void note(struct view *v, int opcode, int error, uint64_t begin, uint64_t length)
{
    struct tei_work w = {.attach = v->via[0].attach,
                         .opcode = opcode,
                         .error = error,
                         .remote = begin,
                         .length = length};

    tei_doubts_note(v, &w);
}

static bool is_lost(uint64_t begin, uint64_t end)
{
    return tei_span_set_reaches(&peer.doubts.lost, (struct tei_span){begin, end});
}

TEST(what_the_transport_knows_is_open)
{
    struct attach a = {.begin = 100, .end = 200};
    struct view v = view_of(&knowing, &a);
    bool lost;

    begin();
    peer.view = &v;
    note(&v, TE_WRITE, TE_ERR_CANCELED, 150, 100);
    assert_int_equal(peer.doubts.open.n, 1);
    assert_int_equal(tei_doubts_look(&peer, (struct tei_span){199, 200}, &lost), 1);
    assert_false(lost);
    assert_int_equal(tei_doubts_look(&peer, (struct tei_span){200, 201}, &lost), 0);
    assert_false(lost);
    a.end = 0; /* over */
    tei_doubts_prune(&peer);
    assert_int_equal(peer.doubts.open.n, 0);
    assert_int_equal(peer.doubts.lost.n, 0);
}

TEST(what_was_never_sent_is_not_noted)
{
    struct attach a = {.begin = 100, .end = 200};
    struct view v = view_of(&knowing, &a);

    begin();
    peer.view = &v;
    note(&v, TE_WRITE, TE_ERR_CANCELED, 300, 10);
    note(&v, TE_READ, TE_ERR_CANCELED, 150, 10);
    assert_int_equal(peer.doubts.open.n, 0);
    assert_int_equal(peer.doubts.lost.n, 0);
}

TEST(of_one_that_knows_nothing_all_is_lost)
{
    struct attach a = {0};
    struct view v = view_of(&mute, &a);
    bool lost;

    begin();
    peer.view = &v;
    note(&v, TE_WRITE, TE_ERR_TIMEOUT, 150, 10);
    assert_true(is_lost(159, 160));
    assert_int_equal(tei_doubts_look(&peer, (struct tei_span){150, 151}, &lost), 0);
    assert_true(lost);
    assert_int_equal(tei_doubts_look(&peer, (struct tei_span){160, 161}, &lost), 0);
    assert_false(lost);
}

/* Slices of it may have been posted before another one was refused, or the peer not reached again. */
TEST(a_mild_error_does_not_say_that_nothing_was_sent)
{
    struct attach a = {0}, b = {.begin = 100, .end = 200};
    struct view v = view_of(&mute, &a), other = view_of(&knowing, &b);

    begin();
    peer.view = &v;
    note(&v, TE_WRITE, TE_ERR_PEER, 150, 10);
    assert_true(is_lost(150, 160));
    note(&v, TE_WRITE, TE_ERR_STALE, 170, 10);
    assert_true(is_lost(170, 180));
    assert_false(is_lost(160, 170));

    begin();
    peer.view = &other;
    note(&other, TE_WRITE, TE_ERR_STALE, 150, 10);
    note(&other, TE_WRITE, TE_ERR_PEER, 300, 10);
    assert_int_equal(peer.doubts.open.n, 1);
    assert_int_equal(peer.doubts.open.v[0].begin, 150);
    assert_int_equal(peer.doubts.lost.n, 0);
}

TEST(copies_of_this_process_leave_nothing)
{
    struct attach a = {.begin = 100, .end = 200};
    struct view v = view_of(&near, &a);

    begin();
    peer.view = &v;
    note(&v, TE_WRITE, TE_ERR_CANCELED, 150, 10);
    note(&v, TE_WRITE, TE_ERR_PEER, 150, 10);
    assert_int_equal(peer.doubts.open.n + peer.doubts.lost.n, 0);
    note(&v, TE_WRITE, TE_ERR_CONTEXT, 150, 10); /* but a device that has failed may */
    assert_true(is_lost(150, 160));
}

TEST(a_view_of_the_same_connection_forgets_nothing)
{
    struct attach a = {.begin = 100, .end = 200};
    struct view v = view_of(&knowing, &a), next = view_of(&knowing, &a);

    begin();
    peer.view = &v;
    note(&v, TE_WRITE, TE_ERR_CANCELED, 150, 10);
    peer.view = &next;
    tei_doubts_move(&peer, &v, &next);
    note(&v, TE_WRITE, TE_ERR_CANCELED, 170, 10); /* a request that was routed before */
    assert_int_equal(peer.doubts.lost.n, 0);
    assert_int_equal(peer.doubts.open.n, 2);
}

/* Not even if that has something of its own there. */
TEST(what_another_connection_does_not_know_is_lost)
{
    struct attach a = {.begin = 100, .end = 200}, b = {.begin = 155, .end = 175};
    struct view v = view_of(&knowing, &a), next = view_of(&knowing, &b);

    begin();
    peer.view = &v;
    note(&v, TE_WRITE, TE_ERR_CANCELED, 150, 10);
    peer.view = &next;
    tei_doubts_move(&peer, &v, &next);
    assert_true(is_lost(150, 160));
    assert_false(is_lost(160, 1000));
    note(&v, TE_WRITE, TE_ERR_CANCELED, 170, 10);
    assert_true(is_lost(170, 180));
}

TEST(what_is_over_is_not_lost_with_the_transport)
{
    struct attach a = {.begin = 100, .end = 200};
    struct view v = view_of(&knowing, &a), none = {.peer = &peer};

    begin();
    peer.view = &v;
    note(&v, TE_WRITE, TE_ERR_CANCELED, 120, 10);
    note(&v, TE_WRITE, TE_ERR_CANCELED, 180, 10);
    a.begin = 150;
    peer.view = &none;
    tei_doubts_move(&peer, &v, &none);
    assert_false(is_lost(120, 130));
    assert_true(is_lost(180, 190));
}

/* As when a request of many pages fails. */
TEST(many_that_fail_are_asked_for_twice_each_in_the_mean)
{
    struct attach a = {.begin = 0, .end = UINT64_MAX};
    struct view v = view_of(&knowing, &a);
    const size_t n = 1000;

    begin();
    peer.view = &v;
    n_asked = 0;
    for (size_t i = 0; i < n; i++)
        note(&v, TE_WRITE, TE_ERR_CANCELED, 1000 * i, 10);
    assert_int_equal(peer.doubts.open.n, TEI_SPANS_MAX);
    assert_in_range(n_asked, n, 2 * n);
    a.begin = 1000 * n; /* over */
    for (size_t i = 0; i <= TEI_SPANS_MAX; i++)
        note(&v, TE_WRITE, TE_ERR_CANCELED, 1000 * (n + i), 10);
    for (size_t i = 0; i < peer.doubts.open.n; i++)
        assert_true(peer.doubts.open.v[i].end > 1000 * n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_transport_knows_is_open),
        cmocka_unit_test(what_was_never_sent_is_not_noted),
        cmocka_unit_test(of_one_that_knows_nothing_all_is_lost),
        cmocka_unit_test(a_mild_error_does_not_say_that_nothing_was_sent),
        cmocka_unit_test(copies_of_this_process_leave_nothing),
        cmocka_unit_test(a_view_of_the_same_connection_forgets_nothing),
        cmocka_unit_test(what_another_connection_does_not_know_is_lost),
        cmocka_unit_test(what_is_over_is_not_lost_with_the_transport),
        cmocka_unit_test(many_that_fail_are_asked_for_twice_each_in_the_mean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
