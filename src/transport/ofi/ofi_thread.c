/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ofi_thread.c - the thread te/ofi: lets providers work, offers parts, ends what is late. Sleeps on the
 * descriptors of its queues; a provider that has none is looked at again and again, ever more seldom while
 * nothing happens.
 */
#include "base/err.h"
#include "base/os.h"
#include "transport/ofi/ofi.h"

#include <errno.h>
#include <poll.h>
#include <time.h>

#define NAP_MIN_NS \
    (50 * INT64_C(1000)) /* of one that has no descriptors; doubles up to the next ones */
#define NAP_BUSY_NS   (1 * TEI_NS_PER_MS)
#define NAP_IDLE_NS   (5 * TEI_NS_PER_MS)
#define SLEEP_BUSY_NS (10 * TEI_NS_PER_MS) /* work is under way: some providers do not tell all */

struct sleep {
    struct pollfd fds[OFI_FDS + 1];
    size_t n;
    int64_t nap_ns;
};

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* All peers that have work, in turn, and generations. When to look again. */
static int64_t step(struct ofi *t, int64_t now)
{
    struct tei_link *link, *tmp;
    int64_t look = TEI_NEVER;

    TEI_LIST_EACH(&t->active, link, tmp)
        look = earlier(look, tei_ofi_step(t, tei_container_of(link, struct ofi_peer, active), now));
    link = tei_list_first(&t->active);
    if (link)
        tei_list_move_back(&t->active, link);
    for (size_t i = 0; i < t->n_nics; i++)
        look = earlier(look, tei_ofi_watch(&t->nics[i], now));
    return look;
}

/* What is over, and what has gone wrong, without the lock; whether there was any of it. */
static bool tell(struct ofi *t)
{
    const char *trouble = t->trouble;
    struct tei_list over;

    if (tei_list_empty(&t->over) && !trouble)
        return false;
    tei_list_init(&over);
    tei_list_splice(&over, &t->over);
    t->trouble = NULL;
    pthread_mutex_unlock(&t->lock);
    if (trouble)
        TEI_WARN("ofi: %s", trouble);
    if (!tei_list_empty(&over))
        t->base.host->work_done(t->base.host, &over);
    pthread_mutex_lock(&t->lock);
    return true;
}

/* What is slept on; false: not now. */
static bool gather(struct ofi *t, struct sleep *s, bool *blind)
{
    int fds[OFI_FDS];
    size_t n = 0;
    bool may = true;

    for (size_t i = 0; i < t->n_nics; i++)
        may &= tei_ofi_may_sleep(&t->nics[i], fds, &n, blind);
    s->fds[0] = (struct pollfd){.fd = t->waker.fd, .events = POLLIN};
    for (size_t i = 0; i < n; i++)
        s->fds[1 + i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    s->n = 1 + n;
    return may;
}

static void doze(struct ofi *t, struct sleep *s, int64_t left)
{
    struct timespec limit = {.tv_sec = left / TEI_NS_PER_S, .tv_nsec = left % TEI_NS_PER_S};

    pthread_mutex_unlock(&t->lock);
    (void)ppoll(s->fds, s->n, left == TEI_NEVER ? NULL : &limit, NULL);
    pthread_mutex_lock(&t->lock);
    tei_waker_drain(&t->waker); /* rung with the lock held */
}

/* Nothing happened: until something does, or `look`. */
static void rest(struct ofi *t, struct sleep *s, int64_t look)
{
    bool busy = !tei_list_empty(&t->active), blind = false, may = gather(t, s, &blind);
    int64_t now = tei_now_ns(), left = look == TEI_NEVER ? TEI_NEVER : look - now;

    if (blind || !may) {
        s->nap_ns =
            s->nap_ns ? earlier(2 * s->nap_ns, busy ? NAP_BUSY_NS : NAP_IDLE_NS) : NAP_MIN_NS;
        left = earlier(left, s->nap_ns);
    } else if (busy) {
        left = earlier(left, SLEEP_BUSY_NS);
    }
    if (left > 0)
        doze(t, s, left);
}

static void *run(void *arg)
{
    struct ofi *t = arg;
    struct sleep s = {.nap_ns = 0};

    pthread_mutex_lock(&t->lock);
    for (;;) {
        int64_t now = tei_now_ns(), look;
        bool any = false;

        for (size_t i = 0; i < t->n_nics; i++)
            any |= tei_ofi_progress(&t->nics[i], now);
        look = step(t, now);
        any |= tell(t);
        if (t->quit && tei_list_empty(&t->active))
            break;
        if (any)
            s.nap_ns = 0;
        else
            rest(t, &s, look);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

int tei_ofi_thread_start(struct ofi *t)
{
    int rc = tei_thread_start(&t->thread, "te/ofi", run, t);

    t->running = !rc;
    return rc;
}

void tei_ofi_thread_stop(struct ofi *t)
{
    if (!t->running)
        return;
    pthread_mutex_lock(&t->lock);
    t->quit = true;
    tei_waker_ring(&t->waker);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    t->running = false;
}
