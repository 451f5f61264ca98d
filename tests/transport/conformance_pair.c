/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conformance_pair.c - an initiator, a target, and the memory of both.
 *
 * A process that has used a driver may not fork a child that does, too. Where one of the sides has
 * memory of a device, the target's process is therefore made by another one, the maker, that is
 * forked before anything else and never touches a driver. The target's parent, once its maker's
 * child has gone, is the test: it can be stopped, killed and waited for like a child of its own.
 */
#include "conformance.h"

#include "base/err.h"
#include "base/os.h"
#include "plat/plat.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK ((size_t)1 << 20) /* of what goes to and from a target's process */

#define DIE(...)                               \
    do {                                       \
        fprintf(stderr, "pair: " __VA_ARGS__); \
        fputc('\n', stderr);                   \
        abort();                               \
    } while (0)

/* --------------------------------------------------------------------------------------- memory */

/* A piece that nobody else sees: the thread sanitizer would look at each of its bytes. */
__attribute__((no_sanitize("thread"))) static uint32_t draw_piece(char *piece, size_t n, uint32_t x)
{
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        piece[i] = (char)(x >> 24);
    }
    return x;
}

void fill_pattern(char *p, size_t n, uint32_t seed)
{
    uint32_t x = seed * 2654435761u + 12345;
    char piece[4096];

    for (size_t done = 0, part; done < n; done += part) {
        part = n - done < sizeof(piece) ? n - done : sizeof(piece);
        x = draw_piece(piece, part, x);
        memcpy(p + done, piece, part);
    }
}

static void *room(size_t n)
{
    void *p = malloc(n ? n : 1);

    if (!p)
        DIE("out of memory");
    return p;
}

static char *map_file(size_t n, int how, int fd)
{
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, how, fd, 0);

    if (p == MAP_FAILED)
        DIE("mmap: %s", strerror(errno));
    return p;
}

static bool is_host(const struct conformance *with, enum pair_side side)
{
    return with->kind[side] == TEI_MEM_HOST;
}

static char *map(const struct conformance *with, enum pair_side side, size_t n, int how)
{
    void *p;

    if (is_host(with, side))
        return map_file(n, how | MAP_ANONYMOUS, -1);
    if (tei_gpu_open(with->kind[side]) ||
        tei_gpu_alloc(with->kind[side], with->device[side], n, with->fabric, &p))
        DIE("no memory of a device: %s", te_errmsg());
    return p;
}

char *pair_map(const struct conformance *with, enum pair_side side, size_t n)
{
    return map(with, side, n, MAP_PRIVATE);
}

void pair_unmap(const struct conformance *with, enum pair_side side, char *p, size_t n)
{
    if (is_host(with, side))
        munmap(p, n);
    else
        tei_gpu_free(with->kind[side], p);
}

void pair_copy(const struct conformance *with, void *to, const void *from, size_t n)
{
    if (is_host(with, INITIATOR) && is_host(with, TARGET))
        memcpy(to, from, n);
    else if (tei_mem_copy(to, from, n))
        DIE("a copy failed: %s", te_errmsg());
}

/* ------------------------------------------------------------- the memory of a target's process */

struct order {
    bool put; /* n bytes follow, and a byte comes back; else they are asked for */
    size_t at, n;
};

/* What a target says first; its descriptor follows. */
struct greeting {
    pid_t pid;
    char *mem;
    size_t length;
};

static bool send_all(int fd, const void *from, size_t n)
{
    for (const char *at = from; n > 0;) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        at += sent;
        n -= (size_t)sent;
    }
    return true;
}

