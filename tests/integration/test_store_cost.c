/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often a metadata server is asked: the first open, a second one, transfers, a batch of 10,000
 * regions, one that the server finds too large. The server counts.
 */
#include "child_engine.h"
#include "http_kv.h"
#include "pair.h"
#include "patience.h"

#include <assert.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <cmocka.h>

#define MANY      10000
#define STRIDE    64
#define READ_SIZE ((size_t)256 << 10)

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

static _Atomic bool over;

/* Reads into memory that is registered for a moment now and then, whenever that is possible. */
static void *read_again_and_again(void *arg)
{
    te_request r = {.opcode = TE_READ,
                    .source = memory,
                    .target = *(te_segment *)arg,
                    .target_offset = (uintptr_t)memory + READ_SIZE,
                    .length = READ_SIZE};
    te_batch batch;

    while (!over) {
        assert(te_batch_alloc(b, 1, &batch) == 0);
        if (te_submit(b, batch, &r, 1, NULL) == 0)
            assert(te_wait(b, batch, PATIENCE_MS) == 0);
        assert(te_batch_free(b, batch) == 0);
    }
    return NULL;
}

/* Both buffers stay where one is in use, and the error, which no later try mends, is no success. */
static void too_large_and_in_use(void **state)
{
    te_buffer bufs[] = {{memory + 2 * READ_SIZE, STRIDE}, {memory, READ_SIZE}};
    void *addrs[] = {bufs[0].addr, bufs[1].addr};
    bool stay = false;
    pthread_t reader;
    te_segment seg;

    (void)state;
    assert_int_equal(te_register(a, memory + READ_SIZE, READ_SIZE, "*", TE_REMOTE_READ), 0);
    assert_int_equal(te_open(b, "node-a", &seg), 0);
    set_max_value(100);
    assert_int_equal(pthread_create(&reader, NULL, read_again_and_again, &seg), 0);
    for (int i = 0; i < 10000 && !stay; i++) {
        assert_int_equal(te_register_batch(b, bufs, 2, "*", TE_REMOTE_RW), TE_ERR_TOO_LARGE);
        stay = strstr(te_errmsg(), "so 2 regions stay registered: te_unregister() them") != NULL;
        assert_int_equal(te_unregister(b, stay ? NULL : bufs[0].addr), TE_ERR_NOT_REGISTERED);
    }
    over = true;
    assert_int_equal(pthread_join(reader, NULL), 0);
    set_max_value(0);
    assert_true(stay);
    assert_int_equal(te_unregister_batch(b, addrs, 2), 0);
    assert_int_equal(te_unregister(a, memory + READ_SIZE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening),
        cmocka_unit_test(ten_thousand_regions),
        cmocka_unit_test(too_large_and_in_use),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
