/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_kv.h - a small metadata server over HTTP on 127.0.0.1, for unit tests of its clients. It
 * keeps keys in memory, tells what it was asked, and misbehaves on demand. One thread per
 * connection.
 */
#ifndef HTTP_KV_H
#define HTTP_KV_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_KV_CONNS 64

struct http_kv_pair;

struct http_kv {
    int fd;
    uint16_t port;
    char url[64]; /* "http://127.0.0.1:port/metadata" */
    pthread_t thread;
    pthread_mutex_t lock;
    struct http_kv_pair *pairs;
    int conns[HTTP_KV_CONNS]; /* -1: done */
    pthread_t threads[HTTP_KV_CONNS];

    /* Behaviour; set while no request is under way. */
    bool refuse_second_rpc_meta; /* 400, as some servers do */
    size_t max_value;            /* 0: any; else 413 beyond it */
    int status;                  /* not 0: answers this to everything, with `body` */
    const char *body;
    const char *location; /* with `status`: where a redirect leads */
    bool hang;            /* never answers */
    bool hang_up;         /* closes after the request */
    bool hang_up_after;   /* closes after the answer without having said so */

    /* What it saw. */
    int n_conns, n_requests, n_puts;
    char request_line[1024]; /* of the last request */
    char headers[4096];
};

/* False if it cannot start. */
bool http_kv_start(struct http_kv *s);
void http_kv_stop(struct http_kv *s);

/* The value of a (decoded) key as a malloc'ed string, NULL if there is none. */
char *http_kv_get(struct http_kv *s, const char *key);
/* NULL: it is there no more. */
void http_kv_set(struct http_kv *s, const char *key, const char *value);
size_t http_kv_count(struct http_kv *s);
/* So far. */
int http_kv_conns(struct http_kv *s);
int http_kv_requests(struct http_kv *s);
int http_kv_puts(struct http_kv *s);

#endif
