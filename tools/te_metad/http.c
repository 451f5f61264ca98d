/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library calls on_request() several times for one request: once when the headers are there,
 * then with each piece of the body, then once with nothing more. What the request is, and what is
 * wrong with it, is decided in the first call; it is answered in the last. An answer while the body
 * is still on its way would make the library close the connection, and a client that is busy
 * sending may then see a reset in place of the answer. Two requests are refused at once all the
 * same: one that waits for "100 Continue", and one whose body is too long to be worth discarding.
 *
 * The threads share the store, which has its own lock, and the sum of memory held for values.
 */
#include "te_metad/http.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <microhttpd.h>

#include "te_metad/certified.h"
#include "te_metad/clients.h"
#include "te_metad/figures.h"
#include "te_metad/log.h"

#define THREADS        4
#define HEADERS_MAX    (128u << 10) /* bytes of a request's line and headers, and of one read */
#define BODY_START     4096u
#define DISCARD_MAX    (64u << 20) /* bytes of a refused body that are read and thrown away */
#define SMALL          (64u << 10) /* values up to this size count for nothing in `held` */
#define HELD_MIN       (64u << 20)
#define HELD_VALUES    4u
#define TYPE_JSON      "application/json; charset=utf-8"
#define TYPE_TEXT      "text/plain; charset=utf-8"
#define TYPE_METRICS   "text/plain; version=0.0.4; charset=utf-8"
#define HEALTH_NS      INT64_C(1000000000)
#define NOT_FOUND      "metadata not found"
#define TOO_MANY       "too many large values at once: try again"
#define ALLOW_METADATA "GET, HEAD, PUT, POST, DELETE"
#define ALLOW_PAGE     "GET, HEAD"
#define TTL_HEADER     "Metadata-TTL"
#define TTL_DIGITS     5
#define TTL_BAD        "bad Metadata-TTL: it must be a number of seconds, 1 to 86400"
#define TTL_NONE       "no Metadata-TTL: a POST keeps a key for so many seconds, 1 to 86400"
#define KEYS_HEADER    "Metadata-Keys"
#define TOKEN_WANTED   "this server wants its token: send the header Authorization: Bearer TOKEN"
#define NO_READ        "the token may not read this key: see --token-file of te_metad"
#define NO_WRITE       "the token may not change this key: see --token-file of te_metad"
#define NO_CERTIFICATE "this server wants a certificate of an authority of its --tls-client-ca"
#define TLS_PRIORITIES "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1"
#define FLAGS          (MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ERROR_LOG)

_Static_assert(STORE_TTL_MAX == 86400, "the texts name the largest number of seconds");

/* What /health found last; a disk is not to be written to for every question. */
struct health {
    pthread_mutex_t lock;
    int64_t tried_ns; /* 0: never */
    enum store_result result;
    char why[STORE_WHY_MAX];
};

struct http {
    struct http_options o;
    struct figures figures;
    struct health health;
    struct MHD_Daemon *daemon;
    struct clients clients;
    size_t held_max;
    atomic_size_t held;       /* bytes of large values on their way in or out */
    atomic_llong last_note_s; /* when the last line was written to standard error */
    char too_large[128];
    char wrong_path[256];
    pthread_t starter;       /* the thread that starts and stops */
    char said[HTTP_WHY_MAX]; /* the first line that the library had for that thread */
};

/* A header of an answer. */
struct field {
    const char *name, *value; /* NULL: none */
};

struct answer {
    unsigned status;  /* 0: not decided yet */
    const char *text; /* lives as long as the server */
    struct field field;
};

struct request {
    struct http *h;
    struct MHD_Connection *c;
    const char *url, *method;
    int64_t begin_ns;
    enum verb verb;
    struct answer refusal;     /* .status 0 as long as nothing is wrong */
    const struct token *token; /* NULL: the server has none */
    const char *key;           /* or the prefix of VERB_LIST; in the memory of the connection */
    size_t key_len;
    unsigned ttl_s; /* 0: none */
    char *body;
    size_t len, cap;
    uint64_t seen; /* bytes of the body so far, stored or not */
    size_t held;   /* this request's part of http.held */
};

/* At most one line a second: a full disk must not fill the log as well. */
static void note(struct http *h, const char *what, const char *why)
{
    long long now = (long long)time(NULL), last = atomic_load(&h->last_note_s);
    if (h->o.quiet || now == last || !atomic_compare_exchange_strong(&h->last_note_s, &last, now))
        return;
    log_line("%s: %s", what, why);
}

