/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etcd_watch.c - follows keys: one stream for all of them, or polling where none gets through.
 *
 * The request asks for a watch of each key from the revision after the one that is known, with the
 * key's number + 1 as watch id, in one body. The answer is a line of JSON for each event, for as
 * long as the connection lasts. Revisions are moved on with the events, so a new stream goes on
 * where the old one broke.
 *
 * Two things can make revisions worthless. The history may be compacted beyond them; then etcd
 * cancels the watch and says from where it can go on. And a server that was started empty counts
 * from 1 again, which is seen from the revision with which it confirms a watch, if it has not passed
 * ours by then: it would keep quiet until it gets there. In both cases every key counts as changed
 * once.
 *
 * A member that has lost the others ends the stream (that is asked for by a header), and so do we
 * when calls have gone over to another one: a frozen member tells nothing.
 *
 * Some proxies hold back an answer until it has ended. If a stream is not confirmed within CONFIRM_NS
 * this store polls for a while: the revisions of all keys, every POLL_MS. Then it tries again. It does
 * the same when etcd tells more at once than is read, as it may of keys that changed often while the
 * stream was broken: polling moves the revisions beyond that.
 */
#include "meta/etcd.h"

#include "base/base64.h"
#include "base/err.h"
#include "base/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIRM_NS  (5 * TEI_NS_PER_S)
#define POLL_MS     800
#define POLL_FOR_NS (300 * TEI_NS_PER_S)
#define LOOK_MS     2000 /* so often it is seen that calls go elsewhere */
#define POLL_KEYS   100  /* in a transaction; etcd's --max-txn-ops is 128 */
#define KEEPALIVE_S 5L

struct watch {
    struct etcd_store *store;
    struct tei_watched *keys;
    size_t n;
    void (*changed)(void *arg, size_t i);
    void *arg;
    /* the stream */
    char *line;
    size_t len, cap;
    size_t confirmed; /* watches */
    bool restart;     /* the stream is of no use any more */
    bool silent;      /* it was not confirmed in time */
    bool too_large;   /* it says more at once than is read */
    size_t endpoint;  /* it goes to */
    bool bad;         /* not JSON, or no memory */
    char why[TEI_HTTP_SAID_MAX];
};

/* ---- what a line says */

static void change_all(struct watch *w, int64_t revision)
{
    for (size_t i = 0; i < w->n; i++) {
        w->keys[i].revision = revision;
        w->changed(w->arg, i);
    }
}

/* The number of the key of a watch id; false for one that is not ours. */
static bool key_of(const struct watch *w, const json_t *result, size_t *i)
{
    int64_t id = tei_etcd_number(result, "watch_id");

    *i = (size_t)id - 1;
    return id >= 1 && (uint64_t)id <= w->n;
}

static void take_events(struct watch *w, size_t i, const json_t *events)
{
    bool put = false;
    const json_t *event;
    size_t k;

    json_array_foreach(events, k, event) {
        const json_t *kv = json_object_get(event, "kv");
        const char *type = json_string_value(json_object_get(event, "type"));
        int64_t revision = tei_etcd_number(kv, "mod_revision");

        put |= !type || strcmp(type, "DELETE") != 0;
        if (revision > w->keys[i].revision)
            w->keys[i].revision = revision;
    }
    if (put)
        w->changed(w->arg, i);
}

/* The history that we ask for is gone, or we may not have it. */
static void take_cancel(struct watch *w, const json_t *result)
{
    int64_t compacted = tei_etcd_number(result, "compact_revision");
    const char *reason = json_string_value(json_object_get(result, "cancel_reason"));

    if (compacted > 0) {
        change_all(w, compacted - 1);
        w->restart = true;
        return;
    }
    snprintf(w->why, sizeof w->why, "%s", reason ? reason : "it is refused");
    w->bad = true;
}

