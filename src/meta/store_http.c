/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_http.c - the metadata server that speaks HTTP: GET, PUT and DELETE of <url>?key=<key>.
 *
 * te_metad can do more, and says so by headers that other servers ignore or do not send. A PUT with
 * "Metadata-TTL: seconds" makes a key that expires; one who honours that answers with the same
 * header. Only to such a server goes the POST that keeps a key for another while: another might
 * take it for a write. GET <url>?prefix=<text> lists keys, one a line, under "Metadata-Keys: n".
 *
 * Answers that a caller may expect (404, and 400 to a PUT) set the text of the error but log
 * nothing: whether an absent key is bad news is for the directory to say.
 */
#include "meta/http.h"

#include "base/err.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TTL_HEADER   "Metadata-TTL"
#define KEYS_HEADER  "Metadata-Keys"
#define TTL_LINE_MAX 64

struct http_store {
    struct tei_store store;
    struct tei_http http;
    char *url;                /* as given */
    char *shown;              /* without credentials, for messages */
    char *authorization;      /* header, NULL: none */
    _Atomic bool honours_ttl; /* the last PUT with one was answered so */
};

static struct http_store *of(struct tei_store *s)
{
    return tei_container_of(s, struct http_store, store);
}

/* ---- calls */

static bool is_unreserved(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

/*
 * <url>?<name>=<key>, everything in the key but unreserved characters percent-encoded; NULL when
 * memory is out.
 */
static char *key_url(const struct http_store *h, const char *name, const char *key)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t n = strlen(h->url);
    char *url = malloc(n + strlen(name) + 3 + 3 * strlen(key)), *p = url;

    if (!url)
        return NULL;
    p += sprintf(p, "%s%c%s=", h->url, strchr(h->url, '?') ? '&' : '?', name);
    for (; *key; key++) {
        if (is_unreserved(*key)) {
            *p++ = *key;
        } else {
            *p++ = '%';
            *p++ = hex[(unsigned char)*key >> 4];
            *p++ = hex[(unsigned char)*key & 15];
        }
    }
    *p = '\0';
    return url;
}

/* Runs the call on a key; x->url is made here and gone when it returns. */
static int run_on_key(struct http_store *h, struct tei_http_call *x, const char *name,
                      const char *key, int64_t deadline_ns)
{
    char *url = key_url(h, name, key);
    size_t i = 0;
    int rc;

    if (!url)
        return TEI_FAIL(TE_ERR_MEMORY, "%s %s: no memory for the URL", x->method, h->shown);
    while (x->lines[i])
        i++;
    x->lines[i] = h->authorization;
    x->url = url;
    x->shown = h->shown;
    x->key = key;
    rc = tei_http_run(&h->http, x, deadline_ns, false);
    free(url);
    x->url = NULL;
    return rc;
}

static int fail_status(const struct http_store *h, const struct tei_http_call *x, const char *key)
{
    char text[TEI_HTTP_SAID_MAX];

    if (x->status == 413)
        return TEI_FAIL(TE_ERR_TOO_LARGE,
                        "%s %s, key %s: the server takes no value of %zu bytes (413 %s); raise its "
                        "limit (te_metad: --max-value) or register fewer, larger regions",
                        x->method, x->shown, key, x->body_len, tei_http_said(x, text));
    if (x->status == 401 || x->status == 403)
        return TEI_FAIL(TE_ERR_METADATA,
                        "%s %s, key %s: the server refuses who asks (status %ld: %s); "
                        "TE_METADATA_TOKEN, or user:password@ in the URL, say who that is%s",
                        x->method, x->shown, key, x->status, tei_http_said(x, text),
                        x->status == 403 ? "; the key of an engine ends in its local_server_name, "
                                           "which must be one that the token is for"
                                         : "");
    return TEI_FAIL(TE_ERR_METADATA, "%s %s, key %s: status %ld, must be 200: %s%s", x->method,
                    x->shown, key, x->status, tei_http_said(x, text),
                    tei_http_proxy_hint(&h->http));
}

/* Tells an answer that is no failure of the server; not logged. */
static int tell(const struct tei_http_call *x, int code, const char *key)
{
    char text[TEI_HTTP_SAID_MAX], line[2 * TEI_HTTP_SAID_MAX + 512];

    snprintf(line, sizeof line, "%s %.200s, key %.200s: status %ld: %s", x->method, x->shown, key,
             x->status, tei_http_said(x, text));
    TEI_DEBUG("%s", line);
    return tei_err_keep(code, line);
}

/* ---- the operations */

static int http_get(struct tei_store *s, const char *key, int64_t deadline_ns,
                    struct tei_bytes *out, int64_t *revision)
{
    struct tei_http_call x = {.method = "GET"};
    int rc = run_on_key(of(s), &x, "key", key, deadline_ns);

    if (revision)
        *revision = 0;
    if (!rc && x.status == 404)
        rc = tell(&x, TE_ERR_NOT_FOUND, key);
    else if (!rc && x.status != 200)
        rc = fail_status(of(s), &x, key);
    if (!rc && !x.reply.data) {
        x.reply.data = strdup("");
        if (!x.reply.data)
            rc = TEI_FAIL(TE_ERR_MEMORY, "GET %s: no memory for the answer", x.shown);
    }
    if (rc) {
        tei_bytes_fini(&x.reply);
        return rc;
    }
    *out = x.reply;
    return 0;
}

