/* SPDX-License-Identifier: Apache-2.0 */
/*
 * example.h - the smallest complete transport to other engines; docs/transports.md walks through it.
 *
 *     example.c          the ops, and what is under way: what a new transport keeps
 *     example_socket.c   its device: sockets, and the target's side, which answers
 *
 * The ledger has the works; the transport moves parts of them, each in a lane of its own: a UNIX socket
 * that keeps the bounds of packets. The initiator sends a head, and the bytes if it is a WRITE; the
 * target answers with a status, and the bytes if it is a READ. Each way one packet goes, and has room.
 *
 * One lock guards everything: the loop's thread holds it in callbacks, the ops take it, and nobody
 * sleeps with it. The memory of a part is touched with the lock held, while its lane is open: it is
 * quiet when the ledger has the part back.
 */
#ifndef TEST_EXAMPLE_H
#define TEST_EXAMPLE_H

#include "base/loop.h"
#include "transport/ledger.h"

#define EXAMPLE_PART ((size_t)64 << 10)

enum { EXAMPLE_NAME = 40, EXAMPLE_SESSIONS = 256, EXAMPLE_LANES = 8 };

struct example_head {
    uint64_t opcode, addr, length;
};

struct example_attach {
    struct tei_attach base;
    char name[EXAMPLE_NAME]; /* of the peer's socket */
};

struct example_lane {
    struct tei_watch watch; /* open while a part is under way */
    struct tei_part part;
};

struct example {
    struct tei_transport base;
    pthread_mutex_t lock;
    struct tei_loop loop;
    bool closed;
    struct tei_timer timer;
    struct tei_ledger ledger;
    struct example_lane lanes[EXAMPLE_LANES];
    char name[EXAMPLE_NAME]; /* of the socket that listens; no file, and random */
    struct tei_watch listener, sessions[EXAMPLE_SESSIONS]; /* of peers */
    char part[EXAMPLE_PART];
};

static inline struct example *example_of(struct tei_transport *t)
{
    return tei_container_of(t, struct example, base);
}

/* ---- example_socket.c; where nothing else is said, the lock is held */
/* Listens, and from then on answers. TE_ERR_SOCKET. */
int tei_example_listen(struct example *x);
void tei_example_deafen(struct example *x);
/* Connects to a peer that may be frozen, without waiting; false if it is not there. */
bool tei_example_dial(struct example *x, const char *name, struct tei_watch *w, tei_watch_fn fn);
/* Accepted when not open. */
void tei_example_hang_up(struct tei_watch *w);
/* One packet; bytes, or -1. */
ssize_t tei_example_packet(int fd, bool out, void *head, size_t n_head, void *bytes, size_t n);
/* Ops, without the lock. */
int tei_example_describe(struct tei_transport *t, json_t *root);
int tei_example_attach(struct tei_transport *t, struct tei_attach *a, const struct tei_segment *s,
                       const struct tei_hostport *where);

#endif
