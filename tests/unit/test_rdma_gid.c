/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/rdma/rdma_gid.h"
#include "test.h"

#include "te.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GID        "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:01"
#define GID_KERNEL "0000:0000:0000:0000:0000:ffff:0a4d:0001"
#define NULL_GID   "0000:0000:0000:0000:0000:0000:0000:0000"

static const uint8_t gid_bytes[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = 77, [15] = 1};

/* A GID from an address as people write it. */
static void set_gid(const char *address, uint8_t gid[16])
{
    memset(gid, 0, 16);
    if (!strchr(address, ':')) {
        gid[10] = gid[11] = 0xff;
        assert_int_equal(inet_pton(AF_INET, address, gid + 12), 1);
    } else {
        assert_int_equal(inet_pton(AF_INET6, address, gid), 1);
    }
}

static struct tei_gid_entry entry(int index, int type, const char *address, const char *ndev)
{
    struct tei_gid_entry e = {.index = index, .type = type};

    set_gid(address, e.gid);
    snprintf(e.ndev, sizeof(e.ndev), "%s", ndev);
    return e;
}

static struct tei_gid_entry v2(int index, const char *address, const char *ndev)
{
    return entry(index, TEI_GID_ROCE_V2, address, ndev);
}

/* ---- text */

TEST(both_forms_are_read_and_one_is_written)
{
    static const char *const forms[] = {GID, GID_KERNEL, "0000:0000:0000:0000:0000:FFFF:0A4D:0001",
                                        "00:00:00:00:00:00:00:00:00:00:FF:fF:0A:4d:00:01"};
    char text[TEI_GID_TEXT];

    for (size_t i = 0; i < TEI_ARRAY_LEN(forms); i++) {
        uint8_t gid[16] = {9, 9, 9};

        assert_true(tei_gid_parse(forms[i], gid));
        assert_memory_equal(gid, gid_bytes, 16);
        tei_gid_text(gid, text);
        assert_string_equal(text, GID);
    }
}

TEST(every_byte_survives)
{
    uint8_t gid[16], again[16];
    char text[TEI_GID_TEXT];

    for (int round = 0; round < 256; round++) {
        for (int i = 0; i < 16; i++)
            gid[i] = (uint8_t)(round + 17 * i);
        tei_gid_text(gid, text);
        assert_int_equal(strlen(text), 47);
        assert_true(tei_gid_parse(text, again));
        assert_memory_equal(gid, again, 16);
    }
}

TEST(other_forms_are_refused)
{
    static const char *const bad[] = {
        "",
        ":",
        "::",
        "fe80::1",
        "10.0.0.1",
        GID ":",
        GID "0",
        " " GID,
        GID " ",
        GID ":00",
        GID_KERNEL ":",
        GID_KERNEL "0",
        GID_KERNEL ":0000",
        "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00",
        "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:0",
        "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:0g",
        "00-00-00-00-00-00-00-00-00-00-ff-ff-0a-4d-00-01",
        "00000000000000000000ffff0a4d0001",
        "0000:0000:0000:0000:0000:ff:ff:0a4d:0001",
        "+0:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:01",
    };

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        uint8_t gid[16] = {9, 9, 9}, before[16] = {9, 9, 9};

        if (tei_gid_parse(bad[i], gid))
            fail_msg("'%s' was taken for a GID", bad[i]);
        assert_memory_equal(gid, before, 16);
    }
}

