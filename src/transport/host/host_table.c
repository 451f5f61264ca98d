/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_table.c - the owner's table of regions, and the fence around one that goes.
 *
 * A slot's epoch is odd while it stands for a region. Who reads it looks at the epoch, reads the
 * rest, and looks again. What changes is written to the log, a ring, so that a peer need not read
 * the whole table to keep up.
 *
 * The fence. A peer's thread that copies into this process first says so in a hazard word, then
 * looks at the epoch; who unregisters first moves the epoch on, then looks at the hazards; both
 * sequentially consistent. So either the peer sees that the region is gone and does not begin, or
 * the hazard is seen here and waited for: at most one chunk's time. What reads needs no hazard: it
 * looks at the epoch again after the copy, and what it got is not told to anybody if it has changed.
 *
 * A peer that is stopped (SIGSTOP, a debugger) between the two would be waited for without end, and
 * no call exists that takes its right to write away from it. So the wait is bounded: after a second
 * region_del() answers TE_ERR_BUSY, the region stands again as before, and the user knows that the
 * memory is not his yet. A peer whose socket has closed has no thread left that could write.
 *
 * All that a peer writes is its hazard words, and all that follows from them is how long one waits.
 *
 * A memfd is the whole of an allocation, and who has it once has it for as long as he likes. So it is
 * given away only while every byte of it is registered, for reading and for writing; or for reading,
 * and it is sealed against being written by others.
 */
#include "transport/host/host.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FENCE_NS (1 * TEI_NS_PER_S)
#define NAP_NS   (20 * TEI_NS_PER_MS) /* then it is looked whether the peer is still there */
#define LOST     (HOST_SLOTS + 1)     /* key of a region that has no slot; else slot + 1 */

/* ------------------------------------------------------------------------- allocations shared */

static int by_id(const void *a, const void *b)
{
    const struct host_memory *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

/* The allocation that the region lies in, its bytes counted; NULL if it cannot be shared. Under
 * table_lock. */
static struct host_memory *enter_memory(struct host *h, struct host_owned *o,
                                        const struct tei_region *r, size_t *offset)
{
    struct tei_share *share = tei_share_hold(r->addr, r->length, offset);
    struct host_memory *m = share ? calloc(1, sizeof(*m)) : NULL, **node = NULL;

    if (m) {
        *m = (struct host_memory){.id = share->id, .share = share};
        node = tsearch(m, &h->memories, by_id);
    }
    if (!node || *node != m)
        free(m);
    if (!node || (*node)->regions)
        tei_share_put(share);
    if (!node)
        return NULL;
    m = *node;
    m->regions++;
    *o = (struct host_owned){.memory = m,
                             .readable = r->access & TE_REMOTE_READ ? r->length : 0,
                             .writable = r->access & TE_REMOTE_WRITE ? r->length : 0};
    m->readable += o->readable;
    m->writable += o->writable;
    return m;
}

/* The share, if nobody else's region is in it: the caller's to put. Under table_lock. */
static struct tei_share *leave_memory(struct host *h, struct host_owned *o)
{
    struct host_memory *m = o->memory;
    struct tei_share *share = m->share;

    m->readable -= o->readable;
    m->writable -= o->writable;
    o->memory = NULL;
    if (--m->regions)
        return NULL;
    tdelete(m, &h->memories, by_id);
    free(m);
    return share;
}

static bool may_be_given(const struct host_memory *m)
{
    return m->readable == m->share->size && (m->writable == m->share->size || m->share->read_only);
}

int tei_host_table_open(struct host *h)
{
    h->table_fd = tei_pages_make("te_host", sizeof(*h->table));
    if (h->table_fd >= 0)
        h->table = tei_pages_map(h->table_fd, sizeof(*h->table), true);
    if (!h->table)
        return TEI_FAIL(TE_ERR_SYSTEM, "host: no shared table of %zu bytes (memfd): %s",
                        sizeof(*h->table), tei_errno_text(errno));
    /*
     * From now on nobody can map it for writing. A kernel without this seal leaves it to the peers,
     * which map it for reading only.
     */
    (void)fcntl(h->table_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
    h->table->magic = HOST_MAGIC;
    h->table->version = HOST_VERSION;
    h->table->n_slots = HOST_SLOTS;
    h->table->n_log = HOST_LOG;
    return 0;
}

void tei_host_table_close(struct host *h)
{
    if (h->table)
        munmap(h->table, sizeof(*h->table));
    if (h->table_fd >= 0)
        tei_fd_close(h->table_fd);
    for (size_t i = 0; i < h->n_owned; i++)
        if (h->owned[i].memory)
            tei_share_put(leave_memory(h, &h->owned[i]));
    free(h->owned);
}

/* -------------------------------------------------------------------------------------- slots */

/* Under table_lock. */
static void log_change(struct host *h, uint32_t slot)
{
    uint64_t end = atomic_load_explicit(&h->table->log_end, memory_order_relaxed);

    /*
     * Release: partner of the acquire by which catch_up() reads the entry. Who finds this one in place
     * of an older one finds the end that it has gone past, too, and does not believe the entry. It is as
     * well the partner of the fence in tei_host_copy(): who has read memory that was written after its
     * region had gone finds that the epoch has moved.
     */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&h->table->log[end % HOST_LOG], slot, memory_order_relaxed);
    /* Release: partner of the acquire in the peer, which reads log and slot after it. */
    atomic_store_explicit(&h->table->log_end, end + 1, memory_order_release);
}

/* To odd or even; in the one order of all accesses that the fence depends on. Under table_lock. */
static void move_epoch(struct host *h, uint32_t slot)
{
    atomic_fetch_add(&h->table->slots[slot].epoch, 1);
    log_change(h, slot);
}

/* Room for one more in `owned`; false if there is none. Under table_lock. */
static bool grow(struct host *h, uint32_t high)
{
    size_t n = h->n_owned ? 2 * h->n_owned : 64;
    struct host_owned *p;

    if (high < h->n_owned)
        return true;
    p = realloc(h->owned, n * sizeof(*p));
    if (!p)
        return false;
    memset(p + h->n_owned, 0, (n - h->n_owned) * sizeof(*p));
    h->owned = p;
    h->n_owned = n;
    return true;
}

/* A slot of no region; false if there is none. Under table_lock. */
static bool take_slot(struct host *h, uint32_t *out)
{
    uint32_t high = atomic_load_explicit(&h->table->high, memory_order_relaxed);

    if (h->free_slot) {
        *out = h->free_slot - 1;
        h->free_slot = h->owned[*out].next_free;
        return true;
    }
    if (high == HOST_SLOTS || !grow(h, high))
        return false;
    *out = high;
    atomic_store_explicit(&h->table->high, high + 1, memory_order_release);
    return true;
}

static void fill_slot(struct host *h, uint32_t i, const struct tei_region *r)
{
    struct host_slot *s = &h->table->slots[i];
    size_t offset = 0;
    /* What is for some peers only is shown to none, and there so that they see it: they go another way. */
    struct host_memory *m = r->access ? enter_memory(h, &h->owned[i], r, &offset) : NULL;

    /*
     * Release: partner of the acquires in read_slot(). Who finds one of these words in a slot that is
     * used again finds the even epoch, too, that came before them, and not the odd one of the last use.
     */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&s->addr, r->addr, memory_order_relaxed);
    atomic_store_explicit(&s->length, r->length, memory_order_relaxed);
    atomic_store_explicit(&s->access, r->access, memory_order_relaxed);
    atomic_store_explicit(&s->memory, m ? m->id : HOST_NO_MEMORY, memory_order_relaxed);
    atomic_store_explicit(&s->offset, offset, memory_order_relaxed);
    move_epoch(h, i);
}