static void take_result(struct watch *w, const json_t *result)
{
    int64_t revision = tei_etcd_number(json_object_get(result, "header"), "revision");
    size_t i;

    if (!key_of(w, result, &i))
        return;
    if (json_is_true(json_object_get(result, "canceled"))) {
        take_cancel(w, result);
    } else if (json_is_true(json_object_get(result, "created"))) {
        w->confirmed++;
        if (revision < w->keys[i].revision) {
            TEI_INFO("etcd has begun anew: all segments that are followed are fetched again");
            change_all(w, revision);
            w->restart = true;
        }
    } else {
        take_events(w, i, json_object_get(result, "events"));
    }
}

static void take_line(struct watch *w)
{
    json_t *root;
    int rc = tei_etcd_parse(w->line, w->len, &root);
    const json_t *result = json_object_get(root, "result"), *error = json_object_get(root, "error");

    w->too_large = rc == TE_ERR_TOO_LARGE;
    if (w->too_large)
        return;
    if (rc == TE_ERR_MEMORY) {
        snprintf(w->why, sizeof w->why, "no memory to read what it says");
        w->bad = true;
    } else if (result) {
        take_result(w, result);
    } else {
        const char *text =
            json_string_value(json_object_get(json_is_object(error) ? error : root, "message"));

        snprintf(w->why, sizeof w->why, "%s", text ? text : "the answer is no JSON of a watch");
        w->bad = true;
    }
    json_decref(root);
}

/* ---- the stream */

static bool add_to_line(struct watch *w, const char *data, size_t n)
{
    w->too_large = n > w->store->http.reply_max - w->len;
    if (w->too_large)
        return true;
    if (w->len + n > w->cap) {
        size_t cap = tei_max(2 * w->cap, w->len + n + 1024);
        char *line = realloc(w->line, cap);

        if (!line)
            return false;
        w->line = line;
        w->cap = cap;
    }
    memcpy(w->line + w->len, data, n);
    w->len += n;
    return true;
}

static size_t on_stream(char *data, size_t one, size_t n, void *arg)
{
    struct watch *w = arg;
    size_t left = n;

    (void)one; /* always 1 */
    while (left && !w->bad && !w->restart && !w->too_large) {
        const char *end = memchr(data, '\n', left);
        size_t part = end ? (size_t)(end - data) : left;

        if (!add_to_line(w, data, part)) {
            snprintf(w->why, sizeof w->why, "no memory for an event");
            w->bad = true;
        } else if (end && w->len && !w->too_large) {
            take_line(w);
            w->len = 0;
        }
        part += end != NULL;
        data += part;
        left -= part;
    }
    return w->bad || w->restart || w->too_large ? 0 : n;
}

/* "{create_request}{create_request}..."; malloc'ed, NULL when memory is out. */
static char *stream_body(const struct watch *w)
{
    char *body = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&body, &len);
    bool whole = f != NULL;

    for (size_t i = 0; whole && i < w->n; i++) {
        char *key64 = tei_base64_encode(w->keys[i].key, strlen(w->keys[i].key));

        whole =
            key64 &&
            fprintf(
                f,
                "{\"create_request\":{\"key\":\"%s\",\"watch_id\":\"%zu\",\"start_revision\":\"%" PRId64
                "\"}}",
                key64, i + 1, w->keys[i].revision > 0 ? w->keys[i].revision + 1 : 0) > 0;
        free(key64);
    }
    if (f && fclose(f) != 0)
        whole = false;
    if (!whole) {
        free(body);
        return NULL;
    }
    return body;
}

static CURLcode set_stream(struct watch *w, CURL *c, const char *url, const char *body,
                           struct curl_slist *headers)
{
    CURLcode code = tei_http_set_up(&w->store->http, c);

    curl_easy_setopt(c, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_stream);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, w);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)w->store->store.conf->metadata_timeout_ms);
    /* Else a server that is gone without a word would never be missed. */
    curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(c, CURLOPT_TCP_KEEPIDLE, KEEPALIVE_S);
    curl_easy_setopt(c, CURLOPT_TCP_KEEPINTVL, KEEPALIVE_S);
    return code == CURLE_OK ? curl_easy_setopt(c, CURLOPT_URL, url) : code;
}

static bool is_woken(const struct watch *w)
{
    return atomic_load_explicit(&w->store->woken, memory_order_acquire);
}

