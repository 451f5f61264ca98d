/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making engines: options, names, addresses, ports, transports; and what every call says to
 * nonsense.
 */
#include "child_engine.h"
#include "proc.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void options_are_checked(void **state)
{
    te_options o;
    te_engine *e = NULL;

    (void)state;
    loopback_options(&o);
    o.size = 3;
    assert_int_equal(te_engine_create(&o, &e), TE_ERR_INVALID);
    loopback_options(&o);
    o.size = sizeof(o) - 1;
    assert_int_equal(te_engine_create(&o, &e), TE_ERR_INVALID);
    loopback_options(&o);
    assert_int_equal(te_engine_create(&o, NULL), TE_ERR_INVALID);
    o.metadata = "gopher://127.0.0.1:70";
    assert_int_equal(te_engine_create(&o, &e), TE_ERR_UNSUPPORTED);
    assert_non_null(strstr(te_errmsg(), "gopher"));
    o.metadata = "";
    assert_int_equal(te_engine_create(&o, &e), TE_ERR_INVALID);
    loopback_options(&o);
    assert_int_equal(te_option_set(&o, "MC_SLICE_SIZES", "1"), TE_ERR_NOT_FOUND);
    assert_int_equal(te_option_set(&o, "MC_RETRY_CNT", "many"), TE_ERR_INVALID);
    assert_int_equal(te_option_set(&o, "MC_RETRY_CNT", "3"), 0);
    assert_int_equal(te_engine_create(&o, &e), 0);
    te_engine_destroy(e);
    te_options_fini(&o);
    assert_null(strstr(te_strerror(TE_ERR_STALE), "unknown"));
}

static bool gets_port_of(const char *host, uint16_t port, bool by_name, te_engine **e)
{
    char wanted[32], got[300];
    te_options o;

    snprintf(wanted, sizeof(wanted), "%s:%u", host, port);
    loopback_options(&o);
    if (by_name)
        o.local_server_name = wanted;
    else
        o.rpc_port = port;
    assert_int_equal(te_engine_create(&o, e), 0);
    assert_int_equal(te_engine_name(*e, got, sizeof(got)), 0);
    if (strcmp(got, wanted) == 0)
        return true;
    te_engine_destroy(*e);
    return false;
}

static bool gets_port(uint16_t port, bool by_name, te_engine **e)
{
    return gets_port_of("127.0.0.1", port, by_name, e);
}

/* Returns the port that it asked for and got. Of any one a stranger may be faster. */
static uint16_t engine_at_port(bool by_name, te_engine **e)
{
    for (int i = 0; i < 20; i++) {
        uint16_t port = test_free_port();

        assert_int_not_equal(port, 0);
        if (gets_port(port, by_name, e))
            return port;
    }
    fail_msg("no engine gets the port that it asks for");
    return 0;
}

static void two_engines_want_one_port(void **state)
{
    te_engine *a = NULL, *b = NULL;

    (void)state;
    assert_false(gets_port(engine_at_port(false, &a), false, &b));
    te_engine_destroy(a);
    engine_at_port(true, &a);
    assert_int_equal(te_engine_name(a, (char[4]){0}, 4), TE_ERR_INVALID);
    te_engine_destroy(a);
}

static void given_address_is_told(void **state)
{
    te_engine *e = NULL;
    te_options o;
    char text[300];

    (void)state;
    loopback_options(&o);
    o.ip_or_host_name = "127.0.0.9";
    assert_int_equal(te_engine_create(&o, &e), 0);
    assert_int_equal(te_engine_addr(e, text, sizeof(text)), 0);
    assert_memory_equal(text, "127.0.0.9:", 10);
    te_engine_destroy(e);
}

static void a_name_may_be_an_ipv6_address(void **state)
{
    te_engine *e = NULL;
    int tries = 0;

    (void)state;
    while (!gets_port_of("[::1]", test_free_port(), true, &e)) /* a stranger was faster */
        assert_true(tries++ < 20);
    te_engine_destroy(e);
}

static void transports_by_hand(void **state)
{
    static const char *const closed[] = {"ascend_direct", "heterogeneous"};
    te_engine *e = NULL;
    te_options o;
    char text[1024];

    (void)state;
    loopback_options(&o);
    o.auto_discover = 0;
    assert_int_equal(te_engine_create(&o, &e), 0);
    assert_int_equal(te_transport_uninstall(e, "tcp"), TE_ERR_NOT_FOUND);
    assert_int_equal(te_transport_install(e, "ascend", NULL), TE_ERR_UNSUPPORTED);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(te_transport_install(e, closed[i], NULL), TE_ERR_UNSUPPORTED);
        assert_non_null(strstr(te_errmsg(), closed[i]));
        assert_non_null(strstr(te_errmsg(), "docs/ascend.md"));
    }
    assert_int_equal(te_transport_install(e, "tcp", "{\"cpu:0\":[]}"), TE_ERR_JSON);
    assert_int_equal(te_transport_install(e, "tcp", "{\"cpu:0\":[[\"m0\"],[\"m1\"]]}"), 0);
    assert_int_equal(te_topology_json(e, text, sizeof(text)), 0);
    assert_string_equal(text, "{\"cpu:0\":[[\"m0\"],[\"m1\"]]}");
    assert_int_equal(te_topology_json(e, text, 4), TE_ERR_TOO_LARGE);
    assert_int_equal(te_links(e, 1, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "\"local_nics\":[]"));
    assert_int_equal(te_links(e, 0, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "=== Topology"));
    assert_int_equal(te_transport_uninstall(e, "local"), TE_ERR_INVALID);
    te_engine_destroy(e);
}

