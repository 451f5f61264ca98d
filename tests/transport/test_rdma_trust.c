/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te-test: timeout=60
 *
 * Who may replace a connection: anybody can send a connection message in a peer's name, and only the
 * peer's own may end what it is connected with. Every case leaves no descriptor and no thread behind.
 */
#include "conformance.h"
#include "rdma_fabric.h"

#include "base/err.h"
#include "base/os.h"
#include "meta/meta.h"
#include "proc.h"
#include "transport/rdma/rdma_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECES 64

static size_t fds, threads;

/* ------------------------------------------------------------------------------------ on the wire */

/* What the initiator of a pair asked last, and what it was answered. */
static struct {
    pthread_mutex_t lock;
    int (*connect)(struct tei_host *h, const struct tei_hostport *where, const char *body,
                   size_t len, char **answer, size_t *answer_len);
    struct tei_rdma_hello first, reply; /* not the second message */
} wire = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int overhear(struct tei_host *h, const struct tei_hostport *where, const char *body,
                    size_t len, char **answer, size_t *answer_len)
{
    struct tei_rdma_hello asked, told;
    int rc = wire.connect(h, where, body, len, answer, answer_len);

    assert_int_equal(tei_rdma_hello_decode(body, len, &asked), 0);
    if (rc || asked.ready_ack)
        return rc;
    assert_int_equal(tei_rdma_hello_decode(*answer, *answer_len, &told), 0);
    pthread_mutex_lock(&wire.lock);
    wire.first = asked;
    wire.reply = told;
    pthread_mutex_unlock(&wire.lock);
    return rc;
}

static struct tei_rdma_hello first_message(void)
{
    struct tei_rdma_hello h;

    pthread_mutex_lock(&wire.lock);
    h = wire.first;
    pthread_mutex_unlock(&wire.lock);
    return h;
}

static struct tei_rdma_hello first_reply(void)
{
    struct tei_rdma_hello h;

    pthread_mutex_lock(&wire.lock);
    h = wire.reply;
    pthread_mutex_unlock(&wire.lock);
    return h;
}

/* One NIC on each side, so that there is one connection. */
static struct pair *open_pair(void)
{
    static struct conformance with;
    struct pair *p;

    with =
        (struct conformance){.transport = "rdma",
                             .configure = rdma_fabric_configure,
                             .topology = {rdma_fabric_topology(false), rdma_fabric_topology(true)}};
    p = pair_open(&with);
    wire.connect = p->ha.base.connect;
    p->ha.base.connect = overhear;
    return p;
}

static void say(const struct tei_hostport *where, const struct tei_rdma_hello *h,
                struct tei_rdma_hello *answer)
{
    struct tei_bytes reply;
    size_t len;
    char *text = tei_rdma_hello_encode(h, &len);

    assert_non_null(text);
    assert_int_equal(tei_rpc_request(NULL, where, TEI_RPC_CONNECTION, text, len, 1 << 20,
                                     tei_deadline_ns(PATIENCE_MS), &reply),
                     0);
    assert_int_equal(tei_rdma_hello_decode(reply.data, reply.len, answer), 0);
    tei_bytes_fini(&reply);
    free(text);
}

/* -------------------------------------------------------------------------------------- strangers */

struct counts {
    uint64_t connections, reconnects, retries, qps;
};

static struct counts count(struct tei_transport *t, const char *nic)
{
    struct te_stats s = {0};

    t->ops.stats(t, &s);
    return (struct counts){s.connections, s.reconnects, s.retries, rdma_fabric_count(nic, "qps")};
}

static void expect_counts(struct tei_transport *t, const char *nic, const struct counts *before)
{
    struct counts now = count(t, nic);

    assert_int_equal(now.connections, before->connections);
    assert_int_equal(now.reconnects, before->reconnects);
    assert_int_equal(now.retries, before->retries);
    assert_int_equal(now.qps, before->qps);
}

struct traffic {
    struct pair *p;
    _Atomic bool quit;
    _Atomic int done, failed, wrong;
};

static void *move_on(void *arg)
{
    struct traffic *f = arg;
    size_t n = PAIR_BYTES / PIECES;

    for (uint32_t i = 0; !atomic_load(&f->quit); i++) {
        char *a = f->p->am + i % PIECES * n, *b = f->p->bm + i % PIECES * n;

        fill_pattern(i % 2 ? a : b, n, i);
        if (fake_transfer(f->p->a, f->p->attach, i % 2 ? TE_WRITE : TE_READ, a, b, n) != 0)
            atomic_fetch_add(&f->failed, 1);
        else if (memcmp(a, b, n) != 0)
            atomic_fetch_add(&f->wrong, 1);
        atomic_fetch_add(&f->done, 1);
    }
    return NULL;
}

