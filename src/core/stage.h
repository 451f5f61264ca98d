/* SPDX-License-Identifier: Apache-2.0 */
/* stage.h - memory of devices that a transport does not reach by itself. */
#ifndef TEI_STAGE_H
#define TEI_STAGE_H

#include "te.h"
#include "transport/transport.h"

/*
 * Makes what is needed to copy through host memory, once memory of such a device is registered.
 * Under admin.
 */
int tei_stage_start(te_engine *e, enum tei_mem_kind kind);
/* Its memory, which transports have as they have regions; NULL until there is a stage. Under admin. */
struct tei_region *tei_stage_region(const te_engine *e);
void tei_stage_cancel(te_engine *e, const void *owner);
/* Before the transports are closed. */
void tei_stage_close(te_engine *e);
/* After that, and before they are stopped: waits until all its work is done. */
void tei_stage_stop(te_engine *e);
/* Once no transport has the memory. */
void tei_stage_fini(te_engine *e);

#endif
