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

static void without_paths(struct tei_conf *conf)
{
    conf->file_paths[0] = '\0';
}

static void refused_by_paths(void **state)
{
    struct file_rig *r = file_rig_open(without_paths);
    struct tei_attach *in, *out;

    (void)state;
    assert_int_equal(mkdir(file_rig_path(r, "in"), 0700), 0);
    file_rig_make(r, "in/f", LENGTH);
    file_rig_make(r, "out", LENGTH);
    in = file_rig_attach(r, file_rig_path(r, "in/f"), LENGTH);
    out = file_rig_attach(r, file_rig_path(r, "out"), LENGTH);
    expect(r, in, TE_READ, 0, 1, TE_ERR_ACCESS, "TE_FILE_PATHS");
    assert_int_equal(r->t->ops.allow(r->t, "relative"), TE_ERR_INVALID);
    assert_int_equal(r->t->ops.allow(r->t, file_rig_path(r, "in")), 0);
    works(r, in, TE_WRITE, 0, 1); /* which looks again */
    expect(r, out, TE_READ, 0, 1, TE_ERR_ACCESS, file_rig_path(r, "out"));
    assert_int_equal(r->t->ops.allow(r->t, file_rig_path(r, "out")), 0);
    works(r, out, TE_WRITE, 0, 1);
    fake_detach(r->t, in);
    fake_detach(r->t, out);
    file_rig_close(r);
}

static struct tei_attach *attach_own(struct file_rig *r, const char *path)
{
    struct tei_segment *s;
    struct tei_attach *a;

    assert_int_equal(tei_segment_of_file("file", path, LENGTH, &s), 0);
    assert_int_equal(fake_attach_segment(r->t, s, &a), 0);
    tei_segment_put(s);
    return a;
}

/* That the program has a file open by its path is of no use to a record that names the same one. */
static void only_its_own(void **state)
{
    struct file_rig *r = file_rig_open(without_paths);
    struct tei_attach *own, *a;

    (void)state;
    file_rig_make(r, "f", LENGTH);
    own = attach_own(r, file_rig_path(r, "f"));
    works(r, own, TE_WRITE, 0, 1);
    a = file_rig_attach(r, file_rig_path(r, "f"), LENGTH);
    expect(r, a, TE_READ, 0, 1, TE_ERR_ACCESS, "TE_FILE_PATHS");
    expect(r, a, TE_WRITE, 0, 1, TE_ERR_ACCESS, "TE_FILE_PATHS");
    works(r, own, TE_READ, 0, 1);
    fake_detach(r->t, a);
    fake_detach(r->t, own);
    /* Once it is listed both have it. */
    assert_int_equal(r->t->ops.allow(r->t, file_rig_path(r, "f")), 0);
    a = file_rig_attach(r, file_rig_path(r, "f"), LENGTH);
    own = attach_own(r, file_rig_path(r, "f"));
    works(r, a, TE_READ, 0, 1);
    works(r, own, TE_READ, 0, 1);
    fake_detach(r->t, a);
    fake_detach(r->t, own);
    file_rig_close(r);
}

/* A record can call itself what it likes. */
static void a_record_is_no_path(void **state)
{
    struct file_rig *r = file_rig_open(without_paths);
    struct tei_attach *a;
    char text[1024];

    (void)state;
    file_rig_make(r, "f", LENGTH);
    snprintf(text, sizeof text,
             "{\"name\":\"file://%s\",\"protocol\":\"nvmeof\",\"buffers\":[{\"file_path\":\"%s\","
             "\"length\":%zu,\"local_path_map\":{\"*\":\"%s\"}}]}",
             file_rig_path(r, "f"), file_rig_path(r, "f"), LENGTH, file_rig_path(r, "f"));
    a = fake_attach_text(r->t, text);
    expect(r, a, TE_READ, 0, 1, TE_ERR_ACCESS, "TE_FILE_PATHS");
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
    assert_true(fake_wait(&r->host, NULL, &t[0], 1, PATIENCE_MS));
    assert_true(fake_wait(&r->host, NULL, &t[2], 1, PATIENCE_MS));
    assert_int_equal(t[0].error, TE_ERR_CANCELED);
    assert_int_equal(t[2].error, TE_ERR_CANCELED);
    assert_false(fake_wait(&r->host, NULL, &t[1], 1, 50));
    open_gate();
    assert_true(fake_wait(&r->host, NULL, &t[1], 1, PATIENCE_MS));
    assert_int_equal(t[1].error, 0);
    fake_detach(r->t, a);
    file_rig_close(r);
}

