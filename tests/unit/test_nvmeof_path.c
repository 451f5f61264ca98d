/* SPDX-License-Identifier: Apache-2.0 */
/* Which path a buffer has on a host, and which paths may be opened. */
#include "transport/nvmeof/nvmeof.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---------------------------------------------------------------------------------- which path it is */

/* One buffer, of `server` (with quotes, or null), with this map. */
static char *path_of(const struct nvmeof_names *me, const char *server, const char *there,
                     const char *map, char *why, size_t n)
{
    char text[8192];
    struct tei_segment *s;
    char *path;

    snprintf(text, sizeof text,
             "{\"name\":\"n\",\"protocol\":\"nvmeof\",\"server_name\":%s,\"buffers\":["
             "{\"file_path\":\"/other\",\"length\":1},"
             "{\"file_path\":\"%s\",\"length\":1,\"local_path_map\":%s}]}",
             server, there, map);
    assert_int_equal(tei_segment_decode(text, strlen(text), &tei_segment_unlimited, &s), 0);
    why[0] = '\0';
    path = tei_nvmeof_path(s, 1, me, why, n);
    tei_segment_put(s);
    return path;
}

static void expect(const struct nvmeof_names *me, const char *server, const char *map,
                   const char *want)
{
    char why[1024], *path = path_of(me, server, "/there", map, why, sizeof why);

    if (!path)
        fail_msg("server %s, map %s: %s", server, map, why);
    assert_string_equal(path, want);
    free(path);
}

static void expect_none(const struct nvmeof_names *me, const char *server, const char *map,
                        const char *says)
{
    char why[1024], *path = path_of(me, server, "/there", map, why, sizeof why);

    if (path)
        fail_msg("server %s, map %s: has path %s", server, map, path);
    if (!strstr(why, says))
        fail_msg("server %s, map %s: '%s' does not say '%s'", server, map, why, says);
}

/* A host whose segment has this name, and which calls itself "box". */
static struct nvmeof_names named(const char *segment)
{
    struct nvmeof_names me;

    tei_nvmeof_names(segment, &me);
    strcpy(me.system, "box");
    return me;
}

TEST(names_of_a_host)
{
    struct nvmeof_names me;
    char system[256] = "";

    assert_int_equal(gethostname(system, sizeof system - 1), 0);
    tei_nvmeof_names("10.0.0.1:12345", &me);
    assert_string_equal(me.segment, "10.0.0.1:12345");
    assert_string_equal(me.host, "10.0.0.1");
    assert_string_equal(me.system, system);
    tei_nvmeof_names("[fd00::1]:12345", &me);
    assert_string_equal(me.host, "fd00::1");
    /* No port: nothing to take off. */
    tei_nvmeof_names("node-7", &me);
    assert_string_equal(me.host, "");
    tei_nvmeof_names("fd00::1", &me);
    assert_string_equal(me.host, "");
    tei_nvmeof_names("", &me);
    assert_string_equal(me.host, "");
}

TEST(each_name_is_found)
{
    struct nvmeof_names me = named("10.0.0.1:12345"), six = named("[fd00::1]:77");

    expect(&me, "null", "{\"10.0.0.1:12345\":\"/a\"}", "/a");
    expect(&me, "null", "{\"10.0.0.1\":\"/a\"}", "/a");
    expect(&me, "null", "{\"box\":\"/a\"}", "/a");
    expect(&me, "null", "{\"*\":\"/a\"}", "/a");
    expect(&six, "null", "{\"[fd00::1]:77\":\"/a\"}", "/a");
    expect(&six, "null", "{\"fd00::1\":\"/a\"}", "/a");
    expect_none(&six, "null", "{\"[fd00::1]\":\"/a\",\"fd00::2\":\"/b\"}", "has no path");
}

