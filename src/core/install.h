/* SPDX-License-Identifier: Apache-2.0 */
/* install.h - which transports an engine has. */
#ifndef TEI_INSTALL_H
#define TEI_INSTALL_H

#include "te.h"
#include "transport/transport.h"

/* What every engine has, and what auto_discover picks. Before anybody else knows the engine. */
int tei_install_defaults(te_engine *e, bool auto_discover);
/* What goes with memory of the kinds registered so far; whether anything came of it. Under admin. */
bool tei_install_for_devices(te_engine *e);
/* Why a transport is not installed, for te_explain(). */
void tei_install_why_not(const te_engine *e, const struct tei_transport_ops *ops, char *buf,
                         size_t n);

#endif
