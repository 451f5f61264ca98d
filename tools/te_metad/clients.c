/* SPDX-License-Identifier: Apache-2.0 */
#include "te_metad/clients.h"

#include <stdlib.h>
#include <sys/socket.h>

#include <utlist.h>

void clients_init(struct clients *c, size_t limit)
{
    *c = (struct clients){.limit = limit};
    pthread_mutex_init(&c->lock, NULL);
}

void clients_fini(struct clients *c)
{
    pthread_mutex_destroy(&c->lock);
}

/* Takes a client out of the list; the lock is held. */
static void leave(struct clients *c, struct client *client)
{
    DL_DELETE(c->list, client);
    c->count--;
}

/* Cuts off the one that waits for longest; the thread that serves it then closes the socket. */
static void cut_oldest(struct clients *c)
{
    struct client *oldest = c->list;
    leave(c, oldest);
    oldest->cut = true;
    shutdown(oldest->fd, SHUT_RDWR);
}

struct client *clients_add(struct clients *c, int fd)
{
    struct client *client = calloc(1, sizeof *client);
    if (!client)
        return NULL;
    client->fd = fd;
    pthread_mutex_lock(&c->lock);
    DL_APPEND(c->list, client);
    if (++c->count > c->limit)
        cut_oldest(c);
    pthread_mutex_unlock(&c->lock);
    return client;
}

void clients_touch(struct clients *c, struct client *client)
{
    pthread_mutex_lock(&c->lock);
    if (!client->cut) {
        DL_DELETE(c->list, client);
        DL_APPEND(c->list, client);
    }
    pthread_mutex_unlock(&c->lock);
}

void clients_del(struct clients *c, struct client *client)
{
    pthread_mutex_lock(&c->lock);
    if (!client->cut)
        leave(c, client);
    pthread_mutex_unlock(&c->lock);
    free(client);
}
