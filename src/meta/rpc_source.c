/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_source.c - read rpc_source.h first. */
#include "meta/rpc_source.h"

void tei_rpc_sources_init(struct rpc_sources *s)
{
    tei_list_init(&s->all);
    tei_list_init(&s->turns);
}

static struct rpc_source *of(struct tei_source *base)
{
    return base ? tei_container_of(base, struct rpc_source, base) : NULL;
}

struct rpc_source *tei_rpc_source_enter(struct rpc_sources *s, const struct tei_addr *from)
{
    uint8_t key[TEI_SOURCE_KEY];
    struct rpc_source *source;

    tei_source_key(from, key);
    source = of(tei_source_enter(&s->all, key, sizeof *source));
    if (source && source->base.users == 1) {
        tei_list_init(&source->conns);
        tei_list_init(&source->waiting);
        tei_list_init(&source->unread);
    }
    return source;
}

void tei_rpc_source_leave(struct rpc_source *source)
{
    tei_source_leave(&source->base);
}

struct rpc_source *tei_rpc_source_crowd(const struct rpc_sources *s)
{
    return of(tei_source_crowd(&s->all));
}

struct rpc_source *tei_rpc_source_hoarder(const struct rpc_sources *s)
{
    struct rpc_source *most = NULL;
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&s->all, n, tmp) {
        struct rpc_source *source = of(tei_container_of(n, struct tei_source, link));

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