TEST(the_closest_name_wins)
{
    struct nvmeof_names me = named("10.0.0.1:12345");

    expect(&me, "null",
           "{\"*\":\"/d\",\"box\":\"/c\",\"10.0.0.1\":\"/b\",\"10.0.0.1:12345\":\"/a\"}", "/a");
    expect(&me, "null", "{\"*\":\"/d\",\"box\":\"/c\",\"10.0.0.1\":\"/b\"}", "/b");
    expect(&me, "null", "{\"*\":\"/d\",\"box\":\"/c\"}", "/c");
    expect(&me, "null", "{\"*\":\"/d\",\"10.0.0.2\":\"/e\"}", "/d");
}

TEST(its_own_server_needs_no_map)
{
    struct nvmeof_names me = named("10.0.0.1:12345");

    expect(&me, "\"10.0.0.1:12345\"", "{}", "/there");
    expect(&me, "\"10.0.0.1\"", "{}", "/there");
    expect(&me, "\"box\"", "{}", "/there");
    expect(&me, "\"box\"", "{\"10.0.0.9\":\"/a\"}", "/there");
    /* The map goes first. */
    expect(&me, "\"box\"", "{\"10.0.0.1\":\"/a\"}", "/a");
    expect(&me, "\"box\"", "{\"*\":\"/a\"}", "/a");
}

TEST(others_have_none)
{
    struct nvmeof_names me = named("10.0.0.1:12345"), plain = named("node-7");

    expect_none(&me, "\"10.0.0.2\"", "{}", "/there of host 10.0.0.2, has no path on this host");
    expect_none(&me, "\"10.0.0.2\"", "{}", "te_segment mount");
    expect_none(&me, "null", "{}", "(not told)");
    expect_none(&me, "\"\"", "{}", "has no path");
    expect_none(&me, "7", "{}", "has no path");
    /* A map is what its writer made of it: other engines read the same record. */
    expect_none(&me, "null", "null", "has no path");
    expect_none(&me, "null", "[\"/a\"]", "has no path");
    expect_none(&me, "null", "\"/a\"", "has no path");
    expect_none(&me, "null", "{\"box\":7}", "has no path");
    expect_none(&me, "null", "{\"box\":\"\"}", "not absolute");
    expect(&me, "null", "{\"box\":7,\"*\":\"/d\"}", "/d");
    /* A name without a port has no host part, so "" is nobody's key. */
    expect_none(&plain, "null", "{\"\":\"/a\",\"node\":\"/b\"}", "node-7");
    expect(&plain, "null", "{\"node-7\":\"/c\"}", "/c");
}

TEST(unsound_paths)
{
    struct nvmeof_names me = named("n");
    char map[6000], *at = map;

    expect_none(&me, "null", "{\"n\":\"a/b\"}", "not absolute");
    expect_none(&me, "null", "{\"n\":\"/a/../b\"}", "'..'");
    expect_none(&me, "null", "{\"n\":\"/..\"}", "'..'");
    expect_none(&me, "null", "{\"n\":\"/a/..\"}", "'..'");
    expect_none(&me, "null", "{\"n\":\"/a//../b\"}", "'..'");
    expect(&me, "null", "{\"n\":\"/a/..b/c..\"}", "/a/..b/c..");
    expect(&me, "null", "{\"n\":\"/a/.../b\"}", "/a/.../b");
    expect(&me, "null", "{\"n\":\"/./a//b\"}", "/./a//b");
    at += sprintf(at, "{\"n\":\"");
    for (size_t i = 0; i < 4096; i++)
        *at++ = i % 100 ? 'x' : '/';
    strcpy(at, "\"}");
    expect_none(&me, "null", map, "too long");
    memmove(at - 1, at, strlen(at) + 1); /* 4095 and the zero: the longest that the kernel takes */
    {
        char why[1024], *path = path_of(&me, "null", "/there", map, why, sizeof why);

        assert_non_null(path);
        assert_int_equal(strlen(path), 4095);
        free(path);
    }
}

/* Its own server's path is looked at as closely as those of a map. */
TEST(unsound_path_of_its_own)
{
    struct nvmeof_names me = named("n");
    char why[1024];

    assert_null(path_of(&me, "\"n\"", "dev/x", "{}", why, sizeof why));
    assert_non_null(strstr(why, "dev/x is not absolute"));
    assert_null(path_of(&me, "\"n\"", "/mnt/../etc/x", "{}", why, sizeof why));
    assert_non_null(strstr(why, "'..'"));
}

