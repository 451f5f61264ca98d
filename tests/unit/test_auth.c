/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TE_AUTH: opening, proofs, and the secured handshake over a pair of sockets, whose two ends take turns in
 * one thread. What stands between them is the test: it may keep bytes, change them, and send them again.
 */
#include "auth/auth.h"
#include "auth_rig.h"
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/os.h"
#include "patience.h"
#include "te.h"

#define A_AND_B "a:" KEY_A "\nb:" KEY_B "\n"
#define B_AND_A "b:" KEY_B "\na:" KEY_A "\n"

/* ------------------------------------------------------------------------------------- opening */

static int open_with(const char *auth, const char *keys, const char *classic)
{
    struct tei_conf *conf = calloc(1, sizeof(*conf));
    struct tei_auth *a = NULL;
    int rc;

    assert_non_null(conf);
    strcpy(conf->auth, auth);
    strcpy(conf->auth_keys, keys);
    strcpy(conf->auth_classic, classic);
    rc = tei_auth_open(conf, 1, &a);
    free(conf);
    assert_int_equal(rc == 0 && strcmp(auth, "off") != 0, a != NULL);
    tei_auth_close(a);
    return rc;
}

TEST(what_is_impossible_is_an_error)
{
    const char *good = auth_file("good", "a:" KEY_A "\n");

    assert_int_equal(open_with("off", "", ""), 0);
    assert_int_equal(open_with("psk", good, ""), 0);
    assert_int_equal(open_with("PSK", good, "10.0.0.0/8,::1"), 0);
    assert_int_equal(open_with("psk", "", ""), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "TE_AUTH_KEYS is empty"));
    assert_int_equal(open_with("psk", "/nonexistent", ""), TE_ERR_INVALID);
    assert_int_equal(open_with("mtls", good, ""), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "TE_AUTH_CERT"));
    assert_int_equal(open_with("on", good, ""), TE_ERR_INVALID);
    assert_int_equal(open_with("", good, ""), TE_ERR_INVALID);
    assert_int_equal(open_with("psk", good, "10.0.0.0/33"), TE_ERR_INVALID);
    assert_int_equal(open_with("psk", good, "10.0.0.0/x"), TE_ERR_INVALID);
    assert_int_equal(open_with("psk", good, "10.0.0.0/"), TE_ERR_INVALID);
    assert_int_equal(open_with("psk", good, "host"), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "TE_AUTH_CLASSIC"));
}

static bool in_list(struct tei_auth *a, const char *address)
{
    struct tei_addr addr;

    assert_true(tei_resolve_numeric(address, 1, &addr));
    return tei_auth_is_classic(a, &addr);
}

TEST(addresses_without_a_proof)
{
    struct tei_auth *a =
        auth_open_classic("nets", "a:" KEY_A "\n", 1, "10.1.0.0/16, 192.168.7.9,fd00::/9,::1");

    assert_true(in_list(a, "10.1.255.3"));
    assert_false(in_list(a, "10.2.0.1"));
    assert_true(in_list(a, "192.168.7.9"));
    assert_false(in_list(a, "192.168.7.8"));
    assert_true(in_list(a, "::ffff:10.1.2.3"));
    assert_true(in_list(a, "fd7f::1"));
    assert_false(in_list(a, "fd80::1"));
    assert_true(in_list(a, "::1"));
    assert_false(in_list(a, "127.0.0.1"));
    tei_auth_close(a);
    a = auth_open("nets", "a:" KEY_A "\n", 1);
    assert_false(in_list(a, "10.1.255.3"));
    tei_auth_close(a);
}

/* -------------------------------------------------------------------------------------- proofs */

static struct tei_proof *server_proof(struct tei_auth *a, enum tei_proof_use use, const char *id)
{
    enum tei_auth_cause cause;
    struct tei_proof *p = tei_proof_server(a, use, id, strlen(id), &cause);

    assert_non_null(p);
    return p;
}

