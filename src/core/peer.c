/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.c - opened segments: ids, and the views of their descriptors.
 *
 * A peer's current view is swapped under its lock; tasks keep the view they were routed by. An id
 * is generation and index, so a closed one is told from a live one.
 *
 * A name is open once for whatever engine has it, and once for each of its lives that te_open_life() was asked for.
 */
#include "core/peer.h"
#include "base/probe.h"
#include "core/core.h"
#include "core/life.h"
#include "core/rules.h"
#include "core/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_BITS 20
#define INDEX_MASK ((1U << INDEX_BITS) - 1)
#define GEN_MASK   ((1U << (31 - INDEX_BITS)) - 1)

/* ---------------------------------------------------------------------------------------- table */

/* The peer of an id; peers.lock is held. */
static struct peer *find_peer(struct peers *s, te_segment id)
{
    size_t index = (uint32_t)id & INDEX_MASK;

    if (id < 0 || index >= s->n || !s->list[index] || s->list[index]->id != id)
        return NULL;
    return s->list[index];
}

struct peer *tei_peer_from(const struct peers *s, size_t *i)
{
    struct peer *p = NULL;

    while (*i < s->n && !p)
        p = s->list[(*i)++];
    return p;
}

struct view *tei_view_get(struct peers *s, te_segment id)
{
    struct view *v = NULL;
    struct peer *p;

    pthread_rwlock_rdlock(&s->lock);
    p = find_peer(s, id);
    if (p)
        v = tei_view_current(p);
    pthread_rwlock_unlock(&s->lock);
    return v;
}

static void free_peer(struct peer *p)
{
    free(p->rules);
    free(p->name);
    free(p);
}

void tei_peer_put(struct peer *p)
{
    if (atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&p->doubts.lock);
    pthread_mutex_destroy(&p->lock);
    free_peer(p);
}

/* Whether nothing can be said to its engine, and why. The view is not held, which te_close() would take for a transfer. */
static int check_speakable(struct peer *p)
{
    bool over, files;
    uint64_t instead;

    pthread_mutex_lock(&p->lock);
    over = p->view && p->view->over;
    instead = over ? p->view->instead : 0;
    files = p->view && p->view->seg && p->view->seg->files;
    pthread_mutex_unlock(&p->lock);
    if (over)
        return tei_life_fail_now(p, instead);
    if (files)
        return TEI_FAIL(TE_ERR_UNSUPPORTED,
                        "segment '%s' is made of files: there is no engine that "
                        "could be told anything",
                        p->name);
    return 0;
}

int tei_peer_where(te_engine *e, te_segment id, bool fresh, struct tei_hostport *out)
{
    struct peer *p;
    int rc = 0;

    pthread_rwlock_rdlock(&e->peers.lock);
    p = find_peer(&e->peers, id);
    if (p)
        atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    pthread_rwlock_unlock(&e->peers.lock);
    if (!p)
        return TEI_FAIL(TE_ERR_NOT_FOUND,
                        "segment %d is not open in this engine; te_open() gives its id", (int)id);
    rc = check_speakable(p);
    if (!rc && fresh) {
        rc = e->dir->ops->rpc_addr(e->dir, p->name, true, out);
    } else if (!rc) {
        pthread_mutex_lock(&p->lock);
        *out = p->where;
        pthread_mutex_unlock(&p->lock);
    }
    tei_peer_put(p);
    return rc;
}

uint64_t tei_peer_life(struct peers *s, te_segment id)
{
    const struct peer *p;
    uint64_t life;

    pthread_rwlock_rdlock(&s->lock);
    p = find_peer(s, id);
    life = p ? p->life : 0;
    pthread_rwlock_unlock(&s->lock);
    return life;
}

void tei_peer_name(struct peers *s, te_segment id, char *buf, size_t n)
{
    const struct peer *p;

    pthread_rwlock_rdlock(&s->lock);
    p = find_peer(s, id);
    if (p)
        snprintf(buf, n, "%s", p->name);
    else
        snprintf(buf, n, "%d", (int)id);
    pthread_rwlock_unlock(&s->lock);
}

