/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_peer.c - the initiator's picture of one owner.
 *
 * Greeting (in attach(), whose thread may block, at most TE_HOST_TIMEOUT_MS): connect, ask the
 * kernel who listens there, and what user and namespaces it has; say hello, and be given the table
 * and a page of hazards; then have a nonce, made for this, written by the owner where it has said
 * before, and read it there by process_vm: so the number is that of the process that answers.
 * Whoever is not of our very user, or has not proved this, is touched through memfds alone: memfd_only.
 *
 * From then on the socket is watched on te/host: it brings memfds, and its end means that the owner is
 * gone. So does the end of the process, by its pidfd, since a child of it may hold the socket open. Both
 * are looked at around process_vm calls (host_run.c), through one epoll: while neither has ended, that
 * is a call that looks at an empty list. What is left is a WRITE to an owner that ends
 * between the look and the call, whose number goes to another process of our user at once; the look
 * after it makes that an error.
 *
 * The picture is a tree of the regions by address, brought up to date from the table's log whenever
 * a copy begins; only where the log has gone round since is the whole table read again. A region is
 * looked up under the lock, and its epoch is looked at again when it is copied, without.
 *
 * A memfd is asked for when its first copy comes; until it is there process_vm does, so nobody
 * waits for an answer. It is unmapped when no region is known in it any more.
 *
 * A memfd that the owner does not give away, since not all of it is registered, is asked for again when
 * its table has changed. For a peer that is memfd_only a region that is not mapped is refused to
 * score(), which asks for its memfd, so that requests take this way once that is there and another one
 * until then.
 *
 * What the owner writes is not trusted further than its own memory goes: numbers are checked before
 * they are used as an index or a length, and a memfd must be sealed, or reading it could fault.
 */
#include "transport/host/host.h"

#include "base/err.h"

#include <errno.h>
#include <poll.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define PEERS_MAX    1024
#define WHY          256
#define ASK_AGAIN_NS TEI_NS_PER_S /* for a memfd */
#define SCORE        80           /* above that of any transport through a network */

/* ------------------------------------------------------------------------------------ the picture */

/* Ranges that touch are equal. */
static int compare(const void *a, const void *b)
{
    const struct host_known *x = a, *y = b;

    if (x->addr + (x->length - 1) < y->addr)
        return -1;
    return x->addr > y->addr + (y->length - 1);
}

static void put_map(struct host_map *m)
{
    if (!m || --m->users)
        return;
    tei_list_del(&m->link);
    if (m->base)
        munmap(m->base, m->size);
    free(m);
}

static struct host_map *find_map(struct host_peer *p, uint64_t id)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&p->maps, link, tmp) {
        struct host_map *m = tei_container_of(link, struct host_map, link);

        if (m->id == id)
            return m;
    }
    return NULL;
}

/* The memfd of that id, to be mapped when it is needed; NULL: none, or no memory. */
static struct host_map *get_map(struct host_peer *p, uint64_t id)
{
    struct host_map *m = id == HOST_NO_MEMORY ? NULL : find_map(p, id);

    if (!m && id != HOST_NO_MEMORY) {
        m = calloc(1, sizeof(*m));
        if (!m)
            return NULL;
        m->id = id;
        tei_list_push_front(&p->maps, &m->link);
    }
    if (m)
        m->users++;
    return m;
}

static void forget(struct host_peer *p, struct host_known *k)
{
    tdelete(k, &p->known, compare);
    p->by_slot[k->slot] = NULL;
    if (k->refused)
        atomic_fetch_sub_explicit(&p->n_refused, 1, memory_order_relaxed);
    put_map(k->map);
    free(k);
}

/* What stands in the slot, if that is a region and does not change while it is read. */
static bool read_slot(const struct host_slot *s, struct host_known *k)
{
    uint64_t end;

    k->epoch = atomic_load_explicit(&s->epoch, memory_order_acquire);
    k->addr = atomic_load_explicit(&s->addr, memory_order_acquire);
    k->length = atomic_load_explicit(&s->length, memory_order_acquire);
    k->access = atomic_load_explicit(&s->access, memory_order_acquire);
    k->memory = atomic_load_explicit(&s->memory, memory_order_acquire);
    k->offset = atomic_load_explicit(&s->offset, memory_order_acquire);
    return k->epoch % 2 && k->epoch == atomic_load_explicit(&s->epoch, memory_order_acquire) &&
           k->length && tei_add_ok(k->addr, k->length, &end) &&
           tei_add_ok(k->offset, k->length, &end);
}

