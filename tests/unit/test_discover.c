/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discovery on machines written down by hwloc (tests/unit/data/hwloc), joined with a made-up sysfs
 * that says which NICs the kernel shows. The matrices were written by hand from the machines' maps.
 */
#include "conf/conf.h"
#include "fake_sysfs.h"
#include "plat/plat.h"
#include "test.h"
#include "topology_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MACHINES TE_TEST_SRC "/tests/unit/data/hwloc/"

static int set_up(void **state)
{
    static struct fake_sysfs s;

    fake_sysfs_make(&s);
    *state = &s;
    return 0;
}

static int tear_down(void **state)
{
    fake_sysfs_remove(*state);
    return 0;
}

static struct tei_look look_at(const struct fake_sysfs *s, const char *xml)
{
    return (
        struct tei_look){.sysfs = s->sysfs, .dev = s->dev, .xml = xml, .port = 1, .gid_index = -1};
}

static void check_text(char *found, const char *expected)
{
    json_t *want = json_loads(expected, 0, NULL);
    char *wanted;

    assert_non_null(want);
    wanted = tei_json_text(want, NULL);
    assert_string_equal(found, wanted);
    free(wanted);
    free(found);
    json_decref(want);
}

static void check_look(const struct tei_look *look, const char *expected)
{
    struct tei_topology t;

    assert_int_equal(tei_discover(look, NULL, &t), 0);
    check_text(topology_text(&t), expected);
    tei_topology_fini(&t);
}

static void check_matrix(const struct fake_sysfs *s, const char *xml, const char *expected)
{
    struct tei_look look = look_at(s, xml);

    check_look(&look, expected);
}

/* --------------------------------------------------------------------------------- the machines */

/*
 * The only NIC is at node 0. Node 1 has none, and node 0's is its nearest. All GPUs have no nearer
 * one either. The ES1000 on the board (an AMD VGA device) is no GPU to compute on.
 */
static void one_nic_serves_all(void **state)
{
    fake_sysfs_nic(*state, "mlx4_0", "0000:05:00.0", 0);
    check_matrix(*state, MACHINES "24em64t-2n6c2t-pci.xml",
                 "{\"cpu:0\":[[\"mlx4_0\"],[]],\"cpu:1\":[[\"mlx4_0\"],[]],"
                 "\"cuda:0\":[[\"mlx4_0\"],[]],\"cuda:1\":[[\"mlx4_0\"],[]],"
                 "\"cuda:2\":[[\"mlx4_0\"],[]]}");
}

/* The first `old` by `new`, of one length. */
static void replace(char *xml, const char *old, const char *new)
{
    char *at = strstr(xml, old);

    assert_non_null(at);
    assert_int_equal(strlen(old), strlen(new));
    memcpy(at, new, strlen(new));
}

/* By vendor and class alone. A Huawei device of another class drives the screen of a server. */
static void accelerators_of_other_makers(void **state)
{
    static const char *const devices[] = {"1200 [19e5:d802] [0200:0100]",
                                          "0300 [1ed5:0222] [1ed5:0001]",
                                          "0300 [19e5:1711] [19e5:1711]"};
    const struct fake_sysfs *s = *state;
    static char xml[256 << 10];
    char path[128];
    FILE *f = fopen(MACHINES "24em64t-2n6c2t-pci.xml", "re");
    size_t n = f ? fread(xml, 1, sizeof(xml) - 1, f) : 0;

    assert_true(n > 0 && n < sizeof(xml) - 1);
    fclose(f);
    for (size_t i = 0; i < TEI_ARRAY_LEN(devices); i++)
        replace(xml, "0302 [10de:06d2] [00de:0030]", devices[i]);
    fake_sysfs_write(s, "accelerators.xml", xml);
    fake_sysfs_nic(*state, "mlx4_0", "0000:05:00.0", 0);
    snprintf(path, sizeof(path), "%s/accelerators.xml", s->root);
    check_matrix(s, path,
                 "{\"cpu:0\":[[\"mlx4_0\"],[]],\"cpu:1\":[[\"mlx4_0\"],[]],"
                 "\"npu:0\":[[\"mlx4_0\"],[]],\"musa:0\":[[\"mlx4_0\"],[]]}");
}

/*
 * A second NIC in the slot of the Ethernet card 04:00.1 of node 0, and a third one in node 1 of
 * which the map knows nothing but sysfs its node. GPU 06:00.0 is at node 0, the other two at 1.
 */