static bool receive_all(int fd, void *to, size_t n)
{
    for (char *at = to; n > 0;) {
        ssize_t got = recv(fd, at, n, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        n -= (size_t)got;
    }
    return true;
}

/* At the target, until the test closes its end. */
static void obey(struct pair *p, int fd)
{
    char *bytes = room(CHUNK);
    struct order o;

    while (receive_all(fd, &o, sizeof o)) {
        for (size_t n; o.n > 0; o.at += n, o.n -= n) {
            n = tei_min(o.n, CHUNK);
            if (o.put && !receive_all(fd, bytes, n))
                _exit(1);
            pair_copy(p->with, o.put ? p->bm + o.at : bytes, o.put ? bytes : p->bm + o.at, n);
            if (!o.put && !send_all(fd, bytes, n))
                _exit(1);
        }
        if (o.put && !send_all(fd, "", 1)) /* it is there */
            _exit(1);
    }
    _exit(0);
}

static void order(const struct pair *p, bool put, size_t at, size_t n)
{
    struct order o = {.put = put, .at = at, .n = n};

    if (!send_all(p->orders, &o, sizeof o))
        DIE("the target's process is gone");
}

/* --------------------------------------------------------------------------- memory of the sides */

static bool is_far(const struct pair *p, enum pair_side side)
{
    return side == TARGET && p->orders >= 0;
}

static bool is_near_host(const struct pair *p, enum pair_side side)
{
    return !is_far(p, side) && is_host(p->with, side);
}

static char *place(const struct pair *p, enum pair_side side, size_t at)
{
    return (side == INITIATOR ? p->am : p->bm) + at;
}

void pair_put(const struct pair *p, enum pair_side side, size_t at, const void *from, size_t n)
{
    char done;

    if (!is_far(p, side)) {
        pair_copy(p->with, place(p, side, at), from, n);
        return;
    }
    order(p, true, at, n);
    if (!send_all(p->orders, from, n) || !receive_all(p->orders, &done, 1))
        DIE("the target's process is gone");
}

void pair_get(const struct pair *p, enum pair_side side, size_t at, void *to, size_t n)
{
    if (!is_far(p, side)) {
        pair_copy(p->with, to, place(p, side, at), n);
        return;
    }
    order(p, false, at, n);
    if (!receive_all(p->orders, to, n))
        DIE("the target's process is gone");
}

void pair_fill(const struct pair *p, enum pair_side side, size_t at, size_t n, uint32_t seed)
{
    char *bytes;

    if (is_near_host(p, side)) {
        fill_pattern(place(p, side, at), n, seed);
        return;
    }
    bytes = room(n);
    fill_pattern(bytes, n, seed);
    pair_put(p, side, at, bytes, n);
    free(bytes);
}

void pair_set(const struct pair *p, enum pair_side side, size_t at, char byte, size_t n)
{
    char *bytes;

    if (is_near_host(p, side)) {
        memset(place(p, side, at), byte, n);
        return;
    }
    bytes = room(n);
    memset(bytes, byte, n);
    pair_put(p, side, at, bytes, n);
    free(bytes);
}

/* Bytes of a side where they can be looked at; to be let go of with look_away(). */
static char *look(const struct pair *p, enum pair_side side, size_t at, size_t n)
{
    char *bytes;

    if (is_near_host(p, side))
        return place(p, side, at);
    bytes = room(n);
    pair_get(p, side, at, bytes, n);
    return bytes;
}

static void look_away(const struct pair *p, enum pair_side side, char *bytes)
{
    if (!is_near_host(p, side))
        free(bytes);
}

void pair_expect(const struct pair *p, enum pair_side side, size_t at, const void *bytes, size_t n)
{
    char *seen = look(p, side, at, n);

    assert_memory_equal(seen, bytes, n);
    look_away(p, side, seen);
}

bool pair_same(const struct pair *p, size_t at_a, const struct pair *q, size_t at_b, size_t n)
{
    char *a = look(p, INITIATOR, at_a, n), *b = look(q, TARGET, at_b, n);
    bool same = memcmp(a, b, n) == 0;

    look_away(p, INITIATOR, a);
    look_away(q, TARGET, b);
    return same;
}

/* ---------------------------------------------------------------------------------------- pairs */

static void configure(const struct conformance *with, struct fake_host *h, enum pair_side side)
{
    fake_host_init(h);
    h->topology = with->topology[side];
    h->conf.tcp_piece_size = PIECE;
    if (with->configure)
        with->configure(&h->conf);
}

static char *make_file(struct pair *p)
{
    char *mapped, folder[PATH_MAX];
    int fd, rc;

    assert_non_null(realpath(p->with->folder, folder));
    snprintf(p->file, sizeof p->file, "%.4000s/te-file-XXXXXX", folder);
    fd = mkstemp(p->file);
    assert_true(fd >= 0);
    do {
        rc = posix_fallocate(fd, 0, PAIR_BYTES);
    } while (rc == EINTR);
    if (rc)
        fail_msg("%s: %s", p->file, strerror(rc));
    mapped = map_file(PAIR_BYTES, MAP_SHARED, fd);
    close(fd);
    return mapped;
}

static bool needs_maker(const struct conformance *with)
{
    return !is_host(with, INITIATOR) || !is_host(with, TARGET);
}

static struct pair *make_pair(const struct conformance *with)
{
    struct pair *p = calloc(1, sizeof *p);

    assert_non_null(p);
    p->with = with;
    p->orders = -1;
    if (needs_maker(with))
        pair_prepare();
    return p;
}

/* The file, in which each byte has the address at which it is mapped. */
static void attach_file(struct pair *p)
{
    struct tei_segment *s;

    assert_int_equal(tei_segment_of_file("file", p->file, PAIR_BYTES, &s), 0);
    s->buffers[0].addr = (uintptr_t)p->bm;
    assert_int_equal(fake_attach_segment(p->a, s, &p->attach), 0);
    tei_segment_put(s);
}

static void open_initiator(struct pair *p)
{
    p->am = map(p->with, INITIATOR, PAIR_BYTES, MAP_PRIVATE);
    configure(p->with, &p->ha, INITIATOR);
    p->a = fake_open(&p->ha, p->with->transport);
    p->ar = fake_region_add(&p->ha, p->a, p->am, PAIR_BYTES, TE_REMOTE_RW);
}

static void open_target(struct pair *p)
{
    configure(p->with, &p->hb, TARGET);
    p->b = fake_open(&p->hb, p->with->transport);
    p->br = fake_region_add(&p->hb, p->b, p->bm, PAIR_BYTES, TE_REMOTE_RW);
}

struct pair *pair_open(const struct conformance *with)
{
    struct pair *p = make_pair(with);

    p->bm = with->folder ? make_file(p) : map(with, TARGET, PAIR_BYTES, MAP_SHARED);
    open_initiator(p);
    if (with->folder) {
        attach_file(p);
        return p;
    }
    if (p->a->ops.caps & TEI_CAP_LOCAL_ONLY) {
        p->b = p->a;
        p->br = fake_region_add(&p->ha, p->a, p->bm, PAIR_BYTES, TE_REMOTE_RW);
        return p;
    }
    open_target(p);
    p->attach = fake_attach(p->a, p->b);
    return p;
}

void pair_attach_anew(struct pair *p)
{
    struct tei_attach *old = p->attach;

    p->attach = fake_attach(p->a, p->b);
    fake_detach(p->a, old);
}

/* ------------------------------------------------------------------- a process for the target */

/* The target's process: serves until it is killed. */
static void serve(struct pair *p, int out)
{
    FILE *to = fdopen(out, "w");
    char *text;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_target(p);
    text = fake_describe(p->b);
    if (!to || fputs(text, to) < 0 || fclose(to) != 0)
        _exit(1);
    for (;;)
        pause();
}

/* What the other end writes until it closes. */
static char *read_all(int fd)
{
    FILE *in = fdopen(fd, "r");
    char *text = NULL;
    size_t size = 0;

    assert_non_null(in);
    assert_true(getdelim(&text, &size, '\0', in) > 0);
    fclose(in);
    return text;
}

static char *fork_target(struct pair *p)
{
    int ends[2];

    p->bm = map(p->with, TARGET, PAIR_BYTES, MAP_SHARED);
    assert_int_equal(pipe(ends), 0);
    p->child = fork();
    assert_true(p->child >= 0);
    if (p->child == 0) {
        close(ends[0]);
        serve(p, ends[1]);
    }
    close(ends[1]);
    return read_all(ends[0]);
}

/* ------------------------------------------------------------------------------------ the maker */

static int maker = -1; /* the test's end */

/* A target of the maker's: has its memory for itself, and serves until it is killed. */
static void serve_made(const struct conformance *with, int fd, pid_t test)
{
    struct pair *p = calloc(1, sizeof *p);
    struct greeting g;
    char *text;

    if (!p)
        DIE("out of memory");
    while (getppid() != test) /* the process between ends at once */
        usleep(1000);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    p->with = with;
    p->orders = -1;
    p->bm = map(with, TARGET, PAIR_BYTES, MAP_PRIVATE);
    open_target(p);
    text = fake_describe(p->b);
    g = (struct greeting){.pid = getpid(), .mem = p->bm, .length = strlen(text)};
    if (!send_all(fd, &g, sizeof g) || !send_all(fd, text, g.length))
        _exit(1);
    obey(p, fd);
}

/* What is wanted, and the target's end of its orders in *fd; false: the test has ended. */
static bool take_wish(int from, struct conformance *with, int *fd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {with, sizeof *with};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};

    if (recvmsg(from, &m, 0) != (ssize_t)sizeof *with || !CMSG_FIRSTHDR(&m))
        return false;
    memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof *fd);
    return true;
}

