/* SPDX-License-Identifier: Apache-2.0 */
/* rekey.h - the key file of TE_AUTH is looked at again and again. */
#ifndef TEI_REKEY_H
#define TEI_REKEY_H

#include "base/jobs.h"
#include "base/loop.h"
#include "te.h"

struct rekey {
    struct tei_job job;
    struct tei_timer timer;
};

/* Once te/ctl runs. Nothing is done with TE_AUTH=off. */
void tei_rekey_start(te_engine *e);

#endif
