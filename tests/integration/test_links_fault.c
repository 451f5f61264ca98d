/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_links(), te_topology_json() and showLinks() of an engine on a made-up machine; and what a
 * transport adds of NICs it uses, told here by the fault transport.
 */
#include "fake_sysfs.h"
#include "te.h"
#include "transfer_engine_c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 8192

static void make_machine(struct fake_sysfs *s)
{
    fake_sysfs_make(s);
    fake_sysfs_node(s, 0, "10 21");
    fake_sysfs_node(s, 1, "21 10");
    fake_sysfs_nic(s, "mlx5_0", "0000:01:00.0", 0);
    fake_sysfs_nic(s, "mlx5_1", "0000:81:00.0", 1);
    fake_sysfs_add(s, &(struct fake_nic){.name = "mlx5_2",
                                         .pci = "0000:82:00.0",
                                         .numa = 1,
                                         .state = "1: DOWN",
                                         .rate = "40 Gb/sec (4X QDR)",
                                         .gid = ""});
}

static te_engine *engine_at(const struct fake_sysfs *s, const char *filters)
{
    te_engine *e = NULL;
    te_options o;

    te_options_init(&o);
    o.ip_or_host_name = "127.0.0.1";
    assert_int_equal(te_option_set(&o, "TE_SYSFS_PATH", s->sysfs), 0);
    assert_int_equal(te_option_set(&o, "TE_DEV_PATH", s->dev), 0);
    assert_int_equal(te_option_set(&o, "MC_TE_FILTERS", filters), 0);
    assert_int_equal(te_engine_create(&o, &e), 0);
    te_options_fini(&o);
    return e;
}

static void what_is_found_as_text(void **state)
{
    char text[TEXT_MAX];
    struct fake_sysfs s;
    te_engine *e;

    (void)state;
    unsetenv("TE_FAULT");
    make_machine(&s);
    e = engine_at(&s, "");
    assert_int_equal(te_links(e, 0, text, sizeof(text)), 0);
    assert_string_equal(
        text, "=== Local NICs ===\n"
              "  mlx5_0  NUMA=0  GID=fe80:0000:0000:0000:0000:0000:0000:0001 (idx=0)  Port=1  "
              "100Gbps  ACTIVE  InfiniBand  (topology only; RDMA transport not initialized)\n"
              "  mlx5_1  NUMA=1  GID=fe80:0000:0000:0000:0000:0000:0000:0002 (idx=0)  Port=1  "
              "100Gbps  ACTIVE  InfiniBand  (topology only; RDMA transport not initialized)\n"
              "  mlx5_2  NUMA=1  Port=1  40Gbps  DOWN  InfiniBand  not usable: port 1 is DOWN\n"
              "=== Topology (NIC Selection) ===\n"
              "  cpu:0 -> preferred: [mlx5_0]  available: [mlx5_1]\n"
              "  cpu:1 -> preferred: [mlx5_1]  available: [mlx5_0]\n");
    assert_int_equal(te_links(e, 0, text, 100), TE_ERR_TOO_LARGE);
    assert_int_equal(te_topology_json(e, text, sizeof(text)), 0);
    assert_string_equal(
        text, "{\"cpu:0\":[[\"mlx5_0\"],[\"mlx5_1\"]],\"cpu:1\":[[\"mlx5_1\"],[\"mlx5_0\"]]}");
    te_engine_destroy(e);
    fake_sysfs_remove(&s);
}

