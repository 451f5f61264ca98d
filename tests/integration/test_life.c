/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=240 */
/* te_open_life(): what is meant for one life of an engine does not get to the next one, which has its name and addresses. */
#include "child_engine.h"
#include "pair.h"
#include "patience.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#define BYTES 300000 /* several pieces */

static te_segment open_life(const struct pair *p, uint64_t life)
{
    te_segment seg = -1;

    if (te_open_life(p->a, p->bname, life, NULL, &seg))
        fail_msg("%s", te_errmsg());
    return seg;
}

static uint64_t life_of(te_engine *e, te_segment seg)
{
    uint64_t life = 1;

    assert_int_equal(te_segment_incarnation(e, seg, &life), 0);
    return life;
}

/* The target ends, and another engine gets its name, and registers the same memory, in which there is something else. */
static void restart(struct pair *p, const char *host_path)
{
    te_options o;

    te_engine_destroy(p->b);
    loopback_options(&o);
    o.local_server_name = p->bname;
    assert_int_equal(te_option_set(&o, "TE_HOST_PATH", host_path), 0);
    assert_int_equal(te_engine_create(&o, &p->b), 0);
    te_options_fini(&o);
    assert_int_equal(te_register(p->b, p->bm, PAIR_SIZE, "cpu:0", TE_REMOTE_RW), 0);
    fill(p->bm, PAIR_SIZE, 77);
}

/* Nothing has been written there since. */
static void is_untouched(const struct pair *p)
{
    assert_int_equal(first_difference(p->bm, PAIR_SIZE, 77), PAIR_SIZE);
}

/* It names the segment, both incarnations and what to do. */
static void tells(const struct pair *p, const char *text, uint64_t was)
{
    char numbers[2][17];

    snprintf(numbers[0], sizeof(numbers[0]), "%016" PRIx64, was);
    snprintf(numbers[1], sizeof(numbers[1]), "%016" PRIx64, te_incarnation(p->b));
    if (!strstr(text, p->bname) || !strstr(text, numbers[0]) || !strstr(text, numbers[1]) ||
        !strstr(text, "te_open_life()"))
        fail_msg("%s", text);
}

static te_request request(const struct pair *p, te_segment seg, int opcode)
{
    return (te_request){.opcode = opcode,
                        .source = p->am,
                        .target = seg,
                        .target_offset = (uintptr_t)p->bm,
                        .length = BYTES};
}

/* The batch, whose request was for a life that is over, has ended so; it is freed. */
static void ended_stale(const struct pair *p, te_batch b, uint64_t was)
{
    struct te_status st;
    char text[640];

    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_status(p->a, b, 0, &st), 0);
    assert_int_equal(te_status_msg(p->a, b, 0, text, sizeof(text)), 0);
    if (st.error != TE_ERR_STALE)
        fail_msg("state %d, error %d: %s", st.state, st.error, text);
    assert_int_equal(st.state, TE_INVALID);
    tells(p, text, was);
    assert_int_equal(te_batch_free(p->a, b), 0);
}

static void is_stale(const struct pair *p, te_segment seg, int opcode, uint64_t was)
{
    te_request r = request(p, seg, opcode);
    te_batch b;

    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_submit(p->a, b, &r, 1, NULL), 0);
    ended_stale(p, b, was);
}

static void works(const struct pair *p, te_segment seg)
{
    static unsigned seed = 1;

    fill(p->am, BYTES, ++seed);
    assert_int_equal(transfer(p->a, TE_WRITE, p->am, seg, p->bm, BYTES).error, 0);
    assert_int_equal(first_difference(p->bm, BYTES, seed), BYTES);
    memset(p->am, 0, BYTES);
    assert_int_equal(transfer(p->a, TE_READ, p->am, seg, p->bm, BYTES).error, 0);
    assert_int_equal(first_difference(p->am, BYTES, seed), BYTES);
    fill(p->bm, PAIR_SIZE, 77);
}

/* ------------------------------------------------------------------------------------- by its number */

