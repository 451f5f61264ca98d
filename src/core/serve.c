/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.c - requests of peers on the handshake port. The handler runs on te/ctl and must not block
 * it: what takes long to read, or to write, is done on te/aux, and the reply follows from there. Nothing
 * is done for a peer that has reset its connection meanwhile; one that has only closed its side may be
 * waiting for the answer.
 */
#include "core/serve.h"
#include "auth/auth.h"
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

#define QUICK_REGIONS 512
#define QUICK_BYTES   4096 /* of JSON */

/* A request on its way to te/aux. */
struct serve_job {
    struct tei_job job;
    te_engine *engine;
    struct tei_rpc_call *call;
    struct tei_who *who;
    enum tei_rpc_type type;
    size_t len;
    char body[];
};

static void reply_text(struct tei_rpc_call *call, const char *text)
{
    tei_rpc_reply(call, text, strlen(text));
}

static void reply_descriptor(te_engine *e, struct tei_rpc_call *call, struct tei_who *who,
                             size_t from, size_t max_bytes)
{
    char *text;
    size_t len;

    if (tei_descriptor_text(e, &(struct reader){who}, from, max_bytes, &text, &len) != 0) {
        /* What an engine without a segment answers; readers know it. */
        reply_text(call, "null");
        return;
    }
    if (max_bytes == 0 && len + 2 > e->conf.handshake_max_length)
        TEI_WARN(
            "descriptor of %zu bytes goes to a peer that cannot read pages; it may refuse more than its "
            "MC_HANDSHAKE_MAX_LENGTH (ours is %zu)",
            len, e->conf.handshake_max_length);
    tei_rpc_reply(call, text, len);
    free(text);
}

static void serve_metadata(te_engine *e, struct tei_rpc_call *call, struct tei_who *who,
                           const char *body, size_t len)
{
    size_t from = 0, max_bytes = 0;

    if (tei_page_request_decode(body, len, &from, &max_bytes))
        max_bytes = tei_max(4096, tei_min(max_bytes, e->conf.handshake_max_length));
    reply_descriptor(e, call, who, from, max_bytes);
}

static void serve_counts(struct counter_set *s, struct tei_rpc_call *call,
                         const struct tei_counts *counts)
{
    int answers[TEI_COUNTS_MAX];
    char reply[TEI_COUNTS_REPLY_MAX];

    for (size_t i = 0; i < counts->n; i++)
        answers[i] = tei_counter_take(s, &counts->of[i]);
    tei_counts_reply(answers, counts->n, reply);
    reply_text(call, reply);
}

/* A message, or what was added to counters. */
static void serve_notify(te_engine *e, struct tei_rpc_call *call, const char *body, size_t len)
{
    struct tei_counts counts;
    te_message m;
    int rc = tei_notify_decode(body, len, &m, &counts);

    if (!rc && counts.life && counts.life != e->incarnation) {
        char other[TEI_NOTIFY_OTHER_MAX];

        tei_notify_other(e->incarnation, other);
        tei_message_fini(&m);
        reply_text(call, other);
        return;
    }
    if (!rc && !m.name) {
        serve_counts(&e->counters, call, &counts);
        return;
    }
    if (!rc)
        rc = tei_inbox_add(&e->inbox, tei_rpc_source(call), &m);
    reply_text(call, rc ? TEI_NOTIFY_REFUSED : TEI_NOTIFY_OK);
}

static void serve_probe(te_engine *e, struct tei_rpc_call *call, const char *body, size_t len)
{
    struct tei_probe_ask ask;
    struct tei_count_key key;
    char answer[TEI_PROBE_ANSWER_MAX];
    bool found;

    tei_probe_read(body, len, &ask);
    found = ask.counter[0] && tei_counter_key(&e->counters, ask.counter, &key) == 0;
    tei_probe_answer(&ask, found ? &key : NULL, e->incarnation, answer);
    reply_text(call, answer);
}

/*
 * For the transport that makes such connections. Where there is none that is said; a body that is no
 * JSON object is told so.
 */
/*
 * Whether who asks is the one that it says: SERVER in "local_nic_path", SERVER@NIC. What is sent to SERVER may go by the
 * connection that is made.
 */