static bool is_elsewhere(const struct watch *w)
{
    return atomic_load_explicit(&w->store->current, memory_order_relaxed) % w->store->n_endpoints !=
           w->endpoint;
}

/* Drives the handle until the stream ends (its code), or is to end (CURLE_OK). */
static CURLcode drive(struct watch *w)
{
    CURLM *m = w->store->multi;
    int64_t confirm_ns = tei_now_ns() + CONFIRM_NS;
    int running = 1, queued;

    while (!is_woken(w)) {
        struct tei_sigpipe sigpipe;
        const CURLMsg *msg;

        tei_sigpipe_block(&sigpipe);
        curl_multi_perform(m, &running);
        tei_sigpipe_restore(&sigpipe);
        msg = curl_multi_info_read(m, &queued);
        if (msg)
            return msg->data.result;
        w->silent = w->confirmed < w->n && tei_now_ns() >= confirm_ns;
        w->restart |= is_elsewhere(w);
        if (w->silent || w->restart)
            break;
        curl_multi_poll(m, NULL, 0, LOOK_MS, NULL);
    }
    return CURLE_OK;
}

/* 0: woken, or to begin another stream. */
static int end_stream(struct watch *w, CURLcode code, long status, const char *why,
                      const char *endpoint)
{
    size_t at = w->endpoint;

    if (is_woken(w) || w->restart)
        return 0;
    if (w->too_large) {
        TEI_WARN("%s tells more changes at once than TE_METADATA_MAX_VALUE (%zu bytes) lets in: "
                 "polling",
                 endpoint, w->store->store.conf->metadata_max_value);
        w->store->poll_until_ns = tei_now_ns() + POLL_FOR_NS;
        return 0;
    }
    if (w->silent || status == 404 || status == 405 || status == 501) {
        TEI_INFO("%s sends no stream of changes: polling", endpoint);
        w->store->poll_until_ns = tei_now_ns() + POLL_FOR_NS;
        return 0;
    }
    atomic_compare_exchange_strong_explicit(&w->store->current, &at, w->endpoint + 1,
                                            memory_order_relaxed, memory_order_relaxed);
    if (w->bad)
        return TEI_FAIL(TE_ERR_METADATA, "etcd at %s: watch: %s", endpoint, w->why);
    return TEI_FAIL(TE_ERR_METADATA, "etcd at %s: watch: %s", endpoint,
                    code == CURLE_OK ? "the server has ended it" : why);
}

static int run_stream(struct watch *w, const char *url, const char *body,
                      struct curl_slist *headers, const char *endpoint)
{
    char why[CURL_ERROR_SIZE] = "";
    CURL *c = curl_easy_init();
    CURLcode code;
    long status = 0;

    if (!c)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to follow keys of etcd");
    code = set_stream(w, c, url, body, headers);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why);
    w->len = w->confirmed = 0;
    w->restart = w->silent = w->bad = w->too_large = false;
    if (code == CURLE_OK && curl_multi_add_handle(w->store->multi, c) != CURLM_OK)
        code = CURLE_OUT_OF_MEMORY;
    if (code == CURLE_OK)
        code = drive(w);
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(w->store->multi, c);
    curl_easy_cleanup(c);
    return end_stream(w, code, status, why[0] ? why : curl_easy_strerror(code), endpoint);
}

/* NULL when memory is out. */
static struct curl_slist *stream_headers(const char *authorization)
{
    const char *lines[] = {"Content-Type: application/json", "Grpc-Metadata-hasleader: true",
                           authorization};
    struct curl_slist *list = NULL;

    for (size_t i = 0; i < TEI_ARRAY_LEN(lines) && lines[i]; i++) {
        struct curl_slist *longer = curl_slist_append(list, lines[i]);

        if (!longer) {
            curl_slist_free_all(list);
            return NULL;
        }
        list = longer;
    }
    return list;
}