static void expect_refusal(const struct tei_rdma_hello *answer)
{
    assert_non_null(strstr(answer->reply_msg, "queue pairs answer"));
    assert_int_equal(answer->n_qp, 0);
    assert_false(answer->has_psn);
    assert_false(answer->has_ticket);
}

/* Messages in the name of who sent `own`, that a stranger may send; false after the last. */
static bool forge(const struct tei_rdma_hello *own, size_t i, struct tei_rdma_hello *out)
{
    *out = *own;
    out->ready_ack = false;
    out->has_psn = out->has_ticket = out->has_replaced = false;
    memset(out->psn, 0, sizeof out->psn);
    memset(out->ticket, 0, sizeof out->ticket);
    memset(out->replaced, 0, sizeof out->replaced);
    if (i % 2)
        for (size_t k = 0; k < out->n_qp; k++)
            out->qp_num[k] += 0x100;
    switch (i / 2) {
    case 0: /* as an engine of another make */
        out->incarnation = 0;
        return true;
    case 1: /* as version 0.1, its incarnation being in the descriptor */
        return true;
    case 2: /* as one that was started again */
        out->incarnation++;
        out->has_psn = out->has_ticket = true;
        return true;
    case 3: /* with secrets that are guessed */
        out->has_psn = out->has_ticket = out->has_replaced = true;
        tei_random(out->ticket, sizeof out->ticket);
        tei_random(out->replaced, sizeof out->replaced);
        return true;
    default:
        return false;
    }
}

/* Traffic goes on undisturbed, whatever is said in the name of either end. */
static void strangers_change_nothing(void **state)
{
    struct pair *p = open_pair();
    struct traffic f = {.p = p};
    struct tei_rdma_hello ends[2], forged, answer;
    struct counts a, b;
    pthread_t thread;

    (void)state;
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    ends[0] = first_message();
    ends[1] = first_reply();
    assert_true(ends[0].has_psn && ends[0].has_ticket && ends[1].has_psn && ends[1].has_ticket);
    a = count(p->a, "left0");
    b = count(p->b, "right0");
    assert_int_equal(pthread_create(&thread, NULL, move_on, &f), 0);
    for (int round = 0; round < 5; round++)
        for (size_t i = 0; forge(&ends[i % 2], i / 2, &forged); i++) {
            int done = atomic_load(&f.done);

            say(i % 2 ? &p->ha.where : &p->hb.where, &forged, &answer);
            expect_refusal(&answer);
            while (atomic_load(&f.done) < done + 2)
                usleep(1000);
        }
    atomic_store(&f.quit, true);
    pthread_join(thread, NULL);
    assert_int_equal(f.failed, 0);
    assert_int_equal(f.wrong, 0);
    expect_counts(p->a, "left0", &a);
    expect_counts(p->b, "right0", &b);
    pair_close(p);
}

/* A second message moves nothing either: it must name all that the first one named. */
static void strangers_confirm_nothing(void **state)
{
    struct pair *p = open_pair();
    struct tei_rdma_hello own, forged, answer;

    (void)state;
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100), 0);
    own = first_message();
    for (size_t i = 0; forge(&own, i, &forged); i++) {
        forged.ready_ack = true;
        say(&p->hb.where, &forged, &answer);
        assert_non_null(strstr(answer.reply_msg, "no such connection"));
    }
    own.ready_ack = true;
    say(&p->hb.where, &own, &answer);
    assert_string_equal(answer.reply_msg, "");
    pair_close(p);
}

/* An idle connection is not for a stranger to take either, and carries requests afterwards. */
static void idle_connection(void **state)
{
    struct pair *p = open_pair();
    struct tei_rdma_hello own, forged, answer;
    struct counts a, b;

    (void)state;
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100), 0);
    a = count(p->a, "left0");
    b = count(p->b, "right0");
    own = first_message();
    for (size_t i = 0; forge(&own, i, &forged); i++) {
        say(&p->hb.where, &forged, &answer);
        expect_refusal(&answer);
    }
    fill_pattern(p->am, PAIR_BYTES, 5);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, p->am, p->bm, PAIR_BYTES), 0);
    assert_memory_equal(p->am, p->bm, PAIR_BYTES);
    expect_counts(p->a, "left0", &a);
    expect_counts(p->b, "right0", &b);
    pair_close(p);
}