/* Whether nothing is opened any more. */
static bool has_opened(struct file_rig *r)
{
    struct tei_jobs *waits = &r->host.waits;
    bool idle;

    pthread_mutex_lock(&waits->lock);
    idle = !waits->running && !waits->queued;
    pthread_mutex_unlock(&waits->lock);
    return idle;
}

/*
 * A file that is not there is opened when nobody waits any more, and then made: what a read of it ends with.
 * TE_ERR_NOT_FOUND is right only until the transport has been told, for which the file is given so long.
 */
static struct fake_task read_made(struct file_rig *r, const char *name, useconds_t us)
{
    struct tei_attach *a = file_rig_attach(r, file_rig_path(r, name), LENGTH);
    static struct fake_task t;
    struct fake_task later;
    struct tei_list list;
    int mine;

    shut_gate(r);
    tei_list_init(&list);
    memset(&t, 0, sizeof t);
    add_read(r, &list, a, &t)->owner = &mine;
    r->t->ops.post(r->t, &list);
    usleep(50000);
    r->t->ops.cancel(r->t, &mine);
    assert_true(fake_wait(&r->host, NULL, &t, 1, PATIENCE_MS));
    open_gate();
    WAIT_FOR(has_opened(r));
    usleep(us);
    file_rig_make(r, name, LENGTH);
    later = file_rig_move(r, a, TE_READ, r->memory, 0, 100);
    fake_detach(r->t, a);
    return later;
}

/* What a file could not be opened for, when nobody waited any more, is not told to those who come later. */
static void old_error(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    struct fake_task t = {.error = TE_ERR_NOT_FOUND};
    char name[] = "a";

    (void)state;
    for (useconds_t us = 10000; t.error == TE_ERR_NOT_FOUND && us < 6000000; us *= 2, name[0]++)
        t = read_made(r, name, us);
    if (t.error)
        fail_msg("%s: %s", te_strerror(t.error), t.note);
    file_rig_close(r);
}

/* Work that is late while its file is opened. */
static void late_while_opening(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    static struct fake_task t[64];

    (void)state;
    file_rig_make(r, "f", LENGTH);
    for (int round = 0; round < 100; round++) {
        struct tei_attach *a = file_rig_attach(r, file_rig_path(r, "f"), LENGTH);
        struct tei_list list;

        memset(t, 0, sizeof t);
        for (int i = 0; i < 64; i++) {
            tei_list_init(&list);
            add_read(r, &list, a, &t[i])->deadline_ns = tei_now_ns() + i * 2000;
            r->t->ops.post(r->t, &list);
        }
        assert_true(fake_wait(&r->host, NULL, t, 64, PATIENCE_MS));
        for (int i = 0; i < 64; i++)
            assert_true(t[i].error == 0 || t[i].error == TE_ERR_TIMEOUT);
        fake_detach(r->t, a);
    }
    file_rig_close(r);
}