static void nics_by_address_and_by_node(void **state)
{
    fake_sysfs_nic(*state, "mlx4_0", "0000:05:00.0", 0);
    fake_sysfs_nic(*state, "irdma0", "0000:04:00.1", -1);
    fake_sysfs_nic(*state, "bnxt_re0", "0000:7f:00.0", 1);
    check_matrix(*state, MACHINES "24em64t-2n6c2t-pci.xml",
                 "{\"cpu:0\":[[\"irdma0\",\"mlx4_0\"],[\"bnxt_re0\"]],"
                 "\"cpu:1\":[[\"bnxt_re0\"],[\"irdma0\",\"mlx4_0\"]],"
                 "\"cuda:0\":[[\"irdma0\",\"mlx4_0\"],[\"bnxt_re0\"]],"
                 "\"cuda:1\":[[\"bnxt_re0\"],[\"irdma0\",\"mlx4_0\"]],"
                 "\"cuda:2\":[[\"bnxt_re0\"],[\"irdma0\",\"mlx4_0\"]]}");
}

/*
 * mlx5_0 is behind the root port 80:03.0, with GPU 84:00.0 (cuda:2) and the AMD GPU 84:00.1; its
 * address 04:00.0 is also that of a disk controller of node 0, so the name must count. i0 is behind
 * the root port 80:01.0. GPU 83:00.0 (cuda:1) shares the root complex with both; GPU 03:00.0
 * (cuda:0) is at node 0, from where both are equally far.
 */
static void one_root_port_is_nearest(void **state)
{
    fake_sysfs_nic(*state, "mlx5_0", "0000:04:00.0", 1);
    fake_sysfs_nic(*state, "i0", "0000:81:00.0", 1);
    check_matrix(*state, MACHINES "32em64t-2n8c2t-pci-wholeio.xml",
                 "{\"cpu:0\":[[\"i0\",\"mlx5_0\"],[]],\"cpu:1\":[[\"i0\",\"mlx5_0\"],[]],"
                 "\"cuda:0\":[[\"i0\",\"mlx5_0\"],[]],\"cuda:1\":[[\"i0\",\"mlx5_0\"],[]],"
                 "\"cuda:2\":[[\"mlx5_0\"],[\"i0\"]],\"hip:0\":[[\"mlx5_0\"],[\"i0\"]]}");
}

/* Two NICs a node, in one package behind switches of switches; no GPU. */
static void several_nics_a_node(void **state)
{
    fake_sysfs_nic(*state, "usnic_0", "0000:0b:00.0", 0);
    fake_sysfs_nic(*state, "usnic_1", "0000:0c:00.0", 0);
    fake_sysfs_nic(*state, "usnic_2", "0000:88:00.0", 1);
    fake_sysfs_nic(*state, "usnic_3", "0000:89:00.0", 1);
    check_matrix(*state, MACHINES "16intel64-manyVFs.xml",
                 "{\"cpu:0\":[[\"usnic_0\",\"usnic_1\"],[\"usnic_2\",\"usnic_3\"]],"
                 "\"cpu:1\":[[\"usnic_2\",\"usnic_3\"],[\"usnic_0\",\"usnic_1\"]]}");
}

/*
 * NICs in a slot of node 0 and of node 5. Distances from the map: node 1 is 50 from node 0 and 65
 * from 5; nodes 2, 3 and 4 are 65 from both; node 6 is 65 from 0 and 50 from 5; node 7 is 65 from 0
 * and 79 from 5. The GPUs are at nodes 4 and 7.
 */
static void distances_decide_for_nodes_without(void **state)
{
    fake_sysfs_nic(*state, "a", "0000:01:00.0", 0);
    fake_sysfs_nic(*state, "b", "0003:01:00.0", 5);
    check_matrix(*state, MACHINES "64intel64-3g2n+2n-irregulargroups+pci.xml",
                 "{\"cpu:0\":[[\"a\"],[\"b\"]],\"cpu:1\":[[\"a\"],[\"b\"]],"
                 "\"cpu:2\":[[\"a\",\"b\"],[]],\"cpu:3\":[[\"a\",\"b\"],[]],"
                 "\"cpu:4\":[[\"a\",\"b\"],[]],\"cpu:5\":[[\"b\"],[\"a\"]],"
                 "\"cpu:6\":[[\"b\"],[\"a\"]],\"cpu:7\":[[\"a\"],[\"b\"]],"
                 "\"cuda:0\":[[\"a\",\"b\"],[]],\"cuda:1\":[[\"a\"],[\"b\"]]}");
}

