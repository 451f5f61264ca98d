/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.c - opened segments: ids, descriptors, and fetching them again.
 *
 * A peer's current view is swapped under its lock; tasks keep the view they were routed by. An id
 * is generation and index, so a closed one is told from a live one.
 *
 * Parking. A request whose range the view lacks, that the target refused, or whose target could not
 * be reached, gets one fresh descriptor. It waits in `parked`; one job per peer (te/aux) moves all
 * of `parked` to `fetching`, fetches, swaps the view and routes them anew. What parks meanwhile
 * waits for the next fetch, since the one under way may have read the old state. A task that is
 * cancelled or passes its deadline is taken off either list by whoever notices, under the lock.
 */
#include "core/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_BITS      20
#define INDEX_MASK      ((1U << INDEX_BITS) - 1)
#define GEN_MASK        ((1U << (31 - INDEX_BITS)) - 1)
#define EXPIRE_EVERY_NS (10 * TEI_NS_PER_MS)

/* ---------------------------------------------------------------------------------------- table */

/* The peer of an id; peers_lock is held. */
static struct peer *find_peer(te_engine *e, te_segment id)
{
    size_t index = (uint32_t)id & INDEX_MASK;

    if (id < 0 || index >= e->n_peers || !e->peers[index] || e->peers[index]->id != id)
        return NULL;
    return e->peers[index];
}

struct view *tei_view_get(te_engine *e, te_segment id)
{
    struct view *v = NULL;
    struct peer *p;

    pthread_rwlock_rdlock(&e->peers_lock);
    p = find_peer(e, id);
    if (p)
        v = tei_view_current(p);
    pthread_rwlock_unlock(&e->peers_lock);
    return v;
}

void tei_peer_put(struct peer *p)
{
    if (atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&p->lock);
    free(p->name);
    free(p);
}

static bool is_of_files(struct peer *p)
{
    bool files;

    pthread_mutex_lock(&p->lock);
    files = p->view && p->view->seg && p->view->seg->files;
    pthread_mutex_unlock(&p->lock);
    return files;
}

int tei_peer_where(te_engine *e, te_segment id, bool fresh, struct tei_hostport *out)
{
    struct peer *p;
    int rc = 0;

    pthread_rwlock_rdlock(&e->peers_lock);
    p = find_peer(e, id);
    if (p)
        atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    pthread_rwlock_unlock(&e->peers_lock);
    if (!p)
        return TEI_FAIL(TE_ERR_NOT_FOUND,
                        "segment %d is not open in this engine; te_open() gives its id", (int)id);
    if (is_of_files(p)) {
        rc = TEI_FAIL(TE_ERR_UNSUPPORTED,
                      "segment '%s' is made of files: there is no engine that "
                      "could be told anything",
                      p->name);
    } else if (fresh) {
        rc = e->dir->ops->rpc_addr(e->dir, p->name, true, out);
    } else {
        pthread_mutex_lock(&p->lock);
        *out = p->where;
        pthread_mutex_unlock(&p->lock);
    }
    tei_peer_put(p);
    return rc;
}

void tei_peer_name(te_engine *e, te_segment id, char *buf, size_t n)
{
    const struct peer *p;

    pthread_rwlock_rdlock(&e->peers_lock);
    p = find_peer(e, id);
    if (p)
        snprintf(buf, n, "%s", p->name);
    else
        snprintf(buf, n, "%d", (int)id);
    pthread_rwlock_unlock(&e->peers_lock);
}

static int new_peer(te_engine *e, const char *name, struct peer **out)
{
    struct peer *p = calloc(1, sizeof(*p));

    if (p)
        p->name = strdup(name);
    if (!p || !p->name) {
        free(p);
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a segment");
    }
    p->engine = e;
    p->opens = 1;
    atomic_init(&p->refs, 1);
    pthread_mutex_init(&p->lock, NULL);
    tei_list_init(&p->parked);
    tei_list_init(&p->fetching);
    *out = p;
    return 0;
}

