/* SPDX-License-Identifier: Apache-2.0 */
/* pages_rig.h - requests of pages, for tests. */
#ifndef TE_TEST_PAGES_RIG_H
#define TE_TEST_PAGES_RIG_H

#include "te.h"

#include <stddef.h>
#include <stdint.h>

#define AREA ((size_t)5 << 18) /* of the memory of each side */
#define MANY 5000              /* pages: more than are under way at a time */

/* What asks and what is asked, and the memory of both as this process sees it. */
struct pages_world {
    te_engine *e;
    te_segment seg;
    unsigned char *local, *remote;
    uint64_t remote_base; /* the address of `remote` in the segment */
};

/* Page numbers of both sides, and what they say. */
struct pages_drawn {
    te_pages pages;
    uint64_t local[MANY], remote[MANY];
    uint32_t local32[MANY], remote32[MANY];
};

/* Submits them as the one task of a new batch. */
te_batch pages_submit(te_engine *e, const te_pages *pages);
/* Waits for that, and frees the batch; how it ended. */
struct te_status pages_end(te_engine *e, te_batch b, char *msg, size_t n);
/* MANY pages of two parts, in no order, so that hardly any adjoin. */
void pages_draw_many(const struct pages_world *w, struct pages_drawn *d, int opcode);

#endif
