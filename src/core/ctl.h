/* SPDX-License-Identifier: Apache-2.0 */
/* ctl.h - te/ctl: the thread of the handshake port and of the timers. Nothing on it may block. */
#ifndef TEI_CTL_H
#define TEI_CTL_H

#include "base/loop.h"
#include "te.h"

#include <pthread.h>

struct ctl {
    struct tei_loop loop;
    pthread_mutex_t lock; /* the loop's, held during its callbacks */
};

void tei_ctl_init(struct ctl *c);
void tei_ctl_fini(struct ctl *c);
int tei_ctl_open(struct ctl *c);
int tei_ctl_run(struct ctl *c);
/* Ends the thread, if it runs; no callback comes after it. */
void tei_ctl_stop(struct ctl *c);
/* Arms one of the timers that an engine has once, or brings it forward, unless the engine is closing. */
void tei_ctl_timer(te_engine *e, struct tei_timer *t, int64_t when_ns,
                   void (*callback)(struct tei_timer *t));

#endif
