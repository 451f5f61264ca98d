/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_source.c - read rpc_source.h first. There are as many sources as connections at most. */
#include "meta/rpc_source.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define IPV6_PART 8 /* bytes of an IPv6 address that one host may choose no other of */

void tei_rpc_sources_init(struct rpc_sources *s)
{
    tei_list_init(&s->all);
    tei_list_init(&s->turns);
}

/* Of an address that is not known, zeros. */
static void read_key(int fd, uint8_t key[TEI_RPC_SOURCE_KEY])
{
    struct sockaddr_storage ss = {0};
    const struct sockaddr_in6 *six = (const void *)&ss;
    const struct sockaddr_in *four = (const void *)&ss;
    socklen_t len = sizeof ss;

    memset(key, 0, TEI_RPC_SOURCE_KEY);
    if (getpeername(fd, (struct sockaddr *)&ss, &len) != 0)
        return;
    if (ss.ss_family == AF_INET)
        memcpy(key + 12, &four->sin_addr, 4);
    else if (ss.ss_family == AF_INET6)
        memcpy(key, &six->sin6_addr, IN6_IS_ADDR_V4MAPPED(&six->sin6_addr) ? 16 : IPV6_PART);
}

static struct rpc_source *source_of(const struct rpc_sources *s,
                                    const uint8_t key[TEI_RPC_SOURCE_KEY])
{
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&s->all, n, tmp) {
        struct rpc_source *source = tei_container_of(n, struct rpc_source, link);

        if (memcmp(source->key, key, TEI_RPC_SOURCE_KEY) == 0)
            return source;
    }
    return NULL;
}

struct rpc_source *tei_rpc_source_enter(struct rpc_sources *s, int fd)
{
    uint8_t key[TEI_RPC_SOURCE_KEY];
    struct rpc_source *source;

    read_key(fd, key);
    source = source_of(s, key);
    if (!source) {
        source = calloc(1, sizeof *source);
        if (!source)
            return NULL;
        memcpy(source->key, key, sizeof key);
        tei_list_init(&source->waiting);
        tei_list_init(&source->unread);
        tei_list_push_back(&s->all, &source->link);
    }
    source->conns++;
    return source;
}

void tei_rpc_source_leave(struct rpc_source *source)
{
    if (--source->conns)
        return;
    tei_list_del(&source->link);
    free(source);
}

struct rpc_source *tei_rpc_source_crowd(const struct rpc_sources *s)
{
    struct rpc_source *most = NULL;
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&s->all, n, tmp) {
        struct rpc_source *source = tei_container_of(n, struct rpc_source, link);

        if (!most || source->conns > most->conns)
            most = source;
    }
    return most;
}

struct rpc_source *tei_rpc_source_hoarder(const struct rpc_sources *s)
{
    struct rpc_source *most = NULL;
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&s->all, n, tmp) {
        struct rpc_source *source = tei_container_of(n, struct rpc_source, link);

        if (!most || source->held > most->held)
            most = source;
    }
    return most;
}

void tei_rpc_source_wait(struct rpc_sources *s, struct rpc_source *source, struct tei_link *what)
{
    if (tei_list_empty(&source->waiting))
        tei_list_push_back(&s->turns, &source->turn);
    tei_list_push_back(&source->waiting, what);
}

void tei_rpc_source_unwait(struct rpc_source *source, struct tei_link *what)
{
    tei_list_del(what);
    if (tei_list_empty(&source->waiting))
        tei_list_del(&source->turn);
}

struct tei_link *tei_rpc_source_next(struct rpc_sources *s)
{
    struct tei_link *turn = tei_list_pop(&s->turns), *what;
    struct rpc_source *source;

    if (!turn)
        return NULL;
    source = tei_container_of(turn, struct rpc_source, turn);
    what = tei_list_pop(&source->waiting);
    if (!tei_list_empty(&source->waiting))
        tei_list_push_back(&s->turns, &source->turn);
    return what;
}
