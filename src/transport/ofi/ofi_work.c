/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ofi_work.c - parts of work: given to a provider, and what becomes of them.
 *
 * A part that no provider has waits in its peer's list. It is quiet there: a provider that has given it
 * back, or whose endpoint is closed, touches its memory no more.
 */
#include "base/err.h"
#include "base/os.h"
#include "transport/ofi/ofi.h"

#include <string.h>

#define PAUSE_MIN_NS (TEI_NS_PER_MS)
#define PAUSE_MAX_NS (20 * TEI_NS_PER_MS)
#define RETRY_NS     (10 * TEI_NS_PER_MS) /* doubles up to the next */
#define RETRY_MAX_NS (320 * TEI_NS_PER_MS)
#define CONNECT_NS   (3 * TEI_NS_PER_S)  /* a peer that takes nothing for so long is not there */
#define DARK_NS      (10 * TEI_NS_PER_S) /* and is not chosen for so long */
#define SUSPECT_NS \
    (100 * TEI_NS_PER_MS) /* parts of works that have failed may come back by themselves */
#define DRAIN_NS (150 * TEI_NS_PER_MS) /* then what others have on the endpoint may */
#define LOOK_NS  (10 * TEI_NS_PER_MS)

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int opcode_of(const struct ofi_op *op)
{
    return op->part.entry->base.opcode;
}

static struct ofi *ofi_of(const struct ofi_op *op)
{
    return tei_ofi_of(op->part.entry->base.transport);
}

/* ------------------------------------------------------------------------------------------ its end */

/* It is in no list. */
static void end(struct ofi_op *op, int error, const char *why, int64_t now)
{
    struct ofi *t = ofi_of(op);
    struct ofi_peer *p = op->peer;

    op->part.error = error;
    op->part.why = why;
    p->n_parts--;
    p->bytes -= op->part.length;
    tei_ledger_back(&p->ledger, &op->part, now);
    tei_list_push_back(&t->idle, &op->link);
}

/* Goes out once more, or as a question, after a pause. */
static void again(struct ofi_op *op, bool asking, int64_t now)
{
    int64_t pause = RETRY_NS << tei_min(op->tries, 5);

    ofi_of(op)->n_retries++;
    op->asking = asking;
    op->not_before_ns = now + earlier(pause, RETRY_MAX_NS);
    if (op->part.entry->base.story)
        tei_story_again(op->part.entry->base.story);
    tei_list_push_back(&op->peer->waiting, &op->link);
}

static bool may_retry(struct ofi_op *op)
{
    return op->tries++ < (unsigned)ofi_of(op)->base.host->conf->retry_cnt;
}

/* A READ leaves nothing behind; of a WRITE that was sent nobody can say whether it is applied. */
static void give_up(struct ofi_op *op, const char *why, int64_t now)
{
    end(op, opcode_of(op) == TE_WRITE && op->sent ? TE_ERR_LINK : TE_ERR_PEER, why, now);
}

/* The word of its region is read. */
static void answered(struct ofi_op *op, int64_t now)
{
    const struct ofi *t = ofi_of(op);

    if (t->words[op - t->ops] != op->to->generation)
        end(op, TE_ERR_STALE, NULL, now);
    else if (opcode_of(op) == TE_READ && may_retry(op))
        again(op, false, now);
    else
        end(op, TE_ERR_LINK, op->why, now);
}

static void failed(struct ofi_op *op, int err, int64_t now)
{
    struct ofi *t = ofi_of(op);

    t->nics[op->nic].n_failed++;
    op->why = t->lib.strerror(err); /* static */
    if (op->part.entry->base.error && !tei_err_is_mild(op->part.entry->base.error)) {
        tei_part_give_up(&op->part);
        end(op, op->part.error, NULL, now);
    } else if (may_retry(op)) {
        again(op, true, now);
    } else {
        give_up(op, op->why, now);
    }
}

