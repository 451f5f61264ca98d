/* SPDX-License-Identifier: Apache-2.0 */
/*
 * example.h - the smallest complete transport to other engines; docs/transports.md walks through it.
 *
 *     example.c          the ops, the works of this engine and how they end: what a new transport keeps
 *     example_socket.c   its device: sockets, and the target's side, which answers
 *
 * A work is moved in parts, over a UNIX socket of its own that keeps the bounds of packets. For each
 * part the initiator sends a head, and the bytes if it is a WRITE; the target answers with a status, and
 * the bytes if it is a READ. So one packet is under way at a time, and has room.
 *
 * One lock guards everything: the loop's thread holds it in callbacks, the ops take it, and nobody
 * sleeps with it. A work is in `works` from post() to finish(), which alone takes it out: it ends exactly
 * once. Its memory is touched with the lock held, while it is in that list: it is quiet from finish() on.
 */
#ifndef TEST_EXAMPLE_H
#define TEST_EXAMPLE_H

#include "base/loop.h"
#include "transport/transport.h"

#define EXAMPLE_PART ((size_t)64 << 10)

enum { EXAMPLE_NAME = 40, EXAMPLE_SESSIONS = 256 };

struct example_head {
    uint64_t opcode, addr, length;
};

struct example_attach {
    struct tei_attach base;
    char name[EXAMPLE_NAME]; /* of the peer's socket */
};

struct example_work {
    struct tei_work base;
    struct tei_watch watch; /* open while it is under way */
    int64_t moved_ns;       /* when it was begun, or a part moved */
    uint64_t done;
};

struct example {
    struct tei_transport base;
    pthread_mutex_t lock;
    struct tei_loop loop;
    pthread_t thread;
    bool running, closed;
    struct tei_timer timer;       /* armed while there is work */
    struct tei_list works, ended; /* ended: to be handed over */
    char name[EXAMPLE_NAME];      /* of the socket that listens; no file, and random */
    struct tei_watch listener, sessions[EXAMPLE_SESSIONS]; /* of works of peers */
    char part[EXAMPLE_PART];
};

static inline struct example *example_of(struct tei_transport *t)
{
    return tei_container_of(t, struct example, base);
}

static inline struct example_work *work_of(struct tei_link *link)
{
    return (struct example_work *)tei_container_of(link, struct tei_work, link);
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