static bool is_itself(const struct tei_who *who, const char *body, size_t len)
{
    char server[TEI_HOSTPORT_MAX];
    const char *path, *at;
    json_t *root = NULL;
    bool is = true;

    (void)tei_json_load(body, len, 0, &root, NULL);
    path = json_string_value(json_object_get(root, "local_nic_path"));
    at = path ? strrchr(path, '@') : NULL;
    if (at) {
        is = (size_t)(at - path) < sizeof(server);
        snprintf(server, sizeof(server), "%.*s", (int)tei_min((size_t)(at - path), INT16_MAX),
                 path);
        is = is && tei_who_may_be(who, server);
    }
    json_decref(root);
    return is;
}

static void serve_connection(te_engine *e, struct tei_rpc_call *call, const struct tei_who *who,
                             const char *body, size_t len)
{
    size_t i = 0;
    struct transports *s = &e->transports;
    struct tei_transport *t;
    json_t *root = NULL;

    if (tei_auth_needs_ticket(e->conf.identity) && !is_itself(who, body, len)) {
        reply_text(call, TEI_CONNECTION_REPLY("your certificate is not of the name before the @"));
        return;
    }
    t = tei_transports_get(s, &i, TEI_HAS_HANDSHAKE);
    if (t) {
        t->ops.handshake(t, call, body, len);
        tei_transports_put(s, i);
        return;
    }
    (void)tei_json_load(body, len, 0, &root, NULL);
    reply_text(call, json_is_object(root) ? TEI_CONNECTION_NONE : TEI_CONNECTION_MALFORMED);
    json_decref(root);
}

void tei_serve_answer(struct tei_host *h, struct tei_rpc_call *call, const char *text, size_t len)
{
    (void)h;
    tei_rpc_reply(call, text, len);
}

int tei_serve_connect(struct tei_host *h, const struct tei_hostport *where, const char *body,
                      size_t len, char **answer, size_t *answer_len)
{
    struct tei_bytes reply = {0};
    int64_t deadline_ns = tei_deadline_ns(h->conf->handshake_connect_timeout_s * 1000);
    int rc = tei_rpc_request(h->conf->identity, where, TEI_RPC_CONNECTION, body, len,
                             h->conf->handshake_max_length, deadline_ns, &reply);

    if (rc)
        return rc;
    *answer = reply.data;
    *answer_len = reply.len;
    return 0;
}

static void serve(te_engine *e, struct tei_rpc_call *call, struct tei_who *who,
                  enum tei_rpc_type type, const char *body, size_t len)
{
    switch (type) {
    case TEI_RPC_METADATA:
        serve_metadata(e, call, who, body, len);
        break;
    case TEI_RPC_NOTIFY:
        serve_notify(e, call, body, len);
        break;
    case TEI_RPC_PROBE:
        serve_probe(e, call, body, len);
        break;
    case TEI_RPC_CONNECTION:
        serve_connection(e, call, who, body, len);
        break;
    }
}

static void serve_job(struct tei_job *j)
{
    struct serve_job *s = tei_container_of(j, struct serve_job, job);

    if (tei_rpc_is_moot(s->call))
        reply_text(s->call, "");
    else
        serve(s->engine, s->call, s->who, s->type, s->body, s->len);
    tei_who_free(s->who);
    free(s);
}

bool tei_serve_is_heavy(void *arg, enum tei_rpc_type type, size_t len)
{
    te_engine *e = arg;

    /* Relaxed: a hint. Names of certificates take their time. */
    return len > QUICK_BYTES ||
           (type == TEI_RPC_METADATA &&
            (e->regions.n > QUICK_REGIONS ||
             atomic_load_explicit(&e->regions.n_allowed, memory_order_relaxed) > 0));
}

void tei_serve_rpc(void *arg, struct tei_rpc_call *call, enum tei_rpc_type type, const char *body,
                   size_t len)
{
    te_engine *e = arg;
    bool heavy = tei_serve_is_heavy(e, type, len);
    struct tei_who *who = NULL;
    struct serve_job *s = NULL;

    if (!tei_rpc_call_who(call, &who) || (heavy && !(s = malloc(sizeof(*s) + len + 1)))) {
        reply_text(call, "null"); /* what says "refused" to each type */
        tei_who_free(who);
        return;
    }
    if (!heavy) {
        serve(e, call, who, type, body, len);
        tei_who_free(who);
        return;
    }
    *s = (struct serve_job){.engine = e, .call = call, .who = who, .type = type, .len = len};
    memcpy(s->body, body, len);
    s->body[len] = '\0';
    tei_jobs_post(&e->jobs, &s->job, serve_job);
}