/* --------------------------------------------------------------------------------------- memory */

/* Counts `size` bytes for this request in all; false when all requests together hold too much. */
static bool hold(struct http *h, struct request *r, size_t size)
{
    size_t more = size > SMALL ? size - r->held : 0;
    if (more == 0)
        return true;
    if (atomic_fetch_add(&h->held, more) + more > h->held_max) {
        atomic_fetch_sub(&h->held, more);
        return false;
    }
    r->held += more;
    return true;
}

static void drop_body(struct http *h, struct request *r)
{
    free(r->body);
    r->body = NULL;
    r->len = r->cap = 0;
    atomic_fetch_sub(&h->held, r->held);
    r->held = 0;
}

static void refuse(struct http *h, struct request *r, unsigned status, const char *text)
{
    r->refusal = (struct answer){.status = status, .text = text};
    drop_body(h, r);
}

/* Room for n more bytes of the body; refuses the request when there is none. */
static bool grow(struct http *h, struct request *r, size_t n)
{
    size_t cap = r->cap ? r->cap : BODY_START;
    if (n > h->o.max_value - r->len) {
        refuse(h, r, MHD_HTTP_CONTENT_TOO_LARGE, h->too_large);
        return false;
    }
    while (cap - r->len < n)
        cap *= 2;
    if (cap == r->cap)
        return true;
    char *body = hold(h, r, cap) ? realloc(r->body, cap) : NULL;
    if (!body) {
        refuse(h, r, MHD_HTTP_SERVICE_UNAVAILABLE, TOO_MANY);
        return false;
    }
    r->body = body;
    r->cap = cap;
    return true;
}

/* ------------------------------------------------------------------------------------ answering */

/* Counts the request, and logs it if that is wanted. */
static void record(const struct request *r, unsigned status)
{
    const union MHD_ConnectionInfo *from =
        MHD_get_connection_info(r->c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    figures_add(&r->h->figures, &(struct figure){.verb = r->verb,
                                                 .status = status,
                                                 .begin_ns = r->begin_ns,
                                                 .method = r->method,
                                                 .url = r->h->o.request_log ? r->url : NULL,
                                                 .key = r->key,
                                                 .key_len = r->key_len,
                                                 .from = from ? from->client_addr : NULL});
}

static enum MHD_Result send_response(const struct request *r, unsigned status,
                                     struct MHD_Response *response, const char *type,
                                     struct field field)
{
    struct MHD_Connection *c = r->c;
    if (!response)
        return MHD_NO;
    record(r, status);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (field.name)
        MHD_add_response_header(response, field.name, field.value);
    enum MHD_Result rc = MHD_queue_response(c, status, response);
    MHD_destroy_response(response);
    return rc;
}

static enum MHD_Result answer(const struct request *r, const struct answer *a)
{
    /* The library copies nothing and changes nothing; its parameter is not const for others. */
    void *text = (void *)(uintptr_t)a->text;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(a->text), text, MHD_RESPMEM_PERSISTENT);
    return send_response(r, a->status, response, TYPE_TEXT, a->field);
}

static enum MHD_Result say(const struct request *r, unsigned status, const char *text)
{
    return answer(r, &(struct answer){.status = status, .text = text});
}

static enum MHD_Result say_failed(struct http *h, const struct request *r, enum store_result result,
                                  const char *what, const char *why)
{
    unsigned status =
        result == STORE_FULL ? MHD_HTTP_INSUFFICIENT_STORAGE : MHD_HTTP_INTERNAL_SERVER_ERROR;
    char text[STORE_WHY_MAX + 64];
    int len = snprintf(text, sizeof text, "%s: %s", what, why);
    note(h, what, why);
    return send_response(r, status,
                         MHD_create_response_from_buffer((size_t)len, text, MHD_RESPMEM_MUST_COPY),
                         TYPE_TEXT, (struct field){0});
}

/* Sends what was malloc'ed, and frees it. */
static enum MHD_Result send_data(struct http *h, struct request *r, char *data, size_t len,
                                 const char *type, struct field field)
{
    if (!hold(h, r, len)) {
        free(data);
        return say(r, MHD_HTTP_SERVICE_UNAVAILABLE, TOO_MANY);
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, data, MHD_RESPMEM_MUST_FREE);
    if (!response)
        free(data);
    return send_response(r, MHD_HTTP_OK, response, type, field);
}

