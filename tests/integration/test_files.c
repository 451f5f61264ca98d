/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=60 */
/*
 * Segments of files through the native API and the C names: opened by path, or as records of a
 * metadata server.
 */
#include "child_engine.h"
#include "http_kv.h"
#include "patience.h"
#include "te.h"
#include "transfer_engine_c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE  ((size_t)1 << 20)
#define FILE1 ((size_t)300001) /* of a row; the next one begins at an odd place */
#define FILE2 ((size_t)200000)

static struct http_kv kv;
static char dir[PATH_MAX];
static te_engine *e;
static unsigned char *mem;

/* --------------------------------------------------------------------------------------- helpers */

static const char *path_of(const char *name)
{
    static char texts[8][PATH_MAX + 64];
    static unsigned next;
    char *text = texts[next++ % 8];

    snprintf(text, sizeof texts[0], "%s/%s", dir, name);
    return text;
}

static void make_file(const char *name, size_t length)
{
    int fd = open(path_of(name), O_CREAT | O_TRUNC | O_RDWR, 0644);

    assert_true(fd >= 0 && posix_fallocate(fd, 0, (off_t)length) == 0);
    close(fd);
}

/* The bytes of a file from `at` on are those of fill() with this seed. */
static void check_file(const char *name, size_t at, size_t n, uint64_t seed)
{
    int fd = open(path_of(name), O_RDONLY);
    unsigned char *bytes = malloc(n);

    assert_true(fd >= 0 && bytes);
    assert_int_equal(pread(fd, bytes, n, (off_t)at), n);
    assert_int_equal(first_difference(bytes, n, seed), n);
    free(bytes);
    close(fd);
}

static te_segment open_file(const char *name)
{
    char uri[PATH_MAX + 128];
    te_segment seg = -1;

    snprintf(uri, sizeof uri, "file://%s", path_of(name));
    if (te_open(e, uri, &seg))
        fail_msg("%s", te_errmsg());
    return seg;
}

static struct te_status move(int opcode, te_segment seg, uint64_t at, size_t n, char *msg,
                             size_t msg_len)
{
    te_request r = {
        .opcode = opcode, .source = mem, .target = seg, .target_offset = at, .length = n};
    struct te_status st;
    te_batch b;

    assert_int_equal(te_batch_alloc(e, 1, &b), 0);
    assert_int_equal(te_submit(e, b, &r, 1, NULL), 0);
    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    assert_int_equal(te_status(e, b, 0, &st), 0);
    if (msg)
        assert_int_equal(te_status_msg(e, b, 0, msg, msg_len), 0);
    assert_int_equal(te_batch_free(e, b), 0);
    return st;
}

static void works(int opcode, te_segment seg, uint64_t at, size_t n)
{
    char msg[1024];
    struct te_status st = move(opcode, seg, at, n, msg, sizeof msg);

    if (st.state != TE_COMPLETED || st.bytes != n)
        fail_msg("state %d, %zu bytes: %s", st.state, (size_t)st.bytes, msg);
}

static void fails(int opcode, te_segment seg, uint64_t at, size_t n, int state, int error,
                  const char *says)
{
    char msg[1024];
    struct te_status st = move(opcode, seg, at, n, msg, sizeof msg);

    if (st.state != state || st.error != error || !strstr(msg, says))
        fail_msg("state %d, %s, '%s' instead of %d, %s, '%s'", st.state, te_errname(st.error), msg,
                 state, te_errname(error), says);
}

static void refuses(const char *name, int error, const char *says)
{
    te_segment seg = -7;
    int rc = te_open(e, name, &seg);

    if (rc != error || !strstr(te_errmsg(), says))
        fail_msg("te_open(%s): %s, '%s' instead of %s, '%s'", name, te_errname(rc), te_errmsg(),
                 te_errname(error), says);
    assert_int_equal(seg, -7);
}

/* Both ways, and what was there comes back. */
static void round_trip(te_segment seg, uint64_t at, size_t n, uint64_t seed)
{
    fill(mem, n, seed);
    works(TE_WRITE, seg, at, n);
    memset(mem, 0, n);
    works(TE_READ, seg, at, n);
    assert_int_equal(first_difference(mem, n, seed), n);
}

