/* SPDX-License-Identifier: Apache-2.0 */
#include "example.h"

#include "base/err.h"
#include "base/os.h"

/* The part of a lane has ended, and with it the socket: nothing touches the memory from then on. */
static void end_part(struct example *x, struct example_lane *l, int error, const char *why)
{
    tei_example_hang_up(&l->watch);
    l->part.error = error;
    l->part.why = why;
    tei_ledger_back(&x->ledger, &l->part, tei_now_ns());
}

static void on_answer(struct tei_watch *watch, uint32_t events)
{
    struct example *x = tei_container_of(watch->loop, struct example, loop);
    struct example_lane *l = tei_container_of(watch, struct example_lane, watch);
    size_t n = l->part.entry->base.opcode == TE_READ ? l->part.length : 0;
    uint64_t status;
    ssize_t got = tei_example_packet(watch->fd, false, &status, sizeof(status), l->part.local, n);

    (void)events;
    if (got == (ssize_t)sizeof(status) && status)
        end_part(x, l, TE_ERR_STALE, NULL); /* the core fetches the descriptor again */
    else if (got == (ssize_t)(sizeof(status) + n))
        end_part(x, l, TE_ERR_OK, NULL);
    else
        end_part(x, l, TE_ERR_LINK, "receiving from the peer");
}

/* The next part goes out. */
static void begin(struct example *x, struct example_lane *l)
{
    const struct tei_work *w = &tei_ledger_first(&x->ledger)->base;
    const struct example_attach *a = (const struct example_attach *)w->attach;
    struct example_head h = {.opcode = (uint64_t)w->opcode};

    tei_ledger_take(&x->ledger, EXAMPLE_PART, tei_now_ns(), &l->part);
    h.addr = l->part.remote;
    h.length = l->part.length;
    if (!tei_example_dial(x, a->name, &l->watch, on_answer))
        end_part(x, l, TE_ERR_PEER, "connecting to the peer"); /* nothing was sent */
    else if (tei_example_packet(l->watch.fd, true, &h, sizeof(h), l->part.local,
                                w->opcode == TE_WRITE ? h.length : 0) < 0)
        end_part(x, l, TE_ERR_LINK, "sending to the peer");
}

/* A work that has failed gets its parts back; a mild error is no longer right once one is cut off. */
static void cut_off(struct example *x, struct example_lane *l)
{
    int error = l->part.entry->base.error;

    if (error && !tei_err_is_mild(error)) {
        tei_part_give_up(&l->part);
        end_part(x, l, error, NULL);
    }
}

/* Fails what is late, fills the lanes, and says when to look again. */
static void on_timer(struct tei_timer *timer)
{
    struct example *x = tei_container_of(timer, struct example, timer);
    int64_t look_ns = tei_ledger_tick(&x->ledger, tei_now_ns());

    if (look_ns < TEI_NEVER)
        tei_timer_start(&x->loop, timer, look_ns, on_timer);
}

/* Lets go of what has failed, uses lanes that are free; hands over what is over, without the lock. */
static void after_turn(struct tei_loop *loop)
{
    struct example *x = tei_container_of(loop, struct example, loop);
    struct tei_list over;

    for (struct example_lane *l = x->lanes; l < x->lanes + EXAMPLE_LANES; l++) {
        if (l->watch.loop)
            cut_off(x, l);
        while (!l->watch.loop && tei_ledger_first(&x->ledger))
            begin(x, l);
    }
    tei_list_init(&over);
    tei_ledger_reap(&x->ledger, &over);
    pthread_mutex_unlock(&x->lock);
    if (!tei_list_empty(&over))
        x->base.host->work_done(x->base.host, &over);
    pthread_mutex_lock(&x->lock);
}

static int example_open(struct tei_transport *t)
{
    struct example *x = example_of(t);
    int rc;

    pthread_mutex_init(&x->lock, NULL);
    tei_ledger_init(&x->ledger, t->host->conf->transfer_timeout_ms);
    rc = tei_loop_init(&x->loop, &x->lock);
    x->loop.after_turn = after_turn;
    if (!rc)
        rc = tei_example_listen(x);
    if (!rc) /* gets the memory that arming it again needs */
        rc = tei_timer_start(&x->loop, &x->timer, tei_now_ns(), on_timer);
    return rc ? rc : tei_loop_start(&x->loop, "te/example");
}

static unsigned example_score(struct tei_transport *t, const struct tei_attach *a,
                              const te_request *r)
{
    (void)t;
    (void)r;
    return a ? 40 : 0;
}

/* The end of an op that has changed the ledger: the thread looks. */
static void wake(struct example *x)
{
    tei_timer_start(&x->loop, &x->timer, tei_now_ns(), on_timer);
    pthread_mutex_unlock(&x->lock);
}

static void example_post(struct tei_transport *t, struct tei_list *work)
{
    struct example *x = example_of(t);

    pthread_mutex_lock(&x->lock);
    tei_ledger_post_all(&x->ledger, work, tei_now_ns());
    if (x->closed)
        tei_ledger_fail(&x->ledger, NULL, TE_ERR_CANCELED, NULL);
    wake(x);
}

static void example_cancel(struct tei_transport *t, const void *owner)
{
    struct example *x = example_of(t);

    pthread_mutex_lock(&x->lock);
    tei_ledger_fail(&x->ledger, owner, TE_ERR_CANCELED, NULL);
    wake(x);
}

/* A region is held with the lock only: after this, nobody holds one that the core does not find. */
static int example_region_del(struct tei_transport *t, struct tei_region *r)
{
    (void)r;
    pthread_mutex_lock(&example_of(t)->lock);
    pthread_mutex_unlock(&example_of(t)->lock);
    return 0;
}

static void example_close(struct tei_transport *t)
{
    struct example *x = example_of(t);

    pthread_mutex_lock(&x->lock);
    x->closed = true;
    tei_ledger_fail(&x->ledger, NULL, TE_ERR_CANCELED, NULL);
    wake(x);
}

static void example_stop(struct tei_transport *t)
{
    struct example *x = example_of(t);

    example_close(t);
    tei_loop_join(&x->loop);
    pthread_mutex_lock(&x->lock);
    after_turn(&x->loop); /* what the thread has not seen any more */
    tei_timer_stop(&x->loop, &x->timer);
    tei_example_deafen(x);
    pthread_mutex_unlock(&x->lock);
}

static void example_fini(struct tei_transport *t)
{
    struct example *x = example_of(t);

    tei_timer_stop(&x->loop, &x->timer);
    tei_example_deafen(x);
    tei_loop_fini(&x->loop);
    pthread_mutex_destroy(&x->lock);
}

extern const struct tei_transport_ops tei_example_ops; /* named by transports.def */

const struct tei_transport_ops tei_example_ops = {
    .name = "example",
    .abi = TEI_TRANSPORT_ABI,
    .caps = TEI_CAP_REMOTE,
    .mem_kinds = TEI_MEM_BIT(TEI_MEM_HOST),
    .target_kinds = TEI_MEM_BIT(TEI_MEM_HOST),
    .size = sizeof(struct example),
    .work_size = sizeof(struct tei_entry),
    .attach_size = sizeof(struct example_attach),
    .open = example_open,
    .describe = tei_example_describe,
    .attach = tei_example_attach,
    .score = example_score,
    .post = example_post,
    .cancel = example_cancel,
    .region_del = example_region_del,
    .close = example_close,
    .stop = example_stop,
    .fini = example_fini,
};
