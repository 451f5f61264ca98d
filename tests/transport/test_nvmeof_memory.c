/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What direct I/O does not like: memory, offsets and lengths of any kind, neighbours within a page,
 * large and unpinnable regions. Each case runs over io_uring and over threads.
 */
#include "conformance.h"
#include "file_rig.h"

#include "base/os.h"
#include "transport/nvmeof/nvmeof.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ODD ((size_t)40961) /* ten pages and a byte */

static void works(struct file_rig *r, struct tei_attach *a, int opcode, void *memory, uint64_t at,
                  uint64_t n)
{
    struct fake_task t = file_rig_move(r, a, opcode, memory, at, n);

    if (t.error)
        fail_msg("%s at %llu, %llu bytes: %s, %s", opcode == TE_READ ? "read" : "write",
                 (unsigned long long)at, (unsigned long long)n, te_strerror(t.error), t.note);
}

/* -------------------------------------------------------------------------------- all combinations */

static void no_direct(struct tei_conf *conf)
{
    conf->file_direct = false;
}

static void flushed(struct tei_conf *conf)
{
    conf->file_flush = true;
}

static const size_t steps[] = {0, 1, 3, 4, 511, 512, 1000, 2048, 4095, 4096, 4097};

/* Reads one range, then writes it with other bytes; the file is compared as a whole now and then. */
static void check_range(struct file_rig *r, struct tei_attach *a, char *model, size_t shift,
                        size_t at, size_t n)
{
    static uint32_t seed;
    char *memory = r->memory + 4096 + shift;

    memset(memory - 1, 0x5a, n + 2);
    works(r, a, TE_READ, memory, at, n);
    assert_memory_equal(memory, model + at, n);
    assert_int_equal(memory[-1], 0x5a);
    assert_int_equal(memory[n], 0x5a);
    fill_pattern(memory, n, ++seed);
    memcpy(model + at, memory, n);
    works(r, a, TE_WRITE, memory, at, n);
}

static void check_all(void (*configure)(struct tei_conf *conf), size_t every)
{
    struct file_rig *r = file_rig_open(configure);
    const char *path = file_rig_path(r, "f");
    char *model = calloc(1, ODD), *bytes;
    struct tei_attach *a;
    size_t number = 0;

    file_rig_make(r, "f", ODD);
    a = file_rig_attach(r, path, ODD);
    for (size_t s = 0; s < TEI_ARRAY_LEN(steps); s++)
        for (size_t o = 0; o < TEI_ARRAY_LEN(steps); o++)
            for (size_t l = 1; l < 2 * TEI_ARRAY_LEN(steps); l++) {
                size_t n = l < TEI_ARRAY_LEN(steps)
                               ? steps[l]
                               : ODD - steps[o] - steps[l - TEI_ARRAY_LEN(steps)];

                if (number++ % every == 0)
                    check_range(r, a, model, steps[s], steps[o], n);
            }
    bytes = file_rig_bytes(path, ODD);
    assert_memory_equal(bytes, model, ODD);
    fake_detach(r->t, a);
    free(bytes);
    free(model);
    file_rig_close(r);
}

static void every_combination(void **state)
{
    (void)state;
    check_all(NULL, 1);
}

static void combinations_by_the_page_cache(void **state)
{
    (void)state;
    check_all(no_direct, 5);
}

static void combinations_flushed(void **state)
{
    (void)state;
    check_all(flushed, 37);
}

/* The last byte of a file of odd length, and nothing after it: the file does not grow. */
static void its_odd_end(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    const char *path = file_rig_path(r, "f");
    struct tei_attach *a;
    int fd;

    (void)state;
    file_rig_make(r, "f", ODD);
    a = file_rig_attach(r, path, ODD);
    for (size_t n = 1; n < 9000; n = n * 3 + 1) {
        fill_pattern(r->memory, n, (uint32_t)n);
        works(r, a, TE_WRITE, r->memory, ODD - n, n);
        memset(r->memory + 65536, 0, n + 1);
        works(r, a, TE_READ, r->memory + 65536, ODD - n, n);
        assert_memory_equal(r->memory + 65536, r->memory, n);
        assert_int_equal(r->memory[65536 + n], 0);
    }
    fd = open(path, O_RDONLY);
    assert_int_equal(lseek(fd, 0, SEEK_END), ODD);
    close(fd);
    fake_detach(r->t, a);
    file_rig_close(r);
}

/* --------------------------------------------------------------------------- neighbours in one page */