/* Computed by another implementation: Python's hmac, from the key file's bytes alone. */
TEST(proofs_are_what_is_documented)
{
    static const uint8_t client[TEI_AUTH_PROOF] = {0x73, 0xfc, 0x9b, 0xa1, 0xec, 0xdf, 0x50, 0x31,
                                                   0x83, 0x7b, 0xa8, 0x54, 0x33, 0xdb, 0xbc, 0xc7,
                                                   0x31, 0x88, 0xd1, 0xf4, 0x31, 0x77, 0xe9, 0xba,
                                                   0x64, 0xa6, 0x00, 0x3c, 0x5e, 0x7f, 0xb5, 0xe4};
    static const uint8_t server[TEI_AUTH_PROOF] = {0xf0, 0x61, 0x37, 0xcd, 0x9d, 0x87, 0x9e, 0xba,
                                                   0xd0, 0x27, 0xb2, 0xe5, 0xf7, 0x29, 0xef, 0xb9,
                                                   0xe9, 0x2c, 0xb8, 0x38, 0x7c, 0xe6, 0xeb, 0x97,
                                                   0x12, 0x11, 0xad, 0xe9, 0x62, 0xa7, 0x4b, 0x2a};
    struct tei_auth *a = auth_open("a", A_AND_B, 1);
    char id[TEI_AUTH_ID_MAX + 1];
    struct tei_proof *p = tei_proof_client(a, TEI_PROOF_DATA, NULL, id);
    uint8_t made[TEI_AUTH_PROOF];

    assert_non_null(p);
    assert_string_equal(id, "a");
    tei_proof_add(p, "hel", 3);
    tei_proof_add(p, "lo", 2);
    assert_true(tei_proof_make(p, TEI_PROOF_CLIENT, made));
    assert_memory_equal(made, client, sizeof(made));
    assert_true(tei_proof_make(p, TEI_PROOF_SERVER, made));
    assert_memory_equal(made, server, sizeof(made));
    tei_proof_free(p);
    tei_proof_free(NULL);
    tei_auth_close(a);
}

TEST(a_proof_is_of_one_side_use_key_and_talk)
{
    struct tei_auth *a = auth_open("a", A_AND_B, 1), *b = auth_open("b", B_AND_A, 2);
    char id[TEI_AUTH_ID_MAX + 1];
    struct tei_proof *ours = tei_proof_client(a, TEI_PROOF_DATA, NULL, id);
    struct tei_proof *theirs = server_proof(b, TEI_PROOF_DATA, "a");
    struct tei_proof *other_use = server_proof(b, TEI_PROOF_HOST, "a");
    struct tei_proof *other_key = server_proof(a, TEI_PROOF_DATA, "b");
    uint8_t proof[TEI_AUTH_PROOF];

    tei_proof_add(ours, "x", 1);
    tei_proof_add(theirs, "x", 1);
    tei_proof_add(other_use, "x", 1);
    tei_proof_add(other_key, "x", 1);
    assert_true(tei_proof_make(ours, TEI_PROOF_CLIENT, proof));
    assert_true(tei_proof_check(theirs, TEI_PROOF_CLIENT, proof));
    assert_false(
        tei_proof_check(theirs, TEI_PROOF_SERVER, proof)); /* sent back to where it is from */
    assert_false(tei_proof_check(other_use, TEI_PROOF_CLIENT, proof));
    assert_false(tei_proof_check(other_key, TEI_PROOF_CLIENT, proof));
    for (size_t i = 0; i < sizeof(proof); i++) {
        proof[i] ^= 1;
        assert_false(tei_proof_check(theirs, TEI_PROOF_CLIENT, proof));
        proof[i] ^= 1;
    }
    tei_proof_add(theirs, "y", 1);
    assert_false(tei_proof_check(theirs, TEI_PROOF_CLIENT, proof)); /* another talk */
    tei_proof_free(ours);
    tei_proof_free(theirs);
    tei_proof_free(other_use);
    tei_proof_free(other_key);
    tei_auth_close(a);
    tei_auth_close(b);
}

TEST(a_talk_that_is_too_long_proves_nothing)
{
    static const uint8_t bytes[TEI_PROOF_BYTES + 1];
    struct tei_auth *a = auth_open("a", A_AND_B, 1);
    struct tei_proof *p = server_proof(a, TEI_PROOF_DATA, "b");
    uint8_t proof[TEI_AUTH_PROOF];

    tei_proof_add(p, bytes, TEI_PROOF_BYTES);
    assert_true(tei_proof_make(p, TEI_PROOF_CLIENT, proof));
    tei_proof_add(p, bytes, 1);
    assert_false(tei_proof_make(p, TEI_PROOF_CLIENT, proof));
    assert_false(tei_proof_check(p, TEI_PROOF_CLIENT, proof));
    tei_proof_free(p);
    tei_auth_close(a);
}