void tei_ofi_back(struct ofi_op *op, int err, int64_t now)
{
    struct ofi_nic *n = &ofi_of(op)->nics[op->nic];
    struct ofi_peer *p = op->peer;

    p->n_flying--;
    p->again_ns = p->pause_ns = 0;
    if (err) {
        failed(op, err, now);
        return;
    }
    if (op->asking) {
        answered(op, now);
        return;
    }
    n->bytes[opcode_of(op) == TE_READ] += op->part.length;
    end(op, 0, NULL, now);
}

void tei_ofi_lost(struct ofi_op *op, int64_t now)
{
    static const char why[] = "its endpoint was closed for another request, which had failed";
    int error = op->part.entry->base.error;

    op->peer->n_flying--;
    op->gen = NULL;
    op->why = why;
    if (error && !tei_err_is_mild(error)) {
        tei_part_give_up(&op->part);
        end(op, op->part.error, NULL, now);
    } else if ((op->asking || opcode_of(op) == TE_READ) && may_retry(op)) {
        again(op, op->asking, now);
    } else {
        end(op, TE_ERR_LINK, why, now);
    }
}

/* -------------------------------------------------------------------------------- to the provider */

/* Where the peer is, for a NIC of ours; an error of libfabric's. */
static int look_up(struct ofi_nic *n, struct ofi_peer *p, fi_addr_t *addr)
{
    size_t i = n->index;

    if (!p->inserted[i]) {
        if (fi_av_insert(n->av, p->nics[i % p->n_nics].addr, 1, &p->addr[i], 0, NULL) != 1)
            return -FI_ENOAV;
        p->inserted[i] = true;
    }
    *addr = p->addr[i];
    return 0;
}

/* What the provider is told of an operation. */
struct order {
    struct iovec local;
    void *desc;
    struct fi_rma_iov remote;
};

static void order_data(const struct ofi_op *op, const struct ofi_nic *n, struct order *o)
{
    size_t theirs = n->index % op->peer->n_nics;
    const struct ofi_region *r =
        op->part.entry->base.region->keys[op->part.entry->base.transport->index];

    o->local = (struct iovec){op->part.local, op->part.length};
    o->desc = n->needs_local ? fi_mr_desc(r->mr[n->index]) : NULL;
    o->remote.addr = op->part.remote - (op->peer->nics[theirs].is_virtual ? 0 : op->to->addr);
    o->remote.len = op->part.length;
    o->remote.key = op->to->key[theirs];
}

static void order_word(const struct ofi_op *op, const struct ofi_nic *n, struct order *o)
{
    const struct ofi_nic_keys *theirs = &op->peer->nics[n->index % op->peer->n_nics];
    struct ofi *t = n->ofi;

    o->local = (struct iovec){&t->words[op - t->ops], sizeof t->words[0]};
    o->desc = n->needs_local ? fi_mr_desc(n->words_mr) : NULL;
    o->remote.addr = theirs->page_addr + op->to->slot * sizeof t->words[0];
    o->remote.len = sizeof t->words[0];
    o->remote.key = theirs->page_key;
}