static void send_wish(const struct conformance *with, int fd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.head = {.cmsg_len = CMSG_LEN(sizeof fd),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS}};
    struct conformance copy = *with;
    struct iovec iov = {&copy, sizeof copy};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};

    memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    assert_int_equal(sendmsg(maker, &m, MSG_NOSIGNAL), sizeof copy);
}

static void make_targets(int from, pid_t test)
{
    static struct conformance with;
    pid_t between;
    int fd;

    while (take_wish(from, &with, &fd)) {
        between = fork();
        if (between == 0) {
            close(from);
            if (fork() == 0)
                serve_made(&with, fd, test);
            _exit(0);
        }
        waitpid(between, NULL, 0);
        close(fd);
    }
    _exit(0);
}

void pair_prepare(void)
{
    pid_t test = getpid(), pid;
    int ends[2];

    if (maker >= 0)
        return;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) || prctl(PR_SET_CHILD_SUBREAPER, 1))
        DIE("%s", strerror(errno));
    pid = fork();
    if (pid < 0)
        DIE("fork: %s", strerror(errno));
    if (pid == 0) {
        close(ends[0]);
        make_targets(ends[1], test);
    }
    close(ends[1]);
    maker = ends[0];
}

static char *order_target(struct pair *p)
{
    struct greeting g;
    int ends[2];
    char *text;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    send_wish(p->with, ends[1]);
    close(ends[1]);
    p->orders = ends[0];
    assert_true(receive_all(p->orders, &g, sizeof g));
    p->child = g.pid;
    p->bm = g.mem;
    text = room(g.length + 1);
    assert_true(receive_all(p->orders, text, g.length));
    text[g.length] = '\0';
    return text;
}