static enum tei_auth_cause why_no_proof(struct tei_auth *a, const char *id)
{
    enum tei_auth_cause cause;

    assert_null(tei_proof_server(a, TEI_PROOF_DATA, id, strlen(id), &cause));
    return cause;
}

struct told {
    const char *what;
    unsigned lines;
};

static void count_told(void *arg, enum te_log_level level, const char *text)
{
    struct told *t = arg;

    (void)level;
    t->lines += strstr(text, t->what) != NULL;
}

/* How often a look at the key file is told so. */
static unsigned told_by_look(struct tei_auth *a, const char *what)
{
    struct told t = {.what = what};

    te_log_set_sink(count_told, &t);
    tei_auth_look(a);
    te_log_set_sink(NULL, NULL);
    return t.lines;
}

static void expect_told(struct tei_auth *a, const char *what)
{
    assert_int_equal(told_by_look(a, what), 1);
}

TEST(ids_that_may_not_come)
{
    struct tei_auth *a = auth_open("a", A_AND_B, 1);

    assert_int_equal(why_no_proof(a, "c"), TEI_AUTH_ID);
    assert_int_equal(why_no_proof(a, ""), TEI_AUTH_ID);
    assert_int_equal(why_no_proof(a, "a"), TEI_AUTH_OWN);
    auth_file("a", A_AND_B "a:" KEY_A "\n");
    expect_told(a, "was read anew");
    tei_proof_free(server_proof(a, TEI_PROOF_DATA, "a"));
    tei_auth_close(a);
}

/* Nothing is said again of a file that is still broken, or still not there. */
TEST(a_file_that_cannot_be_taken_is_told_once)
{
    struct tei_auth *a = auth_open("o", A_AND_B, 1);
    const char *path = auth_file("o", "broken\n");

    expect_told(a, "stay in use, until");
    assert_int_equal(told_by_look(a, "key file"), 0);
    assert_int_equal(unlink(path), 0);
    expect_told(a, "is put back");
    assert_int_equal(told_by_look(a, "key file"), 0);
    auth_file("o", A_AND_B);
    expect_told(a, "was read anew");
    tei_auth_close(a);
}

TEST(keys_rotate_without_a_restart)
{
    struct tei_auth *a = auth_open("r", A_AND_B, 1);
    char id[TEI_AUTH_ID_MAX + 1];

    assert_int_equal(why_no_proof(a, "c"), TEI_AUTH_ID);
    auth_file("r", "c:" KEY_C "\n" B_AND_A);
    expect_told(a, "was read anew");
    tei_proof_free(tei_proof_client(a, TEI_PROOF_DATA, NULL, id));
    assert_string_equal(id, "c");
    tei_proof_free(server_proof(a, TEI_PROOF_DATA, "a"));
    /* One that cannot be taken lets nobody in, and keeps nobody out. */
    auth_file("r", "c:" KEY_C "\nd:broken\n");
    expect_told(a, "stay in use, until");
    assert_int_equal(why_no_proof(a, "d"), TEI_AUTH_ID);
    tei_proof_free(server_proof(a, TEI_PROOF_DATA, "a"));
    unlink(auth_file("r", "x"));
    expect_told(a, "is put back");
    tei_proof_free(server_proof(a, TEI_PROOF_DATA, "a"));
    auth_file("r", "c:" KEY_C "\n");
    expect_told(a, "was read anew");
    assert_int_equal(why_no_proof(a, "a"), TEI_AUTH_ID);
    tei_auth_close(a);
}

static void count_line(void *arg, enum te_log_level level, const char *text)
{
    unsigned *n = arg;

    (void)level;
    *n += strstr(text, "is refused (key") != NULL;
}

TEST(refusals_are_counted_and_told_once)
{
    struct tei_auth *a = auth_open("a", A_AND_B, 1);
    unsigned lines = 0;

    te_log_set_sink(count_line, &lines);
    for (int i = 0; i < 1000; i++)
        tei_auth_refused(a, TEI_AUTH_KEY, "data port", "10.0.0.1:7");
    te_log_set_sink(NULL, NULL);
    assert_int_equal(auth_count(a, TEI_AUTH_KEY), 1000);
    assert_int_equal(auth_count(a, TEI_AUTH_PLAIN), 0);
    assert_int_equal(lines, 1);
    tei_auth_close(a);
}

