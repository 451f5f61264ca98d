/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_etcd.c - etcd: keys, the lease on ours, login, and endpoints that fail.
 *
 * A key that expires hangs on the lease of this store, which is granted with the first such put and
 * kept alive by keep(). A lease that is lost (the process was stopped, the server restarted empty)
 * takes its keys with it; the next put gets a new one.
 *
 * A call goes to the endpoint that answered last; one that does not answer, or has lost its leader,
 * gives way to the next, each with its share of the time. Where none serves and one of them says
 * that it is between two leaders, which takes a second or so, they are asked again. All calls may be
 * repeated.
 */
#include "meta/etcd.h"

#include "base/base64.h"
#include "base/err.h"
#include "base/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_PORT  2379
#define ENDPOINTS_MAX 64
#define ELECTION_MS   100    /* between two rounds of asking, while a leader is elected */
#define VALUES_MAX    65536  /* of an answer: a page of keys has a tenth of them */
#define PAGE_KEYS     "1000" /* of a list */
#define REPLY_EXTRA   ((size_t)64 << 10) /* what is around a value */

/* gRPC codes, as the gateway's "code" has them. */
enum {
    GRPC_DEADLINE = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_EXISTS = 6,
    GRPC_DENIED = 7,
    GRPC_EXHAUSTED = 8,
    GRPC_PRECONDITION = 9,
    GRPC_UNAVAILABLE = 14,
    GRPC_UNAUTHENTICATED = 16,
};

int64_t tei_etcd_number(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    return json_is_integer(v) ? json_integer_value(v)
                              : strtoll(json_is_string(v) ? json_string_value(v) : "0", NULL, 10);
}

/* Bytes of an answer with the largest value: it is base64 there. */
static size_t reply_max(const struct tei_conf *conf)
{
    return conf->metadata_max_value / 3 * 4 + REPLY_EXTRA;
}

/* Every value but the first comes after one of "[{,:" outside of strings. */
static bool has_many_values(const char *text, size_t n)
{
    bool in_string = false;
    size_t values = 0;

    for (size_t i = 0; i < n && values < VALUES_MAX; i++) {
        if (text[i] == '"')
            in_string = !in_string;
        else if (in_string)
            i += text[i] == '\\'; /* and what it quotes */
        else
            values += text[i] == '[' || text[i] == '{' || text[i] == ',' || text[i] == ':';
    }
    return values >= VALUES_MAX;
}

int tei_etcd_parse(const char *text, size_t n, json_t **out)
{
    *out = NULL;
    return has_many_values(text, n) ? TE_ERR_TOO_LARGE : tei_json_load(text, n, 0, out, NULL);
}

/* ---- one call at one endpoint */

struct answer {
    struct tei_http_call http;
    json_t *json; /* NULL if it is none */
    int unread;   /* why not: what tei_etcd_parse() says */
    int code;     /* gRPC's; 0 with status 200 */
    char said[TEI_HTTP_SAID_MAX];
};

static void read_answer(struct answer *a)
{
    const json_t *error, *from;
    const char *text;

    a->unread =
        tei_etcd_parse(a->http.reply.data ? a->http.reply.data : "", a->http.reply.len, &a->json);
    if (a->http.status == 200 && json_is_object(a->json) && !json_object_get(a->json, "error"))
        return;
    /* Those of streams stand in an object of their own. */
    error = json_object_get(a->json, "error");
    from = json_is_object(error) ? error : a->json;
    a->code = (int)json_integer_value(json_object_get(from, "code"));
    text = json_string_value(json_object_get(from, "message"));
    if (!text)
        text = json_string_value(error);
    if (text)
        snprintf(a->said, sizeof a->said, "%s", text);
    else
        tei_http_said(&a->http, a->said);
}

static void forget_answer(struct answer *a)
{
    json_decref(a->json);
    tei_bytes_fini(&a->http.reply);
    *a = (struct answer){0};
}

