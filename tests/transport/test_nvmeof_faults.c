/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are not there, not what they should be, or fail; what is under way ends, what comes later
 * works once it can. Each case runs over io_uring and over threads.
 */
#include "conformance.h"
#include "file_rig.h"
#include "proc.h"

#include "base/err.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH ((size_t)1 << 20)

/* One request that fails so, with the path in what is said. */
static void expect(struct file_rig *r, struct tei_attach *a, int opcode, uint64_t at, uint64_t n,
                   int error, const char *says)
{
    struct fake_task t = file_rig_move(r, a, opcode, r->memory, at, n);

    if (t.error != error)
        fail_msg("%s instead of %s: %s", te_strerror(t.error), te_strerror(error), t.note);
    if (!strstr(t.note, says) || !strstr(t.note, r->dir))
        fail_msg("'%s' does not say '%s', or not where", t.note, says);
}

static void works(struct file_rig *r, struct tei_attach *a, int opcode, uint64_t at, uint64_t n)
{
    struct fake_task t = file_rig_move(r, a, opcode, r->memory, at, n);

    if (t.error)
        fail_msg("%s: %s", te_strerror(t.error), t.note);
}

/* ------------------------------------------------------------------------------------ what is there */

static void missing_then_there(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    struct tei_attach *a = file_rig_attach(r, file_rig_path(r, "f"), LENGTH);
    char *bytes;

    (void)state;
    for (int i = 0; i < 3; i++)
        expect(r, a, TE_READ, 0, 4096, TE_ERR_NOT_FOUND, "opening ");
    file_rig_make(r, "f", LENGTH);
    fill_pattern(r->memory, LENGTH, 1);
    works(r, a, TE_WRITE, 0, LENGTH);
    bytes = file_rig_bytes(file_rig_path(r, "f"), LENGTH);
    assert_memory_equal(bytes, r->memory, LENGTH);
    free(bytes);
    fake_detach(r->t, a);
    file_rig_close(r);
}

/* Whether anybody has opened the FIFO for reading. */
static bool is_read(const char *fifo)
{
    int fd = open(fifo, O_WRONLY | O_NONBLOCK);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void no_files_at_all(void **state)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct file_rig *r = file_rig_open(NULL);
    const char *paths[] = {"folder", "fifo", "socket", "tty"};
    int s = socket(AF_UNIX, SOCK_STREAM, 0), pty = posix_openpt(O_RDWR | O_NOCTTY);
    struct pollfd p = {.fd = pty, .events = POLLIN};

    (void)state;
    assert_int_equal(mkdir(file_rig_path(r, "folder"), 0700), 0);
    assert_int_equal(mkfifo(file_rig_path(r, "fifo"), 0600), 0);
    assert_true(pty >= 0 && unlockpt(pty) == 0);
    assert_int_equal(symlink(ptsname(pty), file_rig_path(r, "tty")), 0);
    assert_true(strlen(file_rig_path(r, "socket")) < sizeof name.sun_path);
    strcpy(name.sun_path, file_rig_path(r, "socket"));
    assert_int_equal(bind(s, (struct sockaddr *)&name, sizeof name), 0);
    for (size_t i = 0; i < TEI_ARRAY_LEN(paths); i++) {
        struct tei_attach *a = file_rig_attach(r, file_rig_path(r, paths[i]), LENGTH);

        expect(r, a, TE_READ, 0, 1, TE_ERR_INVALID, "neither a regular file nor a block device");
        expect(r, a, TE_WRITE, 0, 1, TE_ERR_INVALID, "neither");
        fake_detach(r->t, a);
    }
    assert_false(is_read(file_rig_path(r, "fifo")));
    /* A terminal whose other end was open once, and is no more, is hung up. */
    assert_int_equal(poll(&p, 1, 0), 0);
    close(pty);
    close(s);
    file_rig_close(r);
}

