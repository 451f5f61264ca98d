/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_drive.h - the threads that drive lanes. */
#ifndef TEI_TCP_DRIVE_H
#define TEI_TCP_DRIVE_H

#include "base/queue.h"
#include "transport/transport.h"

#include <pthread.h>

struct tcp_lane;

/* What is known of the thread that drives a lane, and expected of it; worker's lock. */
struct tcp_driven {
    struct tei_link link; /* in worker.hushed */
    pthread_t thread;     /* the last one */
    unsigned streak;      /* pieces it has driven, one after the other */
    unsigned need;        /* a streak so long makes it likely that it will drive the next one */
    bool expected;        /* so the piece that begins is left to it */
    bool alone;           /* and it is not there yet */
    bool prompt;          /* the last reply was there as soon as the request was sent */
    unsigned posted;      /* pieces begun for it */
    unsigned in_vain;     /* spins that saw nothing, one after the other */
    int64_t begun_ns, ended_ns;
};

/*
 * The lane has taken `n` pieces of this owner; returns how many of them are noted, all or none.
 * Worker's lock held.
 */
unsigned tei_tcp_drive_took(struct tcp_lane *l, const void *owner, unsigned n);
/* So many of those that are noted are on the lane no more. Worker's lock held. */
void tei_tcp_drive_ended(struct tcp_lane *l, const void *owner, unsigned n);
/*
 * The calling thread has posted what the lane has taken, all that its call had, and may come to
 * drive it.
 */
void tei_tcp_drive_expect(struct tcp_lane *l, const void *owner, uint64_t length);
/* A piece begins on the lane: unless a driver is there or expected the loop must heed it. */
void tei_tcp_drive_begin(struct tcp_lane *l, int64_t now);
/* Its request was sent by the thread that is expected: perhaps the reply is there already. */
void tei_tcp_drive_look(struct tcp_lane *l);
/* The lane is about to be freed. */
void tei_tcp_drive_forget(struct tcp_lane *l);
bool tei_tcp_drive(struct tei_transport *base, const struct tei_drive *d);

#endif
