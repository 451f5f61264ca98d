/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - the metadata server's keys, between store.c, which has them and the connections, and the three
 * protocols that it speaks.
 */
#ifndef SIM_STORE_H
#define SIM_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_key {
    char name[256];
    char *value;
    size_t length;
    int64_t until;        /* is there */
    char incarnation[17]; /* of the engine that put a descriptor last, and its version */
    long version;
    int64_t revision, lease; /* etcd's: of the last change; 0: none */
};

/* All that ever were, from 0 on; NULL: there are no more. */
struct sim_key *sim_store_key(size_t i);
struct sim_key *sim_store_find(const char *name); /* NULL: never was */
bool sim_store_has(const struct sim_key *k);

/* NULL: there is none. */
const char *sim_store_get(const char *name, size_t *n);
/* For so long; 0: for ever. `fd` is the connection on which it came. */
void sim_store_put(int fd, const char *name, const char *value, size_t n, long ttl_s);
/* False: there is none. */
bool sim_store_del(const char *name);
/* It lives for so long from now on, 0: as long as before; false: there is none. */
bool sim_store_keep(const char *name, long ttl_s);

/* Is sent as it is taken. */
void sim_store_say(int fd, const char *text, size_t n);
/* True if the server fails now, of which it says this, or nothing as it goes away. */
bool sim_store_fails(int fd, const char *error);
/* Ends a connection, once what was said on it is sent. */
void sim_store_hang_up(int fd);

/* The first request of `got` bytes, which end with a NUL; returns its length, 0: it is not whole yet. */
size_t sim_http_serve(int fd, const char *in, size_t got);
size_t sim_redis_serve(int fd, const char *in, size_t got);
size_t sim_etcd_serve(int fd, const char *in, size_t got);

/* http.c. A request that is whole, and the answer to one. */
struct sim_http {
    char method[8], path[512];
    const char *body;
    size_t length, whole; /* of the body; with its head */
};
bool sim_http_read(const char *in, size_t got, struct sim_http *out);
void sim_http_answer(int fd, int status, const char *body, size_t n);

/* etcd.c. Time has passed; a connection has ended; a member has gone away; all were
 * started again without what they knew. */
void sim_etcd_tick(void);
void sim_etcd_left(int fd);
void sim_etcd_member_away(void);
void sim_etcd_forget(void);

#endif