static void refused_by_paths(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    struct tei_attach *a;

    (void)state;
    assert_int_equal(mkdir(file_rig_path(r, "in"), 0700), 0);
    file_rig_make(r, "in/f", LENGTH);
    file_rig_make(r, "out", LENGTH);
    a = file_rig_attach(r, file_rig_path(r, "out"), LENGTH);
    works(r, a, TE_READ, 0, 1); /* anywhere as yet, and open files stay open */
    fake_detach(r->t, a);
    assert_int_equal(r->t->ops.allow(r->t, "relative"), TE_ERR_INVALID);
    assert_int_equal(r->t->ops.allow(r->t, file_rig_path(r, "in")), 0);
    a = file_rig_attach(r, file_rig_path(r, "out"), LENGTH);
    expect(r, a, TE_READ, 0, 1, TE_ERR_ACCESS, "TE_FILE_PATHS");
    fake_detach(r->t, a);
    a = file_rig_attach(r, file_rig_path(r, "in/f"), LENGTH);
    works(r, a, TE_WRITE, 0, 1);
    fake_detach(r->t, a);
    file_rig_close(r);
}

/* Root may write anything, so it is somebody else here. */
static void read_only(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    bool is_root = geteuid() == 0;
    struct tei_attach *a, *secret;
    const char *path = file_rig_path(r, "f");
    char *bytes;

    (void)state;
    file_rig_make(r, "f", LENGTH);
    file_rig_make(r, "secret", LENGTH);
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(chmod(file_rig_path(r, "secret"), 0), 0);
    assert_int_equal(is_root ? seteuid(65534) : 0, 0);
    a = file_rig_attach(r, path, LENGTH);
    secret = file_rig_attach(r, file_rig_path(r, "secret"), LENGTH);
    memset(r->memory, 0x77, LENGTH);
    works(r, a, TE_READ, 100, 5000);
    assert_int_equal(r->memory[4999], 0);
    assert_int_equal(r->memory[5000], 0x77);
    expect(r, a, TE_WRITE, 0, 5000, TE_ERR_ACCESS, "may only be read");
    expect(r, secret, TE_READ, 0, 1, TE_ERR_ACCESS, "opening ");
    works(r, a, TE_READ, 0, LENGTH);
    assert_int_equal(is_root ? seteuid(0) : 0, 0);
    bytes = file_rig_bytes(path, LENGTH);
    assert_int_equal(bytes[0], 0);
    free(bytes);
    fake_detach(r->t, a);
    fake_detach(r->t, secret);
    file_rig_close(r);
}

/* ------------------------------------------------------------------------------------------- lengths */

static void shorter_than_its_record(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    const char *path = file_rig_path(r, "f");
    struct tei_attach *a;
    struct stat st;

    (void)state;
    file_rig_make(r, "f", 10000);
    a = file_rig_attach(r, path, LENGTH);
    expect(r, a, TE_READ, 5000, 5001, TE_ERR_STALE, "is shorter than its record");
    expect(r, a, TE_WRITE, 10000, 1, TE_ERR_STALE, "is shorter than its record");
    expect(r, a, TE_WRITE, LENGTH - 1, 1, TE_ERR_STALE, "is shorter than its record");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 10000);
    works(r, a, TE_WRITE, 5000, 5000);
    works(r, a, TE_READ, 0, 10000);
    assert_int_equal(truncate(path, (off_t)LENGTH), 0);
    works(r, a, TE_WRITE, 0, LENGTH);
    works(r, a, TE_READ, LENGTH - 1, 1);
    fake_detach(r->t, a);
    file_rig_close(r);
}

static void truncated_between(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    const char *path = file_rig_path(r, "f");
    struct tei_attach *a;

    (void)state;
    file_rig_make(r, "f", LENGTH);
    a = file_rig_attach(r, path, LENGTH);
    works(r, a, TE_READ, 0, LENGTH);
    for (off_t n = 0; n < 9000; n += 2999) {
        assert_int_equal(truncate(path, n), 0);
        expect(r, a, TE_READ, 0, LENGTH, TE_ERR_STALE, "shorter");
        expect(r, a, TE_READ, 0, (uint64_t)n + 1, TE_ERR_STALE, "shorter");
        expect(r, a, TE_READ, 500000, 4096, TE_ERR_STALE, "shorter");
        if (n)
            works(r, a, TE_READ, 0, (uint64_t)n);
        assert_int_equal(truncate(path, (off_t)LENGTH), 0);
        works(r, a, TE_READ, 0, LENGTH);
    }
    fake_detach(r->t, a);
    file_rig_close(r);
}

