/* SPDX-License-Identifier: Apache-2.0 */
/* install.h - which transports an engine has. */
#ifndef TEI_INSTALL_H
#define TEI_INSTALL_H

#include "core/transports.h"
#include "te.h"
#include "transport/transport.h"

/* What every engine has, and what auto_discover picks. Before anybody else knows the engine. */
int tei_install_defaults(te_engine *e, bool auto_discover);
/* What goes with memory of the kinds registered so far; whether anything came of it. Under admin. */
bool tei_install_for_devices(te_engine *e);
/* The transport of that name; TE_ERR_UNSUPPORTED: it is not built in. */
int tei_install_find(const char *name, const struct tei_transport_ops **out);
/* Whether it can run on this host; if not, why. */
bool tei_install_can_run(const struct tei_conf *conf, const struct tei_transport_ops *ops,
                         char *why, size_t n);
/* The kinds of memory that are there: the host's is from the start, the others once registered. */
unsigned tei_install_kinds(const struct transports *s);
/* What in the options keeps it from being installed by itself; NULL if nothing does. */
const char *tei_install_why_off(const struct tei_conf *conf, const struct tei_transport_ops *ops);
/* Why a transport is not installed, for te_explain(). */
void tei_install_why_not(const te_engine *e, const struct tei_transport_ops *ops, char *buf,
                         size_t n);

#endif