static bool grow(struct host_peer *p, uint32_t slot)
{
    size_t n = p->n_by_slot ? p->n_by_slot : 64;
    struct host_known **by_slot;

    while (n <= slot)
        n *= 2;
    if (n == p->n_by_slot)
        return true;
    by_slot = realloc(p->by_slot, n * sizeof(struct host_known *));
    if (!by_slot)
        return false;
    memset(by_slot + p->n_by_slot, 0, (n - p->n_by_slot) * sizeof(struct host_known *));
    p->by_slot = by_slot;
    p->n_by_slot = n;
    return true;
}

/* False if there is no memory, or another region is known at its place. */
static bool learn(struct host_peer *p, const struct host_known *seen)
{
    struct host_known *k = malloc(sizeof(*k));
    struct host_known **node;

    if (!k)
        return false;
    *k = *seen;
    node = tsearch(k, &p->known, compare);
    if (!node || *node != k) {
        free(k);
        return false;
    }
    k->map = get_map(p, k->memory);
    k->refused = !k->access;
    atomic_fetch_add_explicit(&p->n_refused, k->refused, memory_order_relaxed);
    p->by_slot[k->slot] = k;
    return true;
}

/* Brings one slot of the picture up to date. */
static void look_at(struct host_peer *p, uint32_t slot)
{
    struct host_known k = {.slot = slot};
    struct host_known **other;

    if (slot >= HOST_SLOTS || !grow(p, slot))
        return;
    if (p->by_slot[slot])
        forget(p, p->by_slot[slot]);
    if (!read_slot(&p->table->slots[slot], &k) || learn(p, &k))
        return;
    /* The one in the way is older, or is about to go again: a miss will tell. */
    other = tfind(&k, &p->known, compare);
    if (other)
        forget(p, *other);
    (void)learn(p, &k);
    p->collided = true;
}

/* What has changed goes first: one region may have come in the place of many. */
static void look_at_all(struct host_peer *p)
{
    uint32_t high = atomic_load_explicit(&p->table->high, memory_order_acquire);

    p->collided = false;
    for (size_t i = 0; i < p->n_by_slot; i++) {
        const struct host_known *k = p->by_slot[i];

        if (k && k->epoch != atomic_load_explicit(&p->table->slots[i].epoch, memory_order_acquire))
            forget(p, p->by_slot[i]);
    }
    for (uint32_t i = 0; i < high && i < HOST_SLOTS; i++)
        if (i >= p->n_by_slot || !p->by_slot[i])
            look_at(p, i);
}

/* Relaxed: it changes under the lock, and is a hint elsewhere. */
static uint64_t seen_of(const struct host_peer *p)
{
    return atomic_load_explicit(&p->seen, memory_order_relaxed);
}

static void note_seen(struct host_peer *p, uint64_t end)
{
    atomic_store_explicit(&p->seen, end, memory_order_relaxed);
}

/* Brings the picture up to date. */
static void catch_up(struct host_peer *p)
{
    /* Acquire: partner of the release in log_change(). */
    uint64_t end = atomic_load_explicit(&p->table->log_end, memory_order_acquire);
    uint64_t from = seen_of(p);

    if (from == end)
        return;
    note_seen(p, end);
    for (uint64_t i = from; i != end && end - from <= HOST_LOG; i++)
        look_at(p, atomic_load_explicit(&p->table->log[i % HOST_LOG], memory_order_acquire));
    /* Some of it may have been written over while it was read; the one in the making counts. */
    end = atomic_load_explicit(&p->table->log_end, memory_order_relaxed);
    if (end - from >= HOST_LOG)
        look_at_all(p);
}

static struct host_known *find_known(struct host_peer *p, uint64_t addr)
{
    struct host_known key = {.addr = addr, .length = 1};
    void *node = tfind(&key, &p->known, compare);

    return node ? *(struct host_known **)node : NULL;
}