/* ------------------------------------------------------------------------------- the handshake */

struct talk {
    int fds[2]; /* client, server */
    struct tei_secure *client, *server;
    enum tei_secure_state at_client, at_server;
};

static void begin(struct talk *t, struct tei_auth *client, struct tei_auth *server)
{
    *t = (struct talk){0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, t->fds), 0);
    t->client = client ? tei_secure_open(client, t->fds[0], false, "") : NULL;
    t->server = server ? tei_secure_open(server, t->fds[1], true, NULL) : NULL;
}

static void turn(struct talk *t)
{
    for (int i = 0; i < 20; i++) {
        if (t->client && t->at_client == TEI_SECURE_WAIT)
            t->at_client = tei_secure_greet(t->client);
        if (t->server && t->at_server == TEI_SECURE_WAIT)
            t->at_server = tei_secure_greet(t->server);
    }
}

static void end(struct talk *t)
{
    tei_secure_free(t->client);
    tei_secure_free(t->server);
    close(t->fds[0]);
    close(t->fds[1]);
}

TEST(both_know_each_other)
{
    struct tei_auth *a = auth_open("a", A_AND_B, 1), *b = auth_open("b", B_AND_A, 2);
    static char sent[100000], got[100000];
    struct talk t;
    size_t in = 0, out = 0;

    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (char)(i * 7);
    begin(&t, a, b);
    turn(&t);
    assert_int_equal(t.at_client, TEI_SECURE_DONE);
    assert_int_equal(t.at_server, TEI_SECURE_DONE);
    errno = 0;
    assert_int_equal(tei_secure_recv(t.server, got, sizeof(got)), -1);
    assert_int_equal(errno, EAGAIN);
    while (in < sizeof(sent)) {
        ssize_t n;

        if (out < sizeof(sent) &&
            (n = tei_secure_send(t.client, sent + out, sizeof(sent) - out)) > 0)
            out += (size_t)n;
        n = tei_secure_recv(t.server, got + in, sizeof(got) - in);
        in += n > 0 ? (size_t)n : 0;
    }
    assert_memory_equal(sent, got, sizeof(sent));
    close(t.fds[0]);
    t.fds[0] = dup(t.fds[1]);
    assert_int_equal(tei_secure_recv(t.server, got, 1),
                     -1); /* an end without a farewell is a loss */
    assert_int_not_equal(errno, EAGAIN);
    end(&t);
    tei_auth_close(a);
    tei_auth_close(b);
}

/* A reply goes on when the socket takes more, whatever was waited for before it. */
TEST(a_call_that_moves_bytes_needs_its_own_event)
{
    struct tei_auth *a = auth_open("a", A_AND_B, 1), *b = auth_open("b", B_AND_A, 2);
    struct talk t;
    char byte = 'x';

    begin(&t, a, b);
    turn(&t);
    assert_int_equal(t.at_server, TEI_SECURE_DONE);
    assert_int_equal(tei_secure_recv(t.server, &byte, 1), -1);
    assert_int_equal(tei_secure_events(t.server), EPOLLIN);
    assert_int_equal(tei_secure_send(t.server, &byte, 1), 1);
    assert_int_equal(tei_secure_events(t.server), EPOLLOUT);
    assert_int_equal(tei_secure_send(t.client, &byte, 1), 1);
    assert_int_equal(tei_secure_recv(t.server, &byte, 1), 1);
    assert_int_equal(tei_secure_events(t.server), EPOLLIN);
    end(&t);
    tei_auth_close(a);
    tei_auth_close(b);
}

/* What the client is told, and why the server has refused it. */
static void expect_refused(struct tei_auth *client, struct tei_auth *server,
                           enum tei_auth_cause cause, const char *why)
{
    struct talk t;

    begin(&t, client, server);
    assert_int_equal(tei_secure_greet(t.client), TEI_SECURE_WAIT);
    t.at_server = tei_secure_greet(t.server);
    assert_int_equal(t.at_server, TEI_SECURE_REFUSED);
    assert_int_equal(tei_secure_cause(t.server), cause);
    assert_int_equal(tei_secure_connect(t.client, "the peer", tei_deadline_ns(PATIENCE_MS)),
                     TE_ERR_REJECTED);
    assert_non_null(strstr(te_errmsg(), why));
    end(&t);
}