/* GPUs 2:01 and 3:01 are at node 0, a:01 and b:01 at node 1; the NICs are known by node only. */
static void domains_and_nodes(void **state)
{
    fake_sysfs_nic(*state, "mlx5_0", "0001:03:00.0", 0);
    fake_sysfs_nic(*state, "mlx5_1", "0009:03:00.0", 1);
    check_matrix(*state, MACHINES "power8gpudistances.xml",
                 "{\"cpu:0\":[[\"mlx5_0\"],[\"mlx5_1\"]],\"cpu:1\":[[\"mlx5_1\"],[\"mlx5_0\"]],"
                 "\"cuda:0\":[[\"mlx5_0\"],[\"mlx5_1\"]],\"cuda:1\":[[\"mlx5_0\"],[\"mlx5_1\"]],"
                 "\"cuda:2\":[[\"mlx5_1\"],[\"mlx5_0\"]],\"cuda:3\":[[\"mlx5_1\"],[\"mlx5_0\"]]}");
}

/* One node: sysfs knows no node there, the map does. A virtual NIC is known to neither. */
static void one_node_in_old_xml(void **state)
{
    fake_sysfs_nic(*state, "mlx4_0", "0000:0a:00.0", -1);
    fake_sysfs_nic(*state, "rxe0", NULL, -1);
    check_matrix(*state, MACHINES "8em64t-2p2ca2co-nonodesets.v1.xml",
                 "{\"cpu:0\":[[\"mlx4_0\"],[\"rxe0\"]]}");
}

/* PCI hangs at the whole machine: unless sysfs knows better, the NIC is near nobody. */
static void unknown_locality(void **state)
{
    fake_sysfs_nic(*state, "qib0", "0000:43:00.0", -1);
    check_matrix(*state, MACHINES "40intel64-2g2n4c+pci.xml",
                 "{\"cpu:0\":[[],[\"qib0\"]],\"cpu:1\":[[],[\"qib0\"]],"
                 "\"cpu:2\":[[],[\"qib0\"]],\"cpu:3\":[[],[\"qib0\"]]}");
}

static void sysfs_knows_better(void **state)
{
    fake_sysfs_nic(*state, "qib0", "0000:43:00.0", 2);
    fake_sysfs_nic(*state, "rxe0", NULL, -1);
    check_matrix(*state, MACHINES "40intel64-2g2n4c+pci.xml",
                 "{\"cpu:0\":[[\"qib0\"],[\"rxe0\"]],\"cpu:1\":[[\"qib0\"],[\"rxe0\"]],"
                 "\"cpu:2\":[[\"qib0\"],[\"rxe0\"]],\"cpu:3\":[[\"qib0\"],[\"rxe0\"]]}");
}

/* Nodes have the kernel's numbers, gaps and all. */
static void nodes_with_gaps(void **state)
{
    fake_sysfs_nic(*state, "mlx5_0", "0003:01:00.0", 0);
    fake_sysfs_nic(*state, "mlx5_2", "0033:01:00.0", 8);
    check_matrix(*state, MACHINES "nvidiagpunumanodes.xml",
                 "{\"cpu:0\":[[\"mlx5_0\"],[\"mlx5_2\"]],\"cpu:8\":[[\"mlx5_2\"],[\"mlx5_0\"]]}");
}

static void add_ten_nics(struct fake_sysfs *s, const char *down_a, const char *down_b)
{
    static const char *const nics[][2] = {{"mlx5_11", "0000:d1:00.0"}, {"mlx5_10", "0000:51:00.0"},
                                          {"mlx5_0", "0000:15:00.0"},  {"mlx5_1", "0000:16:00.0"},
                                          {"mlx5_2", "0000:35:00.0"},  {"mlx5_3", "0000:36:00.0"},
                                          {"mlx5_4", "0000:95:00.0"},  {"mlx5_5", "0000:96:00.0"},
                                          {"mlx5_6", "0000:b5:00.0"},  {"mlx5_7", "0000:b6:00.0"}};

    for (size_t i = 0; i < TEI_ARRAY_LEN(nics); i++) {
        bool down = strcmp(nics[i][0], down_a) == 0 || strcmp(nics[i][0], down_b) == 0;

        fake_sysfs_add(s, &(struct fake_nic){.name = nics[i][0],
                                             .pci = nics[i][1],
                                             .numa = nics[i][1][5] < '9' ? 0 : 1,
                                             .state = down ? "1: DOWN" : NULL});
    }
}