/* ------------------------------------------------------------------------------------ honest peers */

/* The peer itself, which has dropped its side: it shows the ticket, and is followed without a probe. */
static void ticket_of_the_peer(void **state)
{
    struct pair *p = open_pair();
    struct tei_rdma_hello own, theirs, answer;
    uint64_t sent;

    (void)state;
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100), 0);
    own = first_message();
    theirs = first_reply();
    sent = rdma_fabric_count("right0", "wrs");
    for (size_t i = 0; i < own.n_qp; i++)
        own.qp_num[i] += 0x100;
    own.has_replaced = true;
    memcpy(own.replaced, theirs.ticket, sizeof own.replaced);
    say(&p->hb.where, &own, &answer);
    assert_string_equal(answer.reply_msg, "");
    assert_int_equal(answer.n_qp, own.n_qp);
    assert_true(answer.has_psn);
    assert_int_equal(rdma_fabric_count("right0", "wrs"), sent);
    pair_close(p);
}

/* An endpoint that its engine gives up is replaced at the peer's at once, by the ticket. */
static void dropped_and_made_again(void **state)
{
    struct pair *p = open_pair();

    (void)state;
    for (uint32_t round = 0; round < 3; round++) {
        struct tei_rdma_hello before, now;
        uint64_t sent;

        fill_pattern(p->am, PAIR_BYTES, round);
        assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, p->am, p->bm, PAIR_BYTES), 0);
        assert_memory_equal(p->am, p->bm, PAIR_BYTES);
        before = first_reply();
        sent = rdma_fabric_count("right0", "wrs");
        rdma_fabric_tell("fail left0 nth=1 status=RETRY_EXC");
        fill_pattern(p->bm, PAIR_BYTES, round + 100);
        assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
        assert_memory_equal(p->am, p->bm, PAIR_BYTES);
        now = first_message();
        assert_true(now.has_replaced);
        assert_memory_equal(now.replaced, before.ticket, sizeof now.replaced);
        assert_int_equal(rdma_fabric_count("right0", "wrs"), sent);
        now = first_reply();
        assert_memory_not_equal(now.psn, before.psn, sizeof now.psn);
    }
    pair_close(p);
}

/* The initiator begins another life under its name, with the target's endpoint still there. */
static void restarted_initiator(void **state)
{
    struct pair *p = open_pair();

    (void)state;
    for (uint32_t round = 0; round < 4; round++) {
        assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
        fake_detach(p->a, p->attach);
        fake_region_del(&p->ha, p->a, p->ar);
        fake_close(p->a);
        p->ha.base.incarnation = ++p->ha.incarnation;
        p->a = fake_open(&p->ha, "rdma");
        p->ar = fake_region_add(&p->ha, p->a, p->am, PAIR_BYTES, TE_REMOTE_RW);
        p->attach = fake_attach(p->a, p->b);
        fill_pattern(p->bm, PAIR_BYTES, round);
        assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
        assert_memory_equal(p->am, p->bm, PAIR_BYTES);
        assert_false(first_message().has_replaced);
    }
    pair_close(p);
}

static void gid_of(struct tei_transport *t, uint8_t out[TEI_GID_BYTES])
{
    char *text = fake_describe(t);
    json_t *root = json_loads(text, 0, NULL);
    struct tei_rdma_device *devices;
    size_t n;

    assert_int_equal(tei_rdma_devices_decode(root, &devices, &n), 0);
    assert_int_equal(n, 1);
    memcpy(out, devices[0].gid, TEI_GID_BYTES);
    free(devices);
    json_decref(root);
    free(text);
}

/*
 * A stranger that came first, whose queue pairs do not exist, gives way to the one that it was taken
 * for; whether or not it said that it was ready.
 */
static void stranger_was_first(void **state)
{
    (void)state;
    for (int ready = 0; ready < 2; ready++) {
        struct pair *p = open_pair();
        struct tei_rdma_hello h = {.n_qp = (size_t)p->hb.conf.num_qp_per_ep,
                                   .has_gid = true,
                                   .has_ready_ack = true,
                                   .incarnation = p->ha.incarnation},
                              answer;

        gid_of(p->a, h.gid);
        for (size_t i = 0; i < h.n_qp; i++)
            h.qp_num[i] = 1000 + (uint32_t)i;
        snprintf(h.local_nic_path, sizeof h.local_nic_path, "%s@left0", p->ha.name);
        snprintf(h.peer_nic_path, sizeof h.peer_nic_path, "%s@right0", p->hb.name);
        say(&p->hb.where, &h, &answer);
        assert_string_equal(answer.reply_msg, "");
        h.ready_ack = true;
        if (ready)
            say(&p->hb.where, &h, &answer);
        fill_pattern(p->bm, PAIR_BYTES, 9);
        assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
        assert_memory_equal(p->am, p->bm, PAIR_BYTES);
        pair_close(p);
    }
}