/* Whether another endpoint may do better. */
static bool is_away(const struct answer *a)
{
    return a->code == GRPC_UNAVAILABLE || a->code == GRPC_DEADLINE ||
           (a->http.status >= 500 && a->http.status != 501);
}

/* There is no leader, or was none while it was asked; etcd elects another by itself. */
static bool is_electing(const struct answer *a)
{
    return a->code == GRPC_UNAVAILABLE && strstr(a->said, "leader");
}

static bool is_too_large(const struct answer *a)
{
    return strstr(a->said, "request is too large") || strstr(a->said, "larger than max");
}

static int fail_access(const struct answer *a)
{
    if (a->code == GRPC_DENIED)
        return TEI_FAIL(
            TE_ERR_METADATA,
            "etcd at %s refuses access: %s; the role of TE_METADATA_USERNAME must allow "
            "reading and writing of keys that begin with mooncake/",
            a->http.shown, a->said);
    return TEI_FAIL(TE_ERR_METADATA,
                    "etcd at %s refuses access: %s; TE_METADATA_USERNAME and "
                    "TE_METADATA_PASSWORD say who this engine is",
                    a->http.shown, a->said);
}

/* An answer that is no success, told as an error. */
static int fail_answer(const struct etcd_store *e, const struct answer *a)
{
    const char *shown = a->http.shown;

    if (a->unread == TE_ERR_MEMORY)
        return TEI_FAIL(TE_ERR_MEMORY, "etcd at %s: no memory to read the answer", shown);
    if (a->unread == TE_ERR_TOO_LARGE)
        return TEI_FAIL(TE_ERR_TOO_LARGE,
                        "etcd at %s: the answer has more than %d JSON values; is it etcd?", shown,
                        VALUES_MAX);
    if (a->code == GRPC_NOT_FOUND || a->code == GRPC_EXISTS)
        return tei_err_keep(a->code == GRPC_EXISTS ? TE_ERR_EXISTS : TE_ERR_NOT_FOUND, a->said);
    if (is_too_large(a))
        return TEI_FAIL(TE_ERR_TOO_LARGE,
                        "etcd at %s takes no request of %zu bytes: %s; start it with a larger "
                        "--max-request-bytes, or register fewer, larger regions",
                        shown, a->http.body_len, a->said);
    if (strstr(a->said, "space exceeded"))
        return TEI_FAIL(TE_ERR_METADATA,
                        "etcd at %s is full: %s; compact and defragment it, or start it with a "
                        "larger --quota-backend-bytes",
                        shown, a->said);
    if (a->code == GRPC_DENIED || a->code == GRPC_UNAUTHENTICATED ||
        strstr(a->said, "user name is empty") || strstr(a->said, "authentication failed"))
        return fail_access(a);
    if (a->http.status == 404)
        return TEI_FAIL(TE_ERR_METADATA,
                        "%s has no JSON gateway under /v3: is it etcd (a server without scheme:// "
                        "means that), 3.4 or newer, with --enable-grpc-gateway (its default)?%s",
                        shown, tei_http_proxy_hint(&e->http));
    if (a->http.status == 200)
        return TEI_FAIL(TE_ERR_METADATA, "etcd at %s: the answer is no JSON object; is it etcd?",
                        shown);
    return TEI_FAIL(TE_ERR_METADATA, "etcd at %s: status %ld: %s", shown, a->http.status, a->said);
}

static int ask_endpoint(struct etcd_store *e, size_t i, const char *path, const char *body,
                        const char *authorization, int64_t deadline_ns, bool quiet,
                        struct answer *a)
{
    char *url;
    int rc;

    *a = (struct answer){.http = {.method = "POST",
                                  .shown = e->endpoints[i],
                                  .body = body,
                                  .body_len = strlen(body),
                                  .lines = {"Content-Type: application/json", authorization}}};
    if (asprintf(&url, "%s/v3/%s", e->endpoints[i], path) < 0)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a URL of etcd");
    a->http.url = url;
    rc = tei_http_run(&e->http, &a->http, deadline_ns, quiet);
    free(url);
    a->http.url = NULL;
    if (!rc)
        read_answer(a);
    return rc;
}