/*
 * Two GPUs and two NICs behind each switch: these are each other's. mlx5_10 and mlx5_11 have root
 * ports of their own; the AMD card shares the root complex of mlx5_11.
 */
static void switches(void **state)
{
    add_ten_nics(*state, "", "");
    check_matrix(*state, MACHINES "8gpu-switches.xml",
                 "{\"cpu:0\":[[\"mlx5_0\",\"mlx5_1\",\"mlx5_2\",\"mlx5_3\",\"mlx5_10\"],"
                 "[\"mlx5_4\",\"mlx5_5\",\"mlx5_6\",\"mlx5_7\",\"mlx5_11\"]],"
                 "\"cpu:1\":[[\"mlx5_4\",\"mlx5_5\",\"mlx5_6\",\"mlx5_7\",\"mlx5_11\"],"
                 "[\"mlx5_0\",\"mlx5_1\",\"mlx5_2\",\"mlx5_3\",\"mlx5_10\"]],"
                 "\"cuda:0\":[[\"mlx5_0\",\"mlx5_1\"],[\"mlx5_2\",\"mlx5_3\",\"mlx5_4\",\"mlx5_5\","
                 "\"mlx5_6\",\"mlx5_7\",\"mlx5_10\",\"mlx5_11\"]],"
                 "\"cuda:1\":[[\"mlx5_0\",\"mlx5_1\"],[\"mlx5_2\",\"mlx5_3\",\"mlx5_4\",\"mlx5_5\","
                 "\"mlx5_6\",\"mlx5_7\",\"mlx5_10\",\"mlx5_11\"]],"
                 "\"cuda:2\":[[\"mlx5_2\",\"mlx5_3\"],[\"mlx5_0\",\"mlx5_1\",\"mlx5_4\",\"mlx5_5\","
                 "\"mlx5_6\",\"mlx5_7\",\"mlx5_10\",\"mlx5_11\"]],"
                 "\"cuda:3\":[[\"mlx5_2\",\"mlx5_3\"],[\"mlx5_0\",\"mlx5_1\",\"mlx5_4\",\"mlx5_5\","
                 "\"mlx5_6\",\"mlx5_7\",\"mlx5_10\",\"mlx5_11\"]],"
                 "\"cuda:4\":[[\"mlx5_4\",\"mlx5_5\"],[\"mlx5_0\",\"mlx5_1\",\"mlx5_2\",\"mlx5_3\","
                 "\"mlx5_6\",\"mlx5_7\",\"mlx5_10\",\"mlx5_11\"]],"
                 "\"cuda:5\":[[\"mlx5_4\",\"mlx5_5\"],[\"mlx5_0\",\"mlx5_1\",\"mlx5_2\",\"mlx5_3\","
                 "\"mlx5_6\",\"mlx5_7\",\"mlx5_10\",\"mlx5_11\"]],"
                 "\"cuda:6\":[[\"mlx5_6\",\"mlx5_7\"],[\"mlx5_0\",\"mlx5_1\",\"mlx5_2\",\"mlx5_3\","
                 "\"mlx5_4\",\"mlx5_5\",\"mlx5_10\",\"mlx5_11\"]],"
                 "\"cuda:7\":[[\"mlx5_6\",\"mlx5_7\"],[\"mlx5_0\",\"mlx5_1\",\"mlx5_2\",\"mlx5_3\","
                 "\"mlx5_4\",\"mlx5_5\",\"mlx5_10\",\"mlx5_11\"]],"
                 "\"hip:0\":[[\"mlx5_11\"],[\"mlx5_0\",\"mlx5_1\",\"mlx5_2\",\"mlx5_3\",\"mlx5_4\","
                 "\"mlx5_5\",\"mlx5_6\",\"mlx5_7\",\"mlx5_10\"]]}");
}

