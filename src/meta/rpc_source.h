/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_source.h - the sources (base/source.h) of the handshake port, with what their connections hold at
 * the moment; private to meta/.
 *
 * Memory, too, is taken from who has the most when it is scarce, and work that takes long is given out
 * to the sources in turn, however much each has asked for. All of it belongs to the server's loop.
 */
#ifndef TEI_META_RPC_SOURCE_H
#define TEI_META_RPC_SOURCE_H

#include "base/source.h"

struct rpc_source {
    struct tei_source base;  /* in rpc_sources.all; its users are connections */
    struct tei_list conns;   /* the owner's links, oldest first */
    struct tei_link turn;    /* in rpc_sources.turns while something waits */
    size_t held;             /* bytes */
    bool reads_long;         /* a long request of one of them is being read, or served */
    struct tei_list waiting; /* for their turn; the owner's links, oldest first */
    struct tei_list unread;  /* with a long request, for the one that is being read */
};

struct rpc_sources {
    struct tei_list all, turns;
};

void tei_rpc_sources_init(struct rpc_sources *s);

/* The source of the other end of a socket, with one connection more; NULL: no memory. */
struct rpc_source *tei_rpc_source_enter(struct rpc_sources *s, const struct tei_addr *from);
/* One connection less. */
void tei_rpc_source_leave(struct rpc_source *source);

/* The one with the most connections, with the most bytes; NULL if there is none. */
struct rpc_source *tei_rpc_source_crowd(const struct rpc_sources *s);
struct rpc_source *tei_rpc_source_hoarder(const struct rpc_sources *s);

/* Something of the source waits for its turn from now on. */
void tei_rpc_source_wait(struct rpc_sources *s, struct rpc_source *source, struct tei_link *what);
/* It does not any more. */
void tei_rpc_source_unwait(struct rpc_source *source, struct tei_link *what);
/* What is to be done next, waiting no more; NULL if nothing waits. */
struct tei_link *tei_rpc_source_next(struct rpc_sources *s);

#endif