TEST(who_is_refused)
{
    struct tei_auth *a = auth_open("a", A_AND_B, 1);
    struct tei_auth *stranger = auth_open("c", "c:" KEY_C "\na:" KEY_A "\n", 2);
    struct tei_auth *liar = auth_open("liar", "b:" KEY_C "\na:" KEY_A "\n", 3);
    struct tei_auth *same = auth_open("same", "a:" KEY_A "\n", 4);

    expect_refused(stranger, a, TEI_AUTH_ID, "its line there");
    expect_refused(liar, a, TEI_AUTH_KEY, "another key for our id 'b'");
    expect_refused(same, a, TEI_AUTH_OWN, "repeat the first line");
    expect_refused(a, a, TEI_AUTH_OWN, "is its own");
    tei_auth_close(a);
    tei_auth_close(stranger);
    tei_auth_close(liar);
    tei_auth_close(same);
}

/* A group of one id: its engines know each other, and none itself (RFC 9257, section 5.1). */
TEST(a_group_is_no_mirror)
{
    struct tei_auth *x = auth_open("x", "g:" KEY_A "\ng:" KEY_A "\n", 1);
    struct tei_auth *y = auth_open("y", "g:" KEY_A "\ng:" KEY_A "\n", 2);
    struct talk t;

    begin(&t, x, y);
    turn(&t);
    assert_int_equal(t.at_server, TEI_SECURE_DONE);
    assert_int_equal(t.at_client, TEI_SECURE_DONE);
    end(&t);
    expect_refused(x, x, TEI_AUTH_OWN, "is its own");
    tei_auth_close(x);
    tei_auth_close(y);
}

/* The first flight of a client that was let in, sent again, lets nobody in. */
TEST(a_replay_is_refused)
{
    struct tei_auth *a = auth_open("a", A_AND_B, 1), *b = auth_open("b", B_AND_A, 2);
    static char flight[65536];
    struct talk t, again;
    ssize_t n;

    begin(&t, a, NULL);
    t.at_client = tei_secure_greet(t.client);
    n = recv(t.fds[1], flight, sizeof(flight), 0);
    assert_true(n > 100);
    for (int i = 0; i < 2; i++) {
        begin(&again, NULL, b);
        assert_int_equal(send(again.fds[0], flight, (size_t)n, 0), n);
        turn(&again);
        assert_int_equal(again.at_server,
                         TEI_SECURE_WAIT); /* for the proof that the key is there now */
        shutdown(again.fds[0], SHUT_WR);
        turn(&again);
        assert_int_equal(again.at_server, TEI_SECURE_LOST);
        end(&again);
    }
    end(&t);
    tei_auth_close(a);
    tei_auth_close(b);
}

static enum tei_secure_state send_raw(struct tei_auth *server, const void *bytes, size_t n,
                                      enum tei_auth_cause *cause)
{
    struct talk t;
    enum tei_secure_state state;

    begin(&t, NULL, server);
    assert_int_equal(send(t.fds[0], bytes, n, 0), (ssize_t)n);
    turn(&t);
    state = t.at_server;
    *cause = tei_secure_cause(t.server);
    end(&t);
    return state;
}

/* A byte changed anywhere in it, or an older protocol, is refused. */
TEST(a_change_on_the_way_is_refused)
{
    struct tei_auth *a = auth_open("a", A_AND_B, 1), *b = auth_open("b", B_AND_A, 2);
    static unsigned char flight[65536], changed[65536];
    enum tei_auth_cause cause;
    struct talk t;
    ssize_t n;
    unsigned refused = 0;

    begin(&t, a, NULL);
    t.at_client = tei_secure_greet(t.client);
    n = recv(t.fds[1], flight, sizeof(flight), 0);
    assert_true(n > 100);
    for (ssize_t at = 11; at < n; at += 3) {
        memcpy(changed, flight, (size_t)n);
        changed[at] ^= 0x40;
        refused += send_raw(b, changed, (size_t)n, &cause) == TEI_SECURE_REFUSED;
    }
    /* A length that grew has the server wait for the rest. */
    assert_true(refused >= (unsigned)(n - 11) / 3 - 8);
    end(&t);
    tei_auth_close(a);
    tei_auth_close(b);
}