/* Both NICs of the third switch are down: its GPUs prefer the others of their NUMA node. */
static void nics_that_are_down_are_left_out(void **state)
{
    struct tei_look look = look_at(*state, MACHINES "8gpu-switches.xml");
    const struct tei_topology_row *row;
    struct tei_topology t;

    add_ten_nics(*state, "mlx5_4", "mlx5_5");
    assert_int_equal(tei_discover(&look, NULL, &t), 0);
    row = topology_row(&t, "cuda:4");
    assert_non_null(row);
    assert_int_equal(row->n_preferred, 3);
    assert_string_equal(row->preferred[0], "mlx5_6");
    assert_string_equal(row->preferred[1], "mlx5_7");
    assert_string_equal(row->preferred[2], "mlx5_11");
    assert_int_equal(row->n_available, 5);
    row = topology_row(&t, "cpu:1");
    assert_int_equal(row->n_preferred + row->n_available, 8);
    tei_topology_fini(&t);
}

/* This map has no distances, so a node without a NIC prefers none. */
static void options_leave_nics_out(void **state)
{
    struct tei_look look = look_at(*state, MACHINES "16intel64-manyVFs.xml");

    fake_sysfs_nic(*state, "usnic_0", "0000:0b:00.0", 0);
    fake_sysfs_nic(*state, "usnic_1", "0000:0c:00.0", 0);
    fake_sysfs_nic(*state, "usnic_2", "0000:88:00.0", 1);
    fake_sysfs_nic(*state, "usnic_20", "0000:89:00.0", 1);
    look.devices = "usnic_2,usnic_1, usnic_0";
    check_look(&look, "{\"cpu:0\":[[\"usnic_0\",\"usnic_1\"],[\"usnic_2\"]],"
                      "\"cpu:1\":[[\"usnic_2\"],[\"usnic_0\",\"usnic_1\"]]}");
    look.filters = " usnic_1 ,,usnic_20";
    check_look(&look, "{\"cpu:0\":[[\"usnic_1\"],[]],\"cpu:1\":[[],[\"usnic_1\"]]}");
    look.devices = "";
    check_look(&look, "{\"cpu:0\":[[\"usnic_1\"],[\"usnic_20\"]],"
                      "\"cpu:1\":[[\"usnic_20\"],[\"usnic_1\"]]}");
    look.filters = "mlx5_0";
    check_look(&look, "{\"cpu:0\":[[],[]],\"cpu:1\":[[],[]]}");
}

/* ---------------------------------------------------------------------------------- without hwloc */

static void nodes_of_a_made_up_sysfs(void **state)
{
    check_matrix(*state, NULL, "{\"cpu:0\":[[],[]]}");
    fake_sysfs_node(*state, 0, "10 12 32");
    fake_sysfs_node(*state, 1, "12 10 32");
    fake_sysfs_node(*state, 10, "32 32 10");
    fake_sysfs_nic(*state, "s0", "0000:01:00.0", 0);
    fake_sysfs_nic(*state, "s1", "0000:02:00.0", 10);
    check_matrix(*state, NULL,
                 "{\"cpu:0\":[[\"s0\"],[\"s1\"]],\"cpu:1\":[[\"s0\"],[\"s1\"]],"
                 "\"cpu:10\":[[\"s1\"],[\"s0\"]]}");
    fake_sysfs_write(*state, "sysfs/devices/system/node/node1/distance", "12 10");
    check_matrix(*state, NULL,
                 "{\"cpu:0\":[[\"s0\"],[\"s1\"]],\"cpu:1\":[[],[\"s0\",\"s1\"]],"
                 "\"cpu:10\":[[\"s1\"],[\"s0\"]]}");
}

static void xml_beside_a_made_up_sysfs(void **state)
{
    const struct fake_sysfs *s = *state;
    char path[128];

    fake_sysfs_nic(*state, "mlx4_0", "0000:0a:00.0", -1);
    snprintf(path, sizeof(path), "%s/hwloc.xml", s->sysfs);
    assert_int_equal(symlink(MACHINES "8em64t-2p2ca2co-nonodesets.v1.xml", path), 0);
    check_matrix(s, NULL, "{\"cpu:0\":[[\"mlx4_0\"],[]]}");
}

