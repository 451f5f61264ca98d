/* SPDX-License-Identifier: Apache-2.0 */
/* Whom the two ends of the host transport take for their peer, and what they say of whom they do not. */
#include "conformance.h"

#include "base/os.h"
#include "base/pages.h"
#include "proc.h"
#include "transport/host/host.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct conformance fixture = {.transport = "host"};

/* ------------------------------------------------------------------------------ why it is not taken */

/* Attaches with one key of te.host changed (NULL: left out), and checks the reason given. */
static void check_refused(struct pair *p, const char *key, json_t *value, const char *reason)
{
    json_t *root = json_object(), *keys;
    struct tei_attach *a = NULL;

    assert_int_equal(p->b->ops.describe(p->b, root), 0);
    keys = json_object_get(json_object_get(root, "te"), "host");
    if (value)
        json_object_set_new(keys, key, value);
    else
        json_object_del(keys, key);
    assert_int_equal(fake_attach_json(p->a, root, "127.0.0.1", &a), TE_ERR_UNSUPPORTED);
    if (!strstr(te_errmsg(), reason))
        fail_msg("'%s' does not say '%s'", te_errmsg(), reason);
}

static void reasons(void **state)
{
    struct pair *p = pair_open(&fixture);
    struct tei_attach *a = NULL;
    static const char far[] = "0f0f0f0f0000400080000000000000ab";

    (void)state;
    fake_detach(p->a, p->attach); /* or it would be known already */
    p->attach = NULL;
    check_refused(p, "host", json_string(far), "another host");
    if (tei_host_of(p->a)->keys.here.machine[0])
        check_refused(p, "machine", json_string(far), "another machine");
    check_refused(p, "net_ns", json_string(far), "network namespace");
    check_refused(p, "pid_ns", json_string(far), "pid namespace");
    check_refused(p, "nonce", json_string("00112233445566778899aabbccddeeff"), "another host");
    check_refused(p, "socket", json_string("te-host-nobody"), "unix socket");
    check_refused(p, "v", json_integer(1), "version 1");
    check_refused(p, "nonce", json_string("xy"), "malformed");
    check_refused(p, "host", json_string("xy"), "malformed");
    check_refused(p, "net_ns", NULL, "malformed");
    assert_int_equal(fake_attach_json(p->a, json_object(), "127.0.0.1", &a), TE_ERR_UNSUPPORTED);
    assert_non_null(strstr(te_errmsg(), "TE_HOST_PATH"));
    pair_close(p);
}

static void quick_to_give_up(struct tei_conf *c)
{
    c->host_timeout_ms = 200;
}

static void a_silent_owner_costs_the_timeout(void **state)
{
    static const struct conformance with = {.transport = "host", .configure = quick_to_give_up};
    struct pair *p = pair_open(&with);
    struct host *b = tei_host_of(p->b);
    struct host_keys keys;
    struct tei_attach *a = NULL;
    json_t *root = json_object();

    (void)state;
    pthread_mutex_lock(&b->loop_lock);
    keys = b->keys;
    b->keys.nonce[0] ^= 1; /* as a new engine, so that a greeting is due */
    tei_here(b->keys.nonce, &b->keys.here);
    pthread_mutex_unlock(&b->loop_lock);
    assert_int_equal(p->b->ops.describe(p->b, root), 0);
    pthread_mutex_lock(&b->loop_lock);
    assert_int_equal(fake_attach_json(p->a, root, "127.0.0.1", &a), TE_ERR_UNSUPPORTED);
    b->keys = keys;
    pthread_mutex_unlock(&b->loop_lock);
    assert_non_null(strstr(te_errmsg(), "TE_HOST_TIMEOUT_MS"));
    pair_close(p);
}

/* ---------------------------------------------------------------------------- who means harm */

static int knock(struct pair *p)
{
    int fd = tei_host_connect(tei_host_of(p->b)->keys.socket, 1000);

    assert_true(fd >= 0);
    return fd;
}

