/* SPDX-License-Identifier: Apache-2.0 */
/* What a descriptor may cost whoever reads it: bytes, buffers, memory and time. */
#include "model/model.h"
#include "test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/os.h"
#include "proc.h"

#define MIB  ((size_t)1 << 20)
#define FREE (8 * MIB) /* what the tree of any text may take */

/* A text that grows; a test's whole memory is measured, so there is one of it. */
static struct text {
    char p[20 << 20];
    size_t len;
} text;

static void put(const char *s)
{
    size_t n = strlen(s);

    assert_true(text.len + n < sizeof text.p);
    memcpy(text.p + text.len, s, n + 1);
    text.len += n;
}

/* head, `item` until there are `bytes` of them, the last one without its comma, tail. */
static void fill(const char *head, const char *item, const char *tail, size_t bytes)
{
    text.len = 0;
    put(head);
    while (text.len < bytes)
        put(item);
    text.len--;
    put(tail);
}

static void fill_buffers(const char *keys, const char *tail, size_t bytes, bool sorted)
{
    char item[256];

    text.len = 0;
    put("{\"buffers\":[");
    for (uint64_t i = 1; text.len < bytes; i++) {
        snprintf(item, sizeof item, "{\"addr\":%" PRIu64 ",\"length\":4096,\"name\":\"x\"%s},",
                 (sorted ? i : 1000000 - i) * 4096, keys);
        put(item);
    }
    text.len--;
    put(tail);
}

#define TCP  "],\"name\":\"x\",\"protocol\":\"tcp\"}"
#define RDMA "],\"devices\":[{\"gid\":\"0\",\"name\":\"d\"}],\"name\":\"x\",\"protocol\":\"rdma\"}"

static int decode(size_t max_bytes, size_t max_buffers, int64_t deadline_ns, struct tei_segment **s)
{
    struct tei_segment_limits limits = {max_bytes, max_buffers, deadline_ns};

    *s = NULL;
    return tei_segment_decode(text.p, text.len, &limits, s);
}

static void says(const char *what)
{
    if (!strstr(te_errmsg(), what))
        fail_msg("'%s' is not in: %s", what, te_errmsg());
}

TEST(bytes)
{
    struct tei_segment *s;

    fill_buffers("", TCP, 1000, true);
    assert_int_equal(decode(text.len, 1000, TEI_NEVER, &s), 0);
    tei_segment_put(s);
    assert_int_equal(decode(text.len - 1, 1000, TEI_NEVER, &s), TE_ERR_TOO_LARGE);
    says("TE_DESCRIPTOR_MAX_BYTES");
}

TEST(buffers)
{
    struct tei_segment *s;
    size_t n;

    fill_buffers("", TCP, 10000, true);
    assert_int_equal(decode(MIB, MIB, TEI_NEVER, &s), 0);
    n = s->n_buffers;
    assert_true(n > 100);
    tei_segment_put(s);
    assert_int_equal(decode(MIB, n, TEI_NEVER, &s), 0);
    tei_segment_put(s);
    assert_int_equal(decode(MIB, n - 1, TEI_NEVER, &s), TE_ERR_TOO_LARGE);
    says("TE_DESCRIPTOR_MAX_BUFFERS");
    /* What is listed counts, be it memory or not. */
    fill("{\"buffers\":[", "{\"offset\":1},", TCP, 1000);
    assert_int_equal(decode(MIB, 5, TEI_NEVER, &s), TE_ERR_TOO_LARGE);
}

/* Whatever peers put beside the lists, nobody makes a tree of much of it. */
TEST(trees)
{
    static const struct {
        const char *head, *item, *tail;
    } much[] = {
        {"{\"name\":\"x\",\"protocol\":\"tcp\",\"y\":[", "[],", "]}"},
        {"{\"name\":\"x\",\"protocol\":\"tcp\",\"y\":[", "{},", "]}"},
        {"{\"name\":\"x\",\"protocol\":\"tcp\",\"te\":{\"y\":[", "0,", "]}}"},
        {"{\"name\":\"x\",\"protocol\":\"tcp\",\"te\":{\"page\":[", "{},", "]}}"},
        {"{\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"x\",\"y\":[", "[],", "]}" RDMA},
        {"{\"buffers\":[{\"file_path\":\"/x\",\"length\":1,\"y\":[", "{},",
         "]}],\"name\":\"x\",\"protocol\":\"nvmeof\"}"},
    };
    struct tei_segment *s;

    for (size_t i = 0; i < TEI_ARRAY_LEN(much); i++) {
        fill(much[i].head, much[i].item, much[i].tail, 4 * MIB);
        assert_int_equal(decode(16 * MIB, MIB, TEI_NEVER, &s), TE_ERR_TOO_LARGE);
        fill(much[i].head, much[i].item, much[i].tail, 50000);
        if (i != 2 && i != 3) /* no version */
            assert_int_equal(decode(16 * MIB, MIB, TEI_NEVER, &s), 0);
        tei_segment_put(s);
        s = NULL;
    }
    /* A list of another kind, or a second one, is no list. */
    fill("{\"name\":\"x\",\"protocol\":\"tcp\",\"buffers\":[],\"buffers\":[", "{},", "]}", 4 * MIB);
    assert_int_equal(decode(16 * MIB, MIB, TEI_NEVER, &s), TE_ERR_TOO_LARGE);
    fill("{\"name\":\"x\",\"protocol\":\"tcp\",\"buffers\":{\"y\":[", "{},", "]}}", 4 * MIB);
    assert_int_equal(decode(16 * MIB, MIB, TEI_NEVER, &s), TE_ERR_TOO_LARGE);
}