/* Which files records may lead to, or "". */
static te_engine *make_engine(const char *metadata, const char *name, const char *paths)
{
    te_engine *made = NULL;
    te_options o;

    engines_are_patient();
    te_options_init(&o);
    o.metadata = metadata;
    o.local_server_name = name;
    o.ip_or_host_name = "127.0.0.1";
    assert_int_equal(te_option_set(&o, "TE_FILE_PATHS", paths), 0);
    if (te_engine_create(&o, &made))
        fail_msg("%s", te_errmsg());
    te_options_fini(&o);
    return made;
}

/* A record of the two files "1" and "2", which has paths for `host` only. */
static void put_record(const char *key, const char *host, const char *folder)
{
    char text[3 * PATH_MAX];

    snprintf(
        text, sizeof text,
        "{\"name\":\"nvmeof/x\",\"server_name\":\"other\",\"protocol\":\"nvmeof\",\"buffers\":["
        "{\"file_path\":\"/there/1\",\"length\":%zu,\"local_path_map\":{\"%s\":\"%s/1\"}},"
        "{\"file_path\":\"/there/2\",\"length\":%zu,\"local_path_map\":{\"%s\":\"%s/2\"}}]}",
        FILE1, host, folder, FILE2, host, folder);
    http_kv_set(&kv, key, text);
}

/* ------------------------------------------------------------------------------------ file:///path */

static void both_ways(void **state)
{
    te_segment seg, again;
    te_buffer b[2];
    size_t total;

    (void)state;
    make_file("f", SIZE - 1);
    seg = open_file("f");
    assert_int_equal(te_segment_buffers(e, seg, b, 2, &total), 0);
    assert_int_equal(total, 1);
    assert_null(b[0].addr);
    assert_int_equal(b[0].length, SIZE - 1);
    round_trip(seg, 0, SIZE - 1, 1);
    check_file("f", 0, SIZE - 1, 1);
    round_trip(seg, 4097, 99999, 2);
    check_file("f", 4097, 99999, 2);
    round_trip(seg, SIZE - 2, 1, 3);
    works(TE_READ, seg, 0, 0);
    again = open_file("f");
    assert_int_equal(again, seg);
    assert_int_equal(te_close(e, again), 0);
    works(TE_READ, seg, 0, 1);
    assert_int_equal(te_close(e, seg), 0);
    assert_int_equal(te_close(e, seg), TE_ERR_NOT_FOUND);
}

static void past_its_end(void **state)
{
    te_segment seg;
    te_buffer b;
    size_t total;

    (void)state;
    make_file("f", 10000);
    seg = open_file("f");
    fails(TE_READ, seg, 9999, 2, TE_INVALID, TE_ERR_STALE, "end before");
    fails(TE_WRITE, seg, 10000, 1, TE_INVALID, TE_ERR_STALE, "end before");
    fails(TE_READ, seg, UINT64_MAX - 10, 5, TE_INVALID, TE_ERR_STALE, "end before");
    /* It grows, and who asks for more finds it, or is told. */
    make_file("f", 20000);
    works(TE_WRITE, seg, 9999, 2);
    make_file("f", 30000);
    assert_int_equal(te_segment_buffers(e, seg, &b, 1, &total), 0);
    assert_int_equal(b.length, 20000);
    assert_int_equal(te_refresh(e, NULL), 0);
    assert_int_equal(te_segment_buffers(e, seg, &b, 1, &total), 0);
    assert_int_equal(b.length, 30000);
    /* It shrinks under a segment that does not know. */
    assert_int_equal(truncate(path_of("f"), 5000), 0);
    fails(TE_READ, seg, 4000, 2000, TE_INVALID, TE_ERR_STALE, "end before");
    works(TE_READ, seg, 4000, 1000);
    /* It is gone: what is open still works, what needs its path does not. */
    assert_int_equal(unlink(path_of("f")), 0);
    works(TE_READ, seg, 0, 1000);
    assert_int_equal(te_refresh(e, NULL), TE_ERR_NOT_FOUND);
    assert_non_null(strstr(te_errmsg(), path_of("f")));
    fails(TE_READ, seg, 4000, 2000, TE_FAILED, TE_ERR_NOT_FOUND, path_of("f"));
    assert_int_equal(te_close(e, seg), 0);
}

static void replaced(void **state)
{
    te_segment seg;

    (void)state;
    make_file("f", SIZE);
    seg = open_file("f");
    round_trip(seg, 0, SIZE, 1);
    assert_int_equal(unlink(path_of("f")), 0);
    make_file("f", SIZE);
    assert_int_equal(te_refresh(e, NULL), 0);
    round_trip(seg, 0, SIZE, 2);
    check_file("f", 0, SIZE, 2);
    assert_int_equal(te_close(e, seg), 0);
}