/* What a segment is opened for. */
struct wish {
    const struct rules *rules; /* NULL: there are none */
    bool one_life;
    uint64_t life; /* 0: the one that there is now */
};

/* With room for the number of a life. */
static char *copy_name(const char *name)
{
    size_t n = strlen(name) + 1;
    char *copy = calloc(1, n + sizeof(uint64_t));

    if (copy)
        memcpy(copy, name, n);
    return copy;
}

static int new_peer(te_engine *e, const char *name, const struct wish *x, struct peer **out)
{
    struct peer *p = calloc(1, sizeof(*p));

    if (!p)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a segment");
    p->name = copy_name(name);
    p->one_life = x->one_life;
    p->life = x->life;
    if (x->rules)
        p->rules = malloc(sizeof(*x->rules));
    if (p->rules)
        *p->rules = *x->rules;
    if (!p->name || (x->rules && !p->rules)) {
        free_peer(p);
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a segment");
    }
    p->engine = e;
    p->opens = 1;
    atomic_init(&p->refs, 1);
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->doubts.lock, NULL);
    tei_list_init(&p->parked);
    tei_list_init(&p->fetching);
    *out = p;
    return 0;
}

static int grow_table(struct peers *s)
{
    size_t cap = s->cap ? s->cap * 2 : 16;
    struct peer **peers = realloc(s->list, cap * sizeof(struct peer *));
    uint32_t *gens;

    if (!peers)
        return TE_ERR_MEMORY;
    s->list = peers;
    gens = realloc(s->gens, cap * sizeof(*gens));
    if (!gens)
        return TE_ERR_MEMORY;
    s->gens = gens;
    s->cap = cap;
    return 0;
}

/* Whether the directory is to tell of changes: not of this engine itself, nor of a file's name. */
static bool is_followed(const struct peer *p)
{
    return p->id != TE_LOCAL_SEGMENT && !tei_file_is_name(p->name);
}

/* Enters it by its name, or by its name and its life. */
static bool enter_names(struct peers *s, struct peer *p)
{
    size_t n = strlen(p->name);

    if (p->one_life) {
        memcpy(p->name + n + 1, &p->life, sizeof(p->life));
        n += 1 + sizeof(p->life);
    }
    if (!TEI_HASH_ADD(s->by_name, p->name, n, p))
        return false;
    s->n_lives += p->one_life;
    return true;
}

/* The lock is held. */
static struct peer *find_named(const struct peers *s, const char *name, const struct wish *x)
{
    struct peer *p;

    if (!x->one_life) {
        HASH_FIND_STR(s->by_name, name, p);
        return p;
    }
    for (size_t i = 1; s->n_lives && (p = tei_peer_from(s, &i));)
        if (p->one_life && p->life == x->life && strcmp(p->name, name) == 0)
            return p;
    return NULL;
}

/* Whether it is open otherwise, too. The lock is held. */
static bool has_namesake(const struct peers *s, const char *name)
{
    const struct peer *p;

    for (size_t i = 1; s->n_lives && (p = tei_peer_from(s, &i));)
        if (strcmp(p->name, name) == 0)
            return true;
    HASH_FIND_STR(s->by_name, name, p);
    return p != NULL;
}

/* Gives the peer an index and id; peers.lock is held for writing. */
static int enter_table(te_engine *e, struct peer *p)
{
    size_t i = e->peers.n ? 1 : 0;

    while (i < e->peers.n && e->peers.list[i])
        i++;
    if (i > INDEX_MASK)
        return TEI_FAIL(TE_ERR_TOO_MANY, "segment '%s': too many are open", p->name);
    if ((i == e->peers.cap && grow_table(&e->peers) != 0) || !enter_names(&e->peers, p))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a segment");
    if (i == e->peers.n) {
        e->peers.gens[i] = 0;
        e->peers.n++;
    }
    e->peers.list[i] = p;
    p->id = (te_segment)((e->peers.gens[i] << INDEX_BITS) | (uint32_t)i);
    if (is_followed(p))
        e->dir->ops->follow(e->dir, p->name, p->revision);
    return 0;
}

