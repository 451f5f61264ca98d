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
    tei_message_fini(&entry->message);
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

/* Also when it fails. */
int tei_inbox_add(te_engine *e, const uint8_t *source, te_message *m)
{
    struct inbox_entry *entry = calloc(1, sizeof(*entry));
    int rc;

    if (!entry) {
        tei_message_fini(m);
        return TE_ERR_MEMORY;
    }
    entry->message = *m;
    entry->bytes = sizeof(*entry) + m->name_len + m->msg_len + 2;
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

/* Messages as an array of either kind of row; what an entry has goes over to its row. */
struct taken {
    size_t row; /* bytes of one */
    void (*fill)(void *row, const te_message *m);
    char *rows;
    size_t n;
};

static void fill_text(void *row, const te_message *m)
{
    *(te_notification *)row =
        (te_notification){.name = (char *)(uintptr_t)m->name, .msg = (char *)(uintptr_t)m->msg};
}

static void fill_bytes(void *row, const te_message *m)
{
    *(te_message *)row = *m;
}

static int take_all(te_engine *e, struct taken *t)
{
    struct tei_link *l;
    int rc = 0;

    pthread_mutex_lock(&e->inbox_lock);
    if (e->inbox_len)
        t->rows = calloc(e->inbox_len, t->row);
    while (t->rows && (l = tei_list_pop(&e->inbox))) {
        struct inbox_entry *entry = tei_container_of(l, struct inbox_entry, link);

        t->fill(t->rows + t->n++ * t->row, &entry->message);
        leave_source(entry);
        free(entry);
    }
    if (t->rows)
        e->inbox_len = e->inbox_bytes = 0;
    else if (e->inbox_len)
        rc = TE_ERR_MEMORY;
    pthread_mutex_unlock(&e->inbox_lock);
    return rc ? TEI_FAIL(rc, "no memory for the notifications; they are kept") : 0;
}

static int receive(te_engine *e, struct taken *t, void *out, size_t *n)
{
    int rc = tei_engine_check(e);

    if (!rc && (!out || !n))
        rc = TEI_FAIL(TE_ERR_INVALID, "the place for the messages is NULL");
    if (!rc)
        rc = take_all(e, t);
    if (!rc)
        *n = t->n;
    return rc;
}

int te_notify_recv(te_engine *e, te_notification **out, size_t *n)
{
    struct taken t = {.row = sizeof(**out), .fill = fill_text};
    int rc = receive(e, &t, out, n);

    if (!rc)
        *out = (te_notification *)(void *)t.rows;
    return rc;
}

int te_notify_recv_bytes(te_engine *e, te_message **out, size_t *n)
{
    struct taken t = {.row = sizeof(**out), .fill = fill_bytes};
    int rc = receive(e, &t, out, n);

    if (!rc)
        *out = (te_message *)(void *)t.rows;
    return rc;
}

void te_notify_free(te_notification *arr, size_t n)
{
    for (size_t i = 0; arr && i < n; i++) {
        free(arr[i].name);
        free(arr[i].msg);
    }
    free(arr);
}

void te_message_free(te_message *arr, size_t n)
{
    for (size_t i = 0; arr && i < n; i++)
        tei_message_fini(&arr[i]);
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

/* Of a message that is the caller's, or a group's. */
static int notify_self(te_engine *e, const te_message *m)
{
    te_message copy;

    if (tei_message_copy(m, &copy))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a notification");
    return tei_inbox_add(e, NULL, &copy);
}

/*
 * An engine that was started again may answer elsewhere than at `where`, and one that was not up yet
 * answers nowhere there (port 0): the directory is asked then.
 */
static int notify_peer(te_engine *e, te_segment seg, struct tei_hostport where, const te_message *m)
{
    int rc = where.port ? tei_rpc_notify(&where, m, rpc_deadline(e)) : TE_ERR_PEER;

    if (rc == TE_ERR_PEER && tei_peer_where(e, seg, true, &where) == 0)
        rc = tei_rpc_notify(&where, m, rpc_deadline(e));
    if (!rc)
        atomic_fetch_add_explicit(&e->count.notified, 1, memory_order_relaxed);
    return rc;
}

/* What the receiver could not read is not sent; its limit is taken to be ours. */
static int check_size(const te_engine *e, const te_message *m)
{
    char *body;
    size_t len;
    int rc = tei_notify_encode(m, &body);

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

/* A copy of what the caller gave, which can be sent. */
static int take_message(const te_engine *e, const te_message *m, te_message *out)
{
    int rc;

    if (!m || (!m->name && m->name_len) || (!m->msg && m->msg_len))
        return TEI_FAIL(TE_ERR_INVALID, "name or message of the notification is NULL");
    if (tei_message_copy(m, out))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a notification");
    rc = check_size(e, out);
    if (rc)
        tei_message_fini(out);
    return rc;
}

static int take_text(const te_engine *e, const char *name, const char *msg, te_message *out)
{
    if (!name || !msg)
        return TEI_FAIL(TE_ERR_INVALID, "name or message of the notification is NULL");
    return take_message(e, &(te_message){name, strlen(name), msg, strlen(msg)}, out);
}

/* Takes the copy over. */
static int notify(te_engine *e, te_segment seg, te_message *m)
{
    struct tei_hostport where;
    int rc;

    if (seg == TE_LOCAL_SEGMENT)
        return tei_inbox_add(e, NULL, m);
    rc = tei_peer_where(e, seg, false, &where);
    if (!rc)
        rc = notify_peer(e, seg, where, m);
    tei_message_fini(m);
    return rc;
}

int te_notify(te_engine *e, te_segment seg, const char *name, const char *msg)
{
    te_message m;
    int rc = tei_engine_check(e);

    if (!rc)
        rc = take_text(e, name, msg, &m);
    return rc ? rc : notify(e, seg, &m);
}

int te_notify_bytes(te_engine *e, te_segment seg, const te_message *m)
{
    te_message copy;
    int rc = tei_engine_check(e);

    if (!rc)
        rc = take_message(e, m, &copy);
    return rc ? rc : notify(e, seg, &copy);
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
    tei_message_fini(&g->message);
    free(g);
}

static void send_job(struct tei_job *j)
{
    struct group *g = tei_container_of(j, struct group, job);

    /* What cannot be delivered was logged where that was decided. */
    if (g->target == TE_LOCAL_SEGMENT)
        (void)notify_self(g->engine, &g->message);
    else
        (void)notify_peer(g->engine, g->target, g->where, &g->message);
    tei_group_free(g);
}

/* Takes the message over. */
static int make_group(te_engine *e, te_segment target, te_message *m, size_t n, struct group **out)
{
    struct group *g = calloc(1, sizeof(*g));
    int rc = 0;

    if (!g) {
        tei_message_fini(m);
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a notification");
    }
    g->engine = e;
    g->target = target;
    g->message = *m;
    atomic_init(&g->left, n);
    if (target != TE_LOCAL_SEGMENT)
        rc = tei_peer_where(e, target, false, &g->where);
    if (rc)
        tei_group_free(g);
    else
        *out = g;
    return rc;
}

/* What is too large is left out: the requests have nothing to do with it. */
int tei_group_create(te_engine *e, const te_submit_opts *o, size_t n, struct group **out)
{
    te_message m;
    int rc = take_text(e, o->notify_name, o->notify_msg, &m);

    if (rc == TE_ERR_TOO_LARGE) {
        TEI_WARN("the requests are submitted without their notification: %s", te_errmsg());
        return 0;
    }
    if (rc)
        return rc;
    if (n > 0)
        return make_group(e, o->notify_target, &m, n, out);
    tei_message_fini(&m);
    return TEI_FAIL(
        TE_ERR_INVALID,
        "a notification needs at least one request to follow; te_notify() sends at once");
}

int te_notify_after(te_engine *e, te_batch id, te_segment seg, const te_message *m)
{
    struct group *g = NULL;
    te_message copy;
    struct batch *b;
    int rc = tei_engine_check(e);

    if (!rc)
        rc = take_message(e, m, &copy);
    if (!rc)
        rc = make_group(e, seg, &copy, 1, &g);
    if (rc)
        return rc;
    b = tei_batch_pin(e, id);
    if (!b) {
        tei_group_free(g);
        return TEI_FAIL(TE_ERR_NOT_FOUND, "batch %llu does not exist", (unsigned long long)id);
    }
    tei_batch_after(b, g);
    tei_batch_unpin(e, id);
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