/* ---- one call at the endpoint that answers */

/* The share of the time of one of `n` endpoints that are left. */
static int64_t share(int64_t deadline_ns, size_t n)
{
    int64_t now = tei_now_ns();

    if (n < 2 || deadline_ns == TEI_NEVER || deadline_ns <= now)
        return deadline_ns;
    return now + (deadline_ns - now) / (int64_t)n;
}

/*
 * Asks each endpoint once, until one serves; *a is the answer of the last one asked. *electing: none
 * served, and one of them will soon.
 */
static int ask_each(struct etcd_store *e, const char *path, const char *body,
                    const char *authorization, int64_t deadline_ns, struct answer *a,
                    bool *electing)
{
    size_t n = e->n_endpoints, first = atomic_load_explicit(&e->current, memory_order_relaxed);
    int rc = TE_ERR_METADATA;

    *electing = false;
    for (size_t i = 0; i < n; i++) {
        size_t at = (first + i) % n;
        bool last = i + 1 == n;

        rc = ask_endpoint(e, at, path, body, authorization, share(deadline_ns, n - i), !last, a);
        *electing = (*electing && (rc || is_away(a))) || (!rc && is_electing(a));
        if (!rc && (last || !is_away(a))) {
            atomic_store_explicit(&e->current, at, memory_order_relaxed);
            return 0;
        }
        if (last)
            return rc;
        TEI_DEBUG("etcd at %s does not serve (%s); trying %s", e->endpoints[at],
                  rc ? te_errmsg() : a->said, e->endpoints[(at + 1) % n]);
        forget_answer(a);
    }
    return rc;
}

static int ask(struct etcd_store *e, const char *path, const char *body, const char *authorization,
               int64_t deadline_ns, struct answer *a)
{
    const struct timespec pause = {.tv_nsec = ELECTION_MS * TEI_NS_PER_MS};

    for (;;) {
        bool electing;
        int rc = ask_each(e, path, body, authorization, deadline_ns, a, &electing);

        if (!electing || atomic_load(&e->woken) || tei_now_ns() + pause.tv_nsec >= deadline_ns)
            return rc;
        TEI_DEBUG("etcd elects a leader; asking again");
        forget_answer(a);
        nanosleep(&pause, NULL);
    }
}

/* ---- login */

static int log_in(struct etcd_store *e, int64_t deadline_ns, char **token)
{
    json_error_t why = {0};
    json_t *request =
        json_pack_ex(&why, 0, "{s:s, s:s}", "name", e->username, "password", e->password);
    char *body = tei_json_text(request, NULL);
    struct answer a = {0};
    const char *text;
    int rc;

    *token = NULL;
    if (!request && json_error_code(&why) == json_error_invalid_utf8)
        return TEI_FAIL(TE_ERR_INVALID, "the user or password for etcd is not UTF-8");
    json_decref(request);
    if (!body)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the login of etcd");
    rc = ask(e, "auth/authenticate", body, NULL, deadline_ns, &a);
    free(body);
    text = rc ? NULL : json_string_value(json_object_get(a.json, "token"));
    if (!rc && a.code == GRPC_PRECONDITION)
        TEI_INFO("etcd at %s wants no login: %s", a.http.shown, a.said);
    else if (!rc && (a.http.status != 200 || !text))
        rc = fail_answer(e, &a);
    else if (!rc && asprintf(token, "Authorization: %s", text) < 0)
        rc = TEI_FAIL(TE_ERR_MEMORY, "no memory for the login of etcd");
    forget_answer(&a);
    return rc;
}

