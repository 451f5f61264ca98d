/* SPDX-License-Identifier: Apache-2.0 */
/* source.c - read source.h first. There are as many sources as users at most. */
#include "base/source.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define IPV6_PART 8 /* bytes of an IPv6 address that one host may choose no other of */

static struct tei_source *source_of(struct tei_link *n)
{
    return tei_container_of(n, struct tei_source, link);
}

void tei_source_key(const struct tei_addr *from, uint8_t key[TEI_SOURCE_KEY])
{
    const struct sockaddr_in6 *six = (const void *)&from->ss;
    const struct sockaddr_in *four = (const void *)&from->ss;

    memset(key, 0, TEI_SOURCE_KEY);
    if (from->ss.ss_family == AF_INET)
        memcpy(key + 12, &four->sin_addr, 4);
    else if (from->ss.ss_family == AF_INET6)
        memcpy(key, &six->sin6_addr, IN6_IS_ADDR_V4MAPPED(&six->sin6_addr) ? 16 : IPV6_PART);
}

static struct tei_source *find(const struct tei_list *all, const uint8_t key[TEI_SOURCE_KEY])
{
    for (struct tei_link *n = tei_list_first(all); n; n = tei_list_next(all, n))
        if (memcmp(source_of(n)->key, key, TEI_SOURCE_KEY) == 0)
            return source_of(n);
    return NULL;
}

struct tei_source *tei_source_enter(struct tei_list *all, const uint8_t key[TEI_SOURCE_KEY],
                                    size_t size)
{
    struct tei_source *s = find(all, key);

    if (!s) {
        s = calloc(1, size);
        if (!s)
            return NULL;
        memcpy(s->key, key, sizeof s->key);
        tei_list_push_back(all, &s->link);
    }
    s->users++;
    return s;
}

void tei_source_leave(struct tei_source *s)
{
    if (--s->users)
        return;
    tei_list_del(&s->link);
    free(s);
}

struct tei_source *tei_source_crowd(const struct tei_list *all)
{
    struct tei_source *most = NULL;

    for (struct tei_link *n = tei_list_first(all); n; n = tei_list_next(all, n))
        if (!most || source_of(n)->users > most->users)
            most = source_of(n);
    return most;
}
