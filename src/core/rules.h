/* SPDX-License-Identifier: Apache-2.0 */
/* rules.h - which transports may carry requests, by te_paths: of a segment, and of tasks. */
#ifndef TEI_RULES_H
#define TEI_RULES_H

#include "core/beside.h"
#include "transport/transport.h"

#include <string.h>

/* By place in the table of transports. All zero: nothing is said. */
struct rules {
    uint16_t forbidden;               /* a bit for each that may not carry anything */
    bool prefers;                     /* any */
    uint8_t rank[TEI_TRANSPORTS_MAX]; /* of those that are preferred: the higher the rather */
};
static_assert(TEI_TRANSPORTS_MAX <= 16, "rules.forbidden has a bit for each");

/* Reads what a program gave, NULL included; *said: whether that is anything. TE_ERR_UNSUPPORTED, TE_ERR_INVALID. */
int tei_rules_read(const te_paths *given, struct rules *out, bool *said);
/* "only tcp, rdma; rather rdma", cut to fit; "any" of NULL. */
void tei_rules_text(const struct rules *x, char *buf, size_t n);

static inline bool tei_rules_allow(const struct rules *x, size_t place)
{
    return !x || !(x->forbidden >> place & 1);
}
static inline bool tei_rules_equal(const struct rules *a, const struct rules *b)
{
    return a && b ? a->forbidden == b->forbidden && memcmp(a->rank, b->rank, sizeof(a->rank)) == 0
                  : a == b;
}

/* Those of a task, for as long as the batch lives; NULL: it has none. */
static inline const struct rules *tei_rules_of(const struct task *t)
{
    return tei_beside_of(t, BESIDE_RULES, sizeof(struct rules));
}

#endif