/* ------------------------------------------------------------------------------ what may be opened */

static char dir[4096]; /* a folder for each case */

static const char *in(const char *name)
{
    static char texts[8][5000];
    static unsigned next;
    char *text = texts[next++ % 8];

    snprintf(text, sizeof texts[0], "%s/%s", dir, name);
    return text;
}

static void touch(const char *name)
{
    int fd = open(in(name), O_CREAT | O_WRONLY, 0600);

    assert_true(fd >= 0);
    close(fd);
}

static void mkdirs(const char *name)
{
    assert_int_equal(mkdir(in(name), 0700), 0);
}

static int find(const struct nvmeof_roots *roots, const char *path, bool by_path, char *why,
                size_t n)
{
    int fd = -1, error = 0, rc = tei_nvmeof_find(roots, path, by_path, &fd, &error, why, n);

    assert_int_equal(fd >= 0, rc == 0);
    if (fd >= 0) {
        assert_true(fcntl(fd, F_GETFL) & O_PATH);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        close(fd);
    }
    return rc;
}

static int check_both(const struct nvmeof_roots *roots, const char *name, bool by_path)
{
    char why[NVMEOF_WHY] = "";
    int rc = find(roots, in(name), by_path, why, sizeof why);

    if (rc)
        assert_non_null(strstr(why, in(name)));
    if (rc == TE_ERR_ACCESS && roots->first)
        assert_non_null(strstr(why, "TE_FILE_PATHS"));
    return rc;
}

/* Of a path that a record names. */
static int check(const struct nvmeof_roots *roots, const char *name)
{
    return check_both(roots, name, false);
}

/* Of one that the program has opened itself. */
static int check_own(const struct nvmeof_roots *roots, const char *name)
{
    return check_both(roots, name, true);
}

TEST(own_paths_without_roots)
{
    struct nvmeof_roots none = {NULL};
    char why[NVMEOF_WHY];

    touch("f");
    assert_int_equal(symlink("f", in("link")), 0);
    assert_int_equal(symlink("nowhere", in("dangling")), 0);
    assert_int_equal(symlink("loop", in("loop")), 0);
    assert_int_equal(check_own(&none, "f"), 0);
    assert_int_equal(check_own(&none, "link"), 0);
    assert_int_equal(check_own(&none, "missing"), TE_ERR_NOT_FOUND);
    assert_int_equal(check_own(&none, "dangling"), TE_ERR_NOT_FOUND);
    assert_int_equal(check_own(&none, "f/x"), TE_ERR_NOT_FOUND);
    assert_int_equal(check_own(&none, "loop"), TE_ERR_ACCESS);
    assert_int_equal(find(&none, "/proc/version", true, why, sizeof why), 0);
}

/* What a record names is not even looked at: what is not there is refused like what is. */
TEST(no_others_without_roots)
{
    struct nvmeof_roots none = {NULL};
    char why[NVMEOF_WHY];

    touch("f");
    assert_int_equal(check(&none, "f"), TE_ERR_ACCESS);
    assert_int_equal(check(&none, "missing"), TE_ERR_ACCESS);
    assert_int_equal(find(&none, "/proc/version", false, why, sizeof why), TE_ERR_ACCESS);
    assert_string_equal(why,
                        "/proc/version is not at or below a path in TE_FILE_PATHS, or one given "
                        "to te_transport_install() with \"nvmeof\": add it there if it may be "
                        "opened");
    assert_int_equal(tei_nvmeof_admit(&none, in("f"), false, why, sizeof why), TE_ERR_ACCESS);
    assert_int_equal(tei_nvmeof_admit(&none, in("f"), true, why, sizeof why), 0);
}