static int grow_table(te_engine *e)
{
    size_t cap = e->cap_peers ? e->cap_peers * 2 : 16;
    struct peer **peers = realloc(e->peers, cap * sizeof(struct peer *));
    uint32_t *gens;

    if (!peers)
        return TE_ERR_MEMORY;
    e->peers = peers;
    gens = realloc(e->peer_gens, cap * sizeof(*gens));
    if (!gens)
        return TE_ERR_MEMORY;
    e->peer_gens = gens;
    e->cap_peers = cap;
    return 0;
}

/* Whether the directory tells of changes; not of this engine itself, nor of a file's name. */
static bool is_followed(const te_engine *e, const struct peer *p)
{
    return p->id != TE_LOCAL_SEGMENT && e->dir->ops->follow && !tei_file_is_name(p->name);
}

/* Gives the peer an index and id; peers_lock is held for writing. */
static int enter_table(te_engine *e, struct peer *p)
{
    size_t i = e->n_peers ? 1 : 0;

    while (i < e->n_peers && e->peers[i])
        i++;
    if (i > INDEX_MASK)
        return TEI_FAIL(TE_ERR_TOO_MANY, "segment '%s': too many are open", p->name);
    if ((i == e->cap_peers && grow_table(e) != 0) ||
        !TEI_HASH_ADD(e->by_name, p->name, strlen(p->name), p))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a segment");
    if (i == e->n_peers) {
        e->peer_gens[i] = 0;
        e->n_peers++;
    }
    e->peers[i] = p;
    p->id = (te_segment)((e->peer_gens[i] << INDEX_BITS) | (uint32_t)i);
    if (is_followed(e, p))
        e->dir->ops->follow(e->dir, p->name, p->revision);
    return 0;
}

static void leave_table(te_engine *e, struct peer *p)
{
    size_t i = (uint32_t)p->id & INDEX_MASK;

    if (is_followed(e, p))
        e->dir->ops->forget(e->dir, p->name);
    HASH_DEL(e->by_name, p);
    tei_metrics_fold(e, &p->figures);
    e->peers[i] = NULL;
    e->peer_gens[i] = (e->peer_gens[i] + 1) & GEN_MASK;
}

/* ----------------------------------------------------------------------------------------- open */

/* An open of a name that is in the table already. */
static bool open_again(te_engine *e, const char *name, te_segment *out)
{
    struct peer *p;

    pthread_rwlock_wrlock(&e->peers_lock);
    HASH_FIND_STR(e->by_name, name, p);
    if (p) {
        p->opens++;
        *out = p->id;
    }
    pthread_rwlock_unlock(&e->peers_lock);
    return p != NULL;
}

/* A bare name may be found to be one of files: "x" is then opened as "nvmeof/x". */
static int call_files(struct peer *p)
{
    char *name;

    if (tei_keys_is_files(p->name))
        return 0;
    if (asprintf(&name, TEI_KEYS_FILES "%s", p->name) < 0)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the name of a segment");
    free(p->name);
    p->name = name;
    return 0;
}

/* `opening`: nobody else knows the peer yet, so its name may still change. */
static int look_up(struct peer *p, bool opening, const struct tei_segment *old,
                   struct tei_segment **out, struct tei_hostport *where)
{
    struct tei_directory *dir = p->engine->dir;
    int rc;

    if (tei_file_is_name(p->name))
        rc = tei_file_lookup(p->name, out);
    else
        rc = dir->ops->lookup(dir, p->name, old, out, where, opening ? &p->revision : NULL);
    if (rc || !(*out)->files)
        return rc;
    if (opening)
        rc = call_files(p);
    else if (!tei_keys_is_files(p->name))
        rc =
            TEI_FAIL(TE_ERR_NOT_FOUND,
                     "segment '%s': its engine is gone, and only files have the name now", p->name);
    if (!rc && opening)
        rc = tei_transports_admit(&p->engine->transports, p->name, *out);
    if (rc)
        tei_segment_put(*out);
    return rc;
}

