/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often a metadata server is asked: the first open, a second one, transfers, a batch of 10,000
 * regions, one that the server finds too large. The server counts.
 */
#include "child_engine.h"
#include "http_kv.h"
#include "pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <cmocka.h>

#define MANY   10000
#define STRIDE 64

static struct http_kv kv;
static te_engine *a, *b;
static unsigned char *memory;

static te_engine *make_engine(const char *name)
{
    te_engine *e = NULL;
    te_options o;

    loopback_options(&o);
    o.metadata = kv.url;
    o.local_server_name = name;
    /* What is counted must not be looking after keys. */
    assert_int_equal(te_option_set(&o, "TE_METADATA_TTL_S", "3600"), 0);
    if (te_engine_create(&o, &e))
        fail_msg("%s", te_errmsg());
    te_options_fini(&o);
    return e;
}

static int setup(void **state)
{
    (void)state;
    if (!http_kv_start(&kv))
        return -1;
    a = make_engine("node-a");
    b = make_engine("node-b");
    memory = map_pages(2 * MANY * STRIDE);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    te_engine_destroy(a);
    te_engine_destroy(b);
    http_kv_stop(&kv);
    munmap(memory, 2 * MANY * STRIDE);
    return 0;
}

static void opening(void **state)
{
    struct timespec t0, t1;
    unsigned char local[64];
    te_segment seg, again;
    int before;

    (void)state;
    assert_int_equal(te_register(a, local, sizeof local, "*", TE_LOCAL_ONLY), 0);
    assert_int_equal(te_register(b, memory, STRIDE, "*", TE_REMOTE_RW), 0);
    before = http_kv_requests(&kv);
    assert_int_equal(te_open(a, "node-b", &seg), 0);
    assert_true(http_kv_requests(&kv) - before <= 2);
    before = http_kv_requests(&kv);
    clock_gettime(CLOCK_MONOTONIC, &t0);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(te_open(a, "node-b", &again), 0);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    print_message("an open of a name that is open takes %.0f ns\n",
                  ((double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec)) /
                      1e5);
    assert_int_equal(again, seg);
    for (int i = 0; i < 100; i++)
        assert_int_equal(transfer(a, i % 2, local, seg, memory, STRIDE).state, TE_COMPLETED);
    assert_int_equal(http_kv_requests(&kv), before);
    assert_int_equal(te_unregister(b, memory), 0);
    assert_int_equal(te_unregister(a, local), 0);
}

static size_t buffers_in_store(void)
{
    char *text = http_kv_get(&kv, "mooncake/ram/node-b");
    size_t n = 0;

    assert_non_null(text);
    for (const char *at = text; (at = strstr(at, "\"addr\":")); at++)
        n++;
    free(text);
    return n;
}

/* Engines put in the background, too. */
static void set_max_value(size_t n)
{
    pthread_mutex_lock(&kv.lock);
    kv.max_value = n;
    pthread_mutex_unlock(&kv.lock);
}

static void ten_thousand_regions(void **state)
{
    te_buffer *bufs = calloc(MANY, sizeof *bufs);
    void **addrs = calloc(MANY, sizeof *addrs);
    int before;

    (void)state;
    assert_true(bufs && addrs);
    for (size_t i = 0; i < MANY; i++) {
        bufs[i] = (te_buffer){.addr = memory + 2 * i * STRIDE, .length = STRIDE};
        addrs[i] = bufs[i].addr;
    }
    before = http_kv_puts(&kv);
    assert_int_equal(te_register_batch(b, bufs, MANY, "*", TE_REMOTE_RW), 0);
    assert_int_equal(http_kv_puts(&kv) - before, 1);
    assert_int_equal(buffers_in_store(), MANY);
    before = http_kv_puts(&kv);
    assert_int_equal(te_unregister_batch(b, addrs, MANY), 0);
    assert_int_equal(http_kv_puts(&kv) - before, 1);
    assert_int_equal(buffers_in_store(), 0);

    /* What the server finds too large is an error, and nothing stays registered. */
    set_max_value(100000);
    assert_int_equal(te_register_batch(b, bufs, MANY, "*", TE_REMOTE_RW), TE_ERR_TOO_LARGE);
    assert_non_null(strstr(te_errmsg(), "413"));
    set_max_value(0);
    assert_int_equal(te_register_batch(b, bufs, MANY, "*", TE_REMOTE_RW), 0);
    assert_int_equal(buffers_in_store(), MANY);
    assert_int_equal(te_unregister_batch(b, addrs, MANY), 0);
    free(bufs);
    free(addrs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening),
        cmocka_unit_test(ten_thousand_regions),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