static void what_is_found_as_json(void **state)
{
    char text[TEXT_MAX], again[TEXT_MAX];
    struct fake_sysfs s;
    json_t *all, *want;
    te_engine *e;

    (void)state;
    unsetenv("TE_FAULT");
    make_machine(&s);
    e = engine_at(&s, "mlx5_2,mlx5_1");
    assert_int_equal(te_links(e, 1, text, sizeof(text)), 0);
    assert_int_equal(showLinks(e, again, sizeof(again), 1), 0);
    assert_string_equal(text, again);
    assert_true(showLinks(e, NULL, 0, 1) < 0);
    all = json_loads(text, 0, NULL);
    want = json_pack("{s:[{ss si ss si si sf ss ss ss sb ss ss},{ss si ss si si sf ss ss ss sb ss},"
                     "{ss si ss si si sf ss ss ss sb ss ss}],s:{s:[[],[s]],s:[[s],[]]}}",
                     "local_nics", "device", "mlx5_0", "numa", 0, "gid",
                     "fe80:0000:0000:0000:0000:0000:0000:0001", "gid_index", 0, "port", 1,
                     "speed_gbps", 100.0, "state", "ACTIVE", "link_layer", "InfiniBand", "pci",
                     "0000:01:00.0", "usable", 0, "why",
                     "MC_TE_FILTERS (mlx5_2,mlx5_1) leaves it out", "source", "topology", "device",
                     "mlx5_1", "numa", 1, "gid", "fe80:0000:0000:0000:0000:0000:0000:0002",
                     "gid_index", 0, "port", 1, "speed_gbps", 100.0, "state", "ACTIVE",
                     "link_layer", "InfiniBand", "pci", "0000:81:00.0", "usable", 1, "source",
                     "topology", "device", "mlx5_2", "numa", 1, "gid", "", "gid_index", -1, "port",
                     1, "speed_gbps", 40.0, "state", "DOWN", "link_layer", "InfiniBand", "pci",
                     "0000:82:00.0", "usable", 0, "why", "port 1 is DOWN", "source", "topology",
                     "topology", "cpu:0", "mlx5_1", "cpu:1", "mlx5_1");
    assert_non_null(want);
    /* Node 0 has no NIC that may be used: the nearest is that of node 1. */
    json_object_set_new(json_object_get(want, "topology"), "cpu:0",
                        json_pack("[[s],[]]", "mlx5_1"));
    if (!json_equal(all, want))
        fail_msg("%s", text);
    json_decref(all);
    json_decref(want);
    te_engine_destroy(e);
    fake_sysfs_remove(&s);
}

/* The matrix that was given is told, and the NICs of the machine all the same. */
static void a_given_matrix_counts(void **state)
{
    char text[TEXT_MAX];
    struct fake_sysfs s;
    te_engine *e;

    (void)state;
    unsetenv("TE_FAULT");
    make_machine(&s);
    e = engine_at(&s, "");
    assert_int_equal(te_transport_install(e, "tcp", "{\"cpu:1\":[[\"mlx5_9\"]]}"), 0);
    assert_int_equal(te_topology_json(e, text, sizeof(text)), 0);
    assert_string_equal(text, "{\"cpu:1\":[[\"mlx5_9\"],[]]}");
    assert_int_equal(te_links(e, 0, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "  mlx5_1  NUMA=1"));
    assert_non_null(strstr(text, "  cpu:1 -> preferred: [mlx5_9]  available: []\n"));
    assert_null(strstr(text, "cpu:0"));
    te_engine_destroy(e);
    fake_sysfs_remove(&s);
}

static void what_a_transport_adds(void **state)
{
    char text[TEXT_MAX];
    struct fake_sysfs s;
    te_engine *e;

    (void)state;
    make_machine(&s);
    setenv("TE_FAULT", "link=mlx5_1", 1);
    e = engine_at(&s, "");
    assert_int_equal(te_links(e, 0, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "  mlx5_1  NUMA=1  GID=::3 (idx=3)  Port=1  100Gbps  ACTIVE  "
                                 "InfiniBand  inflight=4096B  measured=12.50Gbps  used\n"));
    assert_non_null(strstr(text, "InfiniBand  (topology only;"));
    assert_int_equal(te_links(e, 1, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "\"source\":\"tcp_transport\""));
    te_engine_destroy(e);
    setenv("TE_FAULT", "link=unheard_of", 1);
    e = engine_at(&s, "");
    assert_int_equal(te_links(e, 0, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "  unheard_of  NUMA=-1  GID=::3 (idx=3)  Port=-1  inflight=4096B  "
                                 "measured=12.50Gbps  used\n"));
    te_engine_destroy(e);
    unsetenv("TE_FAULT");
    fake_sysfs_remove(&s);
}

static void broken_machine_is_an_error(void **state)
{
    char text[TEXT_MAX];
    struct fake_sysfs s;
    te_engine *e;

    (void)state;
    unsetenv("TE_FAULT");
    make_machine(&s);
    fake_sysfs_write(&s, "sysfs/hwloc.xml", "<topology>");
    e = engine_at(&s, "");
    assert_int_equal(te_links(e, 0, text, sizeof(text)), TE_ERR_SYSTEM);
    assert_int_equal(te_topology_json(e, text, sizeof(text)), TE_ERR_SYSTEM);
    assert_non_null(strstr(te_errmsg(), "hwloc.xml"));
    assert_int_equal(discoverTopology(e), TE_ERR_SYSTEM);
    te_engine_destroy(e);
    fake_sysfs_remove(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_found_as_text),      cmocka_unit_test(what_is_found_as_json),
        cmocka_unit_test(a_given_matrix_counts),      cmocka_unit_test(what_a_transport_adds),
        cmocka_unit_test(broken_machine_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