/* Fetches the descriptor and puts a view of it in place. Blocks. */
static int fetch(struct peer *p, bool opening)
{
    struct tei_segment *seg, *old = NULL;
    struct tei_hostport where;
    int rc;

    pthread_mutex_lock(&p->lock);
    where = p->where;
    if (p->view) /* itself it is not held: te_close() would take that for a transfer */
        old = tei_segment_get(p->view->seg);
    pthread_mutex_unlock(&p->lock);

    if (old)
        atomic_fetch_add_explicit(&p->engine->count.refreshes, 1, memory_order_relaxed);
    rc = look_up(p, opening, old, &seg, &where);
    tei_segment_put(old);
    if (rc)
        return rc;
    rc = tei_view_install(p, seg, &where);
    tei_segment_put(seg);
    return rc;
}

/* Its view and the table's reference. A fetch under way keeps the struct until it is back. */
static void drop_peer(struct peer *p)
{
    tei_view_close(p);
    tei_peer_put(p);
}

static int open_new(te_engine *e, const char *name, te_segment *out)
{
    struct peer *p, *other;
    int rc = new_peer(e, name, &p);

    if (rc)
        return rc;
    rc = fetch(p, true);
    if (rc) {
        drop_peer(p);
        return rc;
    }
    pthread_rwlock_wrlock(&e->peers_lock);
    HASH_FIND_STR(e->by_name, p->name, other);
    if (other) {
        other->opens++;
        *out = other->id;
    } else {
        /* Who changes the transports makes the views anew of peers that are in the table. */
        rc = tei_view_is_outdated(p->view) ? tei_view_prepare(p) : 0;
        tei_view_take(p, !rc);
        if (!rc)
            rc = enter_table(e, p);
        if (!rc)
            *out = p->id;
    }
    pthread_rwlock_unlock(&e->peers_lock);
    if (other || rc)
        drop_peer(p);
    return rc;
}

int tei_peer_check_name(const char **name)
{
    if (!*name)
        return TEI_FAIL(TE_ERR_INVALID, "segment name is NULL");
    while (**name == '/')
        (*name)++;
    if (!**name)
        return TEI_FAIL(TE_ERR_INVALID, "segment name is empty");
    return 0;
}

int te_open(te_engine *e, const char *name, te_segment *out)
{
    int rc = tei_engine_check(e);

    if (!rc)
        rc = tei_peer_check_name(&name);
    if (!rc && !out)
        rc = TEI_FAIL(TE_ERR_INVALID, "the place for the id is NULL");
    if (rc)
        return rc;
    if (strcmp(name, e->name) == 0) {
        *out = TE_LOCAL_SEGMENT;
        return 0;
    }
    if (open_again(e, name, out))
        return 0;
    return open_new(e, name, out);
}

/*
 * No task holds a view; peers_lock is held for writing, so none can begin. A refresh may run, and
 * finds the peer closed.
 */
static bool is_unused(struct peer *p)
{
    bool unused;

    pthread_mutex_lock(&p->lock);
    unused =
        p->views - p->loose == 1 && atomic_load_explicit(&p->view->refs, memory_order_acquire) == 1;
    pthread_mutex_unlock(&p->lock);
    return unused;
}

