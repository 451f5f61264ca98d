/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etcd.h - the etcd store, in two parts: store_etcd.c has the calls, etcd_watch.c follows keys.
 *
 * Both talk to etcd's JSON gateway (POST of JSON to http://host:port/v3/..., part of every etcd
 * since 3.4), in which bytes are base64 and 64-bit numbers are strings, and what is 0 or empty is
 * left out.
 */
#ifndef TEI_META_ETCD_H
#define TEI_META_ETCD_H

#include "meta/http.h"

#include <jansson.h>
#include <stdatomic.h>

struct etcd_store {
    struct tei_store store;
    struct tei_http http;
    char **endpoints; /* "http://host:2379" */
    size_t n_endpoints;
    _Atomic size_t current;    /* the one that answered last */
    _Atomic bool answers;      /* the last call was answered */
    char *username, *password; /* NULL: no login */
    pthread_mutex_t lock;      /* of what follows */
    char *token;               /* of the login; NULL: none yet */
    bool no_login;             /* the server does not want one */
    int64_t lease;             /* of our keys; 0: none yet */
    /* watching */
    CURLM *multi;
    _Atomic bool woken;
    int64_t poll_until_ns; /* streams do not get through to here; of the thread that watches */
};

static inline struct etcd_store *tei_etcd_of(struct tei_store *s)
{
    return tei_container_of(s, struct etcd_store, store);
}

/*
 * One call of `path` ("kv/range"); each endpoint is tried in turn, beginning with the one that
 * answered last. *out is the reply, to be released. Errors, not logged: TE_ERR_NOT_FOUND and
 * TE_ERR_EXISTS (gRPC codes 5 and 6); logged: all others.
 */
int tei_etcd_call(struct etcd_store *e, const char *path, const char *body, int64_t deadline_ns,
                  json_t **out);

/* "Authorization: ..." of the login, malloc'ed; *out is NULL where there is no login. */
int tei_etcd_authorization(struct etcd_store *e, int64_t deadline_ns, char **out);
/* The server did not take this one; NULL: it wants one after all. */
void tei_etcd_forget_login(struct etcd_store *e, const char *authorization);

/*
 * Reads what etcd sends. TE_ERR_JSON; TE_ERR_TOO_LARGE for more values than any answer to this store
 * has, as the reader makes much more of a small value than its text has bytes; TE_ERR_MEMORY. *out is
 * NULL then; unlogged.
 */
int tei_etcd_parse(const char *text, size_t n, json_t **out);

/* A 64-bit number, which is a string, or left out (0). */
int64_t tei_etcd_number(const json_t *object, const char *key);

int tei_etcd_watch(struct tei_store *s, struct tei_watched *keys, size_t n,
                   void (*changed)(void *arg, size_t i), void *arg);
void tei_etcd_wake(struct tei_store *s);

#endif
