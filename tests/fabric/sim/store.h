/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - the metadata server's keys, between store.c, which has them and the connections, and the two
 * protocols that it speaks.
 */
#ifndef SIM_STORE_H
#define SIM_STORE_H

#include <stdbool.h>
#include <stddef.h>

/* NULL: there is none. */
const char *sim_store_get(const char *name, size_t *n);
/* For so long; 0: for ever. `fd` is the connection on which it came. */
void sim_store_put(int fd, const char *name, const char *value, size_t n, long ttl_s);
/* False: there is none. */
bool sim_store_del(const char *name);
/* It lives for so long from now on, 0: as long as before; false: there is none. */
bool sim_store_keep(const char *name, long ttl_s);

/* Waits until all of it is taken. */
void sim_store_say(int fd, const char *text, size_t n);
/* True if the server fails now, of which it says this, or nothing as it goes away. */
bool sim_store_fails(int fd, const char *error);

/* The first request of `got` bytes, which end with a NUL; returns its length, 0: it is not whole yet. */
size_t sim_http_serve(int fd, const char *in, size_t got);
size_t sim_redis_serve(int fd, const char *in, size_t got);

#endif