static enum MHD_Result get(struct http *h, struct request *r)
{
    char why[STORE_WHY_MAX], *value;
    size_t len;
    enum store_result result = store_get(h->o.store, r->key, r->key_len, &value, &len, why);
    if (result == STORE_ABSENT)
        return say(r, MHD_HTTP_NOT_FOUND, NOT_FOUND);
    if (result != STORE_OK)
        return say_failed(h, r, result, "cannot read", why);
    return send_data(h, r, value, len, TYPE_JSON, (struct field){0});
}

static bool is_shown(const void *token, const char *key, size_t len)
{
    return !token || token_may(token, false, key, len);
}

static enum MHD_Result list(struct http *h, struct request *r)
{
    char why[STORE_WHY_MAX], count[24];
    struct store_keys keys;
    enum store_result result =
        store_list(h->o.store, r->key, r->key_len, is_shown, r->token, &keys, why);
    if (result != STORE_OK)
        return say_failed(h, r, result, "cannot list", why);
    snprintf(count, sizeof count, "%llu", (unsigned long long)keys.count);
    return send_data(h, r, keys.text, keys.len, TYPE_TEXT, (struct field){KEYS_HEADER, count});
}

static enum MHD_Result put(struct http *h, const struct request *r)
{
    char why[STORE_WHY_MAX], ttl[12];
    struct answer done = {.status = MHD_HTTP_OK, .text = "metadata updated"};
    enum store_result result =
        store_put(h->o.store, r->key, r->key_len, r->body, r->len, r->ttl_s, why);
    if (result != STORE_OK)
        return say_failed(h, r, result, "cannot store", why);
    if (r->ttl_s) {
        snprintf(ttl, sizeof ttl, "%u", r->ttl_s);
        done.field = (struct field){TTL_HEADER, ttl};
    }
    return answer(r, &done);
}

static enum MHD_Result keep(struct http *h, const struct request *r)
{
    char why[STORE_WHY_MAX];
    enum store_result result = store_keep(h->o.store, r->key, r->key_len, r->ttl_s, why);
    if (result == STORE_OK)
        return say(r, MHD_HTTP_OK, "metadata kept");
    if (result == STORE_ABSENT)
        return say(r, MHD_HTTP_NOT_FOUND, NOT_FOUND);
    return say_failed(h, r, result, "cannot keep", why);
}

static enum MHD_Result del(struct http *h, const struct request *r)
{
    char why[STORE_WHY_MAX];
    enum store_result result = store_del(h->o.store, r->key, r->key_len, why);
    if (result == STORE_OK)
        return say(r, MHD_HTTP_OK, "metadata deleted");
    return say_failed(h, r, result, "cannot delete", why);
}

static enum MHD_Result health(struct http *h, const struct request *r)
{
    struct health *last = &h->health;
    char why[STORE_WHY_MAX];
    pthread_mutex_lock(&last->lock);
    if (!last->tried_ns || figures_now_ns() - last->tried_ns > HEALTH_NS) {
        last->result = store_try(h->o.store, last->why);
        last->tried_ns = figures_now_ns();
    }
    enum store_result result = last->result;
    memcpy(why, last->why, sizeof why);
    pthread_mutex_unlock(&last->lock);
    return result == STORE_OK ? say(r, MHD_HTTP_OK, "ok")
                              : say_failed(h, r, result, "cannot store", why);
}

