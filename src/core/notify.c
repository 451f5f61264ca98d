/* SPDX-License-Identifier: Apache-2.0 */
/* notify.c - messages to and from peers, by themselves or after a submit's data. */
#include "core/core.h"

#include "base/source.h"

#include <stdlib.h>
#include <string.h>

#define INBOX_MAX       65536
#define INBOX_BYTES_MAX ((size_t)64 << 20)

static int64_t rpc_deadline(const te_engine *e)
{
    return tei_deadline_ns((int64_t)e->conf.handshake_connect_timeout_s * 1000);
}

/* ---------------------------------------------------------------------------------------- inbox */

/* An address that messages in the inbox came from. */
struct inbox_source {
    struct tei_source base; /* its users are messages */
    size_t bytes;
};

static void free_entry(struct inbox_entry *entry)
{
    free(entry->name);
    free(entry->msg);
    free(entry);
}

static void leave_source(const struct inbox_entry *entry)
{
    if (!entry->source)
        return;
    entry->source->bytes -= entry->bytes;
    tei_source_leave(&entry->source->base);
}

/*
 * No address may have more in the inbox than there is room left. So one alone gets half of it, each of
 * `n` that send all they can a part of n + 1, and there is room for the next one at any time.
 */
static bool has_room(const te_engine *e, const struct inbox_entry *entry)
{
    size_t free_n = INBOX_MAX - e->inbox_len, free_bytes = INBOX_BYTES_MAX - e->inbox_bytes;
    const struct inbox_source *s = entry->source;

    if (free_n == 0 || entry->bytes > free_bytes)
        return false;
    return !s || (s->base.users <= free_n && s->bytes <= free_bytes);
}

/* Inbox's lock held. */
static int add(te_engine *e, const uint8_t *key, struct inbox_entry *entry)
{
    if (key) {
        struct tei_source *base =
            tei_source_enter(&e->inbox_sources, key, sizeof(struct inbox_source));

        if (!base)
            return TE_ERR_MEMORY;
        entry->source = tei_container_of(base, struct inbox_source, base);
        entry->source->bytes += entry->bytes;
    }
    if (!has_room(e, entry)) {
        leave_source(entry);
        return TE_ERR_REJECTED;
    }
    tei_list_push_back(&e->inbox, &entry->link);
    e->inbox_len++;
    e->inbox_bytes += entry->bytes;
    return 0;
}

/* Takes over both strings, also when it fails. */
int tei_inbox_add(te_engine *e, const uint8_t *source, char *name, char *msg)
{
    struct inbox_entry *entry = calloc(1, sizeof(*entry));
    int rc;

    if (!entry) {
        free(name);
        free(msg);
        return TE_ERR_MEMORY;
    }
    entry->name = name;
    entry->msg = msg;
    entry->bytes = sizeof(*entry) + strlen(name) + strlen(msg) + 2;
    pthread_mutex_lock(&e->inbox_lock);
    rc = add(e, source, entry);
    pthread_mutex_unlock(&e->inbox_lock);
    if (!rc) {
        atomic_fetch_add_explicit(&e->count.received, 1, memory_order_relaxed);
        return 0;
    }
    free_entry(entry);
    if (rc == TE_ERR_MEMORY)
        return rc;
    return TEI_FAIL(
        rc,
        "inbox is full: of %d notifications and %zu bytes one sender's address may have "
        "half; te_notify_recv() takes them",
        INBOX_MAX, INBOX_BYTES_MAX);
}

int te_notify_recv(te_engine *e, te_notification **out, size_t *n)
{
    te_notification *arr = NULL;
    struct tei_link *l;
    size_t i = 0;
    int rc = tei_engine_check(e);

    if (rc)
        return rc;
    if (!out || !n)
        return TEI_FAIL(TE_ERR_INVALID, "the place for the messages is NULL");
    pthread_mutex_lock(&e->inbox_lock);
    if (e->inbox_len)
        arr = calloc(e->inbox_len, sizeof(*arr));
    while (arr && (l = tei_list_pop(&e->inbox))) {
        struct inbox_entry *entry = tei_container_of(l, struct inbox_entry, link);

        arr[i++] = (te_notification){.name = entry->name, .msg = entry->msg};
        leave_source(entry);
        free(entry);
    }
    if (arr)
        e->inbox_len = e->inbox_bytes = 0;
    else if (e->inbox_len)
        rc = TE_ERR_MEMORY;
    pthread_mutex_unlock(&e->inbox_lock);
    if (rc)
        return TEI_FAIL(rc, "no memory for the notifications; they are kept");
    *out = arr;
    *n = i;
    return 0;
}

void te_notify_free(te_notification *arr, size_t n)
{
    for (size_t i = 0; arr && i < n; i++) {
        free(arr[i].name);
        free(arr[i].msg);
    }
    free(arr);
}

void tei_inbox_fini(te_engine *e)
{
    struct tei_link *l;

    while ((l = tei_list_pop(&e->inbox))) {
        struct inbox_entry *entry = tei_container_of(l, struct inbox_entry, link);

        leave_source(entry);
        free_entry(entry);
    }
}