int te_close(te_engine *e, te_segment id)
{
    struct peer *p;
    bool last;
    int rc = tei_engine_check(e);

    if (rc || id == TE_LOCAL_SEGMENT)
        return rc;
    pthread_rwlock_wrlock(&e->peers_lock);
    p = find_peer(e, id);
    if (!p)
        rc = TE_ERR_NOT_FOUND;
    else if (p->opens == 1 && !is_unused(p))
        rc = TE_ERR_BUSY;
    else if (--p->opens == 0)
        leave_table(e, p);
    last = p && p->opens == 0;
    pthread_rwlock_unlock(&e->peers_lock);
    if (rc == TE_ERR_NOT_FOUND)
        return TEI_FAIL(rc, "segment %d is not open in this engine; te_open() gives its id",
                        (int)id);
    if (rc)
        return TEI_FAIL(rc, "transfers use segment %d; wait for them or cancel them", (int)id);
    if (last)
        drop_peer(p);
    return 0;
}

int te_segment_buffers(te_engine *e, te_segment id, te_buffer *bufs, size_t n, size_t *total)
{
    struct view *v;
    int rc = tei_engine_check(e);

    if (!rc && !total)
        rc = TEI_FAIL(TE_ERR_INVALID, "the place for the number is NULL");
    if (rc)
        return rc;
    if (id == TE_LOCAL_SEGMENT) {
        *total = tei_region_buffers(&e->regions, bufs, n);
        return 0;
    }
    v = tei_view_get(e, id);
    if (!v)
        return TEI_FAIL(TE_ERR_NOT_FOUND, "segment %d is not open; te_open() gives its id",
                        (int)id);
    *total = v->seg->n_buffers;
    for (size_t i = 0; bufs && i < n && i < *total; i++)
        bufs[i] = (te_buffer){.addr = (void *)(uintptr_t)v->seg->buffers[i].addr,
                              .length = (size_t)v->seg->buffers[i].length};
    tei_view_put(v, 1);
    return 0;
}

/* -------------------------------------------------------------------------------------- parking */

static void count_parked(te_engine *e, size_t n)
{
    atomic_fetch_sub_explicit(&e->parked, n, memory_order_relaxed);
}

/* Ends a list of tasks taken off their peer. */
static void end_all(te_engine *e, struct tei_list *tasks, int error, const char *why)
{
    struct tei_link *l;

    while ((l = tei_list_pop(tasks))) {
        count_parked(e, 1);
        tei_task_end(tei_container_of(l, struct task, link), error, why);
    }
}

/* Ends tasks because of an error of the fetch, which `why` tells. */
static void end_unfetched(te_engine *e, struct tei_list *tasks, int error, const char *why)
{
    struct tei_link *l;

    while ((l = tei_list_pop(tasks))) {
        struct task *t = tei_container_of(l, struct task, link);
        const char *note = error == TE_ERR_CANCELED ? NULL : tei_batch_note(t->batch, why);

        count_parked(e, 1);
        tei_task_end(t, error, note);
    }
}

/* Buffers that touch count as one. */
static const char *why_stale(const struct task *t)
{
    const struct tei_segment *seg = t->view->seg;
    const struct tei_buffer *last;
    uint64_t done = 0, part;
    size_t at = 0;
    char text[224];

    if (seg->files)
        return "its files end before that";
    while (done < t->req.length &&
           tei_segment_cover(seg, t->req.target_offset + done, t->req.length - done, &at, &part))
        done += part;
    if (done == 0)
        return "its owner has not registered the range";
    last = &seg->buffers[at];
    snprintf(text, sizeof(text),
             "region 0x%llx + %llu ends %llu bytes before the end of the range; ask for less, or "
             "te_register() more at the target",
             (unsigned long long)last->addr, (unsigned long long)last->length,
             (unsigned long long)(t->req.length - done));
    return tei_batch_note(t->batch, text);
}

/* Cuts a task, without an errmsg: why it cannot be is told with the task. */
static int cut_again(struct plan *plan, struct task *t, const char **why)
{
    int rc = tei_task_canceled(t) ? TE_ERR_CANCELED : tei_plan_cut(plan, t);

    /* What is there for a transport that is not here is not missing there. */
    if (rc == TE_ERR_STALE && t->view->n_via == 0 && t->view->seg->offsets)
        rc = TE_ERR_UNSUPPORTED;
    *why = rc == TE_ERR_STALE         ? why_stale(t)
           : rc == TE_ERR_UNSUPPORTED ? "no installed transport reaches its engine"
                                      : NULL;
    return rc;
}