static void bad_xml_is_an_error(void **state)
{
    struct tei_look look = look_at(*state, "/nonexistent.xml");
    struct tei_nics nics = {.n = 77};
    struct tei_topology t = {.n_rows = 77};

    assert_int_equal(tei_discover(&look, &nics, &t), TE_ERR_SYSTEM);
    assert_non_null(strstr(te_errmsg(), "/nonexistent.xml"));
    assert_int_equal(nics.n, 77);
    assert_int_equal(t.n_rows, 77);
}

/* This machine, whatever it is: a row for each of its nodes, and only names of its NICs. */
TEST(this_machine)
{
    static struct tei_conf conf;
    struct tei_look look;
    struct tei_topology t;
    struct tei_nics nics;
    int *nodes;
    size_t n;

    assert_int_equal(tei_conf_load(NULL, &conf), 0);
    look = tei_look_from(&conf, NULL);
    assert_int_equal(tei_discover(&look, &nics, &t), 0);
    assert_int_equal(tei_numa_nodes("/sys", &nodes, &n), 0);
    assert_true(n >= 1 && t.n_rows >= 1);
    assert_int_equal(strncmp(t.rows[0].location, "cpu:", 4), 0);
    for (size_t i = 0; i < t.n_rows; i++)
        assert_true(t.rows[i].n_preferred + t.rows[i].n_available <= nics.n);
    free(nodes);
    tei_topology_fini(&t);
    tei_nics_fini(&nics);
}

/* ------------------------------------------------------------------------------------------- NICs */

static struct tei_nic look_up(const struct tei_look *look, const char *name)
{
    struct tei_nics nics;
    struct tei_nic nic = {0};

    assert_int_equal(tei_nics_list(look, &nics), 0);
    for (size_t i = 0; i < nics.n; i++)
        if (strcmp(nics.v[i].name, name) == 0)
            nic = nics.v[i];
    tei_nics_fini(&nics);
    assert_string_equal(nic.name, name);
    return nic;
}

static void what_is_told_of_a_nic(void **state)
{
    struct tei_look look = look_at(*state, NULL);
    struct tei_nic nic;

    fake_sysfs_add(*state, &(struct fake_nic){.name = "mlx5_0",
                                              .pci = "10000:81:00.1",
                                              .numa = 3,
                                              .rate = "2.5 Gb/sec (1X SDR)",
                                              .layer = "Ethernet",
                                              .gid = "0000:0000:0000:0000:0000:0000:0000:0000"});
    fake_sysfs_write(*state, "sysfs/class/infiniband/mlx5_0/ports/1/gids/3",
                     "0000:0000:0000:0000:0000:ffff:0a00:0001");
    nic = look_up(&look, "mlx5_0");
    assert_true(nic.usable);
    assert_string_equal(nic.why, "");
    assert_string_equal(nic.pci, "10000:81:00.1");
    assert_int_equal(nic.numa, 3);
    assert_string_equal(nic.state, "ACTIVE");
    assert_true(nic.speed_gbps == 2.5);
    assert_string_equal(nic.link_layer, "Ethernet");
    assert_string_equal(nic.gid, "0000:0000:0000:0000:0000:ffff:0a00:0001");
    assert_int_equal(nic.gid_index, 3);
    assert_int_equal(nic.port, 1);
    look.gid_index = 1;
    nic = look_up(&look, "mlx5_0");
    assert_false(nic.usable);
    assert_non_null(strstr(nic.why, "index 1 (MC_GID_INDEX)"));
    assert_string_equal(nic.gid, "");
    assert_int_equal(nic.gid_index, -1);
}

static void check_why(const struct tei_look *look, const char *name, const char *why)
{
    struct tei_nic nic = look_up(look, name);

    assert_false(nic.usable);
    if (!strstr(nic.why, why))
        fail_msg("%s: '%s' does not say '%s'", name, nic.why, why);
}