/* A copy of the token at hand; whether a login is due is told by *due. */
static int copy_token(struct etcd_store *e, char **out, bool *due)
{
    int rc = 0;

    *out = NULL;
    pthread_mutex_lock(&e->lock);
    *due = e->username && !e->token && !e->no_login;
    if (e->token) {
        *out = strdup(e->token);
        rc = *out ? 0 : TE_ERR_MEMORY;
    }
    pthread_mutex_unlock(&e->lock);
    return rc ? TEI_FAIL(rc, "no memory for the login of etcd") : 0;
}

int tei_etcd_authorization(struct etcd_store *e, int64_t deadline_ns, char **out)
{
    bool due;
    int rc = copy_token(e, out, &due);

    if (rc || !due)
        return rc;
    rc = log_in(e, deadline_ns, out);
    if (rc)
        return rc;
    pthread_mutex_lock(&e->lock);
    free(e->token);
    e->token = *out ? strdup(*out) : NULL;
    e->no_login = !*out;
    pthread_mutex_unlock(&e->lock);
    return 0;
}

void tei_etcd_forget_login(struct etcd_store *e, const char *authorization)
{
    pthread_mutex_lock(&e->lock);
    if (!authorization || (e->token && strcmp(e->token, authorization) == 0)) {
        free(e->token);
        e->token = NULL;
        e->no_login = false;
    }
    pthread_mutex_unlock(&e->lock);
}

/*
 * The token has expired, or the users have changed, or login was switched on only now.
 */
static bool wants_login(const struct etcd_store *e, const struct answer *a)
{
    return e->username &&
           (a->code == GRPC_UNAUTHENTICATED || strstr(a->said, "auth: revision in header is old") ||
            strstr(a->said, "user name is empty"));
}

/* Where a login is due there is one, once. */
static int ask_logged_in(struct etcd_store *e, const char *path, const char *body,
                         int64_t deadline_ns, struct answer *a)
{
    for (int tries = 0;; tries++) {
        char *authorization;
        int rc = tei_etcd_authorization(e, deadline_ns, &authorization);
        bool again;

        if (rc)
            return rc;
        rc = ask(e, path, body, authorization, deadline_ns, a);
        again = !rc && tries == 0 && wants_login(e, a);
        if (again) {
            tei_etcd_forget_login(e, authorization);
            forget_answer(a);
        }
        free(authorization);
        if (!again)
            return rc;
    }
}

int tei_etcd_call(struct etcd_store *e, const char *path, const char *body, int64_t deadline_ns,
                  json_t **out)
{
    struct answer a = {0};
    int rc;

    if (!body)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a request to etcd");
    rc = ask_logged_in(e, path, body, deadline_ns, &a);
    if (!rc && (a.http.status != 200 || a.code || !json_is_object(a.json)))
        rc = fail_answer(e, &a);
    atomic_store_explicit(&e->answers, !rc, memory_order_relaxed);
    if (!rc)
        *out = json_incref(a.json);
    forget_answer(&a);
    return rc;
}

/* ---- keys */

/* The body of a request on one key, by a format with one %s; malloc'ed, NULL when memory is out. */
static char *key_body(const char *format, const char *key)
{
    char *key64 = tei_base64_encode(key, strlen(key)), *body = NULL;

    if (key64 && asprintf(&body, format, key64) < 0)
        body = NULL;
    free(key64);
    return body;
}

static int read_range(const json_t *reply, const char *key, struct tei_bytes *out)
{
    const json_t *kv = json_array_get(json_object_get(reply, "kvs"), 0);
    const json_t *value = json_object_get(kv, "value");
    char text[512];
    int rc;

    if (!kv) {
        snprintf(text, sizeof text, "etcd has no key %.400s", key);
        return tei_err_keep(TE_ERR_NOT_FOUND, text);
    }
    rc = tei_base64_decode_new(value ? json_string_value(value) : "", json_string_length(value),
                               &out->data, &out->len);
    if (rc == TE_ERR_MEMORY)
        return TEI_FAIL(rc, "key %s: no memory for its value", key);
    return rc ? TEI_FAIL(TE_ERR_METADATA, "key %s: etcd's answer is not base64", key) : 0;
}