static void grow(unsigned char *at, size_t by)
{
    size_t n = (size_t)(at[0] << 8 | at[1]) + by;

    at[0] = (unsigned char)(n >> 8);
    at[1] = (unsigned char)n;
}

/* The first flight of a client, whose only identity, and the binder behind it, then stand there `more` times more. */
static size_t show_more(unsigned char *to, const unsigned char *flight, size_t n, unsigned more)
{
    const unsigned char *text = memmem(flight, n, "te1 ", 4);
    size_t at = (size_t)(text - flight) - 2, one = 2 + (size_t)text[-1] + 4, end = at + one;
    size_t lengths =
        5 + 4 + 2 + 32; /* behind the random bytes: session, ciphers, compression, extensions */

    assert_int_equal(end + 2 + 33, n);
    memcpy(to, flight, end);
    lengths += 1 + (size_t)to[lengths];
    lengths += 2 + (size_t)(to[lengths] << 8 | to[lengths + 1]);
    lengths += 1 + (size_t)to[lengths];
    for (unsigned i = 0; i < more; i++, end += one)
        memcpy(to + end, flight + at, one);
    memcpy(to + end, flight + at + one, 2 + 33);
    grow(to + end, more * 33);
    end += 2 + 33;
    for (unsigned i = 0; i < more; i++, end += 33)
        memcpy(to + end, flight + n - 33, 33);
    grow(to + at - 2, more * one);
    grow(to + at - 4, more * (one + 33));
    grow(to + lengths, more * (one + 33));
    grow(to + 7, more * (one + 33));
    grow(to + 3, more * (one + 33));
    return end;
}

/* A stranger may have one searched for, and once more, and not thousands. */
TEST(many_identities_are_refused)
{
    struct tei_auth *stranger = auth_open("c", "c:" KEY_C "\n", 1);
    struct tei_auth *b = auth_open("b", B_AND_A, 2);
    static unsigned char flight[4096], many[8192];
    enum tei_auth_cause cause;
    struct talk t;
    ssize_t n;

    begin(&t, stranger, NULL);
    t.at_client = tei_secure_greet(t.client);
    n = recv(t.fds[1], flight, sizeof(flight), 0);
    assert_true(n > 100);
    for (unsigned more = 0; more <= 40; more++) {
        size_t len = show_more(many, flight, (size_t)n, more);

        assert_int_equal(send_raw(b, many, len, &cause), TEI_SECURE_REFUSED);
        assert_int_equal(cause, more < 2 ? TEI_AUTH_ID : TEI_AUTH_MALFORMED);
    }
    end(&t);
    tei_auth_close(stranger);
    tei_auth_close(b);
}

TEST(what_is_no_handshake)
{
    static const char frame[] = "\x03\0\0\0\0\0\0\0\x03{}";
    static const char like_one[] = "\x16\x03\x01\0\x30\0garbage";
    static const char garbage[] =
        "\x16\x03\x01\0\x30\1garbage, and enough of it to fill the record: 0123456789";
    struct tei_auth *b = auth_open("b", B_AND_A, 2);
    enum tei_auth_cause cause;

    assert_int_equal(send_raw(b, frame, sizeof(frame) - 1, &cause), TEI_SECURE_REFUSED);
    assert_int_equal(cause, TEI_AUTH_PLAIN);
    assert_int_equal(send_raw(b, "G", 1, &cause), TEI_SECURE_REFUSED);
    assert_int_equal(cause, TEI_AUTH_PLAIN);
    assert_int_equal(send_raw(b, like_one, sizeof(like_one) - 1, &cause), TEI_SECURE_REFUSED);
    assert_int_equal(cause, TEI_AUTH_PLAIN);
    assert_int_equal(send_raw(b, "\x16\x03", 2, &cause), TEI_SECURE_WAIT);
    assert_int_equal(send_raw(b, garbage, sizeof(garbage) - 1, &cause), TEI_SECURE_REFUSED);
    assert_int_equal(cause, TEI_AUTH_MALFORMED);
    tei_auth_close(b);
}

