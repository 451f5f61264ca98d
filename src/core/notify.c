/* SPDX-License-Identifier: Apache-2.0 */
/* notify.c - messages to peers, by themselves or after a submit's data. */
#include "core/notify.h"
#include "core/core.h"
#include "core/complete.h"

#include <stdlib.h>
#include <string.h>

static int64_t rpc_deadline(const struct tei_conf *conf)
{
    return tei_deadline_ns((int64_t)conf->handshake_connect_timeout_s * 1000);
}

/* ------------------------------------------------------------------------------------- send now */

/* Of a message that is the caller's, or a group's. */
static int notify_self(struct inbox *s, const te_message *m)
{
    te_message copy;

    if (tei_message_copy(m, &copy))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a notification");
    return tei_inbox_add(s, NULL, &copy);
}

/*
 * An engine that was started again may answer elsewhere than at `where`, and one that was not up yet
 * answers nowhere there (port 0): the directory is asked then.
 */
static int notify_peer(te_engine *e, te_segment seg, uint64_t life, struct tei_hostport where,
                       const te_message *m)
{
    int rc = where.port ? tei_rpc_notify(e->conf.identity, &where, m, life, rpc_deadline(&e->conf))
                        : TE_ERR_PEER;

    if (rc == TE_ERR_PEER && tei_peer_where(e, seg, true, &where) == 0)
        rc = tei_rpc_notify(e->conf.identity, &where, m, life, rpc_deadline(&e->conf));
    if (!rc)
        atomic_fetch_add_explicit(&e->count.notified, 1, memory_order_relaxed);
    return rc;
}

/* What the receiver could not read is not sent; its limit is taken to be ours. */
static int check_size(const struct tei_conf *conf, uint64_t life, const te_message *m)
{
    char *body;
    size_t len;
    int rc = tei_notify_encode(m, life, &body);

    if (rc)
        return rc;
    len = strlen(body) + 2; /* type byte and newline */
    free(body);
    if (len > conf->handshake_max_length)
        return TEI_FAIL(TE_ERR_TOO_LARGE,
                        "notification of %zu bytes, at most %zu are taken; raise "
                        "MC_HANDSHAKE_MAX_LENGTH on both sides",
                        len, conf->handshake_max_length);
    return 0;
}

/* A copy of what the caller gave, which can be sent. */
static int take_message(te_engine *e, te_segment seg, const te_message *m, te_message *out)
{
    int rc;

    if (!m || (!m->name && m->name_len) || (!m->msg && m->msg_len))
        return TEI_FAIL(TE_ERR_INVALID, "name or message of the notification is NULL");
    if (tei_message_copy(m, out))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a notification");
    rc = check_size(&e->conf, tei_peer_life(&e->peers, seg), out);
    if (rc)
        tei_message_fini(out);
    return rc;
}

static int take_text(te_engine *e, te_segment seg, const char *name, const char *msg,
                     te_message *out)
{
    if (!name || !msg)
        return TEI_FAIL(TE_ERR_INVALID, "name or message of the notification is NULL");
    return take_message(e, seg, &(te_message){name, strlen(name), msg, strlen(msg)}, out);
}

/* Takes the copy over. */
static int notify(te_engine *e, te_segment seg, te_message *m)
{
    struct tei_hostport where;
    int rc;

    if (seg == TE_LOCAL_SEGMENT)
        return tei_inbox_add(&e->inbox, NULL, m);
    rc = tei_peer_where(e, seg, false, &where);
    if (!rc)
        rc = notify_peer(e, seg, tei_peer_life(&e->peers, seg), where, m);
    tei_message_fini(m);
    return rc;
}

int te_notify(te_engine *e, te_segment seg, const char *name, const char *msg)
{
    te_message m;
    int rc = tei_engine_check(e);

    if (!rc)
        rc = take_text(e, seg, name, msg, &m);
    return rc ? rc : notify(e, seg, &m);
}

int te_notify_bytes(te_engine *e, te_segment seg, const te_message *m)
{
    te_message copy;
    int rc = tei_engine_check(e);

    if (!rc)
        rc = take_message(e, seg, m, &copy);
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
        rc = tei_rpc_probe(e->conf.identity, &where, rpc_deadline(&e->conf));
    return rc;
}

/* ------------------------------------------------------------------- send after a submit's data */

/* A message that follows requests. */
struct late {
    struct group group;
    te_engine *engine;
    te_segment target;
    uint64_t life; /* of the target, which may be closed by then */
    struct tei_hostport where;
    te_message message;
    struct tei_job job;
};

static void free_late(struct late *l)
{
    tei_message_fini(&l->message);
    free(l);
}

static void send_job(struct tei_job *j)
{
    struct late *l = tei_container_of(j, struct late, job);

    /* What cannot be delivered was logged where that was decided. */
    if (l->target == TE_LOCAL_SEGMENT)
        (void)notify_self(&l->engine->inbox, &l->message);
    else
        (void)notify_peer(l->engine, l->target, l->life, l->where, &l->message);
    free_late(l);
}

static void send_late(struct group *g, bool good)
{
    struct late *l = tei_container_of(g, struct late, group);

    if (good && !atomic_load_explicit(&l->engine->closing, memory_order_relaxed))
        tei_jobs_post(&l->engine->jobs, &l->job, send_job);
    else
        free_late(l);
}

/* Takes the message over. */
static int make_late(te_engine *e, te_segment target, te_message *m, size_t n, struct group **out)
{
    struct late *l = calloc(1, sizeof(*l));
    int rc = 0;

    if (!l) {
        tei_message_fini(m);
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a notification");
    }
    l->engine = e;
    l->target = target;
    l->life = tei_peer_life(&e->peers, target);
    l->message = *m;
    l->group.end = send_late;
    atomic_init(&l->group.left, n);
    if (target != TE_LOCAL_SEGMENT)
        rc = tei_peer_where(e, target, false, &l->where);
    if (rc)
        free_late(l);
    else
        *out = &l->group;
    return rc;
}

/* What is too large is left out: the requests have nothing to do with it. */
int tei_notify_group(te_engine *e, const te_submit_opts *o, size_t n, struct group **out)
{
    te_message m;
    int rc = take_text(e, o->notify_target, o->notify_name, o->notify_msg, &m);

    if (rc == TE_ERR_TOO_LARGE) {
        TEI_WARN("the requests are submitted without their notification: %s", te_errmsg());
        return 0;
    }
    if (rc)
        return rc;
    if (n > 0)
        return make_late(e, o->notify_target, &m, n, out);
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
        rc = take_message(e, seg, m, &copy);
    if (!rc)
        rc = make_late(e, seg, &copy, 1, &g);
    if (rc)
        return rc;
    b = tei_batch_pin(&e->batches, id);
    if (!b) {
        tei_group_drop(g);
        return TEI_FAIL(TE_ERR_NOT_FOUND, "batch %llu does not exist", (unsigned long long)id);
    }
    tei_batch_after(b, g);
    tei_batch_unpin(&e->batches, id);
    return 0;
}