/* The keys of 16,384 allocations of a device's memory, as many as an engine shares. */
TEST(honest_trees_fit)
{
    struct tei_segment *s;
    char entry[256];

    snprintf(entry, sizeof entry, "[139820210847744,67108864,\"%0128d\",16383,12,\"%032d\"],", 0,
             0);
    text.len = 0;
    put("{\"name\":\"x\",\"protocol\":\"tcp\",\"te\":{\"incarnation\":\"000000000000beef\","
        "\"version\":1,\"nvlink\":{\"memory\":[");
    for (int i = 0; i < 16384; i++)
        put(entry);
    text.len--;
    put("]}}}");
    assert_int_equal(decode(16 * MIB, MIB, TEI_NEVER, &s), 0);
    tei_segment_put(s);
}

TEST(deadline)
{
    static const char *const tails[] = {TCP, RDMA};
    struct tei_segment *s;

    for (size_t i = 0; i < TEI_ARRAY_LEN(tails); i++) {
        fill_buffers("", tails[i], 4 * MIB, true);
        assert_int_equal(decode(16 * MIB, MIB, tei_now_ns(), &s), TE_ERR_TIMEOUT);
        assert_null(s);
        assert_int_equal(decode(16 * MIB, MIB, TEI_NEVER, &s), 0);
        tei_segment_put(s);
    }
}

/* ----------------------------------------------------------------------------------------- memory */

static size_t peak(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    size_t kib = 0;

    assert_non_null(f);
    while (fgets(line, sizeof line, f) && sscanf(line, "VmHWM: %zu", &kib) != 1)
        continue;
    fclose(f);
    return kib << 10;
}

/* Reads the text in a process of its own; what that took at most. */
static size_t memory_of(int want)
{
    size_t before, taken = 0;
    int pipes[2], status;
    pid_t pid;

    assert_int_equal(pipe(pipes), 0);
    pid = fork();
    if (pid == 0) {
        struct tei_segment *s = NULL;

        before = peak();
        if (decode(256 * MIB, 4 * MIB, TEI_NEVER, &s) != want)
            _exit(1);
        taken = peak() - before;
        _exit(write(pipes[1], &taken, sizeof taken) == (ssize_t)sizeof taken ? 0 : 2);
    }
    close(pipes[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(read(pipes[0], &taken, sizeof taken), sizeof taken);
    close(pipes[0]);
    return taken;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEASURES false /* its own memory would be measured */
#elif defined(__has_feature)
#define MEASURES (!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer))
#else
#define MEASURES true
#endif

/* With the text itself three times its bytes, so here twice. */
static void check_memory(const char *what, int want)
{
    size_t taken = memory_of(want);

    if (MEASURES && !test_under_valgrind() && taken > 2 * text.len + FREE)
        fail_msg("%s: %zu bytes for %zu", what, taken, text.len);
}

TEST(memory)
{
    const size_t n = 15 * MIB;

    fill_buffers("", TCP, n, true);
    check_memory("sorted", 0);
    fill_buffers("", TCP, n, false);
    check_memory("not sorted", 0);
    fill_buffers(",\"rkey\":[1],\"lkey\":[1]", RDMA, n, true);
    check_memory("with keys", 0);
    fill_buffers(",\"rkey\":[1],\"lkey\":[1]", RDMA, n, false);
    check_memory("with keys, not sorted", 0);
    fill("{\"buffers\":[", "{\"offset\":1},", TCP, n);
    check_memory("offsets", 0);
    fill("{\"buffers\":[", "{\"file_path\":\"/\",\"length\":1},",
         "],\"name\":\"x\",\"protocol\":\"nvmeof\"}", n);
    check_memory("files", 0);
    fill("{\"buffers\":[", "[],", TCP, n);
    check_memory("no buffers", TE_ERR_JSON);
    fill("{\"name\":\"x\",\"protocol\":\"tcp\",\"y\":[", "[],", "]}", n);
    check_memory("much beside them", TE_ERR_TOO_LARGE);
    fill("{\"name\":\"x\",\"protocol\":\"tcp\",\"y\":\"", "0123456789 ", "\"}", n);
    check_memory("a long text", 0);
    fill(
        "{\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"x\"}],\"name\":\"x\",\"protocol\":\"tcp\","
        "\"te\":{\"incarnation\":\"000000000000beef\",\"version\":1,\"rights\":[",
        "[1,\"r\"],", "]}}", n);
    check_memory("rights", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes),    cmocka_unit_test(buffers),          cmocka_unit_test(trees),
        cmocka_unit_test(deadline), cmocka_unit_test(honest_trees_fit), cmocka_unit_test(memory),
    };

    te_log_set_level(TE_LOG_OFF);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