static void forced_transport_must_be_there(void **state)
{
    te_engine *e = NULL;
    te_options o;

    (void)state;
    loopback_options(&o);
    assert_int_equal(te_option_set(&o, "MC_FORCE_MNNVL", "1"), 0);
    assert_int_equal(te_engine_create(&o, &e), TE_ERR_UNSUPPORTED);
    assert_int_equal(te_option_set(&o, "MC_FORCE_TCP", "1"), 0);
    assert_int_equal(te_engine_create(&o, &e), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "MC_FORCE_TCP is on and MC_FORCE_MNNVL is on"));
    assert_int_equal(te_option_set(&o, "MC_FORCE_MNNVL", "0"), 0);
    assert_int_equal(te_engine_create(&o, &e), 0);
    te_engine_destroy(e);
    te_options_fini(&o);
}

/* As a program sees the structs that was compiled with a later release. */
struct newer_options {
    te_options now;
    uint64_t more[2];
};

struct newer_opts {
    te_submit_opts now;
    uint64_t more;
};

struct newer_stats {
    struct te_stats now;
    uint64_t more[3];
};

static te_engine *engine_of_newer_program(void)
{
    struct newer_options o;
    te_engine *e = NULL;

    memset(&o, 0xa5, sizeof(o));
    te_options_init_size(&o.now, sizeof(o));
    o.now.local_server_name = "127.0.0.1";
    o.more[1] = 1;
    assert_int_equal(te_engine_create(&o.now, &e), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "built for a newer library"));
    o.more[1] = 0;
    assert_int_equal(te_engine_create(&o.now, &e), 0);
    return e;
}

static void structs_of_newer_programs(void **state)
{
    te_engine *e = engine_of_newer_program();
    struct newer_opts opts = {.now.size = sizeof(opts), .more = 7};
    struct newer_stats stats;
    char from[64] = "moved", to[64] = "";
    te_request r = {.opcode = TE_WRITE,
                    .source = from,
                    .target = TE_LOCAL_SEGMENT,
                    .target_offset = (uintptr_t)to,
                    .length = sizeof(to)};
    te_batch b;

    (void)state;
    assert_int_equal(te_register(e, from, sizeof(from), "*", TE_REMOTE_RW), 0);
    assert_int_equal(te_register(e, to, sizeof(to), "*", TE_REMOTE_RW), 0);
    assert_int_equal(te_batch_alloc(e, 1, &b), 0);
    assert_int_equal(te_submit(e, b, &r, 1, &opts.now), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "built for a newer library"));
    opts.more = 0;
    opts.now.size = offsetof(te_submit_opts, traceparent) - 1; /* of none that ever was */
    assert_int_equal(te_submit(e, b, &r, 1, &opts.now), TE_ERR_INVALID);
    opts.now.size = sizeof(opts);
    assert_int_equal(te_submit(e, b, &r, 1, &opts.now), 0);
    assert_int_equal(te_wait(e, b, -1), 0);
    assert_string_equal(to, "moved");
    memset(&stats, 0xa5, sizeof(stats));
    stats.now.size = sizeof(stats.now) - 1;
    assert_int_equal(te_stats(e, &stats.now), TE_ERR_INVALID);
    stats.now.size = sizeof(stats);
    assert_int_equal(te_stats(e, &stats.now), 0);
    assert_int_equal(stats.now.size, sizeof(stats));
    assert_int_equal(stats.now.requests_completed, 1);
    assert_int_equal(stats.more[0] | stats.more[1] | stats.more[2], 0);
    te_engine_destroy(e);
}

static void null_engine_is_an_error(void **state)
{
    struct te_stats stats = {.size = sizeof(stats)};
    struct te_status st;
    te_segment seg;
    te_batch b;
    void *m;
    char text[8];
    size_t n;

    (void)state;
    assert_true(te_batch_alloc(NULL, 1, &b) < 0);
    assert_true(te_submit(NULL, 1, NULL, 0, NULL) < 0);
    assert_true(te_status(NULL, 1, 0, &st) < 0);
    assert_true(te_wait(NULL, 1, 0) < 0);
    assert_true(te_register(NULL, text, 8, "*", 3) < 0);
    assert_true(te_unregister(NULL, text) < 0);
    assert_true(te_alloc(NULL, 8, "*", &m) < 0);
    assert_true(te_open(NULL, "x", &seg) < 0);
    assert_true(te_close(NULL, 1) < 0);
    assert_true(te_refresh(NULL, NULL) < 0);
    assert_true(te_segment_buffers(NULL, 1, NULL, 0, &n) < 0);
    assert_true(te_event_fd(NULL) < 0);
    assert_true(te_done(NULL, &b, 1) < 0);
    assert_true(te_notify(NULL, 0, "a", "b") < 0);
    assert_true(te_probe(NULL, "a") < 0);
    assert_true(te_stats(NULL, &stats) < 0);
    assert_true(te_links(NULL, 0, text, sizeof(text)) < 0);
    assert_true(te_shutdown_on_signal(NULL) < 0);
    assert_true(te_segment_json(NULL, 0, text, sizeof(text)) < 0);
    te_engine_destroy(NULL);
    te_notify_free(NULL, 0);
}