/* Cuts and posts tasks by the peer's current view. */
static void post_again(struct peer *p, struct tei_list *tasks)
{
    struct plan plan;
    struct tei_link *l;

    tei_plan_init(&plan, p->engine, NULL, 1);
    while ((l = tei_list_pop(tasks))) {
        struct task *t = tei_container_of(l, struct task, link);
        struct view *old = t->view;
        const char *why;
        int rc;

        count_parked(p->engine, 1);
        t->view = tei_view_current(p);
        tei_view_put(old, 1);
        atomic_store_explicit(&t->error, TE_ERR_OK, memory_order_relaxed);
        atomic_store_explicit(&t->state, TE_WAITING, memory_order_relaxed);
        rc = cut_again(&plan, t, &why);
        if (rc)
            tei_task_end(t, rc, why);
    }
    tei_plan_post(&plan);
}

/*
 * The tasks that the fetch was for go on, or end for reason rc. From the moment they leave the list
 * until they are with a transport they hold up te_cancel(), which would miss them in both places.
 */
static bool settle_fetched(struct peer *p, int rc, const char *why)
{
    te_engine *e = p->engine;
    struct tei_list tasks;
    bool more;

    tei_list_init(&tasks);
    pthread_rwlock_rdlock(&e->repost_lock);
    pthread_mutex_lock(&p->lock);
    tei_list_splice(&tasks, &p->fetching);
    more = !tei_list_empty(&p->parked) || p->again;
    p->refreshing = more;
    pthread_mutex_unlock(&p->lock);
    if (rc)
        end_unfetched(e, &tasks, rc, why);
    else
        post_again(p, &tasks);
    pthread_rwlock_unlock(&e->repost_lock);
    return more;
}

static void refresh_job(struct tei_job *j)
{
    struct peer *p = tei_container_of(j, struct peer, job);
    int rc;

    do {
        pthread_mutex_lock(&p->lock);
        tei_list_splice(&p->fetching, &p->parked);
        p->again = false;
        pthread_mutex_unlock(&p->lock);
        rc = atomic_load_explicit(&p->engine->closing, memory_order_relaxed) ? TE_ERR_CANCELED
                                                                             : fetch(p, false);
        /* It is the directory that was late, not the request. */
        if (rc == TE_ERR_TIMEOUT)
            rc = TE_ERR_PEER;
    } while (settle_fetched(p, rc, te_errmsg()));
    tei_peer_put(p);
}

/* Starts the job unless it runs; the lock is held. */
static bool begin_refresh(struct peer *p)
{
    if (p->refreshing)
        return false;
    p->refreshing = true;
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return true;
}

static void on_park_timer(struct tei_timer *t);

/* Watches deadlines as long as anything is parked. */
static void watch_parked(te_engine *e)
{
    pthread_mutex_lock(&e->ctl_lock);
    if (!atomic_load_explicit(&e->closing, memory_order_relaxed) && !e->park_timer.slot)
        tei_timer_start(&e->ctl, &e->park_timer, tei_now_ns() + EXPIRE_EVERY_NS, on_park_timer);
    pthread_mutex_unlock(&e->ctl_lock);
}

void tei_peer_park(struct peer *p, struct task *t)
{
    te_engine *e = p->engine;
    bool canceled, start = false;

    t->refreshed = true;
    /*
     * Counted before it is looked at, both in the one order of all such accesses, as te_cancel()
     * marks before it looks at the count: one of the two gets the task.
     */
    atomic_fetch_add(&e->parked, 1);
    pthread_mutex_lock(&p->lock);
    canceled = tei_task_canceled(t);
    if (!canceled) {
        tei_list_push_back(&p->parked, &t->link);
        start = begin_refresh(p);
    }
    pthread_mutex_unlock(&p->lock);
    if (canceled) {
        count_parked(e, 1);
        tei_task_end(t, TE_ERR_CANCELED, NULL);
        return;
    }
    watch_parked(e);
    if (start)
        tei_jobs_post(&e->fetches, &p->job, refresh_job);
}