static int etcd_get(struct tei_store *s, const char *key, int64_t deadline_ns,
                    struct tei_bytes *out, int64_t *revision)
{
    char *body = key_body("{\"key\":\"%s\"}", key);
    json_t *reply = NULL;
    int rc = tei_etcd_call(tei_etcd_of(s), "kv/range", body, deadline_ns, &reply);
    char why[1024];

    free(body);
    if (rc == TE_ERR_TOO_LARGE) {
        snprintf(why, sizeof why, "key %.400s: %.500s", key, te_errmsg());
        tei_err_keep(rc, why);
    }
    if (!rc && revision)
        *revision = tei_etcd_number(json_object_get(reply, "header"), "revision");
    if (!rc)
        rc = read_range(reply, key, out);
    json_decref(reply);
    return rc;
}

static int etcd_del(struct tei_store *s, const char *key, int64_t deadline_ns)
{
    char *body = key_body("{\"key\":\"%s\"}", key);
    json_t *reply = NULL;
    int rc = tei_etcd_call(tei_etcd_of(s), "kv/deleterange", body, deadline_ns, &reply);

    free(body);
    json_decref(reply);
    return rc;
}

/*
 * Hands out the keys of a page; jansson's strings end in a NUL. *next is where the next page begins,
 * right behind the last key; it is left alone by the last page.
 */
static int each_key(const json_t *reply, char **next, int (*each)(void *arg, const char *key),
                    void *arg)
{
    const json_t *kvs = json_object_get(reply, "kvs"), *kv;
    bool more = json_is_true(json_object_get(reply, "more"));
    size_t i;
    int rc = 0;

    json_array_foreach(kvs, i, kv) {
        const json_t *key = json_object_get(kv, "key");
        struct tei_bytes b;

        rc = tei_base64_decode_new(key ? json_string_value(key) : "", json_string_length(key),
                                   &b.data, &b.len);
        if (rc)
            return rc == TE_ERR_MEMORY
                       ? TEI_FAIL(rc, "no memory for a key of etcd")
                       : TEI_FAIL(TE_ERR_METADATA, "a key in etcd's answer is not base64");
        rc = each(arg, b.data);
        if (!rc && more && i + 1 == json_array_size(kvs)) {
            *next = tei_base64_encode(b.data, b.len + 1);
            rc = *next ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory for a request to etcd");
        }
        tei_bytes_fini(&b);
        if (rc)
            break;
    }
    return rc;
}

/* One page from *from on, which is moved on, or NULL after the last one. */
static int list_page(struct etcd_store *e, char **from, const char *to, int64_t deadline_ns,
                     int (*each)(void *arg, const char *key), void *arg)
{
    char *body = NULL, *next = NULL;
    json_t *reply = NULL;
    int rc;

    if (asprintf(&body,
                 "{\"key\":\"%s\",\"range_end\":\"%s\",\"keys_only\":true,\"limit\":\"" PAGE_KEYS
                 "\"}",
                 *from, to) < 0)
        body = NULL;
    rc = tei_etcd_call(e, "kv/range", body, deadline_ns, &reply);
    if (!rc)
        rc = each_key(reply, &next, each, arg);
    json_decref(reply);
    free(body);
    free(*from);
    *from = next;
    return rc;
}

static int etcd_list(struct tei_store *s, const char *prefix, int64_t deadline_ns,
                     int (*each)(void *arg, const char *key), void *arg)
{
    size_t n = strlen(prefix);
    char *from = tei_base64_encode(n ? prefix : "\0", n ? n : 1), *end = strdup(prefix), *to = NULL;
    int rc = 0;

    /*
     * The end of the range is the prefix with its last byte one up, which is never the highest in
     * UTF-8; a zero byte means all keys.
     */
    if (end && n)
        end[n - 1]++;
    if (end)
        to = tei_base64_encode(n ? end : "\0", n ? n : 1);
    if (!from || !to)
        rc = TEI_FAIL(TE_ERR_MEMORY, "no memory for a request to etcd");
    while (!rc && from)
        rc = list_page(tei_etcd_of(s), &from, to, deadline_ns, each, arg);
    free(to);
    free(end);
    free(from);
    return rc;
}