#define PAGES   4
#define ROUNDS  60
#define WRITERS 4
#define STRIPE  ((size_t)(4096 + 512)) /* so some of them lie in two pages */
#define PORTION (STRIPE / WRITERS)

struct writer {
    struct file_rig *rig;
    struct tei_attach *attach;
    size_t number;
    bool failed;
};

/* Writer w has portion w of each stripe, and writes them all with its own byte, again and again. */
static void write_portions(struct writer *w)
{
    static struct fake_task tasks[2 * WRITERS][PAGES];
    char *memory = w->rig->memory + w->number * 65536 + w->number;

    for (int round = 0; round < ROUNDS && !w->failed; round++) {
        size_t n = PAGES * (size_t)4096 / STRIPE;
        struct tei_list list;

        memset(memory, (int)(w->number * 37 + (unsigned)round) | 1, PORTION);
        tei_list_init(&list);
        for (size_t i = 0; i < n; i++)
            fake_work(&list, w->rig->t, w->attach, &tasks[w->number][i], TE_WRITE, memory,
                      (void *)(i * STRIPE + w->number * PORTION), PORTION);
        w->rig->t->ops.post(w->rig->t, &list);
        w->failed = !fake_wait(&w->rig->host, NULL, tasks[w->number], n, PATIENCE_MS);
        for (size_t i = 0; i < n; i++)
            w->failed |= tasks[w->number][i].error != 0;
    }
}

static void *write_in_thread(void *arg)
{
    write_portions(arg);
    return NULL;
}

static void run_writers(struct file_rig *r, struct tei_attach *a, size_t first, size_t n)
{
    struct writer w[WRITERS];
    pthread_t thread[WRITERS];

    for (size_t i = 0; i < n; i++) {
        w[i] = (struct writer){.rig = r, .attach = a, .number = first + i};
        assert_int_equal(pthread_create(&thread[i], NULL, write_in_thread, &w[i]), 0);
    }
    for (size_t i = 0; i < n; i++) {
        pthread_join(thread[i], NULL);
        assert_false(w[i].failed);
    }
}

/* Each has left the byte of its last round in all of its portions, and the gaps are as they were. */
static void check_portions(const char *path)
{
    char *bytes = file_rig_bytes(path, PAGES * 4096);

    for (size_t at = 0; at < PAGES * (size_t)4096; at++) {
        size_t number = at % STRIPE / PORTION;
        bool inside = number < WRITERS && at / STRIPE < PAGES * (size_t)4096 / STRIPE;
        int want = inside ? (int)(number * 37 + ROUNDS - 1) | 1 : 0;

        if (bytes[at] != (char)want)
            fail_msg("byte %zu, of writer %zu, is %d instead of %d", at, number, bytes[at], want);
    }
    free(bytes);
}

static void neighbours_in_threads(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    const char *path = file_rig_path(r, "f");
    struct tei_attach *a;

    (void)state;
    file_rig_make(r, "f", PAGES * 4096);
    a = file_rig_attach(r, path, PAGES * 4096);
    run_writers(r, a, 0, WRITERS);
    check_portions(path);
    fake_detach(r->t, a);
    file_rig_close(r);
}