static void opens(void **state)
{
    struct pair *p = *state;
    uint64_t life = te_incarnation(p->b);
    te_segment one = open_life(p, life), again;

    assert_int_not_equal(life, 0);
    assert_int_not_equal(life, te_incarnation(p->a));
    assert_int_not_equal(one, p->seg);
    assert_int_equal(open_life(p, life), one);
    assert_int_equal(open_life(p, 0), one);
    assert_int_equal(te_open(p->a, p->bname, &again), 0);
    assert_int_equal(again, p->seg);
    assert_true(life_of(p->a, one) == life && life_of(p->a, p->seg) == life);
    works(p, one);
    works(p, p->seg);
    for (int i = 0; i < 3; i++) {
        works(p, one);
        assert_int_equal(te_close(p->a, one), 0);
    }
    assert_int_equal(te_close(p->a, one), TE_ERR_NOT_FOUND);
    assert_int_equal(te_segment_incarnation(p->a, one, &life), TE_ERR_NOT_FOUND);
    works(p, p->seg);
}

static void another_number(void **state)
{
    struct pair *p = *state;
    te_segment seg = -1;

    assert_int_equal(te_open_life(p->a, p->bname, 0xabcdef, NULL, &seg), TE_ERR_STALE);
    tells(p, te_errmsg(), 0xabcdef);
    assert_int_equal(seg, -1);
}

static void itself(void **state)
{
    const te_paths tcp = {.size = sizeof(tcp), .require = "tcp"};
    struct pair *p = *state;
    te_segment seg = -1;
    uint64_t own = te_incarnation(p->b);

    assert_int_equal(te_open_life(p->b, p->bname, own, NULL, &seg), 0);
    assert_int_equal(seg, TE_LOCAL_SEGMENT);
    assert_int_equal(te_open_life(p->b, p->bname, 0, NULL, &seg), 0);
    assert_int_equal(seg, TE_LOCAL_SEGMENT);
    assert_true(life_of(p->b, TE_LOCAL_SEGMENT) == own);
    assert_int_equal(te_open_life(p->b, p->bname, own + 1, NULL, &seg), TE_ERR_STALE);
    tells(p, te_errmsg(), own + 1);
    assert_int_equal(te_open_life(p->b, p->bname, own, &tcp, &seg), TE_ERR_INVALID);
}

static void what_is_refused(void **state)
{
    struct pair *p = *state;
    te_segment seg = -1;
    uint64_t life;

    assert_int_equal(te_open_life(p->a, NULL, 0, NULL, &seg), TE_ERR_INVALID);
    assert_int_equal(te_open_life(p->a, "", 0, NULL, &seg), TE_ERR_INVALID);
    assert_int_equal(te_open_life(p->a, p->bname, 0, NULL, NULL), TE_ERR_INVALID);
    assert_int_equal(te_open_life(p->a, "file:///etc/passwd", 0, NULL, &seg), TE_ERR_UNSUPPORTED);
    assert_non_null(strstr(te_errmsg(), "files"));
    assert_int_equal(te_open_life(NULL, p->bname, 0, NULL, &seg), TE_ERR_INVALID);
    assert_int_equal(te_segment_incarnation(p->a, p->seg, NULL), TE_ERR_INVALID);
    assert_int_equal(te_segment_incarnation(NULL, p->seg, &life), TE_ERR_INVALID);
    assert_int_equal(te_incarnation(NULL), 0);
    assert_int_equal(seg, -1);
}

/* Each of the two segments of the name has paths of its own. */
static void with_paths(void **state)
{
    const te_paths tcp = {.size = sizeof(tcp), .require = "tcp"},
                   host = {.size = sizeof(host), .require = "host"};
    struct pair *p = *state;
    te_segment one, other;

    assert_int_equal(te_open_life(p->a, p->bname, 0, &tcp, &one), 0);
    works(p, one);
    assert_int_equal(te_open_life(p->a, p->bname, 0, &host, &other), TE_ERR_EXISTS);
    assert_int_equal(te_open_life(p->a, p->bname, te_incarnation(p->b), &host, &other),
                     TE_ERR_EXISTS);
    assert_int_equal(open_life(p, 0), one);
    assert_int_equal(te_open_with(p->a, p->bname, &host, &other), TE_ERR_EXISTS);
    works(p, p->seg);
}

/* -------------------------------------------------------------------------------------- it is over */

