/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common_units.c"
#include "tools/te_segment/nvme.c"
#include "tools/te_segment/record.c"
#include "tools/te_segment/target.c"
#include "tools/te_segment/text.c"
#include "test.h"

#include "fake_sysfs.h"

TEST(which_texts_are_paths)
{
    static const char *const absolute[] = {"/a",  "/a/b",      "/...", "/a b/,",
                                           "/.a", "/\xc3\xa4", "/-"};
    static const char *const relative[] = {"a", "a/b", "...", "-a"};
    static const char *const neither[] = {"",     "/",      ".",     "..",        "a/..",
                                          "/a/",  "//a",    "/a//b", "/a/.",      "/../a",
                                          "/a\n", "/a\x7f", "/\xff", "/\xc2\x80", "/\xc2\x9f"};
    for (size_t i = 0; i < TEI_ARRAY_LEN(absolute); i++) {
        assert_true(text_is_path(absolute[i], true));
        assert_false(text_is_path(absolute[i], false));
    }
    for (size_t i = 0; i < TEI_ARRAY_LEN(relative); i++) {
        assert_false(text_is_path(relative[i], true));
        assert_true(text_is_path(relative[i], false));
    }
    for (size_t i = 0; i < TEI_ARRAY_LEN(neither); i++) {
        assert_false(text_is_path(neither[i], true));
        assert_false(text_is_path(neither[i], false));
    }
}

TEST(longest_path)
{
    char path[PATH_MAX + 1];

    memset(path, 'a', sizeof path);
    path[0] = '/';
    path[PATH_MAX] = '\0';
    assert_false(text_is_path(path, true));
    path[PATH_MAX - 1] = '\0';
    assert_true(text_is_path(path, true));
}

TEST(splits)
{
    static const struct {
        const char *text;
        size_t n;
        const char *items[4];
    } cases[] = {{"", 1, {""}},
                 {"a", 1, {"a"}},
                 {",", 2, {"", ""}},
                 {"a,b", 2, {"a", "b"}},
                 {"ab,,c", 3, {"ab", "", "c"}},
                 {"a,", 2, {"a", ""}}};

    for (size_t i = 0; i < TEI_ARRAY_LEN(cases); i++) {
        size_t n;
        char **items = text_split(cases[i].text, &n);

        assert_int_equal(n, cases[i].n);
        for (size_t k = 0; k < n; k++)
            assert_string_equal(items[k], cases[i].items[k]);
        free(items);
    }
}

/* What is printed of a target is what it was parsed from. */
TEST(targets_come_back)
{
    static const char *const urls[] = {"tcp://10.0.0.1:4420/nqn.x:y?nsid=1",
                                       "rdma://[fd00::1%eth0]:1/a/b?nsid=4294967294",
                                       "tcp://host-a:65535/nqn?nsid=7&fs_path=a/b c"};
    char why[WHY_MAX], text[TARGET_TEXT_MAX];
    struct target t;

    for (size_t i = 0; i < TEI_ARRAY_LEN(urls); i++) {
        json_t *j = target_parse(urls[i], 0, why);

        assert_true(target_read(j, &t, why));
        assert_string_equal(target_format(&t, text), urls[i]);
        json_decref(j);
    }
    assert_null(target_parse("tcp://h/nqn?nsid=4294967294", 1, why));
    assert_null(target_parse("tcp://h/\xff", 0, why));
    assert_true(why[0] != '\0');
}

/* However the text of a record is cut off or changed in one byte, it is read or refused. */
TEST(mutilated_records)
{
    static const char good[] =
        "{\"buffers\":[{\"file_path\":\"/a\",\"length\":5,\"local_path_map\":{\"h\":\"/b\"}}],"
        "\"server_name\":\"h\",\"te\":{\"nvmeof\":{\"file_length\":[6],\"target\":[{\"fs_path\":\"a\",\"nsid\":1,"
        "\"subnqn\":\"n\",\"traddr\":\"h\",\"transport\":\"tcp\",\"trsvcid\":\"1\"}]}}}";
    static const char bytes[] = "\"{}[]:,0-x/.\\\x01\xff";
    size_t good_ones = 0, bad_ones = 0;

    for (size_t at = 0; at < sizeof good - 1; at++) {
        for (size_t i = 0; i < sizeof bytes - 1; i++) {
            char text[sizeof good], why[WHY_MAX] = "";
            struct target t;
            json_t *root;

            memcpy(text, good, sizeof good);
            text[at] = bytes[i];
            root = json_loads(text, 0, NULL);
            if (root && record_check(root, why)) {
                good_ones++;
                for (size_t k = 0; k < record_count(root); k++)
                    assert_true(record_path(root, k)[0] == '/' && record_length(root, k) > 0 &&
                                record_whole(root, k) >= record_length(root, k));
                assert_true(record_hosts(root) <= 1);
                if (record_target(root, 0, &t))
                    assert_true(t.traddr[0] != '-' && t.subnqn[0] != '-' && t.trsvcid[0] != '-');
            } else if (root) {
                bad_ones++;
                assert_true(why[0] != '\0');
            }
            json_decref(root);
        }
    }
    assert_true(good_ones > 100 && bad_ones > 20);
}

/* ---- sysfs */

static struct fake_sysfs sys;

static void put(const char *path, const char *text)
{
    char whole[256];

    snprintf(whole, sizeof whole, "sysfs/class/nvme-subsystem/%s", path);
    fake_sysfs_write(&sys, whole, text);
}

TEST(finds_namespaces)
{
    struct nvme_device device;

    fake_sysfs_make(&sys);
    assert_false(nvme_is_connected(sys.sysfs, "a"));
    put("nvme-subsys0/subsysnqn", "a\n");
    put("nvme-subsys0/nvme0n1/nsid", "5\n");
    put("nvme-subsys0/nvme0n1/wwid", "uuid.5\n");
    assert_false(nvme_is_connected(sys.sysfs, "a"));
    put("nvme-subsys0/nvme0/nvme0c0n1/nsid", "6\n");
    put("nvme-subsys0/nvme0/nvme0n12/nsid", "7\n");
    put("nvme-subsys0/nvme0/nvme0n12/wwid", "../7\n");
    put("nvme-subsys0/nvme0/nvme0n12p1/nsid", "8\n");
    put("nvme-subsys0/nvme0/nvme0n13/nsid", "x\n");
    assert_true(nvme_is_connected(sys.sysfs, "a"));
    assert_false(nvme_is_connected(sys.sysfs, "aa"));
    assert_true(nvme_find(sys.sysfs, "a", 5, &device));
    assert_string_equal(device.name, "nvme0n1");
    assert_string_equal(device.wwid, "uuid.5");
    assert_true(nvme_find(sys.sysfs, "a", 7, &device));
    assert_string_equal(device.name, "nvme0n12");
    assert_string_equal(device.wwid, "");
    assert_false(nvme_find(sys.sysfs, "a", 6, &device));
    assert_false(nvme_find(sys.sysfs, "a", 8, &device));
    assert_false(nvme_find(sys.sysfs, "b", 5, &device));
    fake_sysfs_remove(&sys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(which_texts_are_paths),
        cmocka_unit_test(longest_path),
        cmocka_unit_test(splits),
        cmocka_unit_test(targets_come_back),
        cmocka_unit_test(mutilated_records),
        cmocka_unit_test(finds_namespaces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