/* Runs `what` in a process of its own, which has no threads yet; its exit status. */
static int in_child(int (*what)(const char *path), const char *path)
{
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(what(path));
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int half_of_the_writers(const char *path, size_t first)
{
    struct file_rig *r = file_rig_open(NULL);
    struct tei_attach *a = file_rig_attach(r, path, PAGES * 4096);

    run_writers(r, a, first, WRITERS / 2);
    fake_detach(r->t, a);
    file_rig_close(r);
    return 0;
}

static void neighbours_in_processes(void **state)
{
    char dir[FILE_RIG_DIR], path[FILE_RIG_DIR + 2];
    pid_t child[2];
    int fd;

    (void)state;
    file_rig_folder(dir);
    snprintf(path, sizeof path, "%s/f", dir);
    fd = open(path, O_CREAT | O_RDWR, 0600);
    assert_int_equal(posix_fallocate(fd, 0, PAGES * 4096), 0);
    close(fd);
    for (size_t i = 0; i < 2; i++) {
        child[i] = fork();
        if (child[i] == 0)
            _exit(half_of_the_writers(path, i * WRITERS / 2));
    }
    for (size_t i = 0; i < 2; i++) {
        int status = -1;

        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_int_equal(status, 0);
    }
    check_portions(path);
    unlink(path);
    rmdir(dir);
}

/* ------------------------------------------------------------------------------------ large regions */

#define GIB   ((size_t)1 << 30)
#define LARGE (2 * GIB + GIB / 2)
#define CHUNK ((size_t)8 << 20) /* of memory, which is mapped again and again */

static char *map_large(void)
{
    char *large = mmap(NULL, LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int fd = memfd_create("chunk", MFD_CLOEXEC);

    assert_ptr_not_equal(large, MAP_FAILED);
    assert_int_equal(ftruncate(fd, (off_t)CHUNK), 0);
    for (size_t at = 0; at < LARGE; at += CHUNK)
        assert_ptr_equal(mmap(large + at, CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                              0),
                         large + at);
    close(fd);
    return large;
}

/* Over io_uring the first request has the memory around it registered. */
static void wait_for_pin(const struct file_rig *r, const struct tei_region *region, size_t at)
{
    struct nvmeof_region *mine = region->keys[r->t->index];
    _Atomic int *chunk = &mine->chunk[at / NVMEOF_CHUNK];
    int64_t until = tei_deadline_ns(PATIENCE_MS);

    while (r->host.conf.file_uring && atomic_load(chunk) < 0 && tei_now_ns() < until)
        usleep(1000);
    if (r->host.conf.file_uring)
        assert_true(atomic_load(chunk) >= 0);
    else
        assert_int_equal(atomic_load(chunk), NVMEOF_UNPINNED);
}

/* Memory at the borders of what the kernel registers at once, before and after it is registered. */
static void across_a_gigabyte(void **state)
{
    static const size_t at[] = {
        GIB - 1, GIB - 4096, GIB - 100000, GIB, 2 * GIB - 3000000 / 2, LARGE - 3000000};
    struct file_rig *r = file_rig_open(NULL);
    char *large = map_large(), *bytes;
    struct tei_region *region = fake_region_add(&r->host, r->t, large, LARGE, TE_REMOTE_RW);
    struct tei_attach *a;

    (void)state;
    file_rig_make(r, "f", 3000000);
    a = file_rig_attach(r, file_rig_path(r, "f"), 3000000);
    for (size_t i = 0; i < 2 * TEI_ARRAY_LEN(at); i++) {
        char *memory = large + at[i % TEI_ARRAY_LEN(at)];

        if (i >= TEI_ARRAY_LEN(at))
            wait_for_pin(r, region, at[i % TEI_ARRAY_LEN(at)]);
        fill_pattern(memory, 3000000, (uint32_t)i);
        works(r, a, TE_WRITE, memory, 0, 3000000);
        bytes = file_rig_bytes(file_rig_path(r, "f"), 3000000);
        assert_memory_equal(bytes, memory, 3000000);
        memset(memory, 0, 3000000);
        works(r, a, TE_READ, memory, 0, 3000000);
        assert_memory_equal(bytes, memory, 3000000);
        free(bytes);
    }
    fake_detach(r->t, a);
    fake_region_del(&r->host, r->t, region);
    munmap(large, LARGE);
    file_rig_close(r);
}

/* A region goes at once after its first request, while it is being registered. */
static void removed_while_pinned(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    char *large = map_large();
    struct tei_attach *a;

    (void)state;
    file_rig_make(r, "f", 8192);
    a = file_rig_attach(r, file_rig_path(r, "f"), 8192);
    for (int i = 0; i < 10; i++) {
        struct tei_region *region = fake_region_add(&r->host, r->t, large, LARGE, TE_REMOTE_RW);

        fill_pattern(large, 8192, (uint32_t)i);
        works(r, a, TE_WRITE, large, 0, 8192);
        fake_region_del(&r->host, r->t, region);
        memset(r->memory, 0, 8192);
        works(r, a, TE_READ, r->memory, 0, 8192);
        assert_memory_equal(r->memory, large, 8192);
    }
    fake_detach(r->t, a);
    munmap(large, LARGE);
    file_rig_close(r);
}

/* Memory that may only be read cannot be registered with the kernel, and is written all the same. */
static void memory_that_is_read_only(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    char *m = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct tei_region *region;
    struct tei_attach *a;
    struct fake_task t;

    (void)state;
    fill_pattern(m, 65536, 1);
    assert_int_equal(mprotect(m, 65536, PROT_READ), 0);
    region = fake_region_add(&r->host, r->t, m, 65536, TE_REMOTE_READ);
    file_rig_make(r, "f", 65536);
    a = file_rig_attach(r, file_rig_path(r, "f"), 65536);
    for (int i = 0; i < 20; i++) {
        works(r, a, TE_WRITE, m, 0, 65536);
        usleep(1000);
    }
    t = file_rig_move(r, a, TE_READ, m, 0, 65536);
    assert_int_equal(t.error, TE_ERR_INVALID);
    assert_int_equal(t.sys_errno, EFAULT);
    works(r, a, TE_READ, r->memory, 0, 65536);
    assert_memory_equal(r->memory, m, 65536);
    fake_detach(r->t, a);
    fake_region_del(&r->host, r->t, region);
    munmap(m, 65536);
    file_rig_close(r);
}

/* ----------------------------------------------------------------------------- what may be refused */

/* What the log must say, once. */
struct listener {
    const char *text;
    _Atomic unsigned heard;
};

static void hear(void *arg, enum te_log_level level, const char *line)
{
    struct listener *l = arg;

    (void)level;
    if (strstr(line, l->text))
        atomic_fetch_add(&l->heard, 1);
}

/* Moves bytes both ways; by io_uring, the log says `text` meanwhile. */
static int move_a_lot(const char *path, const char *text)
{
    struct file_rig *r = file_rig_open(NULL);
    struct listener ear = {.text = text};
    struct tei_attach *a;
    char *bytes;

    te_log_set_level(TE_LOG_INFO);
    te_log_set_sink(hear, &ear);
    a = file_rig_attach(r, path, RIG_MEMORY);

    for (uint32_t i = 0; i < 5; i++) {
        fill_pattern(r->memory, RIG_MEMORY, i);
        works(r, a, TE_WRITE, r->memory, 0, RIG_MEMORY);
        bytes = file_rig_bytes(path, RIG_MEMORY);
        assert_memory_equal(bytes, r->memory, RIG_MEMORY);
        memset(r->memory, 0, RIG_MEMORY);
        works(r, a, TE_READ, r->memory, 0, RIG_MEMORY);
        assert_memory_equal(bytes, r->memory, RIG_MEMORY);
        free(bytes);
        usleep(2000);
    }
    WAIT_FOR(atomic_load(&ear.heard) >= r->host.conf.file_uring);
    assert_int_equal(atomic_load(&ear.heard), r->host.conf.file_uring);
    fake_detach(r->t, a);
    file_rig_close(r);
    return 0;
}

/* Nobody in particular, who may lock 64 KiB. */
static int with_little_to_lock(const char *path)
{
    struct rlimit l = {.rlim_cur = 65536, .rlim_max = 65536};

    if (setrlimit(RLIMIT_MEMLOCK, &l) != 0 || (geteuid() == 0 && setresuid(65534, 65534, 65534)))
        return 2;
    return move_a_lot(path, "is not registered with io_uring");
}

/* As in a container that has no io_uring. */
static int without_io_uring(const char *path)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = TEI_ARRAY_LEN(code), .filter = code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0 ||
        syscall(__NR_io_uring_setup, 1, NULL) != -1 || errno != ENOSYS)
        return 2;
    return move_a_lot(path, "io_uring is refused");
}