static uint64_t refreshes(te_engine *e)
{
    struct te_stats s = {.size = sizeof(s)};

    assert_int_equal(te_stats(e, &s), 0);
    return s.refreshes;
}

static void next_life(void **state, const char *host_path)
{
    struct pair *p = *state;
    uint64_t was = te_incarnation(p->b), before;
    te_segment one = open_life(p, was), next;

    works(p, one);
    restart(p, host_path);
    assert_true(te_incarnation(p->b) != was);
    is_stale(p, one, TE_WRITE, was);
    before = refreshes(p->a);
    is_stale(p, one, TE_WRITE, was); /* nobody is asked any more */
    is_stale(p, one, TE_READ, was);
    assert_int_equal(refreshes(p->a), before);
    is_untouched(p);
    works(p, p->seg);
    assert_true(life_of(p->a, one) == was && life_of(p->a, p->seg) == te_incarnation(p->b));
    assert_int_equal(te_open_life(p->a, p->bname, was, NULL, &next), TE_ERR_STALE);
    tells(p, te_errmsg(), was);
    next = open_life(p, 0);
    assert_true(next != one && next != p->seg);
    works(p, next);
    is_stale(p, one, TE_WRITE, was);
    assert_int_equal(te_close(p->a, one), 0);
    works(p, next);
    works(p, p->seg);
}

static void over_host(void **state)
{
    next_life(state, "1");
}

static void over_tcp(void **state)
{
    next_life(state, "0");
}

/* The first that finds out is a request each time. */
static void prepared_and_pages(void **state)
{
    struct pair *p = *state;
    uint64_t was = te_incarnation(p->b), remote = (uintptr_t)p->bm;
    te_segment one = open_life(p, was);
    void *local = p->am;
    size_t n = BYTES;
    const te_pages order = {
        .size = sizeof(order),
        .opcode = TE_WRITE,
        .target = one,
        .length = 64,
        .n = 3000,
        .local = {.base = (uintptr_t)p->am, .pages = 3000, .stride = 128},
        .remote = {.base = (uintptr_t)p->bm, .pages = 3000, .stride = 192},
    };
    te_prep prep;
    te_batch b;

    assert_int_equal(te_prep_create(p->a, one, &local, &remote, &n, 1, &prep), 0);
    restart(p, "0");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
        assert_int_equal(te_prep_submit(p->a, b, prep, TE_WRITE, NULL, 1, NULL), 0);
        ended_stale(p, b, was);
        assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
        assert_int_equal(te_submit_pages(p->a, b, &order, NULL), 0);
        ended_stale(p, b, was);
    }
    is_untouched(p);
    assert_int_equal(te_prep_destroy(p->a, prep), 0);
}

static void pages_first(void **state)
{
    struct pair *p = *state;
    uint64_t was = te_incarnation(p->b);
    const te_pages order = {
        .size = sizeof(order),
        .opcode = TE_WRITE,
        .target = open_life(p, was),
        .length = 64,
        .n = 9000,
        .local = {.base = (uintptr_t)p->am, .pages = 9000, .stride = 128},
        .remote = {.base = (uintptr_t)p->bm, .pages = 9000, .stride = 192},
    };
    te_batch b;

    restart(p, "0");
    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_submit_pages(p->a, b, &order, NULL), 0);
    ended_stale(p, b, was);
    is_untouched(p);
}

/* A transport that is taken out and put in again finds no way there either. */
static void transports_change(void **state)
{
    struct pair *p = *state;
    uint64_t was = te_incarnation(p->b);
    te_segment one = open_life(p, was);

    restart(p, "0");
    is_stale(p, one, TE_WRITE, was);
    assert_int_equal(te_close(p->a, p->seg), 0);
    assert_int_equal(te_transport_uninstall(p->a, "tcp"), 0);
    assert_int_equal(te_transport_install(p->a, "tcp", NULL), 0);
    is_stale(p, one, TE_WRITE, was);
    is_untouched(p);
    assert_int_equal(te_open(p->a, p->bname, &p->seg), 0);
    works(p, p->seg);
}