TEST(scopes_have_names)
{
    static const struct {
        const char *address, *name;
    } cases[] = {
        {"8.8.8.8", "public IPv4"},       {"10.255.0.1", "private IPv4"},
        {"172.16.0.1", "private IPv4"},   {"172.31.255.255", "private IPv4"},
        {"172.32.0.1", "public IPv4"},    {"172.15.0.1", "public IPv4"},
        {"100.64.0.1", "private IPv4"},   {"100.127.0.1", "private IPv4"},
        {"100.128.0.1", "public IPv4"},   {"192.168.3.4", "private IPv4"},
        {"192.169.0.1", "public IPv4"},   {"169.254.1.1", "link-local IPv4"},
        {"127.0.0.1", "loopback IPv4"},   {"2001:db8::1", "global IPv6"},
        {"fd00::1", "unique-local IPv6"}, {"fc00::1", "unique-local IPv6"},
        {"fe00::1", "global IPv6"},       {"fe80::1", "link-local IPv6"},
        {"febf::1", "link-local IPv6"},   {"fec0::1", "global IPv6"},
        {"::1", "loopback IPv6"},         {"::", "null"},
        {"::10.0.0.1", "global IPv6"},
    };

    for (size_t i = 0; i < TEI_ARRAY_LEN(cases); i++) {
        uint8_t gid[16];

        set_gid(cases[i].address, gid);
        if (strcmp(tei_gid_scope_name(gid), cases[i].name) != 0)
            fail_msg("%s is said to be %s", cases[i].address, tei_gid_scope_name(gid));
        assert_int_equal(tei_gid_is_null(gid), strcmp(cases[i].name, "null") == 0);
    }
}

TEST(an_entry_is_described)
{
    struct tei_gid_entry a = v2(3, "10.0.0.2", "eth0");
    struct tei_gid_entry b = entry(0, TEI_GID_IB, "fe80::2:c903:31:7be1", "");
    struct tei_gid_entry c = entry(1, TEI_GID_ROCE_V1, "2001:db8::1", "ens1f0np0");
    char text[128], small[9];

    tei_gid_describe(&a, text, sizeof(text));
    assert_string_equal(text, "10.0.0.2 (private IPv4 on eth0, RoCE v2, index 3)");
    tei_gid_describe(&b, text, sizeof(text));
    assert_string_equal(text, "fe80::2:c903:31:7be1 (link-local IPv6, InfiniBand, index 0)");
    tei_gid_describe(&c, text, sizeof(text));
    assert_string_equal(text, "2001:db8::1 (global IPv6 on ens1f0np0, RoCE v1, index 1)");
    tei_gid_describe(&a, small, sizeof(small));
    assert_string_equal(small, "10.0.0.2");
}

/* ---- table: a folder as the kernel shows it */

struct port {
    char dir[64];
    char path[192]; /* the last one made */
};

static const char *path_of(struct port *p, const char *name)
{
    snprintf(p->path, sizeof(p->path), "%s/%s", p->dir, name);
    return p->path;
}

