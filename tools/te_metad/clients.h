/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connections of te_metad, in the order of their last finished request (or of their beginning).
 * When there are more than the limit, the one that has finished nothing for the longest time is cut
 * off. So clients that are slow, on purpose or not, cannot keep others out; an idle client that was
 * cut off connects again.
 *
 * Each function may be called from any thread; clients_del() comes before the socket is closed.
 */
#ifndef TE_METAD_CLIENTS_H
#define TE_METAD_CLIENTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct client {
    int fd;
    bool cut; /* no longer in the list: its socket is shut down, not yet closed */
    struct client *prev, *next;
};

struct clients {
    pthread_mutex_t lock;
    struct client *list; /* the one that waits for longest first */
    size_t count, limit; /* count: length of the list */
};

void clients_init(struct clients *c, size_t limit);
void clients_fini(struct clients *c); /* all clients are gone */

/* A new connection; NULL when there is no memory. */
struct client *clients_add(struct clients *c, int fd);

/* The client has finished a request. */
void clients_touch(struct clients *c, struct client *client);

/* The connection ends; frees the client. */
void clients_del(struct clients *c, struct client *client);

#endif