/* What a stranger says to the initiator while that one's first message is on its way. */
static struct {
    struct pair *p;
    struct tei_rdma_hello answer;
    uint8_t ticket[TEI_RDMA_TICKET]; /* of the first message */
    bool said;
} meanwhile;

static int ask_meanwhile(struct tei_host *h, const struct tei_hostport *where, const char *body,
                         size_t len, char **answer, size_t *answer_len)
{
    struct tei_rdma_hello own, stranger;

    if (!meanwhile.said) {
        assert_int_equal(tei_rdma_hello_decode(body, len, &own), 0);
        memcpy(meanwhile.ticket, own.ticket, sizeof own.ticket);
        stranger = own;
        memcpy(stranger.local_nic_path, own.peer_nic_path, sizeof own.peer_nic_path);
        memcpy(stranger.peer_nic_path, own.local_nic_path, sizeof own.local_nic_path);
        tei_random(stranger.ticket, sizeof stranger.ticket);
        say(&meanwhile.p->ha.where, &stranger, &meanwhile.answer);
        meanwhile.said = true;
    }
    return overhear(h, where, body, len, answer, answer_len);
}

/*
 * A message that comes then is followed, as that of a peer which begins at the same time would be. If it
 * was not the peer's, the secrets that it was answered are not those of the connection there will be.
 */
static void stranger_meanwhile(void **state)
{
    struct pair *p = open_pair();
    struct tei_rdma_hello own;

    (void)state;
    memset(&meanwhile, 0, sizeof meanwhile);
    meanwhile.p = p;
    p->ha.base.connect = ask_meanwhile;
    fill_pattern(p->bm, PAIR_BYTES, 3);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    assert_memory_equal(p->am, p->bm, PAIR_BYTES);
    assert_true(meanwhile.said);
    assert_string_equal(meanwhile.answer.reply_msg, "");
    assert_memory_equal(meanwhile.answer.ticket, meanwhile.ticket, sizeof meanwhile.ticket);
    own = first_message();
    assert_memory_not_equal(own.ticket, meanwhile.ticket, sizeof own.ticket);
    assert_true(own.has_replaced);
    pair_close(p);
}

/* What the peer says to the initiator meanwhile: it begins, too, and then anew. */
static struct {
    struct tei_rdma_hello answer[2];
    bool said;
} anew;

static int begin_meanwhile(struct tei_host *h, const struct tei_hostport *where, const char *body,
                           size_t len, char **answer, size_t *answer_len)
{
    struct tei_rdma_hello own, peer;

    assert_int_equal(tei_rdma_hello_decode(body, len, &own), 0);
    peer = own;
    memcpy(peer.local_nic_path, own.peer_nic_path, sizeof own.peer_nic_path);
    memcpy(peer.peer_nic_path, own.local_nic_path, sizeof own.local_nic_path);
    for (size_t i = 0; i < 2 && !anew.said; i++) {
        tei_random(peer.ticket, sizeof peer.ticket);
        say(&meanwhile.p->ha.where, &peer, &anew.answer[i]);
        peer.has_replaced = true;
        memcpy(peer.replaced, anew.answer[i].ticket, sizeof peer.replaced);
    }
    anew.said = true;
    return overhear(h, where, body, len, answer, answer_len);
}

/*
 * What shows the ticket is followed then by the endpoint whose message is on its way: another one would ask
 * in its turn, and the answer to the first would be in vain.
 */
static void peer_began_anew(void **state)
{
    struct pair *p = open_pair();
    uint64_t asked;

    (void)state;
    memset(&anew, 0, sizeof anew);
    meanwhile.p = p;
    asked = count(p->a, "left0").reconnects;
    p->ha.base.connect = begin_meanwhile;
    fill_pattern(p->bm, PAIR_BYTES, 6);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    assert_memory_equal(p->am, p->bm, PAIR_BYTES);
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(anew.answer[i].reply_msg, "");
    assert_memory_equal(anew.answer[1].ticket, anew.answer[0].ticket, TEI_RDMA_TICKET);
    assert_memory_equal(anew.answer[1].psn, anew.answer[0].psn, sizeof anew.answer[0].psn);
    assert_true(count(p->a, "left0").reconnects >= asked + 2); /* the second with other secrets */
    pair_close(p);
}

