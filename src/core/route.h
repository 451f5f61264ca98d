/* SPDX-License-Identifier: Apache-2.0 */
/* route.h - which transport carries a request. */
#ifndef TEI_ROUTE_H
#define TEI_ROUTE_H

#include "core/rules.h"
#include "core/view.h"

struct route {
    struct via *via; /* NULL: none can carry the request */
    bool lasts;      /* else there may soon be a better one */
    bool held;       /* by `via`; NULL: by one that is not allowed */
};

/* Picks the transport for a request, within the rules of its segment and, if not NULL, of its own. */
struct route tei_route(struct view *v, const te_request *r, const struct rules *own);
/* Why the transport at that place of the table does not carry it, whatever the rules. */
void tei_route_why_not(struct view *v, const te_request *r, size_t place, char *buf, size_t n);
/* Why there is no route, in a sentence for a program: of each transport that the rules allow. */
void tei_route_refusal(struct view *v, const te_request *r, const struct rules *own, char *buf,
                       size_t n);
/* The one that must carry a WRITE, since an earlier WRITE that it had may still be applied there; or NULL. */
struct via *tei_route_holder(struct view *v, const te_request *r);
/* What sort of memory the target range begins in. */
enum tei_mem_kind tei_route_kind(const struct view *v, const te_request *r);
/* 0 also for a transport that does not reach this sort of memory. */
unsigned tei_route_score(const struct via *via, const te_request *r, enum tei_mem_kind kind);

#endif
