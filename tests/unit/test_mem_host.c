/* SPDX-License-Identifier: Apache-2.0 */

#include "base/os.h"
#include "plat/plat.h"
#include "proc.h"
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE ((size_t)1 << 20)

TEST(shared_and_sealed)
{
    size_t before = test_count_fds(), offset = 0;
    struct tei_share *s, *again;
    char *mem = NULL, *other;
    void *p;

    assert_int_equal(tei_mem_alloc(SIZE + 5, "cpu:0", false, &p), 0);
    mem = p;
    s = tei_share_hold((uintptr_t)mem + 4097, 1000, &offset);
    assert_non_null(s);
    assert_int_equal(offset, 4097);
    assert_int_equal(s->size, SIZE + 5);
    assert_int_equal(ftruncate(s->fd, 1), -1);
    assert_int_equal(ftruncate(s->fd, 2 * (off_t)SIZE), -1);
    other = mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    assert_ptr_not_equal(other, MAP_FAILED);
    strcpy(mem + 77, "seen from both sides");
    assert_string_equal(other + 77, mem + 77);
    assert_null(tei_share_hold((uintptr_t)mem + 1, SIZE + 5, &offset));
    assert_null(tei_share_hold((uintptr_t)mem - 1, 2, &offset));
    again = tei_share_get(s);
    tei_mem_free(mem, SIZE + 5);
    assert_null(tei_share_hold((uintptr_t)mem, 1, &offset));
    /* What is held stays, for those who have mapped it. */
    assert_string_equal(other + 77, "seen from both sides");
    assert_int_equal(test_count_fds(), before + 1);
    tei_share_put(s);
    tei_share_put(again);
    assert_int_equal(test_count_fds(), before);
    munmap(other, SIZE + 5);
}

/* Small memory costs no descriptor, and neither does any more once there are many. */
/* A reservation is there, and a hole in the middle is seen; a tag in the top byte is no address. */
TEST(holes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = mmap(NULL, 4 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uintptr_t at = (uintptr_t)p;

    assert_ptr_not_equal(p, MAP_FAILED);
    assert_int_equal(tei_mem_check_mapped(at, 4 * page), 0);
    assert_int_equal(munmap(p + 2 * page, page), 0);
    assert_int_equal(tei_mem_check_mapped(at, 4 * page), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "not all of it is mapped"));
    assert_int_equal(tei_mem_check_mapped(at + page, page + 1), TE_ERR_INVALID);
    assert_int_equal(tei_mem_check_mapped(at + 1, 2 * page - 1), 0);
    assert_int_equal(tei_mem_check_mapped(at + 3 * page + 7, 1), 0);
    assert_int_equal(tei_mem_check_mapped(4096, 64), TE_ERR_INVALID);
    assert_int_equal(tei_mem_check_mapped(at + 2 * page + ((uintptr_t)1 << 60), 1), 0);
    munmap(p, 2 * page);
    munmap(p + 3 * page, page);
}

TEST(descriptors_are_spared)
{
    enum { N = 1100 };
    static void *mem[N];
    size_t before = test_count_fds(), offset;
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(tei_mem_alloc(5000, NULL, false, &mem[0]), 0);
    assert_null(tei_share_hold((uintptr_t)mem[0], 1, &offset));
    tei_mem_free(mem[0], 5000);
    assert_int_equal(test_count_fds(), before);
    for (int i = 0; i < N; i++)
        assert_int_equal(tei_mem_alloc(65536, NULL, false, &mem[i]), 0);
    assert_true(test_count_fds() <= before + 1024);
    memset(mem[N - 1], 1, 65536);
    for (int i = 0; i < N; i++)
        tei_mem_free(mem[i], 65536);
    assert_int_equal(test_count_fds(), before);
}

/* Huge pages are asked for; whether they are given is the system's to say. */
TEST(huge_pages_are_asked_for)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    char line[512], begin[32];
    bool here = false, asked = false;
    size_t length = tei_huge_page();
    void *mem;

    assert_non_null(f);
    length = length == SIZE_MAX ? SIZE : 2 * length; /* skipped below, if there are none */
    assert_int_equal(tei_mem_alloc(length, NULL, false, &mem), 0);
    snprintf(begin, sizeof begin, "%08zx-", (size_t)mem);
    while (fgets(line, sizeof line, f)) {
        bool flags = strncmp(line, "VmFlags:", 8) == 0;

        here = here || strncmp(line, begin, strlen(begin)) == 0;
        asked = asked || (here && flags && strstr(line, " hg"));
        here = here && !flags;
    }
    fclose(f);
    tei_mem_free(mem, length);
    if (access("/sys/kernel/mm/transparent_hugepage/shmem_enabled", R_OK) != 0)
        skip();
    assert_true(asked);
}

