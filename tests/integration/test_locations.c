/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=60 */
/* Where memory may be said to be: what a machine has, what a NIC priority matrix names, and nothing else. */
#include "fake_sysfs.h"
#include "te.h"
#include "transfer_engine_c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <unistd.h>

static char memory[4096];

static te_engine *engine_at(const char *sysfs)
{
    te_engine *e = NULL;
    te_options o;

    te_options_init(&o);
    o.ip_or_host_name = "127.0.0.1";
    if (sysfs)
        assert_int_equal(te_option_set(&o, "TE_SYSFS_PATH", sysfs), 0);
    assert_int_equal(te_engine_create(&o, &e), 0);
    te_options_fini(&o);
    return e;
}

/* Alone, as one of a batch, and by the C names of Mooncake. */
static void check_taken(te_engine *e, const char *location)
{
    buffer_entry_t entry = {.addr = memory, .length = sizeof(memory)};
    te_buffer b = {.addr = memory, .length = sizeof(memory)};

    for (int i = 0; i < 4; i++) {
        int rc = i == 0   ? te_register(e, memory, sizeof(memory), location, TE_REMOTE_RW)
                 : i == 1 ? te_register_batch(e, &b, 1, location, TE_REMOTE_RW)
                 : i == 2 ? registerLocalMemory(e, memory, sizeof(memory), location, 1)
                          : registerLocalMemoryBatch(e, &entry, 1, location);

        if (rc)
            fail_msg("%s: %s", location, te_errmsg());
        assert_int_equal(te_unregister(e, memory), 0);
    }
}

static void check_refused(te_engine *e, const char *location, int want, const char *says)
{
    te_buffer b = {.addr = memory, .length = sizeof(memory)};

    assert_int_equal(te_register(e, memory, sizeof(memory), location, TE_REMOTE_RW), want);
    if (!strstr(te_errmsg(), says) || !strstr(te_errmsg(), location))
        fail_msg("%s: %s", location, te_errmsg());
    assert_int_equal(te_register_batch(e, &b, 1, location, TE_REMOTE_RW), want);
    assert_int_equal(registerLocalMemory(e, memory, sizeof(memory), location, 1), want);
}

/* What the specification and callers of Mooncake's engine give, on whatever machine this is. */
static void what_is_usual(void **state)
{
    static const char *const usual[] = {"*", NULL, "cpu:0", "mlu:0", "xpu:3"};
    te_engine *e = engine_at(NULL);
    void *m = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
        check_taken(e, usual[i]);
    assert_int_equal(te_alloc(e, 100, "cpu:0", &m), 0);
    assert_int_equal(te_free(e, m), 0);
    te_engine_destroy(e);
}

static void nodes_that_no_machine_has(void **state)
{
    te_engine *e;
    void *m = NULL;

    (void)state;
    if (access("/sys/devices/system/node", F_OK) != 0)
        skip(); /* this kernel does not say */
    e = engine_at(NULL);
    check_refused(e, "cpu:9999", TE_ERR_NUMA, "NUMA nodes");
    check_refused(e, "cpu:99999999999999999999999", TE_ERR_NUMA, "NUMA nodes");
    assert_int_equal(te_alloc(e, 100, "cpu:9999", &m), TE_ERR_NUMA);
    assert_non_null(strstr(te_errmsg(), "NUMA nodes"));
    te_engine_destroy(e);
}

/* Memory of the host is in no GPU, whether or not there is a driver, and whatever its number. */
static void devices_that_it_is_not_in(void **state)
{
    te_engine *e = engine_at(NULL);

    (void)state;
    check_refused(e, "cuda:0", TE_ERR_INVALID, "the host");
    check_refused(e, "cuda:1234", TE_ERR_INVALID, "the host");
    check_refused(e, "hip:7", TE_ERR_INVALID, "the host");
    check_refused(e, "hip:123456", TE_ERR_INVALID, "the host");
    check_refused(e, "npu:3", TE_ERR_INVALID, "the host");
    check_refused(e, "musa:0", TE_ERR_INVALID, "the host");
    te_engine_destroy(e);
}

static void nodes_of_the_machine(void **state)
{
    struct fake_sysfs s;
    te_engine *e;

    (void)state;
    fake_sysfs_make(&s);
    fake_sysfs_node(&s, 0, "10 21");
    fake_sysfs_node(&s, 2, "21 10");
    e = engine_at(s.sysfs);
    check_taken(e, "cpu:0");
    check_taken(e, "cpu:2");
    check_refused(e, "cpu:1", TE_ERR_NUMA, "has 0,2;");
    check_refused(e, "cpu:20", TE_ERR_NUMA, "has 0,2;");
    /* Node 5 has no memory online now; it is one of this machine all the same. */
    fake_sysfs_write(&s, "sysfs/devices/system/node/possible", "0,2-3,5-7\n");
    check_taken(e, "cpu:3");
    check_taken(e, "cpu:5");
    check_taken(e, "cpu:7");
    check_refused(e, "cpu:1", TE_ERR_NUMA, "has 0,2-3,5-7;");
    check_refused(e, "cpu:4", TE_ERR_NUMA, "has 0,2-3,5-7;");
    check_refused(e, "cpu:8", TE_ERR_NUMA, "has 0,2-3,5-7;");
    te_engine_destroy(e);
    fake_sysfs_remove(&s);
}

/* A matrix that was given says which NICs are near to a name, whether or not that is a node here. */
static void names_of_a_matrix(void **state)
{
    struct fake_sysfs s;
    te_engine *e;

    (void)state;
    fake_sysfs_make(&s);
    fake_sysfs_node(&s, 0, NULL);
    e = engine_at(s.sysfs);
    check_refused(e, "cpu:1", TE_ERR_NUMA, "has 0;");
    assert_int_equal(
        te_transport_install(e, "tcp", "{\"cpu:0\":[[],[]],\"cpu:1\":[[\"mlx5_9\"],[]]}"), 0);
    check_taken(e, "cpu:1");
    check_taken(e, "cpu:0");
    check_refused(e, "cpu:2", TE_ERR_NUMA, "has 0;");
    te_engine_destroy(e);
    fake_sysfs_remove(&s);
}

/* Nothing is known of nodes there, and so nothing held against any. */
static void kernel_without_nodes(void **state)
{
    struct fake_sysfs s;
    te_engine *e;

    (void)state;
    fake_sysfs_make(&s);
    e = engine_at(s.sysfs);
    check_taken(e, "cpu:0");
    check_taken(e, "cpu:3");
    te_engine_destroy(e);
    fake_sysfs_remove(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_usual),
        cmocka_unit_test(nodes_that_no_machine_has),
        cmocka_unit_test(devices_that_it_is_not_in),
        cmocka_unit_test(nodes_of_the_machine),
        cmocka_unit_test(names_of_a_matrix),
        cmocka_unit_test(kernel_without_nodes),
    };

    te_log_set_level(TE_LOG_OFF);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
