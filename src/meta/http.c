/* SPDX-License-Identifier: Apache-2.0 */
#include "meta/http.h"

#include "base/err.h"
#include "base/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define KEY_SHOWN 200

/*
 * The option that takes names of protocols came with 7.85, and the one that takes bits went out of
 * use with it. The library that is there may be older than the headers that this is built with.
 */
#define PROTOCOLS_BITS \
    ((CURLoption)181) /* CURLOPT_PROTOCOLS, without the warning of newer headers */

static CURLcode set_protocols(CURL *c)
{
    CURLcode code = CURLE_UNKNOWN_OPTION;

#if LIBCURL_VERSION_NUM >= 0x075500
    code = curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
#endif
    if (code == CURLE_UNKNOWN_OPTION)
        code = curl_easy_setopt(c, PROTOCOLS_BITS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    return code;
}

/* Once; what has failed, for want of memory perhaps, is tried again by the next one. */
static CURLcode start_curl(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool started;
    CURLcode code = CURLE_OK;

    pthread_mutex_lock(&lock);
    if (!started)
        code = curl_global_init(CURL_GLOBAL_DEFAULT);
    started = code == CURLE_OK;
    pthread_mutex_unlock(&lock);
    return code;
}

/* ---- the pool of handles */

static CURL *take_handle(struct tei_http *h)
{
    CURL *c = NULL;

    pthread_mutex_lock(&h->lock);
    if (h->n_idle)
        c = h->idle[--h->n_idle];
    pthread_mutex_unlock(&h->lock);
    return c ? c : curl_easy_init();
}

/*
 * Connections stay, and so do the options, all of which the next call sets: curl_easy_reset() takes
 * memory, and a handle for which there was none is of no use. What they lead to goes now.
 */
static void give_handle(struct tei_http *h, CURL *c)
{
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, NULL);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, NULL);
    curl_easy_setopt(c, CURLOPT_POSTFIELDS, NULL);
    pthread_mutex_lock(&h->lock);
    if (h->n_idle < TEI_HTTP_HANDLES) {
        h->idle[h->n_idle++] = c;
        c = NULL;
    }
    pthread_mutex_unlock(&h->lock);
    curl_easy_cleanup(c);
}

int tei_http_open(struct tei_http *h, const struct tei_conf *conf, size_t reply_max)
{
    CURLcode code = start_curl();

    if (code != CURLE_OK)
        return TEI_FAIL(code == CURLE_OUT_OF_MEMORY ? TE_ERR_MEMORY : TE_ERR_METADATA,
                        "libcurl does not start: %s", curl_easy_strerror(code));
    h->conf = conf;
    h->reply_max = reply_max;
    pthread_mutex_init(&h->lock, NULL);
    return 0;
}

void tei_http_close(struct tei_http *h)
{
    while (h->n_idle)
        curl_easy_cleanup(h->idle[--h->n_idle]);
    pthread_mutex_destroy(&h->lock);
}

/* ---- the answer */

static bool grow(struct tei_http_call *x, size_t n)
{
    size_t cap = x->cap ? x->cap : 4096;
    char *p;

    while (cap < n + 1)
        cap *= 2;
    if (cap == x->cap)
        return true;
    p = realloc(x->reply.data, cap);
    if (!p)
        return false;
    x->reply.data = p;
    x->cap = cap;
    return true;
}

static size_t on_data(char *data, size_t one, size_t n, void *arg)
{
    struct tei_http_call *x = arg;

    (void)one; /* always 1 */
    if (n > x->max - x->reply.len) {
        x->too_large = true;
        return 0;
    }
    if (!grow(x, x->reply.len + n))
        return 0;
    memcpy(x->reply.data + x->reply.len, data, n);
    x->reply.len += n;
    x->reply.data[x->reply.len] = '\0';
    return n;
}

static size_t on_header(char *data, size_t one, size_t n, void *arg)
{
    struct tei_http_call *x = arg;
    size_t len = strlen(x->wanted), at = len + 1;

    (void)one; /* always 1 */
    if (n <= at || data[len] != ':' || strncasecmp(data, x->wanted, len) != 0)
        return n;
    while (at < n && data[at] == ' ')
        at++;
    snprintf(x->header, sizeof x->header, "%.*s", (int)(n - at), data + at);
    x->header[strcspn(x->header, "\r\n")] = '\0';
    return n;
}