static bool has(const struct host_known *k, uint64_t addr, uint64_t length, unsigned access)
{
    return k && addr - k->addr < k->length && length <= k->length - (addr - k->addr) &&
           (k->access & access) == access;
}

/* -------------------------------------------------------------------------------------- copies */

/* Once; again after a while, and at once when it was withheld and the table has changed since. */
static void want(struct host_peer *p, const struct host_known *k)
{
    struct host_msg m = {
        .magic = HOST_MAGIC, .version = HOST_VERSION, .type = HOST_WANT, .slot = k->slot};
    uint64_t seen = seen_of(p);
    struct host_map *map = k->map;
    int64_t now = tei_now_ns();

    if (now < map->ask_again_ns && !(map->withheld && map->asked_at != seen))
        return;
    map->ask_again_ns = tei_host_send(p->fd, &m, NULL, 0) ? now + ASK_AGAIN_NS : 0;
    map->withheld = false;
    map->asked_at = seen;
}

static bool is_mapped(const struct host_known *k, int opcode)
{
    const struct host_map *m = k->map;

    return m && m->base && (opcode == TE_READ || !m->read_only) && k->offset <= m->size &&
           k->length <= m->size - k->offset;
}

static void use(struct host_piece *x, const struct host_known *k, int opcode)
{
    x->slot = k->slot;
    x->epoch = k->epoch;
    if (!is_mapped(k, opcode))
        return;
    x->map = k->map;
    x->map->users++;
    x->mapped = k->map->base + k->offset + (x->part->remote - k->addr);
}

static void find_piece(struct host_peer *p, struct host_piece *x, int opcode)
{
    unsigned access = opcode == TE_READ ? TE_REMOTE_READ : TE_REMOTE_WRITE;
    struct host_known *k = find_known(p, x->part->remote);

    if (!has(k, x->part->remote, x->part->length, access) && p->collided) {
        look_at_all(p);
        k = find_known(p, x->part->remote);
    }
    if (!has(k, x->part->remote, x->part->length, access)) {
        x->part->error = TE_ERR_STALE;
        if (k && !k->access) {
            x->part->error = TE_ERR_PEER; /* the next try goes another way: score() */
            x->part->why = "it has come to be for some peers only";
        }
        return;
    }
    if (k->map && !k->map->base)
        want(p, k);
    use(x, k, opcode);
    if (p->memfd_only && !x->mapped) {
        x->part->error = TE_ERR_PEER;
        x->part->why = "memory that process_vm may not reach is not mapped";
    }
}

void tei_host_peer_find(struct host_peer *p, struct host_run *run)
{
    pthread_mutex_lock(&p->lock);
    catch_up(p);
    for (size_t i = 0; i < run->n; i++)
        find_piece(p, &run->pieces[i], run->opcode);
    pthread_mutex_unlock(&p->lock);
}

void tei_host_peer_release(struct host_peer *p, struct host_run *run)
{
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < run->n; i++)
        put_map(run->pieces[i].map);
    pthread_mutex_unlock(&p->lock);
}

struct host_hazard *tei_host_peer_hazard(struct host_peer *p)
{
    unsigned i;

    pthread_mutex_lock(&p->lock);
    assert(p->free_hazards); /* there are as many as threads that may copy */
    i = (unsigned)__builtin_ctzll(p->free_hazards);
    p->free_hazards &= p->free_hazards - 1;
    pthread_mutex_unlock(&p->lock);
    return &p->hazards->at[i];
}

void tei_host_peer_unhazard(struct host_peer *p, struct host_hazard *z)
{
    pthread_mutex_lock(&p->lock);
    p->free_hazards |= UINT64_C(1) << (z - p->hazards->at);
    pthread_mutex_unlock(&p->lock);
}

