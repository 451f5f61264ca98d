/* SPDX-License-Identifier: Apache-2.0 */
/* te_fence_segment() over a transport that the test makes: what is asked for, how often, and what is told. */
#include "core/core.h"
#include "core/view.h"
#include "test.h"

#include <string.h>

#include "base/os.h"

#define SEGMENT 1
#define SPANS   8

/* An attachment that holds all of these, until they are settled. */
struct attach {
    struct tei_attach base;
    struct tei_span held[SPANS];
    size_t n;
    int answer; /* of settle(), if not 0 */
};

static te_engine engine;
static struct peer peer, *peers[2];
static struct view views[2];
static struct attach attaches[2];

/* What was asked for. */
static struct tei_span asked[SPANS];
static struct tei_attach *asked_of[SPANS];
static size_t n_asked;

static bool is_busy;       /* nothing is ever over */
static int answer;         /* of settle() */
static struct view *swaps; /* the view that the peer gets while it is asked; NULL: none */

static bool holds(struct tei_transport *t, const struct tei_attach *a, const te_request *r)
{
    const struct attach *mine = (const struct attach *)a;

    (void)t;
    for (size_t i = 0; i < mine->n; i++)
        if (r->target_offset < mine->held[i].end &&
            mine->held[i].begin < r->target_offset + r->length)
            return true;
    return false;
}

static bool is_same(const struct tei_attach *a, const struct tei_attach *b)
{
    return a == b;
}

static void settle(struct tei_transport *t, struct tei_work *w)
{
    struct attach *mine = (struct attach *)w->attach;
    int error = mine->answer ? mine->answer : answer;

    (void)t;
    assert_true(n_asked < SPANS);
    asked_of[n_asked] = w->attach;
    asked[n_asked++] = (struct tei_span){w->remote, w->remote + w->length};
    if (!is_busy && !error)
        mine->n = 0;
    if (swaps)
        peer.view = swaps;
    swaps = NULL;
    w->error = w->deadline_ns <= tei_now_ns() ? TE_ERR_TIMEOUT : error;
    w->sink->done(w->sink, w);
}

static struct tei_transport transport = {
    .ops = {.holds = holds, .is_same = is_same, .settle = settle}, .has = TEI_HAS_SETTLE};

static void make_view(struct view *v, struct attach *a, uint64_t serial)
{
    memset(v, 0, sizeof *v);
    memset(a, 0, sizeof *a);
    a->base.transport = &transport;
    atomic_init(&v->refs, 1);
    v->engine = &engine;
    v->peer = &peer;
    v->serial = serial;
    v->n_via = 1;
    v->via[0] = (struct via){&transport, &a->base};
}

static int set_up(void **state)
{
    (void)state;
    memset(&engine, 0, sizeof engine);
    memset(&peer, 0, sizeof peer);
    engine.mark = TEI_ENGINE_MARK;
    engine.fork_epoch = tei_fork_epoch();
    pthread_rwlock_init(&engine.peers.lock, NULL);
    tei_pool_init(&engine.transports.works[0], sizeof(struct tei_work));
    peers[SEGMENT] = &peer;
    engine.peers.list = peers;
    engine.peers.n = 2;
    peer.engine = &engine;
    peer.id = SEGMENT;
    peer.name = (char *)(uintptr_t) "the peer";
    pthread_mutex_init(&peer.lock, NULL);
    pthread_mutex_init(&peer.doubts.lock, NULL);
    make_view(&views[0], &attaches[0], 7);
    make_view(&views[1], &attaches[1], 8);
    peer.view = &views[0];
    n_asked = 0;
    is_busy = false;
    answer = 0;
    swaps = NULL;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tei_pool_fini(&engine.transports.works[0]);
    assert_int_equal(atomic_load(&views[0].refs), 1);
    assert_int_equal(atomic_load(&views[1].refs), 1);
    return 0;
}

static void hold(struct attach *a, uint64_t begin, uint64_t end)
{
    a->held[a->n++] = (struct tei_span){begin, end};
}

static void add(struct tei_span_set *s, uint64_t begin, uint64_t end)
{
    tei_span_set_add(s, (struct tei_span){begin, end});
}

static void expect_asked(size_t i, uint64_t begin, uint64_t end)
{
    assert_true(i < n_asked);
    assert_int_equal(asked[i].begin, begin);
    assert_int_equal(asked[i].end, end);
}

static void expect_unsafe(const te_range *r, uint64_t begin, uint64_t end)
{
    assert_int_equal(r->target, SEGMENT);
    assert_int_equal(r->target_offset, begin);
    assert_int_equal(r->length, end - begin);
}

static int fence(int64_t timeout_ms, te_range unsafe[SPANS], size_t *total)
{
    return te_fence_segment(&engine, SEGMENT, timeout_ms, unsafe, SPANS, total);
}

TEST(nobody_is_asked_where_nothing_is_held)
{
    te_range unsafe[SPANS];
    size_t total = 9;

    assert_int_equal(fence(-1, unsafe, &total), 0);
    assert_int_equal(total, 0);
    assert_int_equal(n_asked, 0);
}

/* Where WRITEs fail one after the other there is an end all the same: each range is waited for once. */
TEST(a_busy_segment_is_waited_for_once)
{
    te_range unsafe[SPANS];
    size_t total = 9;

    is_busy = true;
    hold(&attaches[0], 100, 200);
    hold(&attaches[0], 1000, 1001);
    add(&peer.doubts.open, 100, 200);
    assert_int_equal(fence(-1, unsafe, &total), 0);
    assert_int_equal(total, 0);
    assert_int_equal(n_asked, 2);
    expect_asked(0, 100, 200);
    expect_asked(1, 200, UINT64_MAX);
}