static void refused_to_a_child(int (*what)(const char *path))
{
    char dir[FILE_RIG_DIR], path[FILE_RIG_DIR + 2], before[PATH_MAX];
    int fd;

    assert_non_null(getcwd(before, sizeof before));
    file_rig_folder(dir);
    chmod(dir, 0777);
    snprintf(path, sizeof path, "%s/f", dir);
    fd = open(path, O_CREAT | O_RDWR, 0666);
    assert_int_equal(posix_fallocate(fd, 0, RIG_MEMORY), 0);
    assert_int_equal(fchmod(fd, 0666), 0);
    close(fd);
    assert_int_equal(chdir(dir), 0); /* where the child may make its folder */
    fd = in_child(what, path);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(fd, 0);
    unlink(path);
    rmdir(dir);
}

static void little_to_lock(void **state)
{
    (void)state;
    refused_to_a_child(with_little_to_lock);
}

static void no_io_uring(void **state)
{
    (void)state;
    refused_to_a_child(without_io_uring);
}

/* ------------------------------------------------------------------------------------------- main */

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination),
        cmocka_unit_test(combinations_by_the_page_cache),
        cmocka_unit_test(combinations_flushed),
        cmocka_unit_test(its_odd_end),
        cmocka_unit_test(neighbours_in_threads),
        cmocka_unit_test(neighbours_in_processes),
        cmocka_unit_test(across_a_gigabyte),
        cmocka_unit_test(removed_while_pinned),
        cmocka_unit_test(memory_that_is_read_only),
        cmocka_unit_test(little_to_lock),
        cmocka_unit_test(no_io_uring),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return FILE_RIG_RUN(tests);
}