void tei_host_peer_refuse(struct host_peer *p, uint32_t slot, uint32_t epoch)
{
    struct host_known *k;

    pthread_mutex_lock(&p->lock);
    k = slot < p->n_by_slot ? p->by_slot[slot] : NULL;
    if (k && k->epoch == epoch && !k->refused) {
        k->refused = true;
        atomic_fetch_add_explicit(&p->n_refused, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&p->lock);
}

/* The first region of the range that no way leads to; NULL if there is none. */
static struct host_known *find_refused(struct host_peer *p, const te_request *r)
{
    struct host_known *k = find_known(p, r->target_offset);

    while (k && (is_mapped(k, r->opcode) || !(p->memfd_only || k->refused))) {
        uint64_t next = k->addr + k->length;

        k = next - r->target_offset < r->length ? find_known(p, next) : NULL;
    }
    return k;
}

unsigned tei_host_peer_score(struct host_peer *p, const te_request *r)
{
    unsigned score = SCORE;
    struct host_known *k;

    /* Relaxed: what is seen too late here is found out by the copy. */
    if (!p->memfd_only && atomic_load_explicit(&p->n_refused, memory_order_relaxed) == 0 &&
        atomic_load_explicit(&p->table->log_end, memory_order_relaxed) == seen_of(p))
        return score;
    pthread_mutex_lock(&p->lock);
    catch_up(p);
    k = find_refused(p, r);
    if (k)
        score = 0;
    if (k && k->map && !k->map->base) {
        want(p, k);
        score = TEI_SCORE_LATER;
    }
    pthread_mutex_unlock(&p->lock);
    return score;
}

const char *tei_host_peer_why(struct host_peer *p, const te_request *r)
{
    const char *why = "its process has ended, or its table is full";
    const struct host_known *k;

    pthread_mutex_lock(&p->lock);
    k = find_refused(p, r);
    if (k && !k->access)
        why =
            "it is for some peers only, by te_register_allow(), and nobody would look who reaches it";
    else if (k && k->map && k->map->base)
        why = "process_vm does not reach its memory, which was allocated with TE_ALLOC_PEERS_READ";
    else if (k && k->map && k->map->withheld)
        why = "process_vm does not reach its memory, and its memfd is given away only while every "
              "byte of the allocation is registered to be read and written";
    else if (k && k->map)
        why =
            "process_vm does not reach its memory, and its memfd, which has been asked for, is not "
            "here yet";
    else if (k && p->memfd_only)
        why = "its memory is not shareable and process_vm is refused (ptrace_scope, seccomp, not "
              "dumpable, or another user's); te_alloc() it";
    else if (k)
        why = "process_vm does not reach its pages; te_alloc() it";
    pthread_mutex_unlock(&p->lock);
    return why;
}

const char *tei_host_broken_text(int broken)
{
    return broken == EPERM ? "its memory is kept from us by now"
                           : "its process, or its engine, is gone";
}

bool tei_host_peer_is_gone(struct host_peer *p)
{
    struct epoll_event e;

    if (!atomic_load_explicit(&p->broken, memory_order_relaxed) &&
        epoll_wait(p->ends, &e, 1, 0) != 0)
        atomic_store_explicit(&p->broken, -1, memory_order_relaxed);
    return atomic_load_explicit(&p->broken, memory_order_relaxed);
}

/* ----------------------------------------------------------------------- what the socket brings */

/* `fd` is of no meaning unless the status is OK. */
static void on_memory(struct host_peer *p, const struct host_msg *m, int fd)
{
    struct host_map *map;

    pthread_mutex_lock(&p->lock);
    map = find_map(p, m->memory);
    if (map && m->status != HOST_OK)
        map->withheld = true;
    else if (map && !map->base && m->size && tei_pages_are_sealed(fd, m->size)) {
        map->read_only = tei_pages_are_read_only(fd);
        map->base = tei_pages_map(fd, (size_t)m->size, !map->read_only);
        map->size = (size_t)m->size;
    }
    pthread_mutex_unlock(&p->lock);
}

void tei_host_peer_unwatch(struct host_peer *p)
{
    if (p->watch.loop)
        tei_watch_del(&p->watch);
    if (p->life.loop)
        tei_watch_del(&p->life);
}

static void lose(struct host_peer *p, int sys_errno)
{
    atomic_store_explicit(&p->broken, sys_errno ? sys_errno : -1, memory_order_relaxed);
    tei_host_peer_unwatch(p);
}

static void on_end(struct tei_watch *w, uint32_t events)
{
    (void)events;
    lose(tei_container_of(w, struct host_peer, life), 0);
}

static void on_peer(struct tei_watch *w, uint32_t events)
{
    struct host_peer *p = tei_container_of(w, struct host_peer, watch);
    int fds[HOST_FDS];
    struct host_msg m;
    pid_t sender;
    size_t n_fds = 0;
    int got;

    (void)events;
    errno = 0;
    got = tei_host_recv(w->fd, true, &m, fds, &n_fds, &sender);
    if (got < 0) {
        lose(p, errno);
        return;
    }
    if (got > 0 && m.type == HOST_MEMORY)
        on_memory(p, &m, n_fds ? fds[0] : -1);
    if (got > 0 && m.type == HOST_CHANGED) {
        pthread_mutex_lock(&p->lock);
        catch_up(p);
        pthread_mutex_unlock(&p->lock);
    }
    while (n_fds)
        tei_fd_close(fds[--n_fds]);
}

/* ------------------------------------------------------------------------------------ greeting */

static void free_peer(struct host_peer *p)
{
    for (size_t i = 0; i < p->n_by_slot; i++)
        if (p->by_slot[i])
            forget(p, p->by_slot[i]);
    free(p->by_slot);
    if (p->table)
        munmap((void *)(uintptr_t)p->table, sizeof(*p->table));
    if (p->hazards)
        munmap(p->hazards, sizeof(*p->hazards));
    if (p->fd >= 0)
        tei_fd_close(p->fd);
    if (p->pidfd >= 0)
        tei_fd_close(p->pidfd);
    if (p->ends >= 0)
        tei_fd_close(p->ends);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static bool adopt(struct host_peer *p, const int fds[2])
{
    if (!tei_pages_are_sealed(fds[0], sizeof(*p->table)) ||
        !tei_pages_are_sealed(fds[1], sizeof(*p->hazards)))
        return false;
    p->table = tei_pages_map(fds[0], sizeof(*p->table), false);
    p->hazards = tei_pages_map(fds[1], sizeof(*p->hazards), true);
    return p->table && p->hazards && p->table->magic == HOST_MAGIC &&
           p->table->version == HOST_VERSION && p->table->n_slots == HOST_SLOTS &&
           p->table->n_log == HOST_LOG;
}

/* Sends *m and waits for the answer, which takes its place; false unless it is of that type. */
static bool ask(struct host_peer *p, struct host_msg *m, enum host_type answer, int fds[HOST_FDS],
                size_t *n_fds, char *why)
{
    int64_t deadline_ns = tei_deadline_ns(p->h->conf->host_timeout_ms);
    struct pollfd f = {.fd = p->fd, .events = POLLIN};
    pid_t sender;
    int got = tei_host_send(p->fd, m, NULL, 0) ? 0 : -1;

    *n_fds = 0;
    while (got == 0 && poll(&f, 1, tei_left_ms(deadline_ns)) != 0)
        got = tei_host_recv(p->fd, true, m, fds, n_fds, &sender);
    if (got > 0 && m->type == answer)
        return true;
    if (got == 0)
        snprintf(why, WHY, "process %d has not answered in %lld ms (TE_HOST_TIMEOUT_MS)",
                 (int)p->pid, (long long)p->h->conf->host_timeout_ms);
    else
        snprintf(why, WHY,
                 "process %d has closed its socket: it serves another user (its uid must be ours, "
                 "unless we are root), or as many as it can",
                 (int)p->pid);
    while (*n_fds)
        tei_fd_close(fds[--*n_fds]);
    return false;
}

static const char *status_text(uint32_t status)
{
    switch (status) {
    case HOST_REFUSED:
        return "the descriptor is not its own";
    case HOST_FULL:
        return "it has no memory or descriptors left";
    case HOST_FOREIGN:
        return "we are in other namespaces, or it cannot see ours (TE_HOST_ANY_NAMESPACE there "
               "allows it)";
    case HOST_UNPROVED:
        return "it serves only those who prove who they are; set TE_AUTH here as it is there";
    default:
        return "for a reason that is not known here";
    }
}

static bool say_hello(struct host_peer *p, struct host_msg *welcome, char *why)
{
    struct host_msg m = {.magic = HOST_MAGIC, .version = HOST_VERSION, .type = HOST_HELLO};
    int fds[HOST_FDS];
    size_t n_fds;
    bool good;

    memcpy(m.nonce, p->nonce, HOST_NONCE);
    if (!ask(p, &m, HOST_WELCOME, fds, &n_fds, why))
        return false;
    good = m.status == HOST_OK && adopt(p, fds);
    if (m.status != HOST_OK)
        snprintf(why, WHY, "process %d refuses this one: %s", (int)p->pid, status_text(m.status));
    else if (!good)
        snprintf(why, WHY, "the pages of process %d are not sealed, or cannot be mapped: %s",
                 (int)p->pid, tei_errno_text(errno));
    while (n_fds)
        tei_fd_close(fds[--n_fds]);
    *welcome = m;
    return good;
}

/*
 * Whether the process of that number is the one that answers: it has written what we have just made
 * where it had said, and, if only the number led to its pidfd, it began when the owner says. Where the kernel does not let us look, nothing
 * is done with the number.
 */
static bool prove(struct host_peer *p, const struct host_msg *welcome, char *why)
{
    struct host_msg m = {.magic = HOST_MAGIC, .version = HOST_VERSION, .type = HOST_PROVE};
    unsigned char wanted[HOST_NONCE], found[HOST_NONCE] = {0};
    struct iovec to = {found, sizeof(found)};
    struct iovec from = {(void *)(uintptr_t)welcome->proof_at, sizeof(found)};
    struct tei_process process;
    int fds[HOST_FDS];
    size_t n_fds;

    tei_random(wanted, sizeof(wanted));
    memcpy(m.nonce, wanted, sizeof(wanted));
    if (!ask(p, &m, HOST_PROVED, fds, &n_fds, why))
        return false;
    if (process_vm_readv(p->pid, &to, 1, &from, 1, 0) < 0 && (errno == EPERM || errno == ENOSYS)) {
        p->memfd_only = true;
        return true;
    }
    if (memcmp(found, wanted, sizeof(wanted)) == 0 &&
        (!p->by_number ||
         (tei_process_look(p->pid, &process) && process.began == welcome->began)) &&
        !tei_host_who_has_ended(p->pidfd))
        return true;
    snprintf(why, WHY, "process %d is not the one that answers on its socket", (int)p->pid);
    return false;
}

/* Finds out who listens there; false if nobody does whom we may touch. */
static bool meet(struct host_peer *p, const char *name, char *why)
{
    uid_t own = geteuid(), uid;

    p->fd = tei_host_connect(name, p->h->conf->host_timeout_ms);
    if (p->fd < 0 || !tei_host_credentials(p->fd, &p->pid, &uid)) {
        snprintf(why, WHY, "its process cannot be reached on unix socket %s: %s", name,
                 tei_errno_text(errno));
        return false;
    }
    p->pidfd = tei_host_who_pidfd(p->fd, p->pid, &p->by_number);
    if (p->pidfd < 0 ? errno == ESRCH : tei_host_who_has_ended(p->pidfd)) {
        snprintf(why, WHY, "process %d has ended, and left its socket to another one", (int)p->pid);
        return false;
    }
    if ((uid != own && own != 0) || (uid == own && !tei_here_admits(uid))) {
        snprintf(why, WHY, "process %d runs as user %u, and this one as user %u", (int)p->pid,
                 (unsigned)uid, (unsigned)own);
        return false;
    }
    if (!p->h->conf->host_any_namespace && !tei_host_who_is_among_us(p->pid, why, WHY))
        return false;
    p->memfd_only = uid != own || p->pidfd < 0 || !tei_host_who_is_ours(p->pid);
    if (!tei_host_who_has_ended(p->pidfd))
        return true;
    snprintf(why, WHY, "process %d has just ended", (int)p->pid);
    return false;
}

/* What tells by one system call, which looks at neither while both live, that it has ended. */
static bool gather_ends(struct host_peer *p, char *why)
{
    struct epoll_event hangup = {.events = EPOLLRDHUP}, end = {.events = EPOLLIN};

    p->ends = tei_fd_own(epoll_create1(EPOLL_CLOEXEC));
    if (p->ends >= 0 && epoll_ctl(p->ends, EPOLL_CTL_ADD, p->fd, &hangup) == 0 &&
        (p->pidfd < 0 || epoll_ctl(p->ends, EPOLL_CTL_ADD, p->pidfd, &end) == 0))
        return true;
    snprintf(why, WHY, "its end cannot be watched: %s", tei_errno_text(errno));
    return false;
}

static bool greet(struct host_peer *p, const struct host_keys *k, const struct tei_ticket *ticket,
                  char *why)
{
    struct host_msg welcome;

    return meet(p, k->socket, why) && gather_ends(p, why) &&
           tei_host_auth_prove(p, ticket, why, WHY) && say_hello(p, &welcome, why) &&
           (p->memfd_only || prove(p, &welcome, why));
}

static struct host_peer *make_peer(struct host *h, const struct host_keys *k, const char *expected)
{
    struct host_peer *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->h = h;
    p->refs = 1;
    p->fd = p->pidfd = p->ends = -1;
    p->free_hazards = UINT64_MAX;
    memcpy(p->nonce, k->nonce, HOST_NONCE);
    p->expected = expected;
    pthread_mutex_init(&p->lock, NULL);
    tei_list_init(&p->maps);
    return p;
}

/* Referenced; under loop_lock. */
static struct host_peer *find_peer(struct host *h, const unsigned char nonce[HOST_NONCE],
                                   const char *expected)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&h->peers, link, tmp) {
        struct host_peer *p = tei_container_of(link, struct host_peer, link);

        if (memcmp(p->nonce, nonce, HOST_NONCE) == 0 && p->expected == expected &&
            !atomic_load_explicit(&p->broken, memory_order_relaxed)) {
            p->refs++;
            return p;
        }
    }
    return NULL;
}