/* What the peer says to the initiator before it has the second message: it begins anew, and is ready, too. */
static struct {
    struct tei_rdma_hello answer[2];
    bool said;
    _Atomic unsigned refusals; /* that ended a connection of the initiator */
} too_late;

static void count_refusals(void *arg, enum te_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    if (strstr(line, "the peer refuses to connect"))
        atomic_fetch_add(&too_late.refusals, 1);
}

static void replace_and_confirm(const struct tei_rdma_hello *own)
{
    struct tei_rdma_hello peer = first_reply();

    memcpy(peer.replaced, own->ticket, sizeof peer.replaced);
    peer.has_replaced = true;
    tei_random(peer.ticket, sizeof peer.ticket);
    say(&meanwhile.p->ha.where, &peer, &too_late.answer[0]);
    peer.ready_ack = true;
    say(&meanwhile.p->ha.where, &peer, &too_late.answer[1]);
    too_late.said = true;
}

/* What the second message confirms is no more, so it is refused. */
static int confirm_too_late(struct tei_host *h, const struct tei_hostport *where, const char *body,
                            size_t len, char **answer, size_t *answer_len)
{
    struct tei_rdma_hello own;
    int rc;

    assert_int_equal(tei_rdma_hello_decode(body, len, &own), 0);
    if (!own.ready_ack || too_late.said)
        return overhear(h, where, body, len, answer, answer_len);
    replace_and_confirm(&own);
    rc = overhear(h, where, body, len, answer, answer_len);
    assert_int_equal(rc, 0);
    free(*answer);
    *answer = tei_rdma_refusal_encode("no such connection waits for it", answer_len);
    assert_non_null(*answer);
    return 0;
}

/* A refusal of what the peer itself has replaced since is not one of the connection that there is now. */
static void refusal_of_what_was_replaced(void **state)
{
    struct pair *p = open_pair();

    (void)state;
    memset(&too_late, 0, sizeof too_late);
    meanwhile.p = p;
    p->ha.base.connect = confirm_too_late;
    te_log_set_sink(count_refusals, NULL);
    te_log_set_level(TE_LOG_DEBUG);
    fill_pattern(p->bm, PAIR_BYTES, 7);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    te_log_set_level(TE_LOG_ERROR);
    te_log_set_sink(NULL, NULL);
    assert_memory_equal(p->am, p->bm, PAIR_BYTES);
    assert_true(too_late.said);
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(too_late.answer[i].reply_msg, "");
    assert_int_equal(too_late.refusals, 0);
    pair_close(p);
}

/* A stranger that speaks to the target while that one's answer is on its way to the initiator. */
static struct {
    struct pair *p;
    pthread_t thread;
    struct tei_rdma_hello forged, answer;
    _Atomic bool answered, early; /* early: before the initiator had its own answer */
    _Atomic bool overslept; /* this process did not run, and the target has given up waiting */
    bool begun;
} between;

/* Longer than a device tries to reach queue pairs that do not listen, and less than RDMA_PROBE_NS. */
#define HELD_NS    (1200 * TEI_NS_PER_MS)
#define IN_TIME_NS (1800 * TEI_NS_PER_MS)

static void *speak_between(void *arg)
{
    (void)arg;
    say(&between.p->hb.where, &between.forged, &between.answer);
    atomic_store(&between.answered, true);
    return NULL;
}

static int answer_late(struct tei_host *h, const struct tei_hostport *where, const char *body,
                       size_t len, char **answer, size_t *answer_len)
{
    int rc = overhear(h, where, body, len, answer, answer_len);
    struct tei_rdma_hello own;
    int64_t began;

    if (rc || between.begun)
        return rc;
    between.begun = true;
    own = first_message();
    assert_true(forge(&own, 5, &between.forged));
    began = tei_now_ns();
    assert_int_equal(pthread_create(&between.thread, NULL, speak_between, NULL), 0);
    while (tei_now_ns() - began < HELD_NS && !atomic_load(&between.answered))
        usleep(10000);
    atomic_store(&between.early, atomic_load(&between.answered));
    atomic_store(&between.overslept, tei_now_ns() - began > IN_TIME_NS);
    return rc;
}

