/* SPDX-License-Identifier: Apache-2.0 */
/*
 * publish.c - our own descriptor: its text, and telling the directory when it changes.
 *
 * Every change of the regions or transports raises engine.version, under the lock of what changes,
 * so a list and the version read with it belong together and pages of one version fit. A directory
 * that stores nothing (P2P) is asked nothing: peers fetch the text from us, and tei_publish_text()
 * makes it on demand, keeps it until the version moves on, and cuts pages out of it.
 *
 * A store wants the whole descriptor at each change, so a thousand registrations cost a thousand
 * growing puts. As long as the descriptor is small, or the call has brought a good part of it, that
 * is cheap, and te_register() returns only when the store has it: publishers queue up on
 * publish_lock, one puts, and the put covers everybody who came before it began. Else the put moves
 * to te/aux: at most one is under way and at most one waits, so any number of registrations cost few
 * puts. A peer that meets a range its copy lacks asks this engine itself, so it does not depend on
 * the store being up to date.
 *
 * A put that fails in the background is tried again after a pause that doubles, until the store
 * takes it; one that is too large for the store waits for a change.
 */
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

#define SYNC_REGIONS   2048
#define SYNC_PART      8 /* a call that changes 1/8 of all regions may wait for the store */
#define RETRY_FIRST_MS 500
#define RETRY_MAX_MS   30000

/* ------------------------------------------------------------------------------------------- text */

/*
 * The one whose keys the descriptor has at its top level: the most preferred that reaches other
 * hosts.
 */
static struct tei_transport *primary(te_engine *e)
{
    const struct tei_transport_ops *ops;

    for (size_t i = 0; (ops = tei_transport_at(i)); i++) {
        struct tei_transport *t = tei_transports_find(&e->transports, ops->name);

        if (t && (t->ops.caps & TEI_CAP_REMOTE))
            return t;
    }
    return NULL;
}

static int fill_buffer(void *arg, const char *protocol, const struct tei_published *b,
                       json_t *object)
{
    struct tei_transport *t = arg;

    if (protocol && strcmp(protocol, t->ops.name) != 0)
        return 0; /* tcp has no keys */
    return t->ops.describe_buffer(t, b->region, b->addr, object);
}

/* What the others add: the ways of this host and into memory of devices, and tcp beside rdma. */
static int describe_companions(te_engine *e, json_t *base, const struct tei_transport *leader)
{
    int rc = 0;

    for (size_t i = 0; !rc && i < e->transports.n; i++) {
        struct tei_transport *t = e->transports.list[i];

        if (t && t != leader && (t->ops.caps & (TEI_CAP_SAME_HOST | TEI_CAP_REMOTE)))
            rc = t->ops.describe(t, base);
    }
    return rc;
}

/* Whether the descriptor tells several protocols beside each other: TE_MULTI_PROTOCOL. */
static bool tells_several(te_engine *e)
{
    bool all = e->conf.multi_protocol;

    for (size_t i = 0; all && i < TEI_PROTOCOLS_TOLD; i++)
        all = tei_transports_find(&e->transports, tei_protocols_told[i]) != NULL;
    return all;
}