static void leave_table(te_engine *e, struct peer *p)
{
    size_t i = (uint32_t)p->id & INDEX_MASK;

    HASH_DEL(e->peers.by_name, p);
    e->peers.n_lives -= p->one_life;
    tei_metrics_fold(e, p);
    e->peers.list[i] = NULL;
    if (is_followed(p) && !has_namesake(&e->peers, p->name))
        e->dir->ops->forget(e->dir, p->name);
    e->peers.gens[i] = (e->peers.gens[i] + 1) & GEN_MASK;
}

/* ----------------------------------------------------------------------------------------- open */

/* One more open of a peer that is in the table, whose lock is held. Without rules it is open by those that it has. */
static int open_more(struct peer *p, const struct wish *x, te_segment *out)
{
    char text[256];
    int rc = p->one_life ? check_speakable(p) : 0;

    if (rc)
        return rc;
    if (x->rules && !tei_rules_equal(x->rules, p->rules)) {
        tei_rules_text(p->rules, text, sizeof(text));
        return TEI_FAIL(TE_ERR_EXISTS, "segment '%s' is open already, with other paths: %s",
                        p->name, text);
    }
    p->opens++;
    *out = p->id;
    return 0;
}

/* An open of a name that is in the table already; what comes of it is in *rc. */
static bool open_again(struct peers *s, const char *name, const struct wish *x, te_segment *out,
                       int *rc)
{
    struct peer *p;

    pthread_rwlock_wrlock(&s->lock);
    p = find_named(s, name, x);
    if (p)
        *rc = open_more(p, x, out);
    pthread_rwlock_unlock(&s->lock);
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
    if (p->one_life)
        rc = tei_life_fail_files(p->name);
    else if (opening)
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

/*
 * The descriptor was fetched for a peer of one life: whether it is of that, which the engine is asked itself where
 * the segment is being opened.
 */
static int install_life(struct peer *p, bool opening, struct tei_segment *seg,
                        const struct tei_hostport *where)
{
    int rc = opening ? tei_life_admit(p, seg, where) : 0;

    if (rc)
        return rc;
    if (seg->incarnation == p->life)
        return tei_view_install(p, seg, where);
    rc = tei_view_end_life(p, seg->incarnation);
    return rc ? rc : tei_life_fail_now(p, seg->incarnation);
}

int tei_peer_fetch(struct peer *p, bool opening)
{
    struct tei_segment *seg, *old = NULL;
    struct tei_hostport where;
    int rc = p->one_life && !opening ? check_speakable(p) : 0;

    if (rc) /* its life is over, and there is nothing to ask */
        return rc;

    pthread_mutex_lock(&p->lock);
    where = p->where;
    if (p->view) /* itself it is not held: te_close() would take that for a transfer */
        old = tei_segment_get(p->view->seg);
    pthread_mutex_unlock(&p->lock);

    if (old)
        atomic_fetch_add_explicit(&p->engine->count.refreshes, 1, memory_order_relaxed);
    TEI_PROBE2(refresh, p->engine, p->name);
    rc = look_up(p, opening, old, &seg, &where);
    tei_segment_put(old);
    if (rc)
        return rc;
    rc = p->one_life ? install_life(p, opening, seg, &where) : tei_view_install(p, seg, &where);
    tei_segment_put(seg);
    return rc;
}

/* Its view and the table's reference. A fetch under way keeps the struct until it is back. */
static void drop_peer(struct peer *p)
{
    tei_view_close(p);
    tei_peer_put(p);
}

static int open_new(te_engine *e, const char *name, const struct wish *x, te_segment *out)
{
    struct peer *p, *other;
    struct wish known = *x;
    int rc = new_peer(e, name, x, &p);

    if (rc)
        return rc;
    rc = tei_peer_fetch(p, true);
    if (!rc && p->one_life)
        rc = tei_life_check_paths(p->view);
    known.life = p->life;
    if (rc) {
        drop_peer(p);
        return rc;
    }
    pthread_rwlock_wrlock(&e->peers.lock);
    other = find_named(&e->peers, p->name, &known);
    if (other) {
        rc = open_more(other, x, out);
    } else {
        /* Who changes the transports makes the views anew of peers that are in the table. */
        rc = tei_view_is_outdated(p->view) ? tei_view_prepare(p) : 0;
        tei_view_take(p, !rc);
        if (!rc)
            rc = enter_table(e, p);
        if (!rc)
            *out = p->id;
    }
    pthread_rwlock_unlock(&e->peers.lock);
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

/* This engine itself, whose segment is open from the start. */
static int open_self(te_engine *e, const struct wish *x, te_segment *out)
{
    if (x->rules)
        return TEI_FAIL(TE_ERR_INVALID,
                        "'%s' is this engine itself, whose segment is open: te_submit_opts has the "
                        "paths of its requests",
                        e->name);
    if (x->life && x->life != e->incarnation)
        return tei_life_fail_other(e->name, x->life, e->incarnation);
    *out = TE_LOCAL_SEGMENT;
    return 0;
}

static int open_wish(te_engine *e, const char *name, const te_paths *paths, struct wish x,
                     te_segment *out)
{
    struct rules rules;
    bool ruled = false;
    int rc = tei_engine_check(e);

    if (!rc)
        rc = tei_peer_check_name(&name);
    if (!rc && !out)
        rc = TEI_FAIL(TE_ERR_INVALID, "the place for the id is NULL");
    if (!rc)
        rc = tei_rules_read(paths, &rules, &ruled);
    if (!rc && x.one_life && tei_keys_is_files(name))
        rc = tei_life_fail_files(name);
    if (rc)
        return rc;
    x.rules = ruled ? &rules : NULL;
    if (strcmp(name, e->name) == 0)
        return open_self(e, &x, out);
    /* Which life a name has now is to be asked. */
    if ((!x.one_life || x.life) && open_again(&e->peers, name, &x, out, &rc))
        return rc;
    return open_new(e, name, &x, out);
}

int te_open_with(te_engine *e, const char *name, const te_paths *paths, te_segment *out)
{
    return open_wish(e, name, paths, (struct wish){0}, out);
}

int te_open_life(te_engine *e, const char *name, uint64_t incarnation, const te_paths *paths,
                 te_segment *out)
{
    return open_wish(e, name, paths, (struct wish){.one_life = true, .life = incarnation}, out);
}

uint64_t te_incarnation(const te_engine *e)
{
    return tei_engine_check(e) ? 0 : e->incarnation;
}

int te_segment_incarnation(te_engine *e, te_segment id, uint64_t *out)
{
    struct view *v;
    int rc = tei_engine_check(e);

    if (!rc && !out)
        rc = TEI_FAIL(TE_ERR_INVALID, "the place for the incarnation is NULL");
    if (rc)
        return rc;
    v = tei_view_get(&e->peers, id);
    if (!v)
        return TEI_FAIL(TE_ERR_NOT_FOUND, "segment %d is not open; te_open() gives its id",
                        (int)id);
    *out = v->seg ? v->seg->incarnation : e->incarnation;
    tei_view_put(v, 1);
    return 0;
}

int te_open(te_engine *e, const char *name, te_segment *out)
{
    return te_open_with(e, name, NULL, out);
}

/*
 * No task holds a view; peers.lock is held for writing, so none can begin. A refresh may run, and
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
    pthread_rwlock_wrlock(&e->peers.lock);
    p = find_peer(&e->peers, id);
    if (!p)
        rc = TE_ERR_NOT_FOUND;
    else if (p->opens == 1 && !is_unused(p))
        rc = TE_ERR_BUSY;
    else if (--p->opens == 0)
        leave_table(e, p);
    last = p && p->opens == 0;
    pthread_rwlock_unlock(&e->peers.lock);
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
    v = tei_view_get(&e->peers, id);
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
/* -------------------------------------------------------------------------------------- refresh */

/* Whether te_open() of that name gave this peer: a bare one may have been that of files. */
static bool is_called(const struct peer *p, const char *name)
{
    size_t n = strlen(TEI_KEYS_FILES);

    return strcmp(p->name, name) == 0 ||
           (strncmp(p->name, TEI_KEYS_FILES, n) == 0 && strcmp(p->name + n, name) == 0);
}

/* The next peer of `name`, or of any, from index *i on, which it moves behind it; referenced. */
static struct peer *next_peer(struct peers *s, const char *name, size_t *i)
{
    struct peer *p = NULL;

    pthread_rwlock_rdlock(&s->lock);
    for (; !p && *i < s->n; ++*i)
        if (s->list[*i] && (!name || is_called(s->list[*i], name)))
            p = s->list[*i];
    if (p)
        atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    pthread_rwlock_unlock(&s->lock);
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
    while ((p = next_peer(&e->peers, name, &i))) {
        int one = tei_peer_fetch(p, false);

        found = true;
        rc = rc ? rc : one;
        tei_peer_put(p);
    }
    if (name && !found)
        rc = TEI_FAIL(TE_ERR_NOT_FOUND, "segment '%s' is not open", name);
    return rc;
}

int tei_peer_rebuild(struct peers *s)
{
    struct peer *p;
    int rc = 0;

    pthread_rwlock_rdlock(&s->lock);
    for (size_t i = 0; !rc && (p = tei_peer_from(s, &i));)
        rc = tei_view_prepare(p);
    for (size_t i = 0; (p = tei_peer_from(s, &i));)
        tei_view_take(p, !rc);
    pthread_rwlock_unlock(&s->lock);
    return rc;
}

/* The peer's doubts are locked. */
static bool is_held(const struct peer *p, const struct tei_transport *t)
{
    const te_request all = {.opcode = TE_WRITE, .length = UINT64_MAX};

    for (size_t i = 0; p->view && i < p->view->n_via; i++) {
        const struct via *via = &p->view->via[i];

        if (via->transport == t && t->ops.holds(via->transport, via->attach, &all))
            return true;
    }
    return false;
}

bool tei_peer_held(struct peers *s, const struct tei_transport *t, char *name, size_t n)
{
    struct peer *p;
    bool found = false;

    pthread_rwlock_rdlock(&s->lock);
    for (size_t i = 0; !found && (p = tei_peer_from(s, &i));) {
        pthread_mutex_lock(&p->doubts.lock);
        found = is_held(p, t);
        pthread_mutex_unlock(&p->doubts.lock);
        if (found)
            snprintf(name, n, "%s", p->name);
    }
    pthread_rwlock_unlock(&s->lock);
    return found;
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

    pthread_rwlock_rdlock(&e->peers.lock);
    for (size_t i = 0; (p = tei_peer_from(&e->peers, &i));) {
        pthread_mutex_lock(&p->lock);
        if (is_named(p->view, index)) {
            bool held = atomic_load_explicit(&p->view->refs, memory_order_acquire) > 1;

            used |= held;
            idle += !held;
        }
        older |= p->views - p->loose > 1;
        pthread_mutex_unlock(&p->lock);
    }
    pthread_rwlock_unlock(&e->peers.lock);
    return used || (older &&
                    atomic_load_explicit(&e->transports.views[index], memory_order_acquire) > idle);
}
/* ------------------------------------------------------------------------------------- lifetime */

void tei_peers_init(struct peers *s)
{
    pthread_rwlock_init(&s->lock, NULL);
}

int tei_peers_start(te_engine *e)
{
    struct peer *p;
    int rc = new_peer(e, e->name, &(struct wish){0}, &p);

    if (rc)
        return rc;
    rc = tei_view_install(p, NULL, &e->addr);
    if (!rc) {
        pthread_rwlock_wrlock(&e->peers.lock);
        rc = enter_table(e, p);
        pthread_rwlock_unlock(&e->peers.lock);
    }
    if (rc)
        drop_peer(p);
    return rc;
}

void tei_peers_fini(te_engine *e)
{
    struct peer *p;

    for (size_t i = 0; (p = tei_peer_from(&e->peers, &i));) {
        leave_table(e, p);
        drop_peer(p);
    }
    free(e->peers.list);
    free(e->peers.gens);
    pthread_rwlock_destroy(&e->peers.lock);
}