TEST(kinds_of_files)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct nvmeof_roots none = {NULL};
    char why[NVMEOF_WHY];
    int s = socket(AF_UNIX, SOCK_STREAM, 0);

    mkdirs("folder");
    assert_int_equal(mkfifo(in("fifo"), 0600), 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%.100s", in("socket"));
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(check_own(&none, "folder"), TE_ERR_INVALID);
    assert_int_equal(check_own(&none, "fifo"), TE_ERR_INVALID);
    assert_int_equal(check_own(&none, "socket"), TE_ERR_INVALID);
    assert_int_equal(find(&none, "/dev/null", true, why, sizeof why), TE_ERR_INVALID);
    assert_string_equal(why, "/dev/null is neither a regular file nor a block device");
    close(s);
}

TEST(below_a_root)
{
    struct nvmeof_roots r = {NULL};

    mkdirs("a");
    mkdirs("a/b");
    mkdirs("a/bc");
    touch("a/b/in");
    touch("a/bc/out");
    touch("a/out");
    assert_int_equal(tei_nvmeof_roots_add(&r, in("a/b")), 0);
    assert_int_equal(check(&r, "a/b/in"), 0);
    assert_int_equal(check(&r, "a/bc/out"), TE_ERR_ACCESS);
    assert_int_equal(check(&r, "a/out"), TE_ERR_ACCESS);
    assert_int_equal(check(&r, "a/b//./in"), 0);
    assert_int_equal(check(&r, "a/b"), TE_ERR_INVALID);
    assert_int_equal(check(&r, "a"), TE_ERR_ACCESS);
    /* What is not there is told as that, but not outside. */
    assert_int_equal(check(&r, "a/b/missing"), TE_ERR_NOT_FOUND);
    assert_int_equal(check(&r, "a/missing"), TE_ERR_ACCESS);
    /* The list is for what the program opens itself, too. */
    assert_int_equal(check_own(&r, "a/b/in"), 0);
    assert_int_equal(check_own(&r, "a/out"), TE_ERR_ACCESS);
    assert_int_equal(check_own(&r, "a/missing"), TE_ERR_ACCESS);
    assert_int_equal(tei_nvmeof_roots_add(&r, in("a/bc/")), 0); /* two of them, one with a slash */
    assert_int_equal(check(&r, "a/bc/out"), 0);
    assert_int_equal(check(&r, "a/b/in"), 0);
    assert_int_equal(check(&r, "a/out"), TE_ERR_ACCESS);
    tei_nvmeof_roots_fini(&r);
}

TEST(links_that_lead_outside)
{
    struct nvmeof_roots r = {NULL}, by_link = {NULL};

    mkdirs("root");
    mkdirs("away");
    touch("away/secret");
    touch("root/own");
    assert_int_equal(symlink(in("away/secret"), in("root/link")), 0);
    assert_int_equal(symlink(in("away"), in("root/folder")), 0);
    assert_int_equal(symlink("../away/secret", in("root/up")), 0);
    assert_int_equal(symlink("own", in("root/inside")), 0);
    assert_int_equal(symlink(in("root/own"), in("root/whole")), 0);
    assert_int_equal(symlink(in("root/missing"), in("root/nowhere")), 0);
    assert_int_equal(symlink(in("root/own"), in("away/back")), 0);
    assert_int_equal(symlink(in("root"), in("alias")), 0);
    assert_int_equal(tei_nvmeof_roots_add(&r, in("root")), 0);
    assert_int_equal(check(&r, "root/link"), TE_ERR_ACCESS);
    assert_int_equal(check(&r, "root/folder/secret"), TE_ERR_ACCESS);
    assert_int_equal(check(&r, "root/up"), TE_ERR_ACCESS);
    assert_int_equal(check(&r, "root/inside"), 0);
    assert_int_equal(check(&r, "root/whole"), 0);
    assert_int_equal(check(&r, "root/nowhere"), TE_ERR_NOT_FOUND);
    /* Where it begins counts, too: nothing is looked up outside. */
    assert_int_equal(check(&r, "away/back"), TE_ERR_ACCESS);
    assert_int_equal(check(&r, "alias/own"), TE_ERR_ACCESS);
    assert_int_equal(check_own(&r, "alias/own"), TE_ERR_ACCESS);
    /* From one root to another it may lead. */
    assert_int_equal(tei_nvmeof_roots_add(&r, in("away")), 0);
    assert_int_equal(check(&r, "root/link"), 0);
    assert_int_equal(check(&r, "away/back"), 0);
    tei_nvmeof_roots_fini(&r);
    /* A root that is a link itself stands for where it leads to, and is as good as that. */
    assert_int_equal(tei_nvmeof_roots_add(&by_link, in("root/folder")), 0);
    assert_int_equal(check(&by_link, "root/folder/secret"), 0);
    assert_int_equal(check(&by_link, "away/secret"), 0);
    assert_int_equal(check(&by_link, "root/own"), TE_ERR_ACCESS);
    tei_nvmeof_roots_fini(&by_link);
}