static void refreshed_and_warmed(void **state)
{
    struct pair *p = *state;
    uint64_t was = te_incarnation(p->b);
    te_segment one = open_life(p, was), next;
    te_request r = request(p, one, TE_WRITE);
    char text[4096];

    assert_int_equal(te_warm(p->a, one, PATIENCE_MS, NULL), 0);
    assert_int_equal(te_refresh(p->a, p->bname), 0);
    restart(p, "0");
    assert_int_equal(te_refresh(p->a, p->bname), TE_ERR_STALE);
    tells(p, te_errmsg(), was);
    assert_true(life_of(p->a, p->seg) == te_incarnation(p->b)); /* which was fetched, too */
    assert_int_equal(te_warm(p->a, one, PATIENCE_MS, NULL), TE_ERR_STALE);
    tells(p, te_errmsg(), was);
    assert_int_equal(te_explain(p->a, &r, text, sizeof(text)), 0); /* it would be taken, */
    tells(p, text, was);                                           /* and end so */
    assert_non_null(strstr(text, "is over"));
    next = open_life(p, 0);
    was = te_incarnation(p->b);
    restart(p, "0");
    assert_int_equal(te_warm(p->a, next, PATIENCE_MS, NULL),
                     TE_ERR_STALE); /* it finds out itself */
    tells(p, te_errmsg(), was);
    is_untouched(p);
}

/* ------------------------------------------------------------------------------------------ messages */

static size_t inbox(te_engine *e)
{
    te_notification *list;
    size_t n;

    assert_int_equal(te_notify_recv(e, &list, &n), 0);
    te_notify_free(list, n);
    return n;
}

static void messages(void **state)
{
    const te_message bytes = {.name = "\377", .name_len = 1, .msg = "\0x", .msg_len = 2};
    struct pair *p = *state;
    uint64_t was = te_incarnation(p->b);
    te_segment one = open_life(p, was), next;

    assert_int_equal(te_notify(p->a, one, "to", "one"), 0);
    assert_int_equal(te_notify_bytes(p->a, one, &bytes), 0);
    assert_int_equal(inbox(p->b), 2);
    restart(p, "0");
    /* Nothing is known here of the other one: the target itself refuses. */
    assert_int_equal(te_notify(p->a, one, "to", "one"), TE_ERR_STALE);
    assert_non_null(strstr(te_errmsg(), "te_open_life()"));
    assert_int_equal(te_notify_bytes(p->a, one, &bytes), TE_ERR_STALE);
    assert_int_equal(te_notify(p->a, p->seg, "to", "any"), 0);
    assert_int_equal(inbox(p->b), 1);
    is_stale(p, one, TE_WRITE, was);
    assert_int_equal(te_notify(p->a, one, "to", "one"), TE_ERR_STALE);
    tells(p, te_errmsg(), was);
    next = open_life(p, 0);
    assert_int_equal(te_notify(p->a, next, "to", "next"), 0);
    assert_int_equal(inbox(p->b), 1);
}

/* One that follows requests to somebody else. */
static void late_message(void **state)
{
    const te_message m = {.name = "late", .name_len = 4, .msg = "x", .msg_len = 1};
    struct pair *p = *state;
    te_segment one = open_life(p, 0);
    te_request r = request(p, p->seg, TE_READ);
    te_submit_opts opts = {
        .size = sizeof(opts), .notify_name = "late", .notify_msg = "y", .notify_target = one};
    uint64_t sent;
    te_batch b;

    restart(p, "0");
    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_submit(p->a, b, &r, 1, &opts), 0);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_notify_after(p->a, b, one, &m), 0);
    assert_int_equal(te_notify_after(p->a, b, p->seg, &m), 0);
    assert_int_equal(te_batch_free(p->a, b), 0);
    do {
        struct te_stats s = {.size = sizeof(s)};

        assert_int_equal(te_stats(p->a, &s), 0);
        sent = s.notifications_sent;
    } while (sent < 1);
    te_engine_destroy(p->a); /* which waits for those that are being sent */
    p->a = NULL;
    assert_int_equal(inbox(p->b), 1);
}