int tei_host_region_add(struct tei_transport *t, struct tei_region *r)
{
    struct host *h = tei_host_of(t);
    uintptr_t key = LOST;
    uint32_t slot;

    if (!r->access && !r->allow)
        return 0;
    pthread_mutex_lock(&h->table_lock);
    if (take_slot(h, &slot)) {
        fill_slot(h, slot, r);
        key = slot + 1;
    } else {
        /* Peers see that the table does not have everything, and take another transport. */
        atomic_fetch_add_explicit(&h->table->lost, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&h->table_lock);
    r->keys[t->index] = (void *)key;
    return 0;
}

struct tei_share *tei_host_table_share(struct host *h, uint32_t slot, uint64_t *id,
                                       enum host_status *status)
{
    struct tei_share *share = NULL;
    const struct host_memory *m;

    pthread_mutex_lock(&h->table_lock);
    m = slot < h->n_owned ? h->owned[slot].memory : NULL;
    *status = m ? HOST_WITHHELD : HOST_GONE;
    *id = m ? m->id : HOST_NO_MEMORY;
    if (m && may_be_given(m))
        share = tei_share_get(m->share);
    pthread_mutex_unlock(&h->table_lock);
    return share;
}

/* -------------------------------------------------------------------------------------- fence */

/* A hazard word that has to be waited for. */
struct holder {
    struct host_session *session;
    size_t at;
    uint32_t word; /* with HAZARD_WAITED */
};

static bool names(uint32_t word, uint32_t slot)
{
    uint32_t s = word & HAZARD_SLOT;

    return (word & HAZARD_BUSY) && (s == slot || s == HAZARD_ANY);
}

/*
 * Marks the word as waited for; false if it has changed meanwhile, to one that needs no wait. One
 * that has no mark yet is of a new write: whoever was waited for in vain has gone on.
 */
static bool mark(struct holder *o, uint32_t word)
{
    _Atomic uint32_t *w = &o->session->hazards->at[o->at].word;

    o->word = word | HAZARD_WAITED;
    if (word == o->word)
        return true;
    o->session->stuck[o->at] = 0;
    return atomic_compare_exchange_strong(w, &word, o->word);
}

static bool is_there(const struct holder *o)
{
    return atomic_load(&o->session->hazards->at[o->at].word) == o->word;
}

/* The next hazard of the session that names the slot, from number o->at on. */
static bool next_holder(struct holder *o, uint32_t slot)
{
    for (; o->at < HOST_HAZARDS; o->at++) {
        uint32_t word = atomic_load(&o->session->hazards->at[o->at].word);

        if (names(word, slot) && mark(o, word))
            return true;
    }
    return false;
}

/* A child of its process may hold the socket open, so that is not all that is looked at. */
static bool has_closed(const struct host_session *s)
{
    struct pollfd p = {.fd = s->watch.fd};

    return !s->watch.loop || (poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR))) ||
           tei_host_who_has_ended(s->pidfd);
}