static bool etcd_lists_cheaply(struct tei_store *s)
{
    (void)s;
    return true;
}

/* ---- the lease */

static int64_t lease_of(struct etcd_store *e)
{
    int64_t lease;

    pthread_mutex_lock(&e->lock);
    lease = e->lease;
    pthread_mutex_unlock(&e->lock);
    return lease;
}

/* Exchanges one lease for another, unless somebody else has been quicker. */
static void change_lease(struct etcd_store *e, int64_t from, int64_t to)
{
    pthread_mutex_lock(&e->lock);
    if (e->lease == from)
        e->lease = to;
    pthread_mutex_unlock(&e->lock);
}

/* The lease for a put, granted if there is none. */
static int need_lease(struct etcd_store *e, int ttl_s, int64_t deadline_ns, int64_t *lease)
{
    json_t *reply = NULL;
    char body[64];
    int rc;

    *lease = lease_of(e);
    if (*lease)
        return 0;
    snprintf(body, sizeof body, "{\"TTL\":\"%d\"}", ttl_s);
    rc = tei_etcd_call(e, "lease/grant", body, deadline_ns, &reply);
    if (!rc) {
        *lease = tei_etcd_number(reply, "ID");
        if (!*lease)
            rc = TEI_FAIL(TE_ERR_METADATA, "etcd's answer has no lease");
        change_lease(e, 0, *lease);
        *lease = lease_of(e); /* another thread may have been quicker */
    }
    json_decref(reply);
    return rc;
}

static char *put_body(const char *key, const char *value, size_t len, int64_t lease)
{
    char *key64 = tei_base64_encode(key, strlen(key)), *value64 = tei_base64_encode(value, len);
    char *body = NULL;

    if (key64 && value64 &&
        asprintf(&body, "{\"key\":\"%s\",\"value\":\"%s\",\"lease\":\"%" PRId64 "\"}", key64,
                 value64, lease) < 0)
        body = NULL;
    free(key64);
    free(value64);
    return body;
}

static int put_leased(struct etcd_store *e, const char *key, const char *value, size_t len,
                      int64_t lease, int64_t deadline_ns)
{
    char *body = put_body(key, value, len, lease);
    json_t *reply = NULL;
    int rc = tei_etcd_call(e, "kv/put", body, deadline_ns, &reply);

    free(body);
    json_decref(reply);
    return rc;
}

static int etcd_put(struct tei_store *s, const char *key, const char *value, size_t len, int ttl_s,
                    int64_t deadline_ns)
{
    struct etcd_store *e = tei_etcd_of(s);
    int64_t lease = 0;

    for (int tries = 0;; tries++) {
        int rc = tei_store_check_size(s, key, len);

        if (!rc && ttl_s > 0)
            rc = need_lease(e, ttl_s, deadline_ns, &lease);
        if (!rc)
            rc = put_leased(e, key, value, len, lease, deadline_ns);
        if (rc != TE_ERR_NOT_FOUND)
            return rc;
        change_lease(e, lease, 0); /* it has expired */
        if (tries)
            return TEI_FAIL(TE_ERR_METADATA, "key %s: etcd forgets leases at once: %s", key,
                            te_errmsg());
    }
}