static enum MHD_Result metrics(struct http *h, struct request *r)
{
    pthread_mutex_lock(&h->clients.lock);
    size_t connections = h->clients.count;
    pthread_mutex_unlock(&h->clients.lock);
    char *text = figures_text(&h->figures, h->o.store, connections);
    if (!text)
        return say(r, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
    return send_data(h, r, text, strlen(text), TYPE_METRICS, (struct field){0});
}

static enum MHD_Result carry_out(struct http *h, struct request *r)
{
    if (r->refusal.status)
        return answer(r, &r->refusal);
    switch (r->verb) {
    case VERB_GET:
        return get(h, r);
    case VERB_LIST:
        return list(h, r);
    case VERB_PUT:
        return put(h, r);
    case VERB_KEEP:
        return keep(h, r);
    case VERB_DELETE:
        return del(h, r);
    case VERB_METRICS:
        return metrics(h, r);
    case VERB_HEALTH:
    default:
        return health(h, r);
    }
}

/* ----------------------------------------------------------------------------- the first call */

static const char *header(struct MHD_Connection *c, const char *name)
{
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

static bool is_read(const char *method)
{
    return strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
}

static struct answer judge_verb(struct request *r, const char *method)
{
    if (is_read(method))
        r->verb = VERB_GET;
    else if (strcmp(method, MHD_HTTP_METHOD_PUT) == 0)
        r->verb = VERB_PUT;
    else if (strcmp(method, MHD_HTTP_METHOD_POST) == 0)
        r->verb = VERB_KEEP;
    else if (strcmp(method, MHD_HTTP_METHOD_DELETE) == 0)
        r->verb = VERB_DELETE;
    else
        return (struct answer){.status = MHD_HTTP_METHOD_NOT_ALLOWED,
                               .text = "method not allowed: use " ALLOW_METADATA,
                               .field = {MHD_HTTP_HEADER_ALLOW, ALLOW_METADATA}};
    return (struct answer){0};
}

static struct answer bad_request(const char *text)
{
    return (struct answer){.status = MHD_HTTP_BAD_REQUEST, .text = text};
}

static bool argument(struct MHD_Connection *c, const char *name, const char **value, size_t *len)
{
    return MHD_lookup_connection_value_n(c, MHD_GET_ARGUMENT_KIND, name, strlen(name), value,
                                         len) == MHD_YES;
}

static struct answer judge_key(struct request *r, struct MHD_Connection *c)
{
    const char *prefix;
    size_t prefix_len;
    bool listed = argument(c, "prefix", &prefix, &prefix_len);
    bool named = argument(c, "key", &r->key, &r->key_len);
    if (listed && named)
        return bad_request("both ?key= and ?prefix= in the URL: one key, or a list");
    if (listed && r->verb == VERB_GET) {
        r->verb = VERB_LIST;
        r->key = prefix;
        r->key_len = prefix_len;
    } else if (!named || r->key_len == 0) {
        return bad_request("no key: add ?key=KEY to the URL");
    } else if (memchr(r->key, '\0', r->key_len)) {
        return bad_request("the key holds a NUL byte");
    } else if (r->verb == VERB_PUT && memchr(r->key, '\n', r->key_len)) {
        return bad_request("the key holds a newline: a list of keys has one on each line");
    }
    return (struct answer){0};
}

/* A number of seconds; 0 when the text is none that is allowed. */
static unsigned parse_ttl(const char *text)
{
    size_t len = strlen(text);
    if (len > TTL_DIGITS || strspn(text, "0123456789") != len)
        return 0;
    unsigned long ttl_s = strtoul(text, NULL, 10);
    return ttl_s <= STORE_TTL_MAX ? (unsigned)ttl_s : 0;
}

static struct answer judge_ttl(struct request *r, struct MHD_Connection *c)
{
    const char *text = header(c, TTL_HEADER);
    if (!text)
        return r->verb == VERB_KEEP ? bad_request(TTL_NONE) : (struct answer){0};
    r->ttl_s = parse_ttl(text);
    return r->ttl_s ? (struct answer){0} : bad_request(TTL_BAD);
}

static struct answer judge_token(const struct http *h, struct request *r, struct MHD_Connection *c)
{
    static const char scheme[] = "Bearer ";
    const char *sent = header(c, MHD_HTTP_HEADER_AUTHORIZATION);
    if (sent && strncasecmp(sent, scheme, sizeof scheme - 1) == 0)
        r->token = tokens_find(h->o.tokens, sent + sizeof scheme - 1);
    if (r->token)
        return (struct answer){0};
    return (struct answer){.status = MHD_HTTP_UNAUTHORIZED,
                           .text = TOKEN_WANTED,
                           .field = {MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer"}};
}

/* Whether the token may do that to the key. A list shows what it may read. */
static struct answer judge_access(const struct request *r)
{
    bool write = r->verb != VERB_GET;
    if (!r->token || r->verb == VERB_LIST || token_may(r->token, write, r->key, r->key_len))
        return (struct answer){0};
    return (struct answer){.status = MHD_HTTP_FORBIDDEN, .text = write ? NO_WRITE : NO_READ};
}

/* Of what can only be read. */
static struct answer judge_page(struct request *r, const char *method, enum verb verb)
{
    r->verb = verb;
    if (is_read(method))
        return (struct answer){0};
    return (struct answer){.status = MHD_HTTP_METHOD_NOT_ALLOWED,
                           .text = "method not allowed: use " ALLOW_PAGE,
                           .field = {MHD_HTTP_HEADER_ALLOW, ALLOW_PAGE}};
}

/* What the headers say the body will have; 0 when they do not say. */
static uint64_t announced(struct MHD_Connection *c)
{
    const char *text = header(c, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return text ? strtoull(text, NULL, 10) : 0;
}

static struct answer judge_certificate(const struct http *h, struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        h->o.tls_client_ca ? MHD_get_connection_info(c, MHD_CONNECTION_INFO_GNUTLS_SESSION) : NULL;
    if (!h->o.tls_client_ca || (info && certified(info->tls_session)))
        return (struct answer){0};
    return (struct answer){.status = MHD_HTTP_FORBIDDEN, .text = NO_CERTIFICATE};
}

static struct answer judge(struct http *h, struct request *r, struct MHD_Connection *c,
                           const char *url, const char *method)
{
    if (strcmp(url, "/health") == 0)
        return judge_page(r, method, VERB_HEALTH);
    struct answer a = judge_certificate(h, c);
    if (!a.status && h->o.tokens)
        a = judge_token(h, r, c);
    if (a.status)
        return a;
    if (strcmp(url, "/metrics") == 0)
        return judge_page(r, method, VERB_METRICS);
    if (strcmp(url, h->o.path) != 0)
        return (struct answer){.status = MHD_HTTP_NOT_FOUND, .text = h->wrong_path};
    a = judge_verb(r, method);
    if (!a.status)
        a = judge_key(r, c);
    if (!a.status)
        a = judge_access(r);
    if (!a.status && (r->verb == VERB_PUT || r->verb == VERB_KEEP))
        a = judge_ttl(r, c);
    if (!a.status && r->verb == VERB_PUT && announced(c) > h->o.max_value)
        a = (struct answer){.status = MHD_HTTP_CONTENT_TOO_LARGE, .text = h->too_large};
    return a;
}

/* Whether a refusal goes out before the body has come. */
static bool refuse_at_once(struct MHD_Connection *c)
{
    const char *expect = header(c, MHD_HTTP_HEADER_EXPECT);
    return (expect && strcasecmp(expect, "100-continue") == 0) || announced(c) > DISCARD_MAX;
}

static enum MHD_Result begin(struct http *h, struct MHD_Connection *c, const char *url,
                             const char *method, void **context)
{
    struct request *r = calloc(1, sizeof *r);
    if (!r)
        return MHD_NO;
    *context = r;
    r->h = h;
    r->c = c;
    r->url = url;
    r->method = method;
    r->begin_ns = figures_now_ns();
    r->refusal = judge(h, r, c, url, method);
    return r->refusal.status && refuse_at_once(c) ? answer(r, &r->refusal) : MHD_YES;
}

/* ----------------------------------------------------------------------- calls of the library */

/* Takes a piece of the body. Only values are kept; a body that nobody asked for is thrown away. */
static enum MHD_Result take(struct http *h, struct request *r, const char *data, size_t n)
{
    r->seen += n;
    if (r->verb == VERB_PUT && !r->refusal.status && grow(h, r, n)) {
        memcpy(r->body + r->len, data, n);
        r->len += n;
        return MHD_YES;
    }
    return r->seen > h->o.max_value + DISCARD_MAX ? MHD_NO : MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **context)
{
    struct http *h = cls;
    struct request *r = *context;
    (void)version;
    if (!r)
        return begin(h, c, url, method, context);
    if (*size == 0)
        return carry_out(h, r);
    size_t n = *size;
    *size = 0;
    return take(h, r, data, n);
}

static void on_completed(void *cls, struct MHD_Connection *c, void **context,
                         enum MHD_RequestTerminationCode code)
{
    struct http *h = cls;
    struct request *r = *context;
    if (!r)
        return;
    if (code == MHD_REQUEST_TERMINATED_COMPLETED_OK) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        if (info->socket_context)
            clients_touch(&h->clients, info->socket_context);
    }
    drop_body(h, r);
    free(r);
    *context = NULL;
}

static void on_connection(void *cls, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http *h = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        *context = clients_add(
            &h->clients, MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
    else if (*context)
        clients_del(&h->clients, *context);
}

/* ------------------------------------------------------------------------------- start and stop */

/* Why a certificate is no good is only in the log of the library; what clients do wrong is too. */
static void on_log(void *cls, const char *format, va_list args)
{
    struct http *h = cls;
    if (!pthread_equal(pthread_self(), h->starter) || h->said[0])
        return;
    vsnprintf(h->said, sizeof h->said, format, args);
    h->said[strcspn(h->said, "\n")] = '\0';
}

static struct MHD_Daemon *start_daemon(struct http *h)
{
    /* The library may have more connections than we allow: those cut off take a moment to go. */
    unsigned connections = 2 * h->o.max_connections + 64;
    /* It changes none of these; its type is not const for others. */
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)h->o.tls_cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)h->o.tls_key},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TLS_PRIORITIES},
        {h->o.tls_client_ca ? MHD_OPTION_HTTPS_MEM_TRUST : MHD_OPTION_END, 0,
         (void *)(uintptr_t)h->o.tls_client_ca},
        {MHD_OPTION_END, 0, NULL},
    };
    return MHD_start_daemon(h->o.tls_cert ? FLAGS | MHD_USE_TLS : FLAGS, 0, NULL, NULL, on_request,
                            h, MHD_OPTION_EXTERNAL_LOGGER, on_log, h, MHD_OPTION_LISTEN_SOCKET,
                            h->o.listen_fd, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)THREADS,
                            MHD_OPTION_CONNECTION_LIMIT, connections, MHD_OPTION_CONNECTION_TIMEOUT,
                            h->o.idle_timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)HEADERS_MAX, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
                            MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_ARRAY,
                            h->o.tls_cert ? tls : &tls[4], MHD_OPTION_END);
}

