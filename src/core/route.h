/* SPDX-License-Identifier: Apache-2.0 */
/* route.h - which transport carries a request. */
#ifndef TEI_ROUTE_H
#define TEI_ROUTE_H

#include "core/view.h"

/*
 * Picks the transport for a request; NULL if none can carry it. Unless it *lasts, there may soon be a
 * better one.
 */
struct via *tei_route(struct view *v, const te_request *r, bool *lasts);
/* The one that must carry a WRITE, since an earlier WRITE that it had may still be applied there; or NULL. */
struct via *tei_route_holder(struct view *v, const te_request *r);
/* What sort of memory the target range begins in. */
enum tei_mem_kind tei_route_kind(const struct view *v, const te_request *r);
/* 0 also for a transport that does not reach this sort of memory. */
unsigned tei_route_score(const struct via *via, const te_request *r, enum tei_mem_kind kind);

#endif