/* Moves what is cancelled, or past `now`, or everything, off one list. */
static void pick_off(struct tei_list *from, struct tei_list *to, const struct batch *b,
                     int64_t now_ns)
{
    struct tei_link *l, *tmp;

    TEI_LIST_EACH(from, l, tmp) {
        struct task *t = tei_container_of(l, struct task, link);

        if (now_ns ? t->deadline_ns > now_ns : (b && (t->batch != b || !tei_task_canceled(t))))
            continue;
        tei_list_del(l);
        tei_list_push_back(to, l);
    }
}

/* The next peer from place *i on, which is moved behind it; NULL past the end. peers_lock is held. */
static struct peer *peer_from(const te_engine *e, size_t *i)
{
    struct peer *p = NULL;

    while (*i < e->n_peers && !p)
        p = e->peers[(*i)++];
    return p;
}

/* now_ns 0: those of `b` that are cancelled (NULL: all); else those whose deadline has passed. */
static void sweep_parked(te_engine *e, const struct batch *b, int64_t now_ns, int error)
{
    struct tei_list out;
    struct peer *p;

    if (atomic_load(&e->parked) == 0)
        return;
    tei_list_init(&out);
    pthread_rwlock_rdlock(&e->peers_lock);
    for (size_t i = 0; (p = peer_from(e, &i));) {
        pthread_mutex_lock(&p->lock);
        pick_off(&p->parked, &out, b, now_ns);
        pick_off(&p->fetching, &out, b, now_ns);
        pthread_mutex_unlock(&p->lock);
    }
    pthread_rwlock_unlock(&e->peers_lock);
    end_all(e, &out, error, "waiting for its descriptor");
}

void tei_peer_unpark(te_engine *e, const struct batch *b)
{
    sweep_parked(e, b, 0, TE_ERR_CANCELED);
}

/* On te/ctl, under its lock. */
static void on_park_timer(struct tei_timer *t)
{
    te_engine *e = tei_container_of(t, te_engine, park_timer);

    if (atomic_load(&e->parked) == 0)
        return;
    sweep_parked(e, NULL, tei_now_ns(), TE_ERR_TIMEOUT);
    tei_timer_start(&e->ctl, t, tei_now_ns() + EXPIRE_EVERY_NS, on_park_timer);
}

/* -------------------------------------------------------------------------------------- refresh */

void tei_peer_refresh(struct peer *p)
{
    te_engine *e = p->engine;
    bool start;

    if (atomic_load_explicit(&e->closing, memory_order_relaxed))
        return;
    pthread_mutex_lock(&p->lock);
    start = begin_refresh(p);
    p->again = !start; /* the fetch under way may have read the old state */
    pthread_mutex_unlock(&p->lock);
    if (start)
        tei_jobs_post(&e->fetches, &p->job, refresh_job);
}

void tei_peer_refresh_all(te_engine *e)
{
    struct peer *p;

    pthread_rwlock_rdlock(&e->peers_lock);
    for (size_t i = 1; (p = peer_from(e, &i));)
        tei_peer_refresh(p);
    pthread_rwlock_unlock(&e->peers_lock);
}

void tei_peer_changed(void *arg, const char *name)
{
    te_engine *e = arg;
    struct peer *p;

    pthread_rwlock_rdlock(&e->peers_lock);
    HASH_FIND_STR(e->by_name, name, p);
    if (p)
        tei_peer_refresh(p);
    pthread_rwlock_unlock(&e->peers_lock);
}