static void names_that_are_none(void **state)
{
    char uri[PATH_MAX + 128];

    (void)state;
    te_log_set_level(TE_LOG_OFF);
    make_file("empty", 1);
    assert_int_equal(truncate(path_of("empty"), 0), 0);
    snprintf(uri, sizeof uri, "file://%s", path_of("missing"));
    refuses(uri, TE_ERR_NOT_FOUND, "create it with the size");
    snprintf(uri, sizeof uri, "file://%s", path_of("empty"));
    refuses(uri, TE_ERR_INVALID, "is empty");
    snprintf(uri, sizeof uri, "file://%s", dir);
    refuses(uri, TE_ERR_INVALID, "neither a regular file nor a block device");
    refuses("file:///dev/null", TE_ERR_INVALID, "neither a regular file nor a block device");
    refuses("file://otherhost/x", TE_ERR_INVALID, "absolute path");
    refuses("file://", TE_ERR_INVALID, "absolute path");
    refuses("file://localhostile/x", TE_ERR_INVALID, "absolute path");
    make_file("f", 100);
    snprintf(uri, sizeof uri, "file://localhost%s", path_of("f"));
    {
        te_segment seg;

        assert_int_equal(te_open(e, uri, &seg), 0);
        works(TE_READ, seg, 0, 100);
        assert_int_equal(te_close(e, seg), 0);
    }
}

static void explained(void **state)
{
    te_request r = {.opcode = TE_READ, .source = mem, .length = 100};
    char text[4096];

    (void)state;
    make_file("f", 10000);
    r.target = open_file("f");
    assert_int_equal(te_explain(e, &r, text, sizeof text), 0);
    assert_non_null(strstr(text, "has the range"));
    assert_non_null(strstr(text, "transport nvmeof: score 100, taken"));
    assert_non_null(strstr(text, "transport tcp: not possible: reaches memory"));
    r.target_offset = 9999;
    assert_int_equal(te_explain(e, &r, text, sizeof text), 0);
    assert_non_null(strstr(text, "lacks the range"));
    r.target = TE_LOCAL_SEGMENT;
    r.target_offset = (uintptr_t)mem;
    assert_int_equal(te_explain(e, &r, text, sizeof text), 0);
    assert_null(strstr(text, "transport nvmeof: score 100"));
    r.target = open_file("f");
    assert_int_equal(te_close(e, r.target), 0);
    assert_int_equal(te_close(e, r.target), 0);
}

/* There is nobody in a file who could be told anything. */
static void no_notifications(void **state)
{
    te_submit_opts opts = {.size = sizeof opts, .notify_name = "a", .notify_msg = "b"};
    te_request r = {.opcode = TE_READ, .source = mem, .length = 1};
    te_segment seg;
    te_batch b;

    (void)state;
    te_log_set_level(TE_LOG_OFF);
    make_file("f", 100);
    seg = open_file("f");
    assert_int_equal(te_notify(e, seg, "a", "b"), TE_ERR_UNSUPPORTED);
    assert_non_null(strstr(te_errmsg(), "made of files"));
    /* Nor after a submit, which then does nothing at all. */
    r.target = opts.notify_target = seg;
    assert_int_equal(te_batch_alloc(e, 1, &b), 0);
    assert_int_equal(te_submit(e, b, &r, 1, &opts), TE_ERR_UNSUPPORTED);
    assert_int_equal(te_batch_free(e, b), 0);
    works(TE_READ, seg, 0, 100);
    assert_int_equal(te_close(e, seg), 0);
}