/* Which a record cannot do, whose path is read with its links followed: somebody changes it then. */
TEST(links_that_come_meanwhile)
{
    struct stat st;
    int fd;

    mkdirs("away");
    mkdirs("root");
    touch("away/secret");
    touch("root/own");
    assert_int_equal(symlink(in("away"), in("root/folder")), 0);
    assert_int_equal(symlink(in("away/secret"), in("root/link")), 0);
    fd = tei_nvmeof_walk(in("root/own"));
    assert_true(fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode));
    close(fd);
    assert_int_equal(tei_nvmeof_walk(in("root/missing")), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(tei_nvmeof_walk(in("root/folder/secret")), -1);
    assert_int_equal(errno, ENOTDIR);
    fd = tei_nvmeof_walk(in("root/link"));
    assert_true(fd >= 0 && fstat(fd, &st) == 0 && S_ISLNK(st.st_mode));
    close(fd);
}

/* Has a file system of its own at root/, with root/f in it, where only this process sees it. */
static void live_elsewhere(int ready, int end)
{
    char byte = 0;
    int fd;

    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", in("root"), "tmpfs", 0, NULL) != 0)
        _exit(77);
    fd = open(in("root/f"), O_CREAT | O_WRONLY, 0644);
    if (fd < 0 || write(ready, &byte, 1) != 1)
        _exit(1);
    (void)!read(end, &byte, 1);
    _exit(0);
}

/*
 * The kernel tells a file of another mount namespace by the path that it has there, which may be one of
 * another file here.
 */