static bool watch(struct host *h, struct host_peer *p)
{
    if (tei_watch_add(&h->loop, &p->watch, p->fd, EPOLLIN, on_peer) == 0 &&
        (p->pidfd < 0 || tei_watch_add(&h->loop, &p->life, p->pidfd, EPOLLIN, on_end) == 0))
        return true;
    tei_host_peer_unwatch(p);
    return false;
}

/* Puts it in the list; what another thread has put there meanwhile goes before. */
static int enter(struct host *h, struct host_peer *p, struct host_peer **out)
{
    int rc = 0;

    pthread_mutex_lock(&h->loop_lock);
    *out = find_peer(h, p->nonce, p->expected);
    if (!*out && h->n_peers == PEERS_MAX)
        rc = tei_err_keep(TE_ERR_UNSUPPORTED, "same host: too many peers of this host are open");
    else if (!*out && !watch(h, p))
        rc = tei_err_keep(TE_ERR_UNSUPPORTED, "same host: its socket cannot be watched");
    if (!*out && !rc) {
        tei_list_push_back(&h->peers, &p->link);
        h->n_peers++;
        *out = p;
    }
    pthread_mutex_unlock(&h->loop_lock);
    return rc;
}

int tei_host_peer_get(struct host *h, const struct host_keys *k, const char *expected,
                      const struct tei_ticket *ticket, struct host_peer **out)
{
    char why[WHY] = "no memory", text[WHY + 32];
    struct host_peer *p;
    int rc;

    pthread_mutex_lock(&h->loop_lock);
    *out = find_peer(h, k->nonce, expected);
    pthread_mutex_unlock(&h->loop_lock);
    if (*out)
        return 0;
    p = make_peer(h, k, expected);
    if (!p || !greet(p, k, ticket, why)) {
        if (p)
            free_peer(p);
        snprintf(text, sizeof(text), "same host: %s", why);
        return tei_err_keep(TE_ERR_UNSUPPORTED, text);
    }
    pthread_mutex_lock(&p->lock);
    catch_up(p);
    pthread_mutex_unlock(&p->lock);
    rc = enter(h, p, out);
    if (*out != p)
        free_peer(p);
    return rc;
}

void tei_host_peer_put(struct host_peer *p)
{
    struct host *h = p->h;
    bool last;

    pthread_mutex_lock(&h->loop_lock);
    last = --p->refs == 0;
    if (last) {
        tei_host_peer_unwatch(p);
        tei_list_del(&p->link);
        h->n_peers--;
    }
    pthread_mutex_unlock(&h->loop_lock);
    if (last)
        free_peer(p);
}