/* Records without an end: 64 KiB of them are read, and no more. */
TEST(a_stranger_is_read_for_64_KiB)
{
    static unsigned char records[20 * (5 + 16384)];
    struct tei_auth *b = auth_open("b", B_AND_A, 2);
    size_t at = 0, sent = 0;
    struct talk t;

    for (int i = 0; i < 20; i++, at += 16384) {
        memcpy(records + at, "\x16\x03\x01\x40\x00", 5);
        at += 5;
    }
    memcpy(records + 5, "\x01\x01\xff\xff", 4); /* a ClientHello of 128 KiB */
    begin(&t, NULL, b);
    while (t.at_server == TEI_SECURE_WAIT && sent < sizeof(records)) {
        ssize_t n =
            send(t.fds[0], records + sent, tei_min(sizeof(records) - sent, 8192), MSG_NOSIGNAL);

        sent += n > 0 ? (size_t)n : 0;
        t.at_server = tei_secure_greet(t.server);
    }
    assert_int_equal(t.at_server, TEI_SECURE_REFUSED);
    assert_int_equal(tei_secure_cause(t.server), TEI_AUTH_MALFORMED);
    assert_true(sent <= 65536 + 2 * 8192);
    end(&t);
    tei_auth_close(b);
}

/* A server that has no key of ours, and one that is none. */
static int connect_to(struct tei_auth *client, const char *answer, size_t n, bool closes)
{
    struct talk t;
    int rc;

    begin(&t, client, NULL);
    t.at_client = tei_secure_greet(t.client);
    assert_int_equal(send(t.fds[1], answer, n, 0), (ssize_t)n);
    if (closes)
        shutdown(t.fds[1], SHUT_RDWR);
    rc = tei_secure_connect(t.client, "the peer", tei_deadline_ns(closes || n ? PATIENCE_MS : 20));
    end(&t);
    return rc;
}

TEST(servers_that_prove_nothing)
{
    struct tei_auth *a = auth_open("a", A_AND_B, 1);

    assert_int_equal(connect_to(a, "", 0, true), TE_ERR_REJECTED);
    assert_non_null(strstr(te_errmsg(), "TE_AUTH is off there"));
    assert_int_equal(connect_to(a, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, false), TE_ERR_REJECTED);
    assert_non_null(strstr(te_errmsg(), "set TE_AUTH=psk there"));
    assert_int_equal(connect_to(a, "", 0, false), TE_ERR_TIMEOUT);
    assert_non_null(strstr(te_errmsg(), "TE_AUTH is off there"));
    tei_auth_close(a);
}

TEST(lengths_that_are_tls)
{
    uint64_t hello, alert;

    memcpy(&hello, "\x16\x03\x01\x01\x2c\x01\x00\x01", 8);
    memcpy(&alert, TEI_SECURE_ALERTS, 8);
    assert_true(tei_secure_is_hello(hello));
    assert_false(tei_secure_is_alert(hello));
    assert_true(tei_secure_is_alert(alert));
    assert_false(tei_secure_is_hello(alert));
    assert_true(hello > UINT64_C(1) << 40 && alert > UINT64_C(1) << 40);
    assert_false(tei_secure_is_hello(0x0316));
    assert_false(tei_secure_is_alert(0x0315));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_impossible_is_an_error),
        cmocka_unit_test(addresses_without_a_proof),
        cmocka_unit_test(proofs_are_what_is_documented),
        cmocka_unit_test(a_proof_is_of_one_side_use_key_and_talk),
        cmocka_unit_test(a_talk_that_is_too_long_proves_nothing),
        cmocka_unit_test(ids_that_may_not_come),
        cmocka_unit_test(keys_rotate_without_a_restart),
        cmocka_unit_test(a_file_that_cannot_be_taken_is_told_once),
        cmocka_unit_test(refusals_are_counted_and_told_once),
        cmocka_unit_test(both_know_each_other),
        cmocka_unit_test(a_call_that_moves_bytes_needs_its_own_event),
        cmocka_unit_test(who_is_refused),
        cmocka_unit_test(a_group_is_no_mirror),
        cmocka_unit_test(a_replay_is_refused),
        cmocka_unit_test(a_change_on_the_way_is_refused),
        cmocka_unit_test(many_identities_are_refused),
        cmocka_unit_test(what_is_no_handshake),
        cmocka_unit_test(a_stranger_is_read_for_64_KiB),
        cmocka_unit_test(servers_that_prove_nothing),
        cmocka_unit_test(lengths_that_are_tls),
    };

    te_log_set_level(TE_LOG_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
