/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local.c - the transport to this engine's own memory: memmove. The smallest complete transport;
 * read it from the bottom up and copy it to begin another one. Work with memory of a device on
 * either side is local_device.c's from post() on; what follows is about the rest.
 *
 * Short work, INLINE_MAX bytes in all for one post(), is done in the caller's thread. The rest goes
 * to one thread that moves CHUNK bytes at a time and looks between two of them whether the work was
 * cancelled, is late, or the transport was closed, and gives back what ended in the queue
 * meanwhile. So neither post() nor cancel() waits for a long copy, and a work that ends is never
 * touched again: whoever ends it holds it, and no copy is under way.
 *
 * `lock` guards everything in struct local. The thread takes the first work off the queue, leaves
 * it in `current` while it copies without the lock, and is the only one that ends queued work:
 * cancel() sets `stop_current` or moves work over to `ended`, close() sets `closed`, and the thread
 * finds it there. work_done() is called with the lock released. Source and target may overlap; with
 * more than one chunk the result then is as if the chunks were moved one after the other.
 */
#include "base/err.h"
#include "base/os.h"
#include "transport/local/local.h"

#include <string.h>

#define INLINE_MAX ((uint64_t)64 << 10)
#define CHUNK      ((uint64_t)1 << 20)
#define LOCAL_KINDS \
    (TEI_MEM_BIT(TEI_MEM_HOST) | TEI_MEM_BIT(TEI_MEM_CUDA) | TEI_MEM_BIT(TEI_MEM_HIP))

struct local {
    struct tei_transport base;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool ready, running; /* lock and wake exist; thread is to be joined */
    bool closed, quit;
    struct tei_list queue, ended;
    struct tei_work *current;
    bool stop_current;
    int64_t first_late_ns; /* the earliest deadline in the queue, or earlier */
    unsigned posting;      /* threads inside local_post() */
    pthread_cond_t quiet;  /* there are none */
    struct local_devices devices;
};

static struct local *local_of(struct tei_transport *t)
{
    return tei_container_of(t, struct local, base);
}

static struct tei_work *work_of(struct tei_link *link)
{
    return tei_container_of(link, struct tei_work, link);
}

static void move_bytes(struct tei_work *w, uint64_t at, uint64_t n)
{
    char *target = (char *)(uintptr_t)w->remote; /* of this very process */

    if (w->opcode == TE_READ)
        memmove(w->local + at, target + at, n);
    else
        memmove(target + at, w->local + at, n);
}

/* ------------------------------------------------------------------------------------- the thread */

/* Ends what has waited in the queue past its deadline. Lock held. */
static void end_late(struct local *l, int64_t now)
{
    struct tei_link *link, *tmp;

    if (now < l->first_late_ns)
        return;
    l->first_late_ns = TEI_NEVER;
    TEI_LIST_EACH(&l->queue, link, tmp) {
        struct tei_work *w = work_of(link);

        if (w->deadline_ns <= now) {
            tei_list_del(link);
            tei_local_finish(w, TE_ERR_TIMEOUT, 0);
            tei_list_push_back(&l->ended, link);
        } else if (w->deadline_ns < l->first_late_ns) {
            l->first_late_ns = w->deadline_ns;
        }
    }
}

/* Gives back what ended in the queue while a long copy is under way. */
static void give_back_ended(struct local *l)
{
    struct tei_list done;

    tei_list_init(&done);
    pthread_mutex_lock(&l->lock);
    tei_list_splice(&done, &l->ended);
    pthread_mutex_unlock(&l->lock);
    if (!tei_list_empty(&done))
        l->base.host->work_done(l->base.host, &done);
}

/* Why the work must not go on, TE_ERR_OK if it may. */
static int verdict(struct local *l, const struct tei_work *w)
{
    int64_t now = tei_now_ns();
    bool stop, ended;

    pthread_mutex_lock(&l->lock);
    stop = l->stop_current || l->closed;
    end_late(l, now);
    ended = !tei_list_empty(&l->ended);
    pthread_mutex_unlock(&l->lock);
    if (ended)
        give_back_ended(l);
    if (stop)
        return TE_ERR_CANCELED;
    return w->deadline_ns <= now ? TE_ERR_TIMEOUT : TE_ERR_OK;
}