static void write_texts(struct http *h)
{
    snprintf(h->too_large, sizeof h->too_large,
             "the value is larger than %llu bytes: raise --max-value of te_metad",
             (unsigned long long)h->o.max_value);
    snprintf(h->wrong_path, sizeof h->wrong_path,
             "te_metad serves %s?key=... (and /health, /metrics)", h->o.path);
}

static void explain(const struct http *h, char why[HTTP_WHY_MAX])
{
    if (h->o.tls_cert)
        snprintf(why, HTTP_WHY_MAX,
                 "cannot start the HTTPS server: %.300s; --tls-cert and --tls-key must be a "
                 "certificate and its key, in PEM and without a password%s",
                 h->said[0] ? h->said : "no reason is known",
                 h->o.tls_client_ca ? ", --tls-client-ca certificates in PEM" : "");
    else
        snprintf(why, HTTP_WHY_MAX,
                 "cannot start the HTTP server: out of memory, threads or open files%s%.300s",
                 h->said[0] ? ": " : "", h->said);
}

static void free_http(struct http *h)
{
    pthread_mutex_destroy(&h->health.lock);
    clients_fini(&h->clients);
    free(h);
}

struct http *http_start(const struct http_options *o, char why[HTTP_WHY_MAX])
{
    if (o->tls_cert && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES) {
        snprintf(why, HTTP_WHY_MAX,
                 "the libmicrohttpd of this host was built without TLS: install one with it, or "
                 "give no --tls-cert and --tls-key");
        return NULL;
    }
    if (o->tls_client_ca && !certified_open(why, HTTP_WHY_MAX))
        return NULL;
    struct http *h = calloc(1, sizeof *h);
    if (!h) {
        snprintf(why, HTTP_WHY_MAX, "out of memory");
        return NULL;
    }
    h->o = *o;
    h->starter = pthread_self();
    h->held_max = (size_t)o->max_value * HELD_VALUES;
    if (h->held_max < HELD_MIN)
        h->held_max = HELD_MIN;
    write_texts(h);
    clients_init(&h->clients, o->max_connections);
    pthread_mutex_init(&h->health.lock, NULL);
    h->daemon = start_daemon(h);
    if (h->daemon)
        return h;
    explain(h, why);
    free_http(h);
    return NULL;
}

void http_stop(struct http *h)
{
    MHD_stop_daemon(h->daemon);
    free_http(h);
}