struct pair *pair_fork(const struct conformance *with)
{
    struct pair *p = make_pair(with);
    char *text = needs_maker(with) ? order_target(p) : fork_target(p);

    open_initiator(p);
    p->attach = fake_attach_text(p->a, text);
    free(text);
    return p;
}

/* --------------------------------------------------------------------------------------- ending */

void pair_end_child(struct pair *p)
{
    if (p->child <= 0)
        return;
    kill(p->child, SIGKILL);
    waitpid(p->child, NULL, 0);
    p->child = 0;
}

void pair_close(struct pair *p)
{
    bool forked = p->child != 0;

    pair_end_child(p);
    fake_detach(p->a, p->attach);
    fake_region_del(&p->ha, p->a, p->ar);
    if (p->b == p->a)
        fake_region_del(&p->ha, p->a, p->br);
    fake_close(p->a);
    if (!forked && p->b && p->b != p->a) {
        fake_region_del(&p->hb, p->b, p->br);
        fake_close(p->b);
        fake_host_fini(&p->hb);
    }
    fake_host_fini(&p->ha);
    pair_unmap(p->with, INITIATOR, p->am, PAIR_BYTES);
    if (p->orders >= 0)
        close(p->orders);
    else
        pair_unmap(p->with, TARGET, p->bm, PAIR_BYTES);
    if (p->file[0])
        unlink(p->file);
    free(p);
}