static void copy_in_chunks(struct local *l, struct tei_work *w)
{
    uint64_t done = 0;
    int error = verdict(l, w);

    while (!error && done < w->length) {
        uint64_t n = tei_slice_len(w->length - done, CHUNK, 4);

        move_bytes(w, done, n);
        done += n;
        error = done < w->length ? verdict(l, w) : TE_ERR_OK;
    }
    tei_local_finish(w, error, done);
}

/*
 * Waits for work. Fills `done` with what was cancelled; the work to copy, NULL if there is none.
 * Lock held.
 */
static struct tei_work *next_work(struct local *l, struct tei_list *done)
{
    while (tei_list_empty(&l->queue) && tei_list_empty(&l->ended) && !l->quit)
        pthread_cond_wait(&l->wake, &l->lock);
    tei_list_splice(done, &l->ended);
    l->stop_current = false;
    l->current = tei_list_empty(&l->queue) ? NULL : work_of(tei_list_pop(&l->queue));
    return l->current;
}

static void *run(void *arg)
{
    struct local *l = arg;
    struct tei_list done;

    tei_list_init(&done);
    pthread_mutex_lock(&l->lock);
    while (!l->quit || !tei_list_empty(&l->queue) || !tei_list_empty(&l->ended)) {
        struct tei_work *w = next_work(l, &done);

        pthread_mutex_unlock(&l->lock);
        if (w) {
            copy_in_chunks(l, w);
            pthread_mutex_lock(&l->lock);
            l->current = NULL;
            pthread_mutex_unlock(&l->lock);
            tei_list_push_back(&done, &w->link);
        }
        if (!tei_list_empty(&done))
            l->base.host->work_done(l->base.host, &done);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* -------------------------------------------------------------------------------------------- ops */

static int local_open(struct tei_transport *t)
{
    struct local *l = local_of(t);
    int rc;

    pthread_mutex_init(&l->lock, NULL);
    tei_cond_init(&l->wake);
    tei_cond_init(&l->quiet);
    tei_local_devices_init(&l->devices, t);
    l->first_late_ns = TEI_NEVER;
    tei_list_init(&l->queue);
    tei_list_init(&l->ended);
    l->ready = true;
    rc = tei_thread_start(&l->thread, "te/local", run, l);
    l->running = rc == 0;
    return rc;
}

static unsigned local_score(struct tei_transport *t, const struct tei_attach *a,
                            const te_request *r)
{
    (void)t;
    (void)r;
    return a ? 0 : 100;
}

static int local_region_add(struct tei_transport *t, struct tei_region *r)
{
    return tei_local_devices_add(&local_of(t)->devices, r);
}

static int local_region_del(struct tei_transport *t, struct tei_region *r)
{
    tei_local_devices_del(&local_of(t)->devices, r);
    return 0;
}

/* What was posted: the first short ones are copied here, others by the thread, others by devices. */
struct parted {
    struct tei_list now, later, device;
};

static void split(struct tei_list *work, struct parted *p)
{
    uint64_t budget = INLINE_MAX;
    struct tei_link *link;

    tei_list_init(&p->now);
    tei_list_init(&p->later);
    tei_list_init(&p->device);
    while ((link = tei_list_pop(work))) {
        uint64_t n = work_of(link)->length;

        if (tei_local_is_device(work_of(link))) {
            tei_list_push_back(&p->device, link);
            continue;
        }
        tei_list_push_back(n <= budget ? &p->now : &p->later, link);
        budget -= n <= budget ? n : 0;
    }
}

/* Takes what is for the thread; false if the transport is closed. */
static bool enqueue(struct local *l, struct tei_list *later)
{
    bool open;

    pthread_mutex_lock(&l->lock);
    open = !l->closed;
    if (open) {
        struct tei_link *link, *tmp;

        l->posting++;
        TEI_LIST_EACH(later, link, tmp) {
            if (work_of(link)->deadline_ns < l->first_late_ns)
                l->first_late_ns = work_of(link)->deadline_ns;
        }
        if (!tei_list_empty(later))
            pthread_cond_signal(&l->wake);
        tei_list_splice(&l->queue, later);
    }
    pthread_mutex_unlock(&l->lock);
    return open;
}

static void posted(struct local *l)
{
    pthread_mutex_lock(&l->lock);
    if (--l->posting == 0)
        pthread_cond_broadcast(&l->quiet);
    pthread_mutex_unlock(&l->lock);
}

/* Ends all of the list, moved or not. */
static void finish_all(struct tei_list *work, bool move)
{
    for (struct tei_link *link = tei_list_first(work); link; link = tei_list_next(work, link)) {
        struct tei_work *w = work_of(link);

        if (move)
            move_bytes(w, 0, w->length);
        tei_local_finish(w, move ? TE_ERR_OK : TE_ERR_CANCELED, move ? w->length : 0);
    }
}

static void local_post(struct tei_transport *t, struct tei_list *work)
{
    struct local *l = local_of(t);
    struct parted p;
    bool open;

    split(work, &p);
    open = enqueue(l, &p.later);
    if (!open) {
        tei_list_splice(&p.now, &p.later);
        tei_list_splice(&p.now, &p.device);
    }
    finish_all(&p.now, open);
    if (!tei_list_empty(&p.device))
        tei_local_devices_post(&l->devices, &p.device, &p.now);
    if (!tei_list_empty(&p.now))
        t->host->work_done(t->host, &p.now);
    if (open)
        posted(l);
}

static void local_cancel(struct tei_transport *t, const void *owner)
{
    struct local *l = local_of(t);
    struct tei_link *link, *tmp;

    pthread_mutex_lock(&l->lock);
    if (l->current && l->current->owner == owner)
        l->stop_current = true;
    TEI_LIST_EACH(&l->queue, link, tmp) {
        if (work_of(link)->owner != owner)
            continue;
        tei_list_del(link);
        tei_local_finish(work_of(link), TE_ERR_CANCELED, 0);
        tei_list_push_back(&l->ended, link);
    }
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
    tei_local_devices_cancel(&l->devices, owner);
}

static void local_close(struct tei_transport *t)
{
    struct local *l = local_of(t);

    pthread_mutex_lock(&l->lock);
    l->closed = true;
    pthread_mutex_unlock(&l->lock);
    tei_local_devices_close(&l->devices);
}

static void local_stop(struct tei_transport *t)
{
    struct local *l = local_of(t);

    local_close(t);
    pthread_mutex_lock(&l->lock);
    l->quit = true;
    pthread_cond_signal(&l->wake);
    while (l->posting)
        pthread_cond_wait(&l->quiet, &l->lock);
    pthread_mutex_unlock(&l->lock);
    if (l->running)
        pthread_join(l->thread, NULL);
    l->running = false;
    tei_local_devices_stop(&l->devices);
}

static void local_fini(struct tei_transport *t)
{
    struct local *l = local_of(t);

    if (!l->ready)
        return;
    tei_local_devices_fini(&l->devices);
    pthread_cond_destroy(&l->wake);
    pthread_cond_destroy(&l->quiet);
    pthread_mutex_destroy(&l->lock);
}

extern const struct tei_transport_ops tei_local_ops; /* named by transports.def */

const struct tei_transport_ops tei_local_ops = {
    .name = "local",
    .abi = TEI_TRANSPORT_ABI,
    .caps = TEI_CAP_LOCAL_ONLY,
    .mem_kinds = LOCAL_KINDS,
    .target_kinds = LOCAL_KINDS,
    .size = sizeof(struct local),
    .work_size = sizeof(struct local_work),
    .attach_size = sizeof(struct tei_attach),
    .open = local_open,
    .region_add = local_region_add,
    .region_del = local_region_del,
    .score = local_score,
    .post = local_post,
    .cancel = local_cancel,
    .close = local_close,
    .stop = local_stop,
    .fini = local_fini,
};
