/* SPDX-License-Identifier: Apache-2.0 */
#include "example.h"

#include "base/err.h"
#include "base/os.h"

#define LANES   8 /* works under way at once, the first ones of the list */
#define TICK_NS (20 * TEI_NS_PER_MS)

/* Closes its socket first: no answer to it comes from then on. */
static void finish(struct example_work *w, int error, const char *why)
{
    tei_example_hang_up(&w->watch);
    tei_list_del(&w->base.link);
    w->base.error = error;
    w->base.why = why;
    tei_list_push_back(&example_of(w->base.transport)->ended, &w->base.link);
}

static size_t part_of(const struct example_work *w)
{
    return tei_min(w->base.length - w->done, EXAMPLE_PART);
}

static void ask(struct example_work *w)
{
    struct example_head h = {
        .opcode = (uint64_t)w->base.opcode, .addr = w->base.remote + w->done, .length = part_of(w)};
    size_t n = w->base.opcode == TE_WRITE ? h.length : 0;

    w->moved_ns = tei_now_ns();
    if (tei_example_packet(w->watch.fd, true, &h, sizeof(h), w->base.local + w->done, n) < 0)
        finish(w, TE_ERR_LINK, "sending to the peer");
}

static void on_answer(struct tei_watch *watch, uint32_t events)
{
    struct example_work *w = tei_container_of(watch, struct example_work, watch);
    size_t n = w->base.opcode == TE_READ ? part_of(w) : 0;
    uint64_t status;
    ssize_t got =
        tei_example_packet(watch->fd, false, &status, sizeof(status), w->base.local + w->done, n);

    (void)events;
    if (got == (ssize_t)sizeof(status) && status) {
        finish(w, TE_ERR_STALE, NULL); /* the core fetches the descriptor again */
    } else if (got != (ssize_t)(sizeof(status) + n)) {
        finish(w, TE_ERR_LINK, "receiving from the peer");
    } else {
        atomic_fetch_add_explicit(w->base.moved, part_of(w), memory_order_relaxed);
        w->done += part_of(w);
        if (w->done < w->base.length)
            ask(w);
        else
            finish(w, TE_ERR_OK, NULL);
    }
}

static void begin(struct example *x, struct example_work *w)
{
    const struct example_attach *a = (const struct example_attach *)w->base.attach;

    if (tei_example_dial(x, a->name, &w->watch, on_answer))
        ask(w);
    else
        finish(w, TE_ERR_LINK, "connecting to the peer");
}

/* Ends the work of an owner; if that is NULL, what is late by then, or stalls. */
static void end_those(struct example *x, const void *owner, int64_t now_ns, int error)
{
    int64_t patience_ns = x->base.host->conf->transfer_timeout_ms * TEI_NS_PER_MS; /* 0: endless */
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&x->works, link, tmp) {
        struct example_work *w = work_of(link);
        bool stalls = w->watch.loop && patience_ns && now_ns - w->moved_ns >= patience_ns;

        if (owner ? w->base.owner == owner : stalls || now_ns >= w->base.deadline_ns)
            finish(w, error, NULL);
    }
}

/* At once when an op has changed a list, then now and then while there is work. */
static void on_timer(struct tei_timer *timer)
{
    struct example *x = tei_container_of(timer, struct example, timer);

    end_those(x, NULL, tei_now_ns(), TE_ERR_TIMEOUT);
    if (!tei_list_empty(&x->works))
        tei_timer_start(&x->loop, timer, tei_now_ns() + TICK_NS, on_timer);
}

/* Uses lanes that are free; hands over what has ended, without the lock. */
static void after_turn(struct tei_loop *loop)
{
    struct example *x = tei_container_of(loop, struct example, loop);
    struct tei_link *link, *tmp;
    struct tei_list ended;
    int lanes = LANES;

    TEI_LIST_EACH(&x->works, link, tmp) {
        if (lanes-- == 0)
            break;
        if (!work_of(link)->watch.loop)
            begin(x, work_of(link));
    }
    tei_list_init(&ended);
    tei_list_splice(&ended, &x->ended);
    pthread_mutex_unlock(&x->lock);
    if (!tei_list_empty(&ended))
        x->base.host->work_done(x->base.host, &ended);
    pthread_mutex_lock(&x->lock);
}

static void *turn(void *loop)
{
    tei_loop_run(loop);
    return NULL;
}

static int example_open(struct tei_transport *t)
{
    struct example *x = example_of(t);
    int rc;

    pthread_mutex_init(&x->lock, NULL);
    tei_list_init(&x->works);
    tei_list_init(&x->ended);
    rc = tei_loop_init(&x->loop, &x->lock);
    x->loop.after_turn = after_turn;
    if (!rc)
        rc = tei_example_listen(x);
    if (!rc) /* gets the memory that arming it again needs */
        rc = tei_timer_start(&x->loop, &x->timer, tei_now_ns(), on_timer);
    if (!rc)
        rc = tei_thread_start(&x->thread, "te/example", turn, &x->loop);
    x->running = !rc;
    return rc;
}

static unsigned example_score(struct tei_transport *t, const struct tei_attach *a,
                              const te_request *r)
{
    (void)t;
    (void)r;
    return a ? 40 : 0;
}

/* The end of an op that has changed a list. */
static void wake(struct example *x)
{
    tei_timer_start(&x->loop, &x->timer, tei_now_ns(), on_timer);
    pthread_mutex_unlock(&x->lock);
}

static void example_post(struct tei_transport *t, struct tei_list *work)
{
    struct example *x = example_of(t);
    struct tei_link *link;

    pthread_mutex_lock(&x->lock);
    while ((link = tei_list_pop(work))) {
        struct example_work *w = work_of(link);

        w->watch = (struct tei_watch){0};
        w->done = 0;
        tei_list_push_back(&x->works, link);
        if (x->closed)
            finish(w, TE_ERR_CANCELED, NULL);
    }
    wake(x);
}

static void example_cancel(struct tei_transport *t, const void *owner)
{
    struct example *x = example_of(t);

    pthread_mutex_lock(&x->lock);
    end_those(x, owner, 0, TE_ERR_CANCELED);
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
    end_those(x, NULL, TEI_NEVER, TE_ERR_CANCELED);
    wake(x);
}

static void example_stop(struct tei_transport *t)
{
    struct example *x = example_of(t);

    example_close(t);
    tei_loop_stop(&x->loop);
    if (x->running)
        pthread_join(x->thread, NULL);
    x->running = false;
    pthread_mutex_lock(&x->lock);
    after_turn(&x->loop); /* what has ended since the thread's last turn */
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
    .work_size = sizeof(struct example_work),
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