static ssize_t order(struct ofi_op *op, struct ofi_gen *g)
{
    struct order o;
    struct fi_msg_rma msg = {.msg_iov = &o.local,
                             .desc = &o.desc,
                             .iov_count = 1,
                             .rma_iov = &o.remote,
                             .rma_iov_count = 1,
                             .context = &op->context};
    int rc = look_up(g->nic, op->peer, &msg.addr);

    if (rc)
        return rc;
    if (op->asking)
        order_word(op, g->nic, &o);
    else
        order_data(op, g->nic, &o);
    if (op->asking || opcode_of(op) == TE_READ)
        return fi_readmsg(g->ep, &msg, FI_COMPLETION);
    return fi_writemsg(g->ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

/* The next NIC that has room; NULL: none has. */
static struct ofi_gen *choose(struct ofi *t, int64_t now)
{
    for (size_t i = 0; i < t->n_nics; i++) {
        struct ofi_gen *g = tei_ofi_gen(&t->nics[t->next_nic++ % t->n_nics], now);

        if (g)
            return g;
    }
    return NULL;
}

/* Nothing was taken. What others have under way may be why, while it is much. */
static void put_off(struct ofi_peer *p, const struct ofi_gen *g, int64_t now)
{
    p->pause_ns = p->pause_ns ? earlier(2 * p->pause_ns, PAUSE_MAX_NS) : PAUSE_MIN_NS;
    p->again_ns = now + p->pause_ns;
    if (p->n_flying || (g && g->n_flying > g->nic->credits / 2))
        p->mute_ns = 0;
    else if (!p->mute_ns)
        p->mute_ns = now;
}

/* Offers one that waits; false: nothing is taken now. */
static bool offer(struct ofi *t, struct ofi_op *op, int64_t now)
{
    struct ofi_peer *p = op->peer;
    struct ofi_gen *g = choose(t, now);
    ssize_t rc = g ? order(op, g) : -FI_EAGAIN;

    if (rc == -FI_EAGAIN) {
        put_off(p, g, now);
        return false;
    }
    tei_list_del(&op->link);
    p->mute_ns = 0;
    op->nic = g->nic->index;
    if (rc) {
        atomic_store_explicit(&p->dark_ns, now + DARK_NS, memory_order_relaxed);
        give_up(op, t->lib.strerror((int)-rc), now);
        return true;
    }
    p->n_flying++;
    op->sent |= !op->asking;
    op->gen = g;
    g->n_flying++;
    tei_list_push_back(&g->flying, &op->link);
    return true;
}

/* ------------------------------------------------------------------------------------- one peer */

/* Those that wait, of works that have failed; not a WRITE of which is to be found out what became. */
static void let_go(struct ofi_peer *p, int64_t now)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&p->waiting, link, tmp) {
        struct ofi_op *op = tei_ofi_op_of(link);
        int error = op->part.entry->base.error;

        if (!error || (tei_err_is_mild(error) && op->sent && opcode_of(op) == TE_WRITE))
            continue;
        tei_list_del(link);
        tei_part_give_up(&op->part);
        end(op, op->part.error, NULL, now);
    }
}

/* Those that waited first are offered first. When the next one is due. */
static int64_t offer_waiting(struct ofi *t, struct ofi_peer *p, int64_t now)
{
    struct tei_link *link, *tmp;
    int64_t due = TEI_NEVER;

    if (now < p->again_ns)
        return tei_list_empty(&p->waiting) ? TEI_NEVER : p->again_ns;
    TEI_LIST_EACH(&p->waiting, link, tmp) {
        struct ofi_op *op = tei_ofi_op_of(link);

        if (now < op->not_before_ns)
            due = earlier(due, op->not_before_ns);
        else if (!offer(t, op, now))
            return p->again_ns;
    }
    return due;
}

/* Takes the next part, to wait; false: there is none, or no room. */
static bool take(struct ofi *t, struct ofi_peer *p, int64_t now)
{
    const struct tei_entry *e = tei_ledger_first(&p->ledger);
    const struct ofi_attach *a = e ? (const struct ofi_attach *)e->base.attach : NULL;
    uint64_t at = e ? e->base.remote + e->next : 0, max;
    const struct ofi_region_keys *to = a ? tei_ofi_keys_find(&a->keys, at, 1) : NULL;
    unsigned access = e && e->base.opcode == TE_WRITE ? TE_REMOTE_WRITE : TE_REMOTE_READ;
    struct tei_link *link;
    struct ofi_op *op;

    if (!e || p->n_parts >= OFI_PEER_PARTS || p->bytes >= OFI_PEER_BYTES)
        return false;
    if (!to || !(to->access & access)) {
        tei_ledger_end(&p->ledger, tei_entry_of(p->ledger.queue.head.next), TE_ERR_STALE, 0, NULL);
        return true;
    }
    link = tei_list_pop(&t->idle);
    if (!link)
        return false;
    op = tei_ofi_op_of(link);
    *op = (struct ofi_op){.peer = p, .to = to};
    max = tei_min(t->nics[0].part, to->length - (at - to->addr));
    tei_ledger_take(&p->ledger, max, now, &op->part);
    p->n_parts++;
    p->bytes += op->part.length;
    tei_list_push_back(&p->waiting, &op->link);
    return true;
}