static void without_the_transport(void **state)
{
    te_segment seg;

    (void)state;
    te_log_set_level(TE_LOG_OFF);
    make_file("f", SIZE);
    seg = open_file("f");
    round_trip(seg, 0, SIZE, 1);
    assert_int_equal(te_transport_uninstall(e, "nvmeof"), 0);
    {
        te_request r = {.opcode = TE_READ, .source = mem, .target = seg, .length = 1};
        char text[4096];
        te_batch b;

        assert_int_equal(te_explain(e, &r, text, sizeof text), TE_ERR_UNSUPPORTED);
        assert_non_null(strstr(text, "transport nvmeof: not installed"));
        assert_int_equal(te_batch_alloc(e, 1, &b), 0);
        assert_int_equal(te_submit(e, b, &r, 1, NULL), TE_ERR_UNSUPPORTED);
        assert_int_equal(te_batch_free(e, b), 0);
    }
    assert_int_equal(te_transport_uninstall(e, "nvmeof"), TE_ERR_NOT_FOUND);
    assert_int_equal(te_transport_install(e, "nvmeof", "relative"), TE_ERR_INVALID);
    assert_int_equal(te_transport_install(e, "nvmeof", "/a/../b"), TE_ERR_INVALID);
    assert_int_equal(te_transport_install(e, "nvmeof", path_of("no")), 0);
    fails(TE_READ, seg, 0, 1, TE_INVALID, TE_ERR_ACCESS, "TE_FILE_PATHS");
    {
        te_request r = {.opcode = TE_READ, .source = mem, .target = seg, .length = 1};
        char uri[PATH_MAX + 128], text[4096];

        assert_int_equal(te_explain(e, &r, text, sizeof text), 0);
        assert_non_null(strstr(text, path_of("f")));
        assert_non_null(strstr(text, "TE_FILE_PATHS"));
        snprintf(uri, sizeof uri, "file://localhost%s", path_of("f"));
        refuses(uri, TE_ERR_ACCESS, path_of("f"));
        refuses("file:///etc/passwd", TE_ERR_ACCESS, "TE_FILE_PATHS");
    }
    assert_int_equal(te_transport_install(e, "nvmeof", dir), 0);
    round_trip(seg, 0, SIZE, 2);
    assert_int_equal(te_close(e, seg), 0);
}

static void close_while_used(void **state)
{
    static te_request r[500]; /* more than is written before the cancel */
    struct te_status st;
    te_segment seg;
    te_batch b;
    int rc;

    (void)state;
    te_log_set_level(TE_LOG_OFF);
    make_file("f", SIZE);
    seg = open_file("f");
    assert_int_equal(te_batch_alloc(e, 500, &b), 0);
    for (size_t i = 0; i < 500; i++)
        r[i] = (te_request){.opcode = TE_WRITE, .source = mem, .target = seg, .length = SIZE};
    assert_int_equal(te_submit(e, b, r, 500, NULL), 0);
    rc = te_close(e, seg);
    assert_int_equal(te_transport_uninstall(e, "nvmeof"), TE_ERR_BUSY);
    assert_int_equal(te_cancel(e, b), 0);
    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    for (size_t i = 0; i < 500; i++) {
        assert_int_equal(te_status(e, b, i, &st), 0);
        assert_true(st.state == TE_CANCELED || st.state == TE_COMPLETED);
    }
    assert_int_equal(st.state, TE_CANCELED);
    assert_int_equal(rc, TE_ERR_BUSY);
    assert_int_equal(te_batch_free(e, b), 0);
    round_trip(seg, 0, SIZE, 4);
    assert_int_equal(te_close(e, seg), 0);
}

static void prepared(void **state)
{
    void *local[100];
    uint64_t remote[100];
    size_t length[100];
    struct te_status st;
    te_segment seg;
    te_batch b;
    te_prep p;

    (void)state;
    make_file("f", SIZE);
    seg = open_file("f");
    for (size_t i = 0; i < 100; i++) {
        local[i] = mem + i * 10000;
        remote[i] = (99 - i) * 10000;
        length[i] = 9999;
    }
    assert_int_equal(te_prep_create(e, seg, local, remote, length, 100, &p), 0);
    for (size_t i = 0; i < 100; i++)
        fill(local[i], 9999, i);
    assert_int_equal(te_batch_alloc(e, 200, &b), 0);
    assert_int_equal(te_prep_submit(e, b, p, TE_WRITE, NULL, 100, NULL), 0);
    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    memset(mem, 0, SIZE);
    assert_int_equal(te_prep_submit(e, b, p, TE_READ, NULL, 100, NULL), 0);
    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_status(e, b, &st), 0);
    assert_int_equal(st.state, TE_COMPLETED);
    for (size_t i = 0; i < 100; i++) {
        assert_int_equal(first_difference(local[i], 9999, i), 9999);
        check_file("f", (99 - i) * 10000, 9999, i);
    }
    assert_int_equal(te_batch_free(e, b), 0);
    assert_int_equal(te_prep_destroy(e, p), 0);
    assert_int_equal(te_close(e, seg), 0);
}