/* ------------------------------------------------------------------------------------- send now */

static int notify_self(te_engine *e, const char *name, const char *msg)
{
    char *n = strdup(name), *m = strdup(msg);

    if (n && m)
        return tei_inbox_add(e, NULL, n, m);
    free(n);
    free(m);
    return TEI_FAIL(TE_ERR_MEMORY, "no memory for a notification");
}

/*
 * An engine that was started again may answer elsewhere than at `where`, and one that was not up yet
 * answers nowhere there (port 0): the directory is asked then.
 */
static int notify_peer(te_engine *e, te_segment seg, struct tei_hostport where, const char *name,
                       const char *msg)
{
    int rc = where.port ? tei_rpc_notify(&where, name, msg, rpc_deadline(e)) : TE_ERR_PEER;

    if (rc == TE_ERR_PEER && tei_peer_where(e, seg, true, &where) == 0)
        rc = tei_rpc_notify(&where, name, msg, rpc_deadline(e));
    if (!rc)
        atomic_fetch_add_explicit(&e->count.notified, 1, memory_order_relaxed);
    return rc;
}

/* What the receiver could not read is not sent; its limit is taken to be ours. */
static int check_message(const te_engine *e, const char *name, const char *msg)
{
    char *body;
    size_t len;
    int rc;

    if (!name || !msg)
        return TEI_FAIL(TE_ERR_INVALID, "name or message of the notification is NULL");
    rc = tei_notify_encode(name, msg, &body);
    if (rc)
        return rc;
    len = strlen(body) + 2; /* type byte and newline */
    free(body);
    if (len > e->conf.handshake_max_length)
        return TEI_FAIL(TE_ERR_TOO_LARGE,
                        "notification of %zu bytes, at most %zu are taken; raise "
                        "MC_HANDSHAKE_MAX_LENGTH on both sides",
                        len, e->conf.handshake_max_length);
    return 0;
}

int te_notify(te_engine *e, te_segment seg, const char *name, const char *msg)
{
    struct tei_hostport where;
    int rc = tei_engine_check(e);

    if (!rc)
        rc = check_message(e, name, msg);
    if (rc)
        return rc;
    if (seg == TE_LOCAL_SEGMENT)
        return notify_self(e, name, msg);
    rc = tei_peer_where(e, seg, false, &where);
    return rc ? rc : notify_peer(e, seg, where, name, msg);
}

int te_probe(te_engine *e, const char *name)
{
    struct tei_hostport where;
    int rc = tei_engine_check(e);

    if (!rc)
        rc = tei_peer_check_name(&name);
    if (!rc)
        rc = e->dir->ops->rpc_addr(e->dir, name, true, &where);
    if (!rc)
        rc = tei_rpc_probe(&where, rpc_deadline(e));
    return rc;
}

/* ------------------------------------------------------------------- send after a submit's data */

void tei_group_free(struct group *g)
{
    if (!g)
        return;
    free(g->name);
    free(g->msg);
    free(g);
}

static void send_job(struct tei_job *j)
{
    struct group *g = tei_container_of(j, struct group, job);

    /* What cannot be delivered was logged where that was decided. */
    if (g->target == TE_LOCAL_SEGMENT)
        (void)notify_self(g->engine, g->name, g->msg);
    else
        (void)notify_peer(g->engine, g->target, g->where, g->name, g->msg);
    tei_group_free(g);
}

int tei_group_create(te_engine *e, const te_submit_opts *o, size_t n, struct group **out)
{
    struct group *g;
    int rc = check_message(e, o->notify_name, o->notify_msg);

    if (!rc && n == 0)
        rc = TEI_FAIL(
            TE_ERR_INVALID,
            "a notification needs at least one request to follow; te_notify() sends at once");
    if (rc)
        return rc;
    g = calloc(1, sizeof(*g));
    if (!g)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a notification");
    g->engine = e;
    g->target = o->notify_target;
    atomic_init(&g->left, n);
    g->name = strdup(o->notify_name);
    g->msg = strdup(o->notify_msg);
    if (!g->name || !g->msg)
        rc = TEI_FAIL(TE_ERR_MEMORY, "no memory for a notification");
    else if (g->target != TE_LOCAL_SEGMENT)
        rc = tei_peer_where(e, g->target, false, &g->where);
    if (rc) {
        tei_group_free(g);
        return rc;
    }
    *out = g;
    return 0;
}

void tei_group_done(struct group *g, size_t n, bool failed)
{
    if (failed)
        atomic_store_explicit(&g->failed, true, memory_order_relaxed);
    /* Acquire-release: the last one sees every `failed`. */
    if (atomic_fetch_sub_explicit(&g->left, n, memory_order_acq_rel) != n)
        return;
    if (atomic_load_explicit(&g->failed, memory_order_relaxed) ||
        atomic_load_explicit(&g->engine->closing, memory_order_relaxed))
        tei_group_free(g);
    else
        tei_jobs_post(&g->engine->jobs, &g->job, send_job);
}