/* It takes nothing: whatever waits for it ends. */
static void give_up_peer(struct ofi_peer *p, int64_t now)
{
    static const char why[] = "the provider does not reach the peer";
    struct tei_link *link;

    atomic_store_explicit(&p->dark_ns, now + DARK_NS, memory_order_relaxed);
    p->mute_ns = 0;
    while ((link = tei_list_pop(&p->waiting)))
        give_up(tei_ofi_op_of(link), why, now);
    tei_ledger_fail(&p->ledger, NULL, TE_ERR_PEER, why);
}

static void report(struct ofi *t, struct ofi_peer *p)
{
    if (p->n_stalled == p->ledger.n_stalled)
        return;
    p->n_stalled = p->ledger.n_stalled;
    t->trouble = "a peer has stalled; its work ends when the endpoint is closed that carries it";
}

int64_t tei_ofi_step(struct ofi *t, struct ofi_peer *p, int64_t now)
{
    int64_t look = tei_ledger_tick(&p->ledger, now);

    report(t, p);
    let_go(p, now);
    look = earlier(look, offer_waiting(t, p, now));
    while (now >= p->again_ns && take(t, p, now))
        look = earlier(look, offer_waiting(t, p, now));
    if (p->mute_ns && now - p->mute_ns >= CONNECT_NS && !p->n_flying)
        give_up_peer(p, now);
    tei_ledger_reap(&p->ledger, &t->over);
    if (tei_ledger_is_idle(&p->ledger)) {
        tei_list_del(&p->active);
        p->mute_ns = p->again_ns = p->pause_ns = 0;
        return TEI_NEVER;
    }
    return tei_list_empty(&p->ledger.failed) ? look : earlier(look, now + LOOK_NS);
}

/* ------------------------------------------------------------------------------------- generations */

/* Whether it has parts of works that have failed for good. */
static bool has_stuck(const struct ofi_gen *g)
{
    for (const struct tei_link *l = g->flying.head.next; l != &g->flying.head; l = l->next) {
        int error = tei_container_of(l, const struct ofi_op, link)->part.entry->base.error;

        if (error && !tei_err_is_mild(error))
            return true;
    }
    return false;
}

static void retire(struct ofi_gen *g)
{
    g->retired = true;
    if (g->nic->gen == g)
        g->nic->gen = NULL;
}

/* When to look again. */
static int64_t watch_gen(struct ofi_gen *g, bool in_haste, int64_t now)
{
    int64_t waited;

    if (!has_stuck(g)) {
        g->suspect_ns = 0;
        if (g->retired && !g->n_flying)
            (void)tei_ofi_gen_close(g);
        return TEI_NEVER;
    }
    if (!g->suspect_ns)
        g->suspect_ns = now;
    waited = now - g->suspect_ns;
    if (in_haste || waited >= SUSPECT_NS)
        retire(g);
    if (in_haste || waited >= SUSPECT_NS + DRAIN_NS)
        (void)tei_ofi_gen_close(g);
    return now + LOOK_NS;
}

int64_t tei_ofi_watch(struct ofi_nic *n, int64_t now)
{
    struct tei_link *link, *tmp;
    int64_t look = TEI_NEVER;

    TEI_LIST_EACH(&n->gens, link, tmp)
        look = earlier(look, watch_gen(tei_container_of(link, struct ofi_gen, link), n->ofi->closed,
                                       now));
    return look;
}

/* ------------------------------------------------------------------------------------ from outside */

void tei_ofi_take(struct ofi *t, struct tei_list *works)
{
    int64_t now = tei_now_ns();
    struct tei_link *link;

    while ((link = tei_list_pop(works))) {
        struct tei_entry *e = tei_entry_of(link);
        struct ofi_peer *p = ((struct ofi_attach *)e->base.attach)->peer;

        tei_ledger_post(&p->ledger, e, now);
        if (!tei_link_is_in(&p->active))
            tei_list_push_back(&t->active, &p->active);
    }
    if (t->closed)
        tei_ofi_fail(t, NULL, TE_ERR_CANCELED);
}

void tei_ofi_fail(struct ofi *t, const void *owner, int error)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&t->active, link, tmp)
        tei_ledger_fail(&tei_container_of(link, struct ofi_peer, active)->ledger, owner, error,
                        NULL);
}