TEST(files_of_another_namespace)
{
    struct nvmeof_roots r = {NULL};
    char path[5100], why[NVMEOF_WHY], byte;
    int ready[2], end[2], status = 0, rc;
    pid_t child;

    mkdirs("root");
    assert_int_equal(pipe(ready) | pipe(end), 0);
    child = fork();
    if (child == 0) {
        close(end[1]);
        live_elsewhere(ready[1], end[0]);
    }
    close(ready[1]);
    close(end[0]);
    if (read(ready[0], &byte, 1) == 1) {
        snprintf(path, sizeof path, "/proc/%d/root%s", (int)child, in("root/f"));
        assert_int_equal(access(path, R_OK), 0);
        assert_int_equal(symlink(path, in("link")), 0);
        assert_int_equal(rename(in("link"), in("root/link")), 0);
        assert_int_equal(tei_nvmeof_roots_add(&r, in("root")), 0);
        assert_int_equal(check(&r, "root/link"), TE_ERR_NOT_FOUND);
        assert_int_equal(tei_nvmeof_admit(&r, path, false, why, sizeof why), TE_ERR_ACCESS);
        touch("root/f");
        /* Leads to that one, or to none where "/" is not the first folder of the namespace. */
        rc = check(&r, "root/link");
        assert_true(rc == 0 || rc == TE_ERR_NOT_FOUND);
    }
    close(end[1]);
    close(ready[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    tei_nvmeof_roots_fini(&r);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip(); /* it is root's to make one */
    assert_int_equal(status, 0);
}

TEST(odd_roots)
{
    struct nvmeof_roots file = {NULL}, all = {NULL}, missing = {NULL};

    touch("f");
    touch("f2");
    assert_int_equal(tei_nvmeof_roots_add(&file, in("f")), 0);
    assert_int_equal(check(&file, "f"), 0);
    assert_int_equal(check(&file, "f2"), TE_ERR_ACCESS);
    assert_int_equal(tei_nvmeof_roots_add(&all, "/"), 0);
    assert_int_equal(check(&all, "f"), 0);
    /* A root that is not there yet allows nothing, and something once it is. */
    assert_int_equal(tei_nvmeof_roots_add(&missing, in("later")), 0);
    assert_int_equal(check(&missing, "f"), TE_ERR_ACCESS);
    mkdirs("later");
    touch("later/f");
    assert_int_equal(check(&missing, "f"), TE_ERR_ACCESS);
    assert_int_equal(check(&missing, "later/f"), 0);
    tei_nvmeof_roots_fini(&file);
    tei_nvmeof_roots_fini(&all);
    tei_nvmeof_roots_fini(&missing);
}

/* A name that ends like one the kernel makes up for what is gone. */
TEST(name_that_looks_deleted)
{
    struct nvmeof_roots r = {NULL};

    mkdirs("root");
    touch("root/f (deleted)");
    touch("root (deleted)");
    assert_int_equal(tei_nvmeof_roots_add(&r, in("root")), 0);
    assert_int_equal(check(&r, "root/f (deleted)"), 0);
    assert_int_equal(check(&r, "root (deleted)"), TE_ERR_ACCESS);
    tei_nvmeof_roots_fini(&r);
}

TEST(lists_of_roots)
{
    struct nvmeof_roots r = {NULL};
    char list[20000];

    te_log_set_level(TE_LOG_OFF);
    mkdirs("one");
    mkdirs("two");
    mkdirs("three");
    touch("one/f");
    touch("two/f");
    touch("three/f");
    assert_int_equal(tei_nvmeof_roots_add_all(&r, ""), 0);
    assert_int_equal(tei_nvmeof_roots_add_all(&r, "::"), 0);
    assert_int_equal(check(&r, "three/f"), TE_ERR_ACCESS); /* still none */
    assert_int_equal(check_own(&r, "three/f"), 0);
    snprintf(list, sizeof list, ":%s::%s:", in("one"), in("two"));
    assert_int_equal(tei_nvmeof_roots_add_all(&r, list), 0);
    assert_int_equal(check(&r, "one/f"), 0);
    assert_int_equal(check(&r, "two/f"), 0);
    assert_int_equal(check(&r, "three/f"), TE_ERR_ACCESS);
    assert_int_equal(tei_nvmeof_roots_add_all(&r, "/a:b"), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "'b'"));
    assert_int_equal(tei_nvmeof_roots_add(&r, ""), TE_ERR_INVALID);
    assert_int_equal(tei_nvmeof_roots_add(&r, "/a/../b"), TE_ERR_INVALID);
    assert_int_equal(check(&r, "three/f"), TE_ERR_ACCESS);
    assert_int_equal(check_own(&r, "three/f"), TE_ERR_ACCESS);
    tei_nvmeof_roots_fini(&r);
}

/* ------------------------------------------------------------------------------------------- main */

static int set_up(void **state)
{
    char path[] = "/tmp/te-path-XXXXXX";

    (void)state;
    return mkdtemp(path) && realpath(path, dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[5000];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_a_host),
        cmocka_unit_test(each_name_is_found),
        cmocka_unit_test(the_closest_name_wins),
        cmocka_unit_test(its_own_server_needs_no_map),
        cmocka_unit_test(others_have_none),
        cmocka_unit_test(unsound_paths),
        cmocka_unit_test(unsound_path_of_its_own),
        CASE(own_paths_without_roots),
        CASE(no_others_without_roots),
        CASE(kinds_of_files),
        CASE(below_a_root),
        CASE(links_that_lead_outside),
        CASE(links_that_come_meanwhile),
        CASE(files_of_another_namespace),
        CASE(odd_roots),
        CASE(name_that_looks_deleted),
        CASE(lists_of_roots),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