/* Sleeps until the word changes, its process is gone, or it is late. Under loop_lock. */
static bool outlast(struct host *h, struct holder *o, int64_t deadline_ns)
{
    struct timespec nap = {.tv_nsec = NAP_NS};
    bool gone;

    if (o->session->stuck[o->at] == o->word)
        return false;
    while (is_there(o) && !has_closed(o->session) && tei_now_ns() < deadline_ns) {
        pthread_mutex_unlock(&h->loop_lock);
        syscall(SYS_futex, &o->session->hazards->at[o->at].word, FUTEX_WAIT, o->word, &nap, NULL,
                0);
        pthread_mutex_lock(&h->loop_lock);
    }
    gone = !is_there(o) || has_closed(o->session);
    /* The next one who meets this very word need not try again. */
    o->session->stuck[o->at] = gone ? 0 : o->word;
    return gone;
}

/* Waits for all of one session; the pid of one that does not leave in *pid. Under loop_lock. */
static bool outlast_session(struct host *h, struct host_session *s, uint32_t slot,
                            int64_t deadline_ns, pid_t *pid)
{
    struct holder o = {.session = s};
    bool gone = true;

    while (gone && next_holder(&o, slot)) {
        gone = outlast(h, &o, deadline_ns);
        o.at++;
    }
    *pid = s->pid;
    return gone;
}

/* True when no peer's thread writes in the slot any more; else the pid of one that may. */
static bool fence(struct host *h, uint32_t slot, pid_t *pid)
{
    int64_t deadline_ns = tei_now_ns() + FENCE_NS;
    struct tei_link *link;
    bool clear = true;

    pthread_mutex_lock(&h->loop_lock);
    link = tei_list_first(&h->sessions);
    while (clear && link) {
        struct host_session *s = tei_container_of(link, struct host_session, link);
        struct tei_link *next;

        s->refs++; /* stays in the list, so that there is a next one */
        clear = !s->hazards || outlast_session(h, s, slot, deadline_ns, pid);
        next = tei_list_next(&h->sessions, link);
        tei_host_session_put(s);
        link = next;
    }
    pthread_mutex_unlock(&h->loop_lock);
    return clear;
}

/* The share that is the caller's to put, if it was the last region in it. Under table_lock. */
static struct tei_share *free_slot(struct host *h, uint32_t slot, bool *shareable)
{
    struct host_owned *o = &h->owned[slot];
    struct tei_share *share;

    *shareable = o->memory;
    share = o->memory ? leave_memory(h, o) : NULL;
    *o = (struct host_owned){.next_free = h->free_slot};
    h->free_slot = slot + 1;
    return share;
}

static int leave_table(struct host *h, uint32_t slot, const struct tei_region *r)
{
    struct tei_share *share = NULL;
    pid_t pid = 0;
    bool clear, shareable = false;

    pthread_mutex_lock(&h->table_lock);
    move_epoch(h, slot);
    pthread_mutex_unlock(&h->table_lock);
    clear = fence(h, slot, &pid);
    pthread_mutex_lock(&h->table_lock);
    if (clear)
        share = free_slot(h, slot, &shareable);
    else
        move_epoch(h, slot);
    pthread_mutex_unlock(&h->table_lock);
    tei_share_put(share);
    if (shareable)
        tei_host_serve_changed(h);
    if (clear)
        return 0;
    return TEI_FAIL(
        TE_ERR_BUSY,
        "host: process %d has been writing in region 0x%zx + %zu for a second, so it is "
        "stopped; let it go on, or end it",
        (int)pid, (size_t)r->addr, r->length);
}

int tei_host_region_del(struct tei_transport *t, struct tei_region *r)
{
    struct host *h = tei_host_of(t);
    uintptr_t key = (uintptr_t)r->keys[t->index];
    int rc = 0;

    if (key == LOST)
        atomic_fetch_sub_explicit(&h->table->lost, 1, memory_order_relaxed);
    else if (key)
        rc = leave_table(h, (uint32_t)key - 1, r);
    if (!rc)
        r->keys[t->index] = NULL;
    return rc;
}