static void write_file(struct port *p, const char *name, const char *text)
{
    FILE *f = fopen(path_of(p, name), "w");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void write_entry(struct port *p, const char *index, const char *gid, const char *type,
                        const char *ndev)
{
    char name[64];

    snprintf(name, sizeof(name), "gids/%s", index);
    write_file(p, name, gid);
    if (type) {
        snprintf(name, sizeof(name), "gid_attrs/types/%s", index);
        write_file(p, name, type);
    }
    if (ndev) {
        snprintf(name, sizeof(name), "gid_attrs/ndevs/%s", index);
        write_file(p, name, ndev);
    }
}

static int make_port(void **state)
{
    static const char *const folders[] = {"gids", "gid_attrs", "gid_attrs/types",
                                          "gid_attrs/ndevs"};
    struct port *p = calloc(1, sizeof(*p));

    assert_non_null(p);
    /* There are thousands of files in one of the tests. */
    snprintf(p->dir, sizeof(p->dir), "%s/te_gid_XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    assert_non_null(mkdtemp(p->dir));
    for (size_t i = 0; i < TEI_ARRAY_LEN(folders); i++)
        assert_int_equal(mkdir(path_of(p, folders[i]), 0700), 0);
    *state = p;
    return 0;
}

static int remove_port(void **state)
{
    struct port *p = *state;
    char command[96];

    snprintf(command, sizeof(command), "rm -rf '%s'", p->dir);
    assert_int_equal(system(command), 0);
    free(p);
    return 0;
}

static void a_table_is_read_in_order(void **state)
{
    struct port *p = *state;
    struct tei_gid_entry *t;
    size_t n;

    write_file(p, "link_layer", "Ethernet\n");
    write_entry(p, "0", "fe80:0000:0000:0000:0002:c9ff:fe31:7be1\n", "IB/RoCE v1\n", "eth0\n");
    write_entry(p, "1", "fe80:0000:0000:0000:0002:c9ff:fe31:7be1\n", "RoCE v2\n", "eth0\n");
    write_entry(p, "2", NULL_GID "\n", "RoCE v2\n", "eth0\n");
    write_entry(p, "10", GID_KERNEL "\n", "RoCE v2\n", NULL);
    write_entry(p, "9", GID_KERNEL "\n", "IB/RoCE v1\n", "enp129s0f0np0.1\n");
    assert_int_equal(tei_gid_table_read(p->dir, &t, &n), 0);
    assert_int_equal(n, 4);
    assert_int_equal(t[0].index, 0);
    assert_int_equal(t[0].type, TEI_GID_ROCE_V1);
    assert_string_equal(t[0].ndev, "eth0");
    assert_int_equal(t[0].gid[0], 0xfe);
    assert_int_equal(t[0].gid[15], 0xe1);
    assert_int_equal(t[1].index, 1);
    assert_int_equal(t[1].type, TEI_GID_ROCE_V2);
    assert_int_equal(t[2].index, 9);
    assert_int_equal(t[2].type, TEI_GID_ROCE_V1);
    assert_string_equal(t[2].ndev, "enp129s0f0np0.1");
    assert_int_equal(t[3].index, 10);
    assert_memory_equal(t[3].gid, gid_bytes, 16);
    assert_string_equal(t[3].ndev, "");
    free(t);
}

static void the_link_tells_infiniband_from_roce(void **state)
{
    struct port *p = *state;
    struct tei_gid_entry *t;
    size_t n;

    write_file(p, "link_layer", "InfiniBand\n");
    write_entry(p, "0", "fe80:0000:0000:0000:0002:c903:0031:7be1\n", "IB/RoCE v1\n", NULL);
    assert_int_equal(tei_gid_table_read(p->dir, &t, &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(t[0].type, TEI_GID_IB);
    free(t);
}

static void hostile_tables_are_borne(void **state)
{
    struct port *p = *state;
    struct tei_gid_entry *t;
    char longer[4096];
    size_t n;

    memset(longer, '0', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    write_entry(p, "0", "", "RoCE v2\n", "eth0\n");
    write_entry(p, "1", "junk\n", "RoCE v2\n", "eth0\n");
    write_entry(p, "2", longer, "RoCE v2\n", "eth0\n");
    write_entry(p, "3", GID_KERNEL "\n", "RoCE v3\n", "eth0\n");
    write_entry(p, "4", GID_KERNEL "\n", longer, "eth0\n");
    write_entry(p, "5", GID_KERNEL "\n", NULL, "eth0\n");
    write_entry(p, "6", GID_KERNEL, "RoCE v2", longer);
    write_entry(p, "7", GID_KERNEL "\n", "RoCE v2\n", "1234567890123456\n");
    write_entry(p, "8", GID_KERNEL "\n", "RoCE v2\n", "a\033[1mb\n");
    write_entry(p, "9", GID_KERNEL "\n", "RoCE v2\n", "\n");
    write_entry(p, "11x", GID_KERNEL "\n", "RoCE v2\n", "eth0\n");
    write_entry(p, "-1", GID_KERNEL "\n", "RoCE v2\n", "eth0\n");
    write_entry(p, "01", GID_KERNEL "\n", "RoCE v2\n", "eth0\n");
    write_entry(p, "99999999999", GID_KERNEL "\n", "RoCE v2\n", "eth0\n");
    assert_int_equal(mkdir(path_of(p, "gids/12"), 0700), 0);
    assert_int_equal(mkfifo(path_of(p, "gids/13"), 0600), 0);
    assert_int_equal(symlink("nowhere", path_of(p, "gids/14")), 0);
    write_file(p, "gid_attrs/types/12", "RoCE v2\n");
    write_file(p, "gid_attrs/types/13", "RoCE v2\n");
    write_file(p, "gid_attrs/types/14", "RoCE v2\n");
    assert_int_equal(tei_gid_table_read(p->dir, &t, &n), 0);
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(t[i].index, 6 + i);
        assert_string_equal(t[i].ndev, "");
        assert_memory_equal(t[i].gid, gid_bytes, 16);
    }
    free(t);
}

static void an_empty_table_is_no_error(void **state)
{
    struct port *p = *state;
    struct tei_gid_entry dummy, *t = &dummy;
    size_t n = 5;

    assert_int_equal(tei_gid_table_read(p->dir, &t, &n), 0);
    assert_null(t);
    assert_int_equal(n, 0);
}

static void no_port_is_an_error(void **state)
{
    struct port *p = *state;
    struct tei_gid_entry dummy, *t = &dummy;
    size_t n = 5;

    assert_int_equal(rmdir(path_of(p, "gids")), 0);
    assert_int_equal(tei_gid_table_read(p->dir, &t, &n), TE_ERR_NO_DEVICE);
    assert_non_null(strstr(te_errmsg(), p->dir));
    assert_int_equal(tei_gid_table_read(path_of(p, "gone"), &t, &n), TE_ERR_NO_DEVICE);
    assert_non_null(strstr(te_errmsg(), "gone"));
    write_file(p, "gids", "a file");
    assert_int_equal(tei_gid_table_read(p->dir, &t, &n), TE_ERR_NO_DEVICE);
    assert_ptr_equal(t, &dummy);
    assert_int_equal(n, 5);
}

static void a_large_table_is_cut(void **state)
{
    struct port *p = *state;
    struct tei_gid_entry *t;
    char index[32];
    size_t n;

    write_file(p, "gid", GID_KERNEL "\n");
    write_file(p, "type", "RoCE v2\n");
    for (int i = 0; i < TEI_GID_MAX + 20; i++) {
        snprintf(index, sizeof(index), "gids/%d", i);
        assert_int_equal(symlink("../gid", path_of(p, index)), 0);
    }
    for (int i = 0; i < TEI_GID_MAX + 20; i++) {
        snprintf(index, sizeof(index), "gid_attrs/types/%d", i);
        assert_int_equal(symlink("../../type", path_of(p, index)), 0);
    }
    assert_int_equal(tei_gid_table_read(p->dir, &t, &n), 0);
    assert_int_equal(n, TEI_GID_MAX);
    for (size_t i = 1; i < n; i++)
        assert_true(t[i - 1].index < t[i].index);
    free(t);
}

/* ---- choice */

TEST(ranks_are_in_order)
{
    struct tei_gid_entry e[] = {
        v2(9, "8.8.8.8", "eth0"),
        v2(8, "8.8.8.8", ""),
        v2(7, "10.0.0.1", "eth0"),
        v2(6, "fe80::1", "eth0"),
        v2(5, "10.0.0.1", ""),
        v2(4, "fe80::1", ""),
        entry(3, TEI_GID_ROCE_V1, "8.8.8.8", "eth0"),
    };

    for (size_t i = 1; i < TEI_ARRAY_LEN(e); i++)
        assert_true(0 <= tei_gid_rank(&e[i - 1]) && tei_gid_rank(&e[i - 1]) < tei_gid_rank(&e[i]));
}

static void check_same_rank(struct tei_gid_entry a, struct tei_gid_entry b)
{
    assert_int_equal(tei_gid_rank(&a), tei_gid_rank(&b));
}

TEST(ranks_know_ranges_and_interfaces)
{
    struct tei_gid_entry none = v2(0, "::", "eth0");

    assert_true(tei_gid_rank(&none) < 0);
    check_same_rank(v2(0, "192.168.1.1", "eth0"), v2(0, "8.8.8.8", "eth0"));
    check_same_rank(v2(0, "2001:db8::1", "eth0"), v2(0, "8.8.8.8", "eth0"));
    check_same_rank(v2(0, "fd00::1", "eth0"), v2(0, "8.8.8.8", "eth0"));
    check_same_rank(v2(0, "172.20.1.1", "eth0"), v2(0, "10.0.0.1", "eth0"));
    check_same_rank(v2(0, "100.100.1.1", "eth0"), v2(0, "10.0.0.1", "eth0"));
    check_same_rank(v2(0, "169.254.1.1", "eth0"), v2(0, "fe80::1", "eth0"));
    check_same_rank(v2(0, "127.0.0.1", "lo"), v2(0, "fe80::1", "eth0"));
    check_same_rank(v2(0, "::1", "lo"), v2(0, "fe80::1", "eth0"));
    check_same_rank(v2(0, "8.8.8.8", "flannel.1"), v2(0, "fe80::1", "eth0"));
    check_same_rank(v2(0, "10.0.0.1", "cni0"), v2(0, "fe80::1", "eth0"));
    check_same_rank(v2(0, "10.0.0.1", "calico1"), v2(0, "fe80::1", "eth0"));
    check_same_rank(v2(0, "10.0.0.1", "vxlan.calico"), v2(0, "fe80::1", "eth0"));
    check_same_rank(v2(0, "172.17.0.1", "docker0"), v2(0, "fe80::1", "eth0"));
    check_same_rank(v2(0, "8.8.8.8", "tunl0"), v2(0, "fe80::1", "eth0"));
    check_same_rank(v2(0, "8.8.8.8", "tunl01"), v2(0, "8.8.8.8", "eth0"));
    check_same_rank(entry(0, TEI_GID_IB, "fe80::1", ""), v2(0, "8.8.8.8", ""));
}

/* The index of the choice, or the error. */
static int pick(const struct tei_gid_entry *all, size_t n, const char *peer, const uint64_t *tried)
{
    uint8_t gid[16];
    size_t at = n;
    int rc;

    if (peer)
        set_gid(peer, gid);
    rc = tei_gid_pick(all, n, peer ? gid : NULL, tried, &at);
    if (rc) {
        assert_int_equal(at, n);
        return rc;
    }
    assert_true(at < n);
    return all[at].index;
}

TEST(without_a_peer_the_rank_decides)
{
    const struct tei_gid_entry t[] = {
        v2(1, "fe80::1", "eth0"),  v2(3, "172.17.0.1", "docker0"), v2(5, "10.0.0.1", "eth0"),
        v2(9, "2001:db8::1", "e"), v2(7, "192.168.0.1", "eth1"),
    };

    assert_int_equal(pick(t, 5, NULL, NULL), 7);
    assert_int_equal(pick(t, 5, "::", NULL), 7);
    assert_int_equal(pick(t, 3, NULL, NULL), 5);
    assert_int_equal(pick(t, 2, NULL, NULL), 1);
    assert_int_equal(pick(t, 0, NULL, NULL), TE_ERR_NOT_FOUND);
}

TEST(bytes_of_another_kind_of_address_say_nothing)
{
    const struct tei_gid_entry t[] = {v2(0, "10.0.0.9", "docker0"), v2(1, "::1", "lo"),
                                      v2(2, "192.168.1.1", "eth0")};

    assert_int_equal(pick(t, 3, "fe80::a00:1", NULL), 2);
    assert_int_equal(pick(t, 3, "::", NULL), 2);
}

TEST(the_kind_of_the_peer_comes_first)
{
    const struct tei_gid_entry t[] = {
        v2(1, "fe80::1", "eth0"),  v2(2, "fd00:1::1", "eth0"),   v2(3, "2001:db8::1", "eth0"),
        v2(4, "10.0.0.1", "eth0"), v2(5, "169.254.7.7", "eth0"),
    };

    assert_int_equal(pick(t, 5, "10.9.9.9", NULL), 4);
    assert_int_equal(pick(t, 5, "8.8.8.8", NULL), 4);
    assert_int_equal(pick(t, 5, "2a00::1", NULL), 3);
    assert_int_equal(pick(t, 5, "fd77::1", NULL), 2);
    assert_int_equal(pick(t, 5, "fe80::2", NULL), 1);
    assert_int_equal(pick(t, 5, "169.254.3.3", NULL), 5);
    assert_int_equal(pick(t, 2, "2a00::1", NULL), 2);  /* no global one: the nearest thing to it */
    assert_int_equal(pick(t, 3, "10.9.9.9", NULL), 2); /* no IPv4: the best of what there is */
}

TEST(the_subnet_of_the_peer_comes_next)
{
    /* Eight rails, one subnet each, as on servers with a NIC for each GPU. */
    struct tei_gid_entry t[8];
    char address[32];

    for (int i = 0; i < 8; i++) {
        snprintf(address, sizeof(address), "10.1.%d.5", i);
        t[i] = v2(i, address, "eth0");
    }
    for (int i = 0; i < 8; i++) {
        snprintf(address, sizeof(address), "10.1.%d.77", i);
        assert_int_equal(pick(t, 8, address, NULL), i);
    }
}

TEST(rails_of_two_addresses_are_told_apart)
{
    const struct tei_gid_entry t[] = {v2(0, "10.0.0.0", "eth0"), v2(1, "10.0.0.2", "eth1"),
                                      v2(2, "10.0.0.4", "eth2")};

    assert_int_equal(pick(t, 3, "10.0.0.1", NULL), 0);
    assert_int_equal(pick(t, 3, "10.0.0.3", NULL), 1);
    assert_int_equal(pick(t, 3, "10.0.0.5", NULL), 2);
}

TEST(a_subnet_of_the_peer_beats_the_rank)
{
    const struct tei_gid_entry v4[] = {v2(0, "192.168.1.1", "eth0"), v2(1, "10.2.3.4", "")};
    const struct tei_gid_entry v6[] = {v2(0, "2001:db8:0:1::9", "eth0"),
                                       v2(1, "2001:db8:0:2::1", "")};

    assert_int_equal(pick(v4, 2, "10.2.3.9", NULL), 1);
    assert_int_equal(pick(v4, 2, "10.200.3.9", NULL), 1);
    assert_int_equal(pick(v6, 2, "2001:db8:0:2::7", NULL), 1);
}

/* A few bits in common by chance do not outweigh an interface that leads nowhere. */
TEST(chance_bits_do_not_beat_the_rank)
{
    const struct tei_gid_entry v4[] = {v2(0, "172.17.0.1", "docker0"), v2(1, "10.0.0.1", "eth0")};
    const struct tei_gid_entry one8[] = {v2(0, "10.244.0.1", "flannel.1"),
                                         v2(1, "10.0.0.1", "eth0")};
    const struct tei_gid_entry v6[] = {v2(0, "2001:db8:0:1::9", ""),
                                       v2(1, "2001:db8:0:1:8000::9", "eth0")};

    assert_int_equal(pick(v4, 2, "192.168.1.2", NULL), 1);
    assert_int_equal(pick(one8, 2, "10.200.0.1", NULL), 1);
    assert_int_equal(pick(v6, 2, "2001:db8:0:1::7", NULL), 1);
}

TEST(infiniband_goes_by_subnet)
{
    const struct tei_gid_entry t[] = {entry(0, TEI_GID_IB, "fe80::2:c903:31:7be1", ""),
                                      entry(1, TEI_GID_IB, "fec0:0:0:1::2", "")};

    assert_int_equal(pick(t, 2, "fe80::2:c903:77:1", NULL), 0);
    assert_int_equal(pick(t, 2, "fec0:0:0:1::9", NULL), 1);
    assert_int_equal(pick(t, 2, NULL, NULL), 0);
}

TEST(roce_v1_counts_only_alone)
{
    const struct tei_gid_entry t[] = {entry(0, TEI_GID_ROCE_V1, "10.0.0.1", "eth0"),
                                      entry(1, TEI_GID_ROCE_V1, "fe80::1", "eth0"),
                                      v2(2, "fe80::1", "")};
    uint64_t tried[TEI_GID_WORDS] = {0};

    assert_int_equal(pick(t, 3, "10.0.0.2", NULL), 2);
    assert_int_equal(pick(t, 2, "10.0.0.2", NULL), 0);
    assert_int_equal(pick(t, 2, "fe80::2", NULL), 1);
    tei_gid_mark(tried, 2);
    assert_int_equal(pick(t, 3, "10.0.0.2", tried), TE_ERR_NOT_FOUND);
}

TEST(null_entries_are_never_chosen)
{
    const struct tei_gid_entry t[] = {v2(0, "::", "eth0"), v2(1, "fe80::1", "")};

    assert_int_equal(pick(t, 2, NULL, NULL), 1);
    assert_int_equal(pick(t, 1, NULL, NULL), TE_ERR_NOT_FOUND);
}

/* Each one once, better before worse, then none. */
TEST(tried_ones_are_not_chosen_again)
{
    struct tei_gid_entry t[200];
    uint64_t tried[TEI_GID_WORDS] = {0};
    bool seen[200] = {false};
    uint8_t peer[16];
    size_t at;
    int last = -1;

    for (int i = 0; i < 200; i++)
        t[i] = v2(i, i % 2 ? "10.0.0.1" : "fe80::1", i % 3 ? "eth0" : "");
    set_gid("fd00::1", peer);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(tei_gid_pick(t, 200, peer, tried, &at), 0);
        assert_true(at < 200 && !seen[at]);
        assert_true(tei_gid_rank(&t[at]) >= last);
        last = tei_gid_rank(&t[at]);
        seen[at] = true;
        tei_gid_mark(tried, at);
    }
    assert_int_equal(tei_gid_pick(t, 200, peer, tried, &at), TE_ERR_NOT_FOUND);
}

TEST(equals_go_by_index_not_by_place)
{
    const struct tei_gid_entry t[] = {v2(7, "10.0.0.1", "eth0"), v2(3, "10.0.0.1", "eth0"),
                                      v2(5, "10.0.0.1", "eth0")};

    assert_int_equal(pick(t, 3, NULL, NULL), 3);
    assert_int_equal(pick(t, 3, "10.0.0.2", NULL), 3);
}

#define WITH_PORT(test) cmocka_unit_test_setup_teardown(test, make_port, remove_port)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_forms_are_read_and_one_is_written),
        cmocka_unit_test(every_byte_survives),
        cmocka_unit_test(other_forms_are_refused),
        cmocka_unit_test(scopes_have_names),
        cmocka_unit_test(an_entry_is_described),
        WITH_PORT(a_table_is_read_in_order),
        WITH_PORT(the_link_tells_infiniband_from_roce),
        WITH_PORT(hostile_tables_are_borne),
        WITH_PORT(an_empty_table_is_no_error),
        WITH_PORT(no_port_is_an_error),
        WITH_PORT(a_large_table_is_cut),
        cmocka_unit_test(ranks_are_in_order),
        cmocka_unit_test(ranks_know_ranges_and_interfaces),
        cmocka_unit_test(without_a_peer_the_rank_decides),
        cmocka_unit_test(bytes_of_another_kind_of_address_say_nothing),
        cmocka_unit_test(the_kind_of_the_peer_comes_first),
        cmocka_unit_test(the_subnet_of_the_peer_comes_next),
        cmocka_unit_test(rails_of_two_addresses_are_told_apart),
        cmocka_unit_test(a_subnet_of_the_peer_beats_the_rank),
        cmocka_unit_test(chance_bits_do_not_beat_the_rank),
        cmocka_unit_test(infiniband_goes_by_subnet),
        cmocka_unit_test(roce_v1_counts_only_alone),
        cmocka_unit_test(null_entries_are_never_chosen),
        cmocka_unit_test(tried_ones_are_not_chosen_again),
        cmocka_unit_test(equals_go_by_index_not_by_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
