/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_nics.h - what went through each address of this host. */
#ifndef TEI_TCP_NICS_H
#define TEI_TCP_NICS_H

#include "transport/tcp/tcp_lane.h"
#include "transport/tcp/tcp_session.h"

/* The connection is about to be closed, or to be nobody's any more; the worker's lock is held. */
void tei_tcp_nics_close(struct tcp_worker *w, int fd);
/* struct tei_transport_ops. */
void tei_tcp_nics(struct tei_transport *base, struct tei_nic_table *out);

#endif