static void counters(void **state)
{
    struct pair *p = *state;
    te_segment one = open_life(p, 0);
    te_request r = request(p, p->seg, TE_READ);
    uint64_t value = 1;
    te_counter c;
    te_adder a, late;
    te_batch b;

    assert_int_equal(te_counter_create(p->b, "arrived", &c), 0);
    assert_int_equal(te_adder_open(p->a, one, "arrived", &a), 0);
    restart(p, "0");
    assert_int_equal(te_counter_create(p->b, "arrived", &c), 0);
    assert_int_equal(te_adder_open(p->a, one, "arrived", &late), TE_ERR_STALE);
    assert_non_null(strstr(te_errmsg(), "te_open_life()"));
    assert_int_equal(te_adder_open(p->a, one, "departed", &late), TE_ERR_STALE);
    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_submit(p->a, b, &r, 1, NULL), 0);
    assert_int_equal(te_adder_after(p->a, b, a, 5), 0);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_adder_flush(p->a, a, PATIENCE_MS), TE_ERR_STALE);
    assert_int_equal(te_counter_value(p->b, c, &value), 0);
    assert_int_equal(value, 0);
    assert_int_equal(te_adder_open(p->a, open_life(p, 0), "arrived", &late), 0);
    assert_int_equal(te_adder_after(p->a, b, late, 3), 0);
    assert_int_equal(te_adder_flush(p->a, late, PATIENCE_MS), 0);
    assert_int_equal(te_counter_value(p->b, c, &value), 0);
    assert_int_equal(value, 3);
    assert_int_equal(te_batch_free(p->a, b), 0);
}

/* -------------------------------------------------------------------------------- who cannot tell */

/* Versions 1 and 2 lead to whoever has the port, on whichever side the native framing is off. */
static void without_native_framing(void **state)
{
    static const struct {
        const char *option, *value;
    } ways[] = {{"TE_TCP_NATIVE", "0"}, {"MC_TCP_PROTO", "1"}};
    struct pair *p = *state;
    char name[300];

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        te_engine *e = pair_third(ways[i].option, ways[i].value);
        te_segment seg = -1;

        assert_int_equal(te_open_life(e, p->bname, 0, NULL, &seg), TE_ERR_UNSUPPORTED);
        assert_non_null(strstr(te_errmsg(), "native framing"));
        assert_int_equal(te_engine_name(e, name, sizeof(name)), 0);
        assert_int_equal(te_open_life(p->a, name, 0, NULL, &seg), TE_ERR_UNSUPPORTED);
        assert_non_null(strstr(te_errmsg(), "native framing"));
        assert_int_equal(te_open(p->a, name, &seg), 0);
        te_engine_destroy(e);
    }
}

/* Both segments of a name are one series of the metrics: what is of the second is told with the others. */
static void one_label(void **state)
{
    static char text[400 << 10];
    struct pair *p = *state;
    char label[400], *at;

    works(p, open_life(p, 0));
    works(p, p->seg);
    assert_int_equal(te_stats_text(p->a, text, sizeof(text)), 0);
    snprintf(label, sizeof(label), "transfer_engine_peer_bytes_total{peer=\"%s\",opcode=\"write\"}",
             p->bname);
    at = strstr(text, label);
    if (!at)
        fail_msg("%s is not in %s", label, text);
    assert_null(strstr(at + 1, label));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(opens, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(another_number, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(itself, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(what_is_refused, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(with_paths, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(over_host, pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(over_tcp, pair_setup_tcp, pair_teardown),
        cmocka_unit_test_setup_teardown(prepared_and_pages, pair_setup_tcp, pair_teardown),
        cmocka_unit_test_setup_teardown(pages_first, pair_setup_tcp, pair_teardown),
        cmocka_unit_test_setup_teardown(transports_change, pair_setup_tcp, pair_teardown),
        cmocka_unit_test_setup_teardown(refreshed_and_warmed, pair_setup_tcp, pair_teardown),
        cmocka_unit_test_setup_teardown(messages, pair_setup_tcp, pair_teardown),
        cmocka_unit_test_setup_teardown(late_message, pair_setup_tcp, pair_teardown),
        cmocka_unit_test_setup_teardown(counters, pair_setup_tcp, pair_teardown),
        cmocka_unit_test_setup_teardown(without_native_framing, pair_setup_tcp, pair_teardown),
        cmocka_unit_test_setup_teardown(one_label, pair_setup_tcp, pair_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