/* What another view's attachment still knows is older than the fence. */
TEST(a_view_that_comes_meanwhile_is_asked_too)
{
    te_range unsafe[SPANS];
    size_t total = 9;

    is_busy = true;
    hold(&attaches[0], 100, 200);
    hold(&attaches[1], 150, 160);
    add(&peer.doubts.open, 100, 200);
    swaps = &views[1];
    assert_int_equal(fence(-1, unsafe, &total), 0);
    assert_int_equal(total, 0);
    assert_int_equal(n_asked, 2);
    expect_asked(1, 100, 200);
    assert_ptr_equal(asked_of[0], &attaches[0].base);
    assert_ptr_equal(asked_of[1], &attaches[1].base);
}

/* Of a peer that was opened by another name before, in no set here: what lies between is looked at. */
TEST(what_is_in_no_set_is_found_between)
{
    te_range unsafe[SPANS];
    size_t total = 9;

    answer = TE_ERR_PEER;
    hold(&attaches[0], 10, 50);
    hold(&attaches[0], 250, 260);
    add(&peer.doubts.open, 100, 200);
    add(&peer.doubts.lost, 300, 400);
    assert_int_equal(fence(-1, unsafe, &total), TE_ERR_LINK);
    assert_int_equal(total, 3);
    expect_unsafe(&unsafe[0], 300, 400);
    expect_unsafe(&unsafe[1], 0, 100);
    expect_unsafe(&unsafe[2], 200, 300);
    assert_int_equal(n_asked, 2);
    assert_non_null(strstr(te_errmsg(), "'the peer'"));
}

TEST(nothing_is_looked_at_twice_where_ranges_overlap)
{
    te_range unsafe[SPANS];
    size_t total = 9;

    answer = TE_ERR_PEER;
    hold(&attaches[0], 0, UINT64_MAX);
    add(&peer.doubts.open, 100, 300);
    add(&peer.doubts.lost, 200, 400);
    assert_int_equal(fence(-1, unsafe, &total), TE_ERR_LINK);
    assert_int_equal(total, 4);
    expect_unsafe(&unsafe[0], 100, 300);
    expect_unsafe(&unsafe[1], 200, 400);
    expect_unsafe(&unsafe[2], 0, 100);
    expect_unsafe(&unsafe[3], 400, UINT64_MAX);
}

TEST(a_range_of_everything_leaves_nothing_between)
{
    te_range unsafe[SPANS];
    size_t total = 9;

    hold(&attaches[0], 0, UINT64_MAX);
    add(&peer.doubts.lost, 0, UINT64_MAX);
    assert_int_equal(fence(-1, unsafe, &total), TE_ERR_LINK);
    assert_int_equal(total, 1);
    expect_unsafe(&unsafe[0], 0, UINT64_MAX);
    assert_int_equal(n_asked, 0);
}

/* Without time the transport is asked once all the same, and says so. */
TEST(a_look_asks_once)
{
    te_range unsafe[SPANS];
    size_t total = 9;

    is_busy = true;
    hold(&attaches[0], 100, 200);
    add(&peer.doubts.open, 100, 200);
    assert_int_equal(fence(0, unsafe, &total), TE_ERR_TIMEOUT);
    assert_int_equal(total, 1);
    expect_unsafe(&unsafe[0], 100, 200);
    assert_int_equal(n_asked, 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* One transport's reason may pass, another's does not: that one is told, whichever is asked first. */
TEST(the_most_final_reason_is_told)
{
    static const int reasons[][3] = {{TE_ERR_TIMEOUT, TE_ERR_LINK, TE_ERR_LINK},
                                     {TE_ERR_TIMEOUT, TE_ERR_PEER, TE_ERR_PEER},
                                     {TE_ERR_PEER, TE_ERR_LINK, TE_ERR_LINK},
                                     {TE_ERR_TIMEOUT, TE_ERR_CANCELED, TE_ERR_CANCELED},
                                     {TE_ERR_LINK, TE_ERR_LINK, TE_ERR_LINK}};
    te_range unsafe[SPANS];

    views[0].n_via = 2;
    views[0].via[1] = (struct via){&transport, &attaches[1].base};
    hold(&attaches[0], 100, 200);
    hold(&attaches[1], 150, 160);
    add(&peer.doubts.open, 100, 200);
    for (size_t i = 0; i < TEI_ARRAY_LEN(reasons); i++)
        for (size_t first = 0; first < 2; first++) {
            size_t total = 9;

            n_asked = 0;
            attaches[first].answer = reasons[i][0];
            attaches[!first].answer = reasons[i][1];
            assert_int_equal(fence(-1, unsafe, &total), reasons[i][2]);
            assert_int_equal(total, 1);
            assert_int_equal(n_asked, 2);
            expect_unsafe(&unsafe[0], 100, 200);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(nobody_is_asked_where_nothing_is_held),
        CASE(a_busy_segment_is_waited_for_once),
        CASE(a_view_that_comes_meanwhile_is_asked_too),
        CASE(what_is_in_no_set_is_found_between),
        CASE(nothing_is_looked_at_twice_where_ranges_overlap),
        CASE(a_range_of_everything_leaves_nothing_between),
        CASE(a_look_asks_once),
        CASE(the_most_final_reason_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
