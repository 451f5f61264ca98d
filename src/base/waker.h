/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waker.h - a descriptor that wakes one thread out of poll(2).
 *
 * Ringing twice costs one system call: `rung` says that the descriptor is readable, or is about to
 * become so. Hence it may be drained only by a thread that has seen it readable, or has since held
 * every lock under which others ring. What the ringer did before is seen after draining.
 */
#ifndef TEI_WAKER_H
#define TEI_WAKER_H

#include "base/base.h"

#include <stdatomic.h>

struct tei_waker {
    int fd; /* readable once rung */
    _Atomic bool rung;
};

/* 0 or TE_ERR_SYSTEM. */
int tei_waker_init(struct tei_waker *w);
void tei_waker_fini(struct tei_waker *w);
void tei_waker_ring(struct tei_waker *w);
/* Makes it quiet again, if it was rung. */
void tei_waker_drain(struct tei_waker *w);

#endif