const char *tei_http_said(const struct tei_http_call *x, char *buf)
{
    size_t n = x->reply.data ? strcspn(x->reply.data, "\r\n") : 0;

    snprintf(buf, TEI_HTTP_SAID_MAX, "%.*s", (int)tei_min(n, TEI_HTTP_SAID_MAX - 1),
             n ? x->reply.data : "");
    return buf;
}

/* ---- the call */

/* 0 means "for ever" to curl. */
static void set_times(CURL *c, int64_t deadline_ns)
{
    int left = tei_left_ms(deadline_ns);

    left = left < 0 ? 0 : left ? left : 1;
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)left);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)(left ? left / 2 + 1 : 0));
}

/*
 * So that a forked child does not keep the connections. libcurl asks for another one, of the next address, where there is
 * none of this family, and does not say why it got none.
 */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct tei_http_call *x = arg;
    int fd = tei_fd_own(socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol));

    (void)purpose;
    if (x)
        x->no_socket = fd < 0 && errno != EAFNOSUPPORT ? errno : 0;
    return fd;
}

static int close_socket(void *arg, curl_socket_t fd)
{
    (void)arg;
    tei_fd_close(fd);
    return 0;
}

/* An option with a text, which curl copies: the one kind that may lack memory. NULL: none. */
static CURLcode set_text(CURL *c, CURLcode before, CURLoption option, const char *text)
{
    return before == CURLE_OK && text && text[0] ? curl_easy_setopt(c, option, text) : before;
}

CURLcode tei_http_set_up(const struct tei_http *h, CURL *c)
{
    const struct tei_conf *conf = h->conf;
    CURLcode code = set_protocols(c);

    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(c, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    code = set_text(c, code, CURLOPT_CAINFO, conf->metadata_ca);
    code = set_text(c, code, CURLOPT_SSLCERT, conf->metadata_cert);
    return set_text(c, code, CURLOPT_SSLKEY, conf->metadata_key);
}

static CURLcode set_call(CURL *c, struct tei_http_call *x, struct curl_slist *headers)
{
    CURLcode code = set_text(c, CURLE_OK, CURLOPT_URL, x->url);

    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, x->why);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, x);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, x);
    /* Of a body whose length is announced none is read. */
    curl_easy_setopt(c, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)x->max);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, x->wanted ? on_header : NULL);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, x->wanted ? x : NULL);
    if (x->body) {
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, x->body);
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)x->body_len);
    } else {
        curl_easy_setopt(c, CURLOPT_HTTPGET, 1L);
    }
    return set_text(c, code, CURLOPT_CUSTOMREQUEST, x->method);
}

/* An empty "Expect:" saves the second that curl waits where a server does not answer it. */
static struct curl_slist *header_list(const struct tei_http_call *x)
{
    struct curl_slist *list = curl_slist_append(NULL, "Expect:"), *longer = list;

    for (size_t i = 0; longer && i < TEI_HTTP_LINES && x->lines[i]; i++)
        longer = curl_slist_append(list, x->lines[i]);
    if (longer)
        return list;
    curl_slist_free_all(list);
    return NULL;
}

/*
 * curl asked not to touch signals leaves SIGPIPE to us, and a TLS library may write to a connection
 * that the server has closed.
 */
static CURLcode perform(struct tei_http *h, struct tei_http_call *x, int64_t deadline_ns)
{
    struct curl_slist *headers;
    struct tei_sigpipe sigpipe;
    CURLcode code = CURLE_OUT_OF_MEMORY;
    CURL *c;

    if (tei_left_ms(deadline_ns) == 0)
        return CURLE_OPERATION_TIMEDOUT;
    headers = header_list(x);
    c = headers ? take_handle(h) : NULL;
    if (c) {
        code = tei_http_set_up(h, c);
        if (code == CURLE_OK)
            code = set_call(c, x, headers);
        set_times(c, deadline_ns);
        tei_sigpipe_block(&sigpipe);
        if (code == CURLE_OK)
            code = curl_easy_perform(c);
        tei_sigpipe_restore(&sigpipe);
        curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &x->status);
        give_handle(h, c);
    }
    curl_slist_free_all(headers);
    return code;
}