/* What was open stays so; who attaches anew gets the file that is there now. */
static void replaced(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    const char *path = file_rig_path(r, "f");
    struct tei_attach *old, *new;

    (void)state;
    file_rig_make(r, "f", LENGTH);
    old = file_rig_attach(r, path, LENGTH);
    memset(r->memory, 1, LENGTH);
    works(r, old, TE_WRITE, 0, LENGTH);
    assert_int_equal(unlink(path), 0);
    file_rig_make(r, "f", LENGTH);
    works(r, old, TE_READ, 0, LENGTH);
    assert_int_equal(r->memory[0], 1);
    new = file_rig_attach(r, path, LENGTH);
    works(r, new, TE_READ, 0, LENGTH);
    assert_int_equal(r->memory[0], 0);
    assert_int_equal(r->memory[LENGTH - 1], 0);
    memset(r->memory, 2, 4096);
    works(r, new, TE_WRITE, 0, 4096);
    memset(r->memory, 3, 4096);
    works(r, old, TE_READ, 0, 4096); /* one file for both */
    assert_int_equal(r->memory[0], 2);
    fake_detach(r->t, old);
    fake_detach(r->t, new);
    file_rig_close(r);
}

/* -------------------------------------------------------------------------------------- I/O that fails */

/* A file of the kernel's of which reading always fails. */
static void reading_fails(void **state)
{
    static const char path[] = "/sys/class/net/lo/power/autosuspend_delay_ms";
    struct file_rig *r = file_rig_open(NULL);
    int fd = open(path, O_RDONLY);
    struct tei_attach *a, *good;
    char byte;

    (void)state;
    if (fd < 0 || read(fd, &byte, 1) != -1 || errno != EIO) {
        fprintf(stderr, "%s gives no EIO on this host\n", path);
        exit(77);
    }
    close(fd);
    file_rig_make(r, "f", LENGTH);
    a = file_rig_attach(r, path, 4096);
    good = file_rig_attach(r, file_rig_path(r, "f"), LENGTH);
    for (int i = 0; i < 3; i++) {
        struct fake_task t = file_rig_move(r, a, TE_READ, r->memory, 0, 2000);

        assert_int_equal(t.error, TE_ERR_SYSTEM);
        assert_int_equal(t.sys_errno, EIO);
        assert_non_null(strstr(t.note, "reading from /sys/class/net/lo"));
        works(r, good, TE_WRITE, 0, LENGTH);
    }
    fake_detach(r->t, a);
    fake_detach(r->t, good);
    file_rig_close(r);
}

/* This process may write files up to some length only. */
static void writing_fails(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    struct rlimit before, low;
    struct tei_attach *a;
    struct fake_task t;

    (void)state;
    file_rig_make(r, "f", 2 * LENGTH);
    a = file_rig_attach(r, file_rig_path(r, "f"), 2 * LENGTH);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = before;
    low.rlim_cur = LENGTH;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    t = file_rig_move(r, a, TE_WRITE, r->memory, LENGTH + 8192, 4096); /* a page */
    assert_int_equal(t.error, TE_ERR_SYSTEM);
    assert_int_equal(t.sys_errno, EFBIG);
    assert_non_null(strstr(t.note, "writing to "));
    assert_non_null(strstr(t.note, r->dir));
    t = file_rig_move(r, a, TE_WRITE, r->memory, LENGTH + 1, 7); /* an edge */
    assert_int_equal(t.sys_errno, EFBIG);
    t = file_rig_move(r, a, TE_WRITE, r->memory, LENGTH - 8192, 16384); /* half of it */
    assert_int_equal(t.sys_errno, EFBIG);
    works(r, a, TE_WRITE, 0, LENGTH);
    works(r, a, TE_READ, LENGTH, LENGTH);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    works(r, a, TE_WRITE, LENGTH, LENGTH);
    fake_detach(r->t, a);
    file_rig_close(r);
}

/* ------------------------------------------------------------------------------ an open that hangs */

/* Occupies all threads on which files are opened. */
struct stop {
    struct tei_job job[4];
    pthread_mutex_t lock;
    pthread_cond_t cond;
    unsigned inside;
    bool over;
};

static struct stop gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static void wait_at_gate(struct tei_job *j)
{
    (void)j;
    pthread_mutex_lock(&gate.lock);
    gate.inside++;
    pthread_cond_broadcast(&gate.cond);
    while (!gate.over)
        pthread_cond_wait(&gate.cond, &gate.lock);
    gate.inside--;
    pthread_mutex_unlock(&gate.lock);
}