/* Whether all keys hang on the lease. */
static int check_leased(struct etcd_store *e, const char *const *keys, size_t n, int64_t lease,
                        int64_t deadline_ns)
{
    json_t *compare = json_array(), *request, *reply = NULL;
    char id[32], *body;
    int rc = 0;

    snprintf(id, sizeof id, "%" PRId64, lease);
    for (size_t i = 0; i < n; i++) {
        char *key64 = tei_base64_encode(keys[i], strlen(keys[i]));

        if (!key64 || json_array_append_new(compare, json_pack("{s:s, s:s, s:s, s:s}", "target",
                                                               "LEASE", "result", "EQUAL", "lease",
                                                               id, "key", key64)) != 0)
            rc = TE_ERR_MEMORY;
        free(key64);
    }
    request = json_pack("{s:o}", "compare", compare);
    body = rc ? NULL : tei_json_text(request, NULL);
    json_decref(request);
    rc = tei_etcd_call(e, "kv/txn", body, deadline_ns, &reply);
    free(body);
    if (!rc && !json_is_true(json_object_get(reply, "succeeded")))
        rc = tei_err_keep(TE_ERR_NOT_FOUND, "a key is gone from etcd, or another has put it");
    json_decref(reply);
    return rc;
}

static int etcd_keep(struct tei_store *s, const char *const *keys, size_t n, int ttl_s,
                     int64_t deadline_ns)
{
    struct etcd_store *e = tei_etcd_of(s);
    int64_t lease = lease_of(e);
    json_t *reply = NULL;
    char body[64];
    int rc;

    (void)ttl_s; /* is the lease's */
    if (!lease)
        return tei_err_keep(TE_ERR_NOT_FOUND, "there is no lease");
    snprintf(body, sizeof body, "{\"ID\":\"%" PRId64 "\"}", lease);
    rc = tei_etcd_call(e, "lease/keepalive", body, deadline_ns, &reply);
    if (!rc && tei_etcd_number(json_object_get(reply, "result"), "TTL") <= 0)
        rc = tei_err_keep(TE_ERR_NOT_FOUND, "the lease has expired");
    json_decref(reply);
    if (rc == TE_ERR_NOT_FOUND)
        change_lease(e, lease, 0);
    return rc ? rc : check_leased(e, keys, n, lease, deadline_ns);
}

/* ---- open and close */

/* `conn` is shown without what may be a login. */
static int fail_endpoint(const char *conn, const char *text, size_t n)
{
    const char *at = strrchr(conn, '@');

    return TEI_FAIL(TE_ERR_INVALID,
                    "metadata '%.100s': '%.*s' is no endpoint of the form host:port; an example: "
                    "etcd://10.0.0.1:2379,10.0.0.2:2379",
                    at ? at + 1 : conn, (int)tei_min(n, 100), text);
}

static bool has_prefix(const char *text, const char *prefix)
{
    return strncasecmp(text, prefix, strlen(prefix)) == 0;
}

/* One endpoint, trimmed: "host", "host:port", or a whole "https://host:port". */
static int add_endpoint(struct etcd_store *e, const char *conn, const char *from, size_t n,
                        bool tls)
{
    char text[TEI_HOSTPORT_MAX + 16], where[TEI_HOSTPORT_MAX], *host = text, *url = NULL;
    struct tei_hostport hp;

    if (n >= sizeof text || e->n_endpoints == ENDPOINTS_MAX)
        return fail_endpoint(conn, from, n);
    memcpy(text, from, n);
    text[n] = '\0';
    if (has_prefix(text, "http://") || has_prefix(text, "https://")) {
        tls = has_prefix(text, "https://");
        host = strstr(text, "://") + 3;
    }
    if (*host && host[strlen(host) - 1] == '/')
        host[strlen(host) - 1] = '\0';
    if (tei_hostport_read(host, DEFAULT_PORT, &hp) || !hp.host[0])
        return fail_endpoint(conn, from, n);
    tei_hostport_format(hp.host, hp.port, where, sizeof where);
    if (asprintf(&url, "%s://%s", tls ? "https" : "http", where) < 0)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for an endpoint");
    e->endpoints[e->n_endpoints++] = url;
    return 0;
}