static int stream(struct watch *w)
{
    struct etcd_store *e = w->store;
    char *url = NULL, *body = stream_body(w), *authorization = NULL;
    int rc = tei_etcd_authorization(e, tei_deadline_ns(e->store.conf->metadata_timeout_ms),
                                    &authorization);
    struct curl_slist *headers = stream_headers(authorization);
    const char *endpoint;

    w->endpoint = atomic_load_explicit(&e->current, memory_order_relaxed) % e->n_endpoints;
    endpoint = e->endpoints[w->endpoint];
    if (asprintf(&url, "%s/v3/watch", endpoint) < 0)
        url = NULL;
    if (!rc && (!url || !body || !headers))
        rc = TEI_FAIL(TE_ERR_MEMORY, "no memory to follow keys of etcd");
    if (!rc)
        rc = run_stream(w, url, body, headers, endpoint);
    if (rc && authorization)
        tei_etcd_forget_login(e, authorization); /* it may be what is wrong */
    curl_slist_free_all(headers);
    free(authorization);
    free(body);
    free(url);
    return rc;
}

/* ---- polling */

/* A transaction that reads the revisions of keys first..last-1. */
static char *poll_body(const struct watch *w, size_t first, size_t last)
{
    json_t *ranges = json_array(), *request;
    bool whole = true;
    char *body;

    for (size_t i = first; i < last; i++) {
        char *key64 = tei_base64_encode(w->keys[i].key, strlen(w->keys[i].key));

        whole = whole && key64 &&
                json_array_append_new(ranges, json_pack("{s:{s:s, s:b}}", "request_range", "key",
                                                        key64, "keys_only", 1)) == 0;
        free(key64);
    }
    request = json_pack("{s:o}", "success", ranges);
    body = whole ? tei_json_text(request, NULL) : NULL;
    json_decref(request);
    return body;
}

static void take_revision(struct watch *w, size_t i, const json_t *response)
{
    const json_t *range = json_object_get(response, "response_range");
    const json_t *kv = json_array_get(json_object_get(range, "kvs"), 0);
    int64_t revision = tei_etcd_number(kv, "mod_revision");

    /* Another one, not a later one: a server that was started empty counts from 1 again. */
    if (!kv || revision == w->keys[i].revision)
        return;
    w->keys[i].revision = revision;
    w->changed(w->arg, i);
}

static int poll_some(struct watch *w, size_t first, size_t last)
{
    char *body = poll_body(w, first, last);
    json_t *reply = NULL;
    int64_t deadline_ns = tei_deadline_ns(w->store->store.conf->metadata_timeout_ms);
    int rc = tei_etcd_call(w->store, "kv/txn", body, deadline_ns, &reply);

    for (size_t i = first; !rc && i < last; i++)
        take_revision(w, i, json_array_get(json_object_get(reply, "responses"), i - first));
    free(body);
    json_decref(reply);
    return rc;
}

static bool is_polling(const struct watch *w)
{
    return tei_now_ns() < w->store->poll_until_ns;
}

static int poll_keys(struct watch *w)
{
    int rc = 0;

    while (!rc && !is_woken(w) && is_polling(w)) {
        for (size_t i = 0; !rc && i < w->n; i += POLL_KEYS)
            rc = poll_some(w, i, tei_min(i + POLL_KEYS, w->n));
        if (!rc && !is_woken(w))
            curl_multi_poll(w->store->multi, NULL, 0, POLL_MS, NULL);
    }
    return rc;
}

/* ---- the operations */

int tei_etcd_watch(struct tei_store *s, struct tei_watched *keys, size_t n,
                   void (*changed)(void *arg, size_t i), void *arg)
{
    struct watch w = {
        .store = tei_etcd_of(s), .keys = keys, .n = n, .changed = changed, .arg = arg};
    int rc = 0;

    while (!rc && !is_woken(&w))
        rc = is_polling(&w) ? poll_keys(&w) : stream(&w);
    free(w.line);
    /* Acquire-release: what was done before wake() is seen after this. */
    atomic_exchange_explicit(&w.store->woken, false, memory_order_acq_rel);
    return rc;
}

void tei_etcd_wake(struct tei_store *s)
{
    struct etcd_store *e = tei_etcd_of(s);

    atomic_store_explicit(&e->woken, true, memory_order_release);
    curl_multi_wakeup(e->multi);
}