/* A process of few descriptors keeps most of them for other things. */
TEST(few_descriptors)
{
    enum { N = 100 };
    size_t before = test_count_fds();
    struct rlimit old, few;
    void *mem[N];

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    few = old;
    few.rlim_cur = 100;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(tei_mem_alloc(65536, NULL, false, &mem[i]), 0);
    assert_true(test_count_fds() > before);
    assert_true(test_count_fds() <= before + 25);
    for (int i = 0; i < N; i++)
        tei_mem_free(mem[i], 65536);
    assert_int_equal(test_count_fds(), before);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

/* Without a memfd there is memory all the same. */
TEST(without_descriptors)
{
    struct rlimit old, none;
    size_t offset;
    void *mem;
    int rc;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    rc = tei_mem_alloc(SIZE, NULL, false, &mem);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(rc, 0);
    memset(mem, 1, SIZE);
    assert_null(tei_share_hold((uintptr_t)mem, 1, &offset));
    tei_mem_free(mem, SIZE);
}

/* A child has none of its parent's, and may have its own at the same place. */
TEST(child_has_its_own)
{
    size_t offset = 1;
    int status;
    void *mem;
    pid_t pid;

    assert_int_equal(tei_mem_alloc(SIZE, NULL, false, &mem), 0);
    memset(mem, 7, SIZE);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        void *own = NULL;
        bool good = !tei_share_hold((uintptr_t)mem, 1, &offset) &&
                    tei_mem_alloc(SIZE, NULL, false, &own) == 0 &&
                    tei_share_hold((uintptr_t)own, SIZE, &offset) && offset == 0;

        memset(own, 9, SIZE);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(((char *)mem)[SIZE - 1], 7);
    tei_mem_free(mem, SIZE);
}

static bool has_mapped(const char *library)
{
    FILE *f = fopen("/proc/self/maps", "re");
    char line[512];
    bool found = false;

    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        found = found || strstr(line, library);
    fclose(f);
    return found;
}

/* Nothing that is done with host memory brings a driver of devices into the process. */
TEST(no_driver_is_loaded)
{
    enum tei_mem_kind kinds[] = {TEI_MEM_CUDA, TEI_MEM_HIP};
    char a[] = "somewhere", b[sizeof a], where[TEI_LOCATION_MAX];
    struct tei_mem_info m = {.device = 77};
    uint8_t uuid[16];
    void *p = NULL;

    assert_int_equal(tei_mem_inspect(a, sizeof a, &m), 0);
    assert_int_equal(m.kind, TEI_MEM_HOST);
    assert_int_equal(m.device, -1);
    assert_int_equal(tei_mem_copy(b, a, sizeof a), 0);
    assert_string_equal(a, b);
    assert_int_equal(tei_mem_copy(a + 1, a, 5), 0);
    assert_string_equal(a, "ssomewere");
    assert_int_equal(tei_mem_locate(a, "*", where), 0);
    assert_int_equal(tei_mem_locate(a, "cuda:0", where), TE_ERR_INVALID);
    assert_int_equal(tei_mem_locate(a, "hip:0", where), TE_ERR_INVALID);
    assert_int_equal(tei_mem_locate(a, "ascend:0", where), TE_ERR_INVALID);
    assert_int_equal(tei_mem_locate(a, "musa:0", where), TE_ERR_INVALID);
    assert_int_equal(tei_mem_locate(a, "mlu:0", where), 0);
    for (size_t i = 0; i < TEI_ARRAY_LEN(kinds); i++) {
        assert_false(tei_gpu_is_loaded(kinds[i]));
        assert_int_equal(tei_gpu_count(kinds[i]), 0);
        assert_int_equal(tei_gpu_uuid(kinds[i], 0, uuid), TE_ERR_UNSUPPORTED);
        assert_int_equal(tei_gpu_alloc(kinds[i], 0, 10, false, &p), TE_ERR_UNSUPPORTED);
        assert_int_equal(tei_gpu_pin(kinds[i], a, sizeof a), TE_ERR_UNSUPPORTED);
        assert_false(tei_gpu_has_fabric(kinds[i], 0));
    }
    assert_false(has_mapped("libcuda"));
    assert_false(has_mapped("libamdhip64"));
}

/* Where there is no driver, that is told, as often as somebody asks. */
TEST(no_driver_is_found)
{
    for (int i = 0; i < 2; i++) {
        if (tei_gpu_open(TEI_MEM_CUDA) == 0)
            skip();
        assert_int_equal(tei_gpu_open(TEI_MEM_CUDA), TE_ERR_UNSUPPORTED);
        assert_non_null(strstr(te_errmsg(), "CUDA"));
    }
    assert_int_equal(tei_gpu_open(TEI_MEM_HOST), TE_ERR_UNSUPPORTED);
    assert_int_equal(tei_gpu_open(TEI_MEM_OTHER), TE_ERR_UNSUPPORTED);
    assert_int_equal(tei_gpu_open(TEI_MEM_KINDS), TE_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holes),
        cmocka_unit_test(shared_and_sealed),
        cmocka_unit_test(descriptors_are_spared),
        cmocka_unit_test(huge_pages_are_asked_for),
        cmocka_unit_test(few_descriptors),
        cmocka_unit_test(without_descriptors),
        cmocka_unit_test(child_has_its_own),
        cmocka_unit_test(no_driver_is_loaded),
        cmocka_unit_test(no_driver_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