static void shut_gate(struct file_rig *r)
{
    gate.over = false;
    for (size_t i = 0; i < TEI_ARRAY_LEN(gate.job); i++)
        tei_jobs_post(&r->host.waits, &gate.job[i], wait_at_gate);
    pthread_mutex_lock(&gate.lock);
    while (gate.inside < TEI_ARRAY_LEN(gate.job))
        pthread_cond_wait(&gate.cond, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void open_gate(void)
{
    pthread_mutex_lock(&gate.lock);
    gate.over = true;
    pthread_cond_broadcast(&gate.cond);
    pthread_mutex_unlock(&gate.lock);
}

static struct tei_work *add_read(struct file_rig *r, struct tei_list *list, struct tei_attach *a,
                                 struct fake_task *t)
{
    return fake_work(list, r->t, a, t, TE_READ, r->memory, NULL, 100);
}

static void cancel_while_opening(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    struct tei_attach *a = file_rig_attach(r, file_rig_path(r, "f"), LENGTH);
    static struct fake_task t[3];
    struct tei_list list;
    int mine, others;

    (void)state;
    file_rig_make(r, "f", LENGTH);
    shut_gate(r);
    tei_list_init(&list);
    add_read(r, &list, a, &t[0])->owner = &mine;
    add_read(r, &list, a, &t[1])->owner = &others;
    add_read(r, &list, a, &t[2])->owner = &mine;
    r->t->ops.post(r->t, &list);
    assert_false(fake_wait(&r->host, NULL, t, 3, 50));
    r->t->ops.cancel(r->t, &mine);
    assert_true(fake_wait(&r->host, NULL, &t[0], 1, 5000));
    assert_true(fake_wait(&r->host, NULL, &t[2], 1, 5000));
    assert_int_equal(t[0].error, TE_ERR_CANCELED);
    assert_int_equal(t[2].error, TE_ERR_CANCELED);
    assert_false(fake_wait(&r->host, NULL, &t[1], 1, 50));
    open_gate();
    assert_true(fake_wait(&r->host, NULL, &t[1], 1, 5000));
    assert_int_equal(t[1].error, 0);
    fake_detach(r->t, a);
    file_rig_close(r);
}

static void impatient(struct tei_conf *conf)
{
    conf->transfer_timeout_ms = 300;
}

static void deadline_while_opening(void **state)
{
    struct file_rig *r = file_rig_open(impatient);
    struct tei_attach *a = file_rig_attach(r, file_rig_path(r, "f"), LENGTH);
    static struct fake_task t[2];
    int64_t start = tei_now_ns(), took;
    struct tei_list list;

    (void)state;
    file_rig_make(r, "f", LENGTH);
    shut_gate(r);
    tei_list_init(&list);
    add_read(r, &list, a, &t[0])->deadline_ns = start + 50 * TEI_NS_PER_MS;
    add_read(r, &list, a, &t[1]); /* by lack of progress */
    r->t->ops.post(r->t, &list);
    assert_true(fake_wait(&r->host, NULL, &t[0], 1, 5000));
    took = tei_now_ns() - start;
    assert_true(took >= 50 * TEI_NS_PER_MS && took < 280 * TEI_NS_PER_MS);
    assert_int_equal(t[0].error, TE_ERR_TIMEOUT);
    assert_non_null(strstr(t[0].note, "waiting for "));
    assert_non_null(strstr(t[0].note, r->dir));
    assert_true(fake_wait(&r->host, NULL, &t[1], 1, 5000));
    took = tei_now_ns() - start;
    assert_true(took >= 300 * TEI_NS_PER_MS && took < 2 * TEI_NS_PER_S);
    assert_int_equal(t[1].error, TE_ERR_TIMEOUT);
    open_gate();
    works(r, a, TE_READ, 0, LENGTH);
    fake_detach(r->t, a);
    file_rig_close(r);
}

/* The last attachment goes while its file is being opened; then the transport does. */
static void detach_while_opening(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    struct tei_attach *a = file_rig_attach(r, file_rig_path(r, "f"), LENGTH);
    static struct fake_task t;
    struct tei_list list;
    int mine;

    (void)state;
    file_rig_make(r, "f", LENGTH);
    shut_gate(r);
    tei_list_init(&list);
    add_read(r, &list, a, &t)->owner = &mine;
    r->t->ops.post(r->t, &list);
    r->t->ops.cancel(r->t, &mine);
    assert_true(fake_wait(&r->host, NULL, &t, 1, 5000));
    fake_detach(r->t, a);
    r->t->ops.close(r->t);
    open_gate();
    file_rig_close(r);
}

/* ---------------------------------------------------------------------------- threads, files, forks */

static void nothing_before_the_first_attachment(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    size_t threads = test_count_threads(), fds = test_count_fds();
    struct tei_attach *a;

    (void)state;
    assert_int_equal(threads, r->threads);
    assert_int_equal(fds, r->fds);
    a = file_rig_attach(r, file_rig_path(r, "f"), LENGTH);
    assert_true(test_count_threads() > threads);
    assert_true(test_count_fds() > fds);
    fake_detach(r->t, a);
    file_rig_close(r);
}

/* The folder that this process's descriptors lie in, as seen by a child: how many are in the rig's. */
static int count_in(const char *dir)
{
    int n = 0;

    for (int fd = 0; fd < 4096; fd++) {
        char link[64], path[4096];
        ssize_t len;

        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        len = readlink(link, path, sizeof path - 1);
        if (len <= 0)
            continue;
        path[len] = '\0';
        n += strncmp(path, dir, strlen(dir)) == 0 || strstr(path, "io_uring") != NULL;
    }
    return n;
}

static void a_fork_has_no_copies(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    struct tei_attach *a = file_rig_attach(r, file_rig_path(r, "f"), LENGTH);
    int status = -1;
    pid_t child;

    (void)state;
    file_rig_make(r, "f", LENGTH);
    works(r, a, TE_WRITE, 0, LENGTH);
    assert_true(count_in(r->dir) >= 2);
    child = fork();
    if (child == 0)
        _exit(count_in(r->dir));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    works(r, a, TE_READ, 0, LENGTH); /* and this one has lost nothing by it */
    fake_detach(r->t, a);
    file_rig_close(r);
}

static void one_at_a_time(struct tei_conf *conf)
{
    conf->file_depth = 1;
    conf->file_threads = 1;
}

static void volley(struct file_rig *r, struct tei_attach *a, size_t n)
{
    static struct fake_task tasks[400];
    struct tei_list list;

    tei_list_init(&list);
    for (size_t i = 0; i < n; i++)
        fake_work(&list, r->t, a, &tasks[i], i % 2 ? TE_READ : TE_WRITE, r->memory + i * 10000,
                  (void *)(i * 10000), 10000);
    r->t->ops.post(r->t, &list);
    assert_true(fake_wait(&r->host, NULL, tasks, n, 20000));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(tasks[i].error, 0);
}

static void depth_of_one(void **state)
{
    struct file_rig *r = file_rig_open(one_at_a_time);
    struct tei_attach *a;
    char *bytes;

    (void)state;
    file_rig_make(r, "f", RIG_MEMORY);
    a = file_rig_attach(r, file_rig_path(r, "f"), RIG_MEMORY);
    fill_pattern(r->memory, RIG_MEMORY, 5);
    volley(r, a, 400);
    bytes = file_rig_bytes(file_rig_path(r, "f"), RIG_MEMORY);
    for (size_t i = 0; i < 400; i++)
        assert_memory_equal(bytes + i * 10000, r->memory + i * 10000, 10000);
    free(bytes);
    fake_detach(r->t, a);
    file_rig_close(r);
}

/* More files than there are I/O requests, each asked at once, and twice. */
static void many_files(void **state)
{
    enum { FILES = 300, EACH = 9000 };
    static struct fake_task tasks[2 * FILES];
    static char names[FILES][256];
    const char *paths[FILES];
    struct file_rig *r = file_rig_open(NULL);
    struct tei_attach *a;
    struct tei_list list;

    (void)state;
    for (size_t i = 0; i < FILES; i++) {
        char name[16];

        snprintf(name, sizeof name, "f%zu", i);
        file_rig_make(r, name, EACH);
        paths[i] = strcpy(names[i], file_rig_path(r, name));
    }
    a = file_rig_attach_row(r, paths, FILES, EACH);
    fill_pattern(r->memory, FILES * EACH, 9);
    tei_list_init(&list);
    for (size_t i = 0; i < 2 * FILES; i++)
        fake_work(&list, r->t, a, &tasks[i], TE_WRITE, r->memory + i * (EACH / 2),
                  (void *)(i * (EACH / 2)), EACH / 2);
    r->t->ops.post(r->t, &list);
    assert_true(fake_wait(&r->host, NULL, tasks, 2 * FILES, 20000));
    for (size_t i = 0; i < FILES; i++) {
        char *bytes = file_rig_bytes(paths[i], EACH);

        assert_int_equal(tasks[2 * i].error, 0);
        assert_int_equal(tasks[2 * i + 1].error, 0);
        assert_memory_equal(bytes, r->memory + i * EACH, EACH);
        free(bytes);
    }
    fake_detach(r->t, a);
    file_rig_close(r);
}

/* ----------------------------------------------------------------------------------------- fairness */

enum { FEED = 1000 };

static void deep(struct tei_conf *conf)
{
    conf->file_depth = 256;
}

static void feed(struct file_rig *r, struct tei_attach *a, struct fake_task *tasks)
{
    struct tei_list list;

    tei_list_init(&list);
    for (size_t i = 0; i < FEED; i++)
        fake_work(&list, r->t, a, &tasks[i], TE_READ, r->memory + i * 4096, (void *)(i * 4096),
                  4096);
    r->t->ops.post(r->t, &list);
}

/* A file that always has more to do than there may be under way does not keep others from theirs. */
static void no_file_starves(void **state)
{
    static struct fake_task fed[2][FEED], other;
    struct file_rig *r = file_rig_open(deep);
    struct tei_attach *busy, *a;
    struct tei_list list;
    int rounds = 0;

    (void)state;
    file_rig_make(r, "busy", RIG_MEMORY);
    file_rig_make(r, "f", LENGTH);
    busy = file_rig_attach(r, file_rig_path(r, "busy"), RIG_MEMORY);
    a = file_rig_attach(r, file_rig_path(r, "f"), LENGTH);
    works(r, busy, TE_READ, 0, 1);
    works(r, a, TE_READ, 0, 1); /* both are open */
    feed(r, busy, fed[0]);
    feed(r, busy, fed[1]);
    tei_list_init(&list);
    add_read(r, &list, a, &other);
    r->t->ops.post(r->t, &list);
    /* One of the two lots is always there, more than may be under way. */
    while (rounds < 40 && !fake_wait(&r->host, NULL, &other, 1, 0)) {
        assert_true(fake_wait(&r->host, NULL, fed[rounds % 2], FEED, 20000));
        feed(r, busy, fed[rounds++ % 2]);
    }
    assert_true(rounds < 5);
    for (int i = 0; i < 2; i++)
        assert_true(fake_wait(&r->host, NULL, fed[i], FEED, 20000));
    assert_true(fake_wait(&r->host, NULL, &other, 1, 20000));
    fake_detach(r->t, a);
    fake_detach(r->t, busy);
    file_rig_close(r);
}

/* ------------------------------------------------------------------------------------------- storm */

enum { STORMERS = 3, STORM_FILES = 4, STORM_WORK = 12, STORM_ROUNDS = 120 };

#define STORM_PART (LENGTH / (STORMERS * STORM_WORK))

struct stormer {
    struct file_rig *rig;
    uint32_t x;
    unsigned number;
    _Atomic size_t *well;
    bool failed;
};

static uint32_t draw(struct stormer *s)
{
    s->x = s->x * 1664525u + 1013904223u;
    return s->x >> 8;
}

static bool is_expected(int error)
{
    return error == 0 || error == TE_ERR_CANCELED || error == TE_ERR_NOT_FOUND ||
           error == TE_ERR_STALE || error == TE_ERR_INVALID;
}

/* Some requests to a file of the storm, perhaps cancelled, by an attachment of their own. */
static void storm_once(struct stormer *s)
{
    static struct fake_task tasks[STORMERS][STORM_WORK];
    struct fake_task *t = tasks[s->number];
    struct file_rig *r = s->rig;
    char path[256];
    struct tei_attach *a;
    struct tei_list list;

    snprintf(path, sizeof path, "%s/s%u", r->dir, draw(s) % STORM_FILES);
    a = file_rig_attach(r, path, LENGTH);
    tei_list_init(&list);
    for (size_t i = 0; i < STORM_WORK; i++) {
        /* Each has its own part, of which it uses some; most parts end inside a page. */
        uint64_t from = (s->number * STORM_WORK + i) * STORM_PART, skip = draw(s) % STORM_PART;
        uint64_t at = from + skip, n = 1 + draw(s) % (STORM_PART - skip);
        char *memory = r->memory + at;

        fake_work(&list, r->t, a, &t[i], i % 2 ? TE_READ : TE_WRITE, memory, (void *)(uintptr_t)at,
                  n)
            ->owner = s;
    }
    r->t->ops.post(r->t, &list);
    if (draw(s) % 3 == 0)
        r->t->ops.cancel(r->t, s);
    s->failed |= !fake_wait(&r->host, NULL, t, STORM_WORK, 20000);
    for (size_t i = 0; i < STORM_WORK; i++) {
        if (!is_expected(t[i].error)) {
            fprintf(stderr, "storm: %s: %s (errno %d)\n", te_strerror(t[i].error), t[i].note,
                    t[i].sys_errno);
            s->failed = true;
        }
        atomic_fetch_add(s->well, t[i].error == 0);
    }
    fake_detach(r->t, a);
}

static void *storm(void *arg)
{
    struct stormer *s = arg;

    for (int i = 0; i < STORM_ROUNDS && !s->failed; i++)
        storm_once(s);
    return NULL;
}

/* One of the files: whole, short, gone, or something else. */
static void upset(struct file_rig *r, uint32_t x)
{
    char name[8];

    snprintf(name, sizeof name, "s%u", x % STORM_FILES);
    unlink(file_rig_path(r, name));
    if (x / STORM_FILES % 5 == 0)
        return;
    if (x / STORM_FILES % 5 == 1)
        mkfifo(file_rig_path(r, name), 0600);
    else
        file_rig_make(r, name, x / STORM_FILES % 5 == 2 ? LENGTH / 2 + 77 : LENGTH);
}

/* Attachments, requests and cancels from several threads while the files change under them. */
static void everything_at_once(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    struct stormer s[STORMERS];
    pthread_t thread[STORMERS];
    _Atomic size_t well = 0;

    (void)state;
    for (uint32_t i = 0; i < STORM_FILES; i++)
        upset(r, 3 * STORM_FILES + i);
    for (unsigned i = 0; i < STORMERS; i++) {
        s[i] = (struct stormer){.rig = r, .x = i + 1, .number = i, .well = &well};
        assert_int_equal(pthread_create(&thread[i], NULL, storm, &s[i]), 0);
    }
    for (uint32_t i = 0, x = 7; i < 100; i++) {
        x = x * 1664525u + 1013904223u;
        upset(r, x >> 8);
        usleep(1000);
    }
    for (unsigned i = 0; i < STORMERS; i++) {
        pthread_join(thread[i], NULL);
        assert_false(s[i].failed);
    }
    assert_true(atomic_load(&well) > STORM_ROUNDS);
    file_rig_close(r);
}

/* ------------------------------------------------------------------------------------------- main */

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_then_there),
        cmocka_unit_test(no_files_at_all),
        cmocka_unit_test(refused_by_paths),
        cmocka_unit_test(read_only),
        cmocka_unit_test(shorter_than_its_record),
        cmocka_unit_test(truncated_between),
        cmocka_unit_test(replaced),
        cmocka_unit_test(reading_fails),
        cmocka_unit_test(writing_fails),
        cmocka_unit_test(cancel_while_opening),
        cmocka_unit_test(deadline_while_opening),
        cmocka_unit_test(detach_while_opening),
        cmocka_unit_test(nothing_before_the_first_attachment),
        cmocka_unit_test(a_fork_has_no_copies),
        cmocka_unit_test(depth_of_one),
        cmocka_unit_test(many_files),
        cmocka_unit_test(no_file_starves),
        cmocka_unit_test(everything_at_once),
    };
    int failed;

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    file_rig_use(true);
    failed = cmocka_run_group_tests_name("io_uring", tests, NULL, NULL);
    file_rig_use(false);
    return failed + cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