static int http_put(struct tei_store *s, const char *key, const char *value, size_t len, int ttl_s,
                    int64_t deadline_ns)
{
    struct http_store *h = of(s);
    char ttl[TTL_LINE_MAX];
    struct tei_http_call x = {.method = "PUT",
                              .body = value,
                              .body_len = len,
                              .lines = {"Content-Type: application/json"},
                              .wanted = TTL_HEADER};
    int rc = tei_store_check_size(s, key, len);

    snprintf(ttl, sizeof ttl, TTL_HEADER ": %d", ttl_s);
    if (ttl_s > 0)
        x.lines[1] = ttl;
    if (!rc)
        rc = run_on_key(h, &x, "key", key, deadline_ns);
    if (!rc && x.status == 400)
        rc = tell(&x, TE_ERR_EXISTS, key);
    else if (!rc && x.status != 200)
        rc = fail_status(of(s), &x, key);
    tei_bytes_fini(&x.reply);
    if (!rc && ttl_s > 0)
        atomic_store_explicit(&h->honours_ttl, x.header[0] != '\0', memory_order_relaxed);
    return rc;
}

static int http_del(struct tei_store *s, const char *key, int64_t deadline_ns)
{
    struct tei_http_call x = {.method = "DELETE"};
    int rc = run_on_key(of(s), &x, "key", key, deadline_ns);

    if (!rc && x.status != 200 && x.status != 404)
        rc = fail_status(of(s), &x, key);
    tei_bytes_fini(&x.reply);
    return rc;
}

static int keep_one(struct http_store *h, const char *key, int ttl_s, int64_t deadline_ns)
{
    char ttl[TTL_LINE_MAX];
    struct tei_http_call x = {.method = "POST", .body = "", .lines = {ttl}};
    int rc;

    snprintf(ttl, sizeof ttl, TTL_HEADER ": %d", ttl_s);
    rc = run_on_key(h, &x, "key", key, deadline_ns);
    if (!rc && x.status == 404)
        rc = tell(&x, TE_ERR_NOT_FOUND, key);
    else if (!rc && x.status != 200)
        rc = fail_status(h, &x, key);
    tei_bytes_fini(&x.reply);
    return rc;
}

static int http_keep(struct tei_store *s, const char *const *keys, size_t n, int ttl_s,
                     int64_t deadline_ns)
{
    struct http_store *h = of(s);
    int rc = 0;

    if (ttl_s <= 0 || !atomic_load_explicit(&h->honours_ttl, memory_order_relaxed))
        return 0; /* nothing expires there */
    for (size_t i = 0; i < n && !rc; i++)
        rc = keep_one(h, keys[i], ttl_s, deadline_ns);
    return rc;
}

/* Hands out the lines of a list. */
static int each_line(char *text, int (*each)(void *arg, const char *key), void *arg)
{
    char *save = NULL;
    int rc = 0;

    for (char *key = strtok_r(text, "\n", &save); key && !rc; key = strtok_r(NULL, "\n", &save))
        rc = each(arg, key);
    return rc;
}

static int http_list(struct tei_store *s, const char *prefix, int64_t deadline_ns,
                     int (*each)(void *arg, const char *key), void *arg)
{
    struct tei_http_call x = {.method = "GET", .wanted = KEYS_HEADER};
    char said[TEI_HTTP_SAID_MAX];
    int rc = run_on_key(of(s), &x, "prefix", prefix, deadline_ns);

    if (!rc && (x.status == 401 || x.status == 403 || x.status >= 500))
        rc = fail_status(of(s), &x, prefix);
    else if (!rc && (x.status != 200 || !x.header[0]))
        rc =
            TEI_FAIL(TE_ERR_UNSUPPORTED,
                     "the HTTP server at %s gives no list of keys (status %ld: %s): te_metad does, "
                     "if that is its URL, and so do etcd and redis",
                     x.shown, x.status, tei_http_said(&x, said));
    else if (!rc && x.reply.data)
        rc = each_line(x.reply.data, each, arg);
    tei_bytes_fini(&x.reply);
    return rc;
}

/* Of those that speak HTTP only te_metad is known to list keys, as it is to honour a TTL. */
static bool http_lists_cheaply(struct tei_store *s)
{
    return atomic_load_explicit(&of(s)->honours_ttl, memory_order_relaxed);
}

/* ---- open and close */

static void http_close(struct tei_store *s)
{
    struct http_store *h = of(s);

    tei_http_close(&h->http);
    free(h->url);
    free(h->shown);
    free(h->authorization);
}

static int http_open(struct tei_store *s, const char *url, const struct tei_conf *conf)
{
    struct http_store *h = of(s);
    int rc = tei_http_open(&h->http, conf, conf->metadata_max_value);

    if (rc)
        return rc;
    rc = strchr(url, '#') ? TE_ERR_INVALID : tei_http_shown(url, &h->shown);
    if (rc) {
        http_close(s);
        if (rc == TE_ERR_MEMORY)
            return TEI_FAIL(rc, "no memory for a metadata store");
        return TEI_FAIL(TE_ERR_INVALID,
                        "the metadata URL '%.80s' is not of the form http://host:port/path",
                        strrchr(url, '@') ? strrchr(url, '@') : url); /* no password */
    }
    h->url = strdup(url);
    if (h->url &&
        (!conf->metadata_token[0] ||
         asprintf(&h->authorization, "Authorization: Bearer %s", conf->metadata_token) >= 0))
        return 0;
    h->authorization = NULL;
    http_close(s);
    return TEI_FAIL(TE_ERR_MEMORY, "no memory for a metadata store");
}

const struct tei_store_ops tei_store_http_ops = {
    .scheme = "http",
    .size = sizeof(struct http_store),
    .open = http_open,
    .get = http_get,
    .put = http_put,
    .del = http_del,
    .keep = http_keep,
    .list = http_list,
    .lists_cheaply = http_lists_cheaply,
    .close = http_close,
};