/* Such as a C++ object: what it begins with is no engine's mark. */
static void other_pointer_is_an_error(void **state)
{
    const void *object[64] = {object};
    te_engine *wrong = (te_engine *)(void *)object;
    te_batch b;

    (void)state;
    assert_int_equal(te_batch_alloc(wrong, 1, &b), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "native()"));
    te_engine_destroy(wrong);
    assert_non_null(strstr(te_errmsg(), "native()"));
}

static void check_descriptor(te_engine *e, te_segment seg, const void *memory, const char *name)
{
    char text[4096], wanted[64];

    assert_int_equal(te_segment_json(e, seg, text, sizeof(text)), 0);
    snprintf(wanted, sizeof(wanted), "\"addr\":%zu,\"length\":64,", (size_t)memory);
    assert_non_null(strstr(text, wanted));
    assert_non_null(strstr(text, name));
    assert_non_null(strstr(text, "\"protocol\":\"tcp\""));
    assert_int_equal(te_segment_json(e, seg, text, strlen(text)), TE_ERR_TOO_LARGE);
    assert_int_equal(te_segment_json(e, seg, NULL, 0), TE_ERR_TOO_LARGE);
}

/* What an engine publishes is what a peer has of it. */
static void descriptors(void **state)
{
    te_engine *a = NULL, *b = NULL;
    char memory[64], name[256];
    te_segment seg;
    te_options o;

    (void)state;
    loopback_options(&o);
    assert_int_equal(te_option_set(&o, "MC_FORCE_TCP", "1"), 0);
    assert_int_equal(te_engine_create(&o, &a), 0);
    assert_int_equal(te_engine_create(&o, &b), 0);
    te_options_fini(&o);
    assert_int_equal(te_register(b, memory, sizeof(memory), "*", TE_REMOTE_RW), 0);
    assert_int_equal(te_engine_name(b, name, sizeof(name)), 0);
    assert_int_equal(te_open(a, name, &seg), 0);
    check_descriptor(b, TE_LOCAL_SEGMENT, memory, name);
    check_descriptor(a, seg, memory, name);
    assert_int_equal(te_refresh(b, name), 0); /* there is no server to tell */
    assert_int_equal(te_close(a, seg), 0);
    assert_int_equal(te_segment_json(a, seg, name, sizeof(name)), TE_ERR_NOT_FOUND);
    te_engine_destroy(a);
    te_engine_destroy(b);
}

static void keys_need_a_server(void **state)
{
    te_options o;
    char text[64];

    (void)state;
    te_options_init(&o);
    assert_int_equal(te_metadata_get(&o, "ram/a", text, sizeof(text)), TE_ERR_UNSUPPORTED);
    assert_int_equal(te_metadata_put(NULL, "ram/a", "{}"), TE_ERR_UNSUPPORTED);
    o.metadata = "carrier-pigeon://here";
    assert_int_equal(te_metadata_put(&o, "ram/a", NULL), TE_ERR_UNSUPPORTED);
    assert_non_null(strstr(te_errmsg(), "carrier-pigeon"));
    assert_int_equal(te_metadata_get(&o, "", text, sizeof(text)), TE_ERR_INVALID);
    assert_int_equal(te_metadata_get(&o, NULL, text, sizeof(text)), TE_ERR_INVALID);
    o.metadata = "";
    assert_int_equal(te_metadata_get(&o, "ram/a", text, sizeof(text)), TE_ERR_INVALID);
}

static void come_and_go(const te_options *o)
{
    te_engine *e = NULL;

    assert_int_equal(te_engine_create(o, &e), 0);
    te_engine_destroy(e);
}

static void nothing_is_left_behind(void **state)
{
    size_t fds, threads;
    te_options o;

    (void)state;
    loopback_options(&o);
    come_and_go(&o); /* may leave what libraries keep for the process */
    fds = test_count_fds();
    threads = test_settled_threads();
    for (int i = 0; i < 20; i++)
        come_and_go(&o);
    assert_true(test_nothing_left(fds, threads));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(two_engines_want_one_port),
        cmocka_unit_test(given_address_is_told),
        cmocka_unit_test(a_name_may_be_an_ipv6_address),
        cmocka_unit_test(transports_by_hand),
        cmocka_unit_test(forced_transport_must_be_there),
        cmocka_unit_test(structs_of_newer_programs),
        cmocka_unit_test(null_engine_is_an_error),
        cmocka_unit_test(other_pointer_is_an_error),
        cmocka_unit_test(descriptors),
        cmocka_unit_test(keys_need_a_server),
        cmocka_unit_test(nothing_is_left_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