/* Whoever says nothing, nonsense, or the truth with a wrong nonce, is let go of. */
static void hostile_initiators(void **state)
{
    struct pair *p = pair_open(&fixture);
    struct host_msg m = {.magic = HOST_MAGIC, .version = HOST_VERSION, .type = HOST_HELLO};
    size_t before = test_count_fds();
    int fds[HOST_FDS] = {0, 1}, fd, silent = knock(p);
    char junk[200];

    (void)state;
    for (int i = 0; i < 50; i++) {
        fd = knock(p);
        fill_pattern(junk, sizeof junk, (uint32_t)i);
        assert_true(send(fd, junk, (size_t)i * 4, MSG_NOSIGNAL) >= 0);
        tei_fd_close(fd);
        fd = knock(p);
        m.type = (uint16_t)(i % 7);
        assert_true(tei_host_send(fd, &m, fds, (size_t)i % 3));
        tei_fd_close(fd);
    }
    m.type = HOST_HELLO; /* with a nonce of zeros */
    fd = knock(p);
    assert_true(tei_host_send(fd, &m, NULL, 0));
    WAIT_FOR(test_count_fds() <= before + 2 && read(fd, junk, 1) == 0);
    assert_int_equal(read(silent, junk, 1), 0);
    tei_fd_close(silent);
    tei_fd_close(fd);
    WAIT_FOR(test_count_fds() <= before);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, p->am, p->bm, 100000), 0);
    pair_close(p);
}

/* As many as there may be, which say nothing, keep nobody out who has something to say. */
static void silent_initiators_give_way(void **state)
{
    struct pair *p = pair_open(&fixture);
    json_t *root = json_object();
    int silent[300];

    (void)state;
    fake_detach(p->a, p->attach);
    p->attach = NULL;
    for (size_t i = 0; i < TEI_ARRAY_LEN(silent); i++)
        silent[i] = knock(p);
    assert_int_equal(p->b->ops.describe(p->b, root), 0);
    assert_int_equal(fake_attach_json(p->a, root, "127.0.0.1", &p->attach), 0);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, p->am, p->bm, 100000), 0);
    for (size_t i = 0; i < TEI_ARRAY_LEN(silent); i++)
        tei_fd_close(silent[i]);
    pair_close(p);
}

struct impostor {
    int listener, fds[2];
    uint64_t proof_at, began;
};

/* Answers one greeting, with whatever it has. */
static void *answer(void *arg)
{
    struct impostor *o = arg;
    struct host_msg m = {.magic = HOST_MAGIC,
                         .version = HOST_VERSION,
                         .type = HOST_WELCOME,
                         .proof_at = o->proof_at,
                         .began = o->began};
    struct pollfd f = {.fd = o->listener, .events = POLLIN};
    char message[sizeof m];
    int fd = poll(&f, 1, PATIENCE_MS) == 1 ? accept(o->listener, NULL, NULL) : -1;

    assert_true(fd >= 0);
    f.fd = fd;
    poll(&f, 1, PATIENCE_MS);
    assert_int_equal(read(fd, message, sizeof message), sizeof message);
    assert_true(tei_host_send(fd, &m, o->fds, 2));
    poll(&f, 1, PATIENCE_MS); /* until it is left alone, or asked for the proof */
    m = (struct host_msg){.magic = HOST_MAGIC, .version = HOST_VERSION, .type = HOST_PROVED};
    if (read(fd, message, sizeof message) > 0)
        assert_true(tei_host_send(fd, &m, NULL, 0));
    close(fd);
    return NULL;
}

/* A greeting that is answered with these two; closes them. */
static int greet_with(struct pair *p, int table, int hazards, const void *proof)
{
    struct tei_process own = {0};
    char name[HOST_SOCKET + 1];
    struct impostor o = {tei_host_listen(name), {table, hazards}, (uintptr_t)proof, 0};
    json_t *root = json_object(), *keys;
    struct tei_attach *a = NULL;
    pthread_t thread;
    int rc;

    assert_true(o.listener >= 0 && table >= 0 && hazards >= 0);
    assert_true(tei_process_look(getpid(), &own));
    o.began = own.began;
    assert_int_equal(p->b->ops.describe(p->b, root), 0);
    keys = json_object_get(json_object_get(root, "te"), "host");
    json_object_set_new(keys, "socket", json_string(name));
    assert_int_equal(pthread_create(&thread, NULL, answer, &o), 0);
    rc = fake_attach_json(p->a, root, "127.0.0.1", &a);
    pthread_join(thread, NULL);
    tei_fd_close(o.listener);
    close(table);
    close(hazards);
    return rc;
}

static int unsealed(size_t size, unsigned flags)
{
    int fd = memfd_create("unsealed", MFD_CLOEXEC | flags);

    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    return fd;
}

