/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_connect.c - the handshake by which two endpoints connect (docs/protocol.md, "Type 0,
 * connection").
 *
 * Who wants to send makes queue pairs and tells their numbers to the peer's handshake port; the peer
 * connects its own with them and answers with its numbers; the first connects, and says so by a
 * second message, the ready_ack, before which the peer must not send: its first packets would find
 * queue pairs that do not listen yet.
 *
 * Both sides may begin at once. Each then answers for the very endpoint whose own message is on its
 * way, connecting it with the numbers it was told; the answer to the own message names the same
 * numbers and changes nothing.
 *
 * Anybody can send a message in a peer's name. So one with other numbers than an endpoint is connected
 * with is followed at once only if it shows the ticket that this endpoint gave to its peer and to
 * nobody else: the peer has dropped its side. Ours is then connected anew if nothing of it is out,
 * and so needs no room beside itself; else it is ended, and a new one answers. Any other message,
 * of a peer that was started again, of an engine that knows no tickets, or of a stranger, waits for
 * what a probe of the connected queue pairs shows: if they answer, it is refused; if they do not,
 * their end ends the endpoint, and the message is taken as the first. While the peer has still to say
 * that it is ready, its queue pairs may not listen yet, and a probe that is lost would end them: so it
 * goes out once they do, and the peer has RDMA_PROBE_NS more to say so. One without the ticket that comes
 * while our own is on its way, after another one was followed, waits for the answer to ours, which is
 * from whom we asked.
 *
 * That answer may name other queue pairs than the message that was followed: a stranger's, or the peer
 * has ended the endpoint that it came from. Who sent it was told our secrets, so a new endpoint, with
 * others, asks anew. Where both ends do that at the same pace neither answer ever names what was
 * followed before; so of the two the one whose name is the greater waits for the other's message, for
 * RDMA_YIELD_NS, before it asks itself.
 *
 * All of it blocks, making queue pairs as well as the network, and so runs on te/aux: what begins, and
 * waits for a peer, among host->waits, so that no answer a peer waits for stands behind it.
 */
#include "transport/rdma/rdma.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ACK_WAIT_NS  (10 * TEI_NS_PER_S)
#define ROOM_WAITS   30 /* times that a peer's message waits for room */
#define ROOM_WAIT_US 1000
#define ASKING_MAX   16 /* messages that wait for one probe */
#define PARKED       1 /* no error: the message waits at the endpoint, and is not the caller's now */

static void own_path(const struct rdma_nic *n, char out[TEI_RDMA_PATH])
{
    snprintf(out, TEI_RDMA_PATH, "%s@%s", n->t->server, n->name);
}

/*
 * What we tell of an endpoint; its lock is held. Who has not told PSNs has no use for ours, nor for a
 * ticket.
 */
static void fill_hello(struct rdma_endpoint *ep, bool ready_ack, struct tei_rdma_hello *h)
{
    struct rdma_nic *n = ep->nic;

    *h = (struct tei_rdma_hello){.n_qp = ep->n_qps,
                                 .lid = tei_rdma_nic_port(n).lid,
                                 .has_gid = true,
                                 .has_ready_ack = true,
                                 .ready_ack = ready_ack,
                                 .incarnation = n->t->base.host->incarnation,
                                 .has_psn = !ep->has_peer || ep->numbered,
                                 .has_ticket = !ep->has_peer || ep->numbered};
    own_path(n, h->local_nic_path);
    memcpy(h->peer_nic_path, ep->peer_path, sizeof h->peer_nic_path);
    memcpy(h->gid, ep->gid.gid, sizeof h->gid);
    for (unsigned i = 0; i < ep->n_qps; i++) {
        h->qp_num[i] = ep->qps[i].qp->qp_num;
        h->psn[i] = h->has_psn ? ep->qps[i].psn : 0;
    }
    if (h->has_ticket)
        memcpy(h->ticket, ep->ticket, sizeof h->ticket);
}

/* ------------------------------------------------------------------------------------ both sides */

/* The endpoint, and its device as it is now. */
static void lock_device(struct rdma_endpoint *ep)
{
    pthread_rwlock_rdlock(&ep->nic->device_lock);
    pthread_mutex_lock(&ep->lock);
}

static void unlock_device(struct rdma_endpoint *ep)
{
    pthread_mutex_unlock(&ep->lock);
    pthread_rwlock_unlock(&ep->nic->device_lock);
}

/* Whether it names what the endpoint is connected with, secrets included; its lock is held. */
static bool same_peer(const struct rdma_endpoint *ep, const struct tei_rdma_hello *h)
{
    bool same = ep->has_peer && h->n_qp == ep->n_qps && h->incarnation == ep->peer_id &&
                h->has_psn == ep->numbered && h->has_ticket == ep->has_peer_ticket;

    for (size_t i = 0; same && i < h->n_qp; i++)
        same = ep->peer_qps[i].number == h->qp_num[i] && ep->peer_qps[i].psn == h->psn[i];
    return same && memcmp(h->ticket, ep->peer_ticket, sizeof h->ticket) == 0;
}

/* Whether it comes from who has the other end of the endpoint; its lock is held. */
static bool may_replace(const struct rdma_endpoint *ep, const struct tei_rdma_hello *h)
{
    return ep->has_peer_ticket && h->has_replaced && h->incarnation == ep->peer_id &&
           memcmp(h->replaced, ep->ticket, sizeof h->replaced) == 0;
}

/* Speaks from the GID that reaches the peer's best, unless one is prescribed. */
static void choose_gid(struct rdma_endpoint *ep)
{
    uint64_t tried[TEI_GID_WORDS] = {0};

    if (ep->nic->t->conf->gid_index < 0)
        (void)tei_rdma_nic_gid(ep->nic, ep->peer_gid, tried, &ep->gid);
}

static int other_count(const struct rdma_endpoint *ep, const struct tei_rdma_hello *h)
{
    return TEI_FAIL(
        TE_ERR_REJECTED,
        "rdma: %s to %s: QP count mismatch: %zu there, %d here; MC_NUM_QP_PER_EP must be "
        "the same at both ends",
        ep->nic->name, ep->peer_path, h->n_qp, ep->nic->t->conf->num_qp_per_ep);
}

/* Connects its queue pairs with those of the message; the endpoint's lock is held. */
static int connect_qps(struct rdma_endpoint *ep, const struct tei_rdma_hello *h)
{
    struct rdma_far_qp *qps;

    if (h->n_qp != ep->n_qps)
        return other_count(ep, h);
    qps = malloc(h->n_qp * sizeof *qps);
    if (!qps)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the numbers of queue pairs");
    for (size_t i = 0; i < h->n_qp; i++)
        qps[i] = (struct rdma_far_qp){.number = h->qp_num[i], .psn = h->psn[i]};
    free(ep->peer_qps);
    ep->peer_qps = qps;
    ep->has_peer = true;
    ep->numbered = h->has_psn;
    ep->peer_id = h->incarnation;
    ep->asked_ns = 0;
    ep->sorted = false;
    ep->has_peer_ticket = h->has_ticket;
    memcpy(ep->peer_ticket, h->ticket, sizeof ep->peer_ticket);
    ep->peer_lid = h->has_gid ? h->lid : ep->peer_lid;
    if (h->has_gid)
        memcpy(ep->peer_gid, h->gid, sizeof ep->peer_gid);
    return tei_rdma_qps_connect(ep);
}

/* --------------------------------------------------------------------------------- who begins */

static int refused(const struct rdma_endpoint *ep, const struct tei_rdma_hello *h,
                   const struct tei_rdma_hello *answer)
{
    if (!ep->on_trial)
        return TEI_FAIL(TE_ERR_REJECTED, "rdma: %s refuses %s: %s", ep->peer_path,
                        h->local_nic_path, answer->reply_msg);
    TEI_DEBUG("rdma: %s still refuses %s: %s", ep->peer_path, h->local_nic_path, answer->reply_msg);
    return tei_err_keep(TE_ERR_REJECTED, answer->reply_msg);
}

/* Sends a message and reads the answer. TE_ERR_REJECTED with what the peer said. */
static int ask(struct rdma_endpoint *ep, const struct tei_rdma_hello *h, struct tei_rdma_hello *out)
{
    struct tei_host *host = ep->nic->t->base.host;
    size_t len, answer_len;
    char *text = tei_rdma_hello_encode(h, &len), *answer;
    int rc;

    if (!text)
        return TE_ERR_MEMORY;
    rc = host->connect(host, &ep->where, text, len, &answer, &answer_len);
    free(text);
    if (rc) /* hanging up without an answer is no fault of a NIC either */
        return rc == TE_ERR_LINK ? TE_ERR_PEER : rc;
    rc = tei_rdma_hello_decode(answer, answer_len, out);
    free(answer);
    return !rc && out->reply_msg[0] ? refused(ep, h, out) : rc;
}

static int check_paths(const struct rdma_endpoint *ep, const struct tei_rdma_hello *ours,
                       const struct tei_rdma_hello *theirs)
{
    if (strcmp(theirs->local_nic_path, ep->peer_path) == 0 &&
        strcmp(theirs->peer_nic_path, ours->local_nic_path) == 0)
        return 0;
    return TEI_FAIL(TE_ERR_PROTOCOL,
                    "rdma: %s was asked for, '%.100s' answers for '%.100s'; does it have no RDMA?",
                    ep->peer_path, theirs->local_nic_path, theirs->peer_nic_path);
}

/* Makes the queue pairs and writes the first message. */
static int prepare(struct rdma_endpoint *ep, struct tei_rdma_hello *h)
{
    int rc = TE_ERR_CLOSED;

    lock_device(ep);
    if (ep->state != RDMA_EP_DYING)
        rc = tei_rdma_qps_create(ep);
    if (!rc) {
        if (!ep->has_peer)
            choose_gid(ep);
        fill_hello(ep, false, h);
        h->has_replaced = ep->has_replaced;
        memcpy(h->replaced, ep->replaced, sizeof h->replaced);
    }
    unlock_device(ep);
    return rc;
}

/*
 * With the answer at hand. TE_ERR_EXISTS: a message of somebody else has been followed meanwhile, who
 * was told the secrets of this endpoint.
 */
static int take_answer(struct rdma_endpoint *ep, const struct tei_rdma_hello *theirs)
{
    if (!ep->has_peer)
        return connect_qps(ep, theirs);
    if (same_peer(ep, theirs))
        return 0;
    ep->has_peer_ticket = theirs->has_ticket;
    memcpy(ep->peer_ticket, theirs->ticket, sizeof ep->peer_ticket);
    return TE_ERR_EXISTS;
}

static int conclude(struct rdma_endpoint *ep, const struct tei_rdma_hello *theirs, int64_t asked_ns,
                    struct tei_rdma_hello *second)
{
    int rc = TE_ERR_CLOSED;

    lock_device(ep);
    if (ep->state != RDMA_EP_DYING)
        rc = take_answer(ep, theirs);
    ep->agreed = rc == 0;
    ep->followed = false;
    if (!rc) {
        ep->asked_ns = asked_ns;
        fill_hello(ep, true, second);
    }
    unlock_device(ep);
    return rc;
}

/* The second message. A peer that has replaced meanwhile what answered need not know of it. */
static int say_ready(struct rdma_endpoint *ep, const struct tei_rdma_hello *second,
                     struct tei_rdma_hello *out)
{
    int rc = ask(ep, second, out);

    pthread_mutex_lock(&ep->lock);
    if (rc == TE_ERR_REJECTED && ep->followed)
        rc = 0;
    pthread_mutex_unlock(&ep->lock);
    return rc;
}

static int begin(struct rdma_endpoint *ep)
{
    struct tei_rdma_hello *h = calloc(3, sizeof *h);
    int rc = h ? prepare(ep, &h[0]) : TE_ERR_MEMORY;
    int64_t asked_ns = tei_now_ns();

    if (!rc)
        rc = ask(ep, &h[0], &h[1]);
    if (!rc)
        rc = check_paths(ep, &h[0], &h[1]);
    if (!rc)
        rc = conclude(ep, &h[1], asked_ns, &h[2]);
    if (!rc && h[1].has_ready_ack)
        rc = say_ready(ep, &h[2], &h[0]);
    free(h);
    return rc;
}

static void is_ready(struct rdma_endpoint *ep)
{
    pthread_mutex_lock(&ep->lock);
    if (ep->state == RDMA_EP_CONNECTING)
        ep->state = ep->agreed ? RDMA_EP_READY : RDMA_EP_WAIT_ACK;
    pthread_mutex_unlock(&ep->lock);
    TEI_DEBUG("rdma: %s to %s: connected", ep->nic->name, ep->peer_path);
    tei_rdma_ep_kick(ep);
}

/* Lives for ever: requests keep it. The whole reason is in the log. */
static const char *reason(int error)
{
    switch (error) {
    case TE_ERR_REJECTED:
        return "the peer refuses to connect; the log says why";
    case TE_ERR_ENDPOINT:
        return "queue pairs could not be made or connected; the log says why";
    case TE_ERR_PEER:
    case TE_ERR_DNS:
    case TE_ERR_TIMEOUT:
        return "the peer's handshake port cannot be reached";
    default:
        return "no connection to the peer's NIC";
    }
}

bool tei_rdma_is_away(int error)
{
    return error == TE_ERR_PEER || error == TE_ERR_DNS || error == TE_ERR_TIMEOUT;
}

static void hold_off(struct rdma_peer *p, void *arg)
{
    const struct tei_hostport *where = arg;

    if (p->where.port == where->port && strcmp(p->where.host, where->host) == 0)
        atomic_store(&p->pause_ns, tei_now_ns() + p->t->conf->conn_pause_ttl_ms * TEI_NS_PER_MS);
}

/*
 * A peer that nobody could talk to is left alone for MC_CONN_PAUSE_TTL_MS. It is the connection
 * that notes it, not a slice: none may be with the endpoint yet, or any more.
 */
static void note_away(struct rdma_endpoint *ep)
{
    if (ep->nic->t->conf->conn_pause_ttl_ms > 0)
        tei_rdma_peers_each(ep->nic->t, hold_off, &ep->where);
}

/* Two messages have told us of different queue pairs: whether the peer's next is to be the first. */
static void note_clash(struct rdma_endpoint *ep)
{
    char own[TEI_RDMA_PATH];

    own_path(ep->nic, own);
    pthread_mutex_lock(&ep->lock);
    ep->yields = strcmp(own, ep->peer_path) > 0;
    pthread_mutex_unlock(&ep->lock);
    tei_rdma_ep_fail(ep, 0, "two engines answer to the peer's name");
}

static void begin_job(struct tei_job *j)
{
    struct rdma_endpoint *ep = tei_container_of(j, struct rdma_endpoint, job);
    struct rdma *t = ep->nic->t;
    int rc = begin(ep);

    atomic_fetch_add_explicit(&t->n_connects, 1, memory_order_relaxed);
    pthread_mutex_lock(&ep->lock);
    ep->connecting = false;
    pthread_mutex_unlock(&ep->lock);
    if (tei_rdma_is_away(rc))
        note_away(ep);
    if (rc == TE_ERR_EXISTS)
        note_clash(ep);
    else if (rc)
        tei_rdma_ep_fail(ep, rc, reason(rc));
    else
        is_ready(ep);
    tei_rdma_ep_reap(ep);
    tei_rdma_ep_put(ep);
    tei_rdma_gone(t, 1);
}

void tei_rdma_connect(struct rdma_endpoint *ep)
{
    bool begin_it;

    pthread_mutex_lock(&ep->lock);
    begin_it = ep->state == RDMA_EP_CONNECTING && !ep->begun && tei_now_ns() >= ep->yield_until_ns;
    ep->begun |= begin_it;
    ep->connecting |= begin_it;
    pthread_mutex_unlock(&ep->lock);
    if (!begin_it)
        return;
    tei_rdma_ep_hold(ep);
    tei_rdma_live(ep->nic->t, 1);
    tei_jobs_post(ep->nic->t->base.host->waits, &ep->job, begin_job);
}

/* ------------------------------------------------------------------------------------ who answers */

struct question {
    struct tei_job job;
    struct tei_link link; /* in an endpoint's `asking` */
    struct rdma *t;
    struct tei_rpc_call *call;
    struct tei_rdma_hello hello;
    unsigned waited; /* times that there was no room, or our own message was on its way */
    bool in_use;     /* the queue pairs that it would replace have answered a probe: */
    uint32_t psn;    /* those that began with this number */
    bool broke;      /* the endpoint could not be connected as it asks */
};

/* Takes over `text`; NULL: memory was out. */
static void answer_text(struct rdma *t, struct tei_rpc_call *call, char *text)
{
    const char *body = text ? text : "{}";

    t->base.host->answer(t->base.host, call, body, strlen(body));
    free(text);
}

static void refuse(struct rdma *t, struct tei_rpc_call *call, const char *why)
{
    answer_text(t, call, tei_rdma_refusal_encode(why, NULL));
}

/* The NIC of ours that a message is for; NULL with the reason. */
static struct rdma_nic *addressed(struct rdma *t, const char *path, char *why, size_t n)
{
    char server[TEI_RDMA_PATH], device[TEI_RDMA_NAME];
    struct rdma_nic *nic = NULL;

    if (tei_rdma_nic_path_split(path, server, sizeof server, device, sizeof device) != 0)
        snprintf(why, n, "malformed peer_nic_path");
    else if (strcmp(server, t->server) != 0)
        snprintf(why, n, "this engine is %.100s, not %.100s", t->server, server);
    else if (!(nic = tei_rdma_nic_find(t, device)))
        snprintf(why, n, "this engine has no NIC %s", device);
    else if (!atomic_load(&nic->active)) {
        snprintf(why, n, "NIC %s is not used", device);
        nic = NULL;
    }
    return nic;
}

/* Our own message is on its way, or will be. */
static bool is_asking(const struct rdma_endpoint *ep)
{
    return ep->state == RDMA_EP_CONNECTING && (ep->begun || !ep->yield_until_ns);
}

/* Whether it can be connected as a message asks that may be followed; its lock is held. */
static bool is_free(const struct rdma_endpoint *ep)
{
    if (ep->state == RDMA_EP_NEW)
        return !ep->has_peer;
    return ep->state == RDMA_EP_CONNECTING ||
           ((ep->state == RDMA_EP_WAIT_ACK || ep->state == RDMA_EP_READY) && ep->n_posted == 0 &&
            ep->probe == RDMA_PROBE_NONE);
}

static int follow(struct rdma_endpoint *ep, const struct tei_rdma_hello *hello)
{
    bool asking = is_asking(ep);
    int rc = tei_rdma_qps_create(ep);

    if (rc)
        return rc;
    if (!asking)
        tei_rdma_qps_renumber(ep);
    rc = connect_qps(ep, hello);
    if (!rc && !asking)
        ep->state = hello->has_ready_ack ? RDMA_EP_WAIT_ACK : RDMA_EP_READY;
    ep->agreed = false;
    ep->followed = true;
    ep->wait_until_ns = tei_now_ns() + ACK_WAIT_NS;
    return rc;
}

/* A message that does not fit: PARKED, or why it is refused. The endpoint's lock is held. */
static int doubt(struct rdma_endpoint *ep, struct question *q)
{
    int64_t until_ns = tei_now_ns() + RDMA_PROBE_NS;

    if (ep->state == RDMA_EP_CONNECTING)
        return TE_ERR_BUSY;
    if (q->in_use && q->psn == ep->qps[0].psn)
        return TEI_FAIL(TE_ERR_REJECTED,
                        "rdma: %s is connected with %s, whose queue pairs answer; this message is "
                        "not from there. A peer that was started again gets in once the old ones "
                        "are gone",
                        ep->nic->name, ep->peer_path);
    if (ep->n_asking >= ASKING_MAX)
        return TEI_FAIL(TE_ERR_REJECTED, "rdma: %s: too many messages ask to replace %s",
                        ep->nic->name, ep->peer_path);
    tei_list_push_back(&ep->asking, &q->link);
    ep->n_asking++;
    if (ep->wait_until_ns > until_ns)
        ep->wait_until_ns = until_ns;
    tei_rdma_ep_probe(ep);
    return PARKED;
}

/*
 * Connects the endpoint as the message asks, or finds that it is; the message becomes the answer.
 * TE_ERR_EXISTS: it is connected with other queue pairs, which the message may replace. TE_ERR_BUSY,
 * TE_ERR_TOO_MANY: not now.
 */
static int accept_hello(struct rdma_endpoint *ep, struct question *q)
{
    struct rdma *t = ep->nic->t;
    struct tei_rdma_hello *hello = &q->hello;
    int rc = TE_ERR_EXISTS;

    lock_device(ep);
    if (hello->n_qp != (size_t)t->conf->num_qp_per_ep)
        rc = other_count(ep, hello);
    else if (ep->state == RDMA_EP_WAITING)
        rc = TE_ERR_TOO_MANY;
    else if (ep->state == RDMA_EP_DYING)
        rc = TE_ERR_EXISTS;
    else if (same_peer(ep, hello))
        rc = 0;
    else if (ep->has_peer && !may_replace(ep, hello))
        rc = doubt(ep, q);
    else if (is_free(ep))
        rc = follow(ep, hello);
    q->broke = rc < 0 && ep->has_peer && same_peer(ep, hello);
    if (!rc)
        fill_hello(ep, false, hello);
    unlock_device(ep);
    if (rc == 0 || rc == PARKED)
        tei_rdma_monitor_wake(t); /* which does not wait for ever */
    return rc;
}

/* One that was made, or changed, for a message which could not be followed; another may be in use. */
static void give_up(struct rdma_endpoint *ep, bool broke)
{
    bool idle;

    pthread_mutex_lock(&ep->lock);
    idle = ep->state == RDMA_EP_NEW;
    pthread_mutex_unlock(&ep->lock);
    if (idle || broke)
        tei_rdma_ep_fail(ep, 0, "it could not be connected");
}

static int answer_first(struct rdma_nic *n, struct question *q)
{
    char from[TEI_RDMA_PATH];
    int rc = TE_ERR_EXISTS;

    memcpy(from, q->hello.local_nic_path, sizeof from);
    for (int tries = 0; tries < 2 && rc == TE_ERR_EXISTS; tries++) {
        struct rdma_endpoint *ep = tei_rdma_ep_find(n, from, true);

        if (!ep)
            return TE_ERR_TOO_MANY;
        rc = accept_hello(ep, q);
        if (rc == TE_ERR_EXISTS)
            tei_rdma_ep_fail(ep, 0, "the peer has dropped its side");
        else if (rc < 0 && rc != TE_ERR_TOO_MANY)
            give_up(ep, q->broke);
        tei_rdma_ep_put(ep);
    }
    return rc;
}

/* The second message: the peer is ready, so may we be. */
static bool answer_second(struct rdma_nic *n, const struct tei_rdma_hello *hello)
{
    struct rdma_endpoint *ep = tei_rdma_ep_find(n, hello->local_nic_path, false);
    bool known;

    if (!ep)
        return false;
    pthread_mutex_lock(&ep->lock);
    known = same_peer(ep, hello) && ep->state != RDMA_EP_DYING;
    ep->agreed |= known;
    if (known && ep->state == RDMA_EP_WAIT_ACK) {
        ep->state = RDMA_EP_READY;
        ep->probe_ns = tei_now_ns(); /* one that is wanted goes out now */
    }
    pthread_mutex_unlock(&ep->lock);
    if (known)
        tei_rdma_ep_kick(ep);
    tei_rdma_ep_put(ep);
    return known;
}

/*
 * 0: the message has become the answer; PARKED; else `why` says why not. TE_ERR_TOO_MANY: there is no
 * room yet, but it is being made. TE_ERR_BUSY: our own message is on its way.
 */
static int answer(struct question *q, char *why, size_t size)
{
    struct tei_rdma_hello *h = &q->hello;
    struct rdma_nic *n = addressed(q->t, h->peer_nic_path, why, size);
    int rc;

    if (!n)
        return TE_ERR_REJECTED;
    if (atomic_load(&q->t->closing)) {
        snprintf(why, size, "this engine is closing");
        return TE_ERR_REJECTED;
    }
    if (h->ready_ack) {
        snprintf(why, size, "no such connection waits for it");
        if (!answer_second(n, h))
            return TE_ERR_REJECTED;
        *h = (struct tei_rdma_hello){0};
        return 0;
    }
    rc = answer_first(n, q);
    if (rc == TE_ERR_TOO_MANY)
        snprintf(why, size, "NIC %s has no room for another endpoint yet", n->name);
    else if (rc == TE_ERR_BUSY)
        snprintf(why, size, "NIC %s is being connected with another engine of this name", n->name);
    else if (rc < 0)
        snprintf(why, size, "%s", te_errmsg());
    return rc;
}

static bool may_wait(struct question *q, int rc)
{
    return (rc == TE_ERR_TOO_MANY || rc == TE_ERR_BUSY) && q->waited++ < ROOM_WAITS &&
           !atomic_load(&q->t->closing);
}

static void answer_job(struct tei_job *j)
{
    struct question *q = tei_container_of(j, struct question, job);
    struct rdma *t = q->t;
    char why[TEI_RDMA_REPLY];
    int rc;

    tei_rdma_live(t, 1); /* what is parked may be over before this returns */
    rc = answer(q, why, sizeof why);
    if (rc != PARKED && may_wait(q, rc)) {
        /* Behind the job that makes the room. Who is refused comes again much later. */
        usleep(ROOM_WAIT_US);
        tei_jobs_post(t->base.host->jobs, &q->job, answer_job);
    } else if (rc != PARKED) {
        if (rc == TE_ERR_TOO_MANY)
            TEI_WARN("rdma: %s is refused: %s", q->hello.local_nic_path, why);
        if (rc == 0)
            answer_text(t, q->call, tei_rdma_hello_encode(&q->hello, NULL));
        else
            refuse(t, q->call, why);
        free(q);
        tei_rdma_gone(t, 1);
    }
    tei_rdma_gone(t, 1);
}

void tei_rdma_answer_asking(struct rdma_endpoint *ep)
{
    struct tei_list asking;
    struct tei_link *link;
    uint32_t psn = 0;
    bool in_use;

    if (atomic_load(&ep->n_asking) == 0)
        return;
    tei_list_init(&asking);
    pthread_mutex_lock(&ep->lock);
    in_use = ep->state != RDMA_EP_DYING;
    if (in_use && ep->n_qps > 0)
        psn = ep->qps[0].psn;
    if (ep->n_asking > 0 && (!in_use || ep->probe == RDMA_PROBE_NONE)) {
        tei_list_splice(&asking, &ep->asking);
        ep->n_asking = 0;
    }
    pthread_mutex_unlock(&ep->lock);
    while ((link = tei_list_pop(&asking))) {
        struct question *q = tei_container_of(link, struct question, link);

        q->in_use = in_use;
        q->psn = psn;
        tei_jobs_post(ep->nic->t->base.host->jobs, &q->job, answer_job);
    }
}

void tei_rdma_handshake(struct tei_transport *base, struct tei_rpc_call *call, const char *body,
                        size_t len)
{
    struct rdma *t = tei_rdma_of(base);
    struct question *q = calloc(1, sizeof *q);

    if (!q) {
        refuse(t, call, "no memory");
    } else if (atomic_load(&t->closing)) {
        refuse(t, call, "this engine is closing");
        free(q);
    } else if (tei_rdma_hello_decode(body, len, &q->hello) != 0) {
        refuse(t, call, te_errmsg());
        free(q);
    } else {
        q->t = t;
        q->call = call;
        tei_rdma_live(t, 1);
        tei_jobs_post(t->base.host->jobs, &q->job, answer_job);
    }
}