/* A file that is open goes on while others hold up all opening, also if it is attached to again. */
static void attach_leaves_open_file(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    struct tei_attach *a = file_rig_attach(r, file_rig_path(r, "f"), LENGTH), *b;
    static struct fake_task t[2];
    struct tei_list list;

    (void)state;
    file_rig_make(r, "f", LENGTH);
    works(r, a, TE_READ, 0, 100);
    memset(t, 0, sizeof t);
    shut_gate(r);
    tei_list_init(&list);
    add_read(r, &list, a, &t[0]);
    r->t->ops.post(r->t, &list);
    assert_true(fake_wait(&r->host, NULL, &t[0], 1, PATIENCE_MS));
    b = file_rig_attach(r, file_rig_path(r, "f"), LENGTH);
    add_read(r, &list, a, &t[1]);
    r->t->ops.post(r->t, &list);
    assert_true(fake_wait(&r->host, NULL, &t[1], 1, PATIENCE_MS));
    open_gate();
    fake_detach(r->t, a);
    fake_detach(r->t, b);
    file_rig_close(r);
}

static void impatient(struct tei_conf *conf)
{
    conf->transfer_timeout_ms = 2000;
}

/* Of two READs of a file that is not open yet one has a deadline, if any has. */
static void ends_while_opening(void (*configure)(struct tei_conf *), int64_t deadline_ms,
                               int64_t least_ms)
{
    struct file_rig *r = file_rig_open(configure);
    struct tei_attach *a = file_rig_attach(r, file_rig_path(r, "f"), LENGTH);
    static struct fake_task t[2];
    int64_t start = tei_now_ns();
    size_t late = deadline_ms ? 1 : 2; /* of them */
    struct tei_list list;

    file_rig_make(r, "f", LENGTH);
    shut_gate(r);
    tei_list_init(&list);
    memset(t, 0, sizeof t);
    add_read(r, &list, a, &t[0])->deadline_ns =
        deadline_ms ? start + deadline_ms * TEI_NS_PER_MS : TEI_NEVER;
    add_read(r, &list, a, &t[1]);
    r->t->ops.post(r->t, &list);
    assert_true(fake_wait(&r->host, NULL, t, late, PATIENCE_MS));
    assert_true(tei_now_ns() - start >= least_ms * TEI_NS_PER_MS);
    for (size_t i = 0; i < late; i++) {
        assert_int_equal(t[i].error, TE_ERR_TIMEOUT);
        assert_non_null(strstr(t[i].note, "waiting for "));
        assert_non_null(strstr(t[i].note, r->dir));
    }
    open_gate();
    assert_true(fake_wait(&r->host, NULL, t, 2, PATIENCE_MS));
    assert_int_equal(t[1].error, deadline_ms ? 0 : TE_ERR_TIMEOUT);
    works(r, a, TE_READ, 0, LENGTH);
    fake_detach(r->t, a);
    file_rig_close(r);
}

static void deadline_while_opening(void **state)
{
    (void)state;
    ends_while_opening(NULL, 50, 50);
}

static void no_progress_while_opening(void **state)
{
    (void)state;
    ends_while_opening(impatient, 0, 1990);
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
    assert_true(fake_wait(&r->host, NULL, &t, 1, PATIENCE_MS));
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
    assert_true(threads <= r->threads); /* one of the test before may have been on its way out */
    assert_true(fds <= r->fds);
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

/* ------------------------------------------------------------------------------------------- main */

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_then_there),
        cmocka_unit_test(no_files_at_all),
        cmocka_unit_test(refused_by_paths),
        cmocka_unit_test(only_its_own),
        cmocka_unit_test(a_record_is_no_path),
        cmocka_unit_test(read_only),
        cmocka_unit_test(shorter_than_its_record),
        cmocka_unit_test(truncated_between),
        cmocka_unit_test(replaced),
        cmocka_unit_test(reading_fails),
        cmocka_unit_test(writing_fails),
        cmocka_unit_test(old_error),
        cmocka_unit_test(late_while_opening),
        cmocka_unit_test(attach_leaves_open_file),
        cmocka_unit_test(cancel_while_opening),
        cmocka_unit_test(deadline_while_opening),
        cmocka_unit_test(no_progress_while_opening),
        cmocka_unit_test(detach_while_opening),
        cmocka_unit_test(nothing_before_the_first_attachment),
        cmocka_unit_test(a_fork_has_no_copies),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return FILE_RIG_RUN(tests);
}
