/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpuipc_page.h - the page by which peers learn that memory has gone, and its owner that they have
 * let go of it. No driver is called here.
 *
 * Nothing in a driver takes mapped memory away from another process. So before each copy an
 * initiator of our make enters here, which fails unless the allocation's slot still has the
 * generation that the descriptor told, and it leaves when the copy has ended. The owner that
 * unregisters moves the generation on and waits until all that entered before have left: that no
 * row is busy on the old side of the phase, on the one and then on the other, since who has read
 * the phase long ago may enter either. New ones enter the new side, so they hold nobody up. Both
 * sides use sequentially consistent accesses: either the initiator sees the new generation or the
 * owner sees that it is busy.
 *
 * An initiator finds the page as /proc/<pid>/fd/<fd> of its owner, the process whose number has the
 * hash that the descriptor gives; that it opens and holds the nonce proves that it is the right
 * process, and this host.
 */
#ifndef TEI_GPUIPC_PAGE_H
#define TEI_GPUIPC_PAGE_H

#include "transport/gpuipc/gpuipc_keys.h"

#include <stdatomic.h>

#define GPUIPC_MAGIC        0x54475049u /* "IPGT" */
#define GPUIPC_PAGE_VERSION 1
#define GPUIPC_ROWS         1024 /* initiators of one owner at a time */

/* One initiator. */
struct gpuipc_row {
    _Atomic uint64_t who; /* 0: free; else the pid, and above it what tells it from a later one */
    _Atomic uint32_t busy[2]; /* copies under way, by the phase in which they entered */
    uint32_t unused[12];
};
_Static_assert(sizeof(struct gpuipc_row) == 64, "a row has 64 bytes");

struct gpuipc_page {
    uint32_t magic, version, n_rows, n_slots;
    uint8_t nonce[GPUIPC_NONCE];
    uint64_t pid_ns; /* of the owner: a pid in a row means nothing in another one */
    _Atomic uint32_t phase;
    uint32_t unused[5];
    struct gpuipc_row rows[GPUIPC_ROWS];
    _Atomic uint32_t generation[GPUIPC_SLOTS];
};
_Static_assert(offsetof(struct gpuipc_page, rows) == 64, "the rows begin at 64");
_Static_assert(offsetof(struct gpuipc_page, generation) == 64 + 64 * GPUIPC_ROWS,
               "the generations begin behind the rows");

/* The owner's: makes an empty one; NULL with errno. */
struct gpuipc_page *tei_gpuipc_page_make(const uint8_t nonce[GPUIPC_NONCE], int *fd);
/*
 * Waits until nobody uses what has a generation no more; TE_ERR_BUSY, with the process in
 * te_errmsg(), when one has not left within a second. `phase` is the owner's own count, 0 at first:
 * peers can write to the one in the page. One at a time.
 */
int tei_gpuipc_page_drain(struct gpuipc_page *p, uint32_t *phase);
void tei_gpuipc_page_unmap(struct gpuipc_page *p); /* NULL is accepted */

/* An initiator's: of process `pid`; NULL with `why`. */
struct gpuipc_page *tei_gpuipc_page_find(const struct gpuipc_keys *k, pid_t pid, char *why,
                                         size_t n);
/* A row of one's own; NULL: all are taken, or /proc cannot be read. */
struct gpuipc_row *tei_gpuipc_row_take(struct gpuipc_page *p);
void tei_gpuipc_row_give(struct gpuipc_row *row);
/* False: stale. Else `*side` is for leave(). */
bool tei_gpuipc_enter(struct gpuipc_page *p, struct gpuipc_row *row, uint32_t slot,
                      uint32_t generation, unsigned *side);
void tei_gpuipc_leave(struct gpuipc_row *row, unsigned side);

#endif
