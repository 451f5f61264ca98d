/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files on file systems of the test's own, in a mount namespace of its own: a full one, and one that
 * may only be read. Needs the right to mount.
 */
#include "conformance.h"
#include "file_rig.h"

#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static char place[128]; /* where it is mounted */

static const char *at_place(const char *name)
{
    static char texts[4][256];
    static unsigned next;
    char *text = texts[next++ % TEI_ARRAY_LEN(texts)];

    snprintf(text, sizeof texts[0], "%s/%s", place, name);
    return text;
}

static void make_sparse(const char *name, size_t length)
{
    int fd = open(at_place(name), O_CREAT | O_RDWR, 0644);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)length), 0);
    close(fd);
}

static void works(struct file_rig *r, struct tei_attach *a, int opcode, uint64_t at, uint64_t n)
{
    struct fake_task t = file_rig_move(r, a, opcode, r->memory, at, n);

    if (t.error)
        fail_msg("%s: %s", te_strerror(t.error), t.note);
}

static void is_full(struct file_rig *r, struct tei_attach *a, uint64_t at, uint64_t n)
{
    struct fake_task t = file_rig_move(r, a, TE_WRITE, r->memory, at, n);

    assert_int_equal(t.error, TE_ERR_SYSTEM);
    assert_int_equal(t.sys_errno, ENOSPC);
    assert_non_null(strstr(t.note, "writing to "));
    assert_non_null(strstr(t.note, at_place("f")));
}

/* Nothing may keep it busy once the transport is gone. */
static void unmount(void)
{
    int64_t until = tei_deadline_ns(PATIENCE_MS);

    while (umount(place) != 0) {
        assert_int_equal(errno, EBUSY);
        assert_true(tei_now_ns() < until);
        usleep(1000);
    }
}

static void full(void **state)
{
    struct file_rig *r;
    struct tei_attach *a, *small;
    char *bytes;

    (void)state;
    assert_int_equal(mount("none", place, "tmpfs", MS_NOSUID, "size=1m,mode=755"), 0);
    r = file_rig_open(NULL);
    make_sparse("f", 4 * MIB);
    make_sparse("small", 8192);
    a = file_rig_attach(r, at_place("f"), 4 * MIB);
    small = file_rig_attach(r, at_place("small"), 8192);
    fill_pattern(r->memory, 4 * MIB, 1);
    works(r, small, TE_WRITE, 0, 8192);
    is_full(r, a, 0, 4 * MIB);
    is_full(r, a, 3 * MIB, 4096);
    is_full(r, a, 3 * MIB + 1, 7);
    /* What has its blocks works as before, in this file and in others. */
    works(r, a, TE_READ, 0, 4 * MIB);
    fill_pattern(r->memory, 8192, 2);
    works(r, small, TE_WRITE, 0, 8192);
    bytes = file_rig_bytes(at_place("small"), 8192);
    assert_memory_equal(bytes, r->memory, 8192);
    free(bytes);
    /* And once there is room, everything. */
    assert_int_equal(mount(NULL, place, NULL, MS_REMOUNT | MS_NOSUID, "size=8m"), 0);
    fill_pattern(r->memory, 4 * MIB, 3);
    works(r, a, TE_WRITE, 0, 4 * MIB);
    bytes = file_rig_bytes(at_place("f"), 4 * MIB);
    assert_memory_equal(bytes, r->memory, 4 * MIB);
    free(bytes);
    fake_detach(r->t, a);
    fake_detach(r->t, small);
    file_rig_close(r);
    unmount();
}

static void may_only_be_read(void **state)
{
    struct file_rig *r;
    struct tei_attach *a;
    struct fake_task t;

    (void)state;
    assert_int_equal(mount("none", place, "tmpfs", MS_NOSUID, "size=1m,mode=755"), 0);
    make_sparse("f", 8192);
    assert_int_equal(mount(NULL, place, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    r = file_rig_open(NULL);
    a = file_rig_attach(r, at_place("f"), 8192);
    works(r, a, TE_READ, 0, 8192);
    t = file_rig_move(r, a, TE_WRITE, r->memory, 0, 8192);
    assert_int_equal(t.error, TE_ERR_ACCESS);
    assert_non_null(strstr(t.note, "may only be read"));
    /* It may be written to again: whoever attaches anew may. */
    assert_int_equal(mount(NULL, place, NULL, MS_REMOUNT, NULL), 0);
    fake_detach(r->t, a);
    a = file_rig_attach(r, at_place("f"), 8192);
    works(r, a, TE_WRITE, 0, 8192);
    fake_detach(r->t, a);
    file_rig_close(r);
    unmount();
}

static bool may_mount(void)
{
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return false;
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full),
        cmocka_unit_test(may_only_be_read),
    };
    char dir[] = "/tmp/te-mount-XXXXXX";
    int failed;

    if (!may_mount()) {
        fprintf(stderr, "no right to mount: needs root, or user namespaces\n");
        return 77;
    }
    if (!mkdtemp(dir))
        return 1;
    snprintf(place, sizeof place, "%s", dir);
    failed = FILE_RIG_RUN(tests);
    rmdir(place);
    return failed;
}