static void why_a_nic_is_not_usable(void **state)
{
    struct fake_sysfs *s = *state;
    struct tei_look look = look_at(s, NULL);

    fake_sysfs_add(s, &(struct fake_nic){.name = "down", .state = "1: DOWN"});
    fake_sysfs_add(s, &(struct fake_nic){.name = "init", .state = "2: INIT"});
    fake_sysfs_write(s, "sysfs/class/infiniband/init/ports/2/state", "4: ACTIVE");
    fake_sysfs_add(s, &(struct fake_nic){.name = "portless", .state = ""});
    fake_sysfs_add(s, &(struct fake_nic){.name = "verbless", .no_verbs = true});
    fake_sysfs_add(s, &(struct fake_nic){.name = "nodeless", .no_node = true});
    fake_sysfs_add(s, &(struct fake_nic){.name = "file", .no_node = true});
    fake_sysfs_write(s, "dev/infiniband/uverbs5", "");
    fake_sysfs_add(s, &(struct fake_nic){.name = "roce", .layer = "Ethernet", .gid = ""});
    fake_sysfs_add(s, &(struct fake_nic){.name = "lid", .gid = ""});
    fake_sysfs_nic(s, "good", NULL, -1);
    check_why(&look, "down", "port 1 is DOWN");
    check_why(&look, "init", "port 1 is INIT, port 2 is up: MC_IB_PORT chooses");
    check_why(&look, "portless", "it has no port 1");
    check_why(&look, "verbless", "ib_uverbs");
    check_why(&look, "nodeless", "/dev/infiniband/uverbs4: No such file");
    check_why(&look, "file", "/dev/infiniband/uverbs5 is no character device");
    check_why(&look, "roce", "port 1 has no GID");
    assert_true(look_up(&look, "lid").usable);
    assert_true(look_up(&look, "good").usable);
    look.devices = "lid";
    check_why(&look, "good", "not one of the devices asked for (lid)");
    look.devices = NULL;
    look.filters = "goo,d";
    check_why(&look, "good", "MC_TE_FILTERS (goo,d) leaves it out");
    look.filters = "good,lid";
    look.without = "goo, good";
    check_why(&look, "good", "MC_TE_FILTERS_EXCLUDE (goo, good) leaves it out");
    assert_true(look_up(&look, "lid").usable);
    look.filters = NULL;
    look.without = " ,";
    assert_true(look_up(&look, "good").usable);
    look.port = 2;
    assert_true(look_up(&look, "init").port == 2);
    check_why(&look, "good", "it has no port 2, port 1 is up: MC_IB_PORT chooses");
}

/* In a child that is not root, as root may open everything. */
static void node_that_may_not_be_opened(void **state)
{
    struct fake_sysfs *s = *state;
    struct tei_look look = look_at(s, NULL);
    char path[128];
    int status;
    pid_t pid;

    if (getuid() != 0)
        skip();
    fake_sysfs_add(s, &(struct fake_nic){.name = "mine", .no_node = true});
    snprintf(path, sizeof(path), "%s/infiniband", s->dev);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof(path), "%s/infiniband/uverbs0", s->dev);
    if (mknod(path, S_IFCHR | 0600, 0x0103) != 0)
        skip();
    assert_int_equal(chmod(s->root, 0755), 0);
    assert_true(look_up(&look, "mine").usable);
    pid = fork();
    if (pid == 0) {
        struct tei_nics nics;

        if (setuid(65534) != 0 || tei_nics_list(&look, &nics) != 0)
            _exit(2);
        _exit(nics.n == 1 && !nics.v[0].usable && strstr(nics.v[0].why, "Permission denied") ? 0
                                                                                             : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void no_nics(void **state)
{
    struct tei_look look = look_at(*state, NULL);
    struct tei_nics nics;

    look.sysfs = "/nonexistent";
    assert_int_equal(tei_nics_list(&look, &nics), 0);
    assert_int_equal(nics.n, 0);
    tei_nics_fini(&nics);
}

#define RIGGED(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIGGED(one_nic_serves_all),
        RIGGED(accelerators_of_other_makers),
        RIGGED(nics_by_address_and_by_node),
        RIGGED(one_root_port_is_nearest),
        RIGGED(several_nics_a_node),
        RIGGED(distances_decide_for_nodes_without),
        RIGGED(domains_and_nodes),
        RIGGED(one_node_in_old_xml),
        RIGGED(unknown_locality),
        RIGGED(sysfs_knows_better),
        RIGGED(nodes_with_gaps),
        RIGGED(switches),
        RIGGED(nics_that_are_down_are_left_out),
        RIGGED(options_leave_nics_out),
        RIGGED(nodes_of_a_made_up_sysfs),
        RIGGED(xml_beside_a_made_up_sysfs),
        RIGGED(bad_xml_is_an_error),
        RIGGED(this_machine),
        RIGGED(what_is_told_of_a_nic),
        RIGGED(why_a_nic_is_not_usable),
        RIGGED(node_that_may_not_be_opened),
        RIGGED(no_nics),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