static json_t *protocol_of(const struct tei_encode *enc, const struct tei_transport *t)
{
    json_t *list;

    if (!enc->n_protocols)
        return json_string(t ? t->ops.name : "none");
    list = json_array();
    for (size_t i = 0; i < enc->n_protocols; i++)
        if (json_array_append_new(list, json_string(enc->protocols[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Protocol and its keys. Without a remote transport there is nothing for other hosts. */
static int fill_base(te_engine *e, const struct tei_encode *enc, struct tei_transport *t)
{
    json_t *base = enc->base;
    int rc;

    if (json_object_set_new(base, "protocol", protocol_of(enc, t)))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the descriptor");
    rc = t ? t->ops.describe(t, base) : 0;
    return rc ? rc : describe_companions(e, base, t);
}

/* Both locks are held. */
static int encode(te_engine *e, struct tei_transport *t, struct tei_encode *enc,
                  struct tei_segment_text **out)
{
    int rc;

    enc->base = json_object();
    if (!enc->base)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the descriptor");
    /* Buffers without keys of their own are written several times as fast. */
    enc->fill = t && (t->has & TEI_HAS_BUFFER_KEYS) ? fill_buffer : NULL;
    enc->arg = t;
    if (tells_several(e)) {
        enc->protocols = tei_protocols_told;
        enc->n_protocols = TEI_PROTOCOLS_TOLD;
    }
    rc = fill_base(e, enc, t);
    if (!rc)
        rc = tei_segment_text_new(enc, out);
    json_decref(enc->base);
    return rc;
}

/* Regions stay as they are until the text is made, since a transport may look into them. */
static int make_text(te_engine *e, struct tei_segment_text **out)
{
    struct tei_published *list;
    struct tei_transport *t;
    struct tei_encode enc = {.name = e->name, .incarnation = e->incarnation};
    int rc;

    pthread_rwlock_rdlock(&e->transports.lock);
    pthread_rwlock_rdlock(&e->regions.lock);
    t = primary(e);
    rc = tei_region_list(&e->regions, t ? t->ops.buffer_max(t) : UINT64_MAX, &list, &enc.n_buffers,
                         &enc.version);
    if (!rc) {
        enc.buffers = list;
        rc = encode(e, t, &enc, out);
        free(list);
    }
    pthread_rwlock_unlock(&e->regions.lock);
    pthread_rwlock_unlock(&e->transports.lock);
    return rc;
}

/*
 * The text of this version, held for the caller. It is made by one thread at a time, so those that
 * come while it is made find it made.
 */
static int current_text(te_engine *e, struct tei_segment_text **out)
{
    uint64_t version = atomic_load_explicit(&e->version, memory_order_acquire);
    int rc = 0;

    pthread_mutex_lock(&e->text_lock);
    if (!e->text || tei_segment_text_version(e->text) < version) {
        tei_segment_text_put(e->text);
        e->text = NULL;
        rc = make_text(e, &e->text);
    }
    if (!rc)
        *out = tei_segment_text_get(e->text);
    pthread_mutex_unlock(&e->text_lock);
    return rc;
}

int tei_publish_text(te_engine *e, size_t from, size_t max_bytes, char **text, size_t *len)
{
    struct tei_segment_text *t;
    int rc = current_text(e, &t);

    if (rc)
        return rc;
    rc = tei_segment_text_page(t, from, max_bytes, text, len);
    tei_segment_text_put(t);
    return rc;
}

/* ---------------------------------------------------------------------------------------- publish */

/* One put of what is true now; `covers` is the version that the store has after it. */
static int put_now(te_engine *e, uint64_t *covers)
{
    char *text;
    size_t len;
    int rc;

    *covers = atomic_load_explicit(&e->version, memory_order_acquire);
    rc = tei_publish_text(e, 0, 0, &text, &len);
    if (rc)
        return rc;
    rc = e->dir->ops->publish(e->dir, e->name, text, len);
    free(text);
    return rc;
}

/* Announces where that is due, and puts; nothing while another engine has our name. */
static int tell_store(te_engine *e, bool announce, uint64_t *covers)
{
    int rc = 0;

    *covers = atomic_load_explicit(&e->version, memory_order_acquire);
    if (atomic_load_explicit(&e->store_state, memory_order_relaxed) & STORE_TAKEN)
        return 0;
    if (announce)
        rc = e->dir->ops->announce(e->dir, e->name, &e->addr);
    if (!rc)
        rc = put_now(e, covers);
    tei_keep_note_put(e, rc);
    return rc == TE_ERR_EXISTS ? 0 : rc; /* ours come back when keep.c finds the others gone */
}

/*
 * Puts, as the only one; publish_lock is held and dropped meanwhile. Where it is due it also tells
 * again where we are, which a server that was started empty has lost. Nothing is put once the
 * engine is closing: tei_publish_stop() waits for the stretch in which `publishing` is set.
 */
static int put_alone(te_engine *e)
{
    bool announce = e->announce_due;
    uint64_t covers;
    int rc;

    if (atomic_load(&e->closing))
        return TE_ERR_CLOSED;
    e->publishing = true;
    e->announce_due = false;
    pthread_mutex_unlock(&e->publish_lock);
    rc = tell_store(e, announce, &covers);
    pthread_mutex_lock(&e->publish_lock);
    e->publishing = false;
    e->tried = covers;
    e->tried_rc = rc;
    if (rc)
        e->announce_due = true; /* who knows what it has lost when it is back */
    else if (!e->announce_due)
        e->published = covers;
    pthread_cond_broadcast(&e->publish_cond);
    return rc;
}

static void publish_job(struct tei_job *j);

static void post_job(te_engine *e)
{
    bool queue;

    pthread_mutex_lock(&e->publish_lock);
    queue = !e->publish_queued && !atomic_load_explicit(&e->closing, memory_order_relaxed);
    e->publish_queued |= queue;
    pthread_mutex_unlock(&e->publish_lock);
    if (queue)
        tei_jobs_post(&e->jobs, &e->publish_job, publish_job);
}

static void on_retry(struct tei_timer *t)
{
    post_job(tei_container_of(t, te_engine, publish_timer));
}

static int64_t next_pause(int64_t ms)
{
    return ms ? (int64_t)tei_min((size_t)ms * 2, RETRY_MAX_MS) : RETRY_FIRST_MS;
}

static void retry_later(te_engine *e, int64_t ms)
{
    int64_t when_ns = tei_now_ns() + ms * TEI_NS_PER_MS;

    pthread_mutex_lock(&e->ctl_lock);
    if (!atomic_load_explicit(&e->closing, memory_order_relaxed))
        tei_timer_start(&e->ctl, &e->publish_timer, when_ns, on_retry);
    pthread_mutex_unlock(&e->ctl_lock);
}

static bool is_behind(te_engine *e)
{
    return e->announce_due ||
           e->published < atomic_load_explicit(&e->version, memory_order_acquire);
}

static void publish_job(struct tei_job *j)
{
    te_engine *e = tei_container_of(j, te_engine, publish_job);
    int64_t pause_ms;
    int rc = 0;

    pthread_mutex_lock(&e->publish_lock);
    while (e->publishing)
        pthread_cond_wait(&e->publish_cond, &e->publish_lock);
    /* From here on a new change queues a new job. */
    e->publish_queued = false;
    if (is_behind(e))
        rc = put_alone(e);
    pause_ms =
        rc && rc != TE_ERR_TOO_LARGE && rc != TE_ERR_CLOSED ? next_pause(e->publish_retry_ms) : 0;
    e->publish_retry_ms = pause_ms;
    pthread_mutex_unlock(&e->publish_lock);
    if (pause_ms)
        retry_later(e, pause_ms);
}

void tei_publish_later(te_engine *e)
{
    if (e->dir->ops->stores)
        post_job(e);
}

void tei_publish_changed(struct tei_host *h)
{
    te_engine *e = tei_host_engine(h);

    atomic_fetch_add_explicit(&e->version, 1, memory_order_acq_rel);
    tei_publish_later(e);
}

void tei_publish_again(te_engine *e)
{
    pthread_mutex_lock(&e->publish_lock);
    e->announce_due = true;
    pthread_mutex_unlock(&e->publish_lock);
    post_job(e);
}

int tei_publish_now(te_engine *e)
{
    int rc = 0;

    if (!e->dir->ops->stores)
        return 0;
    pthread_mutex_lock(&e->publish_lock);
    while (e->publishing)
        pthread_cond_wait(&e->publish_cond, &e->publish_lock);
    e->announce_due = true;
    rc = put_alone(e);
    pthread_mutex_unlock(&e->publish_lock);
    return rc;
}

int tei_publish(te_engine *e, size_t n)
{
    uint64_t mine = atomic_load_explicit(&e->version, memory_order_acquire);
    bool waited = false;
    int rc = 0;

    if (!e->dir->ops->stores)
        return 0;
    if (e->regions.n > SYNC_REGIONS && n < e->regions.n / SYNC_PART) {
        post_job(e);
        return 0;
    }
    pthread_mutex_lock(&e->publish_lock);
    while (e->publishing && e->published < mine) {
        pthread_cond_wait(&e->publish_cond, &e->publish_lock);
        waited = true;
    }
    /* A try that was for this change, too, has failed for all who waited for it. */
    if (e->published < mine && waited && e->tried >= mine && e->tried_rc)
        rc =
            tei_err_keep(e->tried_rc, "the metadata server does not take this engine's descriptor; "
                                      "the log says why");
    else if (e->published < mine)
        rc = put_alone(e);
    pthread_mutex_unlock(&e->publish_lock);
    return rc;
}

void tei_publish_stop(te_engine *e)
{
    pthread_mutex_lock(&e->publish_lock);
    while (e->publishing)
        pthread_cond_wait(&e->publish_cond, &e->publish_lock);
    pthread_mutex_unlock(&e->publish_lock);
}

void tei_publish_fini(te_engine *e)
{
    tei_segment_text_put(e->text);
    e->text = NULL;
}