/* Whether te_open() of that name gave this peer: a bare one may have been that of files. */
static bool is_called(const struct peer *p, const char *name)
{
    size_t n = strlen(TEI_KEYS_FILES);

    return strcmp(p->name, name) == 0 ||
           (strncmp(p->name, TEI_KEYS_FILES, n) == 0 && strcmp(p->name + n, name) == 0);
}

/* The next peer of `name`, or of any, from index *i on, which it moves behind it; referenced. */
static struct peer *next_peer(te_engine *e, const char *name, size_t *i)
{
    struct peer *p = NULL;

    pthread_rwlock_rdlock(&e->peers_lock);
    for (; !p && *i < e->n_peers; ++*i)
        if (e->peers[*i] && (!name || is_called(e->peers[*i], name)))
            p = e->peers[*i];
    if (p)
        atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    pthread_rwlock_unlock(&e->peers_lock);
    return p;
}

int te_refresh(te_engine *e, const char *name)
{
    struct peer *p;
    size_t i = 1; /* behind this engine itself */
    bool found = false;
    int rc = tei_engine_check(e);

    if (!rc && name)
        rc = tei_peer_check_name(&name);
    if (rc)
        return rc;
    if (name && strcmp(name, e->name) == 0)
        return tei_publish_now(e);
    while ((p = next_peer(e, name, &i))) {
        int one = fetch(p, false);

        found = true;
        rc = rc ? rc : one;
        tei_peer_put(p);
    }
    if (name && !found)
        rc = TEI_FAIL(TE_ERR_NOT_FOUND, "segment '%s' is not open", name);
    return rc;
}

int tei_peer_rebuild(te_engine *e)
{
    struct peer *p;
    int rc = 0;

    pthread_rwlock_rdlock(&e->peers_lock);
    for (size_t i = 0; !rc && (p = peer_from(e, &i));)
        rc = tei_view_prepare(p);
    for (size_t i = 0; (p = peer_from(e, &i));)
        tei_view_take(p, !rc);
    pthread_rwlock_unlock(&e->peers_lock);
    return rc;
}

static bool is_named(const struct view *v, size_t index)
{
    for (size_t i = 0; i < v->n_via; i++)
        if (v->via[i].transport->index == index)
            return true;
    return false;
}

bool tei_peer_uses(te_engine *e, size_t index)
{
    size_t idle = 0;
    bool used = false, older = false;
    struct peer *p;

    pthread_rwlock_rdlock(&e->peers_lock);
    for (size_t i = 0; (p = peer_from(e, &i));) {
        pthread_mutex_lock(&p->lock);
        if (is_named(p->view, index)) {
            bool held = atomic_load_explicit(&p->view->refs, memory_order_acquire) > 1;

            used |= held;
            idle += !held;
        }
        older |= p->views - p->loose > 1;
        pthread_mutex_unlock(&p->lock);
    }
    pthread_rwlock_unlock(&e->peers_lock);
    return used || (older &&
                    atomic_load_explicit(&e->transports.views[index], memory_order_acquire) > idle);
}

/* ------------------------------------------------------------------------------------- lifetime */

int tei_peer_init(te_engine *e)
{
    struct peer *p;
    int rc = new_peer(e, e->name, &p);

    if (rc)
        return rc;
    rc = tei_view_install(p, NULL, &e->addr);
    if (!rc) {
        pthread_rwlock_wrlock(&e->peers_lock);
        rc = enter_table(e, p);
        pthread_rwlock_unlock(&e->peers_lock);
    }
    if (rc)
        drop_peer(p);
    return rc;
}

void tei_peer_fini(te_engine *e)
{
    struct peer *p;

    for (size_t i = 0; (p = peer_from(e, &i));) {
        leave_table(e, p);
        drop_peer(p);
    }
    free(e->peers);
    free(e->peer_gens);
    e->peers = NULL;
    e->n_peers = 0;
}