/* False if it was too late for the answer to say anything. */
static bool speaks_between(void)
{
    struct pair *p = open_pair();
    bool in_time;

    memset(&between, 0, sizeof between);
    between.p = p;
    p->ha.base.connect = answer_late;
    fill_pattern(p->bm, PAIR_BYTES, 4);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
    assert_memory_equal(p->am, p->bm, PAIR_BYTES);
    pthread_join(between.thread, NULL);
    in_time = !atomic_load(&between.overslept);
    if (in_time) {
        assert_false(between.early);
        expect_refusal(&between.answer);
        assert_int_equal(count(p->a, "left0").reconnects, 1); /* the first */
    }
    pair_close(p);
    return in_time;
}

/* Queue pairs that do not listen yet are not found dead: the peer says first that they do. */
static void stranger_between(void **state)
{
    (void)state;
    for (int tries = 0; !speaks_between(); tries++)
        assert_true(tries < 30); /* times in a row that this process did not run for 0.6 s */
}

/* ------------------------------------------------------------------------------- engines without PSNs */

static bool keep_incarnation;

/* A message as another engine sends it: one of another make, or of version 0.1. */
static char *as_another(const char *text, size_t len)
{
    json_t *root = json_loadb(text, len, 0, NULL), *te = json_object_get(root, "te");
    char *out;

    assert_non_null(root);
    (void)json_object_del(te, "psn");
    (void)json_object_del(te, "ticket");
    (void)json_object_del(te, "replaces");
    if (!keep_incarnation)
        (void)json_object_del(root, "te");
    out = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    assert_non_null(out);
    json_decref(root);
    return out;
}

static int ask_as_another(struct tei_host *h, const struct tei_hostport *where, const char *body,
                          size_t len, char **answer, size_t *answer_len)
{
    char *plain = as_another(body, len), *full;
    int rc = overhear(h, where, plain, strlen(plain), answer, answer_len);

    free(plain);
    if (rc)
        return rc;
    full = *answer;
    *answer = as_another(full, *answer_len);
    *answer_len = strlen(*answer);
    free(full);
    return 0;
}

/*
 * Each end takes the other for an engine that tells no PSNs, so this is both roles of either. The
 * devices deliver nothing between queue pairs whose packets are numbered otherwise.
 */
static void engines_without_psns(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        struct pair *p = open_pair();
        struct tei_rdma_hello own, forged, answer;

        keep_incarnation = round % 2;
        p->ha.base.connect = ask_as_another;
        fill_pattern(p->am, PAIR_BYTES, (uint32_t)round);
        assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, p->am, p->bm, PAIR_BYTES), 0);
        assert_memory_equal(p->am, p->bm, PAIR_BYTES);
        assert_false(first_reply().has_psn);
        assert_false(first_reply().has_ticket);
        own = first_message();
        for (size_t i = 1; forge(&own, i, &forged); i += 2) {
            say(&p->hb.where, &forged, &answer);
            expect_refusal(&answer);
        }
        /* It has nothing to show for itself when it makes its queue pairs anew. */
        rdma_fabric_tell("fail left0 nth=1 status=RETRY_EXC");
        fill_pattern(p->bm, PAIR_BYTES, (uint32_t)round + 100);
        assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, PAIR_BYTES), 0);
        assert_memory_equal(p->am, p->bm, PAIR_BYTES);
        pair_close(p);
    }
}

/* ------------------------------------------------------------------------------------------- main */

static int set_up(void **state)
{
    (void)state;
    rdma_fabric_up(1, NULL);
    fds = test_count_fds();
    threads = test_settled_threads();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rdma_fabric_down();
    return test_nothing_left(fds, threads) ? 0 : -1;
}

/* What stays for the life of a process is there before the first case counts. */
static int warm_up(void **state)
{
    (void)state;
    rdma_fabric_up(1, NULL);
    pair_close(open_pair());
    rdma_fabric_down();
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* test_rdma_trust [PATTERN]: only the cases that match. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(strangers_change_nothing), CASE(strangers_confirm_nothing),
        CASE(idle_connection),          CASE(ticket_of_the_peer),
        CASE(dropped_and_made_again),   CASE(restarted_initiator),
        CASE(stranger_was_first),       CASE(stranger_meanwhile),
        CASE(peer_began_anew),          CASE(refusal_of_what_was_replaced),
        CASE(stranger_between),         CASE(engines_without_psns),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, warm_up, NULL);
}
