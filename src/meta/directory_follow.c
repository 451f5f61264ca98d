/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_follow.c - which keys of a store are followed, and the thread that does it: te/watch.
 *
 * The thread hands a copy of the list to the store's watch(), which blocks; a change of the list
 * wakes it. Revisions come back from there, so nothing is missed between two watches. A burst of
 * changes costs few watches: the thread lets SETTLE_NS go by before it takes the next copy.
 *
 * After a failure it waits, longer each time: a store that is away has no changes to tell, and what
 * changed meanwhile is told once it is back.
 */
#include "meta/directory.h"

#include "base/err.h"
#include "base/hash.h"
#include "base/os.h"

#include <stdlib.h>
#include <string.h>

#define SETTLE_NS (20 * TEI_NS_PER_MS)
#define PAUSE_NS  (500 * TEI_NS_PER_MS)
#define PAUSE_MAX (4 * TEI_NS_PER_S)

struct followed {
    char *name, *key;
    int64_t revision;
    UT_hash_handle hh;
};

struct tei_follower {
    struct tei_store *store;
    void (*changed)(void *arg, const char *name);
    void *arg;
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t cond;
    struct followed *by_name;
    bool running, closing, dirty;
    pthread_t thread;
    char **names; /* of the watch under way, in the order of its keys; the thread's */
};

static void free_followed(struct followed *x)
{
    free(x->name);
    free(x->key);
    free(x);
}

/* ---- one watch */

static void on_change(void *arg, size_t i)
{
    struct tei_follower *f = arg;

    f->changed(f->arg, f->names[i]);
}

/* A copy of the list; false when memory is out. The lock is held. */
static bool copy_list(struct tei_follower *f, struct tei_watched **keys, size_t *n)
{
    size_t all = HASH_COUNT(f->by_name);
    struct followed *x, *tmp;

    *n = 0;
    *keys = calloc(all, sizeof **keys);
    f->names = calloc(all, sizeof *f->names);
    if (!*keys || !f->names)
        return false;
    HASH_ITER(hh, f->by_name, x, tmp) {
        f->names[*n] = strdup(x->name);
        (*keys)[*n] = (struct tei_watched){.key = strdup(x->key), .revision = x->revision};
        (*n)++;
        if (!f->names[*n - 1] || !(*keys)[*n - 1].key)
            return false;
    }
    return true;
}

/* Takes the revisions over, and frees the copy. The lock is held. */
static void give_back(struct tei_follower *f, struct tei_watched *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct followed *x = NULL;

        if (f->names[i])
            HASH_FIND_STR(f->by_name, f->names[i], x);
        if (x)
            x->revision = keys[i].revision;
        free(f->names[i]);
        free(keys[i].key);
    }
    free(f->names);
    free(keys);
}

/* The lock is held, but not meanwhile. */
static int watch(struct tei_follower *f)
{
    struct tei_watched *keys;
    size_t n;
    bool copied = copy_list(f, &keys, &n);
    int rc = TE_ERR_MEMORY;

    f->dirty = false;
    if (copied) {
        pthread_mutex_unlock(&f->lock);
        rc = f->store->ops->watch(f->store, keys, n, on_change, f);
        pthread_mutex_lock(&f->lock);
    }
    give_back(f, keys, n);
    return rc;
}

/* ---- the thread */

/* False when it is to end. The lock is held. */
static bool rest(struct tei_follower *f, int64_t ns)
{
    int64_t until_ns = tei_now_ns() + ns;

    while (!f->closing && tei_cond_wait_until(&f->cond, &f->lock, until_ns))
        continue;
    return !f->closing;
}

static void *follow_main(void *arg)
{
    struct tei_follower *f = arg;
    int64_t pause_ns = PAUSE_NS;

    pthread_mutex_lock(&f->lock);
    while (!f->closing) {
        if (!f->by_name) {
            pthread_cond_wait(&f->cond, &f->lock);
            continue;
        }
        if (watch(f) == 0) {
            pause_ns = PAUSE_NS;
            rest(f, SETTLE_NS);
        } else if (rest(f, pause_ns)) {
            pause_ns = pause_ns * 2 < PAUSE_MAX ? pause_ns * 2 : PAUSE_MAX;
        }
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* The list has changed; the lock is held. */
static void tell_thread(struct tei_follower *f)
{
    if (!f->dirty)
        f->store->ops->wake(f->store);
    f->dirty = true;
    pthread_cond_signal(&f->cond);
}

/* ---- from outside */

int tei_follower_open(struct tei_store *s, void (*changed)(void *arg, const char *name), void *arg,
                      struct tei_follower **out)
{
    struct tei_follower *f = calloc(1, sizeof *f);

    if (!f)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to follow segments");
    f->store = s;
    f->changed = changed;
    f->arg = arg;
    pthread_mutex_init(&f->lock, NULL);
    tei_cond_init(&f->cond);
    *out = f;
    return 0;
}

/* Enters it and starts the thread with the first; false: no memory. The lock is held. */
static bool enter(struct tei_follower *f, struct followed *x)
{
    if (!TEI_HASH_ADD(f->by_name, x->name, strlen(x->name), x))
        return false;
    if (!f->running)
        f->running = tei_thread_start(&f->thread, "te/watch", follow_main, f) == 0;
    tell_thread(f);
    return true;
}

static void warn_unfollowed(const char *name)
{
    TEI_WARN("no memory to follow segment %s: changes of it are seen at the next failure", name);
}

void tei_follower_add(struct tei_follower *f, const char *name, char *key, int64_t revision)
{
    struct followed *x = calloc(1, sizeof *x), *known;
    bool entered = false;

    if (x)
        *x = (struct followed){.name = strdup(name), .key = key, .revision = revision};
    if (!x || !x->name || !key) {
        warn_unfollowed(name);
        free(x ? x->name : NULL);
        free(key);
        free(x);
        return;
    }
    pthread_mutex_lock(&f->lock);
    HASH_FIND_STR(f->by_name, name, known);
    if (!known)
        entered = enter(f, x);
    pthread_mutex_unlock(&f->lock);
    if (!entered)
        free_followed(x);
    if (!entered && !known)
        warn_unfollowed(name);
}

void tei_follower_drop(struct tei_follower *f, const char *name)
{
    struct followed *x;

    pthread_mutex_lock(&f->lock);
    HASH_FIND_STR(f->by_name, name, x);
    if (x) {
        HASH_DEL(f->by_name, x);
        tell_thread(f);
    }
    pthread_mutex_unlock(&f->lock);
    if (x)
        free_followed(x);
}

void tei_follower_close(struct tei_follower *f)
{
    struct followed *x, *tmp;
    bool running;

    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->closing = true;
    running = f->running;
    f->store->ops->wake(f->store);
    pthread_cond_signal(&f->cond);
    pthread_mutex_unlock(&f->lock);
    if (running)
        pthread_join(f->thread, NULL);
    HASH_ITER(hh, f->by_name, x, tmp) {
        HASH_DEL(f->by_name, x);
        free_followed(x);
    }
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->cond);
    free(f);
}
