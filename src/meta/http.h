/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h - HTTP calls of the stores, over libcurl; private to meta/.
 *
 * Calls come from several threads and block. Each takes a curl handle out of a small pool, or makes
 * one, and puts it back with its connection still open, so that the usual caller pays no connect.
 * http_proxy, https_proxy, all_proxy and no_proxy are heeded, as by every user of libcurl.
 */
#ifndef TEI_META_HTTP_H
#define TEI_META_HTTP_H

#include "meta/meta.h"

#include <curl/curl.h>
#include <pthread.h>

#define TEI_HTTP_HANDLES    4
#define TEI_HTTP_LINES      4 /* headers of a call */
#define TEI_HTTP_HEADER_MAX 64
#define TEI_HTTP_SAID_MAX   160

/* The handles of one store, and what all its calls have in common. */
struct tei_http {
    const struct tei_conf *conf; /* TE_METADATA_CA, _CERT, _KEY, _MAX_VALUE */
    size_t reply_max;            /* bytes of an answer's body */
    pthread_mutex_t lock;        /* guards the pool alone */
    CURL *idle[TEI_HTTP_HANDLES];
    size_t n_idle;
};

/* `reply_max`: what an answer with a value of TE_METADATA_MAX_VALUE comes to. */
int tei_http_open(struct tei_http *h, const struct tei_conf *conf, size_t reply_max);
void tei_http_close(struct tei_http *h);

/* One call; zero what is not used. */
struct tei_http_call {
    const char *method, *url;
    const char *shown; /* the URL without secrets, and */
    const char *key;   /* what is asked for there, or NULL: for messages */
    const char *body;  /* NULL: none */
    size_t body_len;
    const char *lines[TEI_HTTP_LINES]; /* headers, "Name: value" */
    const char *wanted;                /* a header of the answer, "Name" */
    /* The answer. */
    long status;
    struct tei_bytes reply;
    char header[TEI_HTTP_HEADER_MAX]; /* the value of `wanted`, "" if it has none */
    /* Private to http.c. */
    size_t cap, max;
    bool too_large;
    int no_socket; /* why there was none, an errno */
    CURLcode code;
    char why[CURL_ERROR_SIZE];
};

/*
 * 0 when there is an answer, whatever its status; the reply is the caller's, to be freed by
 * tei_bytes_fini(), and ends with a NUL where it has any bytes. Else TE_ERR_TIMEOUT, TE_ERR_MEMORY,
 * TE_ERR_TOO_LARGE (more than reply_max; no more is read) or TE_ERR_METADATA with the text set, and
 * logged unless `quiet`.
 */
int tei_http_run(struct tei_http *h, struct tei_http_call *x, int64_t deadline_ns, bool quiet);

/* What all calls have in common, for those who drive a handle themselves. */
CURLcode tei_http_set_up(const struct tei_http *h, CURL *c);

/* The first line of the answer's body, cut short; `buf` holds TEI_HTTP_SAID_MAX bytes. */
const char *tei_http_said(const struct tei_http_call *x, char *buf);

/* What to say of proxies in a message; "" where the environment names none. */
const char *tei_http_proxy_hint(const struct tei_http *h);

/* The URL as messages show it, malloc'ed. TE_ERR_INVALID when it is none, TE_ERR_MEMORY; unlogged. */
int tei_http_shown(const char *url, char **out);

#endif