/* A sealed memfd of huge pages, of which there may be none when it is read; -1 where there are none. */
static int sealed_huge(size_t size)
{
    int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

    if (fd >= 0 && (ftruncate(fd, (off_t)size) != 0 ||
                    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* What an owner hands out is pages as they must be, or it is left alone. */
static void hostile_owners(void **state)
{
    struct pair *p = pair_open(&fixture);
    size_t table = sizeof(struct host_table), page = sizeof(struct host_hazards), before;
    int huge = sealed_huge((size_t)128 << 20);

    (void)state;
    fake_detach(p->a, p->attach);
    p->attach = NULL;
    before = test_count_fds() - (huge >= 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(greet_with(p, tei_pages_make("te_host", table),
                                    tei_pages_make("te_host", page), NULL),
                         TE_ERR_UNSUPPORTED); /* of zeros */
    assert_int_equal(greet_with(p, open("/tmp", O_RDONLY), tei_pages_make("te_host", page), NULL),
                     TE_ERR_UNSUPPORTED);
    assert_int_equal(greet_with(p, open("/dev/zero", O_RDWR), open("/dev/zero", O_RDWR), NULL),
                     TE_ERR_UNSUPPORTED);
    assert_int_equal(greet_with(p, unsealed(table, 0), unsealed(page, 0), NULL),
                     TE_ERR_UNSUPPORTED);
    assert_int_equal(greet_with(p, unsealed(table, MFD_ALLOW_SEALING),
                                unsealed(page, MFD_ALLOW_SEALING), NULL),
                     TE_ERR_UNSUPPORTED);
    assert_int_equal(greet_with(p, tei_pages_make("te_host", page), tei_pages_make("te_host", page),
                                NULL),
                     TE_ERR_UNSUPPORTED);
    if (huge >= 0) {
        assert_int_equal(greet_with(p, huge, tei_pages_make("te_host", page), NULL),
                         TE_ERR_UNSUPPORTED);
        assert_non_null(strstr(te_errmsg(), "sealed"));
    }
    WAIT_FOR(test_count_fds() <= before); /* b may have been letting go of a then */
    pair_close(p);
}

/* A table as a true owner would have it. */
static int good_table(void)
{
    int fd = tei_pages_make("te_host", sizeof(struct host_table));
    struct host_table *t = tei_pages_map(fd, sizeof *t, true);

    assert_non_null(t);
    t->magic = HOST_MAGIC;
    t->version = HOST_VERSION;
    t->n_slots = HOST_SLOTS;
    t->n_log = HOST_LOG;
    munmap(t, sizeof *t);
    return fd;
}

/*
 * Who answers well, and has not written what it was asked to where it said, is not the process of its
 * number, whatever else that holds.
 */
static void owners_without_proof(void **state)
{
    static const unsigned char constant[HOST_NONCE] = {0x7f, 'E', 'L', 'F'};
    struct pair *p = pair_open(&fixture);
    size_t page = sizeof(struct host_hazards);

    (void)state;
    fake_detach(p->a, p->attach);
    p->attach = NULL;
    assert_int_equal(greet_with(p, good_table(), tei_pages_make("te_host", page), constant),
                     TE_ERR_UNSUPPORTED);
    assert_non_null(strstr(te_errmsg(), "not the one that answers"));
    assert_int_equal(greet_with(p, good_table(), tei_pages_make("te_host", page), NULL),
                     TE_ERR_UNSUPPORTED);
    assert_non_null(strstr(te_errmsg(), "not the one that answers"));
    pair_close(p);
}

/*
 * A process that listens, and leaves its socket to a child when it ends, which is waited for. The child
 * ends when what is returned is closed.
 */
static int leave_a_socket(char name[HOST_SOCKET + 1])
{
    int told[2], life[2], status;
    pid_t pid;

    assert_int_equal(pipe2(told, O_CLOEXEC), 0);
    assert_int_equal(pipe2(life, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char end;

        close(life[1]);
        /* The library's own descriptors are closed in a child. */
        if (dup(tei_host_listen(name)) < 0 || write(told[1], name, HOST_SOCKET + 1) < 0)
            _exit(1);
        if (fork() == 0 && read(life[0], &end, 1) < 0)
            _exit(1);
        _exit(0);
    }
    close(life[0]);
    assert_int_equal(read(told[0], name, HOST_SOCKET + 1), HOST_SOCKET + 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(told[0]);
    close(told[1]);
    return life[1];
}

/* Its number may be anybody's since: nobody is asked, and nothing is waited for. */
static void a_socket_that_was_left(void **state)
{
    struct pair *p = pair_open(&fixture);
    char name[HOST_SOCKET + 1];
    int life;

    (void)state;
    fake_detach(p->a, p->attach);
    p->attach = NULL;
    life = leave_a_socket(name);
    check_refused(p, "socket", json_string(name), "has ended");
    close(life);
    pair_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reasons),
        cmocka_unit_test(a_silent_owner_costs_the_timeout),
        cmocka_unit_test(hostile_initiators),
        cmocka_unit_test(silent_initiators_give_way),
        cmocka_unit_test(hostile_owners),
        cmocka_unit_test(owners_without_proof),
        cmocka_unit_test(a_socket_that_was_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