/* What to look at, by what curl says. */
static const char *remedy(const struct tei_http_call *x)
{
    switch (x->code) {
    case CURLE_OPERATION_TIMEDOUT:
        return "is the metadata server up? (TE_METADATA_TIMEOUT_MS)";
    case CURLE_COULDNT_RESOLVE_HOST:
        return "is the metadata server up? A word without scheme:// is taken for the host of an etcd";
    case CURLE_PEER_FAILED_VERIFICATION:
        return "TE_METADATA_CA must hold the authority of its certificate, and the URL the host that "
               "this is for";
    case CURLE_SSL_CACERT_BADFILE:
        return "TE_METADATA_CA must be a file of certificates in PEM";
    case CURLE_SSL_CERTPROBLEM:
        return "TE_METADATA_CERT and TE_METADATA_KEY must be files in PEM that belong together";
    case CURLE_SSL_CONNECT_ERROR:
        return "does the server speak TLS (https, etcds), and does it want a TE_METADATA_CERT?";
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
        return "is it a server of this kind, and does it want TLS (https, etcds) or a "
               "TE_METADATA_CERT?";
    default:
        return "is the metadata server up?";
    }
}

static int explain(const struct tei_http *h, const struct tei_http_call *x, char *buf, size_t n)
{
    const char *why = x->why[0] ? x->why : curl_easy_strerror(x->code);
    int len = snprintf(buf, n, "%s %.200s%s%.*s: ", x->method, x->shown, x->key ? ", key " : "",
                       KEY_SHOWN, x->key ? x->key : "");

    buf += len;
    n -= (size_t)len;
    if (x->too_large || x->code == CURLE_FILESIZE_EXCEEDED) {
        snprintf(buf, n, TEI_STORE_TOO_LARGE, h->conf->metadata_max_value);
        return TE_ERR_TOO_LARGE;
    }
    if (x->code == CURLE_OUT_OF_MEMORY || x->code == CURLE_WRITE_ERROR) {
        snprintf(buf, n, "no memory for it");
        return TE_ERR_MEMORY;
    }
    if (x->code == CURLE_COULDNT_CONNECT && x->no_socket)
        snprintf(buf, n, "socket: %s%s", tei_errno_text(x->no_socket),
                 x->no_socket == EMFILE ? "; raise the limit of descriptors (ulimit -n)" : "");
    else
        snprintf(buf, n, "%s; %s%s", why, remedy(x), tei_http_proxy_hint(h));
    return x->code == CURLE_OPERATION_TIMEDOUT ? TE_ERR_TIMEOUT : TE_ERR_METADATA;
}

const char *tei_http_proxy_hint(const struct tei_http *h)
{
    return h->conf->proxied ? " (a proxy of the environment, http_proxy and the like, may be in "
                              "between: no_proxy passes it by)"
                            : "";
}

int tei_http_run(struct tei_http *h, struct tei_http_call *x, int64_t deadline_ns, bool quiet)
{
    char text[CURL_ERROR_SIZE + 1024];
    int rc;

    x->max = h->reply_max;
    x->no_socket = 0;
    x->code = perform(h, x, deadline_ns);
    if (x->code == CURLE_OK)
        return 0;
    tei_bytes_fini(&x->reply);
    rc = explain(h, x, text, sizeof text);
    return quiet ? tei_err_keep(rc, text) : TEI_FAIL(rc, "%s", text);
}

/* What is wrong with a URL that curl does not take. */
static int url_error(CURLUcode code)
{
    return code == CURLUE_OUT_OF_MEMORY ? TE_ERR_MEMORY : TE_ERR_INVALID;
}

int tei_http_shown(const char *url, char **out)
{
    CURLU *u = curl_url();
    CURLUcode code = u ? curl_url_set(u, CURLUPART_URL, url, 0) : CURLUE_OUT_OF_MEMORY;
    char *text = NULL;

    *out = NULL;
    if (!code)
        code = curl_url_set(u, CURLUPART_USER, NULL, 0);
    if (!code)
        code = curl_url_set(u, CURLUPART_PASSWORD, NULL, 0);
    if (!code)
        code = curl_url_get(u, CURLUPART_URL, &text, 0);
    if (!code)
        *out = strdup(text);
    curl_free(text);
    curl_url_cleanup(u);
    if (code)
        return url_error(code);
    return *out ? 0 : TE_ERR_MEMORY;
}