/* The endpoints between commas or semicolons. */
static int read_endpoints(struct etcd_store *e, const char *conn, const char *list, bool tls)
{
    e->endpoints = calloc(ENDPOINTS_MAX, sizeof *e->endpoints);
    if (!e->endpoints)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for endpoints");
    while (*list) {
        size_t blank = strspn(list, " \t,;"), n = strcspn(list + blank, ",;"), whole = blank + n;
        int rc = 0;

        list += blank;
        while (n && (list[n - 1] == ' ' || list[n - 1] == '\t'))
            n--;
        if (n)
            rc = add_endpoint(e, conn, list, n, tls);
        if (rc)
            return rc;
        list += whole - blank;
    }
    return e->n_endpoints ? 0 : fail_endpoint(conn, list, 0);
}

/* user:password@, or what the options say. */
static int read_login(struct etcd_store *e, const char **list, const struct tei_conf *conf)
{
    const char *at = strrchr(*list, '@'),
               *colon = at ? memchr(*list, ':', (size_t)(at - *list)) : NULL;

    if (at) {
        size_t n = (size_t)((colon ? colon : at) - *list);

        e->username = strndup(*list, n);
        e->password = colon ? strndup(colon + 1, (size_t)(at - colon) - 1) : strdup("");
        *list = at + 1;
    } else if (conf->metadata_username[0]) {
        e->username = strdup(conf->metadata_username);
        e->password = strdup(conf->metadata_password);
    } else {
        return 0;
    }
    return e->username && e->password ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory for the login");
}

/* Its keys are gone with it. Not where the server did not answer the call before. */
static void revoke_lease(struct etcd_store *e)
{
    int64_t deadline_ns = tei_deadline_ns(e->store.conf->metadata_timeout_ms);
    json_t *reply = NULL;
    char body[64];

    if (!e->lease || !atomic_load_explicit(&e->answers, memory_order_relaxed))
        return;
    snprintf(body, sizeof body, "{\"ID\":\"%" PRId64 "\"}", e->lease);
    tei_etcd_call(e, "lease/revoke", body, deadline_ns, &reply);
    json_decref(reply);
}

static void etcd_close(struct tei_store *s)
{
    struct etcd_store *e = tei_etcd_of(s);

    revoke_lease(e);
    for (size_t i = 0; i < e->n_endpoints; i++)
        free(e->endpoints[i]);
    free(e->endpoints);
    free(e->username);
    free(e->password);
    free(e->token);
    if (e->multi)
        curl_multi_cleanup(e->multi);
    pthread_mutex_destroy(&e->lock);
    tei_http_close(&e->http);
}

static int etcd_open(struct tei_store *s, const char *url, const struct tei_conf *conf)
{
    struct etcd_store *e = tei_etcd_of(s);
    const char *end = strstr(url, "://"), *list = url;
    bool tls = has_prefix(url, "etcds://");
    int rc = tei_http_open(&e->http, conf, reply_max(conf));

    if (rc)
        return rc;
    pthread_mutex_init(&e->lock, NULL);
    if (end && (tls || has_prefix(url, "etcd://")))
        list = end + 3;
    e->multi = curl_multi_init();
    if (!e->multi)
        rc = TEI_FAIL(TE_ERR_MEMORY, "no memory for a metadata store");
    if (!rc)
        rc = read_login(e, &list, conf);
    if (!rc)
        rc = read_endpoints(e, url, list, tls);
    if (rc)
        etcd_close(s);
    return rc;
}

const struct tei_store_ops tei_store_etcd_ops = {
    .scheme = "etcd",
    .size = sizeof(struct etcd_store),
    .open = etcd_open,
    .get = etcd_get,
    .put = etcd_put,
    .del = etcd_del,
    .keep = etcd_keep,
    .list = etcd_list,
    .lists_cheaply = etcd_lists_cheaply,
    .watch = tei_etcd_watch,
    .wake = tei_etcd_wake,
    .close = etcd_close,
    .owns = true,
};
