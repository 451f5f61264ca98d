/* SPDX-License-Identifier: Apache-2.0 */
/* register.h - regions and the transports that have them. All under the engine's `admin`. */
#ifndef TEI_REGISTER_H
#define TEI_REGISTER_H

#include "te.h"
#include "transport/transport.h"

/* Registers all regions with a transport just opened / undoes that. */
int tei_register_join(te_engine *e, struct tei_transport *t);
void tei_register_leave(te_engine *e, struct tei_transport *t);
/*
 * Makes a region for the engine's own use, which the transports know and nobody else; for the caller
 * to keep, and to free once the transports have left it.
 */
int tei_register_own(te_engine *e, void *addr, size_t length, struct tei_region **out);
/* Looks which memory, of devices or for some peers only, no transport to other hosts reaches: TEI_KIND_STRANDED. */
void tei_register_find_stranded(te_engine *e);

#endif
