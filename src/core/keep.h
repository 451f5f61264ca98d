/* SPDX-License-Identifier: Apache-2.0 */
/* keep.h - our keys in the metadata server. */
#ifndef TEI_KEEP_H
#define TEI_KEEP_H

#include "base/jobs.h"
#include "base/loop.h"
#include "te.h"

/* What is wrong with the metadata server, in bits. */
enum store_state {
    STORE_DOWN = 1,    /* our keys could not be kept */
    STORE_REFUSES = 2, /* they could not be put */
    STORE_TAKEN = 4,   /* another engine has our name */
};

struct keeper {
    struct tei_job job;
    struct tei_timer timer;
    _Atomic int state; /* bits of enum store_state */
};

/* Once announced; from then on our keys are looked after. */
void tei_keep_start(te_engine *e);
/* Whether the server was away when it was last asked: no reason to wait for it again. */
bool tei_keep_is_down(struct keeper *s);
/* Whether another engine has our name there, so that we are not found. */
bool tei_keep_is_taken(struct keeper *s);
/* What putting our keys has come to; its text is in te_errmsg(). */
void tei_keep_note_put(te_engine *e, int rc);

#endif