/* An engine that ends takes its requests to files with it. */
static void destroyed_in_flight(void **state)
{
    te_engine *other = make_engine("P2PHANDSHAKE", "127.0.0.1", "");
    unsigned char *m = map_pages(SIZE);
    char uri[PATH_MAX + 128];
    te_request r[64];
    te_segment seg;
    te_batch b;

    (void)state;
    make_file("f", SIZE);
    snprintf(uri, sizeof uri, "file://%s", path_of("f"));
    assert_int_equal(te_register(other, m, SIZE, "*", TE_REMOTE_RW), 0);
    assert_int_equal(te_open(other, uri, &seg), 0);
    for (size_t i = 0; i < 64; i++)
        r[i] = (te_request){.opcode = TE_READ, .source = m, .target = seg, .length = SIZE};
    assert_int_equal(te_batch_alloc(other, 64, &b), 0);
    assert_int_equal(te_submit(other, b, r, 64, NULL), 0);
    te_engine_destroy(other);
    /* The memory is quiet: what is written there now stays. */
    fill(m, SIZE, 9);
    usleep(20000);
    assert_int_equal(first_difference(m, SIZE, 9), SIZE);
    munmap(m, SIZE);
}

/* ------------------------------------------------------------------------------------------ records */

static void no_records_without_a_store(void **state)
{
    (void)state;
    te_log_set_level(TE_LOG_OFF);
    refuses("nvmeof/x", TE_ERR_NOT_FOUND, "P2PHANDSHAKE keeps no records of files");
}

static void row_of_files(void **state)
{
    te_segment seg;
    te_buffer b[3];
    size_t total;

    (void)state;
    make_file("1", FILE1);
    make_file("2", FILE2);
    put_record("mooncake/nvmeof/x", "files", dir);
    assert_int_equal(te_open(e, "nvmeof/x", &seg), 0);
    assert_int_equal(te_segment_buffers(e, seg, b, 3, &total), 0);
    assert_int_equal(total, 2);
    assert_int_equal((uintptr_t)b[1].addr, FILE1);
    assert_int_equal(b[1].length, FILE2);
    round_trip(seg, 0, FILE1 + FILE2, 1);
    fill(mem, 20000, 2);
    works(TE_WRITE, seg, FILE1 - 10000, 20000); /* over both */
    check_file("1", FILE1 - 10000, 10000, 2);
    memset(mem, 0, 20000);
    works(TE_READ, seg, FILE1 - 10000, 20000);
    assert_int_equal(first_difference(mem, 20000, 2), 20000);
    round_trip(seg, FILE1, 1, 3);
    fails(TE_READ, seg, FILE1, FILE2 + 1, TE_INVALID, TE_ERR_STALE, "end before");
    /* One of them is away: what does not need it works. */
    assert_int_equal(te_close(e, seg), 0);
    assert_int_equal(unlink(path_of("2")), 0);
    assert_int_equal(te_open(e, "nvmeof/x", &seg), 0);
    works(TE_READ, seg, 0, FILE1);
    fails(TE_READ, seg, FILE1 - 1, 2, TE_FAILED, TE_ERR_NOT_FOUND, path_of("2"));
    assert_int_equal(te_close(e, seg), 0);
}

static void bare_names(void **state)
{
    te_engine *memory = make_engine(kv.url, "m", "");
    te_segment seg, full;
    unsigned char *m = map_pages(4096);

    (void)state;
    te_log_set_level(TE_LOG_OFF);
    make_file("1", FILE1);
    make_file("2", FILE2);
    put_record("mooncake/nvmeof/x", "files", dir);
    put_record("mooncake/nvmeof/m", "files", dir);
    refuses("x", TE_ERR_NOT_FOUND, "opened as nvmeof/x");
    assert_int_equal(te_transport_install(e, "nvmeof", NULL), 0);
    assert_int_equal(te_open(e, "x", &seg), 0);
    round_trip(seg, 0, FILE1 + FILE2, 1);
    assert_int_equal(te_open(e, "nvmeof/x", &full), 0);
    assert_int_equal(full, seg);
    assert_int_equal(te_open(e, "/x", &full), 0);
    assert_int_equal(full, seg);
    assert_int_equal(te_refresh(e, "x"), 0);
    assert_int_equal(te_refresh(e, "nvmeof/x"), 0);
    assert_int_equal(te_refresh(e, "y"), TE_ERR_NOT_FOUND);
    for (int i = 0; i < 3; i++)
        assert_int_equal(te_close(e, seg), 0);
    /* An engine of the same name goes first. */
    assert_int_equal(te_register(memory, m, 4096, "*", TE_REMOTE_RW), 0);
    assert_int_equal(te_open(e, "m", &seg), 0);
    fill(mem, 4096, 7);
    works(TE_WRITE, seg, (uintptr_t)m, 4096);
    assert_int_equal(first_difference(m, 4096, 7), 4096);
    assert_int_equal(te_open(e, "nvmeof/m", &full), 0);
    assert_int_not_equal(full, seg);
    assert_int_equal(te_close(e, full), 0);
    assert_int_equal(te_close(e, seg), 0);
    refuses("nobody", TE_ERR_NOT_FOUND, "nor is there one of files, key mooncake/nvmeof/nobody");
    refuses("nvmeof/nobody", TE_ERR_NOT_FOUND, "mooncake/nvmeof/nobody");
    assert_int_equal(te_transport_uninstall(e, "nvmeof"), 0);
    refuses("x", TE_ERR_NOT_FOUND, "opened as nvmeof/x");
    te_engine_destroy(memory);
    munmap(m, 4096);
}

/* A segment that was an engine's does not become one of files of the same name. */
static void engine_gone_files_there(void **state)
{
    te_engine *memory = make_engine(kv.url, "m", "");
    te_segment seg, full;
    unsigned char *m = map_pages(4096);

    (void)state;
    make_file("1", FILE1);
    make_file("2", FILE2);
    put_record("mooncake/nvmeof/m", "files", dir);
    assert_int_equal(te_transport_install(e, "nvmeof", NULL), 0);
    assert_int_equal(te_register(memory, m, 4096, "*", TE_REMOTE_RW), 0);
    assert_int_equal(te_open(e, "m", &seg), 0);
    te_engine_destroy(memory);
    assert_int_equal(te_refresh(e, "m"), TE_ERR_NOT_FOUND);
    assert_int_equal(te_open(e, "m", &full), 0);
    assert_int_equal(full, seg);
    assert_int_equal(te_open(e, "nvmeof/m", &full), 0);
    assert_int_not_equal(full, seg);
    assert_int_equal(te_close(e, full), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(te_close(e, seg), 0);
    munmap(m, 4096);
}

/* Tells the server of this test what the other one has of the engine "m". */
static void copy_key(struct http_kv *from, const char *key)
{
    char *value = http_kv_get(from, key);

    assert_non_null(value);
    http_kv_set(&kv, key, value);
    free(value);
}

/*
 * Whoever can write to the server removes the keys of an engine that lives, and puts a record of files in
 * their place. The engine has a server of its own, so that it does not put its keys again.
 */
static void engine_robbed_of_its_name(void **state)
{
    struct http_kv its_own = {0};
    te_engine *memory, *late, *files = e;
    te_segment seg, again;
    unsigned char *m = map_pages(4096);

    (void)state;
    te_log_set_level(TE_LOG_OFF);
    assert_true(http_kv_start(&its_own));
    memory = make_engine(its_own.url, "m", "");
    assert_int_equal(te_register(memory, m, 4096, "*", TE_REMOTE_RW), 0);
    copy_key(&its_own, "mooncake/ram/m");
    copy_key(&its_own, "mooncake/rpc_meta/m");
    make_file("1", FILE1);
    make_file("2", FILE2);
    put_record("mooncake/nvmeof/m", "*", dir);
    assert_int_equal(te_transport_install(e, "nvmeof", NULL), 0);
    assert_int_equal(te_open(e, "m", &seg), 0);
    http_kv_set(&kv, "mooncake/ram/m", NULL);
    /* Who has it open does not mind. */
    assert_int_equal(te_refresh(e, "m"), 0);
    fill(mem, 4096, 7);
    works(TE_WRITE, seg, (uintptr_t)m, 4096);
    assert_int_equal(first_difference(m, 4096, 7), 4096);
    /* Nobody else gets files, not even who has asked for them. */
    e = late = make_engine(kv.url, "late", dir);
    refuses("m", TE_ERR_NOT_FOUND, "opened as nvmeof/m");
    assert_int_equal(te_transport_install(e, "nvmeof", NULL), 0);
    refuses("m", TE_ERR_NOT_FOUND, "an engine is announced as m");
    e = files;
    http_kv_set(&kv, "mooncake/rpc_meta/m", NULL);
    assert_int_equal(te_refresh(e, "m"), 0);
    works(TE_READ, seg, (uintptr_t)m, 4096);
    te_engine_destroy(memory);
    assert_int_equal(te_refresh(e, "m"), TE_ERR_NOT_FOUND);
    assert_int_equal(te_open(e, "m", &again), 0);
    assert_int_equal(again, seg);
    for (int i = 0; i < 2; i++)
        assert_int_equal(te_close(e, seg), 0);
    te_engine_destroy(late);
    munmap(m, 4096);
    http_kv_stop(&its_own);
}

/* An engine that nobody has told of files is not led to any. */
static void nobody_asked_for_files(void **state)
{
    te_engine *files = e, *plain = make_engine(kv.url, "plain", "");
    te_segment seg;

    (void)state;
    te_log_set_level(TE_LOG_OFF);
    make_file("1", FILE1);
    make_file("2", FILE2);
    put_record("mooncake/nvmeof/x", "*", dir);
    e = plain;
    refuses("x", TE_ERR_NOT_FOUND, "opened as nvmeof/x");
    refuses("nvmeof/x", TE_ERR_ACCESS, path_of("1"));
    refuses("nvmeof/x", TE_ERR_ACCESS, "TE_FILE_PATHS");
    /* By name, and with one of the two paths: it is the other one that is named. */
    assert_int_equal(te_transport_install(e, "nvmeof", NULL), 0);
    refuses("x", TE_ERR_ACCESS, path_of("1"));
    assert_int_equal(te_transport_install(e, "nvmeof", path_of("1")), 0);
    refuses("x", TE_ERR_ACCESS, path_of("2"));
    assert_int_equal(te_transport_install(e, "nvmeof", path_of("2")), 0);
    assert_int_equal(te_register(e, mem, SIZE, "*", TE_REMOTE_RW), 0);
    assert_int_equal(te_open(e, "x", &seg), 0);
    round_trip(seg, 0, FILE1 + FILE2, 5);
    assert_int_equal(te_close(e, seg), 0);
    e = files;
    te_engine_destroy(plain);
}

/* The record of a segment that is open leads elsewhere all at once. */
static void record_that_turns(void **state)
{
    te_request r = {.opcode = TE_WRITE, .source = mem, .length = 100};
    char name[] = "te-away-XXXXXX", away[PATH_MAX], path[PATH_MAX + 8], text[4096];
    te_segment seg;

    (void)state;
    te_log_set_level(TE_LOG_OFF);
    assert_true(mkdtemp(name) && realpath(name, away));
    snprintf(path, sizeof path, "%s/1", away);
    make_file("1", FILE1);
    make_file("2", FILE2);
    assert_int_equal(symlink(path, path_of("link")), 0);
    put_record("mooncake/nvmeof/x", "files", dir);
    assert_int_equal(te_open(e, "nvmeof/x", &seg), 0);
    round_trip(seg, 0, FILE1, 5);
    put_record("mooncake/nvmeof/x", "files", away);
    assert_int_equal(te_refresh(e, NULL), 0);
    r.target = seg;
    assert_int_equal(te_explain(e, &r, text, sizeof text), 0);
    assert_non_null(strstr(text, path));
    assert_non_null(strstr(text, "TE_FILE_PATHS"));
    fails(TE_WRITE, seg, 0, 100, TE_INVALID, TE_ERR_ACCESS, path);
    fails(TE_READ, seg, FILE1, 100, TE_INVALID, TE_ERR_ACCESS, "TE_FILE_PATHS");
    /* And back; a link that leads away is found when the file is opened. */
    put_record("mooncake/nvmeof/x", "files", dir);
    assert_int_equal(te_refresh(e, NULL), 0);
    works(TE_READ, seg, 0, FILE1);
    assert_int_equal(te_close(e, seg), 0);
    assert_int_equal(rename(path_of("2"), path), 0);
    assert_int_equal(rename(path_of("link"), path_of("1")), 0);
    make_file("2", FILE2);
    assert_int_equal(te_open(e, "nvmeof/x", &seg), 0);
    fails(TE_WRITE, seg, 0, 100, TE_INVALID, TE_ERR_ACCESS, "links lead");
    assert_int_equal(te_close(e, seg), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(away), 0);
}

/* Another host writes a path for this one into the record. */
static void mounted_later(void **state)
{
    te_segment seg;

    (void)state;
    te_log_set_level(TE_LOG_OFF);
    make_file("1", FILE1);
    make_file("2", FILE2);
    put_record("mooncake/nvmeof/x", "another", dir);
    assert_int_equal(te_open(e, "nvmeof/x", &seg), 0);
    fails(TE_READ, seg, 0, 100, TE_FAILED, TE_ERR_PEER, "te_segment mount");
    /* The request itself has the record looked up again. */
    put_record("mooncake/nvmeof/x", "files", dir);
    round_trip(seg, 0, FILE1 + FILE2, 5);
    check_file("1", 0, FILE1, 5);
    /* And takes it back. */
    put_record("mooncake/nvmeof/x", "another", dir);
    assert_int_equal(te_refresh(e, NULL), 0);
    fails(TE_READ, seg, 0, 100, TE_FAILED, TE_ERR_PEER, "te_segment mount");
    http_kv_set(&kv, "mooncake/nvmeof/x",
                "{\"name\":\"nvmeof/x\",\"protocol\":\"nvmeof\","
                "\"buffers\":[{\"length\":1}]}");
    assert_int_equal(te_refresh(e, "nvmeof/x"), TE_ERR_JSON);
    assert_int_equal(te_close(e, seg), 0);
}

/* ---------------------------------------------------------------------------------------- the C names */

static void c_names(void **state)
{
    transfer_engine_t old = createTransferEngine(kv.url, "files-c", "127.0.0.1", 0, 0);
    transfer_request_t r = {.opcode = OPCODE_WRITE, .source = mem, .length = 100000};
    void *args[] = {dir, NULL};
    transfer_status_t st;
    batch_id_t b;
    int id;

    (void)state;
    make_file("1", FILE1);
    make_file("2", FILE2);
    put_record("mooncake/nvmeof/x", "files-c", dir);
    assert_non_null(old);
    assert_non_null(installTransport(old, "nvmeof", args));
    assert_int_equal(registerLocalMemory(old, mem, SIZE, "*", 1), 0);
    id = openSegment(old, "nvmeof/x");
    assert_true(id > 0);
    r.target_id = id;
    r.target_offset = FILE1 - 50000;
    fill(mem, 100000, 6);
    b = allocateBatchID(old, 1);
    assert_int_equal(submitTransfer(old, b, &r, 1), 0);
    do
        assert_int_equal(getTransferStatus(old, b, 0, &st), 0);
    while (st.status == STATUS_WAITING || st.status == STATUS_PENDING);
    assert_int_equal(st.status, STATUS_COMPLETED);
    check_file("1", FILE1 - 50000, 50000, 6);
    assert_int_equal(freeBatchID(old, b), 0);
    assert_int_equal(syncSegmentCache(old), 0);
    assert_int_equal(closeSegment(old, id), 0);
    assert_int_equal(uninstallTransport(old, "nvmeof"), 0);
    destroyTransferEngine(old);
}

/* ------------------------------------------------------------------------------------------- main */

static int set_up(void **state)
{
    char name[32] = "te-files-XXXXXX";
    const char *metadata = *state;

    if (!mkdtemp(name) || !realpath(name, dir))
        return -1;
    te_log_set_level(TE_LOG_ERROR);
    if (!metadata && !http_kv_start(&kv))
        return -1;
    e = metadata ? make_engine(metadata, "127.0.0.1", "") : make_engine(kv.url, "files", dir);
    mem = map_pages(SIZE);
    return te_register(e, mem, SIZE, "*", TE_REMOTE_RW);
}

static int tear_down(void **state)
{
    char command[PATH_MAX + 16];

    te_engine_destroy(e);
    munmap(mem, SIZE);
    if (!*state)
        http_kv_stop(&kv);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

static char p2p[] = "P2PHANDSHAKE";

#define ALONE(name)  cmocka_unit_test_prestate_setup_teardown(name, set_up, tear_down, p2p)
#define STORED(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ALONE(both_ways),
        ALONE(past_its_end),
        ALONE(replaced),
        ALONE(names_that_are_none),
        ALONE(explained),
        ALONE(no_notifications),
        ALONE(without_the_transport),
        ALONE(close_while_used),
        ALONE(prepared),
        ALONE(destroyed_in_flight),
        ALONE(no_records_without_a_store),
    };
    const struct CMUnitTest stored[] = {
        STORED(both_ways),
        STORED(past_its_end),
        STORED(row_of_files),
        STORED(bare_names),
        STORED(engine_gone_files_there),
        STORED(engine_robbed_of_its_name),
        STORED(nobody_asked_for_files),
        STORED(record_that_turns),
        STORED(mounted_later),
        STORED(c_names),
    };
    int failed;

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (TE_USE_HTTP) /* what serves them speaks it */
        failed += cmocka_run_group_tests(stored, NULL, NULL);
    return failed;
}
